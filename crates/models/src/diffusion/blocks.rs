//! Blocks of the networks of Stable Diffusion, with diffusers' names.

use nn::{Conv2d, ConvConfig, GroupNorm, Linear, Module, functional::interpolate};
use tensor_core::{Generator, Result, Tensor};

use crate::vision::blocks::conv;

/// A norm over groups of channels.
pub(super) fn group_norm(groups: usize, channels: usize, eps: f64, rng: &Generator) -> Result<GroupNorm> {
    GroupNorm::with_config(groups, channels, eps, true, rng.device())
}

/// Two convolutions with norms and SiLU, added to the input. diffusers' `ResnetBlock2D`.
#[derive(Module, Debug)]
pub(super) struct ResnetBlock {
    norm1: GroupNorm,
    conv1: Conv2d,
    time_emb_proj: Option<Linear>,
    norm2: GroupNorm,
    conv2: Conv2d,
    conv_shortcut: Option<Conv2d>,
}

/// The sizes of norms, and the width of the time's embedding if blocks read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockOptions {
    pub(super) groups: usize,
    pub(super) eps: f64,
    pub(super) time_width: Option<usize>,
}

impl ResnetBlock {
    pub(super) fn new(from: usize, to: usize, options: BlockOptions, rng: &Generator) -> Result<ResnetBlock> {
        let BlockOptions { groups, eps, time_width } = options;
        Ok(ResnetBlock {
            norm1: group_norm(groups, from, eps, rng)?,
            conv1: conv(from, to, 3, 1, true, rng)?,
            time_emb_proj: time_width.map(|width| Linear::new(width, to, rng)).transpose()?,
            norm2: group_norm(groups, to, eps, rng)?,
            conv2: conv(to, to, 3, 1, true, rng)?,
            conv_shortcut: (from != to).then(|| Conv2d::new(from, to, 1, rng)).transpose()?,
        })
    }

    /// The features `[N, to, H, W]`, with the embedding of the time `[N, width]` if the block reads it.
    pub(super) fn forward(&self, x: &Tensor, time: Option<&Tensor>) -> Result<Tensor> {
        let mut y = self.conv1.forward(&self.norm1.forward(x)?.silu())?;
        if let (Some(projection), Some(time)) = (&self.time_emb_proj, time) {
            y = y.add(&projection.forward(&time.silu())?.unsqueeze(-1)?.unsqueeze(-1)?)?;
        }
        let y = self.conv2.forward(&self.norm2.forward(&y)?.silu())?;
        match &self.conv_shortcut {
            Some(shortcut) => shortcut.forward(x)?.add(&y),
            None => x.add(&y),
        }
    }
}

/// A convolution with a stride of 2. diffusers' `Downsample2D`.
#[derive(Module, Debug)]
pub(super) struct Downsample {
    conv: Conv2d,
    asymmetric: bool,
}

impl Downsample {
    /// The padding is one on all sides, or only at the bottom and the right, as in the autoencoder.
    pub(super) fn new(channels: usize, asymmetric: bool, rng: &Generator) -> Result<Downsample> {
        let padding = usize::from(!asymmetric).into();
        let config = ConvConfig { stride: [2; 2], padding, ..Default::default() };
        Ok(Downsample { conv: Conv2d::with_config(channels, channels, 3, config, rng)?, asymmetric })
    }

    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self.asymmetric {
            true => self.conv.forward(&x.pad(&[(0, 0), (0, 0), (0, 1), (0, 1)], 0.0)?),
            false => self.conv.forward(x),
        }
    }
}

/// Twice the size by repetition, and a convolution. diffusers' `Upsample2D`.
#[derive(Module, Debug)]
pub(super) struct Upsample {
    conv: Conv2d,
}

impl Upsample {
    pub(super) fn new(channels: usize, rng: &Generator) -> Result<Upsample> {
        Ok(Upsample { conv: conv(channels, channels, 3, 1, true, rng)? })
    }

    /// The features of twice the size, or of the given height and width.
    pub(super) fn forward(&self, x: &Tensor, size: Option<[usize; 2]>) -> Result<Tensor> {
        let size = size.unwrap_or([2 * x.dims()[2], 2 * x.dims()[3]]);
        self.conv.forward(&interpolate(x, size)?)
    }
}
