"""Functions with an inverse and a derivative, and distributions of their values."""

import math

from .._taper import Tensor
from .._functions import full_like
from ..autograd import no_grad
from . import constraints
from .distribution import Distribution


class Transform:
    """A function of events; ``inv`` is its inverse."""

    bijective, sign = True, 1
    domain = codomain = constraints.real

    def __init__(self, cache_size=0):
        pass

    @property
    def event_dim(self):
        return self.domain.event_dim

    @property
    def inv(self):
        return _Inverse(self)

    def __call__(self, x):
        return self._call(x)

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def __repr__(self):
        return f"{type(self).__name__}()"

    def forward_shape(self, shape):
        return shape


class _Inverse(Transform):
    def __init__(self, transform):
        self._inv = transform
        self.domain, self.codomain, self.sign = transform.codomain, transform.domain, transform.sign

    @property
    def inv(self):
        return self._inv

    def _call(self, y):
        return self._inv._inverse(y)

    def _inverse(self, x):
        return self._inv._call(x)

    def log_abs_det_jacobian(self, x, y):
        return -self._inv.log_abs_det_jacobian(y, x)

    def __eq__(self, other):
        return isinstance(other, _Inverse) and self._inv == other._inv

    __hash__ = object.__hash__

    def __repr__(self):
        return f"_InverseTransform({self._inv!r})"


class _Plain(Transform):
    """A transform without parameters: two of a class are the same."""

    def __eq__(self, other):
        return type(other) is type(self)

    __hash__ = object.__hash__


class ExpTransform(_Plain):
    codomain = constraints.positive

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class SigmoidTransform(_Plain):
    codomain = constraints.unit_interval

    def _call(self, x):
        info = x.dtype._limits()
        return x.sigmoid().clamp(info[3], 1 - info[2])

    def _inverse(self, y):
        info = y.dtype._limits()
        y = y.clamp(info[3], 1 - info[2])
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -(-x).softplus() - x.softplus()


class TanhTransform(_Plain):
    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        return 2.0 * (math.log(2.0) - x - (-2.0 * x).softplus())


class SoftplusTransform(_Plain):
    codomain = constraints.positive

    def _call(self, x):
        return x.softplus()

    def _inverse(self, y):
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x, y):
        return -(-x).softplus()


class AffineTransform(Transform):
    """``loc + scale * x``."""

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        if event_dim:
            self.domain = self.codomain = constraints.independent(constraints.real, event_dim)

    @property
    def sign(self):
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        scale = self.scale
        result = scale.abs().log() if isinstance(scale, Tensor) else full_like(x, math.log(abs(scale)))
        if self._event_dim:
            result = result.expand(x.shape).sum(tuple(range(-self._event_dim, 0)))
            return result
        return result.expand(x.shape)

    def __eq__(self, other):
        if not isinstance(other, AffineTransform):
            return False
        pairs = ((self.loc, other.loc), (self.scale, other.scale))
        return all(bool((a == b).all()) if isinstance(a == b, Tensor) else a == b for a, b in pairs)

    __hash__ = object.__hash__


class PowerTransform(Transform):
    domain = codomain = constraints.positive

    def __init__(self, exponent, cache_size=0):
        self.exponent = exponent

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()


class ComposeTransform(Transform):
    """Several transforms, one after the other."""

    def __init__(self, parts, cache_size=0):
        self.parts = list(parts)

    @property
    def domain(self):
        return self.parts[0].domain if self.parts else constraints.real

    @property
    def codomain(self):
        return self.parts[-1].codomain if self.parts else constraints.real

    @property
    def sign(self):
        sign = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    def _call(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y):
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x, y):
        total = x * 0 if not self.parts else 0
        for part in self.parts:
            after = part(x)
            total = total + part.log_abs_det_jacobian(x, after)
            x = after
        return total

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def __repr__(self):
        parts = ",\n    ".join(map(repr, self.parts))
        return f"ComposeTransform(\n    {parts}\n)"


identity_transform = ComposeTransform([])


class TransformedDistribution(Distribution):
    """The distribution of a transform of what another draws."""

    def __init__(self, base_distribution, transforms, validate_args=None):
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(one, Transform) for one in self.transforms):
            raise ValueError(f"transforms must be a Transform or a list of Transforms; was {transforms}")
        self.base_dist = base_distribution
        super().__init__(base_distribution.batch_shape, base_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return TransformedDistribution(self.base_dist.expand(batch_shape), self.transforms, validate_args=False)

    @property
    def has_rsample(self):
        return self.base_dist.has_rsample

    @property
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        support, events = self.transforms[-1].codomain, len(self._event_shape)
        missing = events - support.event_dim
        return constraints.independent(support, missing) if missing > 0 else support

    def _forward(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape=()):
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=()):
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        from .multivariate import sum_rightmost

        if self._validate_args:
            self._validate_sample(value)
        total, events, y = 0.0, len(self._event_shape), value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            own = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(own, events - transform.domain.event_dim)
            y = x
        return total + self.base_dist.log_prob(y)

    def _monotone(self, value):
        sign = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value):
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._monotone(self.base_dist.cdf(value))

    def icdf(self, value):
        return self._forward(self.base_dist.icdf(self._monotone(value)))
