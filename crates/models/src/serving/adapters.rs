//! [`LoadedAdapters`]: the adapters of an engine by their numbers, and the places of those of a step.

use nn::lora::{Lora, RowAdapters};
use tensor_core::{Error, Result, Tensor};

use super::OP;
use crate::LanguageModel;

/// The number of an adapter of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdapterId(u64);

/// An adapter of the engine.
struct Loaded {
    id: AdapterId,
    /// Whether it is removed once no text has it.
    is_leaving: bool,
}

pub(super) struct LoadedAdapters {
    rows: RowAdapters,
    /// In the order of `rows`.
    loaded: Vec<Loaded>,
    next: u64,
}

impl LoadedAdapters {
    pub(super) fn new(model: &dyn LanguageModel) -> LoadedAdapters {
        LoadedAdapters { rows: RowAdapters::new(model), loaded: Vec::new(), next: 0 }
    }

    /// Takes an adapter out of the model's layers.
    #[track_caller]
    pub(super) fn add(&mut self, adapter: Lora) -> Result<AdapterId> {
        self.rows.add(adapter)?;
        let id = AdapterId(self.next);
        self.next += 1;
        self.loaded.push(Loaded { id, is_leaving: false });
        Ok(id)
    }

    pub(super) fn len(&self) -> usize {
        self.loaded.len()
    }

    /// An error unless new texts may have the adapter.
    #[track_caller]
    pub(super) fn check(&self, id: AdapterId) -> Result<()> {
        match self.loaded.iter().any(|loaded| loaded.id == id && !loaded.is_leaving) {
            true => Ok(()),
            false => Err(Error::invalid(OP, "the adapter was removed, or is another engine's")),
        }
    }

    /// Has an adapter removed by the next [`LoadedAdapters::remove_unused`] at which no text has it.
    pub(super) fn leave(&mut self, id: AdapterId) {
        if let Some(loaded) = self.loaded.iter_mut().find(|loaded| loaded.id == id) {
            loaded.is_leaving = true;
        }
    }

    /// Removes the adapters that leave and that no text has; whether there was one. One whose removal fails
    /// for lack of memory stays.
    pub(super) fn remove_unused(&mut self, is_used: impl Fn(AdapterId) -> bool) -> bool {
        let before = self.loaded.len();
        for at in (0..before).rev() {
            let Loaded { id, is_leaving } = self.loaded[at];
            if is_leaving && !is_used(id) && self.rows.remove(at).is_ok() {
                self.loaded.remove(at);
            }
        }
        self.loaded.len() < before
    }

    /// The numbers of the rows' adapters for [`with_rows`](nn::lora::with_rows); none if no row has one.
    #[track_caller]
    pub(super) fn rows(
        &self,
        rows: impl Iterator<Item = Option<AdapterId>>,
        model: &dyn LanguageModel,
    ) -> Result<Option<Tensor>> {
        let number = |id: AdapterId| self.loaded.iter().position(|loaded| loaded.id == id);
        let numbers = rows.map(|id| id.and_then(number).map_or(0, |at| at as i32 + 1));
        let numbers: Vec<i32> = numbers.collect();
        if numbers.iter().all(|&number| number == 0) {
            return Ok(None);
        }
        let shape = [numbers.len()];
        Tensor::from_vec(numbers, shape, &model.device()).map(Some)
    }
}
