"""Distributions against what PyTorch has given for them (``record_distributions.py``), and their draws."""

import json
import math

import pytest
import record_distributions as record
import taper
from taper import distributions as D

RECORDED = json.loads(record.RECORDED.read_text())
NAMES = record.names_of(taper)


def same(found, wanted):
    if wanted is None or found is None:
        assert found is wanted
        return
    assert found[:2] == wanted[:2]
    for one, other in zip(found[2], wanted[2]):
        assert (math.isnan(one) and math.isnan(other)) or one == pytest.approx(other, rel=2e-5, abs=2e-6)


#: PyTorch has the function of these, an integral that Taper does not compute.
MISSING = {"Gamma": ("cdf",), "Chi2": ("cdf",), "InverseGamma": ("cdf",)}


@pytest.mark.parametrize("text", record.DISTRIBUTIONS)
def test_facts(text):
    found, wanted = record.facts(text, NAMES), RECORDED["facts"][text]
    # PyTorch's text of a mixture changes when it is used.
    for name in set(wanted) - ({"text"} if "Mixture" in text else set()):
        if name in MISSING.get(text.split("(")[0], ()):
            assert found[name] is None
        elif name in ("text", "batch_shape", "event_shape", "sizes", "has_rsample"):
            assert found[name] == wanted[name], name
        elif name == "expanded":
            assert found[name][0] == wanted[name][0]
            same(found[name][1], wanted[name][1])
        else:
            same(found[name], wanted[name])


@pytest.mark.parametrize("text", record.PAIRS)
def test_divergences(text):
    same(record.divergence(text, NAMES), RECORDED["pairs"][text])


@pytest.mark.parametrize("text", record.REFUSED)
def test_refusals(text):
    kind, message = RECORDED["refused"][text]
    found = record.refusal(text, NAMES)
    assert found is not None and found[0] == kind, found
    # Values within a message print with their own grad_fn and device.
    assert found[1].split("\n")[0] == message.split("\n")[0]


DRAWN = [
    text.split("|")[0] for text in record.DISTRIBUTIONS
    if not text.startswith((
        "Cauchy", "HalfCauchy", "StudentT", "Categorical", "Pareto", "TransformedDistribution", "InverseGamma", "Relaxed",
        "relaxed",
    ))
]


@pytest.mark.parametrize("text", DRAWN)
def test_draws_have_the_mean_and_the_deviation(text):
    made = eval(text, NAMES)
    drawn = made.sample((20_000,)).double()
    assert not drawn.requires_grad and tuple(drawn.shape) == (20_000, *made.batch_shape, *made.event_shape)
    spread = made.variance.double().sqrt()
    assert ((drawn.mean(0) - made.mean).abs() <= 6 * spread / 20_000 ** 0.5 + 1e-6).all()
    assert ((drawn.std(0) - spread).abs() <= 0.12 * spread + 1e-6).all()


def test_draws_of_a_categorical_distribution():
    drawn = D.Categorical(taper.tensor([[0.1, 0.9], [0.5, 0.5]])).sample((10_000,))
    assert drawn.dtype == taper.int64
    share = drawn.double().mean(0)
    assert abs(share[0].item() - 0.9) < 0.02 and abs(share[1].item() - 0.5) < 0.03


def test_seeds_repeat_draws():
    made = D.Normal(taper.zeros(3), 1.0)
    taper.manual_seed(3)
    first = made.sample()
    taper.manual_seed(3)
    assert made.sample().tolist() == first.tolist()


@pytest.mark.parametrize("make", [
    lambda p: D.Normal(p, 1.0), lambda p: D.Gamma(p, 2.0), lambda p: D.Beta(p, 2.0), lambda p: D.Exponential(p),
    lambda p: D.Laplace(0.0, p), lambda p: D.StudentT(p + 2), lambda p: D.Gumbel(0.0, p), lambda p: D.HalfNormal(p),
    lambda p: D.Independent(D.Normal(p, 1.0), 1),
    lambda p: D.MultivariateNormal(p, taper.eye(2)),
    lambda p: D.TransformedDistribution(D.Normal(p, 1.0), [D.TanhTransform()]),
    lambda p: D.OneHotCategoricalStraightThrough(logits=p), lambda p: D.Weibull(p, 2.0),
    lambda p: D.RelaxedOneHotCategorical(taper.tensor(0.5), logits=p),
    lambda p: D.RelaxedBernoulli(taper.tensor(0.5), logits=p),
])
def test_draws_pass_gradients(make):
    parameter = taper.tensor([0.7, 1.3], requires_grad=True)
    made = make(parameter)
    assert made.has_rsample
    (made.rsample((5,)) ** 3).sum().backward()
    assert parameter.grad.shape == (2,) and taper.isfinite(parameter.grad).all() and parameter.grad.abs().sum() > 0


def test_densities_pass_gradients():
    logits = taper.zeros(4, requires_grad=True)
    made = D.Categorical(logits=logits)
    (-made.log_prob(taper.tensor(2))).backward()
    assert logits.grad.tolist() == pytest.approx([0.25, 0.25, -0.75, 0.25])
    with pytest.raises(NotImplementedError):
        made.rsample()


def test_own_divergences_and_classes():
    class Own(D.Normal):
        pass

    @D.register_kl(Own, D.Normal)
    def own(p, q):
        return taper.tensor(7.0)

    assert D.kl_divergence(Own(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 7
    assert D.kl_divergence(D.Normal(0.0, 1.0), Own(0.0, 1.0)).item() == 0
    assert repr(Own(0.0, 1.0)) == "Own(loc: 0.0, scale: 1.0)"


def test_checks_can_be_turned_off():
    assert D.Exponential(taper.tensor(1.0), validate_args=False).log_prob(taper.tensor(-1.0)).item() == -math.inf
    D.Normal(0.0, taper.tensor(-1.0), validate_args=False)


def test_supports_are_enumerated():
    assert D.Bernoulli(taper.tensor([0.5, 0.1])).enumerate_support().tolist() == [[0, 0], [1, 1]]
    assert D.Categorical(taper.ones(2, 3)).enumerate_support(expand=False).tolist() == [[0], [1], [2]]
    assert D.OneHotCategorical(taper.ones(2)).enumerate_support().tolist() == [[1, 0], [0, 1]]


def test_modules_have_the_names_of_pytorch():
    from taper.distributions.normal import Normal
    from taper.distributions.transformed_distribution import TransformedDistribution

    assert Normal is D.Normal and TransformedDistribution is D.TransformedDistribution
