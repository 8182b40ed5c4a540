//! [`DataLoader`]: a dataset in batches, epoch after epoch. How workers prefetch is in `workers.rs`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tensor_core::{Device, Error, Result};

use crate::{Collate, Dataset, shuffle::permutation, workers::Workers};

/// A dataset in batches. `torch.utils.data.DataLoader`.
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
    seed: Option<u64>,
    epoch: AtomicU64,
    drop_last: bool,
    workers: usize,
    device: Option<Device>,
}

impl<D: Dataset> DataLoader<D> {
    /// Batches of `batch_size` items in the dataset's order; the last may be smaller. An `Arc` of a
    /// dataset is one, so that two loaders can share it.
    ///
    /// # Errors
    /// A batch size of 0, or a dataset without items.
    #[track_caller]
    pub fn new(dataset: D, batch_size: usize) -> Result<DataLoader<D>> {
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
            seed: None,
            epoch: AtomicU64::new(0),
            drop_last: false,
            workers: 0,
            device: None,
        })
    }

    /// A random order, another one each epoch, the same ones for the same seed.
    pub fn shuffle(mut self, seed: u64) -> DataLoader<D> {
        self.seed = Some(seed);
        self
    }

    /// Leaves out a last batch that is not full.
    pub fn drop_last(mut self, drop_last: bool) -> DataLoader<D> {
        self.drop_last = drop_last;
        self
    }

    /// Prepares batches ahead of time on this many threads; with 0, the default, each when it is asked for. The batches and
    /// their order are the same.
    pub fn workers(mut self, workers: usize) -> DataLoader<D> {
        self.workers = workers;
        self
    }

    /// Makes batches on `device`, in place of where the dataset's tensors are.
    pub fn device(mut self, device: &Device) -> DataLoader<D> {
        self.device = Some(device.clone());
        self
    }

    /// The number of batches of an epoch.
    pub fn len(&self) -> usize {
        let items = self.dataset.len();
        if self.drop_last { items / self.batch_size } else { items.div_ceil(self.batch_size) }
    }

    /// Whether an epoch has no batches: all items are in a last one that is left out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The dataset.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The epoch that the next [`DataLoader::iter`] begins: how many were begun.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Goes to an epoch, so that training resumed there sees the same order.
    pub fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// One epoch's batches, in order. A batch that cannot be made is an `Err`, and those after it still come.
    ///
    /// Dropping the iterator ends its threads.
    pub fn iter(&self) -> Batches<D>
    where
        D: 'static,
        D::Item: Collate,
    {
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed);
        let order = match self.seed {
            Some(seed) => permutation(self.dataset.len(), seed, epoch),
            None => (0..self.dataset.len()).collect(),
        };
        let epoch = Arc::new(Epoch {
            dataset: self.dataset.clone(),
            order,
            batch_size: self.batch_size,
            batches: self.len(),
            device: self.device.clone(),
        });
        let workers = (self.workers > 0).then(|| Workers::start(&epoch, self.workers));
        Batches { epoch, next: 0, workers }
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

/// What it takes to make any batch of one epoch.
#[derive(Debug)]
pub(crate) struct Epoch<D> {
    dataset: Arc<D>,
    order: Vec<usize>,
    batch_size: usize,
    pub(crate) batches: usize,
    device: Option<Device>,
}

impl<D: Dataset> Epoch<D>
where
    D::Item: Collate,
{
    /// Batch `index`.
    #[track_caller]
    pub(crate) fn batch(&self, index: usize) -> Result<<D::Item as Collate>::Batch> {
        let start = index * self.batch_size;
        let end = (start + self.batch_size).min(self.order.len());
        self.dataset.batch(&self.order[start..end], self.device.as_ref())
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
