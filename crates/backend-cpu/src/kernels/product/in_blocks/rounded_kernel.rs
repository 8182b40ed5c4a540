//! As [`super::block_kernel`], with vectors that are rounded to 8 bits, 32 neighbours with one scale: their
//! products with the matrix's integers are those of bytes, of which an instruction makes 32.
#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range};

use tensor_core::GgmlType;

use super::block_kernel::{BlockRows, PREFETCH_BYTES};
use crate::simd::{
    block_formats::{Format, GROUP, HALF, by_format},
    bytes::{ByteForm, Bytes, by_bytes},
    cache::{LINE, prefetch},
    isa::{Isa, Job},
};

/// A vector whose groups of 32 are integers of -127 to 127 times a scale.
#[derive(Clone, Default)]
pub(crate) struct Rounded {
    integers: Vec<i8>,
    groups: Vec<Group>,
}

#[derive(Clone, Copy)]
struct Group {
    scale: f32,
    /// The sums of the rounded elements of each half.
    sums: [f32; 2],
}

impl Rounded {
    /// Rounds a vector of whole groups: each scale is the greatest magnitude of its group over 127. An
    /// infinity or NaN makes its group's products NaN.
    pub(crate) fn new(isa: Isa, x: &[f32]) -> Rounded {
        isa.run(Rounding(x))
    }
}

struct Rounding<'a>(&'a [f32]);

impl Job for Rounding<'_> {
    type Output = Rounded;
    #[inline(always)]
    fn run(self) -> Rounded {
        let mut integers = vec![0; self.0.len()];
        let groups = self.0.chunks_exact(GROUP).zip(integers.chunks_exact_mut(GROUP)).map(|(x, to)| {
            // The greatest magnitude by its bits, in which infinity and NaN are above all numbers.
            let greatest = x.iter().fold(0, |most: u32, x| most.max(x.to_bits() << 1 >> 1));
            let greatest = f32::from_bits(greatest);
            let scale = if greatest.is_finite() { greatest / 127.0 } else { f32::NAN };
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            // The greatest of all subnormal groups has no finite inverse: such a group counts as zeros.
            let inverse = if inverse.is_finite() { inverse } else { 0.0 };
            let mut sums = [0; 2];
            for (half, (x, to)) in x.chunks_exact(HALF).zip(to.chunks_exact_mut(HALF)).enumerate() {
                for (x, to) in x.iter().zip(to) {
                    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even.
                    let rounded = (x * inverse + ROUNDING) - ROUNDING;
                    *to = rounded as i32 as i8;
                    sums[half] += i32::from(*to);
                }
            }
            Group { scale, sums: sums.map(|sum| sum as f32 * scale) }
        });
        let groups = groups.collect();
        Rounded { integers, groups }
    }
}

/// 1.5 * 2^23: the numbers beside it are one apart.
const ROUNDING: f32 = 12_582_912.0;

/// Sums of the products of rounded vectors, which have the same length, with rows of a matrix in blocks.
#[derive(Clone, Copy)]
pub(crate) struct RoundedDots<'a> {
    pub(crate) x: &'a [Rounded],
    pub(crate) rows: BlockRows,
}

struct InBytes<'a, F, B, const VECTORS: usize, const ROWS: usize> {
    dots: RoundedDots<'a>,
    /// The number of the first vector.
    vector: usize,
    rows: Range<usize>,
    of: PhantomData<(F, B)>,
}

/// Rows, or vectors, whose sums are formed side by side.
const SIDE: usize = 4;

impl<F: Format, B: Bytes, const VECTORS: usize, const ROWS: usize> InBytes<'_, F, B, VECTORS, ROWS> {
    /// The results of rows `row..row + ROWS`. Vectors beyond the last are the last once more.
    ///
    /// # Safety
    /// As [`RoundedDots::run`] asks; rows `row..row + ROWS` are among its rows.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    unsafe fn some(&self, row: usize) {
        let BlockRows { first, row_bytes, to, to_row, to_vector } = self.dots.rows;
        // Loops and no functions of arrays, whose parts are compiled by themselves for each format.
        let mut vectors = [self.vector; VECTORS];
        let mut x = [&self.dots.x[self.vector]; VECTORS];
        for v in 0..VECTORS {
            vectors[v] = (self.vector + v).min(self.dots.x.len() - 1);
            x[v] = &self.dots.x[vectors[v]];
        }
        let mut starts = [first; ROWS];
        for r in 0..ROWS {
            starts[r] = first.wrapping_add((row + r) * row_bytes);
        }
        let mut sums = [[B::splat(0.0); VECTORS]; ROWS];
        let mut offsets = [[0f32; VECTORS]; ROWS];
        let has_offset = F::HAS_OFFSET || F::ZERO.is_some_and(|zero| zero > 0);
        for i in 0..x[0].integers.len() / F::ELEMENTS {
            for r in 0..ROWS {
                let block = starts[r].wrapping_add(i * F::BYTES);
                for line in 0..F::BYTES.div_ceil(LINE) {
                    prefetch::<true, _>(block.wrapping_add(PREFETCH_BYTES + line * LINE));
                }
                // SAFETY: `RoundedDots::run` asks for rows of as many whole blocks as the vectors have, which
                // have one length, so that block `i` can be read and each vector has group `at`.
                unsafe {
                    let head = F::head::<B>(block);
                    for part in 0..F::ELEMENTS / GROUP {
                        let numbers = F::bytes::<B>(block, part);
                        let mut halves = [F::scale(block, head, part, 0), F::scale(block, head, part, 1)];
                        for (scale, offset) in &mut halves {
                            *offset -= f32::from(F::ZERO.unwrap_or(0)) * *scale;
                        }
                        let at = i * (F::ELEMENTS / GROUP) + part;
                        for v in 0..VECTORS {
                            let bytes = B::load(x[v].integers.as_ptr().add(at * GROUP).cast());
                            let group = *x[v].groups.get_unchecked(at);
                            let ints = match F::ZERO {
                                None => B::dot_signed(numbers, bytes),
                                Some(_) => B::dot(numbers, bytes),
                            };
                            let scales = match F::BY_HALVES {
                                true => B::by_halves([halves[0].0 * group.scale, halves[1].0 * group.scale]),
                                false => B::splat(halves[0].0 * group.scale),
                            };
                            sums[r][v] = B::add(sums[r][v], ints, scales);
                            offsets[r][v] += match (F::BY_HALVES, has_offset) {
                                (_, false) => 0.0,
                                (false, true) => halves[0].1 * (group.sums[0] + group.sums[1]),
                                (true, true) => halves[0].1 * group.sums[0] + halves[1].1 * group.sums[1],
                            };
                        }
                    }
                }
            }
        }
        for r in 0..ROWS {
            for v in 0..VECTORS {
                let at = vectors[v] * to_vector + (row + r) * to_row;
                // SAFETY: `row + r` is one of the rows, and `RoundedDots::run`
                // asks for their results with each vector.
                unsafe { to.wrapping_add(at).write(B::total(sums[r][v]) + offsets[r][v]) };
            }
        }
    }
}

impl<F: Format, B: Bytes, const VECTORS: usize, const ROWS: usize> Job for InBytes<'_, F, B, VECTORS, ROWS> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        // There are at least `ROWS` rows; the last ones overlap with those before.
        for row in self.rows.clone().step_by(ROWS) {
            // SAFETY: there are at least `ROWS` rows, so that the last `ROWS` are among them.
            unsafe { self.some(row.min(self.rows.end - ROWS)) };
        }
    }
}

impl RoundedDots<'_> {
    /// Forms the results of some rows.
    ///
    /// # Safety
    /// The processor has `form`. All rows can be read, whole blocks of `format` for as many
    /// elements as each vector has, and the vectors have one length. The results can be written,
    /// and nothing else accesses those of these rows.
    pub(crate) unsafe fn run(&self, form: ByteForm, format: GgmlType, rows: &Range<usize>) {
        macro_rules! some {
            ($format:ident, $b:ident, $vectors:expr, $rows:expr, $vector:expr) => {
                // SAFETY: the processor has `form`, whose registers these are, and `go` takes several rows at
                // once only where there are as many; the rest is what `# Safety` asks.
                unsafe {
                    $b::run(InBytes::<$format, $b, { $vectors }, { $rows }> {
                        dots: *self,
                        vector: $vector,
                        rows: rows.clone(),
                        of: PhantomData,
                    })
                }
            };
        }
        macro_rules! go {
            ($format:ident) => {
                by_bytes!(form, B => {
                    let vectors = self.x.len();
                    for vector in (0..vectors).step_by(SIDE) {
                        // Few vectors go one by one, with several rows each, if there are as many.
                        match vectors - vector < SIDE && rows.len() >= SIDE {
                            false => some!($format, B, SIDE, 1, vector),
                            true => {
                                for vector in vector..vectors {
                                    some!($format, B, 1, SIDE, vector);
                                }
                            }
                        }
                    }
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
            let rounded = Rounded::new(isa, &x);
            for (i, (group, x)) in rounded.groups.iter().zip(x.chunks_exact(GROUP)).enumerate() {
                let integers = &rounded.integers[i * GROUP..(i + 1) * GROUP];
                assert!(integers.iter().all(|&q| q >= -127), "{integers:?}");
                if i == 3 || i == 4 {
                    assert!(group.scale.is_nan());
                    continue;
                }
                for (&q, &x) in integers.iter().zip(x) {
                    let error = (f32::from(q) * group.scale - x).abs();
                    assert!(error <= 0.5001 * group.scale.max(3e-45), "{isa:?} group {i}: {q} for {x}");
                }
                let sums = [0, 1].map(|half| {
                    integers[half * HALF..][..HALF].iter().map(|&q| f32::from(q)).sum::<f32>() * group.scale
                });
                assert_eq!(group.sums, sums);
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
                    let rounded: Vec<Rounded> = x.chunks_exact(k).map(|x| Rounded::new(isa, x)).collect();
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
                        for (v, x) in rounded.iter().enumerate() {
                            let x = x.integers.iter().enumerate();
                            let x: Vec<f64> = x
                                .map(|(i, &q)| f64::from(q) * f64::from(rounded[v].groups[i / GROUP].scale))
                                .collect();
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
