"""``torch.autograd.function``: functions with a gradient of their own."""

import functools

from . import Function, _Context as FunctionCtx, no_grad  # noqa: F401


def once_differentiable(function):
    """A ``backward`` whose own gradient is not recorded."""
    @functools.wraps(function)
    def backward(ctx, *gradients):
        with no_grad():
            return function(ctx, *gradients)

    return backward
