//! Whisper, which writes down speech, with transformers' parameter names. `mel` has its front end.
//!
//! Radford et al.: Robust speech recognition via large-scale weak supervision (2022).

use std::path::Path;

use nn::{Conv1d, ConvConfig, Embedding, LayerNorm, Module};
use serde::Deserialize;
use tensor_core::{Device, Error, Result, Tensor};

use crate::{
    ConditionedDecoder, LanguageModel, Masking, WeightSource,
    config::Activation,
    read_config,
    seq2seq::{DecoderParts, DecoderStack, EncoderLayer, LayerConfig},
    vision::blocks::positive,
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

impl WhisperConfig {
    /// The sizes of a layer with these heads and features.
    fn layer(&self, heads: usize, hidden: usize) -> LayerConfig {
        let (width, activation) = (self.d_model, self.activation_function);
        LayerConfig {
            model: MODEL,
            width,
            heads,
            hidden,
            activation,
            key_bias: false,
            pre_norm: true,
            eps: EPS,
        }
    }
}

#[derive(Module, Debug)]
struct Encoder {
    conv1: Conv1d,
    conv2: Conv1d,
    embed_positions: Embedding,
    layers: Vec<EncoderLayer>,
    layer_norm: LayerNorm,
}

impl Encoder {
    fn new(source: &WeightSource, config: &WhisperConfig) -> Result<Encoder> {
        let &WhisperConfig { d_model: width, num_mel_bins, max_source_positions: positions, .. } = config;
        let conv = |name: &str, from: usize, stride: usize| {
            let options = ConvConfig { stride: [stride], padding: 1.into(), ..Default::default() };
            source.module(name, |rng| Conv1d::with_config(from, width, 3, options, rng))
        };
        let layer = config.layer(config.encoder_attention_heads, config.encoder_ffn_dim);
        let layers =
            (0..config.encoder_layers).map(|k| EncoderLayer::new(&source.at("layers").at(k), &layer));
        let table = source.parameter_from("embed_positions.weight", &[positions, width], |rng| {
            Tensor::from_vec(sinusoids(positions, width), [positions, width], rng.device())
        })?;
        let embed_positions = Embedding::from_weight(table)?;
        embed_positions.freeze()?;
        Ok(Encoder {
            conv1: conv("conv1", num_mel_bins, 1)?,
            conv2: conv("conv2", width, 2)?,
            embed_positions,
            layers: layers.collect::<Result<_>>()?,
            layer_norm: layer.norm(source, "layer_norm")?,
        })
    }

    fn forward(&self, mels: &Tensor) -> Result<Tensor> {
        let x = self.conv2.forward(&self.conv1.forward(mels)?.gelu())?.gelu();
        let mut x = x.transpose(1, 2)?.add(&self.embed_positions.weight)?;
        for layer in &self.layers {
            x = layer.forward(&x, &Masking::Full)?;
        }
        self.layer_norm.forward(&x)
    }
}

#[derive(Module, Debug)]
struct Model {
    encoder: Encoder,
    decoder: DecoderStack,
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
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// Counts of 0, heads that do not divide the width, a width that is odd, parameters that do not match, or
    /// too little memory.
    #[track_caller]
    pub fn new(config: &WhisperConfig, weights: impl Into<WeightSource>) -> Result<Whisper> {
        Whisper::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &WhisperConfig, source: &WeightSource) -> Result<Whisper> {
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
        let parts = DecoderParts {
            layers: config.decoder_layers,
            positions: config.max_target_positions,
            offset: 0,
            vocabulary: Some(config.vocab_size),
            embedding_norm: false,
            last_norm: true,
            scale: if config.scale_embedding { (config.d_model as f64).sqrt() } else { 1.0 },
        };
        let layer = config.layer(config.decoder_attention_heads, config.decoder_ffn_dim);
        let at = source.at("model");
        let decoder = DecoderStack::new(&at.at("decoder"), &layer, &parts)?;
        let model = Model { encoder: Encoder::new(&at.at("encoder"), config)?, decoder };
        source.finish(&["proj_out.weight"])?; // the output layer is the table of tokens
        model.decoder.embed_tokens.iter().for_each(crate::weight_source::tie_output);
        Ok(Whisper { model, mel_bins, frames })
    }

    /// A network from a folder with transformers' `config.json` and weights, such as `openai/whisper-tiny`.
    ///
    /// # Errors
    /// A `File` error for a configuration of another network or other weights, and those of
    /// [`Whisper::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Whisper> {
        let model = Whisper::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)?;
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

    /// The decoder for the encoder's tokens `[N, frames / 2, d_model]`: a language model with a cache, whose
    /// prompt is the tokens of the language and the task. The attention to the encoder's tokens has its keys
    /// and values computed once.
    ///
    /// # Errors
    /// Another width of the encoder's tokens.
    pub fn decoder(&self, encoded: &Tensor) -> Result<ConditionedDecoder<'_>> {
        let decoder = &self.model.decoder;
        let Some(table) = &decoder.embed_tokens else {
            return Err(Error::invalid(MODEL, "the decoder has no table of tokens"));
        };
        decoder.conditioned([&table.weight, &table.weight], None, encoded, None)
    }

    /// The logits `[N, L, vocabulary]` of the tokens that follow `ids` `[N, L]`, for the encoder's tokens.
    ///
    /// # Errors
    /// Ids that are no integers `[N, L]`, or more of them than positions.
    pub fn decode(&self, ids: &Tensor, encoded: &Tensor) -> Result<Tensor> {
        self.decoder(encoded)?.forward(ids)
    }

    /// The largest number of tokens.
    pub(super) fn positions(&self) -> usize {
        self.model.decoder.positions()
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
