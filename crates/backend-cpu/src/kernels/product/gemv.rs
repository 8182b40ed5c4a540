//! A vector times a matrix: y[j] = Σᵢ x[i]·a[i][j]. Each element of the matrix is read once, so the memory
//! sets the pace: it is walked in the order of its axis of unit stride.
//!
//! Sums are cut at the same places on any number of threads, so results are the same bits.
#![allow(unsafe_code)]

use smallvec::SmallVec;

use super::{
    gemv_kernel::{Dots, Gemv},
    kernel_table::HasMicroKernels,
    operands::{Matrix, Strided},
};
use crate::{
    simd::isa::{Isa, Plain, Sets},
    threads,
    tuning::{ELEMENT_GRAIN, GEMV_PIECE_TERMS},
};

/// Columns in a task begin at multiples of this.
const COLUMNS: usize = 64;

/// `y = x·a`, for `x` with the stride `x_stride`.
///
/// # Safety
/// `x` has `k` elements, `a` is `k` by `y.len()`, all initialised, and one of its strides is 1; `y`
/// overlaps neither.
unsafe fn run<T: HasMicroKernels>(
    isa: Isa,
    x: *const T,
    x_stride: isize,
    k: usize,
    a: Matrix<T>,
    y: &mut [T],
) {
    debug_assert!(a.row == 1 || a.column == 1, "no axis of the matrix has unit stride");
    if k == 0 {
        return y.fill(T::ZERO);
    }
    let spread: SmallVec<[T; 64]>;
    let x: &[T] = if x_stride == 1 {
        // SAFETY: `x` has `k` elements by `# Safety`, which follow each other at a stride of 1.
        unsafe { std::slice::from_raw_parts(x, k) }
    } else {
        // SAFETY: `i` is below `k`, the number of elements of `x` by `# Safety`.
        spread = (0..k as isize).map(|i| unsafe { x.wrapping_offset(i * x_stride).read() }).collect();
        &spread
    };
    let (n, kernels) = (y.len(), T::micro_kernels(isa));
    let part = |piece: usize, first: usize, y: &mut [T]| {
        let rows = piece * GEMV_PIECE_TERMS..k.min((piece + 1) * GEMV_PIECE_TERMS);
        let a = Matrix { at: a.element(rows.start, first), ..a };
        let x = &x[rows];
        match isa.fused() {
            // SAFETY: the kernels are those of `isa`. By `# Safety` the matrix has these rows and columns,
            // and where columns are not 1 apart, rows are.
            _ if a.column != 1 => unsafe { (kernels.dots_of_columns)(Dots { x, a, y }) },
            Some(fused) => fused.run(Gemv::<T, true> { x, a, y }),
            None => Plain.run(Gemv::<T, false> { x, a, y }),
        }
    };
    let pieces = k.div_ceil(GEMV_PIECE_TERMS).max(1);
    let threads = threads::worth(n * k, ELEMENT_GRAIN);
    let width = n.div_ceil(threads.div_ceil(pieces)).next_multiple_of(COLUMNS);
    if pieces == 1 {
        if width >= n {
            return part(0, 0, y);
        }
        return threads::share_chunks(y, width, |i, y| part(0, i * width, y));
    }
    let mut partial = vec![T::ZERO; pieces * n];
    let mut tasks: Vec<(usize, usize, &mut [T])> = partial
        .chunks_mut(n)
        .enumerate()
        .flat_map(|(piece, y)| y.chunks_mut(width).enumerate().map(move |(i, y)| (piece, i * width, y)))
        .collect();
    if threads == 1 {
        tasks.into_iter().for_each(|(piece, first, y)| part(piece, first, y));
    } else {
        threads::share_chunks(&mut tasks, 1, |_, one| {
            one.iter_mut().for_each(|(piece, first, y)| part(*piece, *first, y));
        });
    }
    y.copy_from_slice(&partial[..n]);
    for piece in partial[n..].chunks(n) {
        y.iter_mut().zip(piece).for_each(|(y, &p)| *y = *y + p);
    }
}

/// A product with a vector, as [`run`] walks its matrix: the vector, the distance of its elements, and the
/// matrix, transposed if the vector is the right operand.
pub(super) struct VectorProduct<T> {
    x: *const T,
    step: isize,
    matrix: Matrix<T>,
}

impl<T> VectorProduct<T> {
    /// A product with one row or one column, if an axis of the matrix has unit stride.
    pub(super) fn of(m: usize, n: usize, a: &Strided<'_, T>, b: &Strided<'_, T>) -> Option<VectorProduct<T>> {
        let walks = |matrix: &Matrix<T>| matrix.row == 1 || matrix.column == 1;
        if m == 1
            && let (Some(step), Some(matrix)) = (a.column.even(), b.matrix().filter(walks))
        {
            return Some(VectorProduct { x: a.at, step, matrix });
        }
        if n == 1
            && let (Some(step), Some(matrix)) = (b.row.even(), a.matrix().filter(walks))
        {
            let matrix = Matrix { at: matrix.at, row: matrix.column, column: matrix.row };
            return Some(VectorProduct { x: b.at, step, matrix });
        }
        None
    }
}

impl<T: HasMicroKernels> VectorProduct<T> {
    /// Forms the results, which are contiguous.
    ///
    /// # Safety
    /// As [`run`], with `k` terms and `results` results from `to` on, which nothing else accesses meanwhile.
    pub(super) unsafe fn run(&self, isa: Isa, k: usize, to: *mut T, results: usize) {
        // SAFETY: `results` results are at `to` for this call alone, by `# Safety`, which covers the rest of
        // `run`'s; `VectorProduct::of` took a matrix with an axis of unit stride.
        unsafe { run(isa, self.x, self.step, k, self.matrix, std::slice::from_raw_parts_mut(to, results)) }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operands::Steps, *};

    #[test]
    fn vectors_walk_matrices_with_an_axis_of_unit_stride() {
        let x = [0f32; 64];
        let table: Vec<isize> = vec![0, 2, 3, 7];
        let strided = |row, column| Strided { at: x.as_ptr(), row, column };
        let even = |row, column| strided(Steps::Even(row), Steps::Even(column));
        let row = |a, b| VectorProduct::of(1, 5, &a, &b).is_some_and(|vector| vector.step == 3);
        assert!(row(even(0, 3), even(5, 1)) && row(even(0, 3), even(1, 4)));
        // Neither axis of the matrix has unit stride, and terms at uneven distances.
        assert!(!row(even(0, 3), even(10, 2)));
        assert!(!row(strided(Steps::Even(0), Steps::Table(&table)), even(5, 1)));
        let column = VectorProduct::of(5, 1, &even(4, 1), &even(2, 0));
        assert!(column.is_some_and(|v| [v.step, v.matrix.row, v.matrix.column] == [2, 1, 4]));
        assert!(VectorProduct::of(5, 5, &even(4, 1), &even(5, 1)).is_none());
    }
}
