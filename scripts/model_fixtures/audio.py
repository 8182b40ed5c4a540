#!/usr/bin/env python3
"""Fixtures of networks for sound, by transformers: crates/models/tests/fixtures.

    python3 -m venv .venv && .venv/bin/pip install torch transformers safetensors
    .venv/bin/python scripts/model_fixtures/audio.py [NAME ...]      # all by default
"""
import sys

import torch
import transformers

import common
from formula import uniform, write_pretrained

TRANSFORMERS = f"transformers {transformers.__version__}"
ALL = {}


def fixture(function):
    ALL[function.__name__] = function
    return function


def sound(rows, samples):
    u = torch.from_numpy(uniform("sound", rows * samples)).float().reshape(rows, samples)
    return u * torch.linspace(0, 6, samples).sin()


@fixture
def whisper():
    config = transformers.WhisperConfig(
        d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=40,
        vocab_size=50, num_mel_bins=10, max_source_positions=9, max_target_positions=12, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1)
    mels = torch.from_numpy(uniform("mels", 2 * 10 * 18)).float().reshape(2, 10, 18)
    ids = torch.tensor([[1, 7, 9, 30, 12, 2], [1, 41, 8, 8, 3, 2]])

    def run(m):
        out = m(input_features=mels, decoder_input_ids=ids)
        loss = torch.nn.functional.cross_entropy(out.logits[:, :-1].reshape(-1, 50), ids[:, 1:].reshape(-1))
        return {"logits": out.logits, "encoded": out.encoder_last_hidden_state, "loss": loss}
    grads = ["model.encoder.conv1.weight", "model.decoder.embed_tokens.weight", "model.decoder.layers.1.encoder_attn.v_proj.bias"]
    write_pretrained("whisper", transformers.WhisperForConditionalGeneration(config), TRANSFORMERS, {"mels": mels, "ids": ids.int()}, run, grads)


@fixture
def mel():
    """The first 40 frames of the spectrogram of a third of a second."""
    x = sound(2, 5000) * 0.3
    outputs = {}
    for bins in (80, 128):
        extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
        features = extractor(list(x.numpy()), sampling_rate=16000, return_tensors="pt").input_features
        assert features.shape == (2, bins, 3000)
        outputs[f"output.mel{bins}"] = features[:, :, :40]
    tensors = {"input.x": x, "output.loss": torch.zeros(())} | outputs
    common.save("mel", tensors, {"reference": f"{TRANSFORMERS} WhisperFeatureExtractor", "config": "{}"})


def wav2vec2_ctc(name, **changes):
    config = transformers.Wav2Vec2Config(
        vocab_size=20, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32, conv_dim=[8, 12, 16], conv_stride=[5, 2, 2],
        conv_kernel=[10, 3, 2], num_conv_pos_embeddings=6, num_conv_pos_embedding_groups=4, **changes)
    x = sound(2, 400)
    grads = ["wav2vec2.feature_extractor.conv_layers.0.layer_norm.weight", "wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original0",
             "lm_head.bias"]
    write_pretrained(name, transformers.Wav2Vec2ForCTC(config), TRANSFORMERS, {"x": x}, lambda m: {"logits": m(x).logits}, grads)


@fixture
def wav2vec2():
    wav2vec2_ctc("wav2vec2")


@fixture
def wav2vec2_stable():
    wav2vec2_ctc("wav2vec2_stable", feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or ALL:
        ALL[name]()
