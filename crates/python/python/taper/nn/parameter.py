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


class Buffer(Tensor):
    """A tensor that a module keeps with its parameters but does not train."""

    def __new__(cls, data=None, persistent=True):
        made = Tensor.__new__(cls)
        made.set_(data.detach())
        made.persistent = persistent
        return made


class _Uninitialized:
    """A tensor without sizes, which a layer gives it when it sees its first input."""

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call "
            "`forward` to initialize the parameters before accessing their attributes."
        )

    def materialize(self, shape, device=None, dtype=None):
        """Gives the tensor its sizes, and with them its class."""
        from .._functions import empty

        self.data = empty(*shape, device=device or self.device, dtype=dtype or self.dtype)
        self.__class__ = self.cls_to_become

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self.requires_grad, str(self.device), self.dtype)

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), type(self)(self.requires_grad, self.device, self.dtype))


class UninitializedParameter(_Uninitialized, Parameter):
    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        from .._functions import empty

        return Parameter.__new__(cls, empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(_Uninitialized, Tensor):
    cls_to_become = Tensor

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        from .._functions import empty

        made = Tensor.__new__(cls)
        made.set_(empty(0, device=device, dtype=dtype))
        made.persistent = persistent
        return made


def is_lazy(parameter):
    return isinstance(parameter, _Uninitialized)
