//! Products over windows whose terms are contiguous in both operands, as those of a convolution's weight
//! gradient are: a register holds terms of one row or one column, and each element of a micro-tile is a
//! register of partial sums. Nothing is packed, where a micro-kernel of columns would have both operands
//! transposed.
//!
//! An element is the sum of its blocks of terms, which depend on the number of terms and the registers' width
//! alone: however a result is cut among threads, its bits are the same.
#![allow(unsafe_code)]

use std::ops::Range;

use tensor_core::Result;

use super::{
    dots_kernel::{Block, COLUMNS, Pair, ROWS, Register, Tile},
    epilogue::Finish,
    gemm::Product,
    kernel_table::HasMicroKernels,
    operands::Steps,
};
use crate::{
    simd::isa::Isa,
    tuning::{DOTS_BLOCK_REGISTERS, DOTS_REGISTERS_PER_STRADDLE},
};

/// The terms of both operands, by registers that are full.
pub(super) struct Terms {
    width: usize,
    blocks: Vec<Block>,
}

impl Terms {
    /// The registers of `k` terms, if these fill registers of `width`, each contiguous in the left operand
    /// and in at most two runs in the right one.
    pub(super) fn of(width: usize, k: usize, lhs: Steps<'_>, rhs: Steps<'_>) -> Option<Terms> {
        if !k.is_multiple_of(width) {
            return None;
        }
        let lhs = registers(lhs, 0..k, width)?;
        if lhs.iter().any(|left| left.turn < width) {
            return None;
        }
        let rhs = registers(rhs, 0..k, width)?;
        // A register that straddles two runs takes two loads, and each uses a port of the multiplications.
        if rhs.iter().filter(|right| right.turn < width).count() * DOTS_REGISTERS_PER_STRADDLE > rhs.len() {
            return None;
        }
        let block = |(lhs, rhs): (&[Register], &[Register])| {
            let (mut pairs, mut turning): (Vec<_>, Vec<_>) = lhs
                .iter()
                .zip(rhs)
                .map(|(left, &rhs)| Pair { lhs: left.from, rhs })
                .partition(|pair| pair.rhs.turn == width);
            let whole = pairs.len();
            pairs.append(&mut turning);
            Block { pairs, whole }
        };
        Some(Terms {
            width,
            blocks: lhs
                .chunks(DOTS_BLOCK_REGISTERS)
                .zip(rhs.chunks(DOTS_BLOCK_REGISTERS))
                .map(block)
                .collect(),
        })
    }

    /// Whether they are cut into registers of this instruction set.
    pub(super) fn are_for<T: HasMicroKernels>(&self, isa: Isa) -> bool {
        self.width == T::micro_kernels(isa).width
    }
}

/// Positions in registers of `width`, if each is one contiguous run, or two.
fn registers(at: Steps<'_>, positions: Range<usize>, width: usize) -> Option<Vec<Register>> {
    let mut registers = Vec::with_capacity(positions.len().div_ceil(width));
    for first in positions.clone().step_by(width) {
        let end = positions.end.min(first + width);
        let follows = |&j: &usize| at.at(j) == at.at(j - 1) + 1;
        let turn = first + 1 + (first + 1..end).take_while(follows).count();
        if turn < end && !(turn + 1..end).all(|j| follows(&j)) {
            return None;
        }
        let from = at.at(first);
        let then = if turn < end { at.at(turn) - (turn - first) as isize } else { from };
        registers.push(Register { from, turn: turn - first, then });
    }
    Some(registers)
}

/// Forms a rectangle of a product whose terms are contiguous, and finishes it.
///
/// # Errors
/// The errors of `finish`.
///
/// # Safety
/// As [`Product::run`]; the terms are the product's, in registers of `isa`.
pub(super) unsafe fn run<T: HasMicroKernels>(
    isa: Isa,
    product: &Product<'_, T>,
    terms: &Terms,
    rows: Range<usize>,
    columns: Range<usize>,
    finish: Option<Finish<'_>>,
) -> Result<()> {
    let kernels = T::micro_kernels(isa).dots;
    for (number, block) in terms.blocks.iter().enumerate() {
        let mut i = rows.start;
        for &(height, [one, several]) in kernels {
            // A block of a few rows stays in the first-level cache while all columns pass by.
            while i + height <= rows.end {
                let mut j = columns.start;
                while j < columns.end {
                    let (width, kernel) =
                        if j + COLUMNS <= columns.end { (COLUMNS, several) } else { (1, one) };
                    let (mut left, mut right) = ([product.a.at; ROWS], [product.b.at; COLUMNS]);
                    for (at, left) in left.iter_mut().enumerate().take(height) {
                        *left = left.wrapping_offset(product.a.row.at(i + at));
                    }
                    for (at, right) in right.iter_mut().enumerate().take(width) {
                        *right = right.wrapping_offset(product.b.column.at(j + at));
                    }
                    let to = product.to.wrapping_add(i * product.to_row + j);
                    let (to_row, adds) = (product.to_row, number > 0);
                    // SAFETY: `height` rows from `i` and `width` columns from `j` on are in the rectangle of
                    // `# Safety`, the block's terms are the product's, and the kernels are those of `isa`.
                    unsafe { kernel(&Tile { block, rows: left, columns: right, to, to_row, adds }) };
                    j += width;
                }
                i += height;
            }
        }
    }
    match finish {
        None => Ok(()),
        Some(finish) => {
            finish.epilogue.with(|evaluator| finish.rectangle(evaluator, product.n, rows, &columns))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{
        super::{
            gemm::tests::{numbers, product},
            operands::Strided,
            windows::tests::windows_of,
        },
        *,
    };

    /// The weight's gradient of a convolution of several images, whole and in pieces.
    fn check<T: HasMicroKernels + Into<f64> + PartialEq + std::fmt::Debug>(
        number: impl Fn(f64) -> T + Copy,
        epsilon: f64,
    ) {
        const IMAGES: usize = 3;
        for isa in Isa::available() {
            let mut found = 0;
            for side in [4, 8, 16, 20, 24, 25, 56] {
                let (places, windows, numel) = windows_of(side, 1);
                let size = places.len();
                let (n, k) = (windows.len(), IMAGES * size);
                let images = numbers(IMAGES * numel, 7, number);
                let right_terms: Vec<isize> =
                    (0..k).map(|t| (t / size * numel) as isize + places[t % size]).collect();
                for m in [1, 7, 16, 21] {
                    let outputs = numbers(IMAGES * m * size, 8, number);
                    let left_terms: Vec<isize> =
                        (0..k).map(|t| (t / size * m * size + t % size) as isize).collect();
                    let Some(terms) = Terms::of(
                        T::micro_kernels(isa).width,
                        k,
                        Steps::Table(&left_terms),
                        Steps::Table(&right_terms),
                    ) else {
                        continue;
                    };
                    found += 1;
                    let a = Strided {
                        at: outputs.as_ptr(),
                        row: Steps::Even(size as isize),
                        column: Steps::Table(&left_terms),
                    };
                    let b = Strided {
                        at: images.as_ptr(),
                        row: Steps::Table(&right_terms),
                        column: Steps::Table(&windows),
                    };
                    let (mut whole, mut cut) = (numbers(m * n, 3, number), numbers(m * n, 4, number));
                    let product_to = |to: &mut [T]| product(k, n, [a, b], to);
                    // SAFETY: every index is below the vectors' lengths.
                    unsafe { run(isa, &product_to(&mut whole), &terms, 0..m, 0..n, None) }.unwrap();
                    let pieces = product_to(&mut cut);
                    for rows in [0..m / 3, m / 3..m] {
                        for columns in [0..n / 2, n / 2..n] {
                            // SAFETY: every index is within its vector, and `cut` has `m * n` elements.
                            unsafe { run(isa, &pieces, &terms, rows.clone(), columns, None) }.unwrap();
                        }
                    }
                    assert_eq!(whole, cut, "{isa:?} {side} {m}: another sum in pieces");
                    for (at, &got) in whole.iter().enumerate() {
                        let (i, j) = (at / n, at % n);
                        let term = |t: usize| {
                            let left = outputs[i * size + left_terms[t] as usize];
                            left.into() * images[(right_terms[t] + windows[j]) as usize].into()
                        };
                        let (sum, got): (f64, f64) = ((0..k).map(term).sum(), got.into());
                        assert!(
                            (got - sum).abs() <= k as f64 * epsilon,
                            "{isa:?} {side} {m}: {got}, not {sum}"
                        );
                    }
                }
            }
            assert!(found > 0, "{isa:?} read no terms side by side");
        }
    }

    #[test]
    fn sums_along_terms_are_right_and_the_same_in_pieces() {
        check::<f32>(|x| x as f32, f32::EPSILON.into());
        check::<f64>(|x| x, f64::EPSILON);
    }
}
