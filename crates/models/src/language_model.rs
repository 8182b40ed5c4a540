//! [`LanguageModel`]: what generation needs of a decoder.

use nn::Module;
use tensor_core::{Device, Result, Tensor};

use crate::{KvCache, pictures::Pictures};

/// A decoder that predicts the next token. It is a module, so that a `Box<dyn LanguageModel>` can be trained
/// or get adapters.
pub trait LanguageModel: Module {
    /// The device of its parameters.
    fn device(&self) -> Device;

    /// The number of tokens that it knows.
    fn vocab_size(&self) -> usize;

    /// The pictures that a prompt may have, if the model reads any.
    fn pictures(&self) -> Option<&Pictures> {
        None
    }

    /// Whether a prompt may have this token: one of the vocabulary, or a vector of a picture in use.
    fn knows_token(&self, token: u32) -> bool {
        (token as usize) < self.vocab_size() || self.pictures().is_some_and(|pictures| pictures.has(token))
    }

    /// An empty cache for this model.
    fn new_cache(&self) -> KvCache;

    /// The last hidden states `[N, L, features]` for tokens `[N, L]`, which follow those of the cache and
    /// are added to it.
    ///
    /// # Errors
    /// Tokens that are not integers of two axes, another batch than the cache has, or whatever the device
    /// reports.
    fn hidden(&self, ids: &Tensor, cache: Option<&mut KvCache>) -> Result<Tensor>;

    /// The logits `[…, vocabulary]` for hidden states `[…, features]`.
    ///
    /// # Errors
    /// Another number of features.
    fn logits(&self, hidden: &Tensor) -> Result<Tensor>;

    /// Whether generation may note the operations of a short step and repeat them for the next token: whether
    /// everything of a step that depends on its position comes from [`KvCache::begin`] and
    /// [`KvCache::by_position`], and nothing is chosen by a position or a value on the host.
    fn repeats_steps(&self) -> bool {
        false
    }

    /// The logits `[N, L, vocabulary]` for tokens `[N, L]`, without a cache: for training.
    ///
    /// # Errors
    /// As [`LanguageModel::hidden`].
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.logits(&self.hidden(ids, None)?)
    }

    /// The logits `[N, vocabulary]` for the token after `ids` `[N, L]`.
    ///
    /// # Errors
    /// As [`LanguageModel::hidden`].
    fn next_logits(&self, ids: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        let hidden = self.hidden(ids, Some(cache))?;
        self.logits(&hidden.select(1, -1)?)
    }
}
