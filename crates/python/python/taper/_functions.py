"""The functions of the module: those that create tensors, and every method as a function."""

import builtins
import collections.abc
import functools
import operator

from . import _taper
from ._size import Size
from ._taper import Tensor


def _sizes(size):
    return size[0] if len(size) == 1 and not isinstance(size[0], int) else list(map(operator.index, size))


# Creation

def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A tensor with a copy of numbers, lists of numbers, an array or a tensor."""
    if isinstance(data, Tensor):
        made = data.detach()._to(device, dtype, True)
        return made.requires_grad_(requires_grad)
    if hasattr(data, "__array_interface__"):
        return _from_array(data, dtype, device, requires_grad)
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (list, tuple, str, bytes)):
        data = list(data)
    if isinstance(data, (list, tuple)):
        data = _plain(data)
        if isinstance(data, Tensor):
            return tensor(data, dtype=dtype, device=device, requires_grad=requires_grad)
        if hasattr(data, "__array_interface__"):
            return _from_array(data, dtype, device, requires_grad)
    return _taper._tensor(data, dtype, device, requires_grad)


def _plain(data):
    """Lists of tensors or arrays as one; other lists as they are."""
    first = data
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    if isinstance(first, Tensor):
        return _listed(data)
    if getattr(first, "ndim", 0) and hasattr(first, "__array_interface__"):
        import numpy

        return numpy.array(data)
    return data


def _listed(data):
    if isinstance(data, (list, tuple)):
        return [_listed(item) for item in data]
    return data.tolist() if isinstance(data, Tensor) else data


def _from_array(array, dtype=None, device=None, requires_grad=False):
    import numpy

    array = numpy.asarray(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    own = dict(_taper._dtypes).get(array.dtype.name)
    if own is None:
        raise TypeError(f"can't convert np.ndarray of type {array.dtype}: there is no such dtype")
    data = numpy.ascontiguousarray(array).tobytes()
    made = _taper._from_bytes(data, list(array.shape), own)
    return made._to(device, dtype, False).requires_grad_(requires_grad)


def from_numpy(array):
    """A tensor with a copy of the numbers of an array: writes to one are not seen by the other."""
    return _from_array(array)


def as_tensor(data, dtype=None, device=None):
    if isinstance(data, Tensor):
        return data._to(device, dtype, False)
    return tensor(data, dtype=dtype, device=device)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    made = as_tensor(obj, dtype, device)
    if copy is False and made is not obj:
        raise ValueError("asarray: data that are no tensor of this dtype and device are copied")
    made = made.clone() if copy and made is obj else made
    return made.requires_grad_() if requires_grad else made


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor with a copy of another library's data on the processor. numpy reads them."""
    if isinstance(ext_tensor, Tensor):
        return ext_tensor.clone() if copy else ext_tensor.to(device) if device else ext_tensor
    if copy is False:
        raise ValueError("from_dlpack: the data are copied")
    import numpy

    return _from_array(numpy.from_dlpack(ext_tensor), None, device)


def scalar_tensor(value, *, dtype=None, device=None, requires_grad=False):
    return _taper._full([], value, dtype or _taper.get_default_dtype(), device, requires_grad)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    data = memoryview(buffer).cast("B")[offset:]
    count = len(data) // dtype.itemsize if count < 0 else count
    return _taper._from_bytes(bytes(data[: count * dtype.itemsize]), [count], dtype, None, requires_grad)


def _filled(name, value):
    def create(*size, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
               memory_format=None, **named):
        if "size" in named:
            size = (named["size"],)
        made = _taper._full(_sizes(size), value, dtype or _taper.get_default_dtype(), device, requires_grad)
        return made if out is None else out.copy_(made)

    create.__name__ = name
    return create


zeros, ones, empty = _filled("zeros", 0), _filled("ones", 1), _filled("empty", 0)


def full(size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    if isinstance(fill_value, Tensor):
        dtype, fill_value = dtype or fill_value.dtype, fill_value.item()
    return _taper._full(size, fill_value, dtype, device, requires_grad)


def _alike(name, value):
    def create(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
        return _taper._full(
            input._sizes(), value, dtype or input.dtype, device or input.device, requires_grad
        )

    create.__name__ = name
    return create


zeros_like, ones_like, empty_like = _alike("zeros_like", 0), _alike("ones_like", 1), _alike("empty_like", 0)


def full_like(input, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False):
    return _taper._full(
        input._sizes(), fill_value, dtype or input.dtype, device or input.device, requires_grad
    )


def arange(start, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    start, end = (0, start) if end is None else (start, end)
    return _taper._arange(start, end, step, dtype, device, requires_grad)


def _steps(steps):
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    return steps


def linspace(start, end, steps, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    return _taper._linspace(float(start), float(end), _steps(steps), None, dtype, device, requires_grad)


def logspace(start, end, steps, base=10.0, *, dtype=None, layout=None, device=None, requires_grad=False):
    return _taper._linspace(float(start), float(end), _steps(steps), base, dtype, device, requires_grad)


def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    if n < 0 or m is not None and m < 0:
        raise RuntimeError(f"n must be greater or equal to 0, got {n if n < 0 else m}")
    return _taper.eye(n, m, dtype, device, requires_grad)


def _drawn(name):
    def create(*size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
               pin_memory=False, **named):
        if "size" in named:
            size = (named["size"],)
        return _taper._random(name, _sizes(size), [], dtype, device, generator, requires_grad)

    create.__name__ = name
    return create


rand, randn = _drawn("rand"), _drawn("randn")


def randint(low, high=None, size=None, *, generator=None, dtype=None, device=None, requires_grad=False):
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if high <= low:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    return _taper._random("randint", size, [low, high], dtype, device, generator, requires_grad)


def randperm(n, *, generator=None, out=None, dtype=None, device=None, requires_grad=False):
    return _taper._random("randperm", [n], [n], dtype, device, generator, requires_grad)


def normal(mean=0.0, std=1.0, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None,
           requires_grad=False, pin_memory=False):
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        like = mean if isinstance(mean, Tensor) else std
        shape = broadcast_shapes(*(one.shape for one in (mean, std) if isinstance(one, Tensor)))
        drawn = _taper._random("randn", shape, [], like.dtype, like.device, generator)
        return drawn * std + mean
    return _taper._random("normal", size, [mean, std], dtype, device, generator, requires_grad)


def _drawn_alike(name):
    def create(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
        return _taper._random(
            name, input._sizes(), [], dtype or input.dtype, device or input.device, None, requires_grad
        )

    create.__name__ = f"{name}_like"
    return create


rand_like, randn_like = _drawn_alike("rand"), _drawn_alike("randn")


def randint_like(input, low, high=None, *, dtype=None, device=None):
    low, high = (0, low) if high is None else (low, high)
    return randint(low, high, input.shape, dtype=dtype or input.dtype, device=device or input.device)


def poisson(input, generator=None):
    return _taper._sample("poisson", input, generator)


def _window(name, *defaults):
    def create(window_length, periodic=True, *numbers, dtype=None, device=None, **named):
        numbers = list(numbers) + list(named.values())
        values = [float(number) for number in numbers] + [float(d) for d in defaults[len(numbers):]]
        return _taper._window(name, window_length, periodic, values, dtype, device)

    create.__name__ = f"{name}_window"
    return create


hann_window, bartlett_window, blackman_window = _window("hann"), _window("bartlett"), _window("blackman")
hamming_window, kaiser_window = _window("hamming", 0.54, 0.46), _window("kaiser", 12.0)


# Methods as functions

def _function(name):
    """The function of a method: its first argument may be a keyword, and the result may go to ``out``."""
    method = getattr(Tensor, name)

    @functools.wraps(method)
    def call(*args, out=None, **kwargs):
        if "input" in kwargs:
            args = (kwargs.pop("input"),) + args
        if args and not isinstance(args[0], Tensor):
            args = (_operand(name, args),) + args[1:]
        try:
            result = method(*args, **kwargs)
        except OverflowError as error:
            raise RuntimeError(f"{name}(): {error}") from None
        if out is None:
            return result
        if isinstance(out, (tuple, list)):
            return tuple(_into(one, value) for one, value in zip(out, result))
        return _into(out, result)

    call.__name__ = call.__qualname__ = name
    return call


#: The functions whose first operand may be a number.
_NUMBERS = frozenset(
    "add sub subtract mul multiply div divide true_divide floor_divide pow float_power remainder bitwise_and "
    "bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift xlogy isin rsub".split()
)


def _operand(name, args):
    """A number in place of the first tensor, beside another tensor."""
    first, rest = args[0], args[1:]
    takes = name in _NUMBERS and isinstance(first, (builtins.int, builtins.float))
    if takes and rest and isinstance(rest[0], Tensor):
        dtype = _taper._result_type(first, rest[0])
        return _taper._full([], first, dtype, rest[0].device, False)
    raise TypeError(
        f"{name}(): argument 'input' (position 1) must be Tensor, not {builtins.type(first).__name__}"
    )


def _into(out, value):
    if value.is_floating_point() and not out.is_floating_point():
        raise RuntimeError(
            f"result type {_kind(value)} can't be cast to the desired output type {_kind(out)}"
        )
    if out.shape != value.shape:
        out.resize_(value.shape)
    return out._replace(value)


def _kind(tensor):
    return tensor.type().removeprefix("torch.").removesuffix("Tensor")


#: The methods that are functions of the module too.
METHODS = (
    "abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint all allclose amax amin "
    "aminmax any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere "
    "as_strided asin asinh atan atan2 atanh baddbmm bernoulli bincount bitwise_and bitwise_left_shift "
    "bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm bucketize broadcast_to ceil celu chunk clamp "
    "clamp_max clamp_min clip clone copysign corrcoef cos cosh count_nonzero cov cross cummax cummin cumprod "
    "cumsum deg2rad detach diag diag_embed diagflat diagonal diagonal_scatter diff digamma dist div divide "
    "dot eq equal erf erfc erfinv exp exp2 expm1 fix flatten flip fliplr flipud float_power floor "
    "floor_divide fmax fmin fmod frac frexp gather gcd ge ger greater greater_equal gt heaviside histc hypot "
    "i0 index_add index_copy index_fill index_put index_select inverse is_complex is_floating_point isclose "
    "isfinite isin isinf isnan isneginf isposinf kron index_reduce kthvalue lcm ldexp le lerp less less_equal lgamma log "
    "log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or "
    "logical_xor logit logsumexp lt masked_fill masked_scatter masked_select matmul max maximum mean median "
    "min minimum mm mode moveaxis movedim mul multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian "
    "nanquantile nansum narrow ne neg negative nextafter nonzero nonzero_static norm not_equal numel outer permute pinverse "
    "positive pow prelu prod quantile rad2deg ravel reciprocal relu remainder renorm repeat_interleave "
    "reshape roll rot90 round rsqrt rsub scatter scatter_add scatter_reduce select select_scatter selu "
    "sigmoid sgn sign signbit sin sinc sinh softmax sort split sqrt square squeeze std sub subtract sum "
    "swapaxes swapdims t take take_along_dim tan tanh tensor_split threshold tile topk trace transpose tril "
    "triu true_divide trunc unbind unflatten unfold unique unique_consecutive unsqueeze var vdot xlogy det "
    "cholesky matrix_exp"
).split()
globals().update({_name: _function(_name) for _name in METHODS})


# Functions of several tensors

def cat(tensors, dim=0, *, axis=None, out=None):
    made = _taper.cat(tensors, dim if axis is None else axis)
    return made if out is None else _into(out, made)


concat = concatenate = cat


def stack(tensors, dim=0, *, axis=None, out=None):
    made = _taper.stack(tensors, dim if axis is None else axis)
    return made if out is None else _into(out, made)


def _join(name, native=None):
    def join(*tensors):
        listed = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
        return _taper._stack_by(native or name, listed)

    join.__name__ = name
    return join


hstack, vstack, dstack, column_stack = map(_join, ("hstack", "vstack", "dstack", "column_stack"))
row_stack, block_diag, cartesian_prod = _join("vstack"), _join("block_diag"), _join("cartesian_prod")


def where(condition, input=None, other=None):
    if input is None:
        return condition.nonzero(as_tuple=True)
    return condition._where(input, other)


def einsum(equation, *operands):
    if not isinstance(equation, str):
        raise TypeError("einsum: the equation is a string")
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    return _taper._einsum(equation, list(operands))


def meshgrid(*tensors, indexing="ij"):
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    return tuple(Tensor._meshgrid(list(tensors), indexing == "xy"))


def broadcast_tensors(*tensors):
    return tuple(Tensor._broadcast(list(tensors)))


def broadcast_shapes(*shapes):
    return Size(_taper._broadcast_shapes([[one] if isinstance(one, builtins.int) else list(one) for one in shapes]))


def tensordot(a, b, dims=2):
    if isinstance(dims, builtins.int):
        own, other = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        own, other = ([one] if isinstance(one, builtins.int) else list(one) for one in dims)
    return a._tensordot(b, own, other)


def inner(input, other):
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    return tensordot(input, other, dims=([-1 % input.dim()], [-1 % other.dim()]))


def chain_matmul(*matrices):
    return _taper.linalg_multi_dot(list(matrices))


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if right and side == "left":
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites")
    if not isinstance(input, Tensor):
        input = tensor(input, dtype=sorted_sequence.dtype)
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise RuntimeError("torch.searchsorted(): boundary and sorter must have the same size")
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    dtype = _taper.promote_types(sorted_sequence.dtype, input.dtype)
    places = sorted_sequence.to(dtype)._searchsorted(input.to(dtype), right or side == "right")
    return places.to(dict(_taper._dtypes)["int32"]) if out_int32 else places


def tril_indices(row, col, offset=0, *, dtype=None, device=None):
    return _taper._triangle_indices(False, row, col, offset)._to(device, dtype, False)


def triu_indices(row, col, offset=0, *, dtype=None, device=None):
    return _taper._triangle_indices(True, row, col, offset)._to(device, dtype, False)


def unravel_index(indices, shape):
    return tuple(_taper.unravel_index(indices, list(shape)))


def combinations(input, r=2, with_replacement=False):
    return _taper.combinations(input, r, with_replacement)


def vander(x, N=None, increasing=False):
    return x.vander(len(x) if N is None else N, increasing)


def _moments(name, deviation):
    def moments(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, builtins.bool):
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else unbiased
        return input._moments(dim, float(correction), keepdim, deviation)

    moments.__name__ = name
    return moments


var_mean, std_mean = _moments("var_mean", False), _moments("std_mean", True)


def atleast_1d(*tensors):
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return tuple(one.reshape(1) if one.dim() == 0 else one for one in tensors[0])
    made = tuple(one.reshape(1) if one.dim() == 0 else one for one in tensors)
    return made[0] if len(made) == 1 else made


def atleast_2d(*tensors):
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return tuple(one.reshape(1, -1) if one.dim() < 2 else one for one in tensors[0])
    made = tuple(one.reshape(1, -1) if one.dim() < 2 else one for one in tensors)
    return made[0] if len(made) == 1 else made


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    return _taper.cdist(x1, x2, p)


# Questions

def is_tensor(object):
    return isinstance(object, Tensor)


def is_nonzero(input):
    return builtins.bool(input)


def result_type(a, b):
    return _taper._result_type(a, b)


def can_cast(from_, to):
    order = {False: 0, True: 2}
    kind = lambda dtype: order[dtype.is_floating_point] or (0 if dtype._numpy == "bool" else 1)
    return kind(from_) <= kind(to)


def manual_seed(seed):
    """Seeds the default generators of all devices."""
    _taper._manual_seed(seed)
    return _taper._default_generator("cpu")


def initial_seed():
    return _taper._default_generator("cpu").initial_seed()


def seed():
    fresh = _taper._default_generator("cpu").seed()
    _taper._manual_seed(fresh & (2**63 - 1))
    return fresh


def get_rng_state():
    return _taper._default_generator("cpu").get_state()


def set_rng_state(state):
    _taper._default_generator("cpu").set_state(state)


class finfo:
    """The limits of a floating-point dtype."""

    def __init__(self, dtype=None):
        self.dtype = str(dtype or _taper.get_default_dtype()).removeprefix("torch.")
        limits = (dtype or _taper.get_default_dtype())._limits()
        self.max, self.min, self.eps, self.tiny, self.bits = limits
        self.smallest_normal, self.resolution = self.tiny, 10.0 ** -builtins.int(-_log10(self.eps))

    def __repr__(self):
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


def _log10(number):
    import math

    return math.log10(number)


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, dtype):
        self.dtype = str(dtype).removeprefix("torch.")
        self.max, self.min, _, _, self.bits = dtype._limits()

    def __repr__(self):
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


# Functions of a table are found by their names, so that a module with one of them can be pickled.
for _name, _value in list(globals().items()):
    if "<locals>" in getattr(_value, "__qualname__", ""):
        _value.__qualname__, _value.__module__ = _name, __name__
