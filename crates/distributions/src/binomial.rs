//! The binomial distribution.

use tensor_core::{Error, Generator, Operand, Result, Shape, Tensor, at_caller};

use crate::{
    Distribution,
    bernoulli::softplus,
    parameters::{beside, hold, hold_finite, over_draws, over_one, settle, where_else},
};

/// The binomial distribution: the number k of successes in n independent trials (`total_count`), each with
/// probability p. P(k) = n!/(k!·(n − k)!)·pᵏ·(1 − p)ⁿ⁻ᵏ. Draws have the parameters' dtype.
/// `torch.distributions.Binomial`.
#[derive(Clone, Debug)]
pub struct Binomial {
    pub(crate) total_count: Tensor,
    pub(crate) probs: Tensor,
    pub(crate) logits: Tensor,
    by_logits: bool,
}

impl Binomial {
    /// A binomial distribution with the given number of trials and probability; the two broadcast. Where a
    /// logarithm is taken, the probability is clamped to an epsilon of its dtype away from 0 and 1, as in
    /// PyTorch.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices.
    #[track_caller]
    pub fn from_probs(total_count: impl Into<Operand>, probs: &Tensor) -> Result<Binomial> {
        let count = beside(probs, total_count.into())?;
        let [total_count, probs] = settle("Binomial", ["total_count", "probs"], [count, probs.clone()])?;
        let logits = probs.logit(probs.dtype().epsilon());
        Ok(Binomial { total_count, probs, logits, by_logits: false })
    }

    /// A binomial distribution with the given number of trials and log-odds, ln(p / (1 − p)); the two
    /// broadcast.
    ///
    /// # Errors
    /// As [`Binomial::from_probs`].
    #[track_caller]
    pub fn from_logits(total_count: impl Into<Operand>, logits: &Tensor) -> Result<Binomial> {
        let count = beside(logits, total_count.into())?;
        let [total_count, logits] = settle("Binomial", ["total_count", "logits"], [count, logits.clone()])?;
        Ok(Binomial { total_count, probs: logits.sigmoid(), logits, by_logits: true })
    }

    /// The number of trials n, expanded to the batch.
    pub fn total_count(&self) -> &Tensor {
        &self.total_count
    }

    /// The probability p, expanded to the batch.
    pub fn probs(&self) -> &Tensor {
        &self.probs
    }

    /// The log-odds, expanded to the batch.
    pub fn logits(&self) -> &Tensor {
        &self.logits
    }
}

impl Distribution for Binomial {
    fn batch_shape(&self) -> Shape {
        self.probs.shape().clone()
    }

    /// Uses [`Tensor::binomial`], which reads the parameters.
    #[track_caller]
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor> {
        at_caller(|| {
            let probs = over_draws(&self.probs.detach(), &shape)?;
            over_draws(&self.total_count.detach(), &shape)?.binomial(&probs, rng)
        })
    }

    /// Uses the log-gamma function, so that values that are no integers are accepted too.
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Result<Tensor> {
        at_caller(|| {
            let all = [value.clone(), self.total_count.clone(), self.logits.clone()];
            let [k, n, logits] = over_one("Binomial.log_prob", all)?;
            let inside = k.ge_scalar(0).bitwise_and(&k.le(&n)?)?;
            let k = where_else(&inside, &k, 0.0)?;
            let ways = (&n + 1.0).lgamma() - (&k + 1.0).lgamma() - (&n - &k + 1.0).lgamma();
            let rest = where_else(&inside, &(&n - &k), 0.0)?;
            let chance = &k * softplus(&logits.neg()) + rest * softplus(&logits);
            where_else(&inside, &(ways - chance), f64::NEG_INFINITY)
        })
    }

    /// An error: the entropy has no closed form.
    #[track_caller]
    fn entropy(&self) -> Result<Tensor> {
        Err(Error::invalid("Binomial.entropy", "there is no formula for it; average -log_prob over draws"))
    }

    #[track_caller]
    fn mean(&self) -> Result<Tensor> {
        at_caller(|| Ok(&self.total_count * &self.probs))
    }

    #[track_caller]
    fn variance(&self) -> Result<Tensor> {
        at_caller(|| Ok(&self.total_count * &self.probs * (1.0 - &self.probs)))
    }

    #[track_caller]
    fn validate(&self) -> Result<()> {
        const OP: &str = "Binomial";
        let n = &self.total_count;
        let fair = n.ge_scalar(0.0).bitwise_and(&n.isfinite())?.bitwise_and(&n.eq(&n.floor())?)?;
        hold(OP, "total_count", "a whole number of at least 0", &fair)?;
        if self.by_logits {
            return hold_finite(OP, "logits", &self.logits);
        }
        let within = self.probs.ge_scalar(0.0).bitwise_and(&self.probs.le_scalar(1.0))?;
        hold(OP, "probs", "between 0 and 1", &within)
    }
}
