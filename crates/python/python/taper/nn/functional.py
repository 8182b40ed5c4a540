"""Layers and losses as functions."""

from .. import _taper
from .._taper import Tensor, gumbel_softmax  # noqa: F401
from ._attention import multi_head_attention_forward  # noqa: F401
from .._taper import bilinear, cosine_similarity, group_norm, linear  # noqa: F401
from .._taper import affine_grid, channel_shuffle, grid_sample  # noqa: F401
from .._taper import normalize, pdist, pixel_shuffle, pixel_unshuffle  # noqa: F401
from .._taper import scaled_dot_product_attention  # noqa: F401

_conv, _conv_transpose = _taper._conv, _taper._conv_transpose


# Activations

def _activation(name, *, into=None):
    method = getattr(Tensor, into or name)

    def activate(input, *args, inplace=False, **kwargs):
        result = method(input, *args, **kwargs)
        return input._replace(result) if inplace else result

    activate.__name__ = name
    return activate


for _name in (
    "relu relu6 sigmoid tanh silu mish selu elu celu leaky_relu hardtanh hardsigmoid hardswish hardshrink softshrink "
    "softplus softsign tanhshrink logsigmoid glu prelu threshold"
).split():
    globals()[_name] = _activation(_name)


def _changing(name):
    def activate(input, *args, **kwargs):
        return globals()[name](input, *args, inplace=True, **kwargs)

    activate.__name__ = f"{name}_"
    return activate


relu_, elu_, selu_, celu_, leaky_relu_, hardtanh_, threshold_ = map(
    _changing, ("relu", "elu", "selu", "celu", "leaky_relu", "hardtanh", "threshold")
)


def gelu(input, *, approximate="none"):
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return input._gelu(approximate == "tanh")


def _default_dim(dim, input):
    return (0 if input.dim() in (0, 1, 3) else 1) if dim is None else dim


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    return input.softmax(_default_dim(dim, input), dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return input.log_softmax(_default_dim(dim, input), dtype)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    return (input if dtype is None else input.to(dtype)).softmin(_default_dim(dim, input))


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, got {lower} and {upper}")
    if training:
        slopes = _taper._random("uniform", input.shape, [lower, upper], input.dtype, input.device)
        result = input.relu() - slopes * (-input).relu()
    else:
        result = input.leaky_relu((lower + upper) / 2)
    return input._replace(result) if inplace else result


# Losses

#: The losses that take integers too, and compute with them as floats.
_OF_INTEGERS = ("poisson_nll_loss", "margin_ranking_loss", "triplet_margin_loss", "hinge_embedding_loss", "cosine_embedding_loss")


def _loss(name):
    function = getattr(_taper, name)

    def loss(*tensors, size_average=None, reduce=None, **settings):
        if size_average is not None or reduce is not None:
            settings["reduction"] = "none" if reduce is False else "sum" if size_average is False else "mean"
        if tensors and name in _OF_INTEGERS and not tensors[0].is_floating_point():
            tensors = [one if one.is_floating_point() else one.float() for one in tensors]
        return function(*tensors, **settings)

    loss.__name__ = name
    return loss


for _name in (
    "mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits kl_div poisson_nll_loss gaussian_nll_loss margin_ranking_loss "
    "cosine_embedding_loss triplet_margin_loss soft_margin_loss hinge_embedding_loss multi_margin_loss "
    "multilabel_margin_loss multilabel_soft_margin_loss"
).split():
    globals()[_name] = _loss(_name)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False,
                                      reduction="mean"):
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    loss = (near - far + margin).clamp(min=0)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, **settings):
    classes, *features, width = linear_weight.shape
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, linear_weight.reshape(-1, width), bias)
    return globals()["cross_entropy"](logits.reshape(*input.shape[:-1], classes, *features), target, **settings)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    lengths = [list(map(int, one)) for one in (input_lengths, target_lengths)]
    return _taper.ctc_loss(log_probs, targets, *lengths, blank, reduction, zero_infinity)


# Convolutions

def _conv_of(d):
    def conv(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        if groups <= 0:
            raise RuntimeError("non-positive groups is not supported")
        return _conv(d, input, weight, bias, stride, padding, dilation, groups)

    conv.__name__ = f"conv{d}d"
    return conv


def _conv_transpose_of(d):
    def conv(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return _conv_transpose(d, input, weight, bias, stride, padding, output_padding, groups, dilation)

    conv.__name__ = f"conv_transpose{d}d"
    return conv


conv1d, conv2d, conv3d = map(_conv_of, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_conv_transpose_of, (1, 2, 3))


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    return _taper._unfold(input, kernel_size, dilation, padding, stride)


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    return _taper._fold(input, output_size, kernel_size, dilation, padding, stride)


# Pooling and resizing

def _in_floats(pool):
    """A function of floats that takes integers too, and gives them back rounded towards zero."""
    def called(input, *args, **kwargs):
        if input.is_floating_point():
            return pool(input, *args, **kwargs)
        made = pool(input.double(), *args, **kwargs)
        return (made[0].to(input.dtype), *made[1:]) if isinstance(made, tuple) else made.to(input.dtype)

    called.__name__ = pool.__name__
    return called


def _max_pool_of(d):
    @_in_floats
    def pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        kind = "max_with_indices" if return_indices else "max"
        found = _taper._pool(kind, d, input, kernel_size, stride, padding, dilation, ceil_mode)
        return tuple(found) if return_indices else found[0]

    pool.__name__ = f"max_pool{d}d"
    return pool


def _avg_pool_of(d):
    @_in_floats
    def pool(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
             divisor_override=None):
        if divisor_override is not None and divisor_override < 0:
            return -pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, -divisor_override)
        return _taper._pool(
            "avg", d, input, kernel_size, stride, padding, 1, ceil_mode, count_include_pad, divisor_override
        )[0]

    pool.__name__ = f"avg_pool{d}d"
    return pool


def _adaptive_pool_of(kind, d):
    def pool(input, output_size, return_indices=False):
        sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * d
        if d > 1 and input.dim() not in (d + 1, d + 2):
            raise ValueError(f"Input dimension should be at least {d + 1}")
        if any(size is not None and size < 0 for size in sizes):
            raise RuntimeError(f"elements of output_size must be greater than or equal to 0 but got {sizes}")
        if return_indices:
            return tuple(_taper._adaptive_max_pool(input, list(sizes)))
        return _taper._adaptive_pool(kind, input, list(sizes))

    pool.__name__ = f"adaptive_{kind}_pool{d}d"
    return pool


max_pool1d, max_pool2d, max_pool3d = map(_max_pool_of, (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pool_of, (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (_adaptive_pool_of("avg", d) for d in (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_adaptive_pool_of("max", d) for d in (1, 2, 3))


def _max_unpool_of(d):
    def unpool(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        size = None if output_size is None else list(output_size)[-d:]
        return _taper._max_unpool(d, input, indices, kernel_size, stride, padding, size)

    unpool.__name__ = f"max_unpool{d}d"
    return unpool


max_unpool1d, max_unpool2d, max_unpool3d = map(_max_unpool_of, (1, 2, 3))


def _fractional_max_pool_of(d):
    def pool(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"fractional_max_pool{d}d requires specifying one of output_size and output_ratio")
        if output_size is None:
            ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * d
            output_size = [int(size * ratio) for size, ratio in zip(input.shape[-d:], ratios)]
        sizes = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * d
        if _random_samples is None:
            batch = input.shape[0] if input.dim() == d + 2 else 1
            drawn = [batch, input.shape[-d - 1], d]
            _random_samples = _taper._random("rand", drawn, [], input.dtype, input.device)
        found = _taper._fractional_max_pool(input, kernel_size, sizes, _random_samples)
        return tuple(found) if return_indices else found[0]

    pool.__name__ = f"fractional_max_pool{d}d"
    return pool


fractional_max_pool2d, fractional_max_pool3d = map(_fractional_max_pool_of, (2, 3))


def _lp_pool_of(d):
    def pool(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        return _taper._lp_pool(d, input, norm_type, kernel_size, stride, ceil_mode)

    pool.__name__ = f"lp_pool{d}d"
    return pool


lp_pool1d, lp_pool2d, lp_pool3d = map(_lp_pool_of, (1, 2, 3))


def _with_indices(pool):
    def pooled(*args, return_indices=True, **kwargs):
        return pool(*args, return_indices=True, **kwargs)

    pooled.__name__ = f"{pool.__name__}_with_indices"
    return pooled


for _pool in (max_pool1d, max_pool2d, max_pool3d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d,
              fractional_max_pool2d, fractional_max_pool3d):
    globals()[f"{_pool.__name__}_with_indices"] = _with_indices(_pool)


def upsample_nearest(input, size=None, scale_factor=None):
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    return interpolate(input, size, scale_factor, "bilinear", True)


def pad(input, pad, mode="constant", value=None):
    return _taper._pad(input, list(pad), mode, 0.0 if value is None else float(value))


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None,
                recompute_scale_factor=None, antialias=False):
    def each(value, kind):
        if value is None:
            return None
        many = isinstance(value, (tuple, list))
        return [kind(one) for one in value] if many else [kind(value)] * (input.dim() - 2)

    return _taper._interpolate(
        input, each(size, int), each(scale_factor, float), mode, bool(align_corners), bool(recompute_scale_factor),
        antialias,
    )


upsample = interpolate


# Dropouts

def _dropout_of(name):
    def dropout(input, p=0.5, training="alpha" not in name, inplace=False):
        # A channel without further axes is one number.
        kind = "dropout" if name == "dropout2d" and input.dim() == 2 else name
        result = _taper._dropout(kind, input, p, training)
        return input._replace(result) if inplace else result

    dropout.__name__ = name
    return dropout


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    input = input if input.is_floating_point() else input.float()
    return _taper.local_response_norm(input, size, alpha, beta, k)


dropout, dropout1d, dropout2d, dropout3d, alpha_dropout, feature_alpha_dropout = map(
    _dropout_of, ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
)


# Normalizations

def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _taper._layer_norm(input, list(normalized_shape), weight, bias, eps)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    return _taper._rms_norm(input, list(normalized_shape), weight, eps)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    return _taper._statistics_norm(
        False, input, running_mean, running_var, weight, bias, training, momentum, eps
    )


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                  momentum=0.1, eps=1e-5):
    return _taper._statistics_norm(
        True, input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    x1, x2 = (one if one.is_floating_point() else one.float() for one in (x1, x2))
    return _taper.pairwise_distance(x1, x2, p, eps, keepdim)


# Embeddings and attention

def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    if max_norm is not None:
        rows = input.reshape(-1).unique()
        weight.detach().index_copy_(0, rows, weight.detach()[rows].renorm(norm_type, 0, max_norm))
    return _taper._embedding(input, weight, padding_idx)


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean",
                  sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None):
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    return _taper._embedding_bag(
        input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx
    )


def one_hot(tensor, num_classes=-1):
    return tensor._one_hot(None if num_classes == -1 else num_classes)


# Functions of a table are found by their names, so that a module with one of them can be pickled.
for _name, _value in list(globals().items()):
    if "<locals>" in getattr(_value, "__qualname__", ""):
        _value.__qualname__, _value.__module__ = _name, __name__
