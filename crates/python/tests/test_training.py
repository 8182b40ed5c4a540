"""Trainings whose losses PyTorch 2.15 has computed from the same values (``training.py``)."""

import json
import pathlib

import pytest
import taper
from training import PROGRAMS

RECORDED = json.loads((pathlib.Path(__file__).parent / "losses.json").read_text())


@pytest.mark.parametrize("program, name", PROGRAMS, ids=[f"{program.__name__} {name}" for program, name in PROGRAMS])
def test_losses_are_those_of_pytorch(program, name):
    assert program(taper, name) == pytest.approx(RECORDED[f"{program.__name__} {name}"], rel=2e-4, abs=1e-6)


def test_a_state_dict_moves_between_networks_and_through_a_file(tmp_path):
    network = taper.nn.Sequential(taper.nn.Linear(3, 4), taper.nn.BatchNorm1d(4))
    network(taper.randn(5, 3))
    taper.save(network.state_dict(), tmp_path / "network.pt")
    other = taper.nn.Sequential(taper.nn.Linear(3, 4), taper.nn.BatchNorm1d(4))
    assert str(other.load_state_dict(taper.load(tmp_path / "network.pt"))) == "<All keys matched successfully>"
    network.eval(), other.eval()
    x = taper.randn(2, 3)
    assert taper.equal(network(x), other(x))
    with pytest.raises(RuntimeError, match="size mismatch for 0.weight"):
        other.load_state_dict({**network.state_dict(), "0.weight": taper.zeros(2, 2)})
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})


def test_an_optimizer_goes_on_from_its_state():
    def trained(steps, load=None):
        taper.manual_seed(1)
        network = taper.nn.Linear(3, 1)
        optimizer = taper.optim.Adam(network.parameters(), lr=0.1)
        if load:
            network.load_state_dict(load[0])
            optimizer.load_state_dict(load[1])
        for _ in range(steps):
            loss = (network(taper.ones(2, 3)) ** 2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return network.state_dict(), optimizer.state_dict(), loss.item()

    half = trained(3)
    kept = ({name: value.clone() for name, value in half[0].items()}, half[1])
    assert trained(3, kept)[2] == pytest.approx(trained(6)[2], rel=1e-5)


def test_a_copy_of_a_module_is_a_module_of_its_own():
    import copy

    for module, sizes in ((taper.nn.Linear(3, 2), (4, 3)), (taper.nn.LSTM(3, 2), (4, 3))):
        twin = copy.deepcopy(module)
        x = taper.ones(*sizes)
        first = lambda out: out[0] if isinstance(out, tuple) else out
        assert taper.equal(first(module(x)), first(twin(x)))
        with taper.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        assert not taper.equal(first(module(x)), first(twin(x)))


def test_hooks_of_modules():
    layer, seen = taper.nn.Linear(2, 2), []
    handle = layer.register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape)))
    layer.register_full_backward_hook(lambda module, into, out: seen.append((into[0].tolist(), out[0].tolist())))
    x = taper.ones(1, 2, requires_grad=True)
    layer(x).sum().backward()
    assert seen[0] == (1, 2) and seen[1][1] == [[1, 1]]
    assert seen[1][0] == [layer.weight.sum(0).tolist()]
    handle.remove()
    layer(x)
    assert len(seen) == 2


def test_a_loader_gives_every_sample_once():
    data = taper.utils.data.TensorDataset(taper.arange(10), taper.arange(10) * 2)
    loader = taper.utils.data.DataLoader(data, batch_size=3, shuffle=True)
    batches = list(loader)
    assert [len(first) for first, _ in batches] == [3, 3, 3, 1] and len(loader) == 4
    firsts = taper.cat([first for first, _ in batches]).tolist()
    assert sorted(firsts) == list(range(10)) and firsts != list(range(10))
    assert all(taper.equal(first * 2, second) for first, second in batches)
    parts = taper.utils.data.random_split(data, [7, 3])
    assert sorted(int(sample[0]) for part in parts for sample in part) == list(range(10))
