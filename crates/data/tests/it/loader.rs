//! Loading: order, batches, workers, and errors.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::common::device;
use data::{DataLoader, Dataset, ItemDataset, Subset, TensorDataset, ToDevice, random_split};
use tensor_core::{DType, Device, Error, Result, Stateful, Tensor};

/// Rows `[i, 10 i]` with the label i.
fn numbers(n: usize, device: &Device) -> TensorDataset {
    let rows: Vec<f32> = (0..n).flat_map(|i| [i as f32, 10.0 * i as f32]).collect();
    let labels: Vec<i32> = (0..n as i32).collect();
    let images = Tensor::from_vec(rows, [n, 2], device).unwrap();
    TensorDataset::new((images, Tensor::from_vec(labels, [n], device).unwrap())).unwrap()
}

/// The labels of an epoch, batch by batch.
fn epoch(loader: &DataLoader<impl Dataset<Item = (Tensor, Tensor)> + 'static>) -> Vec<Vec<i32>> {
    let check = |batch: Result<(Tensor, Tensor)>| {
        let (images, labels) = batch.unwrap();
        let labels = labels.to_vec::<i32>().unwrap();
        let expected: Vec<f32> = labels.iter().flat_map(|&i| [i as f32, 10.0 * i as f32]).collect();
        assert_eq!(images.to_vec::<f32>().unwrap(), expected);
        labels
    };
    loader.iter().map(check).collect()
}

#[test]
fn batches_come_in_order_and_the_last_may_be_smaller() {
    let device = device();
    for workers in [0, 1, 3, 16] {
        let loader = DataLoader::new(numbers(10, &device), 4).unwrap().workers(workers);
        assert_eq!(epoch(&loader), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
        assert_eq!((loader.len(), loader.iter().len()), (3, 3));
        let loader = loader.drop_last(true);
        assert_eq!(epoch(&loader).len(), 2);
    }
    let wide = DataLoader::new(numbers(3, &device), 100).unwrap();
    assert_eq!(epoch(&wide), [vec![0, 1, 2]]);
    let none = DataLoader::new(numbers(3, &device), 100).unwrap().drop_last(true).workers(2);
    assert!(none.is_empty() && epoch(&none).is_empty());
}

#[test]
fn every_epoch_has_an_order_of_its_own_that_a_seed_repeats() {
    let device = device();
    let loader = |seed| DataLoader::new(numbers(50, &device), 8).unwrap().shuffle(seed);
    let (first, second) = (loader(1), loader(1).workers(2));
    let orders: Vec<_> = (0..3).map(|_| epoch(&first)).collect();
    assert!(orders[0] != orders[1] && orders[1] != orders[2]);
    assert_eq!(orders, (0..3).map(|_| epoch(&second)).collect::<Vec<_>>());
    assert_ne!(orders[0], epoch(&loader(2)));
    let mut all = orders[0].concat();
    all.sort_unstable();
    assert_eq!(all, (0..50).collect::<Vec<_>>());
    first.set_epoch(1);
    assert_eq!(epoch(&first), orders[1]);
    assert_eq!(first.epoch(), 2);
}

#[test]
fn a_loader_goes_on_within_an_epoch_from_its_state() {
    let device = device();
    let loader = |seed: Option<u64>, workers: usize| {
        let loader = DataLoader::new(numbers(23, &device), 4).unwrap().workers(workers);
        if let Some(seed) = seed { loader.shuffle(seed) } else { loader }
    };
    let labels = |batch: Result<(Tensor, Tensor)>| batch.unwrap().1.to_vec::<i32>().unwrap();
    for (seed, workers) in [(Some(1), 0), (Some(1), 3), (None, 2)] {
        let whole = loader(seed, workers);
        let epochs: Vec<Vec<Vec<i32>>> = (0..3).map(|_| whole.iter().map(labels).collect()).collect();
        for (epoch, taken) in [(0, 0), (0, 1), (1, 4), (1, 6), (2, 5)] {
            let stopped = loader(seed, workers);
            stopped.set_epoch(epoch);
            let mut batches = stopped.iter();
            for _ in 0..taken {
                drop(batches.next().unwrap().unwrap());
            }
            let state = stopped.state_dict();
            // Another loader, made with another seed, continues with the batch after the last.
            let mut resumed = loader(seed.map(|s| s + 9), 1);
            resumed.load_state_dict(&state).unwrap();
            let rest: Vec<Vec<i32>> = resumed.iter().map(labels).collect();
            let (at, from) = if taken == 6 { (epoch + 1, 0) } else { (epoch, taken) };
            assert_eq!(rest, epochs[at as usize][from..], "epoch {epoch}, {taken} taken");
            assert_eq!(resumed.epoch(), at + 1);
        }
    }
    // Dropping an iterator ends the epoch: the next epoch begins, also after resuming.
    let left = loader(Some(1), 0);
    drop(left.iter().next().unwrap().unwrap());
    let mut resumed = loader(Some(1), 0);
    resumed.load_state_dict(&left.state_dict()).unwrap();
    let next = |l: &DataLoader<TensorDataset>| l.iter().map(labels).collect::<Vec<_>>();
    assert_eq!(next(&left), next(&resumed));

    // Mismatches are reported, and change nothing.
    let halfway = loader(Some(1), 0);
    let mut batches = halfway.iter();
    drop(batches.next().unwrap().unwrap());
    let state = halfway.state_dict();
    let mut ordered = loader(None, 0);
    assert!(ordered.load_state_dict(&state).unwrap_err().to_string().contains("seed"));
    let mut wider = DataLoader::new(numbers(23, &device), 8).unwrap().shuffle(1);
    assert!(wider.load_state_dict(&state).unwrap_err().to_string().contains("batch_size: 4 in the state, 8"));
    let mut longer = DataLoader::new(numbers(24, &device), 4).unwrap().shuffle(1);
    assert!(longer.load_state_dict(&state).unwrap_err().to_string().contains("items: 23 in the state, 24"));
    assert_eq!(longer.state_dict().number("batch").map(|n| n.as_i64()), Some(0));
    // At the beginning of an epoch both may differ.
    drop(batches);
    wider.load_state_dict(&halfway.state_dict()).unwrap();
    assert_eq!(wider.epoch(), 1);
}

#[test]
fn what_cannot_be_loaded_is_said_when_the_loader_is_made() {
    let device = device();
    let message = DataLoader::new(numbers(3, &device), 0).unwrap_err().to_string();
    assert!(message.contains("batch size 0"), "{message}");
    let message = DataLoader::new(numbers(0, &device), 4).unwrap_err().to_string();
    assert!(message.contains("the dataset is empty"), "{message}");
    let (a, b) = (Tensor::ones([3, 2], &device).unwrap(), Tensor::ones([4], &device).unwrap());
    let message = TensorDataset::new((a, b)).unwrap_err().to_string();
    assert!(message.contains("[3, 2] x [4]"), "{message}");
    assert!(TensorDataset::new(Tensor::ones((), &device).unwrap()).is_err());
    let message = numbers(3, &device).get(3).unwrap_err().to_string();
    assert!(message.contains("index 3"), "{message}");
}

#[test]
fn rows_of_every_dtype_and_views() {
    let device = device();
    for dtype in DType::ALL {
        let tensor = Tensor::new([[0i32, 1, 2], [3, 4, 5]], &device).unwrap().to_dtype(dtype).unwrap();
        let dataset = TensorDataset::new(tensor.t().unwrap()).unwrap();
        let column = tensor.t().unwrap().select(0, 2).unwrap().to_f64_vec().unwrap();
        assert_eq!(dataset.get(2).unwrap().to_f64_vec().unwrap(), column);
        let batch = DataLoader::new(dataset, 2).unwrap().iter().nth(1).unwrap().unwrap();
        assert_eq!((batch.dims(), batch.dtype()), (&[1, 2][..], dtype));
        assert_eq!(batch.to_f64_vec().unwrap(), column);
    }
}

#[test]
fn parts_of_a_dataset() {
    let device = device();
    let all = numbers(10, &device);
    let parts = random_split(&all, &[7, 3], 4).unwrap();
    let picked = all.select(parts[1].indices()).unwrap();
    assert_eq!(picked.len(), 3);
    assert_eq!(picked.get(0).unwrap().1.item::<i32>().unwrap(), parts[1].indices()[0] as i32);
    let all = Arc::new(all);
    let loader = DataLoader::new(Subset::new(all.clone(), vec![9, 0, 5]).unwrap(), 2).unwrap().workers(1);
    assert_eq!(epoch(&loader), [vec![9, 0], vec![5]]);
    assert!(all.select(&[10]).is_err());
}

#[test]
fn items_of_any_kind_are_collated() {
    let device = device();
    let row = |i: i32| Tensor::new([i as f32; 2], &device).unwrap();
    let items = (0..3).map(|i| (row(i), i, i % 2 == 0, format!("item {i}"))).collect();
    let batch = DataLoader::new(ItemDataset(items), 3).unwrap().iter().next().unwrap().unwrap();
    let (rows, numbers, flags, names) = batch.to(&crate::common::device()).unwrap();
    assert_eq!((rows.dims(), numbers.dtype(), names.len()), (&[3, 2][..], DType::I32, 3));
    assert_eq!(numbers.to_vec::<i32>().unwrap(), [0, 1, 2]);
    assert_eq!(flags.to_vec::<bool>().unwrap(), [true, false, true]);

    let items: Vec<_> = (0..2).map(|i| BTreeMap::from([("x", row(i)), ("y", row(i + 5))])).collect();
    let loader = DataLoader::new(ItemDataset(items), 2).unwrap();
    assert_eq!(loader.iter().next().unwrap().unwrap()["y"].dims(), [2, 2]);

    // Numbers alone need a device; class indices become i32.
    let loader = DataLoader::new(ItemDataset(vec![1usize, 2]), 2).unwrap();
    assert!(loader.iter().next().unwrap().is_err());
    assert_eq!(loader.device(&device).iter().next().unwrap().unwrap().dtype(), DType::I32);

    let ragged = ItemDataset(vec![row(0), Tensor::ones([3], &device).unwrap()]);
    assert!(DataLoader::new(ragged, 2).unwrap().iter().next().unwrap().is_err());
}

#[test]
fn batches_go_to_the_device_that_was_named() {
    let (here, there) = (device(), device());
    for workers in [0, 2] {
        let loader = DataLoader::new(numbers(4, &here), 3).unwrap().device(&there).workers(workers);
        let (images, labels) = loader.iter().next().unwrap().unwrap();
        assert_eq!((images.device(), labels.device()), (there.clone(), there.clone()));
    }
}

/// Item 5 fails, item 9 panics; counts the items that are read and those that exist.
struct Trouble {
    read: Arc<AtomicUsize>,
    device: Device,
}

impl Dataset for Trouble {
    type Item = Tensor;
    fn len(&self) -> usize {
        1000
    }
    fn get(&self, index: usize) -> Result<Tensor> {
        self.read.fetch_add(1, Ordering::SeqCst);
        match index {
            5 => Err(Error::invalid("Trouble", "item 5 is broken")),
            9 => panic!("item 9 is worse"),
            _ => Tensor::new(index as i32, &self.device),
        }
    }
}

#[test]
fn a_broken_item_is_an_error_in_its_place() {
    let read = Arc::new(AtomicUsize::new(0));
    for workers in [1, 2, 5] {
        let loader =
            DataLoader::new(Trouble { read: read.clone(), device: device() }, 2).unwrap().workers(workers);
        let batches: Vec<_> = loader.iter().collect();
        assert_eq!(batches.len(), 500);
        for (i, batch) in batches.into_iter().enumerate() {
            match (i, batch) {
                (2, Err(error)) => assert!(error.to_string().contains("item 5 is broken"), "{error}"),
                (4, Err(error)) => {
                    let message = error.to_string();
                    assert!(message.contains("batch 4") && message.contains("item 9 is worse"), "{message}");
                }
                (_, batch) => {
                    assert_eq!(batch.unwrap().to_vec::<i32>().unwrap(), [2 * i as i32, 2 * i as i32 + 1]);
                }
            }
        }
    }
}

#[test]
fn dropping_the_iterator_ends_its_threads() {
    let read = Arc::new(AtomicUsize::new(0));
    let loader = DataLoader::new(Trouble { read: read.clone(), device: device() }, 1).unwrap().workers(3);
    let mut batches = loader.iter();
    assert!(batches.next().unwrap().is_ok());
    drop(batches);
    // The threads are joined: none reads any more, and none had run far ahead.
    let after = read.load(Ordering::SeqCst);
    assert!(after <= 1 + 3 * 4, "{after} items were read for one batch");
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(read.load(Ordering::SeqCst), after);
    assert_eq!(Arc::strong_count(&read), 2);
}

#[test]
fn whatever_holds_tensors_moves_as_one() {
    let (here, there) = (device(), device());
    let t = || Tensor::ones([1], &here).unwrap();
    let nested = (
        [t(), t()],
        vec![Some(t()), None],
        HashMap::from([("a", t())]),
        BTreeMap::from([(1, (t(), 7, "text".to_string()))]),
        Box::new(t()),
    );
    let (array, list, hash, tree, boxed) = nested.to(&there).unwrap();
    assert!(array.iter().all(|t| t.device() == there));
    assert!(list[0].as_ref().unwrap().device() == there && list[1].is_none());
    assert_eq!(
        (hash["a"].device(), tree[&1].0.device(), boxed.device()),
        (there.clone(), there.clone(), there)
    );
    assert_eq!((tree[&1].1, tree[&1].2.as_str()), (7, "text"));
}
