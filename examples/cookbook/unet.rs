//! A U-Net finds discs and squares in noisy pictures, pixel by pixel.
//!
//!     cargo run --release -p taper-examples-cookbook --example unet
//!
//! Ronneberger, Fischer, Brox: U-Net, convolutional networks for biomedical image segmentation (2015).

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds};
use taper::{
    optim::{LrScheduler, OneCycleConfig, OneCycleLr},
    prelude::*,
    train::metrics::{Average, ConfusionMatrix},
};

/// Trains a U-Net on generated pictures.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Training steps, with 16 new pictures each
    #[arg(long, default_value_t = 240)]
    steps: usize,
}

/// Pictures `[N, 1, 32, 32]` with a disc and a square in noise, and the class of each pixel `[N, 32, 32]`: 1
/// in the disc, 2 in the square, which is in front, and 0 elsewhere.
fn shapes(count: usize, rng: &Generator) -> Result<(Tensor, Tensor)> {
    let axis = Tensor::arange(0.0, 32.0, 1.0, rng.device())?;
    let offsets = || -> Result<(Tensor, Tensor)> {
        let middle = || Tensor::uniform((count, 1, 1), 6.0, 26.0, rng);
        Ok((axis.unsqueeze(1)?.sub(&middle()?)?, axis.sub(&middle()?)?))
    };
    let ((y, x), (v, u)) = (offsets()?, offsets()?);
    let disc = y.square().add(&x.square())?.lt_scalar(36.0).to_dtype(DType::I32)?;
    let square = v.abs().maximum(&u.abs())?.lt_scalar(5.0).to_dtype(DType::I32)?;
    let classes = disc.maximum(&(square * 2))?;
    let ink = classes.gt_scalar(0).to_dtype(DType::F32)?.unsqueeze(1)?;
    Ok((ink.add(&(Tensor::randn(ink.shape(), rng)? * 0.3))?, classes))
}

/// Two convolutions of 3x3, each with a batch norm.
fn block(from: usize, to: usize, rng: &Generator) -> Result<Sequential> {
    let config = ConvConfig { padding: 1.into(), bias: false, ..Default::default() };
    let mut block = Sequential::new();
    for from in [from, to] {
        let conv = Conv2d::with_config(from, to, 3, config, rng)?;
        block = block.add(conv).add(BatchNorm2d::new(to, rng.device())?).add(Relu);
    }
    Ok(block)
}

#[derive(Debug, Module)]
struct UNet {
    down: Vec<Sequential>,
    bottom: Sequential,
    up: Vec<ConvTranspose2d>,
    merge: Vec<Sequential>,
    head: Conv2d,
}

impl UNet {
    fn new(classes: usize, rng: &Generator) -> Result<UNet> {
        let enlarge = |from, to| {
            ConvTranspose2d::with_config(
                from,
                to,
                2,
                ConvTransposeConfig { stride: [2; 2], ..Default::default() },
                rng,
            )
        };
        Ok(UNet {
            down: vec![block(1, 8, rng)?, block(8, 16, rng)?],
            bottom: block(16, 32, rng)?,
            up: vec![enlarge(32, 16)?, enlarge(16, 8)?],
            merge: vec![block(32, 16, rng)?, block(16, 8, rng)?],
            head: Conv2d::new(8, classes, 1, rng)?,
        })
    }
}

impl Layer for UNet {
    /// The logits `[N, classes, H, W]` of pictures `[N, 1, H, W]`.
    fn forward(&self, pictures: &Tensor) -> Result<Tensor> {
        let (mut x, mut skips) = (pictures.clone(), Vec::new());
        for block in &self.down {
            let whole = block.forward(&x)?;
            x = MaxPool2d::new(2).forward(&whole)?;
            skips.push(whole);
        }
        x = self.bottom.forward(&x)?;
        for ((up, merge), skip) in self.up.iter().zip(&self.merge).zip(skips.iter().rev()) {
            x = merge.forward(&Tensor::concat(&[&up.forward(&x)?, skip], 1)?)?;
        }
        self.head.forward(&x)
    }
}

fn run(options: &Options) -> Outcome {
    let device = taper::device(&options.device)?;
    let rng = Generator::seed(0, &taper::cpu());
    let mut model = UNet::new(3, &rng)?;
    model.to(&device)?;
    let rng = rng.on(&device);
    let mut adam = Adam::new(model.parameters(), AdamConfig::default());
    // The rate ends near zero: the running statistics of the batch norms then belong to weights that rest.
    let cycle = OneCycleConfig { max_lr: 1e-2, total_steps: options.steps as u64, ..Default::default() };
    let mut schedule = LrScheduler::new(OneCycleLr::new(cycle)?, &mut adam);
    for step in 1..=options.steps {
        let (pictures, classes) = shapes(16, &rng)?;
        adam.zero_grad();
        let loss = cross_entropy(&model.forward(&pictures)?, &classes)?;
        loss.backward()?;
        adam.step()?;
        schedule.step(&mut adam)?;
        if step % 20 == 0 {
            writeln!(io::stdout(), "step {step}: loss {:.4}", loss.item_f64()?)?;
        }
    }

    model.eval();
    let (pictures, classes) = shapes(64, &rng)?;
    let mut matrix = ConfusionMatrix::new(3);
    matrix.update(&no_grad(|| model.forward(&pictures))?, &classes)?;
    let iou = matrix.iou(Average::Macro).unwrap_or(0.0);
    holds(iou > 0.9, &format!("the mean IoU of new pictures is {iou:.3}, above 0.9"))
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
