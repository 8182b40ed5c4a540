//! The innermost part of a matrix product: a few rows and a few registers of columns of the result, kept in registers over a whole
//! run of terms.
//!
//! Columns lie along registers: each term reads a few registers of the right operand and one number a row of the left one, which is
//! spread over a register. The left operand may lie along either of its axes, the right one along its rows. Each element's terms are
//! added in their order whatever tile it is in.
#![allow(unsafe_code)]

use std::hint::black_box;

use super::gemv::Float;
use crate::simd::isa::{Isa, Job};

/// The most rows and registers of columns of any tile.
pub(crate) const ROWS: usize = 12;
pub(crate) const REGISTERS: usize = 3;

/// A register of numbers. Only to be used inside its own [`Register::run`].
trait Register: Copy {
    type Number: Float;
    const WIDTH: usize;
    /// Terms between two steps of a tile's loop.
    const UNROLL: usize;
    fn splat(x: Self::Number) -> Self;
    /// self · b + c, rounded once where the instruction set can.
    fn times_plus(self, b: Self, c: Self) -> Self;
    fn plus(self, other: Self) -> Self;
    /// # Safety
    /// `at` is good for reads of [`Register::WIDTH`] numbers.
    unsafe fn load(at: *const Self::Number) -> Self;
    /// The first `n` numbers, and zeros.
    ///
    /// # Safety
    /// `at` is good for reads of `n` numbers, which is from 1 to [`Register::WIDTH`].
    unsafe fn load_first(at: *const Self::Number, n: usize) -> Self;
    /// # Safety
    /// `at` is good for writes of `n` numbers, which is from 1 to [`Register::WIDTH`].
    unsafe fn store_first(self, at: *mut Self::Number, n: usize);
    /// Runs the job as compiled for the register's instruction set.
    ///
    /// # Safety
    /// The processor has it.
    unsafe fn run<J: Job>(job: J) -> J::Output;
}

/// What a tile is made of. The result's rows are `to_row` numbers apart and its columns side by side, as are those of `b`.
pub(crate) struct Tile<T> {
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
    /// Whether the sums are added to what is there.
    pub(crate) add: bool,
}

/// `ALONG` is whether a row's terms lie side by side, and otherwise a term's rows do.
struct Sums<'a, R: Register, const M: usize, const N: usize, const ALONG: bool>(&'a Tile<R::Number>);

impl<R: Register, const M: usize, const N: usize, const ALONG: bool> Job for Sums<'_, R, M, N, ALONG> {
    type Output = ();
    // Indexed, since sums, rows and columns go by the same numbers; and no closures, which are compiled by themselves.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run(self) {
        let tile = self.0;
        let mut sums = [[R::splat(R::Number::ZERO); N]; M];
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
                    let at = b.wrapping_offset($term * tile.b_term).wrapping_add(j * R::WIDTH);
                    // SAFETY: `run`'s caller gives whole registers of columns.
                    right[j] = unsafe { R::load(at) };
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
                    let left = R::splat(unsafe { at.read() });
                    for j in 0..N {
                        sums[i][j] = left.times_plus(right[j], sums[i][j]);
                    }
                }
            };
        }
        let a_term = if ALONG { 1 } else { tile.a_stride };
        for i in 0..M {
            for j in 0..N {
                prefetch::<true, _>(tile.to.wrapping_add(i * tile.to_row + j * R::WIDTH));
            }
        }
        let mut rest = tile.terms;
        if R::UNROLL > 1 {
            let unroll = R::UNROLL as isize;
            for _ in 0..tile.terms / R::UNROLL {
                for i in 0..unroll {
                    term!(i);
                }
                a = a.wrapping_offset(unroll * a_term);
                b = b.wrapping_offset(unroll * tile.b_term);
            }
            rest %= R::UNROLL;
        }
        for _ in 0..rest {
            term!(0);
            a = a.wrapping_offset(a_term);
            b = b.wrapping_offset(tile.b_term);
        }
        for i in 0..M {
            for j in 0..N {
                let n = if j + 1 < N { R::WIDTH } else { tile.last };
                let to = tile.to.wrapping_add(i * tile.to_row + j * R::WIDTH);
                let mut sum = sums[i][j];
                // SAFETY: `run`'s caller gives the result's elements, and n ends where they do.
                unsafe {
                    if tile.add {
                        sum = R::load_first(to, n).plus(sum);
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
struct Copies<R: Register, const N: usize> {
    rows: usize,
    from: *const R::Number,
    from_row: isize,
    to: *mut R::Number,
}

impl<R: Register, const N: usize> Job for Copies<R, N> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let (mut from, mut to) = (self.from, self.to);
        for _ in 0..self.rows {
            for j in 0..N {
                // SAFETY: the caller of `Tiles::copy` gives whole registers on both sides.
                unsafe {
                    R::load(from.wrapping_add(j * R::WIDTH))
                        .store_first(to.wrapping_add(j * R::WIDTH), R::WIDTH)
                };
            }
            from = from.wrapping_offset(self.from_row);
            to = to.wrapping_add(N * R::WIDTH);
        }
    }
}

type Run<T> = unsafe fn(&Tile<T>);
type CopyRows<T> = unsafe fn(usize, *const T, isize, *mut T);

/// # Safety
/// As [`Tiles::copy`].
unsafe fn copies<R: Register, const N: usize>(
    rows: usize,
    from: *const R::Number,
    from_row: isize,
    to: *mut R::Number,
) {
    // SAFETY: a table with this is only given out where the processor has the instruction set.
    unsafe { R::run(Copies::<R, N> { rows, from, from_row, to }) }
}

/// # Safety
/// As [`Tiles::run`].
unsafe fn sums<R: Register, const M: usize, const N: usize>(tile: &Tile<R::Number>) {
    // SAFETY: a table with these is only given out where the processor has the instruction set.
    unsafe {
        match tile.a_along {
            true => R::run(Sums::<R, M, N, true>(tile)),
            false => R::run(Sums::<R, M, N, false>(tile)),
        }
    }
}

/// The tiles of a kind of number, as compiled for an instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Tiles<T: 'static> {
    /// Numbers in a register.
    pub(crate) width: usize,
    /// By registers of columns, from 1 on, and by rows, from 1 on.
    runs: [&'static [Run<T>]; REGISTERS],
    copies: [CopyRows<T>; REGISTERS],
}

impl<T> Tiles<T> {
    /// The most rows of a tile with so many registers of columns: as many as there are registers for their sums.
    pub(crate) fn rows(&self, registers: usize) -> usize {
        self.runs[registers - 1].len()
    }

    /// The most registers of columns of a tile.
    pub(crate) fn registers(&self) -> usize {
        self.runs.iter().take_while(|runs| !runs.is_empty()).count()
    }

    /// Forms a tile's sums.
    ///
    /// # Safety
    /// `rows` is within [`Tiles::rows`]. The tile's addresses are good for all of its elements: `a` for reads of `rows` times
    /// `terms` numbers, `b` for `terms` times `registers` whole registers of them, `to` for writes (and reads, if it adds)
    /// of the result's, which lie apart from the others.
    pub(crate) unsafe fn run(&self, rows: usize, registers: usize, tile: &Tile<T>) {
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
        Tiles {
            width: <$register>::WIDTH,
            runs: [
                &[$(sums::<$register, $most, 1>),*],
                &[$(sums::<$register, $more, 2>),*],
                &[$(sums::<$register, $rows, 3>),*],
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

/// A number that has tiles.
pub(crate) trait Tiled: Float + 'static {
    fn tiles(isa: Isa) -> Tiles<Self>;
}

macro_rules! tiled {
    ($number:ty, $avx512:ident, $avx2:ident, $four:ident) => {
        impl Tiled for $number {
            fn tiles(isa: Isa) -> Tiles<$number> {
                #[cfg(target_arch = "x86_64")]
                if isa.is_avx512() {
                    return table!(many x86::$avx512);
                }
                #[cfg(target_arch = "x86_64")]
                if isa.is_avx2() {
                    return table!(few x86::$avx2);
                }
                let _ = isa;
                #[cfg(target_arch = "aarch64")]
                return table!(many $four);
                #[cfg(not(target_arch = "aarch64"))]
                table!(few $four)
            }
        }
    };
}
tiled!(f32, F32x16, F32x8, F32x4);
tiled!(f64, F64x8, F64x4, F64x2);

macro_rules! plain {
    ($name:ident, $number:ty, $width:expr) => {
        /// As many numbers as every processor's registers hold, for the compiler to put into one.
        #[derive(Clone, Copy)]
        #[repr(align(16))]
        struct $name([$number; $width]);

        impl Register for $name {
            type Number = $number;
            const WIDTH: usize = $width;
            // On aarch64 this is all there is; elsewhere few processors have nothing else.
            const UNROLL: usize = if cfg!(target_arch = "aarch64") { 4 } else { 1 };

            #[inline(always)]
            fn splat(x: $number) -> $name {
                $name([x; $width])
            }

            #[inline(always)]
            fn times_plus(self, b: $name, c: $name) -> $name {
                // What `Isa::has_fma` says of the baseline.
                const FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
                $name(std::array::from_fn(|i| self.0[i].times_plus::<FUSED>(b.0[i], c.0[i])))
            }

            #[inline(always)]
            fn plus(self, other: $name) -> $name {
                $name(std::array::from_fn(|i| self.0[i] + other.0[i]))
            }

            #[inline(always)]
            unsafe fn load(at: *const $number) -> $name {
                // SAFETY: the caller's promise.
                $name(unsafe { at.cast::<[$number; $width]>().read_unaligned() })
            }

            #[inline(always)]
            unsafe fn load_first(at: *const $number, n: usize) -> $name {
                let mut out = [0.0; $width];
                for (i, out) in out.iter_mut().enumerate().take(n) {
                    // SAFETY: the caller's promise.
                    *out = unsafe { at.add(i).read() };
                }
                $name(out)
            }

            #[inline(always)]
            unsafe fn store_first(self, at: *mut $number, n: usize) {
                // SAFETY: the caller's promise.
                unsafe {
                    if n == $width {
                        at.cast::<[$number; $width]>().write_unaligned(self.0);
                    } else {
                        for i in 0..n {
                            at.add(i).write(self.0[i]);
                        }
                    }
                }
            }

            #[inline(always)]
            unsafe fn run<J: Job>(job: J) -> J::Output {
                job.run()
            }
        }
    };
}
plain!(F32x4, f32, 4);
plain!(F64x2, f64, 2);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Register;
    use crate::simd::isa::{self, Job};

    macro_rules! register {
        (
            $(#[$doc:meta])* $name:ident, $inner:ty, $number:ty, $width:expr, $unroll:expr, $run:path;
            $splat:ident, $fmadd:ident, $add:ident, $load:ident;
            |$n:ident| $mask:expr, $load_first:ident, $store_first:ident
        ) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(super) struct $name($inner);

            // SAFETY of every block: these are called inside `run` alone, whose caller says that the processor has the instructions.
            impl Register for $name {
                type Number = $number;
                const WIDTH: usize = $width;
                const UNROLL: usize = $unroll;

                #[inline(always)]
                fn splat(x: $number) -> $name {
                    // SAFETY: see above.
                    $name(unsafe { $splat(x) })
                }

                #[inline(always)]
                fn times_plus(self, b: $name, c: $name) -> $name {
                    // SAFETY: see above.
                    $name(unsafe { $fmadd(self.0, b.0, c.0) })
                }

                #[inline(always)]
                fn plus(self, other: $name) -> $name {
                    // SAFETY: see above.
                    $name(unsafe { $add(self.0, other.0) })
                }

                #[inline(always)]
                unsafe fn load(at: *const $number) -> $name {
                    // SAFETY: see above, and the caller's promise.
                    $name(unsafe { $load(at) })
                }

                #[inline(always)]
                unsafe fn load_first(at: *const $number, $n: usize) -> $name {
                    // SAFETY: see above, and the caller's promise: the mask ends after n.
                    $name(unsafe { $load_first!(at, $mask) })
                }

                #[inline(always)]
                unsafe fn store_first(self, at: *mut $number, $n: usize) {
                    // SAFETY: as above.
                    unsafe { $store_first(at, $mask, self.0) }
                }

                #[inline(always)]
                unsafe fn run<J: Job>(job: J) -> J::Output {
                    // SAFETY: the caller's promise.
                    unsafe { $run(job) }
                }
            }
        };
    }

    macro_rules! load16 {
        ($at:expr, $mask:expr) => {
            _mm512_maskz_loadu_ps($mask, $at)
        };
    }
    macro_rules! load8 {
        ($at:expr, $mask:expr) => {
            _mm512_maskz_loadu_pd($mask, $at)
        };
    }
    macro_rules! load8s {
        ($at:expr, $mask:expr) => {
            _mm256_maskload_ps($at, $mask)
        };
    }
    macro_rules! load4d {
        ($at:expr, $mask:expr) => {
            _mm256_maskload_pd($at, $mask)
        };
    }

    /// The low `n` of all bits.
    #[inline(always)]
    fn bits(n: usize) -> u32 {
        u32::MAX >> (32 - n)
    }

    /// Ones, then zeros: a window on them is a mask.
    static ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Ones in the first `n` of the eight 32-bit parts of a register.
    #[inline(always)]
    unsafe fn window(n: usize) -> __m256i {
        // SAFETY: eight parts from 8 − n on lie in the array, as n is from 0 to 8; the caller has AVX.
        unsafe { _mm256_loadu_si256(ONES_THEN_ZEROS.as_ptr().add(8 - n).cast()) }
    }

    register! {
        /// Sixteen f32 of AVX-512.
        F32x16, __m512, f32, 16, 4, isa::avx512;
        _mm512_set1_ps, _mm512_fmadd_ps, _mm512_add_ps, _mm512_loadu_ps;
        |n| bits(n) as __mmask16, load16, _mm512_mask_storeu_ps
    }
    register! {
        /// Eight f64 of AVX-512.
        F64x8, __m512d, f64, 8, 2, isa::avx512;
        _mm512_set1_pd, _mm512_fmadd_pd, _mm512_add_pd, _mm512_loadu_pd;
        |n| bits(n) as __mmask8, load8, _mm512_mask_storeu_pd
    }
    register! {
        /// Eight f32 of AVX2.
        F32x8, __m256, f32, 8, 4, isa::avx2;
        _mm256_set1_ps, _mm256_fmadd_ps, _mm256_add_ps, _mm256_loadu_ps;
        |n| window(n), load8s, _mm256_maskstore_ps
    }
    register! {
        /// Four f64 of AVX2.
        F64x4, __m256d, f64, 4, 2, isa::avx2;
        _mm256_set1_pd, _mm256_fmadd_pd, _mm256_add_pd, _mm256_loadu_pd;
        |n| window(2 * n), load4d, _mm256_maskstore_pd
    }
}
