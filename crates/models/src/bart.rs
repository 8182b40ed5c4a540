//! BART and mBART: an encoder and a decoder of texts. `transformers`: `BartForConditionalGeneration`,
//! `MBartForConditionalGeneration`.
//!
//! Lewis et al.: BART: denoising sequence-to-sequence pre-training for natural language generation,
//! translation, and comprehension (2020). Liu et al.: Multilingual denoising pre-training for neural machine
//! translation (2020).

use std::path::Path;

use nn::{Embedding, LayerNorm, Linear, Module};
use serde::{Deserialize, Serialize};
use tensor_core::{Device, Error, Result, Tensor};

use crate::{
    Activation, ConditionedDecoder, Initial, LanguageModel, Masking, WeightSource,
    attention::{keys_mask, positions},
    generate::{GenerationConfig, generate, row},
    read_config,
    seq2seq::{DecoderParts, DecoderStack, EncoderLayer, LayerConfig},
};

const OP: &str = "Bart";

/// The first rows of the tables of positions, which no position has.
const POSITION_OFFSET: usize = 2;

/// The eps of every norm.
const EPS: f64 = 1e-5;

/// The configuration, with the names and defaults of `transformers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BartConfig {
    /// `bart`; or `mbart`, whose norms are before each part, and which has one behind the last layers.
    pub model_type: String,
    /// The number of tokens.
    pub vocab_size: usize,
    /// The greatest number of tokens of a text.
    pub max_position_embeddings: usize,
    /// The features of a hidden state.
    pub d_model: usize,
    /// The layers of the encoder.
    pub encoder_layers: usize,
    /// The heads of the encoder's attention.
    pub encoder_attention_heads: usize,
    /// The features inside the encoder's feed forward layers.
    pub encoder_ffn_dim: usize,
    /// The layers of the decoder.
    pub decoder_layers: usize,
    /// The heads of the decoder's attention.
    pub decoder_attention_heads: usize,
    /// The features inside the decoder's feed forward layers.
    pub decoder_ffn_dim: usize,
    /// The activation of the feed forward layers.
    pub activation_function: Activation,
    /// Whether embeddings of tokens are multiplied by √d_model.
    pub scale_embedding: bool,
    /// Whether the table of embeddings is the output layer too.
    pub tie_word_embeddings: bool,
    /// The token with which the decoder begins.
    pub decoder_start_token_id: u32,
    /// The token that ends a text.
    pub eos_token_id: u32,
}

impl Default for BartConfig {
    fn default() -> BartConfig {
        BartConfig {
            model_type: "bart".into(),
            vocab_size: 50265,
            max_position_embeddings: 1024,
            d_model: 1024,
            encoder_layers: 12,
            encoder_attention_heads: 16,
            encoder_ffn_dim: 4096,
            decoder_layers: 12,
            decoder_attention_heads: 16,
            decoder_ffn_dim: 4096,
            activation_function: Activation::Gelu,
            scale_embedding: false,
            tie_word_embeddings: true,
            decoder_start_token_id: 2,
            eos_token_id: 2,
        }
    }
}

impl BartConfig {
    fn scale(&self) -> f64 {
        if self.scale_embedding { (self.d_model as f64).sqrt() } else { 1.0 }
    }

    /// Whether norms are before each part; an error for another architecture.
    #[track_caller]
    fn pre_norm(&self) -> Result<bool> {
        match self.model_type.as_str() {
            "bart" => Ok(false),
            "mbart" => Ok(true),
            other => Err(Error::invalid(OP, format!("model_type \"{other}\" is none of bart, mbart"))),
        }
    }

    /// The sizes of a layer with these heads and features.
    #[track_caller]
    fn layer(&self, heads: usize, hidden: usize) -> Result<LayerConfig> {
        let (width, activation, pre_norm) = (self.d_model, self.activation_function, self.pre_norm()?);
        Ok(LayerConfig { model: OP, width, heads, hidden, activation, key_bias: true, pre_norm, eps: EPS })
    }
}

#[derive(Module)]
struct Encoder {
    embed_positions: Embedding,
    layers: Vec<EncoderLayer>,
    layernorm_embedding: LayerNorm,
    layer_norm: Option<LayerNorm>,
    #[module(skip)]
    config: BartConfig,
}

impl Encoder {
    #[track_caller]
    fn new(source: &WeightSource, config: &BartConfig) -> Result<Encoder> {
        let layer = config.layer(config.encoder_attention_heads, config.encoder_ffn_dim)?;
        let rows = config.max_position_embeddings + POSITION_OFFSET;
        let layers =
            (0..config.encoder_layers).map(|k| EncoderLayer::new(&source.at("layers").at(k), &layer));
        Ok(Encoder {
            embed_positions: source.embedding("embed_positions", rows, config.d_model)?,
            layers: layers.collect::<Result<_>>()?,
            layernorm_embedding: layer.norm(source, "layernorm_embedding")?,
            layer_norm: layer.pre_norm.then(|| layer.norm(source, "layer_norm")).transpose()?,
            config: config.clone(),
        })
    }

    /// The states for the embeddings `[N, L, features]` of tokens.
    #[track_caller]
    fn forward(&self, tokens: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let length = tokens.dims()[1];
        if length > self.config.max_position_embeddings {
            let message = format!("{length} tokens, of at most {}", self.config.max_position_embeddings);
            return Err(Error::invalid(OP, message));
        }
        let at = positions(0, length, POSITION_OFFSET, &[], &tokens.device())?;
        let x = tokens.mul_scalar(self.config.scale()).add(&self.embed_positions.forward(&at)?)?;
        let masking = match mask {
            Some(mask) => Masking::Mask(keys_mask(OP, mask)?),
            None => Masking::Full,
        };
        let mut x = self.layernorm_embedding.forward(&x)?;
        for layer in &self.layers {
            x = layer.forward(&x, &masking)?;
        }
        match &self.layer_norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }
}

#[derive(Module)]
struct Model {
    shared: Embedding,
    encoder: Encoder,
    decoder: DecoderStack,
}

/// BART or mBART with its output layer: texts to texts, such as summaries and translations.
///
/// ```
/// use models::{Bart, BartConfig, generate::{BeamConfig, beam_search}};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let config = BartConfig { vocab_size: 50, d_model: 16, encoder_layers: 1, decoder_layers: 1,
///     encoder_attention_heads: 2, decoder_attention_heads: 2, encoder_ffn_dim: 32, decoder_ffn_dim: 32,
///     max_position_embeddings: 20, ..Default::default() };
/// let device = backend_cpu::cpu();
/// let model = Bart::new(&config, &Generator::seed(0, &device))?;
/// let encoded = model.encode(&Tensor::new([[0i32, 7, 9, 2]], &device)?, None)?;
/// let decoder = model.decoder(&encoded, None)?;
/// let settings = BeamConfig { num_beams: 3, max_new_tokens: 5, stop_tokens: vec![2], ..Default::default() };
/// let best = &beam_search(&decoder, &[config.decoder_start_token_id], &settings)?[0];
/// assert!(best.tokens.len() <= 5);
/// # Ok(()) }
/// ```
#[derive(Module)]
pub struct Bart {
    model: Model,
    final_logits_bias: Tensor,
    lm_head: Option<Linear>,
    #[module(skip)]
    config: BartConfig,
}

impl Bart {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// Another `model_type`, heads that do not divide the features, or parameters that are missing, have
    /// another shape, or are left over.
    #[track_caller]
    pub fn new(config: &BartConfig, weights: impl Into<WeightSource>) -> Result<Bart> {
        Bart::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &BartConfig, source: &WeightSource) -> Result<Bart> {
        let layer = config.layer(config.decoder_attention_heads, config.decoder_ffn_dim)?;
        let parts = DecoderParts {
            layers: config.decoder_layers,
            positions: config.max_position_embeddings,
            offset: POSITION_OFFSET,
            vocabulary: None,
            embedding_norm: true,
            last_norm: layer.pre_norm,
            scale: config.scale(),
        };
        let at = source.at("model");
        let model = Model {
            shared: at.embedding("shared", config.vocab_size, config.d_model)?,
            encoder: Encoder::new(&at.at("encoder"), config)?,
            decoder: DecoderStack::new(&at.at("decoder"), &layer, &parts)?,
        };
        let head = || source.linear("lm_head", config.d_model, config.vocab_size, false);
        let biases = [1, config.vocab_size];
        let final_logits_bias = match source.has("final_logits_bias") {
            true => source.buffer("final_logits_bias", &biases, Initial::Zeros)?,
            false => model.shared.weight.select(1, 0)?.zeros_like().reshape(biases)?.into_cell(false)?,
        };
        let lm_head = (!config.tie_word_embeddings).then(head).transpose()?;
        source.finish(&["embed_tokens.weight", "lm_head.weight", "coder.version"])?;
        if lm_head.is_none() {
            crate::weight_source::tie_output(&model.shared);
        }
        Ok(Bart { model, final_logits_bias, lm_head, config: config.clone() })
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`Bart::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Bart> {
        Bart::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }

    /// The encoder's states `[N, L, features]` for tokens `[N, L]` and their mask `[N, L]`.
    ///
    /// # Errors
    /// Other shapes, more tokens than positions, or whatever the device reports.
    #[track_caller]
    pub fn encode(&self, ids: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        if ids.rank() != 2 {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        }
        self.model.encoder.forward(&self.model.shared.forward(ids)?, mask)
    }

    /// The decoder for the encoder's states and their mask: a language model with a cache, whose prompt is
    /// the token `decoder_start_token_id`, followed by that of the language or others if the model wants it.
    ///
    /// # Errors
    /// Another number of features, or another shape of the mask.
    #[track_caller]
    pub fn decoder(&self, encoded: &Tensor, mask: Option<&Tensor>) -> Result<ConditionedDecoder<'_>> {
        let table = &self.model.shared.weight;
        let output = self.lm_head.as_ref().map_or(table, |head| &head.weight);
        self.model.decoder.conditioned([table, output], Some(&self.final_logits_bias), encoded, mask)
    }

    /// The logits `[N, L, vocabulary]` for tokens, their mask, and the decoder's tokens `[N, L]`.
    ///
    /// # Errors
    /// As [`Bart::encode`].
    #[track_caller]
    pub fn forward(&self, ids: &Tensor, mask: Option<&Tensor>, decoder_ids: &Tensor) -> Result<Tensor> {
        self.decoder(&self.encode(ids, mask)?, mask)?.forward(decoder_ids)
    }

    /// The text for the tokens of another, the most likely token at each step, without the one that ends it.
    /// For the best of several texts see [`beam_search`](crate::generate::beam_search) with
    /// [`Bart::decoder`].
    ///
    /// # Errors
    /// No tokens, or as [`Bart::encode`].
    #[track_caller]
    pub fn generate(&self, ids: &[u32], max_new_tokens: usize) -> Result<Vec<u32>> {
        if ids.is_empty() {
            return Err(Error::invalid(OP, "no tokens"));
        }
        let ids = row(ids, &self.model.shared.weight.device())?;
        let decoder = autograd::no_grad(|| self.decoder(&self.encode(&ids, None)?, None))?;
        let stop_tokens = vec![self.config.eos_token_id];
        let config = GenerationConfig { max_new_tokens, stop_tokens, ..Default::default() };
        generate(&decoder, &[self.config.decoder_start_token_id], &config)?
            .map(|token| Ok(token?.id))
            .collect()
    }
}
