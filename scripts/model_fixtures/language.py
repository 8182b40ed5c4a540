#!/usr/bin/env python3
"""Fixtures of language models, by transformers: crates/models/tests/fixtures.

    python3 -m venv .venv && .venv/bin/pip install torch transformers safetensors rwkv
    .venv/bin/python scripts/model_fixtures/language.py [NAME ...]      # all by default
"""
import json
import os
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

import formula
from common import randomize, save, write
from formula import values

VERSION = f"transformers {transformers.__version__}"
SMALL = dict(vocab_size=40, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA_GRADS = ["model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.down_proj.weight"]
PHI_GRADS = ["model.embed_tokens.weight", "model.layers.0.self_attn.qkv_proj.weight", "model.layers.1.mlp.down_proj.weight"]
WINDOW = dict(sliding_window=4)


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=1e4, **more))


NEOX_GRADS = ["gpt_neox.embed_in.weight", "gpt_neox.layers.0.attention.query_key_value.weight", "gpt_neox.layers.1.mlp.dense_4h_to_h.weight"]
GPT2_GRADS = ["transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.h.1.mlp.c_proj.weight"]
MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12)
MOE_GRADS = LLAMA_GRADS[:2] + ["model.layers.1.mlp.gate.weight"]
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_positions=64)

# Name, model_type, changes of SMALL, parameters with gradients.
CAUSAL = {
    "llama": ("llama", {}, LLAMA_GRADS),
    "llama_biases": ("llama", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=6), LLAMA_GRADS),
    "llama3_rope": ("llama", rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32), LLAMA_GRADS),
    "llama_linear_rope": ("llama", rope("linear", factor=4.0), LLAMA_GRADS),
    "llama_dynamic_rope": ("llama", dict(max_position_embeddings=8) | rope("dynamic", factor=4.0), LLAMA_GRADS),
    "llama_yarn_rope": ("llama", rope("yarn", factor=4.0, original_max_position_embeddings=16), LLAMA_GRADS),
    "mistral": ("mistral", WINDOW, LLAMA_GRADS),
    "qwen2": ("qwen2", dict(use_sliding_window=True, max_window_layers=1, tie_word_embeddings=True) | WINDOW, LLAMA_GRADS),
    "qwen3": ("qwen3", dict(head_dim=12), LLAMA_GRADS),
    "gemma": ("gemma", dict(head_dim=12), LLAMA_GRADS),
    "gemma2": ("gemma2", dict(head_dim=12, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, query_pre_attn_scalar=9) | WINDOW, LLAMA_GRADS),
    "gemma3": ("gemma3_text", dict(head_dim=12, query_pre_attn_scalar=9, layer_types=["sliding_attention", "full_attention"]) | WINDOW, LLAMA_GRADS),
    "phi3": ("phi3", dict(sliding_window=6), PHI_GRADS),
    "phi3_longrope": ("phi3", dict(max_position_embeddings=64, original_max_position_embeddings=8) | rope(
        "longrope", short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.0], original_max_position_embeddings=8), PHI_GRADS),
    "mixtral": ("mixtral", dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=12),
                LLAMA_GRADS[:2] + ["model.layers.1.block_sparse_moe.gate.weight"]),
    "qwen2_moe": ("qwen2_moe", MOE | dict(shared_expert_intermediate_size=10, num_hidden_layers=2), MOE_GRADS),
    "qwen3_moe": ("qwen3_moe", MOE | dict(head_dim=8, norm_topk_prob=True, mlp_only_layers=[0], intermediate_size=16), MOE_GRADS),
    "gpt2": ("gpt2", GPT2, GPT2_GRADS),
    "gpt_neox": ("gpt_neox", dict(rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)), NEOX_GRADS),
    "gpt_neox_sequential": ("gpt_neox", dict(use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True,
                                             rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0)), NEOX_GRADS),
}


ATTENTION_GRADS = LLAMA_GRADS[1:2]
LATENT = dict(kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, num_key_value_heads=4)
GROUPED = dict(n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, moe_intermediate_size=12, first_k_dense_replace=1,
               routed_scaling_factor=1.5, num_hidden_layers=3)


DELTA = dict(head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6, linear_value_head_dim=5,
             layer_types=["linear_attention", "full_attention"], rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))


def yarn(**more):
    return rope("yarn", factor=4.0, original_max_position_embeddings=16, **more)


def gate_up(layer, expert, first):
    """The gradient of an expert's gate (0) or up (1) projection, where one parameter has both for all experts."""
    return lambda named: named[f"model.layers.{layer}.mlp.experts.gate_up_proj"].grad[expert].chunk(2)[first]


def expert_grads(layer, *others):
    return dict.fromkeys(others) | {f"model.layers.{layer}.mlp.experts.1.up_proj.weight": gate_up(layer, 1, 1)}


# As CAUSAL, with weights by the formula of formula.py.
BY_FORMULA = {
    "gpt_oss": ("gpt_oss", dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, intermediate_size=12, swiglu_alpha=1.5,
                                swiglu_limit=0.3, sliding_window=4) | yarn(truncate=False),
                {"model.layers.0.self_attn.sinks": None, "model.layers.1.mlp.router.bias": None, "model.layers.0.mlp.experts.1.up_proj.weight":
                 lambda named: named["model.layers.0.mlp.experts.gate_up_proj"].grad[1][:, 1::2].T}),
    "glm4": ("glm4", dict(head_dim=12, attention_bias=True),
             ["model.layers.0.self_attn.k_proj.bias", "model.layers.1.mlp.gate_up_proj.weight", "model.layers.0.post_self_attn_layernorm.weight"]),
    "glm4_moe": ("glm4_moe", GROUPED | dict(head_dim=12, attention_bias=True, use_qk_norm=True, num_mtp_layers=0),
                 expert_grads(1, "model.layers.2.mlp.gate.weight", "model.layers.0.self_attn.q_norm.weight")),
    "deepseek_v2": ("deepseek_v2", GROUPED | LATENT | dict(q_lora_rank=None, n_shared_experts=2, topk_method="group_limited_greedy")
                    | yarn(mscale=0.7, mscale_all_dim=0.9),
                    expert_grads(1, "model.layers.2.mlp.gate.weight", "model.layers.0.self_attn.kv_b_proj.weight")),
    "deepseek_v3": ("deepseek_v3", GROUPED | LATENT | dict(q_lora_rank=12, num_mtp_layers=0) | yarn(mscale=1.0, mscale_all_dim=1.0),
                    ["model.layers.2.mlp.gate.weight", "model.layers.0.self_attn.kv_a_layernorm.weight", "model.layers.1.self_attn.q_a_proj.weight"]),
    "olmo2": ("olmo2", {}, LLAMA_GRADS[:2] + ["model.layers.0.self_attn.q_norm.weight"]),
    "olmo3": ("olmo3", dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=1e4),
        full_attention=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16))), LLAMA_GRADS),
    "granite": ("granite", dict(embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=2.0), LLAMA_GRADS),
    "lfm2": ("lfm2", dict(num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], block_multiple_of=8, tie_word_embeddings=True),
             ["model.layers.0.conv.conv.weight", "model.layers.1.self_attn.k_layernorm.weight", "model.layers.2.feed_forward.w1.weight"]),
    "lfm2_moe": ("lfm2_moe", dict(num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], num_experts=4, num_experts_per_tok=2,
                                  num_dense_layers=1, moe_intermediate_size=12, conv_bias=True, tie_word_embeddings=True),
                 ["model.layers.0.conv.conv.bias", "model.layers.1.feed_forward.gate.weight", "model.embed_tokens.weight"]),
    "qwen3_5": ("qwen3_5_text", DELTA, ["model.layers.0.linear_attn.conv1d.weight", "model.layers.0.linear_attn.A_log",
                                        "model.layers.1.self_attn.q_proj.weight"]),
    "qwen3_5_moe": ("qwen3_5_moe_text", DELTA | MOE | dict(shared_expert_intermediate_size=10),
                    ["model.layers.0.linear_attn.in_proj_a.weight", "model.layers.0.linear_attn.dt_bias", "model.layers.1.mlp.gate.weight"]),
    "qwen3_next": ("qwen3_next", DELTA | MOE | dict(shared_expert_intermediate_size=10, norm_topk_prob=True),
                   ["model.layers.0.linear_attn.in_proj_ba.weight", "model.layers.0.linear_attn.norm.weight", "model.layers.1.mlp.gate.weight"]),
    "gemma4": ("gemma4_text", dict(num_hidden_layers=6, head_dim=8, global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True,
                                   num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=6, vocab_size_per_layer_input=40,
                                   layer_types=["sliding_attention", "full_attention"] * 3, final_logit_softcapping=3.0, tie_word_embeddings=True,
                                   rope_parameters=dict(
                                       sliding_attention=dict(rope_type="default", rope_theta=1e4),
                                       full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=1e4))) | WINDOW,
               ["model.layers.3.self_attn.k_proj.weight", "model.embed_tokens_per_layer.weight", "model.layers.5.mlp.gate_proj.weight"]),
    "gemma4_dense": ("gemma4_text", dict(head_dim=8, global_head_dim=12, hidden_size_per_layer_input=0,
                                         layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=True) | WINDOW,
                     ["model.layers.0.self_attn.v_proj.weight", "model.layers.1.self_attn.q_norm.weight", "model.embed_tokens.weight"]),
    "gemma4_moe": ("gemma4_text", dict(head_dim=8, global_head_dim=12, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=4,
                                       top_k_experts=2, moe_intermediate_size=12, layer_types=["sliding_attention", "full_attention"],
                                       tie_word_embeddings=True) | WINDOW,
                   ["model.layers.0.router.scale", "model.layers.1.router.per_expert_scale", "model.layers.1.pre_feedforward_layernorm_2.weight"]),
    "smollm3": ("smollm3", dict(no_rope_layer_interval=2, tie_word_embeddings=True), LLAMA_GRADS),
}


def by_formula(name, of=None, also={}, other_grads=None, **more):
    """The fixture `name`, with the row `of` of BY_FORMULA, other sizes and other parameters with gradients."""
    model_type, changes, grads = BY_FORMULA[of or name]
    config = AutoConfig.for_model(model_type, **(SMALL | changes | also))
    tokens = ids(length=20 if "linear_attention" in (getattr(config, "layer_types", None) or []) else 12)

    def run(model):
        out = model(tokens, labels=tokens, use_cache=False)
        return {"logits": out.logits, "loss": out.loss}

    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    formula.write_pretrained(name, model, VERSION, {"ids": tokens.int()}, run, other_grads or grads, **more)


def gemma4(name):
    """The factors of layers and routers are near 1 in released models; those of the formula are so small that they lose digits."""
    def change(state):
        kept = {key: torch.tensor([0.8 + 0.1 * k]) for k, key in enumerate(key for key in state if key.endswith("layer_scalar"))}
        kept |= {key: 1 + 3 * value for key, value in state.items() if key.endswith(("router.scale", "per_expert_scale"))}
        return kept, state | kept

    by_formula(name, change=change)


def mxfp4():
    """gpt-oss as it is released: the weights of experts in blocks of MXFP4, which transformers decodes."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    def change(state):
        kept, loaded = {}, dict(state)
        generator = torch.Generator().manual_seed(2)
        for name in [name for name in state if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            experts, inputs, outputs = state[name].shape
            blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=generator, dtype=torch.uint8)
            scales = torch.randint(122, 126, (experts, outputs, inputs // 32), generator=generator, dtype=torch.uint8)
            kept |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            loaded[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
            assert loaded[name].shape == state[name].shape
        return kept, loaded

    grads = {"model.layers.0.self_attn.sinks": None, "model.layers.1.mlp.router.bias": None, "model.layers.0.mlp.experts.1.up_proj.bias":
             lambda named: named["model.layers.0.mlp.experts.gate_up_proj_bias"].grad[1][1::2]}
    by_formula("gpt_oss_mxfp4", "gpt_oss", dict(intermediate_size=32), grads, change=change)


def released(name, value, model_type):
    """The names in released files: one tensor for each expert and projection, and GPT-NeoX's own name of its output layer."""
    if model_type == "gpt_neox":
        name = name.replace("lm_head.", "embed_out.")
    if ".experts." not in name:
        return {name.replace(".mlp.", ".block_sparse_moe.") if model_type == "mixtral" else name: value}
    base = name.rsplit(".", 1)[0].replace(".mlp.", ".block_sparse_moe.") if model_type == "mixtral" else name.rsplit(".", 1)[0]
    gate, up, down = ("w1", "w3", "w2") if model_type == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    found = {}
    for k, expert in enumerate(value):
        if name.endswith("gate_up_proj"):
            found[f"{base}.{k}.{gate}.weight"], found[f"{base}.{k}.{up}.weight"] = expert.chunk(2)
        else:
            found[f"{base}.{k}.{down}.weight"] = expert
    return found


def ids(rows=2, length=12, vocab=40):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, vocab, (rows, length), generator=generator)


def causal(name):
    model_type, changes, grads = CAUSAL[name]
    config = AutoConfig.for_model(model_type, **(SMALL | changes))
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    randomize(model)
    if model_type.startswith("gemma"):  # these norms multiply by 1 + weight
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if parameter.ndim == 1:
                    parameter.sub_(1.0)
    tokens = ids()
    out = model(tokens, labels=tokens, use_cache=False)
    state = {k: v for k, v in model.state_dict().items() if not (k in ("lm_head.weight", "embed_out.weight") and config.tie_word_embeddings)}
    state = {new: part for k, v in state.items() for new, part in released(k, v, model_type).items()}
    write(name, model, f"{VERSION} {type(model).__name__}", config.to_dict(), state, {"ids": tokens.int()}, {"logits": out.logits}, out.loss, grads)


ENCODER = dict(vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, max_position_embeddings=64,
               hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=1)
DISTIL = dict(vocab_size=40, dim=32, n_layers=2, n_heads=4, hidden_dim=40, max_position_embeddings=64, dropout=0.0, attention_dropout=0.0,
              pad_token_id=1)


MODERN = dict(vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=24, max_position_embeddings=64,
              local_attention=6, pad_token_id=1, bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2)


def encoder(name, model_type, head):
    """A batch whose second row has 3 tokens of padding. A masked language model is scored on all tokens."""
    small = MODERN if model_type == "modernbert" else DISTIL if model_type == "distilbert" else ENCODER
    config = AutoConfig.for_model(model_type, **small, num_labels=3)
    model = (AutoModelForSequenceClassification if head == "classifier" else AutoModelForMaskedLM).from_config(config).eval().float()
    randomize(model)
    tokens = ids()
    mask = torch.ones_like(tokens)
    tokens[1, -3:], mask[1, -3:] = 1, 0
    labels = torch.tensor([2, 0]) if head == "classifier" else ids().flip(0)
    logits = model(input_ids=tokens, attention_mask=mask).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
    tied = [] if head == "classifier" else ["cls.predictions.decoder.", "lm_head.decoder.", "vocab_projector.weight", "decoder.weight"]
    state = {k: v for k, v in model.state_dict().items() if not any(k.startswith(t) for t in tied) and "position_ids" not in k}
    prefix = "roberta" if model_type == "roberta" else model_type
    part = "transformer.layer.1.ffn.lin1.weight" if model_type == "distilbert" else "encoder.layer.1.intermediate.dense.weight"
    query = "transformer.layer.0.attention.q_lin.bias" if model_type == "distilbert" else "encoder.layer.0.attention.self.query.bias"
    grads = [f"{prefix}.{k}" for k in ("embeddings.word_embeddings.weight", query, part)]
    if model_type == "modernbert":
        grads = ["model.embeddings.tok_embeddings.weight", "model.layers.1.attn.Wqkv.weight", "model.layers.2.mlp.Wi.weight"]
    write(name, model, f"{VERSION} {type(model).__name__}", config.to_dict(), state, {"ids": tokens.int(), "mask": mask.int(), "labels": labels.int()},
          {"logits": logits}, loss, grads)


T5 = dict(vocab_size=40, d_model=24, d_kv=8, d_ff=24, num_layers=2, num_heads=3, relative_attention_num_buckets=8, relative_attention_max_distance=10,
          dropout_rate=0.0, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)


def t5(name, changes):
    config = AutoConfig.for_model("t5", **(T5 | changes))
    model = AutoModelForSeq2SeqLM.from_config(config).eval().float()
    randomize(model)
    tokens, answer = ids(), ids(length=7).flip(0)
    mask = torch.ones_like(tokens)
    mask[1, -3:] = 0
    start = torch.cat([torch.zeros_like(answer[:, :1]), answer[:, :-1]], 1)
    out = model(input_ids=tokens, attention_mask=mask, decoder_input_ids=start, use_cache=False)
    loss = torch.nn.functional.cross_entropy(out.logits.reshape(-1, 40), answer.reshape(-1))
    text = [0]
    for _ in range(6):
        logits = model(input_ids=torch.tensor([[5, 9, 30, 7]]), decoder_input_ids=torch.tensor([text]), use_cache=False).logits
        text.append(logits[0, -1].argmax().item())
    tied = ("embed_tokens.weight",) + (("lm_head.weight",) if config.tie_word_embeddings else ())
    state = {k: v for k, v in model.state_dict().items() if not k.endswith(tied)}
    grads = ["shared.weight", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", "decoder.block.0.layer.1.EncDecAttention.k.weight"]
    write(name, model, f"{VERSION} {type(model).__name__}", config.to_dict(), state,
          {"ids": tokens.int(), "mask": mask.int(), "labels": answer.int(), "decoder_ids": start.int()},
          {"logits": out.logits, "generated": torch.tensor(text[1:]).int()}, loss, grads)


BART = dict(vocab_size=40, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=4, encoder_ffn_dim=32,
            decoder_ffn_dim=40, max_position_embeddings=30, dropout=0.0, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
            forced_eos_token_id=None)


def bart(model_type, changes):
    """The second text has 3 tokens of padding. The texts that it generates answer to one without."""
    config = AutoConfig.for_model(model_type, **(BART | changes))
    model = AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").eval().float()
    randomize(model)
    with torch.no_grad():
        model.final_logits_bias.copy_(0.3 * torch.randn(model.final_logits_bias.shape, generator=torch.Generator().manual_seed(2)))
    tokens, answer = ids(), ids(length=7).flip(0)
    mask = torch.ones_like(tokens)
    tokens[1, -3:], mask[1, -3:] = 1, 0
    start = torch.cat([torch.full_like(answer[:, :1], 2), answer[:, :-1]], 1)
    out = model(input_ids=tokens, attention_mask=mask, decoder_input_ids=start, use_cache=False)
    loss = torch.nn.functional.cross_entropy(out.logits.reshape(-1, 40), answer.reshape(-1))
    asked = torch.tensor([[0, 5, 9, 30, 7, 2]])
    settings = dict(max_new_tokens=8, do_sample=False, forced_bos_token_id=None)
    generated = model.generate(asked, num_beams=1, **settings)[0, 1:]
    beam = model.generate(asked, num_beams=3, length_penalty=1.0, early_stopping=False, **settings)[0, 1:]
    tied = ("embed_tokens.weight", "lm_head.weight")
    state = {k: v for k, v in model.state_dict().items() if not k.endswith(tied)}
    grads = ["model.shared.weight", "model.encoder.embed_positions.weight", "model.decoder.layers.1.encoder_attn.k_proj.weight"]
    write(model_type, model, f"{VERSION} {type(model).__name__}", config.to_dict(), state,
          {"ids": tokens.int(), "mask": mask.int(), "labels": answer.int(), "decoder_ids": start.int(), "asked": asked.int()},
          {"logits": out.logits, "generated": generated.int(), "beam": beam.int()}, loss, grads)


MAMBA = dict(vocab_size=40, hidden_size=24, state_size=5, num_hidden_layers=2, conv_kernel=4, time_step_rank=3, bos_token_id=1, eos_token_id=2,
             pad_token_id=0)


def mamba(name, changes):
    """The padding of `padded` is at the left of its second row, whose logits are those of the last position."""
    config = AutoConfig.for_model("mamba", **(MAMBA | changes))
    model = AutoModelForCausalLM.from_config(config).eval().float()
    randomize(model)
    tokens = ids()
    out = model(tokens, labels=tokens, use_cache=False)
    padded, mask = tokens.clone(), torch.ones_like(tokens)
    padded[1, :5], mask[1, :5] = 0, 0
    last = model(padded, attention_mask=mask, use_cache=False).logits[:, -1]
    state = {k: v for k, v in model.state_dict().items() if not (k == "lm_head.weight" and config.tie_word_embeddings)}
    grads = ["backbone.embeddings.weight", "backbone.layers.0.mixer.A_log", "backbone.layers.1.mixer.conv1d.weight"]
    write(name, model, f"{VERSION} {type(model).__name__}", config.to_dict(), state, {"ids": tokens.int(), "padded": padded.int()},
          {"logits": out.logits, "last": last}, out.loss, grads)


# The names of the Hugging Face hub, and those of RWKV's package; a T marks a matrix that is transposed there.
RWKV7_ATTENTION = {f"x_{x}": f"x_{x}" for x in "rwkvag"} | {x: x for x in ("k_k", "k_a", "r_k")} | {
    "r_proj.weight": "receptance.weight T", "k_proj.weight": "key.weight T", "v_proj.weight": "value.weight T", "o_proj.weight": "output.weight T",
    "g_norm.weight": "ln_x.weight", "g_norm.bias": "ln_x.bias", "g_lora.lora.0.weight": "g1 T", "g_lora.lora.2.weight": "g2 T"} | {
    f"{x}_lora.lora.{part}": f"{x}{name}" for x in "wav" for part, name in (("2.bias", "0"), ("0.weight", "1 T"), ("2.weight", "2 T"))}
RWKV7_NORMS = {"attn_norm": "ln1", "ffn_norm": "ln2"}


def rwkv7_names(layers):
    names = {"model.embeddings.weight": "emb.weight", "lm_head.weight": "head.weight T"}
    norms = {"model.norm": "ln_out", "model.layers.0.pre_norm": "blocks.0.ln0"}
    for k in range(layers):
        norms |= {f"model.layers.{k}.{new}": f"blocks.{k}.{old}" for new, old in RWKV7_NORMS.items()}
        names |= {f"model.layers.{k}.attn.{new}": f"blocks.{k}.att.{old}" for new, old in RWKV7_ATTENTION.items() if k > 0 or new[0] != "v" or "lora" not in new}
        names |= {f"model.layers.{k}.ffn.{new}": f"blocks.{k}.ffn.{old}" for new, old in (("x_k", "x_k"), ("key.weight", "key.weight T"), ("value.weight", "value.weight T"))}
    return names | {f"{new}.{part}": f"{old}.{part}" for new, old in norms.items() for part in ("weight", "bias")}


def rwkv7():
    """By RWKV's package, which runs on the CPU: its functions of a step, with gradients. Weights are by the formula of formula.py."""
    os.environ |= {"RWKV_V7_ON": "1", "RWKV_JIT_ON": "0", "RWKV_CUDA_ON": "0"}
    from importlib.metadata import version

    from rwkv import model as rwkv

    width, hidden, heads, layers, vocab, ranks = 128, 96, 2, 2, 40, dict(w=6, a=5, v=3, g=7)
    shapes = {}
    for new, old in rwkv7_names(layers).items():
        part = new.split(".")[-1] if "lora" not in new and "norm" not in new else ""
        last = new.rsplit(".", 1)[-1]
        if "_lora" in new:
            rank = ranks[new.split("_lora")[0][-1]]
            shapes[new] = [width] if last == "bias" else [rank, width] if ".lora.0." in new else [width, rank]
        elif "_proj" in new:
            shapes[new] = [width, width]
        elif "embeddings" in new or "lm_head" in new:
            shapes[new] = [vocab, width]
        elif part.startswith("x_"):
            shapes[new] = [1, 1, width] if "attn" in new else [width]
        elif part == "r_k":
            shapes[new] = [heads, width // heads]
        elif ".ffn." in new and part == "weight":
            shapes[new] = [hidden, width] if "key" in new else [width, hidden]
        else:
            shapes[new] = [width]
    state = {name: values(name, shape).requires_grad_() for name, shape in shapes.items()}
    z = {}
    for new, old in rwkv7_names(layers).items():
        z[old.removesuffix(" T")] = state[new].t() if old.endswith(" T") else state[new].squeeze().flatten() if old.endswith("r_k") else state[new].squeeze()
    norm = lambda x, name: torch.nn.functional.layer_norm(x, (width,), z[f"{name}.weight"], z[f"{name}.bias"])
    z["emb.weight"] = norm(z["emb.weight"], "blocks.0.ln0")
    z |= {f"blocks.0.att.v{k}": torch.empty(0) for k in range(3)}
    attention = [f"x_{x}" for x in "rwkvag"] + [f"{x}{k}" for x in "wav" for k in range(3)] + ["g1", "g2", "k_k", "k_a", "r_k"] + [
        f"{x}.weight" for x in ("receptance", "key", "value", "output")] + ["ln_x.weight", "ln_x.bias"]

    def row(tokens):
        states = [[torch.zeros(width), torch.zeros(heads, width // heads, width // heads), torch.zeros(width)] for _ in range(layers)]
        logits = []
        for token in tokens:
            x, first = z["emb.weight"][token], torch.empty(0)
            for k, own in enumerate(states):
                at = f"blocks.{k}."
                out, own[0], own[1], first = rwkv.RWKV_x070_TMix_one(k, heads, width // heads, norm(x, at + "ln1"), own[0], first, own[1],
                                                                     *[z[f"{at}att.{name}"] for name in attention])
                x = x + out
                out, own[2] = rwkv.RWKV_x070_CMix_one(norm(x, at + "ln2"), own[2], *[z[f"{at}ffn.{name}"] for name in ("x_k", "key.weight", "value.weight")])
                x = x + out
            logits.append(norm(x, "ln_out") @ z["head.weight"])
        return torch.stack(logits)

    tokens = ids(length=21)
    logits = torch.stack([row(tokens_of_row) for tokens_of_row in tokens])
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, vocab), tokens[:, 1:].reshape(-1))
    loss.backward()
    config = dict(model_type="rwkv7", vocab_size=vocab, hidden_size=width, intermediate_size=hidden, head_dim=width // heads, num_hidden_layers=layers,
                  decay_low_rank_dim=ranks["w"], a_low_rank_dim=ranks["a"], v_low_rank_dim=ranks["v"], gate_low_rank_dim=ranks["g"], hidden_act="sqrelu",
                  norm_first=True, norm_bias=True, norm_eps=1e-5, tie_word_embeddings=False, value_dim=[width] * layers)
    grads = ["model.layers.0.attn.w_lora.lora.2.bias", "model.layers.1.attn.r_k", "model.layers.0.attn.a_lora.lora.0.weight"]
    save("rwkv7", {"input.ids": tokens.int(), "output.logits": logits, "output.loss": loss} | {f"grad.{name}": state[name].grad for name in grads},
         {"config": json.dumps(config), "model": "rwkv7", "reference": f"rwkv {version('rwkv')} RWKV_x070", "formula": json.dumps(shapes)})


ENCODERS = {f"{kind}_{head}": (kind, head) for kind in ("bert", "roberta", "distilbert") for head in ("classifier", "masked_lm")}
ALL = {name: (lambda name=name: causal(name)) for name in CAUSAL}
ALL |= {name: (lambda name=name: by_formula(name)) for name in BY_FORMULA} | {"gpt_oss_mxfp4": mxfp4}
ALL |= {name: (lambda name=name: gemma4(name)) for name in ("gemma4", "gemma4_dense", "gemma4_moe")}
ALL |= {name: (lambda name=name: encoder(name, *ENCODERS[name])) for name in ENCODERS}
ALL |= {"modernbert": lambda: encoder("modernbert", "modernbert", "masked_lm")}
ALL |= {"t5": lambda: t5("t5", {}), "t5_gated": lambda: t5("t5_gated", dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False, scale_decoder_outputs=False, num_decoder_layers=1))}
ALL |= {"bart": lambda: bart("bart", {}), "mbart": lambda: bart("mbart", dict(scale_embedding=True, activation_function="relu"))}
ALL |= {"mamba": lambda: mamba("mamba", {}), "mamba_biases": lambda: mamba("mamba_biases", dict(
    use_bias=True, use_conv_bias=False, tie_word_embeddings=False, expand=1, conv_kernel=3, time_step_rank="auto"))}
ALL |= {"rwkv7": rwkv7}

if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or ALL:
        ALL[name]()
