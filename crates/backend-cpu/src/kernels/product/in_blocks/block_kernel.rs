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

/// Sums of the products of vectors with rows of a matrix in blocks. A sum has the same bits beside any
/// number of other vectors: its terms are added in one order.
#[derive(Clone, Copy)]
pub(crate) struct BlockDots<'a> {
    pub(crate) x: &'a Panel,
    pub(crate) rows: BlockRows,
}

/// Vectors of one length in groups: the elements of a group of all vectors follow each other, and so do the
/// sums of its halves.
pub(crate) struct Panel {
    numbers: Vec<Line>,
    /// The sums of each half of the groups.
    halves: Vec<f32>,
    vectors: usize,
    terms: usize,
}

/// The elements of a half of a group, in a line of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [f32; HALF]); // kernels read its numbers through a pointer

impl Panel {
    /// Copies vectors of whole groups.
    pub(crate) fn new(x: &[&[f32]]) -> Panel {
        let (terms, stride) = (x.first().map_or(0, |x| x.len()), side_by_side(x.len()));
        let mut numbers = vec![Line([0.0; HALF]); terms / HALF * stride];
        let mut halves = vec![0.0; terms / HALF * stride];
        for (v, x) in x.iter().enumerate() {
            let (lines, _) = x.as_chunks::<HALF>();
            for (half, line) in lines.iter().enumerate() {
                numbers[(half / 2 * stride + v) * 2 + half % 2] = Line(*line);
                halves[half * stride + v] = line.iter().sum();
            }
        }
        Panel { numbers, halves, vectors: x.len(), terms }
    }
}

/// The vectors that a panel has room for: a kernel reads whole registers of them.
pub(super) fn side_by_side(vectors: usize) -> usize {
    match vectors {
        0 | 1 => 1,
        2..=8 => 8,
        _ => vectors.next_multiple_of(MAX_SIDE),
    }
}

/// How many bytes before their use blocks are asked for. The processor's own prefetching ends with each page:
/// without this, rows from memory take 1.8 times as long.
pub(crate) const PREFETCH_BYTES: usize = 2048;
/// Rows whose sums are added up together.
pub(crate) const ROWS: usize = 8;
/// The most vectors whose sums are formed side by side.
const MAX_SIDE: usize = 16;
/// Numbers of the vectors that a few rows are multiplied with before the next terms: they stay in a
/// first-level cache.
const CACHED_NUMBERS: usize = 8192;

/// Sums with at most `SIDE` vectors side by side, or `FEW`. `REGISTERS` hold those of a vector, one for each
/// element of a half.
struct InRegisters<'a, F, V, const SIDE: usize, const FEW: usize, const REGISTERS: usize> {
    dots: BlockDots<'a>,
    rows: Range<usize>,
    of: PhantomData<(F, V)>,
}

/// The sums of a row with some vectors: the registers of each, and what is added to their total.
type Sums<V, const VECTORS: usize, const REGISTERS: usize> = ([[V; REGISTERS]; VECTORS], [f32; VECTORS]);

impl<F: Format, V: Integers, const SIDE: usize, const FEW: usize, const REGISTERS: usize>
    InRegisters<'_, F, V, SIDE, FEW, REGISTERS>
{
    /// Adds the products of block `i` of a row with some vectors. The offsets of numbers are added as
    /// products with the sums of halves, which takes fewer operations than one for each number.
    ///
    /// # Safety
    /// `block` can be read. The panel has room for the vectors, and a group for each of the block's.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    unsafe fn block<const VECTORS: usize>(
        &self,
        block: *const u8,
        i: usize,
        vector: usize,
        (sums, offsets): &mut Sums<V, VECTORS, REGISTERS>,
    ) {
        let Panel { numbers, halves, vectors, .. } = self.dots.x;
        let stride = side_by_side(*vectors);
        for line in 0..F::BYTES.div_ceil(LINE) {
            prefetch::<true, _>(block.wrapping_add(PREFETCH_BYTES + line * LINE));
        }
        // SAFETY: a register from `at` on ends within the half, so that all elements are those of groups that
        // the block and the panel have, by `# Safety`.
        unsafe {
            let head = F::head::<V>(block);
            for part in 0..F::ELEMENTS / GROUP {
                let group = i * (F::ELEMENTS / GROUP) + part;
                let (first, second) = (F::scale(block, head, part, 0), F::scale(block, head, part, 1));
                let scales = [V::splat(first.0), V::splat(if F::BY_HALVES { second.0 } else { first.0 })];
                let x = numbers.as_ptr().add((group * stride + vector) * 2).cast::<f32>();
                for r in 0..REGISTERS {
                    let at = r * V::WIDTH;
                    let low = scales[0] * V::to_f32(F::integers::<V>(block, part, at));
                    let high = scales[1] * V::to_f32(F::integers::<V>(block, part, HALF + at));
                    for v in 0..VECTORS {
                        let x = x.add(v * GROUP + at);
                        let sum = mul_add(low, V::load(x), sums[v][r]);
                        sums[v][r] = mul_add(high, V::load(x.add(HALF)), sum);
                    }
                }
                if F::HAS_OFFSET {
                    let low = halves.as_ptr().add(2 * group * stride + vector);
                    for v in 0..VECTORS {
                        let (low, high) = (*low.add(v), *low.add(stride + v));
                        offsets[v] += match F::BY_HALVES {
                            false => first.1 * (low + high),
                            true => first.1 * low + second.1 * high,
                        };
                    }
                }
            }
        }
    }

    /// The results of at most [`ROWS`] rows with `VECTORS` vectors, or as many as there are.
    ///
    /// # Safety
    /// As [`BlockDots::run`] asks; the rows are among its rows, and the panel has room for the vectors.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
    unsafe fn some<const VECTORS: usize>(&self, vector: usize, rows: &Range<usize>) {
        let BlockDots { x, rows: BlockRows { first, row_bytes, to, to_row, to_vector } } = self.dots;
        let blocks = x.terms / F::ELEMENTS;
        let most = (CACHED_NUMBERS / VECTORS / F::ELEMENTS).max(1);
        let step = if VECTORS == 1 { blocks } else { blocks.div_ceil(blocks.div_ceil(most).max(1)) };
        let mut sums = [([[V::splat(0.0); REGISTERS]; VECTORS], [0.0; VECTORS]); ROWS];
        let block_of = |row: usize, i: usize| first.wrapping_add(row * row_bytes + i * F::BYTES);
        for start in (0..blocks).step_by(step.max(1)) {
            let end = blocks.min(start + step);
            let mut row = rows.start;
            while row < rows.end {
                let at = row - rows.start;
                // Each sum waits for the one before: with one vector, two rows take turns.
                if VECTORS == 1 && row + 1 < rows.end {
                    // The compiler keeps copies in registers.
                    let (mut own, mut next) = (sums[at], sums[at + 1]);
                    for i in start..end {
                        // SAFETY: by `# Safety` the rows and the vectors have `blocks` whole blocks.
                        unsafe {
                            self.block(block_of(row, i), i, vector, &mut own);
                            self.block(block_of(row + 1, i), i, vector, &mut next);
                        }
                    }
                    (sums[at], sums[at + 1]) = (own, next);
                    row += 2;
                } else {
                    let mut own = sums[at];
                    for i in start..end {
                        // SAFETY: as above.
                        unsafe { self.block(block_of(row, i), i, vector, &mut own) };
                    }
                    sums[at] = own;
                    row += 1;
                }
            }
        }
        for v in 0..VECTORS.min(x.vectors - vector) {
            let mut lines = [V::splat(0.0); ROWS];
            for (line, (sums, _)) in lines.iter_mut().zip(&mut sums) {
                // The same halves of the sums are added whatever the size of a register.
                let mut width = REGISTERS;
                while width > 1 {
                    width /= 2;
                    for r in 0..width {
                        sums[v][r] = sums[v][r] + sums[v][r + width];
                    }
                }
                *line = sums[v][0];
            }
            let totals = V::totals(lines);
            let to = to.wrapping_add((vector + v) * to_vector);
            for (row, (total, (_, offsets))) in rows.clone().zip(totals.iter().zip(&sums)) {
                // SAFETY: `BlockDots::run` asks for the results of its rows with each vector.
                unsafe { to.wrapping_add(row * to_row).write(total + offsets[v]) };
            }
        }
    }
}

impl<F: Format, V: Integers, const SIDE: usize, const FEW: usize, const REGISTERS: usize> Job
    for InRegisters<'_, F, V, SIDE, FEW, REGISTERS>
{
    type Output = ();
    #[inline(always)]
    fn run(self) {
        const { assert!(HALF / V::WIDTH == REGISTERS, "the sums of a half have registers") };
        const { assert!(SIDE <= MAX_SIDE && FEW <= 8, "a panel has room for as many vectors") };
        for row in self.rows.clone().step_by(ROWS) {
            let rows = row..self.rows.end.min(row + ROWS);
            let mut vector = 0;
            while vector < self.dots.x.vectors {
                let left = self.dots.x.vectors - vector;
                // SAFETY: `BlockDots::run` asks for all rows before `rows.end`; several vectors are read
                // where two are left at least, which `side_by_side` has room for.
                unsafe {
                    if left > FEW && SIDE > FEW {
                        self.some::<SIDE>(vector, &rows);
                        vector += SIDE;
                    } else if left > 1 {
                        self.some::<FEW>(vector, &rows);
                        vector += FEW;
                    } else {
                        self.some::<1>(vector, &rows);
                        vector += 1;
                    }
                }
            }
        }
    }
}

/// The vectors side by side where fewer are left than there are registers for.
const fn few(side: usize) -> usize {
    if side > 2 { side / 2 } else { side }
}

impl BlockDots<'_> {
    /// Forms the results of some rows.
    ///
    /// # Safety
    /// All rows can be read, whole blocks of `format` for as many elements as each vector has. The results
    /// can be written, and nothing else accesses those of these rows.
    pub(crate) unsafe fn run(&self, isa: Isa, format: GgmlType, rows: &Range<usize>) {
        macro_rules! go {
            ($format:ident) => {
                by_register!(isa, V => {
                    let (dots, rows) = (*self, rows.clone());
                    // SAFETY: `by_register` takes registers of `isa`, and the rest is what `# Safety` asks.
                    unsafe {
                        V::run(
                            InRegisters::<$format, V, { V::VECTORS }, { few(V::VECTORS) }, { HALF / V::WIDTH }> {
                                dots,
                                rows,
                                of: PhantomData,
                            },
                        )
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
        const VECTORS: usize = 27;
        for format in GgmlType::ALL {
            let blocks = (CACHED_NUMBERS / 2 + GROUP).div_ceil(format.block_elements());
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
                        x: &Panel::new(&x),
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
                    let dots = BlockDots { x: &Panel::new(x), rows };
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
