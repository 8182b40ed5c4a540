"""Divergences: Taper's formulas, those of compositions, and those that a program registers."""

from .continuous import Cauchy, Gumbel, HalfNormal
from .discrete import Geometric, OneHotCategorical
from .distribution import Native
from .multivariate import Independent, sum_rightmost
from .transforms import TransformedDistribution

_REGISTERED = {}


def register_kl(type_p, type_q):
    """Registers a function of two distributions of these classes."""

    def register(function):
        _REGISTERED[type_p, type_q] = function
        return function

    return register


def kl_divergence(p, q):
    """The divergence of ``p`` from ``q``, in nats."""
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            if (kind_p, kind_q) in _REGISTERED:
                return _REGISTERED[kind_p, kind_q](p, q)
    if isinstance(p, Native) and isinstance(q, Native):
        found = p._native.kl_divergence(q._native)
        if found is not None:
            return found
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
    )


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return kl_divergence(p._categorical, q._categorical)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(HalfNormal, HalfNormal)
def _half(p, q):
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    distance = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return distance.log() - (4 * p.scale * q.scale).log()


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, shift = p.scale / q.scale, (q.loc - p.loc) / q.scale
    euler = Gumbel._EULER
    moments = (shift + (1 + ratio).lgamma()).exp()
    return -ratio.log() - shift + ratio * euler + moments - (1 + euler)
