#!/usr/bin/env python3
"""Fixtures of language models, by transformers: crates/models/tests/fixtures.

    python3 -m venv .venv && .venv/bin/pip install torch transformers safetensors
    .venv/bin/python scripts/model_fixtures/language.py [NAME ...]      # all by default
"""
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from common import randomize, write

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


ENCODERS = {f"{kind}_{head}": (kind, head) for kind in ("bert", "roberta", "distilbert") for head in ("classifier", "masked_lm")}
ALL = {name: (lambda name=name: causal(name)) for name in CAUSAL}
ALL |= {name: (lambda name=name: encoder(name, *ENCODERS[name])) for name in ENCODERS}
ALL |= {"modernbert": lambda: encoder("modernbert", "modernbert", "masked_lm")}
ALL |= {"t5": lambda: t5("t5", {}), "t5_gated": lambda: t5("t5_gated", dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False, scale_decoder_outputs=False, num_decoder_layers=1))}

if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or ALL:
        ALL[name]()
