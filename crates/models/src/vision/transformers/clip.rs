//! CLIP, which compares pictures with texts, with transformers' parameter names.
//!
//! Radford et al.: Learning transferable visual models from natural language supervision (2021).

use nn::{
    Conv2d, Embedding, LayerNorm, Linear, LinearConfig, Module, Parameter, cross_entropy,
    functional::normalize, init,
};
use serde::Deserialize;
use tensor_core::{Error, Generator, Result, Tensor};

use super::clip_encoder::{Encoder, EncoderConfig, TextEmbeddings, position_ids};
use crate::{
    Masking, WeightSource,
    config::Activation,
    vision::blocks::{check_image_of_size, layer_norm, patches, positive, tokens},
};

/// The text part of a [`ClipConfig`]: the fields of transformers' `config.json`, with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClipTextConfig {
    /// The number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// The width of tokens.
    pub hidden_size: usize,
    /// The width inside perceptrons.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The largest length of a text, in tokens.
    pub max_position_embeddings: usize,
    /// The activation of perceptrons.
    pub hidden_act: Activation,
    /// The eps of norms.
    pub layer_norm_eps: f64,
    /// The token that ends a text. With 2, as the first published configurations have it, the end is the
    /// token with the largest number instead.
    pub eos_token_id: i64,
}

impl Default for ClipTextConfig {
    fn default() -> ClipTextConfig {
        ClipTextConfig {
            vocab_size: 49408,
            hidden_size: 512,
            intermediate_size: 2048,
            num_hidden_layers: 12,
            num_attention_heads: 8,
            max_position_embeddings: 77,
            hidden_act: Activation::QuickGelu,
            layer_norm_eps: 1e-5,
            eos_token_id: 49407,
        }
    }
}

/// The picture part of a [`ClipConfig`]: the fields of transformers' `config.json`, with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClipVisionConfig {
    /// The width of tokens.
    pub hidden_size: usize,
    /// The width inside perceptrons.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The channels of images.
    pub num_channels: usize,
    /// The height and width of images.
    pub image_size: usize,
    /// The height and width of a patch.
    pub patch_size: usize,
    /// The activation of perceptrons.
    pub hidden_act: Activation,
    /// The eps of norms.
    pub layer_norm_eps: f64,
}

impl Default for ClipVisionConfig {
    fn default() -> ClipVisionConfig {
        ClipVisionConfig {
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            num_channels: 3,
            image_size: 224,
            patch_size: 32,
            hidden_act: Activation::QuickGelu,
            layer_norm_eps: 1e-5,
        }
    }
}

/// The configuration of a [`Clip`]: the fields of transformers' `config.json`, with its defaults, which are
/// those of `openai/clip-vit-base-patch32`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClipConfig {
    /// The transformer over texts.
    pub text_config: ClipTextConfig,
    /// The transformer over pictures.
    pub vision_config: ClipVisionConfig,
    /// The width of the embeddings that are compared.
    pub projection_dim: usize,
    /// The initial logarithm of the factor of similarities.
    pub logit_scale_init_value: f64,
}

impl Default for ClipConfig {
    fn default() -> ClipConfig {
        ClipConfig {
            text_config: ClipTextConfig::default(),
            vision_config: ClipVisionConfig::default(),
            projection_dim: 512,
            logit_scale_init_value: 2.6592,
        }
    }
}

impl ClipConfig {
    /// `openai/clip-vit-base-patch32`.
    pub fn vit_base_patch32() -> ClipConfig {
        ClipConfig::default()
    }

    /// `openai/clip-vit-base-patch16`.
    pub fn vit_base_patch16() -> ClipConfig {
        let mut config = ClipConfig::default();
        config.vision_config.patch_size = 16;
        config
    }

    /// `openai/clip-vit-large-patch14`.
    pub fn vit_large_patch14() -> ClipConfig {
        ClipConfig {
            text_config: ClipTextConfig {
                hidden_size: 768,
                intermediate_size: 3072,
                num_attention_heads: 12,
                ..Default::default()
            },
            vision_config: ClipVisionConfig {
                hidden_size: 1024,
                intermediate_size: 4096,
                num_hidden_layers: 24,
                num_attention_heads: 16,
                patch_size: 14,
                ..Default::default()
            },
            projection_dim: 768,
            ..Default::default()
        }
    }
}

/// The transformer over texts. transformers' `CLIPTextModel`; Stable Diffusion reads its tokens.
#[derive(Module, Debug)]
pub struct ClipTextModel {
    embeddings: TextEmbeddings,
    encoder: Encoder,
    final_layer_norm: LayerNorm,
    eos_token_id: i64,
}

impl ClipTextModel {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// Counts of 0, heads that do not divide the width, parameters that do not match, or too little memory.
    pub fn new(config: &ClipTextConfig, weights: impl Into<WeightSource>) -> Result<ClipTextModel> {
        weights.into().network(|rng| ClipTextModel::initial(config, rng))
    }

    fn initial(config: &ClipTextConfig, rng: &Generator) -> Result<ClipTextModel> {
        let &ClipTextConfig { vocab_size, hidden_size, max_position_embeddings, layer_norm_eps, .. } = config;
        let encoder = EncoderConfig {
            model: "ClipTextModel",
            width: hidden_size,
            hidden: config.intermediate_size,
            layers: config.num_hidden_layers,
            heads: config.num_attention_heads,
            activation: config.hidden_act,
            eps: layer_norm_eps,
        };
        Ok(ClipTextModel {
            embeddings: TextEmbeddings::new(
                "ClipTextModel",
                [vocab_size, max_position_embeddings, hidden_size],
                rng,
            )?,
            encoder: Encoder::new(encoder, rng)?,
            final_layer_norm: layer_norm(hidden_size, layer_norm_eps, rng)?,
            eos_token_id: config.eos_token_id,
        })
    }

    /// The tokens `[N, L, width]` after the last norm, for ids `[N, L]`; each sees those before it.
    ///
    /// # Errors
    /// Ids that are no integers `[N, L]`, or more of them than positions.
    pub fn tokens(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.encoder.forward(&self.embeddings.forward(ids)?, &Masking::Causal)?;
        self.final_layer_norm.forward(&x)
    }

    /// The token `[N, width]` at the end of each text.
    ///
    /// # Errors
    /// As [`ClipTextModel::tokens`].
    pub fn pooled(&self, ids: &Tensor) -> Result<Tensor> {
        let tokens = self.tokens(ids)?;
        let end = match self.eos_token_id {
            2 => ids.argmax_axis(-1, false)?,
            eos => ids.eq_scalar(eos).to_dtype(ids.dtype())?.argmax_axis(-1, false)?,
        };
        let &[n, length, width] = tokens.dims() else {
            return Err(Error::invalid("ClipTextModel", format!("tokens {}", tokens.shape())));
        };
        let rows = position_ids(n, &ids.device())?
            .mul_scalar(length as i64)
            .add(&end.to_dtype(ids.device().int_dtype())?)?;
        tokens.reshape([n * length, width])?.index_select(0, &rows)
    }
}

#[derive(Module, Debug)]
struct VisionEmbeddings {
    class_embedding: Parameter,
    patch_embedding: Conv2d,
    position_embedding: Embedding,
}

/// The transformer over pictures. transformers' `CLIPVisionModel`.
#[derive(Module, Debug)]
pub struct ClipVisionModel {
    embeddings: VisionEmbeddings,
    #[module(rename = "pre_layrnorm")]
    pre_layernorm: LayerNorm,
    encoder: Encoder,
    post_layernorm: LayerNorm,
    channels: usize,
    image_size: usize,
}

impl ClipVisionModel {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// Counts of 0, patches larger than the image, heads that do not divide the width, parameters that do not
    /// match, or too little memory.
    pub fn new(config: &ClipVisionConfig, weights: impl Into<WeightSource>) -> Result<ClipVisionModel> {
        weights.into().network(|rng| ClipVisionModel::initial(config, rng))
    }

    fn initial(config: &ClipVisionConfig, rng: &Generator) -> Result<ClipVisionModel> {
        const MODEL: &str = "ClipVisionModel";
        let &ClipVisionConfig { hidden_size, image_size, patch_size, num_channels, layer_norm_eps, .. } =
            config;
        positive(MODEL, &[("patch_size", patch_size), ("num_channels", num_channels)])?;
        positive(
            MODEL,
            &[("hidden_size", hidden_size), ("image_size / patch_size", image_size / patch_size)],
        )?;
        let encoder = EncoderConfig {
            model: MODEL,
            width: hidden_size,
            hidden: config.intermediate_size,
            layers: config.num_hidden_layers,
            heads: config.num_attention_heads,
            activation: config.hidden_act,
            eps: layer_norm_eps,
        };
        let deviation = (hidden_size as f64).powf(-0.5);
        Ok(ClipVisionModel {
            embeddings: VisionEmbeddings {
                class_embedding: Parameter::new(init::normal([hidden_size], 0.0, deviation, rng)?)?,
                patch_embedding: patches(num_channels, hidden_size, patch_size, false, rng)?,
                position_embedding: Embedding::new((image_size / patch_size).pow(2) + 1, hidden_size, rng)?,
            },
            pre_layernorm: layer_norm(hidden_size, layer_norm_eps, rng)?,
            encoder: Encoder::new(encoder, rng)?,
            post_layernorm: layer_norm(hidden_size, layer_norm_eps, rng)?,
            channels: num_channels,
            image_size,
        })
    }

    /// The tokens `[N, 1 + patches, width]` of pictures `[N, channels, size, size]`; the first is the class.
    ///
    /// # Errors
    /// An input of another shape.
    pub fn tokens(&self, x: &Tensor) -> Result<Tensor> {
        check_image_of_size("ClipVisionModel", x, self.channels, self.image_size)?;
        let VisionEmbeddings { class_embedding, patch_embedding, position_embedding } = &self.embeddings;
        let grid = tokens(&patch_embedding.forward(x)?)?;
        let class = class_embedding.expand([grid.dims()[0], 1, grid.dims()[2]])?;
        let x = Tensor::concat(&[class, grid], 1)?.add(&position_embedding.weight)?;
        self.encoder.forward(&self.pre_layernorm.forward(&x)?, &Masking::Full)
    }

    /// The class token after its norm, `[N, width]`.
    ///
    /// # Errors
    /// As [`ClipVisionModel::tokens`].
    pub fn pooled(&self, x: &Tensor) -> Result<Tensor> {
        self.post_layernorm.forward(&self.tokens(x)?.select(1, 0)?)
    }
}

/// Two transformers whose embeddings of pictures and of texts are compared. transformers' `CLIPModel`.
///
/// Older files also have `position_ids`, which are no parameters and are not read.
#[derive(Module, Debug)]
pub struct Clip {
    /// The transformer over texts.
    pub text_model: ClipTextModel,
    /// The transformer over pictures.
    pub vision_model: ClipVisionModel,
    visual_projection: Linear,
    text_projection: Linear,
    logit_scale: Parameter,
}

impl Clip {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// As [`ClipTextModel::new`] and [`ClipVisionModel::new`].
    pub fn new(config: &ClipConfig, weights: impl Into<WeightSource>) -> Result<Clip> {
        weights.into().network(|rng| Clip::initial(config, rng))
    }

    fn initial(config: &ClipConfig, rng: &Generator) -> Result<Clip> {
        let projection = |width: usize| {
            let options = LinearConfig { bias: false, ..Default::default() };
            Linear::with_config(width, config.projection_dim, options, rng)
        };
        let scale = Tensor::full((), config.logit_scale_init_value, rng.device())?;
        Ok(Clip {
            text_model: ClipTextModel::initial(&config.text_config, rng)?,
            vision_model: ClipVisionModel::initial(&config.vision_config, rng)?,
            visual_projection: projection(config.vision_config.hidden_size)?,
            text_projection: projection(config.text_config.hidden_size)?,
            logit_scale: Parameter::new(scale)?,
        })
    }

    /// The embeddings of pictures `[N, channels, size, size]`: `[N, projection_dim]`, of length 1.
    ///
    /// # Errors
    /// As [`ClipVisionModel::tokens`].
    pub fn image_embeddings(&self, images: &Tensor) -> Result<Tensor> {
        let pooled = self.vision_model.pooled(images)?;
        normalize(&self.visual_projection.forward(&pooled)?, 2.0, -1, 0.0)
    }

    /// The embeddings of texts, ids `[N, L]`: `[N, projection_dim]`, of length 1.
    ///
    /// # Errors
    /// As [`ClipTextModel::tokens`].
    pub fn text_embeddings(&self, ids: &Tensor) -> Result<Tensor> {
        normalize(&self.text_projection.forward(&self.text_model.pooled(ids)?)?, 2.0, -1, 0.0)
    }

    /// The scaled similarity of each picture with each text, `[pictures, texts]`.
    ///
    /// # Errors
    /// As [`Clip::image_embeddings`] and [`Clip::text_embeddings`].
    pub fn forward(&self, images: &Tensor, ids: &Tensor) -> Result<Tensor> {
        let (images, texts) = (self.image_embeddings(images)?, self.text_embeddings(ids)?);
        images.matmul(&texts.t()?)?.mul(&self.logit_scale.exp())
    }

    /// The loss of a batch in which picture i belongs to text i: the mean of both cross entropies.
    ///
    /// # Errors
    /// As [`Clip::forward`], and numbers of pictures and texts that differ.
    pub fn contrastive_loss(&self, images: &Tensor, ids: &Tensor) -> Result<Tensor> {
        let logits = self.forward(images, ids)?;
        let own = position_ids(logits.dims()[0], &logits.device())?;
        let (by_image, by_text) = (cross_entropy(&logits, &own)?, cross_entropy(&logits.t()?, &own)?);
        Ok(by_image.add(&by_text)?.div_scalar(2.0))
    }
}
