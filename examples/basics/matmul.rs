//! A matrix product on the CPU and on another device, and how to time it correctly.
//!
//!     cargo run --release --example matmul -- --device auto --size 4096
//!
//! Three rules: warm up, because the first run makes the plan and, on a GPU, compiles the kernel; wait for
//! the device before you read the clock, because a call only queues the work; and do not include copies
//! between devices, or time them separately.

mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, apart, holds, seconds, timed};
use taper::prelude::*;

/// Multiplies two random square matrices on the CPU and on a device.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Rows and columns
    #[arg(long, default_value_t = 256)]
    size: usize,
    /// Timed runs; the fastest is reported
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seed of the matrices
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let Options { size, rounds, .. } = *options;
    let (host, device) = (taper::cpu(), taper::device(&options.device)?);
    let rng = Generator::seed(options.seed, &host);
    let (a, b) = (Tensor::rand((size, size), &rng)?, Tensor::rand((size, size), &rng)?);
    let flops = 2.0 * (size as f64).powi(3);
    writeln!(
        out,
        "[{size}, {size}] x [{size}, {size}] in f32; the fastest of {rounds} runs after one to warm up"
    )?;

    let mut results: Vec<(Device, Tensor, f64)> = Vec::new();
    let mut places = vec![host];
    if !places.contains(&device) {
        places.push(device);
    }
    for place in &places {
        // The copy, which is lazy: it begins with this evaluation.
        let start = std::time::Instant::now();
        let (a, b) = (a.to(place)?, b.to(place)?);
        taper::eval_all(&[&a, &b])?;
        place.synchronize()?;
        let copy = start.elapsed().as_secs_f64();
        let (product, timing) = timed(place, rounds, || a.matmul(&b))?;
        writeln!(
            out,
            "{place} ({}): {}, {:.1} GFLOP/s; the first run {}; copying both there {}",
            place.info().description,
            seconds(timing.best),
            flops / timing.best / 1e9,
            seconds(timing.first),
            seconds(copy)
        )?;
        results.push((place.clone(), product, timing.best));
    }
    // An element is a sum of `size` products; the rounding error grows with the square root of `size`.
    let bound = f64::from(f32::EPSILON) * (size as f64).sqrt() * 4.0;
    let exact = a.to_dtype(DType::F64)?.matmul(&b.to_dtype(DType::F64)?)?;
    for (place, product, _) in &results {
        let far = apart(product, &exact)?;
        holds(
            far <= bound,
            &format!("{place}'s product differs from the f64 product by at most {bound:.1e} ({far:.1e})"),
        )?;
    }
    if let [(_, _, host), (device, _, there)] = results.as_slice() {
        writeln!(out, "{device} takes {:.2} of the CPU's time", there / host)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
