//! An LSTM learns to add: it reads "37+58=", letter by letter, and writes "095".
//!
//!     cargo run --release --example lstm
//!
//! Four fifths of the ten thousand sums of two numbers below 100 are for training; the others are only for
//! testing. Numbers are written from the last digit to the first, as in addition by hand, so that a carry is
//! known before it is needed.
//!
//! Zaremba and Sutskever: Learning to execute (2014).

mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::{Outcome, mean_loss};
use taper::{
    nn::{Embedding, Lstm, RnnConfig},
    optim::{CosineAnnealingLr, LrScheduler, clip_grad_norm},
    prelude::*,
    train::Progress,
};

/// Trains an LSTM to add two numbers that it reads as text.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Passes over the training sums
    #[arg(long, default_value_t = 15)]
    epochs: usize,
    /// Batch size: sums per step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Learning rate
    #[arg(long, default_value_t = 5e-3)]
    lr: f64,
    /// Size of the LSTM's hidden state
    #[arg(long, default_value_t = 64)]
    hidden: usize,
    /// Seed of the split, the weights and the shuffling
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

/// The vocabulary; a digit is encoded as itself.
const LETTERS: &[u8] = b"0123456789+=";
/// Number of digits of a sum.
const ANSWER: usize = 3;

/// A sum as the network reads it, and its result, last digits first: "73+85=" and "590" for 37 + 58.
fn sum(a: usize, b: usize) -> (String, String) {
    let reversed = |text: String| text.chars().rev().collect::<String>();
    let (a_text, b_text) = (reversed(format!("{a:02}")), reversed(format!("{b:02}")));
    (format!("{a_text}+{b_text}="), reversed(format!("{:03}", a + b)))
}

/// Encodes texts of one length as numbers `[N, L]`.
fn numbers(texts: &[String]) -> Result<Tensor> {
    let letter = |byte| LETTERS.iter().position(|&known| known == byte).unwrap_or(0) as i32;
    let length = texts.first().map_or(0, String::len);
    let all = texts.iter().flat_map(|text| text.bytes().map(letter)).collect();
    Tensor::from_vec(all, [texts.len(), length], &taper::cpu())
}

/// The network: reads letters and predicts digits.
#[derive(Debug, Module)]
struct Adder {
    letters: Embedding,
    lstm: Lstm,
    head: Linear,
}

impl Adder {
    fn new(hidden: usize, rng: &Generator) -> Result<Adder> {
        let config = RnnConfig { batch_first: true, ..Default::default() };
        Ok(Adder {
            letters: Embedding::new(LETTERS.len(), 16, rng)?,
            lstm: Lstm::with_config(16, hidden, config, rng)?,
            head: Linear::new(hidden, 10, rng)?,
        })
    }

    /// Logits of each digit of the answer, `[N, 3, 10]`, for questions `[N, L]`. The network reads the last
    /// letter, "=", once for each digit.
    fn forward(&self, questions: &Tensor) -> Result<Tensor> {
        let end = questions.narrow(1, questions.dims()[1] - 1, 1)?;
        let read = Tensor::concat(&[questions, &end.expand([-1, ANSWER as isize - 1])?], 1)?;
        let (states, _last) = self.lstm.forward(&self.letters.forward(&read)?, None)?;
        self.head.forward(&states.narrow(1, questions.dims()[1] - 1, ANSWER)?)
    }
}

/// The share of sums with all digits right.
fn accuracy(model: &Adder, loader: &DataLoader<TensorDataset>, device: &Device) -> Result<f64> {
    no_grad(|| {
        let (mut right, mut seen) = (0.0, 0);
        for batch in loader.iter() {
            let (questions, answers) = batch?.to(device)?;
            let digits = model.forward(&questions)?.argmax_axis(-1, false)?;
            // 1 for a right digit and 0 for a wrong one; the minimum over the digits is 1 if all are right.
            let whole = digits.eq(&answers)?.to_dtype(DType::F32)?.amin(1, false)?;
            right += whole.sum().item_f64()?;
            seen += answers.dims()[0];
        }
        Ok(right / seen as f64)
    })
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let rng = Generator::seed(options.seed, &taper::cpu());

    let order = rng.permutation(100 * 100);
    let (questions, answers): (Vec<String>, Vec<String>) =
        order.iter().map(|&which| sum(which / 100, which % 100)).unzip();
    let all = TensorDataset::new((numbers(&questions)?, numbers(&answers)?))?;
    let held_out = all.len() / 5;
    let train = all.select(&(held_out..all.len()).collect::<Vec<_>>())?;
    let test = all.select(&(0..held_out).collect::<Vec<_>>())?;
    writeln!(out, "{device}: {} sums to train with, {} held out", train.len(), test.len())?;
    let train = DataLoader::new(train, options.batch_size)?.shuffle(options.seed);
    let test = DataLoader::new(test, 500)?;

    let mut model = Adder::new(options.hidden, &rng)?;
    model.to(&device)?;
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: options.lr, ..Default::default() });
    let steps = (options.epochs * train.len()).max(1) as u64;
    let mut schedule = LrScheduler::new(CosineAnnealingLr::new(steps, 0.0)?, &mut adam);
    for epoch in 1..=options.epochs {
        let mut bar = Progress::new(format!("epoch {epoch}/{}", options.epochs), train.len() as u64);
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (questions, answers) = batch?.to(&device)?;
            adam.zero_grad();
            let logits = model.forward(&questions)?;
            let loss = cross_entropy(&logits.flatten(0, 1)?, &answers.flatten_all())?;
            loss.backward()?;
            clip_grad_norm(&model.parameters(), 1.0)?;
            adam.step()?;
            schedule.step(&mut adam)?;
            losses.push(loss.detach());
            bar.step();
        }
        bar.finish();
        let (mean, right) = (mean_loss(&losses)?, accuracy(&model, &test, &device)?);
        writeln!(out, "epoch {epoch:>2}/{}: loss {mean:.4}, test accuracy {right:.4}", options.epochs)?;
    }

    // A few of the test sums.
    let shown = 5;
    let digits =
        no_grad(|| model.forward(&numbers(&questions[..shown])?.to(&device)?)?.argmax_axis(-1, false))?;
    for (at, said) in digits.to_f64_vec()?.chunks(ANSWER).enumerate() {
        let said: String = said.iter().rev().map(|&digit| LETTERS[digit as usize] as char).collect();
        writeln!(out, "{} + {} = {said}", order[at] / 100, order[at] % 100)?;
    }
    let right = accuracy(&model, &test, &device)?;
    writeln!(out, "test accuracy {right:.4} on {device} ({:.1} s)", start.elapsed().as_secs_f64())?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
