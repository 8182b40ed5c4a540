//! The table of element types: one row each. All code that depends on an element type reads this table,
//! or is compiled for the element's Rust type by [`with_element!`](crate::with_element), whose list
//! follows the table.

/// The category of an element type's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Truth values.
    Bool,
    /// Unsigned integers.
    Unsigned,
    /// Signed integers in two's complement.
    Signed,
    /// Binary floating-point numbers.
    Float,
}

/// The types in which arithmetic is carried out, [`DType::arithmetic`]. Code that computes matches on
/// these, so that a new narrow type needs no change there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // They are those of `DType`.
pub enum Arithmetic {
    Bool,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl Arithmetic {
    /// The type's dtype.
    pub const fn dtype(self) -> DType {
        match self {
            Arithmetic::Bool => DType::Bool,
            Arithmetic::U32 => DType::U32,
            Arithmetic::I32 => DType::I32,
            Arithmetic::U64 => DType::U64,
            Arithmetic::I64 => DType::I64,
            Arithmetic::F32 => DType::F32,
            Arithmetic::F64 => DType::F64,
        }
    }
}

/// The widths of elements in memory. Code that moves elements matches on these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// One byte.
    W8,
    /// Two bytes.
    W16,
    /// Four bytes.
    W32,
    /// Eight bytes.
    W64,
}

/// The binary format of a floating-point type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FloatFormat {
    /// Bits of the significand, the implicit one included.
    pub digits: u32,
    /// The exponent of the least normal number, which is 2 to this power.
    pub min_exponent: i32,
    /// The greatest finite number.
    pub greatest: f64,
    /// Whether the type has infinities. If not, a cast turns numbers beyond the range into the greatest
    /// one or NaN; see [`DType`].
    pub has_infinity: bool,
}

/// A row of the table: the properties of one element type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ElementType {
    /// The category of its numbers.
    pub kind: Kind,
    /// Bits of one element in memory.
    pub bits: u32,
    /// The type in which arithmetic on this one is carried out.
    pub compute: Arithmetic,
    /// The format of a floating-point type.
    pub float: Option<FloatFormat>,
    /// The name in Rust and in this library's messages.
    pub name: &'static str,
    /// The name in PyTorch, without `torch.`.
    pub torch: &'static str,
    /// The type string of NumPy's `.npy` files, little-endian; `None` where NumPy has no such type.
    pub numpy: Option<&'static str>,
    /// The name in safetensors files.
    pub safetensors: &'static str,
    /// The number of ONNX's `TensorProto.DataType`.
    pub onnx: u32,
    /// The number of TensorFlow's `DataType`.
    pub tensorflow: u32,
    /// The number of GGUF's `ggml_type`; `None` where GGUF has no such type.
    pub gguf: Option<u32>,
}

/// An optional number or name of a row.
macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! element_types {
    ($(
        $(#[$doc:meta])*
        $variant:ident($rust:ty) {
            kind: $kind:ident, bits: $bits:literal, compute: $compute:ident,
            $(float: ($digits:literal, $min_exponent:literal, $greatest:expr, $has_infinity:literal),)?
            name: $name:literal, torch: $torch:literal, $(numpy: $numpy:literal,)? safetensors: $safetensors:literal,
            onnx: $onnx:literal, tensorflow: $tensorflow:literal, $(gguf: $gguf:literal,)?
        }
    )*) => {
        /// The type of a tensor's elements.
        ///
        /// Casts follow Rust's `as`: floats to integers truncate toward zero and saturate, with NaN → 0;
        /// integers wrap; integers and floats to floats round to nearest, ties to even. A number beyond
        /// the range of a float type becomes infinite or, if the type has no infinities, what PyTorch
        /// makes of it: the greatest number for [`DType::F8E4M3FN`], and NaN for the two `FNUZ` types.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// Every dtype: bool, integers, floats, each from the narrowest on.
            pub const ALL: [DType; [$(DType::$variant),*].len()] = [$(DType::$variant),*];

            /// The properties of this type.
            pub const fn info(self) -> &'static ElementType {
                match self {
                    $(DType::$variant => &ElementType {
                        kind: Kind::$kind,
                        bits: $bits,
                        compute: Arithmetic::$compute,
                        float: optional!($(FloatFormat {
                            digits: $digits,
                            min_exponent: $min_exponent,
                            greatest: $greatest,
                            has_infinity: $has_infinity,
                        })?),
                        name: $name,
                        torch: $torch,
                        numpy: optional!($($numpy)?),
                        safetensors: $safetensors,
                        onnx: $onnx,
                        tensorflow: $tensorflow,
                        gguf: optional!($($gguf)?),
                    },)*
                }
            }
        }

        /// The Rust type of each dtype's elements, by the dtype's name.
        #[doc(hidden)]
        pub mod element_types {
            $(pub type $variant = $rust;)*
        }
    };
}

element_types! {
    /// True or false, one byte.
    Bool(bool) {
        kind: Bool, bits: 8, compute: Bool,
        name: "bool", torch: "bool", numpy: "|b1", safetensors: "BOOL", onnx: 9, tensorflow: 10,
    }
    /// Unsigned 8-bit integer; computed in `i32`.
    U8(u8) {
        kind: Unsigned, bits: 8, compute: I32,
        name: "u8", torch: "uint8", numpy: "|u1", safetensors: "U8", onnx: 2, tensorflow: 4,
    }
    /// Signed 8-bit integer; computed in `i32`.
    I8(i8) {
        kind: Signed, bits: 8, compute: I32,
        name: "i8", torch: "int8", numpy: "|i1", safetensors: "I8", onnx: 3, tensorflow: 6, gguf: 24,
    }
    /// Unsigned 16-bit integer; computed in `i32`.
    U16(u16) {
        kind: Unsigned, bits: 16, compute: I32,
        name: "u16", torch: "uint16", numpy: "<u2", safetensors: "U16", onnx: 4, tensorflow: 17,
    }
    /// Signed 16-bit integer; computed in `i32`.
    I16(i16) {
        kind: Signed, bits: 16, compute: I32,
        name: "i16", torch: "int16", numpy: "<i2", safetensors: "I16", onnx: 5, tensorflow: 5, gguf: 25,
    }
    /// Unsigned 32-bit integer.
    U32(u32) {
        kind: Unsigned, bits: 32, compute: U32,
        name: "u32", torch: "uint32", numpy: "<u4", safetensors: "U32", onnx: 12, tensorflow: 22,
    }
    /// Signed 32-bit integer; the type of indices and class labels.
    I32(i32) {
        kind: Signed, bits: 32, compute: I32,
        name: "i32", torch: "int32", numpy: "<i4", safetensors: "I32", onnx: 6, tensorflow: 3, gguf: 26,
    }
    /// Unsigned 64-bit integer.
    U64(u64) {
        kind: Unsigned, bits: 64, compute: U64,
        name: "u64", torch: "uint64", numpy: "<u8", safetensors: "U64", onnx: 13, tensorflow: 23,
    }
    /// Signed 64-bit integer.
    I64(i64) {
        kind: Signed, bits: 64, compute: I64,
        name: "i64", torch: "int64", numpy: "<i8", safetensors: "I64", onnx: 7, tensorflow: 9, gguf: 27,
    }
    /// 8-bit float with 4 exponent bits, 3 mantissa bits and no infinity: up to 448. Computed in `f32`.
    F8E4M3FN(crate::elements::dtype::float8::F8E4M3FN) {
        kind: Float, bits: 8, compute: F32, float: (4, -6, 448.0, false),
        name: "f8e4m3fn", torch: "float8_e4m3fn", safetensors: "F8_E4M3", onnx: 17, tensorflow: 25,
    }
    /// 8-bit float with 5 exponent bits and 2 mantissa bits: up to 57344. Computed in `f32`.
    F8E5M2(crate::elements::dtype::float8::F8E5M2) {
        kind: Float, bits: 8, compute: F32, float: (3, -14, 57344.0, true),
        name: "f8e5m2", torch: "float8_e5m2", safetensors: "F8_E5M2", onnx: 19, tensorflow: 24,
    }
    /// 8-bit float with 4 exponent bits, 3 mantissa bits, one zero and one NaN: up to 240. Computed in `f32`.
    F8E4M3FNUZ(crate::elements::dtype::float8::F8E4M3FNUZ) {
        kind: Float, bits: 8, compute: F32, float: (4, -7, 240.0, false),
        name: "f8e4m3fnuz", torch: "float8_e4m3fnuz", safetensors: "F8_E4M3FNUZ", onnx: 18, tensorflow: 26,
    }
    /// 8-bit float with 5 exponent bits, 2 mantissa bits, one zero and one NaN: up to 57344. Computed in
    /// `f32`.
    F8E5M2FNUZ(crate::elements::dtype::float8::F8E5M2FNUZ) {
        kind: Float, bits: 8, compute: F32, float: (3, -15, 57344.0, false),
        name: "f8e5m2fnuz", torch: "float8_e5m2fnuz", safetensors: "F8_E5M2FNUZ", onnx: 20, tensorflow: 28,
    }
    /// IEEE 754 half precision; computed in `f32`, stored in two bytes.
    F16(half::f16) {
        kind: Float, bits: 16, compute: F32, float: (11, -14, 65504.0, true),
        name: "f16", torch: "float16", numpy: "<f2", safetensors: "F16", onnx: 10, tensorflow: 19, gguf: 1,
    }
    /// bfloat16: the upper half of an `f32`; computed in `f32`, stored in two bytes.
    BF16(half::bf16) {
        kind: Float, bits: 16, compute: F32, float: (8, -126, 3.389_531_389_251_535_5e38, true),
        name: "bf16", torch: "bfloat16", safetensors: "BF16", onnx: 16, tensorflow: 14, gguf: 30,
    }
    /// IEEE 754 single precision, the default.
    F32(f32) {
        kind: Float, bits: 32, compute: F32, float: (24, -126, f32::MAX as f64, true),
        name: "f32", torch: "float32", numpy: "<f4", safetensors: "F32", onnx: 1, tensorflow: 1, gguf: 0,
    }
    /// IEEE 754 double precision.
    F64(f64) {
        kind: Float, bits: 64, compute: F64, float: (53, -1022, f64::MAX, true),
        name: "f64", torch: "float64", numpy: "<f8", safetensors: "F64", onnx: 11, tensorflow: 2, gguf: 28,
    }
}

/// Evaluates an expression in which a name stands for the Rust type of a dtype's elements:
/// `with_element!(dtype, T => size_of::<T>())`. The expression is compiled once for each dtype, so it
/// should be small.
#[macro_export]
#[doc(hidden)]
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr) => {{
        macro_rules! arm {
            ($row:ident) => {{
                type $t = $crate::element_types::$row;
                $body
            }};
        }
        match $dtype {
            $crate::DType::Bool => arm!(Bool),
            $crate::DType::U8 => arm!(U8),
            $crate::DType::I8 => arm!(I8),
            $crate::DType::U16 => arm!(U16),
            $crate::DType::I16 => arm!(I16),
            $crate::DType::U32 => arm!(U32),
            $crate::DType::I32 => arm!(I32),
            $crate::DType::U64 => arm!(U64),
            $crate::DType::I64 => arm!(I64),
            $crate::DType::F8E4M3FN => arm!(F8E4M3FN),
            $crate::DType::F8E5M2 => arm!(F8E5M2),
            $crate::DType::F8E4M3FNUZ => arm!(F8E4M3FNUZ),
            $crate::DType::F8E5M2FNUZ => arm!(F8E5M2FNUZ),
            $crate::DType::F16 => arm!(F16),
            $crate::DType::BF16 => arm!(BF16),
            $crate::DType::F32 => arm!(F32),
            $crate::DType::F64 => arm!(F64),
        }
    }};
}
