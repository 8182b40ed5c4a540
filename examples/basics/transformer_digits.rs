//! A small vision transformer for small images: patches of 2x2 pixels are the tokens, and their positions
//! are learned.
//!
//!     cargo run --release --example transformer_digits
//!
//! Dosovitskiy et al.: An image is worth 16x16 words (2020).

mod common;
mod networks;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::{Outcome, evaluate, mean_loss};
use networks::vision_transformer::VisionTransformer;
use taper::{
    optim::{LrScheduler, OneCycleConfig, OneCycleLr},
    prelude::*,
    train::Progress,
};

/// Trains a small vision transformer on the handwritten digits that ship with Taper.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images
    #[arg(long, default_value_t = 30)]
    epochs: usize,
    /// Batch size: images per step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// The maximum learning rate
    #[arg(long, default_value_t = 3e-3)]
    lr: f64,
    /// Features per patch, 16 in each attention head
    #[arg(long, default_value_t = 64)]
    width: usize,
    /// Number of transformer layers
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// Seed of the split, the weights, the shuffling and the dropout
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let (train, test) = common::images(None, options.seed)?;
    writeln!(out, "{device}: {} training images, {} held out", train.len(), test.len())?;
    let train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed).workers(1);
    let test = DataLoader::new(test, 500)?;

    let rng = Generator::seed(options.seed, &taper::cpu());
    let mut model = VisionTransformer::new(options.width, options.layers, &rng)?;
    model.to(&device)?;
    writeln!(out, "{} parameters", model.num_parameters())?;

    let mut adamw = AdamW::new(model.parameters(), AdamWConfig { lr: options.lr, ..Default::default() });
    // The rate goes up for a third of the steps and then down to almost 0; the momentum does the opposite.
    let total_steps = (options.epochs * train.len()) as u64;
    let cycle = OneCycleConfig { max_lr: options.lr, total_steps, ..Default::default() };
    let mut schedule = LrScheduler::new(OneCycleLr::new(cycle)?, &mut adamw);
    for epoch in 1..=options.epochs {
        let mut bar = Progress::new(format!("epoch {epoch}/{}", options.epochs), train.len() as u64);
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (images, labels) = batch?.to(&device)?;
            adamw.zero_grad();
            let loss = cross_entropy(&model.forward(&images)?, &labels)?;
            loss.backward()?;
            adamw.step()?;
            schedule.step(&mut adamw)?;
            losses.push(loss.detach());
            bar.step();
        }
        bar.finish();
        let mean = mean_loss(&losses)?;
        let (accuracy, _) = evaluate(&model, &test, &device)?;
        writeln!(out, "epoch {epoch:>2}/{}: loss {mean:.4}, test accuracy {accuracy:.4}", options.epochs)?;
    }
    let (accuracy, _) = evaluate(&model, &test, &device)?;
    writeln!(out, "test accuracy {accuracy:.4} on {device} ({:.1} s)", start.elapsed().as_secs_f64())?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
