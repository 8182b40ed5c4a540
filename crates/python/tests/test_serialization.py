"""Files in PyTorch's format. ``record_files.py`` has made those in ``data``; the tests that compare with an
installed PyTorch are skipped without one."""

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import taper
from taper import nn

DATA = Path(__file__).parent / "data"
DTYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()


def again(value, **options):
    file = io.BytesIO()
    taper.save(value, file)
    file.seek(0)
    return taper.load(file, **options)


def from_torch(value, **options):
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return taper.load(file, **options)


def in_torch(value, **options):
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    taper.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def same(a, b):
    assert str(a.dtype) == str(b.dtype) and tuple(a.shape) == tuple(b.shape)
    assert a.tolist() == b.tolist()
    assert a.requires_grad == b.requires_grad


class Own:
    """A class of a program."""

    def __init__(self, number):
        self.number = number


def test_a_file_of_pytorch_is_read():
    found = taper.load(DATA / "tensors.pt")
    assert found["whole"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert found["column"].stride() == (4,) and found["column"].storage_offset() == 1
    assert found["turned"].shape == (4, 3) and found["turned"][1].tolist() == [1, 5, 9]
    assert found["half"].dtype == taper.float16 and found["half"].tolist() == [1.5, -2.0]
    assert found["bfloat"].dtype == taper.bfloat16 and found["long"].tolist() == [1, -(2**40)]
    assert found["truth"].dtype == taper.bool
    assert isinstance(found["parameter"], nn.Parameter) and found["parameter"].requires_grad
    assert found["size"] == taper.Size([3, 4]) and isinstance(found["size"], taper.Size)
    assert found["dtype"] is taper.float16 or found["dtype"] == taper.float16
    assert found["device"] == taper.device("cpu") and found["named"] == OrderedDict(a=1)


def test_tensors_of_a_file_share_their_storage():
    found = taper.load(DATA / "tensors.pt")
    found["whole"].zero_()
    assert found["column"].tolist() == [0, 0, 0] and found["turned"].sum().item() == 0
    found["column"].fill_(3)
    assert found["whole"][:, 1].tolist() == [3, 3, 3]


def test_the_older_format_of_pytorch_is_read():
    found = taper.load(DATA / "old.pt")
    assert found["whole"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert found["half"].tolist() == [1.5, -2.0] and found["named"] == OrderedDict(a=1)
    found["whole"].zero_()
    assert found["column"].tolist() == [0, 0, 0]
    data = (DATA / "old.pt").read_bytes()
    for length in (20, 200, len(data) - 3):
        with pytest.raises(RuntimeError, match="damaged|unexpected EOF"):
            taper.load(io.BytesIO(data[:length]))
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    torch.save(modules(torch.nn), file, _use_new_zipfile_serialization=False)
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global"):
        taper.load(io.BytesIO(file.getvalue()))
    assert isinstance(taper.load(io.BytesIO(file.getvalue()), weights_only=False), nn.Sequential)


def test_a_module_of_pytorch_is_read():
    refused = "Unsupported global: GLOBAL torch.nn.modules.container.Sequential"
    with pytest.raises(pickle.UnpicklingError, match=refused):
        taper.load(DATA / "module.pt")
    model = taper.load(DATA / "module.pt", weights_only=False)
    assert isinstance(model, nn.Sequential) and isinstance(model[0], nn.Linear)
    assert model(taper.tensor([[1.0, 1.0]])).tolist() == [[3.5, 0.0]]
    model(taper.ones(1, 2)).sum().backward()
    assert model[0].bias.grad.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back(name):
    tensor = taper.tensor([[0, 1], [1, 0]]).to(getattr(taper, name))
    same(again(tensor), tensor)


def test_views_share_their_storage_in_the_file():
    base = taper.arange(1000.0).reshape(10, 100).clone()
    file = io.BytesIO()
    taper.save([base, base[:, 3], base.t(), base[2:5, ::7], base.diagonal(), base[:1].expand(4, 100)], file)
    assert [name for name in zipfile.ZipFile(file).namelist() if "data/" in name] == ["archive/data/0"]
    file.seek(0)
    whole, column, turned, part, diagonal, repeated = taper.load(file)
    for found, wanted in (
        (whole, base), (column, base[:, 3]), (turned, base.t()), (part, base[2:5, ::7]),
        (diagonal, base.diagonal()), (repeated, base[:1].expand(4, 100)),
    ):
        same(found, wanted)
        assert found.stride() == wanted.stride()
    whole.zero_()
    assert not part.any() and not diagonal.any() and not turned.any()


def test_bytes_begin_at_multiples_of_64():
    file = io.BytesIO()
    taper.save([taper.ones(3), taper.ones(5).half()], file)
    for info in zipfile.ZipFile(file).infolist():
        start = info.header_offset + 30 + len(info.filename)
        data = file.getvalue()
        assert (start + int.from_bytes(data[info.header_offset + 28 : info.header_offset + 30], "little")) % 64 == 0


def test_plain_values_come_back():
    value = {"epoch": 3, "loss": 0.25, "name": "a", "bytes": b"\x00\xff", "set": {1, 2}, "none": None, "big": 2**70,
             "complex": 1 + 2j, "tuple": (1, [2]), "size": taper.Size([1, 2]), "dtype": taper.int8,
             "device": taper.device("cpu"), "named": OrderedDict(b=1, a=2)}
    found = again(value)
    assert found == value and isinstance(found["named"], OrderedDict) and isinstance(found["size"], taper.Size)


def test_one_parameter_in_two_places_stays_one():
    one = nn.Parameter(taper.ones(2))
    found = again({"a": one, "b": one})
    assert found["a"] is found["b"] and found["a"].requires_grad


def test_a_module_keeps_its_state_and_its_attributes():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.LSTM(4, 3), nn.Dropout(0.1)).eval()
    found = again(model, weights_only=False)
    assert not found.training and found[0].kernel_size == (3, 3) and repr(found) == repr(model)
    for (name, a), (other, b) in zip(model.state_dict().items(), found.state_dict().items()):
        assert name == other
        same(a, b)
    x = taper.ones(5, 2, 4)
    assert found[2](x)[0].tolist() == model[2](x)[0].tolist()


def test_weights_only_refuses_classes_of_a_program():
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed(?s:.)*add_safe_globals"):
        again(Own(1))
    assert again(Own(1), weights_only=False).number == 1
    with taper.serialization.safe_globals([Own]):
        assert again(Own(2)).number == 2
    with pytest.raises(pickle.UnpicklingError):
        again(Own(1))


def test_weights_only_refuses_calls():
    class Call:
        def __reduce__(self):
            return eval, ("1 + 1",)

    with pytest.raises(pickle.UnpicklingError, match="GLOBAL eval"):
        again(Call())
    # A state that would change a class that the file may name.
    stream = b"\x80\x02ctorch\nTensor\nNX\x03\x00\x00\x00oddq\x00K\x01\x86}q\x01s\x86b."
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", stream)
    file.seek(0)
    with pytest.raises(Exception):
        taper.load(file)
    assert not hasattr(taper.Tensor, "odd")


def test_map_location():
    tensor = taper.ones(2)
    asked = []

    def place(storage, location):
        asked.append((storage.nbytes(), location))
        return storage

    for location in ("cpu", taper.device("cpu"), {"cuda:0": "cpu"}, place, lambda storage, location: None):
        assert again({"a": tensor}, map_location=location)["a"].device.type == "cpu"
    assert asked == [(8, "cpu")]


def test_a_storage_of_a_gpu_without_one(tmp_path):
    if taper.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        again(taper.ones(2), map_location="cuda:0")


def test_a_cut_file_and_a_foreign_one(tmp_path):
    file = io.BytesIO()
    taper.save(taper.ones(100), file)
    data = file.getvalue()
    for length in (10, len(data) // 2, len(data) - 5):
        with pytest.raises(RuntimeError, match="failed reading zip archive"):
            taper.load(io.BytesIO(data[:length]))
    changed = bytearray(data)
    changed[data.index(taper.ones(100)._bytes()[:16]) + 40] ^= 1
    with pytest.raises(RuntimeError, match="failed reading zip archive.*CRC"):
        taper.load(io.BytesIO(bytes(changed)))
    for text in (b"", b"hello", pickle.dumps({"a": 1})):
        with pytest.raises(pickle.UnpicklingError):
            taper.load(io.BytesIO(text))
    with pytest.raises(FileNotFoundError):
        taper.load(tmp_path / "none.pt")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "b")
    with pytest.raises(RuntimeError, match="data.pkl"):
        taper.load(tmp_path / "other.zip")


def test_places_outside_of_a_storage_are_an_error():
    file = io.BytesIO()
    taper.save(taper.arange(4.0).clone()[1:], file)
    damaged = io.BytesIO()
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(damaged, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("data.pkl"):
                # The size 3, a tuple of one number, becomes 9.
                assert data.count(b"K\x03\x85") == 1
                data = data.replace(b"K\x03\x85", b"K\x09\x85")
            new.writestr(name, data)
    damaged.seek(0)
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 4"):
        taper.load(damaged)


def test_a_file_with_the_other_byte_order():
    file, other = io.BytesIO(), io.BytesIO()
    taper.save(taper.tensor([1, 256]), file)
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            data = b"big" if name.endswith("byteorder") else data
            new.writestr(name, data)
    other.seek(0)
    assert taper.load(other).tolist() == [1 << 56, 256 << 40]


def trained(library, steps, kind="Adam", **settings):
    library.manual_seed(0)
    model = library.nn.Linear(3, 2)
    with library.no_grad():
        model.weight.copy_(library.arange(6.0).reshape(2, 3) / 10)
        model.bias.zero_()
    optimizer = getattr(library.optim, kind)(model.parameters(), lr=0.1, **settings)
    for _ in range(steps):
        step(library, model, optimizer)
    return model, optimizer


def step(library, model, optimizer):
    optimizer.zero_grad()
    ((model(library.ones(4, 3)) - 1) ** 2).mean().backward()
    optimizer.step()


def test_an_optimizer_goes_on_from_a_file():
    model, optimizer = trained(taper, 3)
    state = again({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    other, fresh = trained(taper, 0)
    other.load_state_dict(state["model"])
    fresh.load_state_dict(state["optimizer"])
    step(taper, model, optimizer)
    step(taper, other, fresh)
    assert other.weight.tolist() == model.weight.tolist()


@pytest.mark.parametrize(("kind", "settings"), [
    ("Adam", {}), ("SGD", {"momentum": 0.9}), ("AdamW", {}), ("RMSprop", {}), ("Adagrad", {}),
])
def test_a_training_changes_between_the_two_libraries(kind, settings):
    torch = pytest.importorskip("torch")
    for own, theirs, carry in ((torch, taper, from_torch), (taper, torch, in_torch)):
        model, optimizer = trained(own, 3, kind, **settings)
        state = carry({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        other, fresh = trained(theirs, 0, kind, **settings)
        other.load_state_dict(state["model"])
        fresh.load_state_dict(state["optimizer"])
        step(own, model, optimizer)
        step(theirs, other, fresh)
        assert other.weight.flatten().tolist() == pytest.approx(model.weight.flatten().tolist(), abs=1e-6)


@pytest.mark.parametrize("weights_only", [True, False])
def test_pytorch_reads_a_file_of_taper(weights_only):
    base = taper.arange(24.0).reshape(2, 3, 4).clone()
    value = {name: taper.tensor([0, 1]).to(getattr(taper, name)) for name in DTYPES}
    value.update({
        "base": base, "turned": base.permute(2, 0, 1), "part": base[:, 1:, ::2], "one": base[1, 2, 3],
        "parameter": nn.Parameter(taper.ones(2)), "leaf": taper.ones(3, requires_grad=True),
    })
    found = in_torch(value, weights_only=weights_only)
    for name, wanted in value.items():
        same(found[name], wanted)
        assert found[name].stride() == wanted.stride()
    found["base"].zero_()
    assert found["part"].sum().item() == 0
    rest = {"size": taper.Size([1]), "dtype": taper.int8, "device": taper.device("cpu"), "set": {1}, "bytes": b"a"}
    torch = pytest.importorskip("torch")
    assert in_torch(rest, weights_only=weights_only) == {
        "size": torch.Size([1]), "dtype": torch.int8, "device": torch.device("cpu"), "set": {1}, "bytes": b"a",
    }


def modules(nn):
    return nn.Sequential(
        nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        nn.Softmax(-1), nn.Dropout(0.1),
    ).eval()


def layers(nn):
    return nn.ModuleDict({
        "conv": nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        ),
        "lstm": nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True), "gru": nn.GRU(4, 3),
        "embedding": nn.Embedding(5, 4),
    }).eval()


def test_whole_modules_change_between_the_two_libraries():
    torch = pytest.importorskip("torch")
    for own, theirs, carry in ((torch, taper, from_torch), (taper, torch, in_torch)):
        for make, parts in ((modules, None), (layers, {
            "conv": (1, 1, 4, 4), "lstm": (2, 3, 4), "gru": (2, 3, 4),
        })):
            model = make(own.nn)
            other = carry(model, weights_only=False)
            assert isinstance(other, getattr(theirs.nn, type(model).__name__))
            for part, shape in (parts or {None: (2, 3, 8)}).items():
                numbers = [0.1 * (at % 7) for at in range(taper.Size(shape).numel())]
                results = []
                for library, one in ((own, model), (theirs, other)):
                    one = one if part is None else one[part]
                    with library.no_grad():
                        result = one(library.tensor(numbers).reshape(shape))
                    result = result[0] if isinstance(result, tuple) else result
                    results.append(result.flatten().tolist())
                assert results[0] == pytest.approx(results[1], abs=1e-5)
