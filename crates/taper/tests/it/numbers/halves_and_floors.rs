//! Sums of half types that are rounded once, and division to whole numbers.
#![allow(clippy::unwrap_used)]

use crate::common::{device, has};
use taper::{DType, Result, Tensor, prelude::TensorGrad};

/// Added up in bf16, ones stop at 256; in f16 at 2048.
#[test]
fn sums_by_index_do_not_stop_where_a_half_type_does() -> Result<()> {
    let device = device();
    for dtype in [DType::F16, DType::BF16] {
        if !has(&device, dtype) {
            continue;
        }
        let n = 5000usize;
        let options = (dtype, &device);
        let ones = Tensor::ones([n], options)?;
        let rounded = Tensor::full([], n as f64, options)?.to_f64_vec()?[0];
        let index = Tensor::zeros([n], (DType::I32, &device))?;
        let base = Tensor::zeros([2], options)?;
        assert_eq!(
            base.scatter_add(0, &index, &ones)?.to_f64_vec()?,
            [rounded, 0.0],
            "scatter_add of {dtype}"
        );
        // Rows that move whole, narrow and wide.
        for width in [3usize, 100] {
            let rows = Tensor::ones([n, width], options)?;
            let base = Tensor::zeros([2, width], options)?;
            let sums = base.index_add(0, &index, &rows)?.to_f64_vec()?;
            assert!(sums[..width].iter().all(|&v| v == rounded), "index_add of {dtype}: {sums:?}");
            assert!(sums[width..].iter().all(|&v| v == 0.0));
        }
        // The gradient of a row that is taken many times.
        let table = Tensor::ones([2, 4], options)?.requires_grad();
        let taken = table.index_select(0, &index)?;
        taken.mul(&Tensor::ones([n, 4], options)?)?.sum().backward()?;
        let gradient = table.grad().unwrap().to_f64_vec()?;
        assert_eq!(gradient, [rounded, rounded, rounded, rounded, 0.0, 0.0, 0.0, 0.0], "gradient of {dtype}");
    }
    Ok(())
}

/// The results of PyTorch 2, which are Python's where Python divides.
#[test]
fn floor_division_and_remainder_are_pythons() -> Result<()> {
    let device = device();
    let inf = f64::INFINITY;
    #[rustfmt::skip]
    let cases = [
        (1.0, 0.1, 9.0), (-1.0, 0.1, -10.0), (1.0, -0.1, -10.0), (-1.0, -0.1, 9.0),
        (-5.0, inf, -1.0), (5.0, inf, 0.0), (5.0, -inf, -1.0), (-5.0, -inf, 0.0), (0.0, inf, 0.0),
        (7.0, 2.0, 3.0), (-7.0, 2.0, -4.0), (7.0, -2.0, -4.0), (-7.0, -2.0, 3.0), (6.0, 3.0, 2.0),
        (1.0, 0.0, inf), (-1.0, 0.0, -inf), (0.5, 3.0, 0.0), (-0.5, 3.0, -1.0),
    ];
    for dtype in [DType::F32, DType::F64] {
        if !has(&device, dtype) {
            continue;
        }
        let column = |pick: fn(&(f64, f64, f64)) -> f64| {
            let values = cases.iter().map(pick).collect::<Vec<_>>();
            Tensor::from_vec(values.iter().map(|&v| v as f32).collect(), [cases.len()], &device)
        };
        let (a, b) = (column(|c| c.0)?.to_dtype(dtype)?, column(|c| c.1)?.to_dtype(dtype)?);
        let found = a.floor_divide(&b)?.to_f64_vec()?;
        for ((a, b, expected), found) in cases.iter().zip(found) {
            assert_eq!(found, *expected, "{a} // {b} of {dtype}");
        }
        let of = |values: &[f32]| Tensor::from_vec(values.to_vec(), [values.len()], &device)?.to_dtype(dtype);
        let a = of(&[-5.0, 5.0, 5.0, -5.0, 5.5, -5.5])?;
        let b = of(&[f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, 2.0, 2.0])?;
        assert_eq!(a.remainder(&b)?.to_f64_vec()?, [inf, 5.0, -inf, -5.0, 1.5, 0.5], "remainder of {dtype}");
    }
    Ok(())
}
