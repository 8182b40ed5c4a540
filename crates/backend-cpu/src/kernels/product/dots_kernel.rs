//! The micro-kernel of a product along its terms: a register holds terms of one row or one column, and each
//! element of a micro-tile is a register of partial sums.
#![allow(unsafe_code)]

use std::ops::Range;

use super::operands::mul_add;
use crate::simd::{
    isa::Job,
    vector::{Float, Vector},
};

/// Rows and columns of a micro-tile: their terms and sums all are in registers, if there are 32.
pub(super) const ROWS: usize = 4;
pub(super) const COLUMNS: usize = 4;

/// Some pairs of registers. The right ones of the first `whole` of them are one run.
pub(super) struct Block {
    pub(super) pairs: Vec<Pair>,
    pub(super) whole: usize,
}

/// A register of terms: its place in the left operand, where it is one run, and in the right one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) lhs: isize,
    pub(super) rhs: Register,
}

/// A register of terms that are read in place: term t is `from + t` from the first place, or `then +
/// t` from term `turn` on, where a second run begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register {
    pub(super) from: isize,
    pub(super) turn: usize,
    pub(super) then: isize,
}

/// A micro-tile of a block of terms: where its rows and columns begin, and the result's first element.
pub(super) struct Tile<'a, T> {
    pub(super) block: &'a Block,
    pub(super) rows: [*const T; ROWS],
    pub(super) columns: [*const T; COLUMNS],
    pub(super) to: *mut T,
    pub(super) to_row: usize,
    /// Whether the sums are added to what is there.
    pub(super) adds: bool,
}

struct Dots<'a, V: Vector, const M: usize, const N: usize>(&'a Tile<'a, V::Number>);

impl<V: Vector, const M: usize, const N: usize> Job for Dots<'_, V, M, N> {
    type Output = ();
    // Indexed, since sums, rows and columns go by the same numbers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) {
        let Dots(tile) = self;
        let Block { pairs, whole } = tile.block;
        let zero = V::splat(V::Number::ZERO);
        let mut sums = [[zero; N]; M];
        // A loop each for registers of one run and of two, so that the sums stay where they are.
        macro_rules! term {
            ($left:expr, $at:ident => $load:expr) => {
                let mut right = [zero; N];
                for j in 0..N {
                    let $at = tile.columns[j];
                    // SAFETY: the function `tile` asks for all terms of the block in N columns.
                    right[j] = unsafe { $load };
                }
                for i in 0..M {
                    // SAFETY: the function `tile` asks for all terms of the block in M rows.
                    let left = unsafe { V::load(tile.rows[i].wrapping_offset($left)) };
                    for j in 0..N {
                        sums[i][j] = mul_add(left, right[j], sums[i][j]);
                    }
                }
            };
        }
        // Not iterators, whose parts are compiled by themselves.
        let Range { start: mut at, end } = pairs.as_ptr_range();
        let whole = at.wrapping_add(*whole);
        while at < whole {
            // SAFETY: `at` is before `whole`, and `Terms::of` made no more whole pairs than pairs.
            let (left, from) = unsafe { ((*at).lhs, (*at).rhs.from) };
            term!(left, column => V::load(column.wrapping_offset(from)));
            at = at.wrapping_add(1);
        }
        while at < end {
            // SAFETY: `at` is before `end`, where the pairs end.
            let Pair { lhs, rhs: Register { from, turn, then } } = unsafe { at.read() };
            term!(lhs, column => V::load_first(column.wrapping_offset(from), turn)
                .load_rest(column.wrapping_offset(then), turn, V::WIDTH));
            at = at.wrapping_add(1);
        }
        // Each by a number that is known here, so that sums stay in registers.
        macro_rules! sum {
            ($i:literal, $j:expr) => {
                if $i < M && $j < N { sums[$i][$j] } else { zero }
            };
        }
        macro_rules! store {
            ($($j:literal)*) => {$(
                if $j < N {
                    let totals = V::totals([
                        sum!(0, $j), sum!(1, $j), sum!(2, $j), sum!(3, $j),
                        sum!(0, $j + 1), sum!(1, $j + 1), sum!(2, $j + 1), sum!(3, $j + 1),
                    ]);
                    for (i, &sum) in totals.iter().enumerate() {
                        let (i, j) = (i % ROWS, $j + i / ROWS);
                        if i < M && j < N {
                            let to = tile.to.wrapping_add(i * tile.to_row + j);
                            // SAFETY: the function `tile` asks for M rows of N results; i < M and j < N.
                            unsafe { to.write(if tile.adds { to.read() + sum } else { sum }) };
                        }
                    }
                }
            )*};
        }
        const { assert!(M <= ROWS && N <= COLUMNS && COLUMNS == 4, "store names them all") };
        store!(0 2);
    }
}

/// Forms a micro-tile's sums.
///
/// # Safety
/// The processor has the register's instruction set. All terms of the block can be read in the tile's first M
/// rows and N columns, and M rows of N results written (and read, if the tile adds).
pub(super) unsafe fn tile<V: Vector, const M: usize, const N: usize>(tile: &Tile<'_, V::Number>) {
    // SAFETY: the processor has the instruction set, by `# Safety`.
    unsafe { V::run(Dots::<V, M, N>(tile)) }
}

/// Micro-kernels by rows, the most first, and by columns: one, or [`COLUMNS`].
pub(super) type Kernels<T> = &'static [(usize, [unsafe fn(&Tile<'_, T>); 2])];
