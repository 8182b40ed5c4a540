//! The configuration of a GGUF file.

use tensor_core::Result;
use weights::WeightFile;

use super::{
    config::LlamaConfig,
    style::{Experts, Norms, STYLES, Style},
};
use crate::{
    RopeScaling,
    gguf::{GgufNames, Metadata},
};

/// The number of `expert_gating_func` for sigmoids.
const SIGMOID_GATES: usize = 2;

/// The row of the family for a file: architectures that stand for several models differ in their metadata.
#[track_caller]
fn style_of(metadata: &Metadata<'_>) -> Result<Style> {
    let architecture = metadata.architecture;
    let has = |key: &str| metadata.count(key).is_some_and(|count| count > 0);
    let model_type = match architecture {
        "llama" if has("expert_count") => Some("mixtral"),
        "olmo2" if has("attention.sliding_window") => Some("olmo3"),
        "deepseek2" if metadata.count("expert_gating_func") == Some(SIGMOID_GATES) => Some("deepseek_v3"),
        _ => None,
    };
    let fits = |style: &&Style| {
        !style.gguf.is_empty()
            && style.gguf == architecture
            && model_type.is_none_or(|wanted| wanted == style.model_type)
    };
    if let Some(style) = STYLES.iter().find(fits) {
        return Ok(*style);
    }
    let names = STYLES.iter().map(|style| style.gguf).fold(Vec::new(), |mut names, name| {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
        names
    });
    let message = format!("has the architecture \"{architecture}\", which is none of {}", names.join(", "));
    Err(metadata.error(message))
}

/// The configuration in the metadata of a GGUF file, and the names of its tensors.
#[track_caller]
pub(super) fn from_metadata(file: &WeightFile) -> Result<(LlamaConfig, GgufNames)> {
    let metadata = Metadata::of(file)?;
    let style = style_of(&metadata)?;
    let heads = metadata.needed("attention.head_count")?;
    let groups = metadata.count("attention.head_count_kv").unwrap_or(heads);
    let hidden_size = metadata.needed("embedding_length")?;
    let head_dim = metadata.count("attention.key_length").unwrap_or(hidden_size / heads.max(1));
    let rotated = metadata.count("rope.dimension_count").unwrap_or(head_dim);
    // Newer files of DeepSeek have the sizes of the latent features as those of keys and values.
    let key_length = metadata.count("attention.key_length_mla").unwrap_or(head_dim);
    let value_length =
        metadata.count("attention.value_length_mla").or(metadata.count("attention.value_length"));
    // 0.1 m, where m is transformers' mscale_all_dim.
    let mscale = metadata.number("rope.scaling.yarn_log_multiplier").map(|log| 10.0 * log);
    let is_gpt_oss = style.experts == Experts::GptOss;
    let later = metadata.count("nextn_predict_layers").unwrap_or(0);
    let inner = metadata.count("expert_feed_forward_length");
    let groups_of_experts = metadata.count("expert_group_count");
    let context = metadata.needed("context_length")?;
    let scaling = RopeScaling {
        rope_type: metadata.get("rope.scaling.type").and_then(|kind| kind.as_str()).map(gguf_scaling),
        factor: metadata.number("rope.scaling.factor"),
        original_max_position_embeddings: metadata.count("rope.scaling.original_context_length"),
        attention_factor: metadata.number("rope.scaling.attn_factor"),
        partial_rotary_factor: (rotated != head_dim && !style.latent)
            .then(|| rotated as f64 / head_dim as f64),
        mscale,
        mscale_all_dim: mscale,
        beta_fast: metadata.number("rope.scaling.yarn_beta_fast"),
        beta_slow: metadata.number("rope.scaling.yarn_beta_slow"),
        truncate: is_gpt_oss.then_some(false),
        ..Default::default()
    };
    let layers = metadata.needed("block_count")?.saturating_sub(later);
    let kinds = (0..layers.min(file.len())).map(|k| match file.info(&format!("blk.{k}.ssm_a")) {
        Some(_) => "linear_attention".to_string(),
        None => "full_attention".to_string(),
    });
    let delta_keys = metadata.count("ssm.group_count").unwrap_or(0);
    let delta_values = metadata.count("ssm.time_step_rank").unwrap_or(0);
    let config = LlamaConfig {
        model_type: style.model_type.into(),
        vocab_size: match file.info("token_embd.weight").map(|info| info.shape().dims()) {
            Some(&[rows, _]) => rows,
            _ => return Err(metadata.error("has no table token_embd.weight")),
        },
        hidden_size,
        intermediate_size: match (metadata.count("feed_forward_length"), inner) {
            (None, Some(inner)) => inner,
            _ => metadata.needed("feed_forward_length")?,
        },
        num_hidden_layers: layers,
        num_nextn_predict_layers: later,
        num_attention_heads: heads,
        num_key_value_heads: Some(groups),
        head_dim: Some(head_dim),
        max_position_embeddings: context,
        rms_norm_eps: metadata.number("attention.layer_norm_rms_epsilon").unwrap_or(1e-5),
        rope_theta: metadata.number("rope.freq_base").unwrap_or(1e4),
        rope_scaling: Some(scaling),
        rope_local_base_freq: (style.gguf == "gemma3").then_some(1e4),
        attention_bias: file.info("blk.0.attn_output.bias").is_some()
            || style.no_output_bias && file.info("blk.0.attn_q.bias").is_some(),
        tie_word_embeddings: Some(file.info("output.weight").is_none()),
        sliding_window: metadata.count("attention.sliding_window"),
        attn_logit_softcapping: metadata.number("attn_logit_softcapping"),
        final_logit_softcapping: metadata.number("final_logit_softcapping"),
        num_experts: metadata.count("expert_count").filter(|&count| count > 0),
        num_experts_per_tok: metadata.count("expert_used_count").unwrap_or(0),
        moe_intermediate_size: inner,
        shared_expert_intermediate_size: metadata
            .count("expert_shared_feed_forward_length")
            .or(inner)
            .filter(|_| matches!(style.experts, Experts::Qwen2 | Experts::Qwen3_5)),
        n_shared_experts: metadata.count("expert_shared_count"),
        n_group: groups_of_experts,
        topk_group: metadata.count("expert_group_used_count"),
        topk_method: (style.experts == Experts::DeepSeek2
            && groups_of_experts.is_some_and(|count| count > 1))
        .then(|| "group_limited_greedy".into()),
        routed_scaling_factor: metadata.number("expert_weights_scale").unwrap_or(1.0),
        norm_topk_prob: match style.experts {
            Experts::Qwen3 | Experts::Qwen3_5 => true,
            Experts::DeepSeek3 => metadata.flag("expert_weights_norm").unwrap_or(false),
            // Qwen 3 Next has them; its files do not say it.
            Experts::Qwen2 => style.delta,
            Experts::None | Experts::Mixtral | Experts::GptOss | Experts::DeepSeek2 => false,
        },
        mlp_only_layers: (0..layers.min(file.len()))
            .filter(|k| file.info(&format!("blk.{k}.ffn_gate_inp.weight")).is_none())
            .collect(),
        first_k_dense_replace: metadata.count("leading_dense_block_count").unwrap_or(0),
        layer_types: style.delta.then(|| kinds.collect()),
        linear_num_key_heads: delta_keys,
        linear_num_value_heads: delta_values,
        linear_key_head_dim: metadata.count("ssm.state_size").unwrap_or(0),
        linear_value_head_dim: metadata.count("ssm.inner_size").unwrap_or(0) / delta_values.max(1),
        linear_conv_kernel_dim: metadata.count("ssm.conv_kernel").unwrap_or(0),
        linear_heads_apart: style.delta && !style.joint_delta,
        use_qk_norm: file.info("blk.0.attn_q_norm.weight").is_some(),
        q_lora_rank: metadata.count("attention.q_lora_rank"),
        kv_lora_rank: metadata.count("attention.kv_lora_rank").unwrap_or(0),
        qk_rope_head_dim: rotated,
        qk_nope_head_dim: key_length.saturating_sub(rotated),
        v_head_dim: value_length.unwrap_or(key_length),
        embedding_multiplier: metadata.number("embedding_scale"),
        residual_multiplier: metadata.number("residual_scale"),
        attention_multiplier: metadata.number("attention.scale"),
        logits_scaling: metadata.number("logit_scale"),
        ..Default::default()
    };
    let names = GgufNames {
        own_norm: match style.norms {
            Norms::Sandwich | Norms::Behind => true,
            Norms::Before => style.delta || matches!(style.gguf, "gpt-oss" | "glm4moe"),
            Norms::GlmSandwich => false,
        },
        one_more: style.plus_one,
        interleaved: style.interleaved.then_some((heads, groups)),
    };
    Ok((config, names))
}

/// The kind of a scaling in GGUF's words.
fn gguf_scaling(name: &str) -> String {
    if name == "none" { "default".into() } else { name.into() }
}
