//! The exponential distribution.

use tensor_core::{Generator, Result, Shape, Tensor, at_caller, set_grad_enabled};

use crate::{
    Cumulative, Distribution, Reparameterized,
    parameters::{hold_positive, over_draws, over_one, settle, uniform_noise, where_else, wide},
};

/// The exponential distribution: the density λ·e^(−λx) for x ≥ 0, with a `rate` λ above 0.
/// `torch.distributions.Exponential`.
#[derive(Clone, Debug)]
pub struct Exponential {
    pub(crate) rate: Tensor,
}

impl Exponential {
    /// An exponential distribution with this rate; its batch has the rate's shape.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn new(rate: &Tensor) -> Result<Exponential> {
        let [rate] = settle("Exponential", ["rate"], [rate.clone()])?;
        Ok(Exponential { rate })
    }

    /// The rate λ.
    pub fn rate(&self) -> &Tensor {
        &self.rate
    }
}

impl Distribution for Exponential {
    fn batch_shape(&self) -> Shape {
        self.rate.shape().clone()
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| set_grad_enabled(false, || self.draw_reparameterized(shape, rng)))
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [x, rate] = over_one("Exponential.log_prob", [value.clone(), self.rate.clone()])?;
            where_else(&x.ge_scalar(0.0), &(rate.log() - rate * &x), f64::NEG_INFINITY)
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| Ok(1.0 - self.rate.log()))
    }

    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        Ok(self.rate.reciprocal())
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        Ok(self.rate.powi(-2))
    }

    #[track_caller]
    fn stddev(&self) -> Result<Tensor> {
        Ok(self.rate.reciprocal())
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        hold_positive("Exponential", "rate", &self.rate)
    }
}

impl Reparameterized for Exponential {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let wait = uniform_noise(&self.rate, &shape, rng)?.neg().log1p().neg();
            let wait = wait.div(&wide(&over_draws(&self.rate, &shape)?)?)?;
            wait.minimum_scalar(self.rate.dtype().greatest()).to_dtype(self.rate.dtype())
        })
    }
}

impl Cumulative for Exponential {
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [x, rate] = over_one("Exponential.cdf", [value.clone(), self.rate.clone()])?;
            Ok((x.maximum_scalar(0.0) * rate).neg().expm1().neg())
        })
    }

    #[track_caller]
    fn icdf(&self, probability: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [q, rate] = over_one("Exponential.icdf", [probability.clone(), self.rate.clone()])?;
            let wait = (-&q).log1p().neg() / rate;
            where_else(&q.ge_scalar(0.0), &wait, f64::NAN)
        })
    }
}
