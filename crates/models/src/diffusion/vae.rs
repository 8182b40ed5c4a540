//! The autoencoder of Stable Diffusion, between images and latents, with diffusers' parameter names.
//!
//! Kingma and Welling: Auto-encoding variational Bayes (2014). Rombach et al.: High-resolution image
//! synthesis with latent diffusion models (2022).

use nn::{Conv2d, GroupNorm, Linear, Module};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{BlockOptions, Downsample, ResnetBlock, Upsample, group_norm};
use crate::{
    WeightSource,
    attention::multi_head_attention,
    vision::blocks::{check_image, conv, positive, tokens},
};

/// The configuration of an [`AutoencoderKl`], with diffusers' names.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoencoderKlConfig {
    /// The channels of images.
    pub in_channels: usize,
    /// The channels of decoded images.
    pub out_channels: usize,
    /// The channels of each level.
    pub block_out_channels: Vec<usize>,
    /// The number of residual blocks of each level down; levels up have one more.
    pub layers_per_block: usize,
    /// The channels of latents.
    pub latent_channels: usize,
    /// The number of groups of norms.
    pub norm_num_groups: usize,
    /// The factor of latents before diffusion, which makes their deviation about 1.
    pub scaling_factor: f64,
}

impl AutoencoderKlConfig {
    /// Stable Diffusion 1 and 2.
    pub fn stable_diffusion() -> AutoencoderKlConfig {
        AutoencoderKlConfig {
            in_channels: 3,
            out_channels: 3,
            block_out_channels: vec![128, 256, 512, 512],
            layers_per_block: 2,
            latent_channels: 4,
            norm_num_groups: 32,
            scaling_factor: 0.18215,
        }
    }
}

const MODEL: &str = "AutoencoderKl";
/// The eps of every norm.
const EPS: f64 = 1e-6;

/// Attention of one head over the pixels of features, added to them.
#[derive(Module, Debug)]
struct VaeAttention {
    group_norm: GroupNorm,
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    to_out: Vec<Linear>,
}

impl VaeAttention {
    fn new(channels: usize, groups: usize, rng: &Generator) -> Result<VaeAttention> {
        let linear = || Linear::new(channels, channels, rng);
        Ok(VaeAttention {
            group_norm: group_norm(groups, channels, EPS, rng)?,
            to_q: linear()?,
            to_k: linear()?,
            to_v: linear()?,
            to_out: vec![linear()?],
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = tokens(&self.group_norm.forward(x)?)?;
        let (query, key, value) = (self.to_q.forward(&y)?, self.to_k.forward(&y)?, self.to_v.forward(&y)?);
        let y = self.to_out[0].forward(&multi_head_attention([&query, &key, &value], 1)?)?;
        x.add(&y.transpose(1, 2)?.reshape(x.dims().to_vec())?)
    }
}

#[derive(Module, Debug)]
struct MidBlock {
    attentions: Vec<VaeAttention>,
    resnets: Vec<ResnetBlock>,
}

impl MidBlock {
    fn new(channels: usize, options: BlockOptions, rng: &Generator) -> Result<MidBlock> {
        let resnet = || ResnetBlock::new(channels, channels, options, rng);
        let attentions = vec![VaeAttention::new(channels, options.groups, rng)?];
        Ok(MidBlock { attentions, resnets: vec![resnet()?, resnet()?] })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.attentions[0].forward(&self.resnets[0].forward(x, None)?)?;
        self.resnets[1].forward(&x, None)
    }
}

#[derive(Module, Debug)]
struct DownBlock {
    resnets: Vec<ResnetBlock>,
    downsamplers: Vec<Downsample>,
}

#[derive(Module, Debug)]
struct UpBlock {
    resnets: Vec<ResnetBlock>,
    upsamplers: Vec<Upsample>,
}

#[derive(Module, Debug)]
struct Encoder {
    conv_in: Conv2d,
    down_blocks: Vec<DownBlock>,
    mid_block: MidBlock,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
}

impl Encoder {
    fn new(config: &AutoencoderKlConfig, options: BlockOptions, rng: &Generator) -> Result<Encoder> {
        let channels = &config.block_out_channels;
        let last = channels[channels.len() - 1];
        let block = |level: usize| {
            let (from, to) = (channels[level.saturating_sub(1)], channels[level]);
            let resnet =
                |index: usize| ResnetBlock::new(if index == 0 { from } else { to }, to, options, rng);
            let end = level + 1 == channels.len();
            Ok(DownBlock {
                resnets: (0..config.layers_per_block).map(resnet).collect::<Result<_>>()?,
                downsamplers: if end { Vec::new() } else { vec![Downsample::new(to, true, rng)?] },
            })
        };
        Ok(Encoder {
            conv_in: conv(config.in_channels, channels[0], 3, 1, true, rng)?,
            down_blocks: (0..channels.len()).map(block).collect::<Result<_>>()?,
            mid_block: MidBlock::new(last, options, rng)?,
            conv_norm_out: group_norm(options.groups, last, EPS, rng)?,
            conv_out: conv(last, 2 * config.latent_channels, 3, 1, true, rng)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.conv_in.forward(x)?;
        for block in &self.down_blocks {
            for resnet in &block.resnets {
                x = resnet.forward(&x, None)?;
            }
            for downsample in &block.downsamplers {
                x = downsample.forward(&x)?;
            }
        }
        self.conv_out.forward(&self.conv_norm_out.forward(&self.mid_block.forward(&x)?)?.silu())
    }
}

#[derive(Module, Debug)]
struct Decoder {
    conv_in: Conv2d,
    mid_block: MidBlock,
    up_blocks: Vec<UpBlock>,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
}

impl Decoder {
    fn new(config: &AutoencoderKlConfig, options: BlockOptions, rng: &Generator) -> Result<Decoder> {
        let channels = &config.block_out_channels;
        let last = channels[channels.len() - 1];
        let block = |level: usize| {
            let (from, to) = (channels[(level + 1).min(channels.len() - 1)], channels[level]);
            let resnet =
                |index: usize| ResnetBlock::new(if index == 0 { from } else { to }, to, options, rng);
            Ok(UpBlock {
                resnets: (0..=config.layers_per_block).map(resnet).collect::<Result<_>>()?,
                upsamplers: if level == 0 { Vec::new() } else { vec![Upsample::new(to, rng)?] },
            })
        };
        Ok(Decoder {
            conv_in: conv(config.latent_channels, last, 3, 1, true, rng)?,
            mid_block: MidBlock::new(last, options, rng)?,
            up_blocks: (0..channels.len()).rev().map(block).collect::<Result<_>>()?,
            conv_norm_out: group_norm(options.groups, channels[0], EPS, rng)?,
            conv_out: conv(channels[0], config.out_channels, 3, 1, true, rng)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = self.mid_block.forward(&self.conv_in.forward(x)?)?;
        for block in &self.up_blocks {
            for resnet in &block.resnets {
                x = resnet.forward(&x, None)?;
            }
            for upsample in &block.upsamplers {
                x = upsample.forward(&x, None)?;
            }
        }
        self.conv_out.forward(&self.conv_norm_out.forward(&x)?.silu())
    }
}

/// The normal distribution of the latents of each image.
#[derive(Clone, Debug)]
pub struct Latents {
    /// The means, `[N, latent_channels, H / 8, W / 8]` for four levels.
    pub mean: Tensor,
    /// The logarithms of the variances, between −30 and 20.
    pub log_variance: Tensor,
}

impl Latents {
    /// A random draw from the distribution.
    ///
    /// # Errors
    /// A device that cannot draw that many numbers.
    pub fn sample(&self, rng: &Generator) -> Result<Tensor> {
        let noise = Tensor::randn(self.mean.shape().clone(), &rng.on(&self.mean.device()))?;
        let deviation = self.log_variance.mul_scalar(0.5).exp();
        self.mean.add(&deviation.mul(&noise.to_dtype(deviation.dtype())?)?)
    }
}

/// An encoder of images to latents, and a decoder. diffusers' `AutoencoderKL`.
///
/// The published files of Stable Diffusion 1 name the attention's layers `query`, `key`, `value` and
/// `proj_attn`; load them with a [`NameMap`](nn::NameMap) to `to_q`, `to_k`, `to_v` and `to_out.0`.
#[derive(Module, Debug)]
pub struct AutoencoderKl {
    encoder: Encoder,
    decoder: Decoder,
    quant_conv: Conv2d,
    post_quant_conv: Conv2d,
    in_channels: usize,
    latent_channels: usize,
    /// The factor of latents before diffusion.
    pub scaling_factor: f64,
}

impl AutoencoderKl {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// No levels, counts of 0, groups that do not divide the channels, parameters that do not match, or too
    /// little memory.
    pub fn new(config: &AutoencoderKlConfig, weights: impl Into<WeightSource>) -> Result<AutoencoderKl> {
        weights.into().network(|rng| AutoencoderKl::initial(config, rng))
    }

    fn initial(config: &AutoencoderKlConfig, rng: &Generator) -> Result<AutoencoderKl> {
        let &AutoencoderKlConfig { in_channels, latent_channels: latent, norm_num_groups: groups, .. } =
            config;
        let counts = [
            ("in_channels", in_channels),
            ("out_channels", config.out_channels),
            ("layers_per_block", config.layers_per_block),
            ("latent_channels", latent),
            ("norm_num_groups", groups),
            ("the number of levels", config.block_out_channels.len()),
        ];
        positive(MODEL, &counts)?;
        let options = BlockOptions { groups, eps: EPS, time_width: None };
        Ok(AutoencoderKl {
            encoder: Encoder::new(config, options, rng)?,
            decoder: Decoder::new(config, options, rng)?,
            quant_conv: Conv2d::new(2 * latent, 2 * latent, 1, rng)?,
            post_quant_conv: Conv2d::new(latent, latent, 1, rng)?,
            in_channels,
            latent_channels: latent,
            scaling_factor: config.scaling_factor,
        })
    }

    /// The latents of images `[N, in_channels, H, W]` of values between −1 and 1. Diffusion multiplies them
    /// by the scaling factor.
    ///
    /// # Errors
    /// An input that is no image of the configured channels.
    pub fn encode(&self, images: &Tensor) -> Result<Latents> {
        check_image(MODEL, images, self.in_channels)?;
        let moments = self.quant_conv.forward(&self.encoder.forward(images)?)?.chunk(2, 1)?;
        let [mean, log_variance] = moments.as_slice() else {
            return Err(Error::invalid(MODEL, "the encoder gives a mean and a variance"));
        };
        Ok(Latents { mean: mean.clone(), log_variance: log_variance.clamp(-30.0, 20.0) })
    }

    /// The images of latents `[N, latent_channels, H, W]`, which are divided by the scaling factor before.
    ///
    /// # Errors
    /// An input of another shape.
    pub fn decode(&self, latents: &Tensor) -> Result<Tensor> {
        check_image(MODEL, latents, self.latent_channels)?;
        self.decoder.forward(&self.post_quant_conv.forward(latents)?)
    }
}
