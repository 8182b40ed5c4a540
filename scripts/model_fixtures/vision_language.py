#!/usr/bin/env python3
"""Fixtures of a model that reads pictures and of its processor, by transformers: crates/models/tests/fixtures.

    python3 -m venv .venv && .venv/bin/pip install torch torchvision transformers safetensors pillow
    .venv/bin/python scripts/model_fixtures/vision_language.py
"""
import json

import torch
import transformers
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil
from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

import common
from formula import image, write_pretrained

VERSION = f"transformers {transformers.__version__}"
TOKEN = 39
VISION = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)
TEXT = dict(model_type="llama", vocab_size=40, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def smolvlm():
    """Two texts, the first with two tiles and the second with one, whose other tile is padding."""
    config = transformers.SmolVLMConfig(vision_config=VISION, text_config=TEXT, scale_factor=2, image_token_id=TOKEN, tie_word_embeddings=False)
    tiles = image(3, 3, 32, 32)
    ids = torch.tensor([[5, 7] + [TOKEN] * 4 + [9] + [TOKEN] * 4 + [11, 3], [8, 6, 4, 30] + [TOKEN] * 4 + [21, 22, 23, 24, 25]])
    pixels = torch.stack([tiles[:2], torch.stack([tiles[2], torch.zeros_like(tiles[2])])])
    labels = ids.masked_fill(ids == TOKEN, -100)

    def run(model):
        out = model(input_ids=ids, pixel_values=pixels, labels=labels, use_cache=False)
        text = model.generate(input_ids=ids[:1, :-2], pixel_values=pixels[:1], max_new_tokens=6, do_sample=False, suppress_tokens=[TOKEN])
        plain = model(input_ids=ids[1:, :4], use_cache=False)
        features = torch.cat(model.get_image_features(pixels).pooler_output)
        return {"logits": out.logits, "features": features, "generated": text[0, -6:].int(), "plain": plain.logits, "loss": out.loss}

    grads = ["model.vision_model.embeddings.patch_embedding.weight", "model.connector.modality_projection.proj.weight",
             "model.text_model.layers.0.self_attn.k_proj.weight"]
    model = transformers.SmolVLMForConditionalGeneration(config)
    write_pretrained("smolvlm", model, VERSION, {"ids": ids.int(), "labels": labels.int(), "tiles": tiles}, run, grads)


def processor():
    """Pictures of several forms as tiles of 32 pixels, with each filter; the values are those of bytes, before they are normalized."""
    tensors, texts = {"output.loss": torch.zeros(())}, {}
    generator = torch.Generator().manual_seed(3)
    for name, (height, width), longest, resample in [("wide", (30, 47), 96, 1), ("high", (101, 20), 96, 3), ("small", (9, 9), 32, 2), ("whole", (25, 40), 64, 1)]:
        smooth = torch.nn.functional.interpolate(torch.rand(1, 3, 5, 5, generator=generator) * 255, (height, width), mode="bilinear")[0]
        pixels = (smooth + 20 * torch.randn(smooth.shape, generator=generator)).clamp(0, 255).round().to(torch.uint8)
        made = SmolVLMImageProcessorPil(size={"longest_edge": longest}, max_image_size={"longest_edge": 32}, resample=resample, do_image_splitting=name != "whole",
                                     image_mean=[0.5, 0.4, 0.3], image_std=[0.5, 0.25, 0.2])
        out = made([[pixels]], return_tensors="pt", return_row_col_info=True)
        tensors |= {f"input.{name}": pixels.permute(1, 2, 0), f"output.{name}": out["pixel_values"][0]}
        around, token, whole = "<fake_token_around_image>", "<image>", "<global-img>"
        texts[name] = get_image_prompt_string(out["rows"][0][0], out["cols"][0][0], 4, around, token, whole)
        texts[f"{name}_config"] = json.dumps(made.to_dict())
    common.save("smolvlm_processor", tensors, {"reference": f"{VERSION} SmolVLMImageProcessorPil", "config": "{}"} | texts)


if __name__ == "__main__":
    smolvlm()
    processor()
