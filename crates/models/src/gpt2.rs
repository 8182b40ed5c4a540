//! GPT-2: a decoder with learned positions and norms before each part. `transformers`: `GPT2LMHeadModel`.
//!
//! Radford et al.: Language models are unsupervised multitask learners (2019).

use std::path::Path;

use nn::{
    Embedding, LayerNorm, Module, Visitor, VisitorMut,
    lora::{Adapters, LayerKind},
};
use serde::{Deserialize, Serialize};
use tensor_core::{DType, Device, Error, Result, Tensor};

use crate::{
    Activation, Initial, KvCache, LanguageModel, Masking, WeightSource,
    attention::{PositionTable, attend, check_heads, default_scale, join_heads, split_heads},
    read_config,
};

const OP: &str = "Gpt2";

/// The configuration, with the names and defaults of `transformers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpt2Config {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The number of positions.
    pub n_positions: usize,
    /// The features of a hidden state.
    pub n_embd: usize,
    /// The number of layers.
    pub n_layer: usize,
    /// The heads of attention.
    pub n_head: usize,
    /// The features inside a feed forward layer: four times `n_embd` by default.
    pub n_inner: Option<usize>,
    /// The activation of the feed forward layers: the approximation of GELU by tanh by default.
    pub activation_function: Option<Activation>,
    /// Added to the variance in norms.
    pub layer_norm_epsilon: f64,
}

impl Default for Gpt2Config {
    fn default() -> Gpt2Config {
        Gpt2Config {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: None,
            layer_norm_epsilon: 1e-5,
        }
    }
}

/// A linear layer whose weight is `[in, out]`: the reference's `Conv1D`.
struct Conv1D {
    weight: Tensor,
    bias: Tensor,
    adapters: Adapters,
}

impl Module for Conv1D {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.parameter("weight", &self.weight);
        visitor.parameter("bias", &self.bias);
        self.adapters.visit(&self.weight, LayerKind::Linear { transposed: true }, visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.parameter("weight", &mut self.weight);
        visitor.parameter("bias", &mut self.bias);
        self.adapters.visit_mut(visitor);
    }
}

impl Conv1D {
    #[track_caller]
    fn new(source: &WeightSource, name: &str, inputs: usize, outputs: usize) -> Result<Conv1D> {
        let at = source.at(name);
        let weight = at.parameter("weight", &[inputs, outputs], Initial::Normal(0.02))?;
        let bias = at.parameter("bias", &[outputs], Initial::Zeros)?;
        Ok(Conv1D { weight, bias, adapters: Adapters::default() })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.adapters.linear(x, &self.weight.t()?, Some(&self.bias))
    }
}

#[derive(Module)]
struct Gpt2Attention {
    c_attn: Conv1D,
    c_proj: Conv1D,
}

#[derive(Module)]
struct Mlp {
    c_fc: Conv1D,
    c_proj: Conv1D,
    activation: Activation,
}

#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn: Gpt2Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

impl Block {
    #[track_caller]
    fn new(source: &WeightSource, config: &Gpt2Config) -> Result<Block> {
        let (width, eps) = (config.n_embd, config.layer_norm_epsilon);
        let inner = config.n_inner.unwrap_or(4 * width);
        let (attn, mlp) = (source.at("attn"), source.at("mlp"));
        Ok(Block {
            ln_1: source.layer_norm("ln_1", width, eps, true)?,
            attn: Gpt2Attention {
                c_attn: Conv1D::new(&attn, "c_attn", width, 3 * width)?,
                c_proj: Conv1D::new(&attn, "c_proj", width, width)?,
            },
            ln_2: source.layer_norm("ln_2", width, eps, true)?,
            mlp: Mlp {
                c_fc: Conv1D::new(&mlp, "c_fc", width, inner)?,
                c_proj: Conv1D::new(&mlp, "c_proj", inner, width)?,
                activation: config.activation_function.unwrap_or(Activation::GeluTanh),
            },
        })
    }

    #[track_caller]
    fn forward(&self, x: &Tensor, heads: usize, cache: Option<(&mut KvCache, usize)>) -> Result<Tensor> {
        let parts = self.attn.c_attn.forward(&self.ln_1.forward(x)?)?.chunk(3, -1)?;
        let [query, key, value] = [0, 1, 2].map(|k| split_heads(&parts[k], heads));
        let (query, key, value) = (query?, key?, value?);
        let scale = default_scale(&query);
        let out = match cache {
            Some((cache, layer)) => cache.attend(layer, [&query, &key, &value], scale, None)?,
            None => attend(&query, &key, &value, scale, None, &Masking::Causal)?,
        };
        let x = x.add(&self.attn.c_proj.forward(&join_heads(&out)?)?)?;
        let inner = self.mlp.activation.activate(&self.mlp.c_fc.forward(&self.ln_2.forward(&x)?)?);
        x.add(&self.mlp.c_proj.forward(&inner)?)
    }
}

#[derive(Module)]
struct Transformer {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
}

/// GPT-2 with its output layer, which is the table of embeddings.
#[derive(Module)]
pub struct Gpt2 {
    transformer: Transformer,
    #[module(skip)]
    config: Gpt2Config,
}

impl Gpt2 {
    /// A model with the parameters of a source, whose names may lack `transformer.` before them.
    ///
    /// # Errors
    /// Heads that do not divide the features, or parameters that are missing, have another shape, or are left
    /// over.
    #[track_caller]
    pub fn new(config: &Gpt2Config, weights: impl Into<WeightSource>) -> Result<Gpt2> {
        Gpt2::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &Gpt2Config, source: &WeightSource) -> Result<Gpt2> {
        let (width, heads) = (config.n_embd, config.n_head);
        check_heads(OP, width, heads)?;
        let at = source.at_if_there("transformer");
        let transformer = Transformer {
            wte: at.embedding("wte", config.vocab_size, width)?,
            wpe: at.embedding("wpe", config.n_positions, width)?,
            h: (0..config.n_layer).map(|k| Block::new(&at.at("h").at(k), config)).collect::<Result<_>>()?,
            ln_f: at.layer_norm("ln_f", width, config.layer_norm_epsilon, true)?,
        };
        source.finish(&["attn.bias", "attn.masked_bias", "lm_head.weight"])?;
        crate::weight_source::tie_output(&transformer.wte);
        Ok(Gpt2 { transformer, config: config.clone() })
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Gpt2::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Gpt2> {
        Gpt2::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }
}

impl LanguageModel for Gpt2 {
    fn device(&self) -> Device {
        self.transformer.wte.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn new_cache(&self) -> KvCache {
        KvCache::new(vec![None; self.config.n_layer])
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
        let dtype: DType = self.transformer.wte.weight.dtype();
        if let Some(cache) = &mut cache {
            cache.check_batch(batch)?;
            cache.begin(length, dtype, &device)?;
        }
        let table = PositionTable { model: OP, count: self.config.n_positions, offset: 0 };
        let at = KvCache::position_rows(cache.as_deref_mut(), table, length, &device)?;
        let at = self.transformer.wpe.forward(&at)?;
        let mut x = self.transformer.wte.forward(ids)?.add(&at)?;
        for (k, block) in self.transformer.h.iter().enumerate() {
            x = block.forward(&x, self.config.n_head, cache.as_deref_mut().map(|cache| (cache, k)))?;
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        self.transformer.ln_f.forward(&x)
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        nn::functional::linear(hidden, &self.transformer.wte.weight, None)
    }
}
