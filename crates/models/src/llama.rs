//! The Llama family: decoders with rotary positions, root mean square norms and gated feed forward layers.
//! `transformers`: `LlamaForCausalLM`, `MistralForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM`,
//! `GemmaForCausalLM`, `Gemma2ForCausalLM`, `Gemma3ForCausalLM`, `Phi3ForCausalLM`, and those with a mixture
//! of experts: `MixtralForCausalLM`, `Qwen2MoeForCausalLM`, `Qwen3MoeForCausalLM`.
//!
//! Touvron et al.: LLaMA, open and efficient foundation language models (2023).

use std::{collections::BTreeMap, path::Path};

use nn::{Embedding, Linear, Module, Parameter};
use serde::{Deserialize, Serialize};
use tensor_core::{DType, Device, Error, Result, Tensor};
use weights::{Format, WeightFile};

use crate::{
    Activation, KvCache, LanguageModel, Rope, RopeScaling, RopeTables, WeightSource,
    attention::{Masking, attend, causal_masking, join_heads, split_heads},
    gguf::{GgufNames, Metadata},
    mixture::{Mixture, MixtureConfig},
    read_config,
};

const OP: &str = "Llama";

/// The configuration of a model of the family, with the names and defaults of `transformers`. `model_type`
/// says which one it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlamaConfig {
    /// `llama`, `mistral`, `qwen2`, `qwen3`, `gemma`, `gemma2`, `gemma3_text`, `phi3`, `mixtral`, `qwen2_moe`
    /// or `qwen3_moe`.
    pub model_type: String,
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    pub hidden_size: usize,
    /// The features inside a feed forward layer.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The heads of queries.
    pub num_attention_heads: usize,
    /// The heads of keys and values; as many as queries have by default.
    pub num_key_value_heads: Option<usize>,
    /// The features of a head: `hidden_size / num_attention_heads` by default.
    pub head_dim: Option<usize>,
    /// The activation of the feed forward layers.
    pub hidden_act: Option<Activation>,
    /// The same in Gemma's configurations, where it precedes `hidden_act`.
    pub hidden_activation: Option<Activation>,
    /// The greatest number of positions.
    pub max_position_embeddings: usize,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f64,
    /// The base of rotary positions.
    pub rope_theta: f64,
    /// The base of layers with a sliding window, if it differs (Gemma 3).
    pub rope_local_base_freq: Option<f64>,
    /// The scaling of rotary positions, as it was written before version 5 of `transformers`.
    pub rope_scaling: Option<RopeScaling>,
    /// The scaling of rotary positions.
    pub rope_parameters: Option<RopeParameters>,
    /// The part of a head's features that rotates.
    pub partial_rotary_factor: Option<f64>,
    /// Whether the projections of attention have biases.
    pub attention_bias: bool,
    /// Whether the feed forward layers have biases.
    pub mlp_bias: bool,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: Option<bool>,
    /// The number of keys that a query sees in layers with a window.
    pub sliding_window: Option<usize>,
    /// Whether there are such layers (Qwen).
    pub use_sliding_window: Option<bool>,
    /// The first layer with a window (Qwen).
    pub max_window_layers: usize,
    /// `full_attention` or `sliding_attention` for each layer.
    pub layer_types: Option<Vec<String>>,
    /// The period of layers without a window: the last of each group has none (Gemma 3).
    pub sliding_window_pattern: Option<usize>,
    /// Scores are divided by the root of this number (Gemma 2 and 3).
    pub query_pre_attn_scalar: Option<f64>,
    /// The soft cap of scores (Gemma 2).
    pub attn_logit_softcapping: Option<f64>,
    /// The soft cap of logits (Gemma 2).
    pub final_logit_softcapping: Option<f64>,
    /// The context of the training, for Phi-3's positions.
    pub original_max_position_embeddings: Option<usize>,
    /// The number of experts, in models that have some.
    pub num_experts: Option<usize>,
    /// The same in Mixtral's configurations.
    pub num_local_experts: Option<usize>,
    /// The experts that each token goes to.
    pub num_experts_per_tok: usize,
    /// The features inside an expert; `intermediate_size` by default.
    pub moe_intermediate_size: Option<usize>,
    /// The features inside the expert that all tokens go to (Qwen 2).
    pub shared_expert_intermediate_size: Option<usize>,
    /// Whether the weights of the chosen experts are divided by their sum (Qwen).
    pub norm_topk_prob: bool,
    /// The period of layers with experts: the last of each group has some (Qwen).
    pub decoder_sparse_step: usize,
    /// Layers without experts (Qwen).
    pub mlp_only_layers: Vec<usize>,
}

/// The scaling of rotary positions: one, or one for each type of layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RopeParameters {
    /// By the type of a layer, such as `sliding_attention`.
    ByLayer(BTreeMap<String, RopeScaling>),
    /// The same for all layers.
    One(RopeScaling),
}

impl Default for LlamaConfig {
    fn default() -> LlamaConfig {
        LlamaConfig {
            model_type: "llama".into(),
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            hidden_act: None,
            hidden_activation: None,
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope_theta: 1e4,
            rope_local_base_freq: None,
            rope_scaling: None,
            rope_parameters: None,
            partial_rotary_factor: None,
            attention_bias: false,
            mlp_bias: false,
            tie_word_embeddings: None,
            sliding_window: None,
            use_sliding_window: None,
            max_window_layers: 0,
            layer_types: None,
            sliding_window_pattern: None,
            query_pre_attn_scalar: None,
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
            original_max_position_embeddings: None,
            num_experts: None,
            num_local_experts: None,
            num_experts_per_tok: 2,
            moe_intermediate_size: None,
            shared_expert_intermediate_size: None,
            norm_topk_prob: false,
            decoder_sparse_step: 1,
            mlp_only_layers: Vec::new(),
        }
    }
}

/// How the models of the family differ.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Style {
    model_type: &'static str,
    /// Queries, keys and values have biases, the output projection has none.
    qkv_bias: bool,
    /// Queries and keys of each head are normalized.
    qk_norm: bool,
    /// Norms multiply by 1 + weight, embeddings are scaled by √features, and embeddings are tied.
    gemma: bool,
    /// There is a norm after attention and after the feed forward layer, besides those before.
    sandwich: bool,
    /// Queries, keys and values are one projection, and so are gate and up.
    fused: bool,
    windows: Windows,
    /// The experts' names, and whether there is a shared one.
    experts: Experts,
    /// The architecture in GGUF files; empty if those are not read.
    gguf: &'static str,
}

/// Mixtures of experts of the family.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Experts {
    None,
    Mixtral,
    Qwen2,
    Qwen3,
}

/// Which layers have a window where the configuration does not list them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Windows {
    None,
    All,
    /// From `max_window_layers` on, if `use_sliding_window`.
    Later,
    /// All but the last of each group of this size (or of `sliding_window_pattern`).
    ButEach(usize),
}

const PLAIN: Style = Style {
    model_type: "llama",
    qkv_bias: false,
    qk_norm: false,
    gemma: false,
    sandwich: false,
    fused: false,
    windows: Windows::None,
    experts: Experts::None,
    gguf: "llama",
};

const STYLES: &[Style] = &[
    PLAIN,
    Style { model_type: "mistral", windows: Windows::All, gguf: "mistral", ..PLAIN },
    Style { model_type: "qwen2", qkv_bias: true, windows: Windows::Later, gguf: "qwen2", ..PLAIN },
    Style { model_type: "qwen3", qk_norm: true, windows: Windows::Later, gguf: "qwen3", ..PLAIN },
    Style { model_type: "gemma", gemma: true, gguf: "gemma", ..PLAIN },
    Style {
        model_type: "gemma2",
        gemma: true,
        sandwich: true,
        windows: Windows::ButEach(2),
        gguf: "gemma2",
        ..PLAIN
    },
    Style {
        model_type: "gemma3_text",
        gemma: true,
        sandwich: true,
        qk_norm: true,
        windows: Windows::ButEach(6),
        gguf: "gemma3",
        ..PLAIN
    },
    Style { model_type: "phi3", fused: true, windows: Windows::All, gguf: "phi3", ..PLAIN },
    Style { model_type: "mixtral", experts: Experts::Mixtral, windows: Windows::All, gguf: "", ..PLAIN },
    Style {
        model_type: "qwen2_moe",
        qkv_bias: true,
        experts: Experts::Qwen2,
        windows: Windows::Later,
        gguf: "",
        ..PLAIN
    },
    Style {
        model_type: "qwen3_moe",
        qk_norm: true,
        experts: Experts::Qwen3,
        windows: Windows::Later,
        gguf: "",
        ..PLAIN
    },
];

impl LlamaConfig {
    #[track_caller]
    fn style(&self) -> Result<Style> {
        match STYLES.iter().find(|style| style.model_type == self.model_type) {
            Some(style) => Ok(*style),
            None => {
                let names: Vec<&str> = STYLES.iter().map(|style| style.model_type).collect();
                let message = format!("model_type \"{}\" is none of {}", self.model_type, names.join(", "));
                Err(Error::invalid(OP, message))
            }
        }
    }

    /// The heads of keys and values.
    pub fn key_value_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// The features of a head.
    pub fn head_features(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    fn is_tied(&self, style: Style) -> bool {
        self.tie_word_embeddings.unwrap_or(style.gemma)
    }

    /// The window of each layer.
    #[track_caller]
    fn windows(&self) -> Result<Vec<Option<usize>>> {
        let style = self.style()?;
        let slides = |layer: usize| match (&self.layer_types, style.windows) {
            (Some(types), _) => types.get(layer).is_some_and(|name| name == "sliding_attention"),
            (None, Windows::None) => false,
            (None, Windows::All) => true,
            (None, Windows::Later) => {
                self.use_sliding_window == Some(true) && layer >= self.max_window_layers
            }
            (None, Windows::ButEach(n)) => {
                !(layer + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(n))
            }
        };
        Ok((0..self.num_hidden_layers).map(|layer| self.sliding_window.filter(|_| slides(layer))).collect())
    }

    /// The rotary positions of layers without and with a window.
    #[track_caller]
    fn ropes(&self) -> Result<[Rope; 2]> {
        let mut scalings = [("full_attention", self.rope_theta), ("sliding_attention", self.rope_theta)].map(
            |(name, base)| {
                let found = match &self.rope_parameters {
                    Some(RopeParameters::ByLayer(by_layer)) => by_layer.get(name).cloned(),
                    Some(RopeParameters::One(one)) => Some(one.clone()),
                    None => self.rope_scaling.clone(),
                };
                (found.unwrap_or_default(), base)
            },
        );
        if let (Some(base), None) = (self.rope_local_base_freq, &self.rope_parameters) {
            scalings[1] = (RopeScaling::default(), base);
        }
        let [full, sliding] = scalings.map(|(mut scaling, base)| {
            scaling.partial_rotary_factor = scaling.partial_rotary_factor.or(self.partial_rotary_factor);
            scaling.original_max_position_embeddings =
                scaling.original_max_position_embeddings.or(self.original_max_position_embeddings);
            Rope::new(self.head_features(), base, self.max_position_embeddings, &scaling)
        });
        Ok([full?, sliding?])
    }

    /// The mixture of experts of a layer, if it has one.
    #[track_caller]
    fn mixture(&self, layer: usize) -> Result<Option<MixtureConfig>> {
        let style = self.style()?;
        let step = self.decoder_sparse_step.max(1);
        let is_sparse = style.experts == Experts::Mixtral
            || ((layer + 1).is_multiple_of(step) && !self.mlp_only_layers.contains(&layer));
        let (Some(experts), true) =
            (self.num_experts.or(self.num_local_experts), is_sparse && style.experts != Experts::None)
        else {
            return Ok(None);
        };
        Ok(Some(MixtureConfig {
            width: self.hidden_size,
            inner: self.moe_intermediate_size.unwrap_or(self.intermediate_size),
            experts,
            chosen: self.num_experts_per_tok,
            normalized: self.norm_topk_prob || style.experts == Experts::Mixtral,
            shared: self.shared_expert_intermediate_size.filter(|_| style.experts == Experts::Qwen2),
            activation: self.hidden_act.unwrap_or_default(),
            names: match style.experts {
                Experts::Mixtral => ["w1", "w3", "w2"],
                Experts::None | Experts::Qwen2 | Experts::Qwen3 => ["gate_proj", "up_proj", "down_proj"],
            },
        }))
    }

    #[track_caller]
    fn check(&self) -> Result<()> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.key_value_heads()),
            ("num_hidden_layers", self.num_hidden_layers),
            ("vocab_size", self.vocab_size),
            ("intermediate_size", self.intermediate_size),
            ("head_dim", self.head_features()),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(Error::invalid(OP, format!("{name} is 0")));
        }
        if !self.num_attention_heads.is_multiple_of(self.key_value_heads()) {
            let (heads, groups) = (self.num_attention_heads, self.key_value_heads());
            return Err(Error::invalid(OP, format!("{groups} key-value heads do not divide {heads} heads")));
        }
        Ok(())
    }
}

/// The root mean square norm; with `plus_one` the factor is 1 + weight.
#[derive(Module)]
struct Norm {
    weight: Parameter,
    eps: f64,
    plus_one: bool,
}

impl Norm {
    #[track_caller]
    fn new(source: &WeightSource, name: &str, features: usize, config: &LlamaConfig) -> Result<Norm> {
        let plus_one = config.style()?.gemma;
        let initial = if plus_one { crate::Initial::Zeros } else { crate::Initial::Ones };
        let weight = Parameter::new(source.at(name).parameter("weight", &[features], initial)?)?;
        Ok(Norm { weight, eps: config.rms_norm_eps, plus_one })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let features = x.dims().last().copied().unwrap_or(0);
        let more = self.plus_one.then(|| self.weight.add_scalar(1.0));
        let weight: &Tensor = more.as_ref().unwrap_or(&self.weight);
        nn::functional::rms_norm(x, [features], Some(weight), Some(self.eps))
    }
}

/// Self-attention with rotary positions. Queries, keys and values are three projections, or one.
#[derive(Module)]
struct Attention {
    q_proj: Option<Linear>,
    k_proj: Option<Linear>,
    v_proj: Option<Linear>,
    qkv_proj: Option<Linear>,
    o_proj: Linear,
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    heads: usize,
    groups: usize,
    features: usize,
    scale: f64,
    softcap: Option<f64>,
}

impl Attention {
    #[track_caller]
    fn new(source: &WeightSource, config: &LlamaConfig) -> Result<Attention> {
        let style = config.style()?;
        let (heads, groups, features) =
            (config.num_attention_heads, config.key_value_heads(), config.head_features());
        let width = config.hidden_size;
        let bias = config.attention_bias || style.qkv_bias;
        let part = |name: &str, count: usize, there: bool| -> Result<Option<Linear>> {
            there.then(|| source.linear(name, width, count * features, bias)).transpose()
        };
        let norm = |name: &str| style.qk_norm.then(|| Norm::new(source, name, features, config)).transpose();
        Ok(Attention {
            q_proj: part("q_proj", heads, !style.fused)?,
            k_proj: part("k_proj", groups, !style.fused)?,
            v_proj: part("v_proj", groups, !style.fused)?,
            qkv_proj: part("qkv_proj", heads + 2 * groups, style.fused)?,
            o_proj: source.linear("o_proj", heads * features, width, config.attention_bias)?,
            q_norm: norm("q_norm")?,
            k_norm: norm("k_norm")?,
            heads,
            groups,
            features,
            scale: config.query_pre_attn_scalar.unwrap_or(features as f64).powf(-0.5),
            softcap: config.attn_logit_softcapping,
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, rope: &RopeTables, keys: Keys<'_>) -> Result<Tensor> {
        let (heads, groups) = (self.heads, self.groups);
        let [query, key, value] = match (&self.q_proj, &self.k_proj, &self.v_proj, &self.qkv_proj) {
            (Some(q), Some(k), Some(v), _) => [q.forward(x)?, k.forward(x)?, v.forward(x)?],
            (_, _, _, Some(all)) => {
                let all = all.forward(x)?;
                let (q, k) = (heads * self.features, groups * self.features);
                [all.narrow(-1, 0, q)?, all.narrow(-1, q, k)?, all.narrow(-1, q + k, k)?]
            }
            _ => return Err(Error::invalid(OP, "attention has no projections")),
        };
        let mut query = split_heads(&query, heads)?;
        let mut key = split_heads(&key, groups)?;
        let value = split_heads(&value, groups)?;
        if let (Some(of_query), Some(of_key)) = (&self.q_norm, &self.k_norm) {
            (query, key) = (of_query.forward(&query)?, of_key.forward(&key)?);
        }
        let (query, key) = (rope.rotate(&query)?, rope.rotate(&key)?);
        let out = match keys {
            Keys::Own(masking) => attend(&query, &key, &value, self.scale, self.softcap, masking)?,
            Keys::Cached(cache, layer) => {
                cache.attend(layer, [&query, &key, &value], self.scale, self.softcap)?
            }
        };
        self.o_proj.forward(&join_heads(&out)?)
    }
}

/// The keys that queries see.
enum Keys<'a> {
    Own(&'a Masking),
    Cached(&'a mut KvCache, usize),
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
            gate_proj: part("gate_proj", inner, !style.fused)?,
            up_proj: part("up_proj", inner, !style.fused)?,
            gate_up_proj: part("gate_up_proj", 2 * inner, style.fused)?,
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

/// A layer: attention and feed forward, each with a norm before, and in Gemma 2 and 3 a norm behind.
#[derive(Module)]
struct Layer {
    self_attn: Attention,
    mlp: Option<FeedForward>,
    /// The feed forward part under Mixtral's name.
    block_sparse_moe: Option<FeedForward>,
    input_layernorm: Norm,
    post_attention_layernorm: Norm,
    pre_feedforward_layernorm: Option<Norm>,
    post_feedforward_layernorm: Option<Norm>,
}

impl Layer {
    #[track_caller]
    fn new(source: &WeightSource, k: usize, config: &LlamaConfig) -> Result<Layer> {
        let Style { sandwich, experts, .. } = config.style()?;
        let is_mixtral = experts == Experts::Mixtral;
        let source = &source.at(k);
        let at = source.at(if is_mixtral { "block_sparse_moe" } else { "mlp" });
        let feed_forward = match config.mixture(k)? {
            Some(mixture) => FeedForward::Mixture(Mixture::new(&at, &mixture)?),
            None => FeedForward::Dense(Mlp::new(&at, config)?),
        };
        let (mlp, block_sparse_moe) =
            if is_mixtral { (None, Some(feed_forward)) } else { (Some(feed_forward), None) };
        let norm = |name: &str| Norm::new(source, name, config.hidden_size, config);
        let extra = |name: &str| sandwich.then(|| norm(name)).transpose();
        Ok(Layer {
            self_attn: Attention::new(&source.at("self_attn"), config)?,
            mlp,
            block_sparse_moe,
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            pre_feedforward_layernorm: extra("pre_feedforward_layernorm")?,
            post_feedforward_layernorm: extra("post_feedforward_layernorm")?,
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, rope: &RopeTables, keys: Keys<'_>) -> Result<Tensor> {
        let attended = self.self_attn.forward(&self.input_layernorm.forward(x)?, rope, keys)?;
        let Some(mlp) = self.mlp.as_ref().or(self.block_sparse_moe.as_ref()) else {
            return Err(Error::invalid(OP, "a layer has no feed forward part"));
        };
        match (&self.pre_feedforward_layernorm, &self.post_feedforward_layernorm) {
            (Some(before), Some(after)) => {
                let x = x.add(&self.post_attention_layernorm.forward(&attended)?)?;
                x.add(&after.forward(&mlp.forward(&before.forward(&x)?)?)?)
            }
            _ => {
                let x = x.add(&attended)?;
                x.add(&mlp.forward(&self.post_attention_layernorm.forward(&x)?)?)
            }
        }
    }
}

/// The decoder without its output layer.
#[derive(Module)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: Norm,
}

/// A decoder of the Llama family with its output layer.
///
/// ```
/// use models::{LanguageModel, Llama, LlamaConfig, WeightSource};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let config = LlamaConfig {
///     vocab_size: 50,
///     hidden_size: 16,
///     intermediate_size: 32,
///     num_hidden_layers: 2,
///     num_attention_heads: 4,
///     num_key_value_heads: Some(2),
///     ..Default::default()
/// };
/// let device = backend_cpu::cpu();
/// let model = Llama::new(&config, &WeightSource::random(&Generator::seed(0, &device)))?;
/// let logits = model.forward(&Tensor::new([[1i32, 2, 3]], &device)?)?;
/// assert_eq!(logits.dims(), [1, 3, 50]);
/// # Ok(()) }
/// ```
#[derive(Module)]
pub struct Llama {
    model: Decoder,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: LlamaConfig,
    #[module(skip)]
    ropes: [Rope; 2],
    #[module(skip)]
    windows: Vec<Option<usize>>,
    is_gemma: bool,
}

impl Llama {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// A configuration that is none of the family or contradicts itself; parameters that are missing, have
    /// another shape, or are left over.
    #[track_caller]
    pub fn new(config: &LlamaConfig, source: &WeightSource) -> Result<Llama> {
        config.check()?;
        let style = config.style()?;
        let model = source.at("model");
        let layers = (0..config.num_hidden_layers).map(|k| Layer::new(&model.at("layers"), k, config));
        let decoder = Decoder {
            embed_tokens: model.embedding("embed_tokens", config.vocab_size, config.hidden_size)?,
            layers: layers.collect::<Result<_>>()?,
            norm: Norm::new(&model, "norm", config.hidden_size, config)?,
        };
        let lm_head = match config.is_tied(style) {
            true => None,
            false => Some(source.linear("lm_head", config.hidden_size, config.vocab_size, false)?),
        };
        source.finish(&[
            "rotary_emb.inv_freq",
            "lm_head.weight",
            "rope_freqs.weight",
            "rope_factors_long.weight",
            "rope_factors_short.weight",
        ])?;
        let (ropes, windows) = (config.ropes()?, config.windows()?);
        Ok(Llama { model: decoder, lm_head, config: config.clone(), ropes, windows, is_gemma: style.gemma })
    }

    /// A model from a folder with `config.json` and weights (see [`weights::open`]), or from a GGUF file.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Llama::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Llama> {
        let path = path.as_ref();
        if path.is_dir() {
            return Llama::new(&read_config(path)?, &WeightSource::open(path, device)?);
        }
        Llama::from_gguf(weights::open(path)?, device)
    }

    /// A model from an open GGUF file, configured by its metadata. Weights in blocks stay in blocks: they
    /// take no more memory than the file, and cannot be trained.
    ///
    /// # Errors
    /// Another format or architecture, metadata that lacks a number, and the errors of [`Llama::new`].
    #[track_caller]
    pub fn from_gguf(file: WeightFile, device: &Device) -> Result<Llama> {
        Llama::from_gguf_in(file, tensor_core::default_dtype(), device)
    }

    /// [`Llama::from_gguf`] in another dtype of hidden states, such as bf16.
    ///
    /// # Errors
    /// As [`Llama::from_gguf`], and a dtype that the device lacks.
    #[track_caller]
    pub fn from_gguf_in(file: WeightFile, dtype: DType, device: &Device) -> Result<Llama> {
        if file.format() != Format::Gguf {
            let message = format!("is {}, not GGUF; give the folder with its config.json", file.format());
            return Err(tensor_core::file::file_error(file.path(), message));
        }
        let (config, names) = from_metadata(&file)?;
        Llama::new(&config, &WeightSource::gguf(file, names, device).floats(dtype))
    }

    /// The dtype of hidden states.
    pub fn dtype(&self) -> DType {
        self.model.norm.weight.dtype()
    }

    /// The configuration.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }
}

impl LanguageModel for Llama {
    fn device(&self) -> Device {
        self.model.embed_tokens.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn new_cache(&self) -> KvCache {
        KvCache::new(self.windows.clone())
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, mut cache: Option<&mut KvCache>) -> Result<Tensor> {
        let &[_, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let device = ids.device();
        let mut x = self.model.embed_tokens.forward(ids)?;
        if self.is_gemma {
            x = x.mul_scalar((self.config.hidden_size as f64).sqrt());
        }
        let (first, pads) = match &mut cache {
            Some(cache) => {
                cache.begin(length, x.dtype(), &device)?;
                (cache.len(), cache.pads().to_vec())
            }
            None => (0, Vec::new()),
        };
        let [full, sliding] = &self.ropes;
        let full = full.tables(first, length, &pads, x.dtype(), &device)?;
        let sliding = sliding.tables(first, length, &pads, x.dtype(), &device)?;
        let masking = causal_masking(length, None, &device)?;
        let windowed = causal_masking(length, self.config.sliding_window, &device)?;
        for (k, layer) in self.model.layers.iter().enumerate() {
            let (rope, masking) = match self.windows[k] {
                Some(_) => (&sliding, &windowed),
                None => (&full, &masking),
            };
            let keys = match &mut cache {
                Some(cache) => Keys::Cached(cache, k),
                None => Keys::Own(masking),
            };
            x = layer.forward(&x, rope, keys)?;
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        self.model.norm.forward(&x)
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = match &self.lm_head {
            Some(head) => head.forward(hidden)?,
            None => nn::functional::linear(hidden, &self.model.embed_tokens.weight, None)?,
        };
        Ok(match self.config.final_logit_softcapping {
            Some(cap) => logits.div_scalar(cap).tanh().mul_scalar(cap),
            None => logits,
        })
    }
}

/// The configuration in the metadata of a GGUF file, and the names of its tensors.
#[track_caller]
fn from_metadata(file: &WeightFile) -> Result<(LlamaConfig, GgufNames)> {
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
