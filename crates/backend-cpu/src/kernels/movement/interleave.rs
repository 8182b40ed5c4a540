//! Interleaves two to four tensors that are stacked along a new last axis. The output is written in one
//! pass; a copy for each tensor would write every cache line of the output several times, a few bytes at a
//! time.
#![allow(unsafe_code)]

use std::{cmp::min, ops::Range};

use smallvec::SmallVec;
use tensor_core::{Collapsed, Launch, Layout, collapse};

use crate::{
    forms::Special,
    memory::{buffer::Memory, lines::Walk, strided::Shared},
    simd::isa::{Isa, Job, Sets},
    threads,
    tuning::INTERLEAVED_ROW_GRAIN,
};

/// Rows that are brought together before they are written.
const ROWS: usize = 64;

/// Writes the output if it has this form, and returns whether it did.
///
/// # Safety
/// The operands' and the regions' layouts are within these memories, all of one dtype. Each operand has its
/// region's shape, and the output is not an input.
pub(super) unsafe fn interleaved(
    isa: Isa,
    regions: &[Layout],
    launch: &Launch<'_>,
    inputs: &[Memory],
    out: Memory,
) -> bool {
    let (shape, operands) = (&launch.kernel.outputs[0].shape, &launch.kernel.operands);
    let Some((&columns, lead)) = shape.dims().split_last() else { return false };
    let plain = shape.contiguous_strides();
    let is_column = |(column, region): (usize, &Layout)| {
        let dims = region.shape().dims();
        let axes = || dims.iter().zip(region.strides()).zip(&plain).take(lead.len());
        region.offset() == column
            && dims.split_last() == Some((&1, lead))
            && axes().all(|((&n, own), plain)| n == 1 || own == plain)
    };
    let numel = shape.numel();
    let fits =
        regions.len() == columns && operands.iter().all(|operand| operand.layout.numel() * columns == numel);
    if !Special::Interleaved.is_on()
        || numel < columns * ROWS
        || !fits
        || !regions.iter().enumerate().all(is_column)
    {
        return false;
    }
    let strides: SmallVec<[&[isize]; 4]> =
        operands.iter().map(|operand| &operand.layout.strides()[..lead.len()]).collect();
    let rows = collapse(lead, &strides);
    if rows.shape.last().is_none_or(|&n| n < ROWS / 2) {
        return false;
    }
    macro_rules! go {
        ($t:ty, $columns:literal) => {{
            let of = Stacked::<$t, $columns> {
                isa,
                rows: &rows,
                from: std::array::from_fn(|c| Shared(inputs[c].at::<$t>(operands[c].layout.offset()))),
                to: Shared(out.at::<$t>(0)),
            };
            let count = numel / $columns;
            match count < 2 * INTERLEAVED_ROW_GRAIN {
                true => of.range(0..count),
                false => threads::share_ranges(count, ROWS, |range| of.range(range)),
            }
            true
        }};
    }
    match (out.dtype.size(), columns) {
        (4, 2) => go!(u32, 2),
        (4, 3) => go!(u32, 3),
        (4, 4) => go!(u32, 4),
        (8, 2) => go!(u64, 2),
        (8, 3) => go!(u64, 3),
        (8, 4) => go!(u64, 4),
        _ => false,
    }
}

/// `C` tensors of one shape; `rows` has the axes, with strides for each tensor.
struct Stacked<'a, T, const C: usize> {
    isa: Isa,
    rows: &'a Collapsed,
    from: [Shared<T>; C],
    to: Shared<T>,
}

impl<T: Copy + Default, const C: usize> Stacked<'_, T, C> {
    /// Writes some rows, counted over all axes, from lines along the last axis.
    fn range(&self, range: Range<usize>) {
        let Collapsed { shape, strides } = self.rows;
        let (Some(&length), lead) = (shape.last(), &shape[..shape.len().saturating_sub(1)]) else { return };
        let mut walks: [Walk<'_>; C] =
            std::array::from_fn(|c| Walk::new(lead, &strides[c][..lead.len()], range.start / length));
        let along: [isize; C] = std::array::from_fn(|c| strides[c][lead.len()]);
        let mut row = range.start;
        while row < range.end {
            let (skip, count) = (row % length, min(length - row % length, range.end - row));
            let from = std::array::from_fn(|c| {
                self.from[c].at(walks[c].offset + skip as isize * along[c]).cast_const()
            });
            self.isa.narrow().run(InterleavedRows {
                rows: count,
                from,
                along,
                to: self.to.at((row * C) as isize),
            });
            walks.iter_mut().for_each(Walk::next);
            row += count;
        }
    }
}

/// Rows of `C` elements; each tensor's line has its own stride.
struct InterleavedRows<T, const C: usize> {
    rows: usize,
    from: [*const T; C],
    along: [isize; C],
    to: *mut T,
}

impl<T: Copy + Default, const C: usize> Job for InterleavedRows<T, C> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let mut columns = [[T::default(); ROWS]; C];
        for first in (0..self.rows).step_by(ROWS) {
            let count = min(ROWS, self.rows - first);
            for ((column, from), &along) in columns.iter_mut().zip(self.from).zip(&self.along) {
                let from = from.wrapping_offset(first as isize * along);
                // SAFETY: `interleaved` makes the rows from the operands' layouts, which are within the
                // inputs by its `# Safety`; `first + count` is at most `rows`.
                unsafe {
                    match along {
                        // The column is already filled with the one element.
                        0 if first > 0 => {}
                        0 => column.fill(from.read()),
                        1 if count == ROWS => *column = from.cast::<[T; ROWS]>().read_unaligned(),
                        _ => {
                            for (i, place) in column.iter_mut().enumerate().take(count) {
                                *place = from.offset(i as isize * along).read();
                            }
                        }
                    }
                }
            }
            let to = self.to.wrapping_add(first * C);
            macro_rules! write {
                ($count:expr) => {
                    for i in 0..$count {
                        for (c, column) in columns.iter().enumerate() {
                            // SAFETY: the output has `C` elements for each of its rows, and each row
                            // belongs to one thread.
                            unsafe { to.add(i * C + c).write(column[i]) };
                        }
                    }
                };
            }
            // A count known at compile time makes the loop vectorise.
            if count == ROWS { write!(ROWS) } else { write!(count) }
        }
    }
}
