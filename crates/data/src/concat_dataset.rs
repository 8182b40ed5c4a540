//! [`ConcatDataset`]: several datasets, one after the other.

use tensor_core::{Device, Error, Result};

use crate::{
    Collate, Dataset,
    dataset::{one_by_one, out_of_range},
};

/// The concatenation of several datasets. `torch.utils.data.ConcatDataset`.
///
/// ```
/// use data::{ConcatDataset, Dataset, ItemDataset};
/// # fn main() -> tensor_core::Result<()> {
/// let both = ConcatDataset::new([ItemDataset(vec!['a', 'b']), ItemDataset(vec!['c'])])?;
/// assert_eq!((both.len(), both.get(2)?), (3, 'c'));
/// # Ok(()) }
/// ```
///
/// Datasets of several types with the same items can be boxed as a trait of your own, `Box<dyn …>`, or
/// converted to one type by [`Dataset::map`].
#[derive(Clone, Debug)]
pub struct ConcatDataset<D> {
    parts: Vec<D>,
    /// The end of each part, in items.
    ends: Vec<usize>,
}

impl<D: Dataset> ConcatDataset<D> {
    /// Concatenates these datasets; some of them may be empty.
    ///
    /// # Errors
    /// No datasets, or more items than a `usize` can count.
    #[track_caller]
    pub fn new(parts: impl IntoIterator<Item = D>) -> Result<ConcatDataset<D>> {
        let parts: Vec<D> = parts.into_iter().collect();
        let mut ends = Vec::with_capacity(parts.len());
        let mut end = 0usize;
        for part in &parts {
            end = end
                .checked_add(part.len())
                .ok_or_else(|| Error::invalid("ConcatDataset", "more items than can be counted"))?;
            ends.push(end);
        }
        if parts.is_empty() {
            return Err(Error::invalid("ConcatDataset", "no datasets are given; give at least one"));
        }
        Ok(ConcatDataset { parts, ends })
    }

    /// The datasets.
    pub fn parts(&self) -> &[D] {
        &self.parts
    }

    /// The part that an item is in, and its index there.
    #[track_caller]
    fn place(&self, index: usize) -> Result<(usize, usize)> {
        let part = self.ends.partition_point(|end| *end <= index);
        if part == self.parts.len() {
            return Err(out_of_range(index, self.len()));
        }
        let start = if part == 0 { 0 } else { self.ends[part - 1] };
        Ok((part, index - start))
    }
}

impl<D: Dataset> Dataset for ConcatDataset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    #[track_caller]
    fn get(&self, index: usize) -> Result<D::Item> {
        let (part, place) = self.place(index)?;
        self.parts[part].get(place)
    }

    #[track_caller]
    fn get_in(&self, epoch: u64, index: usize) -> Result<D::Item> {
        let (part, place) = self.place(index)?;
        self.parts[part].get_in(epoch, place)
    }

    #[track_caller]
    fn batch_in(
        &self,
        epoch: u64,
        indices: &[usize],
        device: Option<&Device>,
    ) -> Result<<D::Item as Collate>::Batch>
    where
        D::Item: Collate,
    {
        one_by_one(self, epoch, indices, device)
    }
}
