#!/usr/bin/env python3
"""Fixtures of adapters, by peft: crates/models/tests/fixtures/peft_*.safetensors; and a check of folders that Taper wrote.

    .venv/bin/pip install torch transformers safetensors peft
    .venv/bin/python scripts/model_fixtures/peft_adapters.py                 # writes the fixtures
    TAPER_TEST=written=FOLDER cargo test -p taper-models --test it peft::    # Taper writes its folders
    .venv/bin/python scripts/model_fixtures/peft_adapters.py check FOLDER    # peft loads them

A fixture has `adapter.*` (the tensors of adapter_model.safetensors), `weights.*` for the network of convolutions, `input.*`, `output.*` and
`grad.*` for every tensor of the adapter; its metadata has adapter_config.json. The language models are those of the fixtures `llama` and `gpt2`.
"""
import json
import sys
import tempfile
from pathlib import Path

import peft
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from common import randomize, save
from language import CAUSAL, SMALL, ids

ATTENTION = ["q_proj", "v_proj"]
# Name, base model, settings of the adapter.
CASES = {
    "peft_lora": ("llama", dict(r=4, lora_alpha=16, target_modules=ATTENTION + ["down_proj"], rank_pattern={"down_proj": 2},
                                alpha_pattern={"layers.1.mlp.down_proj": 6})),
    "peft_rslora": ("llama", dict(r=4, lora_alpha=8, use_rslora=True, target_modules=["q_proj", "embed_tokens", "lm_head"])),
    "peft_dora": ("llama", dict(r=3, lora_alpha=12, use_dora=True, target_modules=["q_proj", "up_proj", "embed_tokens"])),
    "peft_gpt2": ("gpt2", dict(r=2, lora_alpha=4, use_dora=True, fan_in_fan_out=True, target_modules=["c_attn", "wpe"])),
    "peft_conv": ("convolutions", dict(r=4, lora_alpha=6, target_modules=["first", "second", "head"])),
    # The first of several patterns that fit a layer counts, and `^` is the beginning of the whole path.
    "peft_patterns": ("llama", dict(r=4, lora_alpha=16, target_modules=["q_proj", "down_proj"], rank_pattern={"^q_proj": 1, r".*\.0\..*_proj": 3, "q_proj": 2},
                                    alpha_pattern={"(down|up)_proj": 6, "^down_proj": 50, "layers.1.mlp.down_proj": 8, "model.layers.1.self_attn.q_proj$": 5})),
    # Biases and modules of the model that are trained with the adapter.
    "peft_saved": ("convolutions", dict(r=4, lora_alpha=6, target_modules=["first"], bias="lora_only", lora_bias=True, modules_to_save=["head"])),
    "peft_biases": ("convolutions", dict(r=4, lora_alpha=6, target_modules=["head"], bias="all")),
    "peft_conv_dora": ("convolutions", dict(r=4, lora_alpha=6, use_dora=True, target_modules=["first", "head"])),
}


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.second = torch.nn.Conv2d(8, 4, 3, groups=2, bias=False)
        self.head = torch.nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.second(torch.relu(self.first(x))).mean((2, 3)))


def base(name):
    if name == "convolutions":
        model = Convolutions()
    else:
        model_type, changes, _ = CAUSAL[name]
        config = AutoConfig.for_model(model_type, **(SMALL | changes))
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model.eval().float()
    randomize(model)
    return model


def run(name, model):
    """The input, the outputs and a loss."""
    if name == "convolutions":
        x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(2))
        logits = model(x)
        return {"x": x}, logits, logits.square().mean()
    tokens = ids()
    out = model(input_ids=tokens, labels=tokens, use_cache=False)
    return {"ids": tokens.int()}, out.logits, out.loss


def plain(key):
    """The name of a tensor in the model, without PEFT's wrappers and the adapter's name."""
    for part in (".modules_to_save", ".default", ".base_layer"):
        key = key.replace(part, "")
    return key.removesuffix(".weight") if "magnitude" in key else key


def fixture(name):
    base_name, settings = CASES[name]
    model = base(base_name)
    weights = {f"weights.{key}": value.clone() for key, value in model.state_dict().items()} if base_name == "convolutions" else {}
    model = get_peft_model(model, LoraConfig(**settings))
    generator = torch.Generator().manual_seed(3)
    adapted = [(key, p) for key, p in model.named_parameters() if p.requires_grad]
    with torch.no_grad():
        for key, parameter in adapted:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.add_(0.1 * noise) if "magnitude" in key else parameter.copy_(0.3 * noise)
    inputs, logits, loss = run(base_name, model)
    loss.backward()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(Path(folder) / "adapter_model.safetensors")
        config = (Path(folder) / "adapter_config.json").read_text()
    gradients = {plain(key): p.grad for key, p in adapted}
    wanted = {plain(key) for key in tensors if not key.endswith("base_layer.weight")}
    assert set(gradients) == wanted, (sorted(gradients), sorted(wanted))
    everything = weights | {f"adapter.{key}": value for key, value in tensors.items()} | {f"grad.{key}": value for key, value in gradients.items()}
    everything |= {f"input.{key}": value for key, value in inputs.items()} | {"output.logits": logits, "output.loss": loss}
    save(name, everything, {"config": config, "base": base_name, "model": name, "reference": f"peft {peft.__version__}"})


def check(folder):
    """Loads the folders that Taper wrote, and compares the logits that Taper computed with them."""
    for name, (base_name, _) in CASES.items():
        model = PeftModel.from_pretrained(base(base_name), Path(folder) / name)
        expected = load_file(Path(folder) / f"{name}.safetensors")["logits"]
        _, logits, _ = run(base_name, model.eval())
        difference = ((logits - expected).abs().max() / expected.abs().max()).item()
        assert difference < 1e-4, f"{name}: {difference}"
        print(f"{name}: {len(get_peft_model_state_dict(model))} tensors, difference {difference:.1e}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check(sys.argv[2])
    else:
        for each in sys.argv[1:] or CASES:
            fixture(each)
