//! Products and copies of matrices that are in memory already, for crates with algorithms of their own over
//! them: see [`crate::dense`].
#![allow(unsafe_code)]

use ndarray::{ArrayView2, ArrayViewMut2};

use super::{
    batch::{MR, grid},
    gemm::Product,
    kernel_table::HasMicroKernels,
    operands::{Steps, Strided, Update, WIDEST},
};
use crate::{
    memory::strided,
    simd::isa::Isa,
    threads::{self, part},
    tuning::MICRO_KERNEL_GRAIN,
};

/// C = A·B, C + A·B or C − A·B, on all threads that are free where that is worth it.
///
/// # Panics
/// Sizes that do not fit, or a C of which neither rows nor columns are contiguous.
pub(crate) fn gemm<T: HasMicroKernels>(
    isa: Isa,
    update: Update,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    c: ArrayViewMut2<'_, T>,
) {
    let ([m, k], [terms, n]) = (size(a.shape()), size(b.shape()));
    assert!(k == terms && size(c.shape()) == [m, n], "{:?} · {:?} → {:?}", a.dim(), b.dim(), c.dim());
    if m == 0 || n == 0 || (k == 0 && update != Update::Set) {
        return;
    }
    let rows_lie = n == 1 || c.strides()[1] == 1;
    if !rows_lie {
        assert!(m == 1 || c.strides()[0] == 1, "strides {:?} of a result", c.strides());
        return gemm(isa, update, b.reversed_axes(), a.reversed_axes(), c.reversed_axes());
    }
    let mut c = c;
    let product = Product {
        n,
        k,
        a: strided(&a),
        b: strided(&b),
        to: c.as_mut_ptr(),
        // One row has no distance to the next. A view that may be written has strides of one sign, which
        // are 0 along an axis of one position.
        to_row: if m == 1 { n } else { usize::try_from(c.strides()[0]).unwrap_or(0) },
        update,
        prepared: None,
    };
    assert!(product.to_row > 0, "strides {:?} of a result", c.strides());
    let threads = threads::worth(m * n * k, MICRO_KERNEL_GRAIN);
    let (down, across) = grid([m, n], threads, [MR, WIDEST], |rows, columns| product.cost(rows, columns));
    threads::share(down * across, |i| {
        let (rows, columns) = (part(m, MR, down, i / across), part(n, WIDEST, across, i % across));
        // SAFETY: the views hold these elements, those of the result alone; rectangles are apart.
        let done = unsafe { product.run(isa, rows, columns, None) };
        // Only what finishes a product fails.
        debug_assert!(done.is_ok());
    });
}

fn size(shape: &[usize]) -> [usize; 2] {
    [shape[0], shape[1]]
}

fn strided<'a, T>(view: &ArrayView2<'a, T>) -> Strided<'a, T> {
    let &[row, column] = view.strides() else { unreachable!("a view of two axes") };
    Strided { at: view.as_ptr(), row: Steps::Even(row), column: Steps::Even(column) }
}

/// Copies a matrix, on all threads that are free where that is worth it.
///
/// # Panics
/// Two sizes.
pub(crate) fn assign<T: Copy + Default + Send + Sync>(
    isa: Isa,
    from: ArrayView2<'_, T>,
    mut to: ArrayViewMut2<'_, T>,
) {
    assert_eq!(from.dim(), to.dim(), "a copy between two sizes");
    let (at, strides) = (to.as_mut_ptr(), [to.strides()[0], to.strides()[1]]);
    // SAFETY: the views hold these elements, those of the target alone.
    unsafe { strided::copy(isa, from.shape(), from.as_ptr(), from.strides(), at, &strides) };
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, ShapeBuilder, s};

    use super::*;

    /// Every update, in every layout of every operand, with the elements round the result left alone.
    #[test]
    fn products_of_views_update_their_rectangle_alone() {
        let number = |i: usize, j: usize| ((i * 31 + j * 17) % 23) as f64 - 11.0;
        for isa in Isa::available() {
            for (m, k, n) in [(1, 1, 1), (5, 3, 1), (1, 4, 9), (13, 0, 6), (40, 33, 50), (20, 400, 18)] {
                for form in 0..8 {
                    let lay = |bit: usize, rows: usize, columns: usize| {
                        let shape = (rows + 2, columns + 3).set_f(form >> bit & 1 == 1);
                        Array2::from_shape_fn(shape, |(i, j)| number(i, j + bit))
                    };
                    let (a, b, before) = (lay(0, m, k), lay(1, k, n), lay(2, m, n));
                    let (a, b) = (a.slice(s![1..=m, 2..k + 2]), b.slice(s![1..=k, 2..n + 2]));
                    for update in [Update::Set, Update::Add, Update::Subtract] {
                        let mut found = before.clone();
                        gemm(isa, update, a, b, found.slice_mut(s![1..=m, 2..n + 2]));
                        for ((i, j), &found) in found.indexed_iter() {
                            let old = before[(i, j)];
                            let inside = (1..=m).contains(&i) && (2..n + 2).contains(&j);
                            let sum =
                                |i: usize, j: usize| -> f64 { (0..k).map(|x| a[(i, x)] * b[(x, j)]).sum() };
                            let expected = match update {
                                _ if !inside => old,
                                Update::Set => sum(i - 1, j - 2),
                                Update::Add => old + sum(i - 1, j - 2),
                                Update::Subtract => old - sum(i - 1, j - 2),
                            };
                            assert!(
                                (found - expected).abs() < 1e-9,
                                "{update:?} {m} {k} {n} {form} at {i}, {j}"
                            );
                        }
                    }
                }
            }
        }
    }
}
