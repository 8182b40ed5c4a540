//! [`WhisperDecoding`]: the tokens with which Whisper's text begins and ends, and those that it never
//! writes.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use tensor_core::{Error, Result, Tensor, file::file_error};

use super::Whisper;
use crate::{LanguageModel, generate::TextSteps, read_config};

const MODEL: &str = "Whisper";

/// The special tokens of a [`Whisper`]: the fields of transformers' `generation_config.json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct WhisperDecoding {
    /// The token before all others.
    pub decoder_start_token_id: i64,
    /// The token that ends a text.
    pub eos_token_id: i64,
    /// The token that asks for a text without times.
    #[serde(default)]
    pub no_timestamps_token_id: Option<i64>,
    /// The tokens of languages, such as `<|en|>`; none in models for English alone.
    #[serde(default)]
    pub lang_to_id: BTreeMap<String, i64>,
    /// The tokens of the tasks `transcribe` and `translate`.
    #[serde(default)]
    pub task_to_id: BTreeMap<String, i64>,
    /// The tokens that are never written.
    #[serde(default)]
    pub suppress_tokens: Option<Vec<i64>>,
    /// The tokens that are not written first.
    #[serde(default)]
    pub begin_suppress_tokens: Option<Vec<i64>>,
    /// The largest number of tokens of a text, those before it included.
    #[serde(default = "most")]
    pub max_length: usize,
}

/// The number of positions of all presets.
fn most() -> usize {
    448
}

impl WhisperDecoding {
    /// The tokens in the `generation_config.json` of a folder.
    ///
    /// # Errors
    /// A `File` error for a file that cannot be read or that lacks the tokens of beginning and end.
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>) -> Result<WhisperDecoding> {
        let path = path.as_ref().join("generation_config.json");
        if !path.is_file() {
            return Err(file_error(&path, "is not there: it has the special tokens of Whisper"));
        }
        read_config(path)
    }

    /// The tokens before a text: the start, the language, the task and "no times". `language` is a code such
    /// as `en`, and is ignored by models for English alone, as is the task.
    ///
    /// # Errors
    /// A language or a task that the model does not know.
    #[track_caller]
    pub fn prompt(&self, language: Option<&str>, task: &str) -> Result<Vec<i64>> {
        let mut tokens = vec![self.decoder_start_token_id];
        if !self.lang_to_id.is_empty() {
            let language = language.unwrap_or("en");
            tokens.push(known("language", &self.lang_to_id, &format!("<|{language}|>"))?);
            tokens.push(known("task", &self.task_to_id, task)?);
        }
        tokens.extend(self.no_timestamps_token_id);
        Ok(tokens)
    }
}

#[track_caller]
fn known(kind: &str, table: &BTreeMap<String, i64>, name: &str) -> Result<i64> {
    match table.get(name) {
        Some(&id) => Ok(id),
        None => {
            let names: Vec<&str> = table.keys().map(String::as_str).collect();
            Err(Error::invalid(MODEL, format!("no {kind} {name}; known are {}", names.join(", "))))
        }
    }
}

impl Whisper {
    /// The language that a spectrogram `[1, mel_bins, frames]` most probably has, as a code such as `en`;
    /// `None` for models for English alone.
    ///
    /// # Errors
    /// As [`Whisper::encode`] and [`Whisper::decode`].
    pub fn detect_language(&self, mels: &Tensor, decoding: &WhisperDecoding) -> Result<Option<String>> {
        if decoding.lang_to_id.is_empty() {
            return Ok(None);
        }
        let start = Tensor::from_vec(vec![decoding.decoder_start_token_id as i32], [1, 1], &mels.device())?;
        let logits = self.decode(&start, &self.encode(mels)?)?.to_vec::<f32>()?;
        let logit = |id: i64| usize::try_from(id).ok().and_then(|id| logits.get(id)).copied();
        let candidates = decoding.lang_to_id.iter().filter_map(|(name, &id)| Some((name, logit(id)?)));
        let best = candidates.max_by(|a, b| a.1.total_cmp(&b.1));
        Ok(best.map(|(name, _)| name.trim_start_matches("<|").trim_end_matches("|>").to_string()))
    }

    /// The tokens that follow `prompt` for one spectrogram `[1, mel_bins, frames]`, the most probable one at
    /// each step that [`WhisperDecoding`] allows, up to the token that ends a text (which is not in the
    /// result) or the largest number of tokens.
    ///
    /// # Errors
    /// A prompt without tokens or with a negative one, and as [`Whisper::encode`] and [`Whisper::decode`].
    pub fn greedy(&self, mels: &Tensor, prompt: &[i64], decoding: &WhisperDecoding) -> Result<Vec<i64>> {
        if prompt.is_empty() || prompt.iter().any(|&id| i32::try_from(id).is_err() || id < 0) {
            return Err(Error::invalid(MODEL, format!("a text begins with tokens, not with {prompt:?}")));
        }
        let (device, most) = (mels.device(), decoding.max_length.min(self.positions()));
        let decoder = self.decoder(&self.encode(mels)?)?;
        let (mut cache, mut steps) = (decoder.new_cache(), TextSteps::new());
        let mut ids = prompt.to_vec();
        while ids.len() < most {
            let new: Vec<i32> = ids[cache.len()..].iter().map(|id| *id as i32).collect();
            let count = new.len();
            let new = Tensor::from_vec(new, [1, count], &device)?;
            let logits = steps.next_logits(&decoder, &new, &mut cache)?;
            let mut logits = cache.read(&logits)?;
            let first = decoding.begin_suppress_tokens.iter().flatten().filter(|_| ids.len() == prompt.len());
            for id in decoding.suppress_tokens.iter().flatten().chain(first) {
                if let Some(logit) = usize::try_from(*id).ok().and_then(|id| logits.get_mut(id)) {
                    *logit = f32::NEG_INFINITY;
                }
            }
            let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
            match best {
                Some((id, _)) if id as i64 != decoding.eos_token_id => ids.push(id as i64),
                _ => break,
            }
        }
        Ok(ids.split_off(prompt.len()))
    }
}
