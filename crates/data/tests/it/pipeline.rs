//! Samplers in loaders, composed datasets, streams: the same batches in the same order whatever the number
//! of workers, and when resumed in the middle of an epoch.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use data::{
    BucketSampler, ConcatDataset, DataLoader, Dataset, DistributedSampler, ItemDataset, IterableDataset,
    RandomSampler, Sampler, StreamLoader, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler,
};
use tensor_core::{Error, Result, Stateful, Tensor};

use crate::common::device;

fn words(n: usize) -> ItemDataset<String> {
    ItemDataset((0..n).map(|i| i.to_string()).collect())
}

fn all<B>(batches: impl Iterator<Item = Result<B>>) -> Vec<B> {
    batches.map(Result::unwrap).collect()
}

type Loader = DataLoader<ItemDataset<String>>;

/// Functions that add each sampler.
fn samplers() -> Vec<fn(Loader) -> Result<Loader>> {
    vec![
        |loader| loader.sampler(RandomSampler::new(1).replacement(true).num_samples(30)),
        |loader| {
            let weights = (0..23).map(f64::from).collect();
            loader.sampler(WeightedRandomSampler::new(weights, 17, 2)?.without_replacement()?)
        },
        |loader| loader.sampler(SubsetRandomSampler::new((3..20).collect(), 3)),
        |loader| loader.sampler(DistributedSampler::new(2, 1)?.shuffle(4)),
        |loader| loader.sampler(BucketSampler::new((0..23).map(|i| i % 5).collect(), 4, 5)?),
    ]
}

#[test]
fn samplers_choose_the_same_for_any_number_of_workers_and_from_the_middle_on() {
    for sampled in samplers() {
        let loader = |workers| sampled(DataLoader::new(words(23), 4).unwrap().workers(workers)).unwrap();
        let whole = loader(0);
        let epochs: Vec<Vec<Vec<String>>> = (0..3).map(|_| all(whole.iter())).collect();
        assert!(epochs[0] != epochs[1] && epochs[0].len() == whole.len());
        for workers in [1, 3] {
            let stopped = loader(workers);
            assert_eq!(all(stopped.iter()), epochs[0]);
            let mut batches = stopped.iter();
            assert_eq!(all(batches.by_ref().take(2)), epochs[1][..2]);
            let state = stopped.state_dict();
            drop(batches);
            // A loader with another seed takes over the saved seed.
            let mut resumed = loader(workers);
            resumed.load_state_dict(&state).unwrap();
            assert_eq!(all(resumed.iter()), epochs[1][2..]);
            assert_eq!(all(resumed.iter()), epochs[2]);
        }
    }
}

#[test]
fn samplers_that_do_not_fit_are_told() {
    let loader = || DataLoader::new(words(5), 2).unwrap();
    for (error, part) in [
        (loader().sampler(WeightedRandomSampler::new(vec![1.0; 4], 3, 0).unwrap()), "4 weights for 5 items"),
        (loader().sampler(SubsetRandomSampler::new(vec![5], 0)), "index 5"),
        (loader().sampler(SubsetRandomSampler::new(vec![], 0)), "0 samples"),
        (loader().sampler(BucketSampler::new(vec![1; 6], 2, 0).unwrap()), "6 lengths for 5 items"),
        (loader().sampler(DistributedSampler::new(6, 0).unwrap().drop_last(true)), "too few"),
    ] {
        let message = error.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    /// A sampler that returns an index out of range.
    #[derive(Debug)]
    struct Beyond;
    impl Sampler for Beyond {
        fn len(&self, items: usize) -> usize {
            items
        }
        fn indices(&self, items: usize, _: u64) -> Vec<usize> {
            vec![items; items]
        }
    }
    for workers in [0, 2] {
        let loader = loader().sampler(Beyond).unwrap().workers(workers);
        assert!(loader.iter().all(|batch| batch.unwrap_err().to_string().contains("index 5")));
    }
}

/// All ranks together have every item, and the state of one fits the loaders of the others.
#[test]
fn the_parts_of_several_processes_go_on_together() {
    let loader = |rank| {
        let sampler = DistributedSampler::new(3, rank).unwrap().shuffle(8);
        DataLoader::new(words(24), 2).unwrap().sampler(sampler).unwrap()
    };
    let mut seen: Vec<String> = (0..3).flat_map(|rank| all(loader(rank).iter()).concat()).collect();
    seen.sort_by_key(|word| word.parse::<usize>().unwrap());
    assert_eq!(seen, words(24).0);
    let first = loader(0);
    let mut batches = first.iter();
    drop(batches.next());
    // Rank 2 resumes from the state of rank 0.
    let mut last = loader(2);
    last.load_state_dict(&first.state_dict()).unwrap();
    assert_eq!(all(last.iter()), all(loader(2).iter())[1..]);
}

#[test]
fn maps_are_the_same_from_any_number_of_workers() {
    let device = device();
    let rows = Tensor::arange(0.0, 20.0, 1.0, &device).unwrap().reshape((10, 2)).unwrap();
    let loader = |workers: usize| {
        let noisy = TensorDataset::new(rows.clone()).unwrap().map_random(5, |row: Tensor, draws| {
            // Threads finish in any order.
            sleep(Duration::from_micros(draws.clone().below(500)));
            Ok((row.add_scalar(draws.uniform()), draws.chance(0.5)))
        });
        let both =
            ConcatDataset::new([Subset::new(Arc::new(noisy), (0..10).rev().collect()).unwrap()]).unwrap();
        DataLoader::new(both.map(|(row, flag)| Ok((row.mul_scalar(2.0), i32::from(flag)))), 3)
            .unwrap()
            .shuffle(1)
            .workers(workers)
    };
    let epochs = |loader: DataLoader<_>| {
        let read =
            |(rows, flags): (Tensor, Tensor)| (rows.to_f64_vec().unwrap(), flags.to_vec::<i32>().unwrap());
        (0..2).map(|_| all(loader.iter()).into_iter().map(read).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let expected = epochs(loader(0));
    // Each epoch has its own noise.
    let sum = |epoch: &[(Vec<f64>, Vec<i32>)]| epoch.iter().flat_map(|(rows, _)| rows).sum::<f64>();
    assert!(sum(&expected[0]) != sum(&expected[1]) && sum(&expected[0]) > 380.0);
    assert!([1, 2, 5].into_iter().all(|workers| epochs(loader(workers)) == expected));
}

#[test]
fn datasets_one_after_the_other() {
    let parts = || [words(2), words(0), words(3)];
    let both = ConcatDataset::new(parts()).unwrap();
    assert_eq!((both.len(), both.parts().len()), (5, 3));
    assert_eq!(all(DataLoader::new(both, 5).unwrap().iter()), [["0", "1", "0", "1", "2"]]);
    let both = ConcatDataset::new(parts()).unwrap();
    assert!(both.get(5).unwrap_err().to_string().contains("index 5") && both.get_in(1, 5).is_err());
    assert!(ConcatDataset::<ItemDataset<String>>::new([]).unwrap_err().to_string().contains("at least one"));
    let none = ConcatDataset::new([words(0)]).unwrap();
    assert!(DataLoader::new(none, 1).unwrap_err().to_string().contains("empty"));
    // Errors of a map affect their batches only.
    let failing =
        words(6).map(|word| if word == "3" { Err(Error::invalid("map", "a bad word")) } else { Ok(word) });
    let loader = DataLoader::new(failing, 2).unwrap().workers(2);
    let right: Vec<bool> = loader.iter().map(|batch| batch.is_ok()).collect();
    assert_eq!(right, [true, false, true]);
}

/// The numbers from 0 on; reading one of them fails or panics.
struct Numbers {
    count: u32,
    bad: Option<u32>,
    panics: bool,
    read: Arc<AtomicUsize>,
}

impl IterableDataset for Numbers {
    type Item = u32;
    fn items(&self, epoch: u64) -> Box<dyn Iterator<Item = Result<u32>> + '_> {
        Box::new((0..self.count).map(move |i| {
            self.read.fetch_add(1, Ordering::Relaxed);
            assert!(!(self.panics && self.bad == Some(i)), "number {i}");
            if self.bad == Some(i) {
                Err(Error::invalid("numbers", "a bad line"))
            } else {
                Ok(i + 1000 * epoch as u32)
            }
        }))
    }
}

fn stream(count: u32, workers: usize) -> StreamLoader<Numbers, String> {
    let read = Arc::default();
    let loader = StreamLoader::new(Numbers { count, bad: None, panics: false, read }, 4).unwrap();
    let change = |number, draws: &mut data::Draws| {
        sleep(Duration::from_micros(draws.clone().below(300)));
        Ok(format!("{number} {}", draws.below(1000)))
    };
    loader.shuffle(8, 3).map(change).workers(workers)
}

#[test]
fn streams_are_the_same_from_any_number_of_workers_and_from_the_middle_on() {
    let whole = stream(30, 0);
    let epochs: Vec<Vec<Vec<String>>> = (0..3).map(|_| all(whole.iter())).collect();
    let mut numbers: Vec<u32> =
        epochs[0].concat().iter().map(|s| s.split(' ').next().unwrap().parse().unwrap()).collect();
    assert!(!numbers.is_sorted() && epochs[0].len() == 8 && epochs[0][7].len() == 2);
    // An item is returned only after the buffer was filled up to it.
    assert!(numbers.iter().enumerate().all(|(at, &number)| number as usize <= at + 8));
    numbers.sort_unstable();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
    for workers in [1, 2, 5] {
        for taken in [0, 3, 8] {
            let stopped = stream(30, workers);
            assert_eq!(all(stopped.iter()), epochs[0]);
            let mut batches = stopped.iter();
            assert_eq!(all(batches.by_ref().take(taken)), epochs[1][..taken]);
            let state = stopped.state_dict();
            drop(batches);
            let mut resumed = stream(30, workers);
            resumed.load_state_dict(&state).unwrap();
            assert_eq!((resumed.epoch(), all(resumed.iter())), (1, epochs[1][taken..].to_vec()));
            assert_eq!(all(resumed.iter()), epochs[2]);
        }
    }
    let mut wider =
        StreamLoader::new(Numbers { count: 9, bad: None, panics: false, read: Arc::default() }, 5).unwrap();
    let other = stream(30, 0);
    let mut batches = other.iter();
    drop(batches.next());
    let message = wider.load_state_dict(&other.state_dict()).unwrap_err().to_string();
    assert!(message.contains("batch_size: 4 in the state, 5") && message.contains("buffer: 8"), "{message}");
    assert_eq!(wider.epoch(), 0);
}

#[test]
fn streams_end_well_whatever_happens() {
    for workers in [0, 3] {
        let numbers = |count, bad, panics| {
            let read = Arc::new(AtomicUsize::new(0));
            let loader = StreamLoader::new(Numbers { count, bad, panics, read: read.clone() }, 4).unwrap();
            (loader.device(&device()).workers(workers), read)
        };
        // An error affects its batch, and the others follow.
        let right =
            |(loader, _): (StreamLoader<Numbers>, _)| loader.iter().map(|b| b.is_ok()).collect::<Vec<_>>();
        assert_eq!(right(numbers(12, Some(5), false)), [true, false, true]);
        // After a panic of the reader nothing follows.
        let found: Vec<_> = numbers(12, Some(9), true).0.iter().collect();
        let message = found[2].as_ref().unwrap_err().to_string();
        assert!(found.len() == 3 && message.contains("number 9"), "{message}");
        let (empty, _) = numbers(0, None, false);
        assert!(empty.iter().next().is_none() && empty.epoch() == 1);
        let (loader, _) = numbers(10, None, false);
        assert_eq!(all(loader.drop_last(true).iter()).len(), 2);
        // A dropped iterator does not read on.
        let (loader, read) = numbers(1_000_000, None, false);
        let mut batches = loader.iter();
        drop(batches.next().unwrap().unwrap());
        drop(batches);
        assert!(read.load(Ordering::Relaxed) < 200, "{read:?}");
        // A transform that panics.
        let (loader, _) = numbers(8, None, false);
        let loader = loader.map(|number, _| {
            assert!(number != 5, "number {number}");
            Ok(number)
        });
        let found: Vec<_> = loader.iter().collect();
        assert!(found[0].is_ok() && found[1].as_ref().unwrap_err().to_string().contains("number 5"));
    }
    let none = StreamLoader::new(Numbers { count: 1, bad: None, panics: false, read: Arc::default() }, 0);
    assert!(none.err().unwrap().to_string().contains("batch size 0"));
}
