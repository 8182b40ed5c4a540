//! Values of `transformers` for fields that a configuration leaves out and that differ from those of
//! [`LlamaConfig`](super::LlamaConfig), which are Llama's. Sizes that any file would contradict are left out.

use serde_json::{Map, Value, json};

/// The fields of a configuration with the defaults of its `model_type`.
pub(super) fn with_defaults(fields: Map<String, Value>) -> Map<String, Value> {
    let model_type = fields.get("model_type").and_then(Value::as_str).unwrap_or_default();
    let defaults = match model_type {
        // Files of Gemma 3 with pictures have few fields.
        "gemma3_text" => json!({
            "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 131_072, "query_pre_attn_scalar": 256, "sliding_window": 4096,
            "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        }),
        "gpt_oss" => json!({
            "attention_bias": true, "rms_norm_eps": 1e-5, "rope_theta": 150_000.0, "sliding_window": 128,
            "num_experts_per_tok": 4, "head_dim": 64,
        }),
        "glm4" => json!({"attention_bias": true, "rms_norm_eps": 1.5625e-7, "head_dim": 128}),
        "glm4_moe" => json!({
            "norm_topk_prob": true, "rms_norm_eps": 1e-5, "num_experts_per_tok": 8, "n_shared_experts": 1,
            "first_k_dense_replace": 1,
        }),
        "deepseek_v2" => json!({"n_shared_experts": 2, "q_lora_rank": 1536}),
        "deepseek_v3" => json!({
            "norm_topk_prob": true, "routed_scaling_factor": 2.5, "n_group": 8, "topk_group": 4,
            "num_experts_per_tok": 8, "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536,
        }),
        "qwen3_next" => json!({"norm_topk_prob": true, "num_experts_per_tok": 10, "head_dim": 256}),
        "qwen3_5_text" | "qwen3_5_moe_text" => json!({"num_experts_per_tok": 8, "head_dim": 256}),
        "olmo2" => json!({"rms_norm_eps": 1e-5}),
        "olmo3" => json!({"rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "sliding_window": 4096}),
        "smollm3" => json!({"rope_theta": 2e6, "tie_word_embeddings": true}),
        "granite" => json!({"attention_multiplier": 1.0}),
        _ => json!({}),
    };
    let mut all = match defaults {
        Value::Object(defaults) => defaults,
        _ => Map::new(),
    };
    all.extend(fields);
    all
}
