//! Multi-head latent attention: the keys and values of all heads come from a few features of a token, and
//! the cache keeps only these.
//!
//! DeepSeek-AI: DeepSeek-V2, a strong, economical, and efficient mixture-of-experts language model (2024),
//! section 2.1. With a cache, the projection from the latent features is applied to queries and outputs in
//! place of keys and values (its appendix C): a query then sees one key of `kv_lora_rank + qk_rope_head_dim`
//! features for each position, whose first features are also the value.

use nn::{Linear, Module, RmsNorm};
use tensor_core::{Error, Result, Tensor};

use super::{OP, attention::Keys, config::LlamaConfig};
use crate::{
    RopeTables, WeightSource,
    attention::{Scoring, join_heads, split_heads},
};

/// Added to the mean square in the norms of latent features, whatever the configuration says.
const LATENT_EPS: f64 = 1e-6;

#[derive(Module)]
pub(super) struct LatentAttention {
    q_proj: Option<Linear>,
    q_a_proj: Option<Linear>,
    q_a_layernorm: Option<RmsNorm>,
    q_b_proj: Option<Linear>,
    kv_a_proj_with_mqa: Linear,
    kv_a_layernorm: RmsNorm,
    kv_b_proj: Linear,
    o_proj: Linear,
    heads: usize,
    /// The latent features.
    rank: usize,
    /// The features of a query and a key that stay, and those that rotate.
    plain: usize,
    rotated: usize,
    /// The features of a value.
    value: usize,
    scale: f64,
    neighbours: bool,
}

impl LatentAttention {
    #[track_caller]
    pub(super) fn new(source: &WeightSource, config: &LlamaConfig) -> Result<LatentAttention> {
        let (width, heads, bias) = (config.hidden_size, config.num_attention_heads, config.attention_bias);
        let (plain, rotated, value) = (config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim);
        let (rank, queries) = (config.kv_lora_rank, heads * (plain + rotated));
        let (mut q_proj, mut q_a_proj, mut q_a_layernorm, mut q_b_proj) = (None, None, None, None);
        match config.q_lora_rank {
            None => q_proj = Some(source.linear("q_proj", width, queries, false)?),
            Some(rank) => {
                q_a_proj = Some(source.linear("q_a_proj", width, rank, bias)?);
                q_a_layernorm = Some(source.rms_norm("q_a_layernorm", rank, LATENT_EPS)?);
                q_b_proj = Some(source.linear("q_b_proj", rank, queries, false)?);
            }
        }
        let [full, _] = config.ropes()?;
        Ok(LatentAttention {
            q_proj,
            q_a_proj,
            q_a_layernorm,
            q_b_proj,
            kv_a_proj_with_mqa: source.linear("kv_a_proj_with_mqa", width, rank + rotated, bias)?,
            kv_a_layernorm: source.rms_norm("kv_a_layernorm", rank, LATENT_EPS)?,
            kv_b_proj: source.linear("kv_b_proj", rank, heads * (plain + value), false)?,
            o_proj: source.linear("o_proj", heads * value, width, bias)?,
            heads,
            rank,
            plain,
            rotated,
            value,
            scale: ((plain + rotated) as f64).powf(-0.5) * full.latent_factor(),
            neighbours: config.style()?.neighbours && config.rope_interleave.unwrap_or(true),
        })
    }

    /// The output for `x` `[N, L, features]`.
    #[track_caller]
    pub(super) fn forward(&self, x: &Tensor, rope: &RopeTables, keys: Keys<'_>) -> Result<Tensor> {
        let query = match (&self.q_proj, &self.q_a_proj, &self.q_a_layernorm, &self.q_b_proj) {
            (Some(q), ..) => q.forward(x)?,
            (_, Some(a), Some(norm), Some(b)) => b.forward(&norm.forward(&a.forward(x)?)?)?,
            _ => return Err(Error::invalid(OP, "attention has no projections")),
        };
        let query = split_heads(&query, self.heads)?;
        let latent = self.kv_a_proj_with_mqa.forward(x)?;
        let rotate = |x: &Tensor| match self.neighbours {
            true => rope.rotate_neighbours(x),
            false => rope.rotate(x),
        };
        // [N, heads, L, rotated], and [N, 1, L, rotated] for the keys, which all heads share.
        let turned = rotate(&query.narrow(-1, self.plain, self.rotated)?)?;
        let shared = rotate(&latent.narrow(-1, self.rank, self.rotated)?.unsqueeze(1)?)?;
        let latent = self.kv_a_layernorm.forward(&latent.narrow(-1, 0, self.rank)?)?;
        let plain = query.narrow(-1, 0, self.plain)?;
        let scoring = Scoring { scale: self.scale, ..Default::default() };
        let out = match keys {
            Keys::Own(_) => {
                let both = split_heads(&self.kv_b_proj.forward(&latent)?, self.heads)?;
                let mut dims = shared.dims().to_vec();
                dims[1] = self.heads;
                let key = Tensor::concat(&[both.narrow(-1, 0, self.plain)?, shared.expand(dims)?], -1)?;
                let value = both.narrow(-1, self.plain, self.value)?;
                keys.attend([&Tensor::concat(&[plain, turned], -1)?, &key, &value], scoring)?
            }
            Keys::Cached(..) => {
                // [heads, plain + value, rank]
                let dims = [self.heads, self.plain + self.value, self.rank];
                let weight = self.kv_b_proj.weight.reshape(dims)?;
                let of_key = weight.narrow(1, 0, self.plain)?;
                let of_value = weight.narrow(1, self.plain, self.value)?;
                let latent = latent.unsqueeze(1)?;
                let query = Tensor::concat(&[plain.matmul(&of_key)?, turned], -1)?;
                let key = Tensor::concat(&[&latent, &shared], -1)?;
                keys.attend([&query, &key, &latent], scoring)?.matmul(&of_value.transpose(-1, -2)?)?
            }
        };
        self.o_proj.forward(&join_heads(&out)?)
    }
}
