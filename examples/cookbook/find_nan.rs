//! A loss becomes NaN: where it comes from, what a line computes, and which lines take the time.
//!
//!     cargo run --release -p taper-examples-cookbook --example find_nan

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds, refused};
use taper::{data::Digits, prelude::*};

/// Finds the first NaN of a training, and measures it.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
}

/// The distances of vectors `[N, D]`: √(Σ (a − b)² + `margin`).
fn distances(a: &Tensor, b: &Tensor, margin: f64) -> Result<Tensor> {
    let squares = a.sub(b)?.square().sum_axis(1, false)?;
    // The derivative of a root at 0 is infinite.
    Ok((squares + margin).sqrt())
}

/// Pairs of digits: those of one class shall be near each other, others at least 1 apart.
/// Hadsell, Chopra, LeCun: Dimensionality reduction by learning an invariant mapping (2006).
fn contrastive(
    model: &Sequential,
    images: &Tensor,
    labels: &Tensor,
    margin: f64,
    rng: &Generator,
) -> Result<Tensor> {
    let count = images.dim(0)? as i32;
    let pick = || Tensor::randint(0, count, 256, rng);
    let (first, second) = (pick()?, pick()?);
    let vectors = model.forward(images)?;
    let apart = distances(&vectors.index_select(0, &first)?, &vectors.index_select(0, &second)?, margin)?;
    let same = labels.index_select(0, &first)?.eq(&labels.index_select(0, &second)?)?;
    let near = apart.square();
    let far = (1.0 - apart).relu().square();
    Ok(same.where_cond(&near, &far)?.mean())
}

/// The last loss of a training.
fn train(device: &Device, margin: f64, steps: usize) -> Result<f64> {
    let (images, labels) = Digits::load(&taper::cpu())?.tensors().to(device)?;
    let rng = Generator::seed(0, &taper::cpu());
    let mut model =
        Sequential::new().add(Linear::new(64, 32, &rng)?).add(Tanh).add(Linear::new(32, 2, &rng)?);
    model.to(device)?;
    let rng = rng.on(device);
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: 1e-2, ..Default::default() });
    let mut last = f64::NAN;
    for _ in 0..steps {
        adam.zero_grad();
        let loss = contrastive(&model, &images, &labels, margin, &rng)?;
        loss.backward()?;
        adam.step()?;
        last = loss.item_f64()?;
    }
    Ok(last)
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let steps = 200;
    let loss = train(&device, 0.0, steps)?;
    holds(loss.is_nan(), &format!("the loss after {steps} steps is {loss}"))?;

    // Each operation is computed alone, and its result is checked.
    let error = refused(taper::detect_anomaly(|| train(&device, 0.0, steps)))?.to_string();
    holds(error.contains("find_nan.rs"), "the error names the line of the root")?;
    let loss = train(&device, 1e-6, steps)?;
    holds(loss < 0.1, &format!("with a margin in the root, the loss is {loss:.4}, below 0.1"))?;

    // The kernels of a value, before anything is computed.
    let rng = Generator::seed(0, &device);
    let (a, b) = (Tensor::randn((1000, 64), &rng)?, Tensor::randn((1000, 64), &rng)?);
    a.eval()?;
    b.eval()?;
    let explanation = taper::explain(&distances(&a, &b, 1e-6)?)?;
    writeln!(out, "{explanation}")?;
    let kernels = explanation.plan.kernels.len();
    holds(kernels == 1, "a difference, its square, a sum, and a root are one kernel")?;

    // The time of each kernel of each line.
    let profile = taper::profile(|| train(&device, 1e-6, 5))?;
    let lines = profile.lines();
    for line in lines.iter().take(5) {
        let (run, micros) = (line.run, line.time.as_micros());
        writeln!(
            out,
            "{micros:>6} µs, {:>3} runs: {} of {} at {}",
            line.count, run.kernel, run.op, run.location
        )?;
    }
    let here = lines.iter().filter(|line| line.run.location.file().ends_with("find_nan.rs")).count();
    holds(here > lines.len() / 2, "most kernels belong to lines of this program")
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
