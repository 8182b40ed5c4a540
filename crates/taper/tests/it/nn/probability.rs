//! Distributions as objects: PyTorch's numbers (`scripts/torch_fixtures.py distributions`), draws by their
//! moments, gradients, refusals.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde::Deserialize;
use taper::autograd::{gradcheck, gradgradcheck};
use taper::distributions::{
    Bernoulli, Beta, Binomial, Categorical, Cumulative, Dirichlet, Distribution, Exponential, Gamma,
    Independent, KlDivergence, Laplace, LogNormal, MultivariateNormal, Normal, Poisson, Reparameterized,
    Uniform, kl_divergence,
};
use taper::{DType, Device, Generator, Result, Shape, Tensor, grad};

use crate::common::{assert_close, device, has, needs};
use crate::networks::refused;
use crate::pytorch::{Array, fixture};

#[derive(Deserialize)]
struct Fixture {
    shares: Array,
    cases: Vec<Case>,
    divergences: Vec<Divergence>,
}

#[derive(Deserialize)]
struct Case {
    kind: String,
    parameters: Vec<Array>,
    batch: Vec<usize>,
    event: Vec<usize>,
    value: Array,
    log_prob: Array,
    entropy: Option<Array>,
    mean: Option<Array>,
    variance: Option<Array>,
    cdf: Option<Array>,
    icdf: Option<Array>,
    grads: Vec<Array>,
}

#[derive(Deserialize)]
struct Divergence {
    p: String,
    of_p: Vec<Array>,
    q: String,
    of_q: Vec<Array>,
    found: Array,
}

impl Case {
    fn counts(&self) -> bool {
        ["categorical", "poisson", "bernoulli", "binomial"].iter().any(|kind| self.kind.starts_with(kind))
    }

    fn value(&self, dtype: DType) -> Result<Tensor> {
        self.value.tensor(if self.kind.starts_with("categorical") { DType::I32 } else { dtype })
    }
}

/// A distribution of parameters in the fixture's order.
trait Made: Distribution + Sized {
    fn made(p: &[Tensor]) -> Result<Self>;
}

macro_rules! made {
    ($($name:ty, $p:ident => $make:expr;)*) => {$(
        impl Made for $name {
            fn made($p: &[Tensor]) -> Result<Self> {
                $make
            }
        }
    )*};
}

made! {
    Normal, p => Normal::new(&p[0], &p[1]);
    LogNormal, p => LogNormal::new(&p[0], &p[1]);
    Laplace, p => Laplace::new(&p[0], &p[1]);
    Uniform, p => Uniform::new(&p[0], &p[1]);
    Exponential, p => Exponential::new(&p[0]);
    Gamma, p => Gamma::new(&p[0], &p[1]);
    Beta, p => Beta::new(&p[0], &p[1]);
    Dirichlet, p => Dirichlet::new(&p[0]);
    Poisson, p => Poisson::new(&p[0]);
    Bernoulli, p => Bernoulli::from_probs(&p[0]);
    Binomial, p => Binomial::from_probs(&p[0], &p[1]);
    Categorical, p => Categorical::from_probs(&p[0]);
    MultivariateNormal, p => MultivariateNormal::new(&p[0], &p[1]);
    Independent<Normal>, p => Independent::new(Normal::new(&p[0], &p[1])?, 1);
}

fn distribution(kind: &str, p: &[Tensor]) -> Result<Box<dyn Distribution>> {
    Ok(match kind {
        "poisson" => Box::new(Poisson::made(p)?),
        "bernoulli_probs" => Box::new(Bernoulli::made(p)?),
        "bernoulli_logits" => Box::new(Bernoulli::from_logits(&p[0])?),
        "binomial_probs" => Box::new(Binomial::made(p)?),
        "binomial_logits" => Box::new(Binomial::from_logits(&p[0], &p[1])?),
        "categorical_probs" => Box::new(Categorical::made(p)?),
        "categorical_logits" => Box::new(Categorical::from_logits(&p[0])?),
        other => return reparameterized(other, p).map(|d| d.unwrap() as Box<dyn Distribution>),
    })
}

fn reparameterized(kind: &str, p: &[Tensor]) -> Result<Option<Box<dyn Reparameterized>>> {
    Ok(Some(match kind {
        "normal" => Box::new(Normal::made(p)?),
        "log_normal" => Box::new(LogNormal::made(p)?),
        "laplace" => Box::new(Laplace::made(p)?),
        "uniform" => Box::new(Uniform::made(p)?),
        "exponential" => Box::new(Exponential::made(p)?),
        "multivariate_covariance" => Box::new(MultivariateNormal::made(p)?),
        "multivariate_precision" => Box::new(MultivariateNormal::from_precision(&p[0], &p[1])?),
        "multivariate_tril" => Box::new(MultivariateNormal::from_scale_tril(&p[0], &p[1])?),
        "independent_normal" => Box::new(Independent::<Normal>::made(p)?),
        "gamma" => Box::new(Gamma::made(p)?),
        "beta" => Box::new(Beta::made(p)?),
        "dirichlet" => Box::new(Dirichlet::made(p)?),
        _ => return Ok(None),
    }))
}

fn cumulative(kind: &str, p: &[Tensor]) -> Result<Option<Box<dyn Cumulative>>> {
    Ok(Some(match kind {
        "normal" => Box::new(Normal::made(p)?),
        "log_normal" => Box::new(LogNormal::made(p)?),
        "laplace" => Box::new(Laplace::made(p)?),
        "uniform" => Box::new(Uniform::made(p)?),
        "exponential" => Box::new(Exponential::made(p)?),
        _ => return Ok(None),
    }))
}

fn between<P: Made + KlDivergence<Q>, Q: Made>(p: &[Tensor], q: &[Tensor]) -> Result<Tensor> {
    kl_divergence(&P::made(p)?, &Q::made(q)?)
}

/// The divergence of two kinds of the fixture: every pair that PyTorch registers.
fn divergence(p: &str, q: &str, of_p: &[Tensor], of_q: &[Tensor]) -> Result<Tensor> {
    macro_rules! pairs {
        ($($p:ty, $a:literal: $($q:ty, $b:literal),*;)*) => {
            match (p, q) {
                $($(($a, $b) => between::<$p, $q>(of_p, of_q),)*)*
                _ => panic!("no divergence of {p} from {q}"),
            }
        };
    }
    pairs! {
        Normal, "normal": Normal, "normal", Laplace, "laplace", Uniform, "uniform", Exponential, "exponential", Gamma, "gamma", Beta, "beta";
        Laplace, "laplace": Normal, "normal", Laplace, "laplace", Uniform, "uniform", Exponential, "exponential", Gamma, "gamma", Beta, "beta";
        LogNormal, "log_normal": LogNormal, "log_normal";
        Uniform, "uniform": Normal, "normal", Uniform, "uniform", Exponential, "exponential", Gamma, "gamma", Beta, "beta";
        Exponential, "exponential": Normal, "normal", Uniform, "uniform", Exponential, "exponential", Gamma, "gamma", Beta, "beta";
        Gamma, "gamma": Normal, "normal", Uniform, "uniform", Exponential, "exponential", Gamma, "gamma", Beta, "beta";
        Beta, "beta": Normal, "normal", Uniform, "uniform", Exponential, "exponential", Gamma, "gamma", Beta, "beta";
        Dirichlet, "dirichlet": Dirichlet, "dirichlet";
        Poisson, "poisson": Poisson, "poisson", Bernoulli, "bernoulli_probs", Binomial, "binomial_probs";
        Binomial, "binomial_probs": Binomial, "binomial_probs";
        Bernoulli, "bernoulli_probs": Bernoulli, "bernoulli_probs", Poisson, "poisson";
        Categorical, "categorical_probs": Categorical, "categorical_probs";
        MultivariateNormal, "multivariate_covariance": MultivariateNormal, "multivariate_covariance";
        Independent<Normal>, "independent_normal": Independent<Normal>, "independent_normal";
    }
}

fn dtypes(d: &Device) -> Vec<DType> {
    [DType::F32, DType::F64].into_iter().filter(|&dtype| has(d, dtype)).collect()
}

#[track_caller]
fn close(found: &Tensor, expected: &Array, dtype: DType, what: &str) {
    assert_eq!((found.dims(), found.dtype()), (&expected.shape[..], dtype), "{what}");
    let within = if dtype == DType::F64 { (1e-12, 1e-12) } else { (2e-5, 2e-5) };
    assert_close(&found.to_f64_vec().unwrap(), &expected.values(), within, what);
}

#[test]
fn numbers_are_pytorchs() -> Result<()> {
    let d = device();
    let all: Fixture = fixture("distributions");
    for dtype in dtypes(&d) {
        for case in &all.cases {
            let Case { kind, .. } = case;
            let what = |part: &str| format!("{kind} in {dtype}: {part}");
            let parameters = case
                .parameters
                .iter()
                .map(|p| p.tensor(dtype)?.into_cell(true))
                .collect::<Result<Vec<_>>>()?;
            let of = distribution(kind, &parameters)?;
            of.validate()?;
            assert_eq!(of.batch_shape().dims(), case.batch, "{kind}");
            assert_eq!(of.event_shape().dims(), case.event, "{kind}");
            let mut value = case.value(dtype)?;
            let mut leaves = parameters.clone();
            if !case.counts() {
                value = value.into_cell(true)?;
                leaves.insert(0, value.clone());
            }
            let found = of.log_prob(&value)?;
            close(&found, &case.log_prob, dtype, &what("log_prob"));
            let grads = grad(&[&found.sum()], &leaves, false)?;
            for (k, (found, expected)) in grads.iter().zip(&case.grads).enumerate() {
                let found = found.clone().unwrap_or_else(|| leaves[k].zeros_like());
                close(&found, expected, dtype, &what(&format!("gradient {k}")));
            }
            match &case.entropy {
                Some(entropy) => close(&of.entropy()?, entropy, dtype, &what("entropy")),
                None => refused(of.entropy(), &[".entropy", "no formula"]),
            }
            match (&case.mean, &case.variance) {
                (Some(mean), Some(variance)) => {
                    close(&of.mean()?, mean, dtype, &what("mean"));
                    close(&of.variance()?, variance, dtype, &what("variance"));
                    close(&of.stddev()?.powi(2), variance, dtype, &what("stddev"));
                }
                _ => {
                    refused(of.mean(), &["Categorical.mean", "no expectation"]);
                    refused(of.variance(), &["Categorical.variance", "no variance"]);
                }
            }
            let numbers = cumulative(kind, &parameters)?;
            assert_eq!(numbers.is_some(), case.cdf.is_some() && case.icdf.is_some(), "{kind}");
            if let (Some(of), Some(cdf), Some(icdf)) = (numbers, &case.cdf, &case.icdf) {
                close(&of.cdf(&value)?, cdf, dtype, &what("cdf"));
                let lead: Vec<usize> = [3].into_iter().chain(case.batch.iter().map(|_| 1)).collect();
                let shares = all.shares.tensor(dtype)?.reshape(lead)?;
                close(&of.icdf(&shares)?, icdf, dtype, &what("icdf"));
            }
        }
    }
    Ok(())
}

#[test]
fn divergences_are_pytorchs() -> Result<()> {
    let d = device();
    let all: Fixture = fixture("distributions");
    assert_eq!(all.divergences.len(), 43);
    for dtype in dtypes(&d) {
        for case in &all.divergences {
            let tensors = |of: &[Array]| of.iter().map(|p| p.tensor(dtype)).collect::<Result<Vec<_>>>();
            let found = divergence(&case.p, &case.q, &tensors(&case.of_p)?, &tensors(&case.of_q)?)?;
            close(&found, &case.found, dtype, &format!("{} from {} in {dtype}", case.p, case.q));
        }
    }
    Ok(())
}

#[test]
fn gradients_agree_with_differences() -> Result<()> {
    let d = device();
    if !needs(&d, DType::F64) {
        return Ok(());
    }
    let all: Fixture = fixture("distributions");
    for case in &all.cases {
        let kind = &case.kind[..];
        let mut parameters =
            case.parameters.iter().map(|p| p.tensor(DType::F64)).collect::<Result<Vec<_>>>()?;
        if kind == "categorical_probs" {
            parameters[0] = parameters[0].add_scalar(0.5); // away from 0, where logarithms are held
        }
        let count = parameters.len();
        let value = case.value(DType::F64)?;
        // A covariance is symmetric: both triangles move together.
        let own = |p: &[Tensor]| -> Result<Vec<Tensor>> {
            let mut p = p.to_vec();
            if let ("multivariate_covariance" | "multivariate_precision", [_, matrix]) = (kind, &mut p[..]) {
                *matrix = matrix.add(&matrix.transpose(-2, -1)?)?.mul_scalar(0.5);
            }
            if let ("multivariate_tril", [_, matrix]) = (kind, &mut p[..]) {
                *matrix = matrix.tril(0)?;
            }
            Ok(p)
        };
        let mut inputs = parameters.clone();
        if !case.counts() && kind != "dirichlet" {
            inputs.push(value.clone());
        }
        let log_prob = |x: &[Tensor]| {
            let value = x.get(count).unwrap_or(&value);
            distribution(kind, &own(&x[..count])?)?.log_prob(value)
        };
        gradcheck(log_prob, &inputs).map_err(|e| panic!("{kind}: log_prob: {e}"))?;
        if case.entropy.is_some() {
            let entropy = |x: &[Tensor]| distribution(kind, &own(x)?)?.entropy();
            gradcheck(entropy, &parameters).map_err(|e| panic!("{kind}: entropy: {e}"))?;
        }
        // A draw by rejection jumps where another round is accepted: see the moments of gradients.
        let by_rejection = ["gamma", "beta", "dirichlet"].contains(&kind);
        if !by_rejection && reparameterized(kind, &parameters)?.is_some() {
            let draws = |x: &[Tensor]| {
                let of = reparameterized(kind, &own(x)?)?.unwrap();
                of.draw_reparameterized(Shape::from([3]), &Generator::seed(4, &d))
            };
            gradcheck(draws, &parameters).map_err(|e| panic!("{kind}: rsample: {e}"))?;
            gradgradcheck(draws, &parameters).map_err(|e| panic!("{kind}: rsample, twice: {e}"))?;
        }
    }
    for case in &all.divergences {
        let f = |p: &Array| p.tensor(DType::F64);
        let parameters = case.of_p.iter().chain(&case.of_q).map(f).collect::<Result<Vec<_>>>()?;
        let count = case.of_p.len();
        if case.p == "binomial_probs" {
            continue; // its counts are whole numbers
        }
        let infinite = case.found.values().iter().any(|v| v.is_infinite());
        let kinked =
            ["categorical_probs", "bernoulli_probs", "multivariate_covariance"].contains(&&case.p[..]);
        if infinite || kinked {
            continue; // at the edge of what they are for: numbers alone
        }
        gradcheck(|x| divergence(&case.p, &case.q, &x[..count], &x[count..]), &parameters)
            .map_err(|e| panic!("{} from {}: {e}", case.p, case.q))?;
    }
    Ok(())
}

/// Means and variances of draws, each within five of its standard errors.
#[track_caller]
fn moments(kind: &str, of: &dyn Distribution, draws: &Tensor) -> Result<()> {
    let n = draws.dims()[0];
    let each = |t: &Tensor| t.to_f64_vec();
    let (means, variances) = (each(&of.mean()?)?, each(&of.variance()?)?);
    let columns = draws.to_f64_vec()?;
    let size = means.len();
    assert_eq!(columns.len(), n * size, "{kind}");
    for (k, (mean, variance)) in means.iter().zip(&variances).enumerate() {
        let column: Vec<f64> = columns.iter().skip(k).step_by(size).copied().collect();
        let moment =
            |about: f64, power: i32| column.iter().map(|v| (v - about).powi(power)).sum::<f64>() / n as f64;
        let found = moment(0.0, 1);
        let error = (variance / n as f64).sqrt();
        assert!((found - mean).abs() < 5.0 * error + 1e-6, "{kind} {k}: mean {found}, expected {mean}");
        let spread = moment(*mean, 2);
        let error = ((moment(*mean, 4) - spread * spread).max(0.0) / n as f64).sqrt();
        assert!((spread - variance).abs() < 5.0 * error + 1e-6, "{kind} {k}: {spread}, expected {variance}");
    }
    Ok(())
}

const MANY: usize = 20_000;

#[test]
fn draws_have_the_moments_they_should() -> Result<()> {
    let d = device();
    let t = |values: &[f32]| Tensor::from_slice(values, [values.len()], &d);
    let rng = Generator::seed(21, &d);
    let of: Vec<(&str, Box<dyn Distribution>)> = vec![
        ("normal", Box::new(Normal::new(&t(&[-1.0, 3.0])?, &t(&[0.5, 2.0])?)?)),
        ("log_normal", Box::new(LogNormal::new(&t(&[-1.0, 1.0])?, 0.25)?)),
        ("laplace", Box::new(Laplace::new(&t(&[-1.0, 3.0])?, 1.5)?)),
        ("uniform", Box::new(Uniform::new(&t(&[-1.0, 3.0])?, 4.0)?)),
        ("exponential", Box::new(Exponential::new(&t(&[0.5, 4.0])?)?)),
        ("gamma", Box::new(Gamma::new(&t(&[0.5, 4.0])?, 2.0)?)),
        ("beta", Box::new(Beta::new(&t(&[0.5, 4.0])?, 2.0)?)),
        ("dirichlet", Box::new(Dirichlet::new(&t(&[0.5, 4.0, 1.0])?)?)),
        ("poisson", Box::new(Poisson::new(&t(&[0.5, 40.0])?)?)),
        ("binomial", Box::new(Binomial::from_probs(&t(&[5.0, 40.0])?, &t(&[0.25, 0.75])?)?)),
        ("bernoulli", Box::new(Bernoulli::from_probs(&t(&[0.0, 0.25, 1.0])?)?)),
        ("bernoulli of logits", Box::new(Bernoulli::from_logits(&t(&[-2.0, 0.5])?)?)),
        ("independent", Box::new(Independent::new(Normal::new(&t(&[1.0, 2.0])?, 1.0)?, 1)?)),
    ];
    for (kind, of) in &of {
        let draws = of.draw(Shape::from([MANY]), &rng)?;
        let whole: Vec<usize> =
            [MANY].iter().chain(of.batch_shape().dims()).chain(of.event_shape().dims()).copied().collect();
        assert_eq!(draws.dims(), whole, "{kind}");
        assert!(!draws.is_tracked());
        moments(kind, &**of, &draws)?;
        assert_eq!(of.draw(Shape::from([0]), &rng)?.dims()[0], 0, "{kind}");
        assert_eq!(of.log_prob(&draws)?.dims().len(), 1 + of.batch_shape().rank(), "{kind}");
    }
    Ok(())
}

#[test]
fn draws_fall_below_quantiles_as_often_as_they_should() -> Result<()> {
    let d = device();
    let rng = Generator::seed(8, &d);
    let loc = Tensor::new([0.5f32, -2.0], &d)?;
    let of: Vec<(&str, Box<dyn Cumulative>)> = vec![
        ("normal", Box::new(Normal::new(&loc, 2.0)?)),
        ("log_normal", Box::new(LogNormal::new(&loc, 2.0)?)),
        ("laplace", Box::new(Laplace::new(&loc, 2.0)?)),
        ("uniform", Box::new(Uniform::new(&loc, 2.0)?)),
        ("exponential", Box::new(Exponential::new(&loc.exp())?)),
    ];
    for (kind, of) in &of {
        let draws = of.draw(Shape::from([MANY]), &rng)?;
        for q in [0.0625f32, 0.5, 0.9375] {
            let mark = of.icdf(&Tensor::full((), q, &d)?)?;
            let back = of.cdf(&mark)?.to_f64_vec()?;
            assert!(back.iter().all(|b| (b - f64::from(q)).abs() < 1e-5), "{kind}: {back:?} of {q}");
            let below = draws.lt(&mark)?.to_dtype(DType::F32)?.mean_axis(0, false)?.to_f64_vec()?;
            assert!(below.iter().all(|b| (b - f64::from(q)).abs() < 0.02), "{kind}: {below:?} below {q}");
        }
    }
    Ok(())
}

/// The mean of the gradients of f(x) over draws x is the gradient of the mean of f(x).
#[test]
fn gradients_through_gamma_numbers_have_the_right_mean() -> Result<()> {
    let d = device();
    let rng = Generator::seed(17, &d);
    let cell = |v: f32| Tensor::full((), v, &d)?.into_cell(true);
    let of = |y: Tensor, by: &Tensor| -> Result<f64> {
        grad(&[&y.mean()], &[by], false)?[0].as_ref().unwrap().item_f64()
    };
    let near = |found: f64, expected: f64, what: &str| {
        assert!((found / expected - 1.0).abs() < 0.1, "{what}: {found}, expected {expected}");
    };
    for alpha in [0.2f32, 0.7, 1.5, 7.0, 20.0, 300.0] {
        let (a, rate) = (cell(alpha)?, cell(2.0)?);
        let x = Gamma::new(&a, &rate)?.rsample(MANY, &rng)?;
        let alpha = f64::from(alpha);
        // E x = α/β, E x² = α(α + 1)/β².
        near(of(x.clone(), &a)?, 0.5, &format!("E x of {alpha}"));
        near(of(x.clone(), &rate)?, -alpha / 4.0, &format!("E x of {alpha} by the rate"));
        near(of(x.square(), &a)?, (2.0 * alpha + 1.0) / 4.0, &format!("E x² of {alpha}"));
    }
    for (alpha, beta) in [(0.5f32, 0.5f32), (2.0, 5.0), (30.0, 12.0)] {
        let (a, b) = (cell(alpha)?, cell(beta)?);
        let x = Beta::new(&a, &b)?.rsample(MANY, &rng)?;
        let (alpha, beta) = (f64::from(alpha), f64::from(beta));
        let square = (alpha + beta).powi(2);
        near(of(x.clone(), &a)?, beta / square, "E x of a beta number by a");
        near(of(x, &b)?, -alpha / square, "E x of a beta number by b");
    }
    let a = Tensor::new([0.5f32, 2.0, 1.5], &d)?.into_cell(true)?;
    let x = Dirichlet::new(&a)?.rsample(MANY, &rng)?;
    let first = x.select(1, 0)?.mean();
    let found = grad(&[&first], &[&a], false)?[0].as_ref().unwrap().to_f64_vec()?;
    for (k, expected) in [3.5 / 16.0, -0.5 / 16.0, -0.5 / 16.0].into_iter().enumerate() {
        near(found[k], expected, "E x₀ of shares");
    }
    // Draws that are 0 in f32 have a logarithm and a gradient all the same.
    let tiny = Tensor::full([100], 1e-3, &d)?.into_cell(true)?;
    let shares = Beta::new(&tiny, &tiny)?.rsample((), &rng)?;
    let found = grad(&[&shares.sum()], &[&tiny], false)?[0].clone().unwrap();
    assert!(found.isfinite().all().item::<bool>()?);
    Ok(())
}

#[test]
fn places_are_drawn_by_their_weight() -> Result<()> {
    let d = device();
    let rng = Generator::seed(3, &d);
    let weights = Tensor::new([[1.0f32, 2.0, 5.0], [3.0, 0.0, 1.0]], &d)?;
    for of in [Categorical::from_probs(&weights)?, Categorical::from_logits(&weights.log())?] {
        let draws = of.sample([50, MANY / 50], &rng)?;
        assert_eq!(draws.dims(), [50, MANY / 50, 2]);
        assert!(draws.dtype().is_int());
        for (k, shares) in [[0.125, 0.25, 0.625], [0.75, 0.0, 0.25]].iter().enumerate() {
            for (place, share) in shares.iter().enumerate() {
                let found = draws.select(-1, k as isize)?.eq_scalar(place as i64).to_dtype(DType::F32)?;
                let found = found.mean().item_f64()?;
                assert!((found - share).abs() < 0.018, "{place} of {k}: {found}, expected {share}");
            }
        }
        assert_eq!(of.sample((), &rng)?.dims(), [2]);
        assert_eq!(of.sample([0, 3], &rng)?.dims(), [0, 3, 2]);
    }
    Ok(())
}

#[test]
fn normal_vectors_have_their_covariance() -> Result<()> {
    let d = device();
    let rng = Generator::seed(13, &d);
    let loc = Tensor::new([[1.0f32, -2.0], [0.0, 4.0]], &d)?;
    let one = Tensor::new([[1.5f32, 0.0], [-0.5, 0.75]], &d)?;
    let several = Tensor::stack(&[&one, &one.mul_scalar(2.0)], 0)?;
    for (l, covariances) in [
        (&one, [[2.25, -0.75, -0.75, 0.8125], [2.25, -0.75, -0.75, 0.8125]]),
        (&several, [[2.25, -0.75, -0.75, 0.8125], [9.0, -3.0, -3.0, 3.25]]),
    ] {
        // From a Cholesky factor, on every device.
        let of = MultivariateNormal::from_scale_tril(&loc, l)?;
        of.validate()?;
        let found = of.covariance()?.to_f64_vec()?;
        assert_close(&found, &covariances.concat(), (1e-6, 1e-6), "covariance");
        let draws = of.sample([MANY], &rng)?;
        assert_eq!(draws.dims(), [MANY, 2, 2]);
        moments("multivariate", &of, &draws)?;
        let far = draws.sub(&loc)?;
        let product = far.select(-1, 0)?.mul(&far.select(-1, 1)?)?.mean_axis(0, false)?.to_f64_vec()?;
        for (k, covariance) in covariances.iter().enumerate() {
            assert!((product[k] - covariance[1]).abs() < 0.05 * covariance[0], "{product:?}");
        }
    }
    Ok(())
}

#[test]
fn a_draw_with_a_gradient_is_the_same_draw() -> Result<()> {
    let d = device();
    let loc = Tensor::new([0.5f32, -2.0], &d)?.into_cell(true)?;
    let of = Normal::new(&loc, 2.0)?;
    let rng = || Generator::seed(5, &d);
    let (plain, tracked) = (of.sample([3], &rng())?, of.rsample([3], &rng())?);
    assert!(!plain.is_tracked() && tracked.is_tracked());
    assert!(plain.equal(&tracked.detach())?);
    let grads = grad(&[&tracked.sum()], &[&loc], false)?;
    assert_eq!(grads[0].as_ref().unwrap().to_vec::<f32>()?, [3.0, 3.0]);
    // A generator of another device draws the same numbers.
    let host = Generator::seed(5, &taper::cpu());
    assert!(of.sample([3], &host)?.equal(&plain)?);
    Ok(())
}

#[test]
fn densities_outside_the_support_are_zero() -> Result<()> {
    let d = device();
    let ones = Tensor::ones([1], &d)?.into_cell(true)?;
    let below = Tensor::new([-1.0f32], &d)?;
    let above = Tensor::new([3.0f32], &d)?;
    let of: Vec<(Box<dyn Distribution>, &Tensor)> = vec![
        (Box::new(Uniform::new(&ones, 2.0)?), &below),
        (Box::new(Uniform::new(&ones, 2.0)?), &above),
        (Box::new(Exponential::new(&ones)?), &below),
        (Box::new(LogNormal::new(&ones, 1.0)?), &below),
        (Box::new(Gamma::new(&ones.mul_scalar(2.5), 1.0)?), &below),
        (Box::new(Beta::new(&ones.mul_scalar(2.5), 1.5)?), &below),
        (Box::new(Beta::new(&ones.mul_scalar(2.5), 1.5)?), &above),
        (Box::new(Poisson::new(&ones)?), &below),
        (Box::new(Binomial::from_logits(2.0, &ones)?), &above),
    ];
    for (k, (of, value)) in of.iter().enumerate() {
        let log = of.log_prob(value)?;
        assert_eq!(log.to_vec::<f32>()?, [f32::NEG_INFINITY], "{k}");
        // A parameter that other elements share keeps its gradient.
        let grads = grad(&[&log.sum()], &[&ones], false)?;
        let found = grads[0].as_ref().map_or(Ok(vec![0.0]), |g| g.to_vec::<f32>())?;
        assert_eq!(found, [0.0], "{k}");
    }
    assert_eq!(LogNormal::new(&ones, 1.0)?.cdf(&below)?.to_vec::<f32>()?, [0.0]);
    assert_eq!(Exponential::new(&ones)?.cdf(&below)?.to_vec::<f32>()?, [0.0]);
    assert_eq!(Uniform::new(&ones, 2.0)?.cdf(&above)?.to_vec::<f32>()?, [1.0]);
    for of in [
        Box::new(Normal::new(&ones, 1.0)?) as Box<dyn Cumulative>,
        Box::new(Laplace::new(&ones, 1.0)?),
        Box::new(Uniform::new(&ones, 2.0)?),
        Box::new(Exponential::new(&ones)?),
        Box::new(LogNormal::new(&ones, 1.0)?),
    ] {
        assert!(of.icdf(&below)?.isnan().all().item::<bool>()?);
        assert!(of.icdf(&above)?.isnan().all().item::<bool>()?);
    }
    Ok(())
}

#[test]
fn half_types_draw_and_measure() -> Result<()> {
    let d = device();
    for dtype in [DType::F16, DType::BF16] {
        if !has(&d, dtype) {
            continue;
        }
        let rng = Generator::seed(2, &d);
        let ones = Tensor::ones([4], (dtype, &d))?;
        let of: Vec<Box<dyn Distribution>> = vec![
            Box::new(Normal::new(&ones, 0.5)?),
            Box::new(Laplace::new(&ones, 0.5)?),
            Box::new(Exponential::new(&ones)?),
            Box::new(Gamma::new(&ones, 2.0)?),
            Box::new(Beta::new(&ones, 2.0)?),
            Box::new(Poisson::new(&ones)?),
            Box::new(Bernoulli::from_probs(&ones.mul_scalar(0.5))?),
        ];
        for of in of {
            let draws = of.draw(Shape::from([100]), &rng)?;
            let log = of.log_prob(&draws)?;
            assert_eq!((draws.dtype(), log.dtype()), (dtype, dtype));
            assert!(log.isfinite().all().item::<bool>()?, "{log}");
        }
        let places = Categorical::from_logits(&ones)?;
        assert_eq!(places.entropy()?.dtype(), dtype);
    }
    Ok(())
}

#[test]
fn bad_input_is_refused() -> Result<()> {
    let d = device();
    let rng = Generator::seed(1, &d);
    let two = Tensor::ones([2], &d)?;
    let three = Tensor::ones([3], &d)?;
    let ints = Tensor::ones([2], (DType::I32, &d))?;
    let scalar = Tensor::ones((), &d)?;
    refused(Normal::new(&two, &three), &["Normal: [2] x [3]"]);
    refused(LogNormal::new(&two, &three), &["LogNormal: [2] x [3]"]);
    refused(Normal::new(&ints, 1.0), &["Normal", "loc is of i32", "to_dtype"]);
    refused(Normal::new(&two, &ints), &["Normal", "scale is of i32"]);
    refused(Exponential::new(&ints), &["Exponential", "rate is of i32"]);
    refused(Binomial::from_probs(&ints, &two), &["Binomial", "total_count is of i32"]);
    refused(Bernoulli::from_probs(&ints), &["Bernoulli", "probs is of i32"]);
    refused(Categorical::from_probs(&scalar), &["Categorical", "probs is a scalar", "unsqueeze"]);
    refused(Categorical::from_logits(&Tensor::ones([2, 0], &d)?), &["Categorical", "no categories"]);
    refused(Dirichlet::new(&scalar), &["Dirichlet", "scalar"]);
    refused(MultivariateNormal::new(&two, &two), &["MultivariateNormal", "loc [2] and covariance [2]"]);
    let eye = Tensor::eye(3, &d)?;
    refused(MultivariateNormal::from_scale_tril(&two, &eye), &["scale_tril [3, 3]", "[..., n, n]"]);
    refused(Independent::new(Normal::new(&two, 1.0)?, 2), &["Independent", "2 axes", "[2]"]);
    let normal = Normal::new(&two, 1.0)?;
    refused(normal.log_prob(&three), &["Normal.log_prob: [3] x [2]"]);
    refused(normal.cdf(&three), &["Normal.cdf"]);
    refused(kl_divergence(&normal, &Normal::new(&three, 1.0)?), &["kl_divergence: [2] x [3]"]);
    let places = Categorical::from_probs(&three)?;
    refused(places.log_prob(&two), &["Categorical.log_prob", "categories are integers"]);
    refused(
        kl_divergence(&places, &Categorical::from_probs(&two)?),
        &["kl_divergence", "3 and 2 categories"],
    );
    refused(
        kl_divergence(&Dirichlet::new(&three)?, &Dirichlet::new(&two)?),
        &["kl_divergence", "events of [3] and [2]"],
    );
    let whole = Independent::new(Normal::new(&two, 1.0)?, 0)?;
    refused(kl_divergence(&Independent::new(normal, 1)?, &whole), &["kl_divergence", "1 and 0 event axes"]);
    if d.name() != "cpu" {
        let here = Tensor::ones([2], &taper::cpu())?;
        refused(Normal::new(&two, &here), &["Normal", "cpu", ".to(&device)"]);
    }
    // Values, when a user asks.
    let t = |values: &[f32]| Tensor::from_slice(values, [values.len()], &d);
    let bad: Vec<(Box<dyn Distribution>, &[&str])> = vec![
        (Box::new(Normal::new(&two, &t(&[1.0, 0.0])?)?), &["Normal", "scale", "above 0"]),
        (Box::new(Normal::new(&t(&[f32::NAN])?, 1.0)?), &["Normal", "loc", "finite"]),
        (Box::new(LogNormal::new(&two, -1.0)?), &["LogNormal", "scale"]),
        (Box::new(Laplace::new(&two, -1.0)?), &["Laplace", "scale"]),
        (Box::new(Uniform::new(&two, 1.0)?), &["Uniform", "high", "above low"]),
        (Box::new(Exponential::new(&t(&[f32::INFINITY])?)?), &["Exponential", "rate"]),
        (Box::new(Gamma::new(&two, 0.0)?), &["Gamma", "rate"]),
        (Box::new(Beta::new(&two, -1.0)?), &["Beta", "concentration0"]),
        (Box::new(Dirichlet::new(&t(&[1.0, 0.0])?)?), &["Dirichlet", "concentration"]),
        (Box::new(Poisson::new(&t(&[-1.0])?)?), &["Poisson", "rate", "at least 0"]),
        (Box::new(Binomial::from_probs(1.5, &two)?), &["Binomial", "total_count", "whole number"]),
        (Box::new(Binomial::from_probs(1.0, &t(&[1.5])?)?), &["Binomial", "probs", "between 0 and 1"]),
        (Box::new(Bernoulli::from_probs(&t(&[1.5])?)?), &["Bernoulli", "probs", "between 0 and 1"]),
        (Box::new(Bernoulli::from_logits(&t(&[f32::NAN])?)?), &["Bernoulli", "logits", "finite"]),
        (Box::new(Categorical::from_probs(&t(&[1.0, -1.0])?)?), &["Categorical", "probs", "at least 0"]),
        (Box::new(Categorical::from_probs(&t(&[0.0, 0.0])?)?), &["Categorical", "sums"]),
        (Box::new(Categorical::from_logits(&t(&[f32::NAN])?)?), &["Categorical", "logits"]),
        (
            Box::new(MultivariateNormal::from_scale_tril(&two, &Tensor::ones([2, 2], &d)?)?),
            &["MultivariateNormal", "lower triangular"],
        ),
        (
            Box::new(MultivariateNormal::from_scale_tril(&two, &Tensor::zeros([2, 2], &d)?)?),
            &["MultivariateNormal", "diagonal", "above 0"],
        ),
    ];
    for (of, words) in &bad {
        refused(of.validate(), words);
    }
    refused(Poisson::new(&t(&[-1.0])?)?.sample((), &rng), &["poisson", "negative"]);
    refused(Categorical::from_probs(&t(&[-1.0, 1.5])?)?.sample((), &rng), &["multinomial", "negative"]);
    Ok(())
}

/// Inputs, numbers of f32 where they are numbers of it, and what mpmath 1.3 gives in 60 digits.
const NORMAL_QUANTILES: &[(f64, f64)] = &[
    (1.0000000031710769e-30, -11.464024688169063),
    (1.000000013351432e-10, -6.361340900353645),
    (9.999999747378752e-06, -4.264890799563287),
    (0.0010000000474974513, -3.090232292061434),
    (0.019999999552965164, -2.0537489198646206),
    (0.07490000128746033, -1.4402382584236055),
    (0.07509999722242355, -1.4388254123544413),
    (0.20000000298023224, -0.84162122292778),
    (0.4999000132083893, -0.00025062972156495795),
    (0.5000001192092896, 2.9881337578666663e-07),
    (0.699999988079071, 0.5244004784222137),
    (0.9300000071525574, 1.475791081449959),
    (0.9990000128746033, 3.0902361298491052),
    (0.9999990463256836, 4.7630010342678135),
    (1e-300, -37.0470962993612),
    (1e-100, -21.273453560965326),
    (2.2250738585072014e-308, -37.5193793471445),
    (0.9999999999999998, 8.125890664701906),
];
/// As the above.
const NORMAL_SHARES: &[(f64, f64)] = &[
    (-12.5, 3.732564298877713e-36),
    (-10.300000190734863, 3.52305809356425e-25),
    (-7.699999809265137, 6.803321695788547e-15),
    (-5.5, 1.8989562465887718e-08),
    (-3.299999952316284, 0.0004834242245222714),
    (-1.100000023841858, 0.13566605575238208),
    (-0.30000001192092896, 0.3820885732645503),
    (0.4000000059604645, 0.6554217438053852),
    (2.200000047683716, 0.9860965541780617),
    (6.0, 0.9999999990134123),
    (-37.1, 1.4047119663106221e-301),
    (-26.3, 9.588564685098316e-153),
    (-18.77, 6.644274068154905e-79),
];
/// As the above.
const LAPLACE_QUANTILES: &[(f64, f64)] = &[
    (1.0000000031710769e-30, -68.38440560609035),
    (1.000000013351432e-10, -22.332703736029078),
    (9.999999747378752e-06, -10.819778309672408),
    (0.0010000000474974513, -6.214608050924742),
    (0.019999999552965164, -3.218875847219943),
    (0.07490000128746033, -1.8984541907099617),
    (0.07509999722242355, -1.8957875766371426),
    (0.20000000298023224, -0.916290716972994),
    (0.4999000132083893, -0.00019999358060443875),
    (0.5000001192092896, 2.3841860752327643e-07),
    (0.699999988079071, 0.5108255840295616),
    (0.9300000071525574, 1.966112958552229),
    (0.9990000128746033, 6.2146209731083415),
    (0.9999990463256836, 13.16979643063896),
    (1e-300, -690.0823807176538),
    (1e-100, -229.56536211884463),
    (2.2250738585072014e-308, -707.7032713517042),
    (0.9999999999999998, 35.35050620855721),
];
/// ln(1 / (1 + e⁻ˣ)), as the above.
const LOG_SIGMOID: &[(f64, f64)] = &[
    (-60.0, -60.0),
    (-20.0, -20.000000002061153),
    (-3.0, -3.048587351573742),
    (0.5, -0.4740769841801067),
    (17.0, -4.139937633089748e-08),
    (40.0, -4.248354255291589e-18),
];

/// Holds f to the results of a table, within some units in the last place of each, in every dtype of f32 and
/// f64 that the device has.
fn holds_table(what: &str, table: &[(f64, f64)], f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<()> {
    let d = device();
    for dtype in [DType::F32, DType::F64] {
        if !has(&d, dtype) {
            continue;
        }
        let (rounding, least) = if dtype == DType::F64 { (f64::EPSILON, 0.0) } else { (1.2e-7, 2e-38) };
        // Functions of a GPU are some units off themselves, and erfc in f64 is within 3e-14 everywhere.
        let units = match (what, dtype) {
            ("Normal.cdf", DType::F64) => 150.0,
            _ if d.to_string().starts_with("cpu") => 6.0,
            _ => 40.0,
        };
        let fits =
            |x: &(f64, f64)| dtype == DType::F64 || (f64::from(x.0 as f32) == x.0 && x.1.abs() > least);
        let (given, expected): (Vec<f64>, Vec<f64>) = table.iter().copied().filter(fits).unzip();
        let found = f(&Tensor::from_slice(&given, [given.len()], &taper::cpu())?.to_dtype(dtype)?.to(&d)?)?
            .to_f64_vec()?;
        for ((x, found), expected) in given.iter().zip(found).zip(expected) {
            let off = ((found - expected) / expected).abs() / rounding;
            assert!(off <= units, "{what} at {x} in {dtype}: {found:e} is not {expected:e}, by {off} units");
        }
    }
    Ok(())
}

#[test]
fn tails_keep_their_digits() -> Result<()> {
    let zero = |like: &Tensor| like.zeros_like();
    holds_table("Normal.icdf", NORMAL_QUANTILES, |q| Normal::new(&zero(q), 1.0)?.icdf(q))?;
    holds_table("Normal.cdf", NORMAL_SHARES, |z| Normal::new(&zero(z), 1.0)?.cdf(z))?;
    holds_table("Laplace.icdf", LAPLACE_QUANTILES, |q| Laplace::new(&zero(q), 1.0)?.icdf(q))?;
    let laplace: Vec<(f64, f64)> =
        [-80.0, -30.5, -2.0, -0.25].iter().map(|&x: &f64| (x, 0.5 * x.exp())).collect();
    holds_table("Laplace.cdf", &laplace, |x| Laplace::new(&zero(x), 1.0)?.cdf(x))?;
    let bernoulli = |x: &Tensor| Bernoulli::from_logits(x)?.log_prob(&x.ones_like());
    holds_table("Bernoulli.log_prob", LOG_SIGMOID, bernoulli)?;
    holds_table("Bernoulli.log_prob of 0", LOG_SIGMOID, |x| {
        Bernoulli::from_logits(&x.neg())?.log_prob(&x.zeros_like())
    })?;
    let all: Vec<(f64, f64)> = LOG_SIGMOID.iter().map(|&(x, y)| (x, 4.0 * y)).collect();
    holds_table("Binomial.log_prob", &all, |x| Binomial::from_logits(4.0, x)?.log_prob(&x.full_like(4.0)))?;
    let small = |f: fn(f64) -> f64| -> Vec<(f64, f64)> {
        [1e-30f32, 1e-10, 0.3].iter().map(|&x| (f64::from(x), f(f64::from(x)))).collect()
    };
    let one = |x: &Tensor| Exponential::new(&x.ones_like());
    holds_table("Exponential.cdf", &small(|x| -(-x).exp_m1()), |x| one(x)?.cdf(x))?;
    holds_table("Exponential.icdf", &small(|x| -(-x).ln_1p()), |x| one(x)?.icdf(x))
}

#[test]
fn quantiles_have_their_ends_and_gradients() -> Result<()> {
    let d = device();
    let ends = Tensor::new([0.0f32, 1.0, -0.1, 1.1, f32::NAN, 0.5], &d)?;
    let zero = ends.zeros_like();
    for found in [Normal::new(&zero, 2.0)?.icdf(&ends)?, Laplace::new(&zero, 2.0)?.icdf(&ends)?] {
        let found = found.to_vec::<f32>()?;
        assert_eq!([found[0], found[1], found[5]], [f32::NEG_INFINITY, f32::INFINITY, 0.0]);
        assert!(found[2..5].iter().all(|x| x.is_nan()), "{found:?}");
    }
    if !has(&d, DType::F64) {
        return Ok(());
    }
    let q = Tensor::from_slice(&[1e-3f64, 0.07, 0.2, 0.3, 0.6, 0.95, 0.9999], [7], &d)?;
    let x = Tensor::from_slice(&[-4.0f64, -1.5, -0.3, 0.2, 0.7, 2.5, 5.0], [7], &d)?;
    let (loc, scale) = (q.mul_scalar(3.0), q.add_scalar(1.0));
    let all = [q.clone(), loc.clone(), scale.clone()];
    gradcheck(|t| Normal::new(&t[1], &t[2])?.icdf(&t[0]), &all)?;
    gradcheck(|t| Laplace::new(&t[1], &t[2])?.icdf(&t[0]), &all)?;
    gradgradcheck(|t| Normal::new(&t[1], &t[2])?.icdf(&t[0]), &all)?;
    gradcheck(|t| Normal::new(&t[1], &t[2])?.cdf(&t[0]), &[x.clone(), loc, scale])?;
    Ok(())
}

#[test]
fn draws_stay_within_their_ends() -> Result<()> {
    let d = device();
    const MANY: usize = 1 << 17;
    let all = |t: Tensor| t.all().item::<bool>();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        if !has(&d, dtype) {
            continue;
        }
        let rng = Generator::seed(5, &d);
        let draw = |of: &dyn Distribution| of.draw(Shape::from([MANY]), &rng);
        let number = |x: f64| Tensor::full((), x, (dtype, &d));
        let unit = Tensor::rand_dtype([MANY], dtype, &rng)?;
        assert!(all(unit.lt_scalar(1.0).bitwise_and(&unit.ge_scalar(0.0))?)?, "rand in {dtype}");
        assert!(all(Tensor::randn_dtype([MANY], dtype, &rng)?.isfinite())?, "randn in {dtype}");
        for rate in [1.0, 1e-3, 100.0] {
            let waits = draw(&Exponential::new(&number(rate)?)?)?;
            assert!(all(waits.isfinite().bitwise_and(&waits.ge_scalar(0.0))?)?, "Exponential in {dtype}");
        }
        let laplace = draw(&Laplace::new(&number(0.5)?, 2.0)?)?;
        assert!(all(laplace.isfinite())?, "Laplace in {dtype}");
        assert_eq!(laplace.dtype(), dtype);
        for concentration in [0.02, 1.0, 30.0] {
            let shape = number(concentration)?;
            let gamma = draw(&Gamma::new(&shape, 0.5)?)?;
            let beta = draw(&Beta::new(&shape, 0.03)?)?;
            let shares = Dirichlet::new(&shape.expand([2])?)?.draw(Shape::from([MANY / 2]), &rng)?;
            let of_tensor = shape.expand([MANY])?;
            let plain = of_tensor.standard_gamma(&rng)?;
            let plain_beta = of_tensor.beta(&number(0.03)?, &rng)?;
            let plain_shares = shape.expand([MANY / 2, 2])?.dirichlet(&rng)?;
            for (what, draws) in [
                ("Gamma", &gamma),
                ("standard_gamma", &plain),
                ("Dirichlet", &shares),
                ("dirichlet", &plain_shares),
            ] {
                assert!(all(draws.gt_scalar(0.0).bitwise_and(&draws.isfinite())?)?, "{what} in {dtype}");
            }
            for (what, draws) in [("Beta", &beta), ("beta", &plain_beta)] {
                let inside = draws.gt_scalar(0.0).bitwise_and(&draws.lt_scalar(1.0))?;
                assert!(all(inside)?, "{what} in {dtype}");
            }
        }
        for (low, high) in [(1.0, 1.00001), (-3.0, 0.0), (0.1, 0.3), (-2.0, -1.0), (100.0, 101.0)] {
            let (low, high) = (number(low)?, number(high)?);
            if all(low.eq(&high)?)? {
                continue;
            }
            let draws = draw(&Uniform::new(&low, &high)?)?;
            assert!(
                all(draws.ge(&low)?.bitwise_and(&draws.lt(&high)?)?)?,
                "Uniform of {low} and {high} in {dtype}"
            );
        }
        let ends = number(f64::from(f32::MAX))?;
        if all(ends.isfinite())? && dtype == DType::F32 {
            let draws = draw(&Uniform::new(&ends.neg(), &ends)?)?;
            assert!(all(draws.isfinite())?);
        }
    }
    Ok(())
}

#[test]
fn draws_of_the_default_dtype_stay_within_their_ends() -> Result<()> {
    if taper_testing::run_alone(draws_of_the_default_dtype_stay_within_their_ends) {
        return Ok(());
    }
    let d = device();
    const MANY: usize = 1 << 17;
    let all = |t: Tensor| t.all().item::<bool>();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        if !has(&d, dtype) {
            continue;
        }
        taper::set_default_dtype(dtype)?;
        let rng = Generator::seed(6, &d);
        for (low, high) in [(1.0, 1.00001), (0.1, 0.3), (-1.0, 0.0), (-2.5, 7.0), (-3e38, 3e38)] {
            let draws = Tensor::uniform([MANY], low, high, &rng)?;
            assert_eq!(draws.dtype(), dtype);
            let wide = draws.to_f64_vec()?;
            let (least, most) = wide.iter().fold((f64::MAX, f64::MIN), |(l, m), &x| (l.min(x), m.max(x)));
            // f16 has neither 1.00001 nor 3e38, and bf16 not the first of them.
            let has_none = dtype != DType::F64 && dtype != DType::F32 && (high == 1.00001 || high == 3e38);
            assert!(
                has_none || (least >= low && most < high),
                "uniform({low}, {high}) in {dtype}: {least} to {most}"
            );
        }
        for rate in [1.0, 300.0, 1e-3] {
            let waits = Tensor::exponential([MANY], rate, &rng)?;
            assert!(all(waits.gt_scalar(0.0).bitwise_and(&waits.isfinite())?)?, "exponential in {dtype}");
        }
        let log_normal = Tensor::log_normal([MANY], 0.0, 4.0, &rng)?;
        assert!(
            all(log_normal.gt_scalar(0.0).bitwise_and(&log_normal.isfinite())?)?,
            "log_normal in {dtype}"
        );
        assert!(all(Tensor::cauchy([MANY], 0.0, 1.0, &rng)?.isfinite())?, "cauchy in {dtype}");
        let trials = Tensor::geometric([MANY], 0.25, &rng)?;
        assert!(all(trials.ge_scalar(1.0).bitwise_and(&trials.isfinite())?)?, "geometric in {dtype}");
        let cut = Tensor::truncated_normal([MANY], 0.0, 1.0, -0.5, 4.0, &rng)?;
        assert!(all(cut.ge_scalar(-0.5).bitwise_and(&cut.le_scalar(4.0))?)?, "truncated_normal in {dtype}");
    }
    Ok(())
}

#[test]
fn streams_are_what_they_were() -> Result<()> {
    // The first numbers of a seed, in each dtype: those of f32 cut to the bits of a half type.
    let d = device();
    let draw = |dtype| Tensor::rand_dtype([64], dtype, &Generator::seed(3, &d))?.to_f64_vec();
    let wide = draw(DType::F32)?;
    for (dtype, steps) in [(DType::F16, 2048.0), (DType::BF16, 256.0)] {
        if has(&d, dtype) {
            let expected: Vec<f64> = wide.iter().map(|x| (x * steps).floor() / steps).collect();
            assert_eq!(draw(dtype)?, expected);
        }
    }
    let rng = Generator::seed(3, &d);
    let uniform = Tensor::uniform([64], 0.0, 1.0, &rng)?.to_f64_vec()?;
    assert_eq!(uniform, wide);
    Ok(())
}
