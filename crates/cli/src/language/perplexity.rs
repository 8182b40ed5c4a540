//! `taper perplexity`: how well a language model predicts a text, as it is or with rounded weights.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use clap::{Args, ValueEnum};
use serde_json::json;
use taper::{
    models::{generate, text::Tokenizer},
    nn::{AwqFold, AwqOptions, Calibration, GptqOptions, QuantizeConfig, QuantizeMethod, quantize},
};

use crate::{
    error::{Outcome, read_text},
    formats,
    model::{self, CacheOption, DeviceOption, Loaded},
    output,
};

/// How numbers are rounded.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Method {
    /// To the nearest
    Nearest,
    /// Column by column, so that later columns make up for the errors of earlier ones
    Gptq,
    /// To the nearest, after a search of scales of the inputs; for models with Llama's names of layers
    Awq,
}

/// Prints the perplexity of a text: how well a language model predicts it.
///
/// A token is predicted once, from at least `context - stride` tokens before it, and at the beginning of the
/// text from fewer. With `--quantize` the weights of linear layers are rounded first, and with `--calibrate`
/// so that errors are least for the inputs that this text gives them.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper perplexity SmolLM2-135M-Instruct.Q4_1.gguf --text README.md
  taper perplexity SmolLM2-135M-Instruct --text test.txt --quantize q4_k --calibrate train.txt
  taper perplexity model --text test.txt --quantize uint4 --method gptq --calibrate train.txt --json")]
pub(crate) struct Options {
    /// A GGUF file, a folder with config.json, tokenizer.json and weights, or a name such as org/name
    model: PathBuf,
    /// A file with text
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window
    #[arg(long, default_value_t = 512)]
    context: usize,
    /// Tokens from a window to the next
    #[arg(long, default_value_t = 256)]
    stride: usize,
    /// The number of tokens of the text; all by default
    #[arg(long)]
    tokens: Option<usize>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    rounding: Rounding,
    #[command(flatten)]
    cache: CacheOption,
    #[command(flatten)]
    device: DeviceOption,
}

/// The options of rounding.
#[derive(Args)]
struct Rounding {
    /// A format for the weights of linear layers and of the table of tokens, such as q4_0, q6_k, uint4, nf4
    #[arg(long, value_name = "FORMAT")]
    quantize: Option<String>,
    /// The numbers that share a scale in int4, uint4, int8 and uint8
    #[arg(long, default_value_t = 64)]
    group_size: usize,
    /// How numbers are rounded
    #[arg(long, value_enum, default_value_t = Method::Nearest)]
    method: Method,
    /// Whether GPTQ rounds the columns with the largest inputs first
    #[arg(long)]
    act_order: bool,
    /// Leaves the table of tokens as it is
    #[arg(long)]
    keep_table: bool,
    /// A file with text from which the importance of each input is measured
    #[arg(long, value_name = "FILE", requires = "quantize")]
    calibrate: Option<PathBuf>,
    /// The number of tokens of that text; all by default
    #[arg(long)]
    calibrate_tokens: Option<usize>,
    /// Prints the error of each layer
    #[arg(long)]
    verbose: bool,
}

/// Rounds the weights of a model, if the options ask for it.
fn round(Loaded { model, tokenizer, .. }: &mut Loaded, options: &Options) -> Outcome {
    let Rounding { quantize: name, method, act_order, calibrate, .. } = &options.rounding;
    let Some(name) = name else { return Ok(()) };
    let format = formats::named(name, options.rounding.group_size)?;
    let embeddings = !options.rounding.keep_table;
    let mut config = QuantizeConfig { requantize: true, embeddings, ..QuantizeConfig::new(format) };
    config.method = match method {
        Method::Nearest => QuantizeMethod::Nearest,
        Method::Gptq => QuantizeMethod::Gptq(GptqOptions { act_order: *act_order, ..GptqOptions::default() }),
        Method::Awq => QuantizeMethod::Awq(AwqOptions { folds: AwqFold::llama(), ..AwqOptions::default() }),
    };
    if let Some(text) = calibrate {
        let ids = tokens(tokenizer, text, options.rounding.calibrate_tokens)?;
        let calibration = match method {
            Method::Nearest => Calibration::start(&**model),
            Method::Gptq | Method::Awq => Calibration::with_products(&**model),
        };
        // Windows share one token, whose probability the window before gave.
        generate::perplexity(&**model, &ids, options.context, options.context.saturating_sub(1))?;
        let inputs = calibration.statistics()?;
        match method {
            Method::Nearest => {
                let mean_squares = inputs.into_iter().map(|(path, inputs)| (path, inputs.mean_square));
                config.importance = mean_squares.collect();
            }
            Method::Gptq | Method::Awq => config.inputs = inputs,
        }
    }
    let begin = Instant::now();
    let report = quantize(&mut **model, &config)?;
    if options.rounding.verbose {
        eprintln!("{report}");
    }
    let [before, after] = report.bytes();
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!("[rounded in {seconds:.1} s: weights of {before} bytes take {after} in {name}]");
    Ok(())
}

/// The tokens of a file with text, `most` of them if that is given.
fn tokens(tokenizer: &Tokenizer, text: &Path, most: Option<usize>) -> Outcome<Vec<u32>> {
    let mut ids = tokenizer.encode(&read_text(text)?, true)?.ids;
    ids.truncate(most.unwrap_or(usize::MAX));
    Ok(ids)
}

/// Prints the perplexity.
pub(crate) fn run(options: &Options) -> Outcome {
    let device = options.device.open()?;
    let mut loaded = model::load(&options.model, &device)?;
    round(&mut loaded, options)?;
    let ids = tokens(&loaded.tokenizer, &options.text, options.tokens)?;
    let begin = Instant::now();
    let (model, packed) = (&*loaded.model, options.cache.form()?);
    let found = generate::perplexity_by(&ids, options.context, options.stride, |window| match packed {
        Some(form) => generate::log_probabilities_in(model, model.new_cache().packed(form)?, window),
        None => generate::log_probabilities(model, window),
    })?;
    let rate = found.tokens as f64 / begin.elapsed().as_secs_f64();
    eprintln!("[{} tokens, {rate:.1} a second on {device}]", found.tokens);
    if options.json {
        return output::json(&json!({
            "perplexity": found.perplexity,
            "cross_entropy": found.cross_entropy,
            "tokens": found.tokens,
        }));
    }
    println!("perplexity {:.3}, cross entropy {:.4}", found.perplexity, found.cross_entropy);
    Ok(())
}
