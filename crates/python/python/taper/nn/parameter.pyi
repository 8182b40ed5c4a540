# Written by stubs.py; do not edit.
# mypy: disable-error-code="override, misc, assignment, valid-type"
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from taper._taper import Tensor as _Tensor
from taper._taper import dtype as _dtype
from taper._taper import device as _device
from taper._taper import Generator as _Generator
from taper._size import Size as _Size
_Device = _device | str | int | None
from taper.nn.parameter import Parameter as _Parameter

class Buffer(Tensor):
    @staticmethod
    def __new__(cls: Any, data: Any = None, persistent: bool = True) -> "Buffer": ...
class Parameter(Tensor):
    @staticmethod
    def __new__(cls: Any, data: Any = None, requires_grad: bool = True) -> "Parameter": ...
from taper._taper import Tensor as Tensor
class UninitializedBuffer(Tensor):
    @staticmethod
    def __new__(cls: Any, requires_grad: bool = False, device: _Device = None, dtype: _dtype | None = None, persistent: bool = True) -> "UninitializedBuffer": ...
    def materialize(self, shape: Any, device: _Device = None, dtype: _dtype | None = None) -> Any: ...
    shape: _Size
class UninitializedParameter(Parameter):
    @staticmethod
    def __new__(cls: Any, requires_grad: bool = True, device: _Device = None, dtype: _dtype | None = None) -> "UninitializedParameter": ...
    def materialize(self, shape: Any, device: _Device = None, dtype: _dtype | None = None) -> Any: ...
    shape: _Size
def is_lazy(parameter: Any) -> Any: ...
