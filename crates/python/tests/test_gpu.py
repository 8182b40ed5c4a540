"""The same expressions on a GPU: their values are those of the processor."""

import re

import numpy
import pytest
import taper
from conftest import needs_gpu
from record import expressions

pytestmark = needs_gpu
#: Expressions that only a processor has, and random ones.
LEFT_OUT = ("rand", "numpy", "nn.", "histc", "nextafter", "device", "unfold(x")


def value(expression, device):
    names = {"torch": taper, "nn": taper.nn, "F": taper.nn.functional}
    names["x"] = (taper.arange(12, dtype=taper.float32).reshape(3, 4) / 4 - 1).to(device)
    names["i"] = taper.tensor([[3, 1, 2], [0, 5, 4]]).to(device)
    names["b"] = taper.tensor([True, False, True]).to(device)
    *statements, last = expression.split("; ")
    taper.set_default_device(device)
    try:
        for statement in statements:
            exec(statement, names)
        return eval(last, names)
    finally:
        taper.set_default_device(None)


def numbers(found):
    if isinstance(found, taper.Tensor):
        return [found.detach().cpu().numpy().astype(float)]
    if isinstance(found, (tuple, list)):
        return [number for one in found for number in numbers(one)]
    return []


@pytest.mark.parametrize("expression", [
    one for one in expressions() if re.search(r"\b[xib]\b", one) and not any(word in one for word in LEFT_OUT)
])
def test_values_are_those_of_the_processor(expression):
    try:
        expected = numbers(value(expression, "cpu"))
    except Exception as error:
        with pytest.raises(type(error)):
            numbers(value(expression, "cuda"))
        return
    for found, one in zip(numbers(value(expression, "cuda")), expected, strict=True):
        assert found.shape == one.shape
        assert numpy.allclose(found, one, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_devices_and_moves():
    x = taper.ones(2, device="cuda")
    assert str(x.device) == "cuda:0" and x.is_cuda and repr(x) == "tensor([1., 1.], device='cuda:0')"
    assert not x.cpu().is_cuda and x.to("cuda:0").device == x.device
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        x.to("cuda:99")
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(RuntimeError):
        x + taper.ones(2)
    assert (x + taper.tensor(1.0)).tolist() == [2, 2]
    assert taper.cuda.memory_allocated() >= 0 and taper.cuda.get_device_name()
    taper.cuda.synchronize()


def test_a_module_moves_and_trains():
    network = taper.nn.Linear(3, 2).cuda()
    parameter = network.weight
    optimizer = taper.optim.Adam(network.parameters(), lr=0.1)
    before = network.weight.detach().clone()
    network(taper.ones(4, 3, device="cuda")).sum().backward()
    optimizer.step()
    assert network.weight is parameter and parameter.is_cuda and parameter.grad.is_cuda
    assert not taper.equal(before, network.weight)
    assert next(network.cpu().parameters()).device.type == "cpu"


def test_files_know_their_device(tmp_path):
    taper.save({"a": taper.arange(4.0, device="cuda"), "b": taper.ones(2)}, tmp_path / "a.pt")
    found = taper.load(tmp_path / "a.pt")
    assert found["a"].device == taper.device("cuda:0") and found["b"].device.type == "cpu"
    assert found["a"].tolist() == [0, 1, 2, 3]
    for place in ("cpu", {"cuda:0": "cpu"}, lambda storage, location: storage.cpu()):
        assert taper.load(tmp_path / "a.pt", map_location=place)["a"].device.type == "cpu"
    for place in ("cuda", taper.device("cuda:0"), lambda storage, location: storage.cuda(0)):
        assert taper.load(tmp_path / "a.pt", map_location=place)["b"].is_cuda
    taper.safetensors.save_file({"a": taper.arange(4.0, device="cuda")}, tmp_path / "a.safetensors")
    assert taper.safetensors.load_file(tmp_path / "a.safetensors", device="cuda")["a"].tolist() == [0, 1, 2, 3]


def test_transforms_and_distributions_on_a_gpu():
    x = taper.randn(4, 3, device="cuda")
    found = taper.func.vmap(taper.func.grad(lambda x: (x ** 3).sum()))(x)
    assert found.is_cuda and taper.allclose(found.cpu(), 3 * x.cpu() ** 2, atol=1e-5)
    assert taper.allclose(
        taper.func.jacrev(lambda x: x.sin())(x[0]).cpu(), taper.diag(x[0].cpu().cos()), atol=1e-5
    )
    made = taper.distributions.Normal(x, 2.0)
    drawn = made.rsample((5,))
    assert drawn.is_cuda and made.log_prob(drawn).shape == (5, 4, 3)
    on_cpu = taper.distributions.Normal(x.cpu(), 2.0)
    assert taper.allclose(made.log_prob(drawn).cpu(), on_cpu.log_prob(drawn.cpu()), atol=1e-5)
    assert taper.distributions.Categorical(logits=x).sample((7,)).shape == (7, 4)
