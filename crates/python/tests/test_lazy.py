"""Layers whose number of inputs comes with the first input."""

import copy
import pickle

import pytest
import taper
from taper import nn
from taper.nn.parameter import UninitializedParameter, is_lazy


@pytest.mark.parametrize(
    "layer, input, kind, size",
    [
        (nn.LazyLinear(4), (2, 7), nn.Linear, "in_features"),
        (nn.LazyConv1d(4, 3), (2, 7, 9), nn.Conv1d, "in_channels"),
        (nn.LazyConv2d(4, 3, padding=1), (7, 9, 9), nn.Conv2d, "in_channels"),
        (nn.LazyConv3d(4, 1, bias=False), (2, 7, 3, 3, 3), nn.Conv3d, "in_channels"),
        (nn.LazyConvTranspose2d(7, 3, groups=7), (2, 7, 5, 5), nn.ConvTranspose2d, "in_channels"),
        (nn.LazyBatchNorm1d(), (3, 7), nn.BatchNorm1d, "num_features"),
        (nn.LazyBatchNorm2d(affine=False), (3, 7, 2, 2), nn.BatchNorm2d, "num_features"),
        (nn.LazyBatchNorm1d(bias=False), (3, 7, 4), nn.BatchNorm1d, "num_features"),
        (nn.LazyInstanceNorm1d(affine=True, track_running_stats=True), (3, 7, 4), nn.InstanceNorm1d, "num_features"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_layer_takes_its_size_from_the_first_input(layer, input, kind, size):
    assert getattr(layer, size) == 0 and type(layer) is not kind and isinstance(layer, kind)
    before = list(layer.parameters())
    result = layer(taper.rand(input))
    assert type(layer) is kind and getattr(layer, size) == 7
    assert not any(is_lazy(one) for one in (*layer.parameters(), *layer.buffers()))
    # The parameters are those that an optimizer was given before.
    assert all(a is b for a, b in zip(before, layer.parameters()))
    assert layer(taper.rand(input)).shape == result.shape
    if before:
        result.sum().backward()
    assert all(one.grad.shape == one.shape for one in layer.parameters())


def test_first_values_are_those_of_the_layer_itself():
    layer = nn.LazyLinear(3)
    taper.manual_seed(3)
    layer(taper.ones(1, 5))
    taper.manual_seed(3)
    assert all(a.equal(b) for a, b in zip(layer.parameters(), nn.Linear(5, 3).parameters()))


def test_before_the_first_input():
    layer = nn.LazyLinear(3)
    assert repr(layer) == "LazyLinear(in_features=0, out_features=3, bias=True)"
    assert repr(layer.weight) == "<UninitializedParameter>" and isinstance(layer.weight, UninitializedParameter)
    with pytest.raises(RuntimeError, match="shape of an uninitialized parameter"):
        layer.weight.shape
    layer.reset_parameters()
    other, kept = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer.weight))
    assert isinstance(kept, UninitializedParameter)
    layer(taper.ones(1, 2)), other(taper.ones(1, 6))
    assert (layer.in_features, other.in_features) == (2, 6)
    wide = nn.LazyLinear(3).double()
    assert wide(taper.ones(1, 2, dtype=taper.float64)).dtype == taper.float64


def test_a_state_dict_gives_the_sizes():
    trained = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))
    trained(taper.rand(4, 5))
    fresh = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    fresh.load_state_dict(trained.state_dict())
    assert fresh[0].weight.equal(trained[0].weight) and fresh[1].running_mean.equal(trained[1].running_mean)
    x = taper.rand(2, 5)
    assert fresh.eval()(x).equal(trained.eval()(x)) and type(fresh[0]) is nn.Linear and fresh[0].in_features == 5


def test_an_optimizer_steps_parameters_that_it_was_given_before():
    layer = nn.LazyLinear(2)
    optimizer = taper.optim.SGD(layer.parameters(), lr=0.5)
    layer(taper.ones(1, 3)).sum().backward()
    before = layer.weight.detach().clone()
    optimizer.step()
    assert layer.weight.equal(before - 0.5)
