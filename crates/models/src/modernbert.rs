//! ModernBERT: an encoder with rotary positions, windows in two of three layers and gated feed forward
//! layers.
//! `transformers`: `ModernBertModel`, `ModernBertForMaskedLM`.
//!
//! Warner et al.: Smarter, better, faster, longer, a modern bidirectional encoder (2024).

use std::{collections::BTreeMap, path::Path};

use nn::{Embedding, LayerNorm, Linear, Module};
use serde::{Deserialize, Serialize};
use tensor_core::{DType, Device, Error, Result, Tensor};

use crate::{
    Activation, Initial, Masking, Rope, RopeScaling, RopeTables, WeightSource,
    attention::{attend, check_heads, join_heads, split_heads},
    bert::with_padding,
    read_config,
};

const OP: &str = "ModernBert";

/// The configuration, with the names and defaults of `transformers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModernBertConfig {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    pub hidden_size: usize,
    /// The features inside a feed forward layer.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The heads of attention.
    pub num_attention_heads: usize,
    /// The activation of the feed forward layers.
    pub hidden_activation: Option<Activation>,
    /// The activation of the head.
    pub classifier_activation: Option<Activation>,
    /// The padding token, whose row gets no gradient.
    pub pad_token_id: Option<usize>,
    /// The greatest number of positions.
    pub max_position_embeddings: usize,
    /// Added to the variance in norms.
    pub norm_eps: f64,
    /// Whether norms have a bias.
    pub norm_bias: bool,
    /// Whether attention has biases.
    pub attention_bias: bool,
    /// Whether the feed forward layers have biases.
    pub mlp_bias: bool,
    /// Whether the head has a bias.
    pub classifier_bias: bool,
    /// The keys around a query, half on each side, in layers with a window.
    pub local_attention: usize,
    /// The period of layers without a window: the first of each group has none.
    pub global_attn_every_n_layers: usize,
    /// `full_attention` or `sliding_attention` for each layer.
    pub layer_types: Option<Vec<String>>,
    /// The base of rotary positions in layers without a window.
    pub global_rope_theta: f64,
    /// The base in layers with one.
    pub local_rope_theta: Option<f64>,
    /// The positions of each type of layer.
    pub rope_parameters: Option<BTreeMap<String, RopeScaling>>,
}

impl Default for ModernBertConfig {
    fn default() -> ModernBertConfig {
        ModernBertConfig {
            vocab_size: 50368,
            hidden_size: 768,
            intermediate_size: 1152,
            num_hidden_layers: 22,
            num_attention_heads: 12,
            hidden_activation: None,
            classifier_activation: None,
            pad_token_id: Some(50283),
            max_position_embeddings: 8192,
            norm_eps: 1e-5,
            norm_bias: false,
            attention_bias: false,
            mlp_bias: false,
            classifier_bias: false,
            local_attention: 128,
            global_attn_every_n_layers: 3,
            layer_types: None,
            global_rope_theta: 160_000.0,
            local_rope_theta: None,
            rope_parameters: None,
        }
    }
}

impl ModernBertConfig {
    fn slides(&self, layer: usize) -> bool {
        match &self.layer_types {
            Some(types) => types.get(layer).is_some_and(|name| name == "sliding_attention"),
            None => !layer.is_multiple_of(self.global_attn_every_n_layers.max(1)),
        }
    }

    #[track_caller]
    fn rope(&self, layer_type: &str, base: f64) -> Result<Rope> {
        let scaling = self.rope_parameters.as_ref().and_then(|all| all.get(layer_type)).cloned();
        let features = self.hidden_size / self.num_attention_heads;
        Rope::new(features, base, self.max_position_embeddings, &scaling.unwrap_or_default())
    }
}

#[derive(Module)]
#[allow(non_snake_case)]
struct ModernBertAttention {
    Wqkv: Linear,
    Wo: Linear,
}

#[derive(Module)]
#[allow(non_snake_case)]
struct Mlp {
    Wi: Linear,
    Wo: Linear,
}

/// A layer; the first has no norm before its attention.
#[derive(Module)]
struct Layer {
    attn_norm: Option<LayerNorm>,
    attn: ModernBertAttention,
    mlp_norm: LayerNorm,
    mlp: Mlp,
}

impl Layer {
    #[track_caller]
    fn new(source: &WeightSource, k: usize, config: &ModernBertConfig) -> Result<Layer> {
        let source = source.at(k);
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let norm = |name: &str| source.layer_norm(name, width, config.norm_eps, config.norm_bias);
        let (attn, mlp) = (source.at("attn"), source.at("mlp"));
        Ok(Layer {
            attn_norm: (k > 0).then(|| norm("attn_norm")).transpose()?,
            attn: ModernBertAttention {
                Wqkv: attn.linear("Wqkv", width, 3 * width, config.attention_bias)?,
                Wo: attn.linear("Wo", width, width, config.attention_bias)?,
            },
            mlp_norm: norm("mlp_norm")?,
            mlp: Mlp {
                Wi: mlp.linear("Wi", width, 2 * inner, config.mlp_bias)?,
                Wo: mlp.linear("Wo", inner, width, config.mlp_bias)?,
            },
        })
    }

    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        config: &ModernBertConfig,
        rope: &RopeTables,
        masking: &Masking,
    ) -> Result<Tensor> {
        let normed = match &self.attn_norm {
            Some(norm) => norm.forward(x)?,
            None => x.clone(),
        };
        let parts = self.attn.Wqkv.forward(&normed)?.chunk(3, -1)?;
        let [query, key, value] = [0, 1, 2].map(|k| split_heads(&parts[k], config.num_attention_heads));
        let (query, key, value) = (rope.rotate(&query?)?, rope.rotate(&key?)?, value?);
        let scale = (query.dims()[3] as f64).powf(-0.5);
        let attended = join_heads(&attend(&query, &key, &value, scale, None, masking)?)?;
        let x = x.add(&self.attn.Wo.forward(&attended)?)?;
        let parts = self.mlp.Wi.forward(&self.mlp_norm.forward(&x)?)?.chunk(2, -1)?;
        let activation = config.hidden_activation.unwrap_or(Activation::Gelu);
        x.add(&self.mlp.Wo.forward(&activation.activate(&parts[0]).mul(&parts[1])?)?)
    }
}

#[derive(Module)]
struct Embeddings {
    tok_embeddings: Embedding,
    norm: LayerNorm,
}

/// The encoder.
#[derive(Module)]
pub struct ModernBert {
    embeddings: Embeddings,
    layers: Vec<Layer>,
    final_norm: LayerNorm,
    #[module(skip)]
    config: ModernBertConfig,
    /// Rotary positions without and with a window.
    #[module(skip)]
    ropes: [Rope; 2],
}

impl ModernBert {
    /// An encoder with the parameters of a source, whose names may begin with `model.`.
    ///
    /// # Errors
    /// Heads that do not divide the features, or parameters that are missing or have another shape.
    #[track_caller]
    pub fn new(config: &ModernBertConfig, weights: impl Into<WeightSource>) -> Result<ModernBert> {
        ModernBert::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &ModernBertConfig, source: &WeightSource) -> Result<ModernBert> {
        let (width, heads) = (config.hidden_size, config.num_attention_heads);
        check_heads(OP, width, heads)?;
        let source = source.at_if_there("model");
        let at = source.at("embeddings");
        let layers = (0..config.num_hidden_layers).map(|k| Layer::new(&source.at("layers"), k, config));
        let local = config.local_rope_theta.unwrap_or(1e4);
        Ok(ModernBert {
            embeddings: Embeddings {
                tok_embeddings: at.embedding("tok_embeddings", config.vocab_size, width)?,
                norm: at.layer_norm("norm", width, config.norm_eps, config.norm_bias)?,
            },
            layers: layers.collect::<Result<_>>()?,
            final_norm: source.layer_norm("final_norm", width, config.norm_eps, config.norm_bias)?,
            config: config.clone(),
            ropes: [
                config.rope("full_attention", config.global_rope_theta)?,
                config.rope("sliding_attention", local)?,
            ],
        })
    }

    /// An encoder from a folder with `config.json` and weights. Heads in the file are ignored.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`ModernBert::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<ModernBert> {
        ModernBert::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }

    /// The last hidden states `[N, L, features]` for tokens `[N, L]` and a mask `[N, L]` that is true (or not
    /// 0) where there is a token.
    ///
    /// # Errors
    /// Other shapes, or whatever the device reports.
    #[track_caller]
    pub fn forward(&self, ids: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let &[batch, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let device = ids.device();
        let keys = match mask {
            Some(mask) if mask.dims() != [batch, length] => {
                let message = format!("a mask {} of tokens [{batch}, {length}]", mask.shape());
                return Err(Error::invalid(OP, message));
            }
            Some(mask) => Some(mask.to_dtype(DType::Bool)?.reshape([batch, 1, 1, length])?),
            None => None,
        };
        let reach = self.config.local_attention / 2;
        let near = (0..length).flat_map(|query| (0..length).map(move |key| query.abs_diff(key) <= reach));
        let near = Tensor::from_vec(near.collect(), [length, length], &device)?;
        let full = keys.clone().map_or(Masking::Full, Masking::Mask);
        let sliding = Masking::Mask(match &keys {
            Some(keys) => keys.logical_and(&near)?,
            None => near,
        });
        let words = with_padding(&self.embeddings.tok_embeddings, ids, self.config.pad_token_id)?;
        let mut x = self.embeddings.norm.forward(&words)?;
        let [global, local] = &self.ropes;
        let global = global.tables(0, length, &[], x.dtype(), &device)?;
        let local = local.tables(0, length, &[], x.dtype(), &device)?;
        for (k, layer) in self.layers.iter().enumerate() {
            let (rope, masking) = if self.config.slides(k) { (&local, &sliding) } else { (&global, &full) };
            x = layer.forward(&x, &self.config, rope, masking)?;
        }
        self.final_norm.forward(&x)
    }
}

/// The layer before a head's output.
#[derive(Module)]
struct PredictionHead {
    dense: Linear,
    norm: LayerNorm,
}

/// The encoder with a head that guesses masked tokens.
#[derive(Module)]
pub struct ModernBertMaskedLm {
    model: ModernBert,
    head: PredictionHead,
    /// The bias of the output layer, whose weight is the table of embeddings.
    decoder: OutputBias,
}

#[derive(Module)]
struct OutputBias {
    bias: nn::Parameter,
}

impl ModernBertMaskedLm {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// As [`ModernBert::new`]; parameters that are left over.
    #[track_caller]
    pub fn new(config: &ModernBertConfig, weights: impl Into<WeightSource>) -> Result<ModernBertMaskedLm> {
        ModernBertMaskedLm::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &ModernBertConfig, source: &WeightSource) -> Result<ModernBertMaskedLm> {
        let (width, head) = (config.hidden_size, source.at("head"));
        let model = ModernBertMaskedLm {
            model: ModernBert::build(config, source)?,
            head: PredictionHead {
                dense: head.linear("dense", width, width, config.classifier_bias)?,
                norm: head.layer_norm("norm", width, config.norm_eps, config.norm_bias)?,
            },
            decoder: OutputBias {
                bias: nn::Parameter::new(source.parameter(
                    "decoder.bias",
                    &[config.vocab_size],
                    Initial::Zeros,
                )?)?,
            },
        };
        source.finish(&["decoder.weight"])?;
        crate::weight_source::tie_output(&model.model.embeddings.tok_embeddings);
        Ok(model)
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`ModernBertMaskedLm::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<ModernBertMaskedLm> {
        ModernBertMaskedLm::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }

    /// The logits `[N, L, vocabulary]` for tokens and their mask: see [`ModernBert::forward`].
    ///
    /// # Errors
    /// As [`ModernBert::forward`].
    #[track_caller]
    pub fn forward(&self, ids: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let hidden = self.model.forward(ids, mask)?;
        let activation = self.model.config.classifier_activation.unwrap_or(Activation::Gelu);
        let hidden = self.head.norm.forward(&activation.activate(&self.head.dense.forward(&hidden)?))?;
        let table = &self.model.embeddings.tok_embeddings.weight;
        nn::functional::linear(&hidden, table, Some(&self.decoder.bias))
    }
}
