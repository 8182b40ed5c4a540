"""``torch.func``: gradients of functions, and modules with other parameters."""

import functools

from .autograd import grad as _grad


def grad(func, argnums=0, has_aux=False):
    """The gradient of a function of a scalar value."""

    @functools.wraps(func)
    def gradient(*args, **kwargs):
        return grad_and_value(func, argnums, has_aux)(*args, **kwargs)[0]

    return gradient


def grad_and_value(func, argnums=0, has_aux=False):
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(func)
    def call(*args, **kwargs):
        args = list(args)
        for at in numbers:
            args[at] = args[at] if args[at].requires_grad else args[at].detach().requires_grad_()
        found = func(*args, **kwargs)
        value = found[0] if has_aux else found
        gradients = _grad(value, [args[at] for at in numbers], create_graph=True, materialize_grads=True)
        return gradients[0] if isinstance(argnums, int) else gradients, found

    return call


def functional_call(module, parameters_and_buffers, args=(), kwargs=None, *, tie_weights=True, strict=False):
    """Calls a module with other parameters and buffers, by their names."""
    replaced = []
    if isinstance(parameters_and_buffers, (tuple, list)):
        parameters_and_buffers = {name: value for part in parameters_and_buffers for name, value in part.items()}
    try:
        for name, value in parameters_and_buffers.items():
            path, _, last = name.rpartition(".")
            part = module.get_submodule(path)
            kind = part._parameters if last in part._parameters else part._buffers
            replaced.append((kind, last, kind[last]))
            kind[last] = value
        return module(*(args if isinstance(args, tuple) else (args,)), **(kwargs or {}))
    finally:
        for kind, name, value in reversed(replaced):
            kind[name] = value
