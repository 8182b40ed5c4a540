//! One formula for each operation and dtype. A block of operands in, a block of results out.
#![allow(unsafe_code)]
// Closures are inlined into the loops; a function's pointer need not be.
#![allow(clippy::redundant_closure)]

use tensor_core::{BinaryOp, CompareOp, DType, Error, ErrorKind, Result, UnaryOp, bf16, f16, round_to_odd};

#[cfg(target_arch = "x86_64")]
use crate::vector;
use crate::{
    isa::Isa,
    loops::{fold, map1, map2, map3},
    math,
};

fn lacking(op: &'static str, dtype: DType) -> Error {
    Error::new(ErrorKind::Unsupported {
        op,
        device: "cpu".into(),
        dtype,
        hint: "cast the operand to a dtype that the operation takes, such as F32".into(),
    })
}

/// Scalar passes for what has no vector form, over the elements that `outside` picks.
///
/// # Safety
/// As [`map1`]; `x` must still hold the operand.
unsafe fn patch(
    isa: Isa,
    x: *const f32,
    out: *mut f32,
    n: usize,
    outside: impl Fn(f32) -> bool,
    f: impl Fn(f64) -> f64,
) {
    // Most blocks have none, which a vector pass tells.
    // SAFETY: the caller's promise.
    let any = unsafe { fold(isa, x, n, 0u32, |any, v| any | u32::from(outside(v)), |a, b| a | b) };
    if any == 0 {
        return;
    }
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe {
            let v = x.add(i).read();
            if outside(v) {
                out.add(i).write(f(f64::from(v)) as f32);
            }
        }
    }
}

/// `out = op(x)` over `n` elements of the compute dtype `dtype`.
///
/// # Safety
/// `x` and `out` are good for `n` elements of `dtype` (`out` of bool for tests), aligned. `out` is not `x` for functions of angle.
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
        ($t:ty, $o:ty, $f:expr) => {{
            // SAFETY: the caller's promise.
            unsafe { map1::<$t, $o>(isa, x.cast(), out.cast(), n, $f) };
            return Ok(());
        }};
    }
    // A function that comes with and without fused multiply-add.
    macro_rules! real {
        ($f:ident) => {
            if isa.has_fma() {
                go!(f32, f32, |v| math::$f::<true>(v))
            } else {
                go!(f32, f32, |v| math::$f::<false>(v))
            }
        };
    }
    macro_rules! angle {
        ($fast:expr, $fused:expr, $wide:expr) => {{
            // SAFETY: the caller's promise.
            unsafe {
                if isa.has_fma() {
                    map1::<f32, f32>(isa, x.cast(), out.cast(), n, |v| $fused(v));
                } else {
                    map1::<f32, f32>(isa, x.cast(), out.cast(), n, |v| $fast(v));
                }
                patch(isa, x.cast(), out.cast(), n, math::is_wide_angle, $wide);
            }
            return Ok(());
        }};
    }
    macro_rules! float {
        ($t:ty) => {
            match op {
                U::Neg => go!($t, $t, |v| -v),
                U::Abs => go!($t, $t, |v| v.abs()),
                U::Sign => go!($t, $t, |v| if v > 0.0 {
                    1.0
                } else if v < 0.0 {
                    -1.0
                } else {
                    0.0
                }),
                U::Sqrt => go!($t, $t, |v| v.sqrt()),
                U::Rsqrt => go!($t, $t, |v| 1.0 / v.sqrt()),
                U::Reciprocal => go!($t, $t, |v| 1.0 / v),
                U::Relu => go!($t, $t, |v| if v < 0.0 { 0.0 } else { v }),
                U::Floor => go!($t, $t, |v| v.floor()),
                U::Ceil => go!($t, $t, |v| v.ceil()),
                U::Round => go!($t, $t, |v| v.round_ties_even()),
                U::Trunc => go!($t, $t, |v| v.trunc()),
                U::IsNan => go!($t, bool, |v| v.is_nan()),
                U::IsInf => go!($t, bool, |v| v.is_infinite()),
                _ => {}
            }
        };
    }
    macro_rules! signed {
        ($t:ty) => {
            match op {
                U::Neg => go!($t, $t, |v| v.wrapping_neg()),
                U::Abs => go!($t, $t, |v| v.wrapping_abs()),
                U::Sign => go!($t, $t, |v| v.signum()),
                U::Relu => go!($t, $t, |v| v.max(0)),
                U::Not => go!($t, $t, |v| !v),
                _ => {}
            }
        };
    }
    macro_rules! unsigned {
        ($t:ty) => {
            match op {
                U::Neg => go!($t, $t, |v| v.wrapping_neg()),
                U::Abs | U::Relu => go!($t, $t, |v| v),
                U::Sign => go!($t, $t, |v| v.min(1)),
                U::Not => go!($t, $t, |v| !v),
                _ => {}
            }
        };
    }
    match dtype.compute() {
        DType::F32 => {
            float!(f32);
            match op {
                #[cfg(target_arch = "x86_64")]
                U::Exp if isa.is_avx512() => {
                    // SAFETY: the caller's promise.
                    unsafe { vector::map(isa, x.cast(), out.cast(), n, math::Exp) };
                    return Ok(());
                }
                U::Exp if isa.has_fma() => go!(f32, f32, |v| math::exp::<true, f32>(v)),
                U::Exp => go!(f32, f32, |v| math::exp::<false, f32>(v)),
                U::Expm1 => go!(f32, f32, |v| math::expm1(v)),
                U::Log => real!(log),
                U::Log1p => go!(f32, f32, |v| math::log1p(v)),
                U::Tanh => real!(tanh),
                U::Sigmoid => real!(sigmoid),
                U::Erf => real!(erf),
                U::Sin => angle!(math::sin::<false>, math::sin::<true>, f64::sin),
                U::Cos => angle!(math::cos::<false>, math::cos::<true>, f64::cos),
                U::Tan => angle!(math::tan, math::tan, f64::tan),
                _ => {}
            }
        }
        DType::F64 => {
            float!(f64);
            match op {
                U::Exp => go!(f64, f64, |v| v.exp()),
                U::Expm1 => go!(f64, f64, |v| v.exp_m1()),
                U::Log => go!(f64, f64, |v| v.ln()),
                U::Log1p => go!(f64, f64, |v| v.ln_1p()),
                U::Tanh => go!(f64, f64, |v| v.tanh()),
                U::Sigmoid => go!(f64, f64, |v| {
                    // e^−|x| never overflows.
                    let e = (-v.abs()).exp();
                    if v < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
                }),
                U::Erf => go!(f64, f64, |v| libm::erf(v)),
                U::Sin => go!(f64, f64, |v| v.sin()),
                U::Cos => go!(f64, f64, |v| v.cos()),
                U::Tan => go!(f64, f64, |v| v.tan()),
                _ => {}
            }
        }
        DType::I64 => signed!(i64),
        DType::I32 => signed!(i32),
        DType::U32 => unsigned!(u32),
        DType::U8 => unsigned!(u8),
        DType::Bool if op == U::Not => go!(bool, bool, |v| !v),
        _ => {}
    }
    Err(lacking(op.name(), dtype))
}

/// `out = xⁿ` by repeated squaring of nothing but x: the same products on every instruction set.
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
    macro_rules! go {
        ($t:ty, $one:expr, $mul:expr, $inverse:expr) => {{
            // SAFETY: the caller's promise.
            unsafe {
                match p {
                    1 => map1::<$t, $t>(isa, x.cast(), out.cast(), n, |v| v),
                    2 => map1::<$t, $t>(isa, x.cast(), out.cast(), n, |v| $mul(v, v)),
                    3 => map1::<$t, $t>(isa, x.cast(), out.cast(), n, |v| $mul($mul(v, v), v)),
                    _ => map1::<$t, $t>(isa, x.cast(), out.cast(), n, |v| {
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
    match dtype.compute() {
        DType::F32 => go!(f32, 1.0f32, |a: f32, b: f32| a * b, |v: f32| 1.0 / v),
        DType::F64 => go!(f64, 1.0f64, |a: f64, b: f64| a * b, |v: f64| 1.0 / v),
        DType::I64 => go!(i64, 1, |a: i64, b: i64| a.wrapping_mul(b), |v: i64| v),
        DType::I32 => go!(i32, 1, |a: i32, b: i32| a.wrapping_mul(b), |v: i32| v),
        DType::U32 => go!(u32, 1, |a: u32, b: u32| a.wrapping_mul(b), |v: u32| v),
        DType::U8 => go!(u8, 1, |a: u8, b: u8| a.wrapping_mul(b), |v: u8| v),
        _ => Err(lacking("powi", dtype)),
    }
}

/// Whether [`binary`] takes a single number for an operand.
pub(crate) fn takes_number(op: BinaryOp, dtype: DType) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div) && dtype == DType::F32
}

/// Which operand of a binary operation is one number for the whole block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    Neither,
    Left,
    Right,
}

/// `out = op(a, b)` over `n` elements of `dtype`.
///
/// # Safety
/// All are good for `n` elements of `dtype`, aligned, but for a `number`, which is good for one; that only where [`takes_number`].
/// `out` is not an operand for `pow`, nor a number.
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn binary(
    isa: Isa,
    op: BinaryOp,
    dtype: DType,
    a: *const u8,
    b: *const u8,
    number: Number,
    out: *mut u8,
    n: usize,
) -> Result<()> {
    use BinaryOp as B;
    if number != Number::Neither {
        let (a, b, out) = (a.cast::<f32>(), b.cast::<f32>(), out.cast::<f32>());
        macro_rules! go {
            ($f:expr) => {
                // SAFETY: the caller's promise.
                unsafe {
                    if number == Number::Left {
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
            B::Add => go!(|x: f32, y: f32| x + y),
            B::Sub => go!(|x: f32, y: f32| x - y),
            B::Mul => go!(|x: f32, y: f32| x * y),
            B::Div => go!(|x: f32, y: f32| x / y),
            _ => return Err(lacking(op.name(), dtype)),
        }
        return Ok(());
    }
    macro_rules! go {
        ($t:ty, $f:expr) => {{
            // SAFETY: the caller's promise.
            unsafe { map2::<$t, $t, $t>(isa, a.cast(), b.cast(), out.cast(), n, $f) };
            return Ok(());
        }};
    }
    macro_rules! float {
        ($t:ty) => {
            match op {
                B::Add => go!($t, |x, y| x + y),
                B::Sub => go!($t, |x, y| x - y),
                B::Mul => go!($t, |x, y| x * y),
                B::Div => go!($t, |x, y| x / y),
                B::FloorDiv => go!($t, |x, y| math::FloorDivide::floor_divide(x, y)),
                B::Remainder => go!($t, |x, y| math::FloorDivide::remainder(x, y)),
                B::Maximum => go!($t, |x, y| if x > y || x.is_nan() { x } else { y }),
                B::Minimum => go!($t, |x, y| if x < y || x.is_nan() { x } else { y }),
                B::Atan2 => go!($t, |x, y| x.atan2(y)),
                _ => {}
            }
        };
    }
    macro_rules! int {
        ($t:ty, $floor:expr, $pow:expr) => {
            match op {
                B::Add => go!($t, |x, y| x.wrapping_add(y)),
                B::Sub => go!($t, |x, y| x.wrapping_sub(y)),
                B::Mul => go!($t, |x, y| x.wrapping_mul(y)),
                B::FloorDiv => go!($t, |x, y| if y == 0 { 0 } else { $floor(x, y) }),
                B::Remainder => {
                    go!($t, |x, y| if y == 0 { 0 } else { x.wrapping_sub($floor(x, y).wrapping_mul(y)) })
                }
                B::Pow => go!($t, $pow),
                B::Maximum => go!($t, |x, y| x.max(y)),
                B::Minimum => go!($t, |x, y| x.min(y)),
                B::And => go!($t, |x, y| x & y),
                B::Or => go!($t, |x, y| x | y),
                B::Xor => go!($t, |x, y| x ^ y),
                B::Div | B::Atan2 => {}
            }
        };
    }
    macro_rules! signed {
        ($t:ty) => {
            int!(
                $t,
                |x: $t, y: $t| {
                    let q = x.wrapping_div(y);
                    if x.wrapping_rem(y) != 0 && (x < 0) != (y < 0) { q - 1 } else { q }
                },
                |x: $t, y: $t| match y {
                    0.. => wrapping_power!($t, x, y),
                    _ if x == 1 => 1,
                    _ if x == -1 => 1 - 2 * (y & 1),
                    _ => 0,
                }
            )
        };
    }
    macro_rules! wrapping_power {
        ($t:ty, $x:expr, $y:expr) => {{
            let (mut base, mut power, mut left) = ($x, 1 as $t, $y);
            while left > 0 {
                if left & 1 == 1 {
                    power = power.wrapping_mul(base);
                }
                base = base.wrapping_mul(base);
                left >>= 1;
            }
            power
        }};
    }
    match dtype.compute() {
        DType::F32 => {
            float!(f32);
            if op == B::Pow {
                // SAFETY: the caller's promise; operands are still there for the second pass.
                unsafe {
                    map2::<f32, f32, f32>(isa, a.cast(), b.cast(), out.cast(), n, |x, y| math::pow(x, y));
                    for i in 0..n {
                        let (x, y) = (a.cast::<f32>().add(i).read(), b.cast::<f32>().add(i).read());
                        if !math::is_plain_power(x, y) {
                            out.cast::<f32>().add(i).write(f64::from(x).powf(f64::from(y)) as f32);
                        }
                    }
                }
                return Ok(());
            }
        }
        DType::F64 => {
            float!(f64);
            if op == B::Pow {
                go!(f64, |x, y| x.powf(y))
            }
        }
        DType::I64 => signed!(i64),
        DType::I32 => signed!(i32),
        DType::U32 => int!(u32, |x: u32, y: u32| x / y, |x: u32, y: u32| wrapping_power!(u32, x, y)),
        DType::U8 => int!(u8, |x: u8, y: u8| x / y, |x: u8, y: u8| wrapping_power!(u8, x, y)),
        DType::Bool => match op {
            B::Add | B::Or | B::Maximum => go!(bool, |x, y| x | y),
            B::Mul | B::And | B::Minimum => go!(bool, |x, y| x & y),
            B::Xor => go!(bool, |x, y| x ^ y),
            _ => {}
        },
        _ => {}
    }
    Err(lacking(op.name(), dtype))
}

/// `out = a op b` as bool, over `n` elements of `dtype`.
///
/// # Safety
/// `a` and `b` are good for `n` elements of `dtype`, `out` for `n` bools; `out` lies apart.
pub(crate) unsafe fn compare(
    isa: Isa,
    op: CompareOp,
    dtype: DType,
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
) {
    macro_rules! all {
        ($t:ty) => {
            // SAFETY: the caller's promise.
            unsafe {
                let (a, b, out) = (a.cast::<$t>(), b.cast::<$t>(), out.cast::<bool>());
                match op {
                    CompareOp::Eq => map2(isa, a, b, out, n, |x, y| x == y),
                    CompareOp::Ne => map2(isa, a, b, out, n, |x, y| x != y),
                    CompareOp::Lt => map2(isa, a, b, out, n, |x, y| x < y),
                    CompareOp::Le => map2(isa, a, b, out, n, |x, y| x <= y),
                    CompareOp::Gt => map2(isa, a, b, out, n, |x, y| x > y),
                    CompareOp::Ge => map2(isa, a, b, out, n, |x, y| x >= y),
                }
            }
        };
    }
    match dtype.compute() {
        DType::F64 => all!(f64),
        DType::I64 => all!(i64),
        DType::I32 => all!(i32),
        DType::U32 => all!(u32),
        DType::U8 => all!(u8),
        DType::Bool => all!(bool),
        _ => all!(f32),
    }
}

/// `out = condition ? a : b` over `n` elements of `dtype`.
///
/// # Safety
/// `condition` is good for `n` bools, the others for `n` elements of `dtype`; `out` may be `a` or `b`.
pub(crate) unsafe fn select(
    isa: Isa,
    dtype: DType,
    condition: *const u8,
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    n: usize,
) {
    macro_rules! all {
        ($t:ty) => {
            // SAFETY: the caller's promise.
            unsafe {
                map3::<bool, $t, $t, $t>(
                    isa,
                    condition.cast(),
                    a.cast(),
                    b.cast(),
                    out.cast(),
                    n,
                    |c, x, y| {
                        if c { x } else { y }
                    },
                )
            }
        };
    }
    match dtype.compute().size() {
        1 => all!(u8),
        4 => all!(u32),
        _ => all!(u64),
    }
}

/// `out = x as to` over `n` elements of `from`, both in their compute dtypes; f16 and bf16 targets are rounded on the way.
///
/// # Safety
/// `x` is good for `n` elements of `from`'s compute dtype, `out` for `n` of `to`'s; they lie apart.
pub(crate) unsafe fn cast(isa: Isa, from: DType, to: DType, x: *const u8, out: *mut u8, n: usize) {
    macro_rules! go {
        ($f:ty, $t:ty, $e:expr) => {
            // SAFETY: the caller's promise.
            unsafe { map1::<$f, $t>(isa, x.cast(), out.cast(), n, $e) }
        };
    }
    // `$narrow` gives an f32 that rounds to the half types as the number itself does.
    macro_rules! number {
        ($f:ty, $zero:expr, $narrow:expr) => {
            match to {
                DType::Bool => go!($f, bool, |v| v != $zero),
                DType::U8 => go!($f, u8, |v| v as u8),
                DType::U32 => go!($f, u32, |v| v as u32),
                DType::I32 => go!($f, i32, |v| v as i32),
                DType::I64 => go!($f, i64, |v| v as i64),
                DType::F64 => go!($f, f64, |v| v as f64),
                DType::F32 => go!($f, f32, |v| v as f32),
                DType::F16 => go!($f, f32, |v| f16::from_f32($narrow(v)).to_f32()),
                DType::BF16 => go!($f, f32, |v| bf16::from_f32($narrow(v)).to_f32()),
            }
        };
    }
    match from.compute() {
        DType::Bool => {
            macro_rules! truth {
                ($t:ty) => {
                    go!(bool, $t, |v| u8::from(v) as $t)
                };
            }
            match to {
                DType::Bool => go!(bool, bool, |v| v),
                DType::U8 => truth!(u8),
                DType::U32 => truth!(u32),
                DType::I32 => truth!(i32),
                DType::I64 => truth!(i64),
                DType::F64 => truth!(f64),
                _ => truth!(f32),
            }
        }
        DType::U8 => number!(u8, 0, |v: u8| f32::from(v)),
        DType::U32 => number!(u32, 0, |v: u32| round_to_odd(f64::from(v))),
        DType::I32 => number!(i32, 0, |v: i32| round_to_odd(f64::from(v))),
        DType::I64 => number!(i64, 0, |v: i64| round_to_odd(v as f64)),
        DType::F64 => number!(f64, 0.0, round_to_odd),
        _ => number!(f32, 0.0, |v: f32| v),
    }
}
