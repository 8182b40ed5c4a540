//! The gamma, beta and Dirichlet distributions. They are drawn by rejection, and gradients flow through
//! `gamma_gradient`.

use tensor_core::{Error, Generator, Operand, Result, Shape, Tensor, at_caller, set_grad_enabled};

use crate::{
    Distribution, Reparameterized,
    gamma_gradient::log_draws,
    parameters::{
        above_zero_in, beside, hold_positive, over_draws, over_one, require_float, settle, where_else, wide,
    },
};

/// The gamma distribution: the density βᵅ·x^(α−1)·e^(−βx) / Γ(α) for x ≥ 0, with a `concentration` α and a
/// `rate` β above 0. `torch.distributions.Gamma`.
#[derive(Clone, Debug)]
pub struct Gamma {
    pub(crate) concentration: Tensor,
    pub(crate) rate: Tensor,
}

impl Gamma {
    /// A gamma distribution with the given concentration and rate; the two broadcast.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices.
    #[track_caller]
    pub fn new(concentration: &Tensor, rate: impl Into<Operand>) -> Result<Gamma> {
        let rate = beside(concentration, rate.into())?;
        let [concentration, rate] =
            settle("Gamma", ["concentration", "rate"], [concentration.clone(), rate])?;
        Ok(Gamma { concentration, rate })
    }

    /// α, expanded to the batch.
    pub fn concentration(&self) -> &Tensor {
        &self.concentration
    }

    /// β, expanded to the batch.
    pub fn rate(&self) -> &Tensor {
        &self.rate
    }
}

impl Distribution for Gamma {
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
            let [x, a, rate] =
                over_one("Gamma.log_prob", [value.clone(), self.concentration.clone(), self.rate.clone()])?;
            let inside = x.ge_scalar(0.0);
            let x = where_else(&inside, &x, 1.0)?;
            let log = a.xlogy(&rate)? + (&a - 1.0).xlogy(&x)? - rate * x - a.lgamma();
            where_else(&inside, &log, f64::NEG_INFINITY)
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| {
            let a = &self.concentration;
            Ok(a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma())
        })
    }

    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        at_caller(|| Ok(&self.concentration / &self.rate))
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| Ok(&self.concentration / self.rate.powi(2)))
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        hold_positive("Gamma", "concentration", &self.concentration)?;
        hold_positive("Gamma", "rate", &self.rate)
    }
}

/// The logarithms of gamma draws of shape `shape + batch`, in the dtype that the concentration is computed
/// in.
#[track_caller]
fn logs(concentration: &Tensor, shape: &Shape, rng: &Generator) -> Result<Tensor> {
    log_draws(&over_draws(concentration, shape)?.to_dtype(concentration.dtype().compute())?, rng)
}

impl Reparameterized for Gamma {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let log = logs(&self.concentration, &shape, rng)?;
            let draws = log.exp().div(&wide(&over_draws(&self.rate, &shape)?)?)?;
            above_zero_in(&draws, self.rate.dtype())
        })
    }
}

/// The beta distribution: the density x^(a−1)·(1 − x)^(b−1) / B(a, b) on [0, 1], with concentrations a
/// (`concentration1`) and b (`concentration0`) above 0. `torch.distributions.Beta`.
#[derive(Clone, Debug)]
pub struct Beta {
    pub(crate) concentration1: Tensor,
    pub(crate) concentration0: Tensor,
}

impl Beta {
    /// A beta distribution with concentrations a (`concentration1`) and b (`concentration0`); the two
    /// broadcast.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices.
    #[track_caller]
    pub fn new(concentration1: &Tensor, concentration0: impl Into<Operand>) -> Result<Beta> {
        let both = [concentration1.clone(), beside(concentration1, concentration0.into())?];
        let [concentration1, concentration0] = settle("Beta", ["concentration1", "concentration0"], both)?;
        Ok(Beta { concentration1, concentration0 })
    }

    /// a, expanded to the batch.
    pub fn concentration1(&self) -> &Tensor {
        &self.concentration1
    }

    /// b, expanded to the batch.
    pub fn concentration0(&self) -> &Tensor {
        &self.concentration0
    }

    /// ln B(a, b).
    pub(crate) fn log_normalizer(&self) -> Tensor {
        log_beta(&self.concentration1, &self.concentration0)
    }
}

/// ln B(a, b) for a and b of one shape.
#[track_caller]
fn log_beta(a: &Tensor, b: &Tensor) -> Tensor {
    a.lgamma() + b.lgamma() - (a + b).lgamma()
}

impl Distribution for Beta {
    fn batch_shape(&self) -> Shape {
        self.concentration0.shape().clone()
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| set_grad_enabled(false, || self.draw_reparameterized(shape, rng)))
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let all = [value.clone(), self.concentration1.clone(), self.concentration0.clone()];
            let [x, a, b] = over_one("Beta.log_prob", all)?;
            let inside = x.ge_scalar(0.0).bitwise_and(&x.le_scalar(1.0))?;
            let x = where_else(&inside, &x, 0.5)?;
            let log = (&a - 1.0).xlogy(&x)? + (&b - 1.0).xlogy(1.0 - x)? - log_beta(&a, &b);
            where_else(&inside, &log, f64::NEG_INFINITY)
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| {
            let (a, b) = (&self.concentration1, &self.concentration0);
            let sum = a + b;
            let of_a = (1.0 - a) * a.digamma();
            let of_b = (1.0 - b) * b.digamma();
            Ok(self.log_normalizer() + of_a + of_b + (&sum - 2.0) * sum.digamma())
        })
    }

    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        at_caller(|| Ok(&self.concentration1 / (&self.concentration1 + &self.concentration0)))
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| {
            let sum = &self.concentration1 + &self.concentration0;
            Ok(&self.concentration1 * &self.concentration0 / (sum.powi(2) * (sum + 1.0)))
        })
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        hold_positive("Beta", "concentration1", &self.concentration1)?;
        hold_positive("Beta", "concentration0", &self.concentration0)
    }
}

impl Reparameterized for Beta {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let ones = logs(&self.concentration1, &shape, rng)?;
            let odds = ones.sub(&logs(&self.concentration0, &shape, rng)?)?;
            let dtype = self.concentration1.dtype();
            odds.sigmoid().clamp(dtype.smallest_normal(), 1.0 - dtype.epsilon() * 0.5).to_dtype(dtype)
        })
    }
}

/// The Dirichlet distribution over k shares that add up to 1: a density in proportion to Πxᵢ^(αᵢ−1), with
/// concentrations α `[…, k]` above 0. `torch.distributions.Dirichlet`.
#[derive(Clone, Debug)]
pub struct Dirichlet {
    pub(crate) concentration: Tensor,
}

impl Dirichlet {
    /// A Dirichlet distribution with these concentrations, `batch + [k]`.
    ///
    /// # Errors
    /// A dtype that is not floating-point, a scalar.
    #[track_caller]
    pub fn new(concentration: &Tensor) -> Result<Dirichlet> {
        const OP: &str = "Dirichlet";
        require_float(OP, "concentration", concentration)?;
        if concentration.rank() == 0 {
            return Err(Error::invalid(
                OP,
                "concentration is a scalar: its last axis holds the shares; use .unsqueeze(0)?",
            ));
        }
        Ok(Dirichlet { concentration: concentration.clone() })
    }

    /// α, `batch + [k]`.
    pub fn concentration(&self) -> &Tensor {
        &self.concentration
    }
}

impl Distribution for Dirichlet {
    fn batch_shape(&self) -> Shape {
        self.concentration.dims()[..self.concentration.rank() - 1].iter().copied().collect()
    }

    fn event_shape(&self) -> Shape {
        self.concentration.dims()[self.concentration.rank() - 1..].iter().copied().collect()
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| set_grad_enabled(false, || self.draw_reparameterized(shape, rng)))
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        const OP: &str = "Dirichlet.log_prob";
        at_caller(|| {
            let [x, a] = over_one(OP, [value.clone(), self.concentration.clone()])?;
            let powers = (&a - 1.0).xlogy(&x)?.sum_axis(-1, false)?;
            Ok(powers + a.sum_axis(-1, false)?.lgamma() - a.lgamma().sum_axis(-1, false)?)
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| {
            let a = &self.concentration;
            let k = a.dims().last().copied().unwrap_or(0) as f64;
            let sum = a.sum_axis(-1, false)?;
            let each = ((a - 1.0) * a.digamma()).sum_axis(-1, false)?;
            Ok(a.lgamma().sum_axis(-1, false)? - sum.lgamma() - (k - &sum) * sum.digamma() - each)
        })
    }

    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        at_caller(|| self.concentration.div(&self.concentration.sum_axis(-1, true)?))
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| {
            let sum = self.concentration.sum_axis(-1, true)?;
            let mean = self.concentration.div(&sum)?;
            (&mean * (1.0 - &mean)).div(&(sum + 1.0))
        })
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        hold_positive("Dirichlet", "concentration", &self.concentration)
    }
}

impl Reparameterized for Dirichlet {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let dtype = self.concentration.dtype();
            let shares = logs(&self.concentration, &shape, rng)?.softmax(-1)?;
            shares.maximum_scalar(dtype.smallest_normal()).to_dtype(dtype)
        })
    }
}
