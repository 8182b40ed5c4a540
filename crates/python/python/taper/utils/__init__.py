"""Data sets and loaders, checkpoints, and timers."""

from . import _pytree, benchmark, checkpoint, data, tensorboard

__all__ = ["_pytree", "benchmark", "checkpoint", "data", "tensorboard"]
