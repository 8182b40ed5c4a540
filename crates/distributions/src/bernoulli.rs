//! The Bernoulli distribution.

use tensor_core::{Generator, Result, Shape, Tensor, at_caller};

use crate::{
    Distribution,
    parameters::{hold, hold_finite, over_draws, over_one, require_float},
};

/// The Bernoulli distribution: 1 with probability p, and 0 otherwise. `torch.distributions.Bernoulli`.
#[derive(Clone, Debug)]
pub struct Bernoulli {
    pub(crate) probs: Tensor,
    pub(crate) logits: Tensor,
    by_logits: bool,
}

impl Bernoulli {
    /// A Bernoulli distribution with the probabilities `probs`; its batch has their shape. Where a logarithm
    /// is taken, the probability is clamped to an epsilon of its dtype away from 0 and 1, as in PyTorch.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn from_probs(probs: &Tensor) -> Result<Bernoulli> {
        require_float("Bernoulli", "probs", probs)?;
        let logits = probs.logit(probs.dtype().epsilon());
        Ok(Bernoulli { probs: probs.clone(), logits, by_logits: false })
    }

    /// A Bernoulli distribution with the log-odds `logits`, ln(p / (1 − p)): a network's output before the
    /// sigmoid. Its batch has the shape of `logits`.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn from_logits(logits: &Tensor) -> Result<Bernoulli> {
        require_float("Bernoulli", "logits", logits)?;
        Ok(Bernoulli { probs: logits.sigmoid(), logits: logits.clone(), by_logits: true })
    }

    /// The probability of 1.
    pub fn probs(&self) -> &Tensor {
        &self.probs
    }

    /// The log-odds, ln(p / (1 − p)).
    pub fn logits(&self) -> &Tensor {
        &self.logits
    }
}

/// ln(1 + eˣ), exact everywhere.
#[track_caller]
pub(crate) fn softplus(x: &Tensor) -> Tensor {
    x.softplus_with(1.0, f64::INFINITY)
}

impl Distribution for Bernoulli {
    fn batch_shape(&self) -> Shape {
        self.probs.shape().clone()
    }

    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| over_draws(&self.probs.detach(), &shape)?.bernoulli(rng))
    }

    /// x·ln p + (1 − x)·ln(1 − p), which also accepts values x between 0 and 1.
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let [x, logits] = over_one("Bernoulli.log_prob", [value.clone(), self.logits.clone()])?;
            // −ln p = ln(1 + e^−l) and −ln(1 − p) = ln(1 + e^l): computed separately, neither loses digits.
            Ok((&x - 1.0) * softplus(&logits) - &x * softplus(&logits.neg()))
        })
    }

    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        at_caller(|| {
            let rest = if self.by_logits { self.logits.neg().sigmoid() } else { 1.0 - &self.probs };
            Ok(&self.probs * softplus(&self.logits.neg()) + rest * softplus(&self.logits))
        })
    }

    fn mean(&self) -> Result<Tensor> {
        Ok(self.probs.clone())
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| Ok(&self.probs * (1.0 - &self.probs)))
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        const OP: &str = "Bernoulli";
        if self.by_logits {
            return hold_finite(OP, "logits", &self.logits);
        }
        let within = self.probs.ge_scalar(0.0).bitwise_and(&self.probs.le_scalar(1.0))?;
        hold(OP, "probs", "between 0 and 1", &within)
    }
}
