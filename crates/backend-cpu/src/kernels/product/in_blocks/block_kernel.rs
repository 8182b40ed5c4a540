//! The inner loop of products of a few vectors with a matrix in blocks, whose rows are decoded in registers
//! and multiplied there: each byte of the matrix is read once, and no decoded number is stored.
#![allow(unsafe_code)]

use std::{marker::PhantomData, ops::Range};

use tensor_core::GgmlType;

use super::super::operands::mul_add;
use crate::simd::{
    block_formats::{Format, GROUP, HALF, by_format, by_register},
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

/// Sums of the products of vectors with rows of a matrix in blocks. A sum has the same bits beside any number
/// of other vectors: its terms are added in one order.
#[derive(Clone, Copy)]
pub(crate) struct BlockDots<'a> {
    /// The vectors, contiguous, and their [`half_sums`].
    pub(crate) x: &'a [&'a [f32]],
    pub(crate) halves: &'a [f32],
    pub(crate) rows: BlockRows,
}

/// How many bytes before their use blocks are asked for. The processor's own prefetching ends with each page:
/// without this, rows from memory take 1.8 times as long.
pub(crate) const PREFETCH_BYTES: usize = 2048;
/// The most registers of sums of a vector.
const REGISTERS: usize = 4;
/// Rows whose sums are added up together.
pub(crate) const ROWS: usize = 8;
/// Terms of several vectors that a few rows are multiplied with before the next terms: those of all vectors
/// stay in a first-level cache.
const TERMS: usize = 512;

struct InRegisters<'a, F, V, const VECTORS: usize> {
    dots: BlockDots<'a>,
    rows: Range<usize>,
    of: PhantomData<(F, V)>,
}

/// The sums of a row with some vectors: the registers of each, and what is added to their total.
type Sums<V, const VECTORS: usize> = ([[V; REGISTERS]; VECTORS], [f32; VECTORS]);

impl<F: Format, V: Integers, const SIDE: usize> InRegisters<'_, F, V, SIDE> {
    /// Adds the products of one block with some vectors: those of its integers, times their scale, and those
    /// of its offsets, which are a sum of the vector's elements times each offset. That takes fewer
    /// operations than a decoded number does.
    ///
    /// # Safety
    /// `block` can be read. The block's elements can be read at each of `x`, and at `halves` the sums of
    /// their halves, of all vectors of the product after each other.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    unsafe fn block<const VECTORS: usize>(
        &self,
        block: *const u8,
        (x, halves): ([*const f32; VECTORS], [*const f32; VECTORS]),
        (sums, offsets): &mut Sums<V, VECTORS>,
    ) {
        let vectors = self.dots.x.len();
        for line in 0..F::BYTES.div_ceil(LINE) {
            prefetch::<true, _>(block.wrapping_add(PREFETCH_BYTES + line * LINE));
        }
        // SAFETY: a register from `at` on ends within the half, so that all elements are the block's, which
        // can be read by `# Safety`, as each vector's sums of all halves can.
        unsafe {
            let head = F::head::<V>(block);
            for group in 0..F::ELEMENTS / GROUP {
                let (first, second) = (F::scale(block, head, group, 0), F::scale(block, head, group, 1));
                let (scale, second_scale) = (V::splat(first.0), V::splat(second.0));
                for r in 0..HALF / V::WIDTH {
                    let at = r * V::WIDTH;
                    let low = V::to_f32(F::integers::<V>(block, group, at));
                    let high = V::to_f32(F::integers::<V>(block, group, HALF + at));
                    for v in 0..VECTORS {
                        let x = x[v].add(group * GROUP + at);
                        let low = low * V::load(x);
                        let x = V::load(x.add(HALF));
                        sums[v][r] = if F::BY_HALVES {
                            mul_add(second_scale, high * x, mul_add(scale, low, sums[v][r]))
                        } else {
                            mul_add(scale, mul_add(high, x, low), sums[v][r])
                        };
                    }
                }
                if F::HAS_OFFSET {
                    for v in 0..VECTORS {
                        let half = halves[v].add(2 * group * vectors);
                        let (low, high) = (*half, *half.add(vectors));
                        offsets[v] += match F::BY_HALVES {
                            false => first.1 * (low + high),
                            true => first.1 * low + second.1 * high,
                        };
                    }
                }
            }
        }
    }

    /// The results of at most [`ROWS`] rows with `VECTORS` vectors. Those beyond the last vector are the last
    /// once more.
    ///
    /// # Safety
    /// As [`BlockDots::run`] asks; the rows are among its rows.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    unsafe fn some<const VECTORS: usize>(&self, vector: usize, rows: &Range<usize>) {
        let BlockDots { x: all, halves, rows: BlockRows { first, row_bytes, to, to_row, to_vector } } =
            self.dots;
        let mut vectors = [vector; VECTORS];
        let mut x = [all[vector].as_ptr(); VECTORS];
        let mut half = [halves.as_ptr(); VECTORS];
        for v in 0..VECTORS {
            vectors[v] = (vector + v).min(all.len() - 1);
            x[v] = all[vectors[v]].as_ptr();
            half[v] = halves.as_ptr().wrapping_add(vectors[v]);
        }
        let blocks = all[vector].len() / F::ELEMENTS;
        let step = if VECTORS == 1 { blocks } else { TERMS.div_ceil(F::ELEMENTS) };
        let mut sums = [([[V::splat(0.0); REGISTERS]; VECTORS], [0.0; VECTORS]); ROWS];
        for start in (0..blocks).step_by(step.max(1)) {
            for (row, sums) in rows.clone().zip(&mut sums) {
                // The compiler keeps a copy in registers.
                let mut own = *sums;
                for i in start..blocks.min(start + step) {
                    let block = first.wrapping_add(row * row_bytes + i * F::BYTES);
                    let mut from = (x, half);
                    for v in 0..VECTORS {
                        from.0[v] = x[v].wrapping_add(i * F::ELEMENTS);
                        from.1[v] = half[v].wrapping_add(i * F::ELEMENTS / HALF * all.len());
                    }
                    // SAFETY: by `# Safety` the row has `blocks` whole blocks, and each vector as many
                    // elements; `halves` has two sums for each of their groups.
                    unsafe { self.block(block, from, &mut own) };
                }
                *sums = own;
            }
        }
        for v in 0..VECTORS {
            let mut lines = [V::splat(0.0); ROWS];
            for (line, (sums, _)) in lines.iter_mut().zip(&mut sums) {
                // The same halves of the sums are added whatever the size of a register.
                let mut width = HALF / V::WIDTH;
                while width > 1 {
                    width /= 2;
                    for r in 0..width {
                        sums[v][r] = sums[v][r] + sums[v][r + width];
                    }
                }
                *line = sums[v][0];
            }
            let totals = V::totals(lines);
            let to = to.wrapping_add(vectors[v] * to_vector);
            for (row, (total, (_, offsets))) in rows.clone().zip(totals.iter().zip(&sums)) {
                // SAFETY: `BlockDots::run` asks for the results of its rows with each vector.
                unsafe { to.wrapping_add(row * to_row).write(total + offsets[v]) };
            }
        }
    }
}

impl<F: Format, V: Integers, const VECTORS: usize> Job for InRegisters<'_, F, V, VECTORS> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        const { assert!(HALF / V::WIDTH <= REGISTERS, "the sums of a half have registers") };
        for row in self.rows.clone().step_by(ROWS) {
            let rows = row..self.rows.end.min(row + ROWS);
            for vector in (0..self.dots.x.len()).step_by(VECTORS) {
                // SAFETY: `BlockDots::run` asks for all rows before `rows.end`.
                unsafe {
                    match self.dots.x.len() - vector {
                        1 => self.some::<1>(vector, &rows),
                        _ => self.some::<VECTORS>(vector, &rows),
                    }
                }
            }
        }
    }
}

/// The sums of the halves of the groups of some vectors: those of each half follow each other.
pub(crate) fn half_sums(x: &[&[f32]]) -> Vec<f32> {
    let halves = x.first().map_or(0, |x| x.len() / HALF);
    let of = |half: usize, x: &[f32]| x[half * HALF..][..HALF].iter().sum();
    (0..halves).flat_map(|half| x.iter().map(move |x| of(half, x))).collect()
}

impl BlockDots<'_> {
    /// Forms the results of some rows.
    ///
    /// # Safety
    /// All rows can be read, whole blocks of `format` for as many elements as each vector has. The
    /// vectors have one length, and `halves` is their [`half_sums`]. The results can be written, and
    /// nothing else accesses those of these rows.
    pub(crate) unsafe fn run(&self, isa: Isa, format: GgmlType, rows: &Range<usize>) {
        macro_rules! go {
            ($format:ident) => {
                by_register!(isa, V => {
                    let (dots, rows) = (*self, rows.clone());
                    // SAFETY: `by_register` takes registers of `isa`, and the rest is what `# Safety` asks.
                    unsafe {
                        V::run(InRegisters::<$format, V, { V::VECTORS }> { dots, rows, of: PhantomData })
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
        const VECTORS: usize = 13;
        for format in GgmlType::ALL {
            let blocks = (2 * TERMS + GROUP).div_ceil(format.block_elements());
            let (k, row_bytes) = (blocks * format.block_elements(), blocks * format.block_bytes());
            let mut bytes: Vec<u8> = (0..ROWS * row_bytes).map(|i| (i * 37 % 256) as u8).collect();
            bytes.chunks_mut(format.block_bytes()).for_each(|block| make_scales_small(format, block));
            let mut numbers = vec![0f32; ROWS * k];
            format.decode(&bytes, 0, &mut numbers);
            let x: Vec<f32> = (0..VECTORS * k).map(|i| (i * 29 % 64) as f32 / 32.0 - 1.0).collect();
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
                // How results are laid out changes no bit, nor do the other vectors of a product.
                assert!(bits.windows(2).all(|pair| pair[0] == pair[1]), "{format:?} {isa:?}");
                for vectors in 1..x.len() {
                    let x = &x[x.len() - vectors..];
                    let mut out = vec![0f32; ROWS * vectors];
                    let (to, to_row, to_vector) = (out.as_mut_ptr(), vectors, 1);
                    let rows = BlockRows { first: bytes.as_ptr(), row_bytes, to, to_row, to_vector };
                    let dots = BlockDots { x, halves: &half_sums(x), rows };
                    // SAFETY: the bytes have all rows, and the results are all there.
                    unsafe { dots.run(isa, format, &(0..ROWS)) };
                    for (found, all) in out.chunks_exact(vectors).zip(bits[0].chunks_exact(VECTORS)) {
                        let found: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
                        assert_eq!(found, all[VECTORS - vectors..], "{format:?} {isa:?} {vectors}");
                    }
                }
            }
        }
    }
}
