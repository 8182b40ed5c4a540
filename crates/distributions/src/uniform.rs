//! The uniform distribution.

use tensor_core::{Generator, Operand, Result, Shape, Tensor, at_caller, set_grad_enabled};

use crate::{
    Cumulative, Distribution, Reparameterized,
    parameters::{beside, hold, hold_finite, over_draws, over_one, settle, uniform_noise, where_else, wide},
};

/// The uniform distribution on [low, high). `torch.distributions.Uniform`.
#[derive(Clone, Debug)]
pub struct Uniform {
    pub(crate) low: Tensor,
    pub(crate) high: Tensor,
}

impl Uniform {
    /// A uniform distribution between the given bounds; the two broadcast.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices.
    #[track_caller]
    pub fn new(low: &Tensor, high: impl Into<Operand>) -> Result<Uniform> {
        let high = beside(low, high.into())?;
        let [low, high] = settle("Uniform", ["low", "high"], [low.clone(), high])?;
        Ok(Uniform { low, high })
    }

    /// The lower bound, expanded to the batch.
    pub fn low(&self) -> &Tensor {
        &self.low
    }

    /// The upper bound, expanded to the batch.
    pub fn high(&self) -> &Tensor {
        &self.high
    }

    fn width(&self) -> Tensor {
        &self.high - &self.low
    }
}

impl Distribution for Uniform {
    fn batch_shape(&self) -> Shape {
        self.low.shape().clone()
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| set_grad_enabled(false, || self.draw_reparameterized(shape, rng)))
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        const OP: &str = "Uniform.log_prob";
        at_caller(|| {
            let [x, low, high] = over_one(OP, [value.clone(), self.low.clone(), self.high.clone()])?;
            let inside = x.ge(&low)?.bitwise_and(&x.lt(&high)?)?;
            where_else(&inside, &(high - low).log().neg(), f64::NEG_INFINITY)
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| Ok(self.width().log()))
    }

    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        at_caller(|| Ok(&self.low * 0.5 + &self.high * 0.5))
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| Ok(self.width().powi(2) / 12.0))
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        const OP: &str = "Uniform";
        hold_finite(OP, "low", &self.low)?;
        hold_finite(OP, "high", &self.high)?;
        hold(OP, "high", "above low", &self.high.gt(&self.low)?)
    }
}

impl Reparameterized for Uniform {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let dtype = self.low.dtype();
            let noise = uniform_noise(&self.low, &shape, rng)?;
            let (low, high) =
                (wide(&over_draws(&self.low, &shape)?)?, wide(&over_draws(&self.high, &shape)?)?);
            let width = &high - &low;
            // If the width overflows, half of it is added twice.
            let half = &high * 0.5 - &low * 0.5;
            let twice = (&low + &noise * &half) + &noise * &half;
            let drawn = width.isfinite().where_cond(&(&noise * &width + &low), &twice)?;
            // Rounding may move the sum out of the bounds, so it is clamped, without a gradient. `high`
            // minus a little more than half a step rounds to the number below `high`.
            let half_step = dtype.epsilon() * 0.5;
            let step = (high.detach().abs() * (half_step * (1.0 + dtype.epsilon())))
                .maximum_scalar(dtype.smallest_normal());
            let held = drawn.detach().minimum(&(high.detach() - step))?.maximum(&low.detach())?;
            let moved = held.sub(&drawn.detach())?.detach();
            drawn.add(&moved)?.to_dtype(dtype)
        })
    }
}

impl Cumulative for Uniform {
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [x, low, width] = over_one("Uniform.cdf", [value.clone(), self.low.clone(), self.width()])?;
            Ok(((x - low) / width).clamp(0.0, 1.0))
        })
    }

    #[track_caller]
    fn icdf(&self, probability: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [q, low, width] =
                over_one("Uniform.icdf", [probability.clone(), self.low.clone(), self.width()])?;
            let inside = q.ge_scalar(0.0).bitwise_and(&q.le_scalar(1.0))?;
            where_else(&inside, &(q * width + low), f64::NAN)
        })
    }
}
