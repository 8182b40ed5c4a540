//! The configuration of a GGUF file.

use tensor_core::{Device, Result};
use weights::{GgufArray, GgufValue, WeightFile};

use super::Gemma4Config;
use crate::{RopeScaling, gguf::Metadata};

/// The divisors of the frequencies of layers without a window: 1, and a large number where nothing rotates.
pub(super) const FREQUENCIES: &str = "rope_freqs.weight";
/// A divisor after which a frequency is 0.
const MIN_UNROTATED: f64 = 1e9;

/// A number for each layer, from an array or from one number for all.
fn by_layer(metadata: &Metadata<'_>, key: &str, layers: usize) -> Option<Vec<usize>> {
    match metadata.get(key)? {
        GgufValue::Array(array) => {
            let numbers = array.to_i64s()?.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>();
            numbers.ok().filter(|numbers| numbers.len() == layers)
        }
        one => Some(vec![one.as_u64()? as usize; layers]),
    }
}

impl Gemma4Config {
    /// The configuration in the metadata of a GGUF file.
    #[track_caller]
    pub(super) fn from_metadata(file: &WeightFile, device: &Device) -> Result<Gemma4Config> {
        let metadata = Metadata::of(file)?;
        if metadata.architecture != "gemma4" {
            let message = format!("has the architecture \"{}\", which is not gemma4", metadata.architecture);
            return Err(metadata.error(message));
        }
        let layers = metadata.needed("block_count")?;
        let slides: Vec<bool> = match metadata.get("attention.sliding_window_pattern") {
            Some(GgufValue::Array(GgufArray::Bool(slides))) if slides.len() == layers => slides.clone(),
            _ => return Err(metadata.error("has no attention.sliding_window_pattern of its layers")),
        };
        let numbers = |key: &str| match by_layer(&metadata, key, layers) {
            Some(numbers) => Ok(numbers),
            None => Err(metadata.error(format!("has no gemma4.{key} of its {layers} layers"))),
        };
        let shared = metadata.count("attention.shared_kv_layers").unwrap_or(0);
        let first_shared = layers.saturating_sub(shared);
        let (groups, inner) = (numbers("attention.head_count_kv")?, numbers("feed_forward_length")?);
        let of_kind = |kind: bool| slides.iter().position(|&slides| slides == kind);
        let no_window = of_kind(false).unwrap_or(0);
        let sliding = of_kind(true).unwrap_or(no_window);
        let intermediate_size = inner.first().copied().unwrap_or(0);
        let is_double = inner.get(first_shared).is_some_and(|&wide| wide == 2 * intermediate_size);
        let unlike = (0..layers).find(|&k| {
            let doubles = is_double && k >= first_shared;
            let own = if slides[k] { sliding } else { no_window };
            groups[k] != groups[own] || inner[k] != intermediate_size * (1 + usize::from(doubles))
        });
        if let Some(k) = unlike {
            return Err(
                metadata.error(format!("has sizes of layer {k} that differ from the others of its kind"))
            );
        }
        let rows = |name: &str| match file.info(name).map(|info| info.shape().dims()) {
            Some(&[rows, _]) => Some(rows),
            Some(_) | None => None,
        };
        let Some(vocab_size) = rows("token_embd.weight") else {
            return Err(metadata.error("has no table token_embd.weight"));
        };
        let global_head_dim = metadata.needed("attention.key_length")?;
        let head_dim = metadata.needed("attention.key_length_swa")?;
        let rotated = match file.info(FREQUENCIES) {
            Some(_) => {
                let divisors = file.tensor(FREQUENCIES, device)?.to_f64_vec()?;
                let rotated = divisors.iter().filter(|&&divisor| divisor < MIN_UNROTATED).count();
                if divisors.iter().any(|&divisor| divisor != 1.0 && divisor < MIN_UNROTATED) {
                    return Err(metadata.error("has rope_freqs that are neither 1 nor infinite"));
                }
                2 * rotated
            }
            None => global_head_dim,
        };
        let rope = |kind: &str, part: usize, size: usize, key: &str, base: f64| RopeScaling {
            rope_type: Some(kind.into()),
            partial_rotary_factor: (part != size).then(|| part as f64 / size.max(1) as f64),
            rope_theta: Some(metadata.number(key).unwrap_or(base)),
            ..Default::default()
        };
        let of_window = metadata.count("rope.dimension_count_swa").unwrap_or(head_dim);
        let ropes = [
            ("full_attention", rope("proportional", rotated, global_head_dim, "rope.freq_base", 1e6)),
            ("sliding_attention", rope("default", of_window, head_dim, "rope.freq_base_swa", 1e4)),
        ];
        let has_values = |k: usize| file.info(&format!("blk.{k}.attn_v.weight")).is_some();
        let experts = metadata.count("expert_count").filter(|&count| count > 0);
        let name = |slides: &bool| if *slides { "sliding_attention" } else { "full_attention" };
        Ok(Gemma4Config {
            vocab_size,
            hidden_size: metadata.needed("embedding_length")?,
            intermediate_size,
            num_hidden_layers: layers,
            num_attention_heads: metadata.needed("attention.head_count")?,
            num_key_value_heads: groups.get(sliding).copied().unwrap_or(0),
            head_dim,
            global_head_dim,
            num_global_key_value_heads: groups.get(no_window).copied(),
            rms_norm_eps: metadata.number("attention.layer_norm_rms_epsilon").unwrap_or(1e-6),
            max_position_embeddings: metadata.needed("context_length")?,
            rope_parameters: Some(ropes.map(|(name, rope)| (name.to_string(), rope)).into()),
            attention_bias: file.info("blk.0.attn_q.bias").is_some(),
            sliding_window: metadata.needed("attention.sliding_window")?,
            layer_types: Some(slides.iter().map(name).map(String::from).collect()),
            attention_k_eq_v: (0..first_shared).any(|k| !slides[k] && !has_values(k)),
            num_kv_shared_layers: shared,
            use_double_wide_mlp: is_double,
            hidden_size_per_layer_input: metadata.count("embedding_length_per_layer_input").unwrap_or(0),
            vocab_size_per_layer_input: rows("per_layer_token_embd.weight").unwrap_or(vocab_size),
            final_logit_softcapping: metadata.number("final_logit_softcapping"),
            tie_word_embeddings: file.info("output.weight").is_none(),
            enable_moe_block: experts.is_some(),
            num_experts: experts,
            top_k_experts: metadata.count("expert_used_count"),
            moe_intermediate_size: metadata.count("expert_feed_forward_length"),
            ..Default::default()
        })
    }
}
