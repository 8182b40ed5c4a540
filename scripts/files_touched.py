#!/usr/bin/env python3
"""How many files a change touches: real changes of this repository, counted from its history.

    python3 scripts/files_touched.py            # the table, as Markdown
    python3 scripts/files_touched.py --files    # and the files of each row

Only files under src and tests of crates/* and tools/*, and under shaders count: no documents, manifests or scripts. A change that
took several commits is their union. A new row is a line in CHANGES: commits are named by how their subjects begin, or as a range
`from..to` of any two names that git knows.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

# The kind of change, its subject, and its commits. A kind without commits is listed as such.
CHANGES = [
    ("a unary operation", "sinc, with its gradient, on every backend", ["sinc, by a formula"]),
    (
        "a formula of an operation",
        "floor division is Python's, on the CPU",
        ["backend-cpu: floor_divide is Python's, by the exact remainder"],
    ),
    (
        "kernels with their gradients",
        "cumulative operations and sorting (3 kernels): graph, reference",
        ["Cumulative operations and sorting as operations and kernels; the reference computes them"],
    ),
    (
        "kernels with their gradients",
        "the same: CPU, gradients",
        ["The CPU's cumulative operations and sorting; their gradients"],
    ),
    (
        "kernels with their gradients",
        "the same: wgpu",
        ["backend-wgpu: cumulative operations and sorting, in both forms"],
    ),
    (
        "kernels with their gradients",
        "the same: all of it, with its tests",
        [
            "Cumulative operations and sorting as operations and kernels; the reference computes them",
            "The CPU's cumulative operations and sorting; their gradients",
            "backend-wgpu: cumulative operations and sorting, in both forms",
            "Cumulative operations and sorting against the reference and PyTorch",
            "backend-wgpu: tests of cumulative operations and sorts, at random layouts and in windows",
        ],
    ),
    (
        "operations that are compositions",
        "convolutions, their transposes and pooling, with gradients, on every backend",
        ["nn: convolutions and pooling over windows", "taper: convolutions and pooling held to loops and differences on every device"],
    ),
    (
        "formulas",
        "inverse trigonometric functions and others (15), with the mechanism that plans them",
        ["Inverse trigonometric and hyperbolic functions, erfc, erfinv"],
    ),
    (
        "a native kernel",
        "grid_sample, on the CPU; other devices keep the composition",
        ["cpu: images are read at the places of a grid by a kernel of their own"],
    ),
    (
        "a native kernel",
        "recurrent steps, Fourier transforms, max pooling, distances, binary search (5), in WGSL",
        ["wgpu: kernels for recurrent steps, Fourier transforms, max pooling, distances and binary search"],
    ),
    (
        "block formats",
        "GGUF's and groups of small integers, with the mechanism that decodes them",
        ["Tensors in blocks: GGUF's formats and groups of small integers, decoded where kernels load them"],
    ),
    (
        "ONNX operators",
        "GatherBlockQuantized, FusedConv, QLinearReduceMean, and groups of MatMulNBits",
        ["ONNX: GatherBlockQuantized, FusedConv, QLinearReduceMean"],
    ),
    ("architectures", "BART and mBART, Mamba, RWKV-7", ["models: BART and mBART, Mamba, RWKV-7"]),
    (
        "adapters",
        "LoRA and DoRA, with losses for fine-tuning and optimizer states in 8 bits",
        ["nn: LoRA and DoRA adapters on linear, embedding and convolution layers"],
    ),
    (
        "element types",
        "eight at once on the CPU, with the table that made a type one row (docs/design.md counts the files of one type)",
        ["Element types are one table; i8, i16, u16, u64 and 8-bit floats on the CPU"],
    ),
    (
        "layers",
        "activations, norms, paddings, resizing, adaptive pools, dropout of channels",
        ["nn: activations, norms, paddings, resizing, adaptive pools and dropout of channels"],
    ),
    ("optimizers", "ASGD and Rprop", ["optim: Asgd and Rprop"]),
    (
        "a backend in the tree",
        "wgpu, and what it needed elsewhere",
        [
            "backend-wgpu: features and dependencies",
            "The wgpu backend: pool, one open command buffer, pipelines by source",
            "backend-wgpu: memory, command batches, kernels as WGSL; shaders",
            "backend-wgpu: tests of every kernel against the reference, faults, memory",
            "backend-wgpu: lints; generated shaders validated without a device",
        ],
    ),
]

COUNTED = re.compile(r"((?:crates|tools)/[^/]+/(src|tests)|shaders)/.*\.(rs|wgsl)$")
ROOT = Path(__file__).resolve().parent.parent


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commit(subject):
    """The one commit, no merge, whose subject begins so."""
    log = git("log", "--no-merges", "--format=%H %s").splitlines()
    found = [line.split(" ", 1)[0] for line in log if line.split(" ", 1)[1].startswith(subject)]
    if len(found) != 1:
        sys.exit(f"{len(found)} commits begin with {subject!r}: CHANGES must name exactly one")
    return found[0]


def touched(name):
    """Files that a commit or a range touches, each with what became of it: A(dded), M(odified) …"""
    options = ["--no-renames", "--name-status", "--format="]
    is_range = re.fullmatch(r"[^\s]+\.\.[^\s]+", name)
    lines = git("log", "--no-merges", *options, name) if is_range else git("show", *options, commit(name))
    return [tuple(line.split("\t", 1)[::-1]) for line in lines.splitlines() if line]


def union(names):
    """Files by path; one that any of the commits added is new."""
    files = {}
    for name in names:
        for path, status in touched(name):
            if COUNTED.match(path):
                files[path] = "A" if "A" in (status, files.get(path)) else "M"
    return files


def crates(files):
    owner = lambda path: path.split("/")[1] if path.startswith(("crates/", "tools/")) else "shaders"
    counts = {}
    for path in files:
        counts[owner(path)] = counts.get(owner(path), 0) + 1
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def main():
    arguments = argparse.ArgumentParser(description="How many files a change touches, by this repository's history.")
    arguments.add_argument("--files", action="store_true", help="list the files of each change after the table")
    arguments = arguments.parse_args()
    rows = [(kind, what, union(names), bool(names)) for kind, what, names in CHANGES]
    print("Files under `src` and `tests` of `crates/*` and `tools/*`, and under `shaders` (`.rs`, `.wgsl`); nothing else counts.\n")
    print("| change | which | edited in src | new in src | in tests | by crate |")
    print("|---|---|---:|---:|---:|---|")
    for kind, what, files, real in rows:
        if not real:
            print(f"| {kind} | {what} | | | | |")
            continue
        tests = [path for path in files if "/tests/" in path]
        source = {path: status for path, status in files.items() if path not in tests}
        new = sum(status == "A" for status in source.values())
        print(f"| {kind} | {what} | {len(source) - new} | {new} | {len(tests)} | {crates(files)} |")
    if arguments.files:
        for _, what, files, _ in rows:
            print(f"\n{what}:", *(f"\n  {status} {path}" for path, status in sorted(files.items())), sep="")


if __name__ == "__main__":
    main()
