//! DINOv2, with the parameter names of transformers' files.
//!
//! Oquab et al.: DINOv2: learning robust visual features without supervision (2023).

use nn::{
    Conv2d, LayerNorm, Linear, LinearConfig, Module, Parameter, StochasticDepth,
    functional::{InterpolateMode, InterpolateOptions, interpolate_with},
};
use serde::Deserialize;
use tensor_core::{Error, Generator, Result, Tensor};

use super::vit::truncated;
use crate::{
    WeightSource,
    attention::check_heads,
    attention::multi_head_attention,
    config::Activation,
    vision::blocks::{check_image, layer, layer_norm, patches, positive, tokens},
};

/// The configuration of a [`Dinov2`]: the fields of transformers' `config.json`, with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Dinov2Config {
    /// The width of tokens.
    pub hidden_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The width inside perceptrons, as a multiple of `hidden_size`.
    pub mlp_ratio: f64,
    /// The activation of perceptrons.
    pub hidden_act: Activation,
    /// The eps of norms.
    pub layer_norm_eps: f64,
    /// The height and width of the images of the position embeddings; others are interpolated.
    pub image_size: usize,
    /// The height and width of a patch.
    pub patch_size: usize,
    /// The channels of images.
    pub num_channels: usize,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// The initial factor of each branch.
    pub layerscale_value: f64,
    /// The probability to skip a branch in training.
    pub drop_path_rate: f64,
    /// Whether perceptrons are gated by SiLU, as in the giant model.
    pub use_swiglu_ffn: bool,
    /// Whether there is a token for masked patches.
    pub use_mask_token: bool,
}

impl Default for Dinov2Config {
    fn default() -> Dinov2Config {
        Dinov2Config {
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            mlp_ratio: 4.0,
            hidden_act: Activation::Gelu,
            layer_norm_eps: 1e-6,
            image_size: 224,
            patch_size: 14,
            num_channels: 3,
            qkv_bias: true,
            layerscale_value: 1.0,
            drop_path_rate: 0.0,
            use_swiglu_ffn: false,
            use_mask_token: true,
        }
    }
}

/// Presets: width, layers, heads, gated perceptrons.
macro_rules! presets {
    ($($name:ident: $width:literal $layers:literal $heads:literal $swiglu:literal;)*) => {
        impl Dinov2Config {$(
            #[doc = concat!("facebook's `", stringify!($name), "`, whose positions are those of images of 518 × 518.")]
            pub fn $name() -> Dinov2Config {
                Dinov2Config {
                    hidden_size: $width,
                    num_hidden_layers: $layers,
                    num_attention_heads: $heads,
                    use_swiglu_ffn: $swiglu,
                    image_size: 518,
                    ..Default::default()
                }
            }
        )*}
    };
}

presets! {
    dinov2_small: 384 12 6 false;
    dinov2_base: 768 12 12 false;
    dinov2_large: 1024 24 16 false;
    dinov2_giant: 1536 40 24 true;
}

#[derive(Module, Debug)]
struct PatchEmbeddings {
    projection: Conv2d,
}

#[derive(Module, Debug)]
struct Embeddings {
    cls_token: Parameter,
    mask_token: Option<Parameter>,
    position_embeddings: Parameter,
    patch_embeddings: PatchEmbeddings,
}

impl Embeddings {
    /// The tokens of an image, the first of which is the class token.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let grid = self.patch_embeddings.projection.forward(x)?;
        let (n, sides) = (grid.dims()[0], [grid.dims()[2], grid.dims()[3]]);
        let patches = tokens(&grid)?;
        let class = self.cls_token.expand([n, 1, patches.dims()[2]])?;
        Tensor::concat(&[class, patches], 1)?.add(&self.positions(sides)?)
    }

    /// The position embeddings for a grid of patches: interpolated if it is not the configured one.
    fn positions(&self, sides: [usize; 2]) -> Result<Tensor> {
        let (count, width) = (self.position_embeddings.dims()[1] - 1, self.position_embeddings.dims()[2]);
        if sides[0] == sides[1] && sides[0] * sides[1] == count {
            return Ok((*self.position_embeddings).clone());
        }
        let side = count.isqrt();
        let class = self.position_embeddings.narrow(1, 0, 1)?;
        let grid = self.position_embeddings.narrow(1, 1, count)?.reshape([1, side, side, width])?;
        let options = InterpolateOptions { mode: InterpolateMode::Bicubic, ..Default::default() };
        let grid = interpolate_with(&grid.permute([0, 3, 1, 2])?, sides, options)?;
        Tensor::concat(&[class, tokens(&grid)?], 1)
    }
}

#[derive(Module, Debug)]
struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
}

#[derive(Module, Debug)]
struct AttentionOutput {
    dense: Linear,
}

#[derive(Module, Debug)]
struct Dinov2Attention {
    attention: SelfAttention,
    output: AttentionOutput,
    heads: usize,
}

impl Dinov2Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let SelfAttention { query, key, value } = &self.attention;
        let (query, key, value) = (query.forward(x)?, key.forward(x)?, value.forward(x)?);
        self.output.dense.forward(&multi_head_attention([&query, &key, &value], self.heads)?)
    }
}

/// The perceptron of a layer, plain or gated.
#[derive(Module, Debug)]
enum Mlp {
    Plain { fc1: Linear, fc2: Linear, activation: Activation },
    SwiGlu { weights_in: Linear, weights_out: Linear },
}

impl Mlp {
    fn new(config: &Dinov2Config, rng: &Generator) -> Result<Mlp> {
        let width = config.hidden_size;
        let hidden = (width as f64 * config.mlp_ratio) as usize;
        if config.use_swiglu_ffn {
            let hidden = ((hidden as f64 * 2.0 / 3.0) as usize).next_multiple_of(8);
            return Ok(Mlp::SwiGlu {
                weights_in: Linear::new(width, 2 * hidden, rng)?,
                weights_out: Linear::new(hidden, width, rng)?,
            });
        }
        Ok(Mlp::Plain {
            fc1: Linear::new(width, hidden, rng)?,
            fc2: Linear::new(hidden, width, rng)?,
            activation: config.hidden_act,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Mlp::Plain { fc1, fc2, activation } => {
                fc2.forward(&Activation::activate(*activation, &fc1.forward(x)?))
            }
            Mlp::SwiGlu { weights_in, weights_out } => {
                let halves = weights_in.forward(x)?.chunk(2, -1)?;
                weights_out.forward(&halves[0].silu().mul(&halves[1])?)
            }
        }
    }
}

#[derive(Module, Debug)]
struct LayerScale {
    lambda1: Parameter,
}

#[derive(Module, Debug)]
struct EncoderLayer {
    norm1: LayerNorm,
    attention: Dinov2Attention,
    layer_scale1: LayerScale,
    drop_path: StochasticDepth,
    norm2: LayerNorm,
    mlp: Mlp,
    layer_scale2: LayerScale,
}

impl EncoderLayer {
    fn new(config: &Dinov2Config, rng: &Generator) -> Result<EncoderLayer> {
        let (width, eps) = (config.hidden_size, config.layer_norm_eps);
        let scale = || {
            let lambda1 = Parameter::new(Tensor::full([width], config.layerscale_value, rng.device())?)?;
            Ok::<_, Error>(LayerScale { lambda1 })
        };
        let projection = || {
            let options = LinearConfig { bias: config.qkv_bias, ..Default::default() };
            Linear::with_config(width, width, options, rng)
        };
        Ok(EncoderLayer {
            norm1: layer_norm(width, eps, rng)?,
            attention: Dinov2Attention {
                attention: SelfAttention { query: projection()?, key: projection()?, value: projection()? },
                output: AttentionOutput { dense: Linear::new(width, width, rng)? },
                heads: config.num_attention_heads,
            },
            layer_scale1: scale()?,
            drop_path: StochasticDepth::new(config.drop_path_rate, rng)?,
            norm2: layer_norm(width, eps, rng)?,
            mlp: Mlp::new(config, rng)?,
            layer_scale2: scale()?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.attention.forward(&self.norm1.forward(x)?)?.mul(&self.layer_scale1.lambda1)?;
        let x = self.drop_path.forward(&y)?.add(x)?;
        let y = self.mlp.forward(&self.norm2.forward(&x)?)?.mul(&self.layer_scale2.lambda1)?;
        self.drop_path.forward(&y)?.add(&x)
    }
}

#[derive(Module, Debug)]
struct Encoder {
    layer: Vec<EncoderLayer>,
}

/// A vision transformer for features of images `[N, channels, H, W]`: tokens `[N, 1 + patches, width]`, the
/// first of which is the class token. transformers' `Dinov2Model`.
#[derive(Module, Debug)]
pub struct Dinov2 {
    embeddings: Embeddings,
    encoder: Encoder,
    layernorm: LayerNorm,
    channels: usize,
}

impl Dinov2 {
    /// A network with the parameters of a source; with a generator, they have transformers' initial values.
    ///
    /// # Errors
    /// Counts of 0, patches larger than the image, heads that do not divide the width, a probability outside
    /// [0, 1], parameters that do not match, or too little memory.
    pub fn new(config: &Dinov2Config, weights: impl Into<WeightSource>) -> Result<Dinov2> {
        weights.into().network(|rng| Dinov2::initial(config, rng))
    }

    fn initial(config: &Dinov2Config, rng: &Generator) -> Result<Dinov2> {
        const MODEL: &str = "Dinov2";
        let &Dinov2Config { hidden_size: width, patch_size, num_channels, .. } = config;
        check_heads(MODEL, width, config.num_attention_heads)?;
        positive(MODEL, &[("patch_size", patch_size), ("num_channels", num_channels)])?;
        positive(MODEL, &[("image_size / patch_size", config.image_size / patch_size)])?;
        let positions = (config.image_size / patch_size).pow(2) + 1;
        let zeros = |shape: &[usize]| Parameter::new(Tensor::zeros(shape, rng.device())?);
        let layer = |_| EncoderLayer::new(config, rng);
        let model = Dinov2 {
            embeddings: Embeddings {
                cls_token: zeros(&[1, 1, width])?,
                mask_token: config.use_mask_token.then(|| zeros(&[1, width])).transpose()?,
                position_embeddings: zeros(&[1, positions, width])?,
                patch_embeddings: PatchEmbeddings {
                    projection: patches(num_channels, width, patch_size, true, rng)?,
                },
            },
            encoder: Encoder { layer: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()? },
            layernorm: layer_norm(width, config.layer_norm_eps, rng)?,
            channels: num_channels,
        };
        model.apply(&mut |name, parameter| match parameter.rank() {
            _ if name == "embeddings.mask_token" => Ok(()),
            1 if name.ends_with("bias") => parameter.assign(&parameter.zeros_like()),
            1 => Ok(()),
            _ => truncated(parameter, 0.02, rng),
        })?;
        Ok(model)
    }

    /// The tokens `[N, 1 + patches, width]` of images `[N, channels, H, W]`, of any size of at least a
    /// patch.
    ///
    /// # Errors
    /// An input that is no image of the configured channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("Dinov2", x, self.channels)?;
        let mut x = self.embeddings.forward(x)?;
        for layer in &self.encoder.layer {
            x = layer.forward(&x)?;
        }
        self.layernorm.forward(&x)
    }
}

layer!(Dinov2);
