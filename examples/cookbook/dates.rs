//! A recurrent network with attention rewrites dates: "March 8, 2031" becomes "2031-03-08".
//!
//!     cargo run --release -p taper-examples-cookbook --example dates
//!
//! Luong, Pham, Manning: Effective approaches to attention-based neural machine translation (2015).

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds};
use taper::{nn::functional::scaled_dot_product_attention, prelude::*};

/// Trains a network that rewrites dates.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Training steps, with 64 new dates each
    #[arg(long, default_value_t = 300)]
    steps: usize,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Letters of the longest date, "September 28, 2049".
const WIDTH: usize = 18;
const LETTERS: usize = 128;

/// Random dates as people write them, `[N, 18]`, and in ISO's format, `[N, 10]`: bytes of ASCII.
fn dates(count: usize, rng: &Generator) -> Result<(Tensor, Tensor)> {
    let (mut written, mut iso) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (year, month, day) = (1950 + rng.below(100), 1 + rng.below(12), 1 + rng.below(28));
        let name = MONTHS[month as usize - 1];
        let date = match rng.below(4) {
            0 => format!("{day} {name} {year}"),
            1 => format!("{name} {day}, {year}"),
            2 => format!("{day}.{month}.{year}"),
            _ => format!("{} {day}, {year}", &name[..3]),
        };
        written.extend(format!("{date:<WIDTH$}").into_bytes());
        iso.extend(format!("{year}-{month:02}-{day:02}").into_bytes());
    }
    let device = rng.device();
    Ok((Tensor::from_vec(written, (count, WIDTH), device)?, Tensor::from_vec(iso, (count, 10), device)?))
}

/// The text of a row of bytes.
fn text(row: &Tensor) -> Result<String> {
    Ok(row.to_vec::<u8>()?.into_iter().map(char::from).collect())
}

#[derive(Debug, Module)]
struct Rewriter {
    letters: Embedding,
    encoder: Gru,
    decoder: Gru,
    combine: Linear,
    head: Linear,
}

impl Rewriter {
    fn new(width: usize, rng: &Generator) -> Result<Rewriter> {
        let config = RnnConfig { batch_first: true, ..Default::default() };
        Ok(Rewriter {
            letters: Embedding::new(LETTERS, 32, rng)?,
            encoder: Gru::with_config(32, width, config, rng)?,
            decoder: Gru::with_config(32, width, config, rng)?,
            combine: Linear::new(2 * width, width, rng)?,
            head: Linear::new(width, LETTERS, rng)?,
        })
    }

    /// A vector for each letter of a date `[N, 18]`, and the state after the last letter.
    fn encode(&self, date: &Tensor) -> Result<(Tensor, Tensor)> {
        self.encoder.forward(&self.letters.forward(date)?, None)
    }

    /// The logits `[N, L, 128]` of the letters that follow `letters` `[N, L]`, and the new state.
    fn decode(&self, letters: &Tensor, memory: &Tensor, state: &Tensor) -> Result<(Tensor, Tensor)> {
        let (hidden, state) = self.decoder.forward(&self.letters.forward(letters)?, Some(state))?;
        let seen = scaled_dot_product_attention(&hidden, memory, memory, Default::default())?;
        let both = self.combine.forward(&Tensor::concat(&[&seen, &hidden], -1)?)?.tanh();
        Ok((self.head.forward(&both)?, state))
    }

    /// The loss of the right letters, each predicted from those before it.
    fn loss(&self, date: &Tensor, iso: &Tensor) -> Result<Tensor> {
        let (memory, state) = self.encode(date)?;
        let before = iso.narrow(1, 0, 9)?.pad(&[(0, 0), (1, 0)], 0)?;
        let (logits, _) = self.decode(&before, &memory, &state)?;
        cross_entropy(&logits.flatten(0, 1)?, &iso.flatten(0, 1)?)
    }

    /// The network's own letters `[N, 10]`, one after the other.
    fn rewrite(&self, date: &Tensor) -> Result<Tensor> {
        let (memory, mut state) = self.encode(date)?;
        let mut letter = Tensor::zeros((date.dim(0)?, 1), (DType::U8, &date.device()))?;
        let mut letters = Vec::new();
        for _ in 0..10 {
            let (logits, next) = self.decode(&letter, &memory, &state)?;
            letter = logits.argmax_axis(-1, false)?.to_dtype(DType::U8)?;
            state = next;
            letters.push(letter.clone());
        }
        Tensor::concat(&letters, 1)
    }
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let rng = Generator::seed(0, &taper::cpu());
    let mut model = Rewriter::new(64, &rng)?;
    model.to(&device)?;
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: 5e-3, ..Default::default() });
    for step in 1..=options.steps {
        let (date, iso) = dates(64, &rng)?.to(&device)?;
        adam.zero_grad();
        let loss = model.loss(&date, &iso)?;
        loss.backward()?;
        clip_grad_norm(&model.parameters(), 1.0)?;
        adam.step()?;
        if step % 50 == 0 {
            writeln!(out, "step {step}: loss {:.4}", loss.item_f64()?)?;
        }
    }

    let (date, iso) = dates(500, &rng)?.to(&device)?;
    let written = no_grad(|| model.rewrite(&date))?;
    for row in 0..4 {
        writeln!(out, "{} -> {}", text(&date.select(0, row)?)?, text(&written.select(0, row)?)?)?;
    }
    let right = written.eq(&iso)?.all_axis(1, false)?.to_dtype(DType::F32)?.mean().item_f64()?;
    holds(right > 0.95, &format!("{:.1} % of new dates are right, more than 95 %", 100.0 * right))
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
