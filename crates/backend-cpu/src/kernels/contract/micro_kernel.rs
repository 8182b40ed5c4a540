//! The innermost part of a matrix product: a few rows and a few registers of columns of the result, kept in registers over a whole
//! block of KC terms.
//!
//! Columns lie along registers: each term reads a few registers of the right operand and one number a row of the left one, which is
//! spread over a register. The left operand may lie along either of its axes, the right one along its rows. Each element's terms are
//! added in their order whatever micro-tile it is in.
#![allow(unsafe_code)]

use std::hint::black_box;

use crate::simd::{
    isa::{Isa, Job},
    vector::{self, Float, Vector},
};

/// The most rows and registers of columns of any micro-tile.
pub(crate) const MAX_MR: usize = 12;
pub(crate) const MAX_REGISTERS: usize = 3;

/// A micro-kernel's operands. The result's rows are `to_row` numbers apart and its columns side by side, as are those of `b`.
pub(crate) struct MicroTile<T> {
    /// How many terms each sum has.
    pub(crate) terms: usize,
    pub(crate) a: *const T,
    /// From row to row of `a`, if a row's terms lie side by side, and else from term to term, where a term's rows do.
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

/// Terms between two steps of a micro-kernel's loop.
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
fn mul_add<V: Vector>(a: V, b: V, c: V) -> V {
    if V::HAS_FMA { a.fma::<true>(b, c) } else { a.fma::<false>(b, c) }
}

/// `ALONG` is whether a row's terms lie side by side, and otherwise a term's rows do.
struct MicroKernel<'a, V: Vector, const M: usize, const N: usize, const ALONG: bool>(
    &'a MicroTile<V::Number>,
);

impl<V: Vector, const M: usize, const N: usize, const ALONG: bool> Job for MicroKernel<'_, V, M, N, ALONG> {
    type Output = ();
    // Indexed, since sums, rows and columns go by the same numbers; and no closures, which are compiled by themselves.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) {
        let tile = self.0;
        let mut sums = [[V::splat(V::Number::ZERO); N]; M];
        // Few enough distances for them all to stay in registers: those of eight rows, from two beginnings. What the compiler
        // knows of how they hang together it would use to get each address from the one before, a chain as long as the term.
        let s = black_box(tile.a_stride);
        let (s3, s5, s7) =
            (black_box(3 * tile.a_stride), black_box(5 * tile.a_stride), black_box(7 * tile.a_stride));
        let row = [0, s, 2 * s, s3, 4 * s, s5, 2 * s3, s7];
        let (mut a, mut b) = (tile.a, tile.b);
        // The i-th of some terms from a and b on.
        macro_rules! term {
            ($term:expr) => {
                let mut right = [sums[0][0]; N];
                for j in 0..N {
                    let at = b.wrapping_offset($term * tile.b_term).wrapping_add(j * V::WIDTH);
                    // SAFETY: `run`'s caller gives whole registers of columns.
                    right[j] = unsafe { V::load(at) };
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
        let unroll = const { unroll::<V>() };
        if unroll > 1 {
            for _ in 0..tile.terms / unroll {
                let unroll = unroll as isize;
                for i in 0..unroll {
                    term!(i);
                }
                a = a.wrapping_offset(unroll * a_term);
                b = b.wrapping_offset(unroll * tile.b_term);
            }
            rest %= unroll;
        }
        for _ in 0..rest {
            term!(0);
            a = a.wrapping_offset(a_term);
            b = b.wrapping_offset(tile.b_term);
        }
        for i in 0..M {
            for j in 0..N {
                let n = if j + 1 < N { V::WIDTH } else { tile.last };
                let to = tile.to.wrapping_add(i * tile.to_row + j * V::WIDTH);
                let mut sum = sums[i][j];
                // SAFETY: `run`'s caller gives the result's elements, and n ends where they do.
                unsafe {
                    match tile.update {
                        Update::Set => {}
                        Update::Add => sum = V::load_first(to, n) + sum,
                        Update::Subtract => sum = V::load_first(to, n) - sum,
                    }
                    sum.store_first(to, n);
                }
            }
        }
    }
}

/// Asks for a cache line before it is needed, into the first level (`NEAREST`) or the second.
#[inline(always)]
pub(crate) fn prefetch<const NEAREST: bool, T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address does nothing but fill the cache, and SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match NEAREST {
            true => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
            false => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
        }
    }
    let _ = at;
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

type Run<T> = unsafe fn(&MicroTile<T>);
type CopyRows<T> = unsafe fn(usize, *const T, isize, *mut T);

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
        match tile.a_along {
            true => V::run(MicroKernel::<V, M, N, true>(tile)),
            false => V::run(MicroKernel::<V, M, N, false>(tile)),
        }
    }
}

/// The micro-kernels of a kind of number, as compiled for an instruction set.
#[derive(Clone, Copy)]
pub(crate) struct MicroKernels<T: 'static> {
    /// Numbers in a register.
    pub(crate) width: usize,
    /// By registers of columns, from 1 on, and by rows, from 1 on.
    runs: [&'static [Run<T>]; MAX_REGISTERS],
    copies: [CopyRows<T>; MAX_REGISTERS],
}

impl<T> MicroKernels<T> {
    /// The most rows (MR) of a micro-tile with so many registers of columns: as many as there are registers for their sums.
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
    /// `rows` is within [`MicroKernels::rows`]. The tile's addresses are good for all of its elements: `a` for reads of `rows` times
    /// `terms` numbers, `b` for `terms` times `registers` whole registers of them, `to` for writes (and reads, if it adds)
    /// of the result's, which lie apart from the others.
    pub(crate) unsafe fn run(&self, rows: usize, registers: usize, tile: &MicroTile<T>) {
        // SAFETY: the caller's promise.
        unsafe { self.runs[registers - 1][rows - 1](tile) }
    }

    /// Copies so many rows of so many registers, which are `from_row` numbers apart, to where they lie side by side.
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
}

macro_rules! table {
    ($register:ty; $($rows:expr),*; $($more:expr),*; $($most:expr),*) => {
        MicroKernels {
            width: <$register>::WIDTH,
            runs: [
                &[$(micro_kernel::<$register, $most, 1>),*],
                &[$(micro_kernel::<$register, $more, 2>),*],
                &[$(micro_kernel::<$register, $rows, 3>),*],
            ],
            copies: [copies::<$register, 1>, copies::<$register, 2>, copies::<$register, 3>],
        }
    };
    // 32 registers, or 16.
    (many $register:ty) => {
        table!(
            $register; 1, 2, 3, 4, 5, 6, 7, 8;
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12;
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
        )
    };
    (few $register:ty) => {
        table!($register; ; 1, 2, 3, 4, 5, 6; 1, 2, 3, 4, 5, 6, 7, 8)
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
