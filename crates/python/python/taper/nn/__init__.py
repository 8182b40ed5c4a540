"""Networks: modules, their parameters, and functions of them."""

from . import functional, init, modules, parallel, utils
from .modules import *  # noqa: F403
from .modules.module import Module
from .parallel import DataParallel
from .parameter import Buffer, Parameter, UninitializedParameter

utils._finish()

__all__ = [*modules.__all__, "Module", "Parameter", "Buffer", "UninitializedParameter", "functional", "init", "parallel", "utils", "DataParallel"]
