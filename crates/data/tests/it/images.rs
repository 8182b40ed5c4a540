//! The embedded digits, and MNIST files, as datasets.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use crate::common::device;
use data::{Digits, Mnist};
use tensor_core::{DType, ErrorKind};

#[test]
fn digits_are_scaled_to_one() {
    let digits = Digits::load(&device()).unwrap();
    let (images, labels) = digits.tensors();
    assert_eq!((images.dims(), images.dtype()), (&[1797, 64][..], DType::F32));
    assert_eq!((labels.dims(), labels.dtype()), (&[1797][..], DType::I32));
    let values = images.to_vec::<f32>().unwrap();
    assert_eq!(values[..6], [0.0, 0.0, 0.3125, 0.8125, 0.5625, 0.0625]);
    assert!(values.iter().all(|v| (0.0..=1.0).contains(v)) && values.contains(&1.0));
}

/// Two images of 2 by 3 pixels in four files, with these labels.
fn write_mnist(folder: &Path, labels: &[u8]) {
    let images =
        [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3][..], &[0, 51, 102, 153, 204, 255].repeat(2)];
    let labels = [&[0, 0, 8, 1, 0, 0, 0, labels.len() as u8][..], labels];
    for part in ["train", "t10k"] {
        fs::write(folder.join(format!("{part}-images-idx3-ubyte")), images.concat()).unwrap();
        fs::write(folder.join(format!("{part}-labels-idx1-ubyte")), labels.concat()).unwrap();
    }
}

#[test]
fn mnist_files_become_rows_and_labels() {
    let folder = tempfile::tempdir().unwrap();
    write_mnist(folder.path(), &[9, 0]);
    for train in [true, false] {
        let dataset = Mnist::load(folder.path(), train, &device()).unwrap();
        let (images, labels) = dataset.tensors();
        assert_eq!(images.dims(), [2, 6]);
        assert_eq!(images.to_vec::<f32>().unwrap()[..6], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(labels.to_vec::<i32>().unwrap(), [9, 0]);
    }
}

#[test]
fn labels_that_make_no_sense_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    for (labels, part) in [(&[3, 10][..], "label 1 is 10"), (&[1, 2, 3], "3 labels")] {
        write_mnist(folder.path(), labels);
        let error = Mnist::load(folder.path(), true, &device()).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::File { .. }) && error.to_string().contains(part),
            "{error}"
        );
    }
    assert!(Mnist::load(folder.path().join("none"), true, &device()).is_err());
}
