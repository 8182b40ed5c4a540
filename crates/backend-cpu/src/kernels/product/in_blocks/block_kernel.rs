//! The inner loop of products of a few vectors with a matrix in blocks, whose rows are decoded in registers
//! and multiplied there: each byte of the matrix is read once, and no decoded number is stored.
#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range};

use tensor_core::GgmlType;

use super::super::operands::mul_add;
use crate::simd::{
    block_formats::{Format, GROUP, HALF, by_format, by_register, decoded},
    cache::{LINE, prefetch},
    integers::Integers,
    isa::{Isa, Job},
    vector::Vector,
};

/// A matrix in blocks, and the place of its products with vectors.
#[derive(Clone, Copy)]
pub(crate) struct BlockRows {
    /// The first row, and how many bytes apart the rows are.
    pub(crate) first: *const u8,
    pub(crate) row_bytes: usize,
    /// The results; those of neighbouring rows and of neighbouring vectors are this far apart.
    pub(crate) to: *mut f32,
    pub(crate) to_row: usize,
    pub(crate) to_vector: usize,
}

// SAFETY: threads read the matrix, and write results of their own rows.
unsafe impl Sync for BlockRows {}

/// Sums of the products of vectors with rows of a matrix in blocks.
#[derive(Clone, Copy)]
pub(crate) struct BlockDots<'a> {
    /// The vectors, contiguous, and the sums of each half of a group of each of them.
    pub(crate) x: &'a [&'a [f32]],
    pub(crate) halves: &'a [f32],
    pub(crate) rows: BlockRows,
}

/// How many bytes before their use blocks are asked for. The processor's own prefetching ends with each page:
/// without this, rows from memory take 1.8 times as long.
pub(crate) const PREFETCH_BYTES: usize = 2048;
/// The most registers of sums of a vector.
const REGISTERS: usize = 8;
/// Rows whose sums are added up together.
pub(crate) const ROWS: usize = 8;

struct InRegisters<'a, F, V, const VECTORS: usize> {
    dots: BlockDots<'a>,
    /// The number of the first vector.
    vector: usize,
    rows: Range<usize>,
    of: PhantomData<(F, V)>,
}

impl<F: Format, V: Integers, const VECTORS: usize> InRegisters<'_, F, V, VECTORS> {
    /// Adds a group's products with one vector: those of its integers, times their scale, and as the result
    /// those of its offsets, which are a sum of the vector's elements times each offset. That takes fewer
    /// operations than a decoded number does.
    ///
    /// # Safety
    /// `block` can be read, `head` is its head, and it has the group; the group's elements can be read at
    /// `x`, and the sums of its two halves at `halves`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // the registers go by the same numbers as their elements
    unsafe fn group(
        block: *const u8,
        head: F::Head,
        group: usize,
        (x, halves): (*const f32, *const f32),
        sums: &mut [V; REGISTERS],
    ) -> f32 {
        // SAFETY: a register from `at` on ends within the half, so that all elements are the
        // group's, which can be read by `# Safety`.
        unsafe {
            let (first, second) = (F::scale(block, head, group, 0), F::scale(block, head, group, 1));
            for r in 0..HALF / V::WIDTH {
                let at = r * V::WIDTH;
                let low = V::to_f32(F::integers::<V>(block, group, at)) * V::load(x.add(at));
                let high = V::to_f32(F::integers::<V>(block, group, HALF + at));
                let x = V::load(x.add(HALF + at));
                if F::BY_HALVES {
                    sums[r] = mul_add(V::splat(first.0), low, sums[r]);
                    sums[r] = mul_add(V::splat(second.0), high * x, sums[r]);
                } else {
                    sums[r] = mul_add(V::splat(first.0), mul_add(high, x, low), sums[r]);
                }
            }
            match (F::HAS_OFFSET, F::BY_HALVES) {
                (false, _) => 0.0,
                (true, false) => first.1 * (*halves + *halves.add(1)),
                (true, true) => first.1 * *halves + second.1 * *halves.add(1),
            }
        }
    }

    /// The sums of a row with each of the vectors, a register for each; with one vector, also what is to be
    /// added to its sum.
    ///
    /// # Safety
    /// As [`BlockDots::run`] asks; `row` is one of its rows.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    unsafe fn row(&self, row: usize) -> ([V; VECTORS], f32) {
        let zero = V::splat(0.0);
        let mut x = [self.dots.x[self.vector].as_ptr(); VECTORS];
        for v in 0..VECTORS {
            x[v] = self.dots.x[self.vector + v].as_ptr();
        }
        let halves = self.dots.halves.as_ptr().wrapping_add(self.vector * self.dots.x[0].len() / HALF);
        let blocks = self.dots.x[self.vector].len() / F::ELEMENTS;
        let mut sums = [[zero; REGISTERS]; VECTORS];
        let mut offset = 0.0;
        let mut block = self.dots.rows.first.wrapping_add(row * self.dots.rows.row_bytes);
        let mut at = 0;
        for _ in 0..blocks {
            for line in 0..F::BYTES.div_ceil(LINE) {
                prefetch::<true, _>(block.wrapping_add(PREFETCH_BYTES + line * LINE));
            }
            // SAFETY: by `# Safety` the row has `blocks` whole blocks, and each vector as many elements; `at`
            // is below their number, and `halves` has two sums for each group.
            unsafe {
                let head = F::head::<V>(block);
                for group in 0..F::ELEMENTS / GROUP {
                    if VECTORS == 1 {
                        let from = (x[0].add(at), halves.wrapping_add(at / HALF));
                        offset += Self::group(block, head, group, from, &mut sums[0]);
                    } else {
                        for r in 0..GROUP / V::WIDTH {
                            let numbers = decoded::<F, V>(block, head, group, r * V::WIDTH);
                            for v in 0..VECTORS {
                                let x = V::load(x[v].add(at + r * V::WIDTH));
                                sums[v][r] = mul_add(numbers, x, sums[v][r]);
                            }
                        }
                    }
                    at += GROUP;
                }
            }
            block = block.wrapping_add(F::BYTES);
        }
        let mut out = [zero; VECTORS];
        for v in 0..VECTORS {
            // The same halves of the sums are added whatever the size of a register.
            let mut width = if VECTORS == 1 { HALF } else { GROUP } / V::WIDTH;
            while width > 1 {
                width /= 2;
                for r in 0..width {
                    sums[v][r] = sums[v][r] + sums[v][r + width];
                }
            }
            out[v] = sums[v][0];
        }
        (out, offset)
    }
}

impl<F: Format, V: Integers, const VECTORS: usize> Job for InRegisters<'_, F, V, VECTORS> {
    type Output = ();
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    fn run(self) {
        const { assert!(GROUP / V::WIDTH <= REGISTERS, "the sums of a group have registers") };
        let mut row = self.rows.start;
        while row < self.rows.end {
            let count = ROWS.min(self.rows.end - row);
            let (mut lines, mut offsets) = ([[V::splat(0.0); ROWS]; VECTORS], [0.0; ROWS]);
            for i in 0..count {
                // SAFETY: `BlockDots::run` asks for all rows before `rows.end`, and `row + i` is before it.
                let (sums, offset) = unsafe { self.row(row + i) };
                offsets[i] = offset;
                for v in 0..VECTORS {
                    lines[v][i] = sums[v];
                }
            }
            for v in 0..VECTORS {
                let totals = V::totals(lines[v]);
                let to = self.dots.rows.to.wrapping_add((self.vector + v) * self.dots.rows.to_vector);
                for i in 0..count {
                    // SAFETY: `BlockDots::run` asks for the results of its rows with each vector.
                    unsafe {
                        to.wrapping_add((row + i) * self.dots.rows.to_row).write(totals[i] + offsets[i])
                    };
                }
            }
            row += count;
        }
    }
}

/// The sums of the halves of the groups of some vectors.
pub(crate) fn half_sums(x: &[&[f32]]) -> Vec<f32> {
    x.iter().flat_map(|x| x.chunks_exact(HALF)).map(|half| half.iter().sum()).collect()
}

impl BlockDots<'_> {
    /// Forms the results of some rows.
    ///
    /// # Safety
    /// All rows can be read, whole blocks of `format` for as many elements as each vector has. The
    /// vectors have one length, and `halves` is their [`half_sums`]. The results can be written, and
    /// nothing else accesses those of these rows.
    pub(crate) unsafe fn run(&self, isa: Isa, format: GgmlType, rows: &Range<usize>) {
        macro_rules! some {
            ($format:ident, $v:ident, $vectors:expr, $vector:expr) => {
                // SAFETY: `by_register` takes registers of `isa`, and the rest is what `# Safety` asks.
                unsafe {
                    $v::run(InRegisters::<$format, $v, { $vectors }> {
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
                by_register!(isa, V => {
                    let mut vector = 0;
                    while vector + V::VECTORS <= self.x.len() {
                        some!($format, V, V::VECTORS, vector);
                        vector += V::VECTORS;
                    }
                    while vector < self.x.len() {
                        some!($format, V, 1, vector);
                        vector += 1;
                    }
                })
            };
        }
        by_format!(format, go);
    }
}

#[cfg(test)]
mod tests {
    use taper_testing::make_scales_small;
    use tensor_core::BlockFormat;

    use super::*;

    #[test]
    fn sums_are_those_of_decoded_rows() {
        const ROWS: usize = 11;
        for format in GgmlType::ALL {
            let k = 2 * format.block_elements();
            let row_bytes = 2 * format.block_bytes();
            let mut bytes: Vec<u8> = (0..ROWS * row_bytes).map(|i| (i * 37 % 256) as u8).collect();
            bytes.chunks_mut(format.block_bytes()).for_each(|block| make_scales_small(format, block));
            let mut numbers = vec![0f32; ROWS * k];
            format.decode(&bytes, 0, &mut numbers);
            let x: Vec<f32> = (0..9 * k).map(|i| (i * 29 % 64) as f32 / 32.0 - 1.0).collect();
            let x: Vec<&[f32]> = x.chunks_exact(k).collect();
            for isa in Isa::available() {
                let mut bits: Vec<Vec<u32>> = Vec::new();
                for (to_row, to_vector) in [(1, ROWS), (x.len(), 1)] {
                    let mut out = vec![0f32; ROWS * x.len()];
                    let dots = BlockDots {
                        x: &x,
                        halves: &half_sums(&x),
                        rows: BlockRows {
                            first: bytes.as_ptr(),
                            row_bytes,
                            to: out.as_mut_ptr(),
                            to_row,
                            to_vector,
                        },
                    };
                    // SAFETY: the bytes have all rows, and the results are all there.
                    unsafe {
                        dots.run(isa, format, &(0..3));
                        dots.run(isa, format, &(3..ROWS));
                    }
                    for (v, x) in x.iter().enumerate() {
                        for (row, numbers) in numbers.chunks_exact(k).enumerate() {
                            let terms = || numbers.iter().zip(*x).map(|(&a, &b)| f64::from(a) * f64::from(b));
                            let (sum, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                            let found = f64::from(out[row * to_row + v * to_vector]);
                            let near = (found - sum).abs() <= 1e-6 * size;
                            assert!(near, "{format:?} {isa:?} row {row} vector {v}: {found} and {sum}");
                        }
                    }
                    let results = (0..ROWS).flat_map(|row| (0..x.len()).map(move |v| (row, v)));
                    bits.push(results.map(|(row, v)| out[row * to_row + v * to_vector].to_bits()).collect());
                }
                // How results are laid out changes no bit.
                assert!(bits.windows(2).all(|pair| pair[0] == pair[1]), "{format:?} {isa:?}");
            }
        }
    }
}
