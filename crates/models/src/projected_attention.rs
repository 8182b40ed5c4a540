//! Multi-head attention with a linear layer each for queries, keys, values and the output, under the names
//! of CLIP, Whisper and others: `q_proj`, `k_proj`, `v_proj`, `out_proj`.

use nn::{Linear, Module};
use tensor_core::{Error, Generator, Result, Tensor};

use crate::{
    KvCache, Masking,
    attention::{attend, check_heads, default_scale, join_heads, multi_head_attention, split_heads},
};

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
    /// An attention over tokens of `width` features, with biases.
    pub(crate) fn new(
        model: &'static str,
        width: usize,
        heads: usize,
        rng: &Generator,
    ) -> Result<ProjectedAttention> {
        ProjectedAttention::of_layers(model, [width, heads], true, |_, _| Linear::new(width, width, rng))
    }

    /// An attention whose layers a function makes by name, with or without a bias; keys may be without one,
    /// as in Whisper.
    #[track_caller]
    pub(crate) fn of_layers(
        model: &'static str,
        [width, heads]: [usize; 2],
        key_bias: bool,
        linear: impl Fn(&str, bool) -> Result<Linear>,
    ) -> Result<ProjectedAttention> {
        check_heads(model, width, heads)?;
        Ok(ProjectedAttention {
            q_proj: linear("q_proj", true)?,
            k_proj: linear("k_proj", key_bias)?,
            v_proj: linear("v_proj", true)?,
            out_proj: linear("out_proj", true)?,
            heads,
        })
    }

    /// The keys and values of the states `[N, S, E]`.
    #[track_caller]
    pub(crate) fn memory(&self, states: &Tensor) -> Result<Memory> {
        let key = split_heads(&self.k_proj.forward(states)?, self.heads)?;
        Ok(Memory { key, value: split_heads(&self.v_proj.forward(states)?, self.heads)? })
    }

    /// The attention of `query` `[N, L, E]` to keys and values.
    #[track_caller]
    pub(crate) fn forward_to(&self, query: &Tensor, memory: &Memory, masking: &Masking) -> Result<Tensor> {
        let query = split_heads(&self.q_proj.forward(query)?, self.heads)?;
        let out = attend(&query, &memory.key, &memory.value, default_scale(&query), None, masking)?;
        self.out_proj.forward(&join_heads(&out)?)
    }

    /// The attention of each of `x` `[N, L, E]` to itself and those before it, in a cache also to those of
    /// earlier steps; the cache has the number of its layer with it.
    #[track_caller]
    pub(crate) fn forward_causal(&self, x: &Tensor, cache: Option<(&mut KvCache, usize)>) -> Result<Tensor> {
        let Some((cache, layer)) = cache else {
            return self.forward_to(x, &self.memory(x)?, &Masking::Causal);
        };
        let Memory { key, value } = self.memory(x)?;
        let query = split_heads(&self.q_proj.forward(x)?, self.heads)?;
        let out = cache.attend(layer, [&query, &key, &value], default_scale(&query), None)?;
        self.out_proj.forward(&join_heads(&out)?)
    }

    /// The attention of `query` `[N, L, E]` to keys and values computed from `memory` `[N, S, E]`.
    #[track_caller]
    pub(crate) fn forward(&self, query: &Tensor, memory: &Tensor, masking: &Masking) -> Result<Tensor> {
        self.forward_to(query, &self.memory(memory)?, masking)
    }

    /// As [`ProjectedAttention::forward`] without a mask, with keys and values from different tokens.
    #[track_caller]
    pub(crate) fn forward_with(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Result<Tensor> {
        let (query, key, value) =
            (self.q_proj.forward(query)?, self.k_proj.forward(key)?, self.v_proj.forward(value)?);
        self.out_proj.forward(&multi_head_attention([&query, &key, &value], self.heads)?)
    }
}

/// Keys and values `[N, heads, S, E]` of states to which queries attend several times.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) key: Tensor,
    pub(crate) value: Tensor,
}

impl Memory {
    /// The same for a batch of queries: those of one input are for all rows.
    #[track_caller]
    pub(crate) fn for_batch(&self, model: &'static str, batch: usize) -> Result<Memory> {
        let dims = self.key.dims();
        match dims[0] {
            own if own == batch => Ok(self.clone()),
            1 => {
                let dims = [batch, dims[1], dims[2], dims[3]];
                Ok(Memory { key: self.key.expand(dims)?, value: self.value.expand(dims)? })
            }
            own => {
                let message = format!("{batch} rows of tokens for the states of {own} inputs");
                Err(Error::invalid(model, message))
            }
        }
    }
}
