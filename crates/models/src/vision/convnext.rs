//! ConvNeXt, with torchvision's parameter names.
//!
//! Liu et al.: A ConvNet for the 2020s (2022).

use nn::{Conv2d, ConvConfig, Flatten, Linear, Module, Parameter, Sequential, StochasticDepth, init};
use tensor_core::{Error, Generator, Result, Tensor};

use super::blocks::{Activation, LayerNorm2d, Permute, check_image, layer, layer_norm, patches, positive};
use crate::WeightSource;

/// The configuration of a [`ConvNeXt`].
#[derive(Clone, Debug, PartialEq)]
pub struct ConvNeXtConfig {
    /// The channels of each stage.
    pub channels: Vec<usize>,
    /// The number of blocks in each stage.
    pub num_layers: Vec<usize>,
    /// The probability to skip the last block in training; those before it are skipped less often.
    pub stochastic_depth_prob: f64,
    /// The initial factor of each block's result.
    pub layer_scale: f64,
    /// The number of outputs.
    pub num_classes: usize,
}

/// Presets: channels, blocks, probability to skip the last block.
macro_rules! presets {
    ($($name:ident: $channels:tt $layers:tt $drop:literal;)*) => {
        impl ConvNeXtConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`.")]
            pub fn $name() -> ConvNeXtConfig {
                ConvNeXtConfig {
                    channels: $channels.to_vec(),
                    num_layers: $layers.to_vec(),
                    stochastic_depth_prob: $drop,
                    layer_scale: 1e-6,
                    num_classes: 1000,
                }
            }
        )*}
    };
}

presets! {
    convnext_tiny: [96, 192, 384, 768] [3, 3, 9, 3] 0.1;
    convnext_small: [96, 192, 384, 768] [3, 3, 27, 3] 0.4;
    convnext_base: [128, 256, 512, 1024] [3, 3, 27, 3] 0.5;
    convnext_large: [192, 384, 768, 1536] [3, 3, 27, 3] 0.5;
}

/// The eps of every norm.
const EPS: f64 = 1e-6;

/// A depthwise convolution of 7 × 7 and a perceptron over channels, scaled and added to the input.
/// torchvision's `CNBlock`.
#[derive(Module, Debug)]
struct Block {
    block: Sequential,
    layer_scale: Parameter,
    stochastic_depth: StochasticDepth,
}

impl Block {
    fn new(channels: usize, scale: f64, drop: f64, rng: &Generator) -> Result<Block> {
        let depthwise = ConvConfig { padding: 3.into(), groups: channels, ..Default::default() };
        let block = Sequential::new()
            .add(Conv2d::with_config(channels, channels, 7, depthwise, rng)?)
            .add(Permute([0, 2, 3, 1]))
            .add(layer_norm(channels, EPS, rng)?)
            .add(Linear::new(channels, 4 * channels, rng)?)
            .add(Activation::Gelu)
            .add(Linear::new(4 * channels, channels, rng)?)
            .add(Permute([0, 3, 1, 2]));
        Ok(Block {
            block,
            layer_scale: Parameter::new(Tensor::full([channels, 1, 1], scale, rng.device())?)?,
            stochastic_depth: StochasticDepth::new(drop, rng)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let out = self.layer_scale.mul(&self.block.forward(x)?)?;
        self.stochastic_depth.forward(&out)?.add(x)
    }
}

/// A convolutional network with the design of a Swin transformer, for images `[N, 3, H, W]`: logits `[N,
/// classes]`. torchvision's `ConvNeXt`.
#[derive(Module, Debug)]
pub struct ConvNeXt {
    features: Sequential,
    classifier: Sequential,
}

impl ConvNeXt {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// No stages, lists of different lengths, counts of 0, a probability outside [0, 1], parameters that do
    /// not match, or too little memory.
    pub fn new(config: &ConvNeXtConfig, weights: impl Into<WeightSource>) -> Result<ConvNeXt> {
        weights.into().network(|rng| ConvNeXt::initial(config, rng))
    }

    fn initial(config: &ConvNeXtConfig, rng: &Generator) -> Result<ConvNeXt> {
        const MODEL: &str = "ConvNeXt";
        let ConvNeXtConfig { channels, num_layers, stochastic_depth_prob, layer_scale, num_classes } = config;
        positive(MODEL, &[("num_classes", *num_classes), ("the number of stages", channels.len())])?;
        if channels.len() != num_layers.len() || channels.contains(&0) || num_layers.contains(&0) {
            let message = format!(
                "channels {channels:?} and num_layers {num_layers:?}: give as many of each, all above 0"
            );
            return Err(Error::invalid(MODEL, message));
        }
        let stem = Sequential::new().add(patches(3, channels[0], 4, true, rng)?).add(LayerNorm2d::new(
            channels[0],
            EPS,
            rng,
        )?);
        let mut features = Sequential::new().add(stem);
        let (blocks, mut index) = (num_layers.iter().sum::<usize>(), 0);
        for (stage, (&width, &count)) in channels.iter().zip(num_layers).enumerate() {
            if let Some(before) = stage.checked_sub(1).map(|before| channels[before]) {
                let downsample = Sequential::new()
                    .add(LayerNorm2d::new(before, EPS, rng)?)
                    .add(patches(before, width, 2, true, rng)?);
                features.push(downsample);
            }
            let mut layers = Sequential::new();
            for _ in 0..count {
                let drop = stochastic_depth_prob * index as f64 / (blocks - 1).max(1) as f64;
                layers.push(Block::new(width, *layer_scale, drop, rng)?);
                index += 1;
            }
            features.push(layers);
        }
        let last = channels[channels.len() - 1];
        let classifier = Sequential::new()
            .add(LayerNorm2d::new(last, EPS, rng)?)
            .add(Flatten::default())
            .add(Linear::new(last, *num_classes, rng)?);
        let model = ConvNeXt { features, classifier };
        model.apply(&mut |name, parameter| {
            let shape = parameter.shape().clone();
            match shape.rank() {
                2 | 4 => parameter.assign(&init::trunc_normal(shape, 0.0, 0.02, -2.0, 2.0, rng)?),
                1 if name.ends_with("bias") => parameter.assign(&parameter.zeros_like()),
                _ => Ok(()),
            }
        })?;
        Ok(model)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// An input that is no image of three channels, or too small for the strides.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("ConvNeXt", x, 3)?;
        self.classifier.forward(&self.features.forward(x)?.mean_axis([2, 3], true)?)
    }
}

layer!(Block, ConvNeXt);
