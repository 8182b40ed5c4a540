//! The image encoder of SAM (segment anything), with transformers' parameter names.
//!
//! Kirillov et al.: Segment anything (2023). Li et al.: Exploring plain vision transformer backbones for
//! object detection (2022).

use nn::{Conv2d, ConvConfig, LayerNorm, Linear, LinearConfig, Module, Parameter};
use serde::Deserialize;
use tensor_core::{Error, Generator, Result, Tensor};

use super::swin::{Windows, integers};
use crate::{
    WeightSource,
    attention::check_heads,
    config::Activation,
    vision::blocks::{LayerNorm2d, check_image_of_size, layer, layer_norm, patches, positive},
};

/// The configuration of a [`SamVision`]: the fields of transformers' `config.json`, with its defaults, which
/// are those of `facebook/sam-vit-base`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct SamVisionConfig {
    /// The width of tokens.
    pub hidden_size: usize,
    /// The channels of the result.
    pub output_channels: usize,
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
    /// The eps of the norms of layers.
    pub layer_norm_eps: f64,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// The height and width of the windows of attention.
    pub window_size: usize,
    /// The layers whose attention is over the whole image.
    pub global_attn_indexes: Vec<usize>,
    /// The width inside perceptrons; `mlp_ratio` times the width if it is missing.
    pub mlp_dim: Option<usize>,
    /// The width inside perceptrons, as a multiple of `hidden_size`.
    pub mlp_ratio: f64,
}

impl Default for SamVisionConfig {
    fn default() -> SamVisionConfig {
        SamVisionConfig {
            hidden_size: 768,
            output_channels: 256,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            num_channels: 3,
            image_size: 1024,
            patch_size: 16,
            hidden_act: Activation::Gelu,
            layer_norm_eps: 1e-6,
            qkv_bias: true,
            window_size: 14,
            global_attn_indexes: vec![2, 5, 8, 11],
            mlp_dim: None,
            mlp_ratio: 4.0,
        }
    }
}

impl SamVisionConfig {
    /// `facebook/sam-vit-base`.
    pub fn sam_vit_base() -> SamVisionConfig {
        SamVisionConfig::default()
    }

    /// `facebook/sam-vit-large`.
    pub fn sam_vit_large() -> SamVisionConfig {
        SamVisionConfig {
            hidden_size: 1024,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            global_attn_indexes: vec![5, 11, 17, 23],
            ..Default::default()
        }
    }

    /// `facebook/sam-vit-huge`.
    pub fn sam_vit_huge() -> SamVisionConfig {
        SamVisionConfig {
            hidden_size: 1280,
            num_hidden_layers: 32,
            num_attention_heads: 16,
            global_attn_indexes: vec![7, 15, 23, 31],
            ..Default::default()
        }
    }
}

const MODEL: &str = "SamVision";

/// Attention over a square of tokens, with a term for the distance of rows and one for that of columns.
#[derive(Module, Debug)]
struct SamAttention {
    qkv: Linear,
    proj: Linear,
    rel_pos_h: Parameter,
    rel_pos_w: Parameter,
    /// The row of the tables for each pair of positions of one side.
    #[module(constant)]
    distances: Tensor,
    heads: usize,
}

impl SamAttention {
    fn new(config: &SamVisionConfig, side: usize, rng: &Generator) -> Result<SamAttention> {
        let (width, heads) = (config.hidden_size, config.num_attention_heads);
        let table = || Parameter::new(Tensor::zeros([2 * side - 1, width / heads], rng.device())?);
        let bias = LinearConfig { bias: config.qkv_bias, ..Default::default() };
        let pairs = (0..side).flat_map(|query| (0..side).map(move |key| (query + side - 1 - key) as i64));
        Ok(SamAttention {
            qkv: Linear::with_config(width, 3 * width, bias, rng)?,
            proj: Linear::new(width, width, rng)?,
            rel_pos_h: table()?,
            rel_pos_w: table()?,
            distances: integers(pairs.collect(), rng.device())?,
            heads,
        })
    }

    /// The attention of each square `[B, side, side, C]`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let &[count, side, _, width] = x.dims() else { return Err(no_grid(x)) };
        let (tokens, features) = (side * side, width / self.heads);
        let qkv = self.qkv.forward(x)?.reshape([count, tokens, 3, self.heads, features])?;
        let qkv = qkv.permute([2, 0, 3, 1, 4])?;
        let [query, key, value] = [qkv.select(0, 0)?, qkv.select(0, 1)?, qkv.select(0, 2)?];
        let scores = query.mul_scalar(1.0 / (features as f64).sqrt()).matmul(&key.transpose(-2, -1)?)?;
        let squares = query.reshape([count, self.heads, side, side, features])?;
        let table = |table: &Tensor| table.index_select(0, &self.distances)?.reshape([side, side, features]);
        let rows = Tensor::einsum("bnhwc,hkc->bnhwk", &[&squares, &table(&self.rel_pos_h)?])?;
        let columns = Tensor::einsum("bnhwc,wkc->bnhwk", &[&squares, &table(&self.rel_pos_w)?])?;
        let terms = rows.unsqueeze(-1)?.add(&columns.unsqueeze(-2)?)?;
        let scores = scores.add(&terms.reshape([count, self.heads, tokens, tokens])?)?;
        let out = scores.softmax(-1)?.matmul(&value)?.transpose(1, 2)?;
        self.proj.forward(&out.reshape([count, side, side, width])?)
    }
}

#[derive(Module, Debug)]
struct Mlp {
    lin1: Linear,
    lin2: Linear,
}

#[derive(Module, Debug)]
struct VisionLayer {
    layer_norm1: LayerNorm,
    attn: SamAttention,
    layer_norm2: LayerNorm,
    mlp: Mlp,
    activation: Activation,
    /// The side of windows; `None` for attention over the whole image.
    window: Option<usize>,
}

impl VisionLayer {
    fn new(config: &SamVisionConfig, index: usize, rng: &Generator) -> Result<VisionLayer> {
        let (width, eps) = (config.hidden_size, config.layer_norm_eps);
        let hidden = config.mlp_dim.unwrap_or((width as f64 * config.mlp_ratio) as usize);
        let window = (!config.global_attn_indexes.contains(&index)).then_some(config.window_size);
        let side = window.unwrap_or(config.image_size / config.patch_size);
        Ok(VisionLayer {
            layer_norm1: layer_norm(width, eps, rng)?,
            attn: SamAttention::new(config, side, rng)?,
            layer_norm2: layer_norm(width, eps, rng)?,
            mlp: Mlp { lin1: Linear::new(width, hidden, rng)?, lin2: Linear::new(hidden, width, rng)? },
            activation: config.hidden_act,
            window,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.layer_norm1.forward(x)?;
        let y = match self.window {
            Some(size) => self.in_windows(&y, size)?,
            None => self.attn.forward(&y)?,
        };
        let x = x.add(&y)?;
        let y = self.activation.activate(&self.mlp.lin1.forward(&self.layer_norm2.forward(&x)?)?);
        x.add(&self.mlp.lin2.forward(&y)?)
    }

    /// The attention within windows of `[N, H, W, C]`, which is padded to whole windows.
    fn in_windows(&self, x: &Tensor, size: usize) -> Result<Tensor> {
        let &[n, height, width, channels] = x.dims() else { return Err(no_grid(x)) };
        let windows = Windows { size, shift: 0 };
        let [padded_height, padded_width] = [height, width].map(|length| length.next_multiple_of(size));
        let padding = [(0, 0), (0, padded_height - height), (0, padded_width - width), (0, 0)];
        let squares = windows.partition(&x.pad(&padding, 0.0)?)?;
        let squares = squares.reshape([squares.dims()[0], size, size, channels])?;
        let out =
            windows.reverse(&self.attn.forward(&squares)?, [n, padded_height, padded_width, channels])?;
        out.narrow(1, 0, height)?.narrow(2, 0, width)
    }
}

fn no_grid(x: &Tensor) -> Error {
    Error::invalid(MODEL, format!("a grid of tokens is [N, H, W, C], not {}", x.shape()))
}

#[derive(Module, Debug)]
struct PatchEmbed {
    projection: Conv2d,
}

#[derive(Module, Debug)]
struct Neck {
    conv1: Conv2d,
    layer_norm1: LayerNorm2d,
    conv2: Conv2d,
    layer_norm2: LayerNorm2d,
}

#[derive(Module, Debug)]
struct Encoder {
    patch_embed: PatchEmbed,
    pos_embed: Parameter,
    layers: Vec<VisionLayer>,
    neck: Neck,
}

/// A vision transformer with attention in windows, for images `[N, channels, size, size]`: features `[N,
/// output_channels, size / patch, size / patch]`. transformers' `SamVisionModel`, the part `vision_encoder`
/// of a SAM file.
#[derive(Module, Debug)]
pub struct SamVision {
    vision_encoder: Encoder,
    channels: usize,
    image_size: usize,
}

impl SamVision {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// Counts of 0, patches that do not divide the image, heads that do not divide the width, parameters that
    /// do not match, or too little memory.
    pub fn new(config: &SamVisionConfig, weights: impl Into<WeightSource>) -> Result<SamVision> {
        weights.into().network(|rng| SamVision::initial(config, rng))
    }

    fn initial(config: &SamVisionConfig, rng: &Generator) -> Result<SamVision> {
        let &SamVisionConfig { hidden_size: width, output_channels: to, image_size, patch_size, .. } = config;
        let counts = [
            ("output_channels", to),
            ("num_channels", config.num_channels),
            ("patch_size", patch_size),
            ("image_size", image_size),
            ("window_size", config.window_size),
        ];
        positive(MODEL, &counts)?;
        check_heads(MODEL, width, config.num_attention_heads)?;
        if !image_size.is_multiple_of(patch_size) {
            let message = format!("patches of {patch_size} do not divide an image of {image_size}");
            return Err(Error::invalid(MODEL, message));
        }
        let side = image_size / patch_size;
        let conv = |from: usize, kernel: usize| {
            let padding = (kernel / 2).into();
            Conv2d::with_config(
                from,
                to,
                kernel,
                ConvConfig { padding, bias: false, ..Default::default() },
                rng,
            )
        };
        let layer = |index| VisionLayer::new(config, index, rng);
        let vision_encoder = Encoder {
            patch_embed: PatchEmbed {
                projection: patches(config.num_channels, width, patch_size, true, rng)?,
            },
            pos_embed: Parameter::new(Tensor::zeros([1, side, side, width], rng.device())?)?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            neck: Neck {
                conv1: conv(width, 1)?,
                layer_norm1: LayerNorm2d::new(to, 1e-6, rng)?,
                conv2: conv(to, 3)?,
                layer_norm2: LayerNorm2d::new(to, 1e-6, rng)?,
            },
        };
        Ok(SamVision { vision_encoder, channels: config.num_channels, image_size })
    }

    /// The features `[N, output_channels, size / patch, size / patch]` of images `[N, channels, size,
    /// size]`.
    ///
    /// # Errors
    /// An input of another shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image_of_size(MODEL, x, self.channels, self.image_size)?;
        let Encoder { patch_embed, pos_embed, layers, neck } = &self.vision_encoder;
        let mut x = patch_embed.projection.forward(x)?.permute([0, 2, 3, 1])?.add(pos_embed)?;
        for layer in layers {
            x = layer.forward(&x)?;
        }
        let x = neck.layer_norm1.forward(&neck.conv1.forward(&x.permute([0, 3, 1, 2])?)?)?;
        neck.layer_norm2.forward(&neck.conv2.forward(&x)?)
    }
}

layer!(SamVision);
