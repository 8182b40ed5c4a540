//! `taper chat`: a conversation with a language model.
//!
//! Later messages read only their own tokens: the cache has the conversation before them.

use std::{
    io::{self, BufRead},
    path::PathBuf,
    time::Instant,
};

use clap::Args;
use serde_json::{Value as Json, json};
#[cfg(feature = "guidance")]
use taper::models::guidance::{Grammar, Guide};
use taper::{
    autograd::no_grad,
    data::Image,
    models::{
        KvCache,
        generate::GenerationConfig,
        pictures::{Picture, PreparedPicture},
        text::{TextOptions, generate_text},
    },
    prelude::*,
};

use super::spoken;
#[cfg(feature = "guidance")]
use crate::error;
use crate::{
    error::Outcome,
    model::{self, CacheOption, DeviceOption, Loaded, SamplingOptions},
    pictures,
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
  taper chat HuggingFaceTB/SmolVLM-256M-Instruct --image cat.jpg --say 'What is this?'
  taper chat model.gguf --json-schema person.json --say 'Ada is 36 years old. Answer as JSON.'")]
pub(crate) struct Options {
    /// A GGUF file, a folder with config.json, tokenizer.json and weights, or a name such as org/name
    model: PathBuf,
    /// One message, after whose answer the command ends
    #[arg(long)]
    say: Option<String>,
    /// A PNG or JPEG file that the first message shows; may be given several times
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
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
    cache: CacheOption,
    #[command(flatten)]
    device: DeviceOption,
}

/// A conversation: its messages, and a cache of the tokens that the model has read.
struct Chat {
    loaded: Loaded,
    messages: Vec<Json>,
    /// The pictures of the conversation.
    pictures: Vec<PreparedPicture>,
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
        let mut empty = self.cache.clone();
        empty.clear();
        let mut cache = std::mem::replace(&mut self.cache, empty);
        if cache.truncate(same).is_err() {
            // A sliding window has dropped positions that would be needed.
            cache.clear();
        }
        cache
    }

    /// Adds a message to the conversation.
    fn say(&mut self, role: &str, text: &str) {
        // The first message of the user shows the pictures.
        let is_first = role == "user" && self.messages.iter().all(|message| message["role"] != "user");
        let shown = if is_first { self.pictures.len() } else { 0 };
        let content = match &self.loaded.pictures {
            Some(_) => pictures::content(shown, text),
            None => json!(text),
        };
        self.messages.push(json!({"role": role, "content": content}));
    }

    /// The tokens of the conversation, and handles of its pictures.
    fn prompt(&self) -> Outcome<(Vec<u32>, Vec<Picture>)> {
        let Loaded { tokenizer, pictures, .. } = &self.loaded;
        let text = tokenizer.chat_with(&[], true, &json!({"messages": self.messages}))?;
        match pictures {
            Some(reader) => reader.prompt(tokenizer, &text, &self.pictures),
            None => Ok((tokenizer.encode(&text, false)?.ids, Vec::new())),
        }
    }

    /// Prints the answer to a message.
    fn answer(&mut self, message: &str) -> Outcome {
        self.say("user", message);
        let (prompt, pictures) = self.prompt()?;
        let mut cache = self.shared_cache(&prompt);
        let new = prompt.len() - cache.len();
        let begin = Instant::now();
        if let (false, [before @ .., _]) = (pictures.is_empty(), &prompt[cache.len()..])
            && !before.is_empty()
        {
            // Steps without pictures are faster: the pictures are read before the first of them.
            let ids: Vec<i32> = before.iter().map(|id| *id as i32).collect();
            let model = &self.loaded.model;
            let ids = Tensor::from_vec(ids, [1, before.len()], &model.device())?;
            no_grad(|| model.hidden(&ids, Some(&mut cache)))?.eval()?;
        }
        drop(pictures);
        let Loaded { model, tokenizer, .. } = &self.loaded;
        let rest = &prompt[cache.len()..];
        let mut pieces = generate_text(&**model, tokenizer, cache, rest, &self.config, &self.text)?;
        let answer = spoken::print(&mut pieces, new, begin)?;
        let written = pieces.tokens().to_vec();
        (self.cache, _) = pieces.into_cache();
        self.known = prompt;
        self.known.extend(written);
        self.known.truncate(self.cache.len());
        self.say("assistant", &answer);
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
    let mut pictures = Vec::new();
    for path in &options.image {
        let reader = loaded.pictures.as_ref();
        let reader = reader.ok_or_else(|| format!("{} reads no pictures", options.model.display()))?;
        pictures.push(reader.prepare(&Image::open(path)?)?);
    }
    let mut chat = Chat {
        config,
        pictures,
        cache: options.cache.cache(&*loaded.model)?,
        loaded,
        messages: Vec::new(),
        known: Vec::new(),
        text: TextOptions { stop_words: options.sampling.stop, ..Default::default() },
    };
    if let Some(system) = options.system {
        chat.say("system", &system);
    }
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
