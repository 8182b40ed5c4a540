//! The Llama family: decoders with rotary positions, root mean square norms and gated feed forward layers.
//! `transformers`: `LlamaForCausalLM`, `MistralForCausalLM`, `Qwen2ForCausalLM`, `Qwen3ForCausalLM`,
//! `GemmaForCausalLM`, `Gemma2ForCausalLM`, `Gemma3ForCausalLM`, `Phi3ForCausalLM`, and those with a mixture
//! of experts: `MixtralForCausalLM`, `Qwen2MoeForCausalLM`, `Qwen3MoeForCausalLM`.
//!
//! Touvron et al.: LLaMA, open and efficient foundation language models (2023).

mod config;
mod from_gguf;

use std::path::Path;

use nn::{Embedding, Linear, Module, Parameter};
use tensor_core::{DType, Device, Error, Result, Tensor};
use weights::{Format, WeightFile};

pub use self::config::{LlamaConfig, RopeParameters};
use self::{
    config::{Experts, Style},
    from_gguf::from_metadata,
};
use crate::{
    Activation, KvCache, LanguageModel, Rope, RopeTables, WeightSource,
    attention::{Masking, attend, causal_masking, join_heads, split_heads},
    mixture::Mixture,
    read_config,
};

const OP: &str = "Llama";

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
struct LlamaAttention {
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

impl LlamaAttention {
    #[track_caller]
    fn new(source: &WeightSource, config: &LlamaConfig) -> Result<LlamaAttention> {
        let style = config.style()?;
        let (heads, groups, features) =
            (config.num_attention_heads, config.key_value_heads(), config.head_features());
        let width = config.hidden_size;
        let bias = config.attention_bias || style.qkv_bias;
        let part = |name: &str, count: usize, there: bool| -> Result<Option<Linear>> {
            there.then(|| source.linear(name, width, count * features, bias)).transpose()
        };
        let norm = |name: &str| style.qk_norm.then(|| Norm::new(source, name, features, config)).transpose();
        Ok(LlamaAttention {
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
    self_attn: LlamaAttention,
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
            self_attn: LlamaAttention::new(&source.at("self_attn"), config)?,
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
/// use models::{LanguageModel, Llama, LlamaConfig};
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
/// let model = Llama::new(&config, &Generator::seed(0, &device))?;
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
    pub fn new(config: &LlamaConfig, weights: impl Into<WeightSource>) -> Result<Llama> {
        Llama::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &LlamaConfig, source: &WeightSource) -> Result<Llama> {
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
            true => {
                crate::weight_source::tie_output(&decoder.embed_tokens);
                None
            }
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
            return Llama::new(&read_config(path)?, WeightSource::open(path, device)?);
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
        Llama::new(&config, WeightSource::gguf(file, names, device).floats(dtype))
    }

    /// The dtype of hidden states.
    pub fn dtype(&self) -> DType {
        self.model.norm.weight.dtype()
    }

    /// The configuration.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// As [`LanguageModel::hidden`], for keys whose frequencies do not change by this step.
    #[track_caller]
    fn step(&self, ids: &Tensor, mut cache: Option<&mut KvCache>) -> Result<Tensor> {
        let &[_, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let device = ids.device();
        let mut x = self.model.embed_tokens.forward(ids)?;
        if self.is_gemma {
            x = x.mul_scalar((self.config.hidden_size as f64).sqrt());
        }
        if let Some(cache) = &mut cache {
            cache.begin(length, x.dtype(), &device)?;
        }
        let [full, sliding] = &self.ropes;
        let full = KvCache::rope_tables(cache.as_deref_mut(), full, length, x.dtype(), &device)?;
        let sliding = KvCache::rope_tables(cache.as_deref_mut(), sliding, length, x.dtype(), &device)?;
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

    fn repeats_steps(&self) -> bool {
        !self.ropes.iter().any(Rope::has_long_frequencies)
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, cache: Option<&mut KvCache>) -> Result<Tensor> {
        match cache {
            Some(cache) => cache.step_by_length(ids, &self.ropes, |ids, cache| self.step(ids, Some(cache))),
            None => self.step(ids, None),
        }
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
