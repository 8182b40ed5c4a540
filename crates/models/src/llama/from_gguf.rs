//! The configuration of a GGUF file.

use tensor_core::Result;
use weights::WeightFile;

use super::config::{LlamaConfig, STYLES};
use crate::{
    RopeScaling,
    gguf::{GgufNames, Metadata},
};

/// The configuration in the metadata of a GGUF file, and the names of its tensors.
#[track_caller]
pub(super) fn from_metadata(file: &WeightFile) -> Result<(LlamaConfig, GgufNames)> {
    let metadata = Metadata::of(file)?;
    let architecture = metadata.architecture;
    let Some(style) = STYLES.iter().find(|style| style.gguf == architecture && !architecture.is_empty())
    else {
        let names: Vec<&str> =
            STYLES.iter().map(|style| style.gguf).filter(|name| !name.is_empty()).collect();
        let message =
            format!("has the architecture \"{architecture}\", which is none of {}", names.join(", "));
        return Err(metadata.error(message));
    };
    let heads = metadata.needed("attention.head_count")?;
    let groups = metadata.count("attention.head_count_kv").unwrap_or(heads);
    let hidden_size = metadata.needed("embedding_length")?;
    let head_dim = metadata.count("attention.key_length").unwrap_or(hidden_size / heads.max(1));
    let rotated = metadata.count("rope.dimension_count").unwrap_or(head_dim);
    let context = metadata.needed("context_length")?;
    let scaling = RopeScaling {
        rope_type: metadata.get("rope.scaling.type").and_then(|kind| kind.as_str()).map(gguf_scaling),
        factor: metadata.number("rope.scaling.factor"),
        original_max_position_embeddings: metadata.count("rope.scaling.original_context_length"),
        attention_factor: metadata.number("rope.scaling.attn_factor"),
        partial_rotary_factor: (rotated != head_dim).then(|| rotated as f64 / head_dim as f64),
        ..Default::default()
    };
    let config = LlamaConfig {
        model_type: style.model_type.into(),
        vocab_size: match file.info("token_embd.weight").map(|info| info.shape().dims()) {
            Some(&[rows, _]) => rows,
            _ => return Err(metadata.error("has no table token_embd.weight")),
        },
        hidden_size,
        intermediate_size: metadata.needed("feed_forward_length")?,
        num_hidden_layers: metadata.needed("block_count")?,
        num_attention_heads: heads,
        num_key_value_heads: Some(groups),
        head_dim: Some(head_dim),
        max_position_embeddings: context,
        rms_norm_eps: metadata.number("attention.layer_norm_rms_epsilon").unwrap_or(1e-5),
        rope_theta: metadata.number("rope.freq_base").unwrap_or(1e4),
        rope_scaling: Some(scaling),
        rope_local_base_freq: (style.gguf == "gemma3").then_some(1e4),
        attention_bias: file.info("blk.0.attn_q.bias").is_some(),
        tie_word_embeddings: Some(file.info("output.weight").is_none()),
        sliding_window: metadata.count("attention.sliding_window"),
        attn_logit_softcapping: metadata.number("attn_logit_softcapping"),
        final_logit_softcapping: metadata.number("final_logit_softcapping"),
        ..Default::default()
    };
    let names = GgufNames {
        sandwich: style.sandwich,
        one_more: style.gemma,
        interleaved: (style.gguf == "llama").then_some((heads, groups)),
    };
    Ok((config, names))
}

/// The kind of a scaling in GGUF's words.
fn gguf_scaling(name: &str) -> String {
    if name == "none" { "default".into() } else { name.into() }
}
