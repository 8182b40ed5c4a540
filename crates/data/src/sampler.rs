//! Samplers: the items of an epoch and their order. An order depends on a seed and the number of the epoch
//! only, so a position within an epoch is two numbers.

use std::fmt::Debug;

use tensor_core::{Error, Result, caller_line};

use crate::shuffle::{Draws, permutation};

/// Chooses the items of an epoch and their order. `torch.utils.data.Sampler`.
///
/// Your own sampler is a struct with two methods:
///
/// ```
/// use data::{DataLoader, ItemDataset, Sampler};
///
/// /// Every second item, in reverse.
/// #[derive(Debug)]
/// struct Backwards;
///
/// impl Sampler for Backwards {
///     fn len(&self, items: usize) -> usize { items.div_ceil(2) }
///     fn indices(&self, items: usize, _epoch: u64) -> Vec<usize> { (0..items).step_by(2).rev().collect() }
/// }
///
/// # fn main() -> tensor_core::Result<()> {
/// let letters = ItemDataset("abcde".chars().map(String::from).collect());
/// let loader = DataLoader::new(letters, 2)?.sampler(Backwards)?;
/// assert_eq!(loader.iter().collect::<tensor_core::Result<Vec<_>>>()?, [vec!["e", "c"], vec!["a"]]);
/// # Ok(()) }
/// ```
#[allow(clippy::len_without_is_empty)]
pub trait Sampler: Debug + Send + Sync {
    /// The number of indices in an epoch, for a dataset of `items` items.
    fn len(&self, items: usize) -> usize;

    /// The indices of an epoch: [`Sampler::len`] of them, each below `items`.
    fn indices(&self, items: usize, epoch: u64) -> Vec<usize>;

    /// Checks that the sampler fits a dataset of `items` items.
    ///
    /// # Errors
    /// For instance, weights for another number of items.
    #[track_caller]
    fn check(&self, items: usize) -> Result<()> {
        let _ = items;
        Ok(())
    }

    /// The seed of its orders, if they are random. Loaders save and restore it.
    fn seed(&self) -> Option<u64> {
        None
    }

    /// Sets the seed, if there is one.
    fn set_seed(&mut self, seed: u64) {
        let _ = seed;
    }
}

/// All items in the dataset's order. The default of a loader. `torch.utils.data.SequentialSampler`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequentialSampler;

impl Sampler for SequentialSampler {
    fn len(&self, items: usize) -> usize {
        items
    }
    fn indices(&self, items: usize, _: u64) -> Vec<usize> {
        (0..items).collect()
    }
}

/// Items in a random order, which differs between epochs. `torch.utils.data.RandomSampler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomSampler {
    seed: u64,
    replacement: bool,
    num_samples: Option<usize>,
}

impl RandomSampler {
    /// Every item once per epoch.
    pub fn new(seed: u64) -> RandomSampler {
        RandomSampler { seed, replacement: false, num_samples: None }
    }

    /// Draws each index from all items, so that some repeat and others are left out.
    #[must_use]
    pub fn replacement(mut self, replacement: bool) -> RandomSampler {
        self.replacement = replacement;
        self
    }

    /// Sets the number of indices per epoch, which is the number of items by default. Without replacement, a
    /// greater number takes several orders, one after the other.
    #[must_use]
    pub fn num_samples(mut self, count: usize) -> RandomSampler {
        self.num_samples = Some(count);
        self
    }
}

impl Sampler for RandomSampler {
    fn len(&self, items: usize) -> usize {
        self.num_samples.unwrap_or(items)
    }

    fn indices(&self, items: usize, epoch: u64) -> Vec<usize> {
        let count = self.len(items);
        if self.replacement {
            let mut draws = Draws::of(self.seed, epoch, 0);
            return (0..count).map(|_| draws.below(items as u64) as usize).collect();
        }
        let mut indices = permutation(items, self.seed, epoch);
        let mut round = 0;
        while indices.len() < count && items > 0 {
            round += 1;
            // A separate seed for each round.
            indices.extend(permutation(items, Draws::of(self.seed, epoch, round).next_u64(), 0));
        }
        indices.truncate(count);
        indices
    }

    #[track_caller]
    fn check(&self, _: usize) -> Result<()> {
        some("RandomSampler", self.num_samples.unwrap_or(1))
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }
}

#[track_caller]
fn some(op: &'static str, count: usize) -> Result<()> {
    if count > 0 { Ok(()) } else { Err(Error::invalid(op, "0 samples an epoch: give at least 1")) }
}

/// Items drawn by weights, such as the reciprocal of the size of their class.
/// `torch.utils.data.WeightedRandomSampler`.
///
/// ```
/// use data::{DataLoader, ItemDataset, WeightedRandomSampler};
/// # fn main() -> tensor_core::Result<()> {
/// let items = ItemDataset(vec!["rare".to_string(), "common".into(), "common".into(), "never".into()]);
/// let sampler = WeightedRandomSampler::new(vec![2.0, 1.0, 1.0, 0.0], 1000, 42)?;
/// let loader = DataLoader::new(items, 1000)?.sampler(sampler)?;
/// let drawn = loader.iter().next().unwrap()?;
/// let rare = drawn.iter().filter(|item| *item == "rare").count();
/// assert!((400..600).contains(&rare) && !drawn.contains(&"never".to_string()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedRandomSampler {
    weights: Vec<f64>,
    num_samples: usize,
    replacement: bool,
    seed: u64,
}

impl WeightedRandomSampler {
    /// `num_samples` indices per epoch, each drawn from all items by their weights, which need not add up to
    /// 1.
    ///
    /// # Errors
    /// No weights, a weight that is negative, NaN or infinite, none above 0, or no samples.
    #[track_caller]
    pub fn new(weights: Vec<f64>, num_samples: usize, seed: u64) -> Result<WeightedRandomSampler> {
        let _line = caller_line();
        const OP: &str = "WeightedRandomSampler";
        some(OP, num_samples)?;
        if let Some(at) = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
            let message = format!("weight {at} is {}: give finite numbers of 0 or more", weights[at]);
            return Err(Error::invalid(OP, message));
        }
        let sum: f64 = weights.iter().sum();
        if !(sum > 0.0 && sum.is_finite()) {
            let message = format!("{} weights that add up to {sum}: some must be above 0", weights.len());
            return Err(Error::invalid(OP, message));
        }
        Ok(WeightedRandomSampler { weights, num_samples, replacement: true, seed })
    }

    /// Draws no item twice in an epoch: each is drawn by the weights of the remaining items.
    ///
    /// # Errors
    /// More samples than there are weights above 0.
    #[track_caller]
    pub fn without_replacement(mut self) -> Result<WeightedRandomSampler> {
        let _line = caller_line();
        let most = self.weights.iter().filter(|weight| **weight > 0.0).count();
        if self.num_samples > most {
            let message =
                format!("{} samples without replacement of {most} weights above 0", self.num_samples);
            return Err(Error::invalid("WeightedRandomSampler", message));
        }
        self.replacement = false;
        Ok(self)
    }
}

impl Sampler for WeightedRandomSampler {
    fn len(&self, _: usize) -> usize {
        self.num_samples
    }

    fn indices(&self, _: usize, epoch: u64) -> Vec<usize> {
        let mut draws = Draws::of(self.seed, epoch, 0);
        if self.replacement {
            let mut sum = 0.0;
            let sums: Vec<f64> = self
                .weights
                .iter()
                .map(|weight| {
                    sum += weight;
                    sum
                })
                .collect();
            // A rounded draw may equal the sum.
            let last = self.weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
            let draw = |_| {
                let place = draws.uniform() * sum;
                sums.partition_point(|below| *below <= place).min(last)
            };
            return (0..self.num_samples).map(draw).collect();
        }
        // Efraimidis and Spirakis (2006): the items with the shortest exponentially distributed waiting
        // times.
        let mut waits: Vec<(f64, usize)> = Vec::new();
        for (index, weight) in self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            waits.push((-(1.0 - draws.uniform()).ln() / weight, index));
        }
        waits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        waits.into_iter().take(self.num_samples).map(|(_, index)| index).collect()
    }

    #[track_caller]
    fn check(&self, items: usize) -> Result<()> {
        if self.weights.len() == items {
            return Ok(());
        }
        let message = format!("{} weights for {items} items: give one for each", self.weights.len());
        Err(Error::invalid("WeightedRandomSampler", message))
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }
}

/// Some items in a random order, which differs between epochs. `torch.utils.data.SubsetRandomSampler`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsetRandomSampler {
    indices: Vec<usize>,
    seed: u64,
}

impl SubsetRandomSampler {
    /// The items at `indices`.
    pub fn new(indices: Vec<usize>, seed: u64) -> SubsetRandomSampler {
        SubsetRandomSampler { indices, seed }
    }
}

impl Sampler for SubsetRandomSampler {
    fn len(&self, _: usize) -> usize {
        self.indices.len()
    }

    fn indices(&self, _: usize, epoch: u64) -> Vec<usize> {
        permutation(self.indices.len(), self.seed, epoch).into_iter().map(|at| self.indices[at]).collect()
    }

    #[track_caller]
    fn check(&self, items: usize) -> Result<()> {
        let _line = caller_line();
        some("SubsetRandomSampler", self.indices.len())?;
        match self.indices.iter().find(|&&index| index >= items) {
            Some(&index) => Err(crate::dataset::out_of_range(index, items)),
            None => Ok(()),
        }
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }
}

/// Groups items of similar lengths in batches, so that there is little padding; batches are in a random
/// order, which differs between epochs. Known as bucketing in torchtext and fairseq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSampler {
    lengths: Vec<usize>,
    batch_size: usize,
    seed: u64,
}

impl BucketSampler {
    /// Items of these lengths, in batches of `batch_size`, which must be the loader's. A smaller batch comes
    /// last.
    ///
    /// # Errors
    /// A batch size of 0.
    #[track_caller]
    pub fn new(lengths: Vec<usize>, batch_size: usize, seed: u64) -> Result<BucketSampler> {
        if batch_size == 0 {
            return Err(Error::invalid("BucketSampler", "batch size 0: give at least 1"));
        }
        Ok(BucketSampler { lengths, batch_size, seed })
    }
}

impl Sampler for BucketSampler {
    fn len(&self, _: usize) -> usize {
        self.lengths.len()
    }

    fn indices(&self, _: usize, epoch: u64) -> Vec<usize> {
        // Equal lengths stay in their random order.
        let mut order = permutation(self.lengths.len(), self.seed, epoch);
        order.sort_by_key(|&index| self.lengths[index]);
        let mut batches: Vec<&[usize]> = order.chunks(self.batch_size).collect();
        let last = batches.pop_if(|batch| batch.len() < self.batch_size);
        let places = permutation(batches.len(), Draws::of(self.seed, epoch, 1).next_u64(), 0);
        let mut indices: Vec<usize> = places.into_iter().flat_map(|at| batches[at]).copied().collect();
        indices.extend(last.unwrap_or_default());
        indices
    }

    #[track_caller]
    fn check(&self, items: usize) -> Result<()> {
        if self.lengths.len() == items {
            return Ok(());
        }
        let message = format!("{} lengths for {items} items: give one for each", self.lengths.len());
        Err(Error::invalid("BucketSampler", message))
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }
}

/// The share of each epoch for one of several processes. `torch.utils.data.DistributedSampler`.
///
/// Process `rank` of `replicas` has the indices `rank`, `rank + replicas`, … of the order, which is the same
/// in all of them. To give each process the same number, the order is extended from its beginning, or
/// truncated with [`DistributedSampler::drop_last`]. The epoch is the loader's: `set_epoch`, or one for each
/// `iter`.
///
/// ```
/// use data::{DistributedSampler, Sampler};
/// # fn main() -> tensor_core::Result<()> {
/// let part = |rank| Ok::<_, tensor_core::Error>(DistributedSampler::new(3, rank)?.indices(7, 0));
/// assert_eq!([part(0)?, part(1)?, part(2)?], [[0, 3, 6], [1, 4, 0], [2, 5, 1]]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DistributedSampler {
    inner: Box<dyn Sampler>,
    replicas: usize,
    rank: usize,
    drop_last: bool,
}

impl DistributedSampler {
    /// The share of process `rank`, from 0 on, of `replicas` processes, in the dataset's order.
    ///
    /// # Errors
    /// No replicas, or a rank that is not below their number.
    #[track_caller]
    pub fn new(replicas: usize, rank: usize) -> Result<DistributedSampler> {
        if rank >= replicas {
            let message = format!("rank {rank} of {replicas} replicas: give 0 to one less than there are");
            return Err(Error::invalid("DistributedSampler", message));
        }
        Ok(DistributedSampler { inner: Box::new(SequentialSampler), replicas, rank, drop_last: false })
    }

    /// Takes the share of a random order, which differs between epochs. All processes must use the same
    /// seed.
    #[must_use]
    pub fn shuffle(self, seed: u64) -> DistributedSampler {
        self.of(RandomSampler::new(seed))
    }

    /// Takes the share of the order of another sampler, with the same seed in all processes.
    #[must_use]
    pub fn of(mut self, sampler: impl Sampler + 'static) -> DistributedSampler {
        self.inner = Box::new(sampler);
        self
    }

    /// Leaves out indices at the end, instead of repeating some from the beginning.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> DistributedSampler {
        self.drop_last = drop_last;
        self
    }
}

impl Sampler for DistributedSampler {
    fn len(&self, items: usize) -> usize {
        let all = self.inner.len(items);
        if self.drop_last { all / self.replicas } else { all.div_ceil(self.replicas) }
    }

    fn indices(&self, items: usize, epoch: u64) -> Vec<usize> {
        let count = self.len(items);
        let order = self.inner.indices(items, epoch);
        let all = order.iter().cycle().skip(self.rank).step_by(self.replicas);
        all.take(count).copied().collect()
    }

    #[track_caller]
    fn check(&self, items: usize) -> Result<()> {
        self.inner.check(items)?;
        if self.len(items) > 0 {
            return Ok(());
        }
        let message = format!(
            "{} indices are too few for {} replicas with drop_last",
            self.inner.len(items),
            self.replicas
        );
        Err(Error::invalid("DistributedSampler", message))
    }

    fn seed(&self) -> Option<u64> {
        self.inner.seed()
    }

    fn set_seed(&mut self, seed: u64) {
        self.inner.set_seed(seed);
    }
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
