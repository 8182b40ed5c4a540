//! [`TextSteps`]: the steps of texts by one model, repeated where the model allows it.

use autograd::no_grad;
use nn::lora;
use tensor_core::{DType, Result, Tensor};

use crate::{KvCache, LanguageModel, cache::RepeatedSteps};

/// The steps of texts. All calls pass the same model, whose rows have the adapters of [`lora::with_rows`].
pub(crate) struct TextSteps {
    repeated: RepeatedSteps,
}

impl TextSteps {
    pub(crate) fn new() -> TextSteps {
        TextSteps { repeated: RepeatedSteps::new() }
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
    pub(crate) fn next_logits<M: LanguageModel + ?Sized>(
        &mut self,
        model: &M,
        ids: &Tensor,
        cache: &mut KvCache,
    ) -> Result<Tensor> {
        self.call(model, ids, cache, |model, ids, cache| model.next_logits(ids, cache)?.to_dtype(DType::F32))
    }

    /// The logits `[N, L, vocabulary]` of the tokens after each of `ids`; otherwise as
    /// [`TextSteps::next_logits`]. One object calls one of both.
    #[track_caller]
    pub(crate) fn all_logits<M: LanguageModel + ?Sized>(
        &mut self,
        model: &M,
        ids: &Tensor,
        cache: &mut KvCache,
    ) -> Result<Tensor> {
        self.call(model, ids, cache, |model, ids, cache| {
            model.logits(&model.hidden(ids, Some(cache))?)?.to_dtype(DType::F32)
        })
    }

    #[track_caller]
    fn call<M: LanguageModel + ?Sized>(
        &mut self,
        model: &M,
        ids: &Tensor,
        cache: &mut KvCache,
        step: fn(&M, &Tensor, &mut KvCache) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let inputs: Vec<Tensor> = [ids.clone()].into_iter().chain(lora::rows()).collect();
        let step = |inputs: &[Tensor], cache: &mut KvCache| {
            lora::with_rows(inputs.get(1), || step(model, &inputs[0], cache))
        };
        match model.repeats_steps() {
            true => self.repeated.call(&inputs, cache, step),
            false => no_grad(|| step(&inputs, cache)),
        }
    }
}
