#!/usr/bin/env python3
"""Fixtures of the networks of latent diffusion, by diffusers: crates/models/tests/fixtures.

    python3 -m venv .venv && .venv/bin/pip install torch diffusers transformers safetensors
    .venv/bin/python scripts/model_fixtures/diffusion.py [NAME ...]      # all by default
"""
import json
import sys

import diffusers
import torch

import common
from formula import image, values, write

DIFFUSERS = f"diffusers {diffusers.__version__}"
ALL = {}


def fixture(function):
    ALL[function.__name__] = function
    return function


def unet(name, size, **changes):
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 24, 32), layers_per_block=1, cross_attention_dim=20, norm_num_groups=8,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"), **changes)
    x, text, times = image(2, 4, *size), values("text", (2, 6, 20)), torch.tensor([3.0, 721.0])
    grads = ["conv_in.weight", "time_embedding.linear_1.bias", "mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight"]
    write(name, model, f"{DIFFUSERS} UNet2DConditionModel", {}, {"x": x, "text": text, "times": times},
          lambda m: {"noise": m(x, times, encoder_hidden_states=text).sample}, grads)


@fixture
def diffusion_unet():
    unet("diffusion_unet", (8, 12), attention_head_dim=4)


@fixture
def diffusion_unet_linear():
    unet("diffusion_unet_linear", (8, 8), attention_head_dim=(2, 3, 4), use_linear_projection=True)


@fixture
def autoencoder_kl():
    model = diffusers.AutoencoderKL(
        block_out_channels=(8, 16), layers_per_block=1, latent_channels=3, norm_num_groups=4, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, sample_size=16)
    x = image(2, 3, 16, 12)

    def run(m):
        latents = m.encode(x).latent_dist
        image = m.decode(latents.mean).sample
        return {"image": image, "mean": latents.mean, "log_variance": latents.logvar}
    grads = ["encoder.conv_in.weight", "decoder.mid_block.attentions.0.to_q.weight", "quant_conv.bias"]
    write("autoencoder_kl", model, f"{DIFFUSERS} AutoencoderKL", {}, {"x": x}, run, grads)


@fixture
def schedulers():
    """A trajectory of each scheduler with Stable Diffusion's betas and a model whose noise is 0.3 x + 0.1 cos(t / 100)."""
    betas = dict(num_train_timesteps=1000, beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    made = {
        "ddim": diffusers.DDIMScheduler(**betas, clip_sample=False, set_alpha_to_one=False, steps_offset=1),
        "euler": diffusers.EulerDiscreteScheduler(**betas, steps_offset=1, timestep_spacing="leading"),
        "dpm_solver": diffusers.DPMSolverMultistepScheduler(**betas),
        "pndm": diffusers.PNDMScheduler(**betas, skip_prk_steps=True, set_alpha_to_one=False, steps_offset=1),
    }
    start = values("start", (1, 4, 4, 4))
    tensors = {"input.start": start, "output.loss": torch.zeros(())}
    for name, scheduler in made.items():
        scheduler.set_timesteps(10)
        x, steps = start * scheduler.init_noise_sigma, []
        for t in scheduler.timesteps:
            scaled = scheduler.scale_model_input(x, t)
            noise = 0.3 * scaled + 0.1 * torch.cos(torch.as_tensor(t).float() / 100)
            x = scheduler.step(noise, t, x).prev_sample
            steps.append(x)
        tensors[f"output.{name}.times"] = scheduler.timesteps.float()
        tensors[f"output.{name}.steps"] = torch.stack(steps)
        noisy = scheduler.add_noise(start, torch.ones_like(start), torch.tensor([int(scheduler.timesteps[4])]))
        tensors[f"output.{name}.noisy"] = noisy
    common.save("schedulers", tensors, {"reference": DIFFUSERS, "config": "{}"})


if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or ALL:
        ALL[name]()
