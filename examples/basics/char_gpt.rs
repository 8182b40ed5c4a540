//! A small GPT: a transformer that reads a text letter by letter, learns to predict the next letter, and
//! then continues a text.
//!
//!     cargo run --release --example char_gpt -- --prompt "A tensor "
//!
//! With `--checkpoint DIR` it saves every hundred steps and on Ctrl-C; `--resume` continues and gives the
//! same bits.
//!
//! It reads the pages of Taper's guide, or any other text: `--text FILE`. It learns words and syntax, but no
//! meaning.
//!
//! Radford et al.: Language models are unsupervised multitask learners (2019).

mod common;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Parser;
use common::{Half, Outcome, Saving, in_half, mean_loss, scaler};
use taper::{
    nn::{
        AttentionMasks, Embedding, KeyValueCache, LayerNorm, Parameter, TransformerActivation,
        TransformerConfig, TransformerEncoder,
    },
    optim::{CosineAnnealingLr, LinearLr, LrScheduler, SequentialLr, clip_grad_norm},
    prelude::*,
    train::Progress,
};

/// Trains a small transformer on the letters of a text, and generates text with it.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Training steps
    #[arg(long, default_value_t = 800)]
    steps: usize,
    /// Batch size: pieces of text per step
    #[arg(long, default_value_t = 16)]
    batch_size: usize,
    /// Context length: letters that the model sees at once
    #[arg(long, default_value_t = 64)]
    context: usize,
    /// Features per letter, 16 in each attention head
    #[arg(long, default_value_t = 64)]
    width: usize,
    /// Number of transformer blocks
    #[arg(long, default_value_t = 2)]
    blocks: usize,
    /// Learning rate
    #[arg(long, default_value_t = 5e-3)]
    lr: f64,
    /// Seed of the weights, the pieces of text and the generated letters
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// A text to learn from, instead of Taper's guide
    #[arg(long)]
    text: Option<PathBuf>,
    /// The text to continue
    #[arg(long, default_value = "A tensor ")]
    prompt: String,
    /// Letters to generate
    #[arg(long, default_value_t = 400)]
    length: usize,
    /// Temperature: below 1, letters are more predictable; above 1, less; 0 takes the most probable letter
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    /// Draw from this many of the most probable letters only
    #[arg(long, default_value_t = 20)]
    top_k: usize,
    /// Compute the forward pass in a half type
    #[arg(long, value_enum)]
    autocast: Option<Half>,
    #[command(flatten)]
    saving: Saving,
}

/// The guide of Taper, which ships with the repository.
const GUIDE: &[&str] = &[
    include_str!("../../docs/guide/getting-started.md"),
    include_str!("../../docs/guide/tensors.md"),
    include_str!("../../docs/guide/autograd.md"),
    include_str!("../../docs/guide/training.md"),
    include_str!("../../docs/guide/data.md"),
    include_str!("../../docs/guide/saving.md"),
    include_str!("../../docs/guide/extending.md"),
    include_str!("../../docs/guide/devices.md"),
    include_str!("../../docs/guide/performance.md"),
];

/// Maps letters `[N, T]` to the logits of the next letter at each position, `[N, T, vocabulary]`.
#[derive(Debug, Module)]
struct Gpt {
    letters: Embedding,
    positions: Parameter,
    blocks: TransformerEncoder,
    head: Linear,
}

impl Gpt {
    fn new(vocabulary: usize, options: &Options, rng: &Generator) -> Result<Gpt> {
        let &Options { width, blocks, context, .. } = options;
        let config = TransformerConfig {
            dim_feedforward: 4 * width,
            dropout: 0.0,
            activation: TransformerActivation::Gelu,
            batch_first: true,
            norm_first: true,
            ..Default::default()
        };
        let mut stack = TransformerEncoder::new(blocks, width, (width / 16).max(1), config, rng)?;
        stack.norm = Some(LayerNorm::new([width], rng.device())?);
        Ok(Gpt {
            // GPT-2's initialization: small, so that positions have as much weight as letters.
            letters: Embedding::from_weight(Tensor::randn((vocabulary, width), rng)? * 0.02)?,
            positions: Parameter::new(Tensor::randn((context, width), rng)? * 0.02)?,
            blocks: stack,
            head: Linear::new(width, vocabulary, rng)?,
        })
    }

    /// For training: every letter sees only itself and the letters before it.
    fn forward(&self, letters: &Tensor) -> Result<Tensor> {
        let positions = self.positions.narrow(0, 0, letters.dims()[1])?;
        let x = self.letters.forward(letters)?.add(&positions)?;
        let causal = AttentionMasks { is_causal: true, ..Default::default() };
        self.head.forward(&self.blocks.forward_masked(&x, causal)?)
    }

    /// For generation: the logits `[vocabulary]` of the letter after `letters` `[1, T]`. `caches` has the
    /// keys and values of the letters before these.
    fn next(&self, letters: &Tensor, caches: &mut [KeyValueCache]) -> Result<Tensor> {
        let seen = caches.first().map_or(0, KeyValueCache::len);
        let positions = self.positions.narrow(0, seen, letters.dims()[1])?;
        let x = self.letters.forward(letters)?.add(&positions)?;
        self.head.forward(&self.blocks.forward_cached(&x, caches)?.i((0, -1))?)
    }
}

/// The mean loss in nats over pieces of text `[N, T + 1]`: the cross-entropy of each letter, given the
/// letters before it.
fn loss(model: &Gpt, stretches: &Tensor) -> Result<Tensor> {
    let logits = model.forward(&stretches.i((.., ..-1))?)?;
    cross_entropy(&logits.flatten(0, 1)?, &stretches.i((.., 1..))?.flatten_all())
}

/// `length` letters after `prompt`.
fn write(
    model: &Gpt,
    prompt: &[i32],
    options: &Options,
    device: &Device,
    rng: &Generator,
) -> Result<Vec<i32>> {
    let mut caches = vec![KeyValueCache::new(); options.blocks];
    let mut all = prompt.to_vec();
    let mut new = prompt.len();
    for _ in 0..options.length {
        if caches[0].len() + new > options.context {
            // There are no positions left: start again with the latest letters.
            caches.iter_mut().for_each(KeyValueCache::clear);
            new = (options.context / 2).min(all.len());
        }
        let latest = &all[all.len() - new..];
        let logits = model.next(&Tensor::from_slice(latest, [1, new], device)?, &mut caches)?;
        let (scores, letters) = logits.topk(options.top_k.clamp(1, logits.numel()), 0, true)?;
        let mut choice = 0;
        if options.temperature > 0.0 {
            let odds = (scores / options.temperature).softmax(0)?.to_f64_vec()?;
            let mut left = rng.next_u64() as f64 / 2f64.powi(64);
            choice = odds
                .iter()
                .position(|share| {
                    left -= share;
                    left < 0.0
                })
                .unwrap_or(0);
        }
        all.push(letters.to_f64_vec()?[choice] as i32);
        new = 1;
    }
    Ok(all)
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    let device = taper::device(&options.device)?;
    let pages: Vec<String> = match &options.text {
        Some(path) => vec![std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?],
        None => GUIDE.iter().map(|page| page.to_string()).collect(),
    };

    // Letters as numbers: indices in the sorted list of all letters of the text.
    let mut alphabet: Vec<char> = pages.iter().flat_map(|page| page.chars()).collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let numbers = |text: &str| -> Vec<i32> {
        text.chars().filter_map(|letter| alphabet.binary_search(&letter).ok()).map(|at| at as i32).collect()
    };
    let prompt = numbers(&options.prompt);
    if prompt.is_empty() || prompt.len() > options.context {
        return Err(format!("--prompt: give 1 to {} letters that are in the text", options.context).into());
    }

    // The last tenth of each page is for testing.
    let (mut seen, mut held_out) = (Vec::new(), Vec::new());
    for page in &pages {
        let page = numbers(page);
        let (first, last) = page.split_at(page.len() - page.len() / 10);
        seen.extend_from_slice(first);
        held_out.extend_from_slice(last);
    }
    let window = options.context + 1;
    if held_out.len() < window {
        return Err(format!("a text of {} letters: give one of {}", seen.len(), 10 * window).into());
    }
    writeln!(
        out,
        "{device}: {} letters, {} different ones, {} held out",
        seen.len(),
        alphabet.len(),
        held_out.len()
    )?;
    // All pieces, one starting at each letter, as a view of the text: nothing is copied.
    let train = Tensor::from_slice(&seen, [seen.len()], &device)?.unfold(0, window, 1)?;
    // The test pieces do not overlap.
    let test = Tensor::from_slice(&held_out, [held_out.len()], &device)?.unfold(0, window, window)?;

    let rng = Generator::seed(options.seed, &taper::cpu());
    let mut model = Gpt::new(alphabet.len(), options, &rng)?;
    model.to(&device)?;
    writeln!(out, "{} parameters", model.num_parameters())?;

    let mut adamw = AdamW::new(model.parameters(), AdamWConfig { lr: options.lr, ..Default::default() });
    // The rate goes up for a tenth of the steps, then down.
    let up = (options.steps as u64 / 10).max(1);
    let down = CosineAnnealingLr::new((options.steps as u64).saturating_sub(up).max(1), options.lr / 10.0)?;
    let warm_up = SequentialLr::new(LinearLr::new(up, 0.01)?).then(up, down)?;
    let mut schedule = LrScheduler::new(warm_up, &mut adamw);
    let mut scaler = scaler(options.autocast)?;
    let validation = || no_grad(|| loss(&model, &test)?.item_f64());
    let mut draws = rng.on(&device);
    let (mut saver, latest) = options.saving.start(&device)?;
    let mut losses = Vec::new();
    let mut first = 1;
    if let Some(latest) = latest {
        latest
            .checkpoint
            .restore()
            .module("model", &model)
            .part("adamw", &mut adamw)
            .part("schedule", &mut schedule)
            .part("scaler", &mut scaler)
            .part("draws", &mut draws)
            .finish()?;
        first = latest.step as usize + 1;
        for loss in latest.checkpoint.get_value::<Vec<f32>>("losses")?.unwrap_or_default() {
            losses.push(Tensor::new(loss, &device)?);
        }
    }
    let mut bar = Progress::new("training", options.steps as u64).after(first as u64 - 1).device(&device);
    for step in first..=options.steps {
        let which = Tensor::randint(0, train.dims()[0] as i32, options.batch_size, &draws)?;
        adamw.zero_grad();
        let loss = in_half(options.autocast, || loss(&model, &train.index_select(0, &which)?))?;
        scaler.scale(&loss).backward()?;
        scaler.unscale(&adamw)?;
        clip_grad_norm(&model.parameters(), 1.0)?;
        scaler.step(&mut adamw)?;
        scaler.update()?;
        schedule.step(&mut adamw)?;
        losses.push(loss.detach());
        bar.step();
        if step % 100 == 0 || step == options.steps {
            let (mean, held_out) = (mean_loss(&losses)?, validation()?);
            bar.loss(mean);
            bar.suspend(|| writeln!(out, "step {step}: loss {mean:.4}, validation loss {held_out:.4}"))?;
            losses.clear();
        }
        let stop = saver.step(step as u64, step % 100 == 0, || {
            let losses = losses.iter().map(Tensor::item::<f32>).collect::<Result<Vec<_>>>()?;
            Ok(Checkpoint::new()
                .module("model", &model)
                .part("adamw", &adamw)
                .part("schedule", &schedule)
                .part("scaler", &scaler)
                .part("draws", &draws)
                .value("losses", &losses))
        })?;
        if stop {
            bar.finish();
            return Ok(());
        }
    }
    bar.finish();

    let written = no_grad(|| write(&model, &prompt, options, &device, &rng))?;
    let written: String = written.iter().filter_map(|&at| alphabet.get(at as usize)).collect();
    writeln!(out, "---\n{written}\n---")?;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(out, "validation loss {:.4} nats on {device} ({seconds:.1} s)", validation()?)?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
