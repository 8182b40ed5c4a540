//! RWKV-7: layers with a matrix as state, which forgets, replaces and adds values at keys. The names are
//! those of the Hugging Face hub's models, by `flash-linear-attention`: `RWKV7ForCausalLM`. The numbers are
//! compared with the package `rwkv`, which runs on a CPU.
//!
//! Peng et al.: RWKV-7 "Goose" with expressive dynamic state evolution (2025).

mod config;
mod state;
mod time_mix;

use std::path::Path;

use nn::{Embedding, LayerNorm, Linear, Module, Parameter};
use tensor_core::{Device, Error, Result, Tensor};

pub use config::Rwkv7Config;
use time_mix::TimeMix;

use crate::{KvCache, LanguageModel, WeightSource, read_config, recurrent::padding_mask};

const OP: &str = "Rwkv7";

/// The states of a layer between steps: the last input of its time mix, the matrices of its heads, and the
/// last input of its channel mix.
type LayerState = [Tensor; 3];

/// The step before each of `x` `[N, L, features]`; the first one is `before`, or zeros.
#[track_caller]
fn shifted(x: &Tensor, before: Option<&Tensor>) -> Result<Tensor> {
    let (batch, length, width) = (x.dims()[0], x.dims()[1], x.dims()[2]);
    let earlier = x.narrow(1, 0, length - 1)?;
    match before {
        Some(before) => Tensor::concat(&[&before.reshape([batch, 1, width])?, &earlier], 1),
        None => earlier.pad(&[(0, 0), (1, 0), (0, 0)], 0.0),
    }
}

/// value(max(0, key(x + x_k · (x before − x)))²).
#[derive(Module)]
struct ChannelMix {
    x_k: Parameter,
    key: Linear,
    value: Linear,
}

impl ChannelMix {
    #[track_caller]
    fn new(source: &WeightSource, config: &Rwkv7Config, layer: usize) -> Result<ChannelMix> {
        let (width, inner) = (config.hidden_size, config.inner());
        let mixed = config.mixed(config.left(layer).powi(4));
        let x_k =
            source.parameter_from("x_k", &[width], |rng| Tensor::from_vec(mixed, [width], rng.device()))?;
        Ok(ChannelMix {
            x_k: Parameter::new(x_k)?,
            key: source.linear("key", width, inner, false)?,
            value: source.linear("value", inner, width, false)?,
        })
    }

    /// The output for `x` `[N, L, features]` after the step `before`.
    #[track_caller]
    fn forward(&self, x: &Tensor, before: Option<&Tensor>) -> Result<Tensor> {
        let mixed = x.add(&shifted(x, before)?.sub(x)?.mul(&self.x_k)?)?;
        self.value.forward(&self.key.forward(&mixed)?.relu().square())
    }
}

#[derive(Module)]
struct Layer {
    pre_norm: Option<LayerNorm>,
    attn_norm: LayerNorm,
    attn: TimeMix,
    ffn_norm: LayerNorm,
    ffn: ChannelMix,
}

impl Layer {
    #[track_caller]
    fn new(source: &WeightSource, config: &Rwkv7Config, layer: usize) -> Result<Layer> {
        let norm =
            |name: &str| source.layer_norm(name, config.hidden_size, config.norm_eps, config.norm_bias);
        let before = config.norm_first && layer == 0;
        Ok(Layer {
            pre_norm: before.then(|| norm("pre_norm")).transpose()?,
            attn_norm: norm("attn_norm")?,
            attn: TimeMix::new(&source.at("attn"), config, layer)?,
            ffn_norm: norm("ffn_norm")?,
            ffn: ChannelMix::new(&source.at("ffn"), config, layer)?,
        })
    }

    /// The output for `x` `[N, L, features]`. `mask` `[N, L, 1]` is 0 at padding, `first_value` has the
    /// values of the first layer, and `states` those of the layer before and then after this step.
    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        first_value: &mut Option<Tensor>,
        states: &mut Option<LayerState>,
    ) -> Result<Tensor> {
        let masked = |x: Tensor| match mask {
            Some(mask) => x.mul(mask),
            None => Ok(x),
        };
        let [time, matrices, channel] = states.take().map_or([None, None, None], |states| states.map(Some));
        let x = match &self.pre_norm {
            Some(norm) => norm.forward(x)?,
            None => x.clone(),
        };
        let normed = masked(self.attn_norm.forward(&x)?)?;
        let (out, matrices) =
            self.attn.forward(&normed, [time.as_ref(), matrices.as_ref()], mask, first_value)?;
        let x = x.add(&out)?;
        let mixed = masked(self.ffn_norm.forward(&x)?)?;
        *states = Some([normed.select(1, -1)?, matrices, mixed.select(1, -1)?]);
        x.add(&self.ffn.forward(&mixed, channel.as_ref())?)
    }
}

#[derive(Module)]
struct Decoder {
    embeddings: Embedding,
    layers: Vec<Layer>,
    norm: LayerNorm,
}

/// RWKV-7 with its output layer. Its cache has the same size after any number of tokens, and cannot go back.
#[derive(Module)]
pub struct Rwkv7 {
    model: Decoder,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: Rwkv7Config,
}

impl Rwkv7 {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// Heads that do not divide the features, a configuration with parts that are not supported (values of
    /// another size than keys, another activation), or parameters that are missing, have another shape, or
    /// are left over.
    #[track_caller]
    pub fn new(config: &Rwkv7Config, weights: impl Into<WeightSource>) -> Result<Rwkv7> {
        Rwkv7::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &Rwkv7Config, source: &WeightSource) -> Result<Rwkv7> {
        config.check()?;
        let (at, width) = (source.at("model"), config.hidden_size);
        let layers = (0..config.num_hidden_layers).map(|k| Layer::new(&at.at("layers").at(k), config, k));
        let model = Decoder {
            embeddings: at.embedding("embeddings", config.vocab_size, width)?,
            layers: layers.collect::<Result<_>>()?,
            norm: at.layer_norm("norm", width, config.norm_eps, config.norm_bias)?,
        };
        let head = || source.linear("lm_head", width, config.vocab_size, false);
        let lm_head = (!config.tie_word_embeddings).then(head).transpose()?;
        source.finish(&["lm_head.weight"])?;
        if lm_head.is_none() {
            crate::weight_source::tie_output(&model.embeddings);
        }
        Ok(Rwkv7 { model, lm_head, config: config.clone() })
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Rwkv7::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Rwkv7> {
        Rwkv7::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }
}

impl LanguageModel for Rwkv7 {
    fn device(&self) -> Device {
        self.model.embeddings.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn new_cache(&self) -> KvCache {
        KvCache::recurrent(self.config.num_hidden_layers)
    }

    fn repeats_steps(&self) -> bool {
        true
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, mut cache: Option<&mut KvCache>) -> Result<Tensor> {
        let &[batch, length] = ids.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        if length == 0 {
            return Err(Error::invalid(OP, "no tokens"));
        }
        let mut x = self.model.embeddings.forward(ids)?;
        let mask = padding_mask(cache.as_deref_mut(), [batch, length], x.dtype(), &ids.device())?;
        let mut first_value = None;
        for (k, layer) in self.model.layers.iter().enumerate() {
            let mut states = match &cache {
                Some(cache) => cache.states(k)?.to_vec().try_into().ok(),
                None => None,
            };
            x = layer.forward(&x, mask.as_ref(), &mut first_value, &mut states)?;
            if let (Some(cache), Some(states)) = (&mut cache, states) {
                cache.set_states(k, states.into())?;
            }
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        self.model.norm.forward(&x)
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        match &self.lm_head {
            Some(head) => head.forward(hidden),
            None => nn::functional::linear(hidden, &self.model.embeddings.weight, None),
        }
    }
}
