//! SimpleNet learns handwritten digits: the 8x8 digits that ship with Taper, or MNIST files of your own.
//!
//!     cargo run --release --example digits -- --device auto

mod common;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::{Outcome, evaluate, mean_loss};
use taper::{prelude::*, train::Progress};

/// Trains a two-layer network on handwritten digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images
    #[arg(long, default_value_t = 20)]
    epochs: usize,
    /// Batch size: images per step
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.1)]
    lr: f64,
    /// Momentum
    #[arg(long, default_value_t = 0.9)]
    momentum: f64,
    /// L2 penalty
    #[arg(long, default_value_t = 1e-4)]
    weight_decay: f64,
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
    writeln!(
        out,
        "{} ({}), {} training images of {inputs} pixels, {} held out",
        device,
        device.info().description,
        train.len(),
        test.len()
    )?;
    let train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed).workers(1);
    let test = DataLoader::new(test, 512)?;

    let rng = Generator::seed(options.seed, &taper::cpu());
    let mut model = SimpleNet { fc1: Linear::new(inputs, 128, &rng)?, fc2: Linear::new(128, 10, &rng)? };
    model.to(&device)?;
    let mut sgd = Sgd::new(
        model.parameters(),
        SgdConfig {
            lr: options.lr,
            momentum: options.momentum,
            weight_decay: options.weight_decay,
            ..Default::default()
        },
    );

    for epoch in 1..=options.epochs {
        let mut bar = Progress::new(format!("epoch {epoch}/{}", options.epochs), train.len() as u64);
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (images, labels) = batch?.to(&device)?;
            sgd.zero_grad();
            let loss = cross_entropy(&model.forward(&images)?, &labels)?;
            loss.backward()?;
            sgd.step()?;
            losses.push(loss.detach());
            bar.step();
        }
        bar.finish();
        let mean = mean_loss(&losses)?;
        let (accuracy, test_loss) = evaluate(&model, &test, &device)?;
        writeln!(
            out,
            "epoch {epoch:>2}/{}: loss {mean:.4}, test loss {test_loss:.4}, test accuracy {accuracy:.4}",
            options.epochs
        )?;
    }
    let (accuracy, _) = evaluate(&model, &test, &device)?;
    writeln!(out, "test accuracy {accuracy:.4} on {device} ({:.1} s)", start.elapsed().as_secs_f64())?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
