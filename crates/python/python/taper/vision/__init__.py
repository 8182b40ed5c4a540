"""Data sets of pictures, transforms and pictures of batches, with torchvision's names.

``python -m taper program.py`` serves ``import torchvision`` with this package.
"""

from . import datasets, io, models, transforms, utils

__all__ = ["datasets", "io", "models", "transforms", "utils"]
__version__ = "0.0"
