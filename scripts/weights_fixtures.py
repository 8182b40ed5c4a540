#!/usr/bin/env python3
"""Small files of weights by the libraries that own the formats: crates/weights/tests/files.

    python3 -m venv .venv && .venv/bin/pip install torch numpy safetensors gguf
    .venv/bin/python scripts/weights_fixtures.py                       # writes the files
    .venv/bin/python scripts/weights_fixtures.py check FOLDER          # reads what Taper wrote there, see below

The files are checked in, so the tests need no Python. `expected.json` has for each tensor of each file its dtype, its shape and the SHA-256
of its elements in row-major order, little-endian. `check` reads the files that

    TAPER_TEST=written=FOLDER cargo test -p taper-weights --test it written_for_others

leaves in a folder, with PyTorch (weights_only=True), NumPy, safetensors and gguf, and compares them with each other.
"""
import hashlib
import json
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch

FILES = Path(__file__).resolve().parent.parent / "crates/weights/tests/files"


def sha(tensor):
    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.zeros(0, dtype=torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()


def described(tensors):
    return {k: {"dtype": str(v.dtype)[6:], "shape": list(v.shape), "sha256": sha(v)} for k, v in tensors.items()}


def all_dtypes():
    """Every dtype, and every arrangement of a tensor in its storage."""
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6) - 7.5
    tensors = OrderedDict()
    for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        tensors[name] = base.to(getattr(torch, name))
    for name in ("int64", "int32", "int16", "int8"):
        tensors[name] = base.to(getattr(torch, name))
    for name in ("uint64", "uint32", "uint16", "uint8", "bool"):
        tensors[name] = (base.abs() * 1.5).to(torch.int64).to(getattr(torch, name))
    tensors["number"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 3)
    tensors["transposed"] = base.t()
    tensors["permuted"] = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    tensors["columns"] = base[:, 1:5:2]
    tensors["rows"] = base[1:3]
    tensors["expanded"] = torch.arange(3.0)[:, None].expand(3, 2)
    tensors["channels_last"] = torch.arange(48.0).reshape(2, 3, 2, 4).to(memory_format=torch.channels_last)
    tensors["parameter"] = torch.nn.Parameter(base[0])
    tensors["tied"] = tensors["float32"]
    return tensors


def checkpoint():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "notes": {"text": "Zürich", "none": None, "yes": True, "big": 1 << 80, "negative": -5, "bytes": b"\x00\xff", "float": 1e300},
        "list": [1, (2.5, "three"), [torch.ones(2), {4: torch.zeros(1)}]],
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
    }, model, optimizer


class Attention(torch.nn.Module):
    """A module with everything that a pickle of a whole model may have beside its state."""

    def __init__(self):
        super().__init__()
        self.proj = torch.nn.MultiheadAttention(4, 2)
        self.act = torch.nn.functional.relu
        self.settings = slice(1, 2), {"mode": object(), "dtype": torch.float16}
        self.register_buffer("table", torch.arange(3), persistent=False)
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("missing", None)
        self.register_parameter("gain", None)


def whole_model():
    torch.manual_seed(1)
    body = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, bias=False), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten())
    model = torch.nn.ModuleDict({"body": body, "attention": Attention(), "recurrent": torch.nn.LSTM(2, 3), "head": torch.nn.Linear(2, 2)})
    model["tied"] = torch.nn.Linear(2, 2)
    model["tied"].weight = model["head"].weight
    return model


def write():
    FILES.mkdir(parents=True, exist_ok=True)
    expected = {}
    tensors = all_dtypes()
    torch.save(tensors, FILES / "dtypes.pt")
    torch.save(tensors, FILES / "dtypes_protocol4.pt", pickle_protocol=4)
    for name in ("dtypes.pt", "dtypes_protocol4.pt"):
        expected[name] = described(tensors)
    # The old container has no 8-bit floats and wide unsigned integers.
    old = OrderedDict((k, v) for k, v in tensors.items() if not k.startswith("float8") and k not in ("uint16", "uint32", "uint64"))
    torch.save(old, FILES / "dtypes_legacy.pt", _use_new_zipfile_serialization=False)
    expected["dtypes_legacy.pt"] = described(old)

    whole, model, optimizer = checkpoint()
    flat = {f"model.{k}": v for k, v in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        flat |= {f"optimizer.state.{index}.{k}": v for k, v in state.items()}
    flat |= {"list.2.0": whole["list"][2][0], "list.2.1.4": whole["list"][2][1][4]}
    torch.save(whole, FILES / "checkpoint.pt")
    torch.save(whole, FILES / "checkpoint_legacy.pt", _use_new_zipfile_serialization=False)
    expected["checkpoint.pt"] = expected["checkpoint_legacy.pt"] = described(flat)
    torch.save(torch.arange(5), FILES / "alone.pt")
    expected["alone.pt"] = described({"tensor": torch.arange(5)})
    torch.save({"c": torch.zeros(2, dtype=torch.complex64), "f": torch.ones(1)}, FILES / "complex.pt")

    # Whole models, which are read as their state, alone and in a checkpoint.
    torch.save(model, FILES / "whole_model.pt")
    expected["whole_model.pt"] = described(model.state_dict())
    modules = whole_model()
    torch.save(modules, FILES / "whole_modules.pt")
    # The old container also has the text of each class: a short one in place of PyTorch's own.
    torch.serialization.get_source_lines_and_file = lambda of: (["class Text: ...\n"], 1, "text.py")
    torch.save(modules, FILES / "whole_modules_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save({"epoch": 3, "model": modules}, FILES / "whole_modules_protocol4.pt", pickle_protocol=4)
    for name, prefix in (("whole_modules.pt", ""), ("whole_modules_legacy.pt", ""), ("whole_modules_protocol4.pt", "model.")):
        expected[name] = described({prefix + k: v for k, v in modules.state_dict().items()})
    # PyTorch pads its archives so that, for stems of 21 characters, bytes before the directory look like
    # records.
    named = OrderedDict(weight=torch.arange(3.0))
    torch.save(named, FILES / "stem_of_21_characters.pt")
    expected["stem_of_21_characters.pt"] = described(named)

    # Files that the reader must refuse.
    torch.save({"sparse": torch.eye(2).to_sparse()}, FILES / "sparse.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), FILES / "script.pt")

    arrays = {"f4": np.arange(6, dtype="<f4").reshape(2, 3), "big": np.arange(6, dtype=">f4").reshape(2, 3), "fortran": np.asfortranarray(np.arange(24, dtype="<i8").reshape(2, 3, 4)),
              "bool": np.array([True, False]), "half": np.arange(3, dtype="<f2"), "number": np.float64(2.5), "empty": np.zeros((0, 2), np.int32), "big_short": np.arange(4, dtype=">i2")}
    np.savez(FILES / "arrays.npz", **arrays)
    np.savez_compressed(FILES / "arrays_compressed.npz", **arrays)
    np.save(FILES / "array.npy", arrays["fortran"])
    little = {k: torch.from_numpy(np.array(v).astype(np.asarray(v).dtype.newbyteorder("<"))) for k, v in arrays.items()}
    expected["arrays.npz"] = expected["arrays_compressed.npz"] = described(little)
    expected["array.npy"] = described({"arr_0": little["fortran"]})

    import gguf

    writer = gguf.GGUFWriter(FILES / "small.gguf", "llama")
    writer.add_uint8("t.u8", 200); writer.add_int8("t.i8", -5); writer.add_uint16("t.u16", 60000); writer.add_int16("t.i16", -600)
    writer.add_uint32("t.u32", 1 << 31); writer.add_int32("t.i32", -70000); writer.add_float32("t.f32", 0.5); writer.add_bool("t.bool", True)
    writer.add_string("t.text", "Zürich"); writer.add_uint64("t.u64", 1 << 63); writer.add_int64("t.i64", -(1 << 40)); writer.add_float64("t.f64", 1e-300)
    writer.add_array("t.texts", ["a", "", "日本"]); writer.add_array("t.ints", [1, -2, 3]); writer.add_array("t.floats", [0.5, 1.5])
    rows = np.arange(-64, 64, dtype=np.float32).reshape(2, 64) / 8
    dense = {"f32": rows, "f16": rows.astype(np.float16), "f64": rows.astype(np.float64), "i8": rows.astype(np.int8), "i32": rows.astype(np.int32), "i64": rows.astype(np.int64), "axes": np.arange(24, dtype=np.float32).reshape(2, 3, 4)}
    for name, array in dense.items():
        writer.add_tensor(name, array)
    blocks = {}
    for kind in ("Q8_0", "Q4_0", "Q4_1", "BF16"):
        kind_ = gguf.GGMLQuantizationType[kind]
        data = gguf.quants.quantize(rows, kind_)
        writer.add_tensor(kind, data, raw_dtype=kind_)
        blocks[kind] = {"dtype": kind, "shape": [2, 64], "sha256": hashlib.sha256(data.tobytes()).hexdigest()}
    writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
    expected["small.gguf"] = described({k: torch.from_numpy(v) for k, v in dense.items()}) | blocks
    lines = [f" {json.dumps(file)}: {{\n" + ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in tensors.items()) + "\n }" for file, tensors in expected.items()]
    (FILES / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print({p.name: p.stat().st_size for p in sorted(FILES.iterdir())})


def check(folder):
    import gguf
    from safetensors import safe_open

    loaded = torch.load(folder / "all.pt", weights_only=True)
    expected = json.loads((FILES / "expected.json").read_text())["dtypes.pt"]
    got = described(loaded)
    assert got == expected, {k: (got.get(k), expected.get(k)) for k in got | expected if got.get(k) != expected.get(k)}
    assert loaded["tied"].data_ptr() == loaded["float32"].data_ptr()
    arrays = np.load(folder / "all.npz")
    for name in arrays.files:
        assert arrays[name].tobytes() == loaded[name].contiguous().numpy().tobytes() and arrays[name].shape == tuple(loaded[name].shape), name
    index = json.loads((folder / "sharded/model.safetensors.index.json").read_text())
    sharded = {}
    for name, shard in index["weight_map"].items():
        with safe_open(folder / "sharded" / shard, "pt") as file:
            sharded[name] = file.get_tensor(name)
    assert described(sharded) == expected
    reader = gguf.GGUFReader(folder / "all.gguf")
    names = {t.name: t for t in reader.tensors}
    assert reader.fields["general.architecture"].contents() == "llama" and reader.fields["t.texts"].contents() == ["a", "", "日本"]
    for name in ("float32", "float64", "int8", "transposed", "channels_last"):
        data = loaded[name].contiguous().numpy()
        assert names[name].data.tobytes() == data.tobytes() and list(names[name].shape) == list(data.shape)[::-1], name
    assert names["Q8_0"].tensor_type == gguf.GGMLQuantizationType.Q8_0
    print(f"{len(loaded)} tensors of PyTorch, {len(arrays.files)} of NumPy, {len(sharded)} of safetensors, {len(names)} of GGUF: as they should be")


if __name__ == "__main__":
    check(Path(sys.argv[2])) if sys.argv[1:2] == ["check"] else write()
