"""``torch.sparse``: Taper has no sparse layout, so these tensors are dense ones with the same values. Programs of
sparse products run and give the same numbers, with a dense tensor's memory and time."""

from . import _functions as _f
from ._taper import Tensor


def sparse_coo_tensor(indices, values=None, size=None, *, dtype=None, device=None, requires_grad=False,
                      check_invariants=None, is_coalesced=None):
    """A tensor with values at places, one column of ``indices`` for each; those of one place are added."""
    indices = _f.as_tensor(indices, device=device).long()
    if values is None:
        raise TypeError("sparse_coo_tensor: give values for the indices")
    values = _f.as_tensor(values, dtype=dtype, device=device)
    rest = tuple(values.shape[1:])
    if size is None:
        size = tuple(int(row.max()) + 1 for row in indices) + rest
    made = _f.zeros(*size, dtype=values.dtype, device=values.device)
    made = made.index_put(tuple(indices), values, accumulate=True)
    return made.requires_grad_() if requires_grad else made


def mm(sparse, dense):
    return sparse.matmul(dense)


spmm = mm


def addmm(input, sparse, dense, *, beta=1, alpha=1):
    return input.addmm(sparse, dense, beta=beta, alpha=alpha)


def sum(input, dim=None, dtype=None):
    return input.sum(dtype=dtype) if dim is None else input.sum(dim, dtype=dtype)


def _of_present(name):
    """A softmax over the values that are not zero; the others stay zero."""
    def function(input, dim, *, dtype=None):
        absent = input.eq(0)
        return getattr(input.masked_fill(absent, float("-inf")), name)(dim, dtype=dtype).masked_fill(absent, 0)

    function.__name__ = function.__qualname__ = name
    return function


softmax, log_softmax = map(_of_present, ("softmax", "log_softmax"))


def _same(self, *args, **kwargs):
    return self


Tensor.to_sparse = Tensor.to_sparse_coo = Tensor.to_sparse_csr = Tensor.to_dense = Tensor.coalesce = _same
Tensor.is_coalesced = lambda self: True
