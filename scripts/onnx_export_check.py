"""Checks the ONNX files that the tests of crates/onnx wrote, with onnx.checker and ONNX Runtime; `cargo xtask
onnx-export-check` calls it.

    python scripts/onnx_export_check.py FOLDER

Beside each NAME.onnx are NAME.0.safetensors, NAME.1.safetensors …: inputs in0, in1 … and the expected outputs out0,
out1 … Exits with 1 if the checker refuses a file or ONNX Runtime gives other results. Operators that ONNX Runtime has
no kernel for, in the type of the file, are counted and listed, and are no failure.
"""

import collections
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
import torch
from safetensors.torch import load_file


def to_feed(session, tensors):
    """The inputs as ONNX Runtime takes them; bf16 goes in by its bits."""
    feed = {}
    for item in session.get_inputs():
        tensor = tensors[item.name]
        if tensor.dtype == torch.bfloat16:
            raw = tensor.view(torch.int16).numpy()
            kind = onnx.TensorProto.BFLOAT16
            feed[item.name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, kind)
        else:
            feed[item.name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(tensor.numpy()))
    return feed


def difference(found, expected):
    """The greatest difference between elements, relative to 1 + |expected|; infinite for another shape."""
    if list(found.shape) != list(expected.shape):
        return float("inf")
    if found.numel() == 0:
        return 0.0
    a, b = found.double(), expected.double()
    same = (a == b) | (a.isnan() & b.isnan())
    apart = torch.where(same, torch.zeros_like(a), (a - b).abs() / (1 + b.abs()))
    return apart.nan_to_num(nan=float("inf"), posinf=float("inf")).max().item()


def bound(tensor):
    return {torch.float16: 1e-2, torch.bfloat16: 4e-2}.get(tensor.dtype, 1e-3)


def run(path):
    """The greatest difference over all cases of a file, and whether it is within the bound."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    worst, good = 0.0, True
    for case in sorted(path.parent.glob(f"{path.stem}.*.safetensors")):
        tensors = load_file(case)
        feed = to_feed(session, tensors)
        results = session.run_with_ort_values(None, feed)
        for k, result in enumerate(results):
            expected = tensors[f"out{k}"]
            if result.data_type() == "tensor(bfloat16)":
                # numpy has no bf16.
                found = torch.from_dlpack(result._ortvalue.to_dlpack())
            else:
                found = torch.from_numpy(np.array(result.numpy()))
            apart = difference(found, expected)
            worst, good = max(worst, apart), good and apart <= bound(expected)
    return worst, good


def main(folder):
    counts = collections.Counter()
    failures, missing, worst = [], [], (0.0, "")
    for path in sorted(pathlib.Path(folder).glob("*.onnx")):
        counts["files"] += 1
        try:
            onnx.checker.check_model(str(path), full_check=True)
            counts["accepted by onnx.checker"] += 1
        except Exception as error:
            failures.append(f"{path.stem}: onnx.checker: {str(error).strip().splitlines()[0]}")
            continue
        if not list(path.parent.glob(f"{path.stem}.*.safetensors")):
            continue
        try:
            apart, good = run(path)
        except Exception as error:
            text = str(error).strip().splitlines()[0]
            if "NOT_IMPLEMENTED" in text or "is not currently registered" in text:
                missing.append(f"{path.stem}: {text}")
            else:
                failures.append(f"{path.stem}: ONNX Runtime: {text}")
            continue
        if good:
            counts["equal in ONNX Runtime"] += 1
            worst = max(worst, (apart, path.stem))
        else:
            failures.append(f"{path.stem}: ONNX Runtime differs by {apart:.3g}")
    for line in missing:
        print(f"no kernel: {line}")
    for line in failures:
        print(f"FAILED: {line}")
    counts["without a kernel in ONNX Runtime"], counts["failed"] = len(missing), len(failures)
    print(", ".join(f"{count} {name}" for name, count in counts.items()))
    print(f"greatest difference {worst[0]:.2g} ({worst[1]})")
    return 1 if failures or not counts["files"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
