//! [`StreamLoader`]: batches of a stream of items, such as the lines of a file.

use std::{
    any::Any,
    iter,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
};

use tensor_core::{Device, Error, Result, State, Stateful, caller_line};

use crate::{
    Collate, Draws,
    progress::{Iteration, Progress, Sizes},
    workers::panic_message,
};

const OP: &str = "StreamLoader";
/// The capacity of each queue, in batches: from the reader to each worker, and from each worker to the loop.
const QUEUED_BATCHES: usize = 2;

/// A stream of items of unknown number. `torch.utils.data.IterableDataset`.
pub trait IterableDataset: Send + Sync + 'static {
    /// The type of an item.
    type Item: Send + 'static;

    /// The items of an epoch, always in the same order for the same epoch. One thread reads them.
    fn items(&self, epoch: u64) -> Box<dyn Iterator<Item = Result<Self::Item>> + '_>;
}

impl<D: IterableDataset> IterableDataset for Arc<D> {
    type Item = D::Item;
    fn items(&self, epoch: u64) -> Box<dyn Iterator<Item = Result<D::Item>> + '_> {
        (**self).items(epoch)
    }
}

type Transform<T, U> = Arc<dyn Fn(T, &mut Draws) -> Result<U> + Send + Sync>;

/// Loads an [`IterableDataset`] in batches: one thread reads it and shuffles in a buffer, worker threads
/// transform and combine the items.
///
/// ```
/// use data::{IterableDataset, StreamLoader};
/// use tensor_core::Result;
///
/// /// The numbers from 0 on.
/// struct Numbers(u32);
///
/// impl IterableDataset for Numbers {
///     type Item = u32;
///     fn items(&self, _epoch: u64) -> Box<dyn Iterator<Item = Result<u32>> + '_> {
///         Box::new((0..self.0).map(Ok))
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let loader = StreamLoader::new(Numbers(10), 4)?
///     .shuffle(8, 42)
///     .map(|number, _| Ok(number as f32 / 2.0))
///     .workers(2)
///     .device(&backend_cpu::cpu());
/// let batches = loader.iter().collect::<Result<Vec<_>>>()?;
/// assert_eq!(batches.len(), 3);
/// let mut all = batches.iter().flat_map(|batch| batch.to_vec::<f32>().unwrap()).collect::<Vec<_>>();
/// all.sort_by(f32::total_cmp);
/// assert_eq!(all[9], 4.5);
/// # Ok(()) }
/// ```
///
/// The batches and their order do not depend on the number of workers.
pub struct StreamLoader<D: IterableDataset, U = <D as IterableDataset>::Item> {
    dataset: Arc<D>,
    transform: Transform<D::Item, U>,
    batch_size: usize,
    /// The size of the shuffle buffer, in items.
    buffer: usize,
    seed: u64,
    drop_last: bool,
    workers: usize,
    device: Option<Device>,
    progress: Progress,
}

impl<D: IterableDataset> StreamLoader<D> {
    /// Batches of `batch_size` items in the order of the stream; the last may be smaller.
    ///
    /// # Errors
    /// A batch size of 0.
    #[track_caller]
    pub fn new(dataset: D, batch_size: usize) -> Result<StreamLoader<D>> {
        let _line = caller_line();
        if batch_size == 0 {
            return Err(Error::invalid(OP, "batch size 0: give at least 1"));
        }
        Ok(StreamLoader {
            dataset: Arc::new(dataset),
            transform: Arc::new(|item, _| Ok(item)),
            batch_size,
            buffer: 1,
            seed: 0,
            drop_last: false,
            workers: 0,
            device: None,
            progress: Progress::default(),
        })
    }
}

impl<D: IterableDataset, U: Send + 'static> StreamLoader<D, U> {
    /// Applies `f` to each item, on the workers' threads. It may draw random numbers, which differ between
    /// items and epochs.
    pub fn map<V: Send + 'static>(
        self,
        f: impl Fn(U, &mut Draws) -> Result<V> + Send + Sync + 'static,
    ) -> StreamLoader<D, V> {
        let StreamLoader {
            dataset,
            transform,
            batch_size,
            buffer,
            seed,
            drop_last,
            workers,
            device,
            progress,
        } = self;
        let transform: Transform<D::Item, V> = Arc::new(move |item, draws| f(transform(item, draws)?, draws));
        StreamLoader { dataset, transform, batch_size, buffer, seed, drop_last, workers, device, progress }
    }

    /// Shuffles: each returned item is drawn at random from a buffer of `buffer` items, and the next item of
    /// the stream takes its place. A larger buffer mixes better. The order differs between epochs. The seed
    /// also determines the random numbers of [`StreamLoader::map`].
    pub fn shuffle(mut self, buffer: usize, seed: u64) -> StreamLoader<D, U> {
        (self.buffer, self.seed) = (buffer.max(1), seed);
        self
    }

    /// Leaves out the last batch if it is not full.
    pub fn drop_last(mut self, drop_last: bool) -> StreamLoader<D, U> {
        self.drop_last = drop_last;
        self
    }

    /// Makes batches on this many threads, beside the one that reads; with 0, the default, the reader makes
    /// them too, one ahead.
    pub fn workers(mut self, workers: usize) -> StreamLoader<D, U> {
        self.workers = workers;
        self
    }

    /// Makes batches on `device`.
    pub fn device(mut self, device: &Device) -> StreamLoader<D, U> {
        self.device = Some(device.clone());
        self
    }

    /// The epoch that the next [`StreamLoader::iter`] begins, which is the number of epochs begun so far.
    pub fn epoch(&self) -> u64 {
        self.progress.next_epoch()
    }

    /// The batches of one epoch, in order. An item that cannot be read or transformed makes its batch an
    /// `Err`; later batches still follow.
    pub fn iter(&self) -> StreamBatches<U>
    where
        U: Collate,
        U::Batch: 'static,
    {
        let (epoch, skipped, iteration) = self.progress.begin(usize::MAX);
        let source = Source {
            dataset: self.dataset.clone(),
            batch_size: self.batch_size,
            buffer: self.buffer,
            seed: self.seed,
            drop_last: self.drop_last,
            epoch,
            skipped,
        };
        let maker =
            Maker { transform: self.transform.clone(), device: self.device.clone(), seed: self.seed, epoch };
        let threads = Threads::start(source, maker, self.workers);
        StreamBatches { threads, skipped, given: 0, ended: false, iteration }
    }
}

impl<D: IterableDataset, U> StreamLoader<D, U> {
    fn sizes(&self) -> Sizes {
        [("batch_size", self.batch_size), ("buffer", self.buffer)]
    }
}

/// The position of the loader: `epoch`, and `batch` for the number of its batches that were returned; the
/// `seed`; and the `batch_size` and `buffer` that the position is valid for. A loader that resumes within an
/// epoch reads the earlier items again, and drops them without transforming them.
///
/// # Errors
/// Within an epoch, another batch size or buffer.
impl<D: IterableDataset, U> Stateful for StreamLoader<D, U> {
    fn state_dict(&self) -> State {
        let mut state = self.progress.state(usize::MAX, self.sizes());
        state.insert("seed", self.seed);
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        self.seed = self.progress.load(state, self.sizes(), |reader| reader.word("seed"))?;
        Ok(())
    }
}

/// The data that reads the items of an epoch in batches.
struct Source<D> {
    dataset: Arc<D>,
    batch_size: usize,
    buffer: usize,
    seed: u64,
    drop_last: bool,
    epoch: u64,
    skipped: usize,
}

/// The items of one batch, each with its number in the epoch, or the first error.
type Raw<T> = Result<Vec<(u64, T)>>;

impl<D: IterableDataset> Source<D> {
    /// Passes the items of all batches to `take`, in order, until it returns false.
    fn read(&self, mut take: impl FnMut(Raw<D::Item>) -> bool) {
        let mut draws = Draws::of(self.seed, self.epoch, u64::MAX);
        let mut items = self.dataset.items(self.epoch).fuse();
        let mut waiting: Vec<Result<D::Item>> = items.by_ref().take(self.buffer).collect();
        let mut number = 0;
        let mut shuffled = iter::from_fn(|| {
            if waiting.is_empty() {
                return None;
            }
            let at = draws.below(waiting.len() as u64) as usize;
            let item = match items.next() {
                Some(next) => std::mem::replace(&mut waiting[at], next),
                None => waiting.swap_remove(at),
            };
            number += 1;
            Some(item.map(|item| (number - 1, item)))
        });
        for index in 0.. {
            let batch: Vec<Result<(u64, D::Item)>> = shuffled.by_ref().take(self.batch_size).collect();
            if batch.is_empty() || (self.drop_last && batch.len() < self.batch_size) {
                return;
            }
            if index >= self.skipped && !take(batch.into_iter().collect()) {
                return;
            }
        }
    }
}

/// The data that makes a batch of items.
struct Maker<T, U> {
    transform: Transform<T, U>,
    device: Option<Device>,
    seed: u64,
    epoch: u64,
}

impl<T, U: Collate> Maker<T, U> {
    #[track_caller]
    fn batch(&self, raw: Raw<T>) -> Result<U::Batch> {
        let change = |(number, item)| (self.transform)(item, &mut Draws::of(self.seed, self.epoch, number));
        U::collate(raw?.into_iter().map(change).collect::<Result<Vec<_>>>()?, self.device.as_ref())
    }

    fn caught(&self, raw: Raw<T>) -> Result<U::Batch> {
        catch_unwind(AssertUnwindSafe(|| self.batch(raw)))
            .unwrap_or_else(|panic| Err(panicked("worker", panic.as_ref())))
    }
}

/// A reader and workers, which end when this is dropped. Worker b modulo the number of workers makes batch
/// b.
struct Threads<B> {
    queues: Vec<Receiver<Result<B>>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: Send + 'static> Threads<B> {
    /// Starts the threads. With no workers the reader makes the batches.
    fn start<D: IterableDataset, U>(source: Source<D>, maker: Maker<D::Item, U>, workers: usize) -> Threads<B>
    where
        U: Collate<Batch = B> + 'static,
    {
        let mut started = Threads { queues: Vec::new(), threads: Vec::new() };
        if workers == 0 {
            started.reader_alone(source, maker);
        } else {
            started.reader_and_workers(source, maker, workers);
        }
        if started.threads.len() < workers + 1 {
            // Without its threads no batch comes, which must not look like the end.
            let (sender, queue) = sync_channel(1);
            let _ =
                sender.send(Err(Error::invalid(OP, "a thread does not start; is the system out of them?")));
            started.queues = vec![queue];
        }
        started
    }

    fn spawn(&mut self, name: String, run: impl FnOnce() + Send + 'static) {
        self.threads.extend(Builder::new().name(name).spawn(run).ok());
    }

    fn reader_alone<D: IterableDataset, U>(&mut self, source: Source<D>, maker: Maker<D::Item, U>)
    where
        U: Collate<Batch = B> + 'static,
    {
        // A queue of capacity 0: the reader waits until its batch is taken.
        let (sender, queue) = sync_channel(0);
        self.queues.push(queue);
        self.spawn("stream-reader".into(), move || {
            let read = || source.read(|raw| sender.send(maker.caught(raw)).is_ok());
            if let Err(panic) = catch_unwind(AssertUnwindSafe(read)) {
                // The receiver may have been dropped.
                let _ = sender.send(Err(panicked("reader", panic.as_ref())));
            }
        });
    }

    fn reader_and_workers<D: IterableDataset, U>(
        &mut self,
        source: Source<D>,
        maker: Maker<D::Item, U>,
        workers: usize,
    ) where
        U: Collate<Batch = B> + 'static,
    {
        let maker = Arc::new(maker);
        let mut to_workers: Vec<SyncSender<Raw<D::Item>>> = Vec::new();
        for worker in 0..workers {
            let (raw_sender, raws) = sync_channel::<Raw<D::Item>>(QUEUED_BATCHES);
            let (sender, queue) = sync_channel(QUEUED_BATCHES);
            let maker = maker.clone();
            self.spawn(format!("stream-worker-{worker}"), move || {
                for raw in raws {
                    if sender.send(maker.caught(raw)).is_err() {
                        return;
                    }
                }
            });
            self.queues.push(queue);
            to_workers.push(raw_sender);
        }
        self.spawn("stream-reader".into(), move || {
            let mut next = 0;
            let mut hand_over = |raw| {
                next += 1;
                to_workers[(next - 1) % to_workers.len()].send(raw).is_ok()
            };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| source.read(&mut hand_over))) {
                hand_over(Err(panicked("reader", panic.as_ref())));
            }
        });
    }
}

/// The error for a thread that panicked.
fn panicked(who: &str, panic: &(dyn Any + Send)) -> Error {
    Error::invalid(OP, format!("the {who} panicked: {}", panic_message(panic)))
}

impl<B> Drop for Threads<B> {
    fn drop(&mut self) {
        // Closing the queues stops threads that wait to send a batch.
        self.queues.clear();
        for thread in self.threads.drain(..) {
            // A panic was reported as a batch already.
            let _ = thread.join();
        }
    }
}

/// The batches of one epoch, in order. See [`StreamLoader::iter`].
pub struct StreamBatches<U: Collate> {
    threads: Threads<U::Batch>,
    skipped: usize,
    given: usize,
    ended: bool,
    iteration: Iteration,
}

impl<U: Collate> Iterator for StreamBatches<U> {
    type Item = Result<U::Batch>;

    fn next(&mut self) -> Option<Result<U::Batch>> {
        if self.ended {
            return None;
        }
        let queue = self.given % self.threads.queues.len().max(1);
        let batch = self.threads.queues.get(queue).and_then(|queue| queue.recv().ok());
        match &batch {
            Some(_) => {
                self.given += 1;
                self.iteration.note(Some(self.skipped + self.given));
            }
            // The next worker in turn has no more batches, so all have ended.
            None => {
                self.ended = true;
                self.iteration.note(None);
            }
        }
        batch
    }
}
