//! How well a language model predicts a text.
//!
//!     cargo run --release -p taper-examples-language --example perplexity -- \
//!         --model SmolLM2-135M-Instruct.Q4_1.gguf --text docs/design.md --context 512 --stride 256
//!
//! The model is as in the example `chat`. With `--quantize q4_k` its linear layers' weights are first
//! rounded to a format of GGUF files, to groups of integers (`uint4`) or to `nf4`, and with `--calibrate
//! FILE` so that errors are least for the inputs that this text gives them; `--method gptq` and `--method
//! awq` need it. A token is predicted once, from at least `context - stride` tokens before it, at the
//! beginning of the text from fewer.

mod model;

use std::{error::Error, fs, path::PathBuf, time::Instant};

use clap::{Parser, ValueEnum};
use taper::{
    AffineBits, BlockFormat, GgmlType, IntegerGroups, WeightFormat,
    models::{generate::perplexity, load_language_model, text::Tokenizer},
    nn::{AwqFold, AwqOptions, Calibration, GptqOptions, QuantizeConfig, QuantizeMethod, quantize},
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
    /// A format for the weights of linear layers and of the table of tokens, such as q4_0, q6_k, uint4, nf4
    #[arg(long)]
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
    #[arg(long, requires = "quantize")]
    calibrate: Option<PathBuf>,
    /// The number of tokens of that text; all by default
    #[arg(long)]
    calibrate_tokens: Option<usize>,
    /// Prints the error of each layer
    #[arg(long)]
    verbose: bool,
}

/// The format with a name.
fn format(name: &str, group_size: usize) -> Result<WeightFormat, String> {
    let name = name.to_lowercase();
    let integers = |bits| Ok(IntegerGroups::new(bits, group_size).into());
    match name.as_str() {
        "int4" => integers(AffineBits::I4),
        "uint4" => integers(AffineBits::U4),
        "int8" => integers(AffineBits::I8),
        "uint8" => integers(AffineBits::U8),
        "nf4" => Ok(WeightFormat::Nf4 { double_quantized: true }),
        _ => {
            let found = GgmlType::ALL.into_iter().find(|format| format.name() == name);
            found.map(WeightFormat::from).ok_or_else(|| {
                let names: Vec<&str> = GgmlType::ALL.iter().map(BlockFormat::name).collect();
                format!("no format {name}; there are {}, int4, uint4, int8, uint8, nf4", names.join(", "))
            })
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    taper::end_quietly_on_closed_pipe();
    let options = Options::parse();
    let device = taper::device(&options.device)?;
    let path = model::find(&options.model)?;
    let mut model = load_language_model(&path, &device)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    if let Some(name) = &options.quantize {
        let format = format(name, options.group_size)?;
        let embeddings = !options.keep_table;
        let mut config = QuantizeConfig { requantize: true, embeddings, ..QuantizeConfig::new(format) };
        config.method = match options.method {
            Method::Nearest => QuantizeMethod::Nearest,
            Method::Gptq => {
                let act_order = options.act_order;
                QuantizeMethod::Gptq(GptqOptions { act_order, ..GptqOptions::default() })
            }
            Method::Awq => {
                QuantizeMethod::Awq(AwqOptions { folds: AwqFold::llama(), ..AwqOptions::default() })
            }
        };
        if let Some(text) = &options.calibrate {
            let mut ids = tokenizer.encode(&fs::read_to_string(text)?, true)?.ids;
            ids.truncate(options.calibrate_tokens.unwrap_or(usize::MAX));
            let calibration = match options.method {
                Method::Nearest => Calibration::start(&*model),
                Method::Gptq | Method::Awq => Calibration::with_products(&*model),
            };
            // Windows share one token, whose probability the window before gave.
            perplexity(&*model, &ids, options.context, options.context.saturating_sub(1))?;
            let inputs = calibration.statistics()?;
            match options.method {
                Method::Nearest => {
                    config.importance =
                        inputs.into_iter().map(|(path, inputs)| (path, inputs.mean_square)).collect();
                }
                Method::Gptq | Method::Awq => config.inputs = inputs,
            }
        }
        let begin = Instant::now();
        let report = quantize(&mut *model, &config)?;
        if options.verbose {
            eprintln!("{report}");
        }
        eprintln!("[rounded in {:.1} s]", begin.elapsed().as_secs_f64());
        let [before, after] = report.bytes();
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
