"""Files of safetensors; those of the package itself are compared where it is installed."""

import json
import subprocess
import sys

import pytest
import taper
from taper import nn
from taper.safetensors import SafetensorError, load, load_file, load_model, safe_open, save, save_file, save_model

#: What the package safetensors 0.5 writes for {"a": ones(2), "b": tensor([1], dtype=int64)} and metadata.
RECORDED = (
    b'\xa0\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{"format":"pt"},"b":{"dtype":"I64","shape":[1],'
    b'"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}'
)


def test_tensors_come_back(tmp_path):
    tensors = {
        "a": taper.arange(6.0).reshape(2, 3), "b": taper.tensor([True]), "c": taper.tensor([1, -2]),
        "h": taper.tensor([0.5]).half(), "bf": taper.tensor([0.5, 2]).bfloat16(), "none": taper.zeros(0, 3),
        "number": taper.tensor(3.0), "ü": taper.tensor([7], dtype=taper.uint8),
    }
    save_file(tensors, tmp_path / "a.safetensors", {"format": "pt"})
    for found in (load_file(tmp_path / "a.safetensors"), load(save(tensors))):
        assert sorted(found) == sorted(tensors)
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
            assert found[name].tolist() == tensor.tolist()
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"} and sorted(file.keys()) == sorted(tensors)
        assert file.get_slice("a")[:, 1].tolist() == [1, 4] and file.get_slice("a").get_shape() == [2, 3]
        with pytest.raises(SafetensorError):
            file.get_tensor("z")


def test_the_bytes_are_those_of_the_format():
    data = save({"a": taper.ones(2), "b": taper.tensor([1])}, {"format": "pt"})
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    assert head["b"] == {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]}
    assert head["a"] == {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}
    assert length % 8 == 0 and len(data) == 8 + length + 16
    assert data[8 : 8 + length].rstrip() == RECORDED[8:]


def test_the_package_itself_reads_and_writes_the_same(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    numpy = pytest.importorskip("numpy")
    data = save({"a": taper.arange(4.0), "b": taper.tensor([1])})
    assert package.load(data)["a"].tolist() == [0, 1, 2, 3]
    assert load(package.save({"a": numpy.arange(3.0)}))["a"].tolist() == [0, 1, 2]


def test_damaged_files_are_errors(tmp_path):
    data = save({"a": taper.ones(4)})
    for broken in (b"", data[:5], data[:20], data[:-1], data + b"x", b"\xff" * 8 + data[8:], data[:8] + b"[" + data[9:],
                   data.replace(b"F32", b"F99"), data.replace(b"[4]", b"[5]")):
        with pytest.raises(SafetensorError):
            load(broken)
        path = tmp_path / "broken"
        path.write_bytes(broken)
        with pytest.raises(SafetensorError):
            load_file(path)


def test_shared_and_strided_tensors_are_refused():
    a = taper.ones(2, 3)
    with pytest.raises(RuntimeError, match="share memory"):
        save({"a": a, "b": a[0]})
    with pytest.raises(ValueError, match="non contiguous"):
        save({"a": a.t()})
    with pytest.raises(ValueError, match="expected torch.Tensor"):
        save({"a": 1})


def test_models_with_tied_weights(tmp_path):
    def model():
        made = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        made[1].weight = made[0].weight
        return made

    one, other = model(), model()
    save_model(one, tmp_path / "m.safetensors")
    assert load_model(other, tmp_path / "m.safetensors") == (set(), [])
    assert other[1].weight.tolist() == one[0].weight.tolist()


def test_programs_find_the_package_under_its_name(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nfrom safetensors.torch import save_file, load_file\nfrom safetensors import safe_open\n"
        f"save_file({{'a': torch.ones(2)}}, {str(tmp_path / 'a')!r})\nprint(load_file({str(tmp_path / 'a')!r}))\n"
    )
    try:
        import safetensors  # noqa: F401
    except ImportError:
        ran = subprocess.run([sys.executable, "-m", "taper", str(program)], capture_output=True, text=True)
        assert ran.stdout.strip() == "{'a': tensor([1., 1.])}", ran.stderr
