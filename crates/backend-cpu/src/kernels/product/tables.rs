//! Packing of operands whose positions are given by tables, as those of a convolution's windows are.
//! Contiguous columns are copied a register at a time; where terms are contiguous, squares are transposed;
//! other elements are copied one by one.
#![allow(unsafe_code)]

use std::ops::Range;

use smallvec::SmallVec;

use super::{
    kernel_table::{HasMicroKernels, MicroKernels},
    operands::{MAX_REGISTERS, Steps, Strided, WIDEST},
    piece_kernel::{CopyPieces, Piece},
};
use crate::{
    memory::strided::{TILE, transpose, transposes_in_registers},
    simd::isa::{Isa, Job},
    tuning::{PACK_ELEMENT_COST, PACK_FAST_TILE_COST, PACK_REGISTER_COST, PACK_SLOW_TILE_COST},
};

type Offsets = SmallVec<[isize; MAX_REGISTERS * WIDEST]>;
type PieceList = SmallVec<[Piece; MAX_REGISTERS * WIDEST]>;

/// The pieces of columns at these offsets, none greater than is copied at once.
fn pieces(offsets: &[isize], width: usize) -> PieceList {
    let mut pieces = PieceList::new();
    let mut j = 0;
    while j < offsets.len() {
        let step = offsets.get(j + 1).map_or(1, |next| next - offsets[j]);
        let most = match step {
            1 | 2 => width,
            _ => usize::MAX,
        };
        let mut count = 1;
        while count < most && j + count < offsets.len() && offsets[j + count] - offsets[j + count - 1] == step
        {
            count += 1;
        }
        let from = offsets[j];
        let last = pieces.last_mut().filter(|last: &&mut Piece| last.step == 1 && last.all == last.count);
        match last.filter(|last| (step == 1 || count == 1) && last.all + count <= width) {
            Some(last) => (last.all, last.then) = (last.count + count, from - last.count as isize),
            None => {
                let step = if count == 1 { 1 } else { step };
                pieces.push(Piece { from, step, to: j, count, all: count, then: from });
            }
        }
        j += count;
    }
    pieces
}

impl Piece {
    fn cost(&self) -> usize {
        match self.step {
            1 => PACK_REGISTER_COST * if self.all > self.count { 2 } else { 1 },
            2 => PACK_REGISTER_COST,
            _ => PACK_ELEMENT_COST * self.count,
        }
    }
}

/// Columns whose terms are contiguous in runs, written as rows of terms.
struct Transposed<'a, T> {
    isa: Isa,
    /// The address of each column's term 0.
    columns: &'a [*const T],
    terms: Range<usize>,
    term: Steps<'a>,
    to: *mut T,
    width: usize,
}

impl<T: Copy + Default> Job for Transposed<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let mut start = self.terms.start;
        while start < self.terms.end {
            let height = run(self.term, start..self.terms.end);
            let first = self.term.at(start);
            let to = self.to.wrapping_add((start - self.terms.start) * self.width);
            for (at, some) in self.columns.chunks(TILE).enumerate() {
                let mut columns = [some[0].wrapping_offset(first); TILE];
                for (to, from) in columns.iter_mut().zip(some) {
                    *to = from.wrapping_offset(first);
                }
                let (to, row) = (to.wrapping_add(at * TILE), self.width as isize);
                // SAFETY: `panel` and `rows` ask for these terms and columns on both sides; from `start` on,
                // `height` terms of a column are contiguous.
                unsafe {
                    if height == TILE && some.len() == TILE {
                        transpose::<true, _>(self.isa, columns, [TILE; 2], to, row);
                    } else {
                        transpose::<false, _>(self.isa, columns, [height, some.len()], to, row);
                    }
                }
            }
            start += height;
        }
    }
}

/// How many of these terms, at most [`TILE`], are contiguous from the first on.
#[inline(always)]
fn run(term: Steps<'_>, terms: Range<usize>) -> usize {
    let most = terms.len().min(TILE);
    match term {
        Steps::Even(1) => most,
        Steps::Even(_) => 1,
        Steps::Table(table) => {
            let first = table[terms.start];
            let lies = |&i: &usize| table[terms.start + i] == first + i as isize;
            (1..most).take_while(lies).count() + 1
        }
    }
}

/// In how many runs these terms are contiguous, none longer than [`TILE`].
pub(super) fn runs(term: Steps<'_>, terms: Range<usize>) -> usize {
    match term {
        Steps::Even(1) => terms.len().div_ceil(TILE),
        Steps::Even(_) => terms.len(),
        Steps::Table(_) => {
            let (mut start, mut runs) = (terms.start, 0);
            while start < terms.end {
                start += run(term, start..terms.end);
                runs += 1;
            }
            runs
        }
    }
}

/// The time that it takes to transpose `columns` columns, whose terms are contiguous in `runs` runs.
fn transposed_cost<T>(isa: Isa, columns: usize, runs: usize) -> usize {
    let fast = transposes_in_registers::<T>(isa);
    columns.div_ceil(TILE) * runs * if fast { PACK_FAST_TILE_COST } else { PACK_SLOW_TILE_COST }
}

/// Copies some terms of a panel of columns, which are contiguous in [runs], one after the other, `width`
/// elements apart.
///
/// # Safety
/// These terms of the columns are initialised, as is all between two columns of a term; `to` has room for a
/// row of `width` numbers for each term, apart from them, and there are no more columns.
pub(super) unsafe fn panel<T: HasMicroKernels>(
    isa: Isa,
    micro_kernels: &MicroKernels<T>,
    b: &Strided<'_, T>,
    (terms, runs): (Range<usize>, usize),
    columns: Range<usize>,
    to: *mut T,
    width: usize,
) {
    let offsets: Offsets = columns.map(|j| b.column.at(j)).collect();
    let pieces = pieces(&offsets, micro_kernels.width);
    let cost = pieces.iter().map(Piece::cost).sum::<usize>() * terms.len();
    if cost > transposed_cost::<T>(isa, offsets.len(), runs) {
        let columns: SmallVec<[*const T; MAX_REGISTERS * WIDEST]> =
            offsets.iter().map(|&offset| b.at.wrapping_offset(offset)).collect();
        return isa.run(Transposed { isa, columns: &columns, terms, term: b.row, to, width });
    }
    // SAFETY: the pieces are of these columns and no longer than a register; `# Safety`
    // allows what is read and written for them.
    unsafe {
        micro_kernels.copy_pieces(&CopyPieces { terms, at: b.at, term: b.row, pieces: &pieces, to, width })
    }
}

/// Copies some terms of a few rows, which are contiguous in [runs], a term's rows side by side.
///
/// # Safety
/// These terms of the rows are initialised, and `to` has room for all of them, apart from the operand.
pub(super) unsafe fn rows<T: HasMicroKernels>(
    isa: Isa,
    a: &Strided<'_, T>,
    (terms, runs): (Range<usize>, usize),
    rows: Range<usize>,
    to: *mut T,
) {
    let width = rows.len();
    if PACK_ELEMENT_COST * width * terms.len() > transposed_cost::<T>(isa, width, runs) {
        let columns: SmallVec<[*const T; TILE]> =
            rows.map(|row| a.at.wrapping_offset(a.row.at(row))).collect();
        return isa.run(Transposed { isa, columns: &columns, terms, term: a.column, to, width });
    }
    for (r, row) in rows.enumerate() {
        for (i, term) in terms.clone().enumerate() {
            // SAFETY: the row and the term are two of `# Safety`; `r` is below
            // `width`, and `i` below the terms' number.
            unsafe { to.add(i * width + r).write(a.element(row, term).read()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns in every kind of piece, of terms that are contiguous in pairs, apart, and at the end of what
    /// may be read.
    fn check<T: HasMicroKernels + From<u8> + PartialEq + std::fmt::Debug>() {
        let columns: [&[isize]; 6] = [
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19],
            &[0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22],
            &[0, 1, 2, 10, 11, 12, 20, 21, 30, 31, 32, 33, 34],
            &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36],
            &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19, 20, 40, 42, 44, 46, 48],
            &[3, 6, 9, 12, 5, 40, 41, 60, 50],
        ];
        let terms: [&[isize]; 4] = [&[0], &[0, 1, 2, 5, 6, 7, 9], &[4, 3, 2, 0], &[1, 2, 3, 4]];
        for isa in Isa::available() {
            let kernels = T::micro_kernels(isa);
            for (columns, terms) in columns.iter().flat_map(|c| terms.iter().map(move |t| (*c, *t))) {
                let last = columns.iter().max().unwrap_or(&0) + terms.iter().max().unwrap_or(&0);
                let image: Vec<T> = (0..=last as u8).map(T::from).collect();
                let width = columns.len().next_multiple_of(kernels.width);
                let none = T::from(200);
                let mut to = vec![none; terms.len() * width];
                let pieces = pieces(columns, kernels.width);
                let copy = CopyPieces {
                    terms: 0..terms.len(),
                    at: image.as_ptr(),
                    term: Steps::Table(terms),
                    pieces: &pieces,
                    to: to.as_mut_ptr(),
                    width,
                };
                // SAFETY: all places are within the image, and there is room for all copies.
                unsafe { kernels.copy_pieces(&copy) };
                let expected: Vec<T> = terms
                    .iter()
                    .flat_map(|term| {
                        let copied = columns.iter().map(|column| image[(term + column) as usize]);
                        copied.chain(std::iter::repeat(none)).take(width).collect::<Vec<T>>()
                    })
                    .collect();
                assert_eq!(to, expected, "{isa:?} {columns:?} {terms:?}");
            }
        }
    }

    #[test]
    fn pieces_are_copied_whatever_lies_between() {
        check::<f32>();
        check::<f64>();
    }

    #[test]
    fn two_short_runs_are_one_piece() {
        let found = pieces(&[0, 1, 2, 8, 9, 20, 21, 22], 4);
        let piece = |from, count, all, then, to| Piece { from, step: 1, to, count, all, then };
        assert_eq!(found[..], [piece(0, 3, 3, 0, 0), piece(8, 2, 2, 8, 3), piece(20, 3, 3, 20, 5)]);
        let found = pieces(&[0, 1, 8, 9, 20], 4);
        assert_eq!(found[..], [piece(0, 2, 4, 6, 0), piece(20, 1, 1, 20, 4)]);
    }
}
