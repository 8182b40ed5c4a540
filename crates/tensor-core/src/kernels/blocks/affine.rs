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

    /// The number of elements from `i` on that share a scale (false), or whose scales follow each other
    /// (true).
    fn run(&self, i: usize) -> (usize, bool) {
        let Groups { inner, axis, group, distances: [outer, along, within] } = *self;
        let position = i % axis;
        match (inner, within) {
            (2.., 0 | 1) => (inner - i % inner, within == 1),
            (2.., _) => (1, false),
            _ if group == 1 && along == 1 => (axis - position, true),
            _ if axis > 1 => ((group - position % group).min(axis - position), false),
            _ => (if outer == 0 { usize::MAX } else { 1 }, false),
        }
    }
}

impl Affine {
    /// The format of a stored tensor of this shape that takes `bytes` bytes.
    pub(crate) fn stored(bits: AffineBits, shape: &Shape, bytes: usize) -> Affine {
        Affine { bits, numel: shape.numel(), bytes }
    }

    /// The format and the bytes of a tensor of this shape, for [`Tensor::from_blocks`]: `integers` as the
    /// type packs them, with scales of a shape, and zero points of the same shape, as
    /// [`Tensor::affine`] takes them.
    ///
    /// # Errors
    /// Incompatible shapes or lengths, an axis out of range, or more elements than u32 counts.
    ///
    /// [`Tensor::affine`]: crate::Tensor::affine
    /// [`Tensor::from_blocks`]: crate::Tensor::from_blocks
    pub fn encode(
        bits: AffineBits,
        shape: &Shape,
        integers: &[u8],
        (of_scale, scale): (&Shape, &[f32]),
        zero: Option<&[f32]>,
        axis: impl Into<Axis>,
    ) -> Result<(Affine, Vec<u8>)> {
        const OP: &str = "affine";
        let Groups { inner, axis, group, distances: [outer, along, within] } =
            groups(shape, of_scale, axis.into())?;
        let fits = integers.len() == shape.numel().div_ceil(bits.per_byte())
            && scale.len() == of_scale.numel()
            && zero.is_none_or(|zero| zero.len() == scale.len());
        if !fits {
            let message = format!(
                "{} bytes of integers and {} scales for shape {shape} with scales {of_scale}",
                integers.len(),
                scale.len()
            );
            return Err(Error::invalid(OP, message));
        }
        let mut bytes = vec![0; HEADER];
        bytes.reserve(integers.len() + 8 * scale.len() + 4);
        bytes.extend_from_slice(integers);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let mut append = |numbers: &[f32]| {
            let at = bytes.len();
            bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
            at
        };
        let scales_at = append(scale);
        let zeros_at = zero.map_or(0, append);
        let words = [inner, axis, group, outer, along, within, scales_at, zeros_at];
        for (k, word) in words.into_iter().enumerate() {
            let word = u32::try_from(word).map_err(|_| {
                Error::invalid(OP, format!("shape {shape} is too large for one tensor in blocks; split it"))
            })?;
            bytes[4 * k..][..4].copy_from_slice(&word.to_le_bytes());
        }
        Ok((Affine::stored(bits, shape, bytes.len()), bytes))
    }

    /// The integer type.
    #[must_use]
    pub fn bits(&self) -> AffineBits {
        self.bits
    }

    /// The parts of the bytes of a tensor of this shape whose scales are one for all or one for each position
    /// of an axis; None for groups of an axis.
    #[must_use]
    pub fn channels<'a>(&self, shape: &Shape, bytes: &'a [u8]) -> Option<AffineChannels<'a>> {
        self.check(shape, bytes).ok()?;
        let [inner, size, group, outer, along, within, scales, zeros] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|k| word(bytes, 4 * k));
        let one = [outer, along, within] == [0; 3];
        let axis = (0..shape.rank())
            .find(|&axis| shape[axis] == size && shape[axis + 1..].iter().product::<usize>().max(1) == inner);
        if !one && (group != 1 || [outer, along, within] != [0, 1, 0] || axis.is_none()) {
            return None;
        }
        let count = if one { 1 } else { size };
        let floats = |at: usize| -> Vec<f32> {
            let all = bytes[at..][..4 * count].chunks_exact(4);
            all.map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
        };
        Some(AffineChannels {
            integers: &bytes[HEADER..][..self.numel.div_ceil(self.bits.per_byte())],
            axis: if one { None } else { axis },
            scale: floats(scales),
            zero: (zeros != 0).then(|| floats(zeros)),
        })
    }
}

/// The parts of an [`Affine`] tensor, which [`Affine::channels`] finds.
#[derive(Clone, Debug, PartialEq)]
pub struct AffineChannels<'a> {
    /// The integers, as their type packs them.
    pub integers: &'a [u8],
    /// The axis whose positions have scales; None for one scale.
    pub axis: Option<usize>,
    /// The scales.
    pub scale: Vec<f32>,
    /// The zero points, if there are any.
    pub zero: Option<Vec<f32>>,
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
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

    fn decode(&self, bytes: &[u8], start: usize, mut out: &mut [f32]) {
        let [inner, axis, group, outer, along, within, scales, zeros] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|k| word(bytes, 4 * k));
        let groups = Groups { inner, axis, group, distances: [outer, along, within] };
        let mut at = start;
        while !out.is_empty() {
            let (most, each) = groups.run(at);
            let run;
            (run, out) = out.split_at_mut(most.min(out.len()));
            let of = 4 * groups.of(at);
            let numbers = |from: usize| &bytes[from + of..][..if each { 4 * run.len() } else { 4 }];
            let scale = numbers(scales);
            let zero = if zeros == 0 { None } else { Some(numbers(zeros)) };
            match self.bits {
                AffineBits::I8 => {
                    let integers = bytes[HEADER + at..].iter().map(|&q| f32::from(q as i8));
                    write(run, integers, scale, zero);
                }
                AffineBits::U8 => {
                    write(run, bytes[HEADER + at..].iter().map(|&q| f32::from(q)), scale, zero);
                }
                AffineBits::I4 | AffineBits::U4 => {
                    let integers = (at..).map(|i| self.bits.at(&bytes[HEADER..], i) as f32);
                    write(run, integers.take(run.len()), scale, zero);
                }
            }
            at += run.len();
        }
    }
}

/// (q − zero)·scale for integers q, whose scales and zero points are one for all or one for each.
fn write(out: &mut [f32], integers: impl Iterator<Item = f32>, scale: &[u8], zero: Option<&[u8]>) {
    let float = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
    let one_scale = scale.len() == 4;
    match (zero, one_scale) {
        (None, true) => {
            let scale = float(scale);
            out.iter_mut().zip(integers).for_each(|(x, q)| *x = q * scale);
        }
        (Some(zero), true) => {
            let (scale, zero) = (float(scale), float(zero));
            out.iter_mut().zip(integers).for_each(|(x, q)| *x = (q - zero) * scale);
        }
        (None, false) => {
            let scales = scale.chunks_exact(4).map(float);
            out.iter_mut().zip(integers).zip(scales).for_each(|((x, q), scale)| *x = q * scale);
        }
        (Some(zero), false) => {
            let both = scale.chunks_exact(4).zip(zero.chunks_exact(4));
            let both = both.map(|(scale, zero)| (float(scale), float(zero)));
            out.iter_mut()
                .zip(integers)
                .zip(both)
                .for_each(|((x, q), (scale, zero))| *x = (q - zero) * scale);
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
