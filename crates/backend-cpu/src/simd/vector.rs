//! Vectors of numbers. A formula is written once, over [`Vector`]: for a single number, if compilers
//! vectorise the loop well, and for the registers of an instruction set, if they do not. Both give the same
//! bits.
#![allow(unsafe_code)]

use std::ops::{Add, Mul, Sub};

#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86::{F32x8, F32x16, F64x4, F64x8};
use crate::simd::isa::{BASELINE_FMA, Job};

/// One number, or a register of them. A register of an instruction set may only be used inside its own
/// [`Vector::run`].
pub(crate) trait Vector: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    type Number: Float;
    /// The number of numbers in the register.
    const WIDTH: usize;
    /// Whether the instruction set has fused multiply-add.
    const HAS_FMA: bool;
    fn splat(x: Self::Number) -> Self;
    /// self · b + c, rounded once if `FUSED`.
    fn fma<const FUSED: bool>(self, b: Self, c: Self) -> Self;
    /// # Safety
    /// `at` is aligned and valid for reads of [`Vector::WIDTH`] numbers.
    unsafe fn load(at: *const Self::Number) -> Self;
    /// Loads the first `n` numbers; the rest is zero.
    ///
    /// # Safety
    /// `at` is aligned and valid for reads of `n` numbers; `n` is from 1 to [`Vector::WIDTH`].
    unsafe fn load_first(at: *const Self::Number, n: usize) -> Self;
    /// Keeps these numbers before number `from`, and loads numbers `from` to `n` from `at`.
    ///
    /// # Safety
    /// `at` is aligned, and its numbers `from` to `n` are valid for reads; `from` < `n`, both from 0 to
    /// [`Vector::WIDTH`].
    unsafe fn load_rest(self, at: *const Self::Number, from: usize, n: usize) -> Self;
    /// # Safety
    /// `at` is aligned and valid for writes of `n` numbers; `n` is from 1 to [`Vector::WIDTH`].
    unsafe fn store_first(self, at: *mut Self::Number, n: usize);
    /// Stores numbers `from` to `n`.
    ///
    /// # Safety
    /// `at` is aligned, and its numbers `from` to `n` are valid for writes; `from` < `n`, both from 0 to
    /// [`Vector::WIDTH`].
    unsafe fn store_rest(self, at: *mut Self::Number, from: usize, n: usize);
    /// The numbers at even positions of this register and the next, and those at odd positions.
    fn unzip(self, next: Self) -> [Self; 2];
    /// The sum of the numbers of each of eight registers: halves are added until one number is left.
    #[inline(always)]
    fn totals(of: [Self; 8]) -> [Self::Number; 8] {
        const MAX_WIDTH: usize = 16;
        const { assert!(Self::WIDTH <= MAX_WIDTH, "the widest register") };
        let mut totals = [Self::Number::ZERO; 8];
        for (total, register) in totals.iter_mut().zip(of) {
            let mut lanes = [Self::Number::ZERO; MAX_WIDTH];
            // SAFETY: the array has room for `WIDTH` numbers.
            unsafe { register.store_first(lanes.as_mut_ptr(), Self::WIDTH) };
            let mut width = Self::WIDTH;
            while width > 1 {
                width /= 2;
                for i in 0..width {
                    lanes[i] = lanes[i] + lanes[i + width];
                }
            }
            *total = lanes[0];
        }
        totals
    }
    /// Runs the job compiled for the register's instruction set.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn run<J: Job>(job: J) -> J::Output;
}

/// A floating-point type of elements: f32 and f64.
pub(crate) trait Float:
    Vector<Number = Self> + Default + PartialOrd + Into<f64> + Send + Sync + 'static
{
    const ZERO: Self;
    const HALF: Self;
    const ONE: Self;
    fn abs(self) -> Self;
    fn is_nan(self) -> bool;
    /// The nearest number of this type.
    fn rounded(wide: f64) -> Self;
}

/// The additional operations of `math`'s real functions: f32, alone or in registers.
pub(crate) trait Real: Vector<Number = f32> {
    /// The greater of this and a bound; NaN stays NaN.
    fn at_least(self, bound: f32) -> Self;
    /// The lesser of this and a bound; NaN stays NaN.
    fn at_most(self, bound: f32) -> Self;
    /// self · 2^k, rounded once, for an integer k in −150..=128 and self in [½, 2). `k_and_magic` is k +
    /// 1.5 · 2²³.
    fn times_two_to(self, k: Self, k_and_magic: Self) -> Self;
}

/// A function of a vector. A closure would be compiled separately, without the caller's instruction set.
/// The method and the functions that it calls must be `#[inline(always)]`.
pub(crate) trait Function {
    fn of<V: Real>(&self, x: V) -> V;
}

macro_rules! float {
    ($t:ty) => {
        impl Float for $t {
            const ZERO: $t = 0.0;
            const HALF: $t = 0.5;
            const ONE: $t = 1.0;

            #[inline(always)]
            fn abs(self) -> $t {
                self.abs()
            }

            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }

            #[inline(always)]
            fn rounded(wide: f64) -> $t {
                wide as $t
            }
        }

        impl Vector for $t {
            type Number = $t;
            const WIDTH: usize = 1;
            const HAS_FMA: bool = BASELINE_FMA;

            #[inline(always)]
            fn splat(x: $t) -> $t {
                x
            }

            #[inline(always)]
            fn fma<const FUSED: bool>(self, b: $t, c: $t) -> $t {
                if FUSED { self.mul_add(b, c) } else { self * b + c }
            }

            #[inline(always)]
            unsafe fn load(at: *const $t) -> $t {
                // SAFETY: `at` is aligned and readable for `WIDTH` = 1 number, by `# Safety`.
                unsafe { at.read() }
            }

            #[inline(always)]
            unsafe fn load_first(at: *const $t, _: usize) -> $t {
                // SAFETY: `at` is aligned and readable for `n` numbers, by `# Safety`, and n is 1.
                unsafe { at.read() }
            }

            #[inline(always)]
            unsafe fn load_rest(self, at: *const $t, from: usize, _: usize) -> $t {
                // SAFETY: number `from` is readable, by `# Safety`, and this reads it if it is number 0.
                if from == 0 { unsafe { at.read() } } else { self }
            }

            #[inline(always)]
            unsafe fn store_first(self, at: *mut $t, _: usize) {
                // SAFETY: `at` is aligned and writable for `n` numbers, by `# Safety`, and n is 1.
                unsafe { at.write(self) }
            }

            #[inline(always)]
            unsafe fn store_rest(self, at: *mut $t, from: usize, _: usize) {
                if from == 0 {
                    // SAFETY: `# Safety` makes number `from` writable, and `from` is 0.
                    unsafe { at.write(self) }
                }
            }

            #[inline(always)]
            fn unzip(self, next: $t) -> [$t; 2] {
                [self, next]
            }

            #[inline(always)]
            unsafe fn run<J: Job>(job: J) -> J::Output {
                job.run()
            }
        }
    };
}
float!(f32);
float!(f64);

/// 2^(k + n) for the integer k in the low bits of `k_and_magic`, |k + n| ≤ 126. The higher bits are shifted
/// out.
#[inline(always)]
pub(crate) fn two_to(k_and_magic: f32, n: i32) -> f32 {
    f32::from_bits(k_and_magic.to_bits().wrapping_add(127i32.wrapping_add(n) as u32) << 23)
}

impl Real for f32 {
    #[inline(always)]
    fn at_least(self, bound: f32) -> f32 {
        // Comparisons with NaN are false, so NaN is returned unchanged.
        if self < bound { bound } else { self }
    }

    #[inline(always)]
    fn at_most(self, bound: f32) -> f32 {
        if self > bound { bound } else { self }
    }

    #[inline(always)]
    fn times_two_to(self, k: f32, k_and_magic: f32) -> f32 {
        // An offset keeps the power in range. Removing it again is the only rounding step and the only one
        // that can overflow or underflow.
        const OFFSET: i32 = 64;
        let negative = k < 0.0;
        let offset = if negative { OFFSET } else { -OFFSET };
        let back = if negative { two_to(0.0, -OFFSET) } else { two_to(0.0, OFFSET) };
        self * two_to(k_and_magic, offset) * back
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::{
        arch::x86_64::*,
        ops::{Add, Mul, Sub},
    };

    use super::{Real, Vector};
    use crate::simd::isa::{self, Job};

    // Every block below relies on the rule of [`Vector`]: a register is only used inside its own `run`, whose
    // caller promises that the processor has the instruction set.
    macro_rules! register {
        (
            $(#[$doc:meta])* $name:ident, $inner:ty, $number:ty, $width:expr, $run:path;
            $splat:ident, $fmadd:ident, $load:ident;
            |$at:ident, $n:ident| $load_first:expr; |$old:ident, $rest:ident, $from:ident, $end:ident| $load_rest:expr;
            |$to:ident, $m:ident, $v:ident| $store_first:expr; |$start:ident| $store_rest:expr;
            $($op:ident $method:ident $instruction:ident),*;
            |$first:ident, $second:ident| $unzip:expr
            $(; |$eight:ident| $totals:expr)?
        ) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(crate) struct $name(pub(in crate::simd) $inner);

            $(
                impl $op for $name {
                    type Output = $name;
                    #[inline(always)]
                    fn $method(self, other: $name) -> $name {
                        // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                        $name(unsafe { $instruction(self.0, other.0) })
                    }
                }
            )*

            impl Vector for $name {
                type Number = $number;
                const WIDTH: usize = $width;
                const HAS_FMA: bool = true;

                #[inline(always)]
                fn splat(x: $number) -> $name {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    $name(unsafe { $splat(x) })
                }

                #[inline(always)]
                fn fma<const FUSED: bool>(self, b: $name, c: $name) -> $name {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    if FUSED { $name(unsafe { $fmadd(self.0, b.0, c.0) }) } else { self * b + c }
                }

                #[inline(always)]
                unsafe fn load(at: *const $number) -> $name {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; `at`
                    // is readable for `WIDTH` numbers, by `# Safety`.
                    $name(unsafe { $load(at) })
                }

                #[inline(always)]
                unsafe fn load_first($at: *const $number, $n: usize) -> $name {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; only
                    // the first n numbers are unmasked, and `# Safety` makes them readable.
                    $name(unsafe { $load_first })
                }

                #[inline(always)]
                unsafe fn load_rest(self, $rest: *const $number, $from: usize, $end: usize) -> $name {
                    let $old = self.0;
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; only
                    // the numbers of the range are unmasked, and `# Safety` makes them readable.
                    $name(unsafe { $load_rest })
                }

                #[inline(always)]
                unsafe fn store_first(self, $to: *mut $number, $m: usize) {
                    let $v = self.0;
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; only
                    // the first numbers are unmasked, and `# Safety` makes them writable.
                    unsafe { $store_first }
                }

                #[inline(always)]
                unsafe fn store_rest(self, $to: *mut $number, $start: usize, $m: usize) {
                    let $v = self.0;
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; only
                    // the numbers of the range are unmasked, and `# Safety` makes them writable.
                    unsafe { $store_rest }
                }

                #[inline(always)]
                fn unzip(self, next: $name) -> [$name; 2] {
                    let ($first, $second) = (self.0, next.0);
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    let [even, odd] = unsafe { $unzip };
                    [$name(even), $name(odd)]
                }

                $(
                    #[inline(always)]
                    fn totals($eight: [$name; 8]) -> [$number; 8] {
                        // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                        unsafe { $totals }
                    }
                )?

                #[inline(always)]
                unsafe fn run<J: Job>(job: J) -> J::Output {
                    // SAFETY: the processor has the instruction set that `$run` enables, by `# Safety`.
                    unsafe { $run(job) }
                }
            }
        };
    }

    /// A mask of the low `n` bits.
    #[inline(always)]
    fn bits(n: usize) -> u32 {
        u32::MAX >> (32 - n)
    }

    /// A mask of bits `from` to `n`.
    #[inline(always)]
    fn bits_from(from: usize, n: usize) -> u32 {
        bits(n) & (u32::MAX << from)
    }

    /// Ones, then zeros: a window of this array is a mask.
    static ONES_THEN_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    /// A mask of the first `n` of eight 32-bit lanes.
    ///
    /// # Safety
    /// `n` is at most 8, and the processor has AVX.
    #[inline(always)]
    unsafe fn window(n: usize) -> __m256i {
        // SAFETY: eight elements from 8 − n on are in the array of 16, because n ≤ 8, and AVX is there:
        // both by `# Safety`.
        unsafe { _mm256_loadu_si256(ONES_THEN_ZEROS.as_ptr().add(8 - n).cast()) }
    }

    /// [`Vector::totals`] of registers of sixteen: after each step two half-empty registers are merged.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[inline(always)]
    unsafe fn totals_of_sixteen(of: [__m512; 8]) -> [f32; 8] {
        /// Shuffles that select quarters of two registers, or elements of quarters: the first two of both,
        /// the last two, the even ones, the odd ones.
        const FIRST: i32 = 0x44;
        const LAST: i32 = 0xee;
        const EVEN: i32 = 0x88;
        const ODD: i32 = 0xdd;
        const NEIGHBOURS: i32 = 0xb1;
        let [a, b, c, d, e, f, g, h] = of;
        macro_rules! joined {
            ($x:expr, $y:expr, $shuffle:ident, $one:expr, $other:expr) => {
                _mm512_add_ps($shuffle::<{ $one }>($x, $y), $shuffle::<{ $other }>($x, $y))
            };
        }
        let mut parts = [0.0; 16];
        // SAFETY: the processor has AVX-512, by `# Safety`; the array has room for the 16 sums.
        unsafe {
            let ab = joined!(a, b, _mm512_shuffle_f32x4, FIRST, LAST);
            let cd = joined!(c, d, _mm512_shuffle_f32x4, FIRST, LAST);
            let ef = joined!(e, f, _mm512_shuffle_f32x4, FIRST, LAST);
            let gh = joined!(g, h, _mm512_shuffle_f32x4, FIRST, LAST);
            let abcd = joined!(ab, cd, _mm512_shuffle_f32x4, EVEN, ODD);
            let efgh = joined!(ef, gh, _mm512_shuffle_f32x4, EVEN, ODD);
            let all = joined!(abcd, efgh, _mm512_shuffle_ps, FIRST, LAST);
            let sums = _mm512_add_ps(all, _mm512_permute_ps::<NEIGHBOURS>(all));
            _mm512_storeu_ps(parts.as_mut_ptr(), sums);
        }
        let [a, _, e, _, b, _, f, _, c, _, g, _, d, _, h, _] = parts;
        [a, b, c, d, e, f, g, h]
    }

    register! {
        /// Sixteen f32 of AVX-512.
        F32x16, __m512, f32, 16, isa::avx512;
        _mm512_set1_ps, _mm512_fmadd_ps, _mm512_loadu_ps;
        |at, n| _mm512_maskz_loadu_ps(bits(n) as __mmask16, at);
        |old, at, from, n| _mm512_mask_loadu_ps(old, bits_from(from, n) as __mmask16, at);
        |to, n, v| _mm512_mask_storeu_ps(to, bits(n) as __mmask16, v);
        |from| _mm512_mask_storeu_ps(to, bits_from(from, n) as __mmask16, v);
        Add add _mm512_add_ps, Sub sub _mm512_sub_ps, Mul mul _mm512_mul_ps;
        |a, b| {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            [_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)]
        };
        |eight| totals_of_sixteen(eight.map(|register| register.0))
    }
    register! {
        /// Eight f64 of AVX-512.
        F64x8, __m512d, f64, 8, isa::avx512;
        _mm512_set1_pd, _mm512_fmadd_pd, _mm512_loadu_pd;
        |at, n| _mm512_maskz_loadu_pd(bits(n) as __mmask8, at);
        |old, at, from, n| _mm512_mask_loadu_pd(old, bits_from(from, n) as __mmask8, at);
        |to, n, v| _mm512_mask_storeu_pd(to, bits(n) as __mmask8, v);
        |from| _mm512_mask_storeu_pd(to, bits_from(from, n) as __mmask8, v);
        Add add _mm512_add_pd, Sub sub _mm512_sub_pd, Mul mul _mm512_mul_pd;
        |a, b| {
            let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
            let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
            [_mm512_permutex2var_pd(a, even, b), _mm512_permutex2var_pd(a, odd, b)]
        }
    }
    register! {
        /// Eight f32 of AVX2.
        F32x8, __m256, f32, 8, isa::avx2;
        _mm256_set1_ps, _mm256_fmadd_ps, _mm256_loadu_ps;
        |at, n| _mm256_maskload_ps(at, window(n));
        |old, at, from, n| {
            let mask = _mm256_andnot_si256(window(from), window(n));
            _mm256_blendv_ps(old, _mm256_maskload_ps(at, mask), _mm256_castsi256_ps(mask))
        };
        |to, n, v| _mm256_maskstore_ps(to, window(n), v);
        |from| _mm256_maskstore_ps(to, _mm256_andnot_si256(window(from), window(n)), v);
        Add add _mm256_add_ps, Sub sub _mm256_sub_ps, Mul mul _mm256_mul_ps;
        |a, b| {
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(a, b));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>(a, b));
            let (even, odd) = (_mm256_permute4x64_pd::<0xd8>(even), _mm256_permute4x64_pd::<0xd8>(odd));
            [_mm256_castpd_ps(even), _mm256_castpd_ps(odd)]
        }
    }
    register! {
        /// Four f64 of AVX2.
        F64x4, __m256d, f64, 4, isa::avx2;
        _mm256_set1_pd, _mm256_fmadd_pd, _mm256_loadu_pd;
        |at, n| _mm256_maskload_pd(at, window(2 * n));
        |old, at, from, n| {
            let mask = _mm256_andnot_si256(window(2 * from), window(2 * n));
            _mm256_blendv_pd(old, _mm256_maskload_pd(at, mask), _mm256_castsi256_pd(mask))
        };
        |to, n, v| _mm256_maskstore_pd(to, window(2 * n), v);
        |from| _mm256_maskstore_pd(to, _mm256_andnot_si256(window(2 * from), window(2 * n)), v);
        Add add _mm256_add_pd, Sub sub _mm256_sub_pd, Mul mul _mm256_mul_pd;
        |a, b| {
            let (even, odd) = (_mm256_shuffle_pd::<0>(a, b), _mm256_shuffle_pd::<0xf>(a, b));
            [_mm256_permute4x64_pd::<0xd8>(even), _mm256_permute4x64_pd::<0xd8>(odd)]
        }
    }

    impl Real for F32x16 {
        #[inline(always)]
        fn at_least(self, bound: f32) -> F32x16 {
            // If one operand is NaN, these instructions return the second operand.
            // SAFETY: a register is only used inside its `run`, which asks for the instructions.
            F32x16(unsafe { _mm512_max_ps(_mm512_set1_ps(bound), self.0) })
        }

        #[inline(always)]
        fn at_most(self, bound: f32) -> F32x16 {
            // SAFETY: a register is only used inside its `run`, which asks for the instructions.
            F32x16(unsafe { _mm512_min_ps(_mm512_set1_ps(bound), self.0) })
        }

        #[inline(always)]
        fn times_two_to(self, k: F32x16, _: F32x16) -> F32x16 {
            // SAFETY: a register is only used inside its `run`, which asks for the instructions.
            F32x16(unsafe { _mm512_scalef_ps(self.0, k.0) })
        }
    }
}

struct Map<V: Vector, F> {
    x: *const V::Number,
    out: *mut V::Number,
    n: usize,
    f: F,
}

impl<V: Real, F: Function> Job for Map<V, F> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let mut i = 0;
        while i < self.n {
            let n = (self.n - i).min(V::WIDTH);
            // SAFETY: `map`'s `# Safety` gives `self.n` numbers; n of them, at least one, are left.
            unsafe { self.f.of(V::load_first(self.x.add(i), n)).store_first(self.out.add(i), n) };
            i += V::WIDTH;
        }
    }
}

/// `out[i] = f(x[i])` for i < n, a register of `V` at a time.
///
/// # Safety
/// `x` and `out` are valid for `n` elements; they are equal or do not overlap. The processor has the
/// register's instruction set.
pub(crate) unsafe fn map<V: Real>(x: *const f32, out: *mut f32, n: usize, f: impl Function) {
    // SAFETY: the processor has the instruction set, and the job's pointers have `n` numbers, by `# Safety`.
    unsafe { V::run(Map::<V, _> { x, out, n, f }) };
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{F32x8, F32x16, F64x4, F64x8, Vector};
    use crate::simd::{
        F32x4, F64x2,
        isa::{Isa, Job},
        math,
    };

    struct Unzipped<V>(std::marker::PhantomData<V>);

    impl<V: Vector> Job for Unzipped<V>
    where
        V::Number: From<u8> + PartialEq + std::fmt::Debug + Default,
    {
        type Output = ();
        fn run(self) {
            let numbers: Vec<V::Number> = (0..2 * V::WIDTH as u8).map(V::Number::from).collect();
            // SAFETY: both sides have `WIDTH` numbers for each register.
            let unzipped = unsafe { V::load(numbers.as_ptr()).unzip(V::load(numbers[V::WIDTH..].as_ptr())) };
            let store = |[a, b]: [V; 2]| {
                let mut out = vec![V::Number::default(); 2 * V::WIDTH];
                // SAFETY: `out` has room for `WIDTH` numbers of each register.
                unsafe {
                    a.store_first(out.as_mut_ptr(), V::WIDTH);
                    b.store_first(out[V::WIDTH..].as_mut_ptr(), V::WIDTH);
                }
                out
            };
            let expected: Vec<V::Number> =
                [0, 1].iter().flat_map(|odd| numbers[*odd..].iter().copied().step_by(2)).collect();
            assert_eq!(store(unzipped), expected);
        }
    }

    struct Parts<V>(std::marker::PhantomData<V>);

    impl<V: Vector> Job for Parts<V>
    where
        V::Number: From<u8> + PartialEq + std::fmt::Debug,
    {
        type Output = ();
        fn run(self) {
            let numbers: Vec<V::Number> = (1..=V::WIDTH as u8).map(V::Number::from).collect();
            let zero = V::Number::from(0);
            for n in 1..=V::WIDTH {
                for from in 0..n {
                    let expected = |i: usize| if (from..n).contains(&i) { numbers[i] } else { zero };
                    let expected: Vec<V::Number> = (0..V::WIDTH).map(expected).collect();
                    let [mut loaded, mut stored] = [vec![zero; V::WIDTH], vec![zero; V::WIDTH]];
                    // SAFETY: the three vectors have `WIDTH` numbers each, and from < n ≤ `WIDTH`.
                    unsafe {
                        V::splat(zero)
                            .load_rest(numbers.as_ptr(), from, n)
                            .store_first(loaded.as_mut_ptr(), V::WIDTH);
                        V::load(numbers.as_ptr()).store_rest(stored.as_mut_ptr(), from, n);
                    }
                    assert_eq!(loaded, expected, "{from} {n}");
                    assert_eq!(stored, expected, "{from} {n}");
                }
            }
        }
    }

    #[test]
    fn places_come_apart_and_together() {
        fn check<V: Vector>()
        where
            V::Number: From<u8> + PartialEq + std::fmt::Debug + Default,
        {
            // SAFETY: `check` is only called with registers of instruction sets that this processor has.
            unsafe {
                V::run(Unzipped::<V>(std::marker::PhantomData));
                V::run(Parts::<V>(std::marker::PhantomData));
            }
        }
        check::<F32x4>();
        check::<F64x2>();
        for isa in Isa::available() {
            if isa.is_avx2() || isa.is_avx512() {
                check::<F32x8>();
                check::<F64x4>();
            }
            if isa.is_avx512() {
                check::<F32x16>();
                check::<F64x8>();
            }
        }
    }

    /// Registers give the same results as single numbers, in every lane and over the whole range.
    #[test]
    fn a_register_gives_the_same_bits_as_a_number() {
        if !Isa::available().iter().any(|isa| isa.is_avx512()) {
            eprintln!("no AVX-512 here: there is nothing but single numbers");
            return;
        }
        // Spread over all bit patterns, with more numbers near the ends of the range.
        let spread = (0..1 << 22).map(|i: u32| f32::from_bits(i.wrapping_mul(1021)));
        let ends = (0..4000).flat_map(|i| [-104.5 + i as f32 * 0.005, 87.5 + i as f32 * 0.0005]);
        let special =
            [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::MIN_POSITIVE, f32::MAX];
        let x: Vec<f32> = spread.chain(ends).chain(special).collect();
        for n in [x.len(), x.len() - 1, x.len() - 15, 1, 0] {
            let mut out = vec![7.0; x.len()];
            // SAFETY: both hold n elements, and the processor has AVX-512.
            unsafe { super::map::<F32x16>(x.as_ptr(), out.as_mut_ptr(), n, math::Exp) };
            for (&x, &y) in x[..n].iter().zip(&out) {
                let expected = math::exp::<true, f32>(x);
                assert!(
                    y.to_bits() == expected.to_bits() || (y.is_nan() && expected.is_nan()),
                    "{x}: {y}, {expected}"
                );
            }
            assert!(out[n..].iter().all(|&y| y == 7.0));
        }
    }
}
