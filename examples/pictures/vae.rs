//! A variational autoencoder learns to generate digits: it compresses images into a few numbers and
//! reconstructs them, and then generates images from random numbers.
//!
//!     cargo run --release --example vae
//!
//! Writes `vae.svg`: on the left images and their reconstructions, on the right digits that the network
//! generated.
//!
//! Kingma and Welling: Auto-encoding variational Bayes (2013).

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::{Outcome, mean_loss};
use plotters::prelude::{Color as _, IntoDrawingArea, RGBColor, Rectangle, SVGBackend};
use taper::{
    nn::{BceWithLogitsLoss, Reduction},
    prelude::*,
    train::Progress,
};

/// Trains a variational autoencoder on handwritten digits, and draws generated digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images
    #[arg(long, default_value_t = 60)]
    epochs: usize,
    /// Batch size: images per step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Learning rate
    #[arg(long, default_value_t = 2e-3)]
    lr: f64,
    /// Latent numbers per image
    #[arg(long, default_value_t = 8)]
    latent: usize,
    /// Seed of the split, the weights, the shuffling and the noise
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// A folder with MNIST or Fashion-MNIST files (IDX, plain or gzip), in place of the digits that ship with
    /// Taper
    #[arg(long)]
    data: Option<PathBuf>,
    /// The picture
    #[arg(long, default_value = "vae.svg")]
    out: PathBuf,
}

/// Encodes an image `[N, P]` as a normal distribution over `latent` numbers, and decodes such numbers to an
/// image.
#[derive(Debug, Module)]
struct Vae {
    encoder: Sequential,
    mean: Linear,
    log_variance: Linear,
    decoder: Sequential,
}

impl Vae {
    fn new(pixels: usize, latent: usize, rng: &Generator) -> Result<Vae> {
        const HIDDEN: usize = 256;
        Ok(Vae {
            encoder: Sequential::new().add(Linear::new(pixels, HIDDEN, rng)?).add(Relu),
            mean: Linear::new(HIDDEN, latent, rng)?,
            log_variance: Linear::new(HIDDEN, latent, rng)?,
            decoder: Sequential::new()
                .add(Linear::new(latent, HIDDEN, rng)?)
                .add(Relu)
                .add(Linear::new(HIDDEN, pixels, rng)?),
        })
    }

    /// The mean and the logarithm of the variance of each number, `[N, latent]`.
    fn encode(&self, images: &Tensor) -> Result<(Tensor, Tensor)> {
        let seen = self.encoder.forward(images)?;
        Ok((self.mean.forward(&seen)?, self.log_variance.forward(&seen)?))
    }

    /// The negative evidence lower bound in nats per image: the reconstruction cost plus the divergence of
    /// the latent distribution from a standard normal one.
    fn loss(&self, images: &Tensor, rng: &Generator) -> Result<Tensor> {
        let (mean, log_variance) = self.encode(images)?;
        // Noise that is scaled and shifted: gradients flow through the scale and the shift, not through the
        // noise.
        let noise = Tensor::randn(mean.shape(), rng)?;
        let numbers = &mean + &(&log_variance * 0.5).exp() * &noise;
        let cost = BceWithLogitsLoss { reduction: Reduction::Sum, ..Default::default() };
        let reconstruction = cost.forward(&self.decoder.forward(&numbers)?, images)?;
        let divergence = (mean.powi(2) + log_variance.exp() - &log_variance - 1.0).sum() * 0.5;
        Ok((reconstruction + divergence) / images.dims()[0] as f64)
    }

    /// Images, with pixels from 0 to 1.
    fn decode(&self, numbers: &Tensor) -> Result<Tensor> {
        Ok(self.decoder.forward(numbers)?.sigmoid())
    }
}

/// Draws images `[rows, columns, S·S]` in a grid, dark on white.
fn draw(path: &Path, images: &Tensor) -> Outcome {
    let &[rows, columns, pixels] = images.dims() else {
        return Err("images are [rows, columns, pixels]".into());
    };
    let side = pixels.isqrt();
    // Pixels of the picture for each pixel of an image, and for the gap between images.
    let dot = (48 / side).max(1) as i32;
    let cell = dot * side as i32 + 4;
    let size = (columns as u32 * cell as u32, rows as u32 * cell as u32);
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&RGBColor(255, 255, 255))?;
    for (at, ink) in images.to_vec::<f32>()?.into_iter().enumerate() {
        let (image, pixel) = (at / pixels, at % pixels);
        let x = (image % columns) as i32 * cell + (pixel % side) as i32 * dot;
        let y = (image / columns) as i32 * cell + (pixel / side) as i32 * dot;
        let grey = (255.0 * (1.0 - ink)) as u8;
        if grey < 250 {
            let square = Rectangle::new([(x, y), (x + dot, y + dot)], RGBColor(grey, grey, grey).filled());
            area.draw(&square)?;
        }
    }
    area.present()?;
    Ok(())
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let (train, test) = common::images(options.data.as_deref(), options.seed)?;
    let test_images = test.tensors().0.flatten(1, -1)?.to(&device)?;
    let pixels = test_images.dims()[1];
    writeln!(out, "{device}: {} training images, {} held out", train.len(), test.len())?;
    let train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed).workers(1);

    let rng = Generator::seed(options.seed, &taper::cpu());
    let mut model = Vae::new(pixels, options.latent, &rng)?;
    model.to(&device)?;
    // The same random stream, for tensors on the device.
    let rng = rng.on(&device);
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: options.lr, ..Default::default() });
    for epoch in 1..=options.epochs {
        let mut bar = Progress::new(format!("epoch {epoch}/{}", options.epochs), train.len() as u64);
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (images, _labels) = batch?.to(&device)?;
            adam.zero_grad();
            let loss = model.loss(&images.flatten(1, -1)?, &rng)?;
            loss.backward()?;
            adam.step()?;
            losses.push(loss.detach());
            bar.step();
        }
        bar.finish();
        let mean = mean_loss(&losses)?;
        if epoch % 10 == 0 || epoch == options.epochs {
            let test_loss = no_grad(|| model.loss(&test_images, &rng))?.item_f64()?;
            writeln!(out, "epoch {epoch:>2}/{}: loss {mean:.3}, test loss {test_loss:.3}", options.epochs)?;
        }
    }

    // Rows of eight: four images and their reconstructions, or eight generated images.
    let picture = no_grad(|| {
        let originals = test_images.narrow(0, 0, 32)?.reshape((8, 4, -1))?;
        let (numbers, _) = model.encode(&originals)?;
        let drawn = Tensor::randn((8, 8, options.latent), &rng)?;
        Tensor::concat(&[&originals, &model.decode(&numbers)?, &model.decode(&drawn)?], 1)
    })?;
    draw(&options.out, &picture)?;
    writeln!(out, "images, what came of them, and images made up: {}", options.out.display())?;
    let test_loss = no_grad(|| model.loss(&test_images, &rng))?.item_f64()?;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(out, "test loss {test_loss:.3} nats an image on {device} ({seconds:.1} s)")?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
