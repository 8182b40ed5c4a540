"""Weights with a norm of their own, and weights whose greatest singular value is one."""

from ..functional import normalize
from ..modules.module import Module
from ...autograd import no_grad
from .parametrize import register_parametrization

__all__ = ["spectral_norm", "weight_norm"]


def norm_except_dim(weight, dim):
    """The norm of a weight over all axes but one, which stay with size 1; of all of it for no axis."""
    if dim is None or dim == -1:
        return weight.norm()
    return weight.norm(2, [axis for axis in range(weight.dim()) if axis != dim], True)


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight):
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """A weight as a length and a direction, along an axis."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        if not -weight.dim() <= dim < weight.dim():
            raise IndexError("Dimension out of range (expected to be in range of "
                             f"[-{weight.dim()}, {weight.dim() - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError("Expected n_power_iterations to be positive, but got "
                             f"n_power_iterations={n_power_iterations}")
        self.dim, self.eps = dim % weight.dim(), eps
        if weight.dim() > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad():
                matrix = self._matrix(weight)
                rows, columns = matrix.shape
                self.register_buffer("_u", normalize(matrix.new_empty(rows).normal_(), dim=0, eps=eps))
                self.register_buffer("_v", normalize(matrix.new_empty(columns).normal_(), dim=0, eps=eps))
                self._improve(matrix, 15)

    def _matrix(self, weight):
        return weight.movedim(self.dim, 0).flatten(1) if self.dim else weight.flatten(1)

    def _improve(self, matrix, times):
        """Steps of the power method towards the first singular vectors."""
        with no_grad():
            u, v = self._u, self._v
            for _ in range(times):
                u = normalize(matrix.mv(v), dim=0, eps=self.eps)
                v = normalize(matrix.t().mv(u), dim=0, eps=self.eps)
            self._u.copy_(u)
            self._v.copy_(v)

    def forward(self, weight):
        if weight.dim() == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._improve(matrix.detach(), self.n_power_iterations)
        return weight / self._u.clone().dot(matrix.mv(self._v.clone()))

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """A weight divided by its greatest singular value, which the power method follows."""
    weight = getattr(module, name, None)
    if weight is None:
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
