"""Derivatives of functions of tensors: ``jacobian``, ``hessian``, and products with them."""

from .. import func as _func
from .._taper import Tensor

__all__ = ["vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"]


def _tuple(given, name, function):
    given = given if isinstance(given, (tuple, list)) else (given,)
    for at, one in enumerate(given):
        if not isinstance(one, Tensor):
            raise TypeError(f"The {name} given to {function} must be either a Tensor or a tuple of Tensors but the "
                            f"value at index {at} has type {type(one)}.")
    return tuple(given)


def _scalar(value, function):
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {function} should contain a single element")
    return value.reshape(())


def _direction(v, like, name, several="inputs"):
    """The vectors of a product, or ones where a single element needs none."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if the {several} is a single Tensor with a single element"
            )
        return (like[0].detach().new_ones(like[0].shape),)
    v = _tuple(v, "v", name)
    if len(v) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}.")
    for one, other in zip(v, like):
        if one.shape != other.shape:
            raise RuntimeError(f"v has invalid size: should be {other.shape} but got {one.shape}.")
    return v


def _results(found, single, create_graph):
    found = tuple(one if create_graph else one.detach() for one in found)
    return found[0] if single else found


class _Call:
    """A function with its inputs, some of which may not need a gradient yet."""

    def __init__(self, func, inputs, name, create_graph):
        self.single = not isinstance(inputs, (tuple, list))
        self.inputs = _tuple(inputs, "inputs", name)
        if not create_graph:
            self.inputs = tuple(one.detach() for one in self.inputs)
        self.func, self.several = func, False

    def __call__(self, *inputs):
        value = self.func(*inputs)
        self.several = isinstance(value, (tuple, list))
        return tuple(_tuple(value, "outputs", "the function"))


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """The value of a function, and the product of a vector with its Jacobian."""
    call = _Call(func, inputs, "vjp", create_graph)
    value, pull = _func.vjp(call, *call.inputs)
    found = pull(_direction(v, value, "vjp", "output"))
    return _results(value, not call.several, create_graph), _results(found, call.single, create_graph)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """The value of a function, and the product of its Jacobian with a vector."""
    call = _Call(func, inputs, "jvp", create_graph)
    value, found = _func.jvp(call, call.inputs, _direction(v, call.inputs, "jvp", "input"))
    return _results(value, not call.several, create_graph), _results(found, not call.several, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """The value of a scalar function, and the product of its Hessian with a vector."""
    call = _Call(func, inputs, "hvp", create_graph)

    def slope(*inputs):
        gradients, value = _func.grad_and_value(
            lambda *inputs: _scalar(func(*inputs), "hvp"), tuple(range(len(inputs)))
        )(*inputs)
        return gradients, value

    _, found, value = _func.jvp(slope, call.inputs, _direction(v, call.inputs, "hvp", "input"), has_aux=True)
    return _results((value,), True, create_graph), _results(found, call.single, create_graph)


#: A Hessian is symmetric, so that products from both sides are the same.
vhp = hvp


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian of each output by each input."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    call = _Call(func, inputs, "jacobian", create_graph)
    transform = _func.jacfwd if strategy == "forward-mode" else _func.jacrev
    found = transform(call, tuple(range(len(call.inputs))))(*call.inputs)
    found = tuple(_results(row, call.single, create_graph) for row in found)
    return found if call.several else found[0]


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a scalar function by each pair of inputs."""
    call = _Call(func, inputs, "hessian", create_graph)
    numbers = tuple(range(len(call.inputs)))
    found = _func.hessian(lambda *inputs: _scalar(func(*inputs), "hessian"), numbers)(*call.inputs)
    rows = tuple(_results(row, call.single, create_graph) for row in found)
    return rows[0] if call.single else rows
