"""``flex_attention``: attention whose scores a function of positions changes, and masks of such functions.

The functions are called once with the positions of all scores, ``[B, 1, 1, 1]``, ``[H, 1, 1]``, ``[Q, 1]`` and ``[K]``,
so that they broadcast.
"""

from ..._functions import arange
from ..._taper import Tensor
from .. import functional as F

_DEFAULT_SPARSE_BLOCK_SIZE = 128


def _places(batch, heads, queries, keys, device):
    sizes = ((batch, 3), (heads, 2), (queries, 1), (keys, 0))
    return [arange(size, device=device).reshape(size, *[1] * after) for size, after in sizes]


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device="cpu"):
    """The mask ``[B, H, Q_LEN, KV_LEN]`` of a function of batch, head, query and key."""
    places = _places(B or 1, H or 1, Q_LEN, KV_LEN, device)
    return mod_fn(*places).expand(B or 1, H or 1, Q_LEN, KV_LEN)


class BlockMask:
    """A mask of a function of positions."""

    def __init__(self, mask, mask_mod):
        self.mask, self.mask_mod = mask, mask_mod
        self.shape = tuple(mask.shape)

    def to_dense(self):
        return self.mask

    def to(self, device):
        return BlockMask(self.mask.to(device), self.mask_mod)


def create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device="cpu", BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, **options):
    return BlockMask(create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device), mask_mod)


def and_masks(*mask_mods):
    def both(*places):
        found = mask_mods[0](*places)
        for one in mask_mods[1:]:
            found = found & one(*places)
        return found

    return both


def or_masks(*mask_mods):
    def either(*places):
        found = mask_mods[0](*places)
        for one in mask_mods[1:]:
            found = found | one(*places)
        return found

    return either


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False,
                   return_lse=False, **options):
    """``softmax(score_mod(q kᵀ · scale, batch, head, query, key)) v``, without scores that the mask leaves out."""
    mask = block_mask.to_dense() if isinstance(block_mask, BlockMask) else block_mask
    if score_mod is None and not return_lse:
        return F.scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=enable_gqa)
    if enable_gqa:
        times = query.shape[1] // key.shape[1]
        key, value = (one.repeat_interleave(times, 1) for one in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *_places(*scores.shape, scores.device))
    if isinstance(mask, Tensor):
        scores = scores.masked_fill(~mask, float("-inf"))
    found = scores.softmax(-1) @ value
    return (found, scores.logsumexp(-1)) if return_lse else found
