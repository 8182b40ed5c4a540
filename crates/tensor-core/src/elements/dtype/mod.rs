//! Element types: the table of their properties ([`DType::info`]), and type promotion. Scalars are in
//! `scalar.rs`, and the Rust types that can be elements in `element.rs`.

pub mod float8;
mod table;

use std::fmt;

pub use table::{Arithmetic, DType, ElementType, FloatFormat, Kind, Width, element_types};

impl DType {
    /// Bytes of one element in host memory.
    pub const fn size(self) -> usize {
        self.info().bits as usize / 8
    }

    /// The name in Rust.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Whether this is a floating-point type: only these can carry gradients.
    pub const fn is_float(self) -> bool {
        matches!(self.info().kind, Kind::Float)
    }

    /// Whether this is an integer type (`bool` is not).
    pub const fn is_int(self) -> bool {
        matches!(self.info().kind, Kind::Signed | Kind::Unsigned)
    }

    /// Whether this is `bool`.
    pub const fn is_bool(self) -> bool {
        matches!(self.info().kind, Kind::Bool)
    }

    /// Whether this is a type with negative numbers: a signed integer or a float.
    pub const fn is_signed(self) -> bool {
        matches!(self.info().kind, Kind::Signed | Kind::Float)
    }

    /// Whether this is a floating-point type whose arithmetic is carried out in `f32`: `f16`, `bf16` and the
    /// 8-bit floats.
    pub const fn is_reduced_float(self) -> bool {
        self.is_float() && self.is_narrow()
    }

    /// Whether operations on this type are computed in a wider one, [`DType::register`], and cast back.
    pub const fn is_narrow(self) -> bool {
        self as u8 != self.register() as u8
    }

    /// The type in which composite functions of this type are computed, PyTorch's `opmath_type`: `f32`
    /// for floats of 8 and 16 bits, else the type itself.
    pub const fn compute(self) -> DType {
        if self.is_float() { self.register() } else { self }
    }

    /// The type in which a program's registers hold numbers of this type: `f32` for floats of 8 and 16
    /// bits, `i32` for integers of 8 and 16 bits, else the type itself.
    pub const fn register(self) -> DType {
        self.info().compute.dtype()
    }

    /// [`DType::register`] as an enum of its few possible values.
    pub const fn arithmetic(self) -> Arithmetic {
        self.info().compute
    }

    /// The width of an element in host memory.
    pub const fn width(self) -> Width {
        match self.info().bits {
            8 => Width::W8,
            16 => Width::W16,
            32 => Width::W32,
            _ => Width::W64,
        }
    }

    /// The binary format of a floating-point type; `None` for the others.
    pub const fn float_format(self) -> Option<&'static FloatFormat> {
        self.info().float.as_ref()
    }

    /// The least positive normal number of a floating-point type, PyTorch's `finfo.tiny`; 1 for the others.
    pub fn smallest_normal(self) -> f64 {
        self.float_format().map_or(1.0, |format| 2f64.powi(format.min_exponent))
    }

    /// The distance from 1 to the next number of a floating-point type, PyTorch's `finfo.eps`; 1 for the
    /// others.
    pub fn epsilon(self) -> f64 {
        self.float_format().map_or(1.0, |format| 2f64.powi(1 - format.digits as i32))
    }

    /// The type of the result of an elementwise operation on `self` and `other`. As in PyTorch's
    /// `torch.promote_types`, if that has an answer: the wider of two floats or of two integers of one
    /// signedness, the float of a float and an integer, the narrowest signed integer that holds both an
    /// unsigned and a signed one.
    ///
    /// Otherwise: two floats of equal width give the next wider one (`f16` with `bf16` gives `f32`, as
    /// in PyTorch; two 8-bit floats give `f32` as well, since neither 16-bit type is the obvious
    /// choice), and `u64` with a signed integer gives `f64`, as in NumPy.
    pub const fn promote(self, other: DType) -> DType {
        if self as u8 == other as u8 {
            return self;
        }
        let (a, b) = (self.info(), other.info());
        match (a.kind, b.kind) {
            (Kind::Bool, _) => other,
            (_, Kind::Bool) => self,
            (Kind::Float, Kind::Float) if a.bits == b.bits => DType::F32,
            (Kind::Float, Kind::Float) | (Kind::Signed, Kind::Signed) | (Kind::Unsigned, Kind::Unsigned) => {
                if a.bits > b.bits {
                    self
                } else {
                    other
                }
            }
            (Kind::Float, Kind::Signed | Kind::Unsigned) => self,
            (Kind::Signed | Kind::Unsigned, Kind::Float) => other,
            (Kind::Signed, Kind::Unsigned) => holds_both(self, b.bits),
            (Kind::Unsigned, Kind::Signed) => holds_both(other, a.bits),
        }
    }
}

/// The narrowest type that holds a signed integer type and the unsigned one of `bits` bits.
const fn holds_both(signed: DType, bits: u32) -> DType {
    if signed.info().bits > bits {
        return signed;
    }
    match bits {
        8 => DType::I16,
        16 => DType::I32,
        32 => DType::I64,
        _ => DType::F64,
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        elements::{element::Element, scalar::Scalar},
        with_element,
    };

    #[test]
    fn rows_are_true_of_their_rust_types() {
        for dtype in DType::ALL {
            let ElementType { bits, kind, float, .. } = *dtype.info();
            let compute = dtype.register();
            let (own, size) = with_element!(dtype, T => (T::DTYPE, size_of::<T>()));
            assert_eq!((own, size), (dtype, bits as usize / 8));
            assert_eq!(float.is_some(), kind == Kind::Float, "{dtype}");
            assert_eq!(compute.register(), compute, "{dtype}");
            // A type's numbers are representable in its compute type.
            assert_eq!(compute.promote(dtype), compute, "{dtype}");
            for number in [dtype.greatest(), dtype.least(), Scalar::Float(1.0)] {
                let held = number.cast(dtype);
                assert_eq!(held.as_f64(), number.as_f64(), "{dtype}");
                assert_eq!(held.cast(compute).as_f64(), number.as_f64(), "{dtype}");
            }
            let Some(format) = float else { continue };
            let near = |x: f64| Scalar::Float(x).cast(dtype).as_f64();
            assert_eq!(near(dtype.smallest_normal()), dtype.smallest_normal(), "{dtype}");
            assert_eq!(near(1.0 + dtype.epsilon()), 1.0 + dtype.epsilon(), "{dtype}");
            assert_eq!(near(1.0 + 0.49 * dtype.epsilon()), 1.0, "{dtype}");
            assert_eq!(near(f64::INFINITY).is_infinite(), format.has_infinity, "{dtype}");
            assert!(near(f64::NAN).is_nan(), "{dtype}");
        }
    }

    /// PyTorch 2.15's `promote_types`, and the pairs that it refuses.
    #[test]
    fn promotion() {
        use DType::*;
        for (a, b, both) in [
            (U8, I8, I16),
            (U8, I16, I16),
            (U8, I32, I32),
            (I8, I16, I16),
            (I16, I64, I64),
            (Bool, I8, I8),
            (Bool, U16, U16),
            (U64, F16, F16),
            (I64, BF16, BF16),
            (F16, BF16, F32),
            (F32, F64, F64),
            (U32, I32, I64),
            (U16, I8, I32),
            (U8, U16, U16),
            (U64, I8, F64),
            (F8E4M3FN, F8E5M2, F32),
            (F8E5M2, F16, F16),
        ] {
            assert_eq!((a.promote(b), b.promote(a)), (both, both), "{a} with {b}");
        }
        for a in DType::ALL {
            assert_eq!(a.promote(a), a);
        }
    }
}
