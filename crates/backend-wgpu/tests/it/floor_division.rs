//! floor_divide and remainder of floats: exact, as in PyTorch and Python.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::devices;
use tensor_core::{BinaryOp, DType, Result, Tensor};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Dividend, divisor, floor of the quotient and remainder, as PyTorch computes them in f32 (and in f64, if
/// that has the same numbers).
const CASES: &[(f64, f64, f64, f64)] = &[
    (7.0, 2.0, 3.0, 1.0),
    (-7.0, 2.0, -4.0, 1.0),
    (7.0, -2.0, -4.0, -1.0),
    (-7.0, -2.0, 3.0, -1.0),
    (6.0, 3.0, 2.0, 0.0),
    (-6.0, 3.0, -2.0, -0.0),
    (0.0, 5.0, 0.0, 0.0),
    (-0.0, 5.0, -0.0, -0.0),
    (5.0, INF, 0.0, 5.0),
    (-5.0, INF, -1.0, INF),
    (5.0, -INF, -1.0, -INF),
    (INF, 2.0, NAN, NAN),
    (-INF, 2.0, NAN, NAN),
    (INF, INF, NAN, NAN),
    (NAN, 2.0, NAN, NAN),
    (2.0, NAN, NAN, NAN),
    (5.0, 0.0, INF, NAN),
    (-5.0, 0.0, -INF, NAN),
    (5.0, -0.0, -INF, NAN),
    (0.0, 0.0, NAN, NAN),
    // Quotients that underflow.
    (-1.0, 3e38, -1.0, 3e38),
    (1.0, -3e38, -1.0, -3e38),
    (1.0, 3e38, 0.0, 1.0),
    (-1.0, -3e38, 0.0, -1.0),
    // 2^60 by 3, and 2^100 by 7: a rounded quotient would give wrong remainders.
    (1152921504606846976.0, 3.0, 384307168202282325.0, 1.0),
    (1267650600228229401496703205376.0, 7.0, 181092942889747057356671886482.0, 2.0),
];

/// Whether two values are the same number: NaN equals NaN, and zeros must have the same sign.
fn same(found: f64, expected: f64) -> bool {
    found.is_nan() && expected.is_nan() || found.to_bits() == expected.to_bits()
}

#[test]
fn quotients_and_remainders_are_exact() -> Result<()> {
    for (name, d) in devices() {
        for dtype in [DType::F32, DType::F64] {
            if !d.supports(dtype) {
                continue;
            }
            let cast = |v: f64| if dtype == DType::F32 { f64::from(v as f32) } else { v };
            let side = |f: fn(&(f64, f64, f64, f64)) -> f64| -> Result<Tensor> {
                let values: Vec<f64> = CASES.iter().map(f).collect();
                match dtype {
                    DType::F32 => {
                        let values: Vec<f32> = values.iter().map(|&v| v as f32).collect();
                        Tensor::from_slice(&values, [CASES.len()], d)
                    }
                    _ => Tensor::from_slice(&values, [CASES.len()], d),
                }
            };
            let (a, b) = (side(|c| c.0)?, side(|c| c.1)?);
            let floors = a.binary(BinaryOp::FloorDiv, &b)?.to_f64_vec()?;
            let remainders = a.binary(BinaryOp::Remainder, &b)?.to_f64_vec()?;
            for (k, &(a, b, floor, remainder)) in CASES.iter().enumerate() {
                let what = format!("{a} by {b} in {dtype} on {name}");
                assert!(same(floors[k], cast(floor)), "⌊{what}⌋ is {}, expected {floor}", floors[k]);
                let expected = cast(remainder);
                assert!(
                    same(remainders[k], expected),
                    "{what}: remainder {}, expected {expected}",
                    remainders[k]
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_tenth_goes_nine_times_into_one() -> Result<()> {
    for (name, d) in devices() {
        let (one, tenth) =
            (Tensor::from_slice(&[1.0_f32, -1.0], [2], d)?, Tensor::from_slice(&[0.1_f32], [1], d)?);
        let floors = one.binary(BinaryOp::FloorDiv, &tenth)?.to_vec::<f32>()?;
        assert_eq!(floors, [9.0, -10.0], "{name}");
        // 1 minus nine times the f32 nearest to a tenth, which is a little more than a tenth.
        let left = (1.0 - 9.0 * f64::from(0.1_f32)) as f32;
        let remainders = one.binary(BinaryOp::Remainder, &tenth)?.to_vec::<f32>()?;
        assert_eq!(remainders[0], left, "{name}");
    }
    Ok(())
}
