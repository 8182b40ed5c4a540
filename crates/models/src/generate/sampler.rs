//! The choice of the next token from its logits, on the host: the same seed gives the same tokens on every
//! device, as far as their logits agree.

use std::cmp::Ordering;

use tensor_core::{Error, Result, philox};

/// How the next token is chosen, with the names and the order of `transformers`: penalties, temperature, then
/// the filters `top_k`, `top_p` and `min_p`. By default the most likely token is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingConfig {
    /// Divides the logits; 0 (the default) takes the most likely token.
    pub temperature: f64,
    /// The number of most likely tokens that are considered; 0 (the default) is all.
    pub top_k: usize,
    /// Only the most likely tokens that together have this probability; 1 by default.
    ///
    /// Holtzman et al.: The curious case of neural text degeneration (2020).
    pub top_p: f64,
    /// Only tokens with at least this part of the greatest probability; 0 by default.
    pub min_p: f64,
    /// Logits of tokens that were seen are divided by this if they are positive, and else multiplied; 1 by
    /// default.
    ///
    /// Keskar et al.: CTRL, a conditional transformer language model (2019).
    pub repetition_penalty: f64,
    /// Subtracted from a logit for each time that its token was generated; 0 by default.
    pub frequency_penalty: f64,
    /// Subtracted from the logits of tokens that were generated; 0 by default.
    pub presence_penalty: f64,
    /// The seed of the random numbers.
    pub seed: u64,
}

impl Default for SamplingConfig {
    fn default() -> SamplingConfig {
        SamplingConfig {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 0,
        }
    }
}

/// Chooses tokens, one after the other.
#[derive(Clone, Debug)]
pub struct Sampler {
    config: SamplingConfig,
    /// The number of random numbers that were drawn.
    drawn: u64,
}

impl Sampler {
    /// A sampler at the beginning of its random numbers.
    ///
    /// # Errors
    /// A temperature or penalty that is negative or not finite, a probability outside [0, 1].
    #[track_caller]
    pub fn new(config: &SamplingConfig) -> Result<Sampler> {
        let SamplingConfig { temperature, top_p, min_p, repetition_penalty, .. } = *config;
        let wrong = |message: String| Err(Error::invalid("Sampler", message));
        if !(temperature.is_finite() && temperature >= 0.0) {
            return wrong(format!("a temperature of {temperature}: give a finite one of 0 or more"));
        }
        if !(0.0..=1.0).contains(&top_p) || !(0.0..=1.0).contains(&min_p) {
            return wrong(format!("top_p {top_p} and min_p {min_p}: give numbers from 0 to 1"));
        }
        if !(repetition_penalty.is_finite() && repetition_penalty > 0.0) {
            return wrong(format!("a repetition penalty of {repetition_penalty}: give one above 0"));
        }
        if !(config.frequency_penalty.is_finite() && config.presence_penalty.is_finite()) {
            return wrong("penalties must be finite".into());
        }
        Ok(Sampler { config: config.clone(), drawn: 0 })
    }

    /// The next token and the logarithm of its probability under the model (before temperature and filters).
    /// `prompt` and `generated` are the tokens before it.
    ///
    /// # Errors
    /// Logits that are no distribution: none at all, NaN or +∞ among them, or −∞ for every token. A logit of
    /// −∞ is a token that cannot follow.
    #[track_caller]
    pub fn next(&mut self, logits: &[f32], prompt: &[u32], generated: &[u32]) -> Result<(u32, f64)> {
        let mut scores = checked_scores("Sampler", logits)?;
        let normalizer = log_sum_exp(&scores);
        self.penalize(&mut scores, prompt, generated);
        let chosen = match self.config.temperature {
            0.0 => argmax(&scores),
            temperature => {
                let candidates = self.candidates(&scores, temperature);
                self.draw(&candidates)
            }
        };
        Ok((chosen as u32, f64::from(logits[chosen]) - normalizer))
    }

    fn penalize(&self, scores: &mut [f64], prompt: &[u32], generated: &[u32]) {
        let SamplingConfig { repetition_penalty, frequency_penalty, presence_penalty, .. } = self.config;
        if repetition_penalty != 1.0 {
            let mut seen: Vec<u32> = prompt.iter().chain(generated).copied().collect();
            seen.sort_unstable();
            seen.dedup();
            for token in seen {
                if let Some(score) = scores.get_mut(token as usize) {
                    *score =
                        if *score > 0.0 { *score / repetition_penalty } else { *score * repetition_penalty };
                }
            }
        }
        if frequency_penalty != 0.0 || presence_penalty != 0.0 {
            let mut counts = std::collections::BTreeMap::new();
            generated.iter().for_each(|token| *counts.entry(*token).or_insert(0u32) += 1);
            for (token, count) in counts {
                if let Some(score) = scores.get_mut(token as usize) {
                    *score -= frequency_penalty * f64::from(count) + presence_penalty;
                }
            }
        }
    }

    /// The tokens that the filters leave with their probabilities (not normalized): most likely first if
    /// there is a filter, and else in their order.
    fn candidates(&self, scores: &[f64], temperature: f64) -> Vec<(usize, f64)> {
        let greatest = greatest(scores);
        // A difference of scores that are equal is 0, also where both are infinite by a penalty.
        let difference = |score: f64| if score == greatest { 0.0 } else { (score - greatest) / temperature };
        let weights = scores.iter().map(|score| exp([difference(*score)])[0]);
        let SamplingConfig { top_k, top_p, min_p, .. } = self.config;
        let mut all: Vec<(usize, f64)> =
            weights.enumerate().filter(|(_, probability)| *probability > 0.0).collect();
        let descending = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if top_k > 0 && top_k < all.len() {
            all.select_nth_unstable_by(top_k - 1, descending);
            all.truncate(top_k);
        }
        if top_p < 1.0 {
            keep_most_likely(&mut all, top_p, descending);
        } else if top_k > 0 {
            all.sort_unstable_by(descending);
        }
        // The greatest probability is 1.
        all.retain(|(_, probability)| *probability >= min_p);
        all
    }

    /// One of the candidates, by a number of 53 random bits.
    fn draw(&mut self, candidates: &[(usize, f64)]) -> usize {
        let [high, low, ..] = philox(self.config.seed, self.drawn);
        self.drawn += 1;
        let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
        let total: f64 = candidates.iter().map(|(_, probability)| probability).sum();
        let mut left = bits as f64 / (1u64 << 53) as f64 * total;
        for &(token, probability) in candidates {
            if left < probability {
                return token;
            }
            left -= probability;
        }
        candidates.last().map_or(0, |(token, _)| *token)
    }
}

/// Keeps the most likely candidates, in order, that together have at least this part of the sum of all.
fn keep_most_likely(
    all: &mut Vec<(usize, f64)>,
    part: f64,
    order: impl Fn(&(usize, f64), &(usize, f64)) -> Ordering + Copy,
) {
    let wanted = part * all.iter().map(|(_, probability)| probability).sum::<f64>();
    // Few are enough nearly always: sorting all would take longer than the rest of a token of a small model.
    let mut sorted = 64;
    loop {
        sorted = (4 * sorted).min(all.len());
        if sorted < all.len() {
            all.select_nth_unstable_by(sorted, order);
        }
        all[..sorted].sort_unstable_by(order);
        let mut sum = 0.0;
        let kept = all[..sorted].iter().take_while(|(_, probability)| {
            let before = sum;
            sum += probability;
            before < wanted
        });
        let kept = kept.count().max(1);
        if kept < sorted || sorted == all.len() {
            all.truncate(kept);
            return;
        }
    }
}

/// The first of the greatest numbers.
pub(crate) fn argmax(scores: &[f64]) -> usize {
    let mut best = 0;
    for (k, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = k;
        }
    }
    best
}

/// Logits as scores of f64.
///
/// # Errors
/// Logits that are no distribution: none at all, NaN or +∞ among them, or −∞ for every token.
#[track_caller]
pub(crate) fn checked_scores(op: &'static str, logits: &[f32]) -> Result<Vec<f64>> {
    let fault = match logits.iter().position(|logit| logit.is_nan() || *logit == f32::INFINITY) {
        Some(token) => format!("the logit of token {token} is {}", logits[token]),
        None if logits.is_empty() => "there are no logits".into(),
        None if logits.iter().all(|logit| *logit == f32::NEG_INFINITY) => {
            format!("all {} logits are -inf, so that no token can follow", logits.len())
        }
        None => return Ok(logits.iter().map(|&logit| f64::from(logit)).collect()),
    };
    let message =
        format!("{fault}: a token is chosen from finite logits, or -inf for tokens that cannot follow");
    Err(Error::invalid(op, message))
}

/// ln Σ exp(x); −∞ if all are.
pub(crate) fn log_sum_exp(scores: &[f64]) -> f64 {
    let greatest = greatest(scores);
    if greatest.is_infinite() {
        return greatest;
    }
    let mut sums = [0.0; LANES];
    let (groups, rest) = scores.as_chunks::<LANES>();
    for group in groups {
        let terms = exp(group.map(|score| score - greatest));
        (0..LANES).for_each(|i| sums[i] += terms[i]);
    }
    let rest = rest.iter().map(|score| exp([score - greatest])[0]);
    greatest + (sums.iter().sum::<f64>() + rest.sum::<f64>()).ln()
}

/// Numbers that are computed side by side, which compilers vectorise.
const LANES: usize = 8;

/// The greatest of some numbers, none of which is NaN.
fn greatest(scores: &[f64]) -> f64 {
    let mut most = [f64::NEG_INFINITY; LANES];
    let (groups, rest) = scores.as_chunks::<LANES>();
    for group in groups {
        (0..LANES).for_each(|i| most[i] = if group[i] > most[i] { group[i] } else { most[i] });
    }
    most.iter().chain(rest).copied().fold(f64::NEG_INFINITY, f64::max)
}

/// e^x for numbers of at most 0, within 1e-11 of it; 0 below −700. The standard library's function is not
/// vectorised: a vocabulary of 49,152 tokens takes it a thirtieth of a step of a small model.
#[inline(always)]
fn exp<const N: usize>(x: [f64; N]) -> [f64; N] {
    /// 1.5 · 2^52: the numbers beside it are one apart, so that a sum's low bits are the nearest integer.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    /// 1 / k! for the powers of the series, the highest first; |r| is at most ln 2 / 2.
    const SERIES: [f64; 10] = [
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    let bounded = x.map(|x| if x < -700.0 { -700.0 } else { x });
    let shifted = bounded.map(|x| x * std::f64::consts::LOG2_E + MAGIC);
    let (mut r, mut sum, mut out) = ([0.0; N], [1.0 / 3_628_800.0; N], [0.0; N]);
    (0..N).for_each(|i| r[i] = bounded[i] - (shifted[i] - MAGIC) * std::f64::consts::LN_2);
    for term in SERIES {
        (0..N).for_each(|i| sum[i] = sum[i] * r[i] + term);
    }
    for i in 0..N {
        let power = f64::from_bits(sum[i].to_bits().wrapping_add(shifted[i].to_bits() << 52));
        out[i] = if x[i] < -700.0 { 0.0 } else { power };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_the_standard_library() {
        for k in 0..200_000 {
            let x = f64::from(k) * -0.0036;
            let ([found, _], expected) = (exp([x, -1.0]), x.exp());
            let near = (found - expected).abs() <= 1e-11 * expected;
            assert!(if x < -700.0 { found == 0.0 } else { near }, "{x}: {found} and {expected}");
        }
        assert_eq!(exp([0.0, f64::NEG_INFINITY]), [1.0, 0.0]);
        for count in [1, 7, 8, 61] {
            let scores: Vec<f64> = (0..count).map(|k| f64::from(k * 37 % 61) - 30.0).collect();
            let (sum, most) = scores.iter().fold((0f64, f64::MIN), |(s, m), x| (s + x.exp(), m.max(*x)));
            assert!((log_sum_exp(&scores) - sum.ln()).abs() < 1e-11);
            assert_eq!(greatest(&scores), most);
        }
    }

    #[test]
    fn the_most_likely_are_kept_whatever_their_number() {
        let order = |a: &(usize, f64), b: &(usize, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        for count in [1, 5, 255, 257, 5000] {
            let all: Vec<(usize, f64)> =
                (0..count).map(|k| (k, 1.0 / (1.0 + (k * 7919 % count) as f64))).collect();
            for part in [0.0, 0.3, 0.9, 0.9999] {
                let mut sorted = all.clone();
                sorted.sort_unstable_by(order);
                let wanted = part * all.iter().map(|(_, p)| p).sum::<f64>();
                let sums = sorted.iter().scan(0.0, |sum, (_, p)| Some(std::mem::replace(sum, *sum + p)));
                let expected = sums.take_while(|before| *before < wanted).count().max(1);
                let mut kept = all.clone();
                keep_most_likely(&mut kept, part, order);
                assert_eq!(kept, sorted[..expected], "{count} of {part}");
            }
        }
    }

    fn counts(config: SamplingConfig, logits: &[f32]) -> Vec<usize> {
        let mut sampler = Sampler::new(&config).unwrap();
        let mut counts = vec![0; logits.len()];
        for _ in 0..4000 {
            counts[sampler.next(logits, &[], &[]).unwrap().0 as usize] += 1;
        }
        counts
    }

    #[test]
    fn draws_follow_the_probabilities_and_the_filters() {
        // Probabilities 0.1, 0.2, 0.3, 0.4.
        let logits = [0.1f32.ln(), 0.2f32.ln(), 0.3f32.ln(), 0.4f32.ln()];
        let warm = SamplingConfig { temperature: 1.0, seed: 7, ..Default::default() };
        for (count, expected) in counts(warm.clone(), &logits).iter().zip([400, 800, 1200, 1600]) {
            assert!(count.abs_diff(expected) < 120, "{count} for {expected}");
        }
        let found = counts(SamplingConfig { top_k: 2, ..warm.clone() }, &logits);
        assert_eq!(&found[..2], [0, 0]);
        // 0.4 + 0.3 reaches 0.6; the third is no longer needed.
        assert_eq!(counts(SamplingConfig { top_p: 0.6, ..warm.clone() }, &logits)[..2], [0, 0]);
        // At least 0.6 of 0.4.
        assert_eq!(counts(SamplingConfig { min_p: 0.6, ..warm.clone() }, &logits)[..2], [0, 0]);
        // 0.4 and 0.3 are needed for 0.55 of all, also where the six others are below half of 0.4.
        let logits: Vec<f32> = [0.4f32, 0.3].into_iter().chain([0.05; 6]).map(f32::ln).collect();
        let found = counts(SamplingConfig { top_p: 0.55, min_p: 0.5, ..warm }, &logits);
        assert!(found[1] > 1500 && found[0] + found[1] == 4000, "{found:?}");
    }

    #[test]
    fn a_temperature_of_any_size_has_probabilities() {
        let logits = [1.0, 3.0, 3.0, f32::NEG_INFINITY, -80.0];
        for temperature in [5e-324, 1e-308, 1e-30] {
            let found = counts(SamplingConfig { temperature, ..Default::default() }, &logits);
            assert!(found[1] > 1800 && found[1] + found[2] == 4000, "{temperature}: {found:?}");
        }
        let found = counts(SamplingConfig { temperature: 1e308, ..Default::default() }, &logits);
        assert!(found[3] == 0 && [0, 1, 2, 4].iter().all(|&k| found[k] > 800), "{found:?}");
        // A penalty takes the greatest score past the range.
        let penalty = SamplingConfig { temperature: 1.0, repetition_penalty: 1e-308, ..Default::default() };
        let next = |seen: &[u32]| Sampler::new(&penalty).unwrap().next(&logits, &[], seen).unwrap().0;
        assert_eq!(next(&[0]), 0);
    }

    #[test]
    fn penalties_change_the_most_likely_token() {
        let next = |config: SamplingConfig, generated: &[u32]| {
            Sampler::new(&config).unwrap().next(&[1.0, 1.5, -1.0], &[], generated).unwrap().0
        };
        assert_eq!(next(SamplingConfig::default(), &[1]), 1);
        assert_eq!(next(SamplingConfig { repetition_penalty: 2.0, ..Default::default() }, &[1]), 0);
        assert_eq!(next(SamplingConfig { frequency_penalty: 0.3, ..Default::default() }, &[1]), 1);
        assert_eq!(next(SamplingConfig { frequency_penalty: 0.3, ..Default::default() }, &[1, 1]), 0);
        assert_eq!(next(SamplingConfig { presence_penalty: 0.6, ..Default::default() }, &[1]), 0);
    }

    #[test]
    fn bad_settings_are_refused() {
        for config in [
            SamplingConfig { temperature: -1.0, ..Default::default() },
            SamplingConfig { top_p: 1.5, ..Default::default() },
            SamplingConfig { repetition_penalty: 0.0, ..Default::default() },
        ] {
            assert!(Sampler::new(&config).is_err());
        }
    }

    #[test]
    fn logits_that_are_no_distribution_are_refused() {
        let (least, most) = (f32::NEG_INFINITY, f32::INFINITY);
        for (logits, message) in [
            (&[0.0, f32::NAN] as &[f32], "the logit of token 1 is NaN"),
            (&[0.0, 1.0, most, most], "the logit of token 2 is inf"),
            (&[least, least], "all 2 logits are -inf"),
            (&[], "no logits"),
        ] {
            for temperature in [0.0, 1.0] {
                let config = SamplingConfig { temperature, ..Default::default() };
                let error = Sampler::new(&config).unwrap().next(logits, &[], &[]).unwrap_err().to_string();
                assert!(error.contains(message), "{error}");
            }
        }
        let (token, log_probability) =
            Sampler::new(&SamplingConfig::default()).unwrap().next(&[least, 2.0], &[], &[]).unwrap();
        assert_eq!((token, log_probability), (1, 0.0));
    }
}
