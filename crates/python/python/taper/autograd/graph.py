"""``torch.autograd.graph``: the graph behind a result, and what it keeps."""

import contextlib

from .._tensor import _GradientFunction as Node  # noqa: F401


@contextlib.contextmanager
def save_on_cpu(pin_memory=False, device_type="cuda"):
    """Values for the backward pass stay where they were computed."""
    yield


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message):
    yield


class saved_tensors_hooks:
    def __init__(self, pack_hook, unpack_hook):
        raise NotImplementedError(
            "Taper decides when a value is needed which values the backward pass keeps: there is no moment at which "
            "a program could pack them. torch.utils.checkpoint computes them again"
        )
