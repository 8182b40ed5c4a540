//! Default dtypes: one rule for literals, ranges, sums and indices.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::{
    base::error::{Error, Result},
    devices::device::Device,
    elements::{dtype::DType, scalar::Scalar},
};

static DEFAULT: AtomicU8 = AtomicU8::new(DType::F32 as u8);

/// The default dtype of floating-point results: f32, unless [`set_default_dtype`] changed it.
/// `torch.get_default_dtype`.
///
/// One rule gives the dtype of a tensor if the caller gives none:
///
/// - **Floating-point numbers** have the default dtype: literals such as `1.0` in
///   [`Tensor::new`](crate::Tensor::new), `full`, `zeros`, `ones`, `eye`, `linspace`, `rand`, `randn`,
///   ranges with a float bound, functions of integers such as `exp`, `mean` and `/`, and the parameters
///   of layers.
/// - **Integers** have [`Device::int_dtype`], which is i64 on devices that have it, else i32: literals,
///   `full`, ranges of integers, sums and products of integers and bools, the indices that `argmax` and
///   `sort` return, `randint`, `randperm`.
/// - **Bools** are bool.
/// - Rust numbers of another type than those of plain literals (`1.0f32`, `7u8`, `half::f16`) keep it, and
///   so do all numbers in vectors and slices, `f64` and `i32` too. [`Tensor::new`](crate::Tensor::new) has
///   the cases; [`Tensor::from_slice`](crate::Tensor::from_slice) keeps every type.
/// - An explicit dtype, as in `(DType::F64, &device)`, overrides all of these.
pub fn default_dtype() -> DType {
    DType::ALL[usize::from(DEFAULT.load(Ordering::Relaxed))]
}

/// Sets the default dtype of floating-point results for the whole process: see [`default_dtype`].
/// `torch.set_default_dtype`.
///
/// # Errors
/// A dtype that is not floating-point.
#[track_caller]
pub fn set_default_dtype(dtype: DType) -> Result<()> {
    if !dtype.is_float() {
        return Err(Error::invalid(
            "set_default_dtype",
            format!("{dtype} is not floating-point; give F16, BF16, F32 or F64"),
        ));
    }
    DEFAULT.store(dtype as u8, Ordering::Relaxed);
    Ok(())
}

impl Device {
    /// The default dtype of integers: i64 if the device has it, else i32. See [`default_dtype`].
    pub fn int_dtype(&self) -> DType {
        if self.supports(DType::I64) { DType::I64 } else { DType::I32 }
    }

    /// The dtype of floating-point functions of integers: the default dtype, or f32 if the device lacks
    /// it, since such functions cannot fail.
    pub(crate) fn float_dtype(&self) -> DType {
        let dtype = default_dtype();
        if self.supports(dtype) { dtype } else { DType::F32 }
    }
}

impl Scalar {
    /// The dtype of a tensor on `device` made from this scalar: [`default_dtype`] for a float,
    /// [`Device::int_dtype`] for an integer, or bool.
    pub fn default_dtype(self, device: &Device) -> DType {
        match self {
            Scalar::Float(_) => default_dtype(),
            Scalar::Int(_) => device.int_dtype(),
            Scalar::Unsigned(_) => DType::U64,
            Scalar::Bool(_) => DType::Bool,
        }
    }

    /// The dtype of `tensor op scalar` for a tensor of the given dtype on `device`.
    pub fn promote_with(self, tensor: DType, device: &Device) -> DType {
        match self {
            Scalar::Float(_) if !tensor.is_float() => device.float_dtype(),
            Scalar::Int(_) if tensor.is_bool() => device.int_dtype(),
            Scalar::Unsigned(_) if tensor.is_bool() => DType::U64,
            Scalar::Float(_) | Scalar::Int(_) | Scalar::Unsigned(_) | Scalar::Bool(_) => tensor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_are_numbered_as_they_are_listed() {
        for (i, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, i);
        }
        assert!(set_default_dtype(DType::I32).is_err());
    }
}
