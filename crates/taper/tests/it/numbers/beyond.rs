//! Results that are in range although a value on the way to them is not: norms above the greatest number,
//! products that overflow, positions of a grid that have no number.
#![allow(clippy::unwrap_used)]

use crate::common::{device, has};
use taper::nn::{
    CosineEmbeddingLoss,
    functional::{self as f, GridMode, GridPadding, GridSampleOptions},
};
use taper::prelude::*;

/// Asserts that each number is within a few units in the last place of f32; NaN is NaN.
#[track_caller]
fn close(found: &Tensor, expected: &[f64], what: &str) {
    let found = found.to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.len(), "{what}: {found:?}, expected {expected:?}");
    for (f, e) in found.iter().zip(expected) {
        let same = f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= 2e-6 * e.abs();
        assert!(same, "{what}: {found:?}, expected {expected:?}");
    }
}

fn row(v: &[f32]) -> Tensor {
    Tensor::from_slice(v, [1, v.len()], &device()).unwrap()
}

/// The gradient in `x` of the weighted sum of a function's results.
fn slope(x: &[f32], weight: f64, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let x = Tensor::from_slice(x, [x.len()], &device())?.requires_grad();
    f(&x)?.mul_scalar(weight).sum().backward()?;
    Ok(x.grad().unwrap())
}

#[test]
fn directions_of_vectors_whose_norm_is_no_number() -> Result<()> {
    let half = 0.5f64.sqrt();
    for v in [3e38f32, 2e38, 1e19, 1e-30, 1e-42] {
        // Without subnormal numbers, a GPU reads 0.
        if v < f32::MIN_POSITIVE && row(&[v]).mul_scalar(1e10).item_f64()? == 0.0 {
            continue;
        }
        let (x, y) = (row(&[v, v]), row(&[v, -v]));
        let what = format!("of {v:e}");
        close(&f::cosine_similarity(&x, &x, 1, 0.0)?, &[1.0], &what);
        close(&f::cosine_similarity(&x, &row(&[1.0, 0.0]), 1, 0.0)?, &[half], &what);
        assert!(f::cosine_similarity(&x, &y, 1, 0.0)?.item::<f32>()?.abs() < 1e-6, "{what}");
        for p in [2.0, 1.0, 3.0, f64::INFINITY, 0.5] {
            let length = if p.is_infinite() { 1.0 } else { 2f64.powf(1.0 / p) };
            close(&f::normalize(&y, p, 1, 0.0)?, &[1.0 / length, -1.0 / length], &format!("{p} {what}"));
        }
    }
    // The norm counts nonzero numbers, and is no length.
    close(
        &f::normalize(&row(&[3e38, 0.0, 3e38]), 0.0, 1, 0.0)?,
        &[1.5e38f32.into(), 0.0, 1.5e38f32.into()],
        "0",
    );
    // The lower bound of the norm counts for small vectors.
    close(&f::normalize(&row(&[3e-20, 4e-20]), 2.0, 1, 1e-12)?, &[3e-8, 4e-8], "a bound");
    // The direction of (v, v) turns by (1, −1) / 4v.
    let x = [2e38f32, 2e38];
    let found =
        slope(&x, 1e38, |x| f::cosine_similarity(x, &Tensor::new([1.0f32, 0.0], &device())?, 0, 1e-8))?;
    close(&found, &[half / 4.0, -half / 4.0], "the gradient of a cosine");
    for v in [3e38f32, 1e20, 1e10, 1.0] {
        let (x, y, sign) = (row(&[v, v]), row(&[v, -v]), Tensor::new([1i32], &device())?);
        let loss = |x: &Tensor, y: &Tensor| CosineEmbeddingLoss::default().forward(x, y, &sign)?.item_f64();
        assert!(loss(&x, &x)?.abs() < 1e-6 && (loss(&x, &y)? - 1.0).abs() < 1e-6, "{v:e}");
    }
    if has(&device(), DType::F64) {
        let x = Tensor::new([[1.5e308f64, 1.5e308]], (DType::F64, &device()))?;
        close(&f::cosine_similarity(&x, &x, 1, 1e-8)?, &[1.0], "f64");
        close(&f::normalize(&x, 2.0, 1, 1e-12)?, &[half, half], "f64");
    }
    Ok(())
}

/// Without an epsilon, rows of any size have the same result.
#[test]
fn normalized_rows_do_not_depend_on_their_size() -> Result<()> {
    let root = |v: f64| v.sqrt();
    for v in [1e-25f32, 1e-30, 1.0, 1e19, 1e25, 1e37] {
        let x = row(&[v, 2.0 * v, -v, 0.0]);
        let what = format!("of {v:e}");
        let mean_square = root(1.5);
        let of_squares = [1.0 / mean_square, 2.0 / mean_square, -1.0 / mean_square, 0.0];
        close(&f::rms_norm(&x, [4], None, Some(0.0))?, &of_squares, &what);
        let deviation = root(1.25);
        let of_deviations = [0.5, 1.5, -1.5, -0.5].map(|d| d / deviation);
        close(&f::layer_norm(&x, [4], None, None, 0.0)?, &of_deviations, &what);
        let grouped = x.reshape([1, 2, 2])?;
        close(&f::group_norm(&grouped, 1, None, None, 0.0)?, &of_deviations, &what);
        let instance = f::instance_norm(&x.unsqueeze(0)?, None, None, None, None, true, 0.1, 0.0)?;
        close(&instance, &of_deviations, &what);
        if v > 1e30 {
            continue;
        }
        // The gradient of a result that does not depend on the size is orthogonal to x.
        let tracked = x.detach().requires_grad();
        f::rms_norm(&tracked, [4], None, Some(0.0))?.narrow(1, 0, 1)?.mul_scalar(v).sum().backward()?;
        // (1 − x₀² / 6) / √1.5, and −x₀·x / 6 / √1.5.
        let expected = [5.0, -2.0, 1.0, 0.0].map(|d| d / 6.0 / mean_square);
        close(&tracked.grad().unwrap(), &expected, &format!("the gradient {what}"));
    }
    // An epsilon that counts beside the squares.
    let x = row(&[3e-20, -4e-20]);
    let size = root(12.5e-40 + 1e-39);
    close(&f::rms_norm(&x, [2], None, Some(1e-39))?, &[3e-20 / size, -4e-20 / size], "a small epsilon");
    Ok(())
}

#[test]
fn rows_are_scaled_to_norms_of_any_size() -> Result<()> {
    for (v, most) in
        [(5e-25f32, 1e-25), (1e-30, 1e-31), (1e-18, 1e-19), (3e38, 1.0), (3e38, 1e30), (1e20, 3.0)]
    {
        let x = row(&[v, 0.0, -v, v, -v]).reshape([1, 5])?;
        close(
            &x.renorm(2, 0, most)?,
            &[0.5 * most, 0.0, -0.5 * most, 0.5 * most, -0.5 * most],
            &format!("{v:e}"),
        );
        // A norm below the bound changes nothing.
        let kept = row(&[v]).renorm(2, 0, f64::from(f32::MAX))?;
        close(&kept, &[v.into()], "kept");
    }
    // PyTorch's epsilon.
    close(&row(&[3.0, 4.0]).renorm(2, 0, 1.0)?, &[3.0 / 5.0000001, 4.0 / 5.0000001], "as in PyTorch");
    close(&row(&[0.0, 0.0]).renorm(2, 0, 0.0)?, &[0.0, 0.0], "zeros");
    let found = slope(&[0.0, 0.0], 1.0, |x| x.unsqueeze(0)?.renorm(2, 0, 0.0))?;
    close(&found, &[1.0, 1.0], "the gradient at zeros");
    Ok(())
}

#[test]
fn hypotenuses_have_gradients_of_any_size() -> Result<()> {
    for (a, b, expected) in [
        (0.0f32, 3e38f32, [0.0, 1.0]),
        (3e38, 0.0, [1.0, 0.0]),
        (-1.8e38, 2.4e38, [-0.6, 0.8]),
        (3e-30, 4e-30, [0.6, 0.8]),
        (0.0, 1e-30, [0.0, 1.0]),
        (3.0, 4.0, [0.6, 0.8]),
        (1e-30, 1e30, [0.0, 1.0]),
    ] {
        for weight in [1.0, 1e8, 1e-8, -2.0] {
            let d = device();
            let (x, y) = (Tensor::new([a], &d)?.requires_grad(), Tensor::new([b], &d)?.requires_grad());
            x.hypot(&y)?.mul_scalar(weight).sum().backward()?;
            let what = format!("of {a:e} and {b:e}, times {weight}");
            close(&x.grad().unwrap(), &[expected[0] * weight], &what);
            close(&y.grad().unwrap(), &[expected[1] * weight], &what);
        }
    }
    Ok(())
}

/// PyTorch's values.
#[test]
fn powers_of_zeros_and_of_numbers_beside_zero() -> Result<()> {
    let inf = f64::INFINITY;
    for (a, b, value, by_base, by_exponent) in [
        (-0.0f32, 3e38f32, 0.0, 0.0, 0.0),
        (0.0, 3e38, 0.0, 0.0, 0.0),
        (-0.0, 3.0, 0.0, 0.0, 0.0),
        (-0.0, 2.0, 0.0, 0.0, 0.0),
        (-0.0, 1.0, 0.0, 1.0, 0.0),
        (-0.0, 0.5, 0.0, inf, 0.0),
        (0.0, 0.0, 1.0, 0.0, 0.0),
        (2.0, 3e38, inf, inf, inf),
        (1.0, 3e38, 1.0, f64::from(3e38f32), 0.0),
        (0.5, 3e38, 0.0, 0.0, 0.0),
        (-1.0, 3e38, 1.0, f64::from(3e38f32), f64::NAN),
    ] {
        for weight in [1.0f32, 4.0] {
            let d = device();
            let (x, y) = (Tensor::new([a], &d)?.requires_grad(), Tensor::new([b], &d)?.requires_grad());
            let z = x.pow(&y)?;
            let what = format!("{a}^{b:e}, times {weight}");
            close(&z.detach(), &[value], &what);
            z.mul_scalar(weight).sum().backward()?;
            let [by_base, by_exponent] = [by_base, by_exponent].map(|v| f64::from(v as f32 * weight));
            close(&x.grad().unwrap(), &[by_base], &format!("{what}, by the base"));
            close(&y.grad().unwrap(), &[by_exponent], &format!("{what}, by the exponent"));
        }
    }
    Ok(())
}

#[test]
fn products_of_others_are_in_range() -> Result<()> {
    let f = |v: f32| f64::from(v);
    for (x, expected) in [
        (&[1e13f32, 1e13, 1e13][..], vec![f(1e13) * f(1e13); 3]),
        (&[1e-30, 1e-20][..], vec![f(1e-20), f(1e-30)]),
        (&[3e38, 2.0][..], vec![2.0, f(3e38)]),
        (&[1e25, 1e-30, 1e25][..], vec![f(1e-30) * f(1e25), f64::INFINITY, f(1e-30) * f(1e25)]),
        (&[0.0, 3.0, 4.0][..], vec![12.0, 0.0, 0.0]),
        (&[0.0, 3.0, 0.0][..], vec![0.0; 3]),
        (&[1e20, 1e20, 0.0, 2.0][..], vec![0.0, 0.0, f64::INFINITY, 0.0]),
        (&[5.0][..], vec![1.0]),
    ] {
        close(&slope(x, 1.0, |x| Ok(x.prod()))?, &expected, &format!("of {x:?}"));
        let found = slope(x, 1.0, |x| x.reshape([1, x.numel(), 1])?.prod_axis([1, 2], true))?;
        close(&found, &expected, &format!("of {x:?}, along axes"));
    }
    let x = Tensor::zeros((2, 0), &device())?.requires_grad();
    x.prod_axis(1, false)?.sum().backward()?;
    assert_eq!(x.grad().unwrap().dims(), [2, 0]);
    Ok(())
}

/// PyTorch's results: a position that overflows is reflected to the first pixel.
#[test]
fn positions_that_overflow_are_reflected() -> Result<()> {
    let d = device();
    let image = Tensor::arange(1.0, 13.0, 1.0, &d)?.reshape([1, 1, 3, 4])?;
    let x = [3e38f32, -3e38, f32::MAX, f32::MIN];
    let grid: Vec<f32> = x.iter().flat_map(|&x| [x, 0.25]).collect();
    let grid = Tensor::from_vec(grid, [1, 1, 4, 2], &d)?;
    for (mode, align_corners, expected) in [
        (GridMode::Bilinear, false, 6.5),
        (GridMode::Bilinear, true, 6.0),
        (GridMode::Nearest, false, 5.0),
        (GridMode::Nearest, true, 5.0),
    ] {
        let options = GridSampleOptions { mode, padding: GridPadding::Reflection, align_corners };
        let what = format!("{mode:?}, align_corners {align_corners}");
        close(&f::grid_sample(&image, &grid, options)?, &[expected; 4], &what);
        // The form that computes gradients.
        let tracked = grid.detach().requires_grad();
        let sampled = f::grid_sample(&image, &tracked, options)?;
        close(&sampled.detach(), &[expected; 4], &what);
        if sampled.is_tracked() {
            sampled.sum().backward()?;
            let gradient = tracked.grad().unwrap().to_f64_vec()?;
            assert!(gradient.iter().all(|g| g.is_finite()), "{what}: {gradient:?}");
        }
    }
    let options =
        GridSampleOptions { mode: GridMode::Bicubic, padding: GridPadding::Reflection, align_corners: false };
    assert!(f::grid_sample(&image, &grid, options)?.to_f64_vec()?.iter().all(|v| v.is_finite()));
    Ok(())
}
