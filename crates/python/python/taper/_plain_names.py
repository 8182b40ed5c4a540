"""Functions of ``torch.nn.functional`` that ``torch`` has too: under the same name with the same arguments, or with
arguments of its own (settings by position, and reductions as numbers)."""

from . import _taper
from .linalg import matrix_power  # noqa: F401
from .nn import functional as F
from .nn.functional import (  # noqa: F401
    adaptive_avg_pool1d,
    adaptive_max_pool1d,
    avg_pool1d,
    bilinear,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_similarity,
    hardshrink,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    pdist,
    pixel_shuffle,
    pixel_unshuffle,
    rrelu,
)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-05, cudnn_enabled=True):
    return F.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled):
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled):
    return F.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def alpha_dropout(input, p, train):
    return F.alpha_dropout(input, p, train)


def feature_alpha_dropout(input, p, train):
    return F.feature_alpha_dropout(input, p, train)


def feature_dropout(input, p, train):
    return F.dropout2d(input, p, train)


def binomial(count, prob, generator=None):
    return _taper._sample("binomial", count, generator, prob)


def split_with_sizes(input, split_sizes, dim=0):
    return input.split_with_sizes(split_sizes, dim)


_REDUCTIONS = ("none", "mean", "sum")


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    return F.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _REDUCTIONS[reduction], zero_infinity
    )


def _loss(name, tensors, settings):
    """A loss whose settings may be given by position, with its reduction as a number."""
    function = getattr(F, name)

    def loss(*args, **kwargs):
        kwargs.update(zip(settings, args[tensors:]))
        kwargs["reduction"] = _REDUCTIONS[kwargs.get("reduction", 1)]
        return function(*args[:tensors], **kwargs)

    loss.__name__ = loss.__qualname__ = name
    return loss


#: Losses: the number of their tensors, and the names of the settings that follow.
for _name, _tensors, _settings in (
    ("binary_cross_entropy_with_logits", 2, ("weight", "pos_weight", "reduction")),
    ("cosine_embedding_loss", 3, ("margin", "reduction")),
    ("hinge_embedding_loss", 2, ("margin", "reduction")),
    ("kl_div", 2, ("reduction", "log_target")),
    ("margin_ranking_loss", 3, ("margin", "reduction")),
    ("poisson_nll_loss", 2, ("log_input", "full", "eps", "reduction")),
    ("triplet_margin_loss", 3, ("margin", "p", "eps", "swap", "reduction")),
):
    globals()[_name] = _loss(_name, _tensors, _settings)
__all__ = [name for name in dir() if not name.startswith("_") and name != "F"]
