"""Blocks of every format that GGUF files have here, and the numbers that gguf's own package decodes them to.

    python3 -m venv .venv && .venv/bin/pip install gguf==0.19.0
    .venv/bin/python scripts/gguf_fixtures.py > crates/taper/tests/fixtures/blocks.json

Bytes are random but for the scales of f16, which are numbers. Decoded numbers are bits of f32 in hexadecimal.
"encode" has numbers, and the bytes that the package encodes them in, for the formats that it encodes: those of 32
elements in rows of 32, and TQ2_0 in rows of 256, of which there is one.
"""

import json

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

# The bytes of a block at which its scales of f16 begin.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "TQ2_0": [64], "MXFP4": [],
}  # fmt: skip
# The last two are below the least normal number of f16, and the greatest number.
VALUES = np.array([0.0123, -1.5, 3.14, -0.00071, 1e-6, 65504.0], dtype=np.float16)

# The formats that came later have random numbers of their own.
rng, later = np.random.default_rng(7), np.random.default_rng(8)
fixtures = {}
for name, places in SCALES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = max(512 // elements, 6 if elements == 256 else 12)
    draws = later if name in ["IQ4_NL", "IQ4_XS", "TQ2_0", "MXFP4"] else rng
    blocks = draws.integers(0, 256, (count, size), dtype=np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = 100 + 5 * np.arange(count) % 50
    for k, place in enumerate(places):
        scales = VALUES[(np.arange(count) + 2 * k) % len(VALUES)]
        blocks[:, place : place + 2] = scales.view(np.uint8).reshape(count, 2)
    decoded = dequantize(blocks.reshape(1, -1), kind).astype(np.float32).reshape(-1)
    assert decoded.size == count * elements
    bits = "".join(f"{x:08x}" for x in decoded.view(np.uint32))
    fixtures[name.lower()] = {"bytes": blocks.tobytes().hex(), "numbers": bits}
# Blocks of normal numbers of several sizes, of one number, of zeros, and with its greatest number at the end.
x = rng.standard_normal((12, 32)).astype(np.float32) * 10.0 ** rng.integers(-4, 3, (12, 1)).astype(np.float32)
x[3], x[7], x[8, 31] = -0.3, 0.0, 900.0
x = x.astype(np.float32)
fixtures["encode"] = {"numbers": "".join(f"{b:08x}" for b in x.reshape(-1).view(np.uint32))}
for name in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]:
    fixtures["encode"][name.lower()] = quantize(x, gguf.GGMLQuantizationType[name]).tobytes().hex()
fixtures["encode"]["mxfp4"] = quantize(x, gguf.GGMLQuantizationType.MXFP4).tobytes().hex()
fixtures["encode"]["tq2_0"] = quantize(x[:8].reshape(1, 256), gguf.GGMLQuantizationType.TQ2_0).tobytes().hex()
print(json.dumps(fixtures, indent=0))
