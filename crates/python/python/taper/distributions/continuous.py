"""Distributions of numbers, and of points of a simplex."""

import math

from .. import _taper
from .._functions import full_like, stack, where
from ..autograd import no_grad
from . import constraints
from .distribution import Cumulative, Distribution, Native, broadcast_all, floating
from .transforms import AffineTransform, ExpTransform, PowerTransform, TransformedDistribution


class _LocScale(Cumulative):
    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _parameters = {"loc": 0, "scale": 0}

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        self._start(self._kind, self.loc, self.scale, validate_args=validate_args)

    @property
    def mode(self):
        return self.loc


class Normal(_LocScale):
    """A normal distribution with a mean and a standard deviation."""

    _kind = "Normal"

    @property
    def mean(self):
        return self.loc

    @property
    def stddev(self):
        return self.scale


class Laplace(_LocScale):
    """A Laplace distribution with a mean and a scale."""

    _kind = "Laplace"


class LogNormal(_LocScale):
    """A number whose logarithm is normal."""

    _kind, _shown = "LogNormal", ()

    support = constraints.positive

    @property
    def mode(self):
        return (self.loc - self.scale ** 2).exp()


class Uniform(Cumulative):
    """A uniform distribution over ``[low, high)``."""

    _parameters = {"low": 0, "high": 0}

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = broadcast_all(low, high)
        self._start("Uniform", self.low, self.high, validate_args=validate_args)

    @property
    def arg_constraints(self):
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @property
    def support(self):
        return constraints.interval(self.low, self.high)

    @property
    def mode(self):
        return full_like(self.high, math.nan)


class Exponential(Cumulative):
    """An exponential distribution with a rate."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    _parameters = {"rate": 0}

    def __init__(self, rate, validate_args=None):
        self.rate = floating(rate)
        self._start("Exponential", self.rate, validate_args=validate_args)

    @property
    def mode(self):
        return self.rate.new_zeros(self.rate.shape)


class Gamma(Native):
    """A gamma distribution with a concentration and a rate."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _parameters = {"concentration": 0, "rate": 0}

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        self._start("Gamma", self.concentration, self.rate, validate_args=validate_args)

    @property
    def mode(self):
        return ((self.concentration - 1) / self.rate).clamp(min=0)


class Chi2(Gamma):
    """The sum of squares of ``df`` standard normal numbers."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df, validate_args=None):
        self._df = floating(df)
        super().__init__(0.5 * self._df, 0.5, validate_args=validate_args)

    @property
    def df(self):
        return self.concentration * 2

    def expand(self, batch_shape, _instance=None):
        return Chi2(self._df.expand(tuple(batch_shape)), validate_args=False)


class Beta(Native):
    """A beta distribution over ``(0, 1)``."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _parameters, _shown = {"concentration1": 0, "concentration0": 0}, ()

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        self._start("Beta", self.concentration1, self.concentration0, validate_args=validate_args)

    @property
    def mode(self):
        both = stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(both, validate_args=False).mode[..., 0]


class Dirichlet(Native):
    """A Dirichlet distribution over the last axis."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _parameters = {"concentration": 1}

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        self._start("Dirichlet", concentration, validate_args=validate_args)

    @property
    def mode(self):
        from ..nn.functional import one_hot

        above = (self.concentration - 1).clamp(min=0)
        mode = above / above.sum(-1, True)
        corner = one_hot(mode.argmax(-1), self._event_shape[0]).to(mode)
        return where((self.concentration < 1).all(-1, True), corner, mode)


def _uniform(like, sample_shape):
    """Numbers between 0 and 1, without the two, of a shape before that of a parameter."""
    tiny = like.dtype._limits()[3]
    with no_grad():
        sizes = list(sample_shape) + list(like.shape)
        return _taper._random("rand", sizes, [], like.dtype, like.device).clamp(tiny, 1 - like.dtype._limits()[2] / 2)


class Cauchy(Distribution):
    """A Cauchy distribution with a median and a scale."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return type(self)(self.loc.expand(batch_shape), self.scale.expand(batch_shape), validate_args=False)

    def rsample(self, sample_shape=()):
        return self.icdf(_uniform(self.loc, sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return -math.log(math.pi) - self.scale.log() - ((value - self.loc) / self.scale).square().log1p()

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value):
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()

    @property
    def mean(self):
        return full_like(self.loc, math.nan)

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return full_like(self.loc, math.inf)


class Gumbel(Distribution):
    """A Gumbel distribution, that of maxima."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _EULER = 0.57721566490153286060

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return Gumbel(self.loc.expand(batch_shape), self.scale.expand(batch_shape), validate_args=False)

    def rsample(self, sample_shape=()):
        return self.icdf(_uniform(self.loc, sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - y.exp() - self.scale.log()

    def cdf(self, value):
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value):
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self):
        return self.scale.log() + (1 + self._EULER)

    @property
    def mean(self):
        return self.loc + self.scale * self._EULER

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return (math.pi / math.sqrt(6) * self.scale).square()


class StudentT(Distribution):
    """Student's t distribution."""

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        parts = (one.expand(batch_shape) for one in (self.df, self.loc, self.scale))
        return StudentT(*parts, validate_args=False)

    def rsample(self, sample_shape=()):
        sizes = list(self._extended_shape(sample_shape))
        normal = _taper._random("randn", sizes, [], self.df.dtype, self.df.device)
        chi = Chi2(self.df, validate_args=False).rsample(sample_shape)
        return self.loc + self.scale * normal * (self.df / chi).sqrt()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        normalizer = (
            self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + (0.5 * self.df).lgamma()
            - (0.5 * (self.df + 1)).lgamma()
        )
        return -0.5 * (self.df + 1) * (y.square() / self.df).log1p() - normalizer

    def entropy(self):
        half = 0.5 * self.df
        beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        return (
            self.scale.log() + 0.5 * (self.df + 1) * ((half + 0.5).digamma() - half.digamma())
            + 0.5 * self.df.log() + beta
        )

    @property
    def mean(self):
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        finite = self.scale.square() * self.df / (self.df - 2)
        return finite.masked_fill(self.df <= 2, math.inf).masked_fill(self.df <= 1, math.nan)


class HalfNormal(TransformedDistribution):
    """The absolute value of a normal number with mean 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    _base, _shown = Normal, ()

    def __init__(self, scale, validate_args=None):
        self.scale = floating(scale)
        super().__init__(self._base(0, self.scale, validate_args=False), [], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return type(self)(self.scale.expand(tuple(batch_shape)), validate_args=False)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape).abs()

    def sample(self, sample_shape=()):
        with no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return (self.base_dist.log_prob(value) + math.log(2)).masked_fill(value < 0, -math.inf)

    def cdf(self, value):
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value):
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)

    @property
    def mean(self):
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self):
        return self.scale.new_zeros(self.scale.shape)

    @property
    def variance(self):
        return self.scale.square() * (1 - 2 / math.pi)


class HalfCauchy(HalfNormal):
    """The absolute value of a Cauchy number with median 0."""

    _base = Cauchy

    @property
    def mean(self):
        return full_like(self.scale, math.inf)

    @property
    def variance(self):
        return full_like(self.scale, math.inf)


class Pareto(TransformedDistribution):
    """A Pareto distribution of the first type."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale, alpha, validate_args=None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return Pareto(self.scale.expand(batch_shape), self.alpha.expand(batch_shape), validate_args=False)

    @property
    def support(self):
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self):
        alpha = self.alpha.clamp(min=1)
        return alpha * self.scale / (alpha - 1)

    @property
    def mode(self):
        return self.scale

    @property
    def variance(self):
        alpha = self.alpha.clamp(min=2)
        return self.scale.square() * alpha / ((alpha - 1).square() * (alpha - 2))

    def entropy(self):
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class Weibull(TransformedDistribution):
    """A Weibull distribution with a scale and a concentration."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale, concentration, validate_args=None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(self.scale.new_ones(self.scale.shape), validate_args=False)
        parts = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, parts, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return Weibull(self.scale.expand(batch_shape), self.concentration.expand(batch_shape), validate_args=False)

    def entropy(self):
        euler = Gumbel._EULER
        return euler * (1 - self.concentration_reciprocal) + (self.scale * self.concentration_reciprocal).log() + 1

    @property
    def mean(self):
        return self.scale * (1 + self.concentration_reciprocal).lgamma().exp()

    @property
    def mode(self):
        inner = (self.concentration - 1) / self.concentration
        return self.scale * inner.pow(self.concentration_reciprocal)

    @property
    def variance(self):
        second = (1 + 2 * self.concentration_reciprocal).lgamma().exp()
        first = (2 * (1 + self.concentration_reciprocal).lgamma()).exp()
        return self.scale.square() * (second - first)


class InverseGamma(TransformedDistribution):
    """The inverse of a gamma-distributed number."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support, _shown = constraints.positive, ()

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        base = Gamma(self.concentration, self.rate, validate_args=False)
        minus_one = -self.rate.new_ones(())
        super().__init__(base, PowerTransform(minus_one), validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        return InverseGamma(self.concentration.expand(batch_shape), self.rate.expand(batch_shape), validate_args=False)

    @property
    def mean(self):
        return where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self):
        return self.rate / (self.concentration + 1)

    @property
    def variance(self):
        finite = self.rate.square() / ((self.concentration - 1).square() * (self.concentration - 2))
        return where(self.concentration > 2, finite, math.inf)

    def entropy(self):
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
