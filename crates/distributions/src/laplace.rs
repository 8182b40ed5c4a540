//! The Laplace distribution.

use tensor_core::{Generator, Operand, Result, Shape, Tensor, at_caller, set_grad_enabled};

use crate::{
    Cumulative, Distribution, Reparameterized,
    parameters::{
        beside, hold_finite, hold_positive, over_draws, over_one, settle, uniform_noise, where_else, wide,
    },
};

/// The Laplace distribution: the density e^(−|x − μ|/b) / 2b, with a mean μ (`loc`) and a `scale` b above 0.
/// `torch.distributions.Laplace`.
#[derive(Clone, Debug)]
pub struct Laplace {
    pub(crate) loc: Tensor,
    pub(crate) scale: Tensor,
}

impl Laplace {
    /// A Laplace distribution with the given mean and scale; the two broadcast.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices.
    #[track_caller]
    pub fn new(loc: &Tensor, scale: impl Into<Operand>) -> Result<Laplace> {
        let scale = beside(loc, scale.into())?;
        let [loc, scale] = settle("Laplace", ["loc", "scale"], [loc.clone(), scale])?;
        Ok(Laplace { loc, scale })
    }

    /// The mean, expanded to the batch.
    pub fn loc(&self) -> &Tensor {
        &self.loc
    }

    /// The scale, expanded to the batch.
    pub fn scale(&self) -> &Tensor {
        &self.scale
    }

    #[track_caller]
    fn with(&self, op: &'static str, value: &Tensor) -> Result<[Tensor; 3]> {
        over_one(op, [value.clone(), self.loc.clone(), self.scale.clone()])
    }
}

impl Distribution for Laplace {
    fn batch_shape(&self) -> Shape {
        self.loc.shape().clone()
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| set_grad_enabled(false, || self.draw_reparameterized(shape, rng)))
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [x, loc, scale] = self.with("Laplace.log_prob", value)?;
            Ok((&scale * 2.0).log().neg() - (x - loc).abs() / &scale)
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| Ok((&self.scale * 2.0).log() + 1.0))
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.loc.clone())
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| Ok(self.scale.powi(2) * 2.0))
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        hold_finite("Laplace", "loc", &self.loc)?;
        hold_positive("Laplace", "scale", &self.scale)
    }
}

impl Reparameterized for Laplace {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            // The noise is clamped into the open interval (−1, 1).
            let noise = uniform_noise(&self.loc, &shape, rng)? * 2.0 - 1.0;
            let noise = noise.maximum_scalar(noise.dtype().epsilon() - 1.0);
            let step = noise.sign() * noise.abs().neg().log1p();
            let (loc, scale) = (over_draws(&self.loc, &shape)?, over_draws(&self.scale, &shape)?);
            wide(&loc)?.sub(&step.mul(&wide(&scale)?)?)?.to_dtype(self.loc.dtype())
        })
    }
}

impl Cumulative for Laplace {
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [x, loc, scale] = self.with("Laplace.cdf", value)?;
            let far = x - loc;
            // The nearer tail, half of e^(−|x − μ|/b): the value below the mean, and its complement above.
            let tail = (far.abs() / scale).neg().exp() * 0.5;
            far.gt_scalar(0.0).where_cond(&(1.0 - &tail), &tail)
        })
    }

    #[track_caller]
    fn icdf(&self, probability: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [q, loc, scale] = self.with("Laplace.icdf", probability)?;
            // Quantiles are computed from the probability of the nearer tail, which keeps the digits of
            // small probabilities; near the middle, from the distance to ½.
            let below = q.lt_scalar(0.5);
            let share = below.where_cond(&q, &(1.0 - &q))?;
            let far = share.lt_scalar(0.25);
            let of_far = (where_else(&far, &share, 0.25)? * 2.0).log();
            let of_near = ((where_else(&far.logical_not(), &share, 0.5)? - 0.5) * 2.0).log1p();
            let log = far.where_cond(&of_far, &of_near)?;
            let step = below.where_cond(&log.neg(), &log)?;
            Ok(loc - scale * step)
        })
    }
}
