//! Kullback-Leibler divergences, one formula for each pair that PyTorch registers among these distributions.

use std::f64::consts::{PI, SQRT_2};

use tensor_core::{Error, Result, Tensor, at_caller};

#[cfg(feature = "linalg")]
use crate::MultivariateNormal;
use crate::{
    Bernoulli, Beta, Binomial, Categorical, Dirichlet, Distribution, Exponential, Gamma, Independent,
    Laplace, LogNormal, Normal, Poisson, Uniform, bernoulli::softplus, independent::sum_last,
    parameters::over_one,
};

const OP: &str = "kl_divergence";

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

/// The Kullback-Leibler divergence KL(p ‖ q) in nats: the expectation of ln p(x) − ln q(x) over draws x of
/// p. Its shape is that of the two batches after broadcasting. It is ∞ where p draws values that q never
/// does. `torch.distributions.kl_divergence`.
///
/// Pairs without a formula do not compile; [`KlDivergence`] lists those with one.
///
/// # Errors
/// Batches that do not broadcast, events of two shapes, two devices.
///
/// ```
/// use distributions::{Normal, kl_divergence};
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let p = Normal::new(&Tensor::new([0.0f64, 1.0], &cpu)?, 1.0)?;
/// let q = Normal::new(&Tensor::zeros((), &cpu)?, 1.0)?;
/// assert_eq!(kl_divergence(&p, &q)?.to_vec::<f64>()?, [0.0, 0.5]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn kl_divergence<P: KlDivergence<Q>, Q>(p: &P, q: &Q) -> Result<Tensor> {
    at_caller(|| p.kl_divergence(q))
}

/// A distribution with a formula for its divergence from `Q`.
pub trait KlDivergence<Q> {
    /// [`kl_divergence`] of this from `q`.
    ///
    /// # Errors
    /// As [`kl_divergence`].
    fn kl_divergence(&self, q: &Q) -> Result<Tensor>;
}

/// `divergence!(P of its fields, Q of its fields => formula)`: expands the fields to one shape, so that
/// operators on them cannot fail.
macro_rules! divergence {
    ($($p:ident($($a:ident: $of_p:ident),*), $q:ident($($b:ident: $of_q:ident),*) => $formula:expr;)*) => {$(
        impl KlDivergence<$q> for $p {
            #[track_caller]
            fn kl_divergence(&self, q: &$q) -> Result<Tensor> {
                at_caller(|| {
                    let [$($a,)* $($b),*] = over_one(OP, [$(self.$of_p.clone(),)* $(q.$of_q.clone()),*])?;
                    $formula
                })
            }
        }
    )*};
}

/// Pairs with an infinite divergence: p draws values that q never does.
macro_rules! infinite {
    ($($p:ident($of_p:ident): $($q:ident($of_q:ident)),*;)*) => {$($(
        impl KlDivergence<$q> for $p {
            #[track_caller]
            fn kl_divergence(&self, q: &$q) -> Result<Tensor> {
                at_caller(|| {
                    let [p, _] = over_one(OP, [self.$of_p.clone(), q.$of_q.clone()])?;
                    Ok(p.full_like(f64::INFINITY))
                })
            }
        }
    )*)*};
}

infinite! {
    Exponential(rate): Beta(concentration1), Uniform(low);
    Gamma(concentration): Beta(concentration1), Uniform(low);
    Laplace(loc): Beta(concentration1), Exponential(rate), Gamma(rate), Uniform(low);
    Normal(loc): Beta(concentration1), Exponential(rate), Gamma(rate), Uniform(low);
    Poisson(rate): Bernoulli(probs), Binomial(probs);
}

/// x·ln x.
#[track_caller]
fn x_log_x(x: &Tensor) -> Result<Tensor> {
    x.xlogy(x)
}

/// The divergence of a distribution with this entropy, variance and mean from a normal distribution.
fn from_normal(entropy: Tensor, variance: Tensor, mean: &Tensor, loc: &Tensor, scale: &Tensor) -> Tensor {
    let square = variance + (mean - loc).powi(2);
    square / (scale.powi(2) * 2.0) + scale.log() + 0.5 * (2.0 * PI).ln() - entropy
}

divergence! {
    Normal(loc: loc, scale: scale), Normal(m: loc, s: scale) => {
        let ratio = (&scale / &s).powi(2);
        Ok((&ratio + ((loc - m) / s).powi(2) - 1.0 - ratio.log()) * 0.5)
    };
    Normal(loc: loc, scale: scale), Laplace(m: loc, b: scale) => {
        let far = loc - m;
        let z = &far / &scale;
        let near = (z.powi(2) * -0.5).exp() * &scale * (2.0 / PI).sqrt();
        let beyond = far * (z / SQRT_2).erf();
        Ok((near + beyond) / &b - (scale / b).log() - 0.5 * (1.0 + (0.5 * PI).ln()))
    };
    Laplace(loc: loc, scale: scale), Laplace(m: loc, b: scale) => {
        let ratio = &scale / &b;
        let far = (loc - m).abs();
        Ok(&far / b - ratio.log() + &ratio * (far / scale).neg().exp() - 1.0)
    };
    Laplace(loc: loc, scale: scale), Normal(m: loc, s: scale) => {
        let entropy = (&scale * 2.0).log() + 1.0;
        Ok(from_normal(entropy, scale.powi(2) * 2.0, &loc, &m, &s))
    };
    Exponential(rate: rate), Exponential(r: rate) => {
        let ratio = r / rate;
        Ok(&ratio - ratio.log() - 1.0)
    };
    Exponential(rate: rate), Gamma(a: concentration, r: rate) => {
        let ratio = r / rate;
        Ok(&ratio - &a * ratio.log() + a.lgamma() + (a - 1.0) * EULER - 1.0)
    };
    Exponential(rate: rate), Normal(m: loc, s: scale) => {
        Ok(from_normal(1.0 - rate.log(), rate.powi(-2), &rate.reciprocal(), &m, &s))
    };
    Gamma(a: concentration, rate: rate), Gamma(b: concentration, r: rate) => {
        let norms = &b * (&rate / &r).log() + b.lgamma() - a.lgamma();
        Ok(norms + (&a - &b) * a.digamma() + (r - &rate) * (a / rate))
    };
    Gamma(a: concentration, rate: rate), Exponential(r: rate) => {
        let p = Gamma { concentration: a.clone(), rate: rate.clone() };
        Ok(&r * a / rate - r.log() - p.entropy()?)
    };
    Gamma(a: concentration, rate: rate), Normal(m: loc, s: scale) => {
        let p = Gamma { concentration: a, rate };
        Ok(from_normal(p.entropy()?, p.variance()?, &p.mean()?, &m, &s))
    };
    Beta(a: concentration1, b: concentration0), Beta(c: concentration1, d: concentration0) => {
        let (p, q) = (&a + &b, &c + &d);
        let norms = c.lgamma() + d.lgamma() + p.lgamma() - a.lgamma() - b.lgamma() - q.lgamma();
        Ok(norms + (&a - c) * a.digamma() + (&b - d) * b.digamma() + (q - &p) * p.digamma())
    };
    Beta(a: concentration1, b: concentration0), Exponential(r: rate) => {
        let p = Beta { concentration1: a, concentration0: b };
        Ok(&r * p.mean()? - r.log() - p.entropy()?)
    };
    Beta(a: concentration1, b: concentration0), Gamma(c: concentration, r: rate) => {
        let logs = (&c - 1.0) * (a.digamma() - (&a + &b).digamma());
        let p = Beta { concentration1: a, concentration0: b };
        Ok(c.lgamma() - &c * r.log() - logs + r * p.mean()? - p.entropy()?)
    };
    Beta(a: concentration1, b: concentration0), Normal(m: loc, s: scale) => {
        let p = Beta { concentration1: a, concentration0: b };
        Ok(from_normal(p.entropy()?, p.variance()?, &p.mean()?, &m, &s))
    };
    Beta(a: concentration1, b: concentration0), Uniform(low: low, high: high) => {
        let p = Beta { concentration1: a, concentration0: b };
        let outside = low.gt_scalar(0.0).bitwise_or(&high.lt_scalar(1.0))?;
        ((high - low).log() - p.entropy()?).masked_fill(&outside, f64::INFINITY)
    };
    Uniform(low: low, high: high), Uniform(from: low, to: high) => {
        let outside = from.gt(&low)?.bitwise_or(&to.lt(&high)?)?;
        ((to - from) / (high - low)).log().masked_fill(&outside, f64::INFINITY)
    };
    Uniform(low: low, high: high), Beta(a: concentration1, b: concentration0) => {
        let outside = high.gt_scalar(1.0).bitwise_or(&low.lt_scalar(0.0))?;
        let width = &high - &low;
        // The expectations of ln x and ln(1 − x).
        let log = (x_log_x(&high)? - x_log_x(&low)?) / &width - 1.0;
        let rest = (x_log_x(&(1.0 - low))? - x_log_x(&(1.0 - high))?) / &width - 1.0;
        let q = Beta { concentration1: a.clone(), concentration0: b.clone() };
        (q.log_normalizer() - width.log() - (a - 1.0) * log - (b - 1.0) * rest).masked_fill(&outside, f64::INFINITY)
    };
    Uniform(low: low, high: high), Exponential(r: rate) => {
        let cost = &r * (&high + &low) * 0.5;
        (cost - ((high - &low) * r).log()).masked_fill(&low.lt_scalar(0.0), f64::INFINITY)
    };
    Uniform(low: low, high: high), Gamma(a: concentration, r: rate) => {
        let width = &high - &low;
        let log = (x_log_x(&high)? - x_log_x(&low)?) / &width - 1.0;
        let cost = a.lgamma() - &a * r.log() - (a - 1.0) * log + r * (high + &low) * 0.5;
        (cost - width.log()).masked_fill(&low.lt_scalar(0.0), f64::INFINITY)
    };
    Uniform(low: low, high: high), Normal(m: loc, s: scale) => {
        let width = &high - &low;
        Ok(from_normal(width.log(), width.powi(2) / 12.0, &((high + low) * 0.5), &m, &s))
    };
    Bernoulli(p: probs, x: logits), Bernoulli(q: probs, y: logits) => {
        let (none, all) = (p.eq_scalar(0.0), p.eq_scalar(1.0));
        let ones = (&p * (softplus(&-&y) - softplus(&-&x))).masked_fill(&q.eq_scalar(0.0), f64::INFINITY)?;
        let zeros = ((1.0 - p) * (softplus(&y) - softplus(&x))).masked_fill(&q.eq_scalar(1.0), f64::INFINITY)?;
        Ok(ones.masked_fill(&none, 0.0)? + zeros.masked_fill(&all, 0.0)?)
    };
    Bernoulli(p: probs, x: logits), Poisson(r: rate) => {
        Ok(&x * &p - softplus(&x) - p * r.log() + r)
    };
    // NaN where q has more trials: there is no formula, and PyTorch reports an error.
    Binomial(n: total_count, p: probs, x: logits), Binomial(m: total_count, q: probs, y: logits) => {
        let (more, fewer) = (n.gt(&m)?, n.lt(&m)?);
        let each = &p * (x - y) + p.neg().log1p() - q.neg().log1p();
        (n * each).masked_fill(&more, f64::INFINITY)?.masked_fill(&fewer, f64::NAN)
    };
    Poisson(rate: rate), Poisson(r: rate) => Ok(&rate * (rate.log() - r.log()) - (&rate - r));
}

impl KlDivergence<LogNormal> for LogNormal {
    #[track_caller]
    fn kl_divergence(&self, q: &LogNormal) -> Result<Tensor> {
        self.log.kl_divergence(&q.log)
    }
}

/// Checks that both distributions have one event shape.
#[track_caller]
fn same_events(p: &impl Distribution, q: &impl Distribution) -> Result<()> {
    let (of_p, of_q) = (p.event_shape(), q.event_shape());
    if of_p == of_q {
        return Ok(());
    }
    Err(Error::invalid(OP, format!("events of {of_p} and {of_q}: give distributions over one shape")))
}

impl KlDivergence<Categorical> for Categorical {
    #[track_caller]
    fn kl_divergence(&self, q: &Categorical) -> Result<Tensor> {
        at_caller(|| {
            let (of_p, of_q) = (self.probs.dims().last(), q.probs.dims().last());
            if of_p != of_q {
                let message = format!(
                    "{} and {} categories, for probs {} and {}",
                    of_p.unwrap_or(&0),
                    of_q.unwrap_or(&0),
                    self.probs.shape(),
                    q.probs.shape()
                );
                return Err(Error::invalid(OP, message));
            }
            let all = [self.probs.clone(), self.logits.clone(), q.probs.clone(), q.logits.clone()];
            let [p, x, q, y] = over_one(OP, all)?;
            let each = (&p * (x - y)).masked_fill(&q.eq_scalar(0.0), f64::INFINITY)?;
            each.masked_fill(&p.eq_scalar(0.0), 0.0)?.sum_axis(-1, false)
        })
    }
}

impl KlDivergence<Dirichlet> for Dirichlet {
    #[track_caller]
    fn kl_divergence(&self, q: &Dirichlet) -> Result<Tensor> {
        at_caller(|| {
            same_events(self, q)?;
            let [a, b] = over_one(OP, [self.concentration.clone(), q.concentration.clone()])?;
            let sum = a.sum_axis(-1, true)?;
            let each = b.lgamma() - a.lgamma() + (&a - &b) * a.digamma().sub(&sum.digamma())?;
            let sums = sum.squeeze(-1)?.lgamma() - b.sum_axis(-1, false)?.lgamma();
            Ok(sums + each.sum_axis(-1, false)?)
        })
    }
}

impl<P, Q> KlDivergence<Independent<Q>> for Independent<P>
where
    P: Distribution + KlDivergence<Q>,
    Q: Distribution,
{
    #[track_caller]
    fn kl_divergence(&self, q: &Independent<Q>) -> Result<Tensor> {
        at_caller(|| {
            if self.axes != q.axes {
                let message = format!(
                    "{} and {} event axes: give both distributions the same number",
                    self.axes, q.axes
                );
                return Err(Error::invalid(OP, message));
            }
            sum_last(&self.base.kl_divergence(&q.base)?, self.axes)
        })
    }
}

#[cfg(feature = "linalg")]
impl KlDivergence<MultivariateNormal> for MultivariateNormal {
    #[track_caller]
    fn kl_divergence(&self, q: &MultivariateNormal) -> Result<Tensor> {
        at_caller(|| {
            crate::parameters::one_device(OP, &[&self.loc, &q.loc])?;
            same_events(self, q)?;
            let dets = q.half_log_det()?.sub(&self.half_log_det()?)?;
            let spread = linalg::solve_triangular(&q.scale_tril, &self.scale_tril, false, true, false)?;
            let spread = spread.powi(2).sum_axis([-2, -1], false)?;
            let far = q.loc.sub(&self.loc)?;
            let both = spread.add(&q.mahalanobis(&far)?)? - self.size() as f64;
            dets.add(&(both * 0.5))
        })
    }
}
