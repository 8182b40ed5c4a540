//! MobileNetV3, with torchvision's parameter names.
//!
//! Howard et al.: Searching for MobileNetV3 (2019).

use nn::{BatchNormConfig, Dropout, Linear, Module, Sequential};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{
    Activation, ConvNormActivation, LinearInit, SqueezeExcitation, check_image, global_mean, initialize,
    layer, make_divisible, positive,
};
use crate::WeightSource;

/// A block of a [`MobileNetV3`]: a row of the paper's tables 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobileNetV3Block {
    /// The input channels.
    pub input_channels: usize,
    /// The size of the depthwise kernel.
    pub kernel: usize,
    /// The channels inside the block.
    pub expanded_channels: usize,
    /// The output channels.
    pub out_channels: usize,
    /// Whether there is squeeze-and-excitation.
    pub use_se: bool,
    /// Whether the activation is hardswish; otherwise it is ReLU.
    pub use_hs: bool,
    /// The stride, 1 or 2.
    pub stride: usize,
}

/// The configuration of a [`MobileNetV3`].
#[derive(Clone, Debug, PartialEq)]
pub struct MobileNetV3Config {
    /// The blocks.
    pub inverted_residual_setting: Vec<MobileNetV3Block>,
    /// The width of the hidden layer of the classifier.
    pub last_channel: usize,
    /// The number of outputs.
    pub num_classes: usize,
    /// The dropout probability of the classifier.
    pub dropout: f64,
}

/// Input channels, kernel, expanded channels, output channels, squeeze-and-excitation, hardswish, stride.
type Row = (usize, usize, usize, usize, bool, bool, usize);

const LARGE: [Row; 15] = [
    (16, 3, 16, 16, false, false, 1),
    (16, 3, 64, 24, false, false, 2),
    (24, 3, 72, 24, false, false, 1),
    (24, 5, 72, 40, true, false, 2),
    (40, 5, 120, 40, true, false, 1),
    (40, 5, 120, 40, true, false, 1),
    (40, 3, 240, 80, false, true, 2),
    (80, 3, 200, 80, false, true, 1),
    (80, 3, 184, 80, false, true, 1),
    (80, 3, 184, 80, false, true, 1),
    (80, 3, 480, 112, true, true, 1),
    (112, 3, 672, 112, true, true, 1),
    (112, 5, 672, 160, true, true, 2),
    (160, 5, 960, 160, true, true, 1),
    (160, 5, 960, 160, true, true, 1),
];

const SMALL: [Row; 11] = [
    (16, 3, 16, 16, true, false, 2),
    (16, 3, 72, 24, false, false, 2),
    (24, 3, 88, 24, false, false, 1),
    (24, 5, 96, 40, true, true, 2),
    (40, 5, 240, 40, true, true, 1),
    (40, 5, 240, 40, true, true, 1),
    (40, 5, 120, 48, true, true, 1),
    (48, 5, 144, 48, true, true, 1),
    (48, 5, 288, 96, true, true, 2),
    (96, 5, 576, 96, true, true, 1),
    (96, 5, 576, 96, true, true, 1),
];

impl MobileNetV3Config {
    fn of_rows(rows: &[Row], last_channel: usize) -> MobileNetV3Config {
        let block =
            |&(input_channels, kernel, expanded_channels, out_channels, use_se, use_hs, stride): &Row| {
                MobileNetV3Block {
                    input_channels,
                    kernel,
                    expanded_channels,
                    out_channels,
                    use_se,
                    use_hs,
                    stride,
                }
            };
        let inverted_residual_setting = rows.iter().map(block).collect();
        MobileNetV3Config { inverted_residual_setting, last_channel, num_classes: 1000, dropout: 0.2 }
    }

    /// torchvision's `mobilenet_v3_large`.
    pub fn mobilenet_v3_large() -> MobileNetV3Config {
        MobileNetV3Config::of_rows(&LARGE, 1280)
    }

    /// torchvision's `mobilenet_v3_small`.
    pub fn mobilenet_v3_small() -> MobileNetV3Config {
        MobileNetV3Config::of_rows(&SMALL, 1024)
    }
}

/// The norm of every convolution.
fn norm() -> BatchNormConfig {
    BatchNormConfig { eps: 0.001, momentum: Some(0.01), ..Default::default() }
}

#[derive(Module, Debug)]
struct InvertedResidual {
    block: Sequential,
    shortcut: bool,
}

impl InvertedResidual {
    fn new(config: &MobileNetV3Block, rng: &Generator) -> Result<InvertedResidual> {
        let &MobileNetV3Block { input_channels, kernel, expanded_channels, out_channels, stride, .. } =
            config;
        let counts = [("input_channels", input_channels), ("kernel", kernel), ("channels", out_channels)];
        positive("MobileNetV3", &counts)?;
        positive("MobileNetV3", &[("expanded_channels", expanded_channels)])?;
        if !(1..=2).contains(&stride) {
            return Err(Error::invalid("MobileNetV3", format!("a stride of {stride}: give 1 or 2")));
        }
        let activation = if config.use_hs { Activation::Hardswish } else { Activation::Relu };
        let conv = ConvNormActivation { norm: norm(), activation: Some(activation), ..Default::default() };
        let mut block = Sequential::new();
        if expanded_channels != input_channels {
            let expand = ConvNormActivation { kernel: 1, ..conv };
            block.push(expand.layers(input_channels, expanded_channels, rng)?);
        }
        let depthwise = ConvNormActivation { kernel, stride, groups: expanded_channels, ..conv };
        block.push(depthwise.layers(expanded_channels, expanded_channels, rng)?);
        if config.use_se {
            let squeezed = make_divisible((expanded_channels / 4) as f64, 8);
            let (relu, hardsigmoid) = (Activation::Relu, Activation::Hardsigmoid);
            block.push(SqueezeExcitation::new(expanded_channels, squeezed, relu, hardsigmoid, rng)?);
        }
        let project = ConvNormActivation { kernel: 1, activation: None, ..conv };
        block.push(project.layers(expanded_channels, out_channels, rng)?);
        Ok(InvertedResidual { block, shortcut: stride == 1 && input_channels == out_channels })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let out = self.block.forward(x)?;
        if self.shortcut { out.add(x) } else { Ok(out) }
    }
}

/// MobileNetV3 for images `[N, 3, H, W]`: logits `[N, classes]`. torchvision's `MobileNetV3`.
#[derive(Module, Debug)]
pub struct MobileNetV3 {
    features: Sequential,
    classifier: Sequential,
}

impl MobileNetV3 {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// No blocks, counts of 0, blocks whose channels do not follow from each other, a stride other than 1 or
    /// 2, a dropout outside [0, 1], parameters that do not match, or too little memory.
    pub fn new(config: &MobileNetV3Config, weights: impl Into<WeightSource>) -> Result<MobileNetV3> {
        weights.into().network(|rng| MobileNetV3::initial(config, rng))
    }

    fn initial(config: &MobileNetV3Config, rng: &Generator) -> Result<MobileNetV3> {
        let &MobileNetV3Config { last_channel, num_classes, dropout, .. } = config;
        positive("MobileNetV3", &[("last_channel", last_channel), ("num_classes", num_classes)])?;
        let Some(first) = config.inverted_residual_setting.first() else {
            return Err(Error::invalid("MobileNetV3", "no blocks: give at least one"));
        };
        let conv = ConvNormActivation {
            norm: norm(),
            activation: Some(Activation::Hardswish),
            ..Default::default()
        };
        let mut channels = first.input_channels;
        let stem = ConvNormActivation { stride: 2, ..conv }.layers(3, channels, rng)?;
        let mut features = Sequential::new().add(stem);
        for block in &config.inverted_residual_setting {
            if block.input_channels != channels {
                let message =
                    format!("a block of {} input channels follows {channels} channels", block.input_channels);
                return Err(Error::invalid("MobileNetV3", message));
            }
            features.push(InvertedResidual::new(block, rng)?);
            channels = block.out_channels;
        }
        let last = 6 * channels;
        features.push(ConvNormActivation { kernel: 1, ..conv }.layers(channels, last, rng)?);
        let classifier = Sequential::new()
            .add(Linear::new(last, last_channel, rng)?)
            .add(Activation::Hardswish)
            .add(Dropout::new(dropout, rng)?)
            .add(Linear::new(last_channel, num_classes, rng)?);
        let model = MobileNetV3 { features, classifier };
        initialize(&model, LinearInit::Normal(0.01), rng)?;
        Ok(model)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// An input that is no image of three channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("MobileNetV3", x, 3)?;
        self.classifier.forward(&global_mean(&self.features.forward(x)?)?)
    }
}

layer!(InvertedResidual, MobileNetV3);
