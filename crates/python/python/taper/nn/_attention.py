"""The attention of several heads as a function of its parameters."""

from .. import _taper


def _additive(mask, like):
    """A mask as numbers that are added: minus infinity where a truth value is true."""
    if mask is None or mask.is_floating_point():
        return mask
    return like.new_zeros(mask.shape).masked_fill(mask.bool(), float("-inf"))


def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn,
    dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True,
    attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None,
    static_k=None, static_v=None, average_attn_weights=True, is_causal=False,
):
    from . import functional as F

    single = query.dim() == 2
    if single:
        query, key, value = (one.unsqueeze(1) for one in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if width % num_heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (F.linear(one, weight, bias) for one, weight, bias in zip((query, key, value), weights, biases))
    mask, padding = _additive(attn_mask, q), _additive(key_padding_mask, q)
    more = 0
    if bias_k is not None and bias_v is not None:
        k, v = (_taper.cat([one, bias.expand(1, batch, width)], 0) for one, bias in ((k, bias_k), (v, bias_v)))
        more += 1
    heads = lambda one: one.reshape(one.shape[0], batch, num_heads, -1).permute(1, 2, 0, 3)
    q, k, v = heads(q), heads(k), heads(v)
    if static_k is not None:
        k = static_k.reshape(batch, num_heads, *static_k.shape[1:])
    if static_v is not None:
        v = static_v.reshape(batch, num_heads, *static_v.shape[1:])
    if add_zero_attn:
        zero = k.new_zeros(batch, num_heads, 1, k.shape[-1])
        k, v = _taper.cat([k, zero], 2), _taper.cat([v, zero], 2)
        more += 1
    if mask is not None:
        mask = F.pad(mask, (0, more)) if more else mask
        mask = mask.reshape(batch, num_heads, *mask.shape[1:]) if mask.dim() == 3 else mask
    if padding is not None:
        padding = (F.pad(padding, (0, more)) if more else padding)[:, None, None, :]
        mask = padding if mask is None else mask + padding
    if need_weights:
        scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)
        attention = (scores if mask is None else scores + mask).softmax(-1)
        attention = F.dropout(attention, dropout_p, training)
        output = attention @ v
    else:
        # The scores of all pairs are never in memory.
        output = F.scaled_dot_product_attention(q, k, v, mask, dropout_p if training else 0.0)
    output = output.permute(2, 0, 1, 3).reshape(length, batch, width)
    output = F.linear(output, out_proj_weight, out_proj_bias)
    output = output.squeeze(1) if single else output
    if not need_weights:
        return output, None
    attention = attention.mean(1) if average_attn_weights else attention
    return output, attention.squeeze(0) if single else attention


__all__ = ["multi_head_attention_forward"]
