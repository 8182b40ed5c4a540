//! How elements lie on the device. A lane holds one element: `f32` for all floats (halves are rounded at each store), `i32`, `u32`
//! for unsigned integers and truth values, `i64` where the adapter has it.

use half::{bf16, f16};
use tensor_core::{DType, Error, Result, Scalar};

/// The WGSL type that holds an element.
pub(crate) fn lane(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => "f32",
        DType::I32 => "i32",
        DType::Bool | DType::U8 | DType::U32 => "u32",
        DType::I64 => "i64",
        DType::F64 => "f64",
    }
}

/// Bytes of a lane.
pub(crate) fn lane_size(dtype: DType) -> usize {
    if matches!(dtype, DType::I64 | DType::F64) { 8 } else { 4 }
}

/// Host elements as lanes.
pub(crate) fn to_lanes(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    fn pack<T: bytemuck::NoUninit>(lanes: Vec<T>) -> Vec<u8> {
        bytemuck::cast_slice(&lanes).to_vec()
    }
    let halves = || bytes.chunks_exact(2).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    match dtype {
        DType::F16 => pack(halves().map(|b| f16::from_bits(b).to_f32()).collect()),
        DType::BF16 => pack(halves().map(|b| bf16::from_bits(b).to_f32()).collect()),
        DType::Bool => pack(bytes.iter().map(|&b| u32::from(b != 0)).collect()),
        DType::U8 => pack(bytes.iter().map(|&b| u32::from(b)).collect()),
        _ => bytes.to_vec(),
    }
}

/// Lanes as host elements; `out` is of the elements' size.
pub(crate) fn from_lanes(dtype: DType, lanes: &[u8], out: &mut [u8]) {
    let words = || lanes.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]);
    match dtype {
        DType::F16 => {
            for (to, w) in out.chunks_exact_mut(2).zip(words()) {
                to.copy_from_slice(&f16::from_f32(f32::from_ne_bytes(w)).to_ne_bytes());
            }
        }
        DType::BF16 => {
            for (to, w) in out.chunks_exact_mut(2).zip(words()) {
                to.copy_from_slice(&bf16::from_f32(f32::from_ne_bytes(w)).to_ne_bytes());
            }
        }
        DType::Bool => {
            out.iter_mut().zip(words()).for_each(|(to, w)| *to = u8::from(u32::from_ne_bytes(w) != 0))
        }
        DType::U8 => out.iter_mut().zip(words()).for_each(|(to, w)| *to = u32::from_ne_bytes(w) as u8),
        _ => out.copy_from_slice(&lanes[..out.len()]),
    }
}

/// A scalar as 32-bit words of its lane, the low word first.
pub(crate) fn scalar_words(dtype: DType, value: Scalar, words: &mut Vec<u32>) {
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => words.push((value.as_f64() as f32).to_bits()),
        DType::Bool => words.push(u32::from(value.as_bool())),
        DType::I64 => {
            let bits = value.as_i64() as u64;
            words.extend([bits as u32, (bits >> 32) as u32]);
        }
        DType::F64 => {
            let bits = value.as_f64().to_bits();
            words.extend([bits as u32, (bits >> 32) as u32]);
        }
        _ => words.push(value.as_i64() as u32),
    }
}

/// The error for an operation or dtype without a kernel here.
pub(crate) fn unsupported(op: &'static str, device: &str, dtype: DType) -> Error {
    let hint = if dtype.is_float() { "F32" } else { "I32" };
    Error::Unsupported {
        op,
        device: device.into(),
        dtype,
        hint: format!("cast with .to_dtype(DType::{hint})?, or compute on the cpu"),
    }
}

/// A position or stride as the shaders hold it.
pub(crate) fn word(op: &'static str, value: isize) -> Result<u32> {
    i32::try_from(value).map(|v| v as u32).map_err(|_| {
        Error::invalid(op, format!("a stride or size of {value} passes 32 bits; split the tensor"))
    })
}
