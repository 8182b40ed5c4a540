//! The inner loop that packs pieces of a panel's columns, a register at a time.
#![allow(unsafe_code)]

use std::ops::Range;

use super::operands::Steps;
use crate::simd::{isa::Job, vector::Vector};

/// Columns at equal distances of `step` elements, and after them some columns of a second run, at the same
/// distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) from: isize,
    pub(super) step: isize,
    /// The first column, and how many there are in the first run.
    pub(super) to: usize,
    pub(super) count: usize,
    /// How many there are in both; where the first one would be if all were of the second run.
    pub(super) all: usize,
    pub(super) then: isize,
}

/// Copies the pieces of each term.
pub(super) struct CopyPieces<'a, T> {
    pub(super) terms: Range<usize>,
    pub(super) at: *const T,
    pub(super) term: Steps<'a>,
    pub(super) pieces: &'a [Piece],
    pub(super) to: *mut T,
    pub(super) width: usize,
}

/// [`CopyPieces`] as compiled for registers.
pub(super) struct InRegisters<'a, V: Vector>(pub(super) &'a CopyPieces<'a, V::Number>);

impl<V: Vector> Job for InRegisters<'_, V> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let CopyPieces { ref terms, at, term: place, pieces, to, width } = *self.0;
        // A loop over the terms for each kind of piece, in which all masks stay the same.
        for &Piece { from, step, to: column, count, all, then } in pieces {
            let mut to = to.wrapping_add(column);
            let mut term = terms.start;
            macro_rules! each_term {
                ($at:ident => $copy:expr) => {
                    while term < terms.end {
                        let $at = at.wrapping_offset(place.at(term));
                        // SAFETY: `MicroKernels::copy_pieces` asks that the columns of each piece can be read
                        // for each term, and written from `to` on.
                        unsafe { $copy };
                        to = to.wrapping_add(width);
                        term += 1;
                    }
                };
            }
            match step {
                1 if count == V::WIDTH => {
                    each_term!(at => V::load(at.wrapping_offset(from)).store_first(to, V::WIDTH));
                }
                1 if count == all => {
                    each_term!(at => V::load_first(at.wrapping_offset(from), count).store_first(to, count));
                }
                1 => {
                    each_term!(at => V::load_first(at.wrapping_offset(from), count)
                        .load_rest(at.wrapping_offset(then), count, all)
                        .store_first(to, all));
                }
                2 if count == V::WIDTH => {
                    while term < terms.end {
                        let first = at.wrapping_offset(place.at(term) + from);
                        let second = first.wrapping_add(V::WIDTH);
                        // The elements between those of a term are mostly the next term's: both come from
                        // the same registers.
                        let both = term + 1 < terms.end && place.at(term + 1) == place.at(term) + 1;
                        // SAFETY: `copy_pieces` asks for all numbers from the first column to the
                        // last, of each term. With the next term, its last column is the last number
                        // that is read; without it, this term's is.
                        unsafe {
                            let second =
                                if both { V::load(second) } else { V::load_first(second, V::WIDTH - 1) };
                            let [even, odd] = V::load(first).unzip(second);
                            even.store_first(to, V::WIDTH);
                            if both {
                                odd.store_first(to.wrapping_add(width), V::WIDTH);
                            }
                        }
                        let terms = 1 + usize::from(both);
                        to = to.wrapping_add(terms * width);
                        term += terms;
                    }
                }
                2 => {
                    let read = 2 * count - 1;
                    let [first, rest] = [read.min(V::WIDTH), read.saturating_sub(V::WIDTH)];
                    each_term!(at => {
                        let at = at.wrapping_offset(from);
                        let even = V::load_first(at, first);
                        let next = match rest {
                            0 => even,
                            rest => V::load_first(at.wrapping_add(V::WIDTH), rest),
                        };
                        even.unzip(next)[0].store_first(to, count);
                    });
                }
                step => {
                    each_term!(at => for i in 0..count {
                        to.add(i).write(at.wrapping_offset(from + i as isize * step).read());
                    });
                }
            }
        }
    }
}
