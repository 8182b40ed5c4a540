//! Cumulative operations over every axis, layout and dtype.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{VIEWS, agree, assert_close, device, has, in_memory, numbers, of, refused, tensor};
use proptest::prelude::*;
use taper::autograd::TensorGrad;
use taper::tensor_core::CumulativeOp;
use taper::{DType, ErrorKind, Result, Tensor};

#[test]
fn every_operation_on_every_layout_and_dtype() {
    for &op in CumulativeOp::ALL {
        for &(layout, make) in VIEWS.iter().filter(|(layout, _)| *layout != "0-d") {
            for axis in [0, -1] {
                for reverse in [false, true] {
                    let what = format!("{} of {layout} along {axis}, reversed: {reverse}", op.name());
                    agree(&what, |d| make(d, DType::F32, 1)?.cumulative(op, axis, reverse));
                }
            }
        }
        for dtype in DType::ALL.into_iter().filter(|&d| has(&device(), d)) {
            if op == CumulativeOp::LogSumExp && !dtype.is_float() {
                continue;
            }
            agree(&format!("{} of {dtype}", op.name()), |d| {
                tensor(&[3, 5, 7], 1, dtype, d)?.cumulative(op, 1, false)
            });
        }
    }
}

#[test]
fn sums_of_half_types_round_once() -> Result<()> {
    for dtype in [DType::F16, DType::BF16] {
        let ones = Tensor::ones([3000], (dtype, &device()))?.cumsum(0)?.to_f64_vec()?;
        for (i, &sum) in ones.iter().enumerate() {
            let exact = (i + 1) as f64;
            let rounded = match dtype {
                DType::F16 => taper::f16::from_f64(exact).to_f64(),
                _ => taper::bf16::from_f64(exact).to_f64(),
            };
            assert_eq!(sum, rounded, "{dtype} {i}");
        }
    }
    Ok(())
}

#[test]
fn integers_are_summed_in_the_dtype_of_sums() -> Result<()> {
    let d = device();
    for dtype in [DType::Bool, DType::U8, DType::I32] {
        let x = of(&[1.0, 0.0, 1.0, 1.0], &[4], dtype, &d)?;
        assert_eq!(x.cumsum(0)?.dtype(), x.sum().dtype());
        assert_eq!(x.cumsum(0)?.to_f64_vec()?, [1.0, 1.0, 2.0, 3.0]);
        assert_eq!(x.cumprod(0)?.to_f64_vec()?, [1.0, 0.0, 0.0, 0.0]);
    }
    Ok(())
}

#[test]
fn long_lines_and_many() -> Result<()> {
    let d = device();
    // One long line, a few, many short ones, and columns; in whole numbers, so that no order of additions
    // shows.
    for (shape, axis) in [
        (vec![1_000_003], 0),
        (vec![3, 70_001], 1),
        (vec![70_001, 3], 0),
        (vec![70_000, 4], 1),
        (vec![5, 300, 70], 1),
    ] {
        let n: usize = shape.iter().product();
        let values: Vec<f32> = numbers(n, 1).iter().map(|x| (x * 4.0).round() as f32).collect();
        let x = Tensor::from_slice(&values, shape.as_slice(), &d)?;
        let inner: usize = shape[axis + 1..].iter().product();
        let span = 4 * shape[axis] * inner;
        if refused(span, || x.cumsum(axis as isize)?.to_vec::<f32>()) {
            continue;
        }
        for reverse in [false, true] {
            let mut sums = values.clone();
            let places = (0..n).filter(|i| !(i / inner).is_multiple_of(shape[axis]));
            if reverse {
                places.rev().for_each(|i| sums[i - inner] += sums[i]);
            } else {
                places.for_each(|i| sums[i] += sums[i - inner]);
            }
            let found = x.cumulative(CumulativeOp::Sum, axis as isize, reverse)?.to_vec::<f32>()?;
            assert!(found == sums, "sums of {shape:?} along {axis}, reversed: {reverse}");
        }
        let mut best: Vec<i32> = vec![0; n];
        for i in 0..n {
            let at = (i / inner % shape[axis]) as i32;
            let (line, before) = (i - at as usize * inner, i.saturating_sub(inner));
            let greater = at > 0 && values[line + best[before] as usize * inner] > values[i];
            best[i] = if greater { best[before] } else { at };
        }
        assert!(x.cummax(axis as isize)?.1.to_vec::<i32>()? == best, "cummax of {shape:?} along {axis}");
    }
    Ok(())
}

#[test]
fn long_sums_are_accurate() -> Result<()> {
    let n = 400_000;
    let x = in_memory(Tensor::full([n], 0.1, &device())?)?.cumsum(0)?;
    if refused(4 * n, || x.to_vec::<f32>()) {
        return Ok(());
    }
    let x = x.to_vec::<f32>()?;
    for i in (0..n).step_by(997) {
        let exact = f64::from(0.1f32) * (i + 1) as f64;
        // Parts and their totals: some 150 roundings of 2⁻²⁴ at most, where adding one by one would take
        // 400,000.
        assert!((f64::from(x[i]) / exact - 1.0).abs() < 1e-5, "{i}: {} for {exact}", x[i]);
    }
    Ok(())
}

#[test]
fn special_values_pass() -> Result<()> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let values = [0.5, -inf, 2.0, inf, 3.0, nan, 1.0, -inf, -inf, 700.0, -0.0, 90.0];
    for &op in CumulativeOp::ALL {
        for reverse in [false, true] {
            for shape in [vec![12], vec![3, 4], vec![4, 3]] {
                agree(&format!("{} of {shape:?}", op.name()), |d| {
                    of(&values, &shape, DType::F32, d)?.cumulative(op, 0, reverse)
                });
            }
        }
    }
    let far = of(&[-1e4, 0.0, 1e4, 1e4], &[4], DType::F32, &device())?.logcumsumexp(0)?.to_f64_vec()?;
    assert_close(&far, &[-1e4, 0.0, 1e4, 1e4 + 2f64.ln()], (1e-6, 0.0), "far apart");
    Ok(())
}

/// By whatever way a device finds them: in rows and columns, short and long, with and without a gradient.
#[test]
fn extremes_are_the_elements_at_their_places() -> Result<()> {
    let d = device();
    let special = [-0.0, 0.0, -0.0, -f32::INFINITY, 7.0, f32::INFINITY, f32::from_bits(0xffc1_2345)];
    for (shape, axis) in
        [(vec![7], 0), (vec![5, 70], 1), (vec![70, 5], 0), (vec![3, 131], 1), (vec![300_001], 0)]
    {
        let n: usize = shape.iter().product();
        if refused(4 * n, || Tensor::zeros(shape.as_slice(), &d)?.cumsum(axis)?.to_vec::<f32>()) {
            continue;
        }
        for (from, to) in [(0, 3), (0, 6), (0, 7)] {
            let some = &special[from..to];
            let mut values: Vec<f32> = numbers(n, 3).iter().map(|x| (x * 8.0).round() as f32 / 4.0).collect();
            for i in 0..n.div_ceil(13) {
                values[i * 13 % n] = some[i % some.len()];
            }
            let x = Tensor::from_slice(&values, shape.as_slice(), &d)?;
            let what = format!("{shape:?} with {some:?}");
            let bits = |t: &Tensor| Ok(t.to_vec::<f32>()?.iter().map(|x| x.to_bits()).collect::<Vec<u32>>());
            for (op, least) in [(CumulativeOp::ArgMax, false), (CumulativeOp::ArgMin, true)] {
                let (found, places) = if least { x.cummin(axis)? } else { x.cummax(axis)? };
                let wanted = x.cumulative(op, axis, false)?;
                assert!(places.to_vec::<i64>()? == wanted.to_vec::<i64>()?, "{what}: places");
                assert!(bits(&found)? == bits(&x.gather(axis, &wanted)?)?, "{what}: elements");
                let tracked = x.detach().requires_grad();
                let with_gradient = if least { tracked.cummin(axis)? } else { tracked.cummax(axis)? };
                assert!(bits(&with_gradient.0)? == bits(&found)?, "{what}: with a gradient");
            }
        }
    }
    Ok(())
}

#[test]
fn misfits_are_errors() -> Result<()> {
    let x = tensor(&[2, 3], 1, DType::F32, &device())?;
    assert!(matches!(
        x.cumsum(2).as_ref().map_err(|e| e.kind()),
        Err(ErrorKind::AxisOutOfRange { op: "cumsum", .. })
    ));
    assert!(matches!(
        x.cummax(-3).as_ref().map_err(|e| e.kind()),
        Err(ErrorKind::AxisOutOfRange { op: "cummax", .. })
    ));
    let ints = x.to_dtype(DType::I32)?;
    assert!(matches!(
        ints.logcumsumexp(0).as_ref().map_err(|e| e.kind()),
        Err(ErrorKind::DTypeMismatch { op: "logcumsumexp", .. })
    ));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn differences_undo_sums(shape in prop::collection::vec(1usize..9, 1..4), axis in 0usize..4, seed in 0u64..99) {
        let axis = (axis % shape.len()) as isize;
        let whole: Vec<f64> = numbers(shape.iter().product(), seed).iter().map(|x| (x * 9.0).round()).collect();
        let x = of(&whole, &shape, DType::F32, &device()).unwrap();
        let sums = x.cumsum(axis).unwrap();
        let n = shape[axis as usize];
        let first = sums.narrow(axis, 0, 1).unwrap();
        let steps = sums.narrow(axis, 1, n - 1).unwrap().sub(&sums.narrow(axis, 0, n - 1).unwrap()).unwrap();
        let back = Tensor::concat(&[&first, &steps], axis).unwrap();
        prop_assert_eq!(back.to_f64_vec().unwrap(), whole);
        // From the other end, and the whole.
        let reversed = x.flip([axis]).unwrap().cumsum(axis).unwrap().flip([axis]).unwrap();
        let direct = x.cumulative(CumulativeOp::Sum, axis, true).unwrap();
        prop_assert_eq!(direct.to_f64_vec().unwrap(), reversed.to_f64_vec().unwrap());
        let total = x.sum_axis(axis, true).unwrap().to_f64_vec().unwrap();
        prop_assert_eq!(sums.narrow(axis, n - 1, 1).unwrap().to_f64_vec().unwrap(), total);
    }
}
