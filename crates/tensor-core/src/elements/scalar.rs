//! [`Scalar`]: a single number of any dtype, as an operand or parameter of operations.

use std::fmt;

use crate::elements::dtype::{DType, ElementType, Kind};

/// A number given to an operation beside its tensors, as in `&x + 2.0`.
///
/// It takes its tensor's dtype if the category allows that (`f32` tensor `+ 2` stays `f32`), as in
/// PyTorch; a float scalar with an integer tensor gives the default dtype (see
/// [`default_dtype`](crate::default_dtype)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A floating-point number.
    Float(f64),
    /// An integer.
    Int(i64),
    /// An integer above [`i64::MAX`]; [`Scalar::from_u64`] stores smaller ones as [`Scalar::Int`].
    Unsigned(u64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// The scalar of an unsigned integer.
    pub const fn from_u64(value: u64) -> Scalar {
        if value > i64::MAX as u64 { Scalar::Unsigned(value) } else { Scalar::Int(value as i64) }
    }

    /// Whether this is an integer.
    pub const fn is_int(self) -> bool {
        matches!(self, Scalar::Int(_) | Scalar::Unsigned(_))
    }

    /// The value as `f64` (an integer above 2^53 is rounded; true is 1).
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(v) => v,
            Scalar::Int(v) => v as f64,
            Scalar::Unsigned(v) => v as f64,
            Scalar::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// The value as `i64`: a float truncates toward zero and saturates; NaN is 0. An integer above
    /// `i64::MAX` wraps.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(v) => v as i64,
            Scalar::Int(v) => v,
            Scalar::Unsigned(v) => v as i64,
            Scalar::Bool(v) => i64::from(v),
        }
    }

    /// Whether the value is not zero.
    pub fn as_bool(self) -> bool {
        match self {
            Scalar::Float(v) => v != 0.0,
            Scalar::Int(v) => v != 0,
            Scalar::Unsigned(v) => v != 0,
            Scalar::Bool(v) => v,
        }
    }

    /// Whether both are of one category with the same bits: signs of zero and NaNs are distinguished.
    pub(crate) fn same_bits(self, other: Scalar) -> bool {
        match (self, other) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            _ => self == other,
        }
    }

    /// The scalar clamped to the range of an integer dtype; unchanged for any other dtype.
    pub(crate) fn saturate(self, dtype: DType) -> Scalar {
        let (Some(own), true) = (self.as_i128(), dtype.is_int()) else { return self };
        let bounds = dtype.least().as_i128().zip(dtype.greatest().as_i128());
        let Some((least, greatest)) = bounds else { return self };
        match own.clamp(least, greatest) {
            held if held < 0 => Scalar::Int(held as i64),
            held => Scalar::from_u64(held as u64),
        }
    }

    /// The exact value of an integer.
    const fn as_i128(self) -> Option<i128> {
        match self {
            Scalar::Int(v) => Some(v as i128),
            Scalar::Unsigned(v) => Some(v as i128),
            Scalar::Float(_) | Scalar::Bool(_) => None,
        }
    }
}

impl DType {
    /// The greatest finite number: true for `bool`.
    pub const fn greatest(self) -> Scalar {
        let ElementType { kind, bits, float, .. } = self.info();
        match (kind, float) {
            (Kind::Float, Some(format)) => Scalar::Float(format.greatest),
            (Kind::Unsigned, _) => Scalar::from_u64(u64::MAX >> (64 - *bits)),
            (Kind::Signed, _) => Scalar::Int(i64::MAX >> (64 - *bits)),
            (Kind::Bool | Kind::Float, _) => Scalar::Bool(true),
        }
    }

    /// The least finite number: false for `bool`.
    pub const fn least(self) -> Scalar {
        let ElementType { kind, bits, float, .. } = self.info();
        match (kind, float) {
            (Kind::Float, Some(format)) => Scalar::Float(-format.greatest),
            (Kind::Unsigned, _) => Scalar::Int(0),
            (Kind::Signed, _) => Scalar::Int(i64::MIN >> (64 - *bits)),
            (Kind::Bool | Kind::Float, _) => Scalar::Bool(false),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Float(v) => v.fmt(f),
            Scalar::Int(v) => v.fmt(f),
            Scalar::Unsigned(v) => v.fmt(f),
            Scalar::Bool(v) => v.fmt(f),
        }
    }
}

macro_rules! from {
    ($($t:ty => $v:ident => $e:expr;)*) => {$(
        impl From<$t> for Scalar { fn from($v: $t) -> Scalar { $e } }
    )*};
}

from! {
    f64 => v => Scalar::Float(v);
    f32 => v => Scalar::Float(f64::from(v));
    half::f16 => v => Scalar::Float(v.to_f64());
    half::bf16 => v => Scalar::Float(v.to_f64());
    i64 => v => Scalar::Int(v);
    i32 => v => Scalar::Int(i64::from(v));
    u32 => v => Scalar::Int(i64::from(v));
    u16 => v => Scalar::Int(i64::from(v));
    i16 => v => Scalar::Int(i64::from(v));
    u8 => v => Scalar::Int(i64::from(v));
    i8 => v => Scalar::Int(i64::from(v));
    u64 => v => Scalar::from_u64(v);
    usize => v => Scalar::from_u64(v as u64);
    bool => v => Scalar::Bool(v);
}
