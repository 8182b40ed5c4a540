//! A diffusion model draws points: noise becomes eight heaps on a circle.
//!
//!     cargo run --release -p taper-examples-cookbook --example ddpm
//!
//! Ho, Jain, Abbeel: Denoising diffusion probabilistic models (2020).

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    f64::consts::TAU,
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds};
use taper::prelude::*;

/// Trains a diffusion model on points of the plane.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Training steps, with 512 new points each
    #[arg(long, default_value_t = 1500)]
    steps: usize,
}

const HEAPS: usize = 8;
const RADIUS: f64 = 3.0;
const DEVIATION: f64 = 0.2;
/// Steps from a point to noise.
const TIMES: usize = 100;

/// The middles of the heaps, `[8, 2]`.
fn middles(device: &Device) -> Result<Tensor> {
    let angles = Tensor::arange(0.0, HEAPS as f64, 1.0, device)? * (TAU / HEAPS as f64);
    Ok(Tensor::stack(&[angles.cos(), angles.sin()], 1)? * RADIUS)
}

/// Points `[N, 2]` of the heaps, each with a standard deviation of 0.2.
fn points(count: usize, rng: &Generator) -> Result<Tensor> {
    let heap = Tensor::randint(0, HEAPS as i32, count, rng)?;
    middles(rng.device())?.index_select(0, &heap)?.add(&(Tensor::randn((count, 2), rng)? * DEVIATION))
}

/// Predicts the noise in points.
#[derive(Debug, Module)]
struct Denoiser {
    point: Linear,
    time: Embedding,
    layers: Sequential,
    /// The variance βₜ that each step adds, and the share ᾱₜ of the point's own variance after it, `[100]`.
    #[module(constant)]
    betas: Tensor,
    #[module(constant)]
    shares: Tensor,
}

impl Denoiser {
    fn new(width: usize, rng: &Generator) -> Result<Denoiser> {
        let betas = Tensor::linspace(1e-4, 0.1, TIMES, rng.device())?;
        let shares = (1.0 - &betas).cumprod(0)?;
        let mut layers = Sequential::new().add(Silu);
        for _ in 0..3 {
            layers = layers.add(Linear::new(width, width, rng)?).add(Silu);
        }
        layers = layers.add(Linear::new(width, 2, rng)?);
        let (point, time) = (Linear::new(2, width, rng)?, Embedding::new(TIMES, width, rng)?);
        Ok(Denoiser { point, time, layers, betas, shares })
    }

    /// The noise in points `[N, 2]` after `times` `[N]` steps.
    fn forward(&self, points: &Tensor, times: &Tensor) -> Result<Tensor> {
        self.layers.forward(&self.point.forward(points)?.add(&self.time.forward(times)?)?)
    }

    fn loss(&self, points: &Tensor, rng: &Generator) -> Result<Tensor> {
        let times = Tensor::randint(0, TIMES as i32, points.dim(0)?, rng)?;
        let noise = Tensor::randn(points.shape(), rng)?;
        let share = self.shares.index_select(0, &times)?.unsqueeze(1)?;
        let noisy = share.sqrt().mul(points)?.add(&(1.0 - &share).sqrt().mul(&noise)?)?;
        mse_loss(&self.forward(&noisy, &times)?, &noise)
    }

    /// New points `[N, 2]`, from noise.
    fn sample(&self, count: usize, rng: &Generator) -> Result<Tensor> {
        let mut x = Tensor::randn((count, 2), rng)?;
        let (betas, shares) = (self.betas.to_vec::<f32>()?, self.shares.to_vec::<f32>()?);
        for time in (0..TIMES).rev() {
            let (beta, share) = (f64::from(betas[time]), f64::from(shares[time]));
            let times = Tensor::full(count, time as i32, rng.device())?;
            let noise = self.forward(&x, &times)? * (beta / (1.0 - share).sqrt());
            x = (x - noise) / (1.0 - beta).sqrt();
            if time > 0 {
                x += Tensor::randn((count, 2), rng)? * beta.sqrt();
            }
        }
        Ok(x)
    }
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let rng = Generator::seed(0, &taper::cpu());
    let mut model = Denoiser::new(64, &rng)?;
    model.to(&device)?;
    let rng = rng.on(&device);
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: 1e-2, ..Default::default() });
    let mut schedule = LrScheduler::new(CosineAnnealingLr::new(options.steps as u64, 0.0)?, &mut adam);
    for step in 1..=options.steps {
        adam.zero_grad();
        let loss = model.loss(&points(512, &rng)?, &rng)?;
        loss.backward()?;
        adam.step()?;
        schedule.step(&mut adam)?;
        if step % 250 == 0 {
            writeln!(out, "step {step}: loss {:.4}", loss.item_f64()?)?;
        }
    }

    let drawn = no_grad(|| model.sample(1000, &rng))?;
    let (distance, heap) =
        drawn.unsqueeze(1)?.sub(&middles(&device)?)?.vector_norm(2, 2, false)?.min_axis(1, false)?;
    let near = distance.lt_scalar(3.0 * DEVIATION).to_dtype(DType::F32)?.mean().item_f64()?;
    let sizes = heap.bincount(HEAPS)?.to_f64_vec()?;
    writeln!(out, "points of each heap: {sizes:?}")?;
    holds(
        near > 0.85,
        &format!(
            "{:.1} % of drawn points are within three deviations of a heap, more than 85 %",
            100.0 * near
        ),
    )?;
    holds(sizes.iter().all(|size| *size > 60.0), "each heap has more than 6 % of the points")
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
