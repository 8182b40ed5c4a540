"""The base of all distributions, and of those that Taper computes."""

from .. import _taper
from .._functions import broadcast_tensors, tensor
from .._size import Size
from .._taper import Tensor
from ..autograd import no_grad
from . import constraints


def broadcast_all(*values):
    """Numbers and tensors as tensors of one shape."""
    likes = [one for one in values if isinstance(one, Tensor)]
    if not all(isinstance(one, (Tensor, int, float)) for one in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                         "__torch_function__.")
    named = {"dtype": _taper.get_default_dtype()}
    if likes:
        floats = [one for one in likes if one.is_floating_point()]
        named = {"dtype": floats[0].dtype if floats else named["dtype"], "device": likes[0].device}
    return broadcast_tensors(*(one if isinstance(one, Tensor) else tensor(one, **named) for one in values))


def floating(value):
    """A parameter as a tensor of a floating-point dtype."""
    value = value if isinstance(value, Tensor) else tensor(float(value))
    return value if value.is_floating_point() else value.to(_taper.get_default_dtype())


class Distribution:
    """A batch of probability distributions."""

    has_rsample = has_enumerate_support = False
    arg_constraints, support = {}, None
    #: The parameters that the text of a distribution has, where PyTorch's has not all of them.
    _shown = None
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value):
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    def _validate_parameters(self):
        for name, constraint in self.arg_constraints.items():
            if constraints.is_dependent(constraint) or name not in self.__dict__:
                continue
            value = self.__dict__[name]
            if not constraints.check_all(constraint, value):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def _validate_sample(self, value):
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        events = len(self._event_shape)
        if value.dim() < events or tuple(value.shape[value.dim() - events:]) != tuple(self._event_shape):
            raise ValueError(
                f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}."
            )
        for own, other in zip(reversed(self._extended_shape()), reversed(value.shape)):
            if own != 1 and other != 1 and own != other:
                raise ValueError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs "
                    f"{self._extended_shape()}."
                )
        if self.support is not None and not constraints.check_all(self.support, value):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({self.support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    @property
    def batch_shape(self):
        return self._batch_shape

    @property
    def event_shape(self):
        return self._event_shape

    def _extended_shape(self, sample_shape=()):
        return Size(tuple(sample_shape) + tuple(self._batch_shape) + tuple(self._event_shape))

    def expand(self, batch_shape, _instance=None):
        raise NotImplementedError

    def sample(self, sample_shape=()):
        with no_grad():
            return self.rsample(sample_shape).detach()

    def sample_n(self, n):
        return self.sample((n,))

    def rsample(self, sample_shape=()):
        raise NotImplementedError

    def log_prob(self, value):
        raise NotImplementedError

    def cdf(self, value):
        raise NotImplementedError

    def icdf(self, value):
        raise NotImplementedError

    def entropy(self):
        raise NotImplementedError

    def enumerate_support(self, expand=True):
        raise NotImplementedError

    @property
    def mean(self):
        raise NotImplementedError

    @property
    def mode(self):
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self):
        raise NotImplementedError

    @property
    def stddev(self):
        return self.variance.sqrt()

    def perplexity(self):
        return self.entropy().exp()

    def __repr__(self):
        parts = []
        for name in self.arg_constraints if self._shown is None else self._shown:
            if name in self.__dict__:
                value = self.__dict__[name]
                parts.append(f"{name}: {value if value.numel() == 1 else value.size()}")
        return f"{type(self).__name__}({', '.join(parts)})"


class ExponentialFamily(Distribution):
    """A base class that PyTorch has for some distributions."""


class Native(ExponentialFamily):
    """A distribution that Taper computes: ``_start`` makes it of its parameters."""

    #: The names of the parameters that ``expand`` gives to a new distribution, and the number of axes of each
    #: that are no axes of the batch.
    _parameters = {}

    def _start(self, kind, *parameters, validate_args=None):
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()
        self._native = _taper._Distribution(kind, [one for one in parameters])
        self._batch_shape, self._event_shape = Size(self._native.batch_shape()), Size(self._native.event_shape())

    def expand(self, batch_shape, _instance=None):
        expanded = {}
        for name, axes in self._parameters.items():
            if name not in self.__dict__:
                continue
            value = self.__dict__[name]
            own = tuple(value.shape[value.dim() - axes:]) if axes else ()
            expanded[name] = value.expand(tuple(batch_shape) + own)
        made = type(self)(**expanded, validate_args=False)
        made._validate_args = self._validate_args
        return made

    def sample(self, sample_shape=()):
        with no_grad():
            return self._native.sample(list(sample_shape))

    def rsample(self, sample_shape=()):
        if not self.has_rsample:
            raise NotImplementedError
        return self._native.rsample(list(sample_shape))

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._native.log_prob(value)

    def entropy(self):
        return self._native.entropy()

    @property
    def mean(self):
        return self._native.mean()

    @property
    def variance(self):
        return self._native.variance()


class Cumulative(Native):
    """One with formulas for the cumulative distribution function and its inverse."""

    has_rsample = True

    def cdf(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return self._native.cdf(value)

    def icdf(self, value):
        return self._native.icdf(value)
