//! Triangular systems with many right-hand sides: the triangle is halved until it is small, so that nearly
//! all work is matrix products.

use backend_cpu::dense::{self, Update};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};

use super::{Real, loops::Substitute, panel};

/// The greatest size of a triangle that is solved row by row.
const ROW_BY_ROW_MAX_SIZE: usize = 32;

/// The triangle that is read, and whether its diagonal is implied to be 1.
#[derive(Clone, Copy)]
pub(super) struct Triangle {
    pub(super) upper: bool,
    pub(super) unit: bool,
}

/// Solves T·X = B in place. Threads share blocks of columns.
pub(super) fn solve<T: Real>(t: ArrayView2<'_, T>, triangle: Triangle, x: ArrayViewMut2<'_, T>) {
    if t.nrows() <= ROW_BY_ROW_MAX_SIZE {
        return halves(t, triangle, x);
    }
    dense::share(panel::blocks(x, 0, &mut ()), |block| halves(t, triangle, block.columns));
}

/// [`solve`] for one block.
pub(super) fn halves<T: Real>(t: ArrayView2<'_, T>, triangle: Triangle, x: ArrayViewMut2<'_, T>) {
    let n = t.nrows();
    if n <= ROW_BY_ROW_MAX_SIZE {
        return small(t, triangle, x);
    }
    let half = (n / 2).next_multiple_of(ROW_BY_ROW_MAX_SIZE);
    let (top, bottom) = t.split_at(Axis(0), half);
    let ((above, across), (below, behind)) = (top.split_at(Axis(1), half), bottom.split_at(Axis(1), half));
    let (mut first, mut last) = x.split_at(Axis(0), half);
    if triangle.upper {
        halves(behind, triangle, last.view_mut());
        T::gemm(Update::Subtract, across, last.view(), first.view_mut());
        halves(above, triangle, first);
    } else {
        halves(above, triangle, first.view_mut());
        T::gemm(Update::Subtract, below, first.view(), last.view_mut());
        halves(behind, triangle, last);
    }
}

fn small<T: Real>(t: ArrayView2<'_, T>, Triangle { upper, unit }: Triangle, mut x: ArrayViewMut2<'_, T>) {
    let (order, columns) = x.dim();
    let packed = t.as_standard_layout();
    let triangle = packed.as_slice().unwrap_or_default();
    let solve = |x: &mut [T]| dense::run(Substitute { triangle, order, x, columns, upper, unit });
    if let Some(x) = x.as_slice_mut() {
        return solve(x);
    }
    let mut rows: Array2<T> = x.to_owned();
    solve(panel::elements(&mut rows));
    x.assign(&rows);
}
