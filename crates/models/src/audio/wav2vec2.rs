//! wav2vec 2.0, which learns from sound without texts and is tuned to write down letters, with transformers'
//! parameter names.
//!
//! Baevski et al.: wav2vec 2.0: a framework for self-supervised learning of speech representations (2020).

use nn::{
    Conv1d, ConvConfig, Dropout, GroupNorm, LayerNorm, Linear, Module, Parameter,
    functional::{ConvOptions, conv1d},
    init,
};
use serde::Deserialize;
use tensor_core::{Error, Generator, Result, Tensor};

use crate::{
    Masking, WeightSource,
    config::Activation,
    projected_attention::ProjectedAttention,
    vision::blocks::{layer_norm, positive},
};

/// The norms of a [`Wav2Vec2`]'s convolutions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureNorm {
    /// A norm of each channel over time, after the first convolution.
    Group,
    /// A norm over channels after each convolution.
    Layer,
}

/// The configuration of a [`Wav2Vec2`]: the fields of transformers' `config.json`, with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Wav2Vec2Config {
    /// The number of letters.
    pub vocab_size: usize,
    /// The width of tokens.
    pub hidden_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The width inside perceptrons.
    pub intermediate_size: usize,
    /// The activation of perceptrons.
    pub hidden_act: Activation,
    /// The dropout probability of tokens.
    pub hidden_dropout: f64,
    /// The dropout probability before the letters.
    pub final_dropout: f64,
    /// The eps of norms.
    pub layer_norm_eps: f64,
    /// The norms of convolutions.
    pub feat_extract_norm: FeatureNorm,
    /// The activation of convolutions.
    pub feat_extract_activation: Activation,
    /// The output channels of each convolution.
    pub conv_dim: Vec<usize>,
    /// The stride of each convolution.
    pub conv_stride: Vec<usize>,
    /// The kernel of each convolution.
    pub conv_kernel: Vec<usize>,
    /// Whether convolutions have biases.
    pub conv_bias: bool,
    /// The kernel of the convolution that gives tokens their positions.
    pub num_conv_pos_embeddings: usize,
    /// The groups of that convolution.
    pub num_conv_pos_embedding_groups: usize,
    /// Whether norms come before attention and perceptrons; otherwise they come after them.
    pub do_stable_layer_norm: bool,
}

impl Default for Wav2Vec2Config {
    fn default() -> Wav2Vec2Config {
        Wav2Vec2Config {
            vocab_size: 32,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: Activation::Gelu,
            hidden_dropout: 0.1,
            final_dropout: 0.1,
            layer_norm_eps: 1e-5,
            feat_extract_norm: FeatureNorm::Group,
            feat_extract_activation: Activation::Gelu,
            conv_dim: vec![512; 7],
            conv_stride: vec![5, 2, 2, 2, 2, 2, 2],
            conv_kernel: vec![10, 3, 3, 3, 3, 2, 2],
            conv_bias: false,
            num_conv_pos_embeddings: 128,
            num_conv_pos_embedding_groups: 16,
            do_stable_layer_norm: false,
        }
    }
}

impl Wav2Vec2Config {
    /// `facebook/wav2vec2-base-960h`.
    pub fn base() -> Wav2Vec2Config {
        Wav2Vec2Config::default()
    }

    /// `facebook/wav2vec2-large-960h-lv60-self`.
    pub fn large_lv60() -> Wav2Vec2Config {
        Wav2Vec2Config {
            hidden_size: 1024,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            intermediate_size: 4096,
            feat_extract_norm: FeatureNorm::Layer,
            conv_bias: true,
            do_stable_layer_norm: true,
            ..Default::default()
        }
    }
}

const MODEL: &str = "Wav2Vec2";

/// The norm after a convolution, if it has one.
#[derive(Module, Debug)]
enum ConvNorm {
    Group(GroupNorm),
    Layer(LayerNorm),
}

#[derive(Module, Debug)]
struct ConvLayer {
    conv: Conv1d,
    layer_norm: Option<ConvNorm>,
}

impl ConvLayer {
    fn forward(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        let x = self.conv.forward(x)?;
        let x = match &self.layer_norm {
            None => x,
            Some(ConvNorm::Group(norm)) => norm.forward(&x)?,
            Some(ConvNorm::Layer(norm)) => norm.forward(&x.transpose(1, 2)?)?.transpose(1, 2)?,
        };
        Ok(activation.activate(&x))
    }
}

#[derive(Module, Debug)]
struct FeatureExtractor {
    conv_layers: Vec<ConvLayer>,
    activation: Activation,
}

#[derive(Module, Debug)]
struct FeatureProjection {
    layer_norm: LayerNorm,
    projection: Linear,
}

/// The direction and the length of a weight: `original0` and `original1` of PyTorch's `weight_norm`.
#[derive(Module, Debug)]
struct WeightNorm {
    original0: Parameter,
    original1: Parameter,
}

#[derive(Module, Debug)]
struct Parametrizations {
    weight: WeightNorm,
}

/// A convolution whose weight is `original1` scaled to the length `original0` at each position of the
/// kernel.
#[derive(Module, Debug)]
struct NormedConv {
    parametrizations: Parametrizations,
    bias: Parameter,
    groups: usize,
}

impl NormedConv {
    fn new(width: usize, kernel: usize, groups: usize, rng: &Generator) -> Result<NormedConv> {
        let conv =
            Conv1d::with_config(width, width, kernel, ConvConfig { groups, ..Default::default() }, rng)?;
        let weight = conv.weight.detach();
        let bias = conv.bias.unwrap_or(Tensor::zeros([width], rng.device())?);
        let original0 = Parameter::new(weight.vector_norm(2.0, [0, 1], true)?)?;
        let weight = WeightNorm { original0, original1: Parameter::new(weight)? };
        Ok(NormedConv { parametrizations: Parametrizations { weight }, bias: Parameter::new(bias)?, groups })
    }

    /// The convolution of `[N, C, L]`, with the output as long as the input.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let WeightNorm { original0, original1 } = &self.parametrizations.weight;
        let weight = original1.mul(&original0.div(&original1.vector_norm(2.0, [0, 1], true)?)?)?;
        let (kernel, length) = (weight.dims()[2], x.dims()[2]);
        let options = ConvOptions { padding: (kernel / 2).into(), groups: self.groups, ..Default::default() };
        conv1d(x, &weight, Some(&self.bias), options)?.narrow(2, 0, length)
    }
}

#[derive(Module, Debug)]
struct PositionalConvEmbedding {
    conv: NormedConv,
}

#[derive(Module, Debug)]
struct FeedForward {
    intermediate_dense: Linear,
    output_dense: Linear,
    output_dropout: Dropout,
    activation: Activation,
}

impl FeedForward {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.activation.activate(&self.intermediate_dense.forward(x)?);
        self.output_dropout.forward(&self.output_dense.forward(&hidden)?)
    }
}

#[derive(Module, Debug)]
struct EncoderLayer {
    attention: ProjectedAttention,
    dropout: Dropout,
    layer_norm: LayerNorm,
    feed_forward: FeedForward,
    final_layer_norm: LayerNorm,
}

impl EncoderLayer {
    fn new(config: &Wav2Vec2Config, rng: &Generator) -> Result<EncoderLayer> {
        let &Wav2Vec2Config { hidden_size: width, intermediate_size: hidden, layer_norm_eps: eps, .. } =
            config;
        let dropout = || Dropout::new(config.hidden_dropout, rng);
        Ok(EncoderLayer {
            attention: ProjectedAttention::new(MODEL, width, config.num_attention_heads, rng)?,
            dropout: dropout()?,
            layer_norm: layer_norm(width, eps, rng)?,
            feed_forward: FeedForward {
                intermediate_dense: Linear::new(width, hidden, rng)?,
                output_dense: Linear::new(hidden, width, rng)?,
                output_dropout: dropout()?,
                activation: config.hidden_act,
            },
            final_layer_norm: layer_norm(width, eps, rng)?,
        })
    }

    fn self_attention(&self, x: &Tensor) -> Result<Tensor> {
        self.dropout.forward(&self.attention.forward(x, x, &Masking::Full)?)
    }

    fn forward(&self, x: &Tensor, stable: bool) -> Result<Tensor> {
        if stable {
            let x = x.add(&self.self_attention(&self.layer_norm.forward(x)?)?)?;
            return x.add(&self.feed_forward.forward(&self.final_layer_norm.forward(&x)?)?);
        }
        let x = self.layer_norm.forward(&x.add(&self.self_attention(x)?)?)?;
        self.final_layer_norm.forward(&x.add(&self.feed_forward.forward(&x)?)?)
    }
}

#[derive(Module, Debug)]
struct Encoder {
    pos_conv_embed: PositionalConvEmbedding,
    layer_norm: LayerNorm,
    dropout: Dropout,
    layers: Vec<EncoderLayer>,
    activation: Activation,
    stable: bool,
}

impl Encoder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let positions = self.pos_conv_embed.conv.forward(&x.transpose(1, 2)?)?;
        let mut x = x.add(&self.activation.activate(&positions).transpose(1, 2)?)?;
        if !self.stable {
            x = self.layer_norm.forward(&x)?;
        }
        x = self.dropout.forward(&x)?;
        for layer in &self.layers {
            x = layer.forward(&x, self.stable)?;
        }
        if self.stable { self.layer_norm.forward(&x) } else { Ok(x) }
    }
}

#[derive(Module, Debug)]
struct Model {
    feature_extractor: FeatureExtractor,
    feature_projection: FeatureProjection,
    encoder: Encoder,
    masked_spec_embed: Parameter,
}

/// Convolutions over samples and a transformer, with a classifier of letters for each 20 ms. transformers'
/// `Wav2Vec2ForCTC`; [`Wav2Vec2::features`] is its `Wav2Vec2Model`.
///
/// Older files have `conv.weight_g` and `conv.weight_v` for `conv.parametrizations.weight.original0` and
/// `original1`: load them with a [`NameMap`](nn::NameMap).
#[derive(Module, Debug)]
pub struct Wav2Vec2 {
    wav2vec2: Model,
    dropout: Dropout,
    lm_head: Linear,
}

impl Wav2Vec2 {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// Counts of 0, lists of convolutions of different lengths, heads or groups that do not divide the width,
    /// probabilities outside [0, 1], parameters that do not match, or too little memory.
    pub fn new(config: &Wav2Vec2Config, weights: impl Into<WeightSource>) -> Result<Wav2Vec2> {
        weights.into().network(|rng| Wav2Vec2::initial(config, rng))
    }

    fn initial(config: &Wav2Vec2Config, rng: &Generator) -> Result<Wav2Vec2> {
        let &Wav2Vec2Config { hidden_size: width, layer_norm_eps: eps, .. } = config;
        let counts = [
            ("vocab_size", config.vocab_size),
            ("hidden_size", width),
            ("intermediate_size", config.intermediate_size),
            ("num_conv_pos_embeddings", config.num_conv_pos_embeddings),
            ("the number of convolutions", config.conv_dim.len()),
        ];
        positive(MODEL, &counts)?;
        let conv_layers = conv_layers(config, rng)?;
        let last = config.conv_dim[config.conv_dim.len() - 1];
        let (kernel, groups) = (config.num_conv_pos_embeddings, config.num_conv_pos_embedding_groups);
        let layer = |_| EncoderLayer::new(config, rng);
        let model = Model {
            feature_extractor: FeatureExtractor { conv_layers, activation: config.feat_extract_activation },
            feature_projection: FeatureProjection {
                layer_norm: layer_norm(last, eps, rng)?,
                projection: Linear::new(last, width, rng)?,
            },
            encoder: Encoder {
                pos_conv_embed: PositionalConvEmbedding {
                    conv: NormedConv::new(width, kernel, groups, rng)?,
                },
                layer_norm: layer_norm(width, eps, rng)?,
                dropout: Dropout::new(config.hidden_dropout, rng)?,
                layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
                activation: config.feat_extract_activation,
                stable: config.do_stable_layer_norm,
            },
            masked_spec_embed: Parameter::new(init::uniform([width], 0.0, 1.0, rng)?)?,
        };
        Ok(Wav2Vec2 {
            wav2vec2: model,
            dropout: Dropout::new(config.final_dropout, rng)?,
            lm_head: Linear::new(width, config.vocab_size, rng)?,
        })
    }

    /// The tokens `[N, frames, width]` of sound `[N, samples]` at 16 kHz, with mean 0 and deviation 1.
    ///
    /// # Errors
    /// Sound of another shape, or too short for the convolutions.
    pub fn features(&self, sound: &Tensor) -> Result<Tensor> {
        if sound.rank() != 2 {
            return Err(Error::invalid(MODEL, format!("sound is [N, samples], not {}", sound.shape())));
        }
        let Model { feature_extractor, feature_projection, encoder, .. } = &self.wav2vec2;
        let mut x = sound.unsqueeze(1)?;
        for layer in &feature_extractor.conv_layers {
            x = layer.forward(&x, feature_extractor.activation)?;
        }
        let x = feature_projection.layer_norm.forward(&x.transpose(1, 2)?)?;
        encoder.forward(&feature_projection.projection.forward(&x)?)
    }

    /// The logits of letters `[N, frames, vocabulary]`, for [`CtcLoss`](nn::CtcLoss) or a decoder.
    ///
    /// # Errors
    /// As [`Wav2Vec2::features`].
    pub fn forward(&self, sound: &Tensor) -> Result<Tensor> {
        self.lm_head.forward(&self.dropout.forward(&self.features(sound)?)?)
    }
}

/// The convolutions over samples.
fn conv_layers(config: &Wav2Vec2Config, rng: &Generator) -> Result<Vec<ConvLayer>> {
    let Wav2Vec2Config { conv_dim, conv_stride, conv_kernel, .. } = config;
    if conv_dim.len() != conv_stride.len() || conv_dim.len() != conv_kernel.len() {
        let message = format!(
            "conv_dim {conv_dim:?}, conv_stride {conv_stride:?}, conv_kernel {conv_kernel:?}: give as many of each"
        );
        return Err(Error::invalid(MODEL, message));
    }
    let (mut layers, mut from) = (Vec::new(), 1);
    for (index, &to) in conv_dim.iter().enumerate() {
        let options =
            ConvConfig { stride: [conv_stride[index]], bias: config.conv_bias, ..Default::default() };
        let conv = Conv1d::with_config(from, to, conv_kernel[index], options, rng)?;
        let norm = match config.feat_extract_norm {
            FeatureNorm::Group if index > 0 => None,
            FeatureNorm::Group => Some(ConvNorm::Group(GroupNorm::new(to, to, rng.device())?)),
            FeatureNorm::Layer => Some(ConvNorm::Layer(layer_norm(to, 1e-5, rng)?)),
        };
        layers.push(ConvLayer { conv, layer_norm: norm });
        from = to;
    }
    Ok(layers)
}

crate::as_layer::layer!(Wav2Vec2);
