"""Data sets and loaders, and checkpoints."""

from . import checkpoint, data

__all__ = ["checkpoint", "data"]
