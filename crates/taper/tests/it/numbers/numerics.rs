//! NaN, infinities, signed zeros, the least numbers and overflowing integers, through every family of
//! operations.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{agree, agree_within, device, has, numbers, of, tensor};
use taper::prelude::*;
use taper::tensor_core::{ReduceOp, UnaryOp};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// Rows that each hold something special at both ends or in the middle, long enough for every form of a
/// kernel.
fn rows(length: usize) -> (Vec<f64>, [usize; 2]) {
    let specials: [&[(usize, f64)]; 9] = [
        &[],
        &[(0, NAN)],
        &[(length - 1, NAN)],
        &[(length / 2, INF)],
        &[(0, -INF)],
        &[(0, INF), (length - 1, -INF)],
        &[(length / 3, INF), (length / 2, NAN)],
        &[(1, 3e38), (length - 1, 3e38)],
        &[(1, -3e38), (length - 1, -3e38)],
    ];
    let mut values = numbers(specials.len() * length, 5);
    for (row, special) in specials.iter().enumerate() {
        for &(at, value) in *special {
            values[row * length + at] = value;
        }
    }
    // Two rows of only such numbers.
    values.extend(std::iter::repeat_n(-INF, length));
    values.extend(std::iter::repeat_n(NAN, length));
    (values, [specials.len() + 2, length])
}

#[test]
fn reductions_pass_nan_and_infinity_on() {
    for length in [5, 200, 5000] {
        let (values, shape) = rows(length);
        for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min] {
            // A mean overflows where its sum does; the reference adds up in f64.
            let values: Vec<f64> = values
                .iter()
                .map(|&v| if op == ReduceOp::Mean && v.abs() == 3e38 { 1.0 } else { v })
                .collect();
            for axis in [1, 0] {
                agree_within(&format!("{} of {length} over {axis}", op.name()), Some((1e-4, 1e-3)), |d| {
                    let x = of(&values, &shape, DType::F32, d)?;
                    if axis == 1 { x } else { x.t()? }.reduce(op, axis, false)
                });
            }
        }
        // Every NaN is true.
        for op in [ReduceOp::Any, ReduceOp::All] {
            agree(&format!("{} of {length}", op.name()), |d| {
                of(&values, &shape, DType::F32, d)?.to_dtype(DType::Bool)?.reduce(op, 1, false)
            });
        }
        agree(&format!("argmax of {length}"), |d| of(&values, &shape, DType::F32, d)?.argmax_axis(1, false));
        agree(&format!("argmin of {length}"), |d| of(&values, &shape, DType::F32, d)?.argmin_axis(1, false));
    }
    for special in [NAN, INF, -INF, 0.0] {
        agree(&format!("product with {special}"), |d| {
            of(&[1.0, 2.0, special, -3.0], &[4], DType::F32, d)?.prod_axis(0, false)
        });
    }
}

#[test]
fn rows_pass_nan_and_infinity_on() {
    for length in [5, 200, 5000] {
        let (values, shape) = rows(length);
        // Finite extremes overflow inside a variance, whose order of operations is the library's own.
        let tame: Vec<f64> =
            values.iter().map(|&v| if v.abs() == 3e38 { v.signum() * 1e4 } else { v }).collect();
        type Rows = fn(Tensor) -> Result<Tensor>;
        let cases: [(&str, &[f64], Rows); 4] = [
            ("softmax", &values, |x| x.softmax(1)),
            ("log_softmax", &values, |x| x.log_softmax(1)),
            ("logsumexp", &values, |x| x.logsumexp(1, false)),
            ("standardised", &tame, |x| {
                x.sub(&x.mean_axis(1, true)?)?.div(&x.var_axis(1, 1.0, true)?.add_scalar(1e-5).sqrt())
            }),
        ];
        for (name, values, f) in cases {
            agree_within(&format!("{name} of {length}"), Some((2e-4, 2e-4)), |d| {
                f(of(values, &shape, DType::F32, d)?)
            });
        }
    }
}

#[test]
fn products_pass_nan_and_infinity_on_and_nowhere_else() {
    // Below, at and above the sizes of tiles and of vectors, so that a read beyond an edge would show.
    for (m, k, n) in [(3, 5, 4), (16, 64, 16), (33, 65, 31), (70, 130, 66), (1, 300, 40), (40, 300, 1)] {
        for special in [NAN, INF, -INF] {
            let mut lhs = numbers(m * k, 1);
            let mut rhs = numbers(k * n, 2);
            lhs[(m - 1) * k + k - 1] = special;
            rhs[n - 1] = special;
            // Nothing times infinity.
            rhs[(k - 1) * n] = 0.0;
            for transposed in [false, true] {
                let what = format!("{m} x {k} x {n} with {special}, transposed: {transposed}");
                agree_within(&what, Some((1e-4, 1e-4)), |d| {
                    let a = of(&lhs, &[m, k], DType::F32, d)?;
                    let b = of(&rhs, &[k, n], DType::F32, d)?;
                    if transposed {
                        // The same values, the other way round in memory.
                        a.t()?.contiguous()?.t()?.matmul(&b.t()?.contiguous()?.t()?)
                    } else {
                        a.matmul(&b)
                    }
                });
            }
        }
    }
}

/// Bit patterns of f32 that arithmetic would lose: signed zeros, the least numbers, infinities, NaN with a
/// payload.
const PATTERNS: [u32; 10] = [
    0x0000_0000,
    0x8000_0000,
    0x0000_0001,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0xffc1_2345,
];

fn bits(tensor: &Tensor) -> Result<Vec<u32>> {
    Ok(tensor.to_vec::<f32>()?.iter().map(|v| v.to_bits()).collect())
}

#[test]
fn what_is_only_moved_keeps_its_bits() -> Result<()> {
    let d = device();
    let n = PATTERNS.len();
    let values: Vec<f32> = PATTERNS.iter().map(|&b| f32::from_bits(b)).collect();
    let x = Tensor::from_slice(&values, [n], &d)?;
    let reversed: Vec<u32> = PATTERNS.iter().rev().copied().collect();
    let twice = [PATTERNS, PATTERNS].concat();
    assert_eq!(bits(&x)?, PATTERNS, "there and back");
    assert_eq!(bits(&x.to(&taper::cpu())?)?, PATTERNS, "to the cpu");
    assert_eq!(bits(&x.flip(0)?.contiguous()?)?, reversed, "flip");
    assert_eq!(bits(&Tensor::concat(&[&x, &x], 0)?)?, twice, "concat");
    assert_eq!(bits(&x.pad(&[(1, 1)], -0.0)?)?[1..=n], PATTERNS, "pad");
    assert_eq!(bits(&x.pad(&[(1, 1)], -0.0)?)?[0], 0x8000_0000, "what pads");
    let all = Tensor::from_vec((0..n as i32).rev().collect(), [n], &d)?;
    assert_eq!(bits(&x.gather(0, &all)?)?, reversed, "gather");
    assert_eq!(bits(&x.index_select(0, &all)?)?, reversed, "index_select");
    let column = x.reshape([n, 1])?.expand([n, 3])?.t()?.contiguous()?;
    assert_eq!(bits(&column)?, [PATTERNS; 3].concat(), "expand and transpose");
    // A choice computes nothing either; only the payload of a NaN is a map's to change.
    let chosen = x.gt_scalar(1e9).where_cond(&Tensor::zeros([n], &d)?, &x)?;
    let expected = PATTERNS.map(|b| if b == 0x7f80_0000 { 0 } else { b });
    for (found, expected) in bits(&chosen)?.into_iter().zip(expected) {
        let nan = f32::from_bits(expected).is_nan() && f32::from_bits(found).is_nan();
        assert!(found == expected || nan, "where: {found:#x} for {expected:#x}");
    }
    Ok(())
}

#[test]
fn zeros_keep_their_signs() -> Result<()> {
    let d = device();
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        if !has(&d, dtype) {
            continue;
        }
        let x = of(&[0.0, -0.0], &[2], dtype, &d)?;
        // Whether each is a zero, and below the axis.
        let signs = |t: Tensor, what: &str, expected: [bool; 2]| -> Result<()> {
            let values = t.to_f64_vec()?;
            assert_eq!(values, [0.0, 0.0], "{what} of {dtype}");
            assert_eq!([0, 1].map(|i| values[i].is_sign_negative()), expected, "{what} of {dtype}");
            Ok(())
        };
        signs(x.neg(), "neg", [true, false])?;
        signs(x.abs(), "abs", [false, false])?;
        use UnaryOp as U;
        for op in [
            U::Sqrt,
            U::Floor,
            U::Ceil,
            U::Round,
            U::Trunc,
            U::Sin,
            U::Tan,
            U::Tanh,
            U::Erf,
            U::Expm1,
            U::Log1p,
        ] {
            signs(x.unary(op), op.name(), [false, true])?;
        }
        let one = Tensor::ones([2], (dtype, &d))?;
        signs(x.add(&x)?, "sum of a zero with itself", [false, true])?;
        signs(x.add(&x.flip(0)?)?, "sum of both zeros", [false, false])?;
        signs(x.mul(&one)?, "product with one", [false, true])?;
        signs(x.mul(&one.neg())?, "product with minus one", [true, false])?;
        signs(x.div(&one.neg())?, "quotient by minus one", [true, false])?;
        signs(x.atan2(&one)?, "atan2", [false, true])?;
        signs(x.powi(3), "cube", [false, true])?;
        signs(x.powi(2), "square", [false, false])?;
        // The reciprocals distinguish the zeros.
        assert_eq!(one.div(&x)?.to_f64_vec()?, [INF, -INF], "reciprocals of {dtype}");
        assert_eq!(x.eq(&x.flip(0)?)?.to_vec::<bool>()?, [true, true], "both zeros of {dtype}");
    }
    Ok(())
}

/// WGSL lets a device take the least numbers for zero in arithmetic, if it keeps the sign; the CPU computes
/// with them.
#[test]
fn the_least_numbers_are_computed_with_or_taken_for_zero() -> Result<()> {
    let d = device();
    let least = [1e-40f32, -1e-40, f32::from_bits(1), -f32::from_bits(1), 1.1e-38];
    let x = Tensor::from_slice(&least, [least.len()], &d)?;
    let exact = d.name() == "cpu";
    type Case = (&'static str, Tensor, fn(f32) -> f32);
    let cases: [Case; 5] = [
        ("neg", x.neg(), |v| -v),
        ("abs", x.abs(), f32::abs),
        ("half", &x * 0.5, |v| v * 0.5),
        ("double", x.add(&x)?, |v| v + v),
        ("larger", &x * 1e30, |v| v * 1e30),
    ];
    for (what, found, expected) in cases {
        for (found, expected) in found.to_vec::<f32>()?.into_iter().zip(least.map(expected)) {
            let flushed = found == 0.0 && !exact;
            assert!(found == expected || flushed, "{what}: {found:e} for {expected:e}");
        }
    }
    let sum = x.sum().item::<f32>()?;
    let expected = least.iter().sum::<f32>();
    assert!(sum == expected || !exact && sum == 0.0, "{sum:e} for {expected:e}");
    Ok(())
}

#[test]
fn half_types_round_overflow_and_reach_down_to_their_least_numbers() {
    for (dtype, most, least) in [(DType::F16, 65504.0, 6e-8), (DType::BF16, 3.38e38, 1.18e-38)] {
        let values = [most, -most, least, -least, 0.0, -0.0, NAN, INF, -INF, 1.0];
        agree(&format!("{dtype} doubled"), |d| Ok(of(&values, &[10], dtype, d)? * 2.0));
        agree(&format!("{dtype} summed"), |d| of(&values, &[5, 2], dtype, d)?.sum_axis(1, false));
        agree(&format!("{dtype} multiplied"), |d| {
            let x = of(&values[..4], &[4, 1], dtype, d)?;
            x.matmul(&x.t()?)
        });
    }
}

#[test]
fn integers_overflow_by_wrapping_in_sums_and_products() {
    for dtype in [DType::I32, DType::U32, DType::U8, DType::I64] {
        if !has(&device(), dtype) {
            continue;
        }
        let large = match dtype {
            DType::U8 => 200.0,
            DType::I64 => 4e18,
            DType::U32 => 4e9,
            _ => 2e9,
        };
        let values = |n: usize| -> Vec<f64> { (0..n).map(|i| large - (i % 17) as f64).collect() };
        // They are of i64 where the device has it, as the reference does.
        if has(&device(), DType::I64) {
            for n in [3, 700, 5000] {
                agree(&format!("sum of {n} {dtype}"), |d| {
                    of(&values(2 * n), &[2, n], dtype, d)?.sum_axis(1, false)
                });
                agree(&format!("sum of columns of {n} {dtype}"), |d| {
                    of(&values(2 * n), &[n, 2], dtype, d)?.sum_axis(0, false)
                });
            }
            agree(&format!("product of {dtype}"), |d| of(&values(9), &[9], dtype, d)?.prod_axis(0, false));
        }
        for (m, k, n) in [(2, 3, 2), (33, 40, 35), (1, 200, 9)] {
            agree(&format!("{m} x {k} x {n} of {dtype}"), |d| {
                of(&values(m * k), &[m, k], dtype, d)?.matmul(&of(&values(k * n), &[k, n], dtype, d)?)
            });
        }
        agree(&format!("scatter_add of {dtype}"), |d| {
            let index = Tensor::zeros([9], (DType::I32, d))?;
            of(&values(2), &[2], dtype, d)?.scatter_add(0, &index, &of(&values(9), &[9], dtype, d)?)
        });
    }
}

#[test]
fn indexing_adds_nan_and_infinity_where_they_belong() -> Result<()> {
    let values = [NAN, INF, -INF, 1.0, INF, -INF, 2.0];
    agree("scatter_add", |d| {
        let index = Tensor::from_vec(vec![0i32, 1, 2, 3, 4, 4, 3], [7], d)?;
        tensor(&[6], 1, DType::F32, d)?.scatter_add(0, &index, &of(&values, &[7], DType::F32, d)?)
    });
    agree("index_add", |d| {
        let index = Tensor::from_vec(vec![2i32, 2, 0], [3], d)?;
        let src = of(&[1.0, NAN, INF, 2.0, -INF, 3.0], &[3, 2], DType::F32, d)?;
        tensor(&[4, 2], 1, DType::F32, d)?.index_add(0, &index, &src)
    });
    Ok(())
}

/// A table, the elements gathered from it, and a line, each larger than the bindings of the suite's run with
/// small windows.
#[test]
fn indices_along_long_axes() -> Result<()> {
    let (rows, width, picked) = (3001, 16, 5000);
    let index = |d: &Device| {
        let places =
            numbers(picked, 7).iter().map(|x| ((x + 2.0) / 4.0 * 3000.0).floor()).collect::<Vec<_>>();
        of(&places, &[picked], DType::I32, d)
    };
    agree("index_select", |d| tensor(&[rows, width], 1, DType::F32, d)?.index_select(0, &index(d)?));
    // The reference rounds a half after each addition.
    for (dtype, within) in [(DType::F32, None), (DType::BF16, Some((3.2e-2, 2e-2)))] {
        agree_within("index_add", within, |d| {
            let base = tensor(&[rows, width], 1, dtype, d)?;
            base.index_add(0, &index(d)?, &tensor(&[picked, width], 2, dtype, d)?)
        });
    }
    agree("the gradient of index_select", |d| {
        let table = tensor(&[rows, width], 1, DType::F32, d)?.requires_grad();
        let weight = tensor(&[picked, width], 2, DType::F32, d)?;
        table.index_select(0, &index(d)?)?.mul(&weight)?.sum().backward()?;
        Ok(table.grad().unwrap())
    });
    agree("argmax", |d| tensor(&[100_003], 3, DType::F32, d)?.argmax());
    agree("argmin of columns", |d| tensor(&[20_001, 3], 4, DType::F32, d)?.argmin_axis(0, false));
    Ok(())
}
