"""``torch.nn.utils.prune``: weights that a mask sets to zero before each call of their module.

A pruned parameter ``name`` becomes the parameter ``name_orig`` and the buffer ``name_mask``; their product is an
attribute ``name`` that a hook computes.
"""

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable

import taper

from ..parameter import Parameter


def _count(amount, size):
    """How many of so many are pruned: a number, or a part of them."""
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if amount < 0 or (not isinstance(amount, numbers.Integral) and amount > 1):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
    count = amount if isinstance(amount, numbers.Integral) else round(amount * size)
    if count > size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
    return count


class BasePruningMethod(ABC):
    """A way to choose masks; ``PRUNING_TYPE`` is ``unstructured``, ``structured`` or ``global``."""

    _tensor_name: str

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """The mask of a tensor, of which ``default_mask`` is pruned already."""

    def apply_mask(self, module):
        original = getattr(module, f"{self._tensor_name}_orig")
        return getattr(module, f"{self._tensor_name}_mask").to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = [
            (number, hook) for number, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        for number, hook in before:
            container = hook if isinstance(hook, PruningContainer) else PruningContainer(hook)
            container.add_pruning_method(method)
            method = container
            del module._forward_pre_hooks[number]
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError("importance_scores should have the same shape as parameter")
        if not before:
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", original)
            default = taper.ones_like(original)
        else:
            default = getattr(module, f"{name}_mask").detach().clone()
        with taper.no_grad():
            module.register_buffer(f"{name}_mask", method.compute_mask(scores.detach(), default_mask=default))
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """The tensor with zeros, without a module."""
        scores = t if importance_scores is None else importance_scores
        default = taper.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module):
        """Makes the pruned values those of a parameter again; the pruning stays."""
        name = self._tensor_name
        value = self.apply_mask(module).detach()
        delattr(module, name)
        original = module._parameters.pop(f"{name}_orig")
        del module._buffers[f"{name}_mask"]
        original.data = value
        setattr(module, name, original if isinstance(original, Parameter) else Parameter(value))


class PruningContainer(BasePruningMethod):
    """Methods one after the other: each prunes what the ones before it left."""

    PRUNING_TYPE = "combination"

    def __init__(self, *methods):
        self._pruning_methods = tuple(methods)
        self._tensor_name = methods[0]._tensor_name if methods else ""

    def add_pruning_method(self, method):
        if self._tensor_name != method._tensor_name:
            raise ValueError(f"Can only add pruning methods acting on the parameter named '{self._tensor_name}'")
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, index):
        return self._pruning_methods[index]

    def compute_mask(self, t, default_mask):
        method, mask = self._pruning_methods[-1], default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            left = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.dim() if hasattr(method, "dim") else 0
            kept = mask.sum(dim=[axis for axis in range(t.dim()) if axis != dim]) != 0
            left = (*[slice(None)] * dim, kept)
        elif method.PRUNING_TYPE == "global":
            left = tuple([slice(None)] * t.dim())
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = mask.clone()
        mask[left] = method.compute_mask(t[left], default_mask=mask[left]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        return default_mask


class _Unstructured(BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def __init__(self, amount):
        _count(amount, float("inf") if isinstance(amount, numbers.Integral) else 1)
        self.amount = amount

    def compute_mask(self, t, default_mask):
        count, mask = _count(self.amount, t.numel()), default_mask.clone()
        if count:
            places = taper.topk(self._importance(t).reshape(-1), k=count, largest=self._largest).indices
            mask.view(-1)[places] = 0
        return mask


class RandomUnstructured(_Unstructured):
    _largest = True

    def _importance(self, t):
        return taper.rand_like(t)


class L1Unstructured(_Unstructured):
    _largest = False

    def _importance(self, t):
        return t.abs()


class _Structured(BasePruningMethod):
    PRUNING_TYPE = "structured"

    def compute_mask(self, t, default_mask):
        if t.dim() <= 1:
            raise ValueError("Structured pruning can only be applied to multidimensional tensors.")
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {tuple(t.shape)}")
        channels = t.shape[self.dim]
        count = _count(self.amount, channels)
        if not count:
            return default_mask
        shape = [1] * t.dim()
        shape[self.dim] = channels
        return default_mask * self._kept(t, channels, count).reshape(shape).to(default_mask.dtype)


class RandomStructured(_Structured):
    def __init__(self, amount, dim=-1):
        self.amount, self.dim = amount, dim

    def _kept(self, t, channels, count):
        drawn = taper.rand(channels)
        return drawn > taper.kthvalue(drawn, k=count).values


class LnStructured(_Structured):
    def __init__(self, amount, n, dim=-1):
        self.amount, self.n, self.dim = amount, n, dim

    def _kept(self, t, channels, count):
        dim = self.dim % t.dim()
        norms = taper.norm(t, p=self.n, dim=[axis for axis in range(t.dim()) if axis != dim])
        kept = taper.zeros(channels, device=t.device)
        kept[taper.topk(norms, k=channels - count).indices] = 1
        return kept


class CustomFromMask(BasePruningMethod):
    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module, name):
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module, name, amount, dim):
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module, name, mask):
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Prunes several tensors as one: those of least importance among all of them."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters, given = list(parameters), importance_scores or {}
    values = [getattr(module, name) for module, name in parameters]
    scores = [given.get(pair, value).detach() for pair, value in zip(parameters, values)]
    masks = [getattr(module, f"{name}_mask", taper.ones_like(value)) for (module, name), value in zip(parameters, values)]
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(f"Only unstructured pruning methods are supported, not {method.PRUNING_TYPE}")
    container = PruningContainer()
    container._tensor_name = method._tensor_name = "temp"
    container.add_pruning_method(method)
    with taper.no_grad():
        flat = [taper.cat([one.reshape(-1) for one in each]) for each in (scores, masks)]
        whole, at = container.compute_mask(flat[0], default_mask=flat[1]), 0
        for (module, name), value in zip(parameters, values):
            custom_from_mask(module, name, whole[at:at + value.numel()].view_as(value))
            at += value.numel()


def remove(module, name):
    for number, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module):
    return any(
        isinstance(hook, BasePruningMethod) for one in module.modules() for hook in one._forward_pre_hooks.values()
    )
