//! `taper complete`: continues a text.

use std::{path::PathBuf, time::Instant};

use clap::Args;
use serde_json::json;
use taper::models::text::{TextOptions, generate_text};

use super::spoken;
use crate::{
    error::Outcome,
    model::{self, CacheOption, DeviceOption, SamplingOptions},
    output,
};

/// Continues a text with a language model, without the template of a conversation.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper complete SmolLM2-135M-Instruct.Q4_1.gguf --prompt 'The capital of France is'
  taper complete model.gguf --prompt 'def add(a, b):' --max-new-tokens 32 --stop 'def ' --json")]
pub(crate) struct Options {
    /// A GGUF file, a folder with config.json, tokenizer.json and weights, or a name such as org/name
    model: PathBuf,
    /// The beginning of the text
    #[arg(long)]
    prompt: String,
    /// Prints the text and the numbers of tokens as JSON, at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sampling: SamplingOptions,
    #[command(flatten)]
    cache: CacheOption,
    #[command(flatten)]
    device: DeviceOption,
}

/// Prints the continuation.
pub(crate) fn run(options: Options) -> Outcome {
    let device = options.device.open()?;
    let loaded = model::load(&options.model, &device)?;
    let prompt = loaded.tokenizer.encode(&options.prompt, true)?.ids;
    let config = options.sampling.config(loaded.tokenizer.end_tokens());
    let text = TextOptions { stop_words: options.sampling.stop, ..Default::default() };
    let cache = options.cache.cache(&*loaded.model)?;
    let mut pieces = generate_text(&*loaded.model, &loaded.tokenizer, cache, &prompt, &config, &text)?;
    if !options.json {
        spoken::print(&mut pieces, prompt.len(), Instant::now())?;
        return Ok(());
    }
    let text = pieces.by_ref().collect::<taper::Result<String>>()?;
    output::json(&json!({
        "text": text,
        "prompt_tokens": prompt.len(),
        "tokens": pieces.tokens().len(),
    }))
}
