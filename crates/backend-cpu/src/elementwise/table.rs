//! One formula for each operation and dtype, applied to a block of operands.
#![allow(unsafe_code)]
// Closures are inlined into the loops; function pointers might not be.
#![allow(clippy::redundant_closure)]

use tensor_core::{
    Arithmetic, BinaryOp, DType, Error, ErrorKind, Result, UnaryDomain, UnaryOp, round_to_odd,
};

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
/// `x` is aligned and valid for reads of `n` f32, the operand, and `out` for writes of as many; they do not
/// overlap.
unsafe fn patch(isa: Isa, x: *const f32, out: *mut f32, n: usize, f: fn(f64) -> f64) {
    // Most blocks have no such angle; a vector pass finds out.
    let wide = |any: u32, v: f32| any | u32::from(math::is_wide_angle(v));
    // SAFETY: `x` is aligned and readable for `n` f32, by `# Safety`, as `fold` asks.
    if unsafe { fold(isa, isa, x, n, 0u32, wide, |a, b| a | b) } == 0 {
        return;
    }
    for i in 0..n {
        // SAFETY: i < n, and `x` is readable and `out` writable for `n` f32, by `# Safety`.
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
            // SAFETY: operands have n elements from `start` on, by `# Safety`; `wide` is an array of
            // `WIDENED` ≥ n i64.
            unsafe { cast(isa, dtype, DType::I64, operand.wrapping_add(start * dtype.size()), *wide, n) };
        }
        f(start, wide, n)?;
    }
    Ok(())
}

/// `out = op(x)` over `n` elements of the compute dtype `dtype`.
///
/// # Safety
/// `x` is aligned and valid for reads of `n` elements of `dtype`, `out` for writes of as many (of bools for
/// tests). `out` is `x` or does not overlap it, and is not `x` for tests and trigonometric functions.
pub(crate) unsafe fn unary(
    isa: Isa,
    op: UnaryOp,
    dtype: DType,
    x: *const u8,
    out: *mut u8,
    n: usize,
) -> Result<()> {
    use Arithmetic as A;
    use UnaryOp as U;
    let (arithmetic, narrow) = (dtype.arithmetic(), isa.narrow());
    if matches!(arithmetic, A::I32 | A::U32)
        && matches!(op.domain(), UnaryDomain::Numbers | UnaryDomain::Bits)
    {
        let own = dtype.register();
        // SAFETY: `x` has the `n` elements that `as_i64` reads, and `out` room for `n`, by `# Safety`. `wide`
        // holds n i64 and is changed in place, which these operations allow.
        return unsafe {
            as_i64(isa, own, [x], n, &mut |start, [wide], n| {
                unary(isa, op, DType::I64, wide, wide, n)?;
                cast(isa, DType::I64, own, wide, out.wrapping_add(start * own.size()), n);
                Ok(())
            })
        };
    }
    // A row below lists the function for each type that has it, and the instruction sets for which it is
    // compiled; `on` returns where the type is that of the operand.
    macro_rules! on {
        ($arithmetic:ident $t:ty => $o:ty, $sets:expr, $f:expr) => {
            if arithmetic == A::$arithmetic {
                // SAFETY: `x` has `n` elements of `$t` and `out` room for `n` of `$o`, by `# Safety`; `out`
                // is `x` only if `$t` and `$o` are of one size.
                unsafe { map1::<$t, $o>($sets, x.cast(), out.cast(), n, $f) };
                return Ok(());
            }
        };
    }
    macro_rules! floats {
        ($o32:ty, $o64:ty, $sets:expr, $f:expr) => {{
            on!(F32 f32 => $o32, $sets, $f);
            on!(F64 f64 => $o64, narrow, $f);
        }};
        ($sets:expr, $f:expr) => {{
            floats!(f32, f64, $sets, $f)
        }};
    }
    macro_rules! integers {
        ($signed:expr, $unsigned:expr) => {{
            on!(I64 i64 => i64, narrow, $signed);
            on!(U64 u64 => u64, narrow, $unsigned);
        }};
    }
    // A function of f32 in two versions, with and without fused multiply-add, and of f64.
    macro_rules! real {
        ($f:ident, $f64:expr) => {{
            if let Some(fused) = isa.fused() {
                on!(F32 f32 => f32, fused, |v| math::$f::<true>(v));
            }
            on!(F32 f32 => f32, Plain, |v| math::$f::<false>(v));
            on!(F64 f64 => f64, Plain, $f64);
        }};
    }
    // A function of angles, which is corrected for the wide ones.
    macro_rules! angle {
        ($sets:expr, $f:expr, $f64:expr) => {
            if arithmetic == A::F32 {
                // SAFETY: `x` has `n` f32 and `out` room for `n`, by `# Safety`, which keeps them apart for
                // these functions: `x` still holds the operand when `patch` reads it.
                unsafe {
                    map1::<f32, f32>($sets, x.cast(), out.cast(), n, $f);
                    patch(isa, x.cast(), out.cast(), n, $f64);
                }
                return Ok(());
            }
        };
    }
    match op {
        U::Neg => {
            floats!(isa, |v| -v);
            integers!(|v| v.wrapping_neg(), |v| v.wrapping_neg());
        }
        U::Abs => {
            floats!(isa, |v| v.abs());
            integers!(|v| v.wrapping_abs(), |v| v);
        }
        U::Sign => {
            floats!(narrow, |v| if v > 0.0 {
                1.0
            } else if v < 0.0 {
                -1.0
            } else {
                0.0
            });
            integers!(|v| v.signum(), |v| u64::from(v != 0));
        }
        U::Relu => {
            floats!(isa, |v| if v < 0.0 { 0.0 } else { v });
            integers!(|v| v.max(0), |v| v);
        }
        U::Not => {
            integers!(|v| !v, |v| !v);
            on!(Bool bool => bool, narrow, |v| !v);
        }
        U::Sqrt => floats!(isa, |v| v.sqrt()),
        U::Rsqrt => floats!(isa, |v| 1.0 / v.sqrt()),
        U::Reciprocal => floats!(isa, |v| 1.0 / v),
        U::Floor => floats!(narrow, |v| v.floor()),
        U::Ceil => floats!(narrow, |v| v.ceil()),
        U::Round => floats!(narrow, |v| v.round_ties_even()),
        U::Trunc => floats!(narrow, |v| v.trunc()),
        U::IsNan => floats!(bool, bool, narrow, |v| v.is_nan()),
        U::IsInf => floats!(bool, bool, narrow, |v| v.is_infinite()),
        U::Exp => {
            #[cfg(target_arch = "x86_64")]
            if arithmetic == A::F32 && isa.is_avx512() {
                // SAFETY: `is_avx512` proves the instruction set; `x` has `n` f32 and `out` room for `n`,
                // equal or apart, by `# Safety`.
                unsafe { vector::map::<vector::F32x16>(x.cast(), out.cast(), n, math::Exp) };
                return Ok(());
            }
            if isa.has_fma() {
                on!(F32 f32 => f32, narrow, |v| math::exp::<true, f32>(v));
            }
            on!(F32 f32 => f32, Plain, |v| math::exp::<false, f32>(v));
            on!(F64 f64 => f64, Plain, |v| v.exp());
        }
        U::Expm1 => {
            on!(F32 f32 => f32, isa, |v| math::expm1(v));
            on!(F64 f64 => f64, Plain, |v| v.exp_m1());
        }
        U::Log => real!(log, |v| v.ln()),
        U::Log1p => {
            on!(F32 f32 => f32, isa, |v| math::log1p(v));
            on!(F64 f64 => f64, Plain, |v| v.ln_1p());
        }
        U::Tanh => real!(tanh, |v| v.tanh()),
        U::Sigmoid => real!(sigmoid, |v| {
            // e^−|x| never overflows.
            let e = (-v.abs()).exp();
            if v < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
        }),
        U::Erf => real!(erf, |v| libm::erf(v)),
        U::Ndtr => real!(ndtr, |v| math::ndtr_f64(v)),
        U::Gaussian => real!(gaussian, |v| math::gaussian_f64(v)),
        U::Sin => {
            if let Some(fused) = isa.fused() {
                angle!(fused, |v| math::sin::<true>(v), f64::sin);
            }
            angle!(Plain, |v| math::sin::<false>(v), f64::sin);
            on!(F64 f64 => f64, Plain, |v| v.sin());
        }
        U::Cos => {
            if let Some(fused) = isa.fused() {
                angle!(fused, |v| math::cos::<true>(v), f64::cos);
            }
            angle!(Plain, |v| math::cos::<false>(v), f64::cos);
            on!(F64 f64 => f64, Plain, |v| v.cos());
        }
        U::Tan => {
            angle!(narrow, |v| math::tan(v), f64::tan);
            on!(F64 f64 => f64, Plain, |v| v.tan());
        }
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
            // SAFETY: `x` has `n` elements of `$t`'s size and `out` room, equal or apart, by `# Safety`.
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
            // SAFETY: `x` has the `n` elements that `as_i64` reads, and `out` room for `n`, by `# Safety`.
            // `wide` holds n i64 and is changed in place.
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
/// The operands are aligned and of `dtype`. `out` is aligned and valid for writes of `n` elements of it; it
/// is an operand that is no number, or overlaps none. It is no operand of `pow` for f32.
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
        // SAFETY: `first` checked that both operands have n elements; `# Safety` gives the rest.
        return unsafe { binary_over(isa, op, dtype, [a.first(n)?, b.first(n)?], out, n) };
    };
    let counts = if number == Side::Left { [1, n] } else { [n, 1] };
    let (a, b, out) =
        (a.first(counts[0])?.cast::<f32>(), b.first(counts[1])?.cast::<f32>(), out.cast::<f32>());
    macro_rules! go {
        ($f:expr) => {
            // SAFETY: `first` checked that the number has an element and the other operand n, as `out` has by
            // `# Safety`.
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
    if op == BinaryOp::Add {
        go!(|x: f32, y: f32| x + y);
    } else if op == BinaryOp::Sub {
        go!(|x: f32, y: f32| x - y);
    } else if op == BinaryOp::Mul {
        go!(|x: f32, y: f32| x * y);
    } else if op == BinaryOp::Div {
        go!(|x: f32, y: f32| x / y);
    } else {
        return Err(lacking(op.name(), dtype));
    }
    Ok(())
}

/// `out = op(a, b)` over `n` elements of `dtype`.
///
/// # Safety
/// `a` and `b` are aligned and valid for reads of `n` elements of `dtype`, `out` for writes of as many. `out`
/// is an operand or overlaps none, and is no operand of `pow` for f32.
unsafe fn binary_over(
    isa: Isa,
    op: BinaryOp,
    dtype: DType,
    [a, b]: [*const u8; 2],
    out: *mut u8,
    n: usize,
) -> Result<()> {
    use Arithmetic as A;
    use BinaryOp as B;
    let (arithmetic, narrow) = (dtype.arithmetic(), isa.narrow());
    // As in `unary`: a row lists the function for each type that has it.
    macro_rules! on {
        ($($arithmetic:ident)|+ $t:ty, $sets:expr, $f:expr) => {
            if matches!(arithmetic, $(A::$arithmetic)|+) {
                // SAFETY: `a` and `b` have `n` elements of `$t`'s size and `out` room for `n`, and `out` is
                // an operand or apart, by `# Safety`.
                unsafe { map2::<$t, $t, $t>($sets, a.cast(), b.cast(), out.cast(), n, $f) };
                return Ok(());
            }
        };
    }
    macro_rules! floats {
        ($f:expr) => {{
            on!(F32 f32, isa, $f);
            on!(F64 f64, narrow, $f);
        }};
    }
    macro_rules! signed {
        ($sets:expr, $i64:expr, $i32:expr) => {{
            on!(I64 i64, $sets, $i64);
            on!(I32 i32, $sets, $i32);
        }};
    }
    macro_rules! unsigned {
        ($sets:expr, $u64:expr, $u32:expr) => {{
            on!(U64 u64, $sets, $u64);
            on!(U32 u32, $sets, $u32);
        }};
    }
    // The same bits for signed and unsigned integers.
    macro_rules! integers {
        ($f:expr) => {{
            on!(I64 | U64 u64, narrow, $f);
            on!(I32 | U32 u32, narrow, $f);
        }};
    }
    macro_rules! bool {
        ($f:expr) => {{
            on!(Bool bool, narrow, $f);
        }};
    }
    // For f32: a fast formula, the test for the pairs for which it holds, and a formula for the others.
    macro_rules! checked {
        ($f:expr, $holds:expr, $otherwise:expr) => {
            if arithmetic == A::F32 {
                // SAFETY: `a` and `b` have `n` f32 and `out` room for `n`, and `out` is an operand or apart,
                // by `# Safety`.
                unsafe {
                    let (a, b, out) = (a.cast::<f32>(), b.cast(), out.cast());
                    map2_checked(isa, a, b, out, n, $f, $holds, $otherwise);
                }
                return Ok(());
            }
        };
    }
    match op {
        B::Add => {
            floats!(|x, y| x + y);
            integers!(|x, y| x.wrapping_add(y));
            bool!(|x, y| x | y);
        }
        B::Sub => {
            floats!(|x, y| x - y);
            integers!(|x, y| x.wrapping_sub(y));
        }
        B::Mul => {
            floats!(|x, y| x * y);
            integers!(|x, y| x.wrapping_mul(y));
            bool!(|x, y| x & y);
        }
        B::Div => floats!(|x, y| x / y),
        B::Maximum => {
            floats!(|x, y| if x > y || x.is_nan() { x } else { y });
            signed!(narrow, |x, y| x.max(y), |x, y| x.max(y));
            unsigned!(narrow, |x, y| x.max(y), |x, y| x.max(y));
            bool!(|x, y| x | y);
        }
        B::Minimum => {
            floats!(|x, y| if x < y || x.is_nan() { x } else { y });
            signed!(narrow, |x, y| x.min(y), |x, y| x.min(y));
            unsigned!(narrow, |x, y| x.min(y), |x, y| x.min(y));
            bool!(|x, y| x & y);
        }
        B::FloorDiv => {
            checked!(|x, y| math::short_floor_divide(x, y), |x, y| math::is_short_quotient(x, y), |x, y| {
                math::FloorDivide::floor_divide(x, y)
            });
            on!(F64 f64, narrow, |x, y| math::FloorDivide::floor_divide(x, y));
            on!(I64 i64, Plain, |x, y| floor_divide(x, y));
            on!(U64 u64, Plain, |x, y| x.checked_div(y).unwrap_or(0));
            // The f64 quotient of two i32 is a whole number only if the exact quotient is.
            on!(I32 i32, isa, |x, y| math::quotient(f64::from(x), f64::from(y)) as i64 as i32);
            on!(U32 u32, isa, |x, y| math::quotient(f64::from(x), f64::from(y)) as i64 as u32);
        }
        B::Remainder => {
            checked!(|x, y| math::short_remainder(x, y), |x, y| math::is_short_quotient(x, y), |x, y| {
                math::FloorDivide::remainder(x, y)
            });
            on!(F64 f64, Plain, |x, y| math::FloorDivide::remainder(x, y));
            on!(I64 i64, Plain, |x, y| if y == 0 {
                0
            } else {
                x.wrapping_sub(floor_divide(x, y).wrapping_mul(y))
            });
            on!(U64 u64, Plain, |x, y| x.checked_rem(y).unwrap_or(0));
            on!(I32 i32, isa, |x, y| {
                let (a, b) = (f64::from(x), f64::from(y));
                (a - math::quotient(a, b) * b) as i32 * i32::from(y != 0)
            });
            on!(U32 u32, isa, |x, y| {
                let (a, b) = (f64::from(x), f64::from(y));
                (a - math::quotient(a, b) * b) as i64 as u32 * u32::from(y != 0)
            });
        }
        B::Atan2 => {
            on!(F32 f32, isa, |x, y| math::atan2(x, y));
            on!(F64 f64, Plain, |x, y| x.atan2(y));
        }
        B::Pow => {
            if arithmetic == A::F32 {
                let (base, exponents) = (a.cast::<f32>(), b.cast::<f32>());
                // SAFETY: n is not 0, so `base` has a first element, by `# Safety`.
                let first = if n == 0 { 1.0 } else { unsafe { base.read() } };
                let other = |any: u32, x: f32| any | u32::from(x.to_bits() != first.to_bits());
                // SAFETY: `base` is aligned and readable for `n` f32, by `# Safety`, as `fold` asks.
                let one_base = unsafe { fold(isa, isa, base, n, 0u32, other, |a, b| a | b) } == 0;
                if one_base && math::is_plain_power(first, 0.0) && first != 1.0 {
                    let log = math::log2_wide(first);
                    // SAFETY: `exponents` has `n` f32 and `out` room for `n`, apart, by `# Safety`.
                    unsafe {
                        map1::<f32, f32>(isa, exponents, out.cast(), n, |y| math::power_by_log(log, y))
                    };
                    return Ok(());
                }
            }
            checked!(|x, y| math::pow(x, y), |x, y| math::is_plain_power(x, y), |x: f32, y: f32| {
                f64::from(x).powf(f64::from(y)) as f32
            });
            on!(F64 f64, Plain, |x, y| x.powf(y));
            on!(I64 i64, Plain, |x, y| power(x, y));
            on!(U64 u64, Plain, |x, y| unsigned_power(x, y));
            if matches!(arithmetic, A::I32 | A::U32) {
                let own = arithmetic.dtype();
                // SAFETY: `a` and `b` have the `n` elements that `as_i64` reads, and `out` room for `n`, by
                // `# Safety`. x and y hold n i64; `pow` for integers may write to an operand's place.
                return unsafe {
                    as_i64(isa, own, [a, b], n, &mut |start, [x, y], n| {
                        binary_over(isa, op, DType::I64, [x.cast_const(), y.cast_const()], x, n)?;
                        cast(isa, DType::I64, own, x, out.wrapping_add(start * own.size()), n);
                        Ok(())
                    })
                };
            }
        }
        B::And => {
            integers!(|x, y| x & y);
            bool!(|x, y| x & y);
        }
        B::Or => {
            integers!(|x, y| x | y);
            bool!(|x, y| x | y);
        }
        B::Xor => {
            integers!(|x, y| x ^ y);
            bool!(|x, y| x ^ y);
        }
        B::LeftShift => {
            on!(I64 i64, isa, |x, y| if (0..64).contains(&y) { x << (y & 63) } else { 0 });
            on!(U64 u64, isa, |x, y| if y < 64 { x << (y & 63) } else { 0 });
            // A negative count is a large one.
            on!(I32 | U32 u32, isa, |x, y| if y < 32 { x << (y & 31) } else { 0 });
        }
        B::RightShift => {
            // Shifts by all bits or more leave only the sign bit, and so do negative counts.
            signed!(isa, |x, y| x >> (y as u64).min(63), |x, y| x >> (y as u32).min(31));
            on!(U64 u64, isa, |x, y| if y < 64 { x >> (y & 63) } else { 0 });
            on!(U32 u32, isa, |x, y| if y < 32 { x >> (y & 31) } else { 0 });
        }
        B::Gcd => {
            on!(I64 i64, Plain, |x, y| gcd(x.unsigned_abs(), y.unsigned_abs()) as i64);
            on!(U64 u64, Plain, |x, y| gcd(x, y));
            on!(I32 i32, Plain, |x, y| {
                gcd(u64::from(x.unsigned_abs()), u64::from(y.unsigned_abs())) as i32
            });
            on!(U32 u32, Plain, |x, y| gcd(u64::from(x), u64::from(y)) as u32);
        }
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
/// `x` is aligned and valid for reads of `n` elements of `from`'s compute type, `out` for writes of `n` of
/// `to`'s; they do not overlap.
pub(crate) unsafe fn cast(isa: Isa, from: DType, to: DType, x: *const u8, out: *mut u8, n: usize) {
    use Arithmetic as A;
    let narrow = isa.narrow();
    macro_rules! go {
        ($f:ty, $t:ty, $e:expr) => {
            // SAFETY: `$f` and `$t` have the sizes of the compute types; `x` has `n` elements and `out` room
            // for `n`, apart, by `# Safety`.
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
            // SAFETY: `x` has n elements from `start` on and `out` room for n, by `# Safety`; `wide` has room
            // for `WIDENED` ≥ n elements of any dtype, and is apart from both.
            unsafe {
                cast(isa, from, way, x.wrapping_add(start * size), wide, n);
                cast(isa, way, to, wide, out.wrapping_add(start * to_size), n);
            }
        }
    };
    if from.arithmetic() == to.arithmetic() {
        // SAFETY: `from` and `to` have one compute type here, of which `x` has `n` elements and `out` room
        // for `n`, apart, by `# Safety`.
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
        // SAFETY: `out` holds the `n` elements of `to`'s compute type that the `match` wrote; `held_to` may
        // work in place.
        unsafe { held_to(isa, from, to, out, out, n) };
    }
}

/// Numbers of `to`'s compute type, made valid numbers of `to`: floats are rounded; integers wrap, or
/// saturate if they were floats of `from`.
///
/// # Safety
/// `x` is aligned and valid for reads of `n` elements of `to`'s compute type, `out` for writes of as many;
/// they do not overlap, or they are the same.
unsafe fn held_to(isa: Isa, from: DType, to: DType, x: *const u8, out: *mut u8, n: usize) {
    if !to.is_narrow() {
        if !std::ptr::eq(x, out) {
            // SAFETY: `x` has `n` elements of this size and `out` room for `n`; they are not the same, and so
            // apart, by `# Safety`.
            unsafe { std::ptr::copy_nonoverlapping(x, out, n * to.register().size()) };
        }
        return;
    }
    if from.is_float() && to.is_int() {
        let (least, greatest) = (to.least().as_i64() as i32, to.greatest().as_i64() as i32);
        // SAFETY: i32 is the compute type of narrow integers; `x` has `n` of them and `out` room for `n`, the
        // same or apart, by `# Safety`.
        return unsafe { map1(isa.narrow(), x.cast(), out.cast(), n, |v: i32| v.clamp(least, greatest)) };
    }
    // SAFETY: `round` asks for what `# Safety` gives: `n` elements on both sides, the same or apart.
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
                    // SAFETY: `out` holds n elements of the dtype, and `Neg` works in place.
                    unsafe { unary(isa, UnaryOp::Neg, $dtype, to, to, n)? };
                    assert!(out.iter().zip(&x).all(|(o, x)| *o == x.wrapping_neg()));
                    let mut less = vec![false; n];
                    let to = less.as_mut_ptr().cast::<u8>();
                    // SAFETY: `x` and `y` hold n elements of the dtype, and `less` holds n bools.
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
                    // SAFETY: `x` holds n elements of the dtype, and `out` holds n f64.
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
