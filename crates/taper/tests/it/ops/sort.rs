//! Sorting and top-k over every axis, layout and dtype.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{VIEWS, agree, device, has, numbers, of, refused, tensor};
use proptest::prelude::*;
use taper::autograd::TensorGrad;
use taper::{DType, ErrorKind, Result, Tensor};

#[test]
fn every_layout_and_dtype() {
    for descending in [false, true] {
        for &(layout, make) in VIEWS.iter().filter(|(layout, _)| *layout != "0-d") {
            for axis in [0, -1] {
                let what = format!("{layout} along {axis}, descending: {descending}");
                agree(&what, |d| make(d, DType::F32, 1)?.argsort(axis, descending));
                agree(&what, |d| Ok(make(d, DType::F32, 1)?.sort(axis, descending)?.0));
                agree(&what, |d| Ok(make(d, DType::F32, 1)?.topk(1, axis, descending)?.1));
            }
        }
        for dtype in DType::ALL.into_iter().filter(|&d| has(&device(), d)) {
            // Many equals, in long lines and short ones.
            let x = |d: &_| (tensor(&[2, 90, 5], 1, DType::F32, d)? * 5.0).to_dtype(dtype);
            agree(&format!("{dtype}"), |d| x(d)?.argsort(1, descending));
            agree(&format!("{dtype}"), |d| x(d)?.argsort(2, descending));
            for k in [0, 1, 7, 40, 90] {
                agree(&format!("{k} of {dtype}"), |d| Ok(x(d)?.topk(k, 1, descending)?.1));
            }
        }
    }
}

/// Positions in order of the keys, equal ones as they come; −0 is 0.
fn order(keys: &[f32], descending: bool) -> Vec<i32> {
    let mut order: Vec<i32> = (0..keys.len() as i32).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (keys[a as usize] + 0.0, keys[b as usize] + 0.0);
        if descending { b.total_cmp(&a) } else { a.total_cmp(&b) }
    });
    order
}

#[test]
fn lines_of_every_length() -> Result<()> {
    let d = device();
    for n in [1, 2, 15, 16, 17, 33, 255, 256, 1000, 1025, 2048, 5000, 70_001] {
        let lines = if n > 5000 { 2 } else { 3 };
        // Coarse enough that some are equal.
        let values: Vec<f32> = numbers(lines * n, 3).iter().map(|x| (x * 300.0).round() as f32).collect();
        let rows = Tensor::from_slice(&values, [lines, n], &d)?;
        let columns = rows.t()?.contiguous()?;
        if refused(4 * n, || rows.argsort(1, false)?.to_vec::<i32>()) {
            continue;
        }
        for descending in [false, true] {
            let expected: Vec<Vec<i32>> = values.chunks(n).map(|line| order(line, descending)).collect();
            let found = rows.argsort(1, descending)?.to_vec::<i32>()?;
            assert!(found == expected.concat(), "rows of {n}, descending: {descending}");
            let found = columns.argsort(0, descending)?.t()?.to_vec::<i32>()?;
            assert!(found == expected.concat(), "columns of {n}, descending: {descending}");
            for k in [1, 2, 10, 100, n / 3, n - 1] {
                let k = k.clamp(1, n);
                let first: Vec<i32> = expected.iter().flat_map(|line| line[..k].to_vec()).collect();
                let found = rows.topk(k, 1, descending)?.1.to_vec::<i32>()?;
                assert!(found == first, "{k} of rows of {n}, largest: {descending}");
            }
        }
    }
    Ok(())
}

#[test]
fn lines_that_are_sorted_already_and_lines_of_equals() -> Result<()> {
    let d = device();
    let n = 5000;
    let up: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let down: Vec<f32> = up.iter().rev().copied().collect();
    let equal = vec![7f32; n];
    let x = Tensor::from_slice(&[up, down, equal].concat(), [3, n], &d)?;
    let (forward, backward): (Vec<i32>, Vec<i32>) = ((0..n as i32).collect(), (0..n as i32).rev().collect());
    let ascending = [&forward[..], &backward, &forward].concat();
    let descending = [&backward[..], &forward, &forward].concat();
    assert!(x.argsort(1, false)?.to_vec::<i32>()? == ascending);
    assert!(x.argsort(1, true)?.to_vec::<i32>()? == descending);
    for (largest, all) in [(false, ascending), (true, descending)] {
        let first: Vec<i32> = all.chunks(n).flat_map(|line| line[..20].to_vec()).collect();
        assert_eq!(x.topk(20, 1, largest)?.1.to_vec::<i32>()?, first);
    }
    Ok(())
}

#[test]
fn many_short_lines() -> Result<()> {
    let (lines, n) = (70_000, 3);
    let values: Vec<f32> = numbers(lines * n, 5).iter().map(|&x| x as f32).collect();
    let found = Tensor::from_slice(&values, [lines, n], &device())?.argsort(1, false)?.to_vec::<i32>()?;
    let expected: Vec<i32> = values.chunks(n).flat_map(|line| order(line, false)).collect();
    assert!(found == expected);
    Ok(())
}

#[test]
fn special_values_have_their_place() -> Result<()> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        if !has(&device(), dtype) {
            continue;
        }
        let x = of(&[1.0, nan, -0.0, -inf, 0.0, inf, -nan, -1.0, 6e-8], &[9], dtype, &device())?;
        assert_eq!(x.argsort(0, false)?.to_vec::<i32>()?, [3, 7, 2, 4, 8, 0, 5, 1, 6], "{dtype}");
        assert_eq!(x.argsort(0, true)?.to_vec::<i32>()?, [1, 6, 5, 0, 8, 2, 4, 7, 3], "{dtype}");
        let (values, _) = x.topk(3, 0, true)?;
        let values = values.to_f64_vec()?;
        assert!(values[0].is_nan() && values[1].is_nan() && values[2] == inf, "{values:?}");
    }
    // Zeros keep their signs.
    let zeros =
        Tensor::from_vec(vec![0.0f32, -0.0, 0.0], [3], &device())?.sort(0, true)?.0.to_vec::<f32>()?;
    assert_eq!(zeros.iter().map(|z| z.is_sign_negative()).collect::<Vec<_>>(), [false, true, false]);
    let d = device();
    let ends = Tensor::from_vec(vec![3, i32::MIN, -1, i32::MAX, 0], [5], &d)?;
    assert_eq!(ends.argsort(0, false)?.to_vec::<i32>()?, [1, 2, 4, 0, 3]);
    let ends = Tensor::from_vec(vec![3, u32::MAX, 1 << 31, 0], [4], &d)?;
    assert_eq!(ends.argsort(0, true)?.to_vec::<i32>()?, [1, 2, 0, 3]);
    if has(&d, DType::I64) {
        let ends = Tensor::from_vec(vec![3, i64::MIN, -1, i64::MAX, 1 << 40, -(1 << 40)], [6], &d)?;
        assert_eq!(ends.argsort(0, false)?.to_vec::<i32>()?, [1, 5, 2, 0, 4, 3]);
    }
    if has(&d, DType::F64) {
        let near = Tensor::from_vec(vec![1.0 + 1e-15, 1.0, -1.0, -1.0 - 1e-15, 1e300], [5], &d)?;
        assert_eq!(near.argsort(0, true)?.to_vec::<i32>()?, [4, 0, 1, 2, 3]);
    }
    Ok(())
}

#[test]
fn misfits_are_errors() -> Result<()> {
    let x = tensor(&[2, 3], 1, DType::F32, &device())?;
    assert!(matches!(
        x.sort(2, false).as_ref().map_err(|e| e.kind()),
        Err(ErrorKind::AxisOutOfRange { op: "sort", .. })
    ));
    let error = x.topk(4, -1, true).unwrap_err().to_string();
    assert!(error.contains("topk") && error.contains("k = 4") && error.contains("[2, 3]"), "{error}");
    assert_eq!(x.topk(0, 1, true)?.0.dims(), [2, 0]);
    let (values, indices) = x.requires_grad().sort(1, false)?;
    assert!(values.is_tracked() && !indices.is_tracked());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn sorted_lines_are_their_elements_in_order(
        shape in prop::collection::vec(1usize..40, 1..4),
        axis in 0usize..4,
        k in 0usize..40,
        descending: bool,
        seed in 0u64..99,
    ) {
        let axis = axis % shape.len();
        let n = shape[axis];
        let along = axis as isize;
        let whole: Vec<f64> = numbers(shape.iter().product(), seed).iter().map(|x| (x * 9.0).round()).collect();
        let x = of(&whole, &shape, DType::F32, &device()).unwrap().transpose(0, -1).unwrap();
        let at = if axis == 0 { shape.len() - 1 } else if axis == shape.len() - 1 { 0 } else { axis };
        let (values, indices) = x.sort(at as isize, descending).unwrap();
        let lines = |t: &Tensor| -> Vec<f64> {
            t.transpose(0, -1).unwrap().transpose(along, -1).unwrap().to_f64_vec().unwrap()
        };
        let (given, values_of, indices_of) = (lines(&x), lines(&values), lines(&indices));
        for ((line, values), indices) in given.chunks(n).zip(values_of.chunks(n)).zip(indices_of.chunks(n)) {
            let keys: Vec<f32> = line.iter().map(|&v| v as f32).collect();
            let expected = order(&keys, descending);
            prop_assert_eq!(indices.iter().map(|&i| i as i32).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(values.to_vec(), expected.iter().map(|&i| line[i as usize]).collect::<Vec<_>>());
        }
        let k = k % (n + 1);
        let (best, places) = x.topk(k, at as isize, descending).unwrap();
        let first = |t: &Tensor| t.narrow(at as isize, 0, k).unwrap().to_f64_vec().unwrap();
        prop_assert_eq!(best.to_f64_vec().unwrap(), first(&values));
        prop_assert_eq!(places.to_f64_vec().unwrap(), first(&indices));
    }
}
