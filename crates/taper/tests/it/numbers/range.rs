//! Correct results at the ends of the range: magnitudes whose squares overflow, tails of saturated
//! functions, infinities, and NaN or infinity next to finite numbers.
#![allow(clippy::unwrap_used)]

use crate::common::{device, has, in_memory};
use taper::nn::functional::{
    self as f, GridMode, GridPadding, GridSampleOptions, InterpolateMode, InterpolateOptions,
};
use taper::prelude::*;

/// Relative closeness of a few units in the last place of f32.
const CLOSE: f64 = 2e-6;

#[track_caller]
fn close(found: &Tensor, expected: &[f64], what: &str) {
    let found = found.to_f64_vec().unwrap();
    assert_eq!(found.len(), expected.len(), "{what}: {found:?}, expected {expected:?}");
    let most = expected.iter().filter(|e| e.is_finite()).fold(0.0f64, |most, e| most.max(e.abs()));
    for (f, e) in found.iter().zip(expected) {
        // Beside a number, 0 may be what its rounding leaves.
        let near = if *e == 0.0 { CLOSE * most / 10.0 } else { CLOSE * e.abs() };
        let same = f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= near;
        assert!(same, "{what}: {found:?}, expected {expected:?}");
    }
}

/// The gradient of the sum of `f`'s result in `x`.
fn slope(x: &[f32], f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let x = Tensor::from_slice(x, [x.len()], &device())?.requires_grad();
    f(&x)?.sum().backward()?;
    Ok(x.grad().unwrap())
}

#[test]
fn norms_of_what_has_no_squares() -> Result<()> {
    let d = device();
    let x = |v: &[f32]| Tensor::from_slice(v, [v.len()], &d);
    for (scale, p, expected) in [
        (1e20f32, 2.0, 5e20),
        (1e-30, 2.0, 5e-30),
        (1e38, 2.0, f64::from(3e38f32).hypot(f64::from(1e38f32) * 0.0) * 5.0 / 3.0),
        (1e20, 3.0, 91f64.cbrt() * 1e20),
        (1e-30, 3.0, 91f64.cbrt() * 1e-30),
        (1e30, 0.5, (3f64.sqrt() + 2.0).powi(2) * 1e30),
        (1e-30, -2.0, 2.4e-30),
    ] {
        if expected > 3.4e38 {
            continue;
        }
        close(
            &x(&[3.0 * scale, -4.0 * scale])?.vector_norm(p, .., false)?,
            &[expected],
            &format!("{p}-norm at {scale:e}"),
        );
    }
    for scale in [1e20f32, 1e-30] {
        let v = [3.0 * scale, -4.0 * scale];
        close(&slope(&v, |x| x.vector_norm(2, .., false))?, &[0.6, -0.8], "gradient of the norm");
        close(
            &slope(&v, |x| x.vector_norm(3, .., false))?,
            &[9.0 / 91f64.powf(2.0 / 3.0), -16.0 / 91f64.powf(2.0 / 3.0)],
            "of the 3-norm",
        );
        let unit = f::normalize(&x(&v)?, 2.0, 0, 0.0)?;
        close(&unit, &[0.6, -0.8], "normalize");
        let like = f::cosine_similarity(&x(&v)?, &x(&[4.0 * scale, -3.0 * scale])?, 0, 0.0)?;
        close(&like, &[0.96], "cosine_similarity");
        close(&x(&v)?.dist(&x(&[0.0, 0.0])?, 2)?, &[f64::from(scale) * 5.0], "dist");
        let points = x(&[0.0, 0.0, 3.0 * scale, 4.0 * scale])?.reshape([2, 2])?;
        close(&f::pdist(&points, 2.0)?, &[f64::from(scale) * 5.0], "pdist");
        close(&f::cdist(&points.narrow(0, 0, 1)?, &points, 2.0)?, &[0.0, f64::from(scale) * 5.0], "cdist");
        let many = points.narrow(0, 1, 1)?.expand([30, 2])?.contiguous()?;
        let far = f::cdist(&points.narrow(0, 0, 1)?, &many, 2.0)?;
        close(&far.narrow(1, 0, 1)?, &[f64::from(scale) * 5.0], "cdist by products");
    }
    let held = x(&[3e20, 4e20])?.unsqueeze(0)?.renorm(2, 0, 1.0)?;
    close(&held, &[0.6, 0.8], "renorm");
    // Below 0, one zero makes the norm 0.
    for p in [-1.0, -2.0, -0.5] {
        let v = [1.0, 0.0, 2.0];
        close(&x(&v)?.vector_norm(p, .., false)?, &[0.0], "negative powers of zero");
        close(&slope(&v, |x| x.vector_norm(p, .., false))?, &[0.0, 0.0, 0.0], "gradient there");
    }
    close(&x(&[1.0, f32::INFINITY])?.vector_norm(2, .., false)?, &[f64::INFINITY], "infinite");
    close(&x(&[1.0, f32::NAN])?.vector_norm(2, .., false)?, &[f64::NAN], "no number");
    close(&x(&[0.0, 0.0])?.vector_norm(2, .., false)?, &[0.0], "zeros");
    if has(&d, DType::F64) {
        for scale in [1e200f64, 1e-200] {
            let v = Tensor::from_slice(&[3.0 * scale, 4.0 * scale], [2], &d)?;
            close(&v.vector_norm(2, .., false)?, &[5.0 * scale], "f64");
        }
    }
    Ok(())
}

/// Each pair of points has its distance, however far off other points are.
#[test]
fn one_far_point_changes_no_other_distance() -> Result<()> {
    let d = device();
    for (dtype, tiny, far) in [
        (DType::F32, 1e-30, 1e16),
        (DType::F32, 1e-30, 1e30),
        (DType::F64, 1e-200, 1e130),
        (DType::F64, 1e-200, 1e200),
    ] {
        if !has(&d, dtype) {
            continue;
        }
        let rows = [0.0, 0.0, 3.0, 4.0, 3.0 * tiny, 4.0 * tiny, 3.0 * far, 4.0 * far];
        let points = Tensor::new(rows, (dtype, &d))?.reshape([4, 2])?.requires_grad();
        let zero = points.detach().narrow(0, 0, 1)?;
        let many = Tensor::concat(&[zero.expand([30, 2])?, points.detach()], 0)?;
        for (name, distances) in [
            ("pdist", f::pdist(&points, 2.0)?.narrow(0, 0, 3)?),
            ("cdist", f::cdist(&zero, &points, 2.0)?.i((0, 1..))?),
            ("cdist by products", f::cdist(&points, &many, 2.0)?.i((1.., 3))?),
        ] {
            close(&distances, &[5.0, 5.0 * tiny, 5.0 * far], &format!("{name} beside {far:e}"));
            distances.sum().backward()?;
            let slopes = points.grad().unwrap().narrow(0, 1, 3)?.reshape([-1])?;
            close(&slopes, &[0.6, 0.8, 0.6, 0.8, 0.6, 0.8], &format!("gradient of {name} beside {far:e}"));
            points.zero_grad();
        }
    }
    Ok(())
}

#[test]
fn deviations_of_what_has_no_squares() -> Result<()> {
    let d = device();
    let x = |v: &[f32]| Tensor::from_slice(v, [v.len()], &d);
    for scale in [1e30f32, 1e-25, 1.0] {
        let v = [scale, 2.0 * scale, 3.0 * scale];
        close(&x(&v)?.std_axis(.., 1.0, false)?, &[f64::from(scale)], "std");
        close(&slope(&v, |x| x.std_axis(.., 1.0, false))?, &[-0.5, 0.0, 0.5], "gradient of std");
        close(&x(&v)?.std_mean(.., 1.0, false)?.0, &[f64::from(scale)], "std_mean");
    }
    close(&slope(&[2.0, 2.0, 2.0], |x| x.std_axis(.., 1.0, false))?, &[0.0; 3], "gradient of a constant's");
    let standardized = |x: &Tensor| {
        let (std, mean) = x.std_mean(0, 1.0, true)?;
        x.sub(&mean)?.div(&std.add_scalar(1e-5))
    };
    let columns = Tensor::new([[1.0f32, 5.0], [2.0, 5.0]], &d)?.requires_grad();
    standardized(&columns)?.sum().backward()?;
    assert!(columns.grad().unwrap().to_vec::<f32>()?.iter().all(|v| v.is_finite()));
    if d.name() == "cpu" {
        // Sums of a mean are taken in f64 here.
        for n in [3usize, 7, 100, 12345] {
            for v in [0.1f32, 1000.1, 3e38, 1e-45] {
                assert_eq!(
                    Tensor::from_slice(&vec![v; n], [n], &d)?.mean().item::<f32>()?,
                    v,
                    "{n} times {v}"
                );
                let columns = Tensor::from_slice(&vec![v; n * 40], [n, 40], &d)?.mean_axis(0, false)?;
                assert!(columns.to_vec::<f32>()?.iter().all(|&m| m == v), "{n} rows of {v}");
            }
        }
    }
    Ok(())
}

#[test]
fn slopes_of_saturated_functions() -> Result<()> {
    let s = |x: f64| 1.0 / (1.0 + (-x).exp());
    let sech2 = |x: f64| 1.0 / x.cosh().powi(2);
    let points = [-80.0f32, -20.0, -9.0, -1.0, 0.0, 0.5, 9.0, 20.0, 40.0];
    let wide: Vec<f64> = points.iter().map(|&v| f64::from(v)).collect();
    let of = |f: &dyn Fn(f64) -> f64| -> Vec<f64> { wide.iter().map(|&v| f(v)).collect() };
    close(&slope(&points, |x| Ok(x.sigmoid()))?, &of(&|x| s(x) * s(-x)), "sigmoid'");
    close(&slope(&points[1..8], |x| Ok(x.tanh()))?, &of(&sech2)[1..8], "tanh'");
    close(&slope(&points, |x| Ok(x.expm1()))?, &of(&f64::exp), "expm1'");
    close(&slope(&points, |x| Ok(x.elu(1.0)))?, &of(&|x| if x > 0.0 { 1.0 } else { x.exp() }), "elu'");
    close(
        &slope(&points, |x| Ok(x.celu(2.0)))?,
        &of(&|x| if x > 0.0 { 1.0 } else { (x / 2.0).exp() }),
        "celu'",
    );
    let (a, l) = (1.673_263_242_354_377_2, 1.050_700_987_355_480_5);
    close(&slope(&points, |x| Ok(x.selu()))?, &of(&|x| if x > 0.0 { l } else { l * a * x.exp() }), "selu'");
    // A gate, and second derivatives.
    close(&slope(&[1.0, 20.0], |x| x.glu(0))?, &[s(20.0), s(20.0) * s(-20.0)], "glu'");
    let x = Tensor::from_slice(&[20.0f32], [1], &device())?.requires_grad();
    let first = &taper::grad(&[x.sigmoid()], &[&x], true)?[0].clone().unwrap();
    let second = taper::grad(std::slice::from_ref(first), &[&x], false)?[0].clone().unwrap();
    close(&second, &[s(20.0) * s(-20.0) * (s(-20.0) - s(20.0))], "sigmoid''");
    Ok(())
}

#[test]
fn slopes_at_the_ends_of_the_range() -> Result<()> {
    close(&slope(&[1e20, -1e30, 0.0, 0.75], |x| Ok(x.asinh()))?, &[1e-20, 1e-30, 1.0, 0.8], "asinh'");
    close(&slope(&[1e20, 1e30, 1.25], |x| Ok(x.acosh()))?, &[1e-20, 1e-30, 4.0 / 3.0], "acosh'");
    let d = device();
    for (y, x, expected) in [
        (1e30f32, 1e30f32, [0.5e-30, -0.5e-30]),
        (1e-30, 1e-30, [0.5e30, -0.5e30]),
        (0.0, 0.0, [0.0, 0.0]),
        (3.0, 4.0, [0.16, -0.12]),
    ] {
        let (a, b) = (Tensor::new([y], &d)?.requires_grad(), Tensor::new([x], &d)?.requires_grad());
        a.atan2(&b)?.sum().backward()?;
        close(&a.grad().unwrap(), &expected[..1], "atan2' by y");
        close(&b.grad().unwrap(), &expected[1..], "atan2' by x");
    }
    for (a, b, expected) in
        [(3e38f32, 0.0f32, [1.0, 0.0]), (3e-38, 4e-38, [0.6, 0.8]), (2e38, 2e38, [0.5f64.sqrt(); 2])]
    {
        let (a, b) = (Tensor::new([a], &d)?.requires_grad(), Tensor::new([b], &d)?.requires_grad());
        a.hypot(&b)?.sum().backward()?;
        close(&a.grad().unwrap(), &expected[..1], "hypot' by a");
        close(&b.grad().unwrap(), &expected[1..], "hypot' by b");
    }
    Ok(())
}

#[test]
fn between_ends_that_are_far_apart() -> Result<()> {
    let d = device();
    let (inf, most) = (f32::INFINITY, f32::MAX);
    let x = |v: &[f32]| Tensor::from_slice(v, [v.len()], &d);
    let a = x(&[0.0, -most, inf, 1.0, -3e38, f32::NAN, inf])?;
    let b = x(&[inf, most, inf, 3.0, 3e38, 0.0, 0.0])?;
    for (weight, expected) in [
        (0.0, [0.0, -f64::from(most), f64::INFINITY, 1.0, f64::from(-3e38f32), f64::NAN, f64::INFINITY]),
        (0.5, [f64::INFINITY, 0.0, f64::INFINITY, 2.0, 0.0, f64::NAN, f64::INFINITY]),
        (1.0, [f64::INFINITY, f64::from(most), f64::INFINITY, 3.0, f64::from(3e38f32), f64::NAN, 0.0]),
    ] {
        let weights = Tensor::full([7], weight, &d)?;
        close(&a.lerp(&b, &weights)?, &expected, &format!("lerp by a tensor, {weight}"));
        let by_number = a.lerp(&b, weight)?.to_f64_vec()?;
        let same = |(f, e): (&f64, &f64)| f == e || f.is_nan();
        assert!(by_number.iter().zip(&expected).all(same), "lerp by {weight}: {by_number:?}");
    }
    close(&a.lerp(&b, 0.5)?, &[f64::INFINITY, 0.0, f64::INFINITY, 2.0, 0.0, f64::NAN, f64::INFINITY], "lerp");
    close(&x(&[0.0, inf])?.quantile(0.5, .., false)?, &[f64::INFINITY], "quantile to infinity");
    close(&x(&[-3e38, 3e38])?.quantile(0.5, .., false)?, &[0.0], "quantile of the ends");
    close(&x(&[0.0, inf, inf])?.quantile(0.75, .., false)?, &[f64::INFINITY], "quantile among infinities");
    Ok(())
}

#[test]
fn what_is_not_finite_stays_where_it_is() -> Result<()> {
    let d = device();
    let mut image = vec![1.0f32; 49];
    image[17] = f32::NAN;
    let image = Tensor::from_vec(image, [1, 1, 7, 7], &d)?;
    let nan = |t: Tensor| -> Result<usize> { Ok(t.to_vec::<f32>()?.iter().filter(|v| v.is_nan()).count()) };
    // Row 2, column 3: in the first of three bins of rows (0 to 2) and the second (2 to 4), and the second of
    // columns (2 to 4).
    assert_eq!(nan(f::adaptive_avg_pool2d(&image, [3, 3])?)?, 2);
    let line = Tensor::from_vec(
        (0..100).map(|i| if i == 50 { f32::INFINITY } else { 1.0 }).collect(),
        [1, 1, 100],
        &d,
    )?;
    let means = f::adaptive_avg_pool1d(&line, 30)?.to_vec::<f32>()?;
    assert_eq!(means.iter().filter(|v| v.is_infinite()).count(), 1, "{means:?}");
    assert!(means.iter().all(|v| *v == 1.0 || v.is_infinite()));
    let options = InterpolateOptions { mode: InterpolateMode::Bilinear, ..Default::default() };
    let twice = f::interpolate_with(&image, [14, 14], options)?;
    assert_eq!(nan(twice)?, 16);
    let options = InterpolateOptions { mode: InterpolateMode::Area, ..Default::default() };
    assert_eq!(nan(f::interpolate_with(&image, [3, 3], options)?)?, 2);
    Ok(())
}

/// PyTorch's results, except for NaN in the mode `Zeros`: PyTorch gives NaN, where its documentation says
/// −1.
#[test]
fn places_of_a_grid_that_are_nowhere() -> Result<()> {
    let d = device();
    let image = Tensor::arange(1.0, 17.0, 1.0, &d)?.reshape([1, 1, 4, 4])?;
    let x = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30, 3e9];
    let grid: Vec<f32> = x.iter().flat_map(|&x| [x, 0.0]).collect();
    let grid = Tensor::from_vec(grid, [1, 1, 6, 2], &d)?;
    use GridPadding as P;
    // Where the last two are reflected, rounding decides.
    for (padding, align_corners, expected) in [
        (P::Zeros, true, [7.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        (P::Zeros, false, [3.5, 0.0, 0.0, 0.0, 0.0, 0.0]),
        (P::Border, true, [7.0, 10.0, 7.0, 10.0, 7.0, 10.0]),
        (P::Border, false, [7.0, 10.0, 7.0, 10.0, 7.0, 10.0]),
        (P::Reflection, true, [7.0; 6]),
        (P::Reflection, false, [7.0; 6]),
    ] {
        let options = GridSampleOptions { mode: GridMode::Bilinear, padding, align_corners };
        let found = f::grid_sample(&image, &grid, options)?;
        let told = if padding == P::Reflection { 3 } else { 6 };
        let what = format!("{padding:?}, align_corners {align_corners}");
        close(&found.narrow(3, 0, told)?, &expected[..told], &what);
        let options = GridSampleOptions { mode: GridMode::Nearest, ..options };
        assert!(f::grid_sample(&image, &grid, options)?.to_vec::<f32>()?.iter().all(|v| v.is_finite()));
    }
    Ok(())
}

/// A number beside a half tensor is f32, sums are taken in f32, and so are averages.
#[test]
fn halves_are_computed_in_f32() -> Result<()> {
    let d = device();
    for dtype in [DType::F16, DType::BF16] {
        if !has(&d, dtype) {
            continue;
        }
        let x = |v: f64, n: usize| in_memory(Tensor::full([n], v, (dtype, &d))?);
        let rounded = |v: f64| -> Result<f64> { Ok(Tensor::full([], v, (dtype, &d))?.to_f64_vec()?[0]) };
        let check = |t: Tensor, expected: f64, what: &str| -> Result<()> {
            assert_eq!(t.dtype(), dtype, "{what}");
            assert_eq!(t.to_f64_vec()?[0], rounded(expected)?, "{what} of {dtype}");
            Ok(())
        };
        check(x(0.5, 1)?.mul_scalar(70000.0), 35000.0, "a factor beyond the dtype")?;
        check(&x(0.5, 1)? * 70000.0, 35000.0, "an operator")?;
        check(x(0.5, 1)?.mul(&Tensor::full([], 70000.0f32, &d)?)?, 35000.0, "a 0-d tensor")?;
        check(x(60000.0, 1)?.mul_scalar(1e-8), rounded(60000.0)? * 1e-8, "a factor below the dtype")?;
        check(f::normalize(&x(0.0, 4)?, 2.0, 0, 1e-12)?, 0.0, "normalize of zeros")?;
        // Sums of 64 are beyond f16, their means are not.
        let many = x(60000.0, 64)?;
        let image = many.reshape([1, 1, 8, 8])?;
        let v = rounded(60000.0)?;
        check(f::avg_pool2d_with(&image, [8, 8], Default::default())?, v, "avg_pool2d")?;
        check(f::adaptive_avg_pool2d(&image, [1, 3])?, v, "adaptive_avg_pool2d")?;
        let options = InterpolateOptions { mode: InterpolateMode::Area, ..Default::default() };
        check(f::interpolate_with(&image, [3, 3], options)?, v, "interpolate by area")?;
        check(many.mean(), v, "mean")?;
        let index = Tensor::zeros([64], (DType::I32, &d))?;
        let base = x(60000.0, 1)?;
        let reduce = taper::tensor_core::ScatterReduce::Mean;
        check(base.scatter_reduce(0, &index, &many, reduce, true)?, v, "scatter_reduce")?;
        check(many.segment_reduce(reduce, &[64], 0)?, v, "segment_reduce")?;
        let rows = many.reshape([64, 1])?;
        let places = Tensor::arange(0, 64, 1, (DType::I32, &d))?.reshape([1, 64])?;
        check(f::embedding_bag(&places, &rows, Default::default())?, v, "embedding_bag")?;
        // The gradient of log_softmax adds up a row: 3000 times 1/3000.
        let scores = Tensor::zeros([3000], (dtype, &d))?.requires_grad();
        scores.log_softmax(0)?.mul_scalar(-1.0).sum().backward()?;
        let slope = scores.grad().unwrap().to_f64_vec()?;
        assert!(slope.iter().all(|v| v.abs() < 1e-3), "log_softmax of {dtype}: {}", slope[0]);
    }
    Ok(())
}

/// Whether a value is read on the way changes nothing, whatever kernel it would have been a part of.
/// A number beside a half tensor stays f32, and so does its gradient: its sum is not rounded to the half
/// type.
#[test]
fn numbers_beside_halves_have_gradients_of_f32() -> Result<()> {
    let device = device();
    for dtype in [DType::F16, DType::BF16].into_iter().filter(|&dtype| has(&device, dtype)) {
        let x = Tensor::ones([4097], (dtype, &device))?;
        // Functions of x and a number, 2, and the slope by the number at each element.
        type Of2 = fn(&Tensor, &Tensor) -> Result<Tensor>;
        let functions: [(&str, f64, Of2); 8] = [
            ("x + s", 1.0, |x, s| x.add(s)),
            ("s + x", 1.0, |x, s| s.add(x)),
            ("x - s", -1.0, |x, s| x.sub(s)),
            ("s - x", 1.0, |x, s| s.sub(x)),
            ("x · s", 1.0, |x, s| x.mul(s)),
            ("x / s", -0.25, |x, s| x.div(s)),
            ("maximum(x, s)", 1.0, |x, s| x.maximum(s)),
            ("minimum(s, x)", 0.0, |x, s| s.minimum(x)),
        ];
        for (name, slope, function) in functions {
            let s = Tensor::full([], 2.0f32, &device)?.requires_grad();
            let x = x.clone().requires_grad();
            function(&x, &s)?.to_dtype(DType::F32)?.sum().backward()?;
            let found = s.grad().unwrap();
            assert_eq!(found.dtype(), DType::F32, "{name} of {dtype}");
            assert_eq!(found.to_f64_vec()?, [4097.0 * slope], "{name} of {dtype}");
            assert_eq!(x.grad().unwrap().dtype(), dtype, "{name} of {dtype}");
        }
    }
    Ok(())
}

#[test]
fn reading_halves_changes_nothing() -> Result<()> {
    let d = device();
    type Chain = (&'static str, fn(&Tensor) -> Result<Tensor>, fn(&Tensor, &Tensor) -> Result<Tensor>);
    let chains: [Chain; 12] = [
        ("a product, then a sum", |x| Ok(x * 3.3), |y, _| Ok(y + 1.7)),
        ("a root, then a square", |x| Ok(x.abs().sqrt()), |y, _| Ok(y.powi(2))),
        ("an exponential, then a difference", |x| Ok(x.exp()), |y, x| y.sub(x)),
        ("a quotient, then a comparison", |x| Ok(x / 3.0), |y, x| y.mul_scalar(3.0).eq(x)),
        ("a product of matrices, then its bias", |x| x.matmul(&x.t()?), |y, _| Ok(y + 0.3)),
        ("a product of matrices, then a function", |x| x.matmul(&x.t()?), |y, _| Ok(y.tanh())),
        ("a sum of rows, then what is left", |x| x.sum_axis(1, true), |y, x| x.sub(y)),
        (
            "a mean of rows, then squares",
            |x| x.mean_axis(1, true),
            |y, x| x.sub(y)?.powi(2).sum_axis(1, false),
        ),
        ("a square, then its sum", |x| Ok(x.powi(2)), |y, _| y.sum_axis(0, false)),
        ("a softmax, then a logarithm", |x| x.softmax(1), |y, _| Ok(y.log())),
        ("a formula, then a product", |x| Ok(x.lgamma()), |y, x| y.mul(x)),
        (
            "a range, then a sum",
            |x| {
                Tensor::arange(0.0, 24.0, 1.1, (x.dtype(), &x.device()))?
                    .narrow(0, 0, 8)?
                    .add(&x.select(0, 0)?)
            },
            |y, _| Ok(y + 0.77),
        ),
    ];
    for dtype in [DType::F16, DType::BF16] {
        if !has(&d, dtype) {
            continue;
        }
        let x = taper_testing::tensor(&[16, 8], 3, dtype, &d)?;
        for (what, first, second) in &chains {
            let fused = second(&first(&x)?, &x)?.to_f64_vec()?;
            let read = first(&x)?;
            read.eval()?;
            let apart = second(&read, &x)?.to_f64_vec()?;
            let differs = fused.iter().zip(&apart).position(|(f, a)| f != a && !(f.is_nan() && a.is_nan()));
            assert_eq!(differs, None, "{what} of {dtype} on {d}: {fused:?} and {apart:?}");
        }
    }
    Ok(())
}

/// One number everywhere is one element, whatever view of it is read and by whom.
#[test]
fn views_of_a_constant_take_no_memory() -> Result<()> {
    if taper_testing::run_alone(views_of_a_constant_take_no_memory) {
        return Ok(());
    }
    let d = device();
    const MANY: usize = 50_000_000;
    let one = || Tensor::ones([1], &d);
    let index = Tensor::new([1i32, 5, 3], &d)?;
    type Reader<'a> = (&'a str, Box<dyn Fn() -> Result<f64> + 'a>);
    let readers: Vec<Reader<'_>> = vec![
        ("sum", Box::new(|| Ok(one()?.expand([MANY])?.sum().to_f64_vec()?[0]))),
        ("mean", Box::new(|| Ok(one()?.expand([MANY])?.mean().to_f64_vec()?[0] * MANY as f64))),
        (
            "a slice",
            Box::new(|| Ok(Tensor::ones([MANY], &d)?.narrow(0, 7, 10)?.to_f64_vec()?[3] * MANY as f64)),
        ),
        (
            "a held view",
            Box::new(|| {
                let held = one()?.expand([MANY])?;
                let slice = held.reshape([MANY / 10, 10])?.narrow(0, 3, 2)?;
                Ok(slice.sum().to_f64_vec()?[0] / 20.0 * MANY as f64)
            }),
        ),
        (
            "gather",
            Box::new(|| {
                let taken = Tensor::ones([MANY], &d)?.gather(0, &index)?;
                Ok(taken.sum().to_f64_vec()?[0] / 3.0 * MANY as f64)
            }),
        ),
        ("maximum", Box::new(|| Ok(one()?.expand([MANY])?.max()?.to_f64_vec()?[0] * MANY as f64))),
        (
            "argmax",
            Box::new(|| {
                Ok(Tensor::ones([MANY], &d)?.narrow(0, 0, 100)?.argmax()?.to_f64_vec()?[0] + MANY as f64)
            }),
        ),
    ];
    d.empty_cache();
    for (what, read) in readers {
        d.reset_peak();
        let before = d.memory().peak;
        assert_eq!(read()?, MANY as f64, "{what}");
        let taken = d.memory().peak - before;
        assert!(taken < 1 << 20, "{what} took {taken} bytes");
    }
    Ok(())
}
