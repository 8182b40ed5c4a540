//! [`TextSteps`]: the steps of a text by one model, repeated where the model allows it.

use autograd::no_grad;
use tensor_core::{DType, Result, Tensor};

use crate::{KvCache, LanguageModel, cache::RepeatedSteps};

/// The steps of a text by one model.
pub(crate) struct TextSteps<'a, M: ?Sized> {
    model: &'a M,
    repeated: RepeatedSteps,
}

impl<'a, M: LanguageModel + ?Sized> TextSteps<'a, M> {
    pub(crate) fn new(model: &'a M) -> TextSteps<'a, M> {
        TextSteps { model, repeated: RepeatedSteps::new() }
    }

    pub(crate) fn model(&self) -> &'a M {
        self.model
    }

    /// The number of steps that were repeated.
    pub(crate) fn repeated(&self) -> usize {
        self.repeated.repeated()
    }

    /// The logits `[N, vocabulary]` of the token after `ids` `[N, L]`, which join the cache, in f32.
    ///
    /// # Errors
    /// The model's. The cache has then begun a step, from which it can go back.
    #[track_caller]
    pub(crate) fn next_logits(&mut self, ids: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        self.call(ids, cache, |model, ids, cache| model.next_logits(ids, cache)?.to_dtype(DType::F32))
    }

    /// The logits `[N, L, vocabulary]` of the tokens after each of `ids`; otherwise as
    /// [`TextSteps::next_logits`]. One object calls one of both.
    #[track_caller]
    pub(crate) fn all_logits(&mut self, ids: &Tensor, cache: &mut KvCache) -> Result<Tensor> {
        self.call(ids, cache, |model, ids, cache| {
            model.logits(&model.hidden(ids, Some(cache))?)?.to_dtype(DType::F32)
        })
    }

    #[track_caller]
    fn call(
        &mut self,
        ids: &Tensor,
        cache: &mut KvCache,
        step: fn(&M, &Tensor, &mut KvCache) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let model = self.model;
        match model.repeats_steps() {
            true => self.repeated.call(ids, cache, |ids, cache| step(model, ids, cache)),
            false => no_grad(|| step(model, ids, cache)),
        }
    }
}
