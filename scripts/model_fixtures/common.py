"""Writes a fixture: a small model with random weights by the reference, its outputs, a loss, gradients.

A fixture is one safetensors file, crates/models/tests/fixtures/NAME.safetensors. Its tensors are `weights.*` under the reference's names,
`input.*`, `output.*` (with `output.loss`) and `grad.*` for three parameters. Its metadata has `config` (the reference's config.json),
`model` and `reference` (the class and version), which docs/models.md shows.
"""
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

FIXTURES = Path(__file__).resolve().parent.parent.parent / "crates/models/tests/fixtures"
LIMIT = 200_000


def randomize(model, seed=0, deviation=0.1):
    """Gives every parameter and buffer of floats numbers that no initial value hides: norms are near 1, biases not 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            centre = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
            spread = deviation if parameter.ndim == 1 else max(deviation, parameter[0].numel() ** -0.5)
            parameter.copy_(centre + spread * noise)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
            if name.endswith("running_var"):
                buffer.copy_(1.0 + 0.2 * torch.rand(buffer.shape, generator=generator))


def write(name, model, reference, config, state, inputs, outputs, loss, parameters):
    """Writes the fixture; `parameters` are the three names whose gradients are kept."""
    named = {key.replace(".mlp.", ".block_sparse_moe.") if "mixtral" in name else key: p for key, p in model.named_parameters()}
    model.zero_grad()
    loss.backward()
    tensors = {f"weights.{key}": value for key, value in state.items()}
    tensors |= {f"input.{key}": value for key, value in inputs.items()}
    tensors |= {f"output.{key}": value for key, value in outputs.items()}
    tensors["output.loss"] = loss
    tensors |= {f"grad.{key}": named[key].grad for key in parameters}
    save(name, tensors, {"config": json.dumps(config), "model": name, "reference": reference})


def save(name, tensors, metadata):
    """Writes tensors and metadata to the fixture of this name."""
    tensors = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
    path = FIXTURES / f"{name}.safetensors"
    path.parent.mkdir(exist_ok=True)
    save_file(tensors, path, metadata)
    size = path.stat().st_size
    assert size < LIMIT, f"{path} has {size} bytes"
    print(f"{path.name}: {size} bytes, loss {tensors['output.loss'].item():.4f}")
