//! The innermost part of a matrix product: a few rows and a few registers of columns of the result, kept in
//! registers over a whole block of KC terms.
//!
//! Columns are along registers: each term reads a few registers of the right operand and one number a row of
//! the left one, which is spread over a register. The left operand may be contiguous along either of its
//! axes, the right one along its rows. Each element's terms are added in their order whatever micro-tile it
//! is in.
#![allow(unsafe_code)]

use std::hint::black_box;

use super::{
    operands::{MAX_MR, MAX_REGISTERS, Update, mul_add},
    windows::{Run, Strip},
};
use crate::simd::{
    cache::prefetch,
    isa::Job,
    vector::{Float, Vector},
};

/// A micro-kernel's operands. The result's rows are `to_row` numbers apart and its columns side by side, as
/// are those of `b`.
pub(crate) struct MicroTile<T> {
    /// How many terms each sum has.
    pub(crate) terms: usize,
    pub(crate) a: *const T,
    /// From row to row of `a`, if a row's terms are contiguous, and else from term to term, where a term's
    /// rows are.
    pub(crate) a_stride: isize,
    pub(crate) a_along: bool,
    /// Whole registers of columns can be read here, also where the result has fewer.
    pub(crate) b: *const T,
    pub(crate) b_term: isize,
    pub(crate) to: *mut T,
    pub(crate) to_row: usize,
    /// Columns of the result in the last register.
    pub(crate) last: usize,
    pub(crate) update: Update,
}

/// Terms of a panel between two steps of a micro-kernel's loop.
const fn unroll<V: Vector>() -> usize {
    if size_of::<V>() > 16 {
        16 / size_of::<V::Number>()
    } else if cfg!(target_arch = "aarch64") {
        4
    } else if cfg!(target_arch = "wasm32") {
        2
    } else {
        // Few processors have nothing else.
        1
    }
}

/// How a micro-kernel reads the right operand, and where it leaves the sums.
trait Right<V: Vector>: Copy {
    /// Terms between two steps of a micro-kernel's loop.
    const UNROLL: usize;
    /// A register of columns of a term, counted from where this stands.
    ///
    /// # Safety
    /// The columns are there.
    unsafe fn load(self, term: isize, register: usize) -> V;
    fn advanced(self, terms: isize) -> Self;

    /// Whether not all of a register are columns.
    const GAPS: bool = false;

    /// Into how many runs of columns a register's sums are stored.
    #[inline(always)]
    fn runs(self, _register: usize) -> usize {
        1
    }

    /// One of them.
    #[inline(always)]
    fn run(self, tile: &MicroTile<V::Number>, register: usize, registers: usize, _at: usize) -> Run {
        let end = if register + 1 < registers { V::WIDTH } else { tile.last };
        Run { start: 0, end, to: (register * V::WIDTH) as isize }
    }

    /// Stores the sums of a run, or adds them to what is there.
    ///
    /// # Safety
    /// The run's elements are there, number 0 of the register at `to`.
    #[inline(always)]
    unsafe fn store(to: *mut V::Number, run: Run, update: Update, sum: V) {
        // SAFETY: the caller's promise.
        unsafe {
            let sum = match update {
                Update::Set => sum,
                Update::Add => V::load_first(to, run.end) + sum,
                Update::Subtract => V::load_first(to, run.end) - sum,
            };
            sum.store_first(to, run.end);
        }
    }
}

/// Whole registers, a term's side by side.
struct Panel<V: Vector> {
    at: *const V::Number,
    term: isize,
}

/// Where some registers begin, at any places, and the table of terms.
struct InPlace<V: Vector, const N: usize> {
    from: [*const V::Number; N],
    table: *const isize,
}

/// As [`InPlace`], with registers that are not all columns.
struct WithGaps<'a, V: Vector, const N: usize> {
    at: InPlace<V, N>,
    strips: &'a [Strip],
}

impl<V: Vector> Clone for Panel<V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V: Vector> Copy for Panel<V> {}
impl<V: Vector, const N: usize> Clone for InPlace<V, N> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V: Vector, const N: usize> Copy for InPlace<V, N> {}
impl<V: Vector, const N: usize> Clone for WithGaps<'_, V, N> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V: Vector, const N: usize> Copy for WithGaps<'_, V, N> {}

impl<V: Vector> Right<V> for Panel<V> {
    const UNROLL: usize = unroll::<V>();

    #[inline(always)]
    unsafe fn load(self, term: isize, register: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::load(self.at.wrapping_offset(term * self.term).add(register * V::WIDTH)) }
    }

    #[inline(always)]
    fn advanced(self, terms: isize) -> Self {
        Panel { at: self.at.wrapping_offset(terms * self.term), ..self }
    }
}

impl<V: Vector, const N: usize> Right<V> for InPlace<V, N> {
    // More of them, and the sums would not stay in registers beside the places of columns.
    const UNROLL: usize = 1;

    #[inline(always)]
    unsafe fn load(self, term: isize, register: usize) -> V {
        // SAFETY: the caller's promise; the table has all terms.
        unsafe { V::load(self.from[register].wrapping_offset(self.table.wrapping_offset(term).read())) }
    }

    #[inline(always)]
    fn advanced(self, terms: isize) -> Self {
        InPlace { table: self.table.wrapping_offset(terms), ..self }
    }
}

impl<V: Vector, const N: usize> Right<V> for WithGaps<'_, V, N> {
    const UNROLL: usize = InPlace::<V, N>::UNROLL;
    const GAPS: bool = true;

    #[inline(always)]
    unsafe fn load(self, term: isize, register: usize) -> V {
        // SAFETY: the caller's promise.
        unsafe { self.at.load(term, register) }
    }

    #[inline(always)]
    fn advanced(self, terms: isize) -> Self {
        WithGaps { at: self.at.advanced(terms), ..self }
    }

    #[inline(always)]
    fn runs(self, register: usize) -> usize {
        self.strips[register].runs.len()
    }

    #[inline(always)]
    fn run(self, _: &MicroTile<V::Number>, register: usize, _: usize, at: usize) -> Run {
        self.strips[register].runs[at]
    }

    #[inline(always)]
    unsafe fn store(to: *mut V::Number, run: Run, update: Update, sum: V) {
        let Run { start, end, .. } = run;
        let zero = V::splat(V::Number::ZERO);
        // SAFETY: the caller's promise; others are neither read nor written.
        unsafe {
            let sum = match update {
                Update::Set => sum,
                Update::Add => zero.load_rest(to, start, end) + sum,
                Update::Subtract => zero.load_rest(to, start, end) - sum,
            };
            sum.store_rest(to, start, end);
        }
    }
}

/// `ALONG` is whether a row's terms are contiguous, and otherwise a term's rows are.
struct MicroKernel<'a, V: Vector, R, const M: usize, const N: usize, const ALONG: bool>(
    &'a MicroTile<V::Number>,
    R,
);

impl<V: Vector, R: Right<V>, const M: usize, const N: usize, const ALONG: bool> Job
    for MicroKernel<'_, V, R, M, N, ALONG>
{
    type Output = ();
    // Indexed, since sums, rows and columns go by the same numbers; and no closures, which are compiled by
    // themselves.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) {
        let MicroKernel(tile, mut b) = self;
        let mut sums = [[V::splat(V::Number::ZERO); N]; M];
        // Few enough distances for them all to stay in registers: those of eight rows, from two beginnings.
        // A compiler that knew how they depend on each other would compute each address from the one
        // before, a chain as long as the term.
        let s = black_box(tile.a_stride);
        let (s3, s5, s7) =
            (black_box(3 * tile.a_stride), black_box(5 * tile.a_stride), black_box(7 * tile.a_stride));
        let row = [0, s, 2 * s, s3, 4 * s, s5, 2 * s3, s7];
        let mut a = tile.a;
        // The i-th of some terms from a and b on.
        macro_rules! term {
            ($term:expr) => {
                let mut right = [sums[0][0]; N];
                for j in 0..N {
                    // SAFETY: `run`'s caller gives whole registers of columns, as that of `run_windows` does.
                    right[j] = unsafe { b.load($term, j) };
                }
                for i in 0..M {
                    let (row, number) = if !ALONG {
                        (a.wrapping_offset($term * tile.a_stride), i)
                    } else if i < 8 {
                        (a.wrapping_offset(row[i]), $term as usize)
                    } else {
                        (a.wrapping_offset(8 * s + row[i - 8]), $term as usize)
                    };
                    // SAFETY: `run`'s caller gives all rows.
                    let left = V::splat(unsafe { row.add(number).read() });
                    for j in 0..N {
                        sums[i][j] = mul_add(left, right[j], sums[i][j]);
                    }
                }
            };
        }
        let a_term = if ALONG { 1 } else { tile.a_stride };
        for i in 0..M {
            for j in 0..N {
                prefetch::<true, _>(tile.to.wrapping_add(i * tile.to_row + j * V::WIDTH));
            }
        }
        let mut rest = tile.terms;
        let unroll = R::UNROLL;
        if unroll > 1 {
            for _ in 0..tile.terms / unroll {
                let unroll = unroll as isize;
                for i in 0..unroll {
                    term!(i);
                }
                a = a.wrapping_offset(unroll * a_term);
                b = b.advanced(unroll);
            }
            rest %= unroll;
        }
        for _ in 0..rest {
            term!(0);
            a = a.wrapping_offset(a_term);
            b = b.advanced(1);
        }
        // Each by a number that is known here: a loop that the compiler left as one would keep all sums in
        // memory, also while they are formed.
        macro_rules! store {
            ($run:ident, $j:literal: $($i:literal)*) => {$(
                if $i < M {
                    let to = tile.to.wrapping_add($i * tile.to_row).wrapping_offset($run.to);
                    // SAFETY: `run`'s caller gives the result's elements, and runs end where they do.
                    unsafe { R::store(to, $run, tile.update, sums[$i][$j]) };
                }
            )*};
        }
        // The rows of a run one after the other: which columns it has is the same for all.
        macro_rules! store_runs {
            ($($j:literal)*) => {$(
                if $j < N {
                    for at in 0..b.runs($j) {
                        let run = b.run(tile, $j, N, at);
                        store!(run, $j: 0 1 2 3 4 5 6 7 8 9 10 11);
                    }
                }
            )*};
        }
        // A row's registers one after the other, which are contiguous.
        macro_rules! store_row {
            ($i:literal: $($j:literal)*) => {$(
                if $j < N {
                    let run = b.run(tile, $j, N, 0);
                    store!(run, $j: $i);
                }
            )*};
        }
        macro_rules! store_rows {
            ($($i:literal)*) => {$( store_row!($i: 0 1 2); )*};
        }
        const { assert!(M <= MAX_MR && N <= MAX_REGISTERS, "stores name them all") };
        if R::GAPS {
            store_runs!(0 1 2);
        } else {
            store_rows!(0 1 2 3 4 5 6 7 8 9 10 11);
        }
    }
}

/// Rows of some registers, from one place to another where they are contiguous.
struct Copies<V: Vector, const N: usize> {
    rows: usize,
    from: *const V::Number,
    from_row: isize,
    to: *mut V::Number,
}

impl<V: Vector, const N: usize> Job for Copies<V, N> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let (mut from, mut to) = (self.from, self.to);
        for _ in 0..self.rows {
            for j in 0..N {
                // SAFETY: the caller of `MicroKernels::copy` gives whole registers on both sides.
                unsafe {
                    V::load(from.wrapping_add(j * V::WIDTH))
                        .store_first(to.wrapping_add(j * V::WIDTH), V::WIDTH)
                };
            }
            from = from.wrapping_offset(self.from_row);
            to = to.wrapping_add(N * V::WIDTH);
        }
    }
}

/// # Safety
/// As [`super::kernel_table::MicroKernels::copy`].
pub(super) unsafe fn copies<V: Vector, const N: usize>(
    rows: usize,
    from: *const V::Number,
    from_row: isize,
    to: *mut V::Number,
) {
    // SAFETY: a table with this is only given out where the processor has the instruction set.
    unsafe { V::run(Copies::<V, N> { rows, from, from_row, to }) }
}

/// # Safety
/// As [`super::kernel_table::MicroKernels::run`].
pub(super) unsafe fn micro_kernel<V: Vector, const M: usize, const N: usize>(tile: &MicroTile<V::Number>) {
    // SAFETY: a table with these is only given out where the processor has the instruction set.
    unsafe {
        let panel = Panel { at: tile.b, term: tile.b_term };
        match tile.a_along {
            true => V::run(MicroKernel::<V, _, M, N, true>(tile, panel)),
            false => V::run(MicroKernel::<V, _, M, N, false>(tile, panel)),
        }
    }
}

/// # Safety
/// As [`super::kernel_table::MicroKernels::run_windows`].
pub(super) unsafe fn window_kernel<V: Vector, const M: usize, const N: usize>(
    tile: &MicroTile<V::Number>,
    strips: &[Strip],
    table: *const isize,
) {
    let mut from = [tile.b; N];
    for (from, strip) in from.iter_mut().zip(strips) {
        *from = from.wrapping_offset(strip.from);
    }
    let at = InPlace::<V, N> { from, table };
    // SAFETY: a table with these is only given out where the processor has the instruction set.
    unsafe {
        match strips.iter().all(|strip| strip.whole) {
            true => V::run(MicroKernel::<V, _, M, N, false>(tile, at)),
            false => V::run(MicroKernel::<V, _, M, N, false>(tile, WithGaps { at, strips })),
        }
    }
}
