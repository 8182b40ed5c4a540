//! Distributions as objects: PyTorch's numbers (`scripts/torch_fixtures.py distributions`), draws by their moments, gradients, refusals.
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
        // Of a factor, on every device.
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
    refused(Categorical::from_logits(&Tensor::ones([2, 0], &d)?), &["Categorical", "no places"]);
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
    refused(places.log_prob(&two), &["Categorical.log_prob", "places are integers"]);
    refused(kl_divergence(&places, &Categorical::from_probs(&two)?), &["kl_divergence", "3 and 2 places"]);
    refused(
        kl_divergence(&Dirichlet::new(&three)?, &Dirichlet::new(&two)?),
        &["kl_divergence", "events of [3] and [2]"],
    );
    let whole = Independent::new(Normal::new(&two, 1.0)?, 0)?;
    refused(kl_divergence(&Independent::new(normal, 1)?, &whole), &["kl_divergence", "1 and 0 axes"]);
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
