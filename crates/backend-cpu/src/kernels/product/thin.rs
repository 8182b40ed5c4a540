//! Products over windows with few results a batch position: one row (a depthwise convolution), or a few
//! elements of many terms (its weight's gradient). Packing panels would cost more than the products.
#![allow(unsafe_code)]

use super::gemm::Product;
use crate::simd::{
    isa::{Isa, Job, Plain, Sets},
    vector::Float,
};

/// Terms that are added in one pass over the columns: as many as a window of three by three has, or fewer.
const TERMS: usize = 9;
const FEW_TERMS: usize = 3;
/// Columns that are summed at once in a run: then half of them, then one.
const WIDTH: usize = 16;
/// Accumulators side by side in a sum along memory, and columns that are summed at once.
const LANES: usize = 8;
const COLUMNS: usize = 4;

/// One row of results, whose columns are in runs: each begins where `runs` says, and the last number is their
/// end.
struct Row<'a, T, const FUSED: bool> {
    product: Product<'a, T>,
    runs: &'a [usize],
}

#[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
impl<T: Float, const FUSED: bool> Row<'_, T, FUSED> {
    /// `R` terms from term `i` on, summed for the columns of all runs: added to what is there if there were
    /// terms before.
    ///
    /// # Safety
    /// As [`row`]; there are `R` terms from term `i` on.
    #[inline(always)]
    unsafe fn terms<const R: usize>(&self, i: usize) {
        let p = &self.product;
        let (mut first, mut x) = ([p.b.at; R], [T::ZERO; R]);
        // SAFETY: `row` asks for all terms of all columns, of which `R` are from `i` on; those of a run are
        // contiguous, and `j` and the columns that are summed with it stay below its length `n`.
        unsafe {
            // No closures: they are compiled by themselves, without the instruction set that this is for.
            for r in 0..R {
                first[r] = p.b.at.wrapping_offset(p.b.row.at(i + r));
                x[r] = p.a.element(0, i + r).read();
            }
            for run in self.runs.windows(2) {
                let (start, n) = (run[0], run[1] - run[0]);
                let (along, y) = (p.b.column.at(start), p.to.add(start));
                let mut from = first;
                for r in 0..R {
                    from[r] = first[r].wrapping_offset(along);
                }
                let mut j = 0;
                while j + WIDTH <= n {
                    Self::columns::<R, WIDTH>(&x, &from, j, y, i > 0);
                    j += WIDTH;
                }
                if j + WIDTH / 2 <= n {
                    Self::columns::<R, { WIDTH / 2 }>(&x, &from, j, y, i > 0);
                    j += WIDTH / 2;
                }
                while j < n {
                    Self::columns::<R, 1>(&x, &from, j, y, i > 0);
                    j += 1;
                }
            }
        }
    }

    /// The sums of `W` columns from column `j` of a run on, whose terms begin at `from` each.
    ///
    /// # Safety
    /// From element `j` on, `W` elements of each term can be read, and `W` results from `to` on written (and
    /// read, if there are `more` terms).
    #[inline(always)]
    unsafe fn columns<const R: usize, const W: usize>(
        x: &[T; R],
        from: &[*const T; R],
        j: usize,
        to: *mut T,
        more: bool,
    ) {
        // SAFETY: each array is of the `W` elements from element `j` on, which `# Safety` allows.
        unsafe {
            let to = to.add(j).cast::<[T; W]>();
            let mut sums = if more { to.read_unaligned() } else { [T::ZERO; W] };
            for r in 0..R {
                let term = from[r].add(j).cast::<[T; W]>().read_unaligned();
                for l in 0..W {
                    sums[l] = x[r].fma::<FUSED>(term[l], sums[l]);
                }
            }
            to.write_unaligned(sums);
        }
    }
}

impl<T: Float, const FUSED: bool> Job for Row<'_, T, FUSED> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        // SAFETY: `row` asks for all `k` terms, and no call takes terms after the last.
        unsafe {
            let mut i = 0;
            while i + TERMS <= self.product.k {
                self.terms::<TERMS>(i);
                i += TERMS;
            }
            while i + FEW_TERMS <= self.product.k {
                self.terms::<FEW_TERMS>(i);
                i += FEW_TERMS;
            }
            while i < self.product.k {
                self.terms::<1>(i);
                i += 1;
            }
        }
    }
}

/// The one row of a product whose columns are in `runs`.
///
/// # Safety
/// The product has one row. The operands' elements are initialised, the results can be written, no other
/// thread reads or writes them, and they do not overlap the operands; `runs` ascends from 0 to the number of
/// columns, and those of a run are contiguous.
pub(crate) unsafe fn row<T: Float>(isa: Isa, product: Product<'_, T>, runs: &[usize]) {
    match isa.fused() {
        Some(fused) => fused.run(Row::<T, true> { product, runs }),
        None => Plain.run(Row::<T, false> { product, runs }),
    }
}

/// Each result by itself: terms are in runs of `run`, which are contiguous in both operands.
struct Dots<'a, T, const FUSED: bool> {
    product: Product<'a, T>,
    m: usize,
    run: usize,
}

#[allow(clippy::needless_range_loop)] // several arrays go by the same numbers
impl<T: Float, const FUSED: bool> Dots<'_, T, FUSED> {
    /// The results of `D` columns from column `j` on.
    ///
    /// # Safety
    /// As [`dots`]; `i` is below `m`, and there are `D` columns from column `j` on.
    #[inline(always)]
    unsafe fn columns<const D: usize>(&self, i: usize, j: usize) {
        let p = &self.product;
        let mut sums = [[T::ZERO; LANES]; D];
        let mut term = 0;
        while term < p.k {
            let a = p.a.element(i, term);
            let mut b = [p.b.at; D];
            for d in 0..D {
                b[d] = p.b.element(term, j + d);
            }
            let whole = self.run / LANES * LANES;
            let mut at = 0;
            // SAFETY: `dots` asks that `run` terms from this one on are contiguous in both operands; `at`,
            // and the `LANES` elements that are read at once, stay below `run`.
            unsafe {
                while at < whole {
                    let x: [T; LANES] = a.add(at).cast::<[T; LANES]>().read_unaligned();
                    for d in 0..D {
                        let y: [T; LANES] = b[d].add(at).cast::<[T; LANES]>().read_unaligned();
                        let mut sum = sums[d];
                        for l in 0..LANES {
                            sum[l] = x[l].fma::<FUSED>(y[l], sum[l]);
                        }
                        sums[d] = sum;
                    }
                    at += LANES;
                }
                while at < self.run {
                    let x = a.add(at).read();
                    for d in 0..D {
                        sums[d][at - whole] = x.fma::<FUSED>(b[d].add(at).read(), sums[d][at - whole]);
                    }
                    at += 1;
                }
            }
            term += self.run;
        }
        for (d, sums) in sums.iter_mut().enumerate() {
            let mut width = LANES / 2;
            while width > 0 {
                for l in 0..width {
                    sums[l] = sums[l] + sums[l + width];
                }
                width /= 2;
            }
            // SAFETY: row `i` and column `j + d` exist by `# Safety`, and `dots` asks for all results.
            unsafe { p.to.add(i * p.n + j + d).write(sums[0]) };
        }
    }
}

impl<T: Float, const FUSED: bool> Job for Dots<'_, T, FUSED> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for i in 0..self.m {
            let mut j = 0;
            // SAFETY: `dots` asks for `m` rows and `n` columns; `i` stays below
            // `m`, and `j` plus the columns below `n`.
            unsafe {
                while j + COLUMNS <= self.product.n {
                    self.columns::<COLUMNS>(i, j);
                    j += COLUMNS;
                }
                while j < self.product.n {
                    self.columns::<1>(i, j);
                    j += 1;
                }
            }
        }
    }
}

/// All results of a product of `m` rows whose terms are contiguous in both operands, `run` at a time.
///
/// # Safety
/// The operands' elements are initialised; the results, whose rows follow each other, can be written, no
/// other thread reads or writes them, and they do not overlap the operands. From each multiple of `run` on,
/// `run` terms are contiguous in both operands, and `run` divides the number of terms.
pub(crate) unsafe fn dots<T: Float>(isa: Isa, product: Product<'_, T>, m: usize, run: usize) {
    match isa.fused() {
        Some(fused) => fused.run(Dots::<T, true> { product, m, run }),
        None => Plain.run(Dots::<T, false> { product, m, run }),
    }
}
