//! Arrays of `ndarray` to tensors and back, with the feature `ndarray`.
#![cfg(feature = "ndarray")]
#![allow(clippy::unwrap_used)]

use crate::common::device;
use ndarray::{Array, Array0, Array2, Array3, ArrayD, Axis, IxDyn, ShapeBuilder, s};
use taper::prelude::*;

#[track_caller]
fn there_and_back<D: ndarray::Dimension>(array: &ndarray::ArrayRef<f32, D>) {
    let x = Tensor::from_ndarray(array, &device()).unwrap();
    assert_eq!(x.dims(), array.shape());
    assert_eq!(x.to_vec::<f32>().unwrap(), array.iter().copied().collect::<Vec<_>>());
    assert_eq!(x.to_ndarray::<f32>().unwrap(), array.to_owned().into_dyn());
}

#[test]
fn arrays_of_any_layout_keep_their_logical_order() -> Result<()> {
    let cube = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (i * 12 + j * 4 + k) as f32);
    there_and_back(&cube);
    there_and_back(&cube.t());
    there_and_back(&cube.slice(s![.., ..;-1, 1..;2]));
    there_and_back(&cube.index_axis(Axis(1), 2));
    there_and_back(&cube.slice(s![1..1, .., ..]));
    there_and_back(&cube.view().permuted_axes([2, 0, 1]));
    there_and_back(&cube.index_axis(Axis(0), 0).broadcast((5, 3, 4)).unwrap());
    there_and_back(&Array2::<f32>::zeros((0, 3)));
    there_and_back(&Array0::from_elem((), 3.5f32));
    there_and_back(&ArrayD::from_elem(IxDyn(&[1, 2, 1, 2, 1, 2, 1]), 1.5f32));
    let columns = Array::from_shape_vec((3, 2).f(), vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    there_and_back(&columns);
    Ok(())
}

#[test]
fn views_of_tensors_and_other_dtypes_become_arrays() -> Result<()> {
    let d = device();
    let x = Tensor::new([[1, 2, 3], [4, 5, 6]], &d)?;
    let array = x.t()?.i((.., StepBy(.., 1)))?.to_ndarray::<i64>()?;
    assert_eq!(array, ndarray::array![[1i64, 4], [2, 5], [3, 6]].into_dyn());
    let truth = x.gt_scalar(3).to_ndarray::<bool>()?;
    assert_eq!(truth, ndarray::array![[false, false, false], [true, true, true]].into_dyn());
    let (error, line) = (x.to_ndarray::<f32>().unwrap_err(), line!());
    assert!(error.to_string().contains("to_ndarray: dtypes"), "{error}");
    assert_eq!(error.location().unwrap().line(), line);
    assert_eq!(Tensor::from_ndarray(&ndarray::array![1u8, 2], &d)?.dtype(), DType::U8);
    Ok(())
}
