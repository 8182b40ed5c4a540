//! A layer of an encoder, and one of a decoder that also attends to the encoder's states.

use nn::{LayerNorm, Linear, Module};
use tensor_core::{Result, Tensor};

use crate::{
    Activation, KvCache, Masking, WeightSource,
    projected_attention::{Memory, ProjectedAttention},
};

/// The sizes of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerConfig {
    /// The architecture, for errors.
    pub(crate) model: &'static str,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    /// The features inside the feed forward layer.
    pub(crate) hidden: usize,
    pub(crate) activation: Activation,
    /// Whether the projection of keys has a bias.
    pub(crate) key_bias: bool,
    /// Whether a norm is before its part, as in Whisper and mBART, or after the sum, as in BART.
    pub(crate) pre_norm: bool,
    /// Added to the variance in norms.
    pub(crate) eps: f64,
}

impl LayerConfig {
    #[track_caller]
    pub(crate) fn norm(&self, source: &WeightSource, name: &str) -> Result<LayerNorm> {
        source.layer_norm(name, self.width, self.eps, true)
    }

    #[track_caller]
    fn attention(&self, source: &WeightSource, name: &str) -> Result<ProjectedAttention> {
        let at = source.at(name);
        let linear = |name: &str, bias: bool| at.linear(name, self.width, self.width, bias);
        ProjectedAttention::of_layers(self.model, [self.width, self.heads], self.key_bias, linear)
    }

    /// x + part(norm(x)), or norm(x + part(x)).
    #[track_caller]
    fn residual(
        &self,
        x: &Tensor,
        norm: &LayerNorm,
        part: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        match self.pre_norm {
            true => x.add(&part(&norm.forward(x)?)?),
            false => norm.forward(&x.add(&part(x)?)?),
        }
    }
}

/// Attention of a sequence to itself and a feed forward layer.
#[derive(Module, Debug)]
pub(crate) struct EncoderLayer {
    self_attn: ProjectedAttention,
    self_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
    #[module(skip)]
    config: LayerConfig,
}

impl EncoderLayer {
    #[track_caller]
    pub(crate) fn new(source: &WeightSource, config: &LayerConfig) -> Result<EncoderLayer> {
        Ok(EncoderLayer {
            self_attn: config.attention(source, "self_attn")?,
            self_attn_layer_norm: config.norm(source, "self_attn_layer_norm")?,
            fc1: source.linear("fc1", config.width, config.hidden, true)?,
            fc2: source.linear("fc2", config.hidden, config.width, true)?,
            final_layer_norm: config.norm(source, "final_layer_norm")?,
            config: *config,
        })
    }

    /// The states `[N, L, width]` after this layer.
    #[track_caller]
    pub(crate) fn forward(&self, x: &Tensor, masking: &Masking) -> Result<Tensor> {
        let x =
            self.config.residual(x, &self.self_attn_layer_norm, |x| self.self_attn.forward(x, x, masking))?;
        self.config.residual(&x, &self.final_layer_norm, |x| {
            self.fc2.forward(&self.config.activation.activate(&self.fc1.forward(x)?))
        })
    }
}

/// Causal attention of a sequence to itself, attention to the encoder's states, and a feed forward layer.
#[derive(Module, Debug)]
pub(crate) struct DecoderLayer {
    self_attn: ProjectedAttention,
    self_attn_layer_norm: LayerNorm,
    encoder_attn: ProjectedAttention,
    encoder_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
    #[module(skip)]
    config: LayerConfig,
}

impl DecoderLayer {
    #[track_caller]
    pub(crate) fn new(source: &WeightSource, config: &LayerConfig) -> Result<DecoderLayer> {
        Ok(DecoderLayer {
            self_attn: config.attention(source, "self_attn")?,
            self_attn_layer_norm: config.norm(source, "self_attn_layer_norm")?,
            encoder_attn: config.attention(source, "encoder_attn")?,
            encoder_attn_layer_norm: config.norm(source, "encoder_attn_layer_norm")?,
            fc1: source.linear("fc1", config.width, config.hidden, true)?,
            fc2: source.linear("fc2", config.hidden, config.width, true)?,
            final_layer_norm: config.norm(source, "final_layer_norm")?,
            config: *config,
        })
    }

    /// The keys and values of the encoder's states `[N, S, width]`.
    #[track_caller]
    pub(crate) fn memory(&self, encoded: &Tensor) -> Result<Memory> {
        self.encoder_attn.memory(encoded)
    }

    /// The states `[N, L, width]` after this layer. `cache` has the number of the layer with it.
    #[track_caller]
    pub(crate) fn forward(
        &self,
        x: &Tensor,
        memory: &Memory,
        masking: &Masking,
        cache: Option<(&mut KvCache, usize)>,
    ) -> Result<Tensor> {
        let config = &self.config;
        let x =
            config.residual(x, &self.self_attn_layer_norm, |x| self.self_attn.forward_causal(x, cache))?;
        let x = config.residual(&x, &self.encoder_attn_layer_norm, |x| {
            self.encoder_attn.forward_to(x, memory, masking)
        })?;
        config.residual(&x, &self.final_layer_norm, |x| {
            self.fc2.forward(&config.activation.activate(&self.fc1.forward(x)?))
        })
    }
}
