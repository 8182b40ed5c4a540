//! The categorical distribution.

use tensor_core::{DType, Error, ErrorKind, Generator, Result, Shape, Tensor, at_caller};

use crate::{
    Distribution,
    parameters::{hold, join, one_device, require_float},
};

const OP: &str = "Categorical";

/// The categorical distribution over the categories 0 to k − 1, for parameters `[…, k]`. Draws are i64, or
/// i32 on devices without i64. `torch.distributions.Categorical`.
#[derive(Clone, Debug)]
pub struct Categorical {
    pub(crate) probs: Tensor,
    pub(crate) logits: Tensor,
    /// The parameter that the caller gave: probabilities that are not normalized, or logits.
    given: Tensor,
    by_logits: bool,
}

#[track_caller]
fn check(name: &str, given: &Tensor) -> Result<()> {
    require_float(OP, name, given)?;
    match given.dims().last() {
        None => Err(Error::invalid(
            OP,
            format!("{name} is a scalar: its last axis holds the categories; use .unsqueeze(0)?"),
        )),
        Some(0) => Err(Error::invalid(
            OP,
            format!("{name} has no categories: the last axis of {} is 0", given.shape()),
        )),
        Some(_) => Ok(()),
    }
}

impl Categorical {
    /// A categorical distribution with probabilities in proportion to `probs` `[…, k]`, weights of at least
    /// 0 that need not add up to 1. Where a logarithm is taken, probabilities are clamped to an epsilon of
    /// their dtype away from 0 and 1, as in PyTorch.
    ///
    /// # Errors
    /// A dtype that is not floating-point, a scalar, no categories.
    #[track_caller]
    pub fn from_probs(probs: &Tensor) -> Result<Categorical> {
        at_caller(|| {
            check("probs", probs)?;
            let shares = probs.div(&probs.sum_axis(-1, true)?)?;
            let least = shares.dtype().epsilon();
            let logits = shares.clamp(least, 1.0 - least).log();
            Ok(Categorical { probs: shares, logits, given: probs.clone(), by_logits: false })
        })
    }

    /// A categorical distribution with probabilities softmax(`logits`) over the last axis of `logits` `[…,
    /// k]`: a network's output before the softmax.
    ///
    /// # Errors
    /// As [`Categorical::from_probs`].
    #[track_caller]
    pub fn from_logits(logits: &Tensor) -> Result<Categorical> {
        at_caller(|| {
            check("logits", logits)?;
            let (probs, logs) = (logits.softmax(-1)?, logits.log_softmax(-1)?);
            Ok(Categorical { probs, logits: logs, given: logits.clone(), by_logits: true })
        })
    }

    /// The normalized probabilities, `batch + [k]`.
    pub fn probs(&self) -> &Tensor {
        &self.probs
    }

    /// The logarithms of the normalized probabilities, `batch + [k]`.
    pub fn logits(&self) -> &Tensor {
        &self.logits
    }

    fn places(&self) -> usize {
        self.probs.dims().last().copied().unwrap_or(0)
    }
}

impl Distribution for Categorical {
    fn batch_shape(&self) -> Shape {
        self.probs.dims()[..self.probs.rank() - 1].iter().copied().collect()
    }

    /// Uses [`Tensor::multinomial`], which reads the probabilities.
    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let batch = self.batch_shape();
            let whole = join(&shape, &batch);
            if whole.numel() == 0 {
                return Tensor::zeros(whole, (self.probs.device().int_dtype(), &self.probs.device()));
            }
            let rows = self.probs.detach().reshape([batch.numel(), self.places()])?;
            rows.multinomial(shape.numel(), true, rng)?.t()?.reshape(whole)
        })
    }

    /// The logarithm of a category's probability, for integers that broadcast with the batch.
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        const OP: &str = "Categorical.log_prob";
        at_caller(|| {
            one_device(OP, &[value, &self.logits])?;
            if !value.dtype().is_int() {
                let hint = "categories are integers; cast them with .to_dtype(DType::I64)".to_string();
                let (lhs, rhs) = (value.dtype(), DType::I64);
                return Err(Error::new(ErrorKind::DTypeMismatch { op: OP, lhs, rhs, hint }));
            }
            let shape = value.shape().broadcast(&self.batch_shape(), OP)?;
            let places = value.expand(shape.dims())?.unsqueeze(-1)?;
            let logits = self.logits.expand(join(&shape, &Shape::from([self.places()])).dims())?;
            logits.gather(-1, &places)?.squeeze(-1)
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| {
            // Clamped, so that a probability of 0 is multiplied by a finite number and not by −∞.
            let logs = self.logits.maximum_scalar(self.logits.dtype().least());
            (&self.probs * logs).sum_axis(-1, false).map(|sum| sum.neg())
        })
    }

    /// An error: categories have no expectation.
    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        Err(Error::invalid(
            "Categorical.mean",
            "categories are names, which have no expectation; see .probs()",
        ))
    }

    /// An error: categories have no variance.
    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        Err(Error::invalid(
            "Categorical.variance",
            "categories are names, which have no variance; see .probs()",
        ))
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        if self.by_logits {
            let fair = self.given.lt_scalar(f64::INFINITY);
            hold(OP, "logits", "a number below ∞", &fair)?;
            let greatest = self.given.amax(-1, false)?;
            return hold(OP, "the greatest of logits", "finite", &greatest.isfinite());
        }
        let fair = self.given.ge_scalar(0.0).bitwise_and(&self.given.isfinite())?;
        hold(OP, "probs", "finite and at least 0", &fair)?;
        let sums = self.given.sum_axis(-1, false)?;
        hold(OP, "the sums of probs", "above 0", &sums.gt_scalar(0.0))
    }
}
