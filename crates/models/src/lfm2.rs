//! LFM 2: short convolutions with gates in most layers, attention in the others. `transformers`:
//! `Lfm2ForCausalLM`, and with a mixture of experts `Lfm2MoeForCausalLM`.
//!
//! Liquid AI: LFM2 technical report (2025).

use std::path::Path;

use nn::{Embedding, Linear, Module, Parameter, RmsNorm, Visitor, VisitorMut};
use serde::{Deserialize, Serialize};
use tensor_core::{DType, Device, Error, Result, Tensor};
use weights::WeightFile;

use crate::{
    Initial, KvCache, LanguageModel, Masking, Rope, RopeScaling, RopeTables, WeightSource,
    attention::{attend, default_scale, join_heads, split_heads},
    config::{Activation, check_counts},
    gguf::{GgufNames, Metadata},
    mixture::{Correction, GateFunction, Mixture, MixtureConfig, RouterConfig},
    read_config,
    recurrent::{causal_convolution, padding_mask},
};

const OP: &str = "Lfm2";

/// The configuration, with the names and defaults of `transformers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(non_snake_case)]
pub struct Lfm2Config {
    /// `lfm2` or `lfm2_moe`.
    pub model_type: String,
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    pub hidden_size: usize,
    /// The features inside a feed forward layer, before they are adjusted.
    pub intermediate_size: usize,
    /// The former name of `intermediate_size`, which precedes it.
    pub block_ff_dim: Option<usize>,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The heads of queries.
    pub num_attention_heads: usize,
    /// The heads of keys and values.
    pub num_key_value_heads: usize,
    /// The greatest number of positions.
    pub max_position_embeddings: usize,
    /// Added to the mean square in norms.
    pub norm_eps: f64,
    /// The base of rotary positions.
    pub rope_theta: f64,
    /// The scaling of rotary positions.
    pub rope_parameters: Option<RopeScaling>,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: bool,
    /// The former name of `tie_word_embeddings`, which precedes it.
    pub tie_embedding: Option<bool>,
    /// Whether convolutions and their projections have biases.
    pub conv_bias: bool,
    /// The steps that a convolution sees.
    pub conv_L_cache: usize,
    /// The adjusted features of a feed forward layer are a multiple of this number.
    pub block_multiple_of: usize,
    /// The factor of two thirds of the features.
    pub block_ffn_dim_multiplier: Option<f64>,
    /// Whether the features inside a feed forward layer are adjusted (`lfm2`).
    pub block_auto_adjust_ff_dim: bool,
    /// The layers with attention, if `layer_types` is not there; all by default.
    pub full_attn_idxs: Option<Vec<usize>>,
    /// `full_attention` or `conv` for each layer.
    pub layer_types: Option<Vec<String>>,
    /// The features inside an expert (`lfm2_moe`).
    pub moe_intermediate_size: usize,
    /// The first layers, which have no experts (`lfm2_moe`).
    pub num_dense_layers: usize,
    /// The number of experts (`lfm2_moe`).
    pub num_experts: usize,
    /// The experts that each token goes to (`lfm2_moe`).
    pub num_experts_per_tok: usize,
    /// Whether numbers are added to the scores of experts for their choice (`lfm2_moe`).
    pub use_expert_bias: bool,
    /// Whether the weights of the chosen experts are divided by their sum (`lfm2_moe`).
    pub norm_topk_prob: bool,
    /// The factor of these weights (`lfm2_moe`).
    pub routed_scaling_factor: f64,
}

impl Default for Lfm2Config {
    fn default() -> Lfm2Config {
        Lfm2Config {
            model_type: "lfm2".into(),
            vocab_size: 65536,
            hidden_size: 2560,
            intermediate_size: 12288,
            block_ff_dim: None,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: 8,
            max_position_embeddings: 128_000,
            norm_eps: 1e-5,
            rope_theta: 1e6,
            rope_parameters: None,
            tie_word_embeddings: true,
            tie_embedding: None,
            conv_bias: false,
            conv_L_cache: 3,
            block_multiple_of: 256,
            block_ffn_dim_multiplier: Some(1.0),
            block_auto_adjust_ff_dim: true,
            full_attn_idxs: None,
            layer_types: None,
            moe_intermediate_size: 1792,
            num_dense_layers: 2,
            num_experts: 32,
            num_experts_per_tok: 4,
            use_expert_bias: true,
            norm_topk_prob: true,
            routed_scaling_factor: 1.0,
        }
    }
}

/// The `model_type` with experts.
const WITH_EXPERTS: &str = "lfm2_moe";
/// The names of gate, up and down projections.
const NAMES: [&str; 3] = ["w1", "w3", "w2"];

impl Lfm2Config {
    /// The features inside a feed forward layer without experts.
    fn inner(&self) -> usize {
        let given = self.block_ff_dim.unwrap_or(self.intermediate_size);
        if self.model_type == WITH_EXPERTS || !self.block_auto_adjust_ff_dim {
            return given;
        }
        let inner = 2 * given / 3;
        match self.block_ffn_dim_multiplier {
            Some(factor) => {
                let scaled = (factor * inner as f64).min(f64::from(i32::MAX)) as usize;
                scaled.next_multiple_of(self.block_multiple_of.max(1))
            }
            None => inner,
        }
    }

    /// Whether a layer has attention.
    fn attends(&self, layer: usize) -> bool {
        match (&self.layer_types, &self.full_attn_idxs) {
            (Some(types), _) => types.get(layer).is_some_and(|name| name == "full_attention"),
            (None, Some(layers)) => layers.contains(&layer),
            (None, None) => true,
        }
    }

    /// The mixture of experts of a layer, if it has one.
    fn mixture(&self, layer: usize) -> Option<MixtureConfig> {
        (self.model_type == WITH_EXPERTS && layer >= self.num_dense_layers).then_some(MixtureConfig {
            width: self.hidden_size,
            inner: self.moe_intermediate_size,
            experts: self.num_experts,
            bias: false,
            router: RouterConfig {
                name: "gate",
                bias: false,
                chosen: self.num_experts_per_tok,
                sigmoid: true,
                correction: if self.use_expert_bias { Correction::OfMixture } else { Correction::None },
                groups: None,
                normalized: self.norm_topk_prob,
                least_sum: 1e-6,
                scale: self.routed_scaling_factor,
                scaled: None,
            },
            shared: None,
            gate: GateFunction::Activation(Activation::Silu),
            names: NAMES,
        })
    }

    #[track_caller]
    fn check(&self) -> Result<()> {
        let (heads, groups) = (self.num_attention_heads, self.num_key_value_heads);
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.block_ff_dim.unwrap_or(self.intermediate_size)),
            ("block_multiple_of", self.block_multiple_of),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", heads),
            ("num_key_value_heads", groups),
            ("conv_L_cache", self.conv_L_cache),
            ("moe_intermediate_size", self.moe_intermediate_size),
        ];
        check_counts(OP, &sizes)?;
        check_counts(OP, &[("the adjusted intermediate_size", self.inner())])?;
        let wrong = |message: String| Err(Error::invalid(OP, message));
        if !["lfm2", WITH_EXPERTS].contains(&self.model_type.as_str()) {
            return wrong(format!("model_type \"{}\" is none of lfm2, {WITH_EXPERTS}", self.model_type));
        }
        if !heads.is_multiple_of(groups) || !self.hidden_size.is_multiple_of(heads) {
            return wrong(format!(
                "{groups} key-value heads, {heads} heads and {} features",
                self.hidden_size
            ));
        }
        let Some(types) = &self.layer_types else { return Ok(()) };
        if let Some(other) = types.iter().find(|name| *name != "full_attention" && *name != "conv") {
            return wrong(format!("a layer of the type \"{other}\", not full_attention or conv"));
        }
        if types.len() != self.num_hidden_layers {
            return wrong(format!("{} layer_types for {} layers", types.len(), self.num_hidden_layers));
        }
        Ok(())
    }
}

#[derive(Module)]
struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    out_proj: Linear,
    q_layernorm: RmsNorm,
    k_layernorm: RmsNorm,
    heads: usize,
    groups: usize,
}

impl Attention {
    #[track_caller]
    fn new(source: &WeightSource, config: &Lfm2Config) -> Result<Attention> {
        let (width, heads, groups) =
            (config.hidden_size, config.num_attention_heads, config.num_key_value_heads);
        let features = width / heads;
        let project = |name: &str, heads: usize| source.linear(name, width, heads * features, false);
        Ok(Attention {
            q_proj: project("q_proj", heads)?,
            k_proj: project("k_proj", groups)?,
            v_proj: project("v_proj", groups)?,
            out_proj: source.linear("out_proj", width, width, false)?,
            q_layernorm: source.rms_norm("q_layernorm", features, config.norm_eps)?,
            k_layernorm: source.rms_norm("k_layernorm", features, config.norm_eps)?,
            heads,
            groups,
        })
    }

    /// The output for `x` `[N, L, features]`. A cache has the number of its layer with it.
    #[track_caller]
    fn forward(&self, x: &Tensor, rope: &RopeTables, cache: Option<(&mut KvCache, usize)>) -> Result<Tensor> {
        let query = self.q_layernorm.forward(&split_heads(&self.q_proj.forward(x)?, self.heads)?)?;
        let key = self.k_layernorm.forward(&split_heads(&self.k_proj.forward(x)?, self.groups)?)?;
        let value = split_heads(&self.v_proj.forward(x)?, self.groups)?;
        let (query, key, scale) = (rope.rotate(&query)?, rope.rotate(&key)?, default_scale(&query));
        let out = match cache {
            Some((cache, layer)) => cache.attend(layer, [&query, &key, &value], scale, None)?,
            None => attend(&query, &key, &value, scale, None, &Masking::Causal)?,
        };
        self.out_proj.forward(&join_heads(&out)?)
    }
}

/// The weight and the bias of a convolution.
#[derive(Module)]
struct Convolution {
    weight: Parameter,
    bias: Option<Parameter>,
}

/// out(c · convolution(b · x)), where b, c and x are three projections of the input.
#[derive(Module)]
struct ShortConvolution {
    conv: Convolution,
    in_proj: Linear,
    out_proj: Linear,
}

impl ShortConvolution {
    #[track_caller]
    fn new(source: &WeightSource, config: &Lfm2Config) -> Result<ShortConvolution> {
        let (width, kernel, bias) = (config.hidden_size, config.conv_L_cache, config.conv_bias);
        let at = source.at("conv");
        let initial = Initial::Normal((kernel as f64).powf(-0.5));
        let biases = || Parameter::new(at.parameter("bias", &[width], Initial::Zeros)?);
        Ok(ShortConvolution {
            conv: Convolution {
                weight: Parameter::new(at.parameter("weight", &[width, 1, kernel], initial)?)?,
                bias: bias.then(biases).transpose()?,
            },
            in_proj: source.linear("in_proj", width, 3 * width, bias)?,
            out_proj: source.linear("out_proj", width, width, bias)?,
        })
    }

    /// The output for `x` `[N, L, features]`, and the last steps of the convolution. `mask` `[N, L, 1]` is 0
    /// at padding; `before` are the steps before `x`.
    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        before: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        let parts = self.in_proj.forward(x)?.chunk(3, -1)?;
        let mut inner = parts[0].mul(&parts[2])?;
        if let Some(mask) = mask {
            inner = inner.mul(mask)?;
        }
        let bias = self.conv.bias.as_ref().map(|bias| -> &Tensor { bias });
        let (sum, last) = causal_convolution(&inner, before, &self.conv.weight, bias)?;
        Ok((self.out_proj.forward(&parts[1].mul(&sum)?)?, last))
    }
}

/// w2(silu(w1(x)) · w3(x)).
#[derive(Module)]
struct Mlp {
    w1: Linear,
    w2: Linear,
    w3: Linear,
}

/// The feed forward part of a layer.
enum FeedForward {
    Dense(Mlp),
    Mixture(Mixture),
}

impl FeedForward {
    #[track_caller]
    fn new(source: &WeightSource, layer: usize, config: &Lfm2Config) -> Result<FeedForward> {
        if let Some(mixture) = config.mixture(layer) {
            return Ok(FeedForward::Mixture(Mixture::new(source, &mixture)?));
        }
        let (width, inner) = (config.hidden_size, config.inner());
        Ok(FeedForward::Dense(Mlp {
            w1: source.linear("w1", width, inner, false)?,
            w2: source.linear("w2", inner, width, false)?,
            w3: source.linear("w3", width, inner, false)?,
        }))
    }

    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            FeedForward::Dense(mlp) => mlp.w2.forward(&mlp.w1.forward(x)?.silu().mul(&mlp.w3.forward(x)?)?),
            FeedForward::Mixture(mixture) => mixture.forward(x),
        }
    }
}

impl Module for FeedForward {
    fn visit(&self, visitor: &mut Visitor) {
        match self {
            FeedForward::Dense(mlp) => mlp.visit(visitor),
            FeedForward::Mixture(mixture) => mixture.visit(visitor),
        }
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        match self {
            FeedForward::Dense(mlp) => mlp.visit_mut(visitor),
            FeedForward::Mixture(mixture) => mixture.visit_mut(visitor),
        }
    }
}

/// A layer: attention or a convolution, and a feed forward part.
#[derive(Module)]
struct Layer {
    self_attn: Option<Attention>,
    conv: Option<ShortConvolution>,
    feed_forward: FeedForward,
    operator_norm: RmsNorm,
    ffn_norm: RmsNorm,
    /// The number of the layer among those of its kind.
    number: usize,
}

impl Layer {
    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        rope: &RopeTables,
        mask: Option<&Tensor>,
        cache: Option<&mut KvCache>,
    ) -> Result<Tensor> {
        let normed = self.operator_norm.forward(x)?;
        let part = match (&self.self_attn, &self.conv, cache) {
            (Some(attention), _, cache) => {
                attention.forward(&normed, rope, cache.map(|cache| (cache, self.number)))?
            }
            (None, Some(conv), None) => conv.forward(&normed, mask, None)?.0,
            (None, Some(conv), Some(cache)) => {
                let before = cache.states(self.number)?.first().cloned();
                let (out, last) = conv.forward(&normed, mask, before.as_ref())?;
                cache.set_states(self.number, vec![last])?;
                out
            }
            (None, None, _) => {
                return Err(Error::invalid(OP, "a layer has neither attention nor a convolution"));
            }
        };
        let x = x.add(&part)?;
        x.add(&self.feed_forward.forward(&self.ffn_norm.forward(&x)?)?)
    }
}

#[derive(Module)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    embedding_norm: RmsNorm,
}

/// LFM 2 with its output layer. Its cache has the keys and values of layers with attention, and the last
/// steps of the others, which cannot go back.
#[derive(Module)]
pub struct Lfm2 {
    model: Decoder,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: Lfm2Config,
    #[module(skip)]
    rope: Rope,
}

impl Lfm2 {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// A configuration that contradicts itself or has layers of another kind; parameters that are missing,
    /// have another shape, or are left over.
    #[track_caller]
    pub fn new(config: &Lfm2Config, weights: impl Into<WeightSource>) -> Result<Lfm2> {
        Lfm2::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &Lfm2Config, source: &WeightSource) -> Result<Lfm2> {
        config.check()?;
        let (width, eps) = (config.hidden_size, config.norm_eps);
        let at = source.at("model");
        let mut numbers = [0, 0];
        let layers = (0..config.num_hidden_layers).map(|k| {
            let (at, attends) = (at.at("layers").at(k), config.attends(k));
            let number = numbers[usize::from(attends)];
            numbers[usize::from(attends)] += 1;
            let attention = || Attention::new(&at.at("self_attn"), config);
            let conv = || ShortConvolution::new(&at.at("conv"), config);
            Ok(Layer {
                self_attn: attends.then(attention).transpose()?,
                conv: (!attends).then(conv).transpose()?,
                feed_forward: FeedForward::new(&at.at("feed_forward"), k, config)?,
                operator_norm: at.rms_norm("operator_norm", width, eps)?,
                ffn_norm: at.rms_norm("ffn_norm", width, eps)?,
                number,
            })
        });
        let model = Decoder {
            layers: layers.collect::<Result<_>>()?,
            embed_tokens: at.embedding("embed_tokens", config.vocab_size, width)?,
            embedding_norm: at.rms_norm("embedding_norm", width, eps)?,
        };
        let lm_head = match config.tie_embedding.unwrap_or(config.tie_word_embeddings) {
            true => {
                crate::weight_source::tie_output(&model.embed_tokens);
                None
            }
            false => Some(source.linear("lm_head", width, config.vocab_size, false)?),
        };
        source.finish(&["lm_head.weight"])?;
        let scaling = config.rope_parameters.clone().unwrap_or_default();
        let features = width / config.num_attention_heads;
        let rope = Rope::new(features, config.rope_theta, config.max_position_embeddings, &scaling)?;
        if rope.has_long_frequencies() {
            return Err(Error::invalid(OP, "positions of the kind longrope are not known for this model"));
        }
        Ok(Lfm2 { model, lm_head, config: config.clone(), rope })
    }

    /// A model from a folder with `config.json` and weights, or from a GGUF file.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Lfm2::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Lfm2> {
        let path = path.as_ref();
        if path.is_dir() {
            return Lfm2::new(&read_config(path)?, WeightSource::open(path, device)?);
        }
        Lfm2::from_gguf(weights::open(path)?, device)
    }

    /// A model from an open GGUF file, configured by its metadata. Weights in blocks stay in blocks.
    ///
    /// # Errors
    /// Another format or architecture, metadata that lacks a number, and the errors of [`Lfm2::new`].
    #[track_caller]
    pub fn from_gguf(file: WeightFile, device: &Device) -> Result<Lfm2> {
        let config = Lfm2Config::from_metadata(&file)?;
        let names = GgufNames { own_norm: false, one_more: false, interleaved: None };
        Lfm2::new(&config, WeightSource::gguf(file, names, device))
    }

    /// The dtype of hidden states.
    pub fn dtype(&self) -> DType {
        self.model.embed_tokens.weight.dtype()
    }

    /// The configuration.
    pub fn config(&self) -> &Lfm2Config {
        &self.config
    }
}

impl Lfm2Config {
    /// The configuration in the metadata of a GGUF file.
    #[track_caller]
    fn from_metadata(file: &WeightFile) -> Result<Lfm2Config> {
        let metadata = Metadata::of(file)?;
        let model_type = match metadata.architecture {
            "lfm2" => "lfm2",
            "lfm2moe" => WITH_EXPERTS,
            other => {
                let message = format!("has the architecture \"{other}\", which is none of lfm2, lfm2moe");
                return Err(metadata.error(message));
            }
        };
        let table = |name: &str| file.info(name).map(|info| info.shape().dims().to_vec());
        let vocab_size = match table("token_embd.weight").as_deref() {
            Some(&[rows, _]) => rows,
            _ => return Err(metadata.error("has no table token_embd.weight")),
        };
        let (layers, heads) = (metadata.needed("block_count")?, metadata.needed("attention.head_count")?);
        let hidden_size = metadata.needed("embedding_length")?;
        let counted = layers.min(file.len());
        // The number of heads is a list, with 0 for layers without attention: the weights say it too.
        let keys = (0..counted).find_map(|k| table(&format!("blk.{k}.attn_k.weight")));
        let features = hidden_size / heads.max(1);
        let groups =
            keys.and_then(|shape| shape.first().copied()).map_or(heads, |rows| rows / features.max(1));
        let attends = |k: &usize| file.info(&format!("blk.{k}.attn_q.weight")).is_some();
        Ok(Lfm2Config {
            model_type: model_type.into(),
            vocab_size,
            hidden_size,
            intermediate_size: metadata.needed("feed_forward_length")?,
            num_hidden_layers: layers,
            num_attention_heads: heads,
            num_key_value_heads: groups,
            max_position_embeddings: metadata.needed("context_length")?,
            norm_eps: metadata.number("attention.layer_norm_rms_epsilon").unwrap_or(1e-5),
            rope_theta: metadata.number("rope.freq_base").unwrap_or(1e6),
            tie_word_embeddings: file.info("output.weight").is_none(),
            conv_bias: (0..counted).any(|k| file.info(&format!("blk.{k}.shortconv.conv.bias")).is_some()),
            conv_L_cache: metadata.needed("shortconv.l_cache")?,
            block_auto_adjust_ff_dim: false,
            full_attn_idxs: Some((0..counted).filter(attends).collect()),
            moe_intermediate_size: metadata.count("expert_feed_forward_length").unwrap_or(1),
            num_dense_layers: metadata.count("leading_dense_block_count").unwrap_or(0),
            num_experts: metadata.count("expert_count").unwrap_or(0),
            num_experts_per_tok: metadata.count("expert_used_count").unwrap_or(0),
            use_expert_bias: (0..counted).any(|k| file.info(&format!("blk.{k}.exp_probs_b.bias")).is_some()),
            ..Default::default()
        })
    }
}

impl LanguageModel for Lfm2 {
    fn device(&self) -> Device {
        self.model.embed_tokens.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn new_cache(&self) -> KvCache {
        let attending = self.model.layers.iter().filter(|layer| layer.self_attn.is_some()).count();
        KvCache::hybrid(vec![None; attending], self.model.layers.len() - attending)
    }

    fn repeats_steps(&self) -> bool {
        true
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, mut cache: Option<&mut KvCache>) -> Result<Tensor> {
        let &[batch, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let device = ids.device();
        let mut x = self.model.embed_tokens.forward(ids)?;
        let mask = padding_mask(cache.as_deref_mut(), [batch, length], x.dtype(), &device)?;
        let rope = KvCache::rope_tables(cache.as_deref_mut(), &self.rope, length, x.dtype(), &device)?;
        for layer in &self.model.layers {
            x = layer.forward(&x, &rope, mask.as_ref(), cache.as_deref_mut())?;
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        self.model.embedding_norm.forward(&x)
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        match &self.lm_head {
            Some(head) => head.forward(hidden),
            None => nn::functional::linear(hidden, &self.model.embed_tokens.weight, None),
        }
    }
}
