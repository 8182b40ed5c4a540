"""Distributions of vectors, and those that others are made of."""

from ..linalg import cholesky as _cholesky, inv as _inv
from . import constraints
from .distribution import Distribution, Native


class MultivariateNormal(Native):
    """Normal vectors with a mean and a covariance, or its inverse, or its lower triangular root."""

    arg_constraints = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given.items()
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        setattr(self, name, matrix)
        if validate_args is not None:
            self._validate_args = validate_args
        self.loc = loc
        if self._validate_args:
            self._validate_parameters()
        if name == "scale_tril":
            root = matrix
        elif name == "covariance_matrix":
            root = _cholesky(matrix)
        else:
            # P = R·Rᵀ with both axes reversed, whose inverse is triangular again.
            reversed_root = _cholesky(matrix.flip((-2, -1))).flip((-2, -1)).mT
            root = _inv(reversed_root).tril()
        self._root = root
        self._validate_args, wanted = False, self._validate_args
        self._start("MultivariateNormal", loc, root)
        self._validate_args = wanted
        size = (*self._batch_shape, *self._event_shape)
        self.loc = loc.expand(size)
        setattr(self, name, matrix.expand((*size, size[-1])))

    def __getattr__(self, name):
        if name.startswith("_") or name not in self.arg_constraints:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        size = (*self._batch_shape, *self._event_shape, *self._event_shape)
        if name == "scale_tril":
            return self._root.expand(size)
        covariance = self._root @ self._root.mT
        return (covariance if name == "covariance_matrix" else _inv(covariance)).expand(size)

    def expand(self, batch_shape, _instance=None):
        size = (*batch_shape, *self._event_shape)
        return MultivariateNormal(
            self.loc.expand(size), scale_tril=self.scale_tril.expand((*size, size[-1])), validate_args=False
        )

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc


class Independent(Distribution):
    """A distribution whose last axes of the batch are axes of the event."""

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        if reinterpreted_batch_ndims > len(base_distribution.batch_shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{reinterpreted_batch_ndims} vs {len(base_distribution.batch_shape)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        shape = tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape)
        events = reinterpreted_batch_ndims + len(base_distribution.event_shape)
        super().__init__(shape[: len(shape) - events], shape[len(shape) - events:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        own = tuple(self._event_shape)[: self.reinterpreted_batch_ndims]
        base = self.base_dist.expand(tuple(batch_shape) + own)
        return Independent(base, self.reinterpreted_batch_ndims, validate_args=False)

    @property
    def has_rsample(self):
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self):
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @property
    def support(self):
        support = self.base_dist.support
        count = self.reinterpreted_batch_ndims
        return constraints.independent(support, count) if count else support

    @property
    def mean(self):
        return self.base_dist.mean

    @property
    def mode(self):
        return self.base_dist.mode

    @property
    def variance(self):
        return self.base_dist.variance

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def __repr__(self):
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


def sum_rightmost(value, dim):
    return value.sum(tuple(range(-dim, 0))) if dim else value


class MixtureSameFamily(Distribution):
    """A mixture: a categorical distribution chooses among the last axis of the batch of another."""

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        from .discrete import Categorical

        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        shape = component_distribution.batch_shape
        if mixture_distribution.param_shape[-1] != shape[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.param_shape[-1]}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({shape[-1]})"
            )
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        super().__init__(shape[:-1], component_distribution.event_shape, validate_args=validate_args)

    @property
    def mixture_distribution(self):
        return self._mixture_distribution

    @property
    def component_distribution(self):
        return self._component_distribution

    @property
    def has_rsample(self):
        return False

    @property
    def support(self):
        return self._component_distribution.support

    def expand(self, batch_shape, _instance=None):
        components = self._component_distribution
        count = components.batch_shape[-1]
        return MixtureSameFamily(
            self._mixture_distribution.expand(batch_shape), components.expand((*batch_shape, count)),
            validate_args=False,
        )

    def _weighted(self, value):
        probs = self._mixture_distribution.probs
        probs = probs.view(*probs.shape, *(1,) * len(self._event_shape))
        return (probs * value).sum(-1 - len(self._event_shape))

    @property
    def mean(self):
        return self._weighted(self._component_distribution.mean)

    @property
    def variance(self):
        mean = self.mean.unsqueeze(-1 - len(self._event_shape))
        own = self._weighted(self._component_distribution.variance)
        return own + self._weighted((self._component_distribution.mean - mean).square())

    def _padded(self, value):
        return value.unsqueeze(-1 - len(self._event_shape))

    def cdf(self, value):
        return (self._component_distribution.cdf(self._padded(value)) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logs = self._component_distribution.log_prob(self._padded(value))
        return (logs + self._mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape=()):
        from ..autograd import no_grad

        with no_grad():
            events = len(self._event_shape)
            drawn = self._component_distribution.sample(sample_shape)
            chosen = self._mixture_distribution.sample(sample_shape)
            chosen = chosen.view(*chosen.shape, 1, *(1,) * events)
            axis = drawn.dim() - events - 1
            return drawn.gather(axis, chosen.expand(*chosen.shape[: axis + 1], *self._event_shape)).squeeze(axis)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
