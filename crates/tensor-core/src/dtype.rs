//! Element types, and the Rust types that can be elements.
//! `DType` is the run-time name; [`Element`] ties it to a Rust type. Scalars live in `scalar.rs`.

use std::fmt;

use half::{bf16, f16};

use crate::Scalar;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// True or false, one byte.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer; the type of indices and class labels.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE 754 half precision; computed in `f32`, stored in two bytes.
    F16,
    /// bfloat16: the upper half of an `f32`; computed in `f32`, stored in two bytes.
    BF16,
    /// IEEE 754 single precision, the default.
    F32,
    /// IEEE 754 double precision.
    F64,
}

impl DType {
    /// Every dtype, in order of promotion.
    pub const ALL: [DType; 9] = [
        DType::Bool,
        DType::U8,
        DType::U32,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// Bytes of one element in host memory.
    pub const fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::I64 | DType::F64 => 8,
        }
    }

    /// The name that Rust (and safetensors, in upper case) uses.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::U32 => "u32",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    /// Whether this is a floating-point type: only these can carry gradients.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Whether this is an integer type (`bool` is not).
    pub const fn is_int(self) -> bool {
        matches!(self, DType::U8 | DType::U32 | DType::I32 | DType::I64)
    }

    /// Whether this is `f16` or `bf16`, whose arithmetic is carried out in `f32`.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// The type in which arithmetic on this one is carried out: `f32` for the two half types, else itself.
    pub const fn compute(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }

    /// The type that holds results of an elementwise operation on `self` and `other`, PyTorch's
    /// `torch.promote_types`: the wider of two floats or two signed integers, the float of a float and an
    /// integer; `f16` with `bf16` gives `f32`, and `u32` with `i32` gives `i64`.
    pub const fn promote(self, other: DType) -> DType {
        if self as u8 == other as u8 {
            return self;
        }
        match (self, other) {
            (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => DType::F32,
            (DType::U32, DType::I32) | (DType::I32, DType::U32) => DType::I64,
            _ if self as u8 > other as u8 => self,
            _ => other,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that can be the element of a tensor. Sealed: the list is that of [`DType`].
pub trait Element: sealed::Sealed + Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The dtype of this type.
    const DTYPE: DType;

    /// This value as a scalar.
    fn to_scalar(self) -> Scalar;

    /// The bytes of a slice in host order.
    fn as_bytes(slice: &[Self]) -> &[u8];

    /// Elements from bytes in host order. Bytes of a `bool` other than 0 are true.
    ///
    /// The length is rounded down to whole elements.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element {
    ($($t:ty => $dtype:ident, $v:ident => $scalar:expr;)*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            fn to_scalar(self) -> Scalar { let $v = self; $scalar }
            fn as_bytes(slice: &[Self]) -> &[u8] { bytemuck::cast_slice(slice) }
            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                let whole = bytes.len() / size_of::<Self>() * size_of::<Self>();
                bytemuck::allocation::pod_collect_to_vec(&bytes[..whole])
            }
        }
    )*};
}

element! {
    f32 => F32, v => Scalar::Float(v as f64);
    f64 => F64, v => Scalar::Float(v);
    f16 => F16, v => Scalar::Float(v.to_f64());
    bf16 => BF16, v => Scalar::Float(v.to_f64());
    i64 => I64, v => Scalar::Int(v);
    i32 => I32, v => Scalar::Int(v as i64);
    u32 => U32, v => Scalar::Int(v as i64);
    u8 => U8, v => Scalar::Int(v as i64);
}

impl sealed::Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn to_scalar(self) -> Scalar {
        Scalar::Bool(self)
    }
    fn as_bytes(slice: &[Self]) -> &[u8] {
        bytemuck::cast_slice(slice)
    }
    fn from_bytes(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|&b| b != 0).collect()
    }
}
