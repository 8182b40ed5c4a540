//! A training step that takes less memory on its device: gradient accumulation, checkpoints, the optimizer
//! on the host; and the cost of each.
//!
//!     cargo run --release --example less_memory -- --device wgpu
//!
//! | PyTorch | Taper |
//! |---|---|
//! | `(loss / n).backward()` for each part, then `step()` | the same |
//! | `checkpoint(f, x, use_reentrant=False)` | `checkpoint(\|x\| …, &[&x])?` |
//! | DeepSpeed's `"offload_optimizer"` | `MasterWeights::offload(parameters, &taper::cpu(), …)?` |
//! | `torch.cuda.max_memory_allocated()` | `device.memory().peak` |

mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use common::{Outcome, holds};
use taper::{
    checkpoint, eval_pending, nn::Gelu, optim::MasterWeights, prelude::*,
    tensor_core::backend::readable_bytes,
};

/// Trains a deep network of blocks for some steps of Adam in several ways, from the same weights.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of blocks
    #[arg(long, default_value_t = 8)]
    blocks: usize,
    /// Features between blocks; four times as many are inside
    #[arg(long, default_value_t = 128)]
    width: usize,
    /// Examples in a batch
    #[arg(long, default_value_t = 512)]
    batch: usize,
    /// Number of parts for gradient accumulation
    #[arg(long, default_value_t = 4)]
    parts: usize,
    /// Number of steps; the fastest is reported
    #[arg(long, default_value_t = 3)]
    steps: usize,
}

/// A way to take less memory in a step.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    accumulates: bool,
    checkpoints: bool,
    offloads: bool,
}

const WAYS: [Way; 5] = [
    Way { name: "plain", accumulates: false, checkpoints: false, offloads: false },
    Way { name: "accumulation", accumulates: true, checkpoints: false, offloads: false },
    Way { name: "checkpoints", accumulates: false, checkpoints: true, offloads: false },
    Way { name: "offload", accumulates: false, checkpoints: false, offloads: true },
    Way { name: "all three", accumulates: true, checkpoints: true, offloads: true },
];

/// The time and memory of a way, and the weights after its steps.
struct Measured {
    fastest: Duration,
    /// The memory that the training keeps between steps, and the peak within a step.
    kept: u64,
    peak: u64,
    weights: Vec<Vec<f32>>,
}

fn measure(options: &Options, way: Way, device: &Device, host: &Device) -> Result<Measured> {
    let Options { blocks, width, batch, parts, steps, .. } = *options;
    let empty = device.memory().allocated;
    // The weights and the batch are made on the host, so that they are the same.
    let rng = Generator::seed(options.seed, host);
    let block = || -> Result<Sequential> {
        let (first, last) = (Linear::new(width, 4 * width, &rng)?, Linear::new(4 * width, width, &rng)?);
        Ok(Sequential::new().add(first).add(Gelu).add(last))
    };
    let mut model = (0..blocks).map(|_| block()).collect::<Result<Vec<_>>>()?;
    model.to(device)?;
    let x = Tensor::randn((batch, width), &rng)?.to(device)?;
    let config = AdamConfig { lr: 1e-3, ..Default::default() };
    let mut adam: Box<dyn Optimizer> = match way.offloads {
        true => Box::new(MasterWeights::offload(model.parameters(), host, |own| Adam::new(own, config))?),
        false => Box::new(Adam::new(model.parameters(), config)),
    };
    x.eval()?;
    let through = |x: &Tensor| {
        model.iter().try_fold(x.clone(), |x, block| match way.checkpoints {
            true => checkpoint(|inputs| inputs[0].add(&block.forward(&inputs[0])?), &[x]),
            false => x.add(&block.forward(&x)?),
        })
    };
    let count = if way.accumulates { parts } else { 1 };
    let mut measured = Measured { fastest: Duration::MAX, kept: 0, peak: 0, weights: Vec::new() };
    // The first step creates the optimizer's state and, on a GPU, compiles the kernels.
    for _ in 0..=steps {
        adam.zero_grad();
        eval_pending()?;
        device.synchronize()?;
        measured.kept = device.memory().allocated - empty;
        device.reset_peak();
        let start = Instant::now();
        for part in x.chunk(count, 0)? {
            through(&part)?.powi(2).mean().div_scalar(count as f64).backward()?;
            // One part at a time.
            eval_pending()?;
        }
        adam.step()?;
        device.synchronize()?;
        measured.fastest = measured.fastest.min(start.elapsed());
        measured.peak = device.memory().peak - empty;
    }
    measured.weights = model.parameters().iter().map(Tensor::to_vec::<f32>).collect::<Result<_>>()?;
    Ok(measured)
}

fn run(options: &Options) -> Outcome {
    let Options { blocks, width, batch, parts, steps, .. } = *options;
    if [blocks, width, batch, parts, steps].contains(&0) || parts > batch {
        return Err(
            "--blocks, --width, --batch, --parts and --steps from 1, and no more parts than examples".into(),
        );
    }
    let device = taper::device(&options.device)?;
    // On the CPU alone, a second CPU device plays the part of the host.
    let host = if device == taper::cpu() { taper::device("cpu#1")? } else { taper::cpu() };
    let mut out = io::stdout();
    let inside = readable_bytes((batch * width * 4 * 4) as u64);
    let weights = readable_bytes((blocks * (8 * width + 5) * width * 4) as u64);
    writeln!(
        out,
        "{blocks} blocks, {inside} for each tensor inside one, {weights} of weights, on {device} with {host}"
    )?;
    writeln!(out, "{:<16}{:>14}{:>12}{:>14}", "", "between steps", "peak", "step")?;
    let mut plain: Option<Measured> = None;
    for way in WAYS {
        let measured = measure(options, way, &device, &host)?;
        let step = format!("{:.1} ms", measured.fastest.as_secs_f64() * 1e3);
        let (kept, peak) = (readable_bytes(measured.kept), readable_bytes(measured.peak));
        writeln!(out, "{:<16}{kept:>14}{peak:>12}{step:>14}", way.name)?;
        let Some(plain) = &plain else {
            plain = Some(measured);
            continue;
        };
        let pairs = plain.weights.iter().flatten().zip(measured.weights.iter().flatten());
        // A weight moves by at most the learning rate per step; sums are rounded in another order, so
        // weights may differ.
        let most = 0.1 * 1e-3 * (steps + 1) as f32;
        let far = pairs.filter(|(a, b)| (**a - **b).abs() > most).count();
        let all: usize = plain.weights.iter().map(Vec::len).sum();
        holds(far * 1000 <= all, "the weights are those of plain training")?;
        holds(!way.offloads || measured.kept < plain.kept, "the state is on the host")?;
        holds(blocks < 4 || measured.peak < plain.peak, "the peak is lower")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
