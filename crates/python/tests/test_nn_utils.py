"""Computed parameters, fused layers, and norms of gradients."""

import pytest
import taper
from taper import nn
from taper.nn.utils import parametrizations, parametrize


def test_weight_norm_as_a_parametrization():
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    parametrizations.weight_norm(layer)
    originals = [f"parametrizations.weight.original{k}" for k in range(2)]
    assert list(layer.state_dict()) == ["bias", *originals]
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    assert parametrize.is_parametrized(layer) and not parametrize.is_parametrized(layer, "bias")
    assert taper.allclose(layer.weight, before, atol=1e-6)
    parts = layer.parametrizations.weight
    with taper.no_grad():
        parts.original0.mul_(2)
    assert taper.allclose(layer.weight, 2 * before, atol=1e-6)
    layer(taper.ones(1, 3)).sum().backward()
    assert parts.original0.grad.shape == (2, 1) and parts.original1.grad.shape == (2, 3)
    layer.weight = before
    assert taper.allclose(layer.weight, before, atol=1e-6)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and isinstance(layer.weight, nn.Parameter)
    assert list(layer.state_dict()) == ["bias", "weight"] and taper.allclose(layer.weight, before, atol=1e-6)


def test_a_parametrization_of_a_program():
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    layer = parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())
    assert taper.equal(layer.weight, layer.weight.mT)
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        layer.weight = taper.ones(3, 3)
    optimizer = taper.optim.SGD(layer.parameters(), lr=0.1)
    layer(taper.ones(2, 3)).square().sum().backward()
    optimizer.step()
    assert taper.equal(layer.weight, layer.weight.mT)
    original = layer.parametrizations.weight.original
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is original

    class Other(nn.Module):
        def forward(self, x):
            return x[:1]

    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(layer, "weight", Other())
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "none", Other())


def test_spectral_norm():
    layer = parametrizations.spectral_norm(nn.Conv2d(2, 3, 3), n_power_iterations=20)
    for _ in range(3):
        layer(taper.ones(1, 2, 4, 4)).sum().backward()
    greatest = taper.linalg.svd(layer.weight.detach().flatten(1))[1].max()
    assert greatest.item() == pytest.approx(1, abs=1e-3)
    assert list(layer.state_dict()) == [
        "bias", "parametrizations.weight.original", "parametrizations.weight.0._u", "parametrizations.weight.0._v",
    ]
    layer.eval()
    first = layer.weight.tolist()
    assert layer.weight.tolist() == first


def test_the_older_weight_norm():
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    nn.utils.weight_norm(layer)
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    x = taper.ones(1, 3)
    assert taper.allclose(layer(x), x @ before.mT + layer.bias, atol=1e-6)
    layer(x).sum().backward()
    assert layer.weight_g.grad.shape == (2, 1)
    with taper.no_grad():
        layer.weight_g.mul_(2)
    nn.utils.remove_weight_norm(layer)
    assert taper.allclose(layer.weight, 2 * before, atol=1e-6) and sorted(layer.state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="not found"):
        nn.utils.remove_weight_norm(layer)


@pytest.mark.parametrize("make", [lambda: nn.Conv2d(2, 4, 3, bias=False), lambda: nn.ConvTranspose2d(2, 4, 3)])
def test_fused_convolutions(make):
    layer, norm = make(), nn.BatchNorm2d(4)
    x = taper.randn(3, 2, 5, 5)
    norm(layer(x))
    layer.eval(), norm.eval()
    fused = nn.utils.fuse_conv_bn_eval(layer, norm, transpose=isinstance(layer, nn.ConvTranspose2d))
    assert taper.allclose(fused(x), norm(layer(x)), atol=1e-5)
    with pytest.raises(AssertionError):
        nn.utils.fuse_conv_bn_eval(layer.train(), norm)


def test_fused_linear_layers():
    layer, norm, x = nn.Linear(3, 4), nn.BatchNorm1d(4), taper.randn(5, 3)
    norm(layer(x))
    layer.eval(), norm.eval()
    assert taper.allclose(nn.utils.fuse_linear_bn_eval(layer, norm)(x), norm(layer(x)), atol=1e-5)


def test_vectors_of_parameters():
    layer = nn.Linear(3, 2)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (8,)
    nn.utils.vector_to_parameters(taper.arange(8.0), layer.parameters())
    assert layer.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and layer.bias.tolist() == [6, 7]
    assert layer.weight.requires_grad


def test_norms_of_gradients():
    layer = nn.Linear(3, 2)
    layer(taper.ones(1, 3)).sum().backward()
    gradients = [one.grad for one in layer.parameters()]
    norm = nn.utils.get_total_norm(gradients)
    assert norm.item() == pytest.approx(8 ** 0.5)
    nn.utils.clip_grads_with_norm_(layer.parameters(), 1.0, norm)
    assert nn.utils.get_total_norm([one.grad for one in layer.parameters()]).item() == pytest.approx(1, abs=1e-4)
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.get_total_norm([taper.tensor([float("inf")])], error_if_nonfinite=True)


def test_dirac():
    layer = nn.Conv2d(3, 3, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight)
    x = taper.randn(1, 3, 4, 4)
    assert taper.allclose(layer(x), x)
