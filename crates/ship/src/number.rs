//! [`Number`]: the values of the operations of programs, one number at a time. `operations` has their texts.

use tensor_core::{Arithmetic, BinaryOp, CompareOp, DType, ReduceOp, Scalar, UnaryOp};

use crate::functions as f;

/// A number in a register.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    F32(f32),
    F64(f64),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Bool(bool),
}

use Number as N;

/// A number of a launch in its register.
pub(crate) fn number(scalar: Scalar, dtype: DType) -> Number {
    match dtype.arithmetic() {
        Arithmetic::F32 => N::F32(scalar.as_f64() as f32),
        Arithmetic::F64 => N::F64(scalar.as_f64()),
        Arithmetic::I32 => N::I32(scalar.as_i64() as i32),
        Arithmetic::U32 => N::U32(scalar.as_i64() as u32),
        Arithmetic::I64 => N::I64(scalar.as_i64()),
        Arithmetic::U64 => N::U64(match scalar {
            Scalar::Unsigned(value) => value,
            Scalar::Float(_) | Scalar::Int(_) | Scalar::Bool(_) => scalar.as_i64() as u64,
        }),
        Arithmetic::Bool => N::Bool(scalar.as_bool()),
    }
}

/// A register's number held to the range of its dtype: narrow integers wrap.
pub(crate) fn held(number: Number, dtype: DType) -> Number {
    match (number, dtype) {
        (N::I32(x), DType::I8) => N::I32(i32::from(x as i8)),
        (N::I32(x), DType::U8) => N::I32(i32::from(x as u8)),
        (N::I32(x), DType::I16) => N::I32(i32::from(x as i16)),
        (N::I32(x), DType::U16) => N::I32(i32::from(x as u16)),
        (number, _) => number,
    }
}

pub(crate) fn index_of(number: Number) -> i64 {
    match number {
        N::I32(x) => i64::from(x),
        N::U32(x) => i64::from(x),
        N::I64(x) => x,
        N::U64(x) => i64::try_from(x).unwrap_or(i64::MAX),
        N::F32(_) | N::F64(_) | N::Bool(_) => -1,
    }
}

/// The value of a function of one number; none where `operations` has no text.
pub(crate) fn unary(op: UnaryOp, x: Number) -> Option<Number> {
    type Function = fn(f32) -> f32;
    let of_f32 = |function: Function| match x {
        N::F32(x) => Some(N::F32(function(x))),
        N::F64(_) | N::I32(_) | N::U32(_) | N::I64(_) | N::U64(_) | N::Bool(_) => None,
    };
    match op {
        UnaryOp::Neg => match x {
            N::F32(x) => Some(N::F32(-x)),
            N::F64(x) => Some(N::F64(-x)),
            N::I32(x) => Some(N::I32(x.wrapping_neg())),
            N::U32(x) => Some(N::U32(x.wrapping_neg())),
            N::I64(x) => Some(N::I64(x.wrapping_neg())),
            N::U64(x) => Some(N::U64(x.wrapping_neg())),
            N::Bool(_) => None,
        },
        UnaryOp::Abs => match x {
            N::F32(x) => Some(N::F32(f::abs_f32(x))),
            N::F64(x) => Some(N::F64(x.abs())),
            N::I32(x) => Some(N::I32(x.wrapping_abs())),
            N::I64(x) => Some(N::I64(x.wrapping_abs())),
            N::U32(_) | N::U64(_) => Some(x),
            N::Bool(_) => None,
        },
        UnaryOp::Sign => match x {
            N::F32(x) => Some(N::F32(f::sign_f32(x))),
            N::I32(x) => Some(N::I32(x.signum())),
            N::I64(x) => Some(N::I64(x.signum())),
            N::U32(x) => Some(N::U32(u32::from(x != 0))),
            N::U64(x) => Some(N::U64(u64::from(x != 0))),
            N::F64(_) | N::Bool(_) => None,
        },
        UnaryOp::Relu => match x {
            N::F32(x) => Some(N::F32(if x < 0.0 { 0.0 } else { x })),
            N::F64(x) => Some(N::F64(if x < 0.0 { 0.0 } else { x })),
            N::I32(x) => Some(N::I32(x.max(0))),
            N::I64(x) => Some(N::I64(x.max(0))),
            N::U32(_) | N::U64(_) => Some(x),
            N::Bool(_) => None,
        },
        UnaryOp::Not => match x {
            N::I32(x) => Some(N::I32(!x)),
            N::U32(x) => Some(N::U32(!x)),
            N::I64(x) => Some(N::I64(!x)),
            N::U64(x) => Some(N::U64(!x)),
            N::Bool(x) => Some(N::Bool(!x)),
            N::F32(_) | N::F64(_) => None,
        },
        UnaryOp::Reciprocal => match x {
            N::F32(x) => Some(N::F32(1.0 / x)),
            N::F64(x) => Some(N::F64(1.0 / x)),
            N::I32(_) | N::U32(_) | N::I64(_) | N::U64(_) | N::Bool(_) => None,
        },
        UnaryOp::IsNan => match x {
            N::F32(x) => Some(N::Bool(x.is_nan())),
            N::F64(x) => Some(N::Bool(x.is_nan())),
            N::I32(_) | N::U32(_) | N::I64(_) | N::U64(_) | N::Bool(_) => None,
        },
        UnaryOp::IsInf => match x {
            N::F32(x) => Some(N::Bool(x.is_infinite())),
            N::F64(_) | N::I32(_) | N::U32(_) | N::I64(_) | N::U64(_) | N::Bool(_) => None,
        },
        UnaryOp::Rsqrt => of_f32(|x| 1.0 / f::sqrt_f32(x)),
        UnaryOp::Sqrt => of_f32(f::sqrt_f32),
        UnaryOp::Exp => of_f32(f::exp_f32),
        UnaryOp::Expm1 => of_f32(f::expm1_f32),
        UnaryOp::Log => of_f32(f::log_f32),
        UnaryOp::Log1p => of_f32(f::log1p_f32),
        UnaryOp::Sin => of_f32(f::sin_f32),
        UnaryOp::Cos => of_f32(f::cos_f32),
        UnaryOp::Tan => of_f32(f::tan_f32),
        UnaryOp::Tanh => of_f32(f::tanh_f32),
        UnaryOp::Sigmoid => of_f32(f::sigmoid_f32),
        UnaryOp::Erf => of_f32(f::erf_f32),
        UnaryOp::Ndtr => of_f32(f::ndtr_f32),
        UnaryOp::Gaussian => of_f32(f::gaussian_f32),
        UnaryOp::Floor => of_f32(f::floor_f32),
        UnaryOp::Ceil => of_f32(f::ceil_f32),
        UnaryOp::Round => of_f32(f::round_f32),
        UnaryOp::Trunc => of_f32(f::trunc_f32),
    }
}

/// The value of a function of two integers, by the same formula for all four types.
macro_rules! integers {
    ($op:expr, $a:expr, $b:expr, $variant:ident, $signed:ty, $unsigned:ty, $is_signed:expr) => {{
        let (a, b) = ($a, $b);
        let whole = |a: i64, b: i64, of: fn(i64, i64) -> i64| of(a, b);
        let bits = <$unsigned>::BITS as $unsigned;
        let value = match $op {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Sub => a.wrapping_sub(b),
            BinaryOp::Mul => a.wrapping_mul(b),
            BinaryOp::Maximum => a.max(b),
            BinaryOp::Minimum => a.min(b),
            BinaryOp::FloorDiv if $is_signed => whole(a as i64, b as i64, f::floor_divide_i64) as _,
            BinaryOp::Remainder if $is_signed => whole(a as i64, b as i64, f::remainder_i64) as _,
            BinaryOp::FloorDiv => a.checked_div(b).unwrap_or(0),
            BinaryOp::Remainder => a.checked_rem(b).unwrap_or(0),
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            BinaryOp::LeftShift => {
                if (b as $unsigned) < bits {
                    a << b
                } else {
                    0
                }
            }
            BinaryOp::RightShift if $is_signed => a >> (b as $unsigned).min(bits - 1),
            BinaryOp::RightShift => {
                if (b as $unsigned) < bits {
                    a >> b
                } else {
                    0
                }
            }
            BinaryOp::Div | BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Gcd => return None,
        };
        Some(N::$variant(value))
    }};
}

/// The value of a function of two numbers; none where `operations` has no text.
pub(crate) fn binary(op: BinaryOp, a: Number, b: Number) -> Option<Number> {
    match (a, b) {
        (N::F32(a), N::F32(b)) => Some(N::F32(match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            BinaryOp::Maximum => {
                if a > b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            BinaryOp::Minimum => {
                if a < b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            BinaryOp::FloorDiv => f::floor_divide_f32(a, b),
            BinaryOp::Remainder => f::remainder_f32(a, b),
            BinaryOp::Pow => f::pow_f32(a, b),
            BinaryOp::Atan2 => f::atan2_f32(a, b),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => return None,
            BinaryOp::LeftShift | BinaryOp::RightShift | BinaryOp::Gcd => return None,
        })),
        (N::F64(a), N::F64(b)) => Some(N::F64(match op {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            BinaryOp::Maximum => {
                if a > b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            BinaryOp::Minimum => {
                if a < b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            BinaryOp::FloorDiv | BinaryOp::Remainder | BinaryOp::Pow | BinaryOp::Atan2 => return None,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => return None,
            BinaryOp::LeftShift | BinaryOp::RightShift | BinaryOp::Gcd => return None,
        })),
        (N::I32(a), N::I32(b)) => integers!(op, a, b, I32, i32, u32, true),
        (N::U32(a), N::U32(b)) => integers!(op, a, b, U32, i32, u32, false),
        (N::I64(a), N::I64(b)) => integers!(op, a, b, I64, i64, u64, true),
        (N::U64(a), N::U64(b)) => integers!(op, a, b, U64, i64, u64, false),
        (N::Bool(a), N::Bool(b)) => Some(N::Bool(match op {
            BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or => a | b,
            BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::And => a & b,
            BinaryOp::Xor => a ^ b,
            BinaryOp::Sub | BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Remainder => return None,
            BinaryOp::Pow | BinaryOp::Atan2 => return None,
            BinaryOp::LeftShift | BinaryOp::RightShift | BinaryOp::Gcd => return None,
        })),
        _ => None,
    }
}

pub(crate) fn compare(op: CompareOp, a: Number, b: Number) -> bool {
    fn of<T: PartialOrd>(op: CompareOp, a: T, b: T) -> bool {
        match op {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
            CompareOp::Gt => a > b,
            CompareOp::Ge => a >= b,
        }
    }
    match (a, b) {
        (N::F32(a), N::F32(b)) => of(op, a, b),
        (N::F64(a), N::F64(b)) => of(op, a, b),
        (N::I32(a), N::I32(b)) => of(op, a, b),
        (N::U32(a), N::U32(b)) => of(op, a, b),
        (N::I64(a), N::I64(b)) => of(op, a, b),
        (N::U64(a), N::U64(b)) => of(op, a, b),
        (N::Bool(a), N::Bool(b)) => of(op, a, b),
        _ => false,
    }
}

/// The number as another dtype: as Rust's `as`.
pub(crate) fn cast(x: Number, dtype: DType) -> Number {
    macro_rules! to {
        ($x:expr) => {
            match dtype.arithmetic() {
                Arithmetic::F32 => N::F32($x as f32),
                Arithmetic::F64 => N::F64($x as f64),
                Arithmetic::I32 => N::I32($x as i32),
                Arithmetic::U32 => N::U32($x as u32),
                Arithmetic::I64 => N::I64($x as i64),
                Arithmetic::U64 => N::U64($x as u64),
                Arithmetic::Bool => N::Bool($x as f64 != 0.0),
            }
        };
    }
    let wide = match x {
        N::F32(x) => to!(x),
        N::F64(x) => to!(x),
        N::I32(x) => to!(x),
        N::U32(x) => to!(x),
        N::I64(x) => to!(x),
        N::U64(x) => to!(x),
        N::Bool(x) => to!(u8::from(x)),
    };
    match (x, wide) {
        // A float saturates to a narrow integer.
        (N::F32(_) | N::F64(_), N::I32(wide)) if dtype.is_narrow() => {
            let (least, greatest) = (dtype.least().as_i64() as i32, dtype.greatest().as_i64() as i32);
            N::I32(wide.clamp(least, greatest))
        }
        _ => held(wide, dtype),
    }
}

/// x to a constant integer power.
pub(crate) fn powi(n: i32, x: Number) -> Option<Number> {
    let times = |a, b| binary(BinaryOp::Mul, a, b);
    match n {
        1 => return Some(x),
        2 => return times(x, x),
        3 => return times(times(x, x)?, x),
        _ => {}
    }
    let (mut base, mut power, mut left) = (x, one(x), n.unsigned_abs());
    while left > 0 {
        if left & 1 == 1 {
            power = times(power, base)?;
        }
        base = times(base, base)?;
        left >>= 1;
    }
    if n < 0 { unary(UnaryOp::Reciprocal, power).or(Some(power)) } else { Some(power) }
}

/// The number one of the same type.
fn one(x: Number) -> Number {
    match x {
        N::F32(_) => N::F32(1.0),
        N::F64(_) => N::F64(1.0),
        N::I32(_) => N::I32(1),
        N::U32(_) => N::U32(1),
        N::I64(_) => N::I64(1),
        N::U64(_) => N::U64(1),
        N::Bool(_) => N::Bool(true),
    }
}

/// The function of two numbers with which a reduction continues.
pub(crate) const fn combination(op: ReduceOp) -> BinaryOp {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => BinaryOp::Add,
        ReduceOp::Prod => BinaryOp::Mul,
        ReduceOp::Max => BinaryOp::Maximum,
        ReduceOp::Min => BinaryOp::Minimum,
        ReduceOp::Any => BinaryOp::Or,
        ReduceOp::All => BinaryOp::And,
    }
}

/// The number with which a reduction begins.
pub(crate) fn beginning(op: ReduceOp, dtype: DType) -> Scalar {
    let infinite = |sign: f64, end: Scalar| match dtype.is_float() {
        true => Scalar::Float(sign * f64::INFINITY),
        false => end,
    };
    match op {
        ReduceOp::Sum | ReduceOp::Mean => Scalar::Int(0),
        ReduceOp::Prod => Scalar::Int(1),
        ReduceOp::Max => infinite(-1.0, dtype.least()),
        ReduceOp::Min => infinite(1.0, dtype.greatest()),
        ReduceOp::Any => Scalar::Bool(false),
        ReduceOp::All => Scalar::Bool(true),
    }
    .cast(dtype)
}

/// A reduction of numbers in their order.
pub(crate) fn reduce(op: ReduceOp, dtype: DType, numbers: &[Number]) -> Option<Number> {
    let begin = number(beginning(op, dtype), dtype);
    let mut total = begin;
    for &next in numbers {
        total = held(binary(combination(op), total, next)?, dtype);
    }
    if op == ReduceOp::Mean {
        let count = number(Scalar::Float(numbers.len() as f64), dtype);
        total = binary(BinaryOp::Div, total, count)?;
    }
    Some(total)
}
