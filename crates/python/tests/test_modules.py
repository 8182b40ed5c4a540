"""Members of modules, and small functions that programs of others have found wrong."""

import collections

import pytest
import taper
from conftest import needs_gpu
from taper import nn
from taper.nn import functional as F


def test_a_member_that_is_replaced_keeps_its_place():
    net = nn.Module()
    net.first, net.second, net.third = nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)
    net.weight, net.bias = nn.Parameter(taper.zeros(1)), nn.Parameter(taper.zeros(2))
    net.first, net.weight = nn.Identity(), nn.Parameter(taper.ones(3))
    assert [name for name, _ in net.named_children()] == ["first", "second", "third"]
    assert isinstance(net.first, nn.Identity) and list(net._parameters) == ["weight", "bias"]
    # A member of another kind takes the name from the old one.
    net.second = nn.Parameter(taper.zeros(4))
    assert list(net._modules) == ["first", "third"] and list(net._parameters) == ["weight", "bias", "second"]
    net.weight = None
    assert net.weight is None and list(net._parameters) == ["weight", "bias", "second"]


def test_dropout_of_channels_without_further_axes_drops_numbers():
    taper.manual_seed(0)
    found = F.dropout2d(taper.ones(100, 8), 0.5)
    assert set(found.flatten().tolist()) == {0.0, 2.0}
    assert F.dropout2d(taper.ones(4, 3), 0.5, training=False).eq(1).all()


def test_random_integers_below_a_number():
    assert set(taper.randint(3, size=(200,)).tolist()) == {0, 1, 2}
    assert taper.randint(3, (2, 2)).shape == (2, 2) and taper.randint(5, 6, (2,)).tolist() == [5, 5]
    with pytest.raises(RuntimeError, match="random_ expects"):
        taper.randint(0, size=(1,))


def test_parameters_are_not_shared_between_processes():
    with pytest.raises(NotImplementedError, match="not shared"):
        nn.Linear(1, 1).share_memory()


def test_a_tensor_comes_from_any_sequence_and_is_on_no_other_kind_of_device():
    assert taper.tensor(collections.deque([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert taper.tensor(range(3)).tolist() == [0, 1, 2]
    assert not taper.ones(1).is_xpu and taper.ones(1).is_cpu


def test_layers_are_in_the_modules_of_torch():
    from taper.nn import modules

    assert modules.normalization.LayerNorm is nn.LayerNorm and modules.batchnorm.BatchNorm2d is nn.BatchNorm2d
    assert modules.activation.MultiheadAttention is nn.MultiheadAttention
    assert isinstance(nn.MultiheadAttention(4, 2).out_proj, modules.linear.NonDynamicallyQuantizableLinear)


def test_a_model_is_loaded_with_the_layers_that_a_program_trusts(tmp_path):
    model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
    taper.save(model, tmp_path / "model.pt")
    with pytest.raises(Exception, match="was not an allowed global"):
        taper.load(tmp_path / "model.pt")
    layers = [
        nn.TransformerEncoderLayer, nn.modules.activation.MultiheadAttention, nn.modules.linear.Linear,
        nn.modules.linear.NonDynamicallyQuantizableLinear, nn.modules.normalization.LayerNorm,
        nn.modules.dropout.Dropout, F.relu,
    ]
    with taper.serialization.safe_globals(layers):
        found = taper.load(tmp_path / "model.pt")
    x = taper.randn(3, 1, 4)
    assert taper.equal(found(x), model(x))


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_compute_with_the_parameters_that_they_have(kind):
    x = taper.rand(5, 2, 3, dtype=taper.float64)
    layer = getattr(nn, kind)(3, 4, 2).double()
    out, _ = layer(x)
    assert out.dtype == taper.float64 and {p.dtype for p in layer.parameters()} == {taper.float64}
    # A cell with the parameters of the first layer makes the same steps.
    one = getattr(nn, kind)(3, 4).double()
    cell = getattr(nn, f"{kind}Cell")(3, 4).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in one.state_dict().items()})
    state = None
    for step in x:
        state = cell(step, state)
    last = state[0] if kind == "LSTM" else state
    taper.testing.assert_close(last, one(x)[0][-1])
    # Parameters of a call, and of a parametrization.
    zeros = {name: taper.zeros_like(value) for name, value in one.named_parameters()}
    assert taper.func.functional_call(one, zeros, (x,))[0].eq(0).all()
    normed = nn.utils.weight_norm(getattr(nn, kind)(3, 4), "weight_hh_l0")
    normed(x.float())[0].sum().backward()
    assert normed.weight_hh_l0_g.grad is not None


@needs_gpu
def test_recurrent_layers_move_to_a_gpu():
    layer, x = nn.LSTM(3, 4), taper.rand(5, 2, 3)
    here = layer(x)[0]
    there = layer.to("cuda")(x.to("cuda"))[0]
    assert there.is_cuda
    taper.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-5)
