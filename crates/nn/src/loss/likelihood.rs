//! Negative log-likelihoods of counts and of normal variables.

use std::f64::consts::PI;

use tensor_core::{Error, ErrorKind, Result, Tensor, autocast, caller_line};

use super::{Reduction, check_pair};

/// The Poisson negative log-likelihood: λ − y·ln λ for counts y and a rate λ, which is eˣ of the input, or x
/// itself. `torch.nn.PoissonNLLLoss`.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "PoissonNLLLoss")]
pub struct PoissonNllLoss {
    /// Whether the input is the logarithm of the rate; it is by default. Otherwise it is the rate, whose
    /// logarithm is computed as ln(x + eps).
    pub log_input: bool,
    /// Whether Stirling's approximation of ln y!, y·ln y − y + ½·ln(2π·y), is added where y is above 1. Off
    /// by default.
    pub full: bool,
    /// Keeps the logarithm of a rate finite: 1e-8 by default.
    pub eps: f64,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl Default for PoissonNllLoss {
    fn default() -> PoissonNllLoss {
        PoissonNllLoss { log_input: true, full: false, eps: 1e-8, reduction: Reduction::Mean }
    }
}

impl PoissonNllLoss {
    /// The loss of `input` and counts `target`, which have one shape.
    ///
    /// # Errors
    /// Two shapes (nothing is broadcast), dtypes that are not floating-point, or two devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        let cast = autocast::cast("poisson_nll_loss", [input, target], [])?;
        let ([input, target], []) = cast.tensors();
        check_pair("poisson_nll_loss", input, target)?;
        let mut losses = match self.log_input {
            true => input.exp().sub(&target.mul(input)?)?,
            false => input.sub(&target.mul(&input.add_scalar(self.eps).log())?)?,
        };
        if self.full {
            // No logarithm is taken of elements that are not used.
            let counted = target.gt_scalar(1.0);
            let y = counted.where_cond(target, &target.full_like(1.0))?;
            let stirling = y.mul(&y.log())?.sub(&y)?.add(&y.mul_scalar(2.0 * PI).log().mul_scalar(0.5))?;
            losses = losses.add(&counted.where_cond(&stirling, &stirling.zeros_like())?)?;
        }
        Ok(self.reduction.apply(&losses))
    }
}

/// The Gaussian negative log-likelihood: ½·(ln v + (x − y)² / v) for means x, targets y and variances v.
/// `torch.nn.GaussianNLLLoss`.
///
/// Variances are clamped to eps or more; the gradient ignores the clamping, as in PyTorch. (PyTorch refuses
/// negative variances, for which it reads them on the host; here they are clamped too.)
#[derive(Clone, Copy, Debug)]
#[doc(alias = "GaussianNLLLoss")]
pub struct GaussianNllLoss {
    /// Whether the constant ½·ln 2π is added. Off by default.
    pub full: bool,
    /// The least variance, 1e-6 by default.
    pub eps: f64,
    /// The reduction of the losses: the mean by default.
    pub reduction: Reduction,
}

impl Default for GaussianNllLoss {
    fn default() -> GaussianNllLoss {
        GaussianNllLoss { full: false, eps: 1e-6, reduction: Reduction::Mean }
    }
}

impl GaussianNllLoss {
    /// The loss of `input` and `target`, which broadcast, with variances of the input's shape, with axes of
    /// size 1, or without the last axis.
    ///
    /// # Errors
    /// Shapes that do not fit, an eps that is not above 0, dtypes that are not floating-point, or several
    /// devices.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor, variance: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        const OP: &str = "gaussian_nll_loss";
        let cast = autocast::cast(OP, [input, target, variance], [])?;
        let ([input, target, variance], []) = cast.tensors();
        for tensor in [input, target] {
            check_pair(OP, tensor, tensor)?;
        }
        if !self.eps.is_finite() || self.eps <= 0.0 {
            return Err(Error::invalid(OP, format!("eps {}: give one above 0", self.eps)));
        }
        let lead = &input.dims()[..input.rank().saturating_sub(1)];
        let variance = match variance.dims() {
            dims if dims == input.dims() => variance.clone(),
            dims if input.rank() > 0 && dims == lead => variance.unsqueeze(-1)?,
            dims if dims.len() == input.rank()
                && dims.iter().zip(input.dims()).all(|(own, size)| own == size || *own == 1) =>
            {
                variance.clone()
            }
            _ => {
                return Err(Error::new(ErrorKind::ShapeMismatch {
                    op: OP,
                    lhs: input.shape().clone(),
                    rhs: variance.shape().clone(),
                    hint: "variances have the input's shape, it with sizes of 1, or it without the last axis"
                        .into(),
                }));
            }
        };
        let small = variance.lt_scalar(self.eps);
        let held = variance.sub(&variance.detach())?.add_scalar(self.eps);
        let variance = small.where_cond(&held, &variance)?;
        let mut losses = input.sub(target)?.powi(2).div(&variance)?.add(&variance.log())?.mul_scalar(0.5);
        if self.full {
            losses = losses.add_scalar(0.5 * (2.0 * PI).ln());
        }
        Ok(self.reduction.apply(&losses))
    }
}
