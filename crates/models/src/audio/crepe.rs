//! CREPE, which finds the pitch of a voice or an instrument, with torchcrepe's parameter names.
//!
//! Kim et al.: CREPE: a convolutional representation for pitch estimation (2018).

use nn::{
    BatchNorm2d, BatchNormConfig, Conv2d, ConvConfig, Linear, Module, Visitor, VisitorMut,
    functional::max_pool2d,
};
use tensor_core::{Error, Generator, Result, Tensor};

use crate::{WeightSource, as_layer::layer};

/// The samples of a frame, at 16 kHz.
const FRAME: usize = 1024;

/// The number of pitches, 20 cents apart.
const PITCH_BINS: usize = 360;

/// The number of samples whose halves the last layer still sees: 1024 / 4 / 2⁶.
const LAST_LENGTH: usize = 4;

/// The configuration of a [`Crepe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrepeConfig {
    /// The output channels of the six convolutions.
    pub channels: [usize; 6],
}

impl CrepeConfig {
    /// torchcrepe's `full`.
    pub fn full() -> CrepeConfig {
        CrepeConfig { channels: [1024, 128, 128, 128, 256, 512] }
    }

    /// torchcrepe's `tiny`.
    pub fn tiny() -> CrepeConfig {
        CrepeConfig { channels: [128, 16, 16, 16, 32, 64] }
    }
}

/// A convolution with its norm, which are named `conv1` and `conv1_BN` and so on.
#[derive(Debug)]
struct Stage {
    conv: Conv2d,
    norm: BatchNorm2d,
    /// The zeros before and after the samples.
    padding: (usize, usize),
}

impl Stage {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.pad(&[(0, 0), (0, 0), self.padding, (0, 0)], 0.0)?;
        let x = self.norm.forward(&self.conv.forward(&x)?.relu())?;
        max_pool2d(&x, [2, 1])
    }
}

/// Six convolutions over a frame of samples, and a classifier of 360 pitches. torchcrepe's `Crepe`.
#[derive(Debug)]
pub struct Crepe {
    stages: Vec<Stage>,
    classifier: Linear,
}

impl Module for Crepe {
    fn visit(&self, visitor: &mut Visitor) {
        for (number, stage) in (1..).zip(&self.stages) {
            visitor.field(&format!("conv{number}"), &stage.conv);
            visitor.field(&format!("conv{number}_BN"), &stage.norm);
        }
        visitor.field("classifier", &self.classifier);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        for stage in &mut self.stages {
            stage.conv.visit_mut(visitor);
            stage.norm.visit_mut(visitor);
        }
        self.classifier.visit_mut(visitor);
    }
}

impl Crepe {
    /// A network with the parameters of a source; with a generator, they have PyTorch's initial values.
    ///
    /// # Errors
    /// A convolution without channels, parameters that do not match, or too little memory.
    pub fn new(config: &CrepeConfig, weights: impl Into<WeightSource>) -> Result<Crepe> {
        weights.into().network(|rng| Crepe::initial(config, rng))
    }

    fn initial(config: &CrepeConfig, rng: &Generator) -> Result<Crepe> {
        let (mut stages, mut from) = (Vec::new(), 1);
        for (index, to) in config.channels.into_iter().enumerate() {
            let (kernel, stride, padding) = if index == 0 { (512, 4, (254, 254)) } else { (64, 1, (31, 32)) };
            let options = ConvConfig { stride: [stride, 1], ..Default::default() };
            // The weight of a batch in torchcrepe's running statistics is 0: they keep their values.
            let norm = BatchNormConfig { eps: 0.001, momentum: Some(0.0), ..Default::default() };
            stages.push(Stage {
                conv: Conv2d::with_config(from, to, [kernel, 1], options, rng)?,
                norm: BatchNorm2d::with_config(to, norm, rng.device())?,
                padding,
            });
            from = to;
        }
        Ok(Crepe { stages, classifier: Linear::new(from * LAST_LENGTH, PITCH_BINS, rng)? })
    }

    /// The activation of each pitch, between 0 and 1, for frames `[N, 1024]` of samples at 16 kHz with mean
    /// 0 and deviation 1: `[N, 360]`. [`Crepe::frequency`] reads it.
    ///
    /// # Errors
    /// Frames of another shape.
    pub fn forward(&self, frames: &Tensor) -> Result<Tensor> {
        let &[n, FRAME] = frames.dims() else {
            let message = format!("frames have the shape [N, {FRAME}], not {}", frames.shape());
            return Err(Error::invalid("Crepe", message));
        };
        let mut x = frames.reshape([n, 1, FRAME, 1])?;
        for stage in &self.stages {
            x = stage.forward(&x)?;
        }
        Ok(self.classifier.forward(&x.permute([0, 2, 1, 3])?.flatten(1, -1)?)?.sigmoid())
    }

    /// The pitch of each frame in Hz, from the activations `[N, 360]`: the mean of the nine pitches around
    /// the strongest one, weighted by their activations, as the authors' package `crepe` decodes them.
    ///
    /// # Errors
    /// Activations of another shape, or a value that cannot be computed.
    pub fn frequency(activations: &Tensor) -> Result<Vec<f64>> {
        if activations.rank() != 2 || activations.dims()[1] != PITCH_BINS {
            let message = format!("activations are [N, {PITCH_BINS}], not {}", activations.shape());
            return Err(Error::invalid("Crepe", message));
        }
        let values = activations.to_f64_vec()?;
        let pitch = |row: &[f64]| {
            let best = (0..row.len()).fold(0, |best, bin| if row[bin] > row[best] { bin } else { best });
            let near = best.saturating_sub(4)..(best + 5).min(PITCH_BINS);
            let total: f64 = row[near.clone()].iter().sum();
            // The first pitch is 1997.379 cents above 10 Hz.
            let cents: f64 = near.map(|bin| row[bin] * (20.0 * bin as f64 + 1_997.379_408_437_619)).sum();
            10.0 * 2f64.powf(cents / total / 1200.0)
        };
        Ok(values.chunks(PITCH_BINS).map(pitch).collect())
    }
}

layer!(Crepe);
