//! The inner loops of a product of a vector and a matrix: rows of the matrix are added to the results, or
//! each result is summed along a column, whichever axis is contiguous.
#![allow(unsafe_code)]

use super::operands::{Matrix, mul_add};
use crate::simd::{
    isa::Job,
    vector::{Float, Vector},
};

/// Rows added at once.
const ROWS: usize = 8;
/// Accumulators side by side in a sum along memory.
pub(super) const LANES: usize = 32;

/// A product with a matrix whose rows are contiguous: `y` gets its own columns, of the rows that `x` has.
pub(super) struct Gemv<'a, T, const FUSED: bool> {
    pub(super) x: &'a [T],
    pub(super) a: Matrix<T>,
    pub(super) y: &'a mut [T],
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
                // SAFETY: `gemv::run` makes `a` of as many rows as `x` has and as many columns as `y` has.
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

/// A product with a matrix whose columns are contiguous: one sum for each of `y`.
pub(super) struct Dots<'a, T> {
    pub(super) x: &'a [T],
    pub(super) a: Matrix<T>,
    pub(super) y: &'a mut [T],
}

/// [`Dots`] in registers: `D` columns at once, each with sums that fill `R` registers.
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
                // SAFETY: the loops below read at most `k` numbers, as many as `x` has.
                let left = unsafe { $load };
                for c in 0..C {
                    let $from = columns[c];
                    // SAFETY: `dots` asks for columns of as many contiguous numbers as `x` has.
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

/// Columns whose sums are in registers at once, if this many registers of this width hold sums: no more
/// than `totals` takes.
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
/// columns as there are sums, all of them initialised, and its rows are 1 apart.
pub(super) unsafe fn dots<V: Vector, const R: usize, const D: usize>(dots: Dots<'_, V::Number>) {
    // SAFETY: the processor has the instruction set, by `# Safety`.
    unsafe { V::run(InRegisters::<V, R, D>(dots)) }
}
