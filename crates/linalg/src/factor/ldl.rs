//! The LDLᵀ factorization of symmetric indefinite matrices with the pivoting of Bunch and Kaufman (1977),
//! column by column as LAPACK's `sytf2`. Only the lower triangle is read.

use ndarray::{ArrayViewMut2, s};

use super::Real;
use crate::outcome::{Fault, Outcome};

/// The size of the diagonal block that starts at row k, and the row that its last row is exchanged with.
fn choose<T: Real>(a: &ArrayViewMut2<'_, T>, k: usize) -> (usize, usize) {
    // (1 + √17) / 8, which bounds the growth of elements.
    let share = T::of((1.0 + 17f64.sqrt()) / 8.0);
    let n = a.nrows();
    let own = a[(k, k)].magnitude();
    let (mut most, mut row) = (T::default(), k);
    for i in k + 1..n {
        let size = a[(i, k)].magnitude();
        if size > most {
            (most, row) = (size, i);
        }
    }
    // A NaN is taken as pivot, so that it propagates.
    if own >= share * most || own.wide().is_nan() {
        return (1, k);
    }
    let mut beside = T::default();
    for j in (k..n).filter(|&j| j != row) {
        let size = a[if j < row { (row, j) } else { (j, row) }].magnitude();
        beside = if size > beside { size } else { beside };
    }
    if own >= share * most * (most / beside) {
        (1, k)
    } else if a[(row, row)].magnitude() >= share * beside {
        (1, row)
    } else {
        (2, row)
    }
}

/// Exchanges rows and columns `i` and `j`, i < j, in the part from k on.
fn exchange<T: Real>(a: &mut ArrayViewMut2<'_, T>, k: usize, i: usize, j: usize) {
    (j + 1..a.nrows()).for_each(|row| a.swap((row, i), (row, j)));
    (i + 1..j).for_each(|row| a.swap((row, i), (j, row)));
    a.swap((i, i), (j, j));
    if i > k {
        a.swap((i, k), (j, k));
    }
}

/// Overwrites A's lower triangle with D and L below it. `pivots[k]` is the row, counted from 1, that row k
/// was exchanged with, and for both rows of a block of two the negative of the row that the second was
/// exchanged with.
pub(super) fn factor<T: Real>(a: &mut ArrayViewMut2<'_, T>, pivots: &mut [T]) {
    let n = a.nrows();
    let mut k = 0;
    while k < n {
        let (width, row) = choose(a, k);
        let last = k + width - 1;
        if row != last {
            exchange(a, k, last, row);
        }
        let place = T::of((row + 1) as f64);
        pivots[k..=last].fill(if width == 1 { place } else { -place });
        if width == 1 {
            let pivot = a[(k, k)];
            if pivot != T::default() {
                for i in k + 1..n {
                    let factor = a[(i, k)] / pivot;
                    for j in k + 1..=i {
                        let above = a[(j, k)];
                        a[(i, j)] -= factor * above;
                    }
                }
                a.slice_mut(s![k + 1.., k]).mapv_inplace(|x| x / pivot);
            }
        } else {
            let across = a[(k + 1, k)];
            let (first, second) = (a[(k, k)] / across, a[(k + 1, k + 1)] / across);
            let scale = T::ONE / (first * second - T::ONE) / across;
            for j in k + 2..n {
                let (x, y) = (a[(j, k)], a[(j, k + 1)]);
                let (l, m) = (scale * (second * x - y), scale * (first * y - x));
                for i in j..n {
                    let (x, y) = (a[(i, k)], a[(i, k + 1)]);
                    a[(i, j)] -= x * l + y * m;
                }
                (a[(j, k)], a[(j, k + 1)]) = (l, m);
            }
        }
        k += width;
    }
}

/// The row that a pivot refers to, and whether its block has two rows.
fn place<T: Real>(pivots: &[T], k: usize) -> Result<(usize, bool), Fault> {
    let pivot = pivots[k].wide();
    let row = pivot.abs() - 1.0;
    if row >= 0.0 && row < pivots.len() as f64 {
        return Ok((row as usize, pivot < 0.0));
    }
    Err(Fault::Malformed(format!(
        "pivot {pivot} of a matrix with {} rows: give those of ldl_factor",
        pivots.len()
    )))
}

/// Solves A·X = B in place, from the results of [`factor`].
pub(super) fn solve<T: Real>(
    ld: &ndarray::ArrayView2<'_, T>,
    pivots: &[T],
    mut x: ArrayViewMut2<'_, T>,
) -> Outcome {
    let (n, columns) = x.dim();
    let mut k = 0;
    while k < n {
        let (row, is_pair) = place(pivots, k)?;
        let width = if is_pair && k + 1 < n { 2 } else { 1 };
        let last = k + width - 1;
        for c in 0..columns {
            x.swap((last, c), (row, c));
            for i in k + width..n {
                for j in k..=last {
                    let known = ld[(i, j)] * x[(j, c)];
                    x[(i, c)] -= known;
                }
            }
            if width == 1 {
                x[(k, c)] /= ld[(k, k)];
            } else {
                let across = ld[(last, k)];
                let (upper, lower) = (ld[(k, k)] / across, ld[(last, last)] / across);
                let rest = upper * lower - T::ONE;
                let (first, second) = (x[(k, c)] / across, x[(last, c)] / across);
                x[(k, c)] = (lower * first - second) / rest;
                x[(last, c)] = (upper * second - first) / rest;
            }
        }
        k += width;
    }
    while k > 0 {
        let (row, is_pair) = place(pivots, k - 1)?;
        let width = if is_pair && k > 1 { 2 } else { 1 };
        for c in 0..columns {
            for j in k - width..k {
                for i in k..n {
                    let known = ld[(i, j)] * x[(i, c)];
                    x[(j, c)] -= known;
                }
            }
            x.swap((k - 1, c), (row, c));
        }
        k -= width;
    }
    Ok(())
}
