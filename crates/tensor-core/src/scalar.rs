//! A single number of any dtype, as operations carry it.

use std::fmt;

use crate::{DType, Device, Element, default_dtype, round_to_odd};

/// A number given to an operation beside its tensors, as in `&x + 2.0`.
///
/// It takes its tensor's dtype where the category allows (`f32` tensor `+ 2` stays `f32`), as in PyTorch; a
/// float scalar with an integer tensor gives the default dtype (see [`default_dtype`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A floating-point number.
    Float(f64),
    /// An integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// The dtype of a tensor on `device` made from this scalar alone: that of [`default_dtype`] for a float, of
    /// [`Device::int_dtype`] for an integer, or bool.
    pub fn default_dtype(self, device: &Device) -> DType {
        match self {
            Scalar::Float(_) => default_dtype(),
            Scalar::Int(_) => device.int_dtype(),
            Scalar::Bool(_) => DType::Bool,
        }
    }

    /// The value as `f64` (an integer above 2^53 is rounded; true is 1).
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(v) => v,
            Scalar::Int(v) => v as f64,
            Scalar::Bool(v) => f64::from(u8::from(v)),
        }
    }

    /// The value as `i64`: a float is cut toward zero, and saturates; NaN is 0.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(v) => v as i64,
            Scalar::Int(v) => v,
            Scalar::Bool(v) => i64::from(v),
        }
    }

    /// Whether the value is other than zero.
    pub fn as_bool(self) -> bool {
        match self {
            Scalar::Float(v) => v != 0.0,
            Scalar::Int(v) => v != 0,
            Scalar::Bool(v) => v,
        }
    }

    /// Whether both are one number in one category, signs of zero and NaNs told apart.
    pub(crate) fn same_bits(self, other: Scalar) -> bool {
        match (self, other) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            _ => self == other,
        }
    }

    /// The dtype of `tensor op scalar` for a tensor of the given dtype on `device`.
    pub fn promote_with(self, tensor: DType, device: &Device) -> DType {
        match self {
            Scalar::Float(_) if !tensor.is_float() => device.float_dtype(),
            Scalar::Int(_) if tensor == DType::Bool => device.int_dtype(),
            _ => tensor,
        }
    }

    /// The scalar held to the least and the greatest number of an integer dtype; as it is for any other.
    pub(crate) fn saturate(self, dtype: DType) -> Scalar {
        let held = |low: i64, high: i64| match self {
            Scalar::Int(v) => Scalar::Int(v.clamp(low, high)),
            Scalar::Float(_) | Scalar::Bool(_) => self,
        };
        match dtype {
            DType::U8 => held(0, i64::from(u8::MAX)),
            DType::U32 => held(0, i64::from(u32::MAX)),
            DType::I32 => held(i64::from(i32::MIN), i64::from(i32::MAX)),
            DType::I64 | DType::Bool | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => self,
        }
    }

    /// The scalar as an element of `dtype` would hold it: converted in category and rounded or wrapped to width.
    pub fn cast(self, dtype: DType) -> Scalar {
        match dtype {
            DType::Bool => Scalar::Bool(self.as_bool()),
            DType::U8 => Scalar::Int(match self {
                Scalar::Float(v) => i64::from(v as u8),
                other => i64::from(other.as_i64() as u8),
            }),
            DType::U32 => Scalar::Int(match self {
                Scalar::Float(v) => i64::from(v as u32),
                other => i64::from(other.as_i64() as u32),
            }),
            DType::I32 => Scalar::Int(match self {
                Scalar::Float(v) => i64::from(v as i32),
                other => i64::from(other.as_i64() as i32),
            }),
            DType::I64 => Scalar::Int(self.as_i64()),
            DType::F16 => Scalar::Float(half::f16::from_f32(round_to_odd(self.as_f64())).to_f64()),
            DType::BF16 => Scalar::Float(half::bf16::from_f32(round_to_odd(self.as_f64())).to_f64()),
            DType::F32 => Scalar::Float(f64::from(self.as_f64() as f32)),
            DType::F64 => Scalar::Float(self.as_f64()),
        }
    }

    /// The numbers that `bytes` hold, elements of a dtype in host byte order.
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Vec<Scalar> {
        fn of<T: Element>(bytes: &[u8]) -> Vec<Scalar> {
            T::from_bytes(bytes).into_iter().map(T::to_scalar).collect()
        }
        match dtype {
            DType::Bool => of::<bool>(bytes),
            DType::U8 => of::<u8>(bytes),
            DType::U32 => of::<u32>(bytes),
            DType::I32 => of::<i32>(bytes),
            DType::I64 => of::<i64>(bytes),
            DType::F16 => of::<half::f16>(bytes),
            DType::BF16 => of::<half::bf16>(bytes),
            DType::F32 => of::<f32>(bytes),
            DType::F64 => of::<f64>(bytes),
        }
    }

    /// Numbers as elements of a dtype in host byte order, each cast to it as [`Scalar::cast`] does.
    pub fn to_bytes(dtype: DType, numbers: &[Scalar]) -> Vec<u8> {
        fn of<T: Element>(numbers: &[Scalar], make: impl Fn(Scalar) -> T) -> Vec<u8> {
            let list: Vec<T> = numbers.iter().map(|n| make(n.cast(T::DTYPE))).collect();
            T::as_bytes(&list).to_vec()
        }
        match dtype {
            DType::Bool => of(numbers, Scalar::as_bool),
            DType::U8 => of(numbers, |n| n.as_i64() as u8),
            DType::U32 => of(numbers, |n| n.as_i64() as u32),
            DType::I32 => of(numbers, |n| n.as_i64() as i32),
            DType::I64 => of(numbers, Scalar::as_i64),
            DType::F16 => of(numbers, |n| half::f16::from_f32(n.as_f64() as f32)),
            DType::BF16 => of(numbers, |n| half::bf16::from_f32(n.as_f64() as f32)),
            DType::F32 => of(numbers, |n| n.as_f64() as f32),
            DType::F64 => of(numbers, Scalar::as_f64),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Float(v) => v.fmt(f),
            Scalar::Int(v) => v.fmt(f),
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
    u8 => v => Scalar::Int(i64::from(v));
    usize => v => Scalar::Int(v as i64);
    bool => v => Scalar::Bool(v);
}
