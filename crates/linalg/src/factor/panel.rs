//! Blocking that the factorizations share: one thread factors a panel of columns while others update the
//! columns behind it.
//!
//! A factorization proceeds from left to right, one panel at a time. The columns to the right of a panel are
//! divided into blocks, each of which is one task: the panel updates it, and the first block, once updated,
//! is the next panel and is factored in the same task. So no thread waits for a panel while there is a block
//! to update. Nearly all work is matrix products. Blocks are independent of each other, and the bits of
//! products do not depend on the division, so results are bitwise the same for any number of threads.

use backend_cpu::dense;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};

use super::Real;

/// The width of a panel, in columns.
pub(super) const PANEL: usize = 32;
/// The width, in columns, up to which a panel is factored column by column; wider panels are halved.
pub(super) const BASE: usize = 8;
/// Blocks begin at multiples of this many columns after the next panel: whole micro-tiles of f32 and f64.
const UNIT: usize = 48;
/// The greatest width of a block, in columns: its part in the rows of a panel fits in the L1 cache.
const WIDEST: usize = 384;
/// Blocks per thread, so that threads finish at about the same time.
const BLOCKS: usize = 3;

/// A transposed copy: for a panel, column-major storage.
pub(super) fn transposed<T: Real>(a: ArrayView2<'_, T>) -> Array2<T> {
    let mut to = Array2::default((a.ncols(), a.nrows()));
    dense::assign(a.reversed_axes(), to.view_mut());
    to
}

/// The elements in row-major order, in which all arrays of this crate are stored.
pub(super) fn elements<T>(a: &mut Array2<T>) -> &mut [T] {
    debug_assert!(a.is_standard_layout());
    a.as_slice_mut().unwrap_or_default()
}

/// Half of this number of columns, rounded up to a multiple of [`BASE`].
pub(super) fn half(columns: usize) -> usize {
    (columns / 2).next_multiple_of(BASE)
}

/// The columns of one task.
pub(super) struct Block<'a, T, N> {
    /// The first column, in the matrix that is divided.
    pub(super) first: usize,
    pub(super) columns: ArrayViewMut2<'a, T>,
    /// Receives the next panel, if these columns are that panel.
    pub(super) next: Option<&'a mut N>,
}

/// Divides columns into blocks: the next panel, if there is one, and the columns behind it, with a width
/// that suits the number of threads.
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

/// Divides columns into blocks of a given width.
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
