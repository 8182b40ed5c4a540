//! One formula for each operation and dtype, applied to a block of operands.
#![allow(unsafe_code)]
// Closures are inlined into the loops; function pointers might not be.
#![allow(clippy::redundant_closure)]

use tensor_core::{Arithmetic, BinaryOp, DType, Error, ErrorKind, Result, UnaryOp, round_to_odd};

#[cfg(target_arch = "x86_64")]
use crate::simd::vector;
use crate::{
    elementwise::values::{Side, Values, number_of},
    memory::narrow::round,
    simd::{
        isa::{Isa, Plain},
        loops::{fold, map1, map2, map2_checked},
        math,
    },
};

fn lacking(op: &'static str, dtype: DType) -> Error {
    Error::new(ErrorKind::Unsupported {
        op,
        device: "cpu".into(),
        dtype,
        hint: "cast the operand to a dtype that the operation takes, such as F32".into(),
    })
}

/// Computes the angles for which the vector form does not hold, one by one.
///
/// # Safety
/// As [`map1`]; `x` must still hold the operand.
unsafe fn patch(isa: Isa, x: *const f32, out: *mut f32, n: usize, f: fn(f64) -> f64) {
    // Most blocks have no such angle; a vector pass finds out.
    let wide = |any: u32, v: f32| any | u32::from(math::is_wide_angle(v));
    // SAFETY: the caller's promise.
    if unsafe { fold(isa, isa, x, n, 0u32, wide, |a, b| a | b) } == 0 {
        return;
    }
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe {
            let v = x.add(i).read();
            if math::is_wide_angle(v) {
                out.add(i).write(f(f64::from(v)) as f32);
            }
        }
    }
}

/// Elements of smaller integers that are processed at once as i64.
const WIDENED: usize = 256;

/// Calls `f(start, operands, n)` for pieces of operands of bool or a 32-bit integer, widened to i64. The
/// low bits of the i64 results are the results, so smaller integers need no loops of their own.
///
/// # Safety
/// Operands are valid for `n` elements of `dtype` and aligned.
pub(crate) unsafe fn as_i64<const N: usize>(
    isa: Isa,
    dtype: DType,
    operands: [*const u8; N],
    n: usize,
    f: &mut dyn FnMut(usize, [*mut u8; N], usize) -> Result<()>,
) -> Result<()> {
    let mut wide = [const { std::mem::MaybeUninit::<[i64; WIDENED]>::uninit() }; N];
    let wide = wide.each_mut().map(|w| w.as_mut_ptr().cast::<u8>());
    for start in (0..n).step_by(WIDENED) {
        let n = WIDENED.min(n - start);
        for (wide, operand) in wide.iter().zip(operands) {
            // SAFETY: the caller's promise.
            unsafe { cast(isa, dtype, DType::I64, operand.wrapping_add(start * dtype.size()), *wide, n) };
        }
        f(start, wide, n)?;
    }
    Ok(())
}

/// `out = op(x)` over `n` elements of the compute dtype `dtype`.
///
/// # Safety
/// `x` and `out` are valid for `n` elements of `dtype` (`out` of bool for tests) and aligned. `out` is not
/// `x` for trigonometric functions.
pub(crate) unsafe fn unary(
    isa: Isa,
    op: UnaryOp,
    dtype: DType,
    x: *const u8,
    out: *mut u8,
    n: usize,
) -> Result<()> {
    use UnaryOp as U;
    macro_rules! go {
        ($sets:expr, $t:ty, $o:ty, $f:expr) => {{
            // SAFETY: the caller's promise.
            unsafe { map1::<$t, $o>($sets, x.cast(), out.cast(), n, $f) };
            return Ok(());
        }};
    }
    // A function in two versions, with and without fused multiply-add.
    macro_rules! real {
        ($f:ident) => {
            match isa.fused() {
                Some(fused) => go!(fused, f32, f32, |v| math::$f::<true>(v)),
                None => go!(Plain, f32, f32, |v| math::$f::<false>(v)),
            }
        };
    }
    macro_rules! angle {
        ($f:ident, $wide:expr) => {{
            // SAFETY: the caller's promise.
            unsafe {
                match isa.fused() {
                    Some(fused) => map1::<f32, f32>(fused, x.cast(), out.cast(), n, |v| math::$f::<true>(v)),
                    None => map1::<f32, f32>(Plain, x.cast(), out.cast(), n, |v| math::$f::<false>(v)),
                }
                patch(isa, x.cast(), out.cast(), n, $wide);
            }
            return Ok(());
        }};
    }
    let narrow = isa.narrow();
    // `$sets`: the wide instruction sets, for hot operations.
    macro_rules! float {
        ($t:ty, $sets:expr) => {
            match op {
                U::Neg => go!($sets, $t, $t, |v| -v),
                U::Abs => go!($sets, $t, $t, |v| v.abs()),
                U::Sign => go!(narrow, $t, $t, |v| if v > 0.0 {
                    1.0
                } else if v < 0.0 {
                    -1.0
                } else {
                    0.0
                }),
                U::Sqrt => go!($sets, $t, $t, |v| v.sqrt()),
                U::Rsqrt => go!($sets, $t, $t, |v| 1.0 / v.sqrt()),
                U::Reciprocal => go!($sets, $t, $t, |v| 1.0 / v),
                U::Relu => go!($sets, $t, $t, |v| if v < 0.0 { 0.0 } else { v }),
                U::Floor => go!(narrow, $t, $t, |v| v.floor()),
                U::Ceil => go!(narrow, $t, $t, |v| v.ceil()),
                U::Round => go!(narrow, $t, $t, |v| v.round_ties_even()),
                U::Trunc => go!(narrow, $t, $t, |v| v.trunc()),
                U::IsNan => go!(narrow, $t, bool, |v| v.is_nan()),
                U::IsInf => go!(narrow, $t, bool, |v| v.is_infinite()),
                U::Exp
                | U::Expm1
                | U::Log
                | U::Log1p
                | U::Sin
                | U::Cos
                | U::Tan
                | U::Tanh
                | U::Sigmoid
                | U::Erf
                | U::Ndtr
                | U::Gaussian
                | U::Not => {}
            }
        };
    }
    match dtype.arithmetic() {
        Arithmetic::F32 => {
            float!(f32, isa);
            match op {
                #[cfg(target_arch = "x86_64")]
                U::Exp if isa.is_avx512() => {
                    // SAFETY: the caller's promise.
                    unsafe { vector::map::<vector::F32x16>(x.cast(), out.cast(), n, math::Exp) };
                    return Ok(());
                }
                U::Exp if isa.has_fma() => go!(narrow, f32, f32, |v| math::exp::<true, f32>(v)),
                U::Exp => go!(Plain, f32, f32, |v| math::exp::<false, f32>(v)),
                U::Expm1 => go!(isa, f32, f32, |v| math::expm1(v)),
                U::Log => real!(log),
                U::Log1p => go!(isa, f32, f32, |v| math::log1p(v)),
                U::Tanh => real!(tanh),
                U::Sigmoid => real!(sigmoid),
                U::Erf => real!(erf),
                U::Ndtr => real!(ndtr),
                U::Gaussian => real!(gaussian),
                U::Sin => angle!(sin, f64::sin),
                U::Cos => angle!(cos, f64::cos),
                U::Tan => {
                    // SAFETY: the caller's promise.
                    unsafe {
                        map1::<f32, f32>(narrow, x.cast(), out.cast(), n, |v| math::tan(v));
                        patch(isa, x.cast(), out.cast(), n, f64::tan);
                    }
                    return Ok(());
                }
                // The first ones have returned above; floats do not have the last.
                U::Neg
                | U::Abs
                | U::Sign
                | U::Sqrt
                | U::Rsqrt
                | U::Reciprocal
                | U::Relu
                | U::Floor
                | U::Ceil
                | U::Round
                | U::Trunc
                | U::IsNan
                | U::IsInf
                | U::Not => {}
            }
        }
        Arithmetic::F64 => {
            float!(f64, narrow);
            match op {
                U::Exp => go!(Plain, f64, f64, |v| v.exp()),
                U::Expm1 => go!(Plain, f64, f64, |v| v.exp_m1()),
                U::Log => go!(Plain, f64, f64, |v| v.ln()),
                U::Log1p => go!(Plain, f64, f64, |v| v.ln_1p()),
                U::Tanh => go!(Plain, f64, f64, |v| v.tanh()),
                U::Sigmoid => go!(Plain, f64, f64, |v| {
                    // e^−|x| never overflows.
                    let e = (-v.abs()).exp();
                    if v < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
                }),
                U::Erf => go!(Plain, f64, f64, |v| libm::erf(v)),
                U::Ndtr => go!(Plain, f64, f64, |v| math::ndtr_f64(v)),
                U::Gaussian => go!(Plain, f64, f64, |v| math::gaussian_f64(v)),
                U::Sin => go!(Plain, f64, f64, |v| v.sin()),
                U::Cos => go!(Plain, f64, f64, |v| v.cos()),
                U::Tan => go!(Plain, f64, f64, |v| v.tan()),
                // The first ones have returned above; floats do not have the last.
                U::Neg
                | U::Abs
                | U::Sign
                | U::Sqrt
                | U::Rsqrt
                | U::Reciprocal
                | U::Relu
                | U::Floor
                | U::Ceil
                | U::Round
                | U::Trunc
                | U::IsNan
                | U::IsInf
                | U::Not => {}
            }
        }
        Arithmetic::I64 => match op {
            U::Neg => go!(narrow, i64, i64, |v| v.wrapping_neg()),
            U::Abs => go!(narrow, i64, i64, |v| v.wrapping_abs()),
            U::Sign => go!(narrow, i64, i64, |v| v.signum()),
            U::Relu => go!(narrow, i64, i64, |v| v.max(0)),
            U::Not => go!(narrow, i64, i64, |v| !v),
            U::Exp
            | U::Expm1
            | U::Log
            | U::Log1p
            | U::Sqrt
            | U::Rsqrt
            | U::Reciprocal
            | U::Sin
            | U::Cos
            | U::Tan
            | U::Tanh
            | U::Sigmoid
            | U::Erf
            | U::Ndtr
            | U::Gaussian
            | U::Floor
            | U::Ceil
            | U::Round
            | U::Trunc
            | U::IsNan
            | U::IsInf => {}
        },
        Arithmetic::U64 => match op {
            U::Neg => go!(narrow, u64, u64, |v| v.wrapping_neg()),
            U::Abs | U::Relu => go!(narrow, u64, u64, |v| v),
            U::Sign => go!(narrow, u64, u64, |v| u64::from(v != 0)),
            U::Not => go!(narrow, u64, u64, |v| !v),
            U::Exp
            | U::Expm1
            | U::Log
            | U::Log1p
            | U::Sqrt
            | U::Rsqrt
            | U::Reciprocal
            | U::Sin
            | U::Cos
            | U::Tan
            | U::Tanh
            | U::Sigmoid
            | U::Erf
            | U::Ndtr
            | U::Gaussian
            | U::Floor
            | U::Ceil
            | U::Round
            | U::Trunc
            | U::IsNan
            | U::IsInf => {}
        },
        Arithmetic::I32 | Arithmetic::U32 if matches!(op, U::Neg | U::Abs | U::Sign | U::Relu | U::Not) => {
            let own = dtype.register();
            // SAFETY: the caller's promise.
            return unsafe {
                as_i64(isa, own, [x], n, &mut |start, [wide], n| {
                    unary(isa, op, DType::I64, wide, wide, n)?;
                    cast(isa, DType::I64, own, wide, out.wrapping_add(start * own.size()), n);
                    Ok(())
                })
            };
        }
        Arithmetic::Bool if op == U::Not => go!(narrow, bool, bool, |v| !v),
        Arithmetic::I32 | Arithmetic::U32 | Arithmetic::Bool => {}
    }
    Err(lacking(op.name(), dtype))
}

/// `out = xⁿ` by repeated squaring of x alone: the same products on every instruction set.
///
/// # Safety
/// As [`unary`].
pub(crate) unsafe fn powi(
    isa: Isa,
    p: i32,
    dtype: DType,
    x: *const u8,
    out: *mut u8,
    n: usize,
) -> Result<()> {
    let times = p.unsigned_abs();
    let narrow = isa.narrow();
    // `$sets`: the instruction sets for squares and cubes.
    macro_rules! go {
        ($sets:expr, $t:ty, $one:expr, $mul:expr, $inverse:expr) => {{
            // SAFETY: the caller's promise.
            unsafe {
                match p {
                    1 => map1::<$t, $t>(narrow, x.cast(), out.cast(), n, |v| v),
                    2 => map1::<$t, $t>($sets, x.cast(), out.cast(), n, |v| $mul(v, v)),
                    3 => map1::<$t, $t>($sets, x.cast(), out.cast(), n, |v| $mul($mul(v, v), v)),
                    _ => map1::<$t, $t>(narrow, x.cast(), out.cast(), n, |v| {
                        let (mut base, mut power, mut left) = (v, $one, times);
                        while left > 0 {
                            if left & 1 == 1 {
                                power = $mul(power, base);
                            }
                            base = $mul(base, base);
                            left >>= 1;
                        }
                        if p < 0 { $inverse(power) } else { power }
                    }),
                }
            }
            Ok(())
        }};
    }
    match dtype.arithmetic() {
        Arithmetic::F32 => go!(isa, f32, 1.0f32, |a: f32, b: f32| a * b, |v: f32| 1.0 / v),
        Arithmetic::F64 => go!(narrow, f64, 1.0f64, |a: f64, b: f64| a * b, |v: f64| 1.0 / v),
        // The low bits of signed and unsigned products are the same.
        Arithmetic::I64 | Arithmetic::U64 => {
            go!(narrow, i64, 1, |a: i64, b: i64| a.wrapping_mul(b), |v: i64| v)
        }
        Arithmetic::I32 | Arithmetic::U32 => {
            let own = dtype.register();
            // SAFETY: the caller's promise.
            unsafe {
                as_i64(isa, own, [x], n, &mut |start, [wide], n| {
                    powi(isa, p, DType::I64, wide, wide, n)?;
                    cast(isa, DType::I64, own, wide, out.wrapping_add(start * own.size()), n);
                    Ok(())
                })
            }
        }
        Arithmetic::Bool => Err(lacking("powi", dtype)),
    }
}

/// Whether [`binary`] accepts a single number as an operand.
pub(crate) fn takes_number(op: BinaryOp, dtype: DType) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div) && dtype == DType::F32
}

/// `out = op(a, b)` over `n` elements of `dtype`. If the operation [takes a number](takes_number), an operand
/// that is uniform is read as one.
///
/// # Safety
/// The operands are aligned and of `dtype`; `out` is valid for `n` elements of it. `out` is not an operand
/// for `pow`, and never a number.
pub(crate) unsafe fn binary(
    isa: Isa,
    op: BinaryOp,
    dtype: DType,
    operands: [Values; 2],
    out: *mut u8,
    n: usize,
) -> Result<()> {
    let [a, b] = operands;
    let number = number_of(operands, n).filter(|_| takes_number(op, dtype));
    let Some(number) = number else {
        // SAFETY: the caller's promise, and both operands have n elements.
        return unsafe { binary_over(isa, op, dtype, [a.first(n)?, b.first(n)?], out, n) };
    };
    let counts = if number == Side::Left { [1, n] } else { [n, 1] };
    let (a, b, out) =
        (a.first(counts[0])?.cast::<f32>(), b.first(counts[1])?.cast::<f32>(), out.cast::<f32>());
    macro_rules! go {
        ($f:expr) => {
            // SAFETY: the number has an element, the other operand and `out` have n.
            unsafe {
                if number == Side::Left {
                    let x = a.read();
                    map1(isa, b, out, n, |y| $f(x, y));
                } else {
                    let y = b.read();
                    map1(isa, a, out, n, |x| $f(x, y));
                }
            }
        };
    }
    match op {
        BinaryOp::Add => go!(|x: f32, y: f32| x + y),
        BinaryOp::Sub => go!(|x: f32, y: f32| x - y),
        BinaryOp::Mul => go!(|x: f32, y: f32| x * y),
        BinaryOp::Div => go!(|x: f32, y: f32| x / y),
        BinaryOp::FloorDiv
        | BinaryOp::Remainder
        | BinaryOp::Pow
        | BinaryOp::Maximum
        | BinaryOp::Minimum
        | BinaryOp::Atan2
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::LeftShift
        | BinaryOp::RightShift
        | BinaryOp::Gcd => return Err(lacking(op.name(), dtype)),
    }
    Ok(())
}

/// `out = op(a, b)` over `n` elements of `dtype`.
///
/// # Safety
/// All are valid for `n` elements of `dtype` and aligned. `out` is not an operand for `pow`.
unsafe fn binary_over(
    isa: Isa,
    op: BinaryOp,
    dtype: DType,
    [a, b]: [*const u8; 2],
    out: *mut u8,
    n: usize,
) -> Result<()> {
    use BinaryOp as B;
    macro_rules! go {
        ($sets:expr, $t:ty, $f:expr) => {{
            // SAFETY: the caller's promise.
            unsafe { map2::<$t, $t, $t>($sets, a.cast(), b.cast(), out.cast(), n, $f) };
            return Ok(());
        }};
    }
    let narrow = isa.narrow();
    // `$sets`: the wide instruction sets, for hot operations.
    macro_rules! float {
        ($t:ty, $sets:expr) => {
            match op {
                B::Add => go!($sets, $t, |x, y| x + y),
                B::Sub => go!($sets, $t, |x, y| x - y),
                B::Mul => go!($sets, $t, |x, y| x * y),
                B::Div => go!($sets, $t, |x, y| x / y),
                B::Maximum => go!($sets, $t, |x, y| if x > y || x.is_nan() { x } else { y }),
                B::Minimum => go!($sets, $t, |x, y| if x < y || x.is_nan() { x } else { y }),
                B::FloorDiv
                | B::Remainder
                | B::Pow
                | B::Atan2
                | B::And
                | B::Or
                | B::Xor
                | B::LeftShift
                | B::RightShift
                | B::Gcd => {}
            }
        };
    }
    match dtype.arithmetic() {
        Arithmetic::F32 => {
            float!(f32, isa);
            // A fast formula, the test for the pairs for which it holds, and a formula for the other pairs.
            macro_rules! checked {
                ($f:expr, $holds:expr, $otherwise:expr) => {{
                    // SAFETY: the caller's promise.
                    unsafe {
                        let (a, b, out) = (a.cast::<f32>(), b.cast(), out.cast());
                        map2_checked(isa, a, b, out, n, $f, $holds, $otherwise);
                    }
                    return Ok(());
                }};
            }
            match op {
                B::FloorDiv => checked!(
                    |x, y| math::short_floor_divide(x, y),
                    |x, y| math::is_short_quotient(x, y),
                    |x, y| math::FloorDivide::floor_divide(x, y)
                ),
                B::Remainder => checked!(
                    |x, y| math::short_remainder(x, y),
                    |x, y| math::is_short_quotient(x, y),
                    |x, y| math::FloorDivide::remainder(x, y)
                ),
                B::Atan2 => go!(isa, f32, |x, y| math::atan2(x, y)),
                B::Pow => {
                    let (base, exponents) = (a.cast::<f32>(), b.cast::<f32>());
                    // SAFETY: the caller's promise, and there is a first element.
                    let first = if n == 0 { 1.0 } else { unsafe { base.read() } };
                    let other = |any: u32, x: f32| any | u32::from(x.to_bits() != first.to_bits());
                    // SAFETY: the caller's promise.
                    let one_base = unsafe { fold(isa, isa, base, n, 0u32, other, |a, b| a | b) } == 0;
                    if one_base && math::is_plain_power(first, 0.0) && first != 1.0 {
                        let log = math::log2_wide(first);
                        // SAFETY: the caller's promise.
                        unsafe {
                            map1::<f32, f32>(isa, exponents, out.cast(), n, |y| math::power_by_log(log, y))
                        };
                        return Ok(());
                    }
                    checked!(|x, y| math::pow(x, y), |x, y| math::is_plain_power(x, y), |x: f32, y: f32| {
                        f64::from(x).powf(f64::from(y)) as f32
                    })
                }
                // The first ones have returned above; floats do not have the others.
                B::Add
                | B::Sub
                | B::Mul
                | B::Div
                | B::Maximum
                | B::Minimum
                | B::And
                | B::Or
                | B::Xor
                | B::LeftShift
                | B::RightShift
                | B::Gcd => {}
            }
        }
        Arithmetic::F64 => {
            float!(f64, narrow);
            match op {
                B::FloorDiv => go!(narrow, f64, |x, y| math::FloorDivide::floor_divide(x, y)),
                B::Remainder => go!(Plain, f64, |x, y| math::FloorDivide::remainder(x, y)),
                B::Atan2 => go!(Plain, f64, |x, y| x.atan2(y)),
                B::Pow => go!(Plain, f64, |x, y| x.powf(y)),
                // The first ones have returned above; floats do not have the others.
                B::Add
                | B::Sub
                | B::Mul
                | B::Div
                | B::Maximum
                | B::Minimum
                | B::And
                | B::Or
                | B::Xor
                | B::LeftShift
                | B::RightShift
                | B::Gcd => {}
            }
        }
        Arithmetic::I64 => match op {
            B::Add => go!(narrow, i64, |x, y| x.wrapping_add(y)),
            B::Sub => go!(narrow, i64, |x, y| x.wrapping_sub(y)),
            B::Mul => go!(narrow, i64, |x, y| x.wrapping_mul(y)),
            B::FloorDiv => go!(Plain, i64, |x, y| floor_divide(x, y)),
            B::Remainder => {
                go!(Plain, i64, |x, y| if y == 0 {
                    0
                } else {
                    x.wrapping_sub(floor_divide(x, y).wrapping_mul(y))
                })
            }
            B::Pow => go!(Plain, i64, |x, y| power(x, y)),
            B::Maximum => go!(narrow, i64, |x, y| x.max(y)),
            B::Minimum => go!(narrow, i64, |x, y| x.min(y)),
            B::And => go!(narrow, i64, |x, y| x & y),
            B::Or => go!(narrow, i64, |x, y| x | y),
            B::Xor => go!(narrow, i64, |x, y| x ^ y),
            B::LeftShift => go!(isa, i64, |x, y| if (0..64).contains(&y) { x << (y & 63) } else { 0 }),
            // Shifts by 64 or more leave only the sign bit, and so do negative counts.
            B::RightShift => go!(isa, i64, |x, y| x >> (y as u64).min(63)),
            B::Gcd => go!(Plain, i64, |x, y| gcd(x.unsigned_abs(), y.unsigned_abs()) as i64),
            B::Div | B::Atan2 => {}
        },
        Arithmetic::U64 => match op {
            B::Add => go!(narrow, u64, |x, y| x.wrapping_add(y)),
            B::Sub => go!(narrow, u64, |x, y| x.wrapping_sub(y)),
            B::Mul => go!(narrow, u64, |x, y| x.wrapping_mul(y)),
            B::FloorDiv => go!(Plain, u64, |x, y| x.checked_div(y).unwrap_or(0)),
            B::Remainder => go!(Plain, u64, |x, y| x.checked_rem(y).unwrap_or(0)),
            B::Pow => go!(Plain, u64, |x, y| unsigned_power(x, y)),
            B::Maximum => go!(narrow, u64, |x, y| x.max(y)),
            B::Minimum => go!(narrow, u64, |x, y| x.min(y)),
            B::And => go!(narrow, u64, |x, y| x & y),
            B::Or => go!(narrow, u64, |x, y| x | y),
            B::Xor => go!(narrow, u64, |x, y| x ^ y),
            B::LeftShift => go!(isa, u64, |x, y| if y < 64 { x << (y & 63) } else { 0 }),
            B::RightShift => go!(isa, u64, |x, y| if y < 64 { x >> (y & 63) } else { 0 }),
            B::Gcd => go!(Plain, u64, |x, y| gcd(x, y)),
            B::Div | B::Atan2 => {}
        },
        own @ (Arithmetic::I32 | Arithmetic::U32) => match op {
            // These are the same for signed and unsigned integers.
            B::Add => go!(narrow, u32, |x, y| x.wrapping_add(y)),
            B::Sub => go!(narrow, u32, |x, y| x.wrapping_sub(y)),
            B::Mul => go!(narrow, u32, |x, y| x.wrapping_mul(y)),
            B::And => go!(narrow, u32, |x, y| x & y),
            B::Or => go!(narrow, u32, |x, y| x | y),
            B::Xor => go!(narrow, u32, |x, y| x ^ y),
            B::LeftShift => go!(isa, u32, |x, y| if y < 32 { x << (y & 31) } else { 0 }),
            B::Maximum if own == Arithmetic::I32 => go!(narrow, i32, |x, y| x.max(y)),
            B::Maximum => go!(narrow, u32, |x, y| x.max(y)),
            B::Minimum if own == Arithmetic::I32 => go!(narrow, i32, |x, y| x.min(y)),
            B::Minimum => go!(narrow, u32, |x, y| x.min(y)),
            // The f64 quotient of two i32 is a whole number only if the exact quotient is.
            B::FloorDiv if own == Arithmetic::I32 => {
                go!(isa, i32, |x, y| math::quotient(f64::from(x), f64::from(y)) as i64 as i32)
            }
            B::FloorDiv => go!(isa, u32, |x, y| math::quotient(f64::from(x), f64::from(y)) as i64 as u32),
            B::Remainder if own == Arithmetic::I32 => go!(isa, i32, |x, y| {
                let (a, b) = (f64::from(x), f64::from(y));
                (a - math::quotient(a, b) * b) as i32 * i32::from(y != 0)
            }),
            B::Remainder => go!(isa, u32, |x, y| {
                let (a, b) = (f64::from(x), f64::from(y));
                (a - math::quotient(a, b) * b) as i64 as u32 * u32::from(y != 0)
            }),
            B::RightShift if own == Arithmetic::I32 => go!(isa, i32, |x, y| x >> (y as u32).min(31)),
            B::RightShift => go!(isa, u32, |x, y| if y < 32 { x >> (y & 31) } else { 0 }),
            B::Gcd if own == Arithmetic::I32 => go!(Plain, i32, |x, y| {
                gcd(u64::from(x.unsigned_abs()), u64::from(y.unsigned_abs())) as i32
            }),
            B::Gcd => go!(Plain, u32, |x, y| gcd(u64::from(x), u64::from(y)) as u32),
            B::Pow => {
                let own = own.dtype();
                // SAFETY: the caller's promise; operands are read before results are written to their
                // place.
                return unsafe {
                    as_i64(isa, own, [a, b], n, &mut |start, [x, y], n| {
                        binary_over(isa, op, DType::I64, [x.cast_const(), y.cast_const()], x, n)?;
                        cast(isa, DType::I64, own, x, out.wrapping_add(start * own.size()), n);
                        Ok(())
                    })
                };
            }
            B::Div | B::Atan2 => {}
        },
        Arithmetic::Bool => match op {
            B::Add | B::Or | B::Maximum => go!(narrow, bool, |x, y| x | y),
            B::Mul | B::And | B::Minimum => go!(narrow, bool, |x, y| x & y),
            B::Xor => go!(narrow, bool, |x, y| x ^ y),
            B::Sub
            | B::Div
            | B::FloorDiv
            | B::Remainder
            | B::Pow
            | B::Atan2
            | B::LeftShift
            | B::RightShift
            | B::Gcd => {}
        },
    }
    Err(lacking(op.name(), dtype))
}

/// The greatest common divisor by halving: it relies on gcd(x, y) = gcd(x, x − y) for odd x and y.
fn gcd(mut x: u64, mut y: u64) -> u64 {
    if x == 0 || y == 0 {
        return x | y;
    }
    let twos = (x | y).trailing_zeros();
    x >>= x.trailing_zeros();
    y >>= y.trailing_zeros();
    while x != y {
        let apart = x.abs_diff(y);
        y = x.min(y);
        x = apart >> apart.trailing_zeros();
    }
    x << twos
}

/// x / y rounded down; 0 for y = 0.
fn floor_divide(x: i64, y: i64) -> i64 {
    if y == 0 {
        return 0;
    }
    let q = x.wrapping_div(y);
    if x.wrapping_rem(y) != 0 && (x < 0) != (y < 0) { q - 1 } else { q }
}

/// The low bits of x^y; for a negative y, the power truncated to an integer.
fn power(x: i64, y: i64) -> i64 {
    match y {
        // Shifts use this case.
        0.. => unsigned_power(x as u64, y as u64) as i64,
        _ if x == 1 => 1,
        _ if x == -1 => 1 - 2 * (y & 1),
        _ => 0,
    }
}

/// The low bits of x^y.
fn unsigned_power(x: u64, y: u64) -> u64 {
    // A left shift is a product with a power of 2.
    if x == 2 {
        return u64::from(y < 64) << (y & 63);
    }
    let (mut base, mut power, mut left) = (x, 1u64, y);
    while left > 0 {
        if left & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        left >>= 1;
    }
    power
}

/// `out = x as to` over `n` elements of `from`, both in their compute types. Numbers of narrow types are
/// rounded or wrapped on the way.
///
/// # Safety
/// `x` is valid for `n` elements of `from`'s compute type, `out` for `n` of `to`'s; they do not overlap.
pub(crate) unsafe fn cast(isa: Isa, from: DType, to: DType, x: *const u8, out: *mut u8, n: usize) {
    use Arithmetic as A;
    let narrow = isa.narrow();
    macro_rules! go {
        ($f:ty, $t:ty, $e:expr) => {
            // SAFETY: the caller's promise.
            unsafe { map1::<$f, $t>(narrow, x.cast(), out.cast(), n, $e) }
        };
    }
    // A number that will be rounded again is rounded to odd first, so that the second rounding is correct.
    macro_rules! to_f32 {
        ($f:ty) => {
            if to.is_narrow() { go!($f, f32, |v| round_to_odd(v as f64)) } else { go!($f, f32, |v| v as f32) }
        };
    }
    // Casts through a dtype that has all values of both.
    let by_way_of = |way: DType| {
        let mut wide = std::mem::MaybeUninit::<[u64; WIDENED]>::uninit();
        let wide = wide.as_mut_ptr().cast::<u8>();
        for start in (0..n).step_by(WIDENED) {
            let n = WIDENED.min(n - start);
            let (size, to_size) = (from.register().size(), to.register().size());
            // SAFETY: the caller's promise; `wide` has room for the piece.
            unsafe {
                cast(isa, from, way, x.wrapping_add(start * size), wide, n);
                cast(isa, way, to, wide, out.wrapping_add(start * to_size), n);
            }
        }
    };
    if from.arithmetic() == to.arithmetic() {
        // SAFETY: the caller's promise.
        return unsafe { held_to(isa, from, to, x, out, n) };
    }
    match (from.arithmetic(), to.arithmetic()) {
        (A::Bool, A::U32 | A::I32) => go!(u8, u32, |v| u32::from(v)),
        (A::Bool, A::U64 | A::I64) => go!(u8, u64, |v| u64::from(v)),
        (A::Bool, A::F32) => go!(u8, f32, |v| f32::from(v)),
        (A::Bool, _) => return by_way_of(DType::I64),
        (A::U32, A::U64 | A::I64) => go!(u32, u64, |v| u64::from(v)),
        (A::I32, A::U64 | A::I64) => go!(i32, i64, |v| i64::from(v)),
        (A::I32, A::F32) => to_f32!(i32),
        (A::U32 | A::I32, _) => return by_way_of(DType::I64),
        (A::I64 | A::U64, A::Bool) => go!(i64, bool, |v| v != 0),
        (A::I64 | A::U64, A::U32 | A::I32) => go!(i64, u32, |v| v as u32),
        (A::I64 | A::U64, A::I64 | A::U64) | (A::F64, A::F64) => go!(u64, u64, |v| v),
        (A::I64, A::F64) => go!(i64, f64, |v| v as f64),
        (A::U64, A::F64) => go!(u64, f64, |v| v as f64),
        (A::I64, A::F32) => to_f32!(i64),
        (A::U64, A::F32) => to_f32!(u64),
        (A::F64, A::Bool) => go!(f64, bool, |v| v != 0.0),
        (A::F64, A::U32) => go!(f64, u32, |v| v as u32),
        (A::F64, A::I32) => go!(f64, i32, |v| v as i32),
        (A::F64, A::I64) => go!(f64, i64, |v| v as i64),
        (A::F64, A::U64) => go!(f64, u64, |v| v as u64),
        (A::F64, A::F32) => to_f32!(f64),
        (A::F32, A::Bool) => go!(f32, bool, |v| v != 0.0),
        (A::F32, A::I32) => go!(f32, i32, |v| v as i32),
        (A::F32, A::I64) => go!(f32, i64, |v| v as i64),
        (A::F32, A::U64) => go!(f32, u64, |v| v as u64),
        (A::F32, A::F64) => go!(f32, f64, |v| f64::from(v)),
        (A::F32, A::U32) => return by_way_of(DType::F64),
        (A::F32, A::F32) => go!(u32, u32, |v| v),
    }
    if to.is_narrow() {
        // SAFETY: the caller's promise, and an element is read before it is written.
        unsafe { held_to(isa, from, to, out, out, n) };
    }
}

/// Numbers of `to`'s compute type, made valid numbers of `to`: floats are rounded; integers wrap, or
/// saturate if they were floats of `from`.
///
/// # Safety
/// Both are valid for `n` elements of `to`'s compute type; they do not overlap, or they are the same.
unsafe fn held_to(isa: Isa, from: DType, to: DType, x: *const u8, out: *mut u8, n: usize) {
    if !to.is_narrow() {
        if !std::ptr::eq(x, out) {
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(x, out, n * to.register().size()) };
        }
        return;
    }
    if from.is_float() && to.is_int() {
        let (least, greatest) = (to.least().as_i64() as i32, to.greatest().as_i64() as i32);
        // SAFETY: the caller's promise.
        return unsafe { map1(isa.narrow(), x.cast(), out.cast(), n, |v: i32| v.clamp(least, greatest)) };
    }
    // SAFETY: the caller's promise.
    unsafe { round(isa, to, x, out, n) };
}

#[cfg(test)]
mod tests {
    use tensor_core::CompareOp;

    use super::*;
    use crate::elementwise::compare::compare;

    /// Integers of all widths wrap and saturate by their own rules, also in place and over several pieces.
    #[test]
    fn integers_wrap_and_saturate() -> Result<()> {
        macro_rules! check {
            ($t:ty, $dtype:expr) => {{
                let n = 2 * WIDENED + 7;
                let edges = [0, 1, 2, 3, 7, <$t>::MAX, <$t>::MIN, <$t>::MAX / 2 + 1];
                let x: Vec<$t> = (0..n).map(|i| edges[i % 8].wrapping_add((i / 64) as $t)).collect();
                let y: Vec<$t> = (0..n).map(|i| edges[i / 8 % 8]).collect();
                let ops: [(BinaryOp, fn($t, $t) -> $t); 5] = [
                    (BinaryOp::Add, <$t>::wrapping_add),
                    (BinaryOp::Sub, <$t>::wrapping_sub),
                    (BinaryOp::Mul, <$t>::wrapping_mul),
                    (BinaryOp::Maximum, Ord::max),
                    (BinaryOp::Xor, |a, b| a ^ b),
                ];
                let bytes = |v: &[$t]| v.as_ptr().cast::<u8>();
                for isa in Isa::available() {
                    for (op, f) in ops {
                        let expected: Vec<$t> = x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect();
                        let mut out = x.clone();
                        let to = out.as_mut_ptr().cast::<u8>();
                        // SAFETY: all hold n elements of the dtype.
                        unsafe { binary_over(isa, op, $dtype, [to.cast_const(), bytes(&y)], to, n)? };
                        assert_eq!(out, expected, "{op:?} {isa:?}");
                    }
                    let mut out = x.clone();
                    let to = out.as_mut_ptr().cast::<u8>();
                    // SAFETY: as above.
                    unsafe { unary(isa, UnaryOp::Neg, $dtype, to, to, n)? };
                    assert!(out.iter().zip(&x).all(|(o, x)| *o == x.wrapping_neg()));
                    let mut less = vec![false; n];
                    let to = less.as_mut_ptr().cast::<u8>();
                    // SAFETY: as above; the output has n bools.
                    unsafe { compare(isa, CompareOp::Gt, $dtype, bytes(&x), bytes(&y), to, n) };
                    assert!(less.iter().zip(x.iter().zip(&y)).all(|(l, (x, y))| *l == (x > y)));
                    let floats = [-1e30f32, -1.5, -0.5, 0.0, 0.5, 254.9, 3e9, 1e30, f32::INFINITY, f32::NAN];
                    let mut out = vec![0 as $t; floats.len()];
                    let to = out.as_mut_ptr().cast::<u8>();
                    // SAFETY: both hold `floats.len()` elements.
                    unsafe { cast(isa, DType::F32, $dtype, floats.as_ptr().cast(), to, floats.len()) };
                    assert!(out.iter().zip(floats).all(|(&o, f)| o == f as $t));
                    let mut out = vec![0f64; n];
                    let to = out.as_mut_ptr().cast::<u8>();
                    // SAFETY: as above.
                    unsafe { cast(isa, $dtype, DType::F64, bytes(&x), to, n) };
                    assert!(out.iter().zip(&x).all(|(&o, &x)| o == x as f64));
                }
            }};
        }
        check!(i32, DType::I32);
        check!(u32, DType::U32);
        check!(i64, DType::I64);
        check!(u64, DType::U64);
        Ok(())
    }

    /// Casts between all pairs of dtypes: the numbers at the ends of both ranges, and numbers between them.
    #[test]
    fn casts_are_those_of_scalars() {
        use tensor_core::Scalar;
        for (from, to) in DType::ALL.into_iter().flat_map(|from| DType::ALL.map(|to| (from, to))) {
            let ends = [from, to].into_iter().flat_map(|dtype| [dtype.least(), dtype.greatest()]);
            let others = [
                0.0,
                -0.0,
                1.0,
                -1.0,
                2.5,
                3.5,
                -127.5,
                200.7,
                300.0,
                1e5,
                -4e9,
                1e19,
                f64::NAN,
                f64::INFINITY,
            ];
            let numbers: Vec<Scalar> = ends
                .chain(others.map(Scalar::Float))
                .chain((-300..300).map(Scalar::Int))
                .map(|number| number.cast(from))
                .collect();
            let (n, held) = (numbers.len(), [from, to].map(DType::register));
            let x = Scalar::to_bytes(held[0], &numbers);
            let expected: Vec<Scalar> = numbers.iter().map(|number| number.cast(to)).collect();
            for isa in Isa::available() {
                let mut out = vec![0u8; n * held[1].size()];
                // SAFETY: both hold n elements of their compute types.
                unsafe { cast(isa, from, to, x.as_ptr(), out.as_mut_ptr(), n) };
                for ((number, found), expected) in
                    numbers.iter().zip(Scalar::from_bytes(held[1], &out)).zip(&expected)
                {
                    let same = found.as_f64() == expected.as_f64()
                        || found.as_f64().is_nan() && expected.as_f64().is_nan();
                    assert!(same, "{number} of {from} as {to}: {found:?}, not {expected:?}, with {isa:?}");
                }
            }
        }
    }
}
