//! SigLIP, which compares pictures with texts by a sigmoid loss, with transformers' parameter names.
//!
//! Zhai et al.: Sigmoid loss for language image pre-training (2023).

use nn::{
    AttentionMasks, Conv2d, Embedding, LayerNorm, Linear, Module, MultiheadAttention,
    MultiheadAttentionConfig, Parameter, functional::normalize, init,
};
use serde::Deserialize;
use tensor_core::{Error, Generator, Result, Tensor};

use super::clip_encoder::{Encoder, EncoderConfig, Mlp, TextEmbeddings};
use crate::{
    Masking, WeightSource,
    config::Activation,
    vision::blocks::{check_image_of_size, layer_norm, patches, positive, tokens},
};

/// The text part of a [`SiglipConfig`]: the fields of transformers' `config.json`, with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct SiglipTextConfig {
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
    /// The width of embeddings; `hidden_size` if it is missing.
    pub projection_size: Option<usize>,
}

impl Default for SiglipTextConfig {
    fn default() -> SiglipTextConfig {
        SiglipTextConfig {
            vocab_size: 32000,
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            max_position_embeddings: 64,
            hidden_act: Activation::GeluTanh,
            layer_norm_eps: 1e-6,
            projection_size: None,
        }
    }
}

/// The picture part of a [`SiglipConfig`]: the fields of transformers' `config.json`, with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct SiglipVisionConfig {
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
    /// Whether there is a head that pools the tokens of a picture.
    pub vision_use_head: bool,
}

impl Default for SiglipVisionConfig {
    fn default() -> SiglipVisionConfig {
        SiglipVisionConfig {
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            num_channels: 3,
            image_size: 224,
            patch_size: 16,
            hidden_act: Activation::GeluTanh,
            layer_norm_eps: 1e-6,
            vision_use_head: true,
        }
    }
}

/// The configuration of a [`Siglip`]: the fields of transformers' `config.json`, with its defaults, which
/// are those of `google/siglip-base-patch16-224`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SiglipConfig {
    /// The transformer over texts.
    pub text_config: SiglipTextConfig,
    /// The transformer over pictures.
    pub vision_config: SiglipVisionConfig,
}

/// The transformer over texts, of which the last token is read. transformers' `SiglipTextModel`.
#[derive(Module, Debug)]
pub struct SiglipTextModel {
    embeddings: TextEmbeddings,
    encoder: Encoder,
    final_layer_norm: LayerNorm,
    head: Linear,
}

impl SiglipTextModel {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// Counts of 0, heads that do not divide the width, parameters that do not match, or too little memory.
    pub fn new(config: &SiglipTextConfig, weights: impl Into<WeightSource>) -> Result<SiglipTextModel> {
        weights.into().network(|rng| SiglipTextModel::initial(config, rng))
    }

    fn initial(config: &SiglipTextConfig, rng: &Generator) -> Result<SiglipTextModel> {
        const MODEL: &str = "SiglipTextModel";
        let &SiglipTextConfig { vocab_size, hidden_size, max_position_embeddings, layer_norm_eps, .. } =
            config;
        let encoder = EncoderConfig {
            model: MODEL,
            width: hidden_size,
            hidden: config.intermediate_size,
            layers: config.num_hidden_layers,
            heads: config.num_attention_heads,
            activation: config.hidden_act,
            eps: layer_norm_eps,
        };
        let sizes = [vocab_size, max_position_embeddings, hidden_size];
        Ok(SiglipTextModel {
            embeddings: TextEmbeddings::new(MODEL, sizes, rng)?,
            encoder: Encoder::new(encoder, rng)?,
            final_layer_norm: layer_norm(hidden_size, layer_norm_eps, rng)?,
            head: Linear::new(hidden_size, config.projection_size.unwrap_or(hidden_size), rng)?,
        })
    }

    /// The embedding `[N, projection_size]` of ids `[N, L]`, which are padded to the length of the training.
    ///
    /// # Errors
    /// Ids that are no integers `[N, L]`, or more of them than positions.
    pub fn pooled(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.encoder.forward(&self.embeddings.forward(ids)?, &Masking::Full)?;
        self.head.forward(&self.final_layer_norm.forward(&x)?.select(1, -1)?)
    }
}

#[derive(Module, Debug)]
struct VisionEmbeddings {
    patch_embedding: Conv2d,
    position_embedding: Embedding,
}

/// A trained query that attends to all patches, and a perceptron. transformers'
/// `SiglipMultiheadAttentionPoolingHead`.
#[derive(Module, Debug)]
struct PoolingHead {
    probe: Parameter,
    attention: MultiheadAttention,
    layernorm: LayerNorm,
    mlp: Mlp,
}

impl PoolingHead {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let probe = self.probe.expand([x.dims()[0], 1, x.dims()[2]])?;
        let pooled = self.attention.forward(&probe, x, x, AttentionMasks::default())?;
        pooled.add(&self.mlp.forward(&self.layernorm.forward(&pooled)?)?)?.select(1, 0)
    }
}

/// The transformer over pictures. transformers' `SiglipVisionModel`.
#[derive(Module, Debug)]
pub struct SiglipVisionModel {
    embeddings: VisionEmbeddings,
    encoder: Encoder,
    post_layernorm: LayerNorm,
    head: Option<PoolingHead>,
    channels: usize,
    image_size: usize,
}

impl SiglipVisionModel {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// Counts of 0, patches larger than the image, heads that do not divide the width, parameters that do not
    /// match, or too little memory.
    pub fn new(config: &SiglipVisionConfig, weights: impl Into<WeightSource>) -> Result<SiglipVisionModel> {
        weights.into().network(|rng| SiglipVisionModel::initial(config, rng))
    }

    fn initial(config: &SiglipVisionConfig, rng: &Generator) -> Result<SiglipVisionModel> {
        const MODEL: &str = "SiglipVisionModel";
        let &SiglipVisionConfig { hidden_size, image_size, patch_size, num_channels, layer_norm_eps, .. } =
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
        let batch_first = MultiheadAttentionConfig { batch_first: true, ..Default::default() };
        let heads = config.num_attention_heads;
        let head = || -> Result<PoolingHead> {
            Ok(PoolingHead {
                probe: Parameter::new(init::xavier_uniform([1, 1, hidden_size], 1.0, rng)?)?,
                attention: MultiheadAttention::with_config(hidden_size, heads, batch_first, rng)?,
                layernorm: layer_norm(hidden_size, layer_norm_eps, rng)?,
                mlp: Mlp::new(encoder, rng)?,
            })
        };
        Ok(SiglipVisionModel {
            embeddings: VisionEmbeddings {
                patch_embedding: patches(num_channels, hidden_size, patch_size, true, rng)?,
                position_embedding: Embedding::new((image_size / patch_size).pow(2), hidden_size, rng)?,
            },
            encoder: Encoder::new(encoder, rng)?,
            post_layernorm: layer_norm(hidden_size, layer_norm_eps, rng)?,
            head: config.vision_use_head.then(head).transpose()?,
            channels: num_channels,
            image_size,
        })
    }

    /// The tokens `[N, patches, width]` of pictures `[N, channels, size, size]`, after the last norm.
    ///
    /// # Errors
    /// An input of another shape.
    pub fn tokens(&self, x: &Tensor) -> Result<Tensor> {
        check_image_of_size("SiglipVisionModel", x, self.channels, self.image_size)?;
        let VisionEmbeddings { patch_embedding, position_embedding } = &self.embeddings;
        let x = tokens(&patch_embedding.forward(x)?)?.add(&position_embedding.weight)?;
        self.post_layernorm.forward(&self.encoder.forward(&x, &Masking::Full)?)
    }

    /// The embedding `[N, width]` of each picture.
    ///
    /// # Errors
    /// As [`SiglipVisionModel::tokens`], and a model without a head.
    pub fn pooled(&self, x: &Tensor) -> Result<Tensor> {
        match &self.head {
            Some(head) => head.forward(&self.tokens(x)?),
            None => Err(Error::invalid("SiglipVisionModel", "this model has no head that pools tokens")),
        }
    }
}

/// Two transformers whose embeddings of pictures and of texts are compared. transformers' `SiglipModel`.
#[derive(Module, Debug)]
pub struct Siglip {
    /// The transformer over texts.
    pub text_model: SiglipTextModel,
    /// The transformer over pictures.
    pub vision_model: SiglipVisionModel,
    logit_scale: Parameter,
    logit_bias: Parameter,
}

impl Siglip {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// As [`SiglipTextModel::new`] and [`SiglipVisionModel::new`], and embeddings of different widths.
    pub fn new(config: &SiglipConfig, weights: impl Into<WeightSource>) -> Result<Siglip> {
        weights.into().network(|rng| Siglip::initial(config, rng))
    }

    fn initial(config: &SiglipConfig, rng: &Generator) -> Result<Siglip> {
        let (text, vision) = (&config.text_config, &config.vision_config);
        let width = text.projection_size.unwrap_or(text.hidden_size);
        if width != vision.hidden_size {
            let message = format!("texts of width {width} and pictures of width {}", vision.hidden_size);
            return Err(Error::invalid("Siglip", format!("{message}: give the same projection_size")));
        }
        let number = |value: f64| Parameter::new(Tensor::full([1], value, rng.device())?);
        Ok(Siglip {
            text_model: SiglipTextModel::initial(text, rng)?,
            vision_model: SiglipVisionModel::initial(vision, rng)?,
            // The values of the paper: the logarithm of 10, and −10.
            logit_scale: number(10f64.ln())?,
            logit_bias: number(-10.0)?,
        })
    }

    /// The logit of each picture belonging to each text, `[pictures, texts]`; its sigmoid is the
    /// probability.
    ///
    /// # Errors
    /// As [`SiglipVisionModel::tokens`] and [`SiglipTextModel::pooled`].
    pub fn forward(&self, images: &Tensor, ids: &Tensor) -> Result<Tensor> {
        let images = normalize(&self.vision_model.pooled(images)?, 2.0, -1, 0.0)?;
        let texts = normalize(&self.text_model.pooled(ids)?, 2.0, -1, 0.0)?;
        images.matmul(&texts.t()?)?.mul(&self.logit_scale.exp())?.add(&self.logit_bias)
    }

    /// The loss of a batch in which picture i belongs to text i: −Σ log σ(±logit) over all pairs, divided by
    /// the number of texts.
    ///
    /// # Errors
    /// As [`Siglip::forward`], and numbers of pictures and texts that differ.
    pub fn sigmoid_loss(&self, images: &Tensor, ids: &Tensor) -> Result<Tensor> {
        let logits = self.forward(images, ids)?;
        let &[count, texts] = logits.dims() else {
            return Err(Error::invalid("Siglip", "logits are a matrix"));
        };
        if count != texts {
            return Err(Error::invalid(
                "Siglip",
                format!("{count} pictures and {texts} texts: give as many"),
            ));
        }
        let signs = Tensor::eye(count, &logits.device())?.mul_scalar(2.0).add_scalar(-1.0);
        Ok(logits.mul(&signs.to_dtype(logits.dtype())?)?.logsigmoid().sum().div_scalar(-(count as f64)))
    }
}
