"""The older ``weight_norm``: two parameters, and a weight that is computed before each call."""

from ..parameter import Parameter
from ...autograd import no_grad
from .parametrizations import norm_except_dim

__all__ = ["weight_norm", "remove_weight_norm"]


class WeightNorm:
    """The hook that computes the weight."""

    def __init__(self, name, dim):
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module):
        length, direction = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return direction * (length / norm_except_dim(direction, self.dim))

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def _hooks(module, name):
    return [(number, hook) for number, hook in module._forward_pre_hooks.items()
            if isinstance(hook, WeightNorm) and hook.name == name]


def weight_norm(module, name="weight", dim=0):
    """A weight as a length and a direction, along an axis."""
    if _hooks(module, name):
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    weight, hook = getattr(module, name), WeightNorm(name, dim)
    del module._parameters[name]
    with no_grad():
        module.register_parameter(f"{name}_g", Parameter(norm_except_dim(weight, hook.dim)))
        module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook(module, None)
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module, name="weight"):
    """Makes the present weight a parameter again."""
    for number, hook in _hooks(module, name):
        weight = hook.compute_weight(module).detach()
        delattr(module, name)
        del module._parameters[f"{name}_g"], module._parameters[f"{name}_v"], module._forward_pre_hooks[number]
        setattr(module, name, Parameter(weight))
        return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
