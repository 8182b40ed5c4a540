//! LU with partial pivoting: right-looking by panels, each panel recursively by halves (Toledo 1997).

use std::ops::Range;

use backend_cpu::dense::{self, Job, Update};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};

use super::{
    Real,
    loops::{self, Substitute},
    panel::{BASE, Block, PANEL, blocks, blocks_of, elements, half, transposed},
    small,
    triangular::{self, Triangle},
};

/// The factorization P·A = L·U.
pub(super) struct Lu<T> {
    /// L below the diagonal, without its unit diagonal, and U.
    factors: Array2<T>,
    /// Row i was exchanged with row `swaps[i]`, in order of i.
    swaps: Vec<usize>,
}

/// A factored panel: L row-major, and the panel's row that each leading row was exchanged with.
struct Panel<T> {
    rows: Array2<T>,
    swaps: Vec<usize>,
}

impl<T: Real> Panel<T> {
    fn none() -> Panel<T> {
        Panel { rows: Array2::default((0, 0)), swaps: Vec::new() }
    }

    /// Factors columns in place.
    fn of(mut columns: ArrayViewMut2<'_, T>) -> Panel<T> {
        let mut work = transposed(columns.view());
        let mut swaps = vec![0; columns.ncols()];
        factor(&mut work, 0..columns.ncols(), &mut swaps);
        let rows = transposed(work.view());
        columns.assign(&rows);
        Panel { rows, swaps }
    }

    /// Updates columns to the right of this panel, from the panel's first row on.
    fn update(&self, mut columns: ArrayViewMut2<'_, T>) {
        swap_rows(columns.view_mut(), &self.swaps);
        let width = self.swaps.len();
        let (mut above, below) = columns.split_at(Axis(0), width);
        let (top, rest) = self.rows.view().split_at(Axis(0), width);
        let mut u: Array2<T> = above.to_owned();
        let n = u.ncols();
        let (triangle, x) = (top.to_slice().unwrap_or_default(), elements(&mut u));
        dense::run(Substitute { triangle, order: width, x, columns: n, upper: false, unit: true });
        above.assign(&u);
        T::gemm(Update::Subtract, rest, u.view(), below);
    }
}

/// Exchanges row i with row `swaps[i]` ≥ i, in order of i.
fn swap_rows<T>(mut columns: ArrayViewMut2<'_, T>, swaps: &[usize]) {
    for (i, &other) in swaps.iter().enumerate().filter(|&(i, &other)| i != other) {
        let (upper, lower) = columns.view_mut().split_at(Axis(0), other);
        let rows = (upper.index_axis_move(Axis(0), i), lower.index_axis_move(Axis(0), 0));
        if let (Some(a), Some(b)) = (rows.0.into_slice(), rows.1.into_slice()) {
            a.swap_with_slice(b);
        }
    }
}

/// Factors columns of a panel that is stored column-major.
fn factor<T: Real>(panel: &mut Array2<T>, columns: Range<usize>, swaps: &mut [usize]) {
    if columns.len() <= BASE {
        let height = panel.ncols();
        dense::run(Columns { panel: elements(panel), height, columns, swaps });
        return;
    }
    let middle = columns.start + half(columns.len());
    factor(panel, columns.start..middle, swaps);
    let height = panel.ncols();
    dense::run(Above { panel: elements(panel), height, columns: columns.start..middle, end: columns.end });
    let (left, right) = panel.view_mut().split_at(Axis(0), middle);
    let left = left.slice_move(s![columns.start.., middle..]);
    let (u, below) = right.slice_move(s![..columns.end - middle, ..]).split_at(Axis(1), middle);
    T::gemm(Update::Subtract, u.slice(s![.., columns.start..]), left.view(), below);
    factor(panel, middle..columns.end, swaps);
}

/// Updates the pivot rows of later columns, up to the column `end`, from these columns of a panel.
struct Above<'a, T> {
    panel: &'a mut [T],
    height: usize,
    columns: Range<usize>,
    end: usize,
}

impl<T: Real> Job for Above<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Above { panel, height, columns, end } = self;
        let (left, right) = panel.split_at_mut(columns.end * height);
        for column in right.chunks_exact_mut(height).take(end - columns.end) {
            for k in columns.clone() {
                let (upper, lower) = column.split_at_mut(k + 1);
                let l = &left[k * height + k + 1..k * height + columns.end];
                loops::subtract(&mut lower[..l.len()], upper[k], l);
            }
        }
    }
}

/// Factors columns of a panel one by one.
struct Columns<'a, T> {
    panel: &'a mut [T],
    height: usize,
    columns: Range<usize>,
    swaps: &'a mut [usize],
}

impl<T: Real> Job for Columns<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Columns { panel, height, columns, swaps } = self;
        for j in columns.clone() {
            let pivot = j + loops::pivot(&panel[j * height + j..][..height - j]);
            swaps[j] = pivot;
            if pivot != j {
                for column in panel.chunks_exact_mut(height) {
                    column.swap(j, pivot);
                }
            }
            let (left, right) = panel.split_at_mut((j + 1) * height);
            let column = &mut left[j * height + j..];
            let (pivot, below) = column.split_at_mut(1);
            // A column of zeros has no pivot; the factorization continues.
            if pivot[0] == T::default() {
                continue;
            }
            loops::divide(below, pivot[0]);
            for other in right.chunks_exact_mut(height).take(columns.end - j - 1) {
                let factor = other[j];
                loops::subtract(&mut other[j + 1..], factor, below);
            }
        }
    }
}

impl<T: Real> Lu<T> {
    /// U and the row exchanges. Rows of L are exchanged only within each panel.
    pub(super) fn upper(a: ArrayView2<'_, T>) -> Lu<T> {
        let (n, k) = (a.ncols(), a.nrows().min(a.ncols()));
        let mut factors = a.to_owned();
        if a.nrows().max(n) <= small::MAX_SIZE && k > 0 {
            let mut swaps = vec![0; k];
            small::factor(elements(&mut factors), a.nrows(), n, &mut swaps);
            return Lu { factors, swaps };
        }
        let mut swaps = Vec::with_capacity(k);
        let mut panel = Panel::of(factors.slice_mut(s![.., ..PANEL.min(k)]));
        let mut first = 0;
        while first < k {
            let end = first + panel.swaps.len();
            swaps.extend(panel.swaps.iter().map(|&other| first + other));
            let next = PANEL.min(k - end);
            let mut made = Panel::none();
            if end < n {
                let rest = factors.slice_mut(s![first.., end..]);
                dense::share(blocks(rest, next, &mut made), |mut block| {
                    panel.update(block.columns.view_mut());
                    if let Some(next) = block.next {
                        *next = Panel::of(block.columns.slice_mut(s![end - first.., ..]));
                    }
                });
            }
            (first, panel) = (end, made);
        }
        Lu { factors, swaps }
    }

    /// The factorization P·A = L·U.
    pub(super) fn new(a: ArrayView2<'_, T>) -> Lu<T> {
        let Lu { mut factors, swaps } = Lu::upper(a);
        // Applies the exchanges of later panels to the rows of each panel.
        if swaps.iter().enumerate().any(|(i, &other)| i != other) {
            let mut panels = Vec::new();
            let (mut rest, mut end) = (factors.view_mut(), 0);
            while end + PANEL < swaps.len() {
                let (columns, behind) = rest.split_at(Axis(1), PANEL);
                (rest, end) = (behind, end + PANEL);
                panels.push((end, columns));
            }
            dense::share(panels, |(end, columns)| {
                let later: Vec<usize> = swaps[end..].iter().map(|&other| other - end).collect();
                swap_rows(columns.split_at(Axis(0), end).1, &later);
            });
        }
        Lu { factors, swaps }
    }

    /// L below the diagonal, without its unit diagonal, and U.
    pub(super) fn factors(&self) -> ArrayView2<'_, T> {
        self.factors.view()
    }

    pub(super) fn pivots(&self) -> impl Iterator<Item = T> + '_ {
        self.factors.diag().into_iter().copied()
    }

    /// Whether the determinant of P is −1.
    pub(super) fn is_odd(&self) -> bool {
        self.swaps.iter().enumerate().filter(|&(i, &other)| i != other).count() % 2 == 1
    }

    /// For each row i of P·A, the row of A.
    pub(super) fn rows(&self) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.factors.nrows()).collect();
        self.swaps.iter().enumerate().for_each(|(i, &other)| rows.swap(i, other));
        rows
    }

    /// Writes L `[m, k]` and U `[k, n]`.
    pub(super) fn write(&self, mut l: ArrayViewMut2<'_, T>, mut u: ArrayViewMut2<'_, T>) {
        let k = self.swaps.len();
        for (i, row) in self.factors.rows().into_iter().enumerate() {
            let split = i.min(k);
            l.slice_mut(s![i, ..split]).assign(&row.slice(s![..split]));
            if i < k {
                l[(i, i)] = T::ONE;
                u.slice_mut(s![i, i..]).assign(&row.slice(s![i..]));
            }
        }
    }

    /// Solves A·X = B in place, for square A.
    pub(super) fn solve(&self, mut x: ArrayViewMut2<'_, T>) {
        swap_rows(x.view_mut(), &self.swaps);
        triangular::solve(self.factors.view(), LOWER, x.view_mut());
        triangular::solve(self.factors.view(), UPPER, x);
    }

    /// Writes A⁻¹ to X, which is zero: U⁻¹·L⁻¹ with its columns permuted. A block of columns of L⁻¹ is zero
    /// above its diagonal block.
    pub(super) fn invert(&self, mut x: ArrayViewMut2<'_, T>) {
        let factors = self.factors.view();
        // Blocks of equal width: the division into blocks determines the order of summation.
        let all: Vec<Block<'_, T, ()>> = blocks_of(x.view_mut(), WIDTH).collect();
        dense::share(all, |mut block| {
            let mut below = block.columns.slice_mut(s![block.first.., ..]);
            below.diag_mut().fill(T::ONE);
            triangular::halves(factors.slice(s![block.first.., block.first..]), LOWER, below);
            triangular::halves(factors, UPPER, block.columns);
        });
        let places = self.rows();
        if places.iter().enumerate().any(|(i, &place)| i != place) {
            let rows = x.axis_chunks_iter_mut(Axis(0), ROWS).collect();
            dense::share(rows, |mut rows: ArrayViewMut2<'_, T>| {
                for row in rows.rows_mut() {
                    let before = row.to_owned();
                    let Some(row) = row.into_slice() else { continue };
                    places.iter().zip(&before).for_each(|(&place, &value)| row[place] = value);
                }
            });
        }
    }
}

/// Columns of an inverse in one task.
const WIDTH: usize = 96;
/// Rows of an inverse whose elements are permuted in one task.
const ROWS: usize = 64;
pub(super) const LOWER: Triangle = Triangle { upper: false, unit: true };
pub(super) const UPPER: Triangle = Triangle { upper: true, unit: false };
