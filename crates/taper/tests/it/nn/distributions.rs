//! Random draws by distribution: their moments, their bounds, their streams, and bad inputs.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper::autograd::TensorGrad;
use taper::nn::{self, Module, functional as f};
use taper::{DType, Device, Generator, Result, Tensor, fork_rng};

use crate::common::{agree_within, device, has};
use crate::networks::refused;

const MANY: usize = 40_000;

/// Checks the mean and the variance of draws within `times` standard errors of the mean, and of the variance
/// as its kurtosis asks.
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
    // A normal distribution between −1 and 2 deviations.
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
fn binomial_numbers_of_small_and_large_means() -> Result<()> {
    let d = device();
    let rng = Generator::seed(15, &d);
    // Alone, so that each way is taken.
    for (n, p) in [(1.0, 0.3), (20.0, 0.05), (20.0, 0.95), (1e6, 2e-6), (20.0, 0.5), (100.0, 0.9), (1e6, 0.3)]
    {
        let draws = Tensor::full([MANY], n, &d)?.binomial(&Tensor::full((), p, &d)?, &rng)?;
        let variance = n * p * (1.0 - p);
        moments(
            &format!("{n} of {p}"),
            &draws,
            n * p,
            variance,
            3.0 + (1.0 - 6.0 * p * (1.0 - p)) / variance,
        );
    }
    // Together, and at the ends.
    let counts = Tensor::new([[0.0f32], [7.0], [50.0], [30.0]], &d)?.expand([4, MANY])?;
    let probs = Tensor::new([[0.5f32], [0.0], [1.0], [0.4]], &d)?;
    let draws = counts.binomial(&probs, &rng)?;
    for (row, all) in [(0, 0.0f32), (1, 0.0), (2, 50.0)] {
        let row = draws.select(0, row)?;
        assert_eq!((row.min()?.item::<f32>()?, row.max()?.item::<f32>()?), (all, all));
    }
    moments("30 of 0.4 among several", &draws.select(0, 3)?, 12.0, 7.2, 3.0);
    // Each count by its probability, on both sides of where the two ways meet.
    for (n, p) in [(24.0f64, 0.416f64), (24.0, 0.417), (40.0, 0.75)] {
        let draws =
            Tensor::full([4 * MANY], n, &d)?.binomial(&Tensor::full((), p, &d)?, &rng)?.to_f64_vec()?;
        let mut chance = (1.0 - p).powf(n);
        for k in 0..=n as i32 {
            let share = draws.iter().filter(|c| **c == f64::from(k)).count() as f64 / draws.len() as f64;
            let error = (chance / draws.len() as f64).sqrt();
            assert!(
                (share - chance).abs() < 5.0 * error + 1e-5,
                "{k} of {n}, {p}: {share}, expected {chance}"
            );
            chance *= (n - f64::from(k)) / f64::from(k + 1) * p / (1.0 - p);
        }
    }
    assert_eq!(Tensor::zeros((0, 2), &d)?.binomial(&Tensor::zeros(2, &d)?, &rng)?.dims(), [0, 2]);
    let offset = rng.offset();
    let half = Tensor::full((), 0.5, &d)?;
    for bad in [-1.0, 1.5, f64::NAN, f64::INFINITY] {
        refused(Tensor::full([2], bad, &d)?.binomial(&half, &rng), &["binomial", "count", "whole numbers"]);
    }
    for bad in [-0.1, 1.1, f64::NAN] {
        refused(Tensor::ones([2], &d)?.binomial(&Tensor::full((), bad, &d)?, &rng), &["binomial", "[0, 1]"]);
    }
    refused(Tensor::ones([2], (DType::I32, &d))?.binomial(&half, &rng), &["binomial", "floating"]);
    refused(Tensor::ones([2], &d)?.binomial(&Tensor::ones([3], &d)?, &rng), &["binomial", "[2] x [3]"]);
    assert_eq!(rng.offset(), offset);
    Ok(())
}

#[test]
fn fractional_windows_are_drawn_for_each_channel() -> Result<()> {
    let d = device();
    let rng = Generator::seed(19, &d);
    let (n, c, height, width) = (2, 40, 9, 11);
    let x = Tensor::arange(0, (height * width) as i64, 1, (DType::F32, &d))?.reshape([height, width])?;
    let x = x.expand([n, c, height, width])?;
    let pooled = f::fractional_max_pool2d(&x, [2, 3], [5, 6], &rng)?;
    assert_eq!(pooled.dims(), [n, c, 5, 6]);
    let mut seen = std::collections::BTreeSet::new();
    for channel in pooled.to_vec::<f32>()?.chunks(30) {
        // The greatest of a window is its last element, so that its place is where the window ends.
        let rows: Vec<usize> = channel.iter().step_by(6).map(|v| *v as usize / width).collect();
        let columns: Vec<usize> = channel[..6].iter().map(|v| *v as usize % width).collect();
        let whole: Vec<f32> =
            rows.iter().flat_map(|r| columns.iter().map(move |c| (r * width + c) as f32)).collect();
        assert_eq!(channel, whole);
        assert_eq!((rows[0], rows[4], columns[0], columns[5]), (1, height - 1, 2, width - 1));
        // Steps of 7/4 and 8/5, each rounded one way or the other.
        assert!(
            rows.windows(2).chain(columns.windows(2)).all(|w| (1..=2).contains(&(w[1] - w[0]))),
            "{rows:?}"
        );
        seen.insert((rows, columns));
    }
    assert!(seen.len() > 5, "{} ways", seen.len());
    let solid = Tensor::rand([2, 4, 5, 6], &rng)?;
    let pooled = f::fractional_max_pool3d(&solid, [2, 2, 2], [2, 3, 1], &rng)?;
    assert_eq!(pooled.dims(), [2, 2, 3, 1]);
    let samples = Tensor::rand([1, 2, 3], &rng)?;
    let (maxima, places) = f::fractional_max_pool_with_indices(&solid, [2, 2, 2], [2, 3, 1], &samples)?;
    assert_eq!(places.dims(), maxima.dims());
    let taken = solid.reshape([2, 120])?.gather(1, &places.reshape([2, 6])?)?;
    assert!(taken.equal(&maxima.reshape([2, 6])?)?);
    let offset = rng.offset();
    refused(
        f::fractional_max_pool2d(&x, [2, 3], [9, 6], &rng),
        &["fractional_max_pool2d", "9 windows of 2", "an axis of 9"],
    );
    refused(f::fractional_max_pool2d(&x, [0, 3], [5, 6], &rng), &["fractional_max_pool2d", "windows of 0"]);
    refused(
        f::fractional_max_pool3d(&x.narrow(0, 0, 1)?.squeeze(0)?, [1; 3], [1; 3], &rng),
        &["fractional_max_pool3d"],
    );
    refused(
        f::fractional_max_pool_with_indices(&solid, [2, 2, 2], [2, 3, 1], &samples.narrow(2, 0, 2)?),
        &["fractional_max_pool3d", "samples [1, 2, 2]", "[1, 2, 3]"],
    );
    refused(
        f::fractional_max_pool2d(&Tensor::ones([1, 4, 4], (DType::I32, &d))?, [2, 2], [2, 2], &rng),
        &["fractional_max_pool2d", "floating"],
    );
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
    agree_within("binomial", near, |d| {
        let probs = Tensor::full((), 0.3, d)?;
        Tensor::new([[12.0f32], [80.0]], d)?.expand([2, 500])?.binomial(&probs, &rng(d))
    });
    agree_within("gamma", near, |d| {
        Tensor::new([[0.3f32], [8.0]], d)?.expand([2, 500])?.standard_gamma(&rng(d))
    });
    agree_within("gumbel_softmax", near, |d| {
        f::gumbel_softmax(&Tensor::zeros((50, 4), d)?, 0.5, false, 1, &rng(d))
    });
}

#[test]
fn a_fork_leaves_generators_as_they_were() -> Result<()> {
    let d = device();
    let (rng, other, untouched) = (Generator::seed(5, &d), Generator::seed(6, &d), Generator::seed(7, &d));
    rng.next_u64();
    let states = || [&rng, &other, &untouched].map(|rng| (rng.initial_seed(), rng.offset()));
    let before = states();
    let draw = |rng: &Generator| Tensor::randn(4, rng)?.to_vec::<f32>();
    let (outside, within) = fork_rng(|| -> Result<_> {
        let (first, host) = (draw(&rng)?, other.permutation(9));
        let middle = states();
        // A fork within a fork, through a clone on which the seed is set.
        fork_rng(|| {
            rng.clone().set_seed_and_offset(1, 2);
            draw(&rng)
        })?;
        assert_eq!(states(), middle);
        Ok(((first, host), draw(&rng)?))
    })?;
    assert_eq!(states(), before);
    assert_eq!((draw(&rng)?, other.permutation(9)), outside);
    assert_eq!(draw(&rng)?, within);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        fork_rng(|| -> () {
            untouched.next_u64();
            std::panic::resume_unwind(Box::new(()));
        })
    }));
    assert!(panic.is_err());
    assert_eq!(untouched.offset(), 0);
    Ok(())
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
    assert_eq!(f::alpha_dropout(&x, 1.0, true, &rng)?.abs().max()?.item::<f32>()?, 0.0);
    refused(f::alpha_dropout(&x, 1.5, true, &rng), &["alpha_dropout", "probability 1.5"]);
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
