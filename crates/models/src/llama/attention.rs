//! Self-attention of the family, and its norm.

use nn::{Linear, Module, Parameter};
use tensor_core::{Error, Result, Tensor};

use super::{
    OP,
    config::LlamaConfig,
    style::{QkNorm, Style},
};
use crate::{
    Initial, KvCache, Masking, RopeTables, WeightSource,
    attention::{Scoring, attend_by, join_heads, split_heads},
};

/// The root mean square norm; with `plus_one` the factor is 1 + weight.
#[derive(Module)]
pub(super) struct Norm {
    pub(super) weight: Parameter,
    eps: f64,
    plus_one: bool,
}

impl Norm {
    #[track_caller]
    pub(super) fn new(
        source: &WeightSource,
        name: &str,
        features: usize,
        config: &LlamaConfig,
    ) -> Result<Norm> {
        let plus_one = config.style()?.plus_one;
        let initial = if plus_one { Initial::Zeros } else { Initial::Ones };
        let weight = Parameter::new(source.at(name).parameter("weight", &[features], initial)?)?;
        Ok(Norm { weight, eps: config.rms_norm_eps, plus_one })
    }

    #[track_caller]
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let features = x.dims().last().copied().unwrap_or(0);
        let more = self.plus_one.then(|| self.weight.add_scalar(1.0));
        let weight: &Tensor = more.as_ref().unwrap_or(&self.weight);
        nn::functional::rms_norm(x, [features], Some(weight), Some(self.eps))
    }
}

/// The keys that queries see.
pub(super) enum Keys<'a> {
    Own(&'a Masking),
    Cached(&'a mut KvCache, usize),
}

impl Keys<'_> {
    /// Attention of queries, keys and values of the step: to its own keys, or to all of a cache.
    #[track_caller]
    pub(super) fn attend(self, parts: [&Tensor; 3], scoring: Scoring<'_>) -> Result<Tensor> {
        match self {
            Keys::Own(masking) => attend_by(parts, scoring, masking),
            Keys::Cached(cache, layer) => cache.attend_by(layer, parts, scoring, None),
        }
    }
}

/// Self-attention with rotary positions. Queries, keys and values are three projections, or one.
#[derive(Module)]
pub(super) struct HeadAttention {
    q_proj: Option<Linear>,
    k_proj: Option<Linear>,
    v_proj: Option<Linear>,
    qkv_proj: Option<Linear>,
    o_proj: Linear,
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    sinks: Option<Parameter>,
    heads: usize,
    groups: usize,
    features: usize,
    scale: f64,
    softcap: Option<f64>,
    /// The norms are those of all heads together.
    whole_norm: bool,
    /// The projection of queries also gives a gate for each feature of the output, behind those of each head.
    has_gate: bool,
    rotates: bool,
    neighbours: bool,
}

impl HeadAttention {
    #[track_caller]
    pub(super) fn new(source: &WeightSource, layer: usize, config: &LlamaConfig) -> Result<HeadAttention> {
        let style = config.style()?;
        let (heads, groups, features) =
            (config.num_attention_heads, config.key_value_heads(), config.head_features());
        let width = config.hidden_size;
        let bias = config.attention_bias || style.qkv_bias;
        let output_bias = config.attention_bias && !style.no_output_bias;
        let part = |name: &str, count: usize, there: bool| -> Result<Option<Linear>> {
            there.then(|| source.linear(name, width, count * features, bias)).transpose()
        };
        let Style { qk_norm, fused_qkv, .. } = style;
        let has_norm = match qk_norm {
            QkNorm::None => false,
            QkNorm::Heads | QkNorm::Whole => true,
            QkNorm::HeadsIfAsked => config.use_qk_norm,
        };
        let whole_norm = qk_norm == QkNorm::Whole;
        let norm = |name: &str, heads: usize| {
            let features = if whole_norm { heads * features } else { features };
            has_norm.then(|| Norm::new(source, name, features, config)).transpose()
        };
        let sinks = || Parameter::new(source.parameter("sinks", &[heads], Initial::Zeros)?);
        Ok(HeadAttention {
            q_proj: part("q_proj", if style.delta { 2 * heads } else { heads }, !fused_qkv)?,
            k_proj: part("k_proj", groups, !fused_qkv)?,
            v_proj: part("v_proj", groups, !fused_qkv)?,
            qkv_proj: part("qkv_proj", heads + 2 * groups, fused_qkv)?,
            o_proj: source.linear("o_proj", heads * features, width, output_bias)?,
            q_norm: norm("q_norm", heads)?,
            k_norm: norm("k_norm", groups)?,
            sinks: style.sinks.then(sinks).transpose()?,
            heads,
            groups,
            features,
            scale: config.attention_scale(),
            softcap: config.attn_logit_softcapping,
            whole_norm,
            has_gate: style.delta,
            rotates: config.rotates(style, layer),
            neighbours: style.neighbours,
        })
    }

    #[track_caller]
    pub(super) fn forward(&self, x: &Tensor, rope: &RopeTables, keys: Keys<'_>) -> Result<Tensor> {
        let (heads, groups) = (self.heads, self.groups);
        let [mut query, mut key, value] = match (&self.q_proj, &self.k_proj, &self.v_proj, &self.qkv_proj) {
            (Some(q), Some(k), Some(v), _) => [q.forward(x)?, k.forward(x)?, v.forward(x)?],
            (_, _, _, Some(all)) => {
                let all = all.forward(x)?;
                let (q, k) = (heads * self.features, groups * self.features);
                [all.narrow(-1, 0, q)?, all.narrow(-1, q, k)?, all.narrow(-1, q + k, k)?]
            }
            _ => return Err(Error::invalid(OP, "attention has no projections")),
        };
        let mut gate = None;
        if self.has_gate {
            let (batch, length) = (query.dims()[0], query.dims()[1]);
            let both = query.reshape([batch, length, heads, 2 * self.features])?;
            let part = |k: usize| {
                let part = both.narrow(-1, k * self.features, self.features)?;
                part.reshape([batch, length, heads * self.features])
            };
            (query, gate) = (part(0)?, Some(part(1)?));
        }
        let norms = self.q_norm.as_ref().zip(self.k_norm.as_ref());
        if let (Some((of_query, of_key)), true) = (norms, self.whole_norm) {
            (query, key) = (of_query.forward(&query)?, of_key.forward(&key)?);
        }
        (query, key) = (split_heads(&query, heads)?, split_heads(&key, groups)?);
        let value = split_heads(&value, groups)?;
        if let (Some((of_query, of_key)), false) = (norms, self.whole_norm) {
            (query, key) = (of_query.forward(&query)?, of_key.forward(&key)?);
        }
        if self.rotates {
            (query, key) = match self.neighbours {
                true => (rope.rotate_neighbours(&query)?, rope.rotate_neighbours(&key)?),
                false => (rope.rotate(&query)?, rope.rotate(&key)?),
            };
        }
        let sinks = self.sinks.as_ref().map(|sinks| -> &Tensor { sinks });
        let scoring = Scoring { scale: self.scale, softcap: self.softcap, sinks };
        let out = keys.attend([&query, &key, &value], scoring)?;
        let out = join_heads(&out)?;
        match gate {
            Some(gate) => self.o_proj.forward(&out.mul(&gate.sigmoid())?),
            None => self.o_proj.forward(&out),
        }
    }
}
