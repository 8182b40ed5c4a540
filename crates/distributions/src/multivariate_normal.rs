//! The multivariate normal distribution. `linalg` factors the covariance and solves triangular systems.

use std::f64::consts::PI;

use linalg::{cholesky, solve_triangular};
use tensor_core::{Error, Generator, Result, Shape, Tensor, at_caller, set_grad_enabled};

use crate::{
    Distribution, Reparameterized,
    parameters::{hold, hold_finite, join, normal_noise, one_device, over_draws, require_float},
};

/// The multivariate normal distribution over vectors `[n]`, with a mean μ (`loc`) and a covariance Σ = L·Lᵀ:
/// the density e^(−(x − μ)ᵀ·Σ⁻¹·(x − μ)/2) / √((2π)ⁿ·det Σ). `torch.distributions.MultivariateNormal`.
///
/// The mean is `[…, n]` and the covariance `[…, n, n]`; the axes before them broadcast to the batch.
#[derive(Clone, Debug)]
pub struct MultivariateNormal {
    pub(crate) loc: Tensor,
    /// L, not expanded to the batch.
    pub(crate) scale_tril: Tensor,
    batch: Shape,
}

impl MultivariateNormal {
    /// A multivariate normal distribution with the given mean `[…, n]` and covariance `[…, n, n]`, of which
    /// the lower triangle is read; the axes before them broadcast.
    ///
    /// # Errors
    /// Dtypes that are not floating-point, sizes that do not fit, two devices. A covariance that is not
    /// positive-definite is an error when it is computed.
    #[track_caller]
    pub fn new(loc: &Tensor, covariance: &Tensor) -> Result<MultivariateNormal> {
        at_caller(|| {
            check("covariance", loc, covariance)?;
            MultivariateNormal::from_scale_tril(loc, &cholesky(covariance, false)?)
        })
    }

    /// A multivariate normal distribution with the given mean `[…, n]` and precision Σ⁻¹ `[…, n, n]`, the
    /// inverse of a covariance.
    ///
    /// # Errors
    /// As [`MultivariateNormal::new`].
    #[track_caller]
    pub fn from_precision(loc: &Tensor, precision: &Tensor) -> Result<MultivariateNormal> {
        at_caller(|| {
            let n = check("precision", loc, precision)?;
            // With both axes reversed P = R·Rᵀ, so that L is the inverse of R after it is reversed back and
            // transposed.
            let factor = cholesky(&precision.flip([-2, -1])?, false)?.flip([-2, -1])?.transpose(-2, -1)?;
            let eye = Tensor::eye(n, (factor.dtype(), &factor.device()))?;
            let scale_tril = solve_triangular(&factor, &eye, false, true, false)?;
            MultivariateNormal::from_scale_tril(loc, &scale_tril)
        })
    }

    /// A multivariate normal distribution with the given mean `[…, n]` and a lower triangular L `[…, n, n]`,
    /// whose diagonal is above 0; the covariance is L·Lᵀ.
    ///
    /// # Errors
    /// As [`MultivariateNormal::new`].
    #[track_caller]
    pub fn from_scale_tril(loc: &Tensor, scale_tril: &Tensor) -> Result<MultivariateNormal> {
        at_caller(|| {
            let n = check("scale_tril", loc, scale_tril)?;
            let dtype = loc.dtype().promote(scale_tril.dtype());
            let (loc, scale_tril) = (loc.to_dtype(dtype)?, scale_tril.to_dtype(dtype)?);
            let front =
                |t: &Tensor, axes: usize| t.dims()[..t.rank() - axes].iter().copied().collect::<Shape>();
            let batch = front(&loc, 1).broadcast(&front(&scale_tril, 2), "MultivariateNormal")?;
            let loc = loc.expand(join(&batch, &Shape::from([n])).dims())?;
            Ok(MultivariateNormal { loc, scale_tril, batch })
        })
    }

    /// μ, `batch + [n]`.
    pub fn loc(&self) -> &Tensor {
        &self.loc
    }

    /// L, `batch + [n, n]`.
    ///
    /// # Errors
    /// None.
    #[track_caller]
    pub fn scale_tril(&self) -> Result<Tensor> {
        let n = self.size();
        self.scale_tril.expand(join(&self.batch, &Shape::from([n, n])).dims())
    }

    /// Σ, `batch + [n, n]`.
    ///
    /// # Errors
    /// None.
    #[track_caller]
    pub fn covariance(&self) -> Result<Tensor> {
        at_caller(|| {
            let l = self.scale_tril()?;
            l.matmul(&l.transpose(-2, -1)?)
        })
    }

    pub(crate) fn size(&self) -> usize {
        self.loc.dims().last().copied().unwrap_or(0)
    }

    /// Half of ln det Σ.
    #[track_caller]
    pub(crate) fn half_log_det(&self) -> Result<Tensor> {
        self.scale_tril.diagonal(0, -2, -1)?.log().sum_axis(-1, false)
    }

    /// |L⁻¹·d|² for differences d `[…, n]`.
    #[track_caller]
    pub(crate) fn mahalanobis(&self, d: &Tensor) -> Result<Tensor> {
        let l = &self.scale_tril;
        if l.rank() > 2 {
            let solved = solve_triangular(l, &d.unsqueeze(-1)?, false, true, false)?;
            return solved.powi(2).sum_axis([-2, -1], false);
        }
        // A single L: all differences are columns of one system.
        let n = self.size();
        let rows: Shape = d.dims()[..d.rank() - 1].iter().copied().collect();
        let columns = d.reshape([rows.numel(), n])?.t()?;
        solve_triangular(l, &columns, false, true, false)?.powi(2).sum_axis(0, false)?.reshape(rows)
    }
}

/// The size n, if the mean and the matrix fit.
#[track_caller]
fn check(name: &str, loc: &Tensor, matrix: &Tensor) -> Result<usize> {
    const OP: &str = "MultivariateNormal";
    require_float(OP, "loc", loc)?;
    require_float(OP, name, matrix)?;
    one_device(OP, &[loc, matrix])?;
    match (loc.dims(), matrix.dims()) {
        (&[.., n], &[.., rows, columns]) if rows == n && columns == n && n > 0 => Ok(n),
        _ => {
            let message = format!(
                "loc {} and {name} {}: give [..., n] and [..., n, n] with the same n",
                loc.shape(),
                matrix.shape()
            );
            Err(Error::invalid(OP, message))
        }
    }
}

impl Distribution for MultivariateNormal {
    fn batch_shape(&self) -> Shape {
        self.batch.clone()
    }

    fn event_shape(&self) -> Shape {
        Shape::from([self.size()])
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| set_grad_enabled(false, || self.draw_reparameterized(shape, rng)))
    }

    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        const OP: &str = "MultivariateNormal.log_prob";
        at_caller(|| {
            one_device(OP, &[value, &self.loc])?;
            let shape = value.shape().broadcast(self.loc.shape(), OP)?;
            let far = value.expand(shape.dims())?.sub(&self.loc)?;
            let constant = 0.5 * self.size() as f64 * (2.0 * PI).ln();
            (self.mahalanobis(&far)? * -0.5 - constant).sub(&self.half_log_det()?)
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| {
            let constant = 0.5 * self.size() as f64 * (1.0 + (2.0 * PI).ln());
            (self.half_log_det()? + constant).expand(self.batch.dims())
        })
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.loc.clone())
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| self.scale_tril.powi(2).sum_axis(-1, false)?.expand(self.loc.dims()))
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        const OP: &str = "MultivariateNormal";
        hold_finite(OP, "loc", &self.loc)?;
        hold_finite(OP, "scale_tril", &self.scale_tril)?;
        let above = self.scale_tril.triu(1)?;
        hold(OP, "scale_tril", "lower triangular", &above.eq_scalar(0.0))?;
        let diagonal = self.scale_tril.diagonal(0, -2, -1)?;
        hold(OP, "the diagonal of scale_tril", "above 0", &diagonal.gt_scalar(0.0))
    }
}

impl Reparameterized for MultivariateNormal {
    #[track_caller]
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let noise = normal_noise(&self.loc, &shape, rng)?;
            // Rows: noise · Lᵀ.
            let lt = self.scale_tril.transpose(-2, -1)?;
            let moved = if lt.rank() == 2 {
                noise.matmul(&lt)?
            } else {
                noise.unsqueeze(-2)?.matmul(&lt)?.squeeze(-2)?
            };
            moved.add(&over_draws(&self.loc, &shape)?)
        })
    }
}
