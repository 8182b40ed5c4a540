//! The innermost part of a matrix product: a few rows and a few registers of columns of the result, kept in
//! registers over a whole block of KC terms.
//!
//! Columns lie along registers: each term reads a few registers of the right operand and one number a row of
//! the left one, which is spread over a register. The left operand may lie along either of its axes, the
//! right one along its rows. Each element's terms are added in their order whatever micro-tile it is in.
#![allow(unsafe_code)]

use std::hint::black_box;

use super::{
    dots, gemv,
    tables::{CopyPieces, InRegisters},
    windows::{Run, Strip},
    winograd::Transforms,
};
use crate::simd::{
    cache::prefetch,
    isa::{Isa, Job},
    vector::{self, Float, Vector},
};

/// The most rows and registers of columns of any micro-tile.
pub(crate) const MAX_MR: usize = 12;
pub(crate) const MAX_REGISTERS: usize = 3;

/// A micro-kernel's operands. The result's rows are `to_row` numbers apart and its columns side by side, as
/// are those of `b`.
pub(crate) struct MicroTile<T> {
    /// How many terms each sum has.
    pub(crate) terms: usize,
    pub(crate) a: *const T,
    /// From row to row of `a`, if a row's terms lie side by side, and else from term to term, where a term's
    /// rows do.
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

/// What becomes of the sums of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// They are written in place of what is there.
    Set,
    /// They are added to it.
    Add,
    /// They are subtracted from it.
    Subtract,
}

impl Update {
    /// [`Update::Add`] if it is so, and else [`Update::Set`].
    pub(crate) fn adds(adds: bool) -> Update {
        if adds { Update::Add } else { Update::Set }
    }
}

/// Terms of a panel between two steps of a micro-kernel's loop.
const fn unroll<V: Vector>() -> usize {
    if size_of::<V>() > 16 {
        16 / size_of::<V::Number>()
    } else if cfg!(target_arch = "aarch64") {
        4
    } else {
        // Few processors have nothing else.
        1
    }
}

/// a · b + c, rounded once where the instruction set can.
#[inline(always)]
pub(super) fn mul_add<V: Vector>(a: V, b: V, c: V) -> V {
    if V::HAS_FMA { a.fma::<true>(b, c) } else { a.fma::<false>(b, c) }
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

/// Where some registers begin, which lie anywhere, and the table of terms.
struct InPlace<V: Vector, const N: usize> {
    from: [*const V::Number; N],
    table: *const isize,
}

/// The same of registers that are not all columns.
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
        let at = self.at.wrapping_offset(term * self.term).wrapping_add(register * V::WIDTH);
        // SAFETY: the caller's promise.
        unsafe { V::load(at) }
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

/// `ALONG` is whether a row's terms lie side by side, and otherwise a term's rows do.
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
        // What the compiler knows of how they hang together it would use to get each address from the one
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
                    let at = if !ALONG {
                        a.wrapping_offset($term * tile.a_stride).wrapping_add(i)
                    } else if i < 8 {
                        a.wrapping_offset(row[i]).wrapping_offset($term)
                    } else {
                        a.wrapping_offset(8 * s + row[i - 8]).wrapping_offset($term)
                    };
                    // SAFETY: `run`'s caller gives all rows.
                    let left = V::splat(unsafe { at.read() });
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
        // A row's registers one after the other, which lie side by side.
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

/// Rows of some registers, from one place to another where they lie side by side.
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

type TileKernel<T> = unsafe fn(&MicroTile<T>);
type WindowKernel<T> = unsafe fn(&MicroTile<T>, &[Strip], *const isize);
type CopyRows<T> = unsafe fn(usize, *const T, isize, *mut T);
type CopyTable<T> = unsafe fn(&CopyPieces<'_, T>);

/// # Safety
/// As [`MicroKernels::copy_pieces`].
unsafe fn copy_pieces<V: Vector>(pieces: &CopyPieces<'_, V::Number>) {
    // SAFETY: a table with this is only given out where the processor has the instruction set.
    unsafe { V::run(InRegisters::<V>(pieces)) }
}

/// # Safety
/// As [`MicroKernels::copy`].
unsafe fn copies<V: Vector, const N: usize>(
    rows: usize,
    from: *const V::Number,
    from_row: isize,
    to: *mut V::Number,
) {
    // SAFETY: a table with this is only given out where the processor has the instruction set.
    unsafe { V::run(Copies::<V, N> { rows, from, from_row, to }) }
}

/// # Safety
/// As [`MicroKernels::run`].
unsafe fn micro_kernel<V: Vector, const M: usize, const N: usize>(tile: &MicroTile<V::Number>) {
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
/// As [`MicroKernels::run_windows`].
unsafe fn window_kernel<V: Vector, const M: usize, const N: usize>(
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

/// The micro-kernels of a kind of number, as compiled for an instruction set.
#[derive(Clone, Copy)]
pub(crate) struct MicroKernels<T: 'static> {
    /// Numbers in a register.
    pub(crate) width: usize,
    /// By registers of columns, from 1 on, and by rows, from 1 on.
    runs: [&'static [TileKernel<T>]; MAX_REGISTERS],
    windows: [&'static [WindowKernel<T>]; MAX_REGISTERS],
    copies: [CopyRows<T>; MAX_REGISTERS],
    pieces: CopyTable<T>,
    pub(super) dots: dots::Kernels<T>,
    pub(super) dots_of_columns: unsafe fn(gemv::Dots<'_, T>),
    pub(super) winograd: Transforms<T>,
}

impl<T> MicroKernels<T> {
    /// The most rows (MR) of a micro-tile with so many registers of columns: as many as there are registers
    /// for their sums.
    pub(crate) fn rows(&self, registers: usize) -> usize {
        self.runs[registers - 1].len()
    }

    /// The most registers of columns of a micro-tile.
    pub(crate) fn registers(&self) -> usize {
        self.runs.iter().take_while(|runs| !runs.is_empty()).count()
    }

    /// Forms a micro-tile's sums.
    ///
    /// # Safety
    /// `rows` is within [`MicroKernels::rows`]. The tile's addresses are good for all of its elements: `a`
    /// for reads of `rows` times `terms` numbers, `b` for `terms` times `registers` whole registers of them,
    /// `to` for writes (and reads, if it adds) of the result's, which lie apart from the others.
    pub(crate) unsafe fn run(&self, rows: usize, registers: usize, tile: &MicroTile<T>) {
        // SAFETY: the caller's promise.
        unsafe { self.runs[registers - 1][rows - 1](tile) }
    }

    /// Forms a micro-tile's sums of a left operand of which a term's rows lie side by side, and of columns
    /// that are read where they lie from `b` on: `table` says how far each term lies from the first places.
    ///
    /// # Safety
    /// As [`MicroKernels::run`]; there are `strips` for each register, which are good for reads of every
    /// term, and so is `table`.
    pub(crate) unsafe fn run_windows(
        &self,
        rows: usize,
        tile: &MicroTile<T>,
        strips: &[Strip],
        table: *const isize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.windows[strips.len() - 1][rows - 1](tile, strips, table) }
    }

    /// Copies so many rows of so many registers, which are `from_row` numbers apart, to where they lie side
    /// by side.
    ///
    /// # Safety
    /// All of them can be read and written, and lie apart.
    pub(crate) unsafe fn copy(
        &self,
        registers: usize,
        rows: usize,
        from: *const T,
        from_row: isize,
        to: *mut T,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.copies[registers - 1](rows, from, from_row, to) }
    }

    /// Copies the pieces of columns of each term.
    ///
    /// # Safety
    /// All of them can be read and written, and lie apart.
    pub(super) unsafe fn copy_pieces(&self, pieces: &CopyPieces<'_, T>) {
        // SAFETY: the caller's promise.
        unsafe { (self.pieces)(pieces) }
    }
}

macro_rules! table {
    ($register:ty, $sums:literal; $($rows:expr),*; $($more:expr),*; $($most:expr),*; $($dots:expr),*) => {
        MicroKernels {
            width: <$register>::WIDTH,
            runs: [
                &[$(micro_kernel::<$register, $most, 1>),*],
                &[$(micro_kernel::<$register, $more, 2>),*],
                &[$(micro_kernel::<$register, $rows, 3>),*],
            ],
            windows: [
                &[$(window_kernel::<$register, $most, 1>),*],
                &[$(window_kernel::<$register, $more, 2>),*],
                &[$(window_kernel::<$register, $rows, 3>),*],
            ],
            copies: [copies::<$register, 1>, copies::<$register, 2>, copies::<$register, 3>],
            pieces: copy_pieces::<$register>,
            dots: &[$(($dots, [dots::tile::<$register, $dots, 1>, dots::tile::<$register, $dots, { dots::COLUMNS }>])),*],
            winograd: Transforms::of::<$register>(),
            dots_of_columns: gemv::dots::<
                $register,
                { gemv::LANES / <$register>::WIDTH },
                { gemv::columns($sums, <$register>::WIDTH) },
            >,
        }
    };
    // 32 registers, or 16.
    (many $register:ty) => {
        table!(
            $register, 16; 1, 2, 3, 4, 5, 6, 7, 8;
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12;
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12;
            4, 2, 1
        )
    };
    (few $register:ty) => {
        table!($register, 8; ; 1, 2, 3, 4, 5, 6; 1, 2, 3, 4, 5, 6, 7, 8; 4, 2, 1)
    };
}

/// A number that has micro-kernels.
pub(crate) trait HasMicroKernels: Float {
    fn micro_kernels(isa: Isa) -> MicroKernels<Self>;
}

macro_rules! tiled {
    ($number:ty, $avx512:ident, $avx2:ident, $four:ident) => {
        impl HasMicroKernels for $number {
            fn micro_kernels(isa: Isa) -> MicroKernels<$number> {
                #[cfg(target_arch = "x86_64")]
                if isa.is_avx512() {
                    return table!(many vector::$avx512);
                }
                #[cfg(target_arch = "x86_64")]
                if isa.is_avx2() {
                    return table!(few vector::$avx2);
                }
                let _ = isa;
                #[cfg(target_arch = "aarch64")]
                return table!(many vector::$four);
                #[cfg(not(target_arch = "aarch64"))]
                table!(few vector::$four)
            }
        }
    };
}
tiled!(f32, F32x16, F32x8, F32x4);
tiled!(f64, F64x8, F64x4, F64x2);
