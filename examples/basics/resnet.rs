//! ResNet-20, with batch norms and shortcuts, learns handwritten digits that are enlarged to 32x32 pixels,
//! using SGD with momentum and a one-cycle learning rate.
//!
//!     cargo run --release --example resnet
//!
//! He et al.: Deep residual learning for image recognition (2015). Smith, Topin: Super-convergence (2018).

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
use common::{Outcome, evaluate, mean_loss};
use networks::resnet::resnet20;
use taper::{
    nn::Upsample,
    optim::{LrScheduler, OneCycleConfig, OneCycleLr},
    prelude::*,
    train::Progress,
};

/// Trains ResNet-20 on handwritten digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    /// Batch size: images per step
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// The maximum learning rate
    #[arg(long, default_value_t = 0.1)]
    lr: f64,
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

/// The network, after a layer that makes images of 32x32 pixels and three channels.
#[derive(Debug, Module)]
struct Net {
    enlarge: Upsample,
    resnet: Sequential,
}

impl Layer for Net {
    /// Maps grey images `[N, 1, S, S]` from 0 to 1 to logits `[N, 10]`.
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let x = self.enlarge.forward(images)?.mul_scalar(2.0).sub_scalar(1.0);
        // A view: the three channels share the same memory.
        self.resnet.forward(&x.expand([-1, 3, -1, -1])?)
    }
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let (train, test) = common::images(options.data.as_deref(), options.seed)?;
    writeln!(out, "{device}: {} training images, {} held out", train.len(), test.len())?;
    // A last batch of a few images would give batch norm poor statistics, so it is left out; it has other
    // images in each epoch.
    let train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed).drop_last(true).workers(1);
    let test = DataLoader::new(test, 120)?;

    let rng = Generator::seed(options.seed, &taper::cpu());
    let mut model = Net { enlarge: Upsample::to_size([32, 32]), resnet: resnet20(&rng)? };
    model.to(&device)?;
    writeln!(out, "{} parameters", model.num_parameters())?;

    let config = SgdConfig {
        lr: options.lr,
        momentum: 0.9,
        weight_decay: options.weight_decay,
        nesterov: true,
        ..Default::default()
    };
    let mut sgd = Sgd::new(model.parameters(), config);
    // The rate goes up for a third of the steps and then down to almost 0; the momentum does the opposite.
    let total_steps = (options.epochs * train.len()) as u64;
    let cycle = OneCycleConfig { max_lr: options.lr, total_steps, ..Default::default() };
    let mut schedule = LrScheduler::new(OneCycleLr::new(cycle)?, &mut sgd);
    for epoch in 1..=options.epochs {
        let mut bar = Progress::new(format!("epoch {epoch}/{}", options.epochs), train.len() as u64);
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (images, labels) = batch?.to(&device)?;
            sgd.zero_grad();
            let loss = cross_entropy(&model.forward(&images)?, &labels)?;
            loss.backward()?;
            sgd.step()?;
            schedule.step(&mut sgd)?;
            losses.push(loss.detach());
            bar.step();
        }
        bar.finish();
        // Batch norms use the statistics of the batch in training, and their running statistics in
        // evaluation.
        let (accuracy, test_loss) = evaluate(&model, &test, &device)?;
        let mean = mean_loss(&losses)?;
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
