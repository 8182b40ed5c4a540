//! `taper chat`: a conversation with a language model.
//!
//! Later messages read only their own tokens: the cache has the conversation before them.

use std::{
    io::{self, BufRead},
    path::PathBuf,
};

use clap::Args;
#[cfg(feature = "guidance")]
use taper::models::guidance::{Grammar, Guide};
use taper::models::{
    KvCache,
    generate::GenerationConfig,
    text::{Message, TextOptions, generate_text},
};

use super::spoken;
#[cfg(feature = "guidance")]
use crate::error;
use crate::{
    error::Outcome,
    model::{self, DeviceOption, Loaded, SamplingOptions},
};

/// Holds a conversation with a language model, on the terminal or with each line of the input as a message.
///
/// An empty line, or the end of the input, ends the conversation. After an answer, standard error gets the
/// number of tokens that were read and written in a second.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper chat SmolLM2-135M-Instruct.Q4_1.gguf
  taper chat HuggingFaceTB/SmolLM2-135M-Instruct --say 'Name three colours.'
  taper chat model.gguf --system 'Answer in one word.' --temperature 0.7 --top-p 0.9 --seed 1
  taper chat model.gguf --json-schema person.json --say 'Ada is 36 years old. Answer as JSON.'")]
pub(crate) struct Options {
    /// A GGUF file, a folder with config.json, tokenizer.json and weights, or a name such as org/name
    model: PathBuf,
    /// One message, after whose answer the command ends
    #[arg(long)]
    say: Option<String>,
    /// How the model should behave; its template may have a default
    #[arg(long)]
    system: Option<String>,
    /// A JSON schema that each answer matches
    #[cfg(feature = "guidance")]
    #[arg(long, value_name = "FILE")]
    json_schema: Option<PathBuf>,
    #[command(flatten)]
    sampling: SamplingOptions,
    #[command(flatten)]
    device: DeviceOption,
}

/// A conversation: its messages, and a cache of the tokens that the model has read.
struct Chat {
    loaded: Loaded,
    messages: Vec<Message>,
    cache: KvCache,
    /// The tokens of the cache.
    known: Vec<u32>,
    config: GenerationConfig,
    text: TextOptions,
}

impl Chat {
    /// The cache for a text, with the tokens that it shares with the text before.
    fn shared_cache(&mut self, text: &[u32]) -> KvCache {
        let same = self.known.iter().zip(text).take_while(|(a, b)| a == b).count();
        // At least one token is read anew, because it predicts the next.
        let same = same.min(text.len().saturating_sub(1)).min(self.cache.len());
        let mut cache = std::mem::replace(&mut self.cache, self.loaded.model.new_cache());
        match cache.truncate(same) {
            Ok(()) => cache,
            // A sliding window has dropped positions that would be needed.
            Err(_) => self.loaded.model.new_cache(),
        }
    }

    /// Prints the answer to a message.
    fn answer(&mut self, message: &str) -> Outcome {
        self.messages.push(Message::user(message));
        let text = self.loaded.tokenizer.chat(&self.messages, true)?;
        let prompt = self.loaded.tokenizer.encode(&text, false)?.ids;
        let cache = self.shared_cache(&prompt);
        let new = &prompt[cache.len()..];
        let Loaded { model, tokenizer } = &self.loaded;
        let mut pieces = generate_text(&**model, tokenizer, cache, new, &self.config, &self.text)?;
        let answer = spoken::print(&mut pieces, new.len())?;
        let written = pieces.tokens().to_vec();
        (self.cache, _) = pieces.into_cache();
        self.known = prompt;
        self.known.extend(written);
        self.known.truncate(self.cache.len());
        self.messages.push(Message::assistant(answer));
        Ok(())
    }
}

/// Holds the conversation.
pub(crate) fn run(options: Options) -> Outcome {
    let device = options.device.open()?;
    let loaded = model::load(&options.model, &device)?;
    let config = options.sampling.config(loaded.tokenizer.end_tokens());
    #[cfg(feature = "guidance")]
    let config = match &options.json_schema {
        Some(path) => {
            let grammar = Grammar::json_schema(&error::read_text(path)?)?;
            let rule = Guide::new(&loaded.tokenizer)?.rule(&grammar)?;
            GenerationConfig { logits_rule: Some(rule), ..config }
        }
        None => config,
    };
    let mut chat = Chat {
        config,
        cache: loaded.model.new_cache(),
        loaded,
        messages: options.system.map(Message::system).into_iter().collect(),
        known: Vec::new(),
        text: TextOptions { stop_words: options.sampling.stop },
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
