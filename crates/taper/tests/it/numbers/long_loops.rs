//! Sums, products and searches over more than 65,535 elements by one thread: software GPUs end a thread's
//! loops after that many iterations without an error, so no kernel may need more.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{agree, agree_within, device, refused, tensor};
use taper::{DType, Result, Tensor};

/// More than the rounds that a loop has, and no multiple of anything.
const LONG: usize = 70_001;

#[test]
fn products_with_long_sums() -> Result<()> {
    for (m, n) in [(1, 1), (1, 5), (5, 1), (3, 4), (20, 17)] {
        let ones = |shape: [usize; 2]| Tensor::ones(shape, &device());
        let out = ones([m, LONG])?.matmul(&ones([LONG, n])?)?.to_vec::<f32>()?;
        assert_eq!(out, vec![LONG as f32; m * n], "{m} by {n}");
        // Rounding adds up to this much; a term left out counts about 1.
        agree_within(&format!("{m} by {n} with {LONG} terms"), Some((0.0, 0.1)), |d| {
            tensor(&[m, LONG], 1, DType::F32, d)?.matmul(&tensor(&[LONG, n], 2, DType::F32, d)?)
        });
    }
    Ok(())
}

#[test]
fn many_additions_to_one_place() -> Result<()> {
    let d = device();
    for width in [1, 3, 4] {
        for dtype in [DType::F32, DType::I32] {
            let index = Tensor::zeros([LONG], (DType::I32, &d))?;
            let base = Tensor::zeros([2, width], (dtype, &d))?;
            let out = base.index_add(0, &index, &Tensor::ones([LONG, width], (dtype, &d))?)?.to_f64_vec()?;
            let expected = [vec![LONG as f64; width], vec![0.0; width]].concat();
            assert_eq!(out, expected, "{dtype} {width}");
        }
    }
    Ok(())
}

#[test]
fn many_results_from_long_lines() -> Result<()> {
    // More results than a device has threads for, so that none is shared among several for that reason.
    const MANY: usize = 1100;
    let d = device();
    let ones = Tensor::ones([MANY, 1], &d)?.expand([MANY, LONG])?;
    assert_eq!(ones.sum_axis(1, false)?.to_vec::<f32>()?, vec![LONG as f32; MANY]);
    let up = Tensor::arange(0, LONG as i32, 1, (DType::I32, &d))?.reshape([1, LONG])?.expand([MANY, LONG])?;
    assert_eq!(up.argmax_axis(1, false)?.to_vec::<i32>()?, vec![LONG as i32 - 1; MANY]);
    assert_eq!(up.amax(1, false)?.to_vec::<i32>()?, vec![LONG as i32 - 1; MANY]);
    Ok(())
}

#[test]
fn loops_inside_long_loops() -> Result<()> {
    // Results enough for a thread each, over terms that each take rounds of their own: a long division, a
    // power.
    const MANY: usize = 1100;
    const TERMS: usize = 7000;
    let d = device();
    let wide = |x: Tensor| x.reshape([1, 1])?.expand([MANY, TERMS]);
    // 2^126 leaves 1 by 7, as each third power of 2 does.
    let divided = wide(Tensor::full([1], 2.0_f64.powi(126), &d)?)?.remainder_scalar(7.0);
    assert_eq!(divided.sum_axis(1, false)?.to_vec::<f32>()?, vec![TERMS as f32; MANY]);
    let one = wide(Tensor::full([1], 1, (DType::I32, &d))?)?;
    let power = one.pow(&wide(Tensor::full([1], i32::MAX, (DType::I32, &d))?)?)?;
    assert_eq!(power.sum_axis(1, false)?.to_f64_vec()?, vec![TERMS as f64; MANY]);
    Ok(())
}

#[test]
fn rows_that_are_folded_many_times() -> Result<()> {
    // As long as a row may be in one kernel, and odd.
    const ROW: usize = (1 << 14) - 1;
    agree("softmax of a softmax of a normalized row", |d| {
        let x = tensor(&[3, ROW], 1, DType::F32, d)?;
        let x = &x - &x.mean_axis(1, true)?;
        let x = &x / &(&x * &x).mean_axis(1, true)?.sqrt();
        Ok((x.softmax(1)? * ROW as f64).softmax(1)? * ROW as f64)
    });
    Ok(())
}

#[test]
fn long_running_products() -> Result<()> {
    let x = Tensor::ones([LONG], &device())?;
    let products = || x.cumprod(0)?.to_vec::<f32>();
    if refused(size_of::<f32>() * LONG, products) {
        return Ok(());
    }
    assert_eq!(products()?, vec![1.0; LONG]);
    Ok(())
}
