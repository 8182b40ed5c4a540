//! Dropout.

use std::sync::atomic::{AtomicU64, Ordering};

use tensor_core::{Error, Generator, Result, Tensor};

use super::layer;
use crate::{Field, Module, Training, Visitor, VisitorMut};

/// In training, each element is set to 0 with probability p and the others are scaled by 1 / (1 − p); in evaluation,
/// the input itself. `torch.nn.Dropout`.
///
/// Srivastava et al.: Dropout, a simple way to prevent neural networks from overfitting (2014).
///
/// Each layer draws from a stream of its own, whose seed it takes from the generator it is made with; it drops the same
/// elements on every device.
#[derive(Debug)]
pub struct Dropout {
    p: f64,
    seed: u64,
    /// Where the stream stands.
    drawn: AtomicU64,
    training: Training,
}

impl Dropout {
    /// Drops with probability `p`.
    ///
    /// # Errors
    /// A `p` outside [0, 1).
    #[track_caller]
    pub fn new(p: f64, rng: &Generator) -> Result<Dropout> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::invalid(
                "Dropout",
                format!("probability {p}: give one of at least 0 and below 1"),
            ));
        }
        Ok(Dropout { p, seed: rng.next_u64(), drawn: AtomicU64::new(0), training: Training::default() })
    }

    /// The probability of dropping an element.
    pub fn p(&self) -> f64 {
        self.p
    }
}

impl Dropout {
    /// The input with elements dropped, if the layer trains.
    ///
    /// # Errors
    /// A device that cannot draw so many numbers.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if !*self.training || self.p == 0.0 {
            return Ok(input.clone());
        }
        let rng = Generator::seed(self.seed, &input.device());
        rng.set_offset(self.drawn.fetch_add(input.numel() as u64, Ordering::Relaxed));
        let kept = Tensor::rand(input.shape(), &rng)?.ge_scalar(self.p);
        let dtype = if input.dtype().is_float() { input.dtype() } else { tensor_core::DType::F32 };
        input.mul(&kept.to_dtype(dtype)?.mul_scalar(1.0 / (1.0 - self.p)))
    }
}

layer!(Dropout);

impl Module for Dropout {
    fn visit<'a>(&'a self, _: &mut Visitor<'a>) {}
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        self.training.visit_field_mut(visitor);
    }
}
