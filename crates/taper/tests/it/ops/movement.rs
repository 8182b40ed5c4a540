//! The edges of what moves, scatters and searches elements: empty parts, several elements for one place, NaN,
//! numbers that fit nowhere. Numbers without another source are PyTorch's.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper::autograd::TensorGrad;
use taper::nn::functional as f;
use taper::{DType, ErrorKind, Generator, MeshIndexing, Result, ScatterReduce, Tensor, linalg};

use crate::common::{agree, assert_close, device, has, numbers, of};
use crate::networks::refused;

/// Checks the elements of a tensor against another's.
#[track_caller]
fn near(what: &str, found: &Tensor, expected: &Tensor, (rtol, atol): (f64, f64)) {
    assert_eq!(found.dims(), expected.dims(), "{what}");
    let (found, expected) = (found.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
    assert_close(&found, &expected, (rtol, atol), what);
}

fn sizes(parts: &[Tensor]) -> Vec<Vec<usize>> {
    parts.iter().map(|part| part.dims().to_vec()).collect()
}

#[test]
fn parts_of_empty_and_uneven_axes() -> Result<()> {
    let d = device();
    let (none, seven) = (Tensor::zeros((0, 2), &d)?, Tensor::arange(0, 7, 1, &d)?);
    assert_eq!(sizes(&none.chunk(3, 0)?), [[0, 2]; 3]);
    assert_eq!(sizes(&none.split(3, 0)?), [[0, 2]]);
    assert_eq!(sizes(&seven.chunk(4, 0)?), [[2], [2], [2], [1]]);
    assert_eq!(sizes(&seven.narrow(0, 0, 5)?.tensor_split_at(&[-2, 1, 9], 0)?), [[3], [0], [4], [0]]);
    assert_eq!(sizes(&seven.tensor_split(9, 0)?)[6..], [[1], [0], [0]]);
    assert!(none.unbind(0)?.is_empty());
    assert_eq!(none.roll(5, 0)?.dims(), [0, 2]);
    assert_eq!(seven.repeat([0, 2])?.dims(), [0, 14]);
    assert_eq!(none.repeat_interleave(3, 0)?.dims(), [0, 2]);
    assert_eq!(seven.repeat_interleave(0, 0)?.dims(), [0]);
    let two = Tensor::new([2i32], &d)?;
    assert_eq!(
        seven.narrow(0, 0, 3)?.repeat_interleave_counts(&two, 0)?.to_f64_vec()?,
        [0., 0., 1., 1., 2., 2.]
    );
    assert_eq!(seven.narrow(0, 0, 2)?.combinations(3, false)?.dims(), [0, 3]);
    assert_eq!(seven.narrow(0, 0, 0)?.combinations(2, true)?.dims(), [0, 2]);
    assert_eq!(seven.combinations(0, false)?.dims(), [0]);
    assert_eq!(seven.combinations(7, false)?.to_f64_vec()?, seven.to_f64_vec()?);
    assert_eq!(
        sizes(&Tensor::meshgrid(&[&seven.narrow(0, 0, 0)?, &seven], MeshIndexing::Xy)?),
        [[7, 0], [7, 0]]
    );
    // Diagonals that leave the matrix, and matrices without elements.
    let x = Tensor::arange(0, 12, 1, &d)?.reshape((3, 4))?;
    assert_eq!(x.diagonal(4, 0, 1)?.dims(), [0]);
    assert_eq!(x.diagonal(-3, 0, 1)?.dims(), [0]);
    assert_eq!(x.diagonal(-2, 0, 1)?.to_f64_vec()?, [8.0]);
    assert_eq!(none.diagonal(0, 0, 1)?.dims(), [0]);
    assert_eq!(none.select(1, 0)?.diag(2)?.to_f64_vec()?, [0.0; 4]);
    assert_eq!(x.diagonal_scatter(&x.diagonal(4, 0, 1)?, 4, 0, 1)?.to_f64_vec()?, x.to_f64_vec()?);
    assert_eq!(seven.vander(0, false)?.dims(), [7, 0]);
    assert_eq!(Tensor::hann_window(0, true, &d)?.dims(), [0]);
    assert_eq!(Tensor::hann_window(1, true, &d)?.to_f64_vec()?, [1.0]);
    assert_eq!(Tensor::bartlett_window(2, false, &d)?.to_f64_vec()?, [0.0, 0.0]);
    Ok(())
}

/// Longer than a block of any kernel, of every dtype.
#[test]
fn large_moves_agree() {
    for dtype in DType::ALL.into_iter().filter(|&t| has(&device(), t)) {
        let x = move |d: &_| crate::common::tensor(&[37, 3, 41], 5, dtype, d);
        agree("kron", |d| x(d)?.kron(&x(d)?.i((..5, .., ..6))?));
        let wide = move |d: &_| crate::common::tensor(&[70, 300], 5, dtype, d);
        for mode in [f::PadMode::Reflect, f::PadMode::Replicate, f::PadMode::Circular] {
            agree("pad", |d| f::pad(&wide(d)?, &[(3, 0), (17, 150)], mode));
        }
        // Rows in order, in another, by few indices and by short lines.
        for (lines, count) in [(70i32, 300i32), (70, 65), (70, 4), (70, 1)] {
            let index = move |d: &_| -> Result<Tensor> {
                let numbers = Tensor::arange(0, lines * count, 1, (DType::I32, d))?.mul_scalar(7919);
                numbers.remainder_scalar(300).reshape([lines as usize, count as usize])
            };
            agree("gather", |d| wide(d)?.gather(1, &index(d)?));
            agree("gather flipped", |d| wide(d)?.flip(1)?.gather(1, &index(d)?));
            agree("scatter", |d| wide(d)?.scatter(1, &index(d)?, &wide(d)?.narrow(1, 0, count as usize)?));
            if dtype != DType::Bool {
                agree("scatter lines", |d| {
                    let tall = wide(d)?.t()?;
                    tall.scatter_add(0, &index(d)?.t()?, &wide(d)?.narrow(1, 0, count as usize)?.t()?)
                });
            }
        }
        agree("roll", |d| x(d)?.roll([11, -40], [0, 2]));
        agree("repeat", |d| x(d)?.repeat([2, 1, 3, 2]));
        agree("repeat_interleave", |d| x(d)?.transpose(0, 2)?.repeat_interleave(3, 1));
        agree("diagonal", |d| x(d)?.flip(0)?.diagonal(3, 0, 2));
        agree("diag_embed", |d| x(d)?.diag_embed(-2, 0, 1));
        agree("rot90", |d| x(d)?.rot90(3, [2, 0]));
    }
}

#[test]
fn the_last_of_several_stays() -> Result<()> {
    let d = device();
    let x = Tensor::new([[0.5f32, 1.5], [2.5, 3.5], [4.5, 5.5]], &d)?;
    let index = Tensor::new([[2i32], [0], [2], [2]], &d)?;
    let src = Tensor::arange(10.0, 18.0, 1.0, &d)?.reshape((4, 2))?;
    assert_eq!(x.scatter(0, &index, &src)?.to_f64_vec()?, [12.0, 1.5, 2.5, 3.5, 16.0, 5.5]);
    assert_eq!(x.scatter(0, &index, 7)?.to_f64_vec()?, [7.0, 1.5, 2.5, 3.5, 7.0, 5.5]);
    let line = index.flatten_all();
    assert_eq!(x.index_copy(0, &line, &src)?.to_f64_vec()?, [12.0, 13.0, 2.5, 3.5, 16.0, 17.0]);
    // Only elements that are in the result have a gradient.
    let (a, b) = (x.clone().requires_grad(), src.clone().requires_grad());
    a.scatter(0, &index, &b)?.sum().backward()?;
    assert_eq!(a.grad().unwrap().to_f64_vec()?, [0.0, 1.0, 1.0, 1.0, 0.0, 1.0]);
    assert_eq!(b.grad().unwrap().to_f64_vec()?, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    // A byte index of the last possible position.
    if has(&d, DType::U8) {
        let index = Tensor::new([255u8, 0, 255], &d)?;
        let out = Tensor::zeros([256], &d)?.scatter(0, &index, &Tensor::new([1f32, 2.0, 3.0], &d)?)?;
        assert_eq!((out.select(0, 255)?.item::<f32>()?, out.sum().item::<f32>()?), (3.0, 5.0));
    }
    let far = Tensor::new([[3i32]], &d)?;
    let error = x.scatter(0, &far, &src)?.to_f64_vec().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { index: 3, size: 3, .. }), "{error}");
    refused(x.scatter(0, &index, &src.to_dtype(DType::I32)?), &["scatter", "cast the source"]);
    refused(x.scatter(0, &index, &src.narrow(0, 0, 3)?), &["scatter", "no smaller"]);
    refused(x.scatter(1, &index, &src), &["scatter", "other than 1"]);
    refused(x.index_copy(0, &line, &src.narrow(0, 0, 3)?), &["index_copy", "shape of the part"]);
    refused(x.select_scatter(&src, 0, 3), &["select_scatter"]);
    refused(x.masked_scatter(&x, &src), &["masked_scatter", "bool"]);
    Ok(())
}

#[test]
fn reduced_by_index_as_pytorch_does() -> Result<()> {
    use ScatterReduce::{Amax, Amin, Mean, Prod, Sum};
    const NAN: f64 = f64::NAN;
    const LOW: f64 = f64::NEG_INFINITY;
    let d = device();
    let at = |values: &[f64]| of(values, &[values.len()], DType::F32, &d);
    let index = Tensor::new([0i32, 0, 1, 3, 2, 2, 1], &d)?;
    for (reduce, include_self, expected) in [
        (Amax, true, [3.0, 5.0, NAN, NAN]),
        (Amax, false, [3.0, 5.0, NAN, 7.0]),
        (Amin, true, [1.0, LOW, NAN, NAN]),
        (Amin, false, [3.0, LOW, NAN, 7.0]),
        (Prod, true, [9.0, LOW, NAN, NAN]),
        (Prod, false, [9.0, LOW, NAN, 7.0]),
        (Mean, true, [7.0 / 3.0, LOW, NAN, NAN]),
        (Mean, false, [3.0, LOW, NAN, 7.0]),
        (Sum, true, [7.0, LOW, NAN, NAN]),
        (Sum, false, [6.0, LOW, NAN, 7.0]),
    ] {
        let x = at(&[1.0, 5.0, 2.0, NAN])?;
        let src = at(&[3.0, 3.0, 5.0, 7.0, NAN, 1.0, LOW])?;
        let out = x.scatter_reduce(0, &index, &src, reduce, include_self)?;
        near(&format!("{reduce:?} {include_self}"), &out, &at(&expected)?, (1e-6, 0.0));
    }
    // Equal elements share the gradient, also with the old element.
    for (reduce, include_self, own, sent) in [
        (Amax, true, [0.0, 1.0, 3.0], [0.5, 0.5, 1.0, 0.0, 0.0]),
        (Amax, false, [0.0, 0.0, 3.0], [0.5, 0.5, 2.0, 0.0, 0.0]),
        (Amin, true, [1.0, 0.0, 3.0], [0.0, 0.0, 0.0, 1.0, 1.0]),
        (Prod, true, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]),
    ] {
        let x = at(&[1.0, 5.0, 2.0])?.requires_grad();
        let zero = if reduce == Prod { [3.0, 3.0, 0.0, 0.0, 0.0] } else { [3.0, 3.0, 5.0, 4.0, 4.0] };
        let src = at(&zero)?.requires_grad();
        let index = Tensor::new([0i32, 0, 1, 1, 1], &d)?;
        let out = x.scatter_reduce(0, &index, &src, reduce, include_self)?;
        out.mul(&at(&[1.0, 2.0, 3.0])?)?.sum().backward()?;
        let found = (x.grad().unwrap().to_f64_vec()?, src.grad().unwrap().to_f64_vec()?);
        match reduce {
            // 1·3·3 has the gradients 9, 3 and 3; 5·0·0·0 none at all.
            Prod => assert_eq!(found, (vec![9.0, 0.0, 3.0], vec![3.0, 3.0, 0.0, 0.0, 0.0])),
            Amax | Amin | Mean | Sum => {
                assert_eq!(found, (own.to_vec(), sent.to_vec()), "{reduce:?} {include_self}")
            }
        }
    }
    let x = Tensor::new([7i32, -3, 8], &d)?;
    let (index, src) = (Tensor::new([0i32, 0, 1, 1], &d)?, Tensor::new([2i32, -4, -8, 3], &d)?);
    for (reduce, with, without) in [
        (Mean, [1, -3, 8], [-1, -3, 8]),
        (Amin, [-4, -8, 8], [-4, -8, 8]),
        (Amax, [7, 3, 8], [2, 3, 8]),
        (Prod, [-56, 72, 8], [-8, -24, 8]),
    ] {
        for (include_self, expected) in [(true, with), (false, without)] {
            let out = x.scatter_reduce(0, &index, &src, reduce, include_self)?;
            assert_eq!(out.to_vec::<i32>()?, expected, "{reduce:?} {include_self}");
        }
    }
    let truth = x.gt_scalar(0);
    refused(truth.scatter_reduce(0, &index, &src.gt_scalar(0), Mean, true), &["scatter_reduce", "bools"]);
    for (reduce, expected) in [(Sum, [true, true, true]), (Prod, [false, false, true])] {
        let out = truth.scatter_reduce(0, &index, &src.gt_scalar(0), reduce, true)?;
        assert_eq!(out.to_vec::<bool>()?, expected, "{reduce:?}");
    }
    let any = truth.scatter_reduce(0, &index, &src.gt_scalar(0), Amax, false)?;
    assert_eq!(any.to_vec::<bool>()?, [true, true, true]);
    // Many for one place, against sums of halves.
    agree("many", |d| {
        let (n, places) = (5000, 7);
        let index = crate::common::tensor(&[n], 2, DType::F32, d)?
            .mul_scalar(1e4)
            .to_dtype(DType::I32)?
            .remainder_scalar(places);
        let src = crate::common::tensor(&[n], 3, DType::F32, d)?;
        let zeros = Tensor::zeros([places as usize], d)?;
        let mut out = Vec::new();
        for reduce in [Mean, Amax, Amin] {
            out.push(zeros.scatter_reduce(0, &index, &src, reduce, false)?);
        }
        Tensor::stack(&out, 0)
    });
    Ok(())
}

#[test]
fn masks_take_from_a_source_in_order() -> Result<()> {
    let d = device();
    let x = Tensor::zeros((2, 3), &d)?;
    let mask = Tensor::new([true, false, true], &d)?;
    let source = Tensor::arange(1.0, 6.0, 1.0, &d)?;
    assert_eq!(x.masked_scatter(&mask, &source)?.to_f64_vec()?, [1.0, 0.0, 2.0, 3.0, 0.0, 4.0]);
    let short = x.masked_scatter(&mask, &source.narrow(0, 0, 3)?)?;
    assert!(matches!(short.to_f64_vec().unwrap_err().kind(), ErrorKind::IndexOutOfRange { .. }));
    let none = source.narrow(0, 0, 0)?;
    refused(x.masked_scatter(&mask, &none), &["masked_scatter", "no elements"]);
    assert_eq!(x.masked_scatter(&mask.logical_not().bitwise_and(&mask)?, &none)?.to_f64_vec()?, [0.0; 6]);
    Ok(())
}

#[test]
fn places_among_sorted_numbers() -> Result<()> {
    let d = device();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let sorted = Tensor::new([1.0, 3.0, nan], &d)?;
    let values = Tensor::new([nan, 3.0, inf, -inf, 0.0], &d)?;
    assert_eq!(sorted.searchsorted(&values, false)?.to_f64_vec()?, [2.0, 1.0, 2.0, 0.0, 0.0]);
    assert_eq!(sorted.searchsorted(&values, true)?.to_f64_vec()?, [3.0, 2.0, 2.0, 0.0, 0.0]);
    assert_eq!(
        values.isin(&Tensor::new([nan, 0.0], &d)?)?.to_vec::<bool>()?,
        [false, false, false, false, true]
    );
    assert_eq!(values.isin(&sorted.narrow(0, 0, 0)?)?.to_vec::<bool>()?, [false; 5]);
    assert_eq!(sorted.narrow(0, 0, 0)?.searchsorted(&values, true)?.to_f64_vec()?, [0.0; 5]);
    // By comparisons and by halves, with many equals, in rows and alone.
    for n in [1, 63, 64, 65, 128, 1000] {
        let mut rows: Vec<Vec<f32>> = Vec::new();
        for row in 0..2 {
            let mut line: Vec<f32> = numbers(n, 7 + row).iter().map(|v| (v * 40.0).round() as f32).collect();
            line.sort_by(f32::total_cmp);
            rows.push(line);
        }
        let values: Vec<f32> = numbers(2 * 50, 9).iter().map(|v| (v * 44.0).round() as f32).collect();
        let (x, v) =
            (Tensor::from_vec(rows.concat(), [2, n], &d)?, Tensor::from_slice(&values, [2, 50], &d)?);
        for right in [false, true] {
            let place =
                |row: &[f32], v: f32| row.partition_point(|&s| if right { s <= v } else { s < v }) as i64;
            let expected: Vec<i64> =
                values.iter().enumerate().map(|(i, &v)| place(&rows[i / 50], v)).collect();
            let found = x.searchsorted(&v, right)?;
            assert_eq!(found.dtype(), d.int_dtype());
            assert_eq!(found.to_vec::<i64>()?, expected, "{n} {right}");
            let expected: Vec<i64> = values.iter().map(|&v| place(&rows[0], v)).collect();
            assert_eq!(v.bucketize(&x.select(0, 0)?, right)?.to_vec::<i64>()?, expected, "{n} {right}");
        }
        let expected: Vec<bool> = values.iter().map(|v| rows.concat().contains(v)).collect();
        assert_eq!(v.isin(&x)?.to_vec::<bool>()?, expected, "{n}");
    }
    refused(
        sorted.searchsorted(&sorted, false).and_then(|t| t.select(0, 0)?.searchsorted(&t, false)),
        &["searchsorted"],
    );
    Ok(())
}

#[test]
fn distances_and_their_edges() -> Result<()> {
    let d = device();
    let points = [[0.0f32, 0.0], [3.0, 4.0], [0.0, 0.0]];
    for (p, between, gradient) in [
        (0.0, 2.0, [0.0, 0.0]),
        (1.0, 7.0, [4.0, 4.0]),
        (2.0, 5.0, [2.4, 3.2]),
        (3.0, 4.497_941_445_275_415, [1.779_405_406_922_142_3, 3.163_387_390_083_808_5]),
        (f64::INFINITY, 4.0, [0.0, 4.0]),
    ] {
        let x = Tensor::new(points, &d)?.requires_grad();
        let all = f::cdist(&x, &x, p)?;
        let expected = [0.0, between, 0.0, between, 0.0, between, 0.0, between, 0.0];
        near(&format!("cdist {p}"), &all, &of(&expected, &[3, 3], DType::F32, &d)?, (1e-5, 1e-6));
        if p > 0.0 {
            all.sum().backward()?;
            let found = x.grad().unwrap();
            let [a, b] = gradient;
            let expected = [-a / 2.0, -b / 2.0, a, b, -a / 2.0, -b / 2.0];
            near(&format!("gradient {p}"), &found, &of(&expected, &[3, 2], DType::F32, &d)?, (1e-5, 1e-6));
        }
        near(
            &format!("pdist {p}"),
            &f::pdist(&x.detach(), p)?,
            &of(&[between, 0.0, between], &[3], DType::F32, &d)?,
            (1e-5, 1e-6),
        );
    }
    // By products, beside the plain form.
    let rng = Generator::seed(3, &d);
    let (x, y) = (Tensor::randn((2, 40, 5), &rng)?, Tensor::randn((30, 5), &rng)?);
    let plain = x.unsqueeze(-2)?.sub(&y)?.powi(2).sum_axis(-1, false)?.sqrt();
    near("by products", &f::cdist(&x, &y, 2.0)?, &plain, (1e-4, 1e-5));
    assert_eq!(f::cdist(&x.narrow(1, 0, 0)?, &y, 2.0)?.dims(), [2, 0, 30]);
    assert_eq!(f::cdist(&x.narrow(2, 0, 0)?, &y.narrow(1, 0, 0)?, 2.0)?.sum().item::<f32>()?, 0.0);
    refused(f::cdist(&x, &y, -1.0), &["cdist", "-1"]);
    refused(f::cdist(&x, &y.narrow(1, 0, 4)?, 2.0), &["cdist", "5", "4"]);
    Ok(())
}

/// Points and coordinates that fill no tile, several matrices, and places where nothing is known.
#[test]
fn distances_of_many_points_are_those_of_their_formula() -> Result<()> {
    let d = device();
    for dtype in [DType::F32, DType::F64, DType::F16].into_iter().filter(|&t| has(&d, t)) {
        let rng = Generator::seed(11, &d);
        let tolerance = if dtype == DType::F16 { (1e-2, 1e-2) } else { (1e-5, 1e-5) };
        let x = Tensor::randn((2, 1, 19, 67), &rng)?.to_dtype(dtype)?;
        let y = Tensor::randn((3, 17, 67), &rng)?.to_dtype(dtype)?;
        // Coordinates that are equal, and a NaN.
        let y =
            y.index_put((.., .., 3), &x.i((0, 0, 0, 3))?, false)?.index_put((0, 5, 7), f64::NAN, false)?;
        let (x, y) = (x.detach().requires_grad(), y.detach().requires_grad());
        for p in [0.0, 1.0, 2.0, 3.0, f64::INFINITY] {
            // Half types are computed in f32.
            let plain = |x: &Tensor, y: &Tensor| -> Result<Tensor> {
                let wide = |t: &Tensor| t.to_dtype(dtype.compute());
                wide(&x.unsqueeze(-2)?)?
                    .sub(&wide(&y.unsqueeze(-3)?)?)?
                    .vector_norm(p, -1, false)?
                    .to_dtype(dtype)
            };
            let (found, expected) = (f::cdist(&x, &y, p)?, plain(&x, &y)?);
            near(&format!("cdist {p} {dtype}"), &found, &expected, tolerance);
            if p > 0.0 {
                let weights = Tensor::randn((2, 3, 19, 17), &rng)?.to_dtype(dtype)?;
                let mut gradients = Vec::new();
                for distances in [found, expected] {
                    distances.mul(&weights)?.i((.., 1..))?.sum().backward()?;
                    gradients.push([x.grad().unwrap(), y.grad().unwrap().i(1..)?]);
                    x.zero_grad();
                    y.zero_grad();
                }
                for (found, expected) in gradients[0].iter().zip(&gradients[1]) {
                    near(&format!("gradient of cdist {p} {dtype}"), found, expected, tolerance);
                }
            }
            let plain = || -> Result<Tensor> {
                let (points, pairs) = (y.i(1)?, Tensor::triu_indices(17, 17, 1, &d)?);
                let [first, second] = [0, 1].map(|k| points.index_select(0, &pairs.select(0, k)?));
                first?.sub(&second?)?.vector_norm(p, -1, false)
            };
            let (found, expected) = (f::pdist(&y.i(1)?, p)?, plain()?);
            near(&format!("pdist {p} {dtype}"), &found, &expected, tolerance);
            if p > 0.0 {
                let weights = Tensor::randn(136, &rng)?.to_dtype(dtype)?;
                let [found, expected] = [found, expected].map(|distances| -> Result<Tensor> {
                    distances.mul(&weights)?.sum().backward()?;
                    let gradient = y.grad().unwrap();
                    y.zero_grad();
                    Ok(gradient)
                });
                near(&format!("gradient of pdist {p} {dtype}"), &found?, &expected?, tolerance);
            }
        }
    }
    // More points than one task takes.
    let rng = Generator::seed(12, &d);
    let (x, y) = (Tensor::randn((300, 3), &rng)?, Tensor::randn((2, 3), &rng)?);
    let plain = x.unsqueeze(1)?.sub(&y)?.abs().sum_axis(-1, false)?;
    near("many points", &f::cdist(&x, &y, 1.0)?, &plain, (1e-5, 1e-6));
    Ok(())
}

/// Longer than the part computed from one angle, in each form, with both ends.
#[test]
fn long_windows_are_those_of_their_formulas() -> Result<()> {
    use std::f64::consts::TAU;
    let d = device();
    let dtype = if has(&d, DType::F64) { DType::F64 } else { DType::F32 };
    let atol = if dtype == DType::F64 { 1e-14 } else { 1e-7 };
    for (n, periodic) in
        [(2, false), (3, true), (511, false), (512, true), (513, true), (2000, false), (2001, true)]
    {
        let last = if periodic { n } else { n - 1 };
        let check = |name: &str, found: Result<Tensor>, at: &dyn Fn(f64) -> f64| {
            let expected: Vec<f64> = (0..n).map(|i| at(i as f64 / last as f64)).collect();
            let found = found.unwrap().to_f64_vec().unwrap();
            assert_close(&found, &expected, (0.0, atol), &format!("{name} {n} {periodic}"));
            // A window is symmetric; a periodic one is symmetric without its first element.
            let inner = &found[usize::from(periodic)..];
            assert!(
                inner.iter().eq(inner.iter().rev()) || name == "kaiser" || name == "bartlett",
                "{name} {n}"
            );
        };
        let of = (dtype, &d);
        let cos = |t: f64| (TAU * t).cos();
        check("hann", Tensor::hann_window(n, periodic, of), &|t| 0.5 - 0.5 * cos(t));
        check("hamming", Tensor::hamming_window(n, periodic, 0.6, 0.4, of), &|t| 0.6 - 0.4 * cos(t));
        check("blackman", Tensor::blackman_window(n, periodic, of), &|t| {
            0.42 - 0.5 * cos(t) + 0.08 * cos(2.0 * t)
        });
        check("bartlett", Tensor::bartlett_window(n, periodic, of), &|t| 1.0 - (2.0 * t - 1.0).abs());
        // I₀ by an integral: the mean of e^(x·cos a) over half a turn, exact for so smooth a function.
        let bessel = |x: f64| {
            (0..64).map(|k| (x * (TAU * (f64::from(k) + 0.5) / 128.0).cos()).exp()).sum::<f64>() / 64.0
        };
        for beta in [0.0, 0.5, 12.0, 19.9, 20.1] {
            check("kaiser", Tensor::kaiser_window(n, periodic, beta, of), &|t| {
                bessel(beta * (1.0 - (2.0 * t - 1.0).powi(2)).max(0.0).sqrt()) / bessel(beta)
            });
        }
    }
    Ok(())
}

#[test]
fn exponentials_of_large_matrices() -> Result<()> {
    let d = device();
    let turned = linalg::matrix_exp(&Tensor::new([[0.0f32, -20.0], [20.0, 0.0]], &d)?)?;
    let expected = [
        0.408_082_061_813_393_57,
        -0.912_945_250_727_627_7,
        0.912_945_250_727_627_7,
        0.408_082_061_813_393_57,
    ];
    near("a turn", &turned, &of(&expected, &[2, 2], DType::F32, &d)?, (0.0, 1e-4));
    let zero = linalg::matrix_exp(&Tensor::zeros((2, 3, 3), &d)?)?;
    assert_eq!(zero.sum().item::<f32>()?, 6.0);
    assert_eq!(linalg::matrix_exp(&Tensor::zeros((0, 3, 3), &d)?)?.dims(), [0, 3, 3]);
    let broken = linalg::matrix_exp(&Tensor::new([[f32::NAN, 0.0], [0.0, 1.0]], &d)?)?;
    assert!(broken.isnan().any().item::<bool>()?);
    if has(&d, DType::F64) {
        let steep = linalg::matrix_exp(&of(&[30.0, 1.0, 0.0, -50.0], &[2, 2], DType::F64, &d)?)?;
        let expected = [10_686_474_581_524.463, 133_580_932_269.055_77, 0.0, 0.0];
        near("steep", &steep, &of(&expected, &[2, 2], DType::F64, &d)?, (1e-12, 1e-2));
    }
    Ok(())
}

/// A large output of several parts is written in bands; it must equal the results of the small images by
/// themselves.
#[test]
fn a_batch_is_padded_as_its_images_are() -> Result<()> {
    let d = device();
    // 9 x 6 images of 35 x 30: no number of them is a band.
    let x = Tensor::arange(0.0f32, (9 * 6 * 29 * 27) as f32, 1.0f32, &d)?.reshape([9, 6, 29, 27])?;
    let around = [(4, 2), (1, 2)];
    for mode in [f::PadMode::Constant(-1.5), f::PadMode::Reflect, f::PadMode::Replicate, f::PadMode::Circular]
    {
        // Also of images whose memory is in another order.
        for input in [x.clone(), x.transpose(0, 1)?, x.transpose(2, 3)?.contiguous()?.transpose(2, 3)?] {
            let all = f::pad(&input, &around, mode)?;
            for image in [0, input.dims()[0] / 2, input.dims()[0] - 1] {
                let alone = f::pad(&input.narrow(0, image, 1)?.contiguous()?, &around, mode)?;
                near(&format!("{mode:?}"), &all.narrow(0, image, 1)?, &alone, (0.0, 0.0));
            }
        }
    }
    // Parts that begin in the midst of the bands, one of them empty.
    let (wide, tall) = (x.reshape([9 * 6 * 29, 27])?, x.reshape([27, 9 * 6 * 29])?);
    let empty = Tensor::zeros((0, 3), &d)?;
    let blocks = Tensor::block_diag(&[&wide, &empty, &tall])?;
    let (rows, columns) = (wide.dims()[0], wide.dims()[1] + 3);
    let part = |row: [usize; 2], column: [usize; 2]| {
        blocks.narrow(0, row[0], row[1])?.narrow(1, column[0], column[1])
    };
    near("the first", &part([0, rows], [0, 27])?, &wide, (0.0, 0.0));
    near("the last", &part([rows, 27], [columns, tall.dims()[1]])?, &tall, (0.0, 0.0));
    assert_eq!(blocks.count_nonzero(..)?.item::<i64>()?, 2 * (x.numel() as i64 - 1));
    Ok(())
}

/// Many elements that are added to a few places: each position gets the sum of its elements and its old
/// value, and a bad index is an error.
#[test]
fn many_elements_go_to_a_few_places() -> Result<()> {
    let d = device();
    let n = 150_001;
    let index = |i: usize| (i * 7919 % 6007 % 5) as i32;
    let weight = |i: usize| (i * 104_729 % 1013) as f32 / 1013.0 - 0.4;
    let indices = Tensor::from_vec((0..n).map(index).collect::<Vec<i32>>(), [n], &d)?;
    let weights = Tensor::from_vec((0..n).map(weight).collect::<Vec<f32>>(), [n], &d)?;
    // Nothing goes to the last place, which keeps its sign.
    let base = Tensor::new([1.0f32, -2.0, 0.5, 0.0, 3.0, -0.0], &d)?;
    let found = base.scatter_add(0, &indices, &weights)?.to_vec::<f32>()?;
    let mut expected: Vec<f64> = base.to_f64_vec()?;
    (0..n).for_each(|i| expected[index(i) as usize] += f64::from(weight(i)));
    assert_close(&found.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(), &expected, (1e-5, 1e-3), "sums");
    assert!(found[5] == 0.0 && found[5].is_sign_negative());
    let counts = indices.bincount(6)?.to_f64_vec()?;
    let expected: Vec<f64> = (0..6).map(|k| (0..n).filter(|&i| index(i) == k).count() as f64).collect();
    assert_eq!(counts, expected);
    for bad in [-1, 6] {
        let indices = Tensor::concat(&[&indices, &Tensor::new([bad], &d)?, &indices], 0)?;
        let weights = Tensor::concat(&[&weights, &Tensor::new([1.0f32], &d)?, &weights], 0)?;
        let error = base.scatter_add(0, &indices, &weights)?.to_f64_vec().unwrap_err();
        let is_told = matches!(error.kind(), ErrorKind::IndexOutOfRange { index, size: 6, .. } if *index == i64::from(bad));
        assert!(is_told, "{error}");
    }
    Ok(())
}
