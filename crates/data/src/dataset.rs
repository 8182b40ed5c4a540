//! [`Dataset`]: items by index; functions of them, subsets and random splits.

use std::sync::Arc;

use tensor_core::{Device, Error, ErrorKind, Result, caller_line};

use crate::{
    Collate,
    shuffle::{Draws, permutation},
};

/// Items by index, such as an image with its label. `torch.utils.data.Dataset`.
pub trait Dataset: Send + Sync {
    /// The type of an item.
    type Item: Send;

    /// The number of items.
    fn len(&self) -> usize;

    /// The item at `index`, which is below [`Dataset::len`].
    ///
    /// # Errors
    /// An index past the end, or a failure to read the item.
    #[track_caller]
    fn get(&self, index: usize) -> Result<Self::Item>;

    /// Whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items at `indices` as one batch, on `device` if one is given. A dataset with contiguous items
    /// gathers them faster than one at a time.
    ///
    /// # Errors
    /// The error of the first item that cannot be read, or items that cannot be combined.
    #[track_caller]
    fn batch(&self, indices: &[usize], device: Option<&Device>) -> Result<<Self::Item as Collate>::Batch>
    where
        Self::Item: Collate,
    {
        let items = indices.iter().map(|&index| self.get(index)).collect::<Result<Vec<_>>>()?;
        Self::Item::collate(items, device)
    }

    /// The item at `index` in epoch `epoch`, for datasets that differ between epochs, as with random
    /// augmentation.
    ///
    /// # Errors
    /// As for [`Dataset::get`].
    #[track_caller]
    fn get_in(&self, epoch: u64, index: usize) -> Result<Self::Item> {
        let _ = epoch;
        self.get(index)
    }

    /// The items at `indices` in epoch `epoch`, as one batch. Loaders call this method.
    ///
    /// # Errors
    /// As for [`Dataset::batch`].
    #[track_caller]
    fn batch_in(
        &self,
        epoch: u64,
        indices: &[usize],
        device: Option<&Device>,
    ) -> Result<<Self::Item as Collate>::Batch>
    where
        Self::Item: Collate,
    {
        let _ = epoch;
        self.batch(indices, device)
    }

    /// A dataset with `f` applied to each item. `f` is called when an item is read, on the loader's threads.
    ///
    /// ```
    /// use data::{DataLoader, Dataset, ItemDataset};
    /// # fn main() -> tensor_core::Result<()> {
    /// let squares = ItemDataset(vec![1.0f32, 2.0, 3.0]).map(|x| Ok(x * x));
    /// assert_eq!(squares.get(2)?, 9.0);
    /// let batch = DataLoader::new(squares, 3)?.device(&backend_cpu::cpu()).iter().next().unwrap()?;
    /// assert_eq!(batch.to_vec::<f32>()?, [1.0, 4.0, 9.0]);
    /// # Ok(()) }
    /// ```
    fn map<T: Send, F: Fn(Self::Item) -> Result<T> + Send + Sync>(self, f: F) -> Map<Self, F>
    where
        Self: Sized,
    {
        Map { dataset: self, f }
    }

    /// As [`Dataset::map`], with random numbers for `f`, as for augmentation: they differ between items and
    /// epochs, and are the same for the same seed, whatever the number of workers.
    ///
    /// ```
    /// use data::{Dataset, ItemDataset};
    /// # fn main() -> tensor_core::Result<()> {
    /// let noisy = ItemDataset(vec![1.0, 2.0]).map_random(42, |x, draws| Ok(x + draws.uniform()));
    /// assert!(noisy.get_in(0, 1)? != noisy.get_in(1, 1)? && noisy.get_in(1, 1)? == noisy.get_in(1, 1)?);
    /// # Ok(()) }
    /// ```
    fn map_random<T: Send, F: Fn(Self::Item, &mut Draws) -> Result<T> + Send + Sync>(
        self,
        seed: u64,
        f: F,
    ) -> MapRandom<Self, F>
    where
        Self: Sized,
    {
        MapRandom { dataset: self, seed, f }
    }
}

macro_rules! through {
    ($($pointer:ty),*) => {$(
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            type Item = D::Item;
            fn len(&self) -> usize { (**self).len() }
            #[track_caller]
            fn get(&self, index: usize) -> Result<D::Item> { (**self).get(index) }
            #[track_caller]
            fn batch(&self, indices: &[usize], device: Option<&Device>) -> Result<<D::Item as Collate>::Batch>
            where
                D::Item: Collate,
            {
                (**self).batch(indices, device)
            }
            #[track_caller]
            fn get_in(&self, epoch: u64, index: usize) -> Result<D::Item> { (**self).get_in(epoch, index) }
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
                (**self).batch_in(epoch, indices, device)
            }
        }
    )*};
}
through!(&D, Arc<D>, Box<D>);

/// Items in memory, such as pairs of a string and a label.
#[derive(Clone, Debug)]
pub struct ItemDataset<T>(pub Vec<T>);

impl<T: Clone + Send + Sync> Dataset for ItemDataset<T> {
    type Item = T;
    fn len(&self) -> usize {
        self.0.len()
    }
    #[track_caller]
    fn get(&self, index: usize) -> Result<T> {
        self.0.get(index).cloned().ok_or_else(|| out_of_range(index, self.0.len()))
    }
}

pub(crate) fn out_of_range(index: usize, size: usize) -> Error {
    Error::new(ErrorKind::IndexOutOfRange { op: "Dataset::get", index: index as i64, axis: 0, size })
}

/// A dataset whose items are the results of a function. See [`Dataset::map`].
#[derive(Clone, Debug)]
pub struct Map<D, F> {
    dataset: D,
    f: F,
}

/// A dataset whose items are the results of a function that draws random numbers. See
/// [`Dataset::map_random`].
#[derive(Clone, Debug)]
pub struct MapRandom<D, F> {
    dataset: D,
    seed: u64,
    f: F,
}

/// A batch of items that are computed one by one in an epoch.
#[track_caller]
pub(crate) fn one_by_one<D: Dataset>(
    dataset: &D,
    epoch: u64,
    indices: &[usize],
    device: Option<&Device>,
) -> Result<<D::Item as Collate>::Batch>
where
    D::Item: Collate,
{
    let items = indices.iter().map(|&index| dataset.get_in(epoch, index)).collect::<Result<Vec<_>>>()?;
    D::Item::collate(items, device)
}

impl<D: Dataset, T: Send, F: Fn(D::Item) -> Result<T> + Send + Sync> Dataset for Map<D, F> {
    type Item = T;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    #[track_caller]
    fn get(&self, index: usize) -> Result<T> {
        (self.f)(self.dataset.get(index)?)
    }

    #[track_caller]
    fn get_in(&self, epoch: u64, index: usize) -> Result<T> {
        (self.f)(self.dataset.get_in(epoch, index)?)
    }

    #[track_caller]
    fn batch_in(&self, epoch: u64, indices: &[usize], device: Option<&Device>) -> Result<T::Batch>
    where
        T: Collate,
    {
        one_by_one(self, epoch, indices, device)
    }
}

impl<D: Dataset, T: Send, F: Fn(D::Item, &mut Draws) -> Result<T> + Send + Sync> Dataset for MapRandom<D, F> {
    type Item = T;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    /// The item of epoch 0.
    #[track_caller]
    fn get(&self, index: usize) -> Result<T> {
        self.get_in(0, index)
    }

    #[track_caller]
    fn get_in(&self, epoch: u64, index: usize) -> Result<T> {
        (self.f)(self.dataset.get_in(epoch, index)?, &mut Draws::of(self.seed, epoch, index as u64))
    }

    #[track_caller]
    fn batch_in(&self, epoch: u64, indices: &[usize], device: Option<&Device>) -> Result<T::Batch>
    where
        T: Collate,
    {
        one_by_one(self, epoch, indices, device)
    }
}

/// Some items of a dataset, in the given order. `torch.utils.data.Subset`.
#[derive(Clone, Debug)]
pub struct Subset<D> {
    dataset: Arc<D>,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The items at `indices`, which may repeat.
    ///
    /// # Errors
    /// An index past the end.
    #[track_caller]
    pub fn new(dataset: D, indices: Vec<usize>) -> Result<Subset<D>> {
        let _line = caller_line();
        let dataset = Arc::new(dataset);
        let size = dataset.len();
        match indices.iter().find(|&&index| index >= size) {
            Some(&index) => Err(out_of_range(index, size)),
            None => Ok(Subset { dataset, indices }),
        }
    }

    /// The indices of the items in the whole dataset.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    #[track_caller]
    fn place(&self, index: usize) -> Result<usize> {
        self.indices.get(index).copied().ok_or_else(|| out_of_range(index, self.indices.len()))
    }

    #[track_caller]
    fn places(&self, indices: &[usize]) -> Result<Vec<usize>> {
        indices.iter().map(|&index| self.place(index)).collect()
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;
    fn len(&self) -> usize {
        self.indices.len()
    }
    #[track_caller]
    fn get(&self, index: usize) -> Result<D::Item> {
        self.dataset.get(self.place(index)?)
    }
    #[track_caller]
    fn batch(&self, indices: &[usize], device: Option<&Device>) -> Result<<D::Item as Collate>::Batch>
    where
        D::Item: Collate,
    {
        self.dataset.batch(&self.places(indices)?, device)
    }
    #[track_caller]
    fn get_in(&self, epoch: u64, index: usize) -> Result<D::Item> {
        self.dataset.get_in(epoch, self.place(index)?)
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
        self.dataset.batch_in(epoch, &self.places(indices)?, device)
    }
}

/// Splits a dataset into random parts of these lengths, the same parts for the same seed.
/// `torch.utils.data.random_split`.
///
/// # Errors
/// Lengths that do not add up to the dataset's.
#[track_caller]
pub fn random_split<D: Dataset>(dataset: D, lengths: &[usize], seed: u64) -> Result<Vec<Subset<D>>> {
    let _line = caller_line();
    let dataset = Arc::new(dataset);
    let total = lengths.iter().try_fold(0usize, |sum, &length| sum.checked_add(length));
    if total != Some(dataset.len()) {
        let message =
            format!("lengths {lengths:?} do not add up to the {} items of the dataset", dataset.len());
        return Err(Error::invalid("random_split", message));
    }
    let order = permutation(dataset.len(), seed, 0);
    let mut rest = order.as_slice();
    let mut parts = Vec::with_capacity(lengths.len());
    for &length in lengths {
        let (part, later) = rest.split_at(length);
        parts.push(Subset { dataset: dataset.clone(), indices: part.to_vec() });
        rest = later;
    }
    Ok(parts)
}

/// Splits a dataset into random parts by fractions that add up to 1; items that are left over by rounding
/// down go to the first parts, one each, as in PyTorch.
///
/// # Errors
/// Fractions outside [0, 1], or that do not add up to 1.
#[track_caller]
pub fn random_split_fractions<D: Dataset>(
    dataset: D,
    fractions: &[f64],
    seed: u64,
) -> Result<Vec<Subset<D>>> {
    let _line = caller_line();
    let sum: f64 = fractions.iter().sum();
    if fractions.iter().any(|f| !(0.0..=1.0).contains(f)) || (sum - 1.0).abs() > 1e-6 {
        let message = format!("fractions {fractions:?} must each be from 0 to 1 and add up to 1, not {sum}");
        return Err(Error::invalid("random_split", message));
    }
    let mut lengths: Vec<usize> = fractions.iter().map(|f| (dataset.len() as f64 * f) as usize).collect();
    let left = dataset.len().saturating_sub(lengths.iter().sum());
    let parts = lengths.len();
    (0..left).for_each(|i| lengths[i % parts] += 1);
    random_split(dataset, &lengths, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_random_whole_and_repeatable() {
        let all = ItemDataset((0..10).collect::<Vec<i32>>());
        let parts = random_split(all.clone(), &[7, 3], 1).unwrap();
        let mut seen: Vec<usize> = parts.iter().flat_map(|p| p.indices().to_vec()).collect();
        assert_ne!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(random_split(all.clone(), &[7, 3], 1).unwrap()[0].indices(), parts[0].indices());
        assert_ne!(random_split(all.clone(), &[7, 3], 2).unwrap()[0].indices(), parts[0].indices());
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!(parts[1].get(0).unwrap(), parts[1].indices()[0] as i32);
        assert!(parts[1].get(3).is_err() && Subset::new(&all, vec![10]).is_err());
        assert!(random_split(all, &[7, 4], 1).is_err());
    }

    #[test]
    fn fractions_round_down_and_share_what_is_left() {
        let lengths = |f: &[f64]| {
            let parts = random_split_fractions(ItemDataset(vec![0; 10]), f, 0)?;
            Ok::<_, Error>(parts.iter().map(Dataset::len).collect::<Vec<_>>())
        };
        assert_eq!(lengths(&[0.25, 0.25, 0.5]).unwrap(), [3, 2, 5]);
        assert_eq!(lengths(&[1.0]).unwrap(), [10]);
        for bad in [&[0.5, 0.4][..], &[1.5, -0.5], &[f64::NAN, 1.0], &[]] {
            assert!(lengths(bad).is_err());
        }
    }
}
