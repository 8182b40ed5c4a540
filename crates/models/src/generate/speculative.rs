//! Speculative decoding: a small model guesses some tokens, the large one checks them all at once.
//!
//! Leviathan et al.: Fast inference from transformers via speculative decoding (2023).

use tensor_core::{Error, Result};

use super::{all_logits, argmax, checked_scores, next_logits};
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

/// The most likely continuation of `model`, the same as [`generate`](super::generate) gives without a
/// temperature, with the help of a smaller `draft` model for the same tokens, which guesses `guesses` tokens
/// at a time: at most 64, which a cache with a sliding window can take back, and no more than the text still
/// needs.
///
/// # Errors
/// An empty prompt, no guesses, models with different vocabularies, logits that are no distribution (see
/// [`Sampler::next`](super::Sampler::next)).
#[track_caller]
pub fn generate_speculative<M: LanguageModel + ?Sized, D: LanguageModel + ?Sized>(
    model: &M,
    draft: &D,
    prompt: &[u32],
    guesses: usize,
    max_new_tokens: usize,
    stop_tokens: &[u32],
) -> Result<Speculation> {
    let vocabulary = model.vocab_size();
    if prompt.is_empty() || guesses == 0 || draft.vocab_size() != vocabulary {
        let message = format!(
            "a prompt of {} tokens, {guesses} guesses, vocabularies of {vocabulary} and {}: the prompt and the \
             guesses are at least one, the vocabularies are equal",
            prompt.len(),
            draft.vocab_size()
        );
        return Err(Error::invalid(OP, message));
    }
    let (mut cache, mut draft_cache) = (model.new_cache(), draft.new_cache());
    let mut found = Speculation { tokens: Vec::new(), guessed: 0, accepted: 0 };
    let mut text = prompt.to_vec();
    let best = |logits: &[f32]| Ok(argmax(&checked_scores(OP, logits)?) as u32);
    while found.tokens.len() < max_new_tokens {
        // The model adds a token of its own to those that it takes.
        let guesses = guesses.min(MOST_TAKEN_BACK).min(max_new_tokens - found.tokens.len() - 1);
        let mut guessed: Vec<u32> = Vec::with_capacity(guesses);
        for _ in 0..guesses {
            let known = draft_cache.len();
            let new: Vec<u32> = text.iter().chain(&guessed).skip(known).copied().collect();
            guessed.push(best(&next_logits(draft, &new, &mut draft_cache)?)?);
        }
        found.guessed += guesses;
        let known = cache.len();
        let tokens: Vec<u32> = text[known..].iter().chain(&guessed).copied().collect();
        let logits = all_logits(model, &tokens, Some(&mut cache))?;
        // The rows that predict the guesses and one more token are the last.
        let rows: Vec<&[f32]> = logits.chunks_exact(vocabulary).skip(tokens.len() - guesses - 1).collect();
        let wanted = rows.into_iter().map(best).collect::<Result<Vec<u32>>>()?;
        let right = guessed.iter().zip(&wanted).take_while(|(guess, wanted)| guess == wanted).count();
        found.accepted += right;
        for &token in &wanted[..=right] {
            if stop_tokens.contains(&token) || found.tokens.len() == max_new_tokens {
                return Ok(found);
            }
            found.tokens.push(token);
            text.push(token);
        }
        // The caches hold the text less its last token, which neither has seen as input.
        cache.truncate(text.len() - 1)?;
        draft_cache.truncate((text.len() - 1).min(draft_cache.len()))?;
    }
    Ok(found)
}
