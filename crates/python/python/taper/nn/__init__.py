"""Networks: modules, their parameters, and functions of them."""

from . import functional, init, modules, utils
from .modules import *  # noqa: F403
from .modules.module import Module
from .parameter import Buffer, Parameter, UninitializedParameter

__all__ = [*modules.__all__, "Module", "Parameter", "Buffer", "UninitializedParameter", "functional", "init", "utils"]
