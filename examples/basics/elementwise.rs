//! `r = r + a * b` a thousand times on a large array, as a plain loop, with every addition in order.
//!
//!     cargo run --release --example elementwise -- --device cpu --steps 1000 --shape 100,1000,1000
//!
//! The loop only records operations. The number of pending operations is bounded, and operations that are
//! pending together run as one kernel. `compare` runs it on every device.

mod common;

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use taper::prelude::*;

/// Adds the product of two random arrays to an array of zeros, many times.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Number of additions
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// Shape, separated by commas
    #[arg(long, default_value = "10,100,1000", value_delimiter = ',')]
    shape: Vec<usize>,
    /// Seed of the two arrays
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

fn run(options: &Options) -> Result<()> {
    let wrong = |message: String| Error::invalid("elementwise", message);
    let n = options.shape.iter().try_fold(1_usize, |n, &axis| n.checked_mul(axis));
    let n = match n {
        Some(0) => {
            return Err(wrong("--shape: an axis of size 0 leaves nothing to add; give sizes from 1".into()));
        }
        Some(n) if n.checked_mul(4).is_some_and(|bytes| isize::try_from(bytes).is_ok()) => n,
        _ => return Err(wrong(format!("--shape: {:?} is more than can be addressed", options.shape))),
    };
    if options.steps == 0 {
        return Err(wrong("--steps 0: at least one addition is needed".into()));
    }
    let device = taper::device(&options.device)?;
    let rng = Generator::seed(options.seed, &device);
    let a = Tensor::rand(&options.shape[..], &rng)?;
    let b = Tensor::rand(&options.shape[..], &rng)?;
    let mut r = Tensor::zeros(&options.shape[..], &device)?;
    taper::eval_all(&[&a, &b, &r])?;
    // Warms up: the first run of a loop makes its plan and, on a GPU, compiles its kernel.
    let mut warm = r.clone();
    for _ in 0..options.steps.min(100) {
        warm = &warm + &a * &b;
    }
    warm.eval()?;
    drop(warm);
    device.synchronize()?;
    println!(
        "{device} ({}): {} times r = r + a * b over {:?}",
        device.info().description,
        options.steps,
        options.shape
    );

    device.reset_peak();
    let start = Instant::now();
    for _ in 0..options.steps {
        r = &r + &a * &b;
    }
    r.eval()?;
    device.synchronize()?;
    let seconds = start.elapsed().as_secs_f64();
    let peak = device.memory().peak;
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let array = n as f64 * 4.0;
    println!(
        "{seconds:.3} s, {:.1} billion additions a second; peak memory {:.2} GiB, {:.1} arrays",
        options.steps as f64 * n as f64 / seconds / 1e9,
        gib(peak as f64),
        peak as f64 / array
    );
    check(&r, &a, &b, n, options.steps)
}

/// Compares elements spread over the whole array with the same loop on a single f32.
fn check(r: &Tensor, a: &Tensor, b: &Tensor, n: usize, steps: usize) -> Result<()> {
    // An odd stride reaches every position in a row or a block; the last element is checked too.
    let stride = (n / 1000) | 1;
    let samples: Vec<usize> = (0..n).step_by(stride).chain([n - 1]).collect();
    let picked = |t: &Tensor| -> Result<Vec<f32>> {
        let all = t.to_vec::<f32>()?;
        Ok(samples.iter().map(|&i| all[i]).collect())
    };
    let (r, a, b) = (picked(r)?, picked(a)?, picked(b)?);
    let (mut equal, mut furthest) = (0, 0.0_f32);
    for i in 0..samples.len() {
        let mut want = 0.0_f32;
        for _ in 0..steps {
            want += a[i] * b[i];
        }
        if r[i] == want {
            equal += 1;
        }
        let apart = (r[i] - want).abs() / want.abs().max(f32::MIN_POSITIVE);
        if apart > furthest || apart.is_nan() {
            furthest = apart;
        }
    }
    println!(
        "{equal} of {} sampled elements equal the plain loop bit by bit; the furthest differs by {furthest:e} of it",
        samples.len()
    );
    // A GPU may contract a * b + r into one rounding, so that each addition can differ by half a unit in the
    // last place.
    let allowed = f32::EPSILON * steps as f32;
    if furthest <= allowed {
        return Ok(());
    }
    Err(Error::invalid("elementwise", format!("the result is wrong: {furthest:e} is more than {allowed:e}")))
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()).map_err(Into::into))
}
