//! A deep network's training step with and without checkpoints: its peak memory and its time.
//!
//!     cargo run --release --example checkpoint -- --device cpu
//!
//! | PyTorch | Taper |
//! |---|---|
//! | `checkpoint(f, x, use_reentrant=False)` | `checkpoint(\|x\| …, &[&x])?` |
//! | `checkpoint_sequential(model, n, x, use_reentrant=False)` | `model.forward_checkpointed(n, &x)?` |
//! | `torch.cuda.max_memory_allocated()` | `device.memory().peak` |

mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use common::{Outcome, holds};
use taper::{checkpoint, eval_pending, nn::Gelu, prelude::*, tensor_core::backend::readable_bytes};

/// Trains a deep network of blocks in three ways: plain, with a checkpoint for each block, and with one for
/// every √n blocks.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of blocks
    #[arg(long, default_value_t = 36)]
    blocks: usize,
    /// Features between blocks; four times as many are inside
    #[arg(long, default_value_t = 64)]
    width: usize,
    /// Examples in a batch
    #[arg(long, default_value_t = 1024)]
    batch: usize,
    /// Number of steps; the fastest is reported
    #[arg(long, default_value_t = 5)]
    steps: usize,
}

/// The forward pass of some blocks, with skip connections.
fn through(blocks: &[Sequential], x: &Tensor) -> Result<Tensor> {
    blocks.iter().try_fold(x.clone(), |x, block| x.add(&block.forward(&x)?))
}

fn run(options: &Options) -> Outcome {
    let device = taper::device(&options.device)?;
    let Options { blocks, width, batch, steps, .. } = *options;
    if blocks == 0 || width == 0 || batch == 0 || steps == 0 {
        return Err("--blocks, --width, --batch and --steps from 1, or there is nothing to measure".into());
    }
    let rng = Generator::seed(options.seed, &device);
    let block = || -> Result<Sequential> {
        let (first, last) = (Linear::new(width, 4 * width, &rng)?, Linear::new(4 * width, width, &rng)?);
        Ok(Sequential::new().add(first).add(Gelu).add(last))
    };
    let model = (0..blocks).map(|_| block()).collect::<Result<Vec<_>>>()?;
    let parameters = model.parameters();
    let x = Tensor::randn((batch, width), &rng)?;
    taper::eval_all(&parameters.iter().chain([&x]).collect::<Vec<_>>())?;
    eval_pending()?;
    device.synchronize()?;

    // The time of the fastest step, the peak memory beyond the memory in use before it, and the gradients.
    let measure = |group: usize| -> Result<(Duration, u64, Vec<Tensor>)> {
        let mut fastest = Duration::MAX;
        let mut peak = 0;
        for _ in 0..=steps {
            parameters.iter().for_each(TensorGrad::zero_grad);
            device.synchronize()?;
            let before = device.memory().allocated;
            device.reset_peak();
            let start = Instant::now();
            let y = match group {
                0 => through(&model, &x)?,
                group => model.chunks(group).try_fold(x.clone(), |x, part| {
                    checkpoint(|inputs| through(part, &inputs[0]), &[x]) // keeps x alone
                })?,
            };
            y.powi(2).mean().backward()?;
            drop(y);
            eval_pending()?;
            device.synchronize()?;
            fastest = fastest.min(start.elapsed());
            peak = device.memory().peak - before;
        }
        let gradients = parameters.iter().filter_map(Tensor::grad).collect();
        Ok((fastest, peak, gradients))
    };
    let root = blocks.isqrt();
    let ways = [(0, "plain".to_string()), (1, "each block".into()), (root, format!("each {root} blocks"))];
    let mut out = io::stdout();
    let inside = readable_bytes((batch * width * 4 * 4) as u64);
    writeln!(out, "{blocks} blocks, {inside} for each tensor inside one, on {device}")?;
    writeln!(out, "{:<16}{:>12}{:>14}", "checkpoints", "peak", "step")?;
    let mut plain: Option<(u64, Vec<Tensor>)> = None;
    for (group, name) in ways {
        let (time, peak, gradients) = measure(group)?;
        let step = format!("{:.2} ms", time.as_secs_f64() * 1e3);
        writeln!(out, "{name:<16}{:>12}{step:>14}", readable_bytes(peak))?;
        if let Some((most, expected)) = &plain {
            let mut close = gradients.len() == expected.len();
            for (gradient, expected) in gradients.iter().zip(expected) {
                close &= gradient.allclose(expected, 1e-4, 1e-5)?;
            }
            holds(close, "the gradients are the same")?;
            holds(blocks < 8 || peak < *most, "the peak is lower")?;
        } else {
            plain = Some((peak, gradients));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
