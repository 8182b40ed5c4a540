//! Reductions, softmax and matrix products over every axis, layout and dtype.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{VIEWS, agree, agree_within, device, has, in_memory, of, tensor};
use taper::tensor_core::{ArgReduceOp, ReduceOp};
use taper::{DType, Device, Result, Tensor};

#[test]
fn every_reduction_over_every_set_of_axes() {
    for &op in ReduceOp::ALL {
        for mask in 0u32..8 {
            for keepdim in [false, true] {
                let axes: Vec<usize> = (0..3).filter(|a| mask >> a & 1 == 1).collect();
                agree_within(&format!("{} over {axes:?}", op.name()), Some((2e-5, 1e-5)), |d| {
                    tensor(&[3, 4, 5], 1, DType::F32, d)?.reduce(op, axes.clone(), keepdim)
                });
            }
        }
    }
}

#[test]
fn reductions_agree_on_every_layout_and_dtype() {
    for &(layout, make) in VIEWS {
        agree_within(&format!("sum of {layout}"), Some((2e-5, 1e-5)), |d| Ok(make(d, DType::F32, 1)?.sum()));
        agree_within(&format!("mean of {layout}"), Some((2e-5, 1e-5)), |d| {
            Ok(make(d, DType::F32, 1)?.exp().mean())
        });
        agree(&format!("all of {layout}"), |d| Ok(make(d, DType::Bool, 1)?.all()));
        agree(&format!("max of {layout}"), |d| {
            let x = make(d, DType::F32, 1)?;
            if x.numel() == 0 || x.rank() < 2 { Ok(x) } else { x.amax(-1, false)?.sub(&x.amin(-1, false)?) }
        });
    }
    for dtype in DType::ALL.into_iter().filter(|&d| has(&device(), d)) {
        agree_within(&format!("sum of {dtype}"), Some((2e-3, 1e-2)), |d| {
            tensor(&[5, 40], 1, dtype, d)?.sum_axis(1, false)
        });
        agree_within(&format!("mean of {dtype}"), Some((2e-2, 1e-2)), |d| {
            Ok(tensor(&[5, 40], 1, dtype, d)?.mean())
        });
        agree(&format!("max of {dtype}"), |d| tensor(&[5, 40], 1, dtype, d)?.amax(0, true));
        agree(&format!("argmin of {dtype}"), |d| tensor(&[5, 40], 1, dtype, d)?.argmin_axis(1, false));
    }
}

#[test]
fn long_reductions_are_accurate() -> Result<()> {
    let d = device();
    // Neither the sum of a million tenths nor a column of a hundred thousand may drift.
    let x = in_memory(Tensor::full([1_000_000], 0.1, &d)?)?;
    assert!((f64::from(x.sum().item::<f32>()?) - 100_000.0).abs() < 0.5, "{}", x.sum());
    for shape in [[3, 100_000], [100_000, 3]] {
        let axis = if shape[0] == 3 { 1 } else { 0 };
        let sums = in_memory(Tensor::full(shape, 0.1, &d)?)?.sum_axis(axis, false)?.to_vec::<f32>()?;
        assert!(sums.iter().all(|s| (f64::from(*s) - 10_000.0).abs() < 0.1), "{sums:?}");
    }
    let rows = in_memory(Tensor::full([70_000, 2], 1.0, &d)?)?.sum_axis(1, false)?;
    assert_eq!(rows.sum().item::<f32>()?, 140_000.0);
    Ok(())
}

/// Sums of squares and sums without NaN, for which long rows have separate loops, compared with f64 on the
/// host: over contiguous rows, over strided rows, and over all elements.
#[test]
fn long_sums_of_squares_and_without_nan() -> Result<()> {
    let d = device();
    let shape = [4, 3, 1037];
    let values: Vec<f64> =
        (0..shape.iter().product()).map(|i| (i * 7919 % 1009) as f64 / 250.0 - 2.0).collect();
    let holes: Vec<f64> =
        values.iter().enumerate().map(|(i, &v)| if i % 5 == 3 { f64::NAN } else { v }).collect();
    for dtype in [DType::F32, DType::F64, DType::F16].into_iter().filter(|&dtype| has(&d, dtype)) {
        let (x, gaps) = (of(&values, &shape, dtype, &d)?, of(&holes, &shape, dtype, &d)?);
        for axes in [vec![2], vec![0, 2], vec![0, 1, 2]] {
            let expected = |f: &dyn Fn(f64) -> f64, of: &[f64]| -> Vec<f64> {
                let size = |axis: usize| if axes.contains(&axis) { 1 } else { shape[axis] };
                let mut sums = vec![0.0; size(0) * size(1)];
                for (i, &v) in of.iter().enumerate() {
                    let (row, column) =
                        (i / (shape[1] * shape[2]) % size(0), i / shape[2] % shape[1] % size(1));
                    sums[row * size(1) + column] += f(v);
                }
                sums
            };
            let close = |what: &str, found: Tensor, expected: Vec<f64>| -> Result<()> {
                let found = found.to_dtype(DType::F32)?.to_vec::<f32>()?;
                assert_eq!(found.len(), expected.len(), "{what} over {axes:?}");
                for (found, expected) in found.iter().zip(&expected) {
                    let bound = if dtype == DType::F16 { 5e-3 } else { 2e-5 } * expected.abs().max(20.0);
                    let apart = (f64::from(*found) - expected).abs();
                    assert!(apart <= bound, "{what} of {dtype} over {axes:?}: {found}, not {expected}");
                }
                Ok(())
            };
            let squares = expected(&|v| v * v, &values);
            close("squares", x.powi(2).sum_axis(axes.clone(), false)?, squares.clone())?;
            let count = values.len() as f64 / squares.len() as f64;
            let means = squares.iter().map(|sum| sum / count).collect();
            close("mean squares", x.powi(2).mean_axis(axes.clone(), false)?, means)?;
            let whole = expected(&|v| if v.is_nan() { 0.0 } else { v }, &holes);
            close("numbers", gaps.nansum(axes.clone(), false)?, whole)?;
            let seven = Tensor::full((), 7.0, (dtype, &d))?;
            let filled = gaps.isnan().where_cond(&seven, &gaps)?.sum_axis(axes.clone(), false)?;
            close("7 for NaN", filled, expected(&|v| if v.is_nan() { 7.0 } else { v }, &holes))?;
        }
    }
    Ok(())
}

#[test]
fn extremes_pass_nan_and_the_first_among_equals_wins() {
    let values = [1.0, 5.0, 5.0, -2.0, f64::NAN, 7.0, 3.0, 3.0, 3.0];
    for op in [ReduceOp::Max, ReduceOp::Min] {
        agree(op.name(), |d| of(&values, &[3, 3], DType::F32, d)?.reduce(op, 1, false));
    }
    for &op in ArgReduceOp::ALL {
        for axis in [0, 1] {
            agree(op.name(), |d| of(&values, &[3, 3], DType::F32, d)?.arg_reduce(op, axis, true));
        }
        agree(op.name(), |d| {
            tensor(&[4, 5, 6], 1, DType::F32, d)?.permute([2, 0, 1])?.arg_reduce(op, 1, false)
        });
    }
    agree("flat", |d| tensor(&[4, 5], 1, DType::F32, d)?.argmax());
}

#[test]
fn softmax_and_its_kin() {
    let within = Some((5e-5, 1e-6));
    for axis in [0, 1, -1] {
        let x = |d: &Device| Ok(tensor(&[4, 5, 6], 1, DType::F32, d)? * 4.0);
        agree_within("softmax", within, |d| x(d)?.softmax(axis));
        agree_within("log_softmax", within, |d| x(d)?.log_softmax(axis));
        agree_within("logsumexp", within, |d| x(d)?.logsumexp(axis, true));
        agree_within("var", within, |d| x(d)?.var_axis(axis, 1.0, false));
        agree_within("std", within, |d| x(d)?.std_axis(axis, 0.0, true));
    }
    let large = [1e4, 1e4 - 1.0, -1e4, 0.0, f64::NEG_INFINITY, 2.0, -3.0, 88.0];
    agree_within("large softmax", within, |d| of(&large, &[2, 4], DType::F32, d)?.softmax(1));
    agree_within("large log_softmax", within, |d| of(&large, &[2, 4], DType::F32, d)?.log_softmax(1));
    agree_within("all infinite", within, |d| {
        of(&[f64::NEG_INFINITY; 3], &[3], DType::F32, d)?.logsumexp(0, false)
    });
}

#[test]
fn products_of_every_shape() {
    let within = Some((3e-5, 1e-4));
    let f = |shape: &[usize], seed, d: &Device| tensor(shape, seed, DType::F32, d);
    for (a, b) in [
        (vec![5], vec![5]),
        (vec![3, 5], vec![5]),
        (vec![5], vec![5, 2]),
        (vec![2, 3, 5], vec![5, 2]),
        (vec![2, 3, 5], vec![2, 5, 4]),
        (vec![2, 1, 3, 5], vec![4, 5, 2]),
        (vec![64, 784], vec![784, 128]),
        (vec![65, 129], vec![129, 33]),
        (vec![128, 128], vec![128, 128]),
        (vec![1, 200], vec![200, 1]),
        (vec![3, 0], vec![0, 4]),
        (vec![0, 3], vec![3, 4]),
    ] {
        agree_within(&format!("{a:?} x {b:?}"), within, |d| f(&a, 1, d)?.matmul(&f(&b, 2, d)?));
    }
    agree_within("expanded", within, |d| {
        f(&[1, 5], 1, d)?.expand([3, 5])?.matmul(&f(&[5, 1], 2, d)?.expand([5, 4])?)
    });
    agree_within("sliced and flipped", within, |d| {
        f(&[9, 12], 1, d)?.slice_step(1, 1..12, 2)?.flip(0)?.matmul(&f(&[4, 6], 2, d)?.t()?)
    });
    agree_within("batch turned", within, |d| {
        f(&[5, 3, 4], 1, d)?.permute([1, 0, 2])?.matmul(&f(&[4, 3, 6], 2, d)?.permute([1, 0, 2])?)
    });
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64]
        .into_iter()
        .filter(|&t| has(&device(), t))
    {
        let within = if dtype.is_float() { Some((2e-2, 2e-2)) } else { None };
        agree_within(&format!("{dtype}"), within, |d| {
            tensor(&[7, 13], 1, dtype, d)?.matmul(&tensor(&[13, 5], 2, dtype, d)?)
        });
    }
}

#[test]
fn reductions_repeat_bit_by_bit() -> Result<()> {
    let d = device();
    let x = tensor(&[300, 700], 1, DType::F32, &d)?;
    let once = || -> Result<Vec<f32>> {
        let all = [x.sum(), x.mean(), x.sum_axis(0, false)?.sum(), x.exp().sum_axis(1, false)?.mean()];
        Tensor::stack(&all.iter().collect::<Vec<_>>(), 0)?.to_vec::<f32>()
    };
    let first = once()?;
    for _ in 0..3 {
        assert_eq!(once()?, first);
    }
    Ok(())
}

/// Long strided rows are read in place.
#[test]
fn rows_that_lie_apart_are_reduced_in_place() {
    for &op in ReduceOp::ALL {
        for (from, len) in [(0, 600), (37, 1000), (5, 1300)] {
            agree_within(&format!("{} of {len}", op.name()), Some((2e-5, 1e-5)), |d| {
                let x = tensor(&[3, 4, 1400], 1, DType::F32, d)? * 0.03 + 1.0;
                x.narrow(2, from, len)?.reduce(op, [0, 2], false)
            });
        }
    }
}
