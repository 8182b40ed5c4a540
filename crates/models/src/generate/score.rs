//! How likely a text is under a model.

use autograd::no_grad;
use tensor_core::{DType, Error, Result};

use super::{check_tokens, checked_scores, log_sum_exp, row};
use crate::{KvCache, LanguageModel, cache::MAX_STEP_TOKENS};

const OP: &str = "log_probabilities";

/// The logarithm of the probability of each token after the first, given those before it.
///
/// # Errors
/// Fewer than two tokens, a token that the model does not know, logits that are no distribution (see
/// [`Sampler::next`](super::Sampler::next)), or whatever the model reports.
#[track_caller]
pub fn log_probabilities<M: LanguageModel + ?Sized>(model: &M, tokens: &[u32]) -> Result<Vec<f64>> {
    check_tokens(OP, model, tokens, 2)?;
    let ids = row(tokens, &model.device())?;
    let logits = no_grad(|| model.forward(&ids)?.to_dtype(DType::F32))?.to_vec::<f32>()?;
    of_logits(&logits, model.vocab_size(), &tokens[1..])
}

/// As [`log_probabilities`], by a cache, which reads the tokens in steps as generation does: with the
/// rounding of [`KvCache::packed`].
///
/// # Errors
/// As [`log_probabilities`].
#[track_caller]
pub fn log_probabilities_in<M: LanguageModel + ?Sized>(
    model: &M,
    mut cache: KvCache,
    tokens: &[u32],
) -> Result<Vec<f64>> {
    check_tokens(OP, model, tokens, 2)?;
    let mut all = Vec::new();
    for start in (0..tokens.len() - 1).step_by(MAX_STEP_TOKENS) {
        let end = (start + MAX_STEP_TOKENS).min(tokens.len() - 1);
        let ids = row(&tokens[start..end], &model.device())?;
        let logits = no_grad(|| model.logits(&model.hidden(&ids, Some(&mut cache))?))?;
        all.extend(of_logits(&cache.read(&logits)?, model.vocab_size(), &tokens[start + 1..=end])?);
    }
    Ok(all)
}

/// The logarithms of the probabilities of tokens under logits.
#[track_caller]
fn of_logits(logits: &[f32], vocabulary: usize, tokens: &[u32]) -> Result<Vec<f64>> {
    let of = |(logits, token): (&[f32], &u32)| {
        let scores = checked_scores(OP, logits)?;
        Ok(scores[*token as usize] - log_sum_exp(&scores))
    };
    logits.chunks_exact(vocabulary).zip(tokens).map(of).collect()
}

/// The result of [`perplexity`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Perplexity {
    /// exp of the mean cross entropy.
    pub perplexity: f64,
    /// The mean cross entropy in nats.
    pub cross_entropy: f64,
    /// The number of predicted tokens.
    pub tokens: usize,
}

/// The perplexity of a text of any length: windows of `context` tokens, each `stride` after the one before. A
/// token is predicted once, from all tokens before it in the first window that has it.
///
/// # Errors
/// Fewer than two tokens, a context below 2, a stride of 0 or above the context.
#[track_caller]
pub fn perplexity<M: LanguageModel + ?Sized>(
    model: &M,
    tokens: &[u32],
    context: usize,
    stride: usize,
) -> Result<Perplexity> {
    perplexity_by(tokens, context, stride, |window| log_probabilities(model, window))
}

/// As [`perplexity`], where `of_window` gives the logarithm of the probability of each token of a window
/// after the first.
///
/// # Errors
/// As [`perplexity`]; errors of `of_window`.
#[track_caller]
pub fn perplexity_by(
    tokens: &[u32],
    context: usize,
    stride: usize,
    mut of_window: impl FnMut(&[u32]) -> Result<Vec<f64>>,
) -> Result<Perplexity> {
    if tokens.len() < 2 || context < 2 || stride == 0 || stride >= context {
        let message = format!(
            "{} tokens in windows of {context} at each {stride}: give two or more, and a stride below the window",
            tokens.len()
        );
        return Err(Error::invalid("perplexity", message));
    }
    let (mut sum, mut count, mut start) = (0.0, 0, 0);
    loop {
        let end = (start + context).min(tokens.len());
        let each = of_window(&tokens[start..end])?;
        // Tokens up to start + 1 + count of the text were predicted before.
        let known = count - start;
        sum -= each[known..].iter().sum::<f64>();
        count += each.len() - known;
        if end == tokens.len() {
            break;
        }
        start += stride;
    }
    let cross_entropy = sum / count as f64;
    Ok(Perplexity { perplexity: cross_entropy.exp(), cross_entropy, tokens: count })
}
