"""The extension ``linalg`` of the array API standard."""

from . import _taper
from . import linalg as _l
from ._functions import broadcast_tensors as _broadcast_tensors, outer as _outer

def cholesky(x, /, *, upper=False):
    return _l.cholesky(x, upper)


def cross(x1, x2, /, *, axis=-1):
    dtype = _taper.promote_types(x1.dtype, x2.dtype)
    x1, x2 = _broadcast_tensors(x1.to(dtype), x2.to(dtype))
    return x1.cross(x2, axis)


def det(x, /):
    return _l.det(x)


def diagonal(x, /, *, offset=0):
    return x.diagonal(offset, -2, -1)


def eigh(x, /):
    return _l.eigh(x)


def eigvalsh(x, /):
    return _l.eigvalsh(x)


def inv(x, /):
    return _l.inv(x)


def matmul(x1, x2, /):
    dtype = _taper.promote_types(x1.dtype, x2.dtype)
    return x1.to(dtype) @ x2.to(dtype)


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    return _l.matrix_norm(x, ord, (-2, -1), keepdims)


def matrix_power(x, n, /):
    return _l.matrix_power(x, n)


def matrix_rank(x, /, *, rtol=None):
    return _l.matrix_rank(x, rtol=rtol)


def matrix_transpose(x, /):
    return x.mT


def outer(x1, x2, /):
    dtype = _taper.promote_types(x1.dtype, x2.dtype)
    return _outer(x1.to(dtype), x2.to(dtype))


def pinv(x, /, *, rtol=None):
    return _l.pinv(x, rtol)


def qr(x, /, *, mode="reduced"):
    return _l.qr(x, mode)


def slogdet(x, /):
    return _l.slogdet(x)


def solve(x1, x2, /):
    dtype = _taper.promote_types(x1.dtype, x2.dtype)
    return _l.solve(x1.to(dtype), x2.to(dtype))


def svd(x, /, *, full_matrices=True):
    return _l.svd(x, full_matrices)


def svdvals(x, /):
    return _l.svdvals(x)


def tensordot(x1, x2, /, *, axes=2):
    from .array_api import tensordot

    return tensordot(x1, x2, axes=axes)


def trace(x, /, *, offset=0, dtype=None):
    from .array_api import sum

    return sum(x.diagonal(offset, -2, -1), axis=-1, dtype=dtype)


def vecdot(x1, x2, /, *, axis=-1):
    from .array_api import vecdot

    return vecdot(x1, x2, axis=axis)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    if isinstance(axis, tuple) and not axis:
        return x.abs()
    return x._norm(float(ord), list(range(x.dim())) if axis is None else axis, keepdims)
