//! Threads that prepare batches ahead of time. Worker w of n makes the batches w, w + n, w + 2n … of the
//! remaining epoch, and returns them through its own short queue. So the order is kept, and no worker runs
//! far ahead.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
};

use tensor_core::{Error, Result};

use crate::{Collate, Dataset, epoch::Epoch};

/// The capacity of a worker's queue, in batches.
const QUEUED_BATCHES: usize = 2;

/// The threads of one epoch, which end when this is dropped.
pub(crate) struct Workers<B> {
    queues: Vec<Receiver<Result<B>>>,
    /// The first batch.
    first: usize,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Send + 'static> Workers<B> {
    /// Starts `count` threads, or one for each batch if there are fewer.
    pub(crate) fn start<D>(epoch: &Arc<Epoch<D>>, count: usize) -> Workers<B>
    where
        D: Dataset + 'static,
        D::Item: Collate<Batch = B>,
    {
        let count = count.clamp(1, (epoch.batches - epoch.first).max(1));
        let mut workers = Workers { queues: Vec::new(), first: epoch.first, threads: Vec::new() };
        for first in 0..count {
            let (sender, queue) = sync_channel(QUEUED_BATCHES);
            let epoch = epoch.clone();
            let run = move || work(&epoch, epoch.first + first, count, &sender);
            // If a thread does not start, its queue is closed and its batches are errors.
            if let Ok(thread) = Builder::new().name(format!("data-worker-{first}")).spawn(run) {
                workers.threads.push(thread);
            }
            workers.queues.push(queue);
        }
        workers
    }
}

impl<B> Workers<B> {
    /// Receives batch `index`; batches must be requested in order.
    #[track_caller]
    pub(crate) fn receive(&self, index: usize) -> Result<B> {
        let worker = (index - self.first) % self.queues.len();
        self.queues[worker].recv().unwrap_or_else(|_| {
            let message =
                format!("worker {worker} is gone, and with it batch {index}; is the system out of threads?");
            Err(Error::invalid("DataLoader", message))
        })
    }
}

impl<B> Drop for Workers<B> {
    fn drop(&mut self) {
        // Closing the queues stops threads that wait to send a batch.
        self.queues.clear();
        for thread in self.threads.drain(..) {
            // A panic was reported as a batch already.
            let _ = thread.join();
        }
    }
}

/// The loop of one worker.
fn work<D: Dataset>(
    epoch: &Epoch<D>,
    first: usize,
    step: usize,
    queue: &SyncSender<Result<<D::Item as Collate>::Batch>>,
) where
    D::Item: Collate,
{
    for index in (first..epoch.batches).step_by(step) {
        let batch = catch_unwind(AssertUnwindSafe(|| epoch.batch(index))).unwrap_or_else(|panic| {
            let message = format!("a worker panicked at batch {index}: {}", panic_message(panic.as_ref()));
            Err(Error::invalid("DataLoader", message))
        });
        if queue.send(batch).is_err() {
            return;
        }
    }
}

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
