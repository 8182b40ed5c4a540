//! A device's memory: what is allocated, what is held, what the most was, what the limit is; freeing it; and
//! surviving when it is used up.
//!
//!     cargo run --release --example memory -- --device wgpu
//!
//! | PyTorch | here |
//! |---|---|
//! | `torch.cuda.memory_allocated()` | `device.memory().allocated` |
//! | `torch.cuda.memory_reserved()` | `device.memory().reserved` |
//! | `torch.cuda.max_memory_allocated()` | `device.memory().peak` |
//! | `torch.cuda.reset_peak_memory_stats()` | `device.reset_peak()` |
//! | `torch.cuda.empty_cache()` | `device.empty_cache()` |
//! | `torch.cuda.set_per_process_memory_fraction(f)` | `device.set_memory_limit(bytes)?` |
//! | `del x` | `drop(x)`, or the end of its scope |

mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds, refused};
use taper::{ErrorKind, prelude::*};

/// Fills a device's memory, frees it, and asks for more than there is.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Rows and columns of a matrix
    #[arg(long, default_value_t = 512)]
    size: usize,
    /// Matrices
    #[arg(long, default_value_t = 4)]
    count: usize,
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let Options { size, count, .. } = *options;
    if size == 0 || count < 2 {
        return Err("--size from 1 and --count from 2, or there is nothing to measure".into());
    }
    let bytes = (size * size * 4) as u64;
    let state = |what: &str| writeln!(io::stdout(), "{what}: {}", device.memory());
    state("at the start")?;
    let start = device.memory().allocated;

    let mut matrices = Vec::new();
    for k in 0..count {
        let matrix = Tensor::full((size, size), k as f64, &device)?;
        // `eval` makes it; until then it is a number and a shape.
        matrix.eval()?;
        matrices.push(matrix);
    }
    state(&format!("{count} matrices of {size} x {size} f32"))?;
    let full = device.memory();
    holds(
        full.allocated == start + count as u64 * bytes,
        "allocated has grown by the bytes of the elements",
    )?;
    holds(
        full.reserved >= full.allocated && full.peak >= full.allocated,
        "reserved and peak are at least as much",
    )?;

    // A handle is cheap, and the buffer lives as long as one of them.
    let handle = matrices[0].clone();
    matrices.truncate(1);
    state("one is left")?;
    holds(device.memory().allocated == start + bytes, "what is dropped is free at once")?;
    drop(matrices);
    holds(device.memory().allocated == start + bytes, "a second handle keeps the buffer")?;
    drop(handle);
    holds(device.memory().allocated == start, "all is free")?;
    holds(device.memory().peak >= full.allocated, "the peak tells what the most was")?;
    device.reset_peak();
    holds(device.memory().peak == device.memory().allocated, "reset_peak() begins anew")?;

    // Free memory is kept for the next tensor; empty_cache() gives it back to the system.
    let cached = device.memory().reserved;
    device.empty_cache();
    state("after empty_cache()")?;
    holds(device.memory().reserved <= cached, "empty_cache() gives back what is not in use")?;

    // A chain of operations is one kernel and needs one buffer, however long it is.
    device.reset_peak();
    let x = Tensor::ones((size, size), &device)?;
    x.eval()?;
    let before = device.memory().allocated;
    let y = ((&x + 1.0) * 2.0 - 0.5).exp().sqrt();
    y.eval()?;
    holds(device.memory().peak == before + bytes, "a chain of five operations takes one buffer")?;
    drop((x, y));

    // More than there is: an error that says how much was asked for and how much there is. Nothing is lost.
    let kept = Tensor::ones((size, size), &device)?;
    kept.eval()?;
    let limit = device.memory().limit;
    device.set_memory_limit(device.memory().reserved + 2 * bytes)?;
    state("with a limit")?;
    let large = Tensor::ones((4 * size, size), &device)?;
    let error = refused(large.eval())?;
    holds(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "what is beyond the limit is OutOfMemory")?;
    holds(kept.sum().item_f64()? == (size * size) as f64, "what was there is as it was")?;
    device.set_memory_limit(limit)?;
    large.eval()?;
    holds(large.mean().item_f64()? == 1.0, "the tensor that failed is computed once there is room")?;
    let error = refused(Tensor::zeros(1usize << 50, &device).and_then(|huge| huge.eval()))?;
    let kinds = matches!(error.kind(), ErrorKind::OutOfMemory { .. } | ErrorKind::TooLarge { .. });
    holds(kinds, "four petabytes are an error too")?;
    refused(device.set_memory_limit(1))?;
    holds(device.memory().limit == limit, "a limit below what is in use is refused")?;
    drop((kept, large));
    holds(device.memory().allocated == start, "at the end all is free")?;
    writeln!(out, "all of it holds on {device}")?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
