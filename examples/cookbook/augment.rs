//! A small set of pictures goes further with augmentation and mixup.
//!
//!     cargo run --release -p taper-examples-cookbook --example augment
//!
//! Zhang, Cisse, Dauphin, Lopez-Paz: mixup, beyond empirical risk minimization (2017).

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    f64::consts::TAU,
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, evaluate, holds};
use taper::{
    data::{ColorJitter, Draws, Image, Interpolation, ItemDataset, MixUp},
    prelude::*,
};

/// Trains on few pictures, with and without augmentation.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// The number of training pictures; a folder of your own is `ImageFolder::open("train")?`
    #[arg(long, default_value_t = 96)]
    count: usize,
    /// Passes over the training pictures
    #[arg(long, default_value_t = 48)]
    epochs: usize,
}

const SIDE: usize = 24;
const CLASSES: usize = 4;
const SEED: u64 = 3;

/// A disc, a square, a triangle or a cross of any colour, turned by any angle, and its class.
fn drawn(index: usize) -> Result<(Image, usize)> {
    let (class, mut draws) = (index % CLASSES, Draws::of(SEED, 0, index as u64));
    let colour = [0; 3].map(|_| 80 + draws.below(176) as u8);
    let [column, row] = [0; 2].map(|_| 10.0 + 4.0 * draws.uniform());
    let (radius, (sin, cos)) = (5.0 + 4.0 * draws.uniform(), (TAU * draws.uniform()).sin_cos());
    let mut bytes = Vec::new();
    for at in 0..SIDE * SIDE {
        let (x, y) = (((at % SIDE) as f64 - column) / radius, ((at / SIDE) as f64 - row) / radius);
        let (x, y) = (x * cos - y * sin, x * sin + y * cos);
        let inside = match class {
            0 => x.hypot(y) < 0.9,
            1 => x.abs().max(y.abs()) < 0.8,
            2 => y > -0.5 && 1.73 * x.abs() + y < 1.0,
            _ => x.abs().min(y.abs()) < 0.25 && x.abs().max(y.abs()) < 1.0,
        };
        bytes.extend(if inside { colour } else { [draws.below(60) as u8; 3] });
    }
    Ok((Image::from_bytes(SIDE, SIDE, bytes)?, class))
}

fn network(rng: &Generator) -> Result<Sequential> {
    let config = ConvConfig { padding: 1.into(), ..Default::default() };
    let mut net = Sequential::new();
    for (from, to) in [(3, 16), (16, 32), (32, 32)] {
        let conv = Conv2d::with_config(from, to, 3, config, rng)?;
        net = net.add(conv).add(BatchNorm2d::new(to, rng.device())?).add(Relu).add(MaxPool2d::new(2));
    }
    Ok(net.add(Flatten::new()).add(Linear::new(32 * (SIDE / 8).pow(2), CLASSES, rng)?))
}

/// Trains a network, and returns its accuracy on other pictures.
fn train(augment: bool, options: &Options) -> Outcome<f64> {
    let device = taper::device(&options.device)?;
    let few = ItemDataset((0..options.count).map(drawn).collect::<Result<_>>()?);
    let jitter = ColorJitter { brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.5 };
    let items = few.map_random(SEED, move |(mut image, class), draws| {
        if augment {
            image = image.random_flip_horizontal(0.5, draws);
            image =
                image.random_rotation(180.0, Interpolation::Bilinear, draws)?.color_jitter(&jitter, draws)?;
        }
        Ok((image.to_tensor(&taper::cpu())?, class))
    });
    let loader = DataLoader::new(items, 32)?.shuffle(SEED).workers(1);
    let mixup = MixUp { alpha: 0.2, classes: CLASSES };

    let mut model = network(&Generator::seed(SEED, &taper::cpu()))?;
    model.to(&device)?;
    let mut adam = AdamW::new(model.parameters(), AdamWConfig { lr: 3e-3, ..Default::default() });
    let steps = (options.epochs * loader.len()) as u64;
    let mut schedule = LrScheduler::new(CosineAnnealingLr::new(steps, 0.0)?, &mut adam);
    for epoch in 0..options.epochs {
        for (step, batch) in loader.iter().enumerate() {
            let (mut images, mut labels) = batch?.to(&device)?;
            if augment {
                let mut draws = Draws::of(SEED, epoch as u64, step as u64);
                (images, labels) = mixup.apply(&images, &labels, &mut draws)?;
            }
            adam.zero_grad();
            cross_entropy(&model.forward(&images)?, &labels)?.backward()?;
            adam.step()?;
            schedule.step(&mut adam)?;
        }
    }

    let others = (10_000..10_500).map(drawn).collect::<Result<Vec<_>>>()?;
    let images =
        others.iter().map(|(image, _)| image.to_tensor(&taper::cpu())).collect::<Result<Vec<_>>>()?;
    let labels = others.iter().map(|(_, class)| *class as i32).collect();
    let labels = Tensor::from_vec::<i32>(labels, others.len(), &taper::cpu())?;
    let test = DataLoader::new(TensorDataset::new((Tensor::stack(&images, 0)?, labels))?, 250)?;
    let (accuracy, loss) = evaluate(&model, &test, &device)?;
    writeln!(io::stdout(), "augmentation {augment}: test loss {loss:.4}, test accuracy {accuracy:.4}")?;
    Ok(accuracy)
}

fn run(options: &Options) -> Outcome {
    let (plain, augmented) = (train(false, options)?, train(true, options)?);
    let claim =
        format!("from {} pictures, augmentation helps: {augmented:.4} against {plain:.4}", options.count);
    holds(augmented > plain + 0.02, &claim)?;
    holds(augmented > 0.85, "the accuracy is above 0.85")
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
