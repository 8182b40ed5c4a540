"""Writes a fixture of a model whose weights do not fit into a small file: both sides compute them by one formula.

Element i of the tensor NAME is u = 2 x / 2^24 - 1 with x = the upper 24 bits of splitmix64(fnv1a64(NAME) + i). Then, by the tensor's shape
and name (crates/models/tests/it/common/formula.rs has the same):
- fewer than two axes: running_var 1 + u / 2, running_mean u / 10, the name ends with `weight`, `gamma` or `lambda1` 1 + u / 5, others u / 10;
- otherwise u * sqrt(g / n) with n = elements / size of the first axis, and g = 3 for matrices, which gives a variance of 1 / n, and 6 for
  more axes, which keeps the size of signals through ReLU.
Integers and constant tables of the model are in the file, as `weights.*`.
"""
import json
import math
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import common

MASK = (1 << 64) - 1


def fnv1a64(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def uniform(name, count):
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(fnv1a64(name))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / 2**23 - 1.0


def values(name, shape):
    count = math.prod(shape)
    u = uniform(name, count)
    if len(shape) < 2:
        if name.endswith("running_var"):
            u = 1 + u / 2
        elif name.endswith(("weight", "gamma", "lambda1")):
            u = 1 + u / 5
        else:
            u = u / 10
    else:
        u = u * math.sqrt((3 if len(shape) == 2 else 6) / (count // shape[0]))
    return torch.from_numpy(u.astype(np.float32)).reshape(shape)


def fill(model):
    """Sets every float of the state dict, except for constant tables."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.dtype.is_floating_point and not name.endswith("relative_coords_table"):
                tensor.copy_(values(name, tensor.shape))


def image(*shape):
    return values("input", (shape[0], math.prod(shape[1:]))).reshape(shape) * math.sqrt(math.prod(shape[1:]) / 3)


def write(name, model, reference, config, inputs, run, parameters, state=None, kept=()):
    """Writes the fixture of `model`; `run(model)` gives its outputs by name. The loss is the mean square of the first, unless one is `loss`.

    The gradients of `parameters` are written: a list of names, or a dict whose values are None or functions from all named parameters to
    the gradient. `state` is the model's state under the names of files, if these differ; the model has its values then. The tensors with the names in
    `kept` are written to the file, because they are not those of the formula.
    """
    if state is None:
        fill(model)
        state = model.state_dict()
    model.eval()
    outputs = run(model)
    loss = outputs.pop("loss") if "loss" in outputs else next(iter(outputs.values())).square().mean()
    model.zero_grad()
    loss.backward()
    named = dict(model.named_parameters())
    tensors = {f"input.{key}": value for key, value in inputs.items()}
    tensors |= {f"output.{key}": value for key, value in outputs.items()}
    tensors["output.loss"] = loss
    tensors |= {f"grad.{key}": of(named) if (of := getattr(parameters, "get", lambda _: None)(key)) else named[key].grad for key in parameters}
    shapes = {key: list(value.shape) for key, value in state.items()}
    whole = {f"weights.{key}": value for key, value in state.items()
             if not value.dtype.is_floating_point or key.endswith("relative_coords_table") or key in kept}
    common.save(name, tensors | whole, dict(config=json.dumps(config), model=name, reference=reference, formula=json.dumps(shapes)))


def write_pretrained(name, model, reference, inputs, run, parameters, change=lambda state: ({}, state)):
    """As `write`, for a model of transformers, whose files may have other names than its parameters in memory.

    `change` gives tensors that are kept in the fixture, and the state that transformers loads in place of them."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = f"{folder}/model.safetensors"
        state = {key: values(key, value.shape) for key, value in load_file(path).items()}
        kept, loaded = change(state)
        save_file(loaded, path, {"format": "pt"})
        model = type(model).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    state = {key: value for key, value in state.items() if key in loaded and loaded[key] is value} | kept
    config = {key: value for key, value in model.config.to_dict().items() if key != "_name_or_path"}
    write(name, model, f"{reference} {type(model).__name__}", config, inputs, run, parameters, state, kept)
