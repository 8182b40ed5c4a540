"""Expressions of distributions, and what PyTorch gives for them: run this with a Python that has PyTorch."""

import json
from pathlib import Path

RECORDED = Path(__file__).parent / "distributions.json"

#: Distributions with a value for ``log_prob``, and where they have it a probability for ``icdf``.
DISTRIBUTIONS = """
Normal(t([0., 1.5]), t([1., 0.3])) | t([0.3, 1.4])
Normal(0., 2.) | t(1.)
LogNormal(t([0., 1.5]), t(0.7)) | t([0.3, 1.4])
Laplace(t([0., 1.5]), t([1., 0.3])) | t([0.3, 1.4])
Uniform(t([-1., 0.]), t([2., 5.])) | t([0.3, 1.4])
Exponential(t([0.5, 2.])) | t([0.3, 1.4])
Gamma(t([0.5, 2.]), t([1., 3.])) | t([0.3, 1.4])
Chi2(t([1., 4.])) | t([0.3, 1.4])
Beta(t([0.5, 2.]), t([1., 3.])) | t([0.3, 0.4])
Dirichlet(t([[0.5, 2., 1.], [1., 1., 3.]])) | t([0.2, 0.3, 0.5])
Bernoulli(t([0.2, 0.9])) | t([0., 1.])
Bernoulli(logits=t([-1., 2.])) | t([1., 0.])
Binomial(5, t([0.2, 0.9])) | t([0., 4.])
Binomial(t([5., 5.]), logits=t([-1., 2.])) | t([1., 3.])
Poisson(t([0.5, 4.])) | t([0., 3.])
Geometric(t([0.2, 0.9])) | t([0., 3.])
NegativeBinomial(t([2., 5.]), t([0.3, 0.6])) | t([0., 3.])
Categorical(t([[1., 2., 1.], [0.2, 0.2, 0.6]])) | t([0, 2])
Categorical(logits=t([[1., 2., 1.], [0.2, 0.2, 0.6]])) | t([1, 2])
OneHotCategorical(t([[1., 2., 1.], [0.2, 0.2, 0.6]])) | t([[0., 1., 0.], [1., 0., 0.]])
Multinomial(4, t([1., 2., 1.])) | t([1., 2., 1.])
MultivariateNormal(t([1., -1.]), t([[2., 0.5], [0.5, 1.]])) | t([0.3, 0.4])
MultivariateNormal(t([1., -1.]), precision_matrix=t([[2., 0.5], [0.5, 1.]])) | t([0.3, 0.4])
MultivariateNormal(t([[1., -1.], [0., 0.]]), scale_tril=t([[2., 0.], [0.5, 1.]])) | t([0.3, 0.4])
Independent(Normal(t([[0., 1.5], [1., 2.]]), t([1., 0.3])), 1) | t([0.3, 1.4])
Cauchy(t([0., 1.5]), t([1., 0.3])) | t([0.3, 1.4])
HalfCauchy(t([1., 0.3])) | t([0.3, 1.4])
HalfNormal(t([1., 0.3])) | t([0.3, 1.4])
Gumbel(t([0., 1.5]), t([1., 0.3])) | t([0.3, 1.4])
StudentT(t([1.5, 4.]), t([0., 1.5]), t([1., 0.3])) | t([0.3, 1.4])
Pareto(t([0.2, 1.]), t([3., 4.])) | t([0.3, 1.4])
Weibull(t([0.2, 1.]), t([3., 4.])) | t([0.3, 1.4])
InverseGamma(t([3., 4.]), t([0.2, 1.])) | t([0.3, 1.4])
RelaxedBernoulli(t(0.5), t([0.2, 0.7])) | t([0.3, 0.4])
relaxed_bernoulli.LogitRelaxedBernoulli(t(0.5), logits=t([0.2, -0.7])) | t([0.3, 0.4])
RelaxedOneHotCategorical(t(0.5), t([0.2, 0.3, 0.5])) | t([0.3, 0.3, 0.4])
TransformedDistribution(Normal(t([0., 1.]), t(1.)), [TanhTransform()]) | t([0.3, -0.4])
TransformedDistribution(Normal(t([0., 1.]), t(1.)), [SigmoidTransform(), AffineTransform(1., 2.)]) | t([1.3, 2.4])
MixtureSameFamily(Categorical(t([0.3, 0.7])), Normal(t([0., 2.]), t([1., 0.5]))) | t(1.4)
""".strip().split("\n")

PAIRS = """
Normal(t(0.), t(1.)) | Normal(t([1., 2.]), t(2.))
Normal(t(0.), t(1.)) | Laplace(t([1., 2.]), t(2.))
Normal(t(0.), t(1.)) | Uniform(t(0.), t(1.))
LogNormal(t(0.), t(1.)) | LogNormal(t([1., 2.]), t(2.))
Laplace(t(0.), t(1.)) | Laplace(t([1., 2.]), t(2.))
Uniform(t(0.), t(1.)) | Uniform(t(-1.), t([1., 0.5]))
Uniform(t(0.), t(1.)) | Normal(t(0.), t(1.))
Exponential(t(2.)) | Gamma(t(2.), t([1., 3.]))
Gamma(t(2.), t(1.)) | Gamma(t(3.), t([1., 3.]))
Beta(t(2.), t(1.)) | Beta(t(3.), t([1., 3.]))
Dirichlet(t([1., 2., 3.])) | Dirichlet(t([2., 2., 2.]))
Bernoulli(t([0.2, 1.])) | Bernoulli(t([0.5, 0.5]))
Binomial(5, t([0.2, 0.7])) | Binomial(5, t([0.5, 0.5]))
Poisson(t([0.5, 2.])) | Poisson(t(1.))
Geometric(t([0.2, 0.7])) | Geometric(t(0.5))
Categorical(t([0.2, 0.3, 0.5])) | Categorical(logits=t([1., 2., 3.]))
OneHotCategorical(t([0.2, 0.3, 0.5])) | OneHotCategorical(logits=t([1., 2., 3.]))
MultivariateNormal(t([1., -1.]), t([[2., 0.5], [0.5, 1.]])) | MultivariateNormal(t([0., 0.]), t([[2., 0.], [0., 1.]]))
Independent(Normal(t([0., 1.]), t(1.)), 1) | Independent(Normal(t([1., 2.]), t(2.)), 1)
Cauchy(t(0.), t(1.)) | Cauchy(t(1.), t(2.))
Gumbel(t(0.), t(1.)) | Gumbel(t(1.), t(2.))
HalfNormal(t(1.)) | HalfNormal(t(2.))
TransformedDistribution(Normal(0., 1.), [ExpTransform()]) | TransformedDistribution(Normal(1., 1.), [ExpTransform()])
""".strip().split("\n")

#: Constructions and values that are refused.
REFUSED = """
Normal(t(0.), t(-1.))
Normal(t([0., 1.]), t([1., -2.]))
Uniform(t(1.), t(0.))
Bernoulli(t(1.5))
Bernoulli()
Categorical(t([-1., 2.]))
Dirichlet(t(1.))
Gamma(t(0.), t(1.))
MultivariateNormal(t([0., 0.]), t([[1., 2.], [2., 1.]]))
MultivariateNormal(t([0., 0.]))
Exponential(t(1.)).log_prob(t(-1.))
Uniform(t(0.), t(1.)).log_prob(t(2.))
Categorical(t([0.5, 0.5])).log_prob(t(2))
Normal(t([0., 1.]), t(1.)).log_prob(t([1., 2., 3.]))
Normal(t(0.), t(1.)).log_prob(1.0)
kl_divergence(Normal(0., 1.), Cauchy(0., 1.))
Independent(Normal(t(0.), t(1.)), 1)
""".strip().split("\n")


def numbers(tensor):
    return [str(tensor.dtype), list(tensor.shape), [float(one) for one in tensor.reshape(-1)]]


def attempt(function):
    try:
        return numbers(function())
    except (NotImplementedError, AttributeError):
        return None


def facts(text, names):
    """All that a distribution says of itself."""
    made, value = (eval(part, names) for part in text.split("|"))
    found = {"text": repr(made), "batch_shape": list(made.batch_shape), "event_shape": list(made.event_shape),
             "log_prob": numbers(made.log_prob(value)), "has_rsample": made.has_rsample}
    for name in ("mean", "variance", "stddev", "mode"):
        found[name] = attempt(lambda: getattr(made, name))
    found["entropy"] = attempt(made.entropy)
    found["cdf"] = attempt(lambda: made.cdf(value))
    found["icdf"] = attempt(lambda: made.icdf(names["t"](0.3)))
    wide = made.expand((3, *made.batch_shape))
    found["expanded"] = [list(wide.batch_shape), numbers(wide.log_prob(value))]
    found["sizes"] = list(made.sample((4,)).shape)
    return found


def divergence(text, names):
    p, q = (eval(part, names) for part in text.split("|"))
    return numbers(names["kl_divergence"](p, q))


def refusal(text, names):
    try:
        eval(text, names)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def names_of(library):
    return {**vars(library.distributions), "t": library.tensor}


def main():
    import torch

    names = names_of(torch)
    RECORDED.write_text(json.dumps({
        "facts": {text: facts(text, names) for text in DISTRIBUTIONS},
        "pairs": {text: divergence(text, names) for text in PAIRS},
        "refused": {text: refusal(text, names) for text in REFUSED},
    }, indent=0))


if __name__ == "__main__":
    main()
