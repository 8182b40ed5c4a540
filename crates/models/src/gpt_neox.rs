//! GPT-NeoX and Pythia: a decoder with rotary positions for a part of each head's features, whose attention
//! and feed forward layer may read the same input. `transformers`: `GPTNeoXForCausalLM`.
//!
//! Black et al.: GPT-NeoX-20B, an open-source autoregressive language model (2022).

use std::path::Path;

use nn::{Embedding, LayerNorm, Linear, Module};
use serde::{Deserialize, Serialize};
use tensor_core::{Device, Error, Result, Tensor};

use crate::{
    Activation, KvCache, LanguageModel, Masking, Rope, RopeScaling, RopeTables, WeightSource,
    attention::{attend, check_heads, join_heads},
    read_config,
};

const OP: &str = "GptNeoX";

/// The configuration, with the names and defaults of `transformers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GptNeoXConfig {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    pub hidden_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The heads of attention.
    pub num_attention_heads: usize,
    /// The features inside a feed forward layer.
    pub intermediate_size: usize,
    /// The activation of the feed forward layers.
    pub hidden_act: Option<Activation>,
    /// The part of a head's features that rotates.
    pub rotary_pct: f64,
    /// The base of rotary positions.
    pub rotary_emb_base: f64,
    /// The scaling of rotary positions.
    pub rope_parameters: Option<RopeScaling>,
    /// The greatest number of positions.
    pub max_position_embeddings: usize,
    /// Added to the variance in norms.
    pub layer_norm_eps: f64,
    /// Whether attention and feed forward layer read the same input.
    pub use_parallel_residual: bool,
    /// Whether attention has biases.
    pub attention_bias: bool,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: bool,
}

impl Default for GptNeoXConfig {
    fn default() -> GptNeoXConfig {
        GptNeoXConfig {
            vocab_size: 50432,
            hidden_size: 6144,
            num_hidden_layers: 44,
            num_attention_heads: 64,
            intermediate_size: 24576,
            hidden_act: None,
            rotary_pct: 0.25,
            rotary_emb_base: 1e4,
            rope_parameters: None,
            max_position_embeddings: 2048,
            layer_norm_eps: 1e-5,
            use_parallel_residual: true,
            attention_bias: true,
            tie_word_embeddings: false,
        }
    }
}

#[derive(Module)]
struct GptNeoXAttention {
    query_key_value: Linear,
    dense: Linear,
}

#[derive(Module)]
struct Mlp {
    dense_h_to_4h: Linear,
    dense_4h_to_h: Linear,
}

#[derive(Module)]
struct Layer {
    input_layernorm: LayerNorm,
    post_attention_layernorm: LayerNorm,
    attention: GptNeoXAttention,
    mlp: Mlp,
}

impl Layer {
    #[track_caller]
    fn new(source: &WeightSource, config: &GptNeoXConfig) -> Result<Layer> {
        let (width, inner, eps) = (config.hidden_size, config.intermediate_size, config.layer_norm_eps);
        let (attention, mlp) = (source.at("attention"), source.at("mlp"));
        Ok(Layer {
            input_layernorm: source.layer_norm("input_layernorm", width, eps, true)?,
            post_attention_layernorm: source.layer_norm("post_attention_layernorm", width, eps, true)?,
            attention: GptNeoXAttention {
                query_key_value: attention.linear(
                    "query_key_value",
                    width,
                    3 * width,
                    config.attention_bias,
                )?,
                dense: attention.linear("dense", width, width, config.attention_bias)?,
            },
            mlp: Mlp {
                dense_h_to_4h: mlp.linear("dense_h_to_4h", width, inner, true)?,
                dense_4h_to_h: mlp.linear("dense_4h_to_h", inner, width, true)?,
            },
        })
    }

    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        config: &GptNeoXConfig,
        rope: &RopeTables,
        cache: Option<(&mut KvCache, usize)>,
    ) -> Result<Tensor> {
        let heads = config.num_attention_heads;
        let joint = self.attention.query_key_value.forward(&self.input_layernorm.forward(x)?)?;
        let (batch, length) = (joint.dims()[0], joint.dims()[1]);
        let features = config.hidden_size / heads;
        // The three parts of a head are neighbours.
        let joint = joint.reshape([batch, length, heads, 3 * features])?.transpose(1, 2)?;
        let part = |k: usize| joint.narrow(-1, k * features, features);
        let (query, key, value) = (rope.rotate(&part(0)?)?, rope.rotate(&part(1)?)?, part(2)?);
        let scale = (features as f64).powf(-0.5);
        let out = match cache {
            Some((cache, layer)) => cache.attend(layer, [&query, &key, &value], scale, None)?,
            None => attend(&query, &key, &value, scale, None, &Masking::Causal)?,
        };
        let attended = self.attention.dense.forward(&join_heads(&out)?)?;
        let activation = config.hidden_act.unwrap_or(Activation::Gelu);
        let mlp = |x: &Tensor| {
            let inner = self.mlp.dense_h_to_4h.forward(&self.post_attention_layernorm.forward(x)?)?;
            self.mlp.dense_4h_to_h.forward(&activation.activate(&inner))
        };
        if config.use_parallel_residual {
            return x.add(&attended)?.add(&mlp(x)?);
        }
        let x = x.add(&attended)?;
        x.add(&mlp(&x)?)
    }
}

#[derive(Module)]
struct Decoder {
    embed_in: Embedding,
    layers: Vec<Layer>,
    final_layer_norm: LayerNorm,
}

/// A decoder of the family of GPT-NeoX with its output layer.
#[derive(Module)]
pub struct GptNeoX {
    gpt_neox: Decoder,
    embed_out: Option<Linear>,
    #[module(skip)]
    config: GptNeoXConfig,
    #[module(skip)]
    rope: Rope,
}

impl GptNeoX {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// Heads that do not divide the features, or parameters that are missing, have another shape, or are left
    /// over.
    #[track_caller]
    pub fn new(config: &GptNeoXConfig, weights: impl Into<WeightSource>) -> Result<GptNeoX> {
        GptNeoX::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &GptNeoXConfig, source: &WeightSource) -> Result<GptNeoX> {
        let (width, heads) = (config.hidden_size, config.num_attention_heads);
        check_heads(OP, width, heads)?;
        let mut scaling = config.rope_parameters.clone().unwrap_or_default();
        scaling.partial_rotary_factor = scaling.partial_rotary_factor.or(Some(config.rotary_pct));
        let at = source.at("gpt_neox");
        let layers = (0..config.num_hidden_layers).map(|k| Layer::new(&at.at("layers").at(k), config));
        let gpt_neox = Decoder {
            embed_in: at.embedding("embed_in", config.vocab_size, width)?,
            layers: layers.collect::<Result<_>>()?,
            final_layer_norm: at.layer_norm("final_layer_norm", width, config.layer_norm_eps, true)?,
        };
        let embed_out = match config.tie_word_embeddings {
            true => {
                crate::weight_source::tie_output(&gpt_neox.embed_in);
                None
            }
            false => Some(source.linear("embed_out", width, config.vocab_size, false)?),
        };
        source.finish(&[
            "attention.bias",
            "attention.masked_bias",
            "rotary_emb.inv_freq",
            "embed_out.weight",
        ])?;
        let rope =
            Rope::new(width / heads, config.rotary_emb_base, config.max_position_embeddings, &scaling)?;
        Ok(GptNeoX { gpt_neox, embed_out, config: config.clone(), rope })
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`GptNeoX::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<GptNeoX> {
        GptNeoX::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }

    /// As [`LanguageModel::hidden`], for keys whose frequencies do not change by this step.
    #[track_caller]
    fn step(&self, ids: &Tensor, mut cache: Option<&mut KvCache>) -> Result<Tensor> {
        let &[_, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let device = ids.device();
        let mut x = self.gpt_neox.embed_in.forward(ids)?;
        if let Some(cache) = &mut cache {
            cache.begin(length, x.dtype(), &device)?;
        }
        let rope = KvCache::rope_tables(cache.as_deref_mut(), &self.rope, length, x.dtype(), &device)?;
        for (k, layer) in self.gpt_neox.layers.iter().enumerate() {
            x = layer.forward(&x, &self.config, &rope, cache.as_deref_mut().map(|cache| (cache, k)))?;
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        self.gpt_neox.final_layer_norm.forward(&x)
    }
}

impl LanguageModel for GptNeoX {
    fn device(&self) -> Device {
        self.gpt_neox.embed_in.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn new_cache(&self) -> KvCache {
        KvCache::new(vec![None; self.config.num_hidden_layers])
    }

    fn repeats_steps(&self) -> bool {
        !self.rope.has_long_frequencies()
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, cache: Option<&mut KvCache>) -> Result<Tensor> {
        match cache {
            Some(cache) => {
                let ropes = std::slice::from_ref(&self.rope);
                cache.step_by_length(ids, ropes, |ids, cache| self.step(ids, Some(cache)))
            }
            None => self.step(ids, None),
        }
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        match &self.embed_out {
            Some(head) => head.forward(hidden),
            None => nn::functional::linear(hidden, &self.gpt_neox.embed_in.weight, None),
        }
    }
}
