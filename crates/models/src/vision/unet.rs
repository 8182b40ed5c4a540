//! U-Net for segmentation, with the parameter names of the widely used PyTorch implementation
//! (Pytorch-UNet).
//!
//! Ronneberger et al.: U-Net: convolutional networks for biomedical image segmentation (2015).

use nn::{
    BatchNorm2d, Conv2d, ConvTranspose2d, ConvTransposeConfig, MaxPool2d, Module, Relu, Sequential,
    functional::{InterpolateMode, InterpolateOptions, interpolate_with},
};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{check_image, conv, layer, positive};
use crate::WeightSource;

/// The configuration of a [`UNet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UNetConfig {
    /// The channels of images.
    pub channels: usize,
    /// The number of classes of pixels.
    pub classes: usize,
    /// The channels after the first block, 64 in the paper; each of the four levels doubles them.
    pub width: usize,
    /// Whether the way up is bilinear interpolation; otherwise it is a transposed convolution, as in the
    /// paper.
    pub bilinear: bool,
}

impl UNetConfig {
    /// The network of the paper, with padded convolutions and norms.
    pub fn unet(channels: usize, classes: usize) -> UNetConfig {
        UNetConfig { channels, classes, width: 64, bilinear: false }
    }
}

/// Two convolutions, each with a norm and ReLU.
#[derive(Module, Debug)]
struct DoubleConv {
    double_conv: Sequential,
}

impl DoubleConv {
    fn new(from: usize, middle: usize, to: usize, rng: &Generator) -> Result<DoubleConv> {
        let double_conv = Sequential::new()
            .add(conv(from, middle, 3, 1, false, rng)?)
            .add(BatchNorm2d::new(middle, rng.device())?)
            .add(Relu)
            .add(conv(middle, to, 3, 1, false, rng)?)
            .add(BatchNorm2d::new(to, rng.device())?)
            .add(Relu);
        Ok(DoubleConv { double_conv })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.double_conv.forward(x)
    }
}

/// A max pool and two convolutions.
#[derive(Module, Debug)]
struct Down {
    maxpool_conv: Sequential,
}

impl Down {
    fn new(from: usize, to: usize, rng: &Generator) -> Result<Down> {
        let convs = DoubleConv::new(from, to, to, rng)?;
        Ok(Down { maxpool_conv: Sequential::new().add(MaxPool2d::new(2)).add(convs) })
    }
}

/// Twice the size, beside the features of the way down, and two convolutions.
#[derive(Module, Debug)]
struct Up {
    up: Option<ConvTranspose2d>,
    conv: DoubleConv,
}

impl Up {
    fn new(from: usize, to: usize, bilinear: bool, rng: &Generator) -> Result<Up> {
        if bilinear {
            return Ok(Up { up: None, conv: DoubleConv::new(from, from / 2, to, rng)? });
        }
        let options = ConvTransposeConfig { stride: [2; 2], ..Default::default() };
        let up = ConvTranspose2d::with_config(from, from / 2, 2, options, rng)?;
        Ok(Up { up: Some(up), conv: DoubleConv::new(from, to, to, rng)? })
    }

    fn forward(&self, x: &Tensor, beside: &Tensor) -> Result<Tensor> {
        let x = match &self.up {
            Some(up) => up.forward(x)?,
            None => {
                let mode = InterpolateMode::Bilinear;
                interpolate_with(
                    x,
                    2.0,
                    InterpolateOptions { mode, align_corners: true, ..Default::default() },
                )?
            }
        };
        // A pool of an odd size lost a row or a column.
        let missing = |axis: usize| beside.dims()[axis] - x.dims()[axis];
        let sides = |axis: usize| (missing(axis) / 2, missing(axis) - missing(axis) / 2);
        let x = x.pad(&[(0, 0), (0, 0), sides(2), sides(3)], 0.0)?;
        self.conv.forward(&Tensor::concat(&[beside, &x], 1)?)
    }
}

#[derive(Module, Debug)]
struct OutConv {
    conv: Conv2d,
}

/// Four levels down and four up, with connections between levels of the same size, for images `[N, channels,
/// H, W]`: logits of each pixel `[N, classes, H, W]`.
#[derive(Module, Debug)]
pub struct UNet {
    inc: DoubleConv,
    down1: Down,
    down2: Down,
    down3: Down,
    down4: Down,
    up1: Up,
    up2: Up,
    up3: Up,
    up4: Up,
    outc: OutConv,
    channels: usize,
}

impl UNet {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// No channels or classes, an odd width, parameters that do not match, or too little memory.
    pub fn new(config: &UNetConfig, weights: impl Into<WeightSource>) -> Result<UNet> {
        weights.into().network(|rng| UNet::initial(config, rng))
    }

    fn initial(config: &UNetConfig, rng: &Generator) -> Result<UNet> {
        let &UNetConfig { channels, classes, width, bilinear } = config;
        positive("UNet", &[("channels", channels), ("classes", classes), ("width", width)])?;
        if !width.is_multiple_of(2) {
            return Err(Error::invalid("UNet", format!("a width of {width}: give an even one")));
        }
        let factor = if bilinear { 2 } else { 1 };
        let up = |from: usize, to: usize| Up::new(from, to, bilinear, rng);
        Ok(UNet {
            inc: DoubleConv::new(channels, width, width, rng)?,
            down1: Down::new(width, 2 * width, rng)?,
            down2: Down::new(2 * width, 4 * width, rng)?,
            down3: Down::new(4 * width, 8 * width, rng)?,
            down4: Down::new(8 * width, 16 * width / factor, rng)?,
            up1: up(16 * width, 8 * width / factor)?,
            up2: up(8 * width, 4 * width / factor)?,
            up3: up(4 * width, 2 * width / factor)?,
            up4: up(2 * width, width)?,
            outc: OutConv { conv: Conv2d::new(width, classes, 1, rng)? },
            channels,
        })
    }

    /// The logits `[N, classes, H, W]` of images `[N, channels, H, W]`, at least 16 × 16.
    ///
    /// # Errors
    /// An input that is no image of the configured channels, or too small.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("UNet", x, self.channels)?;
        let x1 = self.inc.forward(x)?;
        let x2 = self.down1.maxpool_conv.forward(&x1)?;
        let x3 = self.down2.maxpool_conv.forward(&x2)?;
        let x4 = self.down3.maxpool_conv.forward(&x3)?;
        let x5 = self.down4.maxpool_conv.forward(&x4)?;
        let x = self.up1.forward(&x5, &x4)?;
        let x = self.up2.forward(&x, &x3)?;
        let x = self.up3.forward(&x, &x2)?;
        self.outc.conv.forward(&self.up4.forward(&x, &x1)?)
    }
}

layer!(DoubleConv, UNet);
