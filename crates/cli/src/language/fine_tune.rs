//! `taper fine-tune`: teaches a language model to answer in a style, with a LoRA adapter beside its frozen
//! weights.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use pollster::block_on;
use taper::{
    models::{
        LanguageModel, Llama, load_language_model, read_config,
        text::{ChatExamples, Tokenizer},
    },
    nn::{
        Module,
        lora::{self, LoraConfig, Targets},
    },
    optim::{AdamW, AdamW8bit, AdamWConfig, EightBit},
    prelude::*,
    weights::save_peft,
};

use super::{
    conversations,
    training::{Progress, Training},
};
use crate::{
    error::{Outcome, read_text},
    model::{self, DeviceOption},
};

/// Teaches a language model to answer in a style, with a LoRA adapter beside its frozen weights.
///
/// The data has a conversation in each line, {"messages": [{"role": "user", "content": "…"}, …]}; the loss
/// counts the tokens of answers alone. The weights of a GGUF file stay in blocks.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper fine-tune SmolLM2-135M-Instruct.Q4_1.gguf --data ships_log.jsonl --save adapter \\
      --say 'Where is the nearest library?'
  taper fine-tune model --data chats.jsonl --rank 16 --epochs 3 --checkpoint state.safetensors

`--checkpoint` continues a training that was stopped, to the bit. Python's `peft` reads the folder of --save.")]
pub(crate) struct Options {
    /// A GGUF file, a folder with config.json, tokenizer.json and weights, or a name such as org/name
    model: PathBuf,
    /// Begins with random weights for the folder's config.json, which may then have no weights
    #[arg(long)]
    random: bool,
    /// Conversations, one a line
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
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
    /// The learning rate
    #[arg(long, default_value_t = 2e-3)]
    lr: f64,
    /// How often each conversation is read
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
    #[arg(long)]
    say: Option<String>,
    /// The greatest number of tokens of that answer
    #[arg(long, default_value_t = 40)]
    max_new_tokens: usize,
    #[command(flatten)]
    device: DeviceOption,
}

/// How the optimizer keeps its states.
#[derive(Clone, Copy, ValueEnum)]
enum States {
    #[value(name = "f32")]
    F32,
    #[value(name = "8bit")]
    EightBit,
}

/// Prints how a training goes on.
fn report(progress: &Progress) -> bool {
    match progress {
        Progress::Continued { epochs } => eprintln!("[continues after epoch {epochs}]"),
        Progress::Step { .. } => {}
        Progress::Epoch { number, loss, steps, seconds } => {
            println!("epoch {number}: loss {loss:.4}");
            eprintln!("[{steps} steps, {:.0} ms each]", 1e3 * seconds / *steps as f64);
        }
    }
    true
}

/// Prints the model's answer to the question of the options, if there is one.
fn answer(when: &str, options: &Options, model: &dyn LanguageModel, tokenizer: &Tokenizer) -> Outcome {
    if let Some(say) = &options.say {
        model.eval();
        let text =
            block_on(conversations::answer(model, tokenizer, say, options.max_new_tokens, async |_| {}))?;
        println!("{when}: {text}");
    }
    Ok(())
}

/// The model of the options.
fn load(options: &Options, path: &Path, device: &Device) -> Result<Box<dyn LanguageModel>> {
    if options.random {
        let rng = Generator::seed(options.seed, device);
        return Ok(Box::new(Llama::new(&read_config(path)?, &rng)?));
    }
    Ok(load_language_model(path, device)?)
}

/// The configuration of the adapter.
fn config(options: &Options) -> LoraConfig {
    let targets = match options.targets.is_empty() {
        true => Targets::AllLinear,
        false => Targets::Names(options.targets.clone()),
    };
    let mut config =
        LoraConfig::new(options.rank).alpha(options.alpha).dropout(options.dropout).targets(targets);
    config.use_dora = options.dora;
    config
}

/// Trains an adapter and writes it.
pub(crate) fn run(options: &Options) -> Outcome {
    if options.batch == 0 || options.accumulate == 0 {
        return Err("--batch and --accumulate: give numbers above 0".into());
    }
    let device = options.device.open()?;
    let path = model::find(&options.model)?;
    let model = load(options, &path, &device)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    let data = ChatExamples::from_json_lines(&read_text(&options.data)?, &tokenizer)
        .map_err(|error| format!("{}: {}", options.data.display(), error.kind()))?;
    let rng = Generator::seed(options.seed, &taper::cpu());
    let adapter = lora::attach(&model, &config(options), &rng)?;
    eprintln!(
        "[{} on {device}: {} parameters, {} of them trained]",
        options.model.display(),
        model.num_parameters(),
        adapter.num_parameters()
    );

    answer("before", options, &*model, &tokenizer)?;
    model.train();
    let config = AdamWConfig { lr: options.lr, weight_decay: 0.0, ..Default::default() };
    let training = Training {
        model: &*model,
        adapter: &adapter,
        data: &data,
        epochs: options.epochs,
        group: options.batch * options.accumulate,
        batch: options.batch,
        seed: options.seed,
        checkpoint: options.checkpoint.as_deref(),
    };
    let parameters = adapter.parameters();
    match options.states {
        States::F32 => training.run(AdamW::new(parameters, config), &mut report)?,
        States::EightBit => training.run(AdamW8bit::new(parameters, EightBit::new(config)), &mut report)?,
    };
    answer("after", options, &*model, &tokenizer)?;
    eprintln!("[peak memory of tensors: {} MB]", device.memory().peak / 1_000_000);
    if let Some(folder) = &options.save {
        save_peft(&adapter, folder, None)?;
    }
    Ok(())
}
