//! The layout of each dtype in device memory, the WGSL type that computes it, and the conversions from and
//! to host bytes.
//!
//! A storage buffer holds the same bytes as the host: elements of 32 and 64 bits as WGSL types, smaller
//! ones packed into words of 32 bits, the first in the lowest bits. Kernels access them with the functions
//! of `storage.rs`.

use std::borrow::Cow;

use tensor_core::{Arithmetic, DType, Scalar};

/// A dtype in device memory.
pub(crate) struct Stored {
    /// Bits of an element: 8, 16, 32 or 64.
    pub(crate) bits: usize,
    /// The WGSL type of a loaded element.
    pub(crate) loaded: &'static str,
    /// For elements smaller than a word, the library functions that convert between the bits of an element
    /// and a loaded element; packing rounds or wraps.
    pub(crate) packing: Option<Packing>,
}

/// The WGSL functions between elements and their bits, which are the low bits of a word whose other bits
/// are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    pub(crate) unpack: &'static str,
    pub(crate) pack: &'static str,
}

/// The table of dtypes in device memory.
pub(crate) const fn stored(dtype: DType) -> Stored {
    const fn whole(bits: usize, loaded: &'static str) -> Stored {
        Stored { bits, loaded, packing: None }
    }
    const fn packed(bits: usize, loaded: &'static str, unpack: &'static str, pack: &'static str) -> Stored {
        Stored { bits, loaded, packing: Some(Packing { unpack, pack }) }
    }
    match dtype {
        DType::Bool => packed(8, "u32", "unpack_bool", "pack_bool"),
        DType::U8 => packed(8, "i32", "unpack_u8", "pack_u8"),
        DType::I8 => packed(8, "i32", "unpack_i8", "pack_i8"),
        DType::U16 => packed(16, "i32", "unpack_u16", "pack_u16"),
        DType::I16 => packed(16, "i32", "unpack_i16", "pack_i16"),
        DType::F8E4M3FN => packed(8, "f32", "unpack_f8e4m3fn", "pack_f8e4m3fn"),
        DType::F8E5M2 => packed(8, "f32", "unpack_f8e5m2", "pack_f8e5m2"),
        DType::F8E4M3FNUZ => packed(8, "f32", "unpack_f8e4m3fnuz", "pack_f8e4m3fnuz"),
        DType::F8E5M2FNUZ => packed(8, "f32", "unpack_f8e5m2fnuz", "pack_f8e5m2fnuz"),
        DType::F16 => packed(16, "f32", "unpack_f16", "pack_f16"),
        DType::BF16 => packed(16, "f32", "unpack_bf16", "pack_bf16"),
        DType::U32 => whole(32, "u32"),
        DType::I32 => whole(32, "i32"),
        DType::F32 => whole(32, "f32"),
        DType::U64 => whole(64, "u64"),
        DType::I64 => whole(64, "i64"),
        DType::F64 => whole(64, "f64"),
    }
}

/// The WGSL type of an element that was loaded or will be stored.
pub(crate) const fn loaded(dtype: DType) -> &'static str {
    stored(dtype).loaded
}

/// The WGSL type of a value in a computation: the loaded type, except for bool.
pub(crate) fn value(dtype: DType) -> &'static str {
    if matches!(dtype, DType::Bool) { "bool" } else { loaded(dtype) }
}

/// Bytes of an element of a storage buffer.
pub(crate) const fn storage_size(dtype: DType) -> usize {
    stored(dtype).bits / 8
}

/// The elements in a word; 1 if an element is at least a word.
pub(crate) const fn per_word(dtype: DType) -> usize {
    if stored(dtype).bits < 32 { 32 / stored(dtype).bits } else { 1 }
}

/// Whether several elements share a word.
pub(crate) const fn is_packed(dtype: DType) -> bool {
    per_word(dtype) > 1
}

/// A dtype with whole words that can hold every loaded element of this one; used for temporaries.
pub(crate) fn unpacked(dtype: DType) -> DType {
    if !is_packed(dtype) {
        return dtype;
    }
    match loaded(dtype) {
        "f32" => DType::F32,
        "i32" => DType::I32,
        _ => DType::U32,
    }
}

/// The component names of a vector of four.
pub(crate) const FIELDS: [&str; 4] = ["x", "y", "z", "w"];

/// The number `e` of four elements; with a count, of the elements that there are, whose last one is repeated.
pub(crate) fn element_or_last(e: usize, count: Option<&str>) -> String {
    count.map_or(format!("{e}u"), |count| format!("min({e}u, {count} - 1u)"))
}

/// The bytes of a storage buffer for elements in host layout; bools become 0 or 1.
pub(crate) fn to_storage(dtype: DType, bytes: &[u8]) -> Cow<'_, [u8]> {
    if dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
        return bytes.iter().map(|&b| u8::from(b != 0)).collect::<Vec<u8>>().into();
    }
    bytes.into()
}

/// The words of a scalar parameter: one, or two (low first) for the 8-byte types.
pub(crate) fn scalar_words(scalar: Scalar, dtype: DType) -> [u32; 2] {
    let wide = |bits: u64| [bits as u32, (bits >> 32) as u32];
    match dtype.arithmetic() {
        Arithmetic::Bool => [u32::from(scalar.as_bool()), 0],
        Arithmetic::U32 | Arithmetic::I32 => [scalar.as_i64() as u32, 0],
        Arithmetic::U64 | Arithmetic::I64 => wide(scalar.as_i64() as u64),
        Arithmetic::F32 => [(scalar.as_f64() as f32).to_bits(), 0],
        Arithmetic::F64 => wide(scalar.as_f64().to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_the_size_that_the_host_gives_them() {
        for dtype in DType::ALL {
            let Stored { bits, packing, .. } = stored(dtype);
            assert_eq!(bits, 8 * dtype.size(), "{dtype}");
            assert_eq!(packing.is_some(), bits < 32, "{dtype}");
            assert_eq!(loaded(unpacked(dtype)), loaded(dtype), "{dtype}");
        }
    }

    #[test]
    fn truth_values_are_uploaded_as_0_and_1() {
        assert_eq!(to_storage(DType::Bool, &[0, 1, 2, 255])[..], [0, 1, 1, 1]);
        assert_eq!(to_storage(DType::U8, &[0, 1, 2, 255])[..], [0, 1, 2, 255]);
    }
}
