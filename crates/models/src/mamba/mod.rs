//! Mamba: layers with a state of a fixed size in place of attention. `transformers`: `MambaForCausalLM`.
//!
//! Gu and Dao: Mamba: linear-time sequence modeling with selective state spaces (2023).

mod scan;

use std::path::Path;

use nn::{Embedding, Linear, Module, Parameter, RmsNorm};
use serde::{Deserialize, Serialize};
use tensor_core::{DType, Device, Error, Result, Tensor};

use crate::{
    Activation, Initial, KvCache, LanguageModel, WeightSource, read_config,
    recurrent::{causal_convolution, padding_mask},
};

use scan::selective_scan;

const OP: &str = "Mamba";

/// The configuration, with the names and defaults of `transformers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MambaConfig {
    /// The number of tokens.
    pub vocab_size: usize,
    /// The features of a hidden state.
    pub hidden_size: usize,
    /// The numbers of each feature's state.
    pub state_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// Added to the mean square in norms.
    pub layer_norm_epsilon: f64,
    /// The features inside a layer are this multiple of `hidden_size`.
    pub expand: usize,
    /// The steps that the convolution sees.
    pub conv_kernel: usize,
    /// Whether the projections into and out of a layer have biases.
    pub use_bias: bool,
    /// Whether the convolution has a bias.
    pub use_conv_bias: bool,
    /// The activation behind the convolution.
    pub hidden_act: Activation,
    /// Whether sums of layers are kept in f32.
    pub residual_in_fp32: bool,
    /// The features from which the size of a step is computed, a number or `auto`: `hidden_size` / 16,
    /// rounded up.
    pub time_step_rank: TimeStepRank,
    /// The least initial size of a step.
    pub time_step_min: f64,
    /// The greatest initial size of a step.
    pub time_step_max: f64,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: bool,
}

/// The field `time_step_rank` of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TimeStepRank {
    /// The number.
    Number(usize),
    /// A word: `auto`.
    Word(String),
}

impl Default for MambaConfig {
    fn default() -> MambaConfig {
        MambaConfig {
            vocab_size: 50280,
            hidden_size: 768,
            state_size: 16,
            num_hidden_layers: 32,
            layer_norm_epsilon: 1e-5,
            expand: 2,
            conv_kernel: 4,
            use_bias: false,
            use_conv_bias: true,
            hidden_act: Activation::Silu,
            residual_in_fp32: true,
            time_step_rank: TimeStepRank::Word("auto".into()),
            time_step_min: 0.001,
            time_step_max: 0.1,
            tie_word_embeddings: true,
        }
    }
}

impl MambaConfig {
    /// The features inside a layer.
    fn inner(&self) -> usize {
        self.expand * self.hidden_size
    }

    #[track_caller]
    fn rank(&self) -> Result<usize> {
        match &self.time_step_rank {
            TimeStepRank::Number(rank) => Ok(*rank),
            TimeStepRank::Word(word) if word == "auto" => Ok(self.hidden_size.div_ceil(16)),
            TimeStepRank::Word(word) => {
                Err(Error::invalid(OP, format!("time_step_rank \"{word}\": give a number or \"auto\"")))
            }
        }
    }
}

/// The convolution of each feature with its last steps.
#[derive(Module)]
struct Convolution {
    weight: Parameter,
    bias: Option<Parameter>,
}

#[derive(Module)]
#[allow(non_snake_case)]
struct Mixer {
    A_log: Parameter,
    D: Parameter,
    conv1d: Convolution,
    in_proj: Linear,
    x_proj: Linear,
    dt_proj: Linear,
    out_proj: Linear,
    #[module(skip)]
    config: MambaConfig,
}

impl Mixer {
    #[track_caller]
    fn new(source: &WeightSource, config: &MambaConfig) -> Result<Mixer> {
        let (width, inner, states, rank) =
            (config.hidden_size, config.inner(), config.state_size, config.rank()?);
        let conv = source.at("conv1d");
        let deviation = (config.conv_kernel as f64).powf(-0.5);
        let conv_bias = || conv.parameter("bias", &[inner], Initial::Zeros);
        let parameter = |tensor: Tensor| Parameter::new(tensor);
        let dt = source.at("dt_proj");
        Ok(Mixer {
            A_log: parameter(source.parameter_from("A_log", &[inner, states], |rng| {
                Tensor::arange(1, states + 1, 1, (DType::F32, rng.device()))?.log().expand([inner, states])
            })?)?,
            D: parameter(source.parameter("D", &[inner], Initial::Ones)?)?,
            conv1d: Convolution {
                weight: parameter(conv.parameter(
                    "weight",
                    &[inner, 1, config.conv_kernel],
                    Initial::Normal(deviation),
                )?)?,
                bias: config.use_conv_bias.then(conv_bias).transpose()?.map(parameter).transpose()?,
            },
            in_proj: source.linear("in_proj", width, 2 * inner, config.use_bias)?,
            x_proj: source.linear("x_proj", inner, rank + 2 * states, false)?,
            dt_proj: Linear::from_weight(
                dt.parameter("weight", &[inner, rank], Initial::Normal((rank as f64).powf(-0.5)))?,
                Some(dt.parameter_from("bias", &[inner], |rng| {
                    // The inverse of softplus for sizes of steps between the least and the greatest one.
                    let (least, most) = (config.time_step_min.ln(), config.time_step_max.ln());
                    let steps = Tensor::rand([inner], rng)?.mul_scalar(most - least).add_scalar(least).exp();
                    steps.add(&steps.neg().expm1().neg().log())
                })?),
            ),
            out_proj: source.linear("out_proj", inner, width, config.use_bias)?,
            config: config.clone(),
        })
    }

    /// The convolution of `x` `[N, L, features]` with the steps before it, `[N, kernel − 1, features]`, and
    /// the last steps of both.
    #[track_caller]
    fn convolve(&self, x: &Tensor, before: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let (weight, bias) = (&self.conv1d.weight, self.conv1d.bias.as_ref());
        let (sum, last) = causal_convolution(x, before, weight, bias.map(|bias| -> &Tensor { bias }))?;
        Ok((self.config.hidden_act.activate(&sum), last))
    }

    /// The output for `x` `[N, L, hidden_size]`. `mask` `[N, L, 1]` is 0 at padding; `states` has the last
    /// steps of the convolution and the state `[N, features, state_size]`, if there are any, and gets those
    /// after this step.
    #[track_caller]
    fn forward(&self, x: &Tensor, mask: Option<&Tensor>, states: &mut Option<[Tensor; 2]>) -> Result<Tensor> {
        let masked = |x: Tensor| match mask {
            Some(mask) => x.mul(mask),
            None => Ok(x),
        };
        let parts = self.in_proj.forward(x)?.chunk(2, -1)?;
        let (inner, gate) = (masked(parts[0].clone())?, &parts[1]);
        let [before, state] = states.take().map_or([None, None], |states| states.map(Some));
        let (inner, last) = self.convolve(&inner, before.as_ref())?;
        let inner = masked(inner)?;
        let (out, state) = self.scan(&inner, state.as_ref())?;
        *states = Some([last, state]);
        self.out_proj.forward(&out.to_dtype(x.dtype())?.mul(&gate.silu())?)
    }

    /// y[t] = C[t] · h[t] + D · x[t] in f32 for `x` `[N, L, features]` after a state `[N, features,
    /// state_size]`, and the last state; h is that of [`selective_scan`].
    #[track_caller]
    fn scan(&self, x: &Tensor, state: Option<&Tensor>) -> Result<(Tensor, Tensor)> {
        let (states, rank) = (self.config.state_size, self.config.rank()?);
        let projected = self.x_proj.forward(x)?;
        let wide = |x: Tensor| x.to_dtype(DType::F32);
        let part = |from: usize, size: usize| projected.narrow(-1, from, size);
        let step = wide(self.dt_proj.forward(&part(0, rank)?)?)?.softplus();
        let (b, c, x) = (wide(part(rank, states)?)?, wide(part(rank + states, states)?)?, wide(x.clone())?);
        let a = self.A_log.to_dtype(DType::F32)?.exp().neg();
        let state = match state {
            Some(state) => state.clone(),
            None => Tensor::zeros([x.dims()[0], x.dims()[2], states], (DType::F32, &x.device()))?,
        };
        let (out, state) = selective_scan([&step, &x, &b, &c, &a, &state])?;
        Ok((out.add(&x.mul(&self.D.to_dtype(DType::F32)?)?)?, state))
    }
}

#[derive(Module)]
struct Layer {
    norm: RmsNorm,
    mixer: Mixer,
}

#[derive(Module)]
struct Backbone {
    embeddings: Embedding,
    layers: Vec<Layer>,
    norm_f: RmsNorm,
}

/// Mamba with its output layer. Its cache has the same size after any number of tokens, and cannot go back.
#[derive(Module)]
pub struct Mamba {
    backbone: Backbone,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: MambaConfig,
}

impl Mamba {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// Sizes of 0, an unknown rank of steps, or parameters that are missing, have another shape, or are left
    /// over.
    #[track_caller]
    pub fn new(config: &MambaConfig, weights: impl Into<WeightSource>) -> Result<Mamba> {
        Mamba::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &MambaConfig, source: &WeightSource) -> Result<Mamba> {
        let width = config.hidden_size;
        if [width, config.expand, config.state_size, config.conv_kernel, config.rank()?].contains(&0) {
            return Err(Error::invalid(OP, "a size of 0"));
        }
        let at = source.at("backbone");
        let layer = |k: usize| {
            let at = at.at("layers").at(k);
            let norm = at.rms_norm("norm", width, config.layer_norm_epsilon)?;
            Ok(Layer { norm, mixer: Mixer::new(&at.at("mixer"), config)? })
        };
        let backbone = Backbone {
            embeddings: at.embedding("embeddings", config.vocab_size, width)?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            norm_f: at.rms_norm("norm_f", width, config.layer_norm_epsilon)?,
        };
        let head = || source.linear("lm_head", width, config.vocab_size, false);
        let lm_head = (!config.tie_word_embeddings).then(head).transpose()?;
        source.finish(&["lm_head.weight"])?;
        if lm_head.is_none() {
            crate::weight_source::tie_output(&backbone.embeddings);
        }
        Ok(Mamba { backbone, lm_head, config: config.clone() })
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Mamba::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Mamba> {
        Mamba::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }
}

impl LanguageModel for Mamba {
    fn device(&self) -> Device {
        self.backbone.embeddings.weight.device()
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
        let mut x = self.backbone.embeddings.forward(ids)?;
        let dtype = x.dtype();
        let mask = padding_mask(cache.as_deref_mut(), [batch, length], dtype, &ids.device())?;
        if self.config.residual_in_fp32 {
            x = x.to_dtype(DType::F32)?;
        }
        for (k, layer) in self.backbone.layers.iter().enumerate() {
            let mut states = match &cache {
                Some(cache) => match cache.states(k)? {
                    [conv, state] => Some([conv.clone(), state.clone()]),
                    _ => None,
                },
                None => None,
            };
            let normed = layer.norm.forward(&x.to_dtype(dtype)?)?;
            let out = layer.mixer.forward(&normed, mask.as_ref(), &mut states)?;
            x = x.add(&out.to_dtype(x.dtype())?)?;
            if let (Some(cache), Some(states)) = (&mut cache, states) {
                cache.set_states(k, states.into())?;
            }
        }
        if let Some(cache) = cache {
            cache.finish()?;
        }
        self.backbone.norm_f.forward(&x.to_dtype(dtype)?)
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        match &self.lm_head {
            Some(head) => head.forward(hidden),
            None => nn::functional::linear(hidden, &self.backbone.embeddings.weight, None),
        }
    }
}
