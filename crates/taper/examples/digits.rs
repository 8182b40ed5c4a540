//! SimpleNet learns handwritten digits: the 8x8 digits that ship with Taper, or MNIST files of your own.
//!
//!     cargo run --release --example digits -- --device auto

use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use taper::{
    data::{Digits, Mnist, random_split},
    prelude::*,
};

/// Trains a network of two layers on handwritten digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images
    #[arg(long, default_value_t = 20)]
    epochs: usize,
    /// Images a step
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
    /// A folder with MNIST or Fashion-MNIST files (IDX, plain or gzip), in place of the digits that ship with Taper
    #[arg(long)]
    data: Option<PathBuf>,
}

#[derive(Module)]
struct SimpleNet {
    fc1: Linear,
    fc2: Linear,
}

impl SimpleNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc2.forward(&self.fc1.forward(x)?.relu())
    }
}

/// The share of a loader's images that the model recognises, and its mean loss.
fn evaluate(
    model: &SimpleNet,
    loader: &DataLoader<impl Dataset<Item = (Tensor, Tensor)> + 'static>,
    device: &Device,
) -> Result<(f64, f64)> {
    no_grad(|| {
        let (mut right, mut loss, mut seen) = (0.0, 0.0, 0);
        for batch in loader.iter() {
            let (images, labels) = batch?.to(device)?;
            let logits = model.forward(&images)?;
            let hits = logits.argmax_axis(1, false)?.eq(&labels)?.to_dtype(DType::F32)?.sum();
            let n = labels.numel();
            loss += f64::from(cross_entropy(&logits, &labels)?.item::<f32>()?) * n as f64;
            right += f64::from(hits.item::<f32>()?);
            seen += n;
        }
        Ok((right / seen as f64, loss / seen as f64))
    })
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    // Not println!, which panics when nobody reads on, as in `digits | head`.
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let host = taper::cpu();
    let (train, test): (TensorDataset, TensorDataset) = match &options.data {
        Some(folder) => (Mnist::load(folder, true, &host)?, Mnist::load(folder, false, &host)?),
        None => {
            let all = Digits::load(&host)?;
            let held_out = all.len() / 5;
            let parts = random_split(&all, &[all.len() - held_out, held_out], options.seed)?;
            (all.select(parts[0].indices())?, all.select(parts[1].indices())?)
        }
    };
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

    let rng = Generator::seed(options.seed, &host);
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

    let terminal = std::io::stderr().is_terminal();
    for epoch in 1..=options.epochs {
        let bar = if terminal { ProgressBar::new(train.len() as u64) } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len}") {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(format!("epoch {epoch}/{}", options.epochs));
        // Kept as tensors and read once an epoch: reading each would wait for the device each time.
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (images, labels) = batch?.to(&device)?;
            sgd.zero_grad();
            let loss = cross_entropy(&model.forward(&images)?, &labels)?;
            loss.backward()?;
            sgd.step()?;
            losses.push(loss.detach());
            bar.inc(1);
        }
        bar.finish_and_clear();
        let mean = Tensor::stack(&losses.iter().collect::<Vec<_>>(), 0)?.mean().item::<f32>()?;
        if !mean.is_finite() {
            return Err(format!(
                "the loss is {mean} in epoch {epoch}: try a smaller --lr than {}",
                options.lr
            )
            .into());
        }
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
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read the output has seen enough.
        Err(error)
            if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
