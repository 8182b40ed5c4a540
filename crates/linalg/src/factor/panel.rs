//! What the blocked factorizations share: a panel of columns that is factored on one thread while others
//! update the columns behind it.
//!
//! A factorization goes from the left to the right, a panel at a time. The columns to the right of a panel
//! are cut into blocks, each of which is one task: it is updated by the panel, and the first block, once
//! updated, is the next panel and factored in the same task. So no thread waits for a panel while there is
//! something to update. Nearly all work is products; and as blocks are independent of each other and
//! products' bits do not depend on how they are cut, results are the same bits on any number of threads.

use backend_cpu::dense;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};

use super::Real;

/// Columns of a panel.
pub(super) const PANEL: usize = 32;
/// Columns of a panel that are factored column by column; wider panels are halved.
pub(super) const BASE: usize = 8;
/// Columns of a block begin at multiples of this many from the next panel on: whole micro-tiles of f32 and
/// f64.
const UNIT: usize = 48;
/// Columns of the widest block: its rows of a panel's height stay in a first-level cache.
const WIDEST: usize = 384;
/// Blocks that each thread is given, so that they end at about the same time.
const BLOCKS: usize = 3;

/// A transposed copy: of a panel, column by column.
pub(super) fn transposed<T: Real>(a: ArrayView2<'_, T>) -> Array2<T> {
    let mut to = Array2::default((a.ncols(), a.nrows()));
    dense::assign(a.reversed_axes(), to.view_mut());
    to
}

/// The elements, row by row, as every array that is made here lies.
pub(super) fn elements<T>(a: &mut Array2<T>) -> &mut [T] {
    debug_assert!(a.is_standard_layout());
    a.as_slice_mut().unwrap_or_default()
}

/// Half of so many columns, in multiples of [`BASE`].
pub(super) fn half(columns: usize) -> usize {
    (columns / 2).next_multiple_of(BASE)
}

/// Columns of one task.
pub(super) struct Block<'a, T, N> {
    /// The first column in the matrix that is cut.
    pub(super) first: usize,
    pub(super) columns: ArrayViewMut2<'a, T>,
    /// Where the next panel goes, if these columns are it.
    pub(super) next: Option<&'a mut N>,
}

/// Cuts columns into blocks: the next panel's, if there are any, and those behind it, of a width that suits
/// the threads that there are.
pub(super) fn blocks<'a, T, N>(
    columns: ArrayViewMut2<'a, T>,
    panel: usize,
    next: &'a mut N,
) -> Vec<Block<'a, T, N>> {
    let (columns, rest) = columns.split_at(Axis(1), panel);
    let tasks = dense::available_threads() * BLOCKS;
    let width = rest.ncols().div_ceil(tasks).next_multiple_of(UNIT).min(WIDEST);
    let mut all = Vec::new();
    if panel > 0 {
        all.push(Block { first: 0, columns, next: Some(next) });
    }
    all.extend(blocks_of(rest, width).map(|block| Block { first: panel + block.first, ..block }));
    all
}

/// Cuts columns into blocks of some width.
pub(super) fn blocks_of<'a, T, N: 'a>(
    columns: ArrayViewMut2<'a, T>,
    width: usize,
) -> impl Iterator<Item = Block<'a, T, N>> {
    let (mut rest, mut first) = (Some(columns), 0);
    std::iter::from_fn(move || {
        let (columns, behind) = {
            let rest = rest.take().filter(|rest| rest.ncols() > 0)?;
            let some = width.min(rest.ncols());
            rest.split_at(Axis(1), some)
        };
        rest = Some(behind);
        let block = Block { first, columns, next: None };
        first += block.columns.ncols();
        Some(block)
    })
}
