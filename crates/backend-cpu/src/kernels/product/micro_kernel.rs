//! The innermost part of a matrix product: a few rows and a few registers of columns of the result, kept in
//! registers over a whole block of KC terms.
//!
//! Columns are along registers: each term reads a few registers of the right operand and one number a row of
//! the left one, which is spread over a register. The left operand may have any strides; the right one is
//! contiguous along its rows, or is read in place by a table of terms. Each element's terms are added in
//! their order whatever micro-tile it is in.
//!
//! Each combination of rows and registers is a function of its own for each register type, and these are the
//! largest part of what the compiler makes of this crate. Whatever can be a number that is known at run time
//! is one: strides, and where sums are stored.
#![allow(unsafe_code)]

use std::{hint::black_box, ops::Range};

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
    /// From row to row of `a`, and from term to term.
    pub(crate) a_row: isize,
    pub(crate) a_term: isize,
    /// Whole registers of columns can be read here, also where the result has fewer.
    pub(crate) b: *const T,
    pub(crate) b_term: isize,
    pub(crate) to: *mut T,
    pub(crate) to_row: usize,
    /// Columns of the result in the last register.
    pub(crate) last: usize,
    pub(crate) update: Update,
}

impl<T> MicroTile<T> {
    /// The tile without its first rows.
    pub(crate) fn skip_rows(&self, row: usize) -> MicroTile<T> {
        MicroTile {
            a: self.a.wrapping_offset(row as isize * self.a_row),
            to: self.to.wrapping_add(row * self.to_row),
            ..*self
        }
    }
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

/// How a micro-kernel reads the right operand.
trait Right<V: Vector>: Copy {
    /// Terms between two steps of a micro-kernel's loop.
    const UNROLL: usize;
    /// A register of columns of a term, counted from where this stands.
    ///
    /// # Safety
    /// The operand has this term and this register, all of whose numbers can be read.
    unsafe fn load(self, term: isize, register: usize) -> V;
    fn advanced(self, terms: isize) -> Self;
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
impl<V: Vector> Right<V> for Panel<V> {
    const UNROLL: usize = unroll::<V>();

    #[inline(always)]
    unsafe fn load(self, term: isize, register: usize) -> V {
        // SAFETY: a term's registers are side by side from `at` and the term's
        // distance on, and can be read by `# Safety`.
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
        // SAFETY: the operand has this term by `# Safety`, so that `table` has it too,
        // and a register can be read at its distance.
        unsafe { V::load(self.from[register].wrapping_offset(self.table.wrapping_offset(term).read())) }
    }

    #[inline(always)]
    fn advanced(self, terms: isize) -> Self {
        InPlace { table: self.table.wrapping_offset(terms), ..self }
    }
}

struct MicroKernel<'a, V: Vector, R, const M: usize, const N: usize>(&'a MicroTile<V::Number>, R);

impl<V: Vector, R: Right<V>, const M: usize, const N: usize> Job for MicroKernel<'_, V, R, M, N> {
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
        let s = black_box(tile.a_row);
        let (s3, s5, s7) = (black_box(3 * tile.a_row), black_box(5 * tile.a_row), black_box(7 * tile.a_row));
        let row = [0, s, 2 * s, s3, 4 * s, s5, 2 * s3, s7];
        let mut a = tile.a;
        // One term: number `$term` of the right operand from `b` on, and the left one's at `a`.
        macro_rules! term {
            ($term:expr) => {
                let mut right = [sums[0][0]; N];
                for j in 0..N {
                    // SAFETY: `MicroKernels::run` and `run_windows` ask for N whole registers of each term.
                    right[j] = unsafe { b.load($term, j) };
                }
                for i in 0..M {
                    let number = if i < 8 { row[i] } else { 8 * s + row[i - 8] };
                    // SAFETY: `MicroKernels::run` asks for all terms of the rows, of which there are M here.
                    let left = V::splat(unsafe { a.wrapping_offset(number).read() });
                    for j in 0..N {
                        sums[i][j] = mul_add(left, right[j], sums[i][j]);
                    }
                }
                a = a.wrapping_offset(tile.a_term);
            };
        }
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
                b = b.advanced(unroll);
            }
            rest %= unroll;
        }
        for _ in 0..rest {
            term!(0);
            b = b.advanced(1);
        }
        // Each by a number that is known here: a loop that the compiler left as one would keep all sums in
        // memory, also while they are formed.
        macro_rules! store {
            ($i:literal, $j:literal) => {
                if $i < M && $j < N {
                    let to = tile.to.wrapping_add($i * tile.to_row + $j * V::WIDTH);
                    let end = if $j + 1 < N { V::WIDTH } else { tile.last };
                    // SAFETY: `MicroKernels::run` asks for M rows of N registers, the last of `last` numbers.
                    unsafe { update(to, 0..end, tile.update, sums[$i][$j]) };
                }
            };
        }
        // A row's registers one after the other, which are contiguous.
        macro_rules! store_rows {
            ($($i:literal)*) => {$( store!($i, 0); store!($i, 1); store!($i, 2); )*};
        }
        const { assert!(M <= MAX_MR && N <= MAX_REGISTERS, "stores name them all") };
        store_rows!(0 1 2 3 4 5 6 7 8 9 10 11);
    }
}

/// Stores the numbers of a register that `run` says, or adds them to what is there; number 0 belongs at `to`.
///
/// # Safety
/// `run` is not empty, and within a register. Its elements can be written, and read unless `update` is
/// [`Update::Set`]; others are neither read nor written.
#[inline(always)]
unsafe fn update<V: Vector>(to: *mut V::Number, run: Range<usize>, update: Update, sum: V) {
    let Range { start, end } = run;
    // SAFETY: each load and store accesses numbers `start..end` alone, which `# Safety` allows.
    unsafe {
        if start == 0 {
            let sum = match update {
                Update::Set => sum,
                Update::Add => V::load_first(to, end) + sum,
                Update::Subtract => V::load_first(to, end) - sum,
            };
            sum.store_first(to, end);
        } else {
            let there = || V::splat(V::Number::ZERO).load_rest(to, start, end);
            let sum = match update {
                Update::Set => sum,
                Update::Add => there() + sum,
                Update::Subtract => there() - sum,
            };
            sum.store_rest(to, start, end);
        }
    }
}

/// The runs of columns of a micro-tile's sums, stored where they belong. Rows of `strips.len()` registers of
/// sums are one after the other.
struct Runs<'a, V: Vector> {
    sums: *const V::Number,
    rows: usize,
    strips: &'a [Strip],
    tile: &'a MicroTile<V::Number>,
}

impl<V: Vector> Job for Runs<'_, V> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Runs { sums, rows, strips, tile } = self;
        for (j, strip) in strips.iter().enumerate() {
            for &Run { start, end, to } in &strip.runs {
                for i in 0..rows {
                    let to = tile.to.wrapping_add(i * tile.to_row).wrapping_offset(to);
                    // SAFETY: `window_kernel` made a register of sums for each row and strip; runs end where
                    // the result's elements do.
                    unsafe {
                        let sum = V::load(sums.add((i * strips.len() + j) * V::WIDTH));
                        update(to, start..end, tile.update, sum);
                    }
                }
            }
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
                // SAFETY: `MicroKernels::copy` asks for N whole registers of each row on both sides.
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
    let panel = Panel { at: tile.b, term: tile.b_term };
    // SAFETY: a table with this is only given out where the processor has the instruction set.
    unsafe { V::run(MicroKernel::<V, _, M, N>(tile, panel)) }
}

/// Forms the sums of whole registers; [`window_runs`] stores those that have gaps.
///
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
    // SAFETY: a table with this is only given out where the processor has the instruction set.
    unsafe { V::run(MicroKernel::<V, _, M, N>(tile, InPlace { from, table })) }
}

/// # Safety
/// The processor has the register's instruction set; `sums` has a register for each row and strip, and the
/// elements of all runs can be written at the tile's `to` (and read, unless it sets).
pub(super) unsafe fn window_runs<V: Vector>(
    sums: *const V::Number,
    rows: usize,
    strips: &[Strip],
    tile: &MicroTile<V::Number>,
) {
    // SAFETY: the processor has the instruction set, by `# Safety`.
    unsafe { V::run(Runs::<V> { sums, rows, strips, tile }) }
}
