//! State dicts as files: what is written is read back, and what is broken is refused.
#![allow(clippy::unwrap_used)]

mod common;

use common::device;
use nn::{Linear, Module, StateDict, load_safetensors, save_safetensors};
use tensor_core::{DType, ErrorKind, Generator, Tensor};

#[test]
fn every_dtype_and_shape_comes_back() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.safetensors");
    let mut dict = StateDict::new();
    for dtype in DType::ALL {
        let tensor = Tensor::new([[0i32, 1, 2], [3, 4, 5]], &device).unwrap().to_dtype(dtype).unwrap();
        dict.insert(dtype.name().into(), tensor.t().unwrap());
    }
    dict.insert("scalar".into(), Tensor::new(1.5f32, &device).unwrap());
    dict.insert("empty".into(), Tensor::zeros([0, 3], &device).unwrap());
    save_safetensors(&path, &dict).unwrap();
    let read = load_safetensors(&path, &device).unwrap();
    assert_eq!(read.len(), dict.len());
    for (name, tensor) in &dict {
        assert_eq!((read[name].shape(), read[name].dtype()), (tensor.shape(), tensor.dtype()), "{name}");
        assert_eq!(read[name].to_f64_vec().unwrap(), tensor.to_f64_vec().unwrap(), "{name}");
    }
    // Nothing is left beside the file.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_broken_file_is_refused_and_changes_nothing() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = Linear::new(3, 2, &Generator::seed(0, &device)).unwrap();
    save_safetensors(&path, &model.state_dict()).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for broken in [&whole[..whole.len() - 1], &whole[..20], &whole[..4], b"", b"not a file of tensors"] {
        std::fs::write(&path, broken).unwrap();
        let error = load_safetensors(&path, &device).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::File { path: named, .. } if *named == path), "{error}");
    }
    let error = load_safetensors(folder.path().join("none"), &device).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
    let error = save_safetensors(folder.path().join("no/such/place"), &model.state_dict()).unwrap_err();
    assert!(error.to_string().contains("cannot be written"), "{error}");
}

#[test]
fn a_file_that_cannot_be_replaced_stays() {
    let device = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let good = StateDict::from([("a".to_string(), Tensor::new([1.0f32], &device).unwrap())]);
    save_safetensors(&path, &good).unwrap();
    let index = Tensor::new([7i32], &device).unwrap();
    let bad = StateDict::from([("a".to_string(), good["a"].gather(0, &index).unwrap())]);
    assert!(save_safetensors(&path, &bad).is_err());
    assert_eq!(load_safetensors(&path, &device).unwrap()["a"].item::<f32>().unwrap(), 1.0);
}
