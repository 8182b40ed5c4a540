//! The vision transformer, with torchvision's parameter names. [`crate::vision::TimmVit`] has timm's names.
//!
//! Dosovitskiy et al.: An image is worth 16×16 words: transformers for image recognition at scale (2021).

use nn::{
    AttentionMasks, Conv2d, Dropout, LayerNorm, Linear, Module, MultiheadAttention, MultiheadAttentionConfig,
    Parameter, Sequential, init,
};
use tensor_core::{Error, Generator, Result, Tensor};

use crate::{
    WeightSource,
    vision::blocks::{
        Activation, Numbered, check_image_of_size, layer, layer_norm, mlp, patches, positive, tokens,
    },
};

/// The configuration of a [`VisionTransformer`], with torchvision's names.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionTransformerConfig {
    /// The height and width of images.
    pub image_size: usize,
    /// The height and width of a patch.
    pub patch_size: usize,
    /// The number of encoder layers.
    pub num_layers: usize,
    /// The number of attention heads.
    pub num_heads: usize,
    /// The width of tokens.
    pub hidden_dim: usize,
    /// The width inside perceptrons.
    pub mlp_dim: usize,
    /// The dropout probability of tokens and perceptrons.
    pub dropout: f64,
    /// The dropout probability of attention weights.
    pub attention_dropout: f64,
    /// The number of outputs.
    pub num_classes: usize,
    /// The width of a layer with tanh before the classifier, if there is one.
    pub representation_size: Option<usize>,
}

/// Presets: patch size, layers, heads, width, width of perceptrons.
macro_rules! presets {
    ($($name:ident: $patch:literal $layers:literal $heads:literal $width:literal $mlp:literal;)*) => {
        impl VisionTransformerConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`, for images of 224 × 224.")]
            pub fn $name() -> VisionTransformerConfig {
                VisionTransformerConfig {
                    image_size: 224,
                    patch_size: $patch,
                    num_layers: $layers,
                    num_heads: $heads,
                    hidden_dim: $width,
                    mlp_dim: $mlp,
                    dropout: 0.0,
                    attention_dropout: 0.0,
                    num_classes: 1000,
                    representation_size: None,
                }
            }
        )*}
    };
}

presets! {
    vit_b_16: 16 12 12 768 3072;
    vit_b_32: 32 12 12 768 3072;
    vit_l_16: 16 24 16 1024 4096;
    vit_l_32: 32 24 16 1024 4096;
    vit_h_14: 14 32 16 1280 5120;
}

/// The eps of every norm.
const EPS: f64 = 1e-6;

/// Attention and a perceptron, each after a norm and added to its input.
#[derive(Module, Debug)]
struct EncoderBlock {
    ln_1: LayerNorm,
    self_attention: MultiheadAttention,
    dropout: Dropout,
    ln_2: LayerNorm,
    mlp: Sequential,
}

impl EncoderBlock {
    fn new(config: &VisionTransformerConfig, rng: &Generator) -> Result<EncoderBlock> {
        let &VisionTransformerConfig { hidden_dim, num_heads, mlp_dim, dropout, .. } = config;
        let attention = MultiheadAttentionConfig {
            dropout: config.attention_dropout,
            batch_first: true,
            ..Default::default()
        };
        Ok(EncoderBlock {
            ln_1: layer_norm(hidden_dim, EPS, rng)?,
            self_attention: MultiheadAttention::with_config(hidden_dim, num_heads, attention, rng)?,
            dropout: Dropout::new(dropout, rng)?,
            ln_2: layer_norm(hidden_dim, EPS, rng)?,
            mlp: mlp(hidden_dim, mlp_dim, Activation::Gelu, dropout, rng)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.ln_1.forward(x)?;
        let y = self.self_attention.forward(&y, &y, &y, AttentionMasks::default())?;
        let x = self.dropout.forward(&y)?.add(x)?;
        x.add(&self.mlp.forward(&self.ln_2.forward(&x)?)?)
    }
}

#[derive(Module, Debug)]
struct Encoder {
    pos_embedding: Parameter,
    dropout: Dropout,
    layers: Numbered<EncoderBlock>,
    ln: LayerNorm,
}

/// The classifier, after a layer with tanh if there is one.
#[derive(Module, Debug)]
struct Heads {
    pre_logits: Option<Linear>,
    head: Linear,
}

/// A transformer over the patches of an image, for images `[N, 3, size, size]`: logits `[N, classes]`.
/// torchvision's `VisionTransformer`.
#[derive(Module, Debug)]
pub struct VisionTransformer {
    conv_proj: Conv2d,
    class_token: Parameter,
    encoder: Encoder,
    heads: Heads,
    image_size: usize,
}

impl VisionTransformer {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// Counts of 0, patches that do not divide the image, heads that do not divide the width, a dropout
    /// outside [0, 1], parameters that do not match, or too little memory.
    pub fn new(
        config: &VisionTransformerConfig,
        weights: impl Into<WeightSource>,
    ) -> Result<VisionTransformer> {
        weights.into().network(|rng| VisionTransformer::initial(config, rng))
    }

    fn initial(config: &VisionTransformerConfig, rng: &Generator) -> Result<VisionTransformer> {
        const MODEL: &str = "VisionTransformer";
        let &VisionTransformerConfig { image_size, patch_size, hidden_dim, num_classes, .. } = config;
        let counts = [
            ("image_size", image_size),
            ("patch_size", patch_size),
            ("hidden_dim", hidden_dim),
            ("mlp_dim", config.mlp_dim),
            ("num_classes", num_classes),
            ("representation_size", config.representation_size.unwrap_or(1)),
        ];
        positive(MODEL, &counts)?;
        if !image_size.is_multiple_of(patch_size) {
            let message = format!("patches of {patch_size} do not divide an image of {image_size}");
            return Err(Error::invalid(MODEL, message));
        }
        let positions = (image_size / patch_size).pow(2) + 1;
        let conv_proj = patches(3, hidden_dim, patch_size, true, rng)?;
        let deviation = (1.0 / (3 * patch_size * patch_size) as f64).sqrt();
        truncated(&conv_proj.weight, deviation, rng)?;
        zero(conv_proj.bias.as_ref())?;
        let head = Linear::new(config.representation_size.unwrap_or(hidden_dim), num_classes, rng)?;
        zero(Some(&head.weight))?;
        zero(head.bias.as_ref())?;
        let pre_logits = match config.representation_size {
            Some(size) => {
                let layer = Linear::new(hidden_dim, size, rng)?;
                truncated(&layer.weight, (1.0 / hidden_dim as f64).sqrt(), rng)?;
                zero(layer.bias.as_ref())?;
                Some(layer)
            }
            None => None,
        };
        let layers = (0..config.num_layers).map(|_| EncoderBlock::new(config, rng)).collect::<Result<_>>()?;
        let positions = init::normal([1, positions, hidden_dim], 0.0, 0.02, rng)?;
        let model = VisionTransformer {
            conv_proj,
            class_token: Parameter::new(Tensor::zeros([1, 1, hidden_dim], rng.device())?)?,
            encoder: Encoder {
                pos_embedding: Parameter::new(positions)?,
                dropout: Dropout::new(config.dropout, rng)?,
                layers: Numbered::new("encoder_layer_", 0, layers),
                ln: layer_norm(hidden_dim, EPS, rng)?,
            },
            heads: Heads { pre_logits, head },
            image_size,
        };
        model.encoder.layers.apply(
            &mut |name, parameter| match (name.contains(".mlp."), parameter.rank()) {
                (true, 2) => parameter.assign(&init::xavier_uniform(parameter.shape().clone(), 1.0, rng)?),
                (true, _) => parameter.assign(&init::normal(parameter.shape().clone(), 0.0, 1e-6, rng)?),
                (false, _) => Ok(()),
            },
        )?;
        Ok(model)
    }

    /// The tokens after the last norm, `[N, 1 + patches, width]`; the first is the class token.
    ///
    /// # Errors
    /// An input that is no image of three channels of the configured size.
    pub fn tokens(&self, x: &Tensor) -> Result<Tensor> {
        check_image_of_size("VisionTransformer", x, 3, self.image_size)?;
        let x = tokens(&self.conv_proj.forward(x)?)?;
        let class = self.class_token.expand([x.dims()[0], 1, x.dims()[2]])?;
        let x = Tensor::concat(&[class, x], 1)?.add(&self.encoder.pos_embedding)?;
        let mut x = self.encoder.dropout.forward(&x)?;
        for layer in &self.encoder.layers.list {
            x = layer.forward(&x)?;
        }
        self.encoder.ln.forward(&x)
    }

    /// The logits `[N, classes]` of images `[N, 3, size, size]`.
    ///
    /// # Errors
    /// As [`VisionTransformer::tokens`].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut class = self.tokens(x)?.select(1, 0)?;
        if let Some(layer) = &self.heads.pre_logits {
            class = layer.forward(&class)?.tanh();
        }
        self.heads.head.forward(&class)
    }
}

/// Sets a parameter to a truncated normal distribution.
pub(crate) fn truncated(parameter: &Tensor, std: f64, rng: &Generator) -> Result<()> {
    parameter.assign(&init::trunc_normal(parameter.shape().clone(), 0.0, std, -2.0, 2.0, rng)?)
}

fn zero(parameter: Option<&Tensor>) -> Result<()> {
    parameter.map_or(Ok(()), |parameter| parameter.assign(&parameter.zeros_like()))
}

layer!(VisionTransformer);
