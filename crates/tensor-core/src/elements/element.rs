//! [`Element`]: the Rust types that can be elements of tensors, and the conversions of scalars to them.

use std::fmt;

use half::{bf16, f16};

use crate::{
    elements::{
        dtype::{DType, float8::*},
        rounding::round_to_odd,
        scalar::Scalar,
    },
    with_element,
};

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be the element of a tensor. Sealed: one type for each [`DType`].
pub trait Element: sealed::Sealed + Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The dtype of this type.
    const DTYPE: DType;

    /// This value as a scalar.
    fn to_scalar(self) -> Scalar;

    /// A scalar converted to this type: rounded or wrapped, see [`Scalar::cast`].
    fn from_scalar(scalar: Scalar) -> Self;

    /// The bytes of a slice in host order.
    fn as_bytes(slice: &[Self]) -> &[u8];

    /// Elements from bytes in host order. Bytes of a `bool` other than 0 are true.
    ///
    /// The length is rounded down to whole elements.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! elements {
    ($($t:ident: $dtype:ident, $v:ident => $to_scalar:expr, $s:ident => $from_scalar:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            #[inline]
            fn to_scalar(self) -> Scalar { let $v = self; $to_scalar }
            #[inline]
            fn from_scalar($s: Scalar) -> $t { $from_scalar }
            fn as_bytes(slice: &[Self]) -> &[u8] { bytemuck::cast_slice(slice) }
            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                let whole = bytes.len() / size_of::<Self>() * size_of::<Self>();
                bytemuck::allocation::pod_collect_to_vec(&bytes[..whole])
            }
        }
    )*};
}

/// Conversion of a scalar to an integer: floats saturate, integers wrap.
macro_rules! integer {
    ($s:ident, $t:ty) => {
        match $s {
            Scalar::Float(v) => v as $t,
            Scalar::Int(_) | Scalar::Unsigned(_) | Scalar::Bool(_) => $s.as_i64() as $t,
        }
    };
}

/// A scalar as an `f32`, such that rounding it on to a narrower float gives the correctly rounded scalar.
fn nearly(s: Scalar) -> f32 {
    round_to_odd(s.as_f64())
}

elements! {
    u8: U8, v => Scalar::Int(v.into()), s => integer!(s, u8);
    i8: I8, v => Scalar::Int(v.into()), s => integer!(s, i8);
    u16: U16, v => Scalar::Int(v.into()), s => integer!(s, u16);
    i16: I16, v => Scalar::Int(v.into()), s => integer!(s, i16);
    u32: U32, v => Scalar::Int(v.into()), s => integer!(s, u32);
    i32: I32, v => Scalar::Int(v.into()), s => integer!(s, i32);
    u64: U64, v => Scalar::from_u64(v), s => integer!(s, u64);
    i64: I64, v => Scalar::Int(v), s => integer!(s, i64);
    F8E4M3FN: F8E4M3FN, v => Scalar::Float(v.to_f64()), s => F8E4M3FN::from_f32(nearly(s));
    F8E5M2: F8E5M2, v => Scalar::Float(v.to_f64()), s => F8E5M2::from_f32(nearly(s));
    F8E4M3FNUZ: F8E4M3FNUZ, v => Scalar::Float(v.to_f64()), s => F8E4M3FNUZ::from_f32(nearly(s));
    F8E5M2FNUZ: F8E5M2FNUZ, v => Scalar::Float(v.to_f64()), s => F8E5M2FNUZ::from_f32(nearly(s));
    f16: F16, v => Scalar::Float(v.to_f64()), s => f16::from_f32(nearly(s));
    bf16: BF16, v => Scalar::Float(v.to_f64()), s => bf16::from_f32(nearly(s));
    f32: F32, v => Scalar::Float(v.into()), s => s.as_f64() as f32;
    f64: F64, v => Scalar::Float(v), s => s.as_f64();
}

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn to_scalar(self) -> Scalar {
        Scalar::Bool(self)
    }
    fn from_scalar(scalar: Scalar) -> bool {
        scalar.as_bool()
    }
    fn as_bytes(slice: &[Self]) -> &[u8] {
        bytemuck::cast_slice(slice)
    }
    fn from_bytes(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|&b| b != 0).collect()
    }
}

impl Scalar {
    /// The scalar converted as an element of `dtype` would be: rounded or wrapped.
    pub fn cast(self, dtype: DType) -> Scalar {
        with_element!(dtype, T => T::from_scalar(self).to_scalar())
    }

    /// The numbers in `bytes`, which are elements of a dtype in host byte order.
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Vec<Scalar> {
        with_element!(dtype, T => T::from_bytes(bytes).into_iter().map(T::to_scalar).collect())
    }

    /// Numbers as elements of a dtype in host byte order, each converted by [`Scalar::cast`].
    pub fn to_bytes(dtype: DType, numbers: &[Scalar]) -> Vec<u8> {
        with_element!(dtype, T => {
            let list: Vec<T> = numbers.iter().map(|&n| T::from_scalar(n)).collect();
            T::as_bytes(&list).to_vec()
        })
    }
}
