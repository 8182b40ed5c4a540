"""Probability distributions: draws, densities, entropies, divergences. Taper computes those of ``Native``."""

import sys as _sys

from . import constraints, continuous, discrete, distribution, kl, multivariate, relaxed, transforms
from .continuous import (
    Beta, Cauchy, Chi2, Dirichlet, Exponential, Gamma, Gumbel, HalfCauchy, HalfNormal, InverseGamma, Laplace,
    LogNormal, Normal, Pareto, StudentT, Uniform, Weibull,
)
from .discrete import (
    Bernoulli, Binomial, Categorical, Geometric, Multinomial, NegativeBinomial, OneHotCategorical,
    OneHotCategoricalStraightThrough, Poisson,
)
from .distribution import Distribution, ExponentialFamily
from .kl import kl_divergence, register_kl
from .multivariate import Independent, MixtureSameFamily, MultivariateNormal
from .relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from .transforms import (
    AffineTransform, ComposeTransform, ExpTransform, PowerTransform, SigmoidTransform, SoftplusTransform,
    TanhTransform, Transform, TransformedDistribution, identity_transform,
)

__all__ = [name for name, one in list(globals().items()) if isinstance(one, type) or name in (
    "kl_divergence", "register_kl", "identity_transform",
)]

#: PyTorch's modules of single distributions.
_MODULES = {
    continuous: "beta cauchy chi2 dirichlet exponential gamma gumbel half_cauchy half_normal inverse_gamma laplace "
                "log_normal normal pareto studentT uniform weibull",
    discrete: "bernoulli binomial categorical geometric multinomial negative_binomial one_hot_categorical poisson",
    multivariate: "independent mixture_same_family multivariate_normal",
    relaxed: "relaxed_bernoulli relaxed_categorical",
    transforms: "transformed_distribution",
}
for _module, _names in _MODULES.items():
    for _name in _names.split():
        _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _module
