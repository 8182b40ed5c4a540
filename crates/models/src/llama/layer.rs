//! A layer of the family: attention, norms and the feed forward part.

use nn::{Linear, Module};
use tensor_core::{Error, Result, Tensor};

use super::{
    OP,
    attention::{HeadAttention, Keys, Norm},
    config::LlamaConfig,
    delta::DeltaAttention,
    latent::LatentAttention,
    style::{Experts, Norms, Style},
};
use crate::{Activation, RopeTables, WeightSource, mixture::Mixture};

/// The attention of a layer.
enum SelfAttention {
    Heads(HeadAttention),
    Latent(LatentAttention),
}

impl SelfAttention {
    #[track_caller]
    fn new(source: &WeightSource, layer: usize, config: &LlamaConfig) -> Result<SelfAttention> {
        Ok(match config.style()?.latent {
            true => SelfAttention::Latent(LatentAttention::new(source, config)?),
            false => SelfAttention::Heads(HeadAttention::new(source, layer, config)?),
        })
    }

    /// The output for `x` `[N, L, features]`.
    #[track_caller]
    fn forward(&self, x: &Tensor, rope: &RopeTables, keys: Keys<'_>) -> Result<Tensor> {
        match self {
            SelfAttention::Heads(attention) => attention.forward(x, rope, keys),
            SelfAttention::Latent(attention) => attention.forward(x, rope, keys),
        }
    }
}

impl Module for SelfAttention {
    fn visit(&self, visitor: &mut nn::Visitor) {
        match self {
            SelfAttention::Heads(attention) => attention.visit(visitor),
            SelfAttention::Latent(attention) => attention.visit(visitor),
        }
    }
    fn visit_mut(&mut self, visitor: &mut nn::VisitorMut) {
        match self {
            SelfAttention::Heads(attention) => attention.visit_mut(visitor),
            SelfAttention::Latent(attention) => attention.visit_mut(visitor),
        }
    }
}

/// The gated feed forward layer: down(activation(gate(x)) · up(x)). Gate and up are two projections, or one.
#[derive(Module)]
struct Mlp {
    gate_proj: Option<Linear>,
    up_proj: Option<Linear>,
    gate_up_proj: Option<Linear>,
    down_proj: Linear,
    activation: Activation,
}

impl Mlp {
    #[track_caller]
    fn new(source: &WeightSource, config: &LlamaConfig) -> Result<Mlp> {
        let style = config.style()?;
        let fused = style.fused_gate_up;
        let (width, inner, bias) = (config.hidden_size, config.intermediate_size, config.mlp_bias);
        let part = |name: &str, outputs: usize, there: bool| -> Result<Option<Linear>> {
            there.then(|| source.linear(name, width, outputs, bias)).transpose()
        };
        let usual = if style.gemma { Activation::GeluTanh } else { Activation::Silu };
        // Gemma's old configurations say "gelu" and mean the approximation.
        let activation = match config.hidden_activation.or(config.hidden_act) {
            Some(Activation::Gelu) | None if style.gemma => usual,
            other => other.unwrap_or(usual),
        };
        Ok(Mlp {
            gate_proj: part("gate_proj", inner, !fused)?,
            up_proj: part("up_proj", inner, !fused)?,
            gate_up_proj: part("gate_up_proj", 2 * inner, fused)?,
            down_proj: source.linear("down_proj", inner, width, bias)?,
            activation,
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (gate, up) = match (&self.gate_proj, &self.up_proj, &self.gate_up_proj) {
            (Some(gate), Some(up), _) => (gate.forward(x)?, up.forward(x)?),
            (_, _, Some(both)) => {
                let both = both.forward(x)?;
                let inner = self.down_proj.in_features();
                (both.narrow(-1, 0, inner)?, both.narrow(-1, inner, inner)?)
            }
            _ => return Err(Error::invalid(OP, "a feed forward layer has no projections")),
        };
        self.down_proj.forward(&self.activation.activate(&gate).mul(&up)?)
    }
}

/// The feed forward part of a layer.
enum FeedForward {
    Dense(Mlp),
    Mixture(Mixture),
}

impl FeedForward {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            FeedForward::Dense(mlp) => mlp.forward(x),
            FeedForward::Mixture(mixture) => mixture.forward(x),
        }
    }
}

impl Module for FeedForward {
    fn visit(&self, visitor: &mut nn::Visitor) {
        match self {
            FeedForward::Dense(mlp) => mlp.visit(visitor),
            FeedForward::Mixture(mixture) => mixture.visit(visitor),
        }
    }
    fn visit_mut(&mut self, visitor: &mut nn::VisitorMut) {
        match self {
            FeedForward::Dense(mlp) => mlp.visit_mut(visitor),
            FeedForward::Mixture(mixture) => mixture.visit_mut(visitor),
        }
    }
}

/// A layer: attention and a feed forward part, with the norms that [`Norms`] says.
#[derive(Module)]
pub(super) struct Layer {
    self_attn: Option<SelfAttention>,
    linear_attn: Option<DeltaAttention>,
    mlp: Option<FeedForward>,
    /// The feed forward part under Mixtral's name.
    block_sparse_moe: Option<FeedForward>,
    input_layernorm: Option<Norm>,
    post_attention_layernorm: Norm,
    pre_feedforward_layernorm: Option<Norm>,
    post_feedforward_layernorm: Option<Norm>,
    post_self_attn_layernorm: Option<Norm>,
    post_mlp_layernorm: Option<Norm>,
    #[module(skip)]
    norms: Norms,
    /// The factor of what attention and the feed forward part add.
    residual_scale: Option<f64>,
}

impl Layer {
    #[track_caller]
    pub(super) fn new(source: &WeightSource, k: usize, config: &LlamaConfig) -> Result<Layer> {
        let style = config.style()?;
        let Style { norms, experts, .. } = style;
        let has_delta = config.has_delta(style, k);
        let is_mixtral = experts == Experts::Mixtral;
        let source = &source.at(k);
        let at = source.at(if is_mixtral { "block_sparse_moe" } else { "mlp" });
        let feed_forward = match config.mixture(k)? {
            Some(mixture) => FeedForward::Mixture(Mixture::new(&at, &mixture)?),
            None => FeedForward::Dense(Mlp::new(&at, config)?),
        };
        let (mlp, block_sparse_moe) =
            if is_mixtral { (None, Some(feed_forward)) } else { (Some(feed_forward), None) };
        let norm = |name: &str, kinds: &[Norms]| {
            let there = kinds.contains(&norms);
            there.then(|| Norm::new(source, name, config.hidden_size, config)).transpose()
        };
        let attention = || SelfAttention::new(&source.at("self_attn"), k, config);
        let delta = || DeltaAttention::new(&source.at("linear_attn"), config);
        Ok(Layer {
            self_attn: (!has_delta).then(attention).transpose()?,
            linear_attn: has_delta.then(delta).transpose()?,
            mlp,
            block_sparse_moe,
            input_layernorm: norm("input_layernorm", &[Norms::Before, Norms::Sandwich, Norms::GlmSandwich])?,
            post_attention_layernorm: Norm::new(
                source,
                "post_attention_layernorm",
                config.hidden_size,
                config,
            )?,
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm", &[Norms::Sandwich])?,
            post_feedforward_layernorm: norm(
                "post_feedforward_layernorm",
                &[Norms::Sandwich, Norms::Behind],
            )?,
            post_self_attn_layernorm: norm("post_self_attn_layernorm", &[Norms::GlmSandwich])?,
            post_mlp_layernorm: norm("post_mlp_layernorm", &[Norms::GlmSandwich])?,
            norms,
            residual_scale: config.residual_multiplier,
        })
    }

    /// Whether the layer has keys and values, not a state.
    pub(super) fn attends(&self) -> bool {
        self.self_attn.is_some()
    }

    /// The norms before and behind attention, and before and behind the feed forward part.
    fn norms(&self) -> [Option<&Norm>; 4] {
        let (input, attention) = (self.input_layernorm.as_ref(), Some(&self.post_attention_layernorm));
        let behind = self.post_feedforward_layernorm.as_ref();
        match self.norms {
            Norms::Before => [input, None, attention, None],
            Norms::Sandwich => [input, attention, self.pre_feedforward_layernorm.as_ref(), behind],
            Norms::GlmSandwich => {
                let after = self.post_self_attn_layernorm.as_ref();
                [input, after, attention, self.post_mlp_layernorm.as_ref()]
            }
            Norms::Behind => [None, attention, None, behind],
        }
    }

    #[track_caller]
    pub(super) fn forward(
        &self,
        x: &Tensor,
        rope: &RopeTables,
        mask: Option<&Tensor>,
        keys: Keys<'_>,
    ) -> Result<Tensor> {
        let Some(mlp) = self.mlp.as_ref().or(self.block_sparse_moe.as_ref()) else {
            return Err(Error::invalid(OP, "a layer has no feed forward part"));
        };
        let normed = |norm: Option<&Norm>, x: &Tensor| match norm {
            Some(norm) => norm.forward(x),
            None => Ok(x.clone()),
        };
        let add = |x: &Tensor, part: Tensor| match self.residual_scale {
            Some(scale) => x.add(&part.mul_scalar(scale)),
            None => x.add(&part),
        };
        let [before, after, before_mlp, after_mlp] = self.norms();
        let normed_x = normed(before, x)?;
        let attended = match (&self.self_attn, &self.linear_attn) {
            (Some(attention), _) => attention.forward(&normed_x, rope, keys)?,
            (None, Some(delta)) => delta.forward(&normed_x, mask, keys)?,
            (None, None) => return Err(Error::invalid(OP, "a layer has no attention")),
        };
        let x = add(x, normed(after, &attended)?)?;
        let part = mlp.forward(&normed(before_mlp, &x)?)?;
        add(&x, normed(after_mlp, &part)?)
    }
}
