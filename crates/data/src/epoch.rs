//! The batches of one epoch: the order of the items, and the construction of a batch.

use std::sync::Arc;

use tensor_core::{Device, Result};

use crate::{Collate, Dataset};

/// The data that makes any batch of one epoch.
#[derive(Debug)]
pub(crate) struct Epoch<D> {
    pub(crate) dataset: Arc<D>,
    pub(crate) number: u64,
    pub(crate) order: Vec<usize>,
    pub(crate) batch_size: usize,
    /// The first batch: not 0 if an epoch is resumed.
    pub(crate) first: usize,
    pub(crate) batches: usize,
    pub(crate) device: Option<Device>,
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
        self.dataset.batch_in(self.number, &self.order[start..end], self.device.as_ref())
    }
}
