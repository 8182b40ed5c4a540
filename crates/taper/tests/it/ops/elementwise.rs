//! Elementwise operations on every layout and dtype, compared with the plain reference.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{VIEWS, agree, agree_within, device, has, of, tensor};
use taper::tensor_core::{BinaryOp, CompareOp, UnaryOp};
use taper::{DType, Result, Tensor};

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
const INTS: [DType; 4] = [DType::I64, DType::I32, DType::U32, DType::U8];

fn dtypes(all: &[DType]) -> Vec<DType> {
    all.iter().copied().filter(|&d| has(&device(), d)).collect()
}

/// Whether real functions of this dtype exist on the device under test, which an f64 of a GPU's may lack.
fn close(dtype: DType) -> Option<(f64, f64)> {
    match dtype {
        DType::F32 => Some((3e-5, 3e-6)),
        DType::F64 => Some((1e-11, 1e-12)),
        _ => None,
    }
}

#[test]
fn unary_functions_agree_on_every_layout() {
    for &op in UnaryOp::ALL {
        for &(layout, make) in VIEWS {
            agree_within(&format!("{} of {layout}", op.name()), close(DType::F32), |d| {
                Ok(make(d, DType::F32, 1)?.unary(op))
            });
        }
    }
}

#[test]
fn unary_functions_agree_in_every_dtype() {
    for dtype in dtypes(&FLOATS) {
        for &op in UnaryOp::ALL {
            let what = format!("{} of {dtype}", op.name());
            agree_within(&what, close(dtype), |d| Ok(tensor(&[37], 2, dtype, d)?.unary(op)));
        }
    }
    for dtype in dtypes(&INTS) {
        for &op in UnaryOp::ALL {
            agree_within(&format!("{} of {dtype}", op.name()), Some((3e-5, 3e-6)), |d| {
                Ok(tensor(&[37], 2, dtype, d)?.unary(op))
            });
        }
    }
    agree("not of bool", |d| Ok(tensor(&[9], 2, DType::Bool, d)?.logical_not()));
}

#[test]
fn binary_functions_agree_on_every_layout_and_broadcast() {
    use BinaryOp as B;
    for op in [B::Add, B::Sub, B::Mul, B::Div, B::FloorDiv, B::Maximum, B::Minimum, B::Atan2] {
        for &(layout, make) in VIEWS {
            // A quotient near a whole number may be floored either way.
            let within = if op == B::FloorDiv { Some((1e-5, 1.0)) } else { close(DType::F32) };
            agree_within(&format!("{} of {layout}", op.name()), within, |d| {
                let (a, b) = (make(d, DType::F32, 1)?, make(d, DType::F32, 2)?);
                a.binary(op, &b)
            });
        }
        let within = if op == B::FloorDiv { Some((1e-5, 1.0)) } else { close(DType::F32) };
        for (a, b) in
            [(vec![3, 4], vec![4]), (vec![3, 1], vec![1, 4]), (vec![], vec![2, 3]), (vec![0, 1], vec![3])]
        {
            agree_within(&format!("{} of {a:?} and {b:?}", op.name()), within, |d| {
                tensor(&a, 1, DType::F32, d)?.binary(op, &tensor(&b, 2, DType::F32, d)?)
            });
        }
    }
    agree_within("pow", Some((5e-5, 1e-6)), |d| {
        let base = tensor(&[50], 1, DType::F32, d)?.abs();
        base.pow(&tensor(&[50], 2, DType::F32, d)?)
    });
    agree_within("remainder", Some((1e-5, 1e-5)), |d| {
        tensor(&[50], 1, DType::F32, d)?.remainder(&of(&[0.75; 50], &[50], DType::F32, d)?)
    });
}

#[test]
fn integers_wrap_and_divide_by_zero_to_zero() {
    use BinaryOp as B;
    for dtype in dtypes(&INTS) {
        let edge = match dtype {
            DType::I64 => vec![i64::MIN as f64, -3.0, -1.0, 0.0, 1.0, 2.0, 7.0, 4e18],
            DType::I32 => vec![f64::from(i32::MIN), -3.0, -1.0, 0.0, 1.0, 2.0, 7.0, f64::from(i32::MAX)],
            DType::U32 => vec![0.0, 1.0, 2.0, 7.0, 3e9, f64::from(u32::MAX)],
            _ => vec![0.0, 1.0, 2.0, 7.0, 200.0, 255.0],
        };
        let n = edge.len();
        let of_integers = [B::Add, B::Sub, B::Mul, B::FloorDiv, B::Remainder, B::Maximum, B::Minimum];
        for op in of_integers.into_iter().chain(B::ALL.iter().copied().filter(|op| op.is_integral())) {
            agree(&format!("{} of {dtype}", op.name()), |d| {
                let x = of(&edge, &[n, 1], dtype, d)?;
                x.binary(op, &x.reshape([1, n])?)
            });
        }
        agree(&format!("pow of {dtype}"), |d| {
            of(&edge, &[n, 1], dtype, d)?.pow(&of(&[0.0, 1.0, 2.0, 3.0, 5.0], &[1, 5], dtype, d)?)
        });
        agree(&format!("powi of {dtype}"), |d| Ok(of(&edge, &[n], dtype, d)?.powi(3)));
        for &op in CompareOp::ALL {
            agree(&format!("{} of {dtype}", op.name()), |d| {
                let x = of(&edge, &[n, 1], dtype, d)?;
                x.compare(op, &x.reshape([1, n])?)
            });
        }
    }
}

#[test]
fn special_values_follow_ieee() {
    use BinaryOp as B;
    let special =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 0.5, 3.4e38, 100.0, -100.0];
    let n = special.len();
    for op in [B::Add, B::Sub, B::Mul, B::Div, B::Maximum, B::Minimum, B::Pow, B::Atan2] {
        // A GPU may take numbers below the least normal one for zeros.
        agree_within(&format!("{} of special values", op.name()), Some((5e-5, 1.2e-38)), |d| {
            let x = of(&special, &[n, 1], DType::F32, d)?;
            x.binary(op, &x.reshape([1, n])?)
        });
    }
    for &op in CompareOp::ALL {
        agree(&format!("{} of special values", op.name()), |d| {
            let x = of(&special, &[n, 1], DType::F32, d)?;
            x.compare(op, &x.reshape([1, n])?)
        });
        // The same tensor on both sides, which a compiler may take for equal.
        agree(&format!("{} of special values with themselves", op.name()), |d| {
            let x = of(&special, &[n], DType::F32, d)?;
            x.compare(op, &x)
        });
    }
    for &op in UnaryOp::ALL {
        // Angles beyond a few turns are as good as the driver's reduction.
        let angle = matches!(op, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan);
        let values: Vec<f64> =
            special.iter().copied().filter(|v| !angle || !v.is_finite() || v.abs() < 10.0).collect();
        agree_within(&format!("{} of special values", op.name()), Some((5e-5, 1e-6)), |d| {
            Ok(of(&values, &[values.len()], DType::F32, d)?.unary(op))
        });
    }
}

#[test]
fn casts_between_all_dtypes_saturate_and_cut() {
    let floats = [
        0.0,
        -0.0,
        1.5,
        -1.5,
        2.5,
        300.0,
        -300.0,
        3e9,
        -3e9,
        70000.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let ints = [0.0, 1.0, -1.0, 127.0, 255.0, 1000.0, -1000.0];
    for from in dtypes(&DType::ALL) {
        for to in dtypes(&DType::ALL) {
            let values: &[f64] = if from.is_float() { &floats } else { &ints };
            agree_within(&format!("{from} to {to}"), Some((1e-6, 0.0)), |d| {
                of(values, &[values.len()], from, d)?.to_dtype(to)
            });
        }
    }
}

#[test]
fn scalars_stand_on_either_side_and_promote_as_in_pytorch() -> Result<()> {
    let d = device();
    let x = of(&[1.0, 2.0, 4.0], &[3], DType::F32, &d)?;
    let check = |t: Tensor, expected: &[f64]| -> Result<()> {
        assert_eq!(t.to_f64_vec()?, expected);
        Ok(())
    };
    check(&x + 2.0, &[3.0, 4.0, 6.0])?;
    check(&x + 2, &[3.0, 4.0, 6.0])?;
    check(2.0 - &x, &[1.0, 0.0, -2.0])?;
    check(8 / &x, &[8.0, 4.0, 2.0])?;
    check(x.clone() * x.clone() - &x, &[0.0, 2.0, 12.0])?;
    check(-&x, &[-1.0, -2.0, -4.0])?;
    let ints = Tensor::new([1, 2, 4], (DType::I32, &d))?;
    assert_eq!((&ints + 1).dtype(), DType::I32);
    assert_eq!((&ints + 0.5).dtype(), DType::F32);
    assert_eq!((&ints / 2).dtype(), DType::F32);
    check(&ints / 2, &[0.5, 1.0, 2.0])?;
    assert_eq!((&ints + &x).dtype(), DType::F32);
    // A 0-d tensor gives way within its category.
    assert_eq!((&x.to_dtype(DType::F16)? + &Tensor::full((), 1.0, &d)?).dtype(), DType::F16);
    Ok(())
}

#[test]
fn where_clamp_and_masks() {
    agree("where", |d| {
        let condition = tensor(&[3, 1], 1, DType::Bool, d)?;
        condition.where_cond(&tensor(&[3, 4], 2, DType::F32, d)?, &tensor(&[4], 3, DType::F32, d)?)
    });
    // A `where` that simplifies to a maximum, together with the maximum itself: both are kept.
    agree("the greater, chosen", |d| {
        let [x, y] =
            [[-3.0, 0.25, 3.0, f64::NAN], [1.0, 0.25, -4.0, 2.0]].map(|all| of(&all, &[4], DType::F32, d));
        let (x, y) = (x?, y?);
        let most = x.maximum(&y)?;
        let chosen = x.gt(&y)?.where_cond(&x, &most)?;
        taper::eval_all(&[&most, &chosen])?;
        Tensor::concat(&[most, chosen], 0)
    });
    agree("clamp", |d| Ok(of(&[-3.0, 0.25, 3.0, f64::NAN], &[4], DType::F32, d)?.clamp(-1.0, 1.0)));
    agree("masked_fill", |d| {
        let x = tensor(&[3, 4], 2, DType::F32, d)?;
        x.masked_fill(&x.gt_scalar(0.0), 9.0)
    });
    for n in [-3, -1, 0, 1, 2, 3, 4, 7, 10] {
        agree_within(&format!("powi {n}"), Some((1e-5, 1e-6)), |d| {
            Ok((tensor(&[20], 1, DType::F32, d)? + 3.0).powi(n))
        });
    }
    agree_within("powf", Some((5e-5, 1e-6)), |d| Ok(tensor(&[20], 1, DType::F32, d)?.abs().powf(2.5)));
    agree_within("gelu and silu", Some((5e-5, 1e-6)), |d| {
        let x = tensor(&[40], 1, DType::F32, d)?;
        x.gelu().add(&x.silu())
    });
}

#[test]
fn more_than_65535_workgroups() -> Result<()> {
    let d = device();
    let n = 20_000_000;
    let x = Tensor::full([n], 1.5, &d)? * Tensor::full([n], 2.0, &d)?;
    assert_eq!(x.narrow(0, n - 3, 3)?.to_vec::<f32>()?, [3.0; 3]);
    Ok(())
}
