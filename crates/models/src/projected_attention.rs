//! Multi-head attention with a linear layer each for queries, keys, values and the output, under the names
//! of CLIP, Whisper and others: `q_proj`, `k_proj`, `v_proj`, `out_proj`.

use nn::{
    Linear, LinearConfig, Module,
    functional::{AttentionOptions, scaled_dot_product_attention},
};
use tensor_core::{Generator, Result, Tensor};

use crate::attention::{check_heads, join_heads, split_heads};

/// The projections of an attention over `heads` heads.
#[derive(Module, Debug)]
pub(crate) struct ProjectedAttention {
    pub(crate) q_proj: Linear,
    pub(crate) k_proj: Linear,
    pub(crate) v_proj: Linear,
    pub(crate) out_proj: Linear,
    heads: usize,
}

impl ProjectedAttention {
    /// An attention over tokens of `width` features; keys may be without a bias, as in Whisper.
    pub(crate) fn new(
        model: &'static str,
        width: usize,
        heads: usize,
        key_bias: bool,
        rng: &Generator,
    ) -> Result<ProjectedAttention> {
        check_heads(model, width, heads)?;
        let linear =
            |bias: bool| Linear::with_config(width, width, LinearConfig { bias, ..Default::default() }, rng);
        Ok(ProjectedAttention {
            q_proj: linear(true)?,
            k_proj: linear(key_bias)?,
            v_proj: linear(true)?,
            out_proj: linear(true)?,
            heads,
        })
    }

    /// The attention of `query` `[N, L, E]` to keys and values computed from `memory` `[N, S, E]`.
    pub(crate) fn forward(
        &self,
        query: &Tensor,
        memory: &Tensor,
        options: AttentionOptions<'_>,
    ) -> Result<Tensor> {
        self.forward_with(query, memory, memory, options)
    }

    /// As [`ProjectedAttention::forward`], with keys and values from different tokens.
    pub(crate) fn forward_with(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: AttentionOptions<'_>,
    ) -> Result<Tensor> {
        let (query, key, value) =
            (self.q_proj.forward(query)?, self.k_proj.forward(key)?, self.v_proj.forward(value)?);
        self.out_proj.forward(&attend([&query, &key, &value], self.heads, options)?)
    }
}

/// Attention with `heads` heads of queries `[N, L, E]` to keys and values `[N, S, E]`: `[N, L, E]`.
pub(crate) fn attend(
    [query, key, value]: [&Tensor; 3],
    heads: usize,
    options: AttentionOptions<'_>,
) -> Result<Tensor> {
    let [query, key, value] =
        [split_heads(query, heads)?, split_heads(key, heads)?, split_heads(value, heads)?];
    join_heads(&scaled_dot_product_attention(&query, &key, &value, options)?)
}
