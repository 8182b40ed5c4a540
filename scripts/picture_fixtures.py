#!/usr/bin/env python3
"""Numbers from torchvision for the tests of pictures in data: crates/data/tests/fixtures/pictures.json.

    python3 -m venv .venv && .venv/bin/pip install numpy torch torchvision
    .venv/bin/python scripts/picture_fixtures.py

The file is checked in, so the tests need no Python. Both sides make the same picture: channel c of the pixel in row y
and column x is (37 x + 11 y + 53 c + 5 x y) mod 256. Results of u8 are written as hexadecimal bytes [H, W, 3].
"""
import json
import math
from pathlib import Path

import torch
import torchvision
import torchvision.transforms.functional as F
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import RandAugment, _apply_op
from torchvision.transforms.v2 import CutMix, MixUp
from torchvision.utils import make_grid

OUT = Path(__file__).resolve().parent.parent / "crates/data/tests/fixtures/pictures.json"
HEIGHT, WIDTH = 10, 13
NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


def picture(height, width):
    y, x, c = torch.meshgrid(torch.arange(height), torch.arange(width), torch.arange(3), indexing="ij")
    return ((37 * x + 11 * y + 53 * c + 5 * x * y) % 256).to(torch.uint8).permute(2, 0, 1)


def smooth(height, width):
    """Values between 60 and 180, so that autocontrast and equalize have something to do."""
    y, x, c = torch.meshgrid(torch.arange(height), torch.arange(width), torch.arange(3), indexing="ij")
    return (60 + (7 * x + 5 * y + 20 * c) % 120).to(torch.uint8).permute(2, 0, 1)


def case(op, arguments, image):
    pixels = image.permute(1, 2, 0).contiguous()
    yield_bytes = bytes(pixels.flatten().tolist()).hex()
    return {"op": op, "arguments": arguments, "height": pixels.shape[0], "width": pixels.shape[1], "bytes": yield_bytes}


def cases():
    image = picture(HEIGHT, WIDTH)
    for factor in [0.0, 0.3, 0.75, 1.0, 1.6]:
        yield case("brightness", [factor], F.adjust_brightness(image, factor))
        yield case("contrast", [factor], F.adjust_contrast(image, factor))
        yield case("saturation", [factor], F.adjust_saturation(image, factor))
        yield case("sharpness", [factor], F.adjust_sharpness(image, factor))
    for part in [-0.5, -0.13, 0.0, 0.2, 0.5]:
        yield case("hue", [part], F.adjust_hue(image, part))
    yield case("grayscale", [], F.rgb_to_grayscale(image, 3))
    yield case("invert", [], F.invert(image))
    for bits in [0, 1, 3, 8]:
        yield case("posterize", [bits], F.posterize(image, bits))
    for threshold in [0, 100.5, 128, 255]:
        yield case("solarize", [threshold], F.solarize(image, threshold))
    large = smooth(24, 20)
    yield case("autocontrast", [], F.autocontrast(large))
    yield case("equalize", [], F.equalize(large))
    yield case("equalize_small", [], F.equalize(image))
    for angle in [30.0, -77.3, 90.0, 180.0]:
        yield case("rotate", [angle], F.rotate(image, angle))
        yield case("rotate_bilinear", [angle], F.rotate(image, angle, interpolation=BILINEAR, fill=[10, 20, 30]))
        yield case("rotate_expand", [angle], F.rotate(image, angle, expand=True))
        yield case("rotate_expand_bilinear", [angle], F.rotate(image, angle, interpolation=BILINEAR, expand=True, fill=[10, 20, 30]))
    yield case("rotate_about", [-20.0, 3, 5], F.rotate(image, -20.0, center=[3, 5]))
    affine = [(10.0, 2.0, -3.0, 1.2, 5.0, 0.0), (-35.0, 0.0, 1.0, 0.7, -8.0, 12.0)]
    for angle, dx, dy, scale, sx, sy in affine:
        arguments = [angle, dx, dy, scale, sx, sy]
        options = dict(translate=[dx, dy], scale=scale, shear=[sx, sy])
        yield case("affine", arguments, F.affine(image, angle, **options))
        yield case("affine_bilinear", arguments, F.affine(image, angle, **options, interpolation=BILINEAR))
        yield case("affine_about", arguments, F.affine(image, angle, **options, center=[3, 5]))
    yield case("pad", [2], F.pad(image, [2], fill=7))
    for size in [(5, 8), (16, 8), (5, 18), (13, 20)]:
        yield case("center_crop", list(size), F.center_crop(image, list(size)))
    for size in [(7, 9), (20, 33), (14, 6)]:
        yield case("resize", list(size), F.resize(image, list(size), antialias=True))
    space = RandAugment()._augmentation_space(31, (HEIGHT, WIDTH))
    for bin in [9, 30]:
        for name, (magnitudes, signed) in space.items():
            strength = float(magnitudes[bin]) if magnitudes.ndim else 0.0
            for sign in [1.0, -1.0] if signed else [1.0]:
                changed = _apply_op(image, name, sign * strength, NEAREST, None)
                yield case("augment", [name, bin, sign], changed)


def numbers(x):
    return {"shape": list(x.shape), "data": [float(str(v)) for v in x.to(torch.float32).flatten().numpy()]}


def grays():
    yield numbers(F.to_tensor(F.to_pil_image(picture(HEIGHT, WIDTH)).convert("L")))


def grids():
    for shape, options in [
        ([5, 1, 2, 3], {}), ([5, 3, 2, 3], {"nrow": 2, "padding": 1, "pad_value": 0.5}), ([1, 3, 2, 3], {}), ([2, 3], {}),
        ([3, 3, 2, 2], {"normalize": True}), ([3, 1, 2, 2], {"normalize": True, "scale_each": True, "nrow": 2}),
        ([3, 3, 2, 2], {"normalize": True, "value_range": [1.0, 20.0], "padding": 0}),
    ]:
        x = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
        given = dict(options)
        if "value_range" in given:
            given["value_range"] = tuple(given["value_range"])
        yield {"shape": shape, "options": options, "grid": numbers(make_grid(x, **given))}


def mixed():
    images = torch.arange(3 * 1 * 4 * 5, dtype=torch.float32).reshape(3, 1, 4, 5)
    labels = torch.tensor([0, 2, 1])
    for mix, parameters in [
        (MixUp(num_classes=3), {"lam": 0.25}), (CutMix(num_classes=3), {"box": (1, 0, 4, 2), "lam_adjusted": 1 - 6 / 20}),
    ]:
        mix.make_params = lambda _, parameters=parameters: parameters
        x, y = mix(images, labels)
        yield {"name": type(mix).__name__, "images": numbers(x), "labels": numbers(y)}


OUT.parent.mkdir(exist_ok=True)
head = {"torch": torch.__version__.split("+")[0], "torchvision": torchvision.__version__.split("+")[0], "height": HEIGHT, "width": WIDTH}
parts = {"cases": cases(), "gray": grays(), "grids": grids(), "mixed": mixed()}
with open(OUT, "w") as out:
    out.write(json.dumps(head)[:-1])
    for name, rows in parts.items():
        out.write(f',\n"{name}":[\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "]")
    out.write("}\n")
