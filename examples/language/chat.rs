//! A conversation with a language model, on any device.
//!
//!     cargo run --release -p taper-examples-language --example chat -- \
//!         --model SmolLM2-135M-Instruct.Q4_1.gguf --temperature 0.7 --top-p 0.9
//!
//! The model is a GGUF file, or a folder with `config.json`, `tokenizer.json` and weights. A name of the
//! Hugging Face hub is found in its cache; with `--features hub` it is downloaded into it:
//!
//!     cargo run --release -p taper-examples-language --features hub --example chat -- \
//!         --model HuggingFaceTB/SmolLM2-135M-Instruct
//!
//! Without a terminal
//! each line of the input is a message. After an answer it prints how many tokens it read and wrote in a
//! second. An empty line ends the program; `--say TEXT` asks once.
//!
//! Later messages read only their own tokens: the cache has the conversation before them.

mod model;

use std::{
    error::Error,
    io::{self, BufRead, Write},
    path::PathBuf,
    time::Instant,
};

use clap::Parser;
use taper::models::{
    KvCache, LanguageModel,
    generate::{GenerationConfig, SamplingConfig},
    load_language_model,
    text::{Message, TextOptions, Tokenizer, generate_text},
};

/// A conversation with a language model.
#[derive(Parser)]
struct Options {
    /// A GGUF file, a folder with config.json, tokenizer.json and weights, or a name such as org/name
    #[arg(long)]
    model: PathBuf,
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// A message; without it they come from the input, one a line
    #[arg(long)]
    say: Option<String>,
    /// How the model should behave; its template may have a default
    #[arg(long)]
    system: Option<String>,
    /// The greatest number of tokens of an answer
    #[arg(long, default_value_t = 256)]
    max_new_tokens: usize,
    /// 0 takes the most likely token
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// The number of most likely tokens that are considered; 0 is all
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Only the most likely tokens with this probability together
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Only tokens with this part of the greatest probability
    #[arg(long, default_value_t = 0.0)]
    min_p: f64,
    /// Makes tokens that were seen less likely, if above 1
    #[arg(long, default_value_t = 1.0)]
    repetition_penalty: f64,
    /// The seed of the random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Words at which an answer ends
    #[arg(long)]
    stop: Vec<String>,
}

/// A conversation: its messages, and a cache of the tokens that the model has read.
struct Chat {
    model: Box<dyn LanguageModel>,
    tokenizer: Tokenizer,
    messages: Vec<Message>,
    cache: KvCache,
    /// The tokens of the cache.
    known: Vec<u32>,
    config: GenerationConfig,
    options: TextOptions,
}

impl Chat {
    /// The cache for a text, with what it shares with the text before.
    fn shared_cache(&mut self, text: &[u32]) -> KvCache {
        let same = self.known.iter().zip(text).take_while(|(a, b)| a == b).count();
        // At least one token is read anew, because it predicts the next.
        let same = same.min(text.len() - 1).min(self.cache.len());
        let mut cache = std::mem::replace(&mut self.cache, self.model.new_cache());
        match cache.truncate(same) {
            Ok(()) => cache,
            // A sliding window has dropped positions that would be needed.
            Err(_) => self.model.new_cache(),
        }
    }

    fn answer(&mut self, message: &str) -> Result<(), Box<dyn Error>> {
        self.messages.push(Message::user(message));
        let text = self.tokenizer.chat(&self.messages, true)?;
        let prompt = self.tokenizer.encode(&text, false)?.ids;
        let cache = self.shared_cache(&prompt);
        let read = prompt.len() - cache.len();
        let begin = Instant::now();
        let new = &prompt[cache.len()..];
        let mut pieces =
            generate_text(&*self.model, &self.tokenizer, cache, new, &self.config, &self.options)?;
        let mut answer = String::new();
        let mut first = None;
        for piece in pieces.by_ref() {
            let piece = piece?;
            first.get_or_insert_with(|| begin.elapsed().as_secs_f64());
            print!("{piece}");
            io::stdout().flush()?;
            answer.push_str(&piece);
        }
        let whole = begin.elapsed().as_secs_f64();
        let first = first.unwrap_or(whole);
        let written = pieces.tokens().to_vec();
        println!();
        let rate = |count: usize, seconds: f64| count as f64 / seconds.max(1e-9);
        eprintln!(
            "[{read} tokens read, {:.1} a second; {} written, {:.1} a second]",
            rate(read, first),
            written.len(),
            rate(written.len().saturating_sub(1), whole - first),
        );
        (self.cache, _) = pieces.into_cache();
        self.known = prompt;
        self.known.extend(written);
        self.known.truncate(self.cache.len());
        self.messages.push(Message::assistant(answer));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    taper::end_quietly_on_closed_pipe();
    let options = Options::parse();
    let device = taper::device(&options.device)?;
    let begin = Instant::now();
    let path = model::find(&options.model)?;
    let model = load_language_model(&path, &device)?;
    let tokenizer = Tokenizer::from_folder(&path)?;
    eprintln!("{} on {device}, loaded in {:.1} s", options.model.display(), begin.elapsed().as_secs_f64());
    let config = GenerationConfig {
        max_new_tokens: options.max_new_tokens,
        stop_tokens: tokenizer.end_tokens().to_vec(),
        sampling: SamplingConfig {
            temperature: options.temperature,
            top_k: options.top_k,
            top_p: options.top_p,
            min_p: options.min_p,
            repetition_penalty: options.repetition_penalty,
            seed: options.seed,
            ..Default::default()
        },
        ..Default::default()
    };
    let mut chat = Chat {
        cache: model.new_cache(),
        model,
        tokenizer,
        messages: options.system.map(Message::system).into_iter().collect(),
        known: Vec::new(),
        config,
        options: TextOptions { stop_words: options.stop },
    };
    if let Some(message) = options.say {
        return chat.answer(&message);
    }
    let mut lines = io::stdin().lock().lines();
    loop {
        eprint!("> ");
        match lines.next().transpose()? {
            Some(line) if !line.trim().is_empty() => chat.answer(line.trim())?,
            _ => return Ok(()),
        }
    }
}
