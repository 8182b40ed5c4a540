//! Packing of operands whose positions lie by tables, as the windows of a convolution do. Columns that lie side by side are copied a register
//! at a time; where terms do, squares are transposed; the rest goes one by one.
#![allow(unsafe_code)]

use std::ops::Range;

use smallvec::SmallVec;

use super::{
    gemm::{Steps, Strided, WIDEST},
    micro_kernel::{HasMicroKernels, MAX_REGISTERS, MicroKernels},
};
use crate::{
    memory::strided::{TILE, transpose},
    simd::{
        isa::{Isa, Job},
        vector::Vector,
    },
};

/// Elements that lie every other one which are copied at once.
const PAIRS: usize = 8;
/// What copies take, in quarters of a cycle or so: a register, an element, and a tile that is transposed with instructions for it or without.
const REGISTER: usize = 12;
const ELEMENT: usize = 6;
const FAST_TILE: usize = 400;
const SLOW_TILE: usize = 1600;

/// Columns that lie evenly, `step` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    from: isize,
    step: isize,
    /// The first column, and how many there are.
    to: usize,
    count: usize,
}

type Offsets = SmallVec<[isize; MAX_REGISTERS * WIDEST]>;
type PieceList = SmallVec<[Piece; MAX_REGISTERS * WIDEST]>;

/// The pieces of columns at these offsets, none greater than is copied at once.
fn pieces(offsets: &[isize], width: usize) -> PieceList {
    let mut pieces = PieceList::new();
    let mut j = 0;
    while j < offsets.len() {
        let step = offsets.get(j + 1).map_or(1, |next| next - offsets[j]);
        let most = match step {
            1 => width,
            2 => PAIRS,
            _ => usize::MAX,
        };
        let mut count = 1;
        while count < most && j + count < offsets.len() && offsets[j + count] - offsets[j + count - 1] == step
        {
            count += 1;
        }
        pieces.push(Piece { from: offsets[j], step: if count == 1 { 1 } else { step }, to: j, count });
        j += count;
    }
    pieces
}

impl Piece {
    fn cost(&self) -> usize {
        match self.step {
            1 => REGISTER,
            2 if self.count == PAIRS => REGISTER,
            _ => ELEMENT * self.count,
        }
    }
}

/// Copies the pieces of each term.
pub(super) struct CopyPieces<'a, T> {
    terms: Range<usize>,
    at: *const T,
    term: Steps<'a>,
    pieces: &'a [Piece],
    to: *mut T,
    width: usize,
}

/// [`CopyPieces`] as compiled for registers.
pub(super) struct InRegisters<'a, V: Vector>(pub(super) &'a CopyPieces<'a, V::Number>);

impl<V: Vector> Job for InRegisters<'_, V> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let copy = self.0;
        let mut to = copy.to;
        for term in copy.terms.clone() {
            let from = copy.at.wrapping_offset(copy.term.at(term));
            for piece in copy.pieces {
                let (from, to) = (from.wrapping_offset(piece.from), to.wrapping_add(piece.to));
                // SAFETY: the caller of `panel` holds the elements of both sides.
                unsafe {
                    match piece.step {
                        1 if piece.count == V::WIDTH => V::load(from).store_first(to, V::WIDTH),
                        1 => V::load_first(from, piece.count).store_first(to, piece.count),
                        2 if piece.count == PAIRS => {
                            // The last number that is needed is the last that is read.
                            let a = from.cast::<[V::Number; PAIRS]>().read_unaligned();
                            let b = from.add(PAIRS - 1).cast::<[V::Number; PAIRS]>().read_unaligned();
                            let even = [a[0], a[2], a[4], a[6], b[1], b[3], b[5], b[7]];
                            to.cast::<[V::Number; PAIRS]>().write_unaligned(even);
                        }
                        step => {
                            for i in 0..piece.count {
                                to.add(i).write(from.wrapping_offset(i as isize * step).read());
                            }
                        }
                    }
                }
            }
            to = to.wrapping_add(copy.width);
        }
    }
}

/// Columns whose terms lie side by side in runs, written as rows of terms.
struct Transposed<'a, T> {
    isa: Isa,
    /// Where each column's term 0 lies.
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
                // SAFETY: the caller of `panel` or `rows` holds the elements of both sides.
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

/// How many of these terms, at most [`TILE`], lie side by side from the first on.
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

/// In how many runs these terms lie side by side, none longer than [`TILE`].
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

/// What it takes to transpose so many columns of terms that lie in so many runs.
fn transposed_cost<T>(isa: Isa, columns: usize, runs: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    let fast = isa.is_avx512() && size_of::<T>() == 4;
    #[cfg(not(target_arch = "x86_64"))]
    let fast = false;
    let _ = isa;
    columns.div_ceil(TILE) * runs * if fast { FAST_TILE } else { SLOW_TILE }
}

/// Copies some terms of a panel of columns, which lie in so many [runs], one after the other, `width` elements apart.
///
/// # Safety
/// The elements are initialised, and `to` has room for them, apart from them.
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
    // SAFETY: the caller's promise.
    unsafe {
        micro_kernels.copy_pieces(&CopyPieces { terms, at: b.at, term: b.row, pieces: &pieces, to, width })
    }
}

/// Copies some terms of a few rows, which lie in so many [runs], a term's rows side by side.
///
/// # Safety
/// The elements are initialised, and `to` has room for them, apart from them.
pub(super) unsafe fn rows<T: HasMicroKernels>(
    isa: Isa,
    a: &Strided<'_, T>,
    (terms, runs): (Range<usize>, usize),
    rows: Range<usize>,
    to: *mut T,
) {
    let width = rows.len();
    if ELEMENT * width * terms.len() > transposed_cost::<T>(isa, width, runs) {
        let columns: SmallVec<[*const T; TILE]> =
            rows.map(|row| a.at.wrapping_offset(a.row.at(row))).collect();
        return isa.run(Transposed { isa, columns: &columns, terms, term: a.column, to, width });
    }
    for (r, row) in rows.enumerate() {
        for (i, term) in terms.clone().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { to.add(i * width + r).write(a.element(row, term).read()) };
        }
    }
}
