//! ResNet-20 for images of 32 by 32 pixels. He et al.: Deep residual learning for image recognition (2015),
//! section 4.2.

use taper::{
    nn::{AdaptiveAvgPool2d, BatchNorm2d, Conv2d, ConvConfig, Flatten},
    prelude::*,
};

/// A convolution without a bias, because a batch norm follows it.
fn conv(inputs: usize, outputs: usize, kernel: usize, stride: usize, rng: &Generator) -> Result<Conv2d> {
    let config =
        ConvConfig { stride: [stride; 2], padding: (kernel / 2).into(), bias: false, ..Default::default() };
    Conv2d::with_config(inputs, outputs, kernel, config, rng)
}

/// Two convolutions with a shortcut: the input itself, or a convolution of it if the shape changes.
#[derive(Debug, Module)]
pub(crate) struct Residual {
    a: Conv2d,
    na: BatchNorm2d,
    b: Conv2d,
    nb: BatchNorm2d,
    short: Sequential,
}

impl Residual {
    pub(crate) fn new(inputs: usize, outputs: usize, stride: usize, rng: &Generator) -> Result<Residual> {
        let mut short = Sequential::new();
        if inputs != outputs || stride != 1 {
            short.push(conv(inputs, outputs, 1, stride, rng)?);
            short.push(BatchNorm2d::new(outputs, rng.device())?);
        }
        Ok(Residual {
            a: conv(inputs, outputs, 3, stride, rng)?,
            na: BatchNorm2d::new(outputs, rng.device())?,
            b: conv(outputs, outputs, 3, 1, rng)?,
            nb: BatchNorm2d::new(outputs, rng.device())?,
            short,
        })
    }
}

impl Layer for Residual {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.na.forward(&self.a.forward(x)?)?.relu();
        let y = self.nb.forward(&self.b.forward(&y)?)?;
        Ok(y.add(&self.short.forward(x)?)?.relu())
    }
}

/// Twenty layers; maps `[N, 3, 32, 32]` to logits `[N, 10]`.
pub(crate) fn resnet20(rng: &Generator) -> Result<Sequential> {
    let mut net = Sequential::new()
        .add(conv(3, 16, 3, 1, rng)?)
        .add(BatchNorm2d::new(16, rng.device())?)
        .add(taper::nn::Relu);
    let mut channels = 16;
    for (outputs, stride) in [(16, 1), (16, 1), (16, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1)]
    {
        net.push(Residual::new(channels, outputs, stride, rng)?);
        channels = outputs;
    }
    Ok(net.add(AdaptiveAvgPool2d::new(1)).add(Flatten::default()).add(Linear::new(64, 10, rng)?))
}
