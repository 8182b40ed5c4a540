//! EfficientNet and EfficientNetV2, with torchvision's parameter names.
//!
//! Tan and Le: EfficientNet: rethinking model scaling for convolutional neural networks (2019);
//! EfficientNetV2: smaller models and faster training (2021).

use nn::{BatchNormConfig, Dropout, Linear, Module, Sequential, StochasticDepth};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{
    Activation, ConvNormActivation, LinearInit, SqueezeExcitation, check_image, global_mean, initialize,
    layer, make_divisible, positive,
};
use crate::WeightSource;

/// A stage of an [`EfficientNet`]: torchvision's `MBConvConfig` and `FusedMBConvConfig`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EfficientNetStage {
    /// Whether the expansion and the depthwise convolution are one dense convolution, without
    /// squeeze-and-excitation.
    pub fused: bool,
    /// The factor of channels inside a block.
    pub expand_ratio: usize,
    /// The kernel size.
    pub kernel: usize,
    /// The stride of the first block, 1 or 2.
    pub stride: usize,
    /// The input channels.
    pub input_channels: usize,
    /// The output channels.
    pub out_channels: usize,
    /// The number of blocks.
    pub num_layers: usize,
}

/// The configuration of an [`EfficientNet`].
#[derive(Clone, Debug, PartialEq)]
pub struct EfficientNetConfig {
    /// The stages.
    pub inverted_residual_setting: Vec<EfficientNetStage>,
    /// The channels of the last convolution.
    pub last_channel: usize,
    /// The number of outputs.
    pub num_classes: usize,
    /// The dropout probability before the classifier.
    pub dropout: f64,
    /// The probability to skip the last block in training; those before it are skipped less often.
    pub stochastic_depth_prob: f64,
    /// Added to the variances of norms.
    pub norm_eps: f64,
    /// The weight of a batch in the running statistics of norms.
    pub norm_momentum: f64,
}

/// Fused, expansion, kernel, stride, input channels, output channels, blocks.
type Row = (bool, usize, usize, usize, usize, usize, usize);

const V1: [Row; 7] = [
    (false, 1, 3, 1, 32, 16, 1),
    (false, 6, 3, 2, 16, 24, 2),
    (false, 6, 5, 2, 24, 40, 2),
    (false, 6, 3, 2, 40, 80, 3),
    (false, 6, 5, 1, 80, 112, 3),
    (false, 6, 5, 2, 112, 192, 4),
    (false, 6, 3, 1, 192, 320, 1),
];

const V2_S: [Row; 6] = [
    (true, 1, 3, 1, 24, 24, 2),
    (true, 4, 3, 2, 24, 48, 4),
    (true, 4, 3, 2, 48, 64, 4),
    (false, 4, 3, 2, 64, 128, 6),
    (false, 6, 3, 1, 128, 160, 9),
    (false, 6, 3, 2, 160, 256, 15),
];

const V2_M: [Row; 7] = [
    (true, 1, 3, 1, 24, 24, 3),
    (true, 4, 3, 2, 24, 48, 5),
    (true, 4, 3, 2, 48, 80, 5),
    (false, 4, 3, 2, 80, 160, 7),
    (false, 6, 3, 1, 160, 176, 14),
    (false, 6, 3, 2, 176, 304, 18),
    (false, 6, 3, 1, 304, 512, 5),
];

const V2_L: [Row; 7] = [
    (true, 1, 3, 1, 32, 32, 4),
    (true, 4, 3, 2, 32, 64, 7),
    (true, 4, 3, 2, 64, 96, 7),
    (false, 4, 3, 2, 96, 192, 10),
    (false, 6, 3, 1, 192, 224, 19),
    (false, 6, 3, 2, 224, 384, 25),
    (false, 6, 3, 1, 384, 640, 7),
];

fn stage(row: &Row) -> EfficientNetStage {
    let &(fused, expand_ratio, kernel, stride, input_channels, out_channels, num_layers) = row;
    EfficientNetStage { fused, expand_ratio, kernel, stride, input_channels, out_channels, num_layers }
}

/// The first version: factors of width and depth, dropout, and the norms' eps and momentum.
macro_rules! first {
    ($($name:ident: $width:literal $depth:literal $dropout:literal $eps:literal $momentum:literal;)*) => {
        impl EfficientNetConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`.")]
            pub fn $name() -> EfficientNetConfig {
                EfficientNetConfig::scaled($width, $depth, $dropout, [$eps, $momentum])
            }
        )*}
    };
}

first! {
    efficientnet_b0: 1.0 1.0 0.2 1e-5 0.1;
    efficientnet_b1: 1.0 1.1 0.2 1e-5 0.1;
    efficientnet_b2: 1.1 1.2 0.3 1e-5 0.1;
    efficientnet_b3: 1.2 1.4 0.3 1e-5 0.1;
    efficientnet_b4: 1.4 1.8 0.4 1e-5 0.1;
    efficientnet_b5: 1.6 2.2 0.4 0.001 0.01;
    efficientnet_b6: 1.8 2.6 0.5 0.001 0.01;
    efficientnet_b7: 2.0 3.1 0.5 0.001 0.01;
}

/// The second version: its rows and its dropout.
macro_rules! second {
    ($($name:ident: $rows:ident $dropout:literal;)*) => {
        impl EfficientNetConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`.")]
            pub fn $name() -> EfficientNetConfig {
                EfficientNetConfig::of_stages($rows.iter().map(stage).collect(), 1280, $dropout, [0.001, 0.1])
            }
        )*}
    };
}

second! {
    efficientnet_v2_s: V2_S 0.2;
    efficientnet_v2_m: V2_M 0.3;
    efficientnet_v2_l: V2_L 0.4;
}

impl EfficientNetConfig {
    fn scaled(width: f64, depth: f64, dropout: f64, norm: [f64; 2]) -> EfficientNetConfig {
        let channels = |count: usize| make_divisible(count as f64 * width, 8);
        let stages = V1.iter().map(stage).map(|stage| EfficientNetStage {
            input_channels: channels(stage.input_channels),
            out_channels: channels(stage.out_channels),
            num_layers: (stage.num_layers as f64 * depth).ceil() as usize,
            ..stage
        });
        EfficientNetConfig::of_stages(stages.collect(), 4 * channels(320), dropout, norm)
    }

    fn of_stages(
        stages: Vec<EfficientNetStage>,
        last_channel: usize,
        dropout: f64,
        [norm_eps, norm_momentum]: [f64; 2],
    ) -> EfficientNetConfig {
        EfficientNetConfig {
            inverted_residual_setting: stages,
            last_channel,
            num_classes: 1000,
            dropout,
            stochastic_depth_prob: 0.2,
            norm_eps,
            norm_momentum,
        }
    }

    fn conv(&self) -> ConvNormActivation {
        let (eps, momentum) = (self.norm_eps, Some(self.norm_momentum));
        let norm = BatchNormConfig { eps, momentum, ..Default::default() };
        ConvNormActivation { norm, activation: Some(Activation::Silu), ..Default::default() }
    }
}

/// A block, fused or not, with a shortcut where the shape stays. torchvision's `MBConv` and `FusedMBConv`.
#[derive(Module, Debug)]
struct MbConv {
    block: Sequential,
    stochastic_depth: StochasticDepth,
    shortcut: bool,
}

impl MbConv {
    fn new(
        stage: &EfficientNetStage,
        conv: ConvNormActivation,
        [from, stride]: [usize; 2],
        drop: f64,
        rng: &Generator,
    ) -> Result<MbConv> {
        let &EfficientNetStage { kernel, out_channels: to, .. } = stage;
        let expanded = make_divisible((from * stage.expand_ratio) as f64, 8);
        let pointwise = ConvNormActivation { kernel: 1, ..conv };
        let project = ConvNormActivation { activation: None, ..pointwise };
        let mut block = Sequential::new();
        if stage.fused {
            let dense = ConvNormActivation { kernel, stride, ..conv };
            if expanded == from {
                block.push(dense.layers(from, to, rng)?);
            } else {
                block.push(dense.layers(from, expanded, rng)?);
                block.push(project.layers(expanded, to, rng)?);
            }
        } else {
            if expanded != from {
                block.push(pointwise.layers(from, expanded, rng)?);
            }
            let depthwise = ConvNormActivation { kernel, stride, groups: expanded, ..conv };
            block.push(depthwise.layers(expanded, expanded, rng)?);
            let (silu, sigmoid) = (Activation::Silu, Activation::Sigmoid);
            block.push(SqueezeExcitation::new(expanded, (from / 4).max(1), silu, sigmoid, rng)?);
            block.push(project.layers(expanded, to, rng)?);
        }
        let stochastic_depth = StochasticDepth::new(drop, rng)?;
        Ok(MbConv { block, stochastic_depth, shortcut: stride == 1 && from == to })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let out = self.block.forward(x)?;
        if self.shortcut { self.stochastic_depth.forward(&out)?.add(x) } else { Ok(out) }
    }
}

/// EfficientNet for images `[N, 3, H, W]`: logits `[N, classes]`. torchvision's `EfficientNet`.
#[derive(Module, Debug)]
pub struct EfficientNet {
    features: Sequential,
    classifier: Sequential,
}

impl EfficientNet {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// No stages, counts of 0, stages whose channels do not follow from each other, a stride other than 1 or
    /// 2, probabilities outside [0, 1], parameters that do not match, or too little memory.
    pub fn new(config: &EfficientNetConfig, weights: impl Into<WeightSource>) -> Result<EfficientNet> {
        weights.into().network(|rng| EfficientNet::initial(config, rng))
    }

    fn initial(config: &EfficientNetConfig, rng: &Generator) -> Result<EfficientNet> {
        const MODEL: &str = "EfficientNet";
        let &EfficientNetConfig { last_channel, num_classes, dropout, stochastic_depth_prob, .. } = config;
        positive(MODEL, &[("last_channel", last_channel), ("num_classes", num_classes)])?;
        let Some(first) = config.inverted_residual_setting.first() else {
            return Err(Error::invalid(MODEL, "no stages: give at least one"));
        };
        let (conv, mut from) = (config.conv(), first.input_channels);
        let mut features =
            Sequential::new().add(ConvNormActivation { stride: 2, ..conv }.layers(3, from, rng)?);
        let blocks: usize = config.inverted_residual_setting.iter().map(|stage| stage.num_layers).sum();
        let mut index = 0;
        for stage in &config.inverted_residual_setting {
            let counts = [
                ("expand_ratio", stage.expand_ratio),
                ("kernel", stage.kernel),
                ("out_channels", stage.out_channels),
                ("num_layers", stage.num_layers),
            ];
            positive(MODEL, &counts)?;
            if stage.input_channels != from || !(1..=2).contains(&stage.stride) {
                let message =
                    format!("{stage:?} follows {from} channels: give these, and a stride of 1 or 2");
                return Err(Error::invalid(MODEL, message));
            }
            let mut layers = Sequential::new();
            for layer in 0..stage.num_layers {
                let drop = stochastic_depth_prob * index as f64 / blocks as f64;
                let stride = if layer == 0 { stage.stride } else { 1 };
                layers.push(MbConv::new(stage, conv, [from, stride], drop, rng)?);
                (from, index) = (stage.out_channels, index + 1);
            }
            features.push(layers);
        }
        features.push(ConvNormActivation { kernel: 1, ..conv }.layers(from, last_channel, rng)?);
        let classifier = Sequential::new().add(Dropout::new(dropout, rng)?).add(Linear::new(
            last_channel,
            num_classes,
            rng,
        )?);
        let model = EfficientNet { features, classifier };
        initialize(&model, LinearInit::UniformByOutputs, rng)?;
        Ok(model)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// An input that is no image of three channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("EfficientNet", x, 3)?;
        self.classifier.forward(&global_mean(&self.features.forward(x)?)?)
    }
}

layer!(MbConv, EfficientNet);
