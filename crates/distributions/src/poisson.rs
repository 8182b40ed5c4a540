//! The Poisson distribution.

use tensor_core::{Error, Generator, Result, Shape, Tensor, at_caller};

use crate::{
    Distribution,
    parameters::{hold, over_draws, over_one, settle, where_else},
};

/// The Poisson distribution over counts k: P(k) = λᵏ·e^(−λ) / k!, with a `rate` λ of at least 0. Draws have
/// the rate's dtype. `torch.distributions.Poisson`.
#[derive(Clone, Debug)]
pub struct Poisson {
    pub(crate) rate: Tensor,
}

impl Poisson {
    /// A Poisson distribution with this rate; its batch has the rate's shape.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn new(rate: &Tensor) -> Result<Poisson> {
        let [rate] = settle("Poisson", ["rate"], [rate.clone()])?;
        Ok(Poisson { rate })
    }

    /// The rate λ.
    pub fn rate(&self) -> &Tensor {
        &self.rate
    }
}

impl Distribution for Poisson {
    fn batch_shape(&self) -> Shape {
        self.rate.shape().clone()
    }

    /// Uses [`Tensor::poisson`], which reads the rates.
    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| over_draws(&self.rate.detach(), &shape)?.poisson(rng))
    }

    /// Uses the log-gamma function, so that values that are no integers are accepted too.
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [k, rate] = over_one("Poisson.log_prob", [value.clone(), self.rate.clone()])?;
            let inside = k.ge_scalar(0);
            let k = where_else(&inside, &k, 0.0)?;
            where_else(&inside, &(k.xlogy(&rate)? - rate - (k + 1.0).lgamma()), f64::NEG_INFINITY)
        })
    }

    /// An error: the entropy has no closed form.
    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        Err(Error::invalid("Poisson.entropy", "there is no formula for it; average -log_prob over draws"))
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.rate.clone())
    }

    fn variance(&self) -> Result<Tensor> {
        Ok(self.rate.clone())
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        let fair = self.rate.ge_scalar(0.0).bitwise_and(&self.rate.isfinite())?;
        hold("Poisson", "rate", "finite and at least 0", &fair)
    }
}
