//! The block formats of GGUF files, as `ggml-quants.c` of llama.cpp defines them.

use half::f16;

use super::BlockFormat;
use crate::base::{
    error::{Error, Result},
    shape::Shape,
};

/// Elements in a block of the simple formats, and in a super-block of those that end in `_K`.
pub(super) const SIMPLE: usize = 32;
pub(super) const SUPER: usize = 256;

/// Declares the types from their one table. A row has the name in ggml, the number in `ggml_type`, the
/// elements and bytes of a block, and for a type that is decoded here the function, whose name is the
/// format's.
macro_rules! block_types {
    (
        decoded { $($(#[$doc:meta])* $format:ident $number:literal: $elements:ident, $bytes:literal, $decode:ident;)* }
        stored { $($kind:ident $name:literal $code:literal: $many:ident, $size:literal;)* }
    ) => {
        /// A GGUF type with elements in blocks: a fixed number of elements in a fixed number of bytes, with
        /// their scales.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, non_camel_case_types)] // They are ggml's names.
        #[non_exhaustive]
        pub enum BlockType { $($format,)* $($kind,)* }

        impl BlockType {
            /// All types.
            pub const ALL: &[BlockType] = &[$(BlockType::$format,)* $(BlockType::$kind,)*];

            const fn row(self) -> Row {
                match self {
                    $(BlockType::$format => Row {
                        name: stringify!($format),
                        number: $number,
                        elements: $elements,
                        bytes: $bytes,
                        decoded: Some(GgmlType::$format),
                    },)*
                    $(BlockType::$kind => Row {
                        name: $name,
                        number: $code,
                        elements: $many,
                        bytes: $size,
                        decoded: None,
                    },)*
                }
            }
        }

        /// A block format of GGUF files that is decoded. Blocks run along the last axis, whose size is a
        /// multiple of the block size.
        ///
        /// In the formulas `d` and `m` are f16 numbers of a block of 32, and q is an element's small integer.
        /// The formats whose names end in `_K` have 256 elements in a block, in groups of 16 or 32 with
        /// scales of 4, 6 or 8 bits, which are themselves in units of the block's `d` and `m`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types)] // ggml's names
        pub enum GgmlType { $($(#[$doc])* $format,)* }

        impl GgmlType {
            /// All of them.
            pub const ALL: [GgmlType; [$(GgmlType::$format),*].len()] = [$(GgmlType::$format),*];

            /// The type in files.
            #[must_use]
            pub const fn block_type(self) -> BlockType {
                match self { $(GgmlType::$format => BlockType::$format,)* }
            }

            /// The name in messages, and the function that decodes a block.
            fn decoder(self) -> (&'static str, fn(&[u8], &mut [f32])) {
                match self { $(GgmlType::$format => (stringify!($decode), $decode),)* }
            }
        }
    };
}

// `ggml_type` and the blocks of ggml-common.h.
block_types! {
    decoded {
        /// `d (q − 8)`, q of 4 bits: 4.5 bits an element.
        Q4_0 2: SIMPLE, 18, q4_0;
        /// `d q + m`, q of 4 bits: 5 bits an element.
        Q4_1 3: SIMPLE, 20, q4_1;
        /// `d (q − 16)`, q of 5 bits: 5.5 bits an element.
        Q5_0 6: SIMPLE, 22, q5_0;
        /// `d q + m`, q of 5 bits: 6 bits an element.
        Q5_1 7: SIMPLE, 24, q5_1;
        /// `d q`, q of 8 bits with a sign: 8.5 bits an element.
        Q8_0 8: SIMPLE, 34, q8_0;
        /// `d s q − m t`, q of 2 bits, s and t of 4 bits for 16 elements: 2.625 bits an element.
        Q2_K 10: SUPER, 84, q2_k;
        /// `d (s − 32) (q − 4)`, q of 3 bits, s of 6 bits for 16 elements: 3.4375 bits an element.
        Q3_K 11: SUPER, 110, q3_k;
        /// `d s q − m t`, q of 4 bits, s and t of 6 bits for 32 elements: 4.5 bits an element.
        Q4_K 12: SUPER, 144, q4_k;
        /// `d s q − m t`, q of 5 bits, s and t of 6 bits for 32 elements: 5.5 bits an element.
        Q5_K 13: SUPER, 176, q5_k;
        /// `d s (q − 32)`, q of 6 bits, s of 8 bits with a sign for 16 elements: 6.5625 bits an element.
        Q6_K 14: SUPER, 210, q6_k;
        /// `d t[q]`, q of 4 bits, t a table whose numbers are closer to each other around 0: 4.5 bits an
        /// element.
        IQ4_NL 20: SIMPLE, 18, iq4_nl;
        /// `d (s − 32) t[q]`, q of 4 bits, t the table of `IQ4_NL`, s of 6 bits for 32 elements: 4.25 bits
        /// an element.
        IQ4_XS 23: SUPER, 136, iq4_xs;
        /// `d (q − 1)`, q of 2 bits, for weights that are −d, 0 or d: 2.0625 bits an element.
        TQ2_0 35: SUPER, 66, tq2_0;
        /// `d t[q]`, q of 4 bits, d a power of two, t the numbers of e2m1: MXFP4 of the Open Compute
        /// Project, 4.25 bits an element.
        MXFP4 39: SIMPLE, 17, mxfp4;
    }
    stored {
        Q8_1 "Q8_1" 9: SIMPLE, 36;
        Q8_K "Q8_K" 15: SUPER, 292;
        Iq2Xxs "IQ2_XXS" 16: SUPER, 66;
        Iq2Xs "IQ2_XS" 17: SUPER, 74;
        Iq3Xxs "IQ3_XXS" 18: SUPER, 98;
        Iq1S "IQ1_S" 19: SUPER, 50;
        Iq3S "IQ3_S" 21: SUPER, 110;
        Iq2S "IQ2_S" 22: SUPER, 82;
        Iq1M "IQ1_M" 29: SUPER, 56;
        Tq1_0 "TQ1_0" 34: SUPER, 54;
    }
}

/// A row of the table of types.
struct Row {
    name: &'static str,
    number: u32,
    elements: usize,
    bytes: usize,
    decoded: Option<GgmlType>,
}

impl BlockType {
    /// The name in ggml.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The number in ggml's `ggml_type`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.row().number
    }

    /// The number of elements in a block.
    #[must_use]
    pub const fn block_elements(self) -> usize {
        self.row().elements
    }

    /// The number of bytes in a block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        self.row().bytes
    }

    /// The format of tensors in these blocks; `None` for a type that is not decoded here.
    #[must_use]
    pub const fn decoded(self) -> Option<GgmlType> {
        self.row().decoded
    }
}

impl GgmlType {
    /// The format's number in GGUF files.
    #[must_use]
    pub fn code(self) -> u32 {
        self.block_type().number()
    }

    /// The format with this number in GGUF files, if it is one of these.
    #[must_use]
    pub fn from_code(code: u32) -> Option<GgmlType> {
        GgmlType::ALL.into_iter().find(|format| format.code() == code)
    }

    /// The number of elements in a block.
    #[must_use]
    pub fn block_elements(self) -> usize {
        self.block_type().block_elements()
    }

    /// The number of bytes of a block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        self.block_type().block_bytes()
    }
}

impl BlockFormat for GgmlType {
    fn name(&self) -> &'static str {
        self.decoder().0
    }

    fn key(&self) -> Vec<u64> {
        vec![u64::from(self.code())]
    }

    fn bytes(&self, shape: &Shape) -> Result<usize> {
        let (name, elements, bytes) = (self.name(), self.block_elements(), self.block_bytes());
        let last = shape.last().copied().unwrap_or(1);
        if !last.is_multiple_of(elements) {
            let message = format!(
                "the last axis of shape {shape} has {last} elements, no multiple of the {elements} in a block of \
                 {name}; take another format, or keep this tensor as it is"
            );
            return Err(Error::invalid("from_blocks", message));
        }
        Ok(shape.numel() / elements * bytes)
    }

    fn elements(&self, bytes: usize) -> usize {
        bytes / self.block_bytes() * self.block_elements()
    }

    fn bits_per_element(&self) -> f64 {
        8.0 * self.block_bytes() as f64 / self.block_elements() as f64
    }

    fn decode(&self, bytes: &[u8], start: usize, out: &mut [f32]) {
        let (elements, size, (_, decode)) = (self.block_elements(), self.block_bytes(), self.decoder());
        let block = |i: usize| &bytes[i * size..][..size];
        let mut at = start;
        let mut rest = out;
        let mut whole = [0f32; SUPER];
        while !rest.is_empty() {
            let (i, from) = (at / elements, at % elements);
            let n = (elements - from).min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            if n == elements {
                decode(block(i), now);
            } else {
                decode(block(i), &mut whole[..elements]);
                now.copy_from_slice(&whole[from..from + n]);
            }
            (at, rest) = (at + n, later);
        }
    }
}

/// The f16 at byte `at`.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The low and high four bits of a byte.
fn low(byte: u8) -> f32 {
    f32::from(byte & 15)
}

fn high(byte: u8) -> f32 {
    f32::from(byte >> 4)
}

/// Decodes four-bit integers: the first 16 elements are in the low halves of 16 bytes, the others in the
/// high halves.
fn nibbles(bytes: &[u8], out: &mut [f32], number: impl Fn(f32) -> f32) {
    let (first, second) = out.split_at_mut(SIMPLE / 2);
    for ((a, b), &byte) in first.iter_mut().zip(second).zip(bytes) {
        (*a, *b) = (number(low(byte)), number(high(byte)));
    }
}

fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    nibbles(&block[2..], out, |q| d * (q - 8.0));
}

fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    nibbles(&block[4..], out, |q| d * q + m);
}

/// [`nibbles`] with a fifth bit for each element in the four bytes before.
fn five_bits(bytes: &[u8], out: &mut [f32], number: impl Fn(f32) -> f32) {
    let (fifth, bytes) = bytes.split_at(4);
    let fifth = u32::from_le_bytes([fifth[0], fifth[1], fifth[2], fifth[3]]);
    nibbles(bytes, out, |q| q);
    for (e, x) in out.iter_mut().enumerate() {
        *x = number(*x + 16.0 * (fifth >> e & 1) as f32);
    }
}

fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    five_bits(&block[2..], out, |q| d * (q - 16.0));
}

fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    five_bits(&block[4..], out, |q| d * q + m);
}

fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (x, &q) in out.iter_mut().zip(&block[2..]) {
        *x = d * f32::from(q as i8);
    }
}

/// The groups of 32 elements of a super-block, with their indices.
fn groups(out: &mut [f32]) -> impl Iterator<Item = (usize, &mut [f32])> {
    out.chunks_exact_mut(32).enumerate()
}

fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, qs) = (&block[..16], &block[16..80]);
    let (d, m) = (half_at(block, 80), half_at(block, 82));
    for (g, group) in groups(out) {
        let bytes = &qs[g / 4 * 32..][..32];
        for (l, (x, byte)) in group.iter_mut().zip(bytes).enumerate() {
            let scale = scales[2 * g + l / 16];
            *x = d * low(scale) * f32::from(byte >> (2 * (g % 4)) & 3) - m * high(scale);
        }
    }
}

fn q3_k(block: &[u8], out: &mut [f32]) {
    let (third, qs, scales, d) = (&block[..32], &block[32..96], &block[96..108], half_at(block, 108));
    let scale = |k: usize| {
        let four = if k < 8 { scales[k] & 15 } else { scales[k - 8] >> 4 };
        let two = scales[8 + k % 4] >> (2 * (k / 4)) & 3;
        f32::from(four | two << 4) - 32.0
    };
    for (g, group) in groups(out) {
        let bytes = &qs[g / 4 * 32..][..32];
        for (l, x) in group.iter_mut().enumerate() {
            let q = bytes[l] >> (2 * (g % 4)) & 3 | (third[l] >> g & 1) << 2;
            *x = d * scale(2 * g + l / 16) * (f32::from(q) - 4.0);
        }
    }
}

/// The 6-bit scale and minimum of group `g`, from the 12 bytes that hold eight of each.
fn six_bits(bytes: &[u8], g: usize) -> (f32, f32) {
    let (scale, minimum) = if g < 4 {
        (bytes[g] & 63, bytes[g + 4] & 63)
    } else {
        (bytes[g + 4] & 15 | bytes[g - 4] >> 6 << 4, bytes[g + 4] >> 4 | bytes[g] >> 6 << 4)
    };
    (scale.into(), minimum.into())
}

fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (g, group) in groups(out) {
        let (scale, minimum) = six_bits(&block[4..16], g);
        let (scale, minimum) = (d * scale, m * minimum);
        let bytes = &block[16 + g / 2 * 32..][..32];
        for (x, byte) in group.iter_mut().zip(bytes) {
            *x = scale * f32::from(byte >> (4 * (g % 2)) & 15) - minimum;
        }
    }
}

fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let fifth = &block[16..48];
    for (g, group) in groups(out) {
        let (scale, minimum) = six_bits(&block[4..16], g);
        let (scale, minimum) = (d * scale, m * minimum);
        let bytes = &block[48 + g / 2 * 32..][..32];
        for (l, x) in group.iter_mut().enumerate() {
            let q = bytes[l] >> (4 * (g % 2)) & 15 | (fifth[l] >> g & 1) << 4;
            *x = scale * f32::from(q) - minimum;
        }
    }
}

fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low_bits, high_bits, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half_at(block, 208);
    for (g, group) in groups(out) {
        let (half, r) = (g / 4, g % 4);
        for (l, x) in group.iter_mut().enumerate() {
            let four = low_bits[64 * half + 32 * (r % 2) + l] >> (4 * (r / 2)) & 15;
            let two = high_bits[32 * half + l] >> (2 * r) & 3;
            let scale = scales[2 * g + l / 16] as i8;
            *x = d * f32::from(scale) * (f32::from(four | two << 4) - 32.0);
        }
    }
}

/// The numbers that the four bits of `IQ4_NL` and `IQ4_XS` stand for.
pub const IQ4_NUMBERS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The numbers that the four bits of `MXFP4` stand for, doubled: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and the same
/// below zero.
pub const MXFP4_NUMBERS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The number of a table at a position that four bits give.
fn entry(table: &[i8; 16], q: f32) -> f32 {
    f32::from(table[q as usize])
}

fn iq4_nl(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    nibbles(&block[2..], out, |q| d * entry(&IQ4_NUMBERS, q));
}

fn iq4_xs(block: &[u8], out: &mut [f32]) {
    let (d, high, low) = (half_at(block, 0), u16::from_le_bytes([block[2], block[3]]), &block[4..8]);
    for (g, group) in groups(out) {
        let s = low[g / 2] >> (4 * (g % 2)) & 15 | ((high >> (2 * g) & 3) as u8) << 4;
        let scale = d * (f32::from(s) - 32.0);
        nibbles(&block[8 + 16 * g..][..16], group, |q| scale * entry(&IQ4_NUMBERS, q));
    }
}

fn tq2_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 64);
    for (g, group) in groups(out) {
        for (x, byte) in group.iter_mut().zip(&block[g / 4 * 32..][..32]) {
            *x = d * (f32::from(byte >> (2 * (g % 4)) & 3) - 1.0);
        }
    }
}

/// Half of the power of two that a byte of `MXFP4` stands for: 2^(e − 128).
#[must_use]
pub fn mxfp4_scale(e: u8) -> f32 {
    let e = u32::from(e);
    // The least two are below the normal numbers.
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 })
}

fn mxfp4(block: &[u8], out: &mut [f32]) {
    let d = mxfp4_scale(block[0]);
    nibbles(&block[1..], out, |q| d * entry(&MXFP4_NUMBERS, q));
}
