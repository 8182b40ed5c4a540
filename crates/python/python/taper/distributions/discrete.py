"""Distributions of counts and categories."""

import math

from .. import _taper
from .._functions import arange, broadcast_tensors, eye, full_like, zeros
from ..autograd import no_grad
from . import constraints
from .distribution import Distribution, Native, broadcast_all, floating


def clamp_probs(probs):
    epsilon = probs.dtype._limits()[2]
    return probs.clamp(epsilon, 1 - epsilon)


def _one_of(probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class _Odds(Native):
    """A distribution with a probability of success, which log-odds may give."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _given(self, probs, logits):
        _one_of(probs, logits)
        if probs is not None:
            self.probs = floating(probs)
            return self.probs
        self.logits = floating(logits)
        return self.logits

    def __getattr__(self, name):
        # The one that was not given follows from the other.
        if name == "probs" and "logits" in self.__dict__:
            return self.logits.sigmoid()
        if name == "logits" and "probs" in self.__dict__:
            probs = clamp_probs(self.probs)
            return probs.log() - (-probs).log1p()
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    @property
    def param_shape(self):
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"].size()


class Bernoulli(_Odds):
    """Zero or one."""

    support = constraints.boolean
    has_enumerate_support = True
    _parameters = {"probs": 0, "logits": 0}

    def __init__(self, probs=None, logits=None, validate_args=None):
        given = self._given(probs, logits)
        self._start("BernoulliOfLogits" if probs is None else "Bernoulli", given, validate_args=validate_args)

    def enumerate_support(self, expand=True):
        return _enumerated(self, arange(2, dtype=self.probs.dtype, device=self.probs.device), expand)

    @property
    def mode(self):
        mode = (self.probs >= 0.5).to(self.probs)
        return mode.masked_fill(self.probs == 0.5, math.nan)


def _enumerated(self, values, expand):
    values = values.view(-1, *(1,) * len(self._batch_shape))
    return values.expand(-1, *self._batch_shape) if expand else values


class Binomial(_Odds):
    """The number of successes of ``total_count`` trials."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, **_Odds.arg_constraints}
    has_enumerate_support = True
    _parameters = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        given = self._given(probs, logits)
        self.total_count, given = broadcast_all(total_count, given)
        self.total_count = self.total_count.type_as(given)
        setattr(self, "logits" if probs is None else "probs", given)
        kind = "BinomialOfLogits" if probs is None else "Binomial"
        self._start(kind, self.total_count, given, validate_args=validate_args)

    @property
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    def entropy(self):
        values = self.enumerate_support(False)
        logs = self.log_prob(values)
        return -(logs.exp() * logs).sum(0)

    def enumerate_support(self, expand=True):
        total = int(self.total_count.max())
        if self.total_count.min() != total:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return _enumerated(self, arange(1 + total, dtype=self.probs.dtype, device=self.probs.device), expand)

    @property
    def mode(self):
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)


class Poisson(Native):
    """A count with a rate."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer
    _parameters = {"rate": 0}

    def __init__(self, rate, validate_args=None):
        self.rate = floating(rate)
        self._start("Poisson", self.rate, validate_args=validate_args)

    def entropy(self):
        raise NotImplementedError

    @property
    def mode(self):
        return self.rate.floor()


class Geometric(Distribution):
    """The number of failures before the first success."""

    arg_constraints = _Odds.arg_constraints
    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        if probs is not None:
            self.probs = floating(probs)
            self.logits = clamp_probs(self.probs).logit()
        else:
            self.logits = floating(logits)
            self.probs = self.logits.sigmoid()
        self._shown = ("probs" if logits is None else "logits",)
        super().__init__(self.probs.shape, validate_args=validate_args)
        if self._validate_args and not (self.probs > 0).all():
            raise ValueError(
                f"Expected parameter probs (Tensor of shape {tuple(self.probs.shape)}) of distribution {self!r} to be "
                f"positive but found invalid values:\n{self.probs}"
            )

    def expand(self, batch_shape, _instance=None):
        return Geometric(self.probs.expand(tuple(batch_shape)), validate_args=False)

    def sample(self, sample_shape=()):
        from .continuous import _uniform

        with no_grad():
            return (_uniform(self.probs, sample_shape).log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        certain = (probs == 1) & (value == 0)
        return value * (-probs.masked_fill(certain, 0)).log1p() + self.probs.log()

    def entropy(self):
        p = clamp_probs(self.probs)
        return -(p * p.log() + (1 - p) * (-p).log1p()) / self.probs

    @property
    def mean(self):
        return 1 / self.probs - 1

    @property
    def mode(self):
        return self.probs.new_zeros(self.probs.shape)

    @property
    def variance(self):
        return (1 / self.probs - 1) / self.probs


class NegativeBinomial(Distribution):
    """The number of successes before ``total_count`` failures."""

    arg_constraints = {"total_count": constraints.nonnegative, "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        self._is_probs = probs is not None
        self.total_count, given = broadcast_all(total_count, probs if self._is_probs else logits)
        self.total_count = self.total_count.type_as(given)
        self.probs = given if self._is_probs else given.sigmoid()
        self.logits = clamp_probs(given).logit() if self._is_probs else given
        self._shown = ("total_count", "probs" if self._is_probs else "logits")
        super().__init__(given.shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        given = {"probs": self.probs} if self._is_probs else {"logits": self.logits}
        given = {name: value.expand(batch_shape) for name, value in given.items()}
        return NegativeBinomial(self.total_count.expand(batch_shape), **given, validate_args=False)

    def sample(self, sample_shape=()):
        from .continuous import Gamma

        with no_grad():
            rate = Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(sample_shape)
            return Poisson(rate, validate_args=False).sample()

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        log = _taper.Tensor.logsigmoid
        unnormalized = self.total_count * log(-self.logits) + value * log(self.logits)
        normalizer = -(self.total_count + value).lgamma() + (1 + value).lgamma() + self.total_count.lgamma()
        return unnormalized - normalizer.masked_fill(self.total_count + value == 0, 0)

    @property
    def mean(self):
        return self.total_count * self.logits.exp()

    @property
    def mode(self):
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self):
        return self.mean / (-self.logits).sigmoid()


class Categorical(Native):
    """An index of the last axis of probabilities, or of their logarithms up to a constant."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        given = logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError(f"`{'logits' if probs is None else 'probs'}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        kind = "CategoricalOfLogits" if probs is None else "Categorical"
        self._start(kind, self.logits if probs is None else self.probs, validate_args=validate_args)

    def __getattr__(self, name):
        if name == "probs" and "logits" in self.__dict__:
            return self.logits.softmax(-1)
        if name == "logits" and "probs" in self.__dict__:
            return clamp_probs(self.probs).log()
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def expand(self, batch_shape, _instance=None):
        name = "probs" if "probs" in self.__dict__ else "logits"
        given = self.__dict__[name].expand((*batch_shape, self._num_events))
        return Categorical(**{name: given}, validate_args=False)

    @property
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def param_shape(self):
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"].size()

    @property
    def mean(self):
        return full_like(self.probs[..., 0], math.nan)

    variance = mean

    @property
    def mode(self):
        return self.probs.argmax(-1)

    def enumerate_support(self, expand=True):
        return _enumerated(self, arange(self._num_events, device=self.probs.device), expand)


class OneHotCategorical(Distribution):
    """A vector with a one at the index that a categorical distribution draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support, _shown = constraints.one_hot, ()
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(
            self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args
        )

    def expand(self, batch_shape, _instance=None):
        given = self._categorical.expand(batch_shape)
        named = {name: given.__dict__[name] for name in ("probs", "logits") if name in given.__dict__}
        return type(self)(**named, validate_args=False)

    @property
    def probs(self):
        return self._categorical.probs

    @property
    def logits(self):
        return self._categorical.logits

    @property
    def param_shape(self):
        return self._categorical.param_shape

    @property
    def mean(self):
        return self.probs

    @property
    def mode(self):
        return self._one_hot(self.probs.argmax(-1))

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    def _one_hot(self, index):
        from ..nn.functional import one_hot

        return one_hot(index, self._event_shape[0]).to(self.probs)

    def sample(self, sample_shape=()):
        with no_grad():
            return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        value, logits = broadcast_tensors(value, self.logits)
        return logits.gather(-1, value.argmax(-1, keepdim=True)).squeeze(-1)

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self._event_shape[0]
        values = eye(n, dtype=self.probs.dtype, device=self.probs.device)
        values = values.view(n, *(1,) * len(self._batch_shape), n)
        return values.expand(n, *self._batch_shape, n) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same, whose draws pass gradients to the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape=()):
        drawn = self.sample(sample_shape)
        return drawn + (self.probs - self.probs.detach())


class Multinomial(Distribution):
    """Counts of the categories of ``total_count`` draws."""

    arg_constraints, _shown = OneHotCategorical.arg_constraints, ()

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(
            self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args
        )

    def expand(self, batch_shape, _instance=None):
        given = self._categorical.expand(batch_shape)
        named = {name: given.__dict__[name] for name in ("probs", "logits") if name in given.__dict__}
        return Multinomial(self.total_count, **named, validate_args=False)

    probs, logits, param_shape = OneHotCategorical.probs, OneHotCategorical.logits, OneHotCategorical.param_shape

    @property
    def support(self):
        return constraints.multinomial(self.total_count)

    @property
    def mean(self):
        return self.probs * self.total_count

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def entropy(self):
        n = self.total_count
        counts = Binomial(n, probs=self.probs, validate_args=False)
        values = counts.enumerate_support(expand=False)[1:]
        expected = (counts.log_prob(values).exp() * (values + 1).lgamma()).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + expected

    def sample(self, sample_shape=()):
        with no_grad():
            drawn = self._categorical.sample((self.total_count, *sample_shape))
            counts = zeros(*sample_shape, *self._batch_shape, *self._event_shape, dtype=self.probs.dtype,
                           device=self.probs.device)
            drawn = drawn.movedim(0, -1)
            return counts.scatter_add(-1, drawn, drawn.new_ones(drawn.shape, dtype=counts.dtype))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)
        return (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1) + (logits * value).sum(-1)
