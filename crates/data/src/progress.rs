//! Iterator position saved in checkpoints.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tensor_core::{Result, State, StateReader};

/// The position, shared by a loader and its iterators.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<Place>>);

#[derive(Debug, Default)]
struct Place {
    /// The epoch that the next iterator begins, and its first batch.
    next_epoch: u64,
    first_batch: usize,
    /// The epoch of the latest iterator while it has batches, and the number of batches that it returned.
    current: Option<(u64, usize)>,
    /// The number of the latest iterator.
    iteration: u64,
}

/// The sizes that a position within an epoch is valid for: names and values.
pub(crate) type Sizes = [(&'static str, usize); 2];

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Place> {
        // Every change is complete before the lock is released, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The epoch that the next iterator begins.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.lock().next_epoch
    }

    /// Moves to a batch of an epoch. Existing iterators no longer change the position.
    pub(crate) fn go_to(&self, epoch: u64, batch: usize) {
        let mut place = self.lock();
        (place.next_epoch, place.first_batch, place.current) = (epoch, batch, None);
        place.iteration += 1;
    }

    /// Begins an epoch of at most `batches` batches: returns its number, its first batch, and the handle
    /// that records its position.
    pub(crate) fn begin(&self, batches: usize) -> (u64, usize, Iteration) {
        let mut place = self.lock();
        let (epoch, first) = (place.next_epoch, place.first_batch.min(batches));
        (place.next_epoch, place.first_batch) = (epoch + 1, 0);
        place.current = Some((epoch, first));
        place.iteration += 1;
        (epoch, first, Iteration { progress: self.clone(), number: place.iteration })
    }

    /// The state of a loader whose epochs have at most `batches` batches.
    pub(crate) fn state(&self, batches: usize, sizes: Sizes) -> State {
        let place = self.lock();
        let (epoch, batch) = match place.current {
            Some((epoch, given)) if given < batches => (epoch, given),
            _ => (place.next_epoch, place.first_batch),
        };
        let mut state = State::new();
        state.insert("epoch", epoch);
        state.insert("batch", batch);
        for (name, size) in sizes {
            state.insert(name, size);
        }
        state
    }

    /// Loads a [`Progress::state`]; `more` reads the rest of it.
    ///
    /// # Errors
    /// Within an epoch, other sizes; the errors of [`StateReader::finish`].
    pub(crate) fn load<T>(
        &self,
        state: &State,
        sizes: Sizes,
        more: impl FnOnce(&mut StateReader<'_>) -> T,
    ) -> Result<T> {
        let mut reader = state.reader();
        let (epoch, batch) = (reader.word("epoch"), reader.word("batch"));
        let more = more(&mut reader);
        for (name, here) in sizes {
            let found = reader.word(name);
            if batch > 0 && reader.has(name) && found != here as u64 {
                reader.mismatch(format!("{name}: {found} in the state, {here} in the loader"));
            }
        }
        reader.finish()?;
        self.go_to(epoch, batch as usize);
        Ok(more)
    }
}

/// An epoch that has begun. Dropping it ends the epoch.
#[derive(Debug)]
pub(crate) struct Iteration {
    progress: Progress,
    number: u64,
}

impl Iteration {
    /// Records the number of returned batches, or `None` at the end, unless there is a later iteration.
    pub(crate) fn note(&self, given: Option<usize>) {
        let mut place = self.progress.lock();
        if place.iteration == self.number {
            place.current = place.current.and_then(|(epoch, _)| Some((epoch, given?)));
        }
    }
}

impl Drop for Iteration {
    fn drop(&mut self) {
        self.note(None);
    }
}
