//! LU of small matrices, of which a batch has many. Rows are padded to whole registers.

use backend_cpu::dense::{self, Job};

use super::{Real, loops};

/// The greatest number of rows and columns that is factored here.
pub(super) const MAX_SIZE: usize = 32;

/// Factors a row-major matrix with `columns` columns in place; the row exchanges are written to `swaps`.
pub(super) fn factor<T: Real>(a: &mut [T], rows: usize, columns: usize, swaps: &mut [usize]) {
    match rows.max(columns) {
        ..=8 => dense::run(Small::<T, 8> { a, rows, columns, swaps }),
        9..=16 => dense::run(Small::<T, 16> { a, rows, columns, swaps }),
        _ => dense::run(Small::<T, MAX_SIZE> { a, rows, columns, swaps }),
    }
}

/// A matrix with at most `N` rows and columns.
struct Small<'a, T, const N: usize> {
    a: &'a mut [T],
    rows: usize,
    columns: usize,
    swaps: &'a mut [usize],
}

#[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
impl<T: Real, const N: usize> Job for Small<'_, T, N> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Small { a, rows: m, columns: n, swaps } = self;
        let mut rows = [[T::default(); N]; N];
        for (row, from) in rows.iter_mut().zip(a.chunks_exact(n)) {
            row[..n].copy_from_slice(from);
        }
        for j in 0..m.min(n) {
            let mut column = [T::default(); N];
            for i in j..m {
                column[i] = rows[i][j];
            }
            let pivot = j + loops::pivot(&column[j..m]);
            swaps[j] = pivot;
            if pivot != j {
                rows.swap(j, pivot);
            }
            let upper = rows[j];
            let pivot = upper[j];
            // A column of zeros has no pivot; the factorization continues.
            if pivot == T::default() {
                continue;
            }
            let inverse = loops::reciprocal(pivot);
            for i in j + 1..m {
                let row = &mut rows[i];
                let factor = match inverse {
                    Some(inverse) => row[j] * inverse,
                    None => row[j] / pivot,
                };
                for l in 0..N {
                    let rest = row[l] - factor * upper[l];
                    let kept = if l < j { row[l] } else { factor };
                    row[l] = if l > j { rest } else { kept };
                }
            }
        }
        for (row, to) in rows.iter().zip(a.chunks_exact_mut(n)) {
            to.copy_from_slice(&row[..n]);
        }
    }
}
