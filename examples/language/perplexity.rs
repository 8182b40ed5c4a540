//! How well a language model predicts a text.
//!
//!     cargo run --release -p taper-examples-language --example perplexity -- \
//!         --model SmolLM2-135M-Instruct.Q4_1.gguf --text docs/design.md --context 512 --stride 256
//!
//! The model is as in the example `chat`. With `--quantize q4_k` its linear layers' weights are first
//! rounded to a format of GGUF files, and with `--calibrate FILE` so that errors are least for the inputs
//! that this text gives them. A token is predicted once, from at least `context - stride` tokens
//! before it, at the beginning of the text from fewer.

mod model;

use std::{error::Error, fs, path::PathBuf, time::Instant};

use clap::Parser;
use taper::{
    BlockFormat, GgmlType,
    models::{generate::perplexity, load_language_model, text::Tokenizer},
    nn::{Calibration, QuantizeConfig, quantize},
};

/// Prints the perplexity of a text.
#[derive(Parser)]
struct Options {
    /// A GGUF file, a folder with config.json, tokenizer.json and weights, or a name such as org/name
    #[arg(long)]
    model: PathBuf,
    /// A file with text
    #[arg(long)]
    text: PathBuf,
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Tokens of a window
    #[arg(long, default_value_t = 512)]
    context: usize,
    /// Tokens from a window to the next
    #[arg(long, default_value_t = 256)]
    stride: usize,
    /// The number of tokens of the text; all by default
    #[arg(long)]
    tokens: Option<usize>,
    /// A format for the weights of linear layers and of the table of tokens, such as q4_0, q8_0, q6_k
    #[arg(long)]
    quantize: Option<String>,
    /// A file with text from which the importance of each input is measured
    #[arg(long, requires = "quantize")]
    calibrate: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let device = taper::device(&options.device)?;
    let path = model::find(&options.model)?;
    let mut model = load_language_model(&path, &device)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    if let Some(name) = &options.quantize {
        let format = GgmlType::ALL.into_iter().find(|format| format.name() == name.to_lowercase());
        let Some(format) = format else {
            let names: Vec<&str> = GgmlType::ALL.iter().map(BlockFormat::name).collect();
            return Err(format!("no format {name}; there are {}", names.join(", ")).into());
        };
        let mut config = QuantizeConfig { requantize: true, embeddings: true, ..QuantizeConfig::new(format) };
        if let Some(text) = &options.calibrate {
            let ids = tokenizer.encode(&fs::read_to_string(text)?, true)?.ids;
            let calibration = Calibration::start(&*model);
            perplexity(&*model, &ids, options.context, options.stride)?;
            config.importance = calibration.finish()?;
        }
        let [before, after] = quantize(&mut *model, &config)?.bytes();
        eprintln!("[weights of {before} bytes take {after} in {name}]");
    }
    let mut ids = tokenizer.encode(&fs::read_to_string(&options.text)?, true)?.ids;
    ids.truncate(options.tokens.unwrap_or(usize::MAX));
    let begin = Instant::now();
    let found = perplexity(&*model, &ids, options.context, options.stride)?;
    let rate = found.tokens as f64 / begin.elapsed().as_secs_f64();
    println!("perplexity {:.3}, cross entropy {:.4}", found.perplexity, found.cross_entropy);
    eprintln!("[{} tokens, {rate:.1} a second on {device}]", found.tokens);
    Ok(())
}
