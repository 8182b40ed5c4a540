//! The U-Net of Stable Diffusion 1 and 2, with diffusers' parameter names.
//!
//! Rombach et al.: High-resolution image synthesis with latent diffusion models (2022).

use nn::{Conv2d, GroupNorm, LayerNorm, Linear, LinearConfig, Module};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{BlockOptions, Downsample, ResnetBlock, Upsample, group_norm};
use crate::{
    WeightSource,
    attention::{check_heads, multi_head_attention},
    vision::blocks::{check_image, conv, layer_norm, positive, tokens},
};

/// The configuration of a [`DiffusionUNet`], with diffusers' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffusionUNetConfig {
    /// The channels of latents.
    pub in_channels: usize,
    /// The channels of the result.
    pub out_channels: usize,
    /// The channels of each level.
    pub block_out_channels: Vec<usize>,
    /// Whether each level attends to the text, from the largest to the smallest.
    pub cross_attention: Vec<bool>,
    /// The number of residual blocks of each level down; levels up have one more.
    pub layers_per_block: usize,
    /// The width of the text's tokens.
    pub cross_attention_dim: usize,
    /// The number of attention heads of each level (diffusers' `attention_head_dim`).
    pub num_attention_heads: Vec<usize>,
    /// Whether the projections around transformers are linear, as in version 2; otherwise they are
    /// convolutions.
    pub use_linear_projection: bool,
    /// The number of groups of norms.
    pub norm_num_groups: usize,
}

impl DiffusionUNetConfig {
    /// Stable Diffusion 1.5.
    pub fn stable_diffusion_1_5() -> DiffusionUNetConfig {
        DiffusionUNetConfig {
            in_channels: 4,
            out_channels: 4,
            block_out_channels: vec![320, 640, 1280, 1280],
            cross_attention: vec![true, true, true, false],
            layers_per_block: 2,
            cross_attention_dim: 768,
            num_attention_heads: vec![8; 4],
            use_linear_projection: false,
            norm_num_groups: 32,
        }
    }

    /// Stable Diffusion 2.1.
    pub fn stable_diffusion_2_1() -> DiffusionUNetConfig {
        DiffusionUNetConfig {
            cross_attention_dim: 1024,
            num_attention_heads: vec![5, 10, 20, 20],
            use_linear_projection: true,
            ..DiffusionUNetConfig::stable_diffusion_1_5()
        }
    }
}

const MODEL: &str = "DiffusionUNet";
/// The eps of the norms of transformers' inputs.
const TRANSFORMER_EPS: f64 = 1e-6;
/// The eps of other norms.
const EPS: f64 = 1e-5;

#[derive(Module, Debug)]
struct UNetAttention {
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    to_out: Vec<Linear>,
    heads: usize,
}

impl UNetAttention {
    fn new(width: usize, context: usize, heads: usize, rng: &Generator) -> Result<UNetAttention> {
        let plain = |from: usize| {
            Linear::with_config(from, width, LinearConfig { bias: false, ..Default::default() }, rng)
        };
        let (to_q, to_k, to_v) = (plain(width)?, plain(context)?, plain(context)?);
        Ok(UNetAttention { to_q, to_k, to_v, to_out: vec![Linear::new(width, width, rng)?], heads })
    }

    fn forward(&self, x: &Tensor, context: &Tensor) -> Result<Tensor> {
        let query = self.to_q.forward(x)?;
        let (key, value) = (self.to_k.forward(context)?, self.to_v.forward(context)?);
        let out = multi_head_attention([&query, &key, &value], self.heads)?;
        self.to_out[0].forward(&out)
    }
}

/// A layer of a perceptron, whose names are `net.0.proj` and `net.2`.
#[derive(Module, Debug)]
enum FeedForwardLayer {
    /// The first layer, gated by GELU. diffusers' `GEGLU`.
    Gated {
        proj: Linear,
    },
    Nothing,
    Plain(Linear),
}

#[derive(Module, Debug)]
struct FeedForward {
    net: [FeedForwardLayer; 3],
}

impl FeedForward {
    fn new(width: usize, rng: &Generator) -> Result<FeedForward> {
        let gated = FeedForwardLayer::Gated { proj: Linear::new(width, 8 * width, rng)? };
        let plain = FeedForwardLayer::Plain(Linear::new(4 * width, width, rng)?);
        Ok(FeedForward { net: [gated, FeedForwardLayer::Nothing, plain] })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.net.iter().try_fold(x.clone(), |x, layer| match layer {
            FeedForwardLayer::Gated { proj } => {
                let halves = proj.forward(&x)?.chunk(2, -1)?;
                halves[0].mul(&halves[1].gelu())
            }
            FeedForwardLayer::Nothing => Ok(x),
            FeedForwardLayer::Plain(linear) => linear.forward(&x),
        })
    }
}

/// Attention to the image, to the text, and a perceptron. diffusers' `BasicTransformerBlock`.
#[derive(Module, Debug)]
struct TransformerBlock {
    norm1: LayerNorm,
    attn1: UNetAttention,
    norm2: LayerNorm,
    attn2: UNetAttention,
    norm3: LayerNorm,
    ff: FeedForward,
}

impl TransformerBlock {
    fn new(width: usize, context: usize, heads: usize, rng: &Generator) -> Result<TransformerBlock> {
        Ok(TransformerBlock {
            norm1: layer_norm(width, EPS, rng)?,
            attn1: UNetAttention::new(width, width, heads, rng)?,
            norm2: layer_norm(width, EPS, rng)?,
            attn2: UNetAttention::new(width, context, heads, rng)?,
            norm3: layer_norm(width, EPS, rng)?,
            ff: FeedForward::new(width, rng)?,
        })
    }

    fn forward(&self, x: &Tensor, context: &Tensor) -> Result<Tensor> {
        let y = self.norm1.forward(x)?;
        let x = x.add(&self.attn1.forward(&y, &y)?)?;
        let x = x.add(&self.attn2.forward(&self.norm2.forward(&x)?, context)?)?;
        x.add(&self.ff.forward(&self.norm3.forward(&x)?)?)
    }
}

/// A projection before or after a transformer: a convolution of `[N, C, H, W]`, or a linear layer of tokens.
#[derive(Module, Debug)]
enum Projection {
    Conv(Conv2d),
    Linear(Linear),
}

impl Projection {
    fn new(width: usize, linear: bool, rng: &Generator) -> Result<Projection> {
        Ok(match linear {
            true => Projection::Linear(Linear::new(width, width, rng)?),
            false => Projection::Conv(Conv2d::new(width, width, 1, rng)?),
        })
    }
}

/// A transformer over the pixels of features, added to them. diffusers' `Transformer2DModel`.
#[derive(Module, Debug)]
struct Transformer {
    norm: GroupNorm,
    proj_in: Projection,
    transformer_blocks: Vec<TransformerBlock>,
    proj_out: Projection,
}

impl Transformer {
    fn new(config: &DiffusionUNetConfig, level: usize, rng: &Generator) -> Result<Transformer> {
        let (width, heads) = (config.block_out_channels[level], config.num_attention_heads[level]);
        check_heads(MODEL, width, heads)?;
        Ok(Transformer {
            norm: group_norm(config.norm_num_groups, width, TRANSFORMER_EPS, rng)?,
            proj_in: Projection::new(width, config.use_linear_projection, rng)?,
            transformer_blocks: vec![TransformerBlock::new(width, config.cross_attention_dim, heads, rng)?],
            proj_out: Projection::new(width, config.use_linear_projection, rng)?,
        })
    }

    fn forward(&self, x: &Tensor, context: &Tensor) -> Result<Tensor> {
        let shape = x.dims().to_vec();
        let normed = self.norm.forward(x)?;
        let mut y = match &self.proj_in {
            Projection::Conv(conv) => tokens(&conv.forward(&normed)?)?,
            Projection::Linear(linear) => linear.forward(&tokens(&normed)?)?,
        };
        for block in &self.transformer_blocks {
            y = block.forward(&y, context)?;
        }
        let grid = |tokens: &Tensor| tokens.transpose(1, 2)?.reshape(shape.clone());
        let y = match &self.proj_out {
            Projection::Conv(conv) => conv.forward(&grid(&y)?)?,
            Projection::Linear(linear) => grid(&linear.forward(&y)?)?,
        };
        y.add(x)
    }
}

/// A level of the way down. diffusers' `CrossAttnDownBlock2D` and `DownBlock2D`.
#[derive(Module, Debug)]
struct DownBlock {
    attentions: Vec<Transformer>,
    resnets: Vec<ResnetBlock>,
    downsamplers: Vec<Downsample>,
}

/// The middle of the network. diffusers' `UNetMidBlock2DCrossAttn`.
#[derive(Module, Debug)]
struct MidBlock {
    attentions: Vec<Transformer>,
    resnets: Vec<ResnetBlock>,
}

/// A level of the way up. diffusers' `CrossAttnUpBlock2D` and `UpBlock2D`.
#[derive(Module, Debug)]
struct UpBlock {
    attentions: Vec<Transformer>,
    resnets: Vec<ResnetBlock>,
    upsamplers: Vec<Upsample>,
}

#[derive(Module, Debug)]
struct TimestepEmbedding {
    linear_1: Linear,
    linear_2: Linear,
}

/// The network that estimates the noise in latents, from the time and the tokens of a text. diffusers'
/// `UNet2DConditionModel`.
#[derive(Module, Debug)]
pub struct DiffusionUNet {
    conv_in: Conv2d,
    time_embedding: TimestepEmbedding,
    down_blocks: Vec<DownBlock>,
    up_blocks: Vec<UpBlock>,
    mid_block: MidBlock,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
    channels: usize,
    time_channels: usize,
}

impl DiffusionUNet {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// Lists of different lengths, counts of 0, heads or groups that do not divide the channels, parameters
    /// that do not match, or too little memory.
    pub fn new(config: &DiffusionUNetConfig, weights: impl Into<WeightSource>) -> Result<DiffusionUNet> {
        weights.into().network(|rng| DiffusionUNet::initial(config, rng))
    }

    fn initial(config: &DiffusionUNetConfig, rng: &Generator) -> Result<DiffusionUNet> {
        let channels = &config.block_out_channels;
        let levels = channels.len();
        let counts = [
            ("in_channels", config.in_channels),
            ("out_channels", config.out_channels),
            ("layers_per_block", config.layers_per_block),
            ("norm_num_groups", config.norm_num_groups),
            ("the number of levels", levels),
        ];
        positive(MODEL, &counts)?;
        if config.cross_attention.len() != levels || config.num_attention_heads.len() != levels {
            let message = format!("{levels} levels: give as many of cross_attention and num_attention_heads");
            return Err(Error::invalid(MODEL, message));
        }
        let (first, last) = (channels[0], channels[levels - 1]);
        let options = BlockOptions { groups: config.norm_num_groups, eps: EPS, time_width: Some(4 * first) };
        let middle = || ResnetBlock::new(last, last, options, rng);
        Ok(DiffusionUNet {
            conv_in: conv(config.in_channels, first, 3, 1, true, rng)?,
            time_embedding: TimestepEmbedding {
                linear_1: Linear::new(first, 4 * first, rng)?,
                linear_2: Linear::new(4 * first, 4 * first, rng)?,
            },
            down_blocks: down_blocks(config, options, rng)?,
            up_blocks: up_blocks(config, options, rng)?,
            mid_block: MidBlock {
                attentions: vec![Transformer::new(config, levels - 1, rng)?],
                resnets: vec![middle()?, middle()?],
            },
            conv_norm_out: group_norm(config.norm_num_groups, first, EPS, rng)?,
            conv_out: conv(first, config.out_channels, 3, 1, true, rng)?,
            channels: config.in_channels,
            time_channels: first,
        })
    }

    /// The estimate `[N, out_channels, H, W]` for latents `[N, in_channels, H, W]`, times `[N]` (numbers of
    /// training steps), and the text's tokens `[N, L, cross_attention_dim]`.
    ///
    /// # Errors
    /// Inputs of other shapes.
    pub fn forward(&self, latents: &Tensor, times: &Tensor, text: &Tensor) -> Result<Tensor> {
        check_image(MODEL, latents, self.channels)?;
        if times.dims() != [latents.dims()[0]] {
            let message =
                format!("times {}: give one for each of {} latents", times.shape(), latents.dims()[0]);
            return Err(Error::invalid(MODEL, message));
        }
        let TimestepEmbedding { linear_1, linear_2 } = &self.time_embedding;
        let time = sinusoids(&times.to_dtype(latents.dtype())?, self.time_channels)?;
        let time = linear_2.forward(&linear_1.forward(&time)?.silu())?;
        let mut x = self.conv_in.forward(latents)?;
        let mut kept = vec![x.clone()];
        for block in &self.down_blocks {
            for (index, resnet) in block.resnets.iter().enumerate() {
                x = resnet.forward(&x, Some(&time))?;
                if let Some(attention) = block.attentions.get(index) {
                    x = attention.forward(&x, text)?;
                }
                kept.push(x.clone());
            }
            for downsample in &block.downsamplers {
                x = downsample.forward(&x)?;
                kept.push(x.clone());
            }
        }
        x = self.mid_block.resnets[0].forward(&x, Some(&time))?;
        x = self.mid_block.attentions[0].forward(&x, text)?;
        x = self.mid_block.resnets[1].forward(&x, Some(&time))?;
        for block in &self.up_blocks {
            for (index, resnet) in block.resnets.iter().enumerate() {
                let Some(beside) = kept.pop() else {
                    return Err(Error::invalid(MODEL, "the way up has more blocks than the way down"));
                };
                x = resnet.forward(&Tensor::concat(&[x, beside], 1)?, Some(&time))?;
                if let Some(attention) = block.attentions.get(index) {
                    x = attention.forward(&x, text)?;
                }
            }
            for upsample in &block.upsamplers {
                let size = kept.last().map(|beside| [beside.dims()[2], beside.dims()[3]]);
                x = upsample.forward(&x, size)?;
            }
        }
        self.conv_out.forward(&self.conv_norm_out.forward(&x)?.silu())
    }
}

fn down_blocks(
    config: &DiffusionUNetConfig,
    options: BlockOptions,
    rng: &Generator,
) -> Result<Vec<DownBlock>> {
    let channels = &config.block_out_channels;
    let block = |level: usize| {
        let (from, to) = (channels[level.saturating_sub(1)], channels[level]);
        let count = config.layers_per_block;
        let attentions = if config.cross_attention[level] { count } else { 0 };
        let resnet = |index: usize| ResnetBlock::new(if index == 0 { from } else { to }, to, options, rng);
        let last = level + 1 == channels.len();
        Ok(DownBlock {
            attentions: (0..attentions)
                .map(|_| Transformer::new(config, level, rng))
                .collect::<Result<_>>()?,
            resnets: (0..count).map(resnet).collect::<Result<_>>()?,
            downsamplers: if last { Vec::new() } else { vec![Downsample::new(to, false, rng)?] },
        })
    };
    (0..channels.len()).map(block).collect()
}

fn up_blocks(config: &DiffusionUNetConfig, options: BlockOptions, rng: &Generator) -> Result<Vec<UpBlock>> {
    let channels = &config.block_out_channels;
    let block = |level: usize| {
        let to = channels[level];
        let above = channels[(level + 1).min(channels.len() - 1)];
        let below = channels[level.saturating_sub(1)];
        let count = config.layers_per_block + 1;
        let attentions = if config.cross_attention[level] { count } else { 0 };
        let resnet = |index: usize| {
            let from = if index == 0 { above } else { to };
            let beside = if index + 1 == count { below } else { to };
            ResnetBlock::new(from + beside, to, options, rng)
        };
        Ok(UpBlock {
            attentions: (0..attentions)
                .map(|_| Transformer::new(config, level, rng))
                .collect::<Result<_>>()?,
            resnets: (0..count).map(resnet).collect::<Result<_>>()?,
            upsamplers: if level == 0 { Vec::new() } else { vec![Upsample::new(to, rng)?] },
        })
    };
    (0..channels.len()).rev().map(block).collect()
}

/// The cosines and sines `[N, channels]` of times `[N]`, with wavelengths between 2π and 10000 · 2π.
fn sinusoids(times: &Tensor, channels: usize) -> Result<Tensor> {
    let half = channels / 2;
    let frequency = |index: usize| (-(10000f64.ln()) * index as f64 / half as f64).exp() as f32;
    let frequencies = Tensor::from_vec((0..half).map(frequency).collect(), [1, half], &times.device())?;
    let angles = times.unsqueeze(1)?.mul(&frequencies.to_dtype(times.dtype())?)?;
    Tensor::concat(&[angles.cos(), angles.sin()], 1)
}
