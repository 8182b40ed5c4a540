"""The array API standard over Taper's tensors: ``x.__array_namespace__()`` is this module.

The standard's names and signatures; where PyTorch's rule is another (sums of small integers, the default of a
correction, the order of a meshgrid), the standard's holds here. Complex dtypes are left out: Taper has none yet.
"""

import builtins

from collections import namedtuple
from math import e, inf, nan, pi  # noqa: F401

from . import _functions as _f
from . import _taper
from ._taper import Tensor

__array_api_version__ = "2025.12"
_DTYPES = dict(_taper._dtypes)
_UNSIGNED, _SIGNED = ("uint8", "uint16", "uint32", "uint64"), ("int8", "int16", "int32", "int64")
_FLOATS = ("float32", "float64")
_NAMES = ("bool", *_SIGNED, *_UNSIGNED, *_FLOATS)
globals().update({name: _DTYPES[name] for name in _NAMES})
newaxis = None


def _name(dtype):
    return str(dtype).removeprefix("torch.")


# Elementwise

def _unary(name, method=None):
    call = getattr(Tensor, method or name)

    def function(x, /):
        return call(x)

    function.__name__ = function.__qualname__ = name
    return function


for _n in (
    "abs acos acosh asin asinh atan atanh cos cosh exp expm1 isfinite isinf isnan log log1p log2 log10 logical_not "
    "negative positive reciprocal round signbit sin sinh square sqrt tan tanh"
).split():
    globals()[_n] = _unary(_n)
bitwise_invert = _unary("bitwise_invert", "bitwise_not")


def _whole(name):
    call = getattr(Tensor, name)

    def function(x, /):
        return call(x) if x.is_floating_point() else x

    function.__name__ = function.__qualname__ = name
    return function


ceil, floor, trunc = map(_whole, ("ceil", "floor", "trunc"))


def _binary(name, method=None):
    call = getattr(Tensor, method or name)

    def function(x1, x2, /):
        if not isinstance(x1, Tensor):
            x1 = _f.full((), x1, dtype=_scalar_dtype(x1, x2), device=x2.device)
        elif not isinstance(x2, Tensor):
            x2 = _f.full((), x2, dtype=_scalar_dtype(x2, x1), device=x1.device)
        elif x1.dtype != x2.dtype:
            # An array without axes counts as any other.
            return _in_common(x1, x2, call)
        return call(x1, x2)

    function.__name__ = function.__qualname__ = name
    return function


def _scalar_dtype(scalar, other):
    return _taper._result_type(scalar, other)


for _n, _m in {
    "add": "add", "atan2": "atan2", "bitwise_and": "bitwise_and", "bitwise_left_shift": "bitwise_left_shift",
    "bitwise_or": "bitwise_or", "bitwise_right_shift": "bitwise_right_shift", "bitwise_xor": "bitwise_xor",
    "copysign": "copysign", "divide": "div", "equal": "eq", "_floor_divide": "floor_divide", "greater": "gt",
    "greater_equal": "ge", "hypot": "hypot", "less": "lt", "less_equal": "le", "logaddexp": "logaddexp",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor", "maximum": "maximum",
    "minimum": "minimum", "multiply": "mul", "nextafter": "nextafter", "not_equal": "ne", "pow": "pow",
    "_remainder": "remainder", "subtract": "sub",
}.items():
    globals()[_n] = _binary(_n, _m)


def conj(x, /):
    return x


def real(x, /):
    return x


def sign(x, /):
    found = x.sign()
    return x.isnan()._where(x, found) if x.is_floating_point() else found


def floor_divide(x1, x2, /):
    if _kind(result_type(x1, x2)) == "integral":
        return _floor_divide(x1, x2)
    return divide(x1, x2).floor()


def remainder(x1, x2, /):
    found = _remainder(x1, x2)
    # A result of zero has the sign of the divisor.
    return found.eq(0)._where(found.copysign(x2), found) if found.is_floating_point() else found


def clip(x, /, min=None, max=None):
    for bound in (min, max):
        if isinstance(bound, Tensor):
            x = x.expand(_f.broadcast_shapes(x.shape, bound.shape))
    if min is None and max is None:
        return x.clone()
    return x.clamp(min, max).to(x.dtype)


# Creation

def _made_float(dtype):
    return _taper.get_default_dtype() if dtype is None else dtype


def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    start, stop = (0, start) if stop is None else (start, stop)
    if (stop - start) * step < 0:
        stop = start
    return _f.arange(start, stop, step, dtype=dtype, device=device)


def asarray(obj, /, *, dtype=None, device=None, copy=None):
    return _f.asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape, *, dtype=None, device=None):
    return zeros(shape, dtype=dtype, device=device)


def zeros(shape, *, dtype=None, device=None):
    return _taper._full(shape, 0, _made_float(dtype), device)


def ones(shape, *, dtype=None, device=None):
    return _taper._full(shape, 1, _made_float(dtype), device)


def full(shape, fill_value, *, dtype=None, device=None):
    return _f.full(shape, fill_value, dtype=dtype, device=device)


def empty_like(x, /, *, dtype=None, device=None):
    return _f.zeros_like(x, dtype=dtype, device=device)


def zeros_like(x, /, *, dtype=None, device=None):
    return _f.zeros_like(x, dtype=dtype, device=device)


def ones_like(x, /, *, dtype=None, device=None):
    return _f.ones_like(x, dtype=dtype, device=device)


def full_like(x, /, fill_value, *, dtype=None, device=None):
    return _f.full_like(x, fill_value, dtype=dtype, device=device)


def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    columns = n_rows if n_cols is None else n_cols
    whole = ones((n_rows, columns), dtype=_made_float(dtype), device=device)
    # A diagonal outside of the matrix is any such one.
    k = builtins.max(builtins.min(k, columns), -n_rows)
    return whole.tril(k).triu(k) if n_rows and columns else whole


def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    made = _f.linspace(start, stop, num + (not endpoint), dtype=_made_float(dtype), device=device)
    return made if endpoint else made[:num]


def meshgrid(*arrays, indexing="xy"):
    return tuple(_f.meshgrid(*arrays, indexing=indexing))


def tril(x, /, *, k=0):
    return x.tril(k)


def triu(x, /, *, k=0):
    return x.triu(k)


def from_dlpack(x, /, *, device=None, copy=None):
    return _f.from_dlpack(x, device=device, copy=copy)


# Dtypes

def astype(x, dtype, /, *, copy=True, device=None):
    made = x.to(device, dtype) if device is not None else x.to(dtype)
    return made.clone() if copy and made is x else made


def broadcast_arrays(*arrays):
    return tuple(_f.broadcast_tensors(*arrays))


def broadcast_to(x, /, shape):
    return x.expand(shape)


def broadcast_shapes(*shapes):
    try:
        return tuple(_f.broadcast_shapes(*shapes))
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def can_cast(from_, to, /):
    from_ = from_.dtype if isinstance(from_, Tensor) else from_
    try:
        return result_type(from_, to) == to
    except TypeError:
        return False


class _Limits:
    """The limits of a dtype."""

    def __init__(self, dtype, kinds):
        dtype = dtype.dtype if isinstance(dtype, Tensor) else dtype
        if _name(dtype) not in kinds:
            raise ValueError(f"{dtype} has no such limits")
        self.dtype = dtype
        self.max, self.min, self.eps, self.smallest_normal, self.bits = dtype._limits()


class finfo(_Limits):
    def __init__(self, type, /):
        super().__init__(type, _FLOATS)


class iinfo(_Limits):
    def __init__(self, type, /):
        super().__init__(type, _SIGNED + _UNSIGNED)
        del self.eps, self.smallest_normal


_KINDS = {
    "bool": ("bool",), "signed integer": _SIGNED, "unsigned integer": _UNSIGNED, "integral": _SIGNED + _UNSIGNED,
    "real floating": _FLOATS, "complex floating": (), "numeric": _SIGNED + _UNSIGNED + _FLOATS,
}


def isdtype(dtype, kind):
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"unknown kind of dtype: {kind}")
        return _name(dtype) in _KINDS[kind]
    return dtype == kind


def _kind(dtype):
    return "bool" if _name(dtype) == "bool" else "real floating" if dtype.is_floating_point else "integral"


def result_type(*arrays_and_dtypes):
    dtypes = [one.dtype if isinstance(one, Tensor) else one for one in arrays_and_dtypes]
    arrays = [one for one in dtypes if isinstance(one, _taper.dtype)]
    if not arrays:
        raise ValueError("result_type: at least one array or dtype is needed")
    found = arrays[0]
    for one in arrays[1:]:
        found = _taper.promote_types(found, one)
    for one in dtypes:
        if isinstance(one, builtins.float) and _kind(found) != "real floating":
            found = _taper.get_default_dtype()
    return found


# Indexing and searching

def take(x, indices, /, *, axis=None):
    return x.index_select(0 if axis is None else axis, indices)


def take_along_axis(x, indices, /, *, axis=-1):
    sizes = list(_f.broadcast_shapes(
        [1 if k == axis % x.dim() else size for k, size in enumerate(x.shape)],
        [1 if k == axis % x.dim() else size for k, size in enumerate(indices.shape)],
    ))
    own, wanted = list(sizes), list(sizes)
    own[axis], wanted[axis] = x.shape[axis], indices.shape[axis]
    return x.expand(own).take_along_dim(indices.expand(wanted), axis)


def argmax(x, /, *, axis=None, keepdims=False):
    return x.argmax(axis, keepdims)


def argmin(x, /, *, axis=None, keepdims=False):
    return x.argmin(axis, keepdims)


def count_nonzero(x, /, *, axis=None, keepdims=False):
    return sum(x.ne(0), axis=axis, keepdims=keepdims, dtype=_DTYPES["int64"])


def nonzero(x, /):
    if x.dim() == 0:
        raise ValueError("nonzero: an array without axes")
    return x.nonzero(as_tuple=True)


def searchsorted(x1, x2, /, *, side="left", sorter=None):
    if not isinstance(x2, Tensor):
        x2 = _f.tensor(x2, dtype=x1.dtype)
    x1 = x1 if sorter is None else x1[sorter]
    dtype = _taper.promote_types(x1.dtype, x2.dtype)
    return x1.to(dtype)._searchsorted(x2.to(dtype), side == "right")


def where(condition, x1, x2, /):
    if isinstance(x1, Tensor) and isinstance(x2, Tensor):
        return _in_common(x1, x2, condition._where)
    return condition._where(x1, x2)


# Products

def matmul(x1, x2, /):
    return _in_common(x1, x2, Tensor.matmul)


def _in_common(x1, x2, operation):
    dtype = _taper.promote_types(x1.dtype, x2.dtype)
    return operation(x1.to(dtype), x2.to(dtype))


def matrix_transpose(x, /):
    return x.mT


def tensordot(x1, x2, /, *, axes=2):
    return _in_common(x1, x2, lambda a, b: _f.tensordot(a, b, axes))


def vecdot(x1, x2, /, *, axis=-1):
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: axis {axis} has sizes {x1.shape[axis]} and {x2.shape[axis]}")
    return _in_common(x1, x2, lambda a, b: a._vecdot(b, axis))


# Movements

def concat(arrays, /, *, axis=0):
    if axis is None:
        arrays, axis = [one.reshape(-1) for one in arrays], 0
    dtype = result_type(*arrays)
    return _taper.cat([one.to(dtype) for one in arrays], axis)


def stack(arrays, /, *, axis=0):
    return _taper.stack(arrays, axis)


def expand_dims(x, /, axis=0):
    axes = (axis,) if isinstance(axis, builtins.int) else axis
    rank = x.dim() + len(axes)
    if builtins.any(not -rank <= one < rank for one in axes):
        raise IndexError(f"expand_dims: axis {axis} of {rank} axes")
    if len({one % rank for one in axes}) < len(axes):
        raise ValueError(f"expand_dims: an axis of {axis} is there twice")
    for one in sorted(one % rank for one in axes):
        x = x.unsqueeze(one)
    return x


def flip(x, /, *, axis=None):
    return x.flip(tuple(range(x.dim())) if axis is None else axis) if x.dim() else x


def moveaxis(x, source, destination, /):
    return x.movedim(source, destination)


def permute_dims(x, /, axes):
    return x.permute(axes)


def repeat(x, repeats, /, *, axis=None):
    return x.repeat_interleave(repeats, axis)


def reshape(x, /, shape, *, copy=None):
    made = x.view(shape) if copy is False else x.reshape(shape)
    return made.clone() if copy else made


def roll(x, /, shift, *, axis=None):
    return x.roll(shift, axis)


def squeeze(x, /, axis):
    axes = (axis,) if isinstance(axis, builtins.int) else axis
    if builtins.any(x.shape[one] != 1 for one in axes):
        raise ValueError(f"squeeze: an axis of {axis} has another size than 1: {x.shape}")
    return x.squeeze(axis)


def tile(x, repetitions, /):
    return x.tile(repetitions)


def unstack(x, /, *, axis=0):
    return x.unbind(axis)


# Sets and sorting

_UNIQUE = namedtuple("unique_all_result", "values indices inverse_indices counts")
_COUNTS = namedtuple("unique_counts_result", "values counts")
_INVERSE = namedtuple("unique_inverse_result", "values inverse_indices")


def unique_all(x, /):
    flat = x.reshape(-1)
    values, inverse, counts = flat._unique(None, False)
    places = _f.arange(flat.numel(), device=x.device).flip(0)
    indices = _f.zeros_like(counts).scatter(0, inverse.flip(0), places) if flat.numel() else counts
    return _UNIQUE(values, indices, inverse.reshape(x.shape), counts)


def unique_counts(x, /):
    found = unique_all(x)
    return _COUNTS(found.values, found.counts)


def unique_inverse(x, /):
    found = unique_all(x)
    return _INVERSE(found.values, found.inverse_indices)


def unique_values(x, /):
    return x.reshape(-1)._unique(None, False)[0]


def isin(x1, x2, /, *, invert=False):
    x2 = x2 if isinstance(x2, Tensor) else _f.tensor([x2], dtype=x1.dtype)
    x1 = x1 if isinstance(x1, Tensor) else _f.tensor(x1, dtype=x2.dtype)
    found = _in_common(x1, x2.reshape(-1), Tensor.isin)
    return found.logical_not() if invert else found


def argsort(x, /, *, axis=-1, descending=False, stable=True):
    return x.argsort(axis, descending)


def sort(x, /, *, axis=-1, descending=False, stable=True):
    return x._sort(axis, descending)[0]


# Statistics

def _sum_dtype(dtype):
    name = _name(dtype)
    return _DTYPES["uint64"] if name in _UNSIGNED else dtype if dtype.is_floating_point else _DTYPES["int64"]




def sum(x, /, *, axis=None, dtype=None, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.sum(axis, keepdims, dtype=dtype or _sum_dtype(x.dtype))


def prod(x, /, *, axis=None, dtype=None, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.prod(axis, keepdims, dtype or _sum_dtype(x.dtype))


def _reducing(x, axis, keepdims):
    """The axes of a reduction: ``None`` means all, and an empty tuple none, which is a new axis of size 1."""
    if isinstance(axis, tuple) and not axis:
        return x.unsqueeze(-1), -1, False
    return x, list(range(x.dim())) if axis is None else axis, keepdims


def max(x, /, *, axis=None, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.amax(axis, keepdims)


def min(x, /, *, axis=None, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.amin(axis, keepdims)


def mean(x, /, *, axis=None, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.mean(axis, keepdims)


def std(x, /, *, axis=None, correction=0.0, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.std(axis, correction=correction, keepdim=keepdims)


def var(x, /, *, axis=None, correction=0.0, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.var(axis, correction=correction, keepdim=keepdims)


def all(x, /, *, axis=None, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.all(axis, keepdims)


def any(x, /, *, axis=None, keepdims=False):
    x, axis, keepdims = _reducing(x, axis, keepdims)
    return x.any(axis, keepdims)


def _cumulative(name, method, first):
    def function(x, /, *, axis=None, dtype=None, include_initial=False):
        if axis is None:
            if x.dim() > 1:
                raise ValueError(f"{name}: an array of several axes needs an axis")
            axis = 0
        dtype = dtype or _sum_dtype(x.dtype)
        found = getattr(x, method)(axis, dtype)
        if not include_initial:
            return found
        sizes = list(x.shape)
        sizes[axis] = 1
        return _taper.cat([full(sizes, first, dtype=dtype, device=x.device), found], axis)

    function.__name__ = function.__qualname__ = name
    return function


cumulative_sum = _cumulative("cumulative_sum", "cumsum", 0)
cumulative_prod = _cumulative("cumulative_prod", "cumprod", 1)


def diff(x, /, *, axis=-1, n=1, prepend=None, append=None):
    return x.diff(n, axis, prepend, append)


# Capabilities

class _Info:
    """The dtypes, devices and limits of this namespace."""

    def capabilities(self):
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self):
        return _taper.get_default_device()

    def default_dtypes(self, *, device=None):
        return {
            "real floating": _taper.get_default_dtype(), "complex floating": None,
            "integral": _DTYPES["int64"], "indexing": _DTYPES["int64"],
        }

    def dtypes(self, *, device=None, kind=None):
        return {name: _DTYPES[name] for name in _NAMES if kind is None or isdtype(_DTYPES[name], kind)}

    def devices(self):
        return (_taper.device("cpu"), *(_taper.device("cuda", at) for at in range(_taper.cuda_device_count())))


from . import _array_linalg as linalg  # noqa: E402
from . import _array_fft as fft  # noqa: E402, F401


def __array_namespace_info__():
    return _Info()


def _namespace(self, /, *, api_version=None):
    from . import array_api

    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        raise ValueError(f"no version {api_version} of the array API standard")
    return array_api


def _to_device(self, device, /, *, stream=None):
    return self.to(device)


Tensor.__array_namespace__, Tensor.to_device = _namespace, _to_device
