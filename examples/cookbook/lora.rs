//! LoRA adapts a frozen network to mirrored digits, with a few numbers beside its weights.
//!
//!     cargo run --release -p taper-examples-cookbook --example lora
//!
//! Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Chen: LoRA, low-rank adaptation of large language models (2021).

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, evaluate, holds, images};
use taper::{
    nn::lora::{self, LoraConfig, Targets},
    prelude::*,
};

/// Trains a network on digits, and an adapter on mirrored digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images, for the network and for the adapter
    #[arg(long, default_value_t = 15)]
    epochs: usize,
}

/// Trains these parameters alone.
fn train(model: &Sequential, parameters: Vec<Tensor>, data: &TensorDataset, epochs: usize) -> Outcome {
    let device = parameters[0].device();
    let loader = DataLoader::new(data.clone(), 64)?.shuffle(0);
    let mut adam = AdamW::new(parameters, AdamWConfig { lr: 3e-3, ..Default::default() });
    for _ in 0..epochs {
        for batch in loader.iter() {
            let (images, labels) = batch?.to(&device)?;
            adam.zero_grad();
            cross_entropy(&model.forward(&images)?, &labels)?.backward()?;
            adam.step()?;
        }
    }
    Ok(())
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let (digits, test) = images(None, 0)?;
    let mirror = |set: &TensorDataset| {
        let (images, labels) = set.tensors();
        TensorDataset::new((images.flip(3)?, labels.clone()))
    };
    let (mirrored, mirrored_test) = (mirror(&digits)?, mirror(&test)?);
    let test = DataLoader::new(test, 512)?;
    let mirrored_test = DataLoader::new(mirrored_test, 512)?;

    let rng = Generator::seed(0, &taper::cpu());
    let mut model = Sequential::new().add(Flatten::new());
    for (from, to) in [(64, 256), (256, 256)] {
        model = model.add(Linear::new(from, to, &rng)?).add(Relu);
    }
    model = model.add(Linear::new(256, 10, &rng)?);
    model.to(&device)?;
    train(&model, model.parameters(), &digits, options.epochs)?;
    let (before, _) = evaluate(&model, &test, &device)?;
    let (strange, _) = evaluate(&model, &mirrored_test, &device)?;
    writeln!(out, "the network: accuracy {before:.4} on digits, {strange:.4} on mirrored digits")?;

    let config = LoraConfig::new(8).alpha(16.0).targets(Targets::AllLinear);
    let size = model.num_parameters();
    let adapter = lora::attach(&model, &config, &rng.on(&device))?;
    let share = adapter.num_parameters() as f64 / size as f64;
    train(&model, adapter.parameters(), &mirrored, options.epochs)?;
    let (adapted, _) = evaluate(&model, &mirrored_test, &device)?;
    writeln!(out, "with an adapter of {:.1} % of its size: {adapted:.4} on mirrored digits", 100.0 * share)?;
    let (same, _) = adapter.disabled(|| evaluate(&model, &test, &device))??;
    adapter.merge()?;
    let (merged, _) = evaluate(&model, &mirrored_test, &device)?;

    holds(same == before, "without the adapter, the network is as it was")?;
    holds((merged - adapted).abs() < 0.01, "merged into the weights, the adapter does the same")?;
    holds(
        adapted > 0.9 && strange < 0.6,
        &format!("the adapter raises the accuracy to {adapted:.4}, above 0.9"),
    )
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
