//! Random draws by distribution: their moments, their bounds, their streams, and what they refuse.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper::autograd::TensorGrad;
use taper::nn::{self, Module, functional as f};
use taper::{DType, Device, Generator, Result, Tensor};

use crate::common::{agree_within, device, has};
use crate::networks::refused;

const MANY: usize = 40_000;

/// Checks the mean and the variance of draws within `times` standard errors of the mean, and of the variance as its kurtosis asks.
#[track_caller]
fn moments(what: &str, draws: &Tensor, mean: f64, variance: f64, kurtosis: f64) {
    let values = draws.to_f64_vec().unwrap();
    let n = values.len() as f64;
    assert!(values.iter().all(|v| v.is_finite()), "{what}");
    let found = values.iter().sum::<f64>() / n;
    assert!((found - mean).abs() < 5.0 * (variance / n).sqrt(), "{what}: mean {found}, expected {mean}");
    let spread = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    let error = variance * ((kurtosis - 1.0) / n).sqrt();
    assert!((spread - variance).abs() < 5.0 * error, "{what}: variance {spread}, expected {variance}");
}

#[test]
fn inverse_transforms() -> Result<()> {
    let d = device();
    let rng = Generator::seed(11, &d);
    moments("exponential", &Tensor::exponential([MANY], 2.0, &rng)?, 0.5, 0.25, 9.0);
    let least = Tensor::exponential([MANY], 2.0, &rng)?.min()?.item::<f32>()?;
    assert!(least > 0.0, "{least}");
    moments("the logarithm", &Tensor::log_normal([MANY], 0.5, 0.25, &rng)?.log(), 0.5, 0.0625, 3.0);
    let p = 0.3;
    let q = 1.0 - p;
    moments("geometric", &Tensor::geometric([MANY], p, &rng)?, 1.0 / p, q / (p * p), 9.0 + p * p / q);
    assert_eq!(Tensor::geometric([50], 1.0, &rng)?.to_f64_vec()?, [1.0; 50]);
    // No moments, but quartiles.
    let cauchy = Tensor::cauchy([MANY], 1.0, 2.0, &rng)?.to_f64_vec()?;
    for (mark, share) in [(-1.0, 0.25), (1.0, 0.5), (3.0, 0.75)] {
        let found = cauchy.iter().filter(|v| **v < mark).count() as f64 / MANY as f64;
        assert!((found - share).abs() < 0.015, "below {mark}: {found}");
    }
    // Of a normal distribution between −1 and 2 deviations.
    let cut = Tensor::truncated_normal([MANY], 10.0, 2.0, 8.0, 14.0, &rng)?;
    let (low, high) = (cut.min()?.item::<f32>()?, cut.max()?.item::<f32>()?);
    assert!(low >= 8.0 && high <= 14.0 && high > 13.8 && low < 8.05, "{low} {high}");
    moments("truncated", &cut, 10.459_274, 2.079_050, 3.0);
    for (error, words) in [
        (Tensor::exponential([3], 0.0, &rng), &["exponential", "rate 0"]),
        (Tensor::log_normal([3], 0.0, -1.0, &rng), &["log_normal", "deviation -1"]),
        (Tensor::cauchy([3], f64::NAN, 1.0, &rng), &["cauchy", "median NaN"]),
        (Tensor::geometric([3], 1.5, &rng), &["geometric", "1.5"]),
        (Tensor::truncated_normal([3], 0.0, 1.0, 2.0, 1.0, &rng), &["truncated_normal", "in order"]),
        (Tensor::truncated_normal([3], 0.0, 1.0, 5.0, 6.0, &rng), &["truncated_normal", "four deviations"]),
    ] {
        refused(error, words);
    }
    Ok(())
}

#[test]
fn poisson_numbers_of_small_and_large_rates() -> Result<()> {
    let d = device();
    let rng = Generator::seed(5, &d);
    // Alone, so that each way is taken, and together.
    for rate in [0.1f64, 3.0, 9.5, 10.0, 47.0, 1000.0] {
        let rates = Tensor::full([MANY], rate, &d)?;
        moments(&format!("rate {rate}"), &rates.poisson(&rng)?, rate, rate, 3.0 + 1.0 / rate);
    }
    let rates = Tensor::new([[0.0f32], [0.5], [25.0]], &d)?.expand([3, MANY])?;
    let drawn = rates.poisson(&rng)?;
    assert_eq!(drawn.select(0, 0)?.max()?.item::<f32>()?, 0.0);
    moments("rate 0.5 of several", &drawn.select(0, 1)?, 0.5, 0.5, 5.0);
    moments("rate 25 of several", &drawn.select(0, 2)?, 25.0, 25.0, 3.04);
    // Each count by its probability, where the two ways meet.
    for rate in [9.999f64, 10.0] {
        let counts = Tensor::full([4 * MANY], rate, &d)?.poisson(&rng)?.to_f64_vec()?;
        let mut chance = (-rate).exp();
        for k in 0..25 {
            let share = counts.iter().filter(|c| **c == f64::from(k)).count() as f64 / counts.len() as f64;
            let error = (chance / counts.len() as f64).sqrt();
            assert!((share - chance).abs() < 5.0 * error + 1e-5, "{k} of {rate}: {share}, expected {chance}");
            chance *= rate / f64::from(k + 1);
        }
    }
    assert_eq!(Tensor::zeros((0, 2), &d)?.poisson(&rng)?.dims(), [0, 2]);
    let offset = rng.offset();
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        refused(
            Tensor::full([2], bad, (DType::F32, &d))?.poisson(&rng),
            &["poisson", "negative, infinite or NaN"],
        );
    }
    refused(Tensor::ones([2], (DType::I32, &d))?.poisson(&rng), &["poisson", "floating"]);
    assert_eq!(rng.offset(), offset);
    Ok(())
}

#[test]
fn gamma_and_what_is_made_of_it() -> Result<()> {
    let d = device();
    let rng = Generator::seed(6, &d);
    for alpha in [0.1f64, 0.9, 1.0, 4.5, 300.0] {
        let draws = Tensor::full([MANY], alpha, &d)?.standard_gamma(&rng)?;
        assert!(draws.min()?.item::<f32>()? > 0.0);
        moments(&format!("gamma {alpha}"), &draws, alpha, alpha, 3.0 + 6.0 / alpha);
    }
    let (a, b) = (2.0, 0.5);
    let draws = Tensor::full([MANY], a, &d)?.beta(&Tensor::full((), b, &d)?, &rng)?;
    moments("beta", &draws, a / (a + b), a * b / ((a + b).powi(2) * (a + b + 1.0)), 4.0);
    let alpha = Tensor::new([0.5f32, 1.5, 3.0], &d)?.expand([MANY, 3])?;
    let draws = alpha.dirichlet(&rng)?;
    let sums = draws.sum_axis(1, false)?.to_f64_vec()?;
    assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
    for (k, alpha) in [0.5, 1.5, 3.0].into_iter().enumerate() {
        let (mean, rest) = (alpha / 5.0, 5.0 - alpha);
        moments("dirichlet", &draws.select(1, k)?, mean, mean * rest / 5.0 / 6.0, 6.0);
    }
    // Small concentrations leave one place with nearly all, and no NaN.
    let sparse = Tensor::full([100, 4], 1e-3, &d)?.dirichlet(&rng)?;
    assert!(!sparse.isnan().any().item::<bool>()?);
    assert!(Tensor::new([0.0f32, -1.0], &d)?.standard_gamma(&rng)?.isnan().all().item::<bool>()?);
    refused(Tensor::full((), 1.0, &d)?.dirichlet(&rng), &["dirichlet", "scalar"]);
    refused(Tensor::ones([2], (DType::I32, &d))?.standard_gamma(&rng), &["standard_gamma", "floating"]);
    if has(&d, DType::F64) {
        let draws = Tensor::full([MANY], 2.5, (DType::F64, &d))?.standard_gamma(&rng)?;
        assert_eq!(draws.dtype(), DType::F64);
        moments("gamma in f64", &draws, 2.5, 2.5, 3.0 + 6.0 / 2.5);
    }
    Ok(())
}

#[test]
fn one_seed_gives_one_stream_on_every_device() {
    let near = Some((1e-4, 1e-5));
    let rng = |d: &Device| Generator::seed(9, d);
    agree_within("exponential", near, |d| Tensor::exponential([999], 1.5, &rng(d)));
    agree_within("log_normal", near, |d| Tensor::log_normal([999], 0.0, 1.0, &rng(d)));
    agree_within("geometric", near, |d| Tensor::geometric([999], 0.2, &rng(d)));
    agree_within("truncated_normal", near, |d| Tensor::truncated_normal([999], 0.0, 1.0, -2.0, 2.0, &rng(d)));
    agree_within("poisson", near, |d| Tensor::new([[2.5f32], [80.0]], d)?.expand([2, 500])?.poisson(&rng(d)));
    agree_within("gamma", near, |d| {
        Tensor::new([[0.3f32], [8.0]], d)?.expand([2, 500])?.standard_gamma(&rng(d))
    });
    agree_within("gumbel_softmax", near, |d| {
        f::gumbel_softmax(&Tensor::zeros((50, 4), d)?, 0.5, false, 1, &rng(d))
    });
}

#[test]
fn gumbel_softmax_draws_classes() -> Result<()> {
    let d = device();
    let rng = Generator::seed(4, &d);
    let chances = [0.1, 0.2, 0.7];
    let logits = Tensor::new(chances.map(|p: f32| p.ln()), &d)?.expand([20_000, 3])?;
    let hard = f::gumbel_softmax(&logits, 0.7, true, -1, &rng)?;
    let shares = hard.mean_axis(0, false)?.to_f64_vec()?;
    for (share, chance) in shares.iter().zip(chances) {
        assert!((share - f64::from(chance)).abs() < 0.02, "{shares:?}");
    }
    let ones = hard.sub_scalar(1.0).abs().minimum(&hard.abs())?.max()?.item::<f32>()?;
    assert!(ones < 1e-6, "{ones}");
    // The same draw, soft and hard, has the same gradient.
    let gradient = |hard: bool| -> Result<Vec<f64>> {
        let logits = Tensor::new([[0.5f32, 1.0], [2.0, -1.0], [0.0, 0.3]], &d)?.requires_grad();
        let out = f::gumbel_softmax(&logits, 2.0, hard, 0, &Generator::seed(1, &d))?;
        out.mul(&Tensor::new([[1.0f32, 2.0], [3.0, 5.0], [-1.0, 0.5]], &d)?)?.sum().backward()?;
        logits.grad().unwrap().to_f64_vec()
    };
    let (soft, hard) = (gradient(false)?, gradient(true)?);
    assert!(soft.iter().any(|g| g.abs() > 0.05), "{soft:?}");
    assert!(soft.iter().zip(&hard).all(|(a, b)| (a - b).abs() < 1e-6), "{soft:?} {hard:?}");
    refused(f::gumbel_softmax(&logits, 0.0, false, -1, &rng), &["gumbel_softmax", "tau 0"]);
    refused(f::gumbel_softmax(&logits, 1.0, false, 2, &rng), &["gumbel_softmax"]);
    Ok(())
}

#[test]
fn alpha_dropout_keeps_mean_and_variance() -> Result<()> {
    let d = device();
    let rng = Generator::seed(8, &d);
    let x = Tensor::randn([MANY], &rng)?;
    let layer = nn::AlphaDropout::new(0.3, &rng)?;
    moments("alpha_dropout", &layer.forward(&x)?, 0.0, 1.0, 3.0);
    let channels = nn::FeatureAlphaDropout::new(0.5, &rng)?;
    let out = channels.forward(&Tensor::zeros((40, 25, 2, 3), &d)?)?.flatten(2, 3)?;
    let apart = out.amax(2, false)?.sub(&out.amin(2, false)?)?.max()?.item::<f32>()?;
    assert_eq!(apart, 0.0);
    let dropped = out.select(2, 0)?.lt_scalar(0.0).to_dtype(DType::F32)?.mean().item::<f32>()?;
    assert!((dropped - 0.5).abs() < 0.08, "{dropped}");
    layer.eval();
    assert!(layer.forward(&x)?.equal(&x)?);
    assert_eq!(format!("{layer:?}"), "AlphaDropout(p=0.3)");
    refused(f::alpha_dropout(&x, 1.0, true, &rng), &["alpha_dropout", "probability 1"]);
    refused(f::feature_alpha_dropout(&x, 0.5, true, &rng), &["feature_alpha_dropout", "[N, C"]);
    Ok(())
}

#[test]
fn bilinear_begins_as_pytorchs() -> Result<()> {
    let d = device();
    let rng = Generator::seed(2, &d);
    let layer = nn::Bilinear::new(16, 3, 5, &rng)?;
    let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["weight", "bias"]);
    assert_eq!(layer.weight.dims(), [5, 16, 3]);
    assert!(layer.weight.detach().abs().max()?.item::<f32>()? <= 0.25);
    let out = layer.forward(&Tensor::ones((2, 7, 16), &d)?, &Tensor::ones((2, 7, 3), &d)?)?;
    assert_eq!(out.dims(), [2, 7, 5]);
    let sums = layer.weight.sum_axis([1, 2], false)?.add(layer.bias.as_ref().unwrap())?;
    let out = out.i((1, 6))?.to_f64_vec()?;
    crate::common::assert_close(&out, &sums.to_f64_vec()?, (1e-5, 1e-5), "ones");
    assert_eq!(format!("{layer:?}"), "Bilinear(in1_features=16, in2_features=3, out_features=5, bias=true)");
    let shuffled = nn::ChannelShuffle(2).forward(&Tensor::arange(0.0, 4.0, 1.0, &d)?.reshape((1, 4, 1))?)?;
    assert_eq!(shuffled.to_f64_vec()?, [0.0, 2.0, 1.0, 3.0]);
    refused(nn::Bilinear::new(0, 3, 5, &rng), &["Bilinear", "0 and 3"]);
    Ok(())
}
