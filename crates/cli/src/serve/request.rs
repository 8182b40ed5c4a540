//! The fields that requests for text share, and the settings of a generation that they give.

use serde::Deserialize;
use serde_json::Value as Json;
use taper::models::generate::{GenerationConfig, SamplingConfig};

use super::{Limits, failure::Failure, served::Language};

/// The greatest number of texts for one prompt.
const MAX_CHOICES: usize = 16;
/// The greatest number of stop words; OpenAI takes 4.
const MAX_STOP_WORDS: usize = 16;
/// The greatest number of most likely tokens that are reported at each token.
pub(super) const MAX_TOP_TOKENS: usize = 20;

/// One value, or a list.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        match self {
            OneOrMany::One(value) => vec![value],
            OneOrMany::Many(values) => values,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct StreamOptions {
    #[serde(default)]
    pub(super) include_usage: bool,
}

/// Fields of chats and completions alike, with OpenAI's names, and a few that other servers have too.
#[derive(Deserialize)]
pub(super) struct Common {
    pub(super) model: String,
    pub(super) stream: Option<bool>,
    pub(super) stream_options: Option<StreamOptions>,
    n: Option<usize>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<usize>,
    min_p: Option<f64>,
    repetition_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    seed: Option<i64>,
    stop: Option<OneOrMany<String>>,
    // Fields that are refused, because they would change the answer.
    logit_bias: Option<Json>,
    best_of: Option<usize>,
    suffix: Option<String>,
    echo: Option<bool>,
    modalities: Option<Vec<String>>,
}

/// A number in a range.
fn within(
    param: &'static str,
    value: Option<f64>,
    default: f64,
    range: std::ops::RangeInclusive<f64>,
) -> Result<f64, Failure> {
    let value = value.unwrap_or(default);
    if range.contains(&value) {
        return Ok(value);
    }
    let message = format!("{param} is {value}: give a number from {} to {}", range.start(), range.end());
    Err(Failure::field(param, message))
}

impl Common {
    pub(super) fn is_stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub(super) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// The number of texts for each prompt.
    pub(super) fn choices(&self) -> Result<usize, Failure> {
        match self.n.unwrap_or(1) {
            count @ 1..=MAX_CHOICES => Ok(count),
            count => Err(Failure::field("n", format!("n is {count}: give a number from 1 to {MAX_CHOICES}"))),
        }
    }

    pub(super) fn stop_words(&mut self) -> Result<Vec<String>, Failure> {
        let words = self.stop.take().map(OneOrMany::into_vec).unwrap_or_default();
        if words.len() > MAX_STOP_WORDS {
            let message = format!("{} stop words: give at most {MAX_STOP_WORDS}", words.len());
            return Err(Failure::field("stop", message));
        }
        Ok(words)
    }

    fn check_refused(&self) -> Result<(), Failure> {
        let has_bias =
            self.logit_bias.as_ref().is_some_and(|bias| bias.as_object().is_none_or(|b| !b.is_empty()));
        let other_modalities =
            self.modalities.as_ref().is_some_and(|all| all.iter().any(|kind| kind != "text"));
        let refused = [
            ("logit_bias", has_bias),
            ("best_of", self.best_of.is_some_and(|count| count != self.n.unwrap_or(1))),
            ("suffix", self.suffix.is_some()),
            ("echo", self.echo == Some(true)),
            ("modalities", other_modalities),
        ];
        match refused.iter().find(|(_, is_given)| *is_given) {
            Some((param, _)) => Err(Failure::field(param, format!("this server does not support {param}"))),
            None => Ok(()),
        }
    }

    /// The settings of a text after a prompt, with a random seed unless the request has one.
    pub(super) fn generation(
        &self,
        language: &Language,
        prompt_tokens: usize,
        limits: &Limits,
        random_seed: u64,
    ) -> Result<GenerationConfig, Failure> {
        self.check_refused()?;
        let room = limits.max_tokens.saturating_sub(prompt_tokens);
        let max_new_tokens = match self.max_completion_tokens.or(self.max_tokens) {
            Some(0) => return Err(Failure::field("max_tokens", "max_tokens is 0: give 1 or more")),
            Some(wanted) if wanted > room => {
                return Err(Failure::too_long(format!(
                    "a prompt of {prompt_tokens} tokens and {wanted} new ones: this server has room for {}",
                    limits.max_tokens
                )));
            }
            Some(wanted) => wanted,
            None if room == 0 => {
                let message = format!(
                    "a prompt of {prompt_tokens} tokens: this server has room for {}, the answer's included",
                    limits.max_tokens
                );
                return Err(Failure::too_long(message));
            }
            None => room,
        };
        let penalty = |param, value| within(param, value, 0.0, -2.0..=2.0);
        Ok(GenerationConfig {
            max_new_tokens,
            stop_tokens: language.tokenizer.end_tokens().to_vec(),
            sampling: SamplingConfig {
                temperature: within("temperature", self.temperature, 1.0, 0.0..=2.0)?,
                top_p: within("top_p", self.top_p, 1.0, 0.0..=1.0)?,
                top_k: self.top_k.unwrap_or(0),
                min_p: within("min_p", self.min_p, 0.0, 0.0..=1.0)?,
                repetition_penalty: within("repetition_penalty", self.repetition_penalty, 1.0, 0.01..=100.0)?,
                frequency_penalty: penalty("frequency_penalty", self.frequency_penalty)?,
                presence_penalty: penalty("presence_penalty", self.presence_penalty)?,
                seed: self.seed.map_or(random_seed, |seed| seed as u64),
            },
            logits_rule: None,
        })
    }
}
