"""Normalizations."""

import numbers

from ..._functions import ones, tensor, zeros
from ..._tensor import _dtypes
from ...func import refuse_shared_statistics
from .. import functional as F
from ..parameter import Parameter
from .module import Module

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "RMSNorm", "GroupNorm", "LocalResponseNorm", "SyncBatchNorm",
]


class _Statistics(Module):
    _ranks, _by_instance = (), False

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None,
                 dtype=None, *, bias=True):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, make in (("weight", ones), ("bias", zeros)):
            wanted = affine and (bias or name == "weight")
            value = Parameter(make(num_features, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, value)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if tracked else None)
        count = tensor(0, dtype=_dtypes["int64"], device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self):
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        self.reset_running_stats()
        if self.affine:
            self.weight.data.fill_(1)
            if self.bias is not None:
                self.bias.data.zero_()

    def forward(self, input):
        if input.dim() not in self._ranks:
            listed = " or ".join(f"{rank}D" for rank in self._ranks)
            raise ValueError(f"expected {listed} input (got {input.dim()}D input)")
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.running_mean is not None:
            refuse_shared_statistics(input, self.running_mean)
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        own = self.training or self.running_mean is None
        if self._by_instance:
            return F.instance_norm(
                input, self.running_mean, self.running_var, self.weight, self.bias, own, momentum, self.eps
            )
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, own, momentum, self.eps
        )

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _Instance(_Statistics):
    _by_instance = True

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None,
                 dtype=None):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)


_RANKS = {1: (2, 3), 2: (4,), 3: (5,)}
for _count, _ranks in _RANKS.items():
    _members = {"_ranks": _ranks, "__module__": __name__}
    globals()[f"BatchNorm{_count}d"] = type(f"BatchNorm{_count}d", (_Statistics,), dict(_members))
    _members["_ranks"] = (_count + 1, _count + 2)
    globals()[f"InstanceNorm{_count}d"] = type(f"InstanceNorm{_count}d", (_Instance,), _members)


class SyncBatchNorm(_Statistics):
    """As batch norm: there is one process."""

    _ranks = (2, 3, 4, 5)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        return module


class LayerNorm(Module):
    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        single = isinstance(normalized_shape, numbers.Integral)
        self.normalized_shape = (normalized_shape,) if single else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        sizes, affine = self.normalized_shape, elementwise_affine
        self.register_parameter("weight", Parameter(ones(*sizes, device=device, dtype=dtype)) if affine else None)
        value = Parameter(zeros(*sizes, device=device, dtype=dtype)) if affine and bias else None
        self.register_parameter("bias", value)

    def reset_parameters(self):
        if self.elementwise_affine:
            self.weight.data.fill_(1)
            if self.bias is not None:
                self.bias.data.zero_()

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        single = isinstance(normalized_shape, numbers.Integral)
        self.normalized_shape = (normalized_shape,) if single else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        value = Parameter(ones(*self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", value)

    def forward(self, input):
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        for name, make in (("weight", ones), ("bias", zeros)):
            value = Parameter(make(num_channels, device=device, dtype=dtype)) if affine else None
            self.register_parameter(name, value)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
