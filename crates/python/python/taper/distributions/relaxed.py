"""Continuous relaxations of categories, whose draws have gradients in the probabilities."""

import math

from .._functions import broadcast_tensors
from . import constraints
from .continuous import _uniform
from .discrete import Bernoulli, Categorical
from .distribution import Distribution
from .transforms import ExpTransform, SigmoidTransform, TransformedDistribution


class LogitRelaxedBernoulli(Distribution):
    """The log-odds of a relaxed Bernoulli number."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature, self._bernoulli = temperature, Bernoulli(probs, logits, validate_args)
        self._shown = ("probs",) if logits is None else ("logits",)
        setattr(self, self._shown[0], getattr(self._bernoulli, self._shown[0]))
        super().__init__(self._bernoulli.batch_shape, validate_args=validate_args)

    def __getattr__(self, name):
        if name in ("probs", "logits") and "_bernoulli" in self.__dict__:
            return getattr(self._bernoulli, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def expand(self, batch_shape, _instance=None):
        name = self._shown[0]
        given = {name: getattr(self, name).expand(tuple(batch_shape))}
        return LogitRelaxedBernoulli(self.temperature, **given, validate_args=False)

    def rsample(self, sample_shape=()):
        uniform = _uniform(self.probs, sample_shape)
        return (uniform.logit() + self.logits) / self.temperature

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        difference = logits - value * self.temperature
        return self.temperature.log() + difference - 2 * difference.exp().log1p()


class _Relaxed(TransformedDistribution):
    """A transform of a distribution, with its parameters."""

    @property
    def temperature(self):
        return self.base_dist.temperature

    @property
    def probs(self):
        return self.base_dist.probs

    @property
    def logits(self):
        return self.base_dist.logits


class RelaxedBernoulli(_Relaxed):
    """A number between 0 and 1, near one of them at a low temperature."""

    arg_constraints = LogitRelaxedBernoulli.arg_constraints
    support, _shown, has_rsample = constraints.unit_interval, (), True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(Distribution):
    """The logarithms of a relaxed one-hot vector."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True
    _shown = ()

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature, self._categorical = temperature, Categorical(probs, logits)
        super().__init__(
            self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args
        )

    def expand(self, batch_shape, _instance=None):
        logits = self.logits.expand((*batch_shape, *self._event_shape))
        return ExpRelaxedCategorical(self.temperature, logits=logits, validate_args=False)

    @property
    def probs(self):
        return self._categorical.probs

    @property
    def logits(self):
        return self._categorical.logits

    def rsample(self, sample_shape=()):
        gumbel = -(-_uniform(self.logits, sample_shape).log()).log()
        scores = (self.logits + gumbel) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        count = self._event_shape[0]
        scale = -(self.temperature.log() * -(count - 1)) + math.lgamma(count)
        scores = logits - value * self.temperature
        return (scores - scores.logsumexp(-1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(_Relaxed):
    """A point of the simplex, near a corner at a low temperature."""

    arg_constraints = ExpRelaxedCategorical.arg_constraints
    support, _shown = constraints.simplex, ()

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
