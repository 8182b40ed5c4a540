//! How each dtype lies in device memory and is computed there, and the way there and back from host bytes.
//!
//! An element of a storage buffer is f32 for the three float types up to 32 bits (half types hold values
//! rounded to them), u32 for bool, u8 and u32, i32, and 8 bytes for i64 and f64.

use half::{bf16, f16};
use tensor_core::{DType, Scalar};

/// The WGSL type of an element of a storage buffer.
pub(crate) fn storage_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 | DType::U16 | DType::U32 => "u32",
        DType::I8 | DType::I16 | DType::I32 => "i32",
        DType::U64 => "u64",
        DType::I64 => "i64",
        DType::F8E4M3FN
        | DType::F8E5M2
        | DType::F8E4M3FNUZ
        | DType::F8E5M2FNUZ
        | DType::F16
        | DType::BF16
        | DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// The WGSL type of a value in a computation: as in a storage buffer, but for bool.
pub(crate) fn value(dtype: DType) -> &'static str {
    if dtype == DType::Bool { "bool" } else { storage_type(dtype) }
}

/// Bytes of an element of a storage buffer.
pub(crate) const fn storage_size(dtype: DType) -> usize {
    match dtype {
        DType::I64 | DType::F64 => 8,
        _ => 4,
    }
}

/// The elements of a vector of four.
pub(crate) const FIELDS: [&str; 4] = ["x", "y", "z", "w"];

/// Whether storage buffers hold the host's bytes as they are.
pub(crate) fn is_plain(dtype: DType) -> bool {
    storage_size(dtype) == dtype.size()
}

/// A storage buffer's bytes from elements in host byte order; a rest shorter than an element is dropped.
pub(crate) fn to_storage(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    fn widen<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> [u8; 4]) -> Vec<u8> {
        bytes.as_chunks().0.iter().flat_map(|&c| f(c)).collect()
    }
    match dtype {
        DType::Bool => widen(bytes, |[b]| u32::from(b != 0).to_ne_bytes()),
        DType::U8 => widen(bytes, |[b]| u32::from(b).to_ne_bytes()),
        DType::F16 => widen(bytes, |b| f16::from_ne_bytes(b).to_f32().to_ne_bytes()),
        DType::BF16 => widen(bytes, |b| bf16::from_ne_bytes(b).to_f32().to_ne_bytes()),
        _ => bytes.to_vec(),
    }
}

/// Elements in host byte order from a storage buffer's bytes, as many as both hold.
pub(crate) fn from_storage(dtype: DType, stored: &[u8], out: &mut [u8]) {
    fn narrow<const N: usize>(stored: &[u8], out: &mut [u8], f: impl Fn([u8; 4]) -> [u8; N]) {
        for (o, &l) in out.as_chunks_mut().0.iter_mut().zip(stored.as_chunks().0) {
            *o = f(l);
        }
    }
    match dtype {
        DType::Bool => narrow(stored, out, |l| [u8::from(u32::from_ne_bytes(l) != 0)]),
        DType::U8 => narrow(stored, out, |l| [u32::from_ne_bytes(l) as u8]),
        DType::F16 => narrow(stored, out, |l| f16::from_f32(f32::from_ne_bytes(l)).to_ne_bytes()),
        DType::BF16 => narrow(stored, out, |l| bf16::from_f32(f32::from_ne_bytes(l)).to_ne_bytes()),
        _ => {
            let n = out.len().min(stored.len());
            out[..n].copy_from_slice(&stored[..n]);
        }
    }
}

/// The words of a scalar as a parameter: one, or two (low first) for the 8-byte types.
pub(crate) fn scalar_words(scalar: Scalar, dtype: DType) -> [u32; 2] {
    let wide = |bits: u64| [bits as u32, (bits >> 32) as u32];
    match dtype {
        DType::Bool => [u32::from(scalar.as_bool()), 0],
        DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 => {
            [scalar.as_i64() as u32, 0]
        }
        DType::U64 | DType::I64 => wide(scalar.as_i64() as u64),
        DType::F8E4M3FN
        | DType::F8E5M2
        | DType::F8E4M3FNUZ
        | DType::F8E5M2FNUZ
        | DType::F16
        | DType::BF16
        | DType::F32 => [(scalar.as_f64() as f32).to_bits(), 0],
        DType::F64 => wide(scalar.as_f64().to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_there_and_back() {
        for (dtype, bytes) in [
            (DType::Bool, vec![0, 1, 1]),
            (DType::U8, vec![0, 7, 255]),
            (DType::F16, vec![0x00, 0x3c, 0xff, 0x7b, 0x01, 0x00]),
            (DType::BF16, vec![0x80, 0x3f, 0x7f, 0x7f]),
            (DType::F32, 1.5f32.to_ne_bytes().to_vec()),
        ] {
            let stored = to_storage(dtype, &bytes);
            assert_eq!(stored.len() / storage_size(dtype), bytes.len() / dtype.size());
            let mut back = vec![0; bytes.len()];
            from_storage(dtype, &stored, &mut back);
            assert_eq!(back, bytes, "{dtype}");
        }
    }
}
