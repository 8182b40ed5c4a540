//! The normal and the log-normal distribution.

use std::f64::consts::PI;

use tensor_core::{Generator, Operand, Result, Shape, Tensor, at_caller, set_grad_enabled};

use crate::{
    Cumulative, Distribution, Reparameterized,
    parameters::{
        above_zero_in, beside, hold_finite, hold_positive, normal_noise, over_draws, over_one, settle,
        where_else, wide,
    },
};

/// The normal distribution: the density e^(−(x − μ)²/2σ²) / √(2πσ²), with a mean μ (`loc`) and a standard
/// deviation σ (`scale`) above 0. `torch.distributions.Normal`.
#[derive(Clone, Debug)]
pub struct Normal {
    pub(crate) loc: Tensor,
    pub(crate) scale: Tensor,
}

impl Normal {
    /// A normal distribution with the given mean and standard deviation; the two broadcast.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices.
    #[track_caller]
    pub fn new(loc: &Tensor, scale: impl Into<Operand>) -> Result<Normal> {
        Normal::of("Normal", loc, scale.into())
    }

    #[track_caller]
    fn of(op: &'static str, loc: &Tensor, scale: Operand) -> Result<Normal> {
        let scale = beside(loc, scale)?;
        let [loc, scale] = settle(op, ["loc", "scale"], [loc.clone(), scale])?;
        Ok(Normal { loc, scale })
    }

    /// The mean, expanded to the batch.
    pub fn loc(&self) -> &Tensor {
        &self.loc
    }

    /// The standard deviation, expanded to the batch.
    pub fn scale(&self) -> &Tensor {
        &self.scale
    }

    #[track_caller]
    fn log_density(&self, op: &'static str, value: &Tensor) -> Result<Tensor> {
        let [x, loc, scale] = over_one(op, [value.clone(), self.loc.clone(), self.scale.clone()])?;
        let z = (x - loc) / &scale;
        Ok(z.powi(2) * -0.5 - scale.log() - 0.5 * (2.0 * PI).ln())
    }

    #[track_caller]
    fn share_below(&self, op: &'static str, value: &Tensor) -> Result<Tensor> {
        let [x, loc, scale] = over_one(op, [value.clone(), self.loc.clone(), self.scale.clone()])?;
        let dtype = x.dtype().promote(loc.dtype());
        let z = (wide(&x)? - wide(&loc)?) / wide(&scale)?;
        z.ndtr().to_dtype(dtype)
    }

    #[track_caller]
    fn quantile(&self, op: &'static str, share: &Tensor) -> Result<Tensor> {
        let [q, loc, scale] = over_one(op, [share.clone(), self.loc.clone(), self.scale.clone()])?;
        let dtype = q.dtype().promote(loc.dtype());
        (wide(&q)?.ndtri() * wide(&scale)? + wide(&loc)?).to_dtype(dtype)
    }
}

impl Distribution for Normal {
    fn batch_shape(&self) -> Shape {
        self.loc.shape().clone()
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| set_grad_enabled(false, || self.draw_reparameterized(shape, rng)))
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| self.log_density("Normal.log_prob", value))
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| Ok(self.scale.log() + 0.5 * (1.0 + (2.0 * PI).ln())))
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.loc.clone())
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        Ok(self.scale.powi(2))
    }

    #[track_caller]
    fn stddev(&self) -> Result<Tensor> {
        Ok(self.scale.clone())
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        hold_finite("Normal", "loc", &self.loc)?;
        hold_positive("Normal", "scale", &self.scale)
    }
}

impl Reparameterized for Normal {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let noise = normal_noise(&self.loc, &shape, rng)?;
            noise.mul(&over_draws(&self.scale, &shape)?)?.add(&over_draws(&self.loc, &shape)?)
        })
    }
}

impl Cumulative for Normal {
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| self.share_below("Normal.cdf", value))
    }

    #[track_caller]
    fn icdf(&self, probability: &Tensor) -> Result<Tensor> {
        at_caller(|| self.quantile("Normal.icdf", probability))
    }
}

/// The log-normal distribution: draws whose logarithm is normal with mean μ (`loc`) and standard deviation σ
/// (`scale`) above 0. `torch.distributions.LogNormal`.
#[derive(Clone, Debug)]
pub struct LogNormal {
    pub(crate) log: Normal,
}

impl LogNormal {
    /// A log-normal distribution; `loc` and `scale` are the mean and standard deviation of the logarithm,
    /// and broadcast.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices.
    #[track_caller]
    pub fn new(loc: &Tensor, scale: impl Into<Operand>) -> Result<LogNormal> {
        Ok(LogNormal { log: Normal::of("LogNormal", loc, scale.into())? })
    }

    /// The normal distribution of the logarithm. PyTorch's `base_dist`.
    pub fn logarithm(&self) -> &Normal {
        &self.log
    }
}

impl Distribution for LogNormal {
    fn batch_shape(&self) -> Shape {
        self.log.batch_shape()
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| set_grad_enabled(false, || self.draw_reparameterized(shape, rng)))
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let inside = value.gt_scalar(0.0);
            let log = where_else(&inside, value, 1.0)?.log();
            where_else(
                &inside,
                &self.log.log_density("LogNormal.log_prob", &log)?.sub(&log)?,
                f64::NEG_INFINITY,
            )
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| self.log.entropy()?.add(&self.log.loc))
    }

    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        at_caller(|| Ok((&self.log.loc + self.log.scale.powi(2) * 0.5).exp()))
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| {
            let square = self.log.scale.powi(2);
            Ok(square.expm1() * (&self.log.loc * 2.0 + &square).exp())
        })
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        hold_finite("LogNormal", "loc", &self.log.loc)?;
        hold_positive("LogNormal", "scale", &self.log.scale)
    }
}

impl Reparameterized for LogNormal {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let log = self.log.draw_reparameterized(shape, rng)?;
            above_zero_in(&wide(&log)?.exp(), log.dtype())
        })
    }
}

impl Cumulative for LogNormal {
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let inside = value.gt_scalar(0.0);
            let log = where_else(&inside, value, 1.0)?.log();
            where_else(&inside, &self.log.share_below("LogNormal.cdf", &log)?, 0.0)
        })
    }

    #[track_caller]
    fn icdf(&self, probability: &Tensor) -> Result<Tensor> {
        at_caller(|| Ok(self.log.quantile("LogNormal.icdf", probability)?.exp()))
    }
}
