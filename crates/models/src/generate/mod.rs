//! Text from a language model: one token after the other, with a cache of keys and values.
//!
//! ```
//! use models::{Llama, LlamaConfig, generate::{GenerationConfig, generate}};
//! use tensor_core::Generator;
//! # fn main() -> tensor_core::Result<()> {
//! # let config = LlamaConfig { vocab_size: 50, hidden_size: 16, intermediate_size: 32, num_hidden_layers: 2,
//! #     num_attention_heads: 4, ..Default::default() };
//! let device = backend_cpu::cpu();
//! let model = Llama::new(&config, &Generator::seed(0, &device))?;
//! let settings = GenerationConfig { max_new_tokens: 5, ..Default::default() };
//! for token in generate(&model, &[1, 2, 3], &settings)? {
//!     println!("{}", token?.id);
//! }
//! # Ok(()) }
//! ```

mod batch;
mod beam;
mod logits_rule;
mod sampler;
mod score;
mod speculative;
mod steps;

use std::borrow::Cow;

use tensor_core::{Device, Error, Result, Tensor};

pub use batch::generate_batch;
pub use beam::{Beam, BeamConfig, beam_search};
pub use logits_rule::LogitsRule;
pub use sampler::{Sampler, SamplingConfig};
pub(crate) use sampler::{argmax, checked_scores, log_sum_exp};
pub use score::{Perplexity, log_probabilities, log_probabilities_in, perplexity, perplexity_by};
pub use speculative::{Speculation, generate_speculative};
pub(crate) use steps::TextSteps;

use crate::{KvCache, LanguageModel, cache::Checkpoint};

const OP: &str = "generate";

/// Settings of a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationConfig {
    /// The greatest number of new tokens; 256 by default.
    pub max_new_tokens: usize,
    /// Tokens that end the text; they are not part of it. See also `Tokenizer::end_tokens`.
    pub stop_tokens: Vec<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingConfig,
    /// A rule that changes the logits before a token is chosen, such as a mask of the tokens that may follow;
    /// none by default.
    pub logits_rule: Option<LogitsRule>,
}

impl GenerationConfig {
    /// The next token and the logarithm of its probability, after the rule for logits.
    #[track_caller]
    fn choose(
        &self,
        sampler: &mut Sampler,
        logits: &[f32],
        prompt: &[u32],
        generated: &[u32],
    ) -> Result<(u32, f64)> {
        sampler.next(&self.ruled(logits, prompt, generated)?, prompt, generated)
    }

    /// The logits after the rule for them.
    pub(crate) fn ruled<'a>(
        &self,
        logits: &'a [f32],
        prompt: &[u32],
        generated: &[u32],
    ) -> Result<Cow<'a, [f32]>> {
        LogitsRule::applied(self.logits_rule.as_ref(), logits, prompt, generated)
    }
}

impl Default for GenerationConfig {
    fn default() -> GenerationConfig {
        GenerationConfig {
            max_new_tokens: 256,
            stop_tokens: Vec::new(),
            sampling: SamplingConfig::default(),
            logits_rule: None,
        }
    }
}

/// A generated token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// Its number.
    pub id: u32,
    /// The logarithm of its probability under the model, after the rule for logits if there is one.
    pub log_probability: f64,
}

/// The tokens after a prompt, one at a time. [`generate`] makes it.
pub struct Generation<'a, M: LanguageModel + ?Sized> {
    model: &'a M,
    steps: TextSteps,
    cache: KvCache,
    sampler: Sampler,
    config: GenerationConfig,
    prompt: Vec<u32>,
    generated: Vec<u32>,
    /// The tokens that the cache lacks.
    waiting: Vec<u32>,
    /// The way back to the cache before a step whose token is not chosen yet.
    step: Option<Checkpoint>,
    finished: bool,
}

/// Continues a prompt: an iterator over the new tokens, which computes each when it is asked for.
///
/// # Errors
/// An empty prompt, a token that the model does not know, or settings that [`Sampler::new`] refuses.
#[track_caller]
pub fn generate<'a, M: LanguageModel + ?Sized>(
    model: &'a M,
    prompt: &[u32],
    config: &GenerationConfig,
) -> Result<Generation<'a, M>> {
    generate_from(model, model.new_cache(), prompt, config)
}

/// Continues after the positions of a cache, for instance the earlier turns of a conversation, which
/// [`Generation::into_cache`] gave: `prompt` has the tokens that follow these.
///
/// # Errors
/// As [`generate`].
#[track_caller]
pub fn generate_from<'a, M: LanguageModel + ?Sized>(
    model: &'a M,
    cache: KvCache,
    prompt: &[u32],
    config: &GenerationConfig,
) -> Result<Generation<'a, M>> {
    check_tokens(OP, model, prompt, 1)?;
    let sampler = Sampler::new(&config.sampling)?;
    Ok(Generation {
        model,
        steps: TextSteps::new(),
        cache,
        sampler,
        config: config.clone(),
        prompt: prompt.to_vec(),
        generated: Vec::new(),
        waiting: prompt.to_vec(),
        step: None,
        finished: false,
    })
}

impl<M: LanguageModel + ?Sized> Generation<'_, M> {
    /// The tokens that were generated so far.
    pub fn tokens(&self) -> &[u32] {
        &self.generated
    }

    /// The number of steps that ran without a graph: each repeated the operations of an earlier step.
    pub fn repeated_steps(&self) -> usize {
        self.steps.repeated()
    }

    /// Ends the generation before its limit.
    pub fn stop(&mut self) {
        self.finished = true;
    }

    /// The cache, and the tokens that it lacks: the last generated one, which a continuation puts before its
    /// prompt. After an error, these are the cache before the step that failed and the tokens of that step,
    /// from which [`generate_from`] tries the step again.
    pub fn into_cache(mut self) -> (KvCache, Vec<u32>) {
        self.go_back();
        (self.cache, self.waiting)
    }

    /// Undoes a step whose token was not chosen: it failed, or its future was dropped.
    fn go_back(&mut self) {
        if let Some(before) = self.step.take() {
            self.cache.go_back(before);
        }
    }

    /// The logits after the waiting tokens, which join the cache.
    #[track_caller]
    fn advance(&mut self) -> Result<Tensor> {
        self.go_back();
        self.step = Some(self.cache.checkpoint(self.waiting.len()));
        let ids = row(&self.waiting, &self.model.device())?;
        self.steps.next_logits(self.model, &ids, &mut self.cache)
    }

    /// The next token, as the iterator gives it, without blocking: for pages of a browser.
    ///
    /// ```
    /// # use models::{Llama, generate::{GenerationConfig, generate}};
    /// # async fn text(model: &Llama) -> tensor_core::Result<()> {
    /// let mut tokens = generate(model, &[1, 2, 3], &GenerationConfig::default())?;
    /// while let Some(token) = tokens.next_async().await {
    ///     println!("{}", token?.id);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn next_async(&mut self) -> Option<Result<Token>> {
        if self.is_over() {
            return None;
        }
        let logits = match self.advance() {
            Ok(logits) => logits.to_vec_async::<f32>().await,
            Err(error) => Err(error),
        };
        self.chosen(logits)
    }

    fn is_over(&self) -> bool {
        self.finished || self.generated.len() >= self.config.max_new_tokens
    }

    /// The token that logits give; none at the end of the text.
    fn chosen(&mut self, logits: Result<Vec<f32>>) -> Option<Result<Token>> {
        let token = match logits {
            Ok(logits) => self.choose(&logits),
            Err(error) => Err(error),
        };
        self.finished = !matches!(token, Ok(Some(_)));
        token.transpose()
    }

    /// The token that follows, by its logits; none if it ends the text.
    #[track_caller]
    fn choose(&mut self, logits: &[f32]) -> Result<Option<Token>> {
        let (id, log_probability) =
            self.config.choose(&mut self.sampler, logits, &self.prompt, &self.generated)?;
        self.step = None;
        self.waiting.clear();
        self.waiting.push(id);
        if self.config.stop_tokens.contains(&id) {
            return Ok(None);
        }
        self.generated.push(id);
        Ok(Some(Token { id, log_probability }))
    }
}

impl<M: LanguageModel + ?Sized> Iterator for Generation<'_, M> {
    type Item = Result<Token>;

    fn next(&mut self) -> Option<Result<Token>> {
        if self.is_over() {
            return None;
        }
        let logits = self.advance().and_then(|logits| logits.to_vec::<f32>());
        self.chosen(logits)
    }
}

/// Refuses fewer tokens than `least`, and tokens that the model does not know.
#[track_caller]
pub(crate) fn check_tokens<M: LanguageModel + ?Sized>(
    op: &'static str,
    model: &M,
    tokens: &[u32],
    least: usize,
) -> Result<()> {
    if tokens.len() < least {
        let message = format!("{} tokens: give at least {least}, such as the first of a text", tokens.len());
        return Err(Error::invalid(op, message));
    }
    let vocabulary = model.vocab_size();
    match tokens.iter().position(|&token| !model.knows_token(token)) {
        Some(at) => {
            let message = format!(
                "token {} at position {at} is not one of the model's {vocabulary}: does the tokenizer belong to \
                 the model?",
                tokens[at]
            );
            Err(Error::invalid(op, message))
        }
        None => Ok(()),
    }
}

/// A row of tokens on a device, `[1, L]`.
#[track_caller]
pub(crate) fn row(tokens: &[u32], device: &Device) -> Result<Tensor> {
    table(&[tokens], device)
}

/// Rows of the same length, `[N, L]`.
#[track_caller]
pub(crate) fn table(rows: &[&[u32]], device: &Device) -> Result<Tensor> {
    let length = rows.first().map_or(0, |row| row.len());
    let ids: Vec<i32> = rows.iter().flat_map(|row| row.iter().map(|&id| id as i32)).collect();
    Tensor::from_vec(ids, [rows.len(), length], device)
}
