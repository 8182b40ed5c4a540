"""``torch.library``: operations that a program defines, with their gradients; ``torch.ops`` finds them by name."""

from ._taper import Tensor
from .autograd import Function


class _Namespace:
    """``torch.ops``, and each library's names in it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Namespace()
        setattr(self, name, made)
        return made


ops = _Namespace()
_defined = {}


class CustomOpDef:
    """An operation: a function of tensors, for some devices another one, and a gradient."""

    def __init__(self, name, function):
        self._name, self._function, self._of_devices, self._with_gradient = name, function, {}, None
        space, _, own = name.partition("::")
        setattr(getattr(ops, space), own, self)
        _defined[name] = self

    def _compute(self, *args):
        first = next((one.device.type for one in args if isinstance(one, Tensor)), "cpu")
        return self._of_devices.get(first, self._function)(*args)

    def __call__(self, *args, **options):
        import inspect

        given = inspect.signature(self._function).bind(*args, **options)
        given.apply_defaults()
        args = given.args
        return self._compute(*args) if self._with_gradient is None else self._with_gradient(*args)

    @property
    def default(self):
        return self

    def register_fake(self, function, /):
        """Sizes come from the operation itself: nothing calls the function."""
        return function

    def register_kernel(self, device_types, function=None, /):
        def register(function):
            types = [device_types] if isinstance(device_types, str) else device_types
            self._of_devices.update({kind: function for kind in types})
            return function

        return register if function is None else register(function)

    def register_autograd(self, backward, /, *, setup_context=None):
        compute = self._compute
        members = {"forward": staticmethod(compute), "backward": staticmethod(backward)}
        members["setup_context"] = staticmethod(
            (lambda ctx, inputs, output: None) if setup_context is None
            else lambda ctx, inputs, output: setup_context(ctx=ctx, inputs=inputs, output=output)
        )
        self._with_gradient = type(self._name, (Function,), members).apply


def custom_op(name, fn=None, /, *, mutates_args=(), device_types=None, schema=None, tags=None):
    """The operation ``library::name`` of a function, as a decorator or at once."""
    def define(function):
        return CustomOpDef(name, function)

    return define if fn is None else define(fn)


triton_op = custom_op


def _of(op):
    return op if isinstance(op, CustomOpDef) else _defined[op]


def register_fake(op, func=None, /, **options):
    return (lambda func: _of(op).register_fake(func)) if func is None else _of(op).register_fake(func)


def register_kernel(op, device_types, func=None, /, **options):
    return _of(op).register_kernel(device_types, func)


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    _of(op).register_autograd(backward, setup_context=setup_context)
