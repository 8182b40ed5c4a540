//! [`Patterns`]: values for some layers, by patterns of their paths.

use regex_lite::Regex;
use tensor_core::{Error, Result, caller_line};

use super::OP;

/// Values for some layers, by names or regular expressions of their paths, in an order: of several patterns
/// that fit a path, the first counts. PEFT's `rank_pattern` and `alpha_pattern`.
///
/// A pattern fits a path if it fits the whole path, or its end after a dot: `q_proj` also fits
/// `model.layers.0.self_attn.q_proj`, and `^q_proj` fits `q_proj` alone.
///
/// ```
/// use nn::lora::Patterns;
/// let ranks = Patterns::from([(r"layers\.[01]\..*_proj", 4), ("^q_proj", 8), ("q_proj", 16)]);
/// assert_eq!(ranks.get("model.layers.1.k_proj"), Some(&4));
/// assert_eq!((ranks.get("q_proj"), ranks.get("block.q_proj")), (Some(&8), Some(&16)));
/// assert_eq!(ranks.get("block.v_proj"), None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Patterns<V>(Vec<(String, V)>);

impl<V> Patterns<V> {
    /// Adds a pattern after the others. The value of an equal one is replaced, at its place.
    pub fn insert(&mut self, pattern: impl Into<String>, value: V) {
        let pattern = pattern.into();
        match self.0.iter_mut().find(|(known, _)| *known == pattern) {
            Some((_, known)) => *known = value,
            None => self.0.push((pattern, value)),
        }
    }

    /// The patterns with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(pattern, value)| (pattern.as_str(), value))
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value for a path.
    pub fn get(&self, path: &str) -> Option<&V> {
        let fits = |pattern: &str| regex(pattern).is_ok_and(|regex| regex.is_match(path));
        self.0.iter().find(|(pattern, _)| fits(pattern)).map(|(_, value)| value)
    }

    /// An error for a pattern that is no regular expression.
    #[track_caller]
    pub(super) fn check(&self, field: &str) -> Result<()> {
        let _line = caller_line();
        for (pattern, _) in &self.0 {
            if let Err(error) = Regex::new(pattern).and_then(|_| regex(pattern)) {
                let message = format!("{field}: {pattern:?} is no regular expression: {error}");
                return Err(Error::invalid(OP, message));
            }
        }
        Ok(())
    }
}

impl<V> Default for Patterns<V> {
    fn default() -> Patterns<V> {
        Patterns(Vec::new())
    }
}

impl<S: Into<String>, V, const N: usize> From<[(S, V); N]> for Patterns<V> {
    fn from(entries: [(S, V); N]) -> Patterns<V> {
        entries.into_iter().collect()
    }
}

impl<S: Into<String>, V> FromIterator<(S, V)> for Patterns<V> {
    fn from_iter<I: IntoIterator<Item = (S, V)>>(entries: I) -> Patterns<V> {
        let mut patterns = Patterns::default();
        entries.into_iter().for_each(|(pattern, value)| patterns.insert(pattern, value));
        patterns
    }
}

/// The regular expression of PEFT for a pattern.
fn regex(pattern: &str) -> std::result::Result<Regex, regex_lite::Error> {
    Regex::new(&format!(r"^(?:.*\.)?(?:{pattern})$"))
}
