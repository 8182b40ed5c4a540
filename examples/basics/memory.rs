//! A device's memory: allocated and reserved bytes, the peak and the limit; how to free memory; and what
//! happens when it is used up.
//!
//!     cargo run --release --example memory -- --device wgpu
//!
//! | PyTorch | Taper |
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

/// Fills a device's memory, frees it, and asks for more than is available.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Rows and columns of a matrix
    #[arg(long, default_value_t = 512)]
    size: usize,
    /// Number of matrices
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
        // The matrix takes memory only from this evaluation on; before, it is a number and a shape.
        matrix.eval()?;
        matrices.push(matrix);
    }
    state(&format!("{count} matrices of {size} x {size} f32"))?;
    let full = device.memory();
    holds(full.allocated == start + count as u64 * bytes, "allocated grows by the bytes of the elements")?;
    holds(
        full.reserved >= full.allocated && full.peak >= full.allocated,
        "reserved and peak are at least as much",
    )?;

    // A handle is cheap, and the buffer is kept as long as any handle to it.
    let handle = matrices[0].clone();
    matrices.truncate(1);
    state("one is left")?;
    holds(device.memory().allocated == start + bytes, "a dropped tensor is freed at once")?;
    drop(matrices);
    holds(device.memory().allocated == start + bytes, "a second handle keeps the buffer")?;
    drop(handle);
    holds(device.memory().allocated == start, "everything is free")?;
    holds(device.memory().peak >= full.allocated, "the peak is the most that was allocated")?;
    device.reset_peak();
    holds(
        device.memory().peak == device.memory().allocated,
        "reset_peak() sets the peak to the current value",
    )?;

    // Free buffers are kept for the next tensor; empty_cache() returns them to the system.
    let cached = device.memory().reserved;
    device.empty_cache();
    state("after empty_cache()")?;
    holds(device.memory().reserved <= cached, "empty_cache() returns unused memory to the system")?;

    // A chain of operations is one kernel and needs one buffer, however long it is.
    device.reset_peak();
    let x = Tensor::ones((size, size), &device)?;
    x.eval()?;
    let before = device.memory().allocated;
    let y = ((&x + 1.0) * 2.0 - 0.5).exp().sqrt();
    y.eval()?;
    holds(device.memory().peak == before + bytes, "a chain of five operations takes one buffer")?;
    drop((x, y));

    // Asking for more memory than available is an error with the requested and the available size. No tensor
    // is lost.
    let kept = Tensor::ones((size, size), &device)?;
    kept.eval()?;
    let limit = device.memory().limit;
    device.set_memory_limit(device.memory().reserved + 2 * bytes)?;
    state("with a limit")?;
    let large = Tensor::ones((4 * size, size), &device)?;
    let error = refused(large.eval())?;
    holds(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "exceeding the limit is OutOfMemory")?;
    holds(kept.sum().item_f64()? == (size * size) as f64, "existing tensors keep their values")?;
    device.set_memory_limit(limit)?;
    large.eval()?;
    holds(large.mean().item_f64()? == 1.0, "the failed tensor is computed when there is enough memory")?;
    let error = refused(Tensor::zeros(1usize << 50, &device).and_then(|huge| huge.eval()))?;
    let kinds = matches!(error.kind(), ErrorKind::OutOfMemory { .. } | ErrorKind::TooLarge { .. });
    holds(kinds, "four petabytes are an error too")?;
    refused(device.set_memory_limit(1))?;
    holds(device.memory().limit == limit, "a limit below the memory in use is refused")?;
    drop((kept, large));
    holds(device.memory().allocated == start, "at the end everything is free")?;
    writeln!(out, "all claims hold on {device}")?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
