//! DenseNet, with torchvision's parameter names.
//!
//! Huang et al.: Densely connected convolutional networks (2017).

use nn::{
    BatchNorm2d, Conv2d, Dropout, Linear, Module, Visitor, VisitorMut,
    functional::{PoolOptions, avg_pool2d, max_pool2d_with},
    init::{self, Fan, Nonlinearity},
};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{Numbered, check_image, conv, global_mean, layer, positive};
use crate::WeightSource;

/// The configuration of a [`DenseNet`], with torchvision's names.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseNetConfig {
    /// The channels that each layer adds.
    pub growth_rate: usize,
    /// The number of layers in each block.
    pub block_config: Vec<usize>,
    /// The channels of the first convolution.
    pub num_init_features: usize,
    /// The channels between the two convolutions of a layer, as a multiple of the growth rate.
    pub bn_size: usize,
    /// The dropout probability after each layer.
    pub drop_rate: f64,
    /// The number of outputs.
    pub num_classes: usize,
}

/// Presets: growth rate, layers, first channels.
macro_rules! presets {
    ($($name:ident: $growth:literal $blocks:tt $features:literal;)*) => {
        impl DenseNetConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`.")]
            pub fn $name() -> DenseNetConfig {
                DenseNetConfig {
                    growth_rate: $growth,
                    block_config: $blocks.to_vec(),
                    num_init_features: $features,
                    bn_size: 4,
                    drop_rate: 0.0,
                    num_classes: 1000,
                }
            }
        )*}
    };
}

presets! {
    densenet121: 32 [6, 12, 24, 16] 64;
    densenet161: 48 [6, 12, 36, 24] 96;
    densenet169: 32 [6, 12, 32, 32] 64;
    densenet201: 32 [6, 12, 48, 32] 64;
}

/// Norm, ReLU and a convolution of 1 × 1, then the same with 3 × 3.
#[derive(Module, Debug)]
struct DenseLayer {
    norm1: BatchNorm2d,
    conv1: Conv2d,
    norm2: BatchNorm2d,
    conv2: Conv2d,
    dropout: Dropout,
}

impl DenseLayer {
    fn new(from: usize, config: &DenseNetConfig, rng: &Generator) -> Result<DenseLayer> {
        let middle = config.bn_size * config.growth_rate;
        Ok(DenseLayer {
            norm1: BatchNorm2d::new(from, rng.device())?,
            conv1: conv(from, middle, 1, 1, false, rng)?,
            norm2: BatchNorm2d::new(middle, rng.device())?,
            conv2: conv(middle, config.growth_rate, 3, 1, false, rng)?,
            dropout: Dropout::new(config.drop_rate, rng)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv1.forward(&self.norm1.forward(x)?.relu())?;
        self.dropout.forward(&self.conv2.forward(&self.norm2.forward(&x)?.relu())?)
    }
}

/// Norm, ReLU, a convolution of 1 × 1 and an average pool, between blocks.
#[derive(Module, Debug)]
struct Transition {
    norm: BatchNorm2d,
    conv: Conv2d,
}

impl Transition {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.conv.forward(&self.norm.forward(x)?.relu())?;
        avg_pool2d(&x, [2; 2])
    }
}

/// Everything before the classifier; the names of `denseblock1` and `transition1` have no list before them.
#[derive(Debug)]
struct Features {
    conv0: Conv2d,
    norm0: BatchNorm2d,
    blocks: Numbered<Numbered<DenseLayer>>,
    transitions: Numbered<Transition>,
    norm5: BatchNorm2d,
}

impl Module for Features {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.field("conv0", &self.conv0);
        visitor.field("norm0", &self.norm0);
        self.blocks.visit(visitor);
        self.transitions.visit(visitor);
        visitor.field("norm5", &self.norm5);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.field("conv0", &mut self.conv0);
        visitor.field("norm0", &mut self.norm0);
        self.blocks.visit_mut(visitor);
        self.transitions.visit_mut(visitor);
        visitor.field("norm5", &mut self.norm5);
    }
}

/// A network whose layers see the outputs of all layers before them, for images `[N, 3, H, W]`: logits `[N,
/// classes]`. torchvision's `DenseNet`.
#[derive(Module, Debug)]
pub struct DenseNet {
    features: Features,
    classifier: Linear,
}

impl DenseNet {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// No blocks, counts of 0, a dropout outside [0, 1], parameters that do not match, or too little memory.
    pub fn new(config: &DenseNetConfig, weights: impl Into<WeightSource>) -> Result<DenseNet> {
        weights.into().network(|rng| DenseNet::initial(config, rng))
    }

    fn initial(config: &DenseNetConfig, rng: &Generator) -> Result<DenseNet> {
        let counts = [
            ("growth_rate", config.growth_rate),
            ("num_init_features", config.num_init_features),
            ("bn_size", config.bn_size),
            ("num_classes", config.num_classes),
            ("the number of blocks", config.block_config.len()),
        ];
        positive("DenseNet", &counts)?;
        if config.block_config.contains(&0) {
            let message = format!("block_config {:?}: every block needs a layer", config.block_config);
            return Err(Error::invalid("DenseNet", message));
        }
        let (mut blocks, mut transitions) = (Vec::new(), Vec::new());
        let mut channels = config.num_init_features;
        for (index, &count) in config.block_config.iter().enumerate() {
            if index > 0 {
                let norm = BatchNorm2d::new(channels, rng.device())?;
                transitions.push(Transition { norm, conv: conv(channels, channels / 2, 1, 1, false, rng)? });
                channels /= 2;
            }
            let layer = |layer| DenseLayer::new(channels + layer * config.growth_rate, config, rng);
            let layers = (0..count).map(layer).collect::<Result<_>>()?;
            blocks.push(Numbered::new("denselayer", 1, layers));
            channels += count * config.growth_rate;
        }
        let features = Features {
            conv0: conv(3, config.num_init_features, 7, 2, false, rng)?,
            norm0: BatchNorm2d::new(config.num_init_features, rng.device())?,
            blocks: Numbered::new("denseblock", 1, blocks),
            transitions: Numbered::new("transition", 1, transitions),
            norm5: BatchNorm2d::new(channels, rng.device())?,
        };
        let model = DenseNet { features, classifier: Linear::new(channels, config.num_classes, rng)? };
        model.apply(&mut |name, parameter| match parameter.rank() {
            4 => {
                let shape = parameter.shape().clone();
                parameter.assign(&init::kaiming_normal(shape, Fan::In, Nonlinearity::Relu, rng)?)
            }
            1 if name == "classifier.bias" => parameter.assign(&parameter.zeros_like()),
            _ => Ok(()),
        })?;
        Ok(model)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// An input that is no image of three channels, or too small for the pools.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("DenseNet", x, 3)?;
        let Features { conv0, norm0, blocks, transitions, norm5 } = &self.features;
        let x = norm0.forward(&conv0.forward(x)?)?.relu();
        let options = PoolOptions { stride: Some([2; 2]), padding: [1; 2], ..Default::default() };
        let mut x = max_pool2d_with(&x, [3; 2], options)?;
        for (index, block) in blocks.list.iter().enumerate() {
            if let Some(before) = index.checked_sub(1) {
                x = transitions.list[before].forward(&x)?;
            }
            for layer in &block.list {
                let new = layer.forward(&x)?;
                x = Tensor::concat(&[x, new], 1)?;
            }
        }
        self.classifier.forward(&global_mean(&norm5.forward(&x)?.relu())?)
    }
}

layer!(DenseNet);
