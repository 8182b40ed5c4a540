//! A network from PyTorch learns another task: it is loaded from an ONNX file, gets a new head, is trained
//! on handwritten digits, and is written as an ONNX file again.
//!
//!     cargo run --release --example fine_tune --features onnx -- --out digits.onnx
//!
//! The file in `assets` was made by `scripts/rotations_onnx.py`. Its network tells how far a digit is
//! turned, so it has seen no labels; its features are a better start than random weights. With `--check
//! python3`, ONNX Runtime reads the written file and must reach the same accuracy.

mod common;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use clap::Parser;
use common::{Outcome, evaluate, holds, mean_loss};
use taper::{
    nn::save_safetensors,
    onnx::{DynamicAxis, Export, Model, export},
    prelude::*,
};

/// Fine-tunes a network from an ONNX file on handwritten digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training images
    #[arg(long, default_value_t = 8)]
    epochs: usize,
    /// Batch size: images per step
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// Learning rate of the new head; that of the loaded layers is a tenth
    #[arg(long, default_value_t = 0.05)]
    lr: f64,
    /// Seed of the split, the head and the shuffling
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// The ONNX file to write
    #[arg(long, default_value = "digits.onnx")]
    out: PathBuf,
    /// A Python with onnxruntime and safetensors, which runs the written file
    #[arg(long, value_name = "PYTHON")]
    check: Option<PathBuf>,
}

/// The loaded network up to its features, with a new head.
#[derive(Debug, Module)]
struct Digits {
    body: Model,
    head: Linear,
}

impl Layer for Digits {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let features = self.body.run([("image", image)])?.tensor("features")?;
        self.head.forward(&features)
    }
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/rotations.onnx");
    let body = Model::load(file, &device)?;
    writeln!(out, "loaded {body} from {}", body.info().producer)?;
    let (train, test) = common::images(None, options.seed)?;
    let train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed);
    let (images, labels) = test.tensors().clone();
    let test = DataLoader::new(test, 512)?;

    let features = 256;
    let rng = Generator::seed(options.seed, &device);
    let model = Digits { body, head: Linear::new(features, 10, &rng)? };
    // The loaded layers change less than the head. The old head has no part in the loss.
    let config = SgdConfig { lr: options.lr, momentum: 0.9, ..Default::default() };
    let mut head = Sgd::new(model.head.parameters(), config);
    let mut body = Sgd::new(model.body.parameters(), SgdConfig { lr: options.lr / 10.0, ..config });
    for epoch in 1..=options.epochs {
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (images, labels) = batch?.to(&device)?;
            model.zero_grad();
            let loss = cross_entropy(&model.forward(&images)?, &labels)?;
            loss.backward()?;
            head.step()?;
            body.step()?;
            losses.push(loss.detach());
        }
        let (accuracy, _) = evaluate(&model, &test, &device)?;
        writeln!(
            out,
            "epoch {epoch}/{}: loss {:.4}, test accuracy {accuracy:.4}",
            options.epochs,
            mean_loss(&losses)?
        )?;
    }

    model.eval();
    let (accuracy, _) = evaluate(&model, &test, &device)?;
    model.eval();
    let image = images.narrow(0, 0, 1)?.to(&device)?;
    let form = Export {
        output_names: vec!["logits".into()],
        dynamic_axes: vec![DynamicAxis::new("image", 0, "batch")],
        ..Default::default()
    };
    let written = export(&model, [("image", &image)], &options.out, &form)?;
    let list: Vec<String> = written.operators.iter().map(|(name, count)| format!("{count} {name}")).collect();
    writeln!(out, "wrote {}: {}", options.out.display(), list.join(", "))?;

    let read = Model::load(&options.out, &device)?;
    let logits = no_grad(|| read.run([("image", &images.to(&device)?)])?.tensor("logits"))?;
    let again = hits(&logits.to(&taper::cpu())?, &labels)?;
    holds((again - accuracy).abs() < 1e-9, "the written file has the same accuracy")?;
    if let Some(python) = &options.check {
        let runtime = by_onnx_runtime(python, &options.out, &images, &labels)?;
        holds((runtime - accuracy).abs() < 1e-9, "so it has in ONNX Runtime")?;
    }
    writeln!(out, "test accuracy {accuracy:.4} on {device} ({:.1} s)", start.elapsed().as_secs_f64())?;
    Ok(())
}

/// The part of the rows of logits whose greatest number is at the label.
fn hits(logits: &Tensor, labels: &Tensor) -> Result<f64> {
    let right = logits.argmax_axis(1, false)?.eq(labels)?.to_dtype(DType::F32)?.sum();
    Ok(right.item_f64()? / labels.numel() as f64)
}

/// The accuracy of the file in ONNX Runtime.
fn by_onnx_runtime(python: &Path, file: &Path, images: &Tensor, labels: &Tensor) -> Outcome<f64> {
    const PROGRAM: &str = "
import sys, onnx, onnxruntime, safetensors.numpy
onnx.checker.check_model(sys.argv[1], full_check=True)
data = safetensors.numpy.load_file(sys.argv[2])
session = onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])
logits, = session.run(['logits'], {'image': data['images']})
print((logits.argmax(1) == data['labels']).mean(dtype='float64'))
";
    let data = file.with_extension("safetensors");
    let pairs = [("images".to_string(), images.clone()), ("labels".to_string(), labels.clone())];
    save_safetensors(&data, &pairs.into_iter().collect())?;
    let output = Command::new(python).arg("-c").arg(PROGRAM).args([file, &data]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
