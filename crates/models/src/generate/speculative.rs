//! Speculative decoding: a small model guesses some tokens, the large one checks them all at once.
//!
//! Leviathan et al.: Fast inference from transformers via speculative decoding (2023).

use tensor_core::{Error, Result};

use super::{GenerationConfig, Sampler, TextSteps, argmax, check_tokens, checked_scores, row};
use crate::{LanguageModel, cache::MOST_TAKEN_BACK};

const OP: &str = "generate_speculative";

/// The tokens of [`generate_speculative`], and how many guesses were right.
#[derive(Clone, Debug, PartialEq)]
pub struct Speculation {
    /// The new tokens.
    pub tokens: Vec<u32>,
    /// The number of guesses.
    pub guessed: usize,
    /// How many of them the model took.
    pub accepted: usize,
}

/// The continuation of `model` that [`generate`](super::generate) gives for the same settings, with the help
/// of a smaller `draft` model for the same tokens. The draft guesses `guesses` tokens at a time: at most 64,
/// which a cache with a sliding window can take back, and no more than the text still needs.
///
/// The model chooses each token by itself, with the same random numbers as without a draft; a guess that it
/// would not have chosen ends the check. So the guesses are the most likely tokens of the draft, and a higher
/// temperature of the model takes fewer of them.
///
/// # Errors
/// An empty prompt, a token that the model does not know, no guesses, models with different vocabularies,
/// settings that [`Sampler::new`] refuses, logits that are no distribution (see [`Sampler::next`]).
#[track_caller]
pub fn generate_speculative<M: LanguageModel + ?Sized, D: LanguageModel + ?Sized>(
    model: &M,
    draft: &D,
    prompt: &[u32],
    guesses: usize,
    config: &GenerationConfig,
) -> Result<Speculation> {
    check_tokens(OP, model, prompt, 1)?;
    let vocabulary = model.vocab_size();
    if guesses == 0 || draft.vocab_size() != vocabulary {
        let message = format!(
            "{guesses} guesses, vocabularies of {vocabulary} and {}: the guesses are at least one, the \
             vocabularies are equal",
            draft.vocab_size()
        );
        return Err(Error::invalid(OP, message));
    }
    let (mut cache, mut draft_cache) = (model.new_cache(), draft.new_cache());
    let (mut checking, mut guessing) = (TextSteps::new(), TextSteps::new());
    let mut sampler = Sampler::new(&config.sampling)?;
    let mut found = Speculation { tokens: Vec::new(), guessed: 0, accepted: 0 };
    let mut text = prompt.to_vec();
    while found.tokens.len() < config.max_new_tokens {
        // The model adds a token of its own to those that it takes.
        let guesses = guesses.min(MOST_TAKEN_BACK).min(config.max_new_tokens - found.tokens.len() - 1);
        let before = text.len();
        for _ in 0..guesses {
            let ids = row(&text[draft_cache.len()..], &draft.device())?;
            let logits = guessing.next_logits(draft, &ids, &mut draft_cache)?;
            let logits = draft_cache.read(&logits)?;
            let logits = config.ruled(&logits, prompt, &text[prompt.len()..])?;
            text.push(argmax(&checked_scores(OP, &logits)?) as u32);
        }
        found.guessed += guesses;
        let guessed = text.split_off(before);
        let tokens = [&text[cache.len()..], &guessed].concat();
        let logits = checking.all_logits(model, &row(&tokens, &model.device())?, &mut cache)?;
        let logits = cache.read(&logits)?;
        // The rows that predict the guesses and one more token are the last.
        for (k, row) in logits.chunks_exact(vocabulary).skip(tokens.len() - guesses - 1).enumerate() {
            let (token, _) = config.choose(&mut sampler, row, prompt, &found.tokens)?;
            let is_right = guessed.get(k) == Some(&token);
            found.accepted += usize::from(is_right);
            if config.stop_tokens.contains(&token) {
                return Ok(found);
            }
            found.tokens.push(token);
            text.push(token);
            if !is_right {
                break;
            }
        }
        // The caches hold the text less its last token, which neither has seen as input.
        cache.truncate(text.len() - 1)?;
        draft_cache.truncate((text.len() - 1).min(draft_cache.len()))?;
    }
    Ok(found)
}
