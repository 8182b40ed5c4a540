//! A vector times a matrix: y[j] = Σᵢ x[i]·a[i][j]. Each element of the matrix is read once, so the memory
//! sets the pace: it is walked in order, whichever of its axes lies closest.
//!
//! Sums are cut at the same places on any number of threads, so results are the same bits.
#![allow(unsafe_code)]

use smallvec::SmallVec;

use super::micro_kernel::{HasMicroKernels, mul_add};
use crate::{
    simd::{
        isa::{Isa, Job, Plain, Sets},
        vector::{Float, Vector},
    },
    threads,
    tuning::{ELEMENT_GRAIN, GEMV_PIECE_TERMS},
};

/// Columns in a task begin at multiples of this.
const COLUMNS: usize = 64;
/// Rows added at once.
const ROWS: usize = 8;
/// Accumulators side by side in a sum along memory.
pub(super) const LANES: usize = 32;

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

/// A product with a matrix whose rows lie along memory: `y` gets its own columns, of the rows that `x` has.
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
}

impl<T: Float, const FUSED: bool> Job for Gemv<'_, T, FUSED> {
    type Output = ();
    #[inline(always)]
    fn run(mut self) {
        self.y.fill(T::ZERO);
        let rows = self.x.len();
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
    }
}

/// A product with a matrix whose columns lie along memory: one sum for each of `y`.
pub(crate) struct Dots<'a, T> {
    x: &'a [T],
    a: Matrix<T>,
    y: &'a mut [T],
}

/// [`Dots`] in registers: `D` columns at once, of each so many sums side by side as fill `R` registers.
struct InRegisters<'a, V: Vector, const R: usize, const D: usize>(Dots<'a, V::Number>);

#[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
impl<V: Vector, const R: usize, const D: usize> InRegisters<'_, V, R, D> {
    /// The results of `C` columns from column `j` on.
    #[inline(always)]
    fn columns<const C: usize>(&mut self, j: usize) {
        let Dots { x, a, y } = &mut self.0;
        let zero = V::splat(V::Number::ZERO);
        let mut columns = [a.at; C];
        for c in 0..C {
            columns[c] = a.element(0, j + c);
        }
        let mut sums = [[zero; R]; C];
        macro_rules! add {
            ($r:expr, |$from:ident| $load:expr) => {
                let $from = x.as_ptr();
                // SAFETY: `run`'s caller gives all of the vector and of these columns.
                let left = unsafe { $load };
                for c in 0..C {
                    let $from = columns[c];
                    // SAFETY: as above.
                    sums[c][$r] = mul_add(left, unsafe { $load }, sums[c][$r]);
                }
            };
        }
        let (k, mut at) = (x.len(), 0);
        while at + LANES <= k {
            for r in 0..R {
                add!(r, |from| V::load(from.wrapping_add(at + r * V::WIDTH)));
            }
            at += LANES;
        }
        let mut r = 0;
        while at < k {
            let n = V::WIDTH.min(k - at);
            add!(r, |from| V::load_first(from.wrapping_add(at), n));
            at += n;
            r += 1;
        }
        // The same halves of the sums are added whatever the size of a register.
        let mut width = R;
        while width > 1 {
            width /= 2;
            for c in 0..C {
                for r in 0..width {
                    sums[c][r] = sums[c][r] + sums[c][r + width];
                }
            }
        }
        let mut lines = [zero; 8];
        for c in 0..C {
            lines[c] = sums[c][0];
        }
        y[j..j + C].copy_from_slice(&V::totals(lines)[..C]);
    }
}

impl<V: Vector, const R: usize, const D: usize> Job for InRegisters<'_, V, R, D> {
    type Output = ();
    #[inline(always)]
    fn run(mut self) {
        const { assert!(R * V::WIDTH == LANES && D <= 8, "the registers hold the sums, and `totals` takes eight") };
        let (mut j, columns) = (0, self.0.y.len());
        while j + D <= columns {
            self.columns::<D>(j);
            j += D;
        }
        while j < columns {
            self.columns::<1>(j);
            j += 1;
        }
    }
}

/// Columns whose sums are in registers at once, of registers of this width: so many registers of sums, and no
/// more than `totals` takes.
pub(super) const fn columns(registers: usize, width: usize) -> usize {
    match registers * width / LANES {
        0 => 1,
        1..8 => registers * width / LANES,
        _ => 8,
    }
}

/// Forms the sums.
///
/// # Safety
/// The processor has the register's instruction set; the matrix has as many rows as the vector and as many
/// columns as there are sums.
pub(super) unsafe fn dots<V: Vector, const R: usize, const D: usize>(dots: Dots<'_, V::Number>) {
    // SAFETY: the caller's promise.
    unsafe { V::run(InRegisters::<V, R, D>(dots)) }
}

/// `y = x·a`, for `x` with the stride `x_stride`.
///
/// # Safety
/// `x` has `k` elements, `a` is `k` by `y.len()`, all initialised, and one of its strides is 1; `y` lies
/// apart from both.
pub(crate) unsafe fn run<T: HasMicroKernels>(
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
    let (n, kernels) = (y.len(), T::micro_kernels(isa));
    let part = |piece: usize, first: usize, y: &mut [T]| {
        let rows = piece * GEMV_PIECE_TERMS..k.min((piece + 1) * GEMV_PIECE_TERMS);
        let a = Matrix { at: a.element(rows.start, first), ..a };
        let x = &x[rows];
        match isa.fused() {
            // SAFETY: the micro-kernels are those of the processor; the rest is the caller's promise.
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
