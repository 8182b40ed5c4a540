//! [`Affine`]: groups of small integers with a common scale, and perhaps a zero point.

use super::BlockFormat;
use crate::base::{
    axes::Axis,
    error::{Error, Result, shape_misfit},
    shape::Shape,
};

/// The integer type of an [`Affine`] format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AffineBits {
    /// Signed 8 bits, −128 to 127.
    I8,
    /// Unsigned 8 bits, 0 to 255.
    U8,
    /// Signed 4 bits, −8 to 7; two to a byte, the first in the low bits.
    I4,
    /// Unsigned 4 bits, 0 to 15.
    U4,
}

impl AffineBits {
    /// All of them.
    pub const ALL: [AffineBits; 4] = [AffineBits::I8, AffineBits::U8, AffineBits::I4, AffineBits::U4];

    /// The least and the greatest integer.
    #[must_use]
    pub fn range(self) -> (i32, i32) {
        match self {
            AffineBits::I8 => (-128, 127),
            AffineBits::U8 => (0, 255),
            AffineBits::I4 => (-8, 7),
            AffineBits::U4 => (0, 15),
        }
    }

    /// Integers in a byte.
    pub(crate) fn per_byte(self) -> usize {
        match self {
            AffineBits::I8 | AffineBits::U8 => 1,
            AffineBits::I4 | AffineBits::U4 => 2,
        }
    }

    /// The integer at position `i` of packed ones.
    fn at(self, bytes: &[u8], i: usize) -> i32 {
        match self {
            AffineBits::I8 => i32::from(bytes[i] as i8),
            AffineBits::U8 => i32::from(bytes[i]),
            AffineBits::I4 => i32::from(((bytes[i / 2] >> (i % 2 * 4)) << 4) as i8 >> 4),
            AffineBits::U4 => i32::from(bytes[i / 2] >> (i % 2 * 4) & 15),
        }
    }
}

/// Small integers q with a scale s and perhaps a zero point z for each group: `(q − z) s`, in f32. A
/// group is the whole tensor, one position of an axis, or a run of neighbours along an axis: the forms
/// of ONNX's `DequantizeLinear`, its blocked form included.
/// [`Tensor::affine`](crate::Tensor::affine) makes such a tensor.
///
/// The bytes are: eight u32 words; the integers, padded to a multiple of four bytes; the scales as f32;
/// and, if there are any, the zero points as f32. The words are I, A, G, three strides O, P and Q, the
/// byte offset of the scales, and the byte offset of the zero points or 0. Element i has scale number ⌊i
/// / (I A)⌋ O + ⌊(⌊i / I⌋ mod A) / G⌋ P + (i mod I) Q.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Affine {
    bits: AffineBits,
    /// The number of elements, which cannot be derived from the bytes.
    numel: usize,
    /// The number of bytes.
    bytes: usize,
}

/// Bytes of the eight header words.
pub(crate) const HEADER: usize = 32;

/// The elements that share a scale, as the words of the header describe them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) inner: usize,
    pub(crate) axis: usize,
    pub(crate) group: usize,
    pub(crate) distances: [usize; 3],
}

impl Groups {
    /// The index of the scale of element `i`.
    fn of(&self, i: usize) -> usize {
        let Groups { inner, axis, group, distances: [outer, along, within] } = *self;
        i / (inner * axis) * outer + i / inner % axis / group * along + i % inner * within
    }
}

impl Affine {
    /// The format of a stored tensor of this shape that takes `bytes` bytes.
    pub(crate) fn stored(bits: AffineBits, shape: &Shape, bytes: usize) -> Affine {
        Affine { bits, numel: shape.numel(), bytes }
    }

    /// The integer type.
    #[must_use]
    pub fn bits(&self) -> AffineBits {
        self.bits
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

fn number(bytes: &[u8], at: usize) -> f32 {
    f32::from_bits(word(bytes, at) as u32)
}

impl BlockFormat for Affine {
    fn name(&self) -> &'static str {
        match self.bits {
            AffineBits::I8 => "affine_i8",
            AffineBits::U8 => "affine_u8",
            AffineBits::I4 => "affine_i4",
            AffineBits::U4 => "affine_u4",
        }
    }

    fn key(&self) -> Vec<u64> {
        vec![self.bits as u64, self.numel as u64, self.bytes as u64]
    }

    fn bytes(&self, shape: &Shape) -> Result<usize> {
        if shape.numel() == self.numel {
            return Ok(self.bytes);
        }
        let message =
            format!("these groups are those of {} elements, and shape {shape} has others", self.numel);
        Err(Error::invalid("from_blocks", message))
    }

    fn check(&self, shape: &Shape, bytes: &[u8]) -> Result<()> {
        let wrong = |what: &str| {
            let message = format!("{} bytes of {} for shape {shape}: {what}", bytes.len(), self.name());
            Err(Error::invalid("from_blocks", message))
        };
        if bytes.len() < HEADER {
            return wrong("they end within the eight words");
        }
        let words = [0, 1, 2, 3, 4, 5, 6, 7].map(|k| word(bytes, 4 * k) as u128);
        let [inner, axis, group, outer, along, within, scales, zeros] = words;
        let numel = self.numel as u128;
        if inner == 0 || axis == 0 || group == 0 || scales % 2 + zeros % 2 > 0 {
            return wrong("their words describe no groups");
        }
        let integers = HEADER as u128 + numel.div_ceil(self.bits.per_byte() as u128);
        let last = numel.saturating_sub(1) / (inner * axis) * outer
            + (axis - 1) / group * along
            + (inner - 1) * within;
        let fits = |at: u128| at >= integers && at + 4 * (last + 1) <= bytes.len() as u128;
        if numel > 0 && !(fits(scales) && (zeros == 0 || fits(zeros))) {
            return wrong("integers, scales or zero points reach past their end");
        }
        Ok(())
    }

    fn elements(&self, bytes: usize) -> usize {
        if bytes >= self.bytes { self.numel } else { 0 }
    }

    fn bits_per_element(&self) -> f64 {
        8.0 * self.bytes as f64 / self.numel.max(1) as f64
    }

    fn decode(&self, bytes: &[u8], start: usize, out: &mut [f32]) {
        let [inner, axis, group, outer, along, within, scales, zeros] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|k| word(bytes, 4 * k));
        let groups = Groups { inner, axis, group, distances: [outer, along, within] };
        for (i, x) in (start..).zip(out) {
            let of = 4 * groups.of(i);
            let zero = if zeros == 0 { 0.0 } else { number(bytes, zeros + of) };
            *x = (self.bits.at(&bytes[HEADER..], i) as f32 - zero) * number(bytes, scales + of);
        }
    }
}

/// The groups that a scale of this shape makes of a tensor's elements.
pub(crate) fn groups(shape: &Shape, scale: &Shape, axis: Axis) -> Result<Groups> {
    const OP: &str = "affine";
    let whole = Groups { inner: 1, axis: 1, group: 1, distances: [0; 3] };
    if scale.numel() == 1 {
        return Ok(whole);
    }
    let axis = shape.axis(axis, OP)?;
    let size = shape[axis];
    let inner: usize = shape[axis + 1..].iter().product();
    let hint = "a scale has one element, one for each position of the axis, or the sizes of the values but along \
                the axis, where each serves the same number of neighbours";
    if scale.rank() == 1 && scale[0] == size {
        return Ok(Groups { inner: inner.max(1), axis: size, group: 1, distances: [0, 1, 0] });
    }
    let off_axis = (0..shape.rank()).all(|a| a == axis || scale.get(a) == Some(&shape[a]));
    if scale.rank() != shape.rank() || !off_axis || scale[axis] == 0 {
        return Err(shape_misfit(OP, shape, scale, hint));
    }
    let (parts, group) = (scale[axis], size.div_ceil(scale[axis]));
    if size.div_ceil(group.max(1)) != parts {
        return Err(shape_misfit(OP, shape, scale, hint));
    }
    Ok(Groups { inner: inner.max(1), axis: size, group, distances: [parts * inner, inner, 1] })
}
