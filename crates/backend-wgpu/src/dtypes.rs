//! How each dtype lies in device memory and is computed there, and the way there and back from host bytes.
//!
//! A *lane* is one element of a storage buffer: f32 for the three float types up to 32 bits (half types hold values
//! rounded to them), u32 for bool, u8 and u32, i32, and 8 bytes for i64 and f64.

use half::{bf16, f16};
use tensor_core::{DType, Scalar};

/// The WGSL type of a lane.
pub(crate) fn lane(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 | DType::U32 => "u32",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::F16 | DType::BF16 | DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// The WGSL type of a value in a computation: as the lane, but for bool.
pub(crate) fn value(dtype: DType) -> &'static str {
    if dtype == DType::Bool { "bool" } else { lane(dtype) }
}

/// Bytes of a lane.
pub(crate) const fn lane_size(dtype: DType) -> usize {
    match dtype {
        DType::I64 | DType::F64 => 8,
        _ => 4,
    }
}

/// The elements of a vector of four.
pub(crate) const FIELDS: [&str; 4] = ["x", "y", "z", "w"];

/// From so many elements on, a thread of a processor takes eight: below, the time to compile twice the text counts more.
pub(crate) const MANY: usize = 1 << 14;

/// Eight lanes of 32 bits as four pairs, a `vec4<u64>`, which a processor writes for little more than one lane.
pub(crate) fn pairs(lanes: [String; 8]) -> String {
    let pair = |p: usize| {
        format!("u64_from_words(bitcast<u32>({}), bitcast<u32>({}))", lanes[2 * p], lanes[2 * p + 1])
    };
    format!("vec4<u64>({})", [0, 1, 2, 3].map(pair).join(", "))
}

/// The `e`th of the eight lanes in four `pairs`, as a `value` of 32 bits.
pub(crate) fn of_pairs(pairs: &str, e: usize, value: &str) -> String {
    format!("bitcast<{value}>(u32({pairs}.{}{}))", FIELDS[e / 2], ["", " >> 32u"][e % 2])
}

/// Whether lanes hold the host's bytes as they are.
pub(crate) fn is_plain(dtype: DType) -> bool {
    lane_size(dtype) == dtype.size()
}

/// Lanes from elements in host byte order; a rest shorter than an element is dropped.
pub(crate) fn to_lanes(dtype: DType, bytes: &[u8]) -> Vec<u8> {
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

/// Elements in host byte order from lanes, as many as both hold.
pub(crate) fn from_lanes(dtype: DType, lanes: &[u8], out: &mut [u8]) {
    fn narrow<const N: usize>(lanes: &[u8], out: &mut [u8], f: impl Fn([u8; 4]) -> [u8; N]) {
        for (o, &l) in out.as_chunks_mut().0.iter_mut().zip(lanes.as_chunks().0) {
            *o = f(l);
        }
    }
    match dtype {
        DType::Bool => narrow(lanes, out, |l| [u8::from(u32::from_ne_bytes(l) != 0)]),
        DType::U8 => narrow(lanes, out, |l| [u32::from_ne_bytes(l) as u8]),
        DType::F16 => narrow(lanes, out, |l| f16::from_f32(f32::from_ne_bytes(l)).to_ne_bytes()),
        DType::BF16 => narrow(lanes, out, |l| bf16::from_f32(f32::from_ne_bytes(l)).to_ne_bytes()),
        _ => {
            let n = out.len().min(lanes.len());
            out[..n].copy_from_slice(&lanes[..n]);
        }
    }
}

/// The words of a scalar as a parameter: one, or two (low first) for the 8-byte types.
pub(crate) fn scalar_words(scalar: Scalar, dtype: DType) -> [u32; 2] {
    let wide = |bits: u64| [bits as u32, (bits >> 32) as u32];
    match dtype {
        DType::Bool => [u32::from(scalar.as_bool()), 0],
        DType::U8 | DType::U32 | DType::I32 => [scalar.as_i64() as u32, 0],
        DType::I64 => wide(scalar.as_i64() as u64),
        DType::F16 | DType::BF16 | DType::F32 => [(scalar.as_f64() as f32).to_bits(), 0],
        DType::F64 => wide(scalar.as_f64().to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_go_there_and_back() {
        for (dtype, bytes) in [
            (DType::Bool, vec![0, 1, 1]),
            (DType::U8, vec![0, 7, 255]),
            (DType::F16, vec![0x00, 0x3c, 0xff, 0x7b, 0x01, 0x00]),
            (DType::BF16, vec![0x80, 0x3f, 0x7f, 0x7f]),
            (DType::F32, 1.5f32.to_ne_bytes().to_vec()),
        ] {
            let lanes = to_lanes(dtype, &bytes);
            assert_eq!(lanes.len() / lane_size(dtype), bytes.len() / dtype.size());
            let mut back = vec![0; bytes.len()];
            from_lanes(dtype, &lanes, &mut back);
            assert_eq!(back, bytes, "{dtype}");
        }
    }
}
