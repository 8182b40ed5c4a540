//! The tokens of a [`KvCache`] whose keys depend on the length of their text: longrope has other frequencies
//! for texts longer than the context of the training. When a text passes that length, keys and values of its
//! first positions are those of another text, so that all are computed again.

use tensor_core::{Result, Tensor};

use super::KvCache;
use crate::rope::Rope;

/// The tokens of the positions of a cache, and which frequencies its keys have.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    /// The tokens `[N, L]` of each step.
    steps: Vec<Tensor>,
    /// For each row of the batch, whether the keys have the frequencies of long texts, by kind of layer.
    long: Vec<Vec<bool>>,
}

impl Texts {
    /// Whether no step was noted, since the model's frequencies are those of any length.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Forgets the tokens from position `len` on.
    #[track_caller]
    fn cut(&mut self, len: usize) -> Result<()> {
        let mut left = len;
        let mut kept = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let length = step.dims()[1].min(left);
            if length > 0 {
                kept.push(step.narrow(1, 0, length)?);
            }
            left -= length;
        }
        self.steps = kept;
        Ok(())
    }

    /// The texts of the rows with these numbers.
    #[track_caller]
    pub(super) fn select(
        &mut self,
        rows: &[usize],
        chosen: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<()> {
        if !self.steps.is_empty() {
            self.steps = vec![chosen(&Tensor::concat(&self.steps, 1)?)?];
            self.long = rows.iter().filter_map(|&row| self.long.get(row).cloned()).collect();
        }
        Ok(())
    }
}

impl KvCache {
    /// A model's step for tokens `[N, L]`, which gives the hidden states `[N, L, features]`. `ropes` are
    /// those of the kinds of layers. If a text becomes so long, or by [`KvCache::truncate`] so short, that
    /// one of them has other frequencies, the step is done for the whole text, as `transformers` does.
    ///
    /// # Errors
    /// The errors of the step; the cache is then what it was.
    #[track_caller]
    pub(crate) fn step_by_length(
        &mut self,
        ids: &Tensor,
        ropes: &[Rope],
        step: impl FnOnce(&Tensor, &mut KvCache) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let &[rows, length] = ids.dims() else { return step(ids, self) };
        self.check_batch(rows)?;
        if !ropes.iter().any(Rope::has_long_frequencies) {
            return step(ids, self);
        }
        self.abandon_step();
        let before = self.contents();
        let result = self.step_of_texts(ids, [rows, length], ropes, step);
        if result.is_err() {
            self.shared.clear();
            self.pending = 0;
            self.restore(before);
        }
        result
    }

    #[track_caller]
    fn step_of_texts(
        &mut self,
        ids: &Tensor,
        [rows, length]: [usize; 2],
        ropes: &[Rope],
        step: impl FnOnce(&Tensor, &mut KvCache) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let len = self.len;
        let of_row = |row: usize| {
            let text = (len + length).saturating_sub(self.pads.get(row).copied().unwrap_or(0));
            ropes.iter().map(|rope| rope.is_long(text)).collect::<Vec<bool>>()
        };
        let long: Vec<Vec<bool>> = (0..rows).map(of_row).collect();
        let mut texts = std::mem::take(&mut self.texts);
        texts.cut(len)?;
        texts.steps.push(ids.detach());
        let out = if len > 0 && texts.long != long {
            let whole = Tensor::concat(&texts.steps, 1)?;
            self.forget();
            texts.steps = vec![whole.clone()];
            step(&whole, self)?.narrow(1, len, length)?
        } else {
            step(ids, self)?
        };
        texts.long = long;
        self.texts = texts;
        Ok(out)
    }
}
