"""Writes crates/nn/tests/fixtures/qat.json: PyTorch's simulated quantization with its gradients, and what its
observers find.

    pip install torch && python scripts/qat_fixtures.py
"""

import json
import pathlib
import warnings

import torch

warnings.filterwarnings("ignore")
from torch.ao.quantization import MinMaxObserver, MovingAverageMinMaxObserver, PerChannelMinMaxObserver

OUT = pathlib.Path(__file__).parents[1] / "crates/nn/tests/fixtures/qat.json"


def numbers(x):
    return [float(f"{v:.9g}") for v in x.detach().double().reshape(-1).tolist()]


def main():
    rng = torch.Generator().manual_seed(5)
    x = torch.randn(4, 6, generator=rng) * 3
    out = {"x": numbers(x), "cases": [], "observers": []}
    weight = torch.arange(24.0).reshape(4, 6) / 7 + 0.5
    out["output_gradient"] = numbers(weight)
    for low, high in ((0, 255), (-128, 127), (0, 15)):
        scale, zero = 8.0 / (high - low), (low + high + 1) // 2 + 1
        leaf = x.clone().requires_grad_()
        y = torch.fake_quantize_per_tensor_affine(leaf, scale, zero, low, high)
        (y * weight).sum().backward()
        case = {"low": low, "high": high, "scale": [scale], "zero": [zero], "axis": None}
        out["cases"].append({**case, "y": numbers(y), "gradient": numbers(leaf.grad)})
        for axis, size in ((0, 4), (1, 6)):
            scales = scale * (1 + torch.arange(size) / 4)
            zeros = torch.full((size,), zero, dtype=torch.int32)
            leaf = x.clone().requires_grad_()
            y = torch.fake_quantize_per_channel_affine(leaf, scales, zeros, axis, low, high)
            (y * weight).sum().backward()
            case = {"low": low, "high": high, "scale": numbers(scales), "zero": numbers(zeros), "axis": axis}
            out["cases"].append({**case, "y": numbers(y), "gradient": numbers(leaf.grad)})
    batches = [torch.randn(3, 5, generator=rng) * (1 + k) + 0.3 * k for k in range(4)]
    out["batches"] = [numbers(batch) for batch in batches]
    for kind, make in (("min_max", MinMaxObserver), ("moving_average", MovingAverageMinMaxObserver)):
        for symmetric in (False, True):
            scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
            dtype, low, high = (torch.qint8, -128, 127) if symmetric else (torch.quint8, 0, 255)
            observer = make(dtype=dtype, qscheme=scheme, quant_min=low, quant_max=high)
            for batch in batches:
                observer(batch)
            scale, zero = observer.calculate_qparams()
            out["observers"].append(
                {"kind": kind, "symmetric": symmetric, "scale": numbers(scale)[0], "zero": int(zero)}
            )
    channel = PerChannelMinMaxObserver(
        ch_axis=0, dtype=torch.qint8, qscheme=torch.per_channel_symmetric, quant_min=-128, quant_max=127
    )
    channel(x)
    out["channel_scales"] = numbers(channel.calculate_qparams()[0])
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
