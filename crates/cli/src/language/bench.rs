//! `taper bench`: how fast a language model reads a prompt and writes text, as llama-bench measures it.

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Instant,
};

use clap::Args;
use serde_json::{Value, json};
use taper::{
    Device, Tensor,
    models::{
        generate::{GenerationConfig, generate_from},
        load_language_model,
        serving::{Engine, EngineConfig, Event, Request},
    },
    nn::Module,
    no_grad,
    weights::{self, WeightFile},
};

use crate::{
    error::Outcome,
    model::{self, CacheOption, DeviceOption},
    output,
};

/// Measures how many tokens a second a language model reads and writes.
///
/// The tests have llama-bench's names: pp512 reads a prompt of 512 tokens at once, tg128 writes 128 tokens
/// one after the other. tg128x16 writes sixteen such texts at the same time, as a server does, and counts the
/// tokens of all. Each test runs once without being counted, so that kernels are compiled.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper bench SmolLM2-135M-Instruct.Q4_1.gguf
  taper bench model.gguf -p 128,512 -n 64 -r 3 --device cpu --json
  taper bench model.gguf -p 0 -n 64 --texts 1,16")]
pub(crate) struct Options {
    /// A GGUF file, a folder with config.json and weights, or a name such as org/name
    model: PathBuf,
    /// Tokens of a prompt, for a test each; 0 for none
    #[arg(short = 'p', long, value_delimiter = ',', default_value = "512")]
    prompt: Vec<usize>,
    /// Tokens that are generated, for a test each; 0 for none
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "128")]
    generate: Vec<usize>,
    /// Texts that are generated at the same time, for a test each
    #[arg(long, value_delimiter = ',', default_value = "1")]
    texts: Vec<usize>,
    /// Repetitions of each test
    #[arg(short = 'r', long, default_value_t = 5)]
    repetitions: usize,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cache: CacheOption,
    #[command(flatten)]
    device: DeviceOption,
}

/// A test: how many tokens it reads at once, or writes one after the other, and in how many texts.
#[derive(Clone, Copy)]
enum Test {
    Prompt(usize),
    Generate(usize),
    Texts { texts: usize, tokens: usize },
}

impl Test {
    fn tokens(self) -> usize {
        match self {
            Test::Prompt(tokens) | Test::Generate(tokens) => tokens,
            Test::Texts { texts, tokens } => texts * tokens,
        }
    }

    /// A test of texts of this many new tokens.
    fn of_texts(texts: usize, tokens: usize) -> Test {
        if texts == 1 { Test::Generate(tokens) } else { Test::Texts { texts, tokens } }
    }

    fn name(self) -> String {
        match self {
            Test::Prompt(tokens) => format!("pp{tokens}"),
            Test::Generate(tokens) => format!("tg{tokens}"),
            Test::Texts { texts, tokens } => format!("tg{tokens}x{texts}"),
        }
    }

    /// Runs the test once.
    fn run(self, engine: &mut Engine) -> taper::Result<()> {
        let (model, mut cache) = (engine.model(), engine.empty_cache());
        let vocabulary = model.vocab_size().max(1);
        match self {
            Test::Prompt(tokens) => {
                // Any tokens do; a prime step visits many of them.
                let ids: Vec<i32> = (0..tokens).map(|k| (k * 7919 % vocabulary) as i32).collect();
                let ids = Tensor::from_vec(ids, [1, tokens], &model.device())?;
                no_grad(|| model.next_logits(&ids, &mut cache))?.to_f64_vec()?;
            }
            Test::Generate(tokens) => {
                let config = GenerationConfig { max_new_tokens: tokens, ..Default::default() };
                for token in generate_from(model, cache, &[0], &config)? {
                    token?;
                }
            }
            Test::Texts { texts, tokens } => {
                for text in 0..texts {
                    engine.add(Request::new(vec![(text % vocabulary) as u32], tokens))?;
                }
                while !engine.is_idle() {
                    for (_, event) in engine.step() {
                        if let Event::Failed(error) = event {
                            return Err(error);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The tokens a second of the repetitions of a test.
struct Rates(Vec<f64>);

impl Rates {
    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The standard deviation of a sample; 0 for one repetition.
    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.0.iter().map(|rate| (rate - mean).powi(2)).sum();
        (squares / (self.0.len() - 1).max(1) as f64).sqrt()
    }
}

/// The model in the rows of the table.
struct Subject {
    name: String,
    bytes: u64,
    parameters: usize,
    device: Device,
}

impl Subject {
    fn row(&self, test: Test, rates: &Rates) -> String {
        let size = self.bytes as f64 / f64::from(1 << 20);
        let parameters = self.parameters as f64 / 1e6;
        let (name, device, test) = (&self.name, self.device.name(), test.name());
        let (mean, deviation) = (rates.mean(), rates.deviation());
        format!(
            "| {name} | {size:.2} MiB | {parameters:.2} M | {device} | {test} | {mean:.2} ± {deviation:.2} |"
        )
    }

    fn json(&self, test: Test, rates: &Rates) -> Value {
        let (prompt, generated) = match test {
            Test::Prompt(tokens) => (tokens, 0),
            Test::Generate(tokens) | Test::Texts { tokens, .. } => (0, tokens),
        };
        let texts = match test {
            Test::Texts { texts, .. } => texts,
            Test::Prompt(_) | Test::Generate(_) => 1,
        };
        json!({
            "model": self.name,
            "model_bytes": self.bytes,
            "parameters": self.parameters,
            "device": self.device.name(),
            "threads": taper::num_threads(),
            "test": test.name(),
            "n_prompt": prompt,
            "n_gen": generated,
            "n_texts": texts,
            "avg_ts": rates.mean(),
            "stddev_ts": rates.deviation(),
            "samples_ts": rates.0,
        })
    }
}

/// The bytes of a file's tensors, as they are stored.
fn stored_bytes(file: &WeightFile) -> u64 {
    file.tensors().filter_map(|(_, info)| info.bytes()).sum()
}

/// Prints the rates.
pub(crate) fn run(options: &Options) -> Outcome {
    if options.repetitions == 0 {
        return Err("there are no repetitions; give -r 1 or more".into());
    }
    let tests: Vec<Test> = options
        .prompt
        .iter()
        .map(|&tokens| Test::Prompt(tokens))
        .chain(
            options
                .generate
                .iter()
                .flat_map(|&tokens| options.texts.iter().map(move |&texts| Test::of_texts(texts, tokens))),
        )
        .filter(|test| test.tokens() > 0)
        .collect();
    let device = options.device.open()?;
    let path = model::find(&options.model)?;
    let model = load_language_model(&path, &device)?;
    let subject = Subject {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        bytes: stored_bytes(&weights::open(&path)?),
        parameters: model.num_parameters(),
        device,
    };
    let texts = options.texts.iter().copied().max().unwrap_or(0).max(1);
    let packed = options.cache.form()?;
    let config = EngineConfig { max_sequences: texts, kept_bytes: 0, packed, ..Default::default() };
    let mut engine = Engine::new(model, config)?;
    let mut found = Vec::new();
    if !options.json {
        println!("| model | size | params | device | test | t/s |\n|---|---:|---:|---|---|---:|");
    }
    for test in tests {
        test.run(&mut engine)?;
        let mut rates = Rates(Vec::new());
        for _ in 0..options.repetitions {
            let begin = Instant::now();
            test.run(&mut engine)?;
            rates.0.push(test.tokens() as f64 / begin.elapsed().as_secs_f64());
        }
        match options.json {
            true => found.push(subject.json(test, &rates)),
            false => writeln!(io::stdout(), "{}", subject.row(test, &rates))?,
        }
    }
    if options.json { output::json(&found.into()) } else { Ok(()) }
}
