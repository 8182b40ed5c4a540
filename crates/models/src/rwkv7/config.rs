//! [`Rwkv7Config`], and the initial values that depend on it.

use serde::{Deserialize, Serialize};
use tensor_core::{Error, Result};

use super::OP;
use crate::attention::check_heads;

/// The configuration, with the names and defaults of `flash-linear-attention`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rwkv7Config {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    pub hidden_size: usize,
    /// The features inside a channel mix as a multiple of `hidden_size`, if `intermediate_size` is not given:
    /// the product is rounded up to a multiple of 32.
    pub hidden_ratio: Option<f64>,
    /// The features inside a channel mix.
    pub intermediate_size: Option<usize>,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The features of a head.
    pub head_dim: Option<usize>,
    /// The number of heads, if `head_dim` is not given.
    pub num_heads: Option<usize>,
    /// The features from which decays are computed.
    pub decay_low_rank_dim: usize,
    /// The features from which gates are computed.
    pub gate_low_rank_dim: usize,
    /// The features from which learning rates of the state are computed.
    pub a_low_rank_dim: usize,
    /// The features from which the share of the first layer's values is computed.
    pub v_low_rank_dim: usize,
    /// The activation of channel mixes: `sqrelu`, max(0, x)².
    pub hidden_act: String,
    /// Whether a norm follows the embeddings.
    pub norm_first: bool,
    /// Whether norms have biases.
    pub norm_bias: bool,
    /// Added to the variance in norms; times `head_dim` in those of heads.
    pub norm_eps: f64,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: bool,
    /// The features of all values of a layer, for each layer: `hidden_size`.
    pub value_dim: Option<Vec<usize>>,
}

impl Default for Rwkv7Config {
    fn default() -> Rwkv7Config {
        Rwkv7Config {
            vocab_size: 32000,
            hidden_size: 2048,
            hidden_ratio: None,
            intermediate_size: None,
            num_hidden_layers: 24,
            head_dim: None,
            num_heads: None,
            decay_low_rank_dim: 64,
            gate_low_rank_dim: 128,
            a_low_rank_dim: 64,
            v_low_rank_dim: 16,
            hidden_act: "sqrelu".into(),
            norm_first: true,
            norm_bias: true,
            norm_eps: 1e-5,
            tie_word_embeddings: false,
            value_dim: None,
        }
    }
}

impl Rwkv7Config {
    #[track_caller]
    pub(super) fn check(&self) -> Result<()> {
        check_heads(OP, self.hidden_size, self.heads())?;
        let wrong = |message: String| Err(Error::invalid(OP, message));
        if self.hidden_act != "sqrelu" {
            return wrong(format!("the activation \"{}\": only sqrelu is known", self.hidden_act));
        }
        match self.value_dim.iter().flatten().find(|size| **size != self.hidden_size) {
            Some(size) => wrong(format!("values of {size} features; keys have {}", self.hidden_size)),
            None => Ok(()),
        }
    }

    /// The number of heads.
    pub(super) fn heads(&self) -> usize {
        match (self.head_dim, self.num_heads) {
            (None, Some(heads)) => heads,
            (size, _) => self.hidden_size / size.unwrap_or(64).max(1),
        }
    }

    /// The features inside a channel mix.
    pub(super) fn inner(&self) -> usize {
        let product = self.hidden_ratio.unwrap_or(4.0) * self.hidden_size as f64;
        self.intermediate_size.unwrap_or((product as usize).next_multiple_of(32))
    }

    /// The share of all layers that is above this one, this one included.
    pub(super) fn left(&self, layer: usize) -> f64 {
        1.0 - layer as f64 / self.num_hidden_layers as f64
    }

    /// The initial share of the step before in each feature: 1 − (k / n)^exponent.
    pub(super) fn mixed(&self, exponent: f64) -> Vec<f32> {
        let part = |k: usize| 1.0 - (k as f64 / self.hidden_size as f64).powf(exponent);
        (0..self.hidden_size).map(|k| part(k) as f32).collect()
    }

    /// A number for each feature by its place in all features, from −½ to ½, and in its head, from −1 to 1
    /// with small ones in the middle.
    pub(super) fn by_place(&self, value: impl Fn(f64, f64) -> f64) -> Vec<f32> {
        let (width, size) = (self.hidden_size, self.hidden_size / self.heads());
        let middle = (size as f64 - 1.0) / 2.0;
        let one = |k: usize| {
            let line = k as f64 / (width as f64 - 1.0).max(1.0) - 0.5;
            let in_head = ((k % size) as f64 - middle) / middle.max(0.5);
            value(line, in_head * in_head.abs()) as f32
        };
        (0..width).map(one).collect()
    }
}
