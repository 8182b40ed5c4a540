//! [`Decoder`]: how an element of a tensor in blocks is decoded, for the formats of `tensor-core`.
//!
//! A format has one description for all languages: expressions that C, Rust and WGSL read alike, with the
//! functions of `write::decoders`, which prints them. `x` is where the bytes begin. Every operation is the
//! one of `BlockFormat::decode`, so that the numbers have its bits.

use std::{any::Any, sync::Arc};

use tensor_core::{Affine, AffineBits, BlockFormat, Codebook4, GgmlType};

/// The blocks of a constant.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    pub(crate) format: Arc<dyn BlockFormat>,
    pub(crate) decoder: Decoder,
}

impl Blocks {
    /// The blocks of a format with a description; none for those of other crates.
    pub(crate) fn of(format: &Arc<dyn BlockFormat>, bytes: &[u8]) -> Option<Blocks> {
        Some(Blocks { format: Arc::clone(format), decoder: Decoder::of(format.as_ref(), bytes)? })
    }

    /// The decoded elements.
    pub(crate) fn numbers(&self, bytes: &[u8]) -> Vec<f32> {
        let mut numbers = vec![0.0; self.format.elements(bytes.len())];
        self.format.decode(bytes, 0, &mut numbers);
        numbers
    }
}

/// A function that decodes an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Decoder {
    pub(crate) name: String,
    /// The elements and the bytes of a block: `x` then begins at the element's block, and `e` is the
    /// element's position in it. Else `i` is the position in the tensor.
    pub(crate) block: Option<(usize, usize)>,
    /// Definitions `name = value` with semicolons between them: the integers and the numbers that 16 elements
    /// share, and the integers of one element.
    pub(crate) shared: [String; 2],
    pub(crate) integers: String,
    pub(crate) number: String,
}

/// The elements that share the first lines of a description.
pub(crate) const RUN: usize = 16;

/// The integers that 32 elements of Q4_K and Q5_K share: scales and minima of six bits, and where the low
/// bits of elements are, which begin at byte `$low` of the block.
macro_rules! scales_of_six_bits {
    ($low:literal) => {
        concat!(
            "g = e / 32; r = g % 4; last = byte_of(x, 12 + r);
             s = pick(g / 4, (last & 15) | ((byte_of(x, 4 + r) >> 6) << 4), byte_of(x, 4 + r) & 63);
             t = pick(g / 4, (last >> 4) | ((byte_of(x, 8 + r) >> 6) << 4), byte_of(x, 8 + r) & 63);
             low = ",
            $low,
            " + g / 2 * 32; shift = g % 2 * 4"
        )
    };
}

/// The description of a format of GGUF files: the integers and the numbers of 16 elements of a block from a
/// multiple of 16 on, the integers of an element, and its number.
const fn of_ggml(format: GgmlType) -> [&'static str; 4] {
    match format {
        GgmlType::Q4_0 => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0)",
            "q = (byte_of(x, 2 + e % 16) >> shift) & 15",
            "d * (number(q) - number(8))",
        ],
        GgmlType::Q4_1 => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0); m = f16_of(x, 2)",
            "q = (byte_of(x, 4 + e % 16) >> shift) & 15",
            "d * number(q) + m",
        ],
        GgmlType::Q5_0 => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0)",
            "fifth = (byte_of(x, 2 + e / 8) >> (e % 8)) & 1;
             q = ((byte_of(x, 6 + e % 16) >> shift) & 15) | (fifth << 4)",
            "d * (number(q) - number(16))",
        ],
        GgmlType::Q5_1 => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0); m = f16_of(x, 2)",
            "fifth = (byte_of(x, 4 + e / 8) >> (e % 8)) & 1;
             q = ((byte_of(x, 8 + e % 16) >> shift) & 15) | (fifth << 4)",
            "d * number(q) + m",
        ],
        GgmlType::Q8_0 => ["", "d = f16_of(x, 0)", "q = byte_of(x, 2 + e)", "d * signed_byte(q)"],
        GgmlType::Q2_K => [
            "s = byte_of(x, e / 16); low = 16 + e / 128 * 32; shift = e / 32 % 4 * 2",
            "d = f16_of(x, 80) * number(s & 15); m = f16_of(x, 82) * number(s >> 4)",
            "q = (byte_of(x, low + e % 32) >> shift) & 3",
            "d * number(q) - m",
        ],
        GgmlType::Q3_K => [
            "k = e / 16;
             four = (byte_of(x, 96 + k % 8) >> (k / 8 * 4)) & 15;
             s = four | (((byte_of(x, 104 + k % 4) >> (k / 4 * 2)) & 3) << 4);
             low = 32 + e / 128 * 32; shift = e / 32 % 4 * 2; g = e / 32",
            "d = f16_of(x, 108) * (number(s) - number(32))",
            "two = (byte_of(x, low + e % 32) >> shift) & 3;
             q = two | (((byte_of(x, e % 32) >> g) & 1) << 2)",
            "d * (number(q) - number(4))",
        ],
        GgmlType::Q4_K => [
            scales_of_six_bits!("16"),
            "d = f16_of(x, 0) * number(s); m = f16_of(x, 2) * number(t)",
            "q = (byte_of(x, low + e % 32) >> shift) & 15",
            "d * number(q) - m",
        ],
        GgmlType::Q5_K => [
            scales_of_six_bits!("48"),
            "d = f16_of(x, 0) * number(s); m = f16_of(x, 2) * number(t)",
            "fifth = (byte_of(x, 16 + e % 32) >> g) & 1;
             q = ((byte_of(x, low + e % 32) >> shift) & 15) | (fifth << 4)",
            "d * number(q) - m",
        ],
        GgmlType::Q6_K => [
            "h = e / 128; r = e / 32 % 4; s = byte_of(x, 192 + e / 16);
             low = h * 64 + r % 2 * 32; shift = r / 2 * 4; second = 128 + h * 32; pair = r * 2",
            "d = f16_of(x, 208) * signed_byte(s)",
            "four = (byte_of(x, low + e % 32) >> shift) & 15;
             q = four | (((byte_of(x, second + e % 32) >> pair) & 3) << 4)",
            "d * (number(q) - number(32))",
        ],
        GgmlType::IQ4_NL => [
            "shift = e / 16 * 4",
            "d = f16_of(x, 0)",
            "q = (byte_of(x, 2 + e % 16) >> shift) & 15",
            "d * iq4_entry(q)",
        ],
        GgmlType::IQ4_XS => [
            "g = e / 32; four = (byte_of(x, 4 + g / 2) >> (g % 2 * 4)) & 15;
             s = four | (((byte_of(x, 2 + g / 4) >> (g % 4 * 2)) & 3) << 4);
             low = 8 + g * 16; shift = e % 32 / 16 * 4",
            "d = f16_of(x, 0) * (number(s) - number(32))",
            "q = (byte_of(x, low + e % 16) >> shift) & 15",
            "d * iq4_entry(q)",
        ],
        GgmlType::TQ2_0 => [
            "low = e / 128 * 32; shift = e / 32 % 4 * 2",
            "d = f16_of(x, 64)",
            "q = (byte_of(x, low + e % 32) >> shift) & 3",
            "d * (number(q) - number(1))",
        ],
        // The exponent of 2^(k − 128), whose least two are below the normal numbers.
        GgmlType::MXFP4 => [
            "k = byte_of(x, 0); shift = e / 16 * 4;
             power = pick(k / 2, (k - pick(k, 1, 0)) << 23, (k & 1) * 2097152 + 2097152)",
            "d = from_bits(power)",
            "q = (byte_of(x, 1 + e % 16) >> shift) & 15",
            "d * mxfp4_entry(q)",
        ],
    }
}

/// The integer q of a tensor of groups, by the element's position.
const fn of_affine(bits: AffineBits) -> (&'static str, &'static str) {
    match bits {
        AffineBits::I8 => ("q = byte_of(x, 32 + i)", "signed_byte(q)"),
        AffineBits::U8 => ("q = byte_of(x, 32 + i)", "number(q)"),
        AffineBits::I4 => {
            ("q = ((byte_of(x, 32 + i / 2) >> (i % 2 * 4)) & 15) ^ 8", "(number(q) - number(8))")
        }
        AffineBits::U4 => ("q = (byte_of(x, 32 + i / 2) >> (i % 2 * 4)) & 15", "number(q)"),
    }
}

impl Decoder {
    fn of(format: &dyn BlockFormat, bytes: &[u8]) -> Option<Decoder> {
        let any: &dyn Any = format;
        // The words at the beginning of the bytes are constants of the program.
        let words = || -> Vec<u32> {
            let head = bytes[..32].chunks_exact(4);
            head.map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
        };
        let name = |words: &[u32]| {
            let words: String = words.iter().map(|word| format!("_{word}")).collect();
            format!("decode_{}{words}", format.name())
        };
        if let Some(&format) = any.downcast_ref::<GgmlType>() {
            let [shared, numbers, integers, number] = of_ggml(format).map(str::to_string);
            let block = Some((format.block_elements(), format.block_bytes()));
            return Some(Decoder { name: name(&[]), block, shared: [shared, numbers], integers, number });
        }
        if let Some(affine) = any.downcast_ref::<Affine>() {
            let words = words();
            let [inner, axis, group, outer, along, within, scales, zeros] = words[..] else { return None };
            let (integer, q) = of_affine(affine.bits());
            let k = format!(
                "k = i / {} * {outer} + i / {inner} % {axis} / {group} * {along} + i % {inner} * {within}",
                inner * axis
            );
            let scale = format!("f32_of(x, {scales} + k * 4)");
            let number = match zeros {
                0 => format!("{q} * {scale}"),
                _ => format!("({q} - f32_of(x, {zeros} + k * 4)) * {scale}"),
            };
            let integers = format!("{integer}; {k}");
            return Some(Decoder {
                name: name(&words),
                block: None,
                shared: Default::default(),
                integers,
                number,
            });
        }
        any.is::<Codebook4>().then(|| {
            let words = words();
            let (scales, nested, codes, table) = (words[0], words[1], words[2], words[3]);
            let q = "q = (byte_of(x, 32 + i / 2) >> (4 - i % 2 * 4)) & 15";
            let (integers, scale) = match nested {
                0 => (q.to_string(), format!("f32_of(x, {scales} + i / 64 * 4)")),
                _ => (
                    format!("{q}; code = byte_of(x, {scales} + i / 64)"),
                    format!(
                        "(f32_of(x, {codes} + code * 4) * f32_of(x, {nested} + i / 16384 * 4) + f32_of(x, 16))"
                    ),
                ),
            };
            let number = format!("f32_of(x, {table} + q * 4) * {scale}");
            Decoder { name: name(&words[..4]), block: None, shared: Default::default(), integers, number }
        })
    }

    /// The name of the function for a run of elements, if the format has one.
    pub(crate) fn run_name(&self) -> Option<String> {
        self.block.map(|_| format!("{}_run", self.name))
    }
}
