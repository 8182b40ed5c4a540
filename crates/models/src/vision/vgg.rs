//! VGG, with torchvision's parameter names.
//!
//! Simonyan and Zisserman: Very deep convolutional networks for large-scale image recognition (2015).

use nn::{
    BatchNorm2d, Conv2d, ConvConfig, Dropout, Linear, MaxPool2d, Module, Relu, Sequential,
    functional::adaptive_avg_pool2d,
};
use tensor_core::{Generator, Result, Tensor};

use super::blocks::{LinearInit, check_image, initialize, layer, positive};
use crate::WeightSource;

/// A step of a [`Vgg`]'s features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VggStep {
    /// A convolution of 3 × 3 to this number of channels.
    Conv(usize),
    /// Max pooling of 2 × 2.
    Pool,
}

/// The configuration of a [`Vgg`].
#[derive(Clone, Debug, PartialEq)]
pub struct VggConfig {
    /// The steps of the features.
    pub features: Vec<VggStep>,
    /// Whether a batch norm follows each convolution.
    pub batch_norm: bool,
    /// The width of the two hidden layers of the classifier; 4096 in the paper.
    pub hidden: usize,
    /// The number of outputs.
    pub num_classes: usize,
    /// The dropout probability of the classifier.
    pub dropout: f64,
}

/// Presets: the numbers of convolutions in the five stages, whose channels are 64, 128, 256, 512 and 512.
macro_rules! presets {
    ($($name:ident: $convs:tt $norm:literal;)*) => {
        impl VggConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`.")]
            pub fn $name() -> VggConfig {
                VggConfig::of_stages($convs, $norm)
            }
        )*}
    };
}

presets! {
    vgg11: [1, 1, 2, 2, 2] false;
    vgg11_bn: [1, 1, 2, 2, 2] true;
    vgg13: [2, 2, 2, 2, 2] false;
    vgg13_bn: [2, 2, 2, 2, 2] true;
    vgg16: [2, 2, 3, 3, 3] false;
    vgg16_bn: [2, 2, 3, 3, 3] true;
    vgg19: [2, 2, 4, 4, 4] false;
    vgg19_bn: [2, 2, 4, 4, 4] true;
}

impl VggConfig {
    fn of_stages(convolutions: [usize; 5], batch_norm: bool) -> VggConfig {
        let mut features = Vec::new();
        for (count, channels) in convolutions.into_iter().zip([64, 128, 256, 512, 512]) {
            features.extend(std::iter::repeat_n(VggStep::Conv(channels), count));
            features.push(VggStep::Pool);
        }
        VggConfig { features, batch_norm, hidden: 4096, num_classes: 1000, dropout: 0.5 }
    }
}

/// A plain stack of convolutions and a classifier of three layers, for images `[N, 3, H, W]`: logits `[N,
/// classes]`. torchvision's `VGG`.
#[derive(Module, Debug)]
pub struct Vgg {
    features: Sequential,
    classifier: Sequential,
}

impl Vgg {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// No channels, hidden units or classes, a dropout outside [0, 1], parameters that do not match, or too
    /// little memory.
    pub fn new(config: &VggConfig, weights: impl Into<WeightSource>) -> Result<Vgg> {
        weights.into().network(|rng| Vgg::initial(config, rng))
    }

    fn initial(config: &VggConfig, rng: &Generator) -> Result<Vgg> {
        let &VggConfig { hidden, num_classes, dropout, .. } = config;
        positive("Vgg", &[("hidden", hidden), ("num_classes", num_classes)])?;
        let (mut features, mut from) = (Sequential::new(), 3);
        for step in &config.features {
            let VggStep::Conv(to) = *step else {
                features.push(MaxPool2d::new(2));
                continue;
            };
            positive("Vgg", &[("channels", to)])?;
            let padded = ConvConfig { padding: 1.into(), ..Default::default() };
            features.push(Conv2d::with_config(from, to, 3, padded, rng)?);
            if config.batch_norm {
                features.push(BatchNorm2d::new(to, rng.device())?);
            }
            features.push(Relu);
            from = to;
        }
        let classifier = Sequential::new()
            .add(Linear::new(from * 7 * 7, hidden, rng)?)
            .add(Relu)
            .add(Dropout::new(dropout, rng)?)
            .add(Linear::new(hidden, hidden, rng)?)
            .add(Relu)
            .add(Dropout::new(dropout, rng)?)
            .add(Linear::new(hidden, num_classes, rng)?);
        let model = Vgg { features, classifier };
        initialize(&model, LinearInit::Normal(0.01), rng)?;
        Ok(model)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`, at least 32 × 32 for the presets.
    ///
    /// # Errors
    /// An input that is no image of three channels, or too small for the pools.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("Vgg", x, 3)?;
        let x = adaptive_avg_pool2d(&self.features.forward(x)?, 7)?;
        self.classifier.forward(&x.flatten(1, -1)?)
    }
}

layer!(Vgg);
