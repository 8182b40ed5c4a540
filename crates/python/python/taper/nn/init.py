"""First values of parameters."""

import math

from .. import _taper
from ..autograd import no_grad

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0, "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75,
}


def calculate_gain(nonlinearity, param=None):
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fan(tensor, mode):
    fans = dict(zip(("fan_in", "fan_out"), _calculate_fan_in_and_fan_out(tensor)))
    if mode.lower() not in fans:
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return fans[mode.lower()]


def _drawn(tensor, name, numbers, generator=None):
    with no_grad():
        drawn = _taper._random(name, tensor._sizes(), numbers, tensor.dtype, tensor.device, generator)
        return tensor.copy_(drawn)


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    return _drawn(tensor, "uniform", [a, b], generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    return _drawn(tensor, "normal", [mean, std], generator)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    return _drawn(tensor, "truncated_normal", [mean, std, a, b], generator)


def constant_(tensor, val):
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor):
    return constant_(tensor, 0.0)


def ones_(tensor):
    return constant_(tensor, 1.0)


def eye_(tensor):
    with no_grad():
        return tensor.copy_(_taper.eye(*tensor.shape, tensor.dtype, tensor.device))


def dirac_(tensor, groups=1):
    """A convolution that gives its input back, as far as there are channels."""
    sizes = tuple(tensor.shape)
    if len(sizes) not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if sizes[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    each = sizes[0] // groups
    middle = tuple(size // 2 for size in sizes[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for at in range(min(each, sizes[1])):
                tensor[(group * each + at, at, *middle)] = 1
    return tensor


def xavier_uniform_(tensor, gain=1.0, generator=None):
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def orthogonal_(tensor, gain=1, generator=None):
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    with no_grad():
        rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
        flat = normal_(tensor.new_empty((rows, columns)), 0.0, 1.0, generator)
        flat = flat if rows >= columns else flat.t()
        q, r = _taper.linalg_factors("qr", flat, False)
        q = q * r.diagonal().sign()
        q = q if rows >= columns else q.t()
        return tensor.copy_(q.reshape(tensor.shape).mul(gain))


def sparse_(tensor, sparsity, std=0.01, generator=None):
    normal_(tensor, 0.0, std, generator)
    with no_grad():
        zeros = math.ceil(sparsity * tensor.shape[0])
        for column in range(tensor.shape[1]):
            rows = _taper._random("randperm", [tensor.shape[0]], [tensor.shape[0]], None, None, generator)
            tensor[rows[:zeros], column] = 0
    return tensor


def _old(name):
    function = globals()[f"{name}_"]

    def initialize(*args, **kwargs):
        return function(*args, **kwargs)

    initialize.__name__ = name
    return initialize


for _name in ("uniform", "normal", "constant", "xavier_uniform", "xavier_normal", "kaiming_uniform",
              "kaiming_normal", "orthogonal", "dirac", "eye", "sparse"):
    globals()[_name] = _old(_name)
