//! How far a loader and its latest iterator are: what every kind of loader saves and goes on from.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tensor_core::{Result, State, StateReader};

/// Shared by a loader and its iterators.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<Place>>);

#[derive(Debug, Default)]
struct Place {
    /// The epoch that the next iterator begins, and the batch of it that comes first.
    next_epoch: u64,
    first_batch: usize,
    /// The epoch of the latest iterator while it has batches, and how many of them were given out.
    current: Option<(u64, usize)>,
    /// Which iterator is the latest.
    iteration: u64,
}

/// Sizes to which a place within an epoch belongs: names and values.
pub(crate) type Sizes = [(&'static str, usize); 2];

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Place> {
        // It is only ever changed whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The epoch that the next iterator begins.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.lock().next_epoch
    }

    /// Goes to a batch of an epoch. An iterator that still lives is no longer the one that counts.
    pub(crate) fn go_to(&self, epoch: u64, batch: usize) {
        let mut place = self.lock();
        (place.next_epoch, place.first_batch, place.current) = (epoch, batch, None);
        place.iteration += 1;
    }

    /// Begins an epoch of at most so many batches: its number, the batch that comes first, and what follows
    /// how far it gets.
    pub(crate) fn begin(&self, batches: usize) -> (u64, usize, Iteration) {
        let mut place = self.lock();
        let (epoch, first) = (place.next_epoch, place.first_batch.min(batches));
        (place.next_epoch, place.first_batch) = (epoch + 1, 0);
        place.current = Some((epoch, first));
        place.iteration += 1;
        (epoch, first, Iteration { progress: self.clone(), number: place.iteration })
    }

    /// The state of a loader whose epochs have at most so many batches.
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

    /// Takes over a [`Progress::state`]; `more` reads what else is in it.
    ///
    /// # Errors
    /// Within an epoch, other sizes; what [`StateReader::finish`] tells.
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

/// An epoch that was begun. Dropped, it has ended.
#[derive(Debug)]
pub(crate) struct Iteration {
    progress: Progress,
    number: u64,
}

impl Iteration {
    /// Notes how many batches were given out, or `None` at the end, unless there is a later iteration.
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
