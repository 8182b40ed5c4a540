//! A convolutional network learns digits while a page shows how: curves, layers, kernels, memory, troubles.
//! The page's address is printed first; afterwards the same page is one file.
//!
//!     cargo run --release --example studio --features studio -- --save run.html
//!
//! With `--measure`, steps with and without the studio take turns, and their times are printed.

mod common;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::Outcome;
use taper::{inspect::Graph, nn::Conv2d, prelude::*, record_memory, studio, train::SummaryWriter};

/// Trains a convolutional network while a page shows how.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images
    #[arg(long, default_value_t = 20)]
    epochs: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.1)]
    lr: f64,
    /// The file to which the page is written at the end
    #[arg(long)]
    save: Option<PathBuf>,
    /// The folder of TensorBoard's files
    #[arg(long, default_value = "runs/studio")]
    logs: PathBuf,
    /// Compare the time of steps with and without the studio instead
    #[arg(long)]
    measure: bool,
}

#[derive(Debug, Module)]
struct Net {
    conv1: Conv2d,
    conv2: Conv2d,
    fc: Linear,
}

impl Net {
    /// The activations of the second convolution.
    fn features(&self, images: &Tensor) -> Result<Tensor> {
        Ok(self.conv2.forward(&self.conv1.forward(images)?.relu())?.relu())
    }
}

impl Layer for Net {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        self.fc.forward(&self.features(images)?.flatten(1, -1)?)
    }
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    if !options.measure {
        record_memory(true);
        writeln!(out, "{}", studio::serve()?)?;
    }
    let device = taper::device(&options.device)?;
    let (train, _) = common::images(None, 42)?;
    let side = train.get(0)?.0.dims()[1];
    let loader = DataLoader::new(train, 64)?.shuffle(42).workers(1);
    let rng = Generator::seed(42, &taper::cpu());
    let mut model = Net {
        conv1: Conv2d::new(1, 16, 3, &rng)?,
        conv2: Conv2d::new(16, 32, 3, &rng)?,
        fc: Linear::new(32 * (side - 4) * (side - 4), 10, &rng)?,
    };
    model.to(&device)?;
    let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: options.lr, ..Default::default() });
    let mut step = |images: &Tensor, labels: &Tensor| -> Result<f64> {
        sgd.zero_grad();
        let loss = cross_entropy(&model.forward(images)?, labels)?;
        loss.backward()?;
        sgd.step()?;
        Ok(f64::from(loss.item::<f32>()?))
    };
    if options.measure {
        let (images, labels) = loader.iter().next().ok_or("no images")??.to(&device)?;
        return measure(&mut out, &device, || step(&images, &labels));
    }

    let mut writer = SummaryWriter::new(&options.logs)?;
    studio::show_model("net", &model);
    let mut number = 0;
    for epoch in 0..options.epochs {
        for batch in loader.iter() {
            let (images, labels) = batch?.to(&device)?;
            if number == 0 {
                let loss = cross_entropy(&model.forward(&images)?, &labels)?;
                writer.graph(&Graph::of(&[&loss], &model.named_parameters()))?;
                studio::show_explanation("the loss", &taper::explain(&loss)?);
            }
            let loss = studio::step(number, || step(&images, &labels))?;
            writer.scalar("loss/train", loss, number)?;
            studio::what_if(&model, 64, &[taper::cpu()], |setting| {
                cross_entropy(&model.forward(&setting.batch_of(&images)?)?, &setting.batch_of(&labels)?)
            })?;
            if number.is_multiple_of(20) {
                studio::weights(&model, number)?;
                studio::activations("conv2", &model.features(&images)?, number)?;
                for (name, weight) in model.named_parameters() {
                    writer.histogram(&name, &weight, number)?;
                }
            }
            number += 1;
        }
        writeln!(out, "epoch {}/{}", epoch + 1, options.epochs)?;
    }
    if let Some(path) = &options.save {
        studio::save(path)?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}

/// The median times of steps alone, and of steps in `studio::step` with a loss in a curve, which take turns;
/// and the allocations of both.
fn measure(out: &mut impl Write, device: &Device, mut step: impl FnMut() -> Result<f64>) -> Outcome {
    const WARMUP_STEPS: u64 = 50;
    const STEPS: u64 = 1000;
    for _ in 0..WARMUP_STEPS {
        step()?;
    }
    studio::serve()?;
    let (mut alone, mut shown) = (Measured::default(), Measured::default());
    for number in 0..STEPS {
        alone.add(device, &mut step)?;
        shown.add(device, || {
            let loss = studio::step(number, &mut step)?;
            studio::scalar("measured", "loss", loss, number);
            Ok(loss)
        })?;
    }
    let (time, time_shown) = (alone.median(), shown.median());
    writeln!(
        out,
        "alone {time:.1} µs, with the studio {time_shown:.1} µs: {:+.2} %; allocations {} and {}",
        (time_shown / time - 1.0) * 100.0,
        alone.allocations,
        shown.allocations
    )?;
    Ok(())
}

/// The times of steps in microseconds, and the buffers that they allocate.
#[derive(Default)]
struct Measured {
    times: Vec<f64>,
    allocations: u64,
}

impl Measured {
    fn add(&mut self, device: &Device, step: impl FnOnce() -> Result<f64>) -> Result<()> {
        let (begin, before) = (Instant::now(), device.memory().allocations);
        step()?;
        self.times.push(begin.elapsed().as_secs_f64() * 1e6);
        self.allocations += device.memory().allocations - before;
        Ok(())
    }

    fn median(&mut self) -> f64 {
        self.times.sort_by(f64::total_cmp);
        self.times[self.times.len() / 2]
    }
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
