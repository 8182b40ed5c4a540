//! Random draws beyond uniform and normal ones. Each transforms uniform and normal numbers of the
//! stream, so that one seed gives the same draws on every device, except that the last bits may differ
//! where devices round a logarithm differently.

use crate::tensor::{Generator, Tensor, pointwise::signs::greatest};
use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
    },
    devices::defaults::default_dtype,
    elements::dtype::DType,
    kernels::operators::ArgReduceOp,
};

/// The number of tries of a gamma draw. The chance that all fail is below 10⁻¹⁰.
const GAMMA_ROUNDS: usize = 8;

/// The number of tries of a Poisson or binomial draw with a large mean, with the same chance.
const COUNT_ROUNDS: usize = 16;

/// The mean from which Poisson and binomial numbers are drawn by rejection; below it, by inversion.
const LARGE_RATE: f64 = 10.0;

/// A number that a Poisson or binomial draw with a mean up to [`LARGE_RATE`] exceeds with a chance below
/// 10⁻²⁰.
const MAX_DRAW: usize = 56;

#[track_caller]
fn finite(op: &'static str, numbers: &[(&str, f64)]) -> Result<()> {
    match numbers.iter().find(|(_, number)| !number.is_finite()) {
        None => Ok(()),
        Some((name, number)) => Err(Error::invalid(op, format!("{name} {number}: give a finite number"))),
    }
}

#[track_caller]
fn above_zero(op: &'static str, name: &str, number: f64) -> Result<()> {
    if number > 0.0 && number.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(op, format!("{name} {number}: give a finite number above 0")))
}

/// The greatest number below 1 of a floating-point dtype.
fn below_one(dtype: DType) -> f64 {
    1.0 - 0.5 * dtype.epsilon()
}

/// Positive draws rounded to a dtype such that none becomes 0 or infinite.
#[track_caller]
fn above_zero_in(draws: &Tensor, dtype: DType) -> Result<Tensor> {
    let most = greatest(dtype).unwrap_or(f64::MAX);
    draws.clamp(dtype.smallest_normal(), most).to_dtype(dtype)
}

/// Uniform numbers on (0, 1), of f32 or f64.
#[track_caller]
fn open_uniform(shape: Shape, dtype: DType, rng: &Generator) -> Result<Tensor> {
    // A draw of 0 becomes half of the least other draw.
    let least = if dtype == DType::F64 { 2f64.powi(-54) } else { 2f64.powi(-25) };
    Ok(Tensor::rand_dtype(shape, dtype, rng)?.maximum_scalar(least))
}

impl Tensor {
    /// Exponential numbers with the density λ·e^(−λx) for x > 0 and `rate` λ: −ln(u) / λ for a uniform
    /// u, in the default dtype (f32). `torch.Tensor.exponential_`.
    ///
    /// # Errors
    /// A rate that is not finite or not positive.
    #[track_caller]
    #[doc(alias = "exponential_")]
    pub fn exponential(shape: impl Into<Shape>, rate: f64, rng: &Generator) -> Result<Tensor> {
        above_zero("exponential", "rate", rate)?;
        let dtype = default_dtype();
        let waits = open_uniform(shape.into(), dtype.compute(), rng)?.log().div_scalar(-rate);
        above_zero_in(&waits, dtype)
    }

    /// Numbers whose logarithm is normal with this mean and standard deviation, in the default dtype
    /// (f32). `torch.Tensor.log_normal_`, whose defaults are 1 and 2.
    ///
    /// # Errors
    /// A mean that is not finite; a standard deviation that is not finite or not positive.
    #[track_caller]
    #[doc(alias = "log_normal_")]
    pub fn log_normal(shape: impl Into<Shape>, mean: f64, std: f64, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "log_normal";
        finite(OP, &[("mean", mean)])?;
        above_zero(OP, "deviation", std)?;
        let dtype = default_dtype();
        let log = Tensor::randn_dtype(shape, dtype.compute(), rng)?.mul_scalar(std).add_scalar(mean);
        above_zero_in(&log.exp(), dtype)
    }

    /// Cauchy numbers with the density σ / (π·((x − median)² + σ²)): median + σ·tan(π(u − ½)) for a
    /// uniform u, in the default dtype (f32). `torch.Tensor.cauchy_`, whose defaults are 0 and 1.
    ///
    /// # Errors
    /// A median that is not finite; a σ that is not finite or not positive.
    #[track_caller]
    #[doc(alias = "cauchy_")]
    pub fn cauchy(shape: impl Into<Shape>, median: f64, sigma: f64, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "cauchy";
        finite(OP, &[("median", median)])?;
        above_zero(OP, "sigma", sigma)?;
        let dtype = default_dtype();
        let uniform = open_uniform(shape.into(), dtype.compute(), rng)?;
        let found = uniform
            .sub_scalar(0.5)
            .mul_scalar(std::f64::consts::PI)
            .tan()
            .mul_scalar(sigma)
            .add_scalar(median);
        let most = greatest(dtype).unwrap_or(f64::MAX);
        found.clamp(-most, most).to_dtype(dtype)
    }

    /// The number of trials up to the first success, where each succeeds with probability `p`: k ≥ 1
    /// with probability (1 − p)^(k−1)·p, in the default dtype (f32). `torch.Tensor.geometric_`.
    ///
    /// # Errors
    /// A `p` outside (0, 1].
    #[track_caller]
    #[doc(alias = "geometric_")]
    pub fn geometric(shape: impl Into<Shape>, p: f64, rng: &Generator) -> Result<Tensor> {
        if !(p > 0.0 && p <= 1.0) {
            let message = format!("probability {p}: give one above 0 and not above 1");
            return Err(Error::invalid("geometric", message));
        }
        let dtype = default_dtype();
        let uniform = open_uniform(shape.into(), dtype.compute(), rng)?;
        let trials = uniform.log().div_scalar((-p).ln_1p()).floor().add_scalar(1.0);
        trials.minimum_scalar(greatest(dtype).unwrap_or(f64::MAX)).to_dtype(dtype)
    }

    /// Normal numbers with this mean and standard deviation, truncated to [low, high], by the inverse
    /// distribution function, in the default dtype (f32). `torch.nn.init.trunc_normal_`.
    ///
    /// # Errors
    /// Numbers that are not finite, a standard deviation that is not positive, bounds out of order, or a
    /// mean more than four standard deviations outside the bounds, where f32 does not resolve the
    /// probabilities.
    #[track_caller]
    #[doc(alias("trunc_normal", "trunc_normal_"))]
    pub fn truncated_normal(
        shape: impl Into<Shape>,
        mean: f64,
        std: f64,
        low: f64,
        high: f64,
        rng: &Generator,
    ) -> Result<Tensor> {
        const OP: &str = "truncated_normal";
        finite(OP, &[("mean", mean), ("bound", low), ("bound", high)])?;
        above_zero(OP, "deviation", std)?;
        let (a, b) = ((low - mean) / std, (high - mean) / std);
        if low >= high || a > 4.0 || b < -4.0 {
            return Err(Error::invalid(
                OP,
                format!(
                    "from {low} to {high} of mean {mean} and deviation {std}: give bounds in order, and the mean within four deviations \
                     of them"
                ),
            ));
        }
        let dtype = default_dtype();
        let uniform = Tensor::rand_dtype(shape, dtype.compute(), rng)?;
        // The identity 2Φ(x) − 1 = erf(x / √2).
        let root = std::f64::consts::SQRT_2;
        let edge = |x: f64| Tensor::full((), x / root, (uniform.dtype(), rng.device())).map(|t| t.erf());
        let (from, to) = (edge(a)?, edge(b)?);
        let share = uniform.mul(&to.sub(&from)?)?.add(&from)?;
        share.erfinv().mul_scalar(std * root).add_scalar(mean).clamp(low, high).to_dtype(dtype)
    }

    /// Poisson numbers: k with probability λᵏ·e^(−λ) / k!, for each rate λ in this tensor, in its dtype.
    /// `torch.poisson`. Gradients do not flow back.
    ///
    /// Rates below 10 use inversion of a uniform number, greater ones Hörmann's transformed rejection
    /// (PTRS, 1993) with at most 16 tries. The rates are read on the host and checked.
    ///
    /// # Errors
    /// A dtype that is not floating-point; a rate that is negative or not finite. Nothing is drawn then.
    #[track_caller]
    pub fn poisson(&self, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "poisson";
        self.require_float(OP)?;
        let rate = self.detach().to_dtype(self.dtype().compute())?;
        if rate.numel() == 0 {
            return Ok(self.detach());
        }
        let fair = rate.ge_scalar(0.0).bitwise_and(&rate.lt_scalar(f64::INFINITY))?;
        let least = fair.where_cond(&rate, &rate.full_like(-1.0))?.min()?.item_f64()?;
        if least < 0.0 {
            return Err(Error::invalid(
                OP,
                "a rate is negative, infinite or NaN: give finite ones of at least 0",
            ));
        }
        let most = rate.max()?.item_f64()?;
        let rng = rng.on(&self.device());
        let small = rate.lt_scalar(LARGE_RATE);
        let counts = match (least < LARGE_RATE, most >= LARGE_RATE) {
            (_, false) => few(&rate, most, &rng)?,
            (false, true) => many(&rate, &rng)?,
            (true, true) => {
                let few = few(&rate.minimum_scalar(LARGE_RATE), LARGE_RATE, &rng)?;
                small.where_cond(&few, &many(&rate.maximum_scalar(LARGE_RATE), &rng)?)?
            }
        };
        counts.to_dtype(self.dtype())
    }

    /// The number of successes in n trials with probability p each: k with probability n!/(k!·(n −
    /// k)!)·pᵏ·(1 − p)ⁿ⁻ᵏ, for each count n in this tensor and p in the other, broadcast, in the
    /// promoted dtype. `torch.binomial`. Gradients do not flow back.
    ///
    /// Means below 10 use inversion of a uniform number, greater ones Hörmann's transformed rejection
    /// (BTRS, 1993) with at most 16 tries. The operands are read on the host and checked. Counts are
    /// integers that the dtype represents.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices, a count that is
    /// negative, fractional or not finite, a probability outside [0, 1]. Nothing is drawn then.
    #[track_caller]
    pub fn binomial(&self, probs: &Tensor, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "binomial";
        self.require_float(OP)?;
        probs.require_float(OP)?;
        Tensor::same_device(OP, &[self, probs])?;
        let shape = self.shape().broadcast(probs.shape(), OP)?;
        let dtype = self.dtype().promote(probs.dtype());
        let wide = |t: &Tensor| t.detach().expand(shape.dims())?.to_dtype(dtype.compute());
        let (n, p) = (wide(self)?, wide(probs)?);
        if n.numel() == 0 {
            return n.to_dtype(dtype);
        }
        let fair =
            n.ge_scalar(0.0).bitwise_and(&n.lt_scalar(f64::INFINITY))?.bitwise_and(&n.eq(&n.floor())?)?;
        if !fair.all().item::<bool>()? {
            return Err(Error::invalid(
                OP,
                "a count is negative, broken, infinite or NaN: give whole numbers of at least 0",
            ));
        }
        if !p.ge_scalar(0.0).bitwise_and(&p.le_scalar(1.0))?.all().item::<bool>()? {
            return Err(Error::invalid(OP, "a probability is outside [0, 1] or NaN"));
        }
        let rng = rng.on(&self.device());
        // Draws successes or failures, whichever are rarer.
        let often = p.gt_scalar(0.5);
        let rare = often.where_cond(&p.neg().add_scalar(1.0), &p)?;
        let mean = n.mul(&rare)?;
        let small = mean.lt_scalar(LARGE_RATE);
        let (least, most) = (mean.min()?.item_f64()?, mean.max()?.item_f64()?);
        let zero = mean.full_like(0.0);
        // Where the other method is selected, both get arguments that are valid for them.
        let few = |of: &Tensor| few_of(&n, &small.where_cond(of, &zero)?, &rng);
        let many = |of: &Tensor| {
            many_of(
                &small.where_cond(&n.full_like(100.0), &n)?,
                &small.where_cond(&n.full_like(0.5), of)?,
                &rng,
            )
        };
        let counts = match (least < LARGE_RATE, most >= LARGE_RATE) {
            (_, false) => few(&rare)?,
            (false, true) => many(&rare)?,
            (true, true) => small.where_cond(&few(&rare)?, &many(&rare)?)?,
        };
        often.where_cond(&n.sub(&counts)?, &counts)?.to_dtype(dtype)
    }

    /// Gamma numbers with the density x^(α−1)·e^(−x) / Γ(α) for x > 0, for each shape α in this tensor,
    /// in its dtype. For a rate β divide by it. Gradients do not flow back. `torch.distributions.Gamma`.
    ///
    /// Uses the method of Marsaglia and Tsang (2000) with at most eight tries; for α < 1, by means of α
    /// + 1. An α that is not positive gives NaN.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    #[doc(alias = "_standard_gamma")]
    pub fn standard_gamma(&self, rng: &Generator) -> Result<Tensor> {
        self.require_float("standard_gamma")?;
        above_zero_in(&log_gamma(self, rng)?.exp(), self.dtype())
    }

    /// The logarithms of [`Tensor::standard_gamma`]'s numbers, which also resolve numbers that underflow
    /// to 0.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn log_standard_gamma(&self, rng: &Generator) -> Result<Tensor> {
        self.require_float("log_standard_gamma")?;
        log_gamma(self, rng)?.to_dtype(self.dtype())
    }

    /// Beta numbers with the density x^(a−1)·(1 − x)^(b−1) / B(a, b), strictly between 0 and 1, for each
    /// a in this tensor and b in the other, broadcast, in the promoted dtype. Gradients do not flow
    /// back. `torch.distributions.Beta`.
    ///
    /// Computed from two gamma numbers; an a or b that is not positive gives NaN.
    ///
    /// # Errors
    /// A dtype that is not floating-point, shapes that do not broadcast, two devices.
    #[track_caller]
    pub fn beta(&self, b: &Tensor, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "beta";
        self.require_float(OP)?;
        b.require_float(OP)?;
        let both = Tensor::broadcast_tensors(&[self, b])?;
        let dtype = self.dtype().promote(b.dtype());
        let log = |t: &Tensor| log_gamma(&t.to_dtype(dtype)?, rng);
        let share = log(&both[0])?.sub(&log(&both[1])?)?.sigmoid();
        share.clamp(dtype.smallest_normal(), below_one(dtype)).to_dtype(dtype)
    }

    /// Dirichlet numbers for concentrations `[…, k]`, in their dtype: k positive numbers with sum 1,
    /// with a density proportional to Πxᵢ^(αᵢ−1). Gradients do not flow back.
    /// `torch.distributions.Dirichlet`.
    ///
    /// Computed from k gamma numbers; an α that is not positive gives NaN.
    ///
    /// # Errors
    /// A dtype that is not floating-point, a 0-d tensor.
    #[track_caller]
    #[doc(alias = "_sample_dirichlet")]
    pub fn dirichlet(&self, rng: &Generator) -> Result<Tensor> {
        const OP: &str = "dirichlet";
        self.require_float(OP)?;
        if self.rank() == 0 {
            return Err(Error::invalid(OP, "a scalar has no axis of concentrations; use .unsqueeze(0)?"));
        }
        let shares = log_gamma(self, rng)?.softmax(-1)?;
        shares.maximum_scalar(self.dtype().smallest_normal()).to_dtype(self.dtype())
    }
}

/// The shape of `rounds` tries for each element.
fn rounds(rounds: usize, of: &Tensor) -> Shape {
    std::iter::once(rounds).chain(of.dims().iter().copied()).collect()
}

/// The first accepted try, or `otherwise` if none is accepted.
#[track_caller]
fn first_accepted(accepted: &Tensor, found: &Tensor, otherwise: &Tensor) -> Result<Tensor> {
    let accepted = accepted.to_dtype(DType::I32)?;
    let place = accepted.arg_reduce(ArgReduceOp::ArgMax, 0, true)?;
    let first = |of: &Tensor| of.gather(0, &place)?.squeeze(0);
    first(&accepted)?.ne_scalar(0).where_cond(&first(found)?, otherwise)
}

/// Poisson numbers for rates up to `most`, which is at most [`LARGE_RATE`]: the number of k ≥ 1 with P(X
/// ≥ k) above a uniform number. The sums start from the far end, so that small probabilities keep their
/// precision. It is one kernel, and needs no memory except for the result.
#[track_caller]
fn few(rate: &Tensor, most: f64, rng: &Generator) -> Result<Tensor> {
    let uniform = open_uniform(rate.shape().clone(), rate.dtype(), rng)?;
    let log = rate.log();
    let ln_factorials: Vec<f64> = (1..=MAX_DRAW)
        .scan(0.0, |sum, k| {
            *sum += (k as f64).ln();
            Some(*sum)
        })
        .collect();
    // Numbers that the greatest rate exceeds with a chance below this are left out, in steps, because
    // each length needs its own kernel.
    const RARE: f64 = 1e-20;
    let reached = (1..=MAX_DRAW)
        .rev()
        .find(|&k| k as f64 * most.ln() - most - ln_factorials[k - 1] >= RARE.ln())
        .unwrap_or(1)
        .next_multiple_of(8)
        .min(MAX_DRAW);
    let (mut at_least, mut count) = (rate.zeros_like(), rate.zeros_like());
    for k in (1..=reached).rev() {
        let chance = log.mul_scalar(k as f64).sub(rate)?.sub_scalar(ln_factorials[k - 1]).exp();
        at_least = at_least.add(&chance)?;
        count = count.add(&uniform.le(&at_least)?.to_dtype(rate.dtype())?)?;
    }
    Ok(count)
}

/// Poisson numbers for rates from [`LARGE_RATE`] on, by PyTorch's method, with a form of the density
/// that avoids cancellation.
#[track_caller]
fn many(rate: &Tensor, rng: &Generator) -> Result<Tensor> {
    let shape = rounds(COUNT_ROUNDS, rate);
    let b = rate.sqrt().mul_scalar(2.53).add_scalar(0.931);
    let a = b.mul_scalar(0.02483).sub_scalar(0.059);
    let inverse_alpha = b.sub_scalar(3.4).reciprocal().mul_scalar(1.1328).add_scalar(1.1239);
    let inner = b.sub_scalar(2.0).reciprocal().mul_scalar(-3.6224).add_scalar(0.9277);
    let u = Tensor::rand_dtype(shape.clone(), rate.dtype(), rng)?.sub_scalar(0.5);
    let v = open_uniform(shape, rate.dtype(), rng)?;
    let edge = u.abs().neg().add_scalar(0.5);
    let k = a.mul_scalar(2.0).div(&edge)?.add(&b)?.mul(&u)?.add(rate)?.add_scalar(0.43).floor();
    let at_once = edge.ge_scalar(0.07).bitwise_and(&v.le(&inner)?)?;
    let outside = edge.lt_scalar(0.013).bitwise_and(&v.gt(&edge)?)?;
    // ln(λᵏ·e^(−λ) / k!) by Stirling: −λ·((1 + δ)·ln(1 + δ) − δ) − ½·ln(2πk) − 1/(12k) + 1/(360k³), for
    // k = λ(1 + δ).
    let positive = k.maximum_scalar(1.0);
    let delta = positive.sub(rate)?.div(rate)?;
    let far = delta.add_scalar(1.0).mul(&delta.log1p())?.sub(&delta)?.mul(rate)?;
    let inverse = positive.reciprocal();
    let stirling = inverse.powi(2).mul_scalar(-1.0 / 360.0).add_scalar(1.0 / 12.0).mul(&inverse)?;
    let root = positive.mul_scalar(std::f64::consts::TAU).log().mul_scalar(0.5);
    let density = far.add(&root)?.add(&stirling)?.neg();
    let density = k.ge_scalar(1.0).where_cond(&density, &rate.neg())?;
    let height = v.log().add(&inverse_alpha.log())?.sub(&a.div(&edge.powi(2))?.add(&b)?.log())?;
    let below = height.le(&density)?.bitwise_and(&outside.logical_not())?;
    let accepted = at_once.bitwise_or(&below)?.bitwise_and(&k.ge_scalar(0.0))?;
    first_accepted(&accepted, &k, &rate.round())
}

/// Binomial numbers for means up to [`LARGE_RATE`] and p up to ½, by the method of [`few`].
#[track_caller]
fn few_of(n: &Tensor, p: &Tensor, rng: &Generator) -> Result<Tensor> {
    let k = Tensor::arange(1i64, MAX_DRAW as i64 + 1, 1i64, (n.dtype(), rng.device()))?;
    let (n, p) = (n.unsqueeze(-1)?, p.unsqueeze(-1)?);
    // The ratio P(k) / P(k − 1) = (n − k + 1) / k · p / (1 − p).
    let left = n.sub(&k)?.add_scalar(1.0);
    let possible = left.gt_scalar(0.0).bitwise_and(&p.gt_scalar(0.0))?;
    let none = p.neg().log1p();
    let odds = p.log().sub(&none)?;
    let ratio = left.maximum_scalar(1.0).log().sub(&k.log())?.add(&odds.maximum_scalar(-1e30))?;
    let chances =
        ratio.cumulative(crate::kernels::operators::CumulativeOp::Sum, -1, false)?.add(&none.mul(&n)?)?.exp();
    let chances = possible.where_cond(&chances, &chances.full_like(0.0))?;
    let at_least = chances.cumulative(crate::kernels::operators::CumulativeOp::Sum, -1, true)?;
    let uniform = open_uniform(n.shape().clone(), n.dtype(), rng)?;
    uniform.le(&at_least)?.to_dtype(n.dtype())?.sum_axis(-1, false)
}

/// The remainder of ln k! after Stirling's (k + ½)·ln(k + 1) − (k + 1) + ½·ln 2π.
#[track_caller]
fn stirling_rest(k: &Tensor) -> Result<Tensor> {
    let inverse = k.add_scalar(1.0).reciprocal();
    let square = inverse.powi(2);
    square.mul_scalar(1.0 / 1260.0).sub_scalar(1.0 / 360.0).mul(&square)?.add_scalar(1.0 / 12.0).mul(&inverse)
}

/// Binomial numbers for means from [`LARGE_RATE`] on and p up to ½, by PyTorch's method, with a form of
/// the density relative to that of the mode m that avoids cancellation.
#[track_caller]
fn many_of(n: &Tensor, p: &Tensor, rng: &Generator) -> Result<Tensor> {
    let shape = rounds(COUNT_ROUNDS, n);
    let mean = n.mul(p)?;
    let deviation = mean.mul(&p.neg().add_scalar(1.0))?.sqrt();
    let b = deviation.mul_scalar(2.53).add_scalar(1.15);
    let a = b.mul_scalar(0.0248).add(&p.mul_scalar(0.01))?.sub_scalar(0.0873);
    let inner = b.reciprocal().mul_scalar(-4.2).add_scalar(0.92);
    let alpha = b.reciprocal().mul_scalar(5.1).add_scalar(2.83).mul(&deviation)?;
    let u = Tensor::rand_dtype(shape.clone(), n.dtype(), rng)?.sub_scalar(0.5);
    let v = open_uniform(shape, n.dtype(), rng)?;
    let edge = u.abs().neg().add_scalar(0.5).maximum_scalar(1e-7);
    let k = a.mul_scalar(2.0).div(&edge)?.add(&b)?.mul(&u)?.add(&mean)?.add_scalar(0.5).floor();
    let possible = k.ge_scalar(0.0).bitwise_and(&k.le(n)?)?;
    let at_once = edge.ge_scalar(0.07).bitwise_and(&v.le(&inner)?)?;
    // An impossible k is clamped to the possible range, and rejected later.
    let within = k.maximum_scalar(0.0).minimum(n)?;
    let mode = n.add_scalar(1.0).mul(p)?.floor();
    let far = within.sub(&mode)?;
    let (ones, rest) = (mode.add_scalar(1.0), n.sub(&mode)?.add_scalar(1.0));
    let odds = p.log().sub(&p.neg().log1p())?;
    let slope = ones.log().sub(&odds)?.sub(&rest.log())?;
    let growth = far.neg().div(&rest)?.log1p().sub(&far.div(&ones)?.log1p())?;
    let fall = far.div(&n.sub(&within)?.add_scalar(1.0))?.log1p().mul(&n.add_scalar(1.0))?;
    let tails = stirling_rest(&mode)?.add(&stirling_rest(&n.sub(&mode)?)?)?;
    let tails = tails.sub(&stirling_rest(&within)?)?.sub(&stirling_rest(&n.sub(&within)?)?)?;
    let density = within.add_scalar(0.5).mul(&growth)?.sub(&far.mul(&slope)?)?.add(&fall)?.add(&tails)?;
    let height = v.log().add(&alpha.log())?.sub(&a.div(&edge.powi(2))?.add(&b)?.log())?;
    let accepted = at_once.bitwise_or(&height.le(&density)?)?.bitwise_and(&possible)?;
    first_accepted(&accepted, &k, &mode)
}

/// The logarithms of gamma numbers, which do not underflow for small α.
#[track_caller]
fn log_gamma(alpha: &Tensor, rng: &Generator) -> Result<Tensor> {
    let alpha = alpha.detach().to_dtype(alpha.dtype().compute())?;
    let rng = rng.on(&alpha.device());
    let small = alpha.lt_scalar(1.0);
    let d = small.where_cond(&alpha.add_scalar(1.0), &alpha)?.sub_scalar(1.0 / 3.0);
    let shape = rounds(GAMMA_ROUNDS, &alpha);
    let x = Tensor::randn_dtype(shape.clone(), alpha.dtype(), &rng)?;
    let u = open_uniform(shape, alpha.dtype(), &rng)?;
    let power = open_uniform(alpha.shape().clone(), alpha.dtype(), &rng)?;
    // With v = (1 + y)³, accept if ln u < x²/2 + d·(1 − v + ln v), where 1 − v is written without
    // cancellation.
    let y = x.div(&d.mul_scalar(9.0).sqrt())?;
    let inside = y.gt_scalar(-1.0);
    let y = inside.where_cond(&y, &y.full_like(0.0))?;
    let log_v = y.log1p().mul_scalar(3.0);
    let over = y.add_scalar(3.0).mul(&y)?.add_scalar(3.0).mul(&y)?;
    let limit = x.powi(2).mul_scalar(0.5).add(&log_v.sub(&over)?.mul(&d)?)?;
    let accepted = u.log().lt(&limit)?.bitwise_and(&inside)?;
    let log_v = first_accepted(&accepted, &log_v, &alpha.full_like(0.0))?;
    let boost = small.where_cond(&power.log().div(&alpha)?, &alpha.full_like(0.0))?;
    let log = d.log().add(&log_v)?.add(&boost)?;
    alpha.gt_scalar(0.0).where_cond(&log, &alpha.full_like(f64::NAN))
}
