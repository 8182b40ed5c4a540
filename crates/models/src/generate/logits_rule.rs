//! [`LogitsRule`]: a program's own rule for what may follow, such as a grammar.

use std::{borrow::Cow, fmt, sync::Arc};

use tensor_core::{Error, Result};

/// A function of the prompt, the generated tokens and the logits.
type Change = dyn Fn(&[u32], &[u32], &mut [f32]) -> Result<()> + Send + Sync;

/// A function that changes the logits of the next token before it is chosen: it forbids tokens, or makes them
/// more or less likely. It gets the tokens so far: those of the prompt and the generated ones.
/// `transformers.LogitsProcessor`, `prefix_allowed_tokens_fn`.
///
/// ```
/// use models::{Llama, LlamaConfig, generate::{GenerationConfig, LogitsRule, generate}};
/// use tensor_core::{Generator, Result};
/// # fn main() -> Result<()> {
/// # let config = LlamaConfig { vocab_size: 50, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2,
/// #     num_attention_heads: 4, ..Default::default() };
/// # let model = Llama::new(&config, &Generator::seed(0, &backend_cpu::cpu()))?;
/// // Tokens 0 to 9 are digits, of which one follows the other; 10 ends the number.
/// let digits = LogitsRule::mask(|_tokens| Ok((0..50).map(|token| token <= 10).collect()));
/// let config = GenerationConfig {
///     max_new_tokens: 8,
///     stop_tokens: vec![10],
///     logits_rule: Some(digits),
///     ..Default::default()
/// };
/// for token in generate(&model, &[20, 30], &config)? {
///     assert!(token?.id < 10);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LogitsRule(Arc<Change>);

impl LogitsRule {
    /// A rule that changes the logits, one for each token of the vocabulary. A logit of −∞ forbids its token.
    /// An error of the function is one of the generation.
    pub fn new(change: impl Fn(&[u32], &mut [f32]) -> Result<()> + Send + Sync + 'static) -> LogitsRule {
        LogitsRule(Arc::new(move |prompt, generated, logits| change(&[prompt, generated].concat(), logits)))
    }

    /// As [`LogitsRule::new`], with a function that gets the generated tokens without those of the prompt.
    ///
    /// ```
    /// use models::generate::LogitsRule;
    /// // The first token of the text is 7.
    /// let rule = LogitsRule::of_generated(|generated, logits| {
    ///     if generated.is_empty() {
    ///         let others = logits.iter_mut().enumerate().filter(|(token, _)| *token != 7);
    ///         others.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
    ///     }
    ///     Ok(())
    /// });
    /// # let _ = rule;
    /// ```
    pub fn of_generated(
        change: impl Fn(&[u32], &mut [f32]) -> Result<()> + Send + Sync + 'static,
    ) -> LogitsRule {
        LogitsRule(Arc::new(move |_, generated, logits| change(generated, logits)))
    }

    /// A rule that says for each token of the vocabulary whether it may follow. It is an error if the mask
    /// has another length, or allows no token.
    pub fn mask(allowed: impl Fn(&[u32]) -> Result<Vec<bool>> + Send + Sync + 'static) -> LogitsRule {
        LogitsRule::new(move |tokens, logits| {
            let mask = allowed(tokens)?;
            if mask.len() != logits.len() {
                let message = format!("a mask of {} tokens for a vocabulary of {}", mask.len(), logits.len());
                return Err(Error::invalid("LogitsRule", message));
            }
            let forbidden = logits.iter_mut().zip(mask).filter(|(_, may_follow)| !may_follow);
            forbidden.for_each(|(logit, _)| *logit = f32::NEG_INFINITY);
            Ok(())
        })
    }

    /// The logits of the token that follows these, as a rule changes them.
    pub(crate) fn applied<'a>(
        rule: Option<&LogitsRule>,
        logits: &'a [f32],
        prompt: &[u32],
        generated: &[u32],
    ) -> Result<Cow<'a, [f32]>> {
        let Some(LogitsRule(change)) = rule else { return Ok(Cow::Borrowed(logits)) };
        let mut changed = logits.to_vec();
        change(prompt, generated, &mut changed)?;
        Ok(Cow::Owned(changed))
    }
}

impl fmt::Debug for LogitsRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogitsRule(..)")
    }
}

/// Two rules are equal if one is a clone of the other.
impl PartialEq for LogitsRule {
    fn eq(&self, other: &LogitsRule) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
