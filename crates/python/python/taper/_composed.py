"""Functions of the module that are compositions of others, or other names for them."""

import builtins

from . import _functions as _f
from . import _taper
from ._size import results
from ._taper import Tensor
from .linalg import _LU_FACTOR, _SVD

# Views as new values

def _copy(name, method):
    def copy(input, *args, out=None, **kwargs):
        made = getattr(input, method)(*args, **kwargs)
        if isinstance(made, (tuple, list)):
            return tuple(part.clone() for part in made)
        return made.clone() if out is None else _f._into(out, made)

    copy.__name__ = copy.__qualname__ = name
    return copy


for _name in (
    "as_strided diagonal expand narrow permute split_with_sizes squeeze t transpose unbind unfold unsqueeze view"
).split():
    globals()[f"{_name}_copy"] = _copy(f"{_name}_copy", _name)
Tensor.narrow_copy = narrow_copy  # noqa: F821


def alias_copy(input, *, out=None):
    return input.clone() if out is None else _f._into(out, input)


def unsafe_chunk(input, chunks, dim=0):
    return input.chunk(chunks, dim)


def unsafe_split(input, split_size, dim=0):
    return input.split(split_size, dim)


Tensor.unsafe_chunk, Tensor.unsafe_split = unsafe_chunk, unsafe_split


def _as_plain(name):
    """Real numbers are their own conjugates, and no view of them is lazy."""
    def plain(input):
        return input

    plain.__name__ = plain.__qualname__ = name
    setattr(Tensor, name, plain)
    return plain


conj, conj_physical, resolve_conj, resolve_neg = map(
    _as_plain, ("conj", "conj_physical", "resolve_conj", "resolve_neg")
)


def real(input):
    return input


def isreal(input):
    return input.eq(input) | input.ne(input)


Tensor.isreal = isreal


def angle(input):
    """0 for numbers from 0 on, pi below, and NaN where there is no number."""
    x = input if input.is_floating_point() else input.to(_taper.get_default_dtype())
    turned = _f.where(x < 0, 3.141592653589793, 0.0).to(x.dtype)
    return _f.where(x.isnan(), x, turned + x.detach() * 0)


Tensor.angle = angle


# Sizes

def _sum_to_size(input, *size):
    size = list(size[0]) if len(size) == 1 and not isinstance(size[0], int) else list(size)
    new = input.dim() - len(size)
    if new < 0 or any(own != one and one != 1 for own, one in zip(input.shape[max(new, 0):], size)):
        raise RuntimeError(f"size {{{size}}} is not expandable to size {{{list(input.shape)}}}.")
    summed = list(range(new)) + [
        new + at for at, one in enumerate(size) if one == 1 and input.shape[new + at] != 1
    ]
    return input.sum(summed).reshape(size) if summed else input


Tensor.sum_to_size = _sum_to_size


def resize_as_(input, the_template, *, memory_format=None):
    return input.resize_(the_template.shape)


Tensor.resize_as_ = resize_as_


def atleast_3d(*tensors):
    def raised(one):
        if one.dim() == 0:
            return one.reshape(1, 1, 1)
        if one.dim() == 1:
            return one.reshape(1, -1, 1)
        return one.unsqueeze(-1) if one.dim() == 2 else one

    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tensors[0]
    elif len(tensors) == 1:
        return raised(tensors[0])
    return tuple(raised(one) for one in tensors)


def _split_along(name, dim, least):
    def split(input, indices_or_sections):
        if input.dim() < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with "
                f"{input.dim()} dimensions!"
            )
        along = 0 if name == "hsplit" and input.dim() == 1 else dim
        if isinstance(indices_or_sections, builtins.int):
            if indices_or_sections == 0 or input.shape[along] % indices_or_sections:
                raise RuntimeError(
                    f"torch.{name} attempted to split along dimension {along}, but the size of the dimension "
                    f"{input.shape[along]} is not divisible by the split_size {indices_or_sections}!"
                )
        return input.tensor_split(indices_or_sections, along)

    split.__name__ = split.__qualname__ = name
    setattr(Tensor, name, split)
    return split


hsplit, vsplit, dsplit = (
    _split_along(name, dim, least) for name, dim, least in (("hsplit", 1, 1), ("vsplit", 0, 2), ("dsplit", 2, 3))
)


def constant_pad_nd(input, pad, value=0):
    return _taper._pad(input, builtins.list(pad), "constant", float(value))


def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    if step < 1:
        raise RuntimeError("slice step must be positive")
    size = input.shape[dim]
    held = lambda at: builtins.max(0, builtins.min(at + size if at < 0 else at, size))
    start, end = held(0 if start is None else start), held(size if end is None else end)
    return input._slice_scatter(src, dim, start, builtins.max(start, end), step)


Tensor.slice_scatter = slice_scatter


def as_strided_scatter(input, src, size, stride, storage_offset=0):
    places = _f.arange(input.numel()).as_strided(size, stride, storage_offset or 0)
    flat = input.reshape(-1).scatter(0, places.reshape(-1), src.reshape(-1))
    return flat.reshape(input.shape)


Tensor.as_strided_scatter = as_strided_scatter


# Elements

def fill(input, value):
    return input.clone().fill_(value) if not input.requires_grad else _filled(input, value)


def _filled(input, value):
    made = value if isinstance(value, Tensor) else _f.full_like(input, value)
    return made.to(input.dtype).expand(input.shape) + input * 0


def put(input, index, source, accumulate=False):
    flat = input.reshape(-1)
    return flat.index_put((index.reshape(-1),), source.reshape(-1), accumulate).reshape(input.shape)


Tensor.put = put


def zero_(input):
    return input.zero_()


def msort(input):
    return input.sort(0)[0] if input.dim() else input.clone()


Tensor.msort = msort


def polygamma(n, input, *, out=None):
    made = input.polygamma(n)
    return made if out is None else _f._into(out, made)


# Memory as it is, which Taper fills with zeros

def empty_strided(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    return _f.empty(size, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False,
                   pin_memory=False):
    order = [axis + len(size) if axis < 0 else axis for axis in physical_layout]
    if len(size) != len(order):
        raise RuntimeError("Number of dimensions in size does not match the length of the physical_layout")
    if any(not 0 <= axis < len(size) for axis in order):
        raise IndexError(f"Dimension out of range: {builtins.list(physical_layout)}")
    if len(set(order)) < len(order):
        raise RuntimeError("Duplicate dim not allowed")
    return _f.empty(size, dtype=dtype, device=device, requires_grad=requires_grad)


Tensor.new_empty_strided = lambda self, size, stride, **named: self.new_empty(size, **named)


# Integrals and derivatives

def trapezoid(y, x=None, *, dx=None, dim=-1):
    return _trapezoid(y, x, dx, dim, False)


def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    return _trapezoid(y, x, dx, dim, True)


def _trapezoid(y, x, dx, dim, cumulative):
    if not y.is_floating_point():
        y = y.to(_taper.get_default_dtype())
    if x is None:
        return y._trapezoid(1.0 if dx is None else float(dx), dim, cumulative)
    if dx is not None:
        raise TypeError("trapezoid: give one of x and dx")
    return y._trapezoid_at(x.to(y.dtype), dim, cumulative)


trapz = trapezoid


def gradient(input, *, spacing=1, dim=None, edge_order=1):
    axes = list(range(input.dim())) if dim is None else [dim] if isinstance(dim, builtins.int) else list(dim)
    x = input if input.is_floating_point() else input.to(_taper.get_default_dtype())
    spacing = 1 if spacing is None else spacing
    if isinstance(spacing, Tensor):
        spacing = [spacing]
    if not isinstance(spacing, (tuple, list)):
        spacing = [spacing] * len(axes)
    if len(spacing) != len(axes):
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar or a list of length {len(axes)}, but got "
            f"a list of length {len(spacing)}"
        )
    if any(isinstance(one, Tensor) for one in spacing):
        return tuple(x._gradient([], [one.to(x.dtype) for one in spacing], axes, edge_order))
    return tuple(x._gradient([float(one) for one in spacing], [], axes, edge_order))


# Statistics

_HISTOGRAM = results("histogram", "hist", "bin_edges")


def histogram(input, bins, *, range=None, weight=None, density=False):
    flat, weight = input.reshape(-1, 1), None if weight is None else weight.reshape(-1)
    edges = [bins] if isinstance(bins, Tensor) else []
    counts, bounds = flat._histogram(
        [] if edges else [bins], None if range is None else list(map(float, range)), edges, weight, density
    )
    return _HISTOGRAM((counts, bounds[0]))


_HISTOGRAMDD = results("histogramdd", "hist", "bin_edges")


def histogramdd(input, bins, range=None, weight=None, density=False):
    axes = input.shape[-1]
    flat, weight = input.reshape(-1, axes), None if weight is None else weight.reshape(-1)
    bins = [bins] * axes if isinstance(bins, builtins.int) else list(bins)
    edges = bins if isinstance(bins[0], Tensor) else []
    counts, bounds = flat._histogram(
        [] if edges else bins, None if range is None else list(map(float, range)), edges, weight, density
    )
    return _HISTOGRAMDD((counts, tuple(bounds)))


Tensor.histogram = histogram


def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if lengths is None:
        lengths = offsets.diff(dim=-1)
    if lengths.dim() != 1 or initial is not None:
        raise NotImplementedError("segment_reduce: lengths of one axis, without an initial value")
    return data._reduced_segments(reduce, lengths.tolist(), axis)


# Factorizations

def cholesky_solve(B, L, upper=False):
    return _taper.linalg_cholesky_solve(B, L, upper)


def cholesky_inverse(L, upper=False):
    return _taper.linalg_cholesky_inverse(L, upper)


def lu(A, pivot=True, get_infos=False):
    from .linalg import lu_factor_ex

    factors, pivots, infos = lu_factor_ex(A, pivot=pivot)
    return (factors, pivots, infos) if get_infos else (factors, pivots)


def lu_solve(b, LU_data, LU_pivots):
    return _taper.linalg_lu_solve(LU_data, LU_pivots, b)


_UNPACKED = results("lu_unpack", "P", "L", "U")


def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    p, l, u = _taper.linalg_lu_unpack(LU_data, LU_pivots)
    none = _f.empty(0, dtype=LU_data.dtype)
    return _UNPACKED((p if unpack_pivots else none, l if unpack_data else none, u if unpack_data else none))


_GEQRF = results("geqrf", "a", "tau")


def geqrf(input):
    return _GEQRF(_taper.linalg_factors("geqrf", input))


def ormqr(input, tau, other, left=True, transpose=False):
    return _taper.linalg_ormqr(input, tau, other, left, transpose)


def orgqr(input, tau):
    return _taper.linalg_householder_product(input, tau)


_SOLVED = results("triangular_solve", "solution", "cloned_coefficient")


def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    side, is_upper = (A.mT, not upper) if transpose else (A, upper)
    found = _taper.linalg_solve_triangular(side, b, is_upper, True, unitriangular)
    batch = _f.broadcast_shapes(tuple(b.shape[:-2]), tuple(A.shape[:-2]))
    return _SOLVED((found, A.expand(*batch, *A.shape[-2:]).clone()))


_OLD_SVD = results("svd", "U", "S", "V")


def svd(input, some=True, compute_uv=True):
    """The former function: V in place of its transpose, and thin factors unless ``some`` is false."""
    u, s, vh = _SVD(_taper.linalg_factors("svd", input, not some))
    if not compute_uv:
        rows, columns = input.shape[-2:]
        u, vh = u.new_zeros(*input.shape[:-2], rows, rows), vh.new_zeros(*input.shape[:-2], columns, columns)
    return _OLD_SVD((u, s, vh.mT))


_OLD_QR = results("qr", "Q", "R")


def qr(input, some=True):
    return _OLD_QR(_taper.linalg_factors("qr", input, not some))


def svd_lowrank(A, q=6, niter=2, M=None):
    return tuple(_taper.linalg_lowrank(A if M is None else A - M, q, niter, None))


def pca_lowrank(A, q=None, center=True, niter=2):
    q = builtins.min(6, *A.shape[-2:]) if q is None else q
    return tuple(_taper.linalg_lowrank(A, q, niter, center))


for _name, _value in {
    "cholesky_solve": cholesky_solve, "cholesky_inverse": cholesky_inverse, "lu_solve": lu_solve, "geqrf": geqrf,
    "ormqr": ormqr, "orgqr": orgqr, "triangular_solve": triangular_solve, "svd": svd, "qr": qr, "lu": lu,
}.items():
    setattr(Tensor, _name, _value)


# Normalizations with their statistics

def native_layer_norm(input, normalized_shape, weight, bias, eps):
    axes = builtins.list(range(input.dim() - len(normalized_shape), input.dim()))
    mean = input.mean(axes, True)
    rstd = (input.var(axes, correction=0, keepdim=True) + eps).rsqrt()
    made = _taper._layer_norm(input, builtins.list(normalized_shape), weight, bias, eps)
    return made, mean.detach(), rstd.detach()


def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    parts = input.reshape(N, group, C // group * HxW)
    mean = parts.mean(-1)
    rstd = (parts.var(-1, correction=0) + eps).rsqrt()
    return _taper.group_norm(input, group, weight, bias, eps), mean, rstd


def native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    made = _taper._statistics_norm(
        False, input, running_mean, running_var, weight, bias, training, momentum, eps
    )
    if not training:
        none = input.new_zeros(0)
        return made, none, none
    axes = [0, *builtins.range(2, input.dim())]
    return made, input.mean(axes).detach(), (input.var(axes, correction=0) + eps).rsqrt().detach()


def native_dropout_backward(grad_output, mask, scale):
    return grad_output * (mask.to(grad_output.dtype) * scale)


def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    return _taper.grid_sample(
        input, grid, ("bilinear", "nearest", "bicubic")[interpolation_mode],
        ("zeros", "border", "reflection")[padding_mode], align_corners,
    )


grid_sampler = grid_sampler_3d = grid_sampler_2d


__all__ = [_name for _name in globals() if not _name.startswith("_") and _name not in ("builtins", "Tensor", "results")]
for _name in __all__:
    _value = globals()[_name]
    if "<locals>" in getattr(_value, "__qualname__", "") or getattr(_value, "__module__", "") == __name__:
        _value.__qualname__, _value.__module__ = _name, __name__
