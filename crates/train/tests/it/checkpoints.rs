//! Folders of checkpoints: kept files, refused folders, and that errors change nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use nn::{Checkpoint, Linear, Module};
use tensor_core::{ErrorKind, Generator, State, StateValue, Stateful};
use train::{Checkpoints, Goal, LoadedStep};

use crate::small::Training;

fn steps(checkpoints: &Checkpoints) -> Vec<u64> {
    checkpoints.list().unwrap().iter().map(|saved| saved.step).collect()
}

fn with(loss: f64) -> Checkpoint {
    Checkpoint::new().number("loss", loss)
}

#[test]
fn the_last_and_the_best_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    let mut low = Checkpoints::new(folder.path().join("low")).keep_last(2).keep_best("loss");
    assert!(low.latest(&device).unwrap().is_none() && low.best(&device).unwrap().is_none());
    for (step, loss, kept) in [
        (1, f64::NAN, vec![1]),
        (2, 3.0, vec![1, 2]),
        (3, 1e-20, vec![2, 3]),
        (4, f64::INFINITY, vec![3, 4]),
        (5, -0.5, vec![4, 5]),
        (6, -0.5, vec![5, 6]),
        (7, f64::NAN, vec![5, 6, 7]),
    ] {
        low.save(step, &with(loss)).unwrap();
        assert_eq!(steps(&low), kept);
    }
    assert_eq!(low.best(&device).unwrap().unwrap().step, 5);
    assert_eq!(low.latest(&device).unwrap().unwrap().step, 7);
    // The same step with another metric replaces the file.
    low.save(7, &with(2.0)).unwrap();
    assert_eq!(steps(&low), [5, 6, 7]);
    // Another process reads while this one writes.
    let reader = Checkpoints::new(low.folder()).keep_best_by("loss", Goal::Higher);
    assert_eq!(reader.best(&device).unwrap().unwrap().step, 7);
    assert_eq!(low.list().unwrap()[2].metric, Some(("loss".to_string(), 2.0)));

    let mut all = Checkpoints::new(folder.path().join("all"));
    (1..=5).for_each(|step| drop(all.save(step, &with(1.0)).unwrap()));
    assert_eq!(steps(&all), [1, 2, 3, 4, 5]);
    // Other files in the folder are left alone.
    fs::write(all.folder().join("step-notes.safetensors"), "x").unwrap();
    fs::write(all.folder().join("step-0000000009.safetensors.bak"), "x").unwrap();
    let folder = all.folder().to_path_buf();
    drop(all);
    let mut one = Checkpoints::new(&folder).keep_last(0);
    one.save(6, &with(1.0)).unwrap();
    assert_eq!((steps(&one), fs::read_dir(&folder).unwrap().count()), (vec![6], 4));
}

/// The files of a folder and its subfolders, without the lock.
fn names(folder: &std::path::Path) -> Vec<String> {
    let entries =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| name != ".lock").collect();
    names.sort_unstable();
    names
}

#[test]
fn a_folder_that_will_not_do_is_told_before_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Checkpoints::create(folder.path().join("run")).unwrap();
    first.save(10, &with(1.0)).unwrap();
    // A second training in the same folder fails at once or at its first save.
    for message in [
        Checkpoints::create(first.folder()).unwrap_err().to_string(),
        Checkpoints::resume(first.folder()).unwrap_err().to_string(),
        Checkpoints::new(first.folder()).save(11, &with(1.0)).unwrap_err().to_string(),
    ] {
        assert!(message.contains("another training"), "{message}");
    }
    let run = first.folder().to_path_buf();
    drop(first);
    let message = Checkpoints::create(&run).unwrap_err().to_string();
    assert!(message.contains("checkpoints up to step 10"), "{message}");
    let mut resumed = Checkpoints::resume(&run).unwrap();
    assert_eq!(resumed.latest(&backend_cpu::cpu()).unwrap().unwrap().step, 10);
    resumed.save(11, &with(1.0)).unwrap();
    assert_eq!(steps(&resumed), [10, 11]);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Checkpoints::new(&file).list().is_err() && Checkpoints::new(&file).save(1, &with(1.0)).is_err());
    assert!(Checkpoints::create(&file).is_err() && Checkpoints::resume(&file).is_err());
}

#[test]
fn a_training_without_its_metric_is_saved_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpoints::new(folder.path()).keep_best("loss");
    let message = checkpoints.save(1, &Checkpoint::new().number("epoch", 3)).unwrap_err().to_string();
    assert!(message.contains(".number(\"loss\""), "{message}");
    let latest = checkpoints.latest(&backend_cpu::cpu()).unwrap().unwrap();
    assert_eq!((latest.step, latest.checkpoint.get_number("epoch").unwrap().as_i64()), (1, 3));
    // Any string can be the name of a metric.
    for metric in ["val/loss", "a.b=c", "%", "größe", ""] {
        let folder = tempfile::tempdir().unwrap();
        let mut checkpoints = Checkpoints::new(folder.path()).keep_last(1).keep_best(metric);
        for (step, loss) in [(1, 2.0), (2, 1.0), (3, 3.0), (4, 4.0)] {
            checkpoints.save(step, &Checkpoint::new().number(metric, loss)).unwrap();
        }
        assert_eq!(steps(&checkpoints), [2, 4], "{metric:?}");
        assert_eq!(checkpoints.list().unwrap()[0].metric, Some((metric.to_string(), 1.0)));
    }
}

#[test]
fn a_training_in_the_folder_of_another_loses_neither() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    let run = |steps: &[u64]| {
        let mut checkpoints = Checkpoints::new(folder.path()).keep_last(5);
        steps.iter().for_each(|&step| drop(checkpoints.save(step, &with(step as f64)).unwrap()));
    };
    run(&[10, 20, 30]);
    run(&[20, 40]);
    let file = |step: u64| format!("step-{step:010}.safetensors");
    assert_eq!(names(folder.path()), ["earlier-1".to_string(), file(20), file(40)]);
    assert_eq!(names(&folder.path().join("earlier-1")), [file(10), file(20), file(30)]);
    // A training that reaches later steps only may have been restored in another way.
    run(&[50]);
    assert_eq!(steps(&Checkpoints::new(folder.path())), [20, 40, 50]);
    // A training that goes back leaves the file that it continues from.
    let mut back = Checkpoints::new(folder.path());
    assert_eq!(back.latest(&device).unwrap().unwrap().step, 50);
    back.save(45, &with(0.0)).unwrap();
    assert_eq!(steps(&back), [20, 40, 45]);
    assert_eq!(names(&folder.path().join("earlier-2")), [file(50)]);
    back.save(60, &with(0.0)).unwrap();
    assert_eq!(steps(&back), [20, 40, 45, 60]);
}

/// The whole state of a training, for comparisons.
fn everything(training: &Training) -> (Vec<Vec<u8>>, Vec<(String, String)>) {
    let all = [training.adam.state_dict(), training.loader.state_dict(), training.model.rng_state()];
    let numbers = all.into_iter().flatten().map(|(name, value)| match value {
        StateValue::Number(number) => (name, format!("{number:?}")),
        StateValue::Tensor(tensor) => (name, format!("{:?}", tensor.read_bytes().unwrap())),
    });
    (training.bits().unwrap().1, numbers.collect())
}

/// Each truncated file, and each file with a flipped bit, is reported, and the file before it is loaded.
#[test]
fn a_damaged_file_is_passed_over_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    let mut training = Training::new(1, 4, 50).unwrap();
    let mut checkpoints = Checkpoints::new(folder.path());
    let mut path = None;
    training
        .run(8, |training| {
            if training.step >= 7 {
                path = Some(checkpoints.save(training.step, &training.checkpoint())?);
            }
            Ok(())
        })
        .unwrap();
    let path = path.unwrap();
    let whole = fs::read(&path).unwrap();
    let before = everything(&training);
    let length = whole.len();
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    // Near the ends, in the header, and in the middle of the numbers.
    let cuts = [0, 1, 7, 8, header / 2, header + 8, length / 2, length - 1].map(|at| whole[..at].to_vec());
    let turned = (0..200).map(|i| i * length / 200).chain([length - 1]).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    for (i, bytes) in cuts.into_iter().chain(turned).enumerate() {
        fs::write(&path, bytes).unwrap();
        let error = match Checkpoint::load(&path, &device) {
            Ok(read) => {
                // Spaces after the header's text, and the order of its entries, have no meaning: all values
                // that are read stay the same.
                let numbers = |checkpoint: &Checkpoint| checkpoint.get_value::<Vec<u32>>("losses").unwrap();
                assert_eq!(numbers(&read), Some(training.losses.clone()), "{i}");
                continue;
            }
            Err(error) => error,
        };
        assert!(
            matches!(error.kind(), ErrorKind::File { path: named, .. } if *named == path),
            "{i}: {error}"
        );
        let latest = checkpoints.latest(&device).unwrap().unwrap();
        assert_eq!((latest.step, latest.passed_over.len()), (7, 1), "{i}");
        assert_eq!(everything(&training), before);
    }
    // The next save removes it, whatever its step.
    fs::write(&path, &whole[..length / 2]).unwrap();
    let latest = checkpoints.latest(&device).unwrap().unwrap();
    let mut resumed = Training::new(5, 4, 50).unwrap();
    resumed.restore(&latest).unwrap();
    checkpoints.save(7, &resumed.checkpoint()).unwrap();
    assert_eq!(steps(&checkpoints), [7]);
    assert_eq!(checkpoints.latest(&device).unwrap().unwrap().passed_over.len(), 0);
    // If all are damaged, the error is that of the newest.
    fs::write(folder.path().join("step-0000000007.safetensors"), &whole[..length / 3]).unwrap();
    assert!(checkpoints.latest(&device).is_err());
}

#[test]
fn another_version_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    with(1.0).save(&path).unwrap();
    let text = fs::read(&path).unwrap();
    let at = text.windows(19).position(|w| w == br#""taper.version":"1""#).unwrap();
    let mut other = text.clone();
    other[at + 17] = b'7';
    fs::write(&path, other).unwrap();
    let message = Checkpoint::load(&path, &backend_cpu::cpu()).unwrap_err().to_string();
    assert!(message.contains("version 7") && message.contains("reads version 1"), "{message}");
}

#[test]
fn what_does_not_fit_is_told_by_name_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let device = backend_cpu::cpu();
    let mut training = Training::new(1, 4, 50).unwrap();
    let mut checkpoints = Checkpoints::new(folder.path());
    let mut saved = None;
    // Within an epoch: while the loader's iterator exists.
    training
        .run(3, |training| {
            checkpoints.save(training.step, &training.checkpoint())?;
            saved = checkpoints.latest(&device)?;
            Ok(())
        })
        .unwrap();
    let saved: LoadedStep = saved.unwrap();
    for (batch_size, items, told) in
        [(5, 50, "batch_size: 4 in the state, 5"), (4, 49, "items: 50 in the state, 49")]
    {
        let mut other = Training::new(2, batch_size, items).unwrap();
        let before = everything(&other);
        let message = other.restore(&saved).unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
        assert_eq!(everything(&other), before);
    }
    let other = Linear::new(6, 15, &Generator::seed(0, &device)).unwrap();
    let weight = other.weight.read_bytes().unwrap();
    let message = saved.checkpoint.restore().module("model", &other).finish().unwrap_err().to_string();
    assert!(message.contains("model.0.weight") && message.contains("model.weight"), "{message}");
    assert_eq!(other.weight.read_bytes().unwrap(), weight);
    // A value of another type.
    assert!(saved.checkpoint.get_value::<String>("losses").unwrap_err().to_string().contains("losses"));
    assert_eq!(saved.checkpoint.get_value::<String>("none").unwrap(), None);
    assert!(State::new().is_empty());
}
