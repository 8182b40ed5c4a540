//! Gemma 4's decoder: attention with windows and without, whose heads have different sizes; last layers that
//! read the keys and values of earlier ones; and features of each token for each layer. `transformers`:
//! `Gemma4ForCausalLM`, and the decoder of `Gemma4ForConditionalGeneration`.
//!
//! Gemma Team: Gemma 3n and Gemma 4 model cards (2025, 2026), and the reference.

mod config;
mod from_gguf;

use std::path::Path;

use nn::{Embedding, Linear, Module, RmsNorm, Visitor, VisitorMut};
use serde::Deserialize;
use tensor_core::{DType, Device, Error, Result, Tensor};
use weights::WeightFile;

use self::config::LayerSizes;
pub use self::config::{Gemma4Config, Gemma4LayerConfig};
use crate::{
    Activation, Initial, KvCache, LanguageModel, Masking, Rope, RopeTables, WeightSource,
    attention::{Scoring, attend_by, causal_masking, join_heads, split_heads},
    gguf::GgufNames,
    mixture::{Mixture, MixtureConfig},
    read_config,
};

const OP: &str = "Gemma4";

#[derive(Module)]
struct Attention {
    q_proj: Linear,
    k_proj: Option<Linear>,
    v_proj: Option<Linear>,
    o_proj: Linear,
    q_norm: RmsNorm,
    k_norm: Option<RmsNorm>,
    heads: usize,
    #[module(skip)]
    sizes: LayerSizes,
    eps: f64,
}

/// The keys and values of the last layers that have some, without a window and with one.
type LastKeys = [Option<[Tensor; 2]>; 2];

impl Attention {
    #[track_caller]
    fn new(source: &WeightSource, config: &Gemma4Config, sizes: LayerSizes) -> Result<Attention> {
        let (width, heads, bias) = (config.hidden_size, config.num_attention_heads, config.attention_bias);
        let LayerSizes { features, groups, keys_are_values, .. } = sizes;
        let has_keys = sizes.source.is_none();
        let of_keys = |name: &str, there: bool| {
            there.then(|| source.linear(name, width, groups * features, bias)).transpose()
        };
        let norm = |name: &str| source.rms_norm(name, features, config.rms_norm_eps);
        Ok(Attention {
            q_proj: source.linear("q_proj", width, heads * features, bias)?,
            k_proj: of_keys("k_proj", has_keys)?,
            v_proj: of_keys("v_proj", has_keys && !keys_are_values)?,
            o_proj: source.linear("o_proj", heads * features, width, bias)?,
            q_norm: norm("q_norm")?,
            k_norm: has_keys.then(|| norm("k_norm")).transpose()?,
            heads,
            sizes,
            eps: config.rms_norm_eps,
        })
    }

    /// The keys and values `[N, groups, L, E]` of `x`; none for a layer that reads those of another one.
    #[track_caller]
    fn keys(&self, x: &Tensor, rope: &RopeTables) -> Result<Option<[Tensor; 2]>> {
        let (Some(k_proj), Some(k_norm)) = (&self.k_proj, &self.k_norm) else { return Ok(None) };
        let key = split_heads(&k_proj.forward(x)?, self.sizes.groups)?;
        let value = match &self.v_proj {
            Some(v_proj) => split_heads(&v_proj.forward(x)?, self.sizes.groups)?,
            None => key.clone(),
        };
        let value = nn::functional::rms_norm(&value, [self.sizes.features], None, Some(self.eps))?;
        Ok(Some([rope.rotate(&k_norm.forward(&key)?)?, value]))
    }

    /// The output for `x` `[N, L, features]`: without a cache the keys are those of this step, under the
    /// masking, and `last` has them for later layers. A cache has the number of the layer with it.
    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        rope: &RopeTables,
        (masking, last): (&Masking, &mut LastKeys),
        cache: Option<(&mut KvCache, usize)>,
    ) -> Result<Tensor> {
        let query = self.q_norm.forward(&split_heads(&self.q_proj.forward(x)?, self.heads)?)?;
        let query = rope.rotate(&query)?;
        let scoring = Scoring { scale: 1.0, ..Default::default() };
        let keys = self.keys(x, rope)?;
        let out = match (cache, keys, self.sizes.source) {
            (Some((cache, layer)), Some([key, value]), _) => {
                cache.attend_by(layer, [&query, &key, &value], scoring, None)?
            }
            (Some((cache, _)), None, Some(source)) => cache.attend_again(source, &query, scoring)?,
            (None, keys, _) => {
                let place = &mut last[usize::from(self.sizes.slides)];
                *place = keys.or(place.take());
                let Some([key, value]) = place else { return Err(Error::invalid(OP, NO_KEYS)) };
                attend_by([&query, key, value], scoring, masking)?
            }
            (Some(_), None, None) => return Err(Error::invalid(OP, NO_KEYS)),
        };
        self.o_proj.forward(&join_heads(&out)?)
    }
}

const NO_KEYS: &str = "a layer has no keys";

/// down(gelu(gate(x)) · up(x)).
#[derive(Module)]
struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

/// A layer but for its mixture. The parts of its own features of a token are there if there are such
/// features.
#[derive(Module)]
struct Dense {
    self_attn: Attention,
    mlp: Mlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
    pre_feedforward_layernorm: RmsNorm,
    post_feedforward_layernorm: RmsNorm,
    per_layer_input_gate: Option<Linear>,
    per_layer_projection: Option<Linear>,
    post_per_layer_input_norm: Option<RmsNorm>,
    /// The factor of the output, `[1]`.
    layer_scalar: Tensor,
}

/// A layer, with a mixture of experts if the model has them, all under one name.
struct Layer {
    dense: Dense,
    experts: Option<Experts>,
}

impl Module for Layer {
    fn visit(&self, visitor: &mut Visitor) {
        self.dense.visit(visitor);
        if let Some(experts) = &self.experts {
            experts.mixture.visit(visitor);
            for (name, norm) in NORMS.iter().zip(&experts.norms) {
                visitor.field(name, norm);
            }
        }
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.dense.visit_mut(visitor);
        if let Some(experts) = &mut self.experts {
            experts.mixture.visit_mut(visitor);
            for (name, norm) in NORMS.iter().zip(&mut experts.norms) {
                visitor.field(name, norm);
            }
        }
    }
}

/// The norms of a layer with a mixture: behind the feed forward layer, behind the mixture and before it.
const NORMS: [&str; 3] =
    ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"];

/// A mixture beside the feed forward layer, and the [`NORMS`].
struct Experts {
    mixture: Mixture,
    norms: [RmsNorm; 3],
}

impl Experts {
    #[track_caller]
    fn new(source: &WeightSource, config: &Gemma4Config, mixture: &MixtureConfig) -> Result<Experts> {
        let [behind, behind_mixture, before] =
            NORMS.map(|name| source.rms_norm(name, config.hidden_size, config.rms_norm_eps));
        let norms = [behind?, behind_mixture?, before?];
        Ok(Experts { mixture: Mixture::new(source, mixture)?, norms })
    }

    /// The sum of `dense`, the output of the feed forward layer, and that of the mixture for `x`, which its
    /// router takes as it is.
    #[track_caller]
    fn forward(&self, dense: &Tensor, x: &Tensor) -> Result<Tensor> {
        let [behind, behind_mixture, before] = &self.norms;
        let mixed = self.mixture.forward_by(&before.forward(x)?, x)?;
        behind.forward(dense)?.add(&behind_mixture.forward(&mixed)?)
    }
}

impl Layer {
    #[track_caller]
    fn new(source: &WeightSource, k: usize, config: &Gemma4Config) -> Result<Layer> {
        let (at, sizes) = (source.at(k), config.layer(k)?);
        let (width, own) = (config.hidden_size, config.hidden_size_per_layer_input);
        let norm = |name: &str| at.rms_norm(name, width, config.rms_norm_eps);
        let mlp = at.at("mlp");
        let has_own = own > 0;
        let dense = Dense {
            self_attn: Attention::new(&at.at("self_attn"), config, sizes)?,
            mlp: Mlp {
                gate_proj: mlp.linear("gate_proj", width, sizes.inner, false)?,
                up_proj: mlp.linear("up_proj", width, sizes.inner, false)?,
                down_proj: mlp.linear("down_proj", sizes.inner, width, false)?,
            },
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm")?,
            post_feedforward_layernorm: norm("post_feedforward_layernorm")?,
            per_layer_input_gate: has_own
                .then(|| at.linear("per_layer_input_gate", width, own, false))
                .transpose()?,
            per_layer_projection: has_own
                .then(|| at.linear("per_layer_projection", own, width, false))
                .transpose()?,
            post_per_layer_input_norm: has_own.then(|| norm("post_per_layer_input_norm")).transpose()?,
            layer_scalar: at.buffer("layer_scalar", &[1], Initial::Ones)?,
        };
        let experts = config.mixture()?.map(|mixture| Experts::new(&at, config, &mixture)).transpose()?;
        Ok(Layer { dense, experts })
    }

    /// The output for `x` `[N, L, features]`, and the layer's features of each token `own`.
    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        own: Option<&Tensor>,
        rope: &RopeTables,
        keys: (&Masking, &mut LastKeys),
        cache: Option<(&mut KvCache, usize)>,
    ) -> Result<Tensor> {
        let dense = &self.dense;
        let attended = dense.self_attn.forward(&dense.input_layernorm.forward(x)?, rope, keys, cache)?;
        let x = x.add(&dense.post_attention_layernorm.forward(&attended)?)?;
        let inner = dense.pre_feedforward_layernorm.forward(&x)?;
        let gate = Activation::GeluTanh.activate(&dense.mlp.gate_proj.forward(&inner)?);
        let mut part = dense.mlp.down_proj.forward(&gate.mul(&dense.mlp.up_proj.forward(&inner)?)?)?;
        if let Some(experts) = &self.experts {
            part = experts.forward(&part, &x)?;
        }
        let mut x = x.add(&dense.post_feedforward_layernorm.forward(&part)?)?;
        if let (Some(own), Some(gate), Some(projection), Some(norm)) =
            (own, &dense.per_layer_input_gate, &dense.per_layer_projection, &dense.post_per_layer_input_norm)
        {
            let gated = Activation::GeluTanh.activate(&gate.forward(&x)?).mul(own)?;
            x = x.add(&norm.forward(&projection.forward(&gated)?)?)?;
        }
        x.mul(&dense.layer_scalar)
    }
}

#[derive(Module)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    embed_tokens_per_layer: Option<Embedding>,
    per_layer_model_projection: Option<Linear>,
    per_layer_projection_norm: Option<RmsNorm>,
}

/// Gemma 4's decoder with its output layer.
#[derive(Module)]
pub struct Gemma4 {
    model: Decoder,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: Gemma4Config,
    /// The positions of layers without a window, and with one.
    #[module(skip)]
    ropes: [Option<Rope>; 2],
}

/// A configuration of a model that also reads pictures and sound, of which only the decoder is read.
#[derive(Deserialize)]
struct Whole {
    text_config: Option<Gemma4Config>,
}

/// The names before the tensors of other parts.
const OTHER_PARTS: [&str; 4] =
    ["model.vision_tower.", "model.audio_tower.", "model.embed_vision.", "model.embed_audio."];

/// The names of what makes keys and values, in folders and in GGUF files.
const KEYS: [&str; 6] =
    ["self_attn.k_proj.", "self_attn.v_proj.", "self_attn.k_norm.", "attn_k.", "attn_v.", "attn_k_norm."];

impl Gemma4 {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// A configuration that contradicts itself or has parts that are not known; parameters that are missing,
    /// have another shape, or are left over.
    #[track_caller]
    pub fn new(config: &Gemma4Config, weights: impl Into<WeightSource>) -> Result<Gemma4> {
        Gemma4::build(config, &weights.into(), "model")
    }

    /// A model whose decoder has the name `at`.
    #[track_caller]
    fn build(config: &Gemma4Config, source: &WeightSource, at: &str) -> Result<Gemma4> {
        config.check()?;
        let (width, eps) = (config.hidden_size, config.rms_norm_eps);
        let own = config.hidden_size_per_layer_input;
        let all = config.num_hidden_layers * own;
        let model = source.at(at);
        let layers = (0..config.num_hidden_layers).map(|k| Layer::new(&model.at("layers"), k, config));
        let decoder = Decoder {
            layers: layers.collect::<Result<_>>()?,
            embed_tokens: model.embedding("embed_tokens", config.vocab_size, width)?,
            norm: model.rms_norm("norm", width, eps)?,
            embed_tokens_per_layer: (own > 0)
                .then(|| model.embedding("embed_tokens_per_layer", config.vocab_size_per_layer_input, all))
                .transpose()?,
            per_layer_model_projection: (own > 0)
                .then(|| model.linear("per_layer_model_projection", width, all, false))
                .transpose()?,
            per_layer_projection_norm: (own > 0)
                .then(|| model.rms_norm("per_layer_projection_norm", own, eps))
                .transpose()?,
        };
        let lm_head = match config.tie_word_embeddings {
            true => {
                crate::weight_source::tie_output(&decoder.embed_tokens);
                None
            }
            false => Some(source.linear("lm_head", width, config.vocab_size, false)?),
        };
        let first = config.first_shared();
        // Files may have the keys of layers that read those of others.
        let is_unread = |name: &str| {
            let in_folder = name.strip_prefix(at).and_then(|rest| rest.strip_prefix(".layers."));
            let inside = in_folder.or(name.strip_prefix("blk.")).and_then(|rest| rest.split_once('.'));
            inside.is_some_and(|(layer, part)| {
                let of_keys = KEYS.iter().any(|start| part.starts_with(start));
                of_keys && layer.parse().is_ok_and(|layer: usize| layer >= first)
            })
        };
        source.finish_but(|name| {
            let of_others = at != "model" && OTHER_PARTS.iter().any(|start| name.starts_with(start));
            ["lm_head.weight", from_gguf::FREQUENCIES].contains(&name) || of_others || is_unread(name)
        })?;
        let mut ropes = [None, None];
        for layer in &decoder.layers {
            let sizes = &layer.dense.self_attn.sizes;
            let place = &mut ropes[usize::from(sizes.slides)];
            if place.is_none() {
                *place = Some(config.rope(sizes)?);
            }
        }
        Ok(Gemma4 { model: decoder, lm_head, config: config.clone(), ropes })
    }

    /// A model from a folder with `config.json` and weights, or from a GGUF file; of one that also reads
    /// pictures, the decoder.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Gemma4::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Gemma4> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Gemma4::from_gguf(weights::open(path)?, device);
        }
        let Whole { text_config } = read_config(path)?;
        let source = WeightSource::open(path, device)?;
        match text_config {
            Some(config) => Gemma4::build(&config, &source, "model.language_model"),
            None => Gemma4::build(&read_config(path)?, &source, "model"),
        }
    }

    /// A model from an open GGUF file, configured by its metadata. Weights in blocks stay in blocks.
    ///
    /// # Errors
    /// Another format or architecture, metadata that lacks a number or contradicts itself, and the errors of
    /// [`Gemma4::new`].
    #[track_caller]
    pub fn from_gguf(file: WeightFile, device: &Device) -> Result<Gemma4> {
        let config = Gemma4Config::from_metadata(&file, device)?;
        let names = GgufNames { own_norm: true, one_more: false, interleaved: None };
        Gemma4::build(&config, &WeightSource::gguf(file, names, device), "model")
    }

    /// The dtype of hidden states.
    pub fn dtype(&self) -> DType {
        self.model.embed_tokens.weight.dtype()
    }

    /// The configuration.
    pub fn config(&self) -> &Gemma4Config {
        &self.config
    }

    /// The features `[N, L, layers, features]` of tokens for each layer, from a table of their own and from
    /// the embeddings `x`.
    #[track_caller]
    fn own_features(&self, ids: &Tensor, x: &Tensor) -> Result<Option<Tensor>> {
        let model = &self.model;
        let (Some(table), Some(projection), Some(norm)) = (
            &model.embed_tokens_per_layer,
            &model.per_layer_model_projection,
            &model.per_layer_projection_norm,
        ) else {
            return Ok(None);
        };
        let own = self.config.hidden_size_per_layer_input;
        let by_layer = |x: &Tensor| {
            let dims = x.dims();
            x.reshape([dims[0], dims[1], self.config.num_hidden_layers, own])
        };
        let of_tokens = by_layer(&table.forward(ids)?.mul_scalar((own as f64).sqrt()))?;
        let root = (self.config.hidden_size as f64).powf(-0.5);
        let of_state = norm.forward(&by_layer(&projection.forward(x)?.mul_scalar(root))?)?;
        Ok(Some(of_state.add(&of_tokens)?.mul_scalar(0.5f64.sqrt())))
    }
}

impl LanguageModel for Gemma4 {
    fn device(&self) -> Device {
        self.model.embed_tokens.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn new_cache(&self) -> KvCache {
        let window = |layer: &Layer| layer.dense.self_attn.sizes.slides.then_some(self.config.sliding_window);
        KvCache::new(self.model.layers.iter().take(self.config.first_shared()).map(window).collect())
    }

    /// A mixture reads the chosen experts on the host.
    fn repeats_steps(&self) -> bool {
        !self.config.enable_moe_block
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, mut cache: Option<&mut KvCache>) -> Result<Tensor> {
        let &[batch, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let device = ids.device();
        let mut x = self.model.embed_tokens.forward(ids)?.mul_scalar((self.config.hidden_size as f64).sqrt());
        let own = self.own_features(ids, &x)?;
        if let Some(cache) = &mut cache {
            cache.check_batch(batch)?;
            cache.begin(length, x.dtype(), &device)?;
        }
        let mut tables = [None, None];
        for (table, rope) in tables.iter_mut().zip(&self.ropes) {
            if let Some(rope) = rope {
                *table = Some(KvCache::rope_tables(cache.as_deref_mut(), rope, length, x.dtype(), &device)?);
            }
        }
        let maskings = [
            causal_masking(length, None, &device)?,
            causal_masking(length, Some(self.config.sliding_window), &device)?,
        ];
        let mut last: LastKeys = [None, None];
        for (k, layer) in self.model.layers.iter().enumerate() {
            let kind = usize::from(layer.dense.self_attn.sizes.slides);
            let Some(rope) = &tables[kind] else {
                return Err(Error::invalid(OP, "a layer has no positions"));
            };
            let own = own.as_ref().map(|own| own.select(2, k)).transpose()?;
            let cache = cache.as_deref_mut().map(|cache| (cache, k));
            x = layer.forward(&x, own.as_ref(), rope, (&maskings[kind], &mut last), cache)?;
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
