//! Teaches a language model to answer in a style, with a LoRA adapter beside its frozen weights.
//!
//!     cargo run --release -p taper-examples-language --example fine_tune_chat -- \
//!         --model SmolLM2-135M-Instruct.Q4_1.gguf --epochs 6
//!
//! The model is a GGUF file, whose weights stay in blocks, or a folder as in the example `chat`. The data has
//! a conversation in each line, `{"messages": [{"role": "user", "content": …}, …]}`; by default it is
//! `ships_log.jsonl`, answers in the style of a ship's log. The loss counts the tokens of answers alone.
//!
//! `--checkpoint FILE` writes the state of the training after every epoch, and continues from the file if it
//! is there, to the bit. `--save FOLDER` writes the adapter as Python's `peft` reads it.

mod conversations;

use std::{error::Error, fs, path::PathBuf, time::Instant};

use clap::{Parser, ValueEnum};
use conversations::shuffled;
use pollster::block_on;
use taper::{
    models::{
        LanguageModel, Llama, WeightSource, load_language_model, read_config,
        text::{ChatExample, ChatExamples, Tokenizer},
    },
    nn::{
        Checkpoint, Module,
        lora::{self, Lora, LoraConfig, Targets},
    },
    optim::{AdamW, AdamW8bit, AdamWConfig, EightBit, Optimizer},
    prelude::*,
    weights::save_peft,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Teaches a language model to answer in a style.
#[derive(Parser)]
struct Options {
    /// A GGUF file, or a folder with config.json, tokenizer.json and weights
    #[arg(long)]
    model: PathBuf,
    /// Begins with random weights for the folder's config.json, which may then have no weights
    #[arg(long)]
    random: bool,
    /// Conversations, one a line
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/ships_log.jsonl"))]
    data: PathBuf,
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// The rank of the adapter
    #[arg(long, default_value_t = 8)]
    rank: usize,
    /// The adapter's product is multiplied by alpha / rank
    #[arg(long, default_value_t = 16.0)]
    alpha: f64,
    /// The probability of dropout before the adapter
    #[arg(long, default_value_t = 0.05)]
    dropout: f64,
    /// Trains magnitudes too (DoRA)
    #[arg(long)]
    dora: bool,
    /// The layers with an adapter, by the ends of their names; all linear layers without this
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    #[arg(long, default_value_t = 2e-3)]
    lr: f64,
    #[arg(long, default_value_t = 6)]
    epochs: usize,
    /// Conversations whose gradients are computed together
    #[arg(long, default_value_t = 2)]
    batch: usize,
    /// Batches whose gradients are added before a step
    #[arg(long, default_value_t = 2)]
    accumulate: usize,
    /// The optimizer: f32 states, or states in 8 bits
    #[arg(long, value_enum, default_value_t = States::F32)]
    states: States,
    /// The seed of the adapter's first values, its dropout and the order of the data
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The state of the training, which is continued if the file is there
    #[arg(long)]
    checkpoint: Option<PathBuf>,
    /// Where the adapter is written, in the format of peft
    #[arg(long)]
    save: Option<PathBuf>,
    /// A question to the model before and after the training
    #[arg(long, default_value = "Where is the nearest library?")]
    say: String,
    /// The greatest number of tokens of that answer
    #[arg(long, default_value_t = 40)]
    max_new_tokens: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum States {
    #[value(name = "f32")]
    F32,
    #[value(name = "8bit")]
    EightBit,
}

/// Trains the adapter, epoch by epoch.
fn train<O: Optimizer + Stateful>(
    options: &Options,
    model: &dyn LanguageModel,
    adapter: &Lora,
    data: &ChatExamples,
    mut optimizer: O,
) -> Outcome<()> {
    let device = model.device();
    let mut first = 0;
    if let Some(path) = options.checkpoint.as_ref().filter(|path| path.exists()) {
        let checkpoint = Checkpoint::load(path, &device)?;
        first = checkpoint.get_number("epoch").map_or(0, |epoch| epoch.as_i64()) as usize;
        checkpoint.restore().module("adapter", adapter).part("optimizer", &mut optimizer).finish()?;
        eprintln!("continues after epoch {first}");
    }
    for epoch in first..options.epochs {
        let order = shuffled(data.len(), options.seed, epoch)?;
        let begin = Instant::now();
        let (mut sum, mut tokens, mut steps) = (0.0, 0, 0);
        for group in order.chunks(options.batch * options.accumulate) {
            let group: Vec<&ChatExample> = group.iter().map(|&place| &data[place]).collect();
            let (loss, count) = block_on(conversations::step(model, &mut optimizer, &group, options.batch))?;
            sum += loss;
            (tokens, steps) = (tokens + count, steps + 1);
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("epoch {}: loss {:.4}", epoch + 1, sum / tokens as f64);
        eprintln!("[{steps} steps, {:.0} ms each]", 1e3 * seconds / f64::from(steps));
        if let Some(path) = &options.checkpoint {
            Checkpoint::new()
                .module("adapter", adapter)
                .part("optimizer", &optimizer)
                .number("epoch", (epoch + 1) as i64)
                .save(path)?;
        }
    }
    Ok(())
}

/// The model's answer to the question of the options.
fn answer(options: &Options, model: &dyn LanguageModel, tokenizer: &Tokenizer) -> Result<String> {
    let Options { say, max_new_tokens, .. } = options;
    block_on(conversations::answer(model, tokenizer, say, *max_new_tokens, async |_| {}))
}

fn main() -> Outcome<()> {
    taper::end_quietly_on_closed_pipe();
    let options = Options::parse();
    if options.batch == 0 || options.accumulate == 0 {
        return Err("--batch and --accumulate: give numbers above 0".into());
    }
    let device = taper::device(&options.device)?;
    let rng = Generator::seed(options.seed, &taper::cpu());
    let model: Box<dyn LanguageModel> = match options.random {
        true => {
            let source = WeightSource::random(&Generator::seed(options.seed, &device));
            Box::new(Llama::new(&read_config(&options.model)?, &source)?)
        }
        false => load_language_model(&options.model, &device)?,
    };
    let tokenizer = Tokenizer::from_folder(&options.model)?;
    let text = fs::read_to_string(&options.data);
    let data = text
        .map_err(|error| error.to_string())
        .and_then(|text| ChatExamples::from_json_lines(&text, &tokenizer).map_err(|error| error.to_string()));
    let data = data.map_err(|error| format!("{}: {error}", options.data.display()))?;

    let targets = match options.targets.is_empty() {
        true => Targets::AllLinear,
        false => Targets::Names(options.targets.clone()),
    };
    let mut config =
        LoraConfig::new(options.rank).alpha(options.alpha).dropout(options.dropout).targets(targets);
    config.use_dora = options.dora;
    let adapter = lora::attach(&model, &config, &rng)?;
    eprintln!(
        "{} on {device}: {} parameters, {} of them trained",
        options.model.display(),
        model.num_parameters(),
        adapter.num_parameters()
    );

    model.eval();
    println!("before: {}", answer(&options, &*model, &tokenizer)?);
    model.train();
    let config = AdamWConfig { lr: options.lr, weight_decay: 0.0, ..Default::default() };
    match options.states {
        States::F32 => train(&options, &*model, &adapter, &data, AdamW::new(adapter.parameters(), config))?,
        States::EightBit => {
            let optimizer = AdamW8bit::new(adapter.parameters(), EightBit::new(config));
            train(&options, &*model, &adapter, &data, optimizer)?;
        }
    }
    model.eval();
    println!("after: {}", answer(&options, &*model, &tokenizer)?);
    let memory = device.memory();
    eprintln!("peak memory of tensors: {} MB", memory.peak / 1_000_000);
    if let Some(folder) = &options.save {
        save_peft(&adapter, folder, None)?;
    }
    Ok(())
}
