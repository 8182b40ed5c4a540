"""Methods of tensors beyond the native class: other names of PyTorch for the same thing, operations in
place, arrays of numpy, and printing. No number is computed here."""

import copy
import functools

from . import _taper
from ._size import TYPES, Size
from ._taper import Tensor

_PRINT = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": 2**62, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None
):
    """How tensors print, with the arguments of ``torch.set_printoptions``."""
    if profile is not None:
        _PRINT.update(_PROFILES[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _PRINT.update({name: value for name, value in given.items() if value is not None})
    if _PRINT["threshold"] == float("inf"):
        _PRINT["threshold"] = 2**62
    _PRINT["sci_mode"] = sci_mode


def _method(function):
    """Makes a function a method of all tensors, under its own name."""
    setattr(Tensor, function.__name__, function)
    return function


class _GradientFunction:
    """The step of a recorded graph that a result came from."""

    __slots__ = ("_name", "_tensor")

    def __init__(self, name, tensor):
        self._name, self._tensor = name, tensor

    def name(self):
        return self._name

    @property
    def next_functions(self):
        """The steps that this one's operands came from, each with 0; ``None`` for one without a gradient."""
        return tuple(
            (None if found is None else _GradientFunction(*found), 0) for found in self._tensor._grad_inputs()
        )

    def __repr__(self):
        return f"<{self._name} object at {id(self._tensor):#x}>"


# Printing

@_method
def __repr__(self, *, tensor_contents=None):
    return self._text(_PRINT)


#: The longest axis of a tensor that a notebook shows as a table.
_TABLE_MAX = 20


@_method
def _repr_html_(self):
    """For notebooks: a small matrix as a table, anything else as it prints, and its kind below."""
    from html import escape

    kind = f"{self.dtype} {list(self._sizes())} on {self.device}"
    if self.dim() in (1, 2) and 0 < self.numel() and max(self._sizes()) <= _TABLE_MAX:
        matrix = self if self.dim() == 2 else self.unsqueeze(0)
        cell = (lambda one: f"{one:.{_PRINT['precision']}f}") if self.is_floating_point() else str
        rows = "".join(
            "<tr>" + "".join(f'<td style="text-align:right">{cell(one)}</td>' for one in row) + "</tr>"
            for row in matrix.tolist()
        )
        return f"<table>{rows}</table><small>{escape(kind)}</small>"
    return f"<pre>{escape(repr(self))}</pre><small>{escape(kind)}</small>"


@_method
def __format__(self, spec):
    return format(self.item(), spec) if self.dim() == 0 else format(repr(self), spec)


# Sizes

@_method
def size(self, dim=None):
    sizes = Size(self._sizes())
    return sizes if dim is None else sizes[dim]


Tensor.shape = property(lambda self: Size(self._sizes()))
Tensor.grad_fn = property(
    lambda self: None if (name := self._grad_name) is None else _GradientFunction(name, self)
)
Tensor.is_cuda = property(lambda self: self.device.type == "cuda")
Tensor.is_cpu = property(lambda self: self.device.type == "cpu")
for _name in "is_xpu is_mps is_xla is_hpu is_ipu is_maia is_mtia is_vulkan is_mkldnn".split():
    setattr(Tensor, _name, False)
Tensor.itemsize = property(lambda self: self.dtype.itemsize)
Tensor.nbytes = property(lambda self: self.numel() * self.dtype.itemsize)
Tensor.H = property(lambda self: self.T)
Tensor.mH = property(lambda self: self.mT)
Tensor.real = property(lambda self: self)
Tensor.layout = property(lambda self: _taper.strided)
Tensor.is_sparse = property(lambda self: False)
Tensor.is_quantized = property(lambda self: False)
Tensor.is_meta = property(lambda self: self.device.type == "meta")
Tensor.names = property(lambda self: (None,) * self.dim())
Tensor.data = property(lambda self: self.detach(), lambda self, value: self._set_data(value))
Tensor.nelement = Tensor.numel
Tensor.ndimension = Tensor.dim
Tensor.__array_priority__ = 1000
Tensor.__hash__ = object.__hash__


@_method
def element_size(self):
    return self.dtype.itemsize


@_method
def is_complex(self):
    return False


@_method
def is_pinned(self, device=None):
    return False


@_method
def pin_memory(self, device=None):
    return self


@_method
def share_memory_(self):
    raise NotImplementedError("Taper's tensors are not shared between processes")


@_method
def is_signed(self):
    return self.dtype.is_signed


@_method
def get_device(self):
    device = self.device
    return -1 if device.type == "cpu" else device.index


# Views

def _names(method, result):
    def view(self, *sizes, **named):
        if named:
            sizes = tuple(named.values())
        if len(sizes) == 1 and isinstance(sizes[0], _taper.dtype):
            raise NotImplementedError("view(dtype): the bytes of a tensor cannot be read as another dtype")
        return method(self, *sizes)

    view.__name__ = result
    return view


Tensor.view = _names(Tensor._view, "view")
Tensor.reshape = _names(Tensor._reshape, "reshape")
Tensor.swapaxes = Tensor.swapdims = Tensor.transpose
Tensor.moveaxis = Tensor.movedim


@_method
def view_as(self, other):
    return self.view(other.shape)


@_method
def reshape_as(self, other):
    return self.reshape(other.shape)


@_method
def expand_as(self, other):
    return self.expand(other.shape)


@_method
def broadcast_to(self, shape):
    return self.expand(shape)


@_method
def ravel(self):
    return self.reshape(-1)


@_method
def adjoint(self):
    return self.mT


@_method
def flip(self, *dims, **named):
    return self._flip(_taper._ints(dims[0] if len(dims) == 1 else named.get("dims", dims)))


@_method
def fliplr(self):
    if self.dim() < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return self.flip(1)


@_method
def flipud(self):
    if self.dim() < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return self.flip(0)


@_method
def split_with_sizes(self, split_sizes, dim=0):
    return self.split(list(split_sizes), dim)


def _parts(name):
    """PyTorch gives parts as a tuple."""
    method = getattr(Tensor, name)

    def parts(self, *args, **kwargs):
        if "split_size_or_sections" in kwargs:
            kwargs["split_size"] = kwargs.pop("split_size_or_sections")
        return tuple(method(self, *args, **kwargs))

    parts.__name__ = name
    setattr(Tensor, name, parts)


for _name in ("split", "chunk", "unbind", "tensor_split"):
    _parts(_name)


@_method
def __iter__(self):
    if self.dim() == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@_method
def __contains__(self, element):
    return bool(self.eq(element).any())


@_method
def __reversed__(self):
    return self.flip(0) if self.dim() else self


# Devices and dtypes

@_method
def to(self, *args, **kwargs):
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for arg in (*args, kwargs.get("other")):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, _taper.dtype) or arg in (float, int, bool):
            dtype = arg
        elif arg is not None and not isinstance(arg, bool):
            device = arg
    return self._to(device, dtype, kwargs.get("copy", False))


@_method
def type(self, dtype=None, non_blocking=False):
    if dtype is None:
        kind = "torch.cuda" if self.is_cuda else "torch"
        return f"{kind}.{_TYPE_NAMES[self.dtype]}Tensor"
    if isinstance(dtype, str):
        dtype = {name: dtype for dtype, name in _TYPE_NAMES.items()}[dtype.split(".")[-1][: -len("Tensor")]]
    return self._to(None, dtype, False)


_dtypes = dict(_taper._dtypes)
_TYPE_NAMES = {
    _dtypes[name]: title
    for name, title in {
        "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long",
        "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
    }.items()
}

for _name, _dtype in {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
    "int": "int32", "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool",
}.items():
    setattr(Tensor, _name, lambda self, memory_format=None, dtype=_dtypes[_dtype]: self._to(None, dtype, False))


@_method
def type_as(self, other):
    return self._to(None, other.dtype, False)


@_method
def cuda(self, device=None, non_blocking=False, memory_format=None):
    from . import cuda

    return self._to(cuda._named(device), None, False)


@_method
def cpu(self, memory_format=None):
    return self._to("cpu", None, False)


# Numbers

@_method
def tolist(self):
    numbers = self._numbers()
    if self.dim() == 0:
        return numbers[0]
    for size in reversed(self._sizes()[1:]):
        if size == 0:
            return _empty_lists(self._sizes())
        numbers = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    return numbers


def _empty_lists(sizes):
    return [_empty_lists(sizes[1:]) for _ in range(sizes[0])] if sizes else 0


@_method
def numpy(self, *, force=False):
    import numpy

    tensor = self.detach() if force else self
    if force and tensor.is_cuda:
        tensor = tensor.cpu()
    if tensor.requires_grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if tensor.is_cuda:
        raise TypeError(
            f"can't convert {tensor.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )
    name = tensor.dtype._numpy
    if name is None:
        raise TypeError(f"Got unsupported ScalarType {tensor.dtype}")
    return numpy.frombuffer(bytearray(tensor._bytes()), dtype=name).reshape(tensor._sizes())


@_method
def __array__(self, dtype=None, copy=None):
    array = self.numpy()
    return array if dtype is None else array.astype(dtype, copy=False)


@_method
def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A capsule of a copy on the processor, which numpy makes."""
    if copy is False:
        raise BufferError("__dlpack__: the data are copied")
    return self.detach().cpu().numpy().__dlpack__(max_version=max_version)


@_method
def __dlpack_device__(self):
    return (1, 0)


@_method
def __complex__(self):
    return complex(self.item())


@_method
def __deepcopy__(self, memo):
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
        )
    if id(self) in memo:
        return memo[id(self)]
    made = self.detach().clone()
    if self.requires_grad:
        made.requires_grad_()
    if self.grad is not None:
        made.grad = self.grad.detach().clone()
    made.__dict__.update(copy.deepcopy(self.__dict__, memo))
    memo[id(self)] = made
    return made


def _rebuild(data, sizes, dtype, device, requires_grad):
    """A tensor from its bytes, for pickles."""
    return _taper._from_bytes(data, sizes, dtype, device, requires_grad)


@_method
def __reduce_ex__(self, protocol):
    requires_grad = self.requires_grad and self.is_leaf
    return _rebuild, (self._bytes(), tuple(self._sizes()), self.dtype, str(self.device), requires_grad)


# Changes in place

@_method
def requires_grad_(self, requires_grad=True):
    self.require_grad(requires_grad)
    return self


@_method
def fill_(self, value):
    return self.copy_(value) if isinstance(value, Tensor) else self._fill(value)


@_method
def zero_(self):
    return self._fill(0)


@_method
def resize_(self, *sizes):
    sizes = _taper._ints(sizes[0] if len(sizes) == 1 else sizes)
    if Size(sizes) == self.shape:
        return self
    count = Size(sizes).numel()
    flat = self.detach().reshape(-1)
    if count > flat.numel():
        flat = _taper.cat([flat, _taper._full([count - flat.numel()], 0, self.dtype, self.device)])
    self._set_data(flat[:count].reshape(sizes))
    return self


@_method
def masked_fill_(self, mask, value):
    return self._replace(self.masked_fill(mask, value))


@_method
def index_put_(self, indices, values, accumulate=False):
    return self._replace(self.index_put(indices, values, accumulate))


def _random_in_place(name, numbers, defaults):
    def draw(self, *args, generator=None, **kwargs):
        given = dict(zip(numbers, args))
        given.update(kwargs)
        values = [float(given.get(key, default)) for key, default in zip(numbers, defaults)]
        if name == "normal" and values[1] < 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {values[1]}")
        kind = self.dtype
        drawn = _taper._random(name, self._sizes(), values, kind, self.device, generator, False)
        return self.copy_(drawn)

    return draw


for _name, _kind, _numbers, _defaults in (
    ("uniform_", "uniform", ("from_", "to"), (0.0, 1.0)),
    ("normal_", "normal", ("mean", "std"), (0.0, 1.0)),
    ("exponential_", "exponential", ("lambd",), (1.0,)),
    ("log_normal_", "log_normal", ("mean", "std"), (1.0, 2.0)),
    ("cauchy_", "cauchy", ("median", "sigma"), (0.0, 1.0)),
    ("geometric_", "geometric", ("p",), (0.5,)),
):
    setattr(Tensor, _name, _random_in_place(_kind, _numbers, _defaults))


@_method
def random_(self, low=0, high=None, *, generator=None):
    low, high = (0, low) if high is None and low else (low, high)
    high = 2**24 if high is None else high
    return self.copy_(_taper._random("randint", self._sizes(), [low, high], None, self.device, generator))


@_method
def bernoulli_(self, p=0.5, *, generator=None):
    if isinstance(p, Tensor):
        return self.copy_(_taper._sample("bernoulli", p.expand(self.shape), generator))
    return self.copy_(_taper._random("bernoulli", self._sizes(), [p], self.dtype, self.device, generator))


@_method
def bernoulli(self, p=None, *, generator=None):
    if p is not None:
        return _taper._random("bernoulli", self._sizes(), [p], self.dtype, self.device, generator)
    return _taper._sample("bernoulli", self, generator)


@_method
def multinomial(self, num_samples, replacement=False, *, generator=None):
    return _taper.multinomial(self, num_samples, replacement, generator)


# Reductions with several forms

def _dims(dim):
    return None if isinstance(dim, (tuple, list)) and not dim else dim


def _whole_or_dim(name, whole, along):
    """Reductions that have a gradient of another name when they reduce all elements."""

    def reduce(self, dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=None, out=None):
        dim = axis if dim is None else dim
        keepdim = keepdim if keepdims is None else keepdims
        if isinstance(dim, _taper.dtype):
            dim, dtype = None, dim
        if dim is None and not keepdim and dtype is None:
            return whole(self)
        return along(self, _dims(dim), keepdim, dtype)

    reduce.__name__ = name
    setattr(Tensor, name, reduce)


_whole_or_dim("mean", Tensor._mean_all, Tensor._mean)
_whole_or_dim("sum", Tensor._sum_all, Tensor.sum)


def _spread(name):
    """``std`` and ``var`` also take ``unbiased`` in the place of the axes."""
    method = getattr(Tensor, name)

    def spread(self, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return method(self, dim, unbiased, keepdim, correction)

    spread.__name__ = name
    setattr(Tensor, name, spread)


_spread("std")
_spread("var")


def _extreme(name):
    along, whole = getattr(Tensor, f"_{name}_dim"), getattr(Tensor, f"_{name}_all")
    other_name = "maximum" if name == "max" else "minimum"

    def extreme(self, dim=None, keepdim=False, *, other=None):
        other = dim if isinstance(dim, Tensor) else other
        if other is not None:
            return getattr(self, other_name)(other)
        if dim is None:
            return whole(self)
        return TYPES[name](along(self, dim, keepdim))

    extreme.__name__ = name
    setattr(Tensor, name, extreme)


_extreme("max")
_extreme("min")


@_method
def median(self, dim=None, keepdim=False):
    return self._median_all() if dim is None else TYPES["median"](self._median_dim(dim, keepdim))


@_method
def mode(self, dim=-1, keepdim=False):
    return TYPES["mode"](self._mode(dim, keepdim))


@_method
def kthvalue(self, k, dim=-1, keepdim=False):
    return TYPES["kthvalue"](self._kthvalue(k, dim, keepdim))


@_method
def sort(self, dim=-1, descending=False, stable=False):
    return TYPES["sort"](self._sort(dim, descending))


@_method
def topk(self, k, dim=-1, largest=True, sorted=True):
    return TYPES["topk"](self._topk(k, dim, largest))


@_method
def cummax(self, dim):
    return TYPES["cummax"](self._cummax(dim))


@_method
def cummin(self, dim):
    return TYPES["cummin"](self._cummin(dim))


@_method
def aminmax(self, *, dim=None, keepdim=False):
    return TYPES["aminmax"](self._aminmax(dim, keepdim))


def _quantile_of(name, skips_nan):
    def quantile(self, q, dim=None, keepdim=False, *, interpolation="linear"):
        if not isinstance(q, Tensor):
            if not 0 <= q <= 1:
                raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
            q = _taper._full([], q, self.dtype, self.device)
        if q.dim() > 1:
            raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
        return self._quantile(q, dim, keepdim, interpolation, skips_nan)

    quantile.__name__ = name
    setattr(Tensor, name, quantile)


_quantile_of("quantile", False)
_quantile_of("nanquantile", True)


@_method
def nanmedian(self, dim=None, keepdim=False):
    return self._nanmedian_all() if dim is None else TYPES["nanmedian"](self._nanmedian_dim(dim, keepdim))


@_method
def norm(self, p="fro", dim=None, keepdim=False, dtype=None):
    tensor = self if dtype is None else self.to(dtype)
    if p == "nuc":
        from .linalg import matrix_norm

        return matrix_norm(tensor, "nuc", (-2, -1) if dim is None else dim, keepdim)
    order = 2.0 if p in ("fro", None) else float(p)
    return tensor._norm(order, _dims(dim), keepdim)


@_method
def unique(self, sorted=True, return_inverse=False, return_counts=False, dim=None):
    return _chosen(self._unique(dim, False), return_inverse, return_counts)


@_method
def unique_consecutive(self, return_inverse=False, return_counts=False, dim=None):
    return _chosen(self._unique(dim, True), return_inverse, return_counts)


def _chosen(found, inverse, counts):
    wanted = (found[0],) + (found[1],) * bool(inverse) + (found[2],) * bool(counts)
    return wanted[0] if len(wanted) == 1 else wanted


# Gradients

@_method
def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    if inputs is not None and isinstance(inputs, Tensor):
        inputs = [inputs]
    retain = create_graph if retain_graph is None else retain_graph
    _taper._backward([self], [gradient], retain, create_graph, inputs)


@_method
def register_hook(self, hook):
    return self._register_hook(hook)


# Other names for one thing, and operators

for _name, _same in {
    "absolute": "abs", "negative": "neg", "subtract": "sub", "multiply": "mul", "divide": "div",
    "true_divide": "div", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "fix": "trunc", "clip": "clamp",
    "concat": None, "sgn": "sign", "ger": "outer", "inner": None, "positive": None, "special_expit": "sigmoid",
}.items():
    if _same:
        setattr(Tensor, _name, getattr(Tensor, _same))


@_method
def positive(self):
    return self


@_method
def clamp_min(self, min):
    return self.clamp(min=min)


@_method
def clamp_max(self, max):
    return self.clamp(max=max)


@_method
def where(self, condition, other):
    return condition._where(self, other)


@_method
def inverse(self):
    return _taper.linalg_inv(self)


@_method
def matrix_exp(self):
    return _taper.linalg_matrix_exp(self)


@_method
def det(self):
    return _taper.linalg_det(self)


@_method
def pinverse(self):
    return _taper.linalg_pinv(self)


@_method
def cholesky(self, upper=False):
    return _taper.linalg_cholesky(self, upper)


@_method
def inner(self, other):
    from ._functions import inner

    return inner(self, other)


@_method
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    from ._functions import tensor

    return tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


def _new(value):
    def new(self, *size, dtype=None, device=None, requires_grad=False, **named):
        if "size" in named:
            size = (named["size"],)
        fill = value
        if value is None:
            size, fill = (size[0],), size[1] if len(size) > 1 else named["fill_value"]
        sizes = size[0] if len(size) == 1 else size
        return _taper._full(sizes, fill, dtype or self.dtype, device or self.device, requires_grad)

    return new


Tensor.new_zeros, Tensor.new_ones, Tensor.new_full = _new(0), _new(1), _new(None)
Tensor.new_empty = Tensor.new_zeros


def _operator(name, method, reflected=False):
    def operate(self, other):
        if not isinstance(other, (Tensor, int, float)):
            if not reflected and getattr(other, "ndim", 0) and hasattr(other, "__array_interface__"):
                from ._functions import from_numpy

                other = from_numpy(other)
            elif not hasattr(other, "__float__"):
                return NotImplemented
        return method(self, other)

    setattr(Tensor, name, operate)


for _name, _plain, _reflected in (
    ("add", "add", "add"), ("sub", "sub", "rsub"), ("mul", "mul", "mul"), ("truediv", "div", "_rdiv"),
    ("floordiv", "floor_divide", "_rfloor_divide"), ("mod", "remainder", "_rremainder"),
    ("pow", "pow", "_rpow"), ("and", "bitwise_and", "bitwise_and"), ("or", "bitwise_or", "bitwise_or"),
    ("xor", "bitwise_xor", "bitwise_xor"),
):
    _operator(f"__{_name}__", getattr(Tensor, _plain))
    _operator(f"__r{_name}__", getattr(Tensor, _reflected), True)
for _name, _plain in (
    ("lshift", "bitwise_left_shift"), ("rshift", "bitwise_right_shift"), ("lt", "lt"), ("le", "le"),
    ("gt", "gt"), ("ge", "ge"), ("eq", "eq"), ("ne", "ne"),
):
    _operator(f"__{_name}__", getattr(Tensor, _plain))


@_method
def __eq__(self, other):
    try:
        return self.eq(other)
    except TypeError:
        return False


@_method
def __ne__(self, other):
    try:
        return self.ne(other)
    except TypeError:
        return True


Tensor.__hash__ = object.__hash__


@_method
def __matmul__(self, other):
    return self.matmul(other) if isinstance(other, Tensor) else NotImplemented


@_method
def __rmatmul__(self, other):
    return other.matmul(self) if isinstance(other, Tensor) else NotImplemented


Tensor.__rdiv__ = Tensor._rdiv
Tensor.__neg__, Tensor.__abs__, Tensor.__invert__ = Tensor.neg, Tensor.abs, Tensor.bitwise_not
Tensor.__pos__ = Tensor.positive


def _in_place(name):
    method = getattr(Tensor, name)

    def change(self, *args, **kwargs):
        return self._replace(method(self, *args, **kwargs))

    change.__name__ = f"{name}_"
    setattr(Tensor, f"{name}_", change)


#: The methods that have a form in place, with an underscore behind their name.
IN_PLACE = (
    "abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin arcsinh "
    "arctan arctanh asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_not bitwise_or bitwise_xor "
    "bitwise_left_shift bitwise_right_shift ceil celu clamp clamp_max clamp_min clip copysign cos cosh "
    "cumprod cumsum deg2rad digamma div divide elu eq erf erfc erfinv exp exp2 expm1 fix float_power "
    "floor floor_divide fmod frac gcd ge greater gt hardtanh heaviside hypot i0 index_add index_copy "
    "index_fill lcm ldexp le leaky_relu lerp less lgamma log log10 log1p log2 logical_and logical_not "
    "logical_or logical_xor logit lt masked_scatter mul multiply nan_to_num ne neg negative nextafter pow "
    "rad2deg reciprocal relu remainder renorm round rsqrt scatter scatter_add scatter_reduce selu sgn "
    "sigmoid sign silu sin sinc sinh softmax sqrt square sub subtract tan tanh threshold tril triu "
    "true_divide trunc xlogy"
).split()
for _name in IN_PLACE:
    _in_place(_name)

for _name, _plain in (
    ("add", "add_"), ("sub", "sub_"), ("mul", "mul_"), ("truediv", "div_"), ("floordiv", "floor_divide_"),
    ("mod", "remainder_"), ("pow", "pow_"), ("and", "bitwise_and_"), ("or", "bitwise_or_"),
    ("xor", "bitwise_xor_"),
):
    setattr(Tensor, f"__i{_name}__", getattr(Tensor, _plain))


def _reshape_in_place(name):
    method = getattr(Tensor, name)

    def change(self, *args, **kwargs):
        return self.set_(method(self, *args, **kwargs))

    setattr(Tensor, f"{name}_", change)


for _name in ("squeeze", "unsqueeze", "transpose", "t"):
    _reshape_in_place(_name)


@_method
def apply_(self, function):
    from ._functions import tensor

    flat = [function(number) for number in self._numbers()]
    return self.copy_(tensor(flat, dtype=self.dtype).reshape(self.shape))


@_method
def dim_order(self):
    return tuple(range(self.dim()))



# Names of numpy: ``axis`` is ``dim``, and ``keepdims`` is ``keepdim``

def _numpy_names(method):
    @functools.wraps(method)
    def call(*args, axis=None, keepdims=None, **options):
        if axis is not None:
            options["dim"] = axis
        if keepdims is not None:
            options["keepdim"] = keepdims
        return method(*args, **options)

    return call


#: The methods with an axis that have no such names of their own.
_WITH_AXIS = (
    "all amax amin aminmax any argmax argmin argsort chunk count_nonzero cummax cummin cumprod cumsum diff gather "
    "index_select kthvalue log_softmax logcumsumexp logsumexp max median min mode nanmedian nanmean nanquantile nansum "
    "norm prod quantile select softmax sort split squeeze std take_along_dim topk unbind unsqueeze var"
).split()
for _name in _WITH_AXIS:
    setattr(Tensor, _name, _numpy_names(getattr(Tensor, _name)))
