//! Whisper, which writes down speech, with transformers' parameter names. `mel` has its front end.
//!
//! Radford et al.: Robust speech recognition via large-scale weak supervision (2022).

use std::path::Path;

use nn::{Conv1d, ConvConfig, Embedding, LayerNorm, Linear, Module, functional::AttentionOptions};
use serde::Deserialize;
use tensor_core::{Device, Error, Generator, Result, Tensor};

use crate::{
    config::Activation,
    load::load_all,
    projected_attention::ProjectedAttention,
    read_config,
    vision::blocks::{layer_norm, positive},
};

/// The configuration of a [`Whisper`]: the fields of transformers' `config.json`, with the defaults of
/// `openai/whisper-tiny`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct WhisperConfig {
    /// The number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// The channels of the spectrogram.
    pub num_mel_bins: usize,
    /// The width of tokens.
    pub d_model: usize,
    /// The number of encoder layers.
    pub encoder_layers: usize,
    /// The number of attention heads of the encoder.
    pub encoder_attention_heads: usize,
    /// The width inside the encoder's perceptrons.
    pub encoder_ffn_dim: usize,
    /// The number of decoder layers.
    pub decoder_layers: usize,
    /// The number of attention heads of the decoder.
    pub decoder_attention_heads: usize,
    /// The width inside the decoder's perceptrons.
    pub decoder_ffn_dim: usize,
    /// The activation of perceptrons.
    pub activation_function: Activation,
    /// The number of encoder positions, half the frames of a spectrogram.
    pub max_source_positions: usize,
    /// The largest number of tokens.
    pub max_target_positions: usize,
    /// Whether embeddings of tokens are multiplied by √d_model.
    pub scale_embedding: bool,
}

/// Presets: mel bins, vocabulary, width, layers of encoder and decoder, heads.
macro_rules! presets {
    ($($name:ident: $bins:literal $vocab:literal $width:literal [$encoder:literal, $decoder:literal] $heads:literal;)*) => {
        impl WhisperConfig {$(
            #[doc = concat!("OpenAI's model `", stringify!($name), "`.")]
            pub fn $name() -> WhisperConfig {
                WhisperConfig {
                    vocab_size: $vocab,
                    num_mel_bins: $bins,
                    d_model: $width,
                    encoder_layers: $encoder,
                    encoder_attention_heads: $heads,
                    encoder_ffn_dim: 4 * $width,
                    decoder_layers: $decoder,
                    decoder_attention_heads: $heads,
                    decoder_ffn_dim: 4 * $width,
                    activation_function: Activation::Gelu,
                    max_source_positions: 1500,
                    max_target_positions: 448,
                    scale_embedding: false,
                }
            }
        )*}
    };
}

presets! {
    tiny: 80 51865 384 [4, 4] 6;
    base: 80 51865 512 [6, 6] 8;
    small: 80 51865 768 [12, 12] 12;
    medium: 80 51865 1024 [24, 24] 16;
    large_v2: 80 51865 1280 [32, 32] 20;
    large_v3: 128 51866 1280 [32, 32] 20;
    large_v3_turbo: 128 51866 1280 [32, 4] 20;
}

impl Default for WhisperConfig {
    fn default() -> WhisperConfig {
        WhisperConfig::tiny()
    }
}

const MODEL: &str = "Whisper";
/// The eps of every norm.
const EPS: f64 = 1e-5;

/// An encoder layer: attention and a perceptron, each after a norm and added to its input.
#[derive(Module, Debug)]
struct EncoderLayer {
    self_attn: ProjectedAttention,
    self_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
}

/// A decoder layer, which also attends to the encoder's tokens.
#[derive(Module, Debug)]
struct DecoderLayer {
    self_attn: ProjectedAttention,
    self_attn_layer_norm: LayerNorm,
    encoder_attn: ProjectedAttention,
    encoder_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
}

#[derive(Module, Debug)]
struct Encoder {
    conv1: Conv1d,
    conv2: Conv1d,
    embed_positions: Embedding,
    layers: Vec<EncoderLayer>,
    layer_norm: LayerNorm,
    activation: Activation,
}

#[derive(Module, Debug)]
struct Decoder {
    embed_tokens: Embedding,
    embed_positions: Embedding,
    layers: Vec<DecoderLayer>,
    layer_norm: LayerNorm,
    activation: Activation,
    scale: f64,
}

impl Encoder {
    fn new(config: &WhisperConfig, rng: &Generator) -> Result<Encoder> {
        let &WhisperConfig { d_model: width, num_mel_bins, encoder_ffn_dim: hidden, .. } = config;
        let conv = |from: usize, stride: usize| {
            let options = ConvConfig { stride: [stride], padding: 1.into(), ..Default::default() };
            Conv1d::with_config(from, width, 3, options, rng)
        };
        let layer = |_| {
            Ok(EncoderLayer {
                self_attn: ProjectedAttention::new(MODEL, width, config.encoder_attention_heads, false, rng)?,
                self_attn_layer_norm: layer_norm(width, EPS, rng)?,
                fc1: Linear::new(width, hidden, rng)?,
                fc2: Linear::new(hidden, width, rng)?,
                final_layer_norm: layer_norm(width, EPS, rng)?,
            })
        };
        let embed_positions = Embedding::new(config.max_source_positions, width, rng)?;
        let table = sinusoids(config.max_source_positions, width);
        let table = Tensor::from_vec(table, [config.max_source_positions, width], rng.device())?;
        embed_positions.weight.assign(&table)?;
        Ok(Encoder {
            conv1: conv(num_mel_bins, 1)?,
            conv2: conv(width, 2)?,
            embed_positions,
            layers: (0..config.encoder_layers).map(layer).collect::<Result<_>>()?,
            layer_norm: layer_norm(width, EPS, rng)?,
            activation: config.activation_function,
        })
    }

    fn forward(&self, mels: &Tensor) -> Result<Tensor> {
        let x = self.conv2.forward(&self.conv1.forward(mels)?.gelu())?.gelu();
        let mut x = x.transpose(1, 2)?.add(&self.embed_positions.weight)?;
        for layer in &self.layers {
            let y = layer.self_attn_layer_norm.forward(&x)?;
            x = x.add(&layer.self_attn.forward(&y, &y, AttentionOptions::default())?)?;
            let y = layer.fc1.forward(&layer.final_layer_norm.forward(&x)?)?;
            x = x.add(&layer.fc2.forward(&self.activation.activate(&y))?)?;
        }
        self.layer_norm.forward(&x)
    }
}

impl Decoder {
    fn new(config: &WhisperConfig, rng: &Generator) -> Result<Decoder> {
        let &WhisperConfig {
            d_model: width, decoder_ffn_dim: hidden, decoder_attention_heads: heads, ..
        } = config;
        let layer = |_| {
            Ok(DecoderLayer {
                self_attn: ProjectedAttention::new(MODEL, width, heads, false, rng)?,
                self_attn_layer_norm: layer_norm(width, EPS, rng)?,
                encoder_attn: ProjectedAttention::new(MODEL, width, heads, false, rng)?,
                encoder_attn_layer_norm: layer_norm(width, EPS, rng)?,
                fc1: Linear::new(width, hidden, rng)?,
                fc2: Linear::new(hidden, width, rng)?,
                final_layer_norm: layer_norm(width, EPS, rng)?,
            })
        };
        Ok(Decoder {
            embed_tokens: Embedding::new(config.vocab_size, width, rng)?,
            embed_positions: Embedding::new(config.max_target_positions, width, rng)?,
            layers: (0..config.decoder_layers).map(layer).collect::<Result<_>>()?,
            layer_norm: layer_norm(width, EPS, rng)?,
            activation: config.activation_function,
            scale: if config.scale_embedding { (width as f64).sqrt() } else { 1.0 },
        })
    }

    fn forward(&self, ids: &Tensor, encoded: &Tensor) -> Result<Tensor> {
        let positions = self.embed_positions.weight.dims()[0];
        let &[_, length] = ids.dims() else {
            return Err(Error::invalid(MODEL, format!("ids have the shape [N, L], not {}", ids.shape())));
        };
        if length > positions {
            return Err(Error::invalid(MODEL, format!("{length} tokens: there are {positions} positions")));
        }
        let positions = self.embed_positions.weight.narrow(0, 0, length)?;
        let mut x = self.embed_tokens.forward(ids)?.mul_scalar(self.scale).add(&positions)?;
        let causal = AttentionOptions { is_causal: true, ..Default::default() };
        for layer in &self.layers {
            let y = layer.self_attn_layer_norm.forward(&x)?;
            x = x.add(&layer.self_attn.forward(&y, &y, causal)?)?;
            let y = layer.encoder_attn_layer_norm.forward(&x)?;
            x = x.add(&layer.encoder_attn.forward(&y, encoded, AttentionOptions::default())?)?;
            let y = layer.fc1.forward(&layer.final_layer_norm.forward(&x)?)?;
            x = x.add(&layer.fc2.forward(&self.activation.activate(&y))?)?;
        }
        self.layer_norm.forward(&x)
    }
}

#[derive(Module, Debug)]
struct Model {
    encoder: Encoder,
    decoder: Decoder,
}

/// An encoder of spectrograms and a decoder of tokens. transformers' `WhisperForConditionalGeneration`.
///
/// ```
/// use models::audio::{Whisper, WhisperConfig};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let small = WhisperConfig {
///     encoder_layers: 1,
///     decoder_layers: 1,
///     max_source_positions: 10,
///     vocab_size: 50,
///     ..WhisperConfig::tiny()
/// };
/// let model = Whisper::new(&small, &rng)?;
/// let encoded = model.encode(&Tensor::zeros([1, 80, 20], rng.device())?)?; // 20 frames of 10 ms
/// let logits = model.decode(&Tensor::new([[1i32, 2, 3]], rng.device())?, &encoded)?;
/// assert_eq!(logits.dims(), [1, 3, 50]);
/// # Ok(()) }
/// ```
#[derive(Module, Debug)]
pub struct Whisper {
    model: Model,
    mel_bins: usize,
    frames: usize,
}

impl Whisper {
    /// A network with initial weights, on the generator's device.
    ///
    /// # Errors
    /// Counts of 0, heads that do not divide the width, a width that is odd, or too little memory.
    pub fn new(config: &WhisperConfig, rng: &Generator) -> Result<Whisper> {
        let counts = [
            ("vocab_size", config.vocab_size),
            ("num_mel_bins", config.num_mel_bins),
            ("d_model", config.d_model),
            ("encoder_ffn_dim", config.encoder_ffn_dim),
            ("decoder_ffn_dim", config.decoder_ffn_dim),
            ("max_source_positions", config.max_source_positions),
            ("max_target_positions", config.max_target_positions),
        ];
        positive(MODEL, &counts)?;
        if config.d_model < 4 || !config.d_model.is_multiple_of(2) {
            let message = format!("d_model {}: give an even number of at least 4", config.d_model);
            return Err(Error::invalid(MODEL, message));
        }
        let (mel_bins, frames) = (config.num_mel_bins, 2 * config.max_source_positions);
        let model = Model { encoder: Encoder::new(config, rng)?, decoder: Decoder::new(config, rng)? };
        model.encoder.embed_positions.freeze()?;
        Ok(Whisper { model, mel_bins, frames })
    }

    /// A network from a folder with transformers' `config.json` and weights, such as `openai/whisper-tiny`.
    ///
    /// # Errors
    /// A `File` error for a configuration of another network or other weights, and those of
    /// [`Whisper::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Whisper> {
        let path = path.as_ref();
        let model = Whisper::new(&read_config(path)?, &Generator::seed(0, device))?;
        // The output layer is the table of tokens.
        load_all(&model, &weights::open(path)?, device, &["proj_out.weight"])?;
        model.eval();
        Ok(model)
    }

    /// The encoder's tokens `[N, frames / 2, d_model]` of spectrograms `[N, mel_bins, frames]`, which
    /// [`log_mel_spectrogram`](super::log_mel_spectrogram) makes; the presets have 3000 frames, 30 seconds.
    ///
    /// # Errors
    /// A spectrogram of another shape.
    pub fn encode(&self, mels: &Tensor) -> Result<Tensor> {
        if mels.rank() != 3 || mels.dims()[1..] != [self.mel_bins, self.frames] {
            let (bins, frames) = (self.mel_bins, self.frames);
            let message = format!("spectrograms have the shape [N, {bins}, {frames}], not {}", mels.shape());
            return Err(Error::invalid(MODEL, message));
        }
        self.model.encoder.forward(mels)
    }

    /// The logits `[N, L, vocabulary]` of the tokens that follow `ids` `[N, L]`, for the encoder's tokens.
    ///
    /// # Errors
    /// Ids that are no integers `[N, L]`, or more of them than positions.
    pub fn decode(&self, ids: &Tensor, encoded: &Tensor) -> Result<Tensor> {
        let x = self.model.decoder.forward(ids, encoded)?;
        nn::functional::linear(&x, &self.model.decoder.embed_tokens.weight, None)
    }

    /// The largest number of tokens.
    pub(super) fn positions(&self) -> usize {
        self.model.decoder.embed_positions.weight.dims()[0]
    }

    /// The number of channels of spectrograms.
    pub fn mel_bins(&self) -> usize {
        self.mel_bins
    }

    /// The number of frames of spectrograms, one for each 160 samples.
    pub fn frames(&self) -> usize {
        self.frames
    }
}

/// The sines and cosines `[length, width]` of positions, with wavelengths between 2π and 10000 · 2π.
fn sinusoids(length: usize, width: usize) -> Vec<f32> {
    let half = width / 2;
    let step = 10000f64.ln() / (half - 1).max(1) as f64;
    let angle = |position: usize, index: usize| position as f64 * (-step * index as f64).exp();
    let row = |position: usize| {
        let sines = (0..half).map(move |index| angle(position, index).sin() as f32);
        sines.chain((0..half).map(move |index| angle(position, index).cos() as f32))
    };
    (0..length).flat_map(row).collect()
}
