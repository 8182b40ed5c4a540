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
from taper.distributions.constraints import Constraint as _Constraint

class Constraint:
    def check(self, value: Any) -> Any: ...
    event_dim: int
    is_discrete: bool
from taper._taper import Tensor as Tensor
boolean: Any
def check_all(constraint: Any, value: Any) -> Any: ...
dependent: Any
class greater_than(Constraint):
    def __init__(self, limit: Any) -> None: ...
    def check(self, value: Any) -> Any: ...
    is_discrete: bool
class greater_than_eq(Constraint):
    def __init__(self, limit: Any) -> None: ...
    def check(self, value: Any) -> Any: ...
    is_discrete: bool
class half_open_interval(Constraint):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None: ...
    def check(self, value: Any) -> Any: ...
    is_discrete: bool
class independent(Constraint):
    def __init__(self, base_constraint: Any, reinterpreted_batch_ndims: Any) -> None: ...
    def check(self, value: Any) -> Any: ...
class integer_interval(Constraint):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None: ...
    def check(self, value: Any) -> Any: ...
    is_discrete: bool
class interval(Constraint):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None: ...
    def check(self, value: Any) -> Any: ...
    is_discrete: bool
def is_dependent(constraint: Any) -> Any: ...
class less_than(Constraint):
    def __init__(self, limit: Any) -> None: ...
    def check(self, value: Any) -> Any: ...
    is_discrete: bool
lower_cholesky: Any
class multinomial(Constraint):
    def __init__(self, upper_bound: Any) -> None: ...
    def check(self, value: Any) -> Any: ...
    event_dim: int
    is_discrete: bool
nonnegative: Any
nonnegative_integer: Any
one_hot: Any
positive: Any
positive_definite: Any
positive_integer: Any
real: Any
real_vector: Any
simplex: Any
unit_interval: Any
