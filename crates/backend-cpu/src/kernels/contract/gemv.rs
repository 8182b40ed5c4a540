//! A vector times a matrix: y[j] = Σᵢ x[i]·a[i][j]. Each element of the matrix is read once, so the memory sets the pace: it is
//! walked in order, whichever of its axes lies closest.
//!
//! Sums are cut at the same places on any number of threads, so results are the same bits.
#![allow(unsafe_code)]

use smallvec::SmallVec;

use crate::{
    simd::{
        isa::{Isa, Job, Plain, Sets},
        vector::Float,
    },
    threads,
};

/// Terms of a sum in one piece; longer sums are added up from pieces.
const PIECE: usize = 1 << 15;
/// Multiplications that are worth a thread.
const GRAIN: usize = 1 << 16;
/// Columns in a task begin at multiples of this.
const COLUMNS: usize = 64;
/// Rows added at once.
const ROWS: usize = 8;
/// Accumulators side by side in a sum along memory, and columns summed at once.
const LANES: usize = 32;
const DOTS: usize = 4;

/// A matrix in memory, `a[i][j]` at `i · row + j · column`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub(crate) at: *const T,
    pub(crate) row: isize,
    pub(crate) column: isize,
}

// SAFETY: a place in memory that is only read; `run` says how much of it there is.
unsafe impl<T: Sync> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Matrix<T> {}

impl<T> Matrix<T> {
    pub(crate) fn element(&self, i: usize, j: usize) -> *const T {
        self.at.wrapping_offset(i as isize * self.row + j as isize * self.column)
    }
}

/// Gemv of a product: `y` gets its own columns, of the rows that `x` has.
struct Gemv<'a, T, const FUSED: bool> {
    x: &'a [T],
    a: Matrix<T>,
    y: &'a mut [T],
}

#[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
impl<T: Float, const FUSED: bool> Gemv<'_, T, FUSED> {
    /// Adds `R` rows from row `i` on to the results.
    #[inline(always)]
    fn rows<const R: usize>(&mut self, i: usize) {
        let (mut rows, mut x) = ([self.a.at; R], [T::ZERO; R]);
        for r in 0..R {
            (rows[r], x[r]) = (self.a.element(i + r, 0), self.x[i + r]);
        }
        for (j, y) in self.y.iter_mut().enumerate() {
            let mut sum = *y;
            for r in 0..R {
                // SAFETY: `run`'s caller gives the matrix all of these.
                sum = x[r].fma::<FUSED>(unsafe { rows[r].add(j).read() }, sum);
            }
            *y = sum;
        }
    }

    /// The results of `D` columns from column `j` on.
    #[inline(always)]
    fn dots<const D: usize>(&mut self, j: usize) {
        let mut columns = [self.a.at; D];
        for d in 0..D {
            columns[d] = self.a.element(0, j + d);
        }
        let mut sums = [[T::ZERO; LANES]; D];
        let (chunks, rest) = self.x.as_chunks::<LANES>();
        for (c, x) in chunks.iter().enumerate() {
            for d in 0..D {
                // SAFETY: as above; the chunk ends within the column.
                let a: [T; LANES] =
                    unsafe { columns[d].add(c * LANES).cast::<[T; LANES]>().read_unaligned() };
                let mut sum = sums[d];
                for l in 0..LANES {
                    sum[l] = x[l].fma::<FUSED>(a[l], sum[l]);
                }
                sums[d] = sum;
            }
        }
        for d in 0..D {
            let sums = &mut sums[d];
            for (l, &x) in rest.iter().enumerate() {
                // SAFETY: as above.
                sums[l] = x.fma::<FUSED>(unsafe { columns[d].add(chunks.len() * LANES + l).read() }, sums[l]);
            }
            let mut width = LANES / 2;
            while width > 0 {
                for l in 0..width {
                    sums[l] = sums[l] + sums[l + width];
                }
                width /= 2;
            }
            self.y[j + d] = sums[0];
        }
    }
}

impl<T: Float, const FUSED: bool> Job for Gemv<'_, T, FUSED> {
    type Output = ();
    #[inline(always)]
    fn run(mut self) {
        let (rows, columns) = (self.x.len(), self.y.len());
        if self.a.column == 1 {
            self.y.fill(T::ZERO);
            // Loops, not closures: a closure that is not inlined is compiled without the instruction set.
            let mut i = 0;
            while i + ROWS <= rows {
                self.rows::<ROWS>(i);
                i += ROWS;
            }
            while i < rows {
                self.rows::<1>(i);
                i += 1;
            }
        } else {
            let mut j = 0;
            while j + DOTS <= columns {
                self.dots::<DOTS>(j);
                j += DOTS;
            }
            while j < columns {
                self.dots::<1>(j);
                j += 1;
            }
        }
    }
}

/// `y = x·a`, for `x` with the stride `x_stride`.
///
/// # Safety
/// `x` has `k` elements, `a` is `k` by `y.len()`, all initialised, and one of its strides is 1; `y` lies apart from both.
pub(crate) unsafe fn run<T: Float>(
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
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(x, k) }
    } else {
        // SAFETY: the caller's promise.
        spread = (0..k as isize).map(|i| unsafe { x.wrapping_offset(i * x_stride).read() }).collect();
        &spread
    };
    let n = y.len();
    let part = |piece: usize, first: usize, y: &mut [T]| {
        let rows = piece * PIECE..k.min((piece + 1) * PIECE);
        let a = Matrix { at: a.element(rows.start, first), ..a };
        let x = &x[rows];
        match isa.fused() {
            Some(fused) => fused.run(Gemv::<T, true> { x, a, y }),
            None => Plain.run(Gemv::<T, false> { x, a, y }),
        }
    };
    let pieces = k.div_ceil(PIECE).max(1);
    let threads = threads::worth(n * k, GRAIN);
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
