"""Tensors that a module registers by themselves."""

from .. import _taper
from .._taper import Tensor


class Parameter(Tensor):
    """A leaf that a module counts among its parameters."""

    def __new__(cls, data=None, requires_grad=True):
        from .._functions import empty

        data = empty(0) if data is None else data
        made = Tensor.__new__(cls)
        made.set_(data.detach())
        # A leaf of its own: what the data was a part of is not seen through it.
        made.detach_()
        if requires_grad:
            made.requires_grad_()
        return made

    def __repr__(self):
        return "Parameter containing:\n" + Tensor.__repr__(self)

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        made = type(self)(self.detach().clone(), self.requires_grad)
        if self.grad is not None:
            made.grad = self.grad.detach().clone()
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol):
        return _rebuild, (type(self), self._bytes(), tuple(self._sizes()), self.dtype, str(self.device), self.requires_grad)


def _rebuild(kind, data, sizes, dtype, device, requires_grad):
    return kind(_taper._from_bytes(data, sizes, dtype, device), requires_grad)


class UninitializedParameter(Parameter):
    """A parameter whose sizes come with the first input."""


class Buffer(Tensor):
    """A tensor that a module keeps with its parameters but does not train."""

    def __new__(cls, data=None, persistent=True):
        made = Tensor.__new__(cls)
        made.set_(data.detach())
        made.persistent = persistent
        return made


def is_lazy(parameter):
    return isinstance(parameter, UninitializedParameter)
