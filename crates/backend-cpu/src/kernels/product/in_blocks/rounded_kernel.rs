//! As [`super::block_kernel`], with vectors that are rounded to 8 bits, 32 neighbours with one scale: their
//! products with the matrix's integers are those of bytes, of which an instruction makes 32.
#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range};

use tensor_core::GgmlType;

use super::block_kernel::{BlockRows, PREFETCH_BYTES, side_by_side};
use crate::simd::{
    block_formats::{Format, GROUP, HALF, by_format},
    bytes::{ByteForm, Bytes, by_bytes},
    cache::{LINE, prefetch},
    isa::{Isa, Job},
};

/// Vectors of one length whose groups of 32 are integers of -127 to 127 times a scale.
pub(crate) struct Rounded {
    /// The elements of each vector.
    integers: Vec<i8>,
    /// The scales of each group, those of all vectors [`side_by_side`].
    scales: Vec<f32>,
    /// The sums of the rounded elements of each half in the same way.
    sums: Vec<f32>,
    vectors: usize,
}

impl Rounded {
    /// Rounds vectors of whole groups: each scale is the greatest magnitude of its group over 127. An
    /// infinity or NaN makes its group's products NaN.
    pub(crate) fn new(isa: Isa, x: &[&[f32]]) -> Rounded {
        let terms = x.first().map_or(0, |x| x.len());
        let numbers = |of_group: usize| vec![0.0; terms / GROUP * of_group * side_by_side(x.len())];
        let mut rounded = Rounded {
            integers: vec![0; terms * x.len()],
            scales: numbers(1),
            sums: numbers(GROUP / HALF),
            vectors: x.len(),
        };
        x.iter().enumerate().for_each(|(vector, x)| isa.run(Rounding { x, vector, to: &mut rounded }));
        rounded
    }

    /// The terms of each vector.
    fn terms(&self) -> usize {
        self.integers.len() / self.vectors.max(1)
    }
}

struct Rounding<'a> {
    x: &'a [f32],
    vector: usize,
    to: &'a mut Rounded,
}

impl Job for Rounding<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Rounding { x, vector, to: Rounded { integers, scales, sums, vectors } } = self;
        let (integers, stride) = (&mut integers[vector * x.len()..][..x.len()], side_by_side(*vectors));
        for (group, (x, to)) in x.chunks_exact(GROUP).zip(integers.chunks_exact_mut(GROUP)).enumerate() {
            // The greatest magnitude by its bits, in which infinity and NaN are above all numbers.
            let greatest = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() << 1 >> 1));
            let greatest = f32::from_bits(greatest);
            let scale = if greatest.is_finite() { greatest / 127.0 } else { f32::NAN };
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            // The greatest of all subnormal groups has no finite inverse: such a group counts as zeros.
            let inverse = if inverse.is_finite() { inverse } else { 0.0 };
            scales[group * stride + vector] = scale;
            for (half, (x, to)) in x.chunks_exact(HALF).zip(to.chunks_exact_mut(HALF)).enumerate() {
                let mut sum = 0;
                for (x, to) in x.iter().zip(to) {
                    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even.
                    let rounded = (x * inverse + ROUNDING) - ROUNDING;
                    *to = rounded as i32 as i8;
                    sum += i32::from(*to);
                }
                sums[(group * (GROUP / HALF) + half) * stride + vector] = sum as f32 * scale;
            }
        }
    }
}

/// 1.5 * 2^23: the numbers beside it are one apart.
const ROUNDING: f32 = 12_582_912.0;

/// Sums of the products of rounded vectors with rows of a matrix in blocks. A sum has the same bits beside
/// any number of other vectors.
#[derive(Clone, Copy)]
pub(crate) struct RoundedDots<'a> {
    pub(crate) x: &'a Rounded,
    pub(crate) rows: BlockRows,
}

struct InBytes<'a, F, B> {
    dots: RoundedDots<'a>,
    rows: Range<usize>,
    of: PhantomData<(F, B)>,
}

/// Rows, or vectors, whose sums are formed side by side.
const SIDE: usize = 4;

impl<F: Format, B: Bytes> InBytes<'_, F, B> {
    /// The results of rows `row..row + ROWS` with `VECTORS` vectors, or as many as there are.
    ///
    /// # Safety
    /// As [`RoundedDots::run`] asks; rows `row..row + ROWS` are among its rows.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    unsafe fn some<const VECTORS: usize, const ROWS: usize>(&self, vector: usize, row: usize) {
        let BlockRows { first, row_bytes, to, to_row, to_vector } = self.dots.rows;
        let (terms, count) = (self.dots.x.terms(), self.dots.x.vectors);
        let stride = side_by_side(count);
        let scales = self.dots.x.scales.as_ptr().wrapping_add(vector);
        let halves = self.dots.x.sums.as_ptr().wrapping_add(vector);
        // Loops and no functions of arrays, whose parts are compiled by themselves for each format.
        let mut x = [self.dots.x.integers.as_ptr(); VECTORS];
        for v in 0..VECTORS {
            // Vectors beyond the last are the last once more.
            x[v] = x[v].wrapping_add((vector + v).min(count - 1) * terms);
        }
        let mut starts = [first; ROWS];
        for r in 0..ROWS {
            starts[r] = first.wrapping_add((row + r) * row_bytes);
        }
        let mut sums = [[B::splat(0.0); VECTORS]; ROWS];
        let mut offsets = [[0f32; VECTORS]; ROWS];
        let has_offset = F::HAS_OFFSET || F::ZERO.is_some_and(|zero| zero > 0);
        for i in 0..terms / F::ELEMENTS {
            for r in 0..ROWS {
                let block = starts[r].wrapping_add(i * F::BYTES);
                for line in 0..F::BYTES.div_ceil(LINE) {
                    prefetch::<true, _>(block.wrapping_add(PREFETCH_BYTES + line * LINE));
                }
                // SAFETY: `RoundedDots::run` asks for rows of as many whole blocks as the vectors have, so
                // that block `i` can be read and each vector has group `at`.
                unsafe {
                    let head = F::head::<B>(block);
                    for part in 0..F::ELEMENTS / GROUP {
                        let numbers = F::bytes::<B>(block, part);
                        let mut parts = [F::scale(block, head, part, 0), F::scale(block, head, part, 1)];
                        for (scale, offset) in &mut parts {
                            *offset -= f32::from(F::ZERO.unwrap_or(0)) * *scale;
                        }
                        let at = i * (F::ELEMENTS / GROUP) + part;
                        // The numbers of all vectors are read side by side.
                        let [mut own, mut low, mut high] = [[0f32; VECTORS]; 3];
                        for v in 0..VECTORS {
                            own[v] = *scales.add(at * stride + v);
                            if has_offset {
                                low[v] = *halves.add(2 * at * stride + v);
                                high[v] = *halves.add((2 * at + 1) * stride + v);
                            }
                        }
                        for v in 0..VECTORS {
                            offsets[r][v] += match (F::BY_HALVES, has_offset) {
                                (_, false) => 0.0,
                                (false, true) => parts[0].1 * (low[v] + high[v]),
                                (true, true) => parts[0].1 * low[v] + parts[1].1 * high[v],
                            };
                        }
                        for v in 0..VECTORS {
                            let bytes = B::load(x[v].add(at * GROUP).cast());
                            let ints = match F::ZERO {
                                None => B::dot_signed(numbers, bytes),
                                Some(_) => B::dot(numbers, bytes),
                            };
                            let scales = match F::BY_HALVES {
                                true => B::by_halves([parts[0].0 * own[v], parts[1].0 * own[v]]),
                                false => B::splat(parts[0].0 * own[v]),
                            };
                            sums[r][v] = B::add(sums[r][v], ints, scales);
                        }
                    }
                }
            }
        }
        for r in 0..ROWS {
            for v in 0..VECTORS.min(count - vector) {
                let at = (vector + v) * to_vector + (row + r) * to_row;
                // SAFETY: `row + r` is one of the rows, and `RoundedDots::run` asks for their results with
                // each vector.
                unsafe { to.wrapping_add(at).write(B::total(sums[r][v]) + offsets[r][v]) };
            }
        }
    }
}

impl<F: Format, B: Bytes> Job for InBytes<'_, F, B> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Range { start, end } = self.rows;
        let vectors = self.dots.x.vectors;
        for row in (start..end).step_by(SIDE) {
            for vector in (0..vectors).step_by(SIDE) {
                // SAFETY: several rows are taken at once only where there are as many, of which the last
                // ones overlap with those before.
                unsafe {
                    if vectors - vector < SIDE && end - start >= SIDE {
                        // Few vectors go one by one, with several rows each.
                        for vector in vector..vectors {
                            self.some::<1, SIDE>(vector, row.min(end - SIDE));
                        }
                    } else {
                        for row in row..end.min(row + SIDE) {
                            self.some::<SIDE, 1>(vector, row);
                        }
                    }
                }
            }
        }
    }
}

impl RoundedDots<'_> {
    /// Forms the results of some rows.
    ///
    /// # Safety
    /// The processor has `form`. All rows can be read, whole blocks of `format` for as many
    /// elements as each vector has. The results can be written, and nothing else accesses those of these
    /// rows.
    pub(crate) unsafe fn run(&self, form: ByteForm, format: GgmlType, rows: &Range<usize>) {
        macro_rules! go {
            ($format:ident) => {
                by_bytes!(form, B => {
                    let (dots, rows) = (*self, rows.clone());
                    // SAFETY: the processor has `form`, whose registers these are; the rest is what
                    // `# Safety` asks.
                    unsafe { B::run(InBytes::<$format, B> { dots, rows, of: PhantomData }) }
                })
            };
        }
        by_format!(format, go);
    }
}

#[cfg(test)]
mod tests {
    use taper_testing::{make_scales_small, rng::Rng};
    use tensor_core::BlockFormat;

    use super::*;

    #[test]
    fn rounding_is_to_the_nearest_of_127_steps() {
        let mut rng = Rng::new(3, 0);
        for isa in Isa::available() {
            let mut x: Vec<f32> = (0..8 * GROUP).map(|_| rng.bits() as i32 as f32 * 1e-9).collect();
            x[GROUP..2 * GROUP].fill(0.0);
            x[2 * GROUP..3 * GROUP].fill(1e-45);
            x[3 * GROUP] = f32::INFINITY;
            x[4 * GROUP] = f32::NAN;
            // The panel has the numbers of another vector between them.
            let other = vec![1.0; x.len()];
            let rounded = Rounded::new(isa, &[&other, &x]);
            let integers = &rounded.integers[x.len()..];
            for (i, (integers, x)) in integers.chunks_exact(GROUP).zip(x.chunks_exact(GROUP)).enumerate() {
                assert!(integers.iter().all(|&q| q >= -127), "{integers:?}");
                let scale = rounded.scales[side_by_side(2) * i + 1];
                if i == 3 || i == 4 {
                    assert!(scale.is_nan());
                    continue;
                }
                for (&q, &x) in integers.iter().zip(x) {
                    let error = (f32::from(q) * scale - x).abs();
                    assert!(error <= 0.5001 * scale.max(3e-45), "{isa:?} group {i}: {q} for {x}");
                }
                for (half, integers) in integers.chunks_exact(HALF).enumerate() {
                    let sum = integers.iter().map(|&q| f32::from(q)).sum::<f32>() * scale;
                    assert_eq!(rounded.sums[side_by_side(2) * (2 * i + half) + 1], sum);
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_decoded_rows_and_rounded_vectors() {
        let mut rng = Rng::new(5, 0);
        for format in GgmlType::ALL {
            let k = 2 * format.block_elements();
            let row_bytes = 2 * format.block_bytes();
            for (rows, vectors) in [(11, 1), (3, 1), (4, 4), (9, 6)] {
                let mut bytes: Vec<u8> = (0..rows * row_bytes).map(|_| rng.bits() as u8).collect();
                bytes.chunks_mut(format.block_bytes()).for_each(|block| make_scales_small(format, block));
                let mut numbers = vec![0f32; rows * k];
                format.decode(&bytes, 0, &mut numbers);
                let x: Vec<f32> = (0..vectors * k).map(|_| rng.bits() as i32 as f32 * 1e-9).collect();
                for isa in Isa::available() {
                    let x: Vec<&[f32]> = x.chunks_exact(k).collect();
                    let rounded = Rounded::new(isa, &x);
                    for form in ByteForm::available(isa) {
                        let mut out = vec![0f32; rows * vectors];
                        let dots = RoundedDots {
                            x: &rounded,
                            rows: BlockRows {
                                first: bytes.as_ptr(),
                                row_bytes,
                                to: out.as_mut_ptr(),
                                to_row: 1,
                                to_vector: rows,
                            },
                        };
                        // SAFETY: the bytes have all rows, and the results are all there.
                        unsafe {
                            dots.run(form, format, &(0..1));
                            dots.run(form, format, &(1..rows));
                        }
                        for (v, integers) in rounded.integers.chunks_exact(k).enumerate() {
                            let scale =
                                |i: usize| f64::from(rounded.scales[i / GROUP * side_by_side(vectors) + v]);
                            let x = integers.iter().enumerate();
                            let x: Vec<f64> = x.map(|(i, &q)| f64::from(q) * scale(i)).collect();
                            for (row, numbers) in numbers.chunks_exact(k).enumerate() {
                                let terms = || numbers.iter().zip(&x).map(|(&a, &b)| f64::from(a) * b);
                                let (sum, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                                let found = f64::from(out[v * rows + row]);
                                // Numbers above zero are added first, and zero is subtracted as a whole.
                                let near = (found - sum).abs() <= 4e-6 * size;
                                assert!(near, "{format:?} {form:?} row {row} vector {v}: {found} and {sum}");
                            }
                        }
                    }
                }
            }
        }
    }
}
