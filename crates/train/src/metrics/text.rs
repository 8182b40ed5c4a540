//! Metrics of texts: [`Bleu`], [`Rouge`], [`ErrorRate`] of words and characters, [`Perplexity`].

use std::collections::HashMap;

use tensor_core::{Error, Result, Tensor};

use super::Mean;

/// The number of times that each sequence of `n` tokens occurs.
fn grams<'a, 'b>(tokens: &'b [&'a str], n: usize) -> HashMap<&'b [&'a str], u64> {
    let mut counts = HashMap::new();
    tokens.windows(n).for_each(|gram| *counts.entry(gram).or_insert(0) += 1);
    counts
}

/// How many n-grams of translations are in their references: BLEU = b · exp(Σₙ ln pₙ / N), with the
/// precision pₙ of n-grams, clipped to their greatest count in a reference, and b = min(1, exp(1 − r/c))
/// for c words against r words of the references of the nearest lengths. `torchmetrics.text.BLEUScore`.
///
/// Words are separated by white space, and the sums are over the corpus.
///
/// Papineni, Roukos, Ward, Zhu: BLEU, a method for automatic evaluation of machine translation (2002).
///
/// ```
/// use train::metrics::Bleu;
/// # fn main() -> tensor_core::Result<()> {
/// let mut bleu = Bleu::new();
/// bleu.update("the cat is on the mat", &["there is a cat on the mat", "a cat is on the mat"])?;
/// assert!((bleu.value().unwrap_or(0.0) - 0.7598).abs() < 1e-4);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bleu {
    smooth: bool,
    /// The number of clipped n-grams and of all, for each n from 1.
    counts: Vec<(u64, u64)>,
    words: u64,
    reference_words: u64,
}

impl Default for Bleu {
    fn default() -> Bleu {
        Bleu::new()
    }
}

impl Bleu {
    /// A score of n-grams of one to four words.
    pub fn new() -> Bleu {
        Bleu::with(4, false)
    }

    /// A score of n-grams of one to `n` words, at least 1. `smooth` adds one to both counts of n-grams of two
    /// words and more (Lin, Och 2004).
    pub fn with(n: usize, smooth: bool) -> Bleu {
        Bleu { smooth, counts: vec![(0, 0); n.max(1)], words: 0, reference_words: 0 }
    }

    /// Counts a translation with its references.
    ///
    /// # Errors
    /// No references.
    #[track_caller]
    pub fn update(&mut self, prediction: &str, references: &[&str]) -> Result<()> {
        let words: Vec<&str> = prediction.split_whitespace().collect();
        let references: Vec<Vec<&str>> =
            references.iter().map(|reference| reference.split_whitespace().collect()).collect();
        let Some(nearest) = references.iter().map(Vec::len).min_by_key(|length| length.abs_diff(words.len()))
        else {
            return Err(Error::invalid("Bleu", "no references; give one or more"));
        };
        self.words += words.len() as u64;
        self.reference_words += nearest as u64;
        for (k, (right, all)) in self.counts.iter_mut().enumerate() {
            let known: Vec<_> = references.iter().map(|reference| grams(reference, k + 1)).collect();
            for (gram, count) in grams(&words, k + 1) {
                let most = known.iter().filter_map(|counts| counts.get(gram)).max().copied().unwrap_or(0);
                *right += count.min(most);
                *all += count;
            }
        }
        Ok(())
    }

    /// The score, from 0 to 1; `None` if nothing was counted. It is 0 if n-grams of some length have no
    /// match.
    pub fn value(&self) -> Option<f64> {
        if self.reference_words == 0 && self.words == 0 {
            return None;
        }
        if self.counts.iter().any(|(right, _)| *right == 0) {
            return Some(0.0);
        }
        let logarithms = self.counts.iter().enumerate().map(|(k, &(right, all))| {
            let more = if self.smooth && k > 0 { 1.0 } else { 0.0 };
            ((right as f64 + more) / (all as f64 + more)).ln()
        });
        let mean = logarithms.sum::<f64>() / self.counts.len() as f64;
        let brevity = (1.0 - self.reference_words as f64 / self.words as f64).min(0.0);
        Some((mean + brevity).exp())
    }

    /// Forgets all counts.
    pub fn reset(&mut self) {
        *self = Bleu::with(self.counts.len(), self.smooth);
    }
}

/// The units that a [`Rouge`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RougeKind {
    /// Sequences of this many words: ROUGE-1, ROUGE-2 …
    N(usize),
    /// The longest common subsequence of words: ROUGE-L.
    L,
    /// The same by sentences, for summaries of several: ROUGE-Lsum. A word of a reference counts if it is in
    /// a longest common subsequence of its sentence with any sentence of the prediction, at most as often as
    /// the word occurs. Each line is a sentence, as in Google's `rouge_score`; `torchmetrics` first splits
    /// text into sentences by NLTK.
    LSum,
}

/// Precision, recall and their harmonic mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RougeScore {
    /// The matches as a fraction of the prediction.
    pub precision: f64,
    /// The matches as a fraction of the reference.
    pub recall: f64,
    /// 2 P R / (P + R).
    pub f: f64,
}

impl RougeScore {
    fn of(matches: usize, predicted: usize, expected: usize) -> RougeScore {
        if matches == 0 || predicted == 0 || expected == 0 {
            return RougeScore::default();
        }
        let (precision, recall) = (matches as f64 / predicted as f64, matches as f64 / expected as f64);
        RougeScore { precision, recall, f: 2.0 * precision * recall / (precision + recall) }
    }
}

/// How many words of summaries are in their references: the means over texts of precision, recall and F of
/// common n-grams, or of the longest common subsequence. `torchmetrics.text.ROUGEScore`, without a stemmer.
///
/// Texts are lower-cased, and their words are runs of `a` to `z` and digits. Where there are several
/// references, the one with the best F counts.
///
/// Lin: ROUGE, a package for automatic evaluation of summaries (2004).
///
/// ```
/// use train::metrics::{Rouge, RougeKind};
/// # fn main() -> tensor_core::Result<()> {
/// let mut rouge = Rouge::new(RougeKind::L);
/// rouge.update("My name is John", &["Is your name John"])?;
/// assert_eq!(rouge.value().map(|score| score.f), Some(0.5)); // "name John"
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rouge {
    kind: RougeKind,
    precision: Mean,
    recall: Mean,
    f: Mean,
}

impl Rouge {
    /// A score of this kind, of no texts.
    pub fn new(kind: RougeKind) -> Rouge {
        Rouge { kind, precision: Mean::new(), recall: Mean::new(), f: Mean::new() }
    }

    /// Counts a text with its references.
    ///
    /// # Errors
    /// No references, or n-grams of 0 words.
    #[track_caller]
    pub fn update(&mut self, prediction: &str, references: &[&str]) -> Result<()> {
        if self.kind == RougeKind::N(0) || references.is_empty() {
            let message = format!("{:?} with {} references: give one or more", self.kind, references.len());
            return Err(Error::invalid("Rouge", message));
        }
        let scores = references.iter().map(|reference| self.score(prediction, reference));
        // The first of equal ones, as torchmetrics does.
        let best = scores.fold(None, |best: Option<RougeScore>, score| match best {
            Some(best) if best.f >= score.f => Some(best),
            Some(_) | None => Some(score),
        });
        let best = best.unwrap_or_default();
        self.precision.add(best.precision, 1.0);
        self.recall.add(best.recall, 1.0);
        self.f.add(best.f, 1.0);
        Ok(())
    }

    fn score(&self, prediction: &str, reference: &str) -> RougeScore {
        let (prediction, reference) = (prediction.to_lowercase(), reference.to_lowercase());
        let (predicted, expected) = (words(&prediction), words(&reference));
        match self.kind {
            RougeKind::LSum => {
                let matches = matches_by_sentence(&sentences(&prediction), &sentences(&reference));
                RougeScore::of(matches, predicted.len(), expected.len())
            }
            RougeKind::L => {
                let matches = longest_common_subsequence(&predicted, &expected);
                RougeScore::of(matches, predicted.len(), expected.len())
            }
            RougeKind::N(n) => {
                let (ours, theirs) = (grams(&predicted, n), grams(&expected, n));
                let common = |(gram, count): (&&[&str], &u64)| *count.min(theirs.get(*gram).unwrap_or(&0));
                let matches: u64 = ours.iter().map(common).sum();
                let count = |words: usize| (words + 1).saturating_sub(n);
                RougeScore::of(matches as usize, count(predicted.len()), count(expected.len()))
            }
        }
    }

    /// The means over the texts; `None` if there are none.
    pub fn value(&self) -> Option<RougeScore> {
        Some(RougeScore {
            precision: self.precision.value()?,
            recall: self.recall.value()?,
            f: self.f.value()?,
        })
    }

    /// Forgets all texts.
    pub fn reset(&mut self) {
        *self = Rouge::new(self.kind);
    }
}

/// The runs of lower-case letters and digits of a text.
fn words(text: &str) -> Vec<&str> {
    let parts = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit()));
    parts.filter(|word| !word.is_empty()).collect()
}

/// The words of each line.
fn sentences(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(words).collect()
}

/// The lengths of the longest common subsequences of some words, then `x`, with the first `k` words of `b`,
/// in column `k`. `above` has those without `x`.
fn common_lengths(above: &[usize], x: &str, b: &[&str]) -> Vec<usize> {
    let mut row = vec![0; b.len() + 1];
    for (k, y) in b.iter().enumerate() {
        row[k + 1] = if x == *y { above[k] + 1 } else { above[k + 1].max(row[k]) };
    }
    row
}

fn longest_common_subsequence(a: &[&str], b: &[&str]) -> usize {
    a.iter().fold(vec![0; b.len() + 1], |above, x| common_lengths(&above, x, b))[b.len()]
}

/// Marks the words of `reference` that are in a longest common subsequence with `prediction`. If there
/// are several, it takes torchmetrics' one, whose words come as early in the reference as possible.
fn mark_common(prediction: &[&str], reference: &[&str], marked: &mut [bool]) {
    // Row `i` is that of the first `i` words of the prediction.
    let mut rows = vec![vec![0; reference.len() + 1]];
    for (i, x) in prediction.iter().enumerate() {
        rows.push(common_lengths(&rows[i], x, reference));
    }
    let (mut i, mut k) = (prediction.len(), reference.len());
    while i > 0 && k > 0 {
        if prediction[i - 1] == reference[k - 1] {
            (i, k) = (i - 1, k - 1);
            marked[k] = true;
        } else if rows[i - 1][k] > rows[i][k - 1] {
            i -= 1;
        } else {
            k -= 1;
        }
    }
}

/// The matches of ROUGE-Lsum: see [`RougeKind::LSum`].
fn matches_by_sentence<'a>(predicted: &[Vec<&'a str>], expected: &[Vec<&'a str>]) -> usize {
    let counts = |sentences: &[Vec<&'a str>]| {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        sentences.iter().flatten().for_each(|word| *counts.entry(word).or_default() += 1);
        counts
    };
    let (mut ours, mut theirs) = (counts(predicted), counts(expected));
    let mut matches = 0;
    for sentence in expected {
        let mut marked = vec![false; sentence.len()];
        predicted.iter().for_each(|prediction| mark_common(prediction, sentence, &mut marked));
        for (word, _) in sentence.iter().zip(marked).filter(|(_, marked)| *marked) {
            if let (Some(own @ 1..), Some(their @ 1..)) = (ours.get_mut(*word), theirs.get_mut(*word)) {
                (*own, *their) = (*own - 1, *their - 1);
                matches += 1;
            }
        }
    }
    matches
}

/// The least number of insertions, removals and replacements that make `a` of `b` (Levenshtein).
fn edits<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (k, y) in b.iter().enumerate() {
            let above = row[k + 1];
            row[k + 1] = (diagonal + usize::from(x != y)).min(above.min(row[k]) + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

/// The unit that an [`ErrorRate`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextUnit {
    /// Words, separated by white space.
    Words,
    /// Characters (Unicode scalar values), spaces included.
    Characters,
}

/// The error rate of transcripts: the insertions, removals and replacements that turn them into the
/// references, divided by the length of the references. `torchmetrics.text.WordErrorRate` and
/// `CharErrorRate`.
///
/// ```
/// use train::metrics::{ErrorRate, TextUnit};
/// let mut wer = ErrorRate::new(TextUnit::Words);
/// wer.update("this is the prediction", "this is the reference");
/// wer.update("there is an other sample", "there is another one");
/// assert_eq!(wer.value(), Some(0.5)); // 1 + 3 edits for 8 words
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRate {
    unit: TextUnit,
    errors: u64,
    units: u64,
}

impl ErrorRate {
    /// A rate of no texts: of words (WER) or of characters (CER).
    pub fn new(unit: TextUnit) -> ErrorRate {
        ErrorRate { unit, errors: 0, units: 0 }
    }

    /// Counts a transcript with its reference.
    pub fn update(&mut self, prediction: &str, reference: &str) {
        let (errors, units) = match self.unit {
            TextUnit::Words => {
                let reference: Vec<&str> = reference.split_whitespace().collect();
                let prediction: Vec<&str> = prediction.split_whitespace().collect();
                (edits(&prediction, &reference), reference.len())
            }
            TextUnit::Characters => {
                let characters = |text: &str| text.chars().collect::<Vec<_>>();
                (edits(&characters(prediction), &characters(reference)), reference.chars().count())
            }
        };
        self.errors += errors as u64;
        self.units += units as u64;
    }

    /// The rate, which may be above 1; `None` without words or characters in the references.
    pub fn value(&self) -> Option<f64> {
        (self.units > 0).then(|| self.errors as f64 / self.units as f64)
    }

    /// The number of edits, and of words or characters in the references.
    pub fn counts(&self) -> (u64, u64) {
        (self.errors, self.units)
    }

    /// Forgets all texts.
    pub fn reset(&mut self) {
        *self = ErrorRate::new(self.unit);
    }
}

/// The perplexity of a language model: exp(−Σ ln p / n) over n tokens, where p is the probability that the
/// model gave to the token. `torchmetrics.text.Perplexity`.
///
/// ```
/// use tensor_core::Tensor;
/// use train::metrics::Perplexity;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let mut perplexity = Perplexity::new();
/// let logits = Tensor::zeros([1, 3, 50], &device)?; // all tokens are equally likely
/// perplexity.update(&logits, &Tensor::new([[7i32, 0, 49]], &device)?)?;
/// assert!((perplexity.value().unwrap_or(0.0) - 50.0).abs() < 1e-3);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    ignored: Option<i64>,
    loss: Mean,
}

impl Perplexity {
    /// A perplexity of no tokens.
    pub fn new() -> Perplexity {
        Perplexity::default()
    }

    /// Leaves out the positions whose target is this number, such as −100 or the padding token.
    #[must_use]
    pub fn ignoring(self, token: i64) -> Perplexity {
        Perplexity { ignored: Some(token), ..self }
    }

    /// Counts a batch: logits `[…, V]`, and the tokens that come next, `[…]`.
    ///
    /// # Errors
    /// Shapes that do not fit, targets that are no integers, a token that is out of range, a value that
    /// cannot be computed. Nothing is counted then.
    #[track_caller]
    pub fn update(&mut self, logits: &Tensor, targets: &Tensor) -> Result<()> {
        const OP: &str = "Perplexity";
        let Some((&vocabulary, rows)) = logits.dims().split_last() else {
            return Err(Error::invalid(OP, "logits without an axis: give [N, L, V]"));
        };
        if rows != targets.dims() || !targets.dtype().is_int() || !logits.dtype().is_float() {
            let message = format!(
                "logits {} {} with targets {} {}: give floats […, V] and integers […]",
                logits.dtype(),
                logits.shape(),
                targets.dtype(),
                targets.shape()
            );
            return Err(Error::invalid(OP, message));
        }
        let tokens: Vec<i64> = targets.detach().to_f64_vec()?.into_iter().map(|token| token as i64).collect();
        let ignored = |token: &i64| self.ignored == Some(*token);
        let unknown = |token: &&i64| !ignored(token) && !(0..vocabulary as i64).contains(*token);
        if let Some(token) = tokens.iter().find(unknown) {
            return Err(Error::invalid(OP, format!("token {token} of {vocabulary}")));
        }
        if tokens.is_empty() {
            return Ok(());
        }
        let indices: Vec<i32> =
            tokens.iter().map(|token| if ignored(token) { 0 } else { *token as i32 }).collect();
        let index = Tensor::from_vec(indices, [tokens.len(), 1], &logits.device())?;
        let rows = logits.detach().reshape([tokens.len(), vocabulary])?.log_softmax(-1)?;
        let logarithms = rows.gather(1, &index)?.to_f64_vec()?;
        let ignored_token = self.ignored;
        for (logarithm, token) in logarithms.into_iter().zip(tokens) {
            if ignored_token != Some(token) {
                self.loss.add(-logarithm, 1.0);
            }
        }
        Ok(())
    }

    /// The perplexity; `None` without tokens.
    pub fn value(&self) -> Option<f64> {
        self.loss.value().map(f64::exp)
    }

    /// Forgets all tokens.
    pub fn reset(&mut self) {
        self.loss.reset();
    }
}
