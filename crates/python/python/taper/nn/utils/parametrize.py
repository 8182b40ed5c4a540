"""Parameters that are computed from others: a module computes a tensor anew each time that it is read."""

import contextlib

from ..modules.container import ModuleDict, ModuleList
from ..parameter import Parameter
from ...autograd import no_grad

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations"]


class ParametrizationList(ModuleList):
    """The modules that compute a tensor one after the other, with what the first one reads."""

    def __init__(self, modules, original, unsafe=False):
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            value = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    value = module.right_inverse(value)
        self.is_tensor = not isinstance(value, (tuple, list))
        required = original.requires_grad
        parts = {"original": value} if self.is_tensor else {f"original{k}": one for k, one in enumerate(value)}
        for name, one in parts.items():
            if isinstance(original, Parameter):
                one = original if one is original else Parameter(one.detach(), required and one.is_floating_point())
                self.register_parameter(name, one)
            else:
                self.register_buffer(name, one)
        self.ntensors = 1 if self.is_tensor else len(value)

    def _originals(self):
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{k}") for k in range(self.ntensors)]

    def right_inverse(self, value):
        """Sets the tensor to a value, by the inverses of the modules."""
        with no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            values = [value] if self.is_tensor else list(value)
            for own, one in zip(self._originals(), values):
                own.data = one.detach().clone()

    def forward(self):
        first, *others = self
        value = first(*self._originals())
        for module in others:
            value = module(value)
        return value


def is_parametrized(module, tensor_name=None):
    """Whether a module computes some of its tensors, or this one."""
    parts = module._modules.get("parametrizations")
    if not isinstance(parts, ModuleDict):
        return False
    return len(parts) > 0 if tensor_name is None else tensor_name in parts


def type_before_parametrizations(module):
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


#: The tensors that were computed within ``cached``, by module and name, and how many of its blocks are open.
_computed, _open = {}, 0


@contextlib.contextmanager
def cached():
    """Each tensor is computed once within the block."""
    global _open
    _open += 1
    try:
        yield
    finally:
        _open -= 1
        if not _open:
            _computed.clear()


def _property(name):
    def read(self):
        if not _open:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _computed:
            _computed[key] = self.parametrizations[name]()
        return _computed[key]

    def write(self, value):
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def _set(self, name, value):
    # A computed tensor is written through its parametrization.
    if isinstance(getattr(type(self), name, None), property) and is_parametrized(self, name):
        self.parametrizations[name].right_inverse(value)
    else:
        type_before_parametrizations(self).__setattr__(self, name, value)


def _check(name, value, original):
    """A parametrization keeps the shape and the dtype of a tensor."""
    for what in ("shape", "dtype"):
        own, made = getattr(original, what), getattr(value, what)
        if own != made:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag is "
                f"enabled.\nmodule.{name}.{what}: {own}\nparametrization(module.{name}).{what}: {made}"
            )


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Lets a module compute a parameter or a buffer of another."""
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        parts = module.parametrizations[tensor_name]
        if not unsafe:
            with no_grad():
                value = parts()
                _check(tensor_name, parametrization(value), value)
        parts.append(parametrization)
        parts.unsafe |= unsafe
        return module
    kind = module._parameters if tensor_name in module._parameters else module._buffers
    if tensor_name not in kind:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
                         f"'{tensor_name}'")
    original = kind[tensor_name]
    parts = ParametrizationList([parametrization], original, unsafe)
    if not unsafe:
        with no_grad():
            _check(tensor_name, parts(), original)
    del kind[tensor_name]
    if not is_parametrized(module):
        own = type(module)
        members = {"__module__": own.__module__, "__setattr__": _set}
        object.__setattr__(module, "__class__", type(f"Parametrized{own.__name__}", (own,), members))
        module._modules["parametrizations"] = ModuleDict()
    module.parametrizations[tensor_name] = parts
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Makes a tensor one of the module itself again, with its present value or with the original one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parts = module.parametrizations[tensor_name]
    if not leave_parametrized and not parts.is_tensor:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
                         "terms of a sequence of tensors.")
    original = parts._originals()[0]
    if leave_parametrized:
        with no_grad():
            value = parts()
        required = any(one.requires_grad for one in parts._originals())
        parameter = isinstance(original, Parameter)
        original = Parameter(value.detach(), required) if parameter else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        object.__setattr__(module, "__class__", type(module).__bases__[0])
        del module._modules["parametrizations"]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    return module
