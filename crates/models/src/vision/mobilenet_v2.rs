//! MobileNetV2, with torchvision's parameter names.
//!
//! Sandler et al.: MobileNetV2: inverted residuals and linear bottlenecks (2018).

use nn::{BatchNorm2d, Dropout, Linear, Module, Sequential};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{
    Activation, ConvNormActivation, LinearInit, check_image, conv, global_mean, initialize, layer,
    make_divisible, positive,
};
use crate::WeightSource;

/// A stage of a [`MobileNetV2`]: t, c, n and s of the paper's table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobileNetV2Stage {
    /// The factor of channels inside a block.
    pub expand_ratio: usize,
    /// The output channels, before the width multiplier.
    pub channels: usize,
    /// The number of blocks.
    pub blocks: usize,
    /// The stride of the first block, 1 or 2.
    pub stride: usize,
}

/// The configuration of a [`MobileNetV2`], with torchvision's names.
#[derive(Clone, Debug, PartialEq)]
pub struct MobileNetV2Config {
    /// The stages.
    pub inverted_residual_setting: Vec<MobileNetV2Stage>,
    /// The factor of all channels.
    pub width_mult: f64,
    /// The number whose multiples are allowed as channels.
    pub round_nearest: usize,
    /// The channels of the last convolution before the width multiplier; 1280 in torchvision.
    pub last_channel: usize,
    /// The number of outputs.
    pub num_classes: usize,
    /// The dropout probability before the classifier.
    pub dropout: f64,
}

impl MobileNetV2Config {
    /// torchvision's `mobilenet_v2`.
    pub fn mobilenet_v2() -> MobileNetV2Config {
        let table = [
            [1, 16, 1, 1],
            [6, 24, 2, 2],
            [6, 32, 3, 2],
            [6, 64, 4, 2],
            [6, 96, 3, 1],
            [6, 160, 3, 2],
            [6, 320, 1, 1],
        ];
        let stage = |[expand_ratio, channels, blocks, stride]: [usize; 4]| MobileNetV2Stage {
            expand_ratio,
            channels,
            blocks,
            stride,
        };
        MobileNetV2Config {
            inverted_residual_setting: table.map(stage).to_vec(),
            width_mult: 1.0,
            round_nearest: 8,
            last_channel: 1280,
            num_classes: 1000,
            dropout: 0.2,
        }
    }
}

/// An expansion, a depthwise convolution and a projection without activation, with a shortcut where the
/// shape stays.
#[derive(Module, Debug)]
struct InvertedResidual {
    conv: Sequential,
    shortcut: bool,
}

impl InvertedResidual {
    fn new(from: usize, to: usize, stride: usize, expand_ratio: usize, rng: &Generator) -> Result<Self> {
        if !(1..=2).contains(&stride) {
            return Err(Error::invalid("MobileNetV2", format!("a stride of {stride}: give 1 or 2")));
        }
        let (hidden, block) = (
            from * expand_ratio,
            ConvNormActivation { activation: Some(Activation::Relu6), ..Default::default() },
        );
        let mut layers = Sequential::new();
        if expand_ratio != 1 {
            layers.push(ConvNormActivation { kernel: 1, ..block }.layers(from, hidden, rng)?);
        }
        let depthwise = ConvNormActivation { stride, groups: hidden, ..block };
        layers.push(depthwise.layers(hidden, hidden, rng)?);
        layers.push(conv(hidden, to, 1, 1, false, rng)?);
        layers.push(BatchNorm2d::new(to, rng.device())?);
        Ok(InvertedResidual { conv: layers, shortcut: stride == 1 && from == to })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let out = self.conv.forward(x)?;
        if self.shortcut { x.add(&out) } else { Ok(out) }
    }
}

/// MobileNetV2 for images `[N, 3, H, W]`: logits `[N, classes]`. torchvision's `MobileNetV2`.
#[derive(Module, Debug)]
pub struct MobileNetV2 {
    features: Sequential,
    classifier: Sequential,
}

impl MobileNetV2 {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// No stages, counts of 0, a stride other than 1 or 2, a width that is not above 0, a dropout outside [0,
    /// 1], parameters that do not match, or too little memory.
    pub fn new(config: &MobileNetV2Config, weights: impl Into<WeightSource>) -> Result<MobileNetV2> {
        weights.into().network(|rng| MobileNetV2::initial(config, rng))
    }

    fn initial(config: &MobileNetV2Config, rng: &Generator) -> Result<MobileNetV2> {
        let &MobileNetV2Config { width_mult, round_nearest, last_channel, num_classes, dropout, .. } = config;
        let stages = &config.inverted_residual_setting;
        let counts = [
            ("the number of stages", stages.len()),
            ("round_nearest", round_nearest),
            ("last_channel", last_channel),
            ("num_classes", num_classes),
        ];
        positive("MobileNetV2", &counts)?;
        if !(width_mult > 0.0 && width_mult.is_finite()) {
            return Err(Error::invalid("MobileNetV2", format!("width_mult {width_mult}: give one above 0")));
        }
        let scaled = |channels: usize, factor: f64| make_divisible(channels as f64 * factor, round_nearest);
        let block = ConvNormActivation { activation: Some(Activation::Relu6), ..Default::default() };
        let mut from = scaled(32, width_mult);
        let mut features =
            Sequential::new().add(ConvNormActivation { stride: 2, ..block }.layers(3, from, rng)?);
        for stage in stages {
            positive(
                "MobileNetV2",
                &[
                    ("expand_ratio", stage.expand_ratio),
                    ("blocks", stage.blocks),
                    ("channels", stage.channels),
                ],
            )?;
            let to = scaled(stage.channels, width_mult);
            for index in 0..stage.blocks {
                let stride = if index == 0 { stage.stride } else { 1 };
                features.push(InvertedResidual::new(from, to, stride, stage.expand_ratio, rng)?);
                from = to;
            }
        }
        let last = scaled(last_channel, width_mult.max(1.0));
        features.push(ConvNormActivation { kernel: 1, ..block }.layers(from, last, rng)?);
        let classifier =
            Sequential::new().add(Dropout::new(dropout, rng)?).add(Linear::new(last, num_classes, rng)?);
        let model = MobileNetV2 { features, classifier };
        initialize(&model, LinearInit::Normal(0.01), rng)?;
        Ok(model)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// An input that is no image of three channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("MobileNetV2", x, 3)?;
        self.classifier.forward(&global_mean(&self.features.forward(x)?)?)
    }
}

layer!(InvertedResidual, MobileNetV2);
