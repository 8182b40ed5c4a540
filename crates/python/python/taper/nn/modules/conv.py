"""Convolutions along one to three axes, and their transposes."""

import math

from ..._functions import empty
from .. import functional as F, init
from ..parameter import Parameter
from .module import Module

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


def _each(value, count):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * count


class _Conv(Module):
    _d, _transposed = 0, False

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1,
                 bias=True, padding_mode="zeros", device=None, dtype=None, output_padding=0):
        super().__init__()
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _each(kernel_size, self._d), _each(stride, self._d)
        self.padding = padding if isinstance(padding, str) else _each(padding, self._d)
        self.dilation, self.output_padding = _each(dilation, self._d), _each(output_padding, self._d)
        self.padding_mode, self.transposed = padding_mode, self._transposed
        outer, inner = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        self.weight = Parameter(empty(outer, inner // groups, *self.kernel_size, device=device, dtype=dtype))
        bias = Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", bias)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        padding = self.padding
        if self.padding_mode != "zeros":
            around = [size for one in reversed(padding) for size in (one, one)]
            input, padding = F.pad(input, around, mode=self.padding_mode), 0
        return F._conv(self._d, input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self._d:
            text += f", padding={self.padding!r}" if isinstance(self.padding, str) else f", padding={self.padding}"
        if self.dilation != (1,) * self._d:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self._d:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _ConvTranspose(_Conv):
    _transposed = True

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1,
                 bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                         padding_mode, device, dtype, output_padding)

    def forward(self, input, output_size=None):
        return F._conv_transpose(
            self._d, input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups,
            self.dilation,
        )


for _name, _base in (("Conv", _Conv), ("ConvTranspose", _ConvTranspose)):
    for _count in (1, 2, 3):
        globals()[f"{_name}{_count}d"] = type(f"{_name}{_count}d", (_base,), {"_d": _count, "__module__": __name__})
