"""``torch.linalg``: factorizations, systems of equations, norms."""

from . import _taper
from ._size import results
from ._taper import linalg_cholesky as cholesky
from ._taper import linalg_det as det
from ._taper import linalg_inv as inv
from ._taper import linalg_logdet as logdet
from ._taper import linalg_matrix_exp as matrix_exp
from ._taper import linalg_matrix_power as matrix_power
from ._taper import linalg_multi_dot as multi_dot
from ._taper import linalg_svdvals as svdvals
from ._taper import linalg_tensorinv as tensorinv
from ._tensor import _numpy_names

_QR, _SVD, _EIGH = results("linalg_qr", "Q", "R"), results("linalg_svd", "U", "S", "Vh"), results(
    "linalg_eigh", "eigenvalues", "eigenvectors"
)
_SLOGDET, _LU = results("slogdet", "sign", "logabsdet"), results("linalg_lu", "P", "L", "U")
_LU_FACTOR, _LU_FACTOR_EX = results("linalg_lu_factor", "LU", "pivots"), results(
    "linalg_lu_factor_ex", "LU", "pivots", "info"
)
_CHOLESKY_EX, _INV_EX = results("linalg_cholesky_ex", "L", "info"), results("linalg_inv_ex", "inverse", "info")
_SOLVE_EX, _LDL = results("linalg_solve_ex", "result", "info"), results("linalg_ldl_factor", "LD", "pivots")
_LDL_EX = results("linalg_ldl_factor_ex", "LD", "pivots", "info")
_LSTSQ = results("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


def qr(A, mode="reduced"):
    return _QR(_taper.linalg_factors("qr", A, mode == "complete"))


def svd(A, full_matrices=True, *, driver=None):
    return _SVD(_taper.linalg_factors("svd", A, full_matrices))


def eigh(A, UPLO="L"):
    return _EIGH(_taper.linalg_factors("eigh", A, UPLO == "U"))


def eigvalsh(A, UPLO="L"):
    return _taper.linalg_eigvalsh(A, UPLO == "U")


def slogdet(A):
    return _SLOGDET(_taper.linalg_factors("slogdet", A))


def lu(A, *, pivot=True):
    return _LU(_taper.linalg_factors("lu", A))


def lstsq(A, B, rcond=None, *, driver=None):
    """The driver decides which of the results PyTorch gives; the solution is the same."""
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    solution, residuals, rank, values = _taper.linalg_lstsq(A, B, rcond)
    if driver == "gels":
        rank = rank.new_zeros(0)
    if driver in (None, "gels", "gelsy"):
        values = values.new_zeros(0)
    if driver in (None, "gelsy"):
        residuals = residuals.new_zeros(0)
    if residuals.numel():
        residuals = (A @ solution - B).square().sum(-2)
    return _LSTSQ((solution, residuals, rank, values))


def _no_faults(A):
    """The numbers that say that a factorization went well; where it does not, Taper raises an error."""
    return A.new_zeros(A.shape[:-2], dtype=dict(_taper._dtypes)["int32"])


def cholesky_ex(A, *, upper=False, check_errors=False):
    return _CHOLESKY_EX((_taper.linalg_cholesky(A, upper), _no_faults(A)))


def inv_ex(A, *, check_errors=False):
    return _INV_EX((_taper.linalg_inv(A), _no_faults(A)))


def solve_ex(A, B, *, left=True, check_errors=False):
    return _SOLVE_EX((_taper.linalg_solve(A, B, left), _no_faults(A)))


def lu_factor(A, *, pivot=True):
    return _LU_FACTOR(_taper.linalg_factors("lu_factor", A))


def lu_factor_ex(A, *, pivot=True, check_errors=False):
    return _LU_FACTOR_EX((*_taper.linalg_factors("lu_factor", A), _no_faults(A)))


def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    return _taper.linalg_lu_solve(LU, pivots, B, left, adjoint)


def ldl_factor(A, *, hermitian=False):
    return _LDL(_taper.linalg_factors("ldl", A))


def ldl_factor_ex(A, *, hermitian=False, check_errors=False):
    return _LDL_EX((*_taper.linalg_factors("ldl", A), _no_faults(A)))


def ldl_solve(LD, pivots, B, *, hermitian=False):
    return _taper.linalg_ldl_solve(LD, pivots, B)


def householder_product(A, tau):
    return _taper.linalg_householder_product(A, tau)


def _count(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


def tensorsolve(A, B, dims=None):
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.dim() - len(dims), A.dim())))
    if B.numel() == _count(A.shape[: B.dim()]):
        B = B.reshape(A.shape[: B.dim()])
    return _taper.linalg_tensorsolve(A, B)


def polar(A):
    return tuple(_taper.linalg_factors("polar", A, False))


def matrix_sqrth(A):
    return _taper.linalg_matrix_sqrth(A)


def vander(x, *, N=None):
    if N is None and (x.dim() == 0 or x.shape[-1] == 0):
        raise RuntimeError("linalg.vander: the input must have at least one element along its last axis")
    count = x.shape[-1] if N is None else N
    if count < 2:
        raise RuntimeError("N must be greater than 1.")
    x = x if x.is_floating_point() else x.long()
    x = x.reshape(1) if x.dim() == 0 else x
    ones = x.unsqueeze(-1).expand(*x.shape, count - 1)
    return _taper.cat([x.new_ones(*x.shape, 1), ones.cumprod(-1)], -1)


def solve(A, B, *, left=True):
    return _taper.linalg_solve(A, B, left)


def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    return _taper.linalg_solve_triangular(A, B, upper, left, unitriangular)


def pinv(A, rtol=None, hermitian=False, *, atol=None, rcond=None):
    rtol = rtol if rcond is None else rcond
    if any(isinstance(one, _taper.Tensor) for one in (atol, rtol)):
        return _pinv_by_each(A, atol, rtol)
    return _taper.linalg_pinv(A, atol, rtol, hermitian)


def _cut_off(A, values, atol, rtol):
    """The values that count as 0 end here, with a tolerance for each matrix; ``values`` has some."""
    if rtol is None:
        given = atol is not None and bool((atol > 0).any())
        rtol = 0.0 if given else max(A.shape[-2:]) * A.dtype._limits()[2]
    column = lambda one: one.unsqueeze(-1) if isinstance(one, _taper.Tensor) else one
    bound = values.amax(-1, True) * column(rtol)
    return bound if atol is None else bound.maximum(column(atol) + bound * 0)


def _pinv_by_each(A, atol, rtol):
    """Pseudo-inverses with a tolerance for each matrix."""
    u, s, vh = svd(A, full_matrices=False)
    if s.numel() == 0:
        return A.mT.contiguous()
    inverse = s.reciprocal().masked_fill(s <= _cut_off(A, s, atol, rtol), 0)
    return (vh.mT * inverse.unsqueeze(-2)) @ u.mT


pinverse = pinv


def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None):
    if any(isinstance(one, _taper.Tensor) for one in (tol, atol, rtol)):
        return _rank_by_each(A, hermitian, tol if atol is None else atol, rtol)
    return _taper.linalg_matrix_rank(A, tol if atol is None else atol, rtol, hermitian)


def _rank_by_each(A, hermitian, atol, rtol):
    """The ranks with a tolerance for each matrix."""
    values = eigvalsh(A).abs() if hermitian else svdvals(A)
    if values.shape[-1] == 0:
        return A.new_zeros(A.shape[:-2], dtype=dict(_taper._dtypes)["int64"])
    return (values > _cut_off(A, values, atol, rtol)).sum(-1)


def cond(A, p=None):
    return _taper.linalg_cond(A, _order(2 if p is None else p))


def _order(order):
    if isinstance(order, str):
        return order
    return f"{order:g}"


@_numpy_names
def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    return (x if dtype is None else x.to(dtype))._norm(float(ord), dim, keepdim)


@_numpy_names
def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    A = A if dtype is None else A.to(dtype)
    last = tuple(one % A.dim() for one in dim) == (A.dim() - 2, A.dim() - 1)
    if not last:
        kept = _taper.linalg_matrix_norm(A.movedim(tuple(dim), (-2, -1)), _order(ord), False)
        return kept.unsqueeze(min(one % A.dim() for one in dim)).unsqueeze(max(one % A.dim() for one in dim)) if keepdim else kept
    return _taper.linalg_matrix_norm(A, _order(ord), keepdim)


@_numpy_names
def norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    A = A if dtype is None else A.to(dtype)
    if ord is None:
        return A._norm(2.0, dim, keepdim)
    if dim is None and A.dim() == 2 or isinstance(dim, (tuple, list)) and len(dim) == 2:
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim)
    return A._norm(float(ord), dim, keepdim)


@_numpy_names
def cross(input, other, *, dim=-1):
    return input.cross(other, dim)


@_numpy_names
def vecdot(x, y, *, dim=-1):
    return x._vecdot(y, dim)


def matmul(input, other):
    return input.matmul(other)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    return A.diagonal(offset, dim1, dim2)
