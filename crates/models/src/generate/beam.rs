//! Beam search: the most likely of several continuations.

use tensor_core::{Error, Result};

use super::{LogitsRule, TextSteps, check_tokens, checked_scores, log_sum_exp, table};
use crate::LanguageModel;

/// Settings of a beam search, with the names of `transformers`.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamConfig {
    /// The number of continuations that are kept; 4 by default.
    pub num_beams: usize,
    /// The greatest number of new tokens; 64 by default.
    pub max_new_tokens: usize,
    /// Log-probabilities are divided by the length to this power; 1 by default.
    pub length_penalty: f64,
    /// Tokens that end a text.
    pub stop_tokens: Vec<u32>,
    /// A rule that changes the logits of each continuation's next token; none by default.
    pub logits_rule: Option<LogitsRule>,
}

impl Default for BeamConfig {
    fn default() -> BeamConfig {
        BeamConfig {
            num_beams: 4,
            max_new_tokens: 64,
            length_penalty: 1.0,
            stop_tokens: Vec::new(),
            logits_rule: None,
        }
    }
}

/// A continuation.
#[derive(Clone, Debug, PartialEq)]
pub struct Beam {
    /// The new tokens, without the one that ended the text.
    pub tokens: Vec<u32>,
    /// The sum of their log-probabilities, after the rule for logits if there is one.
    pub log_probability: f64,
    /// That sum divided by the length to the power of the penalty.
    pub score: f64,
}

/// The best continuations of a prompt, best first.
///
/// # Errors
/// An empty prompt, a token that the model does not know, no beams, logits that are no distribution (see
/// [`Sampler::next`](super::Sampler::next)), or whatever the model reports.
#[track_caller]
pub fn beam_search<M: LanguageModel + ?Sized>(
    model: &M,
    prompt: &[u32],
    config: &BeamConfig,
) -> Result<Vec<Beam>> {
    check_tokens("beam_search", model, prompt, 1)?;
    if config.num_beams == 0 {
        return Err(Error::invalid("beam_search", "no beams: give at least one"));
    }
    let (device, vocabulary) = (model.device(), model.vocab_size());
    let (mut cache, mut steps) = (model.new_cache(), TextSteps::new());
    let mut beams = vec![Beam { tokens: Vec::new(), log_probability: 0.0, score: 0.0 }];
    let mut finished: Vec<Beam> = Vec::new();
    let mut rows: Vec<Vec<u32>> = vec![prompt.to_vec()];
    for _ in 0..config.max_new_tokens {
        let ids = table(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), &device)?;
        let logits = steps.next_logits(model, &ids, &mut cache)?;
        let logits = cache.read(&logits)?;
        let mut next: Vec<(usize, u32, f64)> = Vec::new();
        for (k, logits) in logits.chunks_exact(vocabulary).enumerate() {
            let rule = config.logits_rule.as_ref();
            let logits = LogitsRule::applied(rule, logits, prompt, &beams[k].tokens)?;
            let scores = checked_scores("beam_search", &logits)?;
            let normalizer = log_sum_exp(&scores);
            let of = |(token, score): (usize, f64)| {
                (k, token as u32, beams[k].log_probability + score - normalizer)
            };
            next.extend(scores.into_iter().enumerate().map(of));
        }
        // An ended text takes a place, and each beam may end once.
        let kept = (2 * config.num_beams).min(next.len());
        let descending = |a: &(usize, u32, f64), b: &(usize, u32, f64)| {
            b.2.total_cmp(&a.2).then(a.0.cmp(&b.0)).then(a.1.cmp(&b.1))
        };
        next.select_nth_unstable_by(kept - 1, descending);
        next.truncate(kept);
        next.sort_unstable_by(descending);
        let mut open = Vec::new();
        let mut parents = Vec::new();
        for (rank, (parent, token, log_probability)) in next.into_iter().enumerate() {
            let mut tokens = beams[parent].tokens.clone();
            let length = (tokens.len() + 1) as f64;
            let score = log_probability / length.powf(config.length_penalty);
            if config.stop_tokens.contains(&token) {
                if rank < config.num_beams {
                    finished.push(Beam { tokens, log_probability, score });
                }
                continue;
            }
            tokens.push(token);
            open.push(Beam { tokens, log_probability, score });
            parents.push(parent);
            if open.len() == config.num_beams {
                break;
            }
        }
        beams = open;
        let by_score = |a: &Beam, b: &Beam| b.score.total_cmp(&a.score);
        finished.sort_by(by_score);
        finished.truncate(config.num_beams);
        let worst = finished.last().filter(|_| finished.len() == config.num_beams).map(|beam| beam.score);
        if beams.is_empty() || worst.is_some_and(|worst| beams.iter().all(|beam| beam.score <= worst)) {
            break;
        }
        cache.select(&parents)?;
        rows = beams.iter().map(|beam| beam.tokens[beam.tokens.len() - 1..].to_vec()).collect();
    }
    finished.append(&mut beams);
    finished.sort_by(|a, b| b.score.total_cmp(&a.score));
    finished.truncate(config.num_beams);
    Ok(finished)
}
