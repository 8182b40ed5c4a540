"""Writes crates/nn/tests/fixtures/quantize.json: small weights that GPTQ, AWQ and bitsandbytes round; and
crates/weights/tests/files/bitsandbytes*.safetensors, weights that bitsandbytes stored.

    pip install numpy bitsandbytes torch safetensors && python scripts/quantize_fixtures.py

GPTQ and AWQ are the published algorithms in numpy, in f64: GPTQ with the inverse of the damped products and
its Cholesky factor, as in algorithm 1 of the paper; AWQ as the search of its program. NF4 is rounded by the
package bitsandbytes.
"""

import json
import pathlib

import numpy as np

OUT = pathlib.Path(__file__).parents[1] / "crates/nn/tests/fixtures/quantize.json"
ROWS, COLUMNS, GROUP = 5, 32, 8


def fit(w, bits, symmetric):
    """The scale and the zero point of some numbers, in f32."""
    low, high = np.float32(min(w.min(), 0)), np.float32(max(w.max(), 0))
    levels = np.float32(2**bits - 1)
    if symmetric:
        return np.float32(2) * max(high, -low) / levels, np.float32(0)
    scale = (high - low) / levels
    return scale, np.round(-low / scale)


def nearest(w, scale, zero, bits, symmetric):
    low = -(2 ** (bits - 1)) if symmetric else 0
    q = np.clip(np.round(np.float32(w) / scale) + zero, low, low + 2**bits - 1)
    return np.float64((q - zero) * scale)


def round_to_nearest(weight, bits, symmetric):
    out = np.zeros_like(weight)
    for r in range(weight.shape[0]):
        for g in range(0, weight.shape[1], GROUP):
            part = np.float32(weight[r, g : g + GROUP])
            out[r, g : g + GROUP] = nearest(part, *fit(part, bits, symmetric), bits, symmetric)
    return out


def gptq(weight, products, bits, symmetric, act_order):
    w, h = weight.copy(), products.copy()
    dead = np.diag(h) == 0
    h[dead, dead] = 1
    w[:, dead] = 0
    n = len(h)
    order = np.argsort(-np.diag(h), kind="stable") if act_order else np.arange(n)
    static = {
        (r, g): fit(np.float32(w[r, g * GROUP : (g + 1) * GROUP]), bits, symmetric)
        for r in range(len(w))
        for g in range(n // GROUP)
    }
    w, h = w[:, order], h[np.ix_(order, order)]
    h[np.diag_indices(n)] += 0.01 * np.diag(h).mean()
    upper = np.linalg.cholesky(np.linalg.inv(h)).T
    out = np.zeros_like(w)
    for i in range(n):
        for r in range(len(w)):
            group = order[i] // GROUP
            if not act_order and i % GROUP == 0:
                static[r, group] = fit(np.float32(w[r, i : i + GROUP]), bits, symmetric)
            q = nearest(w[r, i], *static[r, group], bits, symmetric)
            out[r, order[i]] = q
            w[r, i:] -= (w[r, i] - q) / upper[i, i] * upper[i, i:]
    return out


def awq(weight, x, bits, symmetric, steps=20):
    magnitude = np.abs(x).mean(axis=0)
    best = None
    for step in range(steps):
        scale = np.maximum(magnitude ** (step / steps), 1e-4)
        scale = np.float32(scale / np.sqrt(scale.max() * scale.min()))
        rounded = round_to_nearest(np.float64(np.float32(weight) * scale), bits, symmetric) / scale
        loss = np.square(x @ (rounded - weight).T).mean()
        if best is None or loss < best[0]:
            best = (loss, scale, rounded)
    return best[1], best[2]


def numbers(x):
    return [float(f"{v:.9g}") for v in np.asarray(x, dtype=np.float64).reshape(-1)]


def main():
    rng = np.random.default_rng(7)
    weight = np.float64(np.float32(rng.normal(size=(ROWS, COLUMNS))))
    mixed = rng.normal(size=(96, COLUMNS)) @ rng.normal(size=(COLUMNS, COLUMNS)) / 5
    x = np.float64(np.float32(mixed * np.exp(rng.normal(size=COLUMNS))))
    x[:, 5] = 0  # an input that is always 0
    products = np.float64(np.float32(x.T @ x / len(x)))
    out = {"weight": numbers(weight), "x": numbers(x), "products": numbers(products), "cases": []}
    for bits in (4, 8):
        for symmetric in (False, True):
            kind = {"bits": bits, "symmetric": symmetric}
            plain = round_to_nearest(weight, bits, symmetric)
            out["cases"].append({**kind, "method": "nearest", "weight": numbers(plain)})
            for act_order in (False, True):
                found = gptq(weight, products, bits, symmetric, act_order)
                out["cases"].append({**kind, "method": "gptq", "act_order": act_order, "weight": numbers(found)})
            scale, found = awq(weight, x, bits, symmetric)
            out["cases"].append({**kind, "method": "awq", "scale": numbers(scale), "weight": numbers(found)})
    out["nf4"] = nf4()
    OUT.write_text(json.dumps(out, separators=(",", ":")) + "\n")


def nf4():
    import bitsandbytes.functional as F
    import torch

    cases = []
    for shape, double in (((3, 70), False), ((9, 1900), True)):
        # Numbers that the test makes again: exact in f32.
        i = np.arange(np.prod(shape), dtype=np.int64)
        made = np.float32((i * i * 31 + i * 7919) % 4099 - 2049) / np.float32(1024)
        made *= np.float32(1) / (1 + i // 64 % 5).astype(np.float32)
        packed, state = F.quantize_4bit(
            torch.tensor(made.reshape(shape)), blocksize=64, compress_statistics=double, quant_type="nf4"
        )
        decoded = F.dequantize_4bit(packed, state).reshape(-1)
        case = {"shape": shape, "double": double, "packed": bytes(packed.reshape(-1).tolist()).hex()}
        case["decoded"] = numbers(decoded[::61])
        if double:
            case["table"] = numbers(state.state2.code)
        cases.append(case)
    return cases


def files():
    """Weights of bitsandbytes as its layers store them, and the numbers that it decodes."""
    import bitsandbytes.functional as F
    import torch
    from safetensors.torch import save_file

    stored, decoded = {}, {}
    for name, kind, double, dtype, shape in (
        ("nf4", "nf4", False, torch.float32, (3, 70)),
        ("double", "nf4", True, torch.bfloat16, (20, 960)),
        ("fp4", "fp4", True, torch.float16, (4, 64)),
    ):
        weight = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        packed, state = F.quantize_4bit(weight, blocksize=64, compress_statistics=double, quant_type=kind)
        stored[f"{name}.weight"] = packed
        for key, value in state.as_dict(packed=True).items():
            stored[f"{name}.weight.{key}"] = value.clone()
        decoded[f"{name}.weight"] = F.dequantize_4bit(packed, state).reshape(-1)[::7].clone()
    stored["nf4.bias"] = decoded["nf4.bias"] = torch.arange(3.0)
    folder = OUT.parents[4] / "crates/weights/tests/files"
    save_file(stored, folder / "bitsandbytes.safetensors")
    save_file(decoded, folder / "bitsandbytes_decoded.safetensors")


if __name__ == "__main__":
    main()
    files()
