//! The network of a first tutorial: 784-128-10 on MNIST, with plain SGD. The model and every batch move to
//! the device.
//!
//!     cargo run --release --example simplenet                    # Taper's own 8x8 digits: 64-128-10
//!     cargo run --release --example simplenet -- --data mnist    # MNIST's IDX files in the folder
//!
//! `digits` is the same network, trained with momentum.

mod common;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::{Outcome, evaluate, holds, mean_loss};
use taper::{nn::CrossEntropyLoss, prelude::*, train::Progress};

/// Trains a two-layer network on MNIST or on digits, as a first PyTorch tutorial does.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images [default: 60 for the digits that ship with Taper, 5 for MNIST]
    #[arg(long)]
    epochs: Option<usize>,
    /// Batch size: images per step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.01)]
    lr: f64,
    /// Neurons between the two layers
    #[arg(long, default_value_t = 128)]
    hidden: usize,
    /// Seed of the split, the weights and the shuffling
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// A folder with MNIST or Fashion-MNIST files (IDX, plain or gzip), in place of the digits that ship with
    /// Taper
    #[arg(long)]
    data: Option<PathBuf>,
}

#[derive(Debug, Module)]
struct SimpleNet {
    fc1: Linear,
    fc2: Linear,
}

impl Layer for SimpleNet {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        self.fc2.forward(&self.fc1.forward(&images.flatten(1, -1)?)?.relu())
    }
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let (train, test) = common::images(options.data.as_deref(), options.seed)?;
    let inputs = train.get(0)?.0.numel();
    let (seen, held_out) = (train.len(), test.len());
    writeln!(out, "{device}: {seen} training images of {inputs} pixels, {held_out} held out")?;
    let train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed);
    let test = DataLoader::new(test, 512)?;

    let rng = Generator::seed(options.seed, &taper::cpu());
    let mut model = SimpleNet {
        fc1: Linear::new(inputs, options.hidden, &rng)?,
        fc2: Linear::new(options.hidden, 10, &rng)?,
    };
    // In place: `model` is on the device afterwards, as in PyTorch.
    model.to(&device)?;
    writeln!(out, "{model:#?}")?;
    let criterion = CrossEntropyLoss::default();
    let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: options.lr, ..Default::default() });

    let epochs = options.epochs.unwrap_or(if options.data.is_some() { 5 } else { 60 });
    let mut means = Vec::with_capacity(epochs);
    for epoch in 1..=epochs {
        let mut bar = Progress::new(format!("epoch {epoch}/{epochs}"), train.len() as u64);
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            // A copy: batches move as tuples.
            let (images, labels) = batch?.to(&device)?;
            sgd.zero_grad();
            let loss = criterion.forward(&model.forward(&images)?, &labels)?;
            loss.backward()?;
            sgd.step()?;
            losses.push(loss.detach());
            bar.step();
        }
        bar.finish();
        let mean = mean_loss(&losses)?;
        means.push(mean);
        if epoch % 10 == 0 || epoch == epochs || options.data.is_some() {
            writeln!(out, "epoch {epoch:>2}/{epochs}: loss {mean:.4}")?;
        }
    }
    if let [first, .., last] = means.as_slice() {
        holds(last < first, "the loss has fallen")?;
    }
    holds(model.parameters().iter().all(|p| p.device() == device), "every parameter is on the device")?;
    let (accuracy, _) = evaluate(&model, &test, &device)?;
    writeln!(out, "test accuracy {accuracy:.4} on {device} ({:.1} s)", start.elapsed().as_secs_f64())?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
