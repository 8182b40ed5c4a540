//! The Cholesky factorization: right-looking by panels, each panel recursively by halves. Only the lower
//! triangle is read.

use std::ops::Range;

use backend_cpu::dense::{self, Job, Update};
use ndarray::{Array2, ArrayViewMut2, Axis, s};

use super::{
    Real, loops,
    panel::{BASE, PANEL, blocks, elements, half, transposed},
};

/// A factored panel of L in both orders; elements above the diagonal are undefined.
struct Panel<T> {
    columns: Array2<T>,
    rows: Array2<T>,
}

/// The index of a pivot that is not positive.
type Pivot = usize;

impl<T: Real> Panel<T> {
    /// Factors columns in place.
    fn of(mut columns: ArrayViewMut2<'_, T>) -> Result<Panel<T>, Pivot> {
        let mut work = transposed(columns.view());
        let width = work.nrows();
        factor(&mut work, 0..width)?;
        let rows = transposed(work.view());
        columns.assign(&rows);
        Ok(Panel { columns: work, rows })
    }
}

/// Overwrites A's lower triangle with L, where A = L·Lᵀ.
///
/// # Errors
/// The first pivot that is not positive.
pub(super) fn cholesky<T: Real>(mut a: ArrayViewMut2<'_, T>) -> Result<(), Pivot> {
    let n = a.nrows();
    let mut panel = Panel::of(a.slice_mut(s![.., ..PANEL.min(n)]))?;
    let mut first = 0;
    while first + PANEL < n {
        let end = first + PANEL;
        let mut made = None;
        let rest = a.slice_mut(s![end.., end..]);
        dense::share(blocks(rest, PANEL.min(n - end), &mut made), |block| {
            let (start, columns) = (block.first, block.columns.ncols());
            let mut lower = block.columns.split_at(Axis(0), start).1;
            let rows = panel.rows.slice(s![PANEL + start.., ..]);
            let right = panel.columns.slice(s![.., PANEL + start..]);
            T::gemm(Update::Subtract, rows, right.slice(s![.., ..columns]), lower.view_mut());
            if let Some(next) = block.next {
                *next = Some(Panel::of(lower));
            }
        });
        match made {
            Some(Ok(next)) => panel = next,
            Some(Err(pivot)) => return Err(end + pivot),
            None => {}
        }
        first = end;
    }
    Ok(())
}

/// Factors columns of a panel that is stored column-major.
fn factor<T: Real>(panel: &mut Array2<T>, columns: Range<usize>) -> Result<(), Pivot> {
    if columns.len() <= BASE {
        let height = panel.ncols();
        return dense::run(Columns { panel: elements(panel), height, columns });
    }
    let middle = columns.start + half(columns.len());
    factor(panel, columns.start..middle)?;
    let (left, right) = panel.view_mut().split_at(Axis(0), middle);
    let left = left.slice_move(s![columns.start.., middle..]);
    let right = right.slice_move(s![..columns.end - middle, middle..]);
    let across = left.slice(s![.., ..right.nrows()]).reversed_axes();
    T::gemm(Update::Subtract, across, left.view(), right);
    factor(panel, middle..columns.end)
}

/// Factors columns of a panel one by one.
struct Columns<'a, T> {
    panel: &'a mut [T],
    height: usize,
    columns: Range<usize>,
}

impl<T: Real> Job for Columns<'_, T> {
    type Output = Result<(), Pivot>;
    #[inline(always)]
    fn run(self) -> Result<(), Pivot> {
        let Columns { panel, height, columns } = self;
        for j in columns.clone() {
            let (left, right) = panel.split_at_mut((j + 1) * height);
            let column = &mut left[j * height..];
            let square = column[j];
            // A NaN pivot is not positive.
            if square.partial_cmp(&T::default()) != Some(std::cmp::Ordering::Greater) {
                return Err(j);
            }
            column[j] = square.root();
            let (pivot, below) = column.split_at_mut(j + 1);
            loops::divide(below, pivot[j]);
            for (i, other) in right.chunks_exact_mut(height).take(columns.end - j - 1).enumerate() {
                let c = j + 1 + i;
                let factor = below[i];
                loops::subtract(&mut other[c..], factor, &below[i..]);
            }
        }
        Ok(())
    }
}
