//! [`DataLoader`]: batches of a dataset, epoch after epoch. `workers.rs` has the prefetching.

use std::sync::Arc;

use tensor_core::{Device, Error, Result, State, Stateful};

use crate::{
    Collate, Dataset, RandomSampler, Sampler, SequentialSampler,
    epoch::Epoch,
    progress::{Iteration, Progress, Sizes},
    workers::Workers,
};

/// Loads a dataset in batches. `torch.utils.data.DataLoader`.
///
/// ```
/// use data::{DataLoader, TensorDataset, ToDevice};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let dataset = TensorDataset::new((Tensor::ones([10, 4], &device)?, Tensor::zeros([10], &device)?))?;
/// let loader = DataLoader::new(dataset, 4)?.shuffle(42).workers(2);
/// assert_eq!(loader.len(), 3);
/// for batch in loader.iter() {
///     let (inputs, targets) = batch?.to(&device)?;
///     assert_eq!(inputs.dims()[0], targets.dims()[0]);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DataLoader<D> {
    dataset: Arc<D>,
    batch_size: usize,
    sampler: Box<dyn Sampler>,
    progress: Progress,
    drop_last: bool,
    workers: usize,
    device: Option<Device>,
}

impl<D: Dataset> DataLoader<D> {
    /// Batches of `batch_size` items in the dataset's order; the last may be smaller. An `Arc` of a dataset
    /// is a dataset, so that two loaders can share one. The loader's threads own the dataset, so it borrows
    /// nothing: closures in it are `move` closures.
    ///
    /// # Errors
    /// A batch size of 0, or a dataset without items.
    #[track_caller]
    pub fn new(dataset: D, batch_size: usize) -> Result<DataLoader<D>>
    where
        D: 'static,
    {
        if batch_size == 0 {
            return Err(Error::invalid("DataLoader", "batch size 0: give at least 1"));
        }
        if dataset.is_empty() {
            return Err(Error::invalid(
                "DataLoader",
                "the dataset is empty: there is nothing to make batches of",
            ));
        }
        Ok(DataLoader {
            dataset: Arc::new(dataset),
            batch_size,
            sampler: Box::new(SequentialSampler),
            progress: Progress::default(),
            drop_last: false,
            workers: 0,
            device: None,
        })
    }

    /// Shuffles the items: the order differs between epochs, and is the same for the same seed.
    pub fn shuffle(mut self, seed: u64) -> DataLoader<D> {
        self.sampler = Box::new(RandomSampler::new(seed));
        self
    }

    /// Takes the items that a sampler chooses, in its order.
    ///
    /// # Errors
    /// A sampler that does not fit the dataset, such as one with weights for another number of items.
    #[track_caller]
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Result<DataLoader<D>> {
        sampler.check(self.dataset.len())?;
        self.sampler = Box::new(sampler);
        Ok(self)
    }

    /// Leaves out the last batch if it is not full.
    pub fn drop_last(mut self, drop_last: bool) -> DataLoader<D> {
        self.drop_last = drop_last;
        self
    }

    /// Prepares batches ahead of time on this many threads; with 0, the default, each when it is requested.
    /// The batches and their order do not depend on it.
    pub fn workers(mut self, workers: usize) -> DataLoader<D> {
        self.workers = workers;
        self
    }

    /// Makes batches on `device`, instead of the device of the dataset's tensors.
    pub fn device(mut self, device: &Device) -> DataLoader<D> {
        self.device = Some(device.clone());
        self
    }

    /// The number of batches of an epoch.
    pub fn len(&self) -> usize {
        let items = self.sampler.len(self.dataset.len());
        if self.drop_last { items / self.batch_size } else { items.div_ceil(self.batch_size) }
    }

    /// Whether an epoch has no batches, because its only batch is not full and is left out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The epoch that the next [`DataLoader::iter`] begins, which is the number of epochs begun so far.
    pub fn epoch(&self) -> u64 {
        self.progress.next_epoch()
    }

    /// Moves to the beginning of an epoch, so that a resumed training sees the same order.
    pub fn set_epoch(&self, epoch: u64) {
        self.progress.go_to(epoch, 0);
    }

    /// The batches of one epoch, in order. A batch that cannot be made is an `Err`; later batches still
    /// follow.
    ///
    /// Dropping the iterator ends its threads, and the epoch.
    pub fn iter(&self) -> Batches<D>
    where
        D: 'static,
        D::Item: Collate,
    {
        let (epoch, first, iteration) = self.progress.begin(self.len());
        let epoch = Arc::new(Epoch {
            dataset: self.dataset.clone(),
            number: epoch,
            order: self.sampler.indices(self.dataset.len(), epoch),
            batch_size: self.batch_size,
            first,
            batches: self.len(),
            device: self.device.clone(),
        });
        let workers = (self.workers > 0).then(|| Workers::start(&epoch, self.workers));
        Batches { epoch, next: first, workers, iteration }
    }
}

impl<D: Dataset> DataLoader<D> {
    fn sizes(&self) -> Sizes {
        [("batch_size", self.batch_size), ("items", self.dataset.len())]
    }
}

/// The position of the loader: `epoch`, and `batch` for the number of its batches that were returned; the
/// `seed` of its sampler, if it has one; and the `batch_size` and number of `items` that the position is
/// valid for. Other settings of a sampler, such as weights, are not saved.
///
/// State taken while an iterator exists is the position within its epoch: the next [`DataLoader::iter`] of a
/// loader that loads it continues with the batch after the last one returned. Otherwise it is the beginning
/// of the next epoch.
///
/// # Errors
/// State from a loader that shuffles for one that does not, or the reverse; within an epoch also another
/// batch size or number of items.
impl<D: Dataset> Stateful for DataLoader<D> {
    fn state_dict(&self) -> State {
        let mut state = self.progress.state(self.len(), self.sizes());
        if let Some(seed) = self.sampler.seed() {
            state.insert("seed", seed);
        }
        state
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let seeded = self.sampler.seed().is_some();
        let seed = self.progress.load(state, self.sizes(), |reader| seeded.then(|| reader.word("seed")))?;
        if let Some(seed) = seed {
            self.sampler.set_seed(seed);
        }
        Ok(())
    }
}

impl<D: Dataset + 'static> IntoIterator for &DataLoader<D>
where
    D::Item: Collate,
{
    type Item = Result<<D::Item as Collate>::Batch>;
    type IntoIter = Batches<D>;
    fn into_iter(self) -> Batches<D> {
        self.iter()
    }
}

/// The batches of one epoch, in order. See [`DataLoader::iter`].
pub struct Batches<D: Dataset>
where
    D::Item: Collate,
{
    epoch: Arc<Epoch<D>>,
    next: usize,
    workers: Option<Workers<<D::Item as Collate>::Batch>>,
    iteration: Iteration,
}

impl<D: Dataset> Iterator for Batches<D>
where
    D::Item: Collate,
{
    type Item = Result<<D::Item as Collate>::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.epoch.batches {
            return None;
        }
        let index = self.next;
        self.next += 1;
        self.iteration.note(Some(self.next));
        Some(match &self.workers {
            Some(workers) => workers.receive(index),
            None => self.epoch.batch(index),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.epoch.batches - self.next;
        (left, Some(left))
    }
}

impl<D: Dataset> ExactSizeIterator for Batches<D> where D::Item: Collate {}
