//! The registers of WebAssembly: [`F32x4`] and [`F64x2`], and integers of 32 bits. A module is compiled with
//! them or without, so no check at run time is needed.
//!
//! A module that is compiled with the feature `relaxed-simd` forms the terms of products by fused
//! multiply-add, where the processor has it: other last bits, which differ between processors. The real
//! functions stay as they are.
#![allow(unsafe_code)]

use std::{
    arch::wasm32::*,
    ops::{Add, Mul, Sub},
};

use crate::simd::{
    integers::Integers,
    isa::Job,
    vector::{Real, Vector},
};

macro_rules! register {
    (
        $(#[$doc:meta])* $name:ident, $number:ty, $splat:ident, $madd:ident;
        |$at:ident, $n:ident| $load_first:expr;
        |$to:ident, $m:ident, $v:ident| $store_first:expr;
        $extract:ident, $replace:ident, $load_lane:ident, $store_lane:ident, $($lane:literal)*;
        $($op:ident $method:ident $instruction:ident),*;
        |$first:ident, $second:ident| $unzip:expr
        $(; |$eight:ident| $totals:expr)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(v128);

        $(
            impl $op for $name {
                type Output = $name;
                #[inline(always)]
                fn $method(self, other: $name) -> $name {
                    $name($instruction(self.0, other.0))
                }
            }
        )*

        impl Vector for $name {
            type Number = $number;
            const WIDTH: usize = 16 / size_of::<$number>();
            const HAS_FMA: bool = cfg!(target_feature = "relaxed-simd");

            #[inline(always)]
            fn splat(x: $number) -> $name {
                $name($splat(x))
            }

            #[inline(always)]
            fn fma<const FUSED: bool>(self, b: $name, c: $name) -> $name {
                if !FUSED {
                    return self * b + c;
                }
                #[cfg(target_feature = "relaxed-simd")]
                let sum = $madd(self.0, b.0, c.0);
                #[cfg(not(target_feature = "relaxed-simd"))]
                let sum = {
                    let mut sum = c.0;
                    $(
                        let (x, y) = ($extract::<$lane>(self.0), $extract::<$lane>(b.0));
                        sum = $replace::<$lane>(sum, x.mul_add(y, $extract::<$lane>(c.0)));
                    )*
                    sum
                };
                $name(sum)
            }

            #[inline(always)]
            unsafe fn load(at: *const $number) -> $name {
                // SAFETY: `at` is readable for `WIDTH` numbers, by `# Safety`; loads need no alignment.
                $name(unsafe { v128_load(at.cast()) })
            }

            #[inline(always)]
            unsafe fn load_first($at: *const $number, $n: usize) -> $name {
                if $n == Self::WIDTH {
                    // SAFETY: `at` is readable for n = `WIDTH` numbers, by `# Safety`.
                    return unsafe { Self::load($at) };
                }
                // SAFETY: `at` is readable for `n` numbers, by `# Safety`; the loads read no others for
                // 0 < n < `WIDTH`.
                $name(unsafe { $load_first })
            }

            #[inline(always)]
            unsafe fn load_rest(self, at: *const $number, from: usize, n: usize) -> $name {
                let mut all = self.0;
                $(
                    if (from..n).contains(&$lane) {
                        // SAFETY: the lane is in `from..n`, which `# Safety` makes readable.
                        all = unsafe { $load_lane::<$lane>(all, at.wrapping_add($lane).cast()) };
                    }
                )*
                $name(all)
            }

            #[inline(always)]
            unsafe fn store_first(self, $to: *mut $number, $m: usize) {
                let $v = self.0;
                // SAFETY: the address is writable for as many numbers as are stored, by `# Safety`.
                unsafe {
                    if $m == Self::WIDTH {
                        v128_store($to.cast(), $v);
                    } else {
                        $store_first;
                    }
                }
            }

            #[inline(always)]
            unsafe fn store_rest(self, to: *mut $number, from: usize, n: usize) {
                $(
                    if (from..n).contains(&$lane) {
                        // SAFETY: the lane is in `from..n`, which `# Safety` makes writable.
                        unsafe { $store_lane::<$lane>(self.0, to.wrapping_add($lane).cast()) };
                    }
                )*
            }

            #[inline(always)]
            fn unzip(self, next: $name) -> [$name; 2] {
                let ($first, $second) = (self.0, next.0);
                let [even, odd] = $unzip;
                [$name(even), $name(odd)]
            }

            $(
                #[inline(always)]
                fn totals($eight: [$name; 8]) -> [$number; 8] {
                    $totals
                }
            )?

            #[inline(always)]
            unsafe fn run<J: Job>(job: J) -> J::Output {
                job.run()
            }
        }
    };
}

/// The totals of four registers, as [`Vector::totals`] adds them.
#[inline(always)]
fn totals_of_four([a, b, c, d]: [v128; 4]) -> v128 {
    // The first halves of two registers plus the second ones; then the even numbers plus the odd ones.
    let halves = |a, b| f32x4_add(i64x2_shuffle::<0, 2>(a, b), i64x2_shuffle::<1, 3>(a, b));
    let (ab, cd) = (halves(a, b), halves(c, d));
    f32x4_add(i32x4_shuffle::<0, 2, 4, 6>(ab, cd), i32x4_shuffle::<1, 3, 5, 7>(ab, cd))
}

register! {
    /// Four f32.
    F32x4, f32, f32x4_splat, f32x4_relaxed_madd;
    |at, n| match n {
        1 => v128_load32_zero(at.cast()),
        2 => v128_load64_zero(at.cast()),
        _ => v128_load32_lane::<2>(v128_load64_zero(at.cast()), at.wrapping_add(2).cast()),
    };
    |to, n, v| if n == 1 {
        v128_store32_lane::<0>(v, to.cast());
    } else {
        v128_store64_lane::<0>(v, to.cast());
        if n == 3 {
            v128_store32_lane::<2>(v, to.wrapping_add(2).cast());
        }
    };
    f32x4_extract_lane, f32x4_replace_lane, v128_load32_lane, v128_store32_lane, 0 1 2 3;
    Add add f32x4_add, Sub sub f32x4_sub, Mul mul f32x4_mul;
    |a, b| [i32x4_shuffle::<0, 2, 4, 6>(a, b), i32x4_shuffle::<1, 3, 5, 7>(a, b)];
    |eight| {
        let [a, b, c, d, e, f, g, h] = eight.map(|register| register.0);
        let mut totals = [0.0; 8];
        let to: *mut v128 = totals.as_mut_ptr().cast();
        // SAFETY: the array has room for two registers; stores need no alignment.
        unsafe {
            v128_store(to, totals_of_four([a, b, c, d]));
            v128_store(to.add(1), totals_of_four([e, f, g, h]));
        }
        totals
    }
}
register! {
    /// Two f64.
    F64x2, f64, f64x2_splat, f64x2_relaxed_madd;
    |at, _n| v128_load64_zero(at.cast());
    |to, _n, v| v128_store64_lane::<0>(v, to.cast());
    f64x2_extract_lane, f64x2_replace_lane, v128_load64_lane, v128_store64_lane, 0 1;
    Add add f64x2_add, Sub sub f64x2_sub, Mul mul f64x2_mul;
    |a, b| [i64x2_shuffle::<0, 2>(a, b), i64x2_shuffle::<1, 3>(a, b)]
}

impl Real for F32x4 {
    #[inline(always)]
    fn at_least(self, bound: f32) -> F32x4 {
        // The second operand if the first is less, which NaN is not.
        F32x4(f32x4_pmax(self.0, f32x4_splat(bound)))
    }

    #[inline(always)]
    fn at_most(self, bound: f32) -> F32x4 {
        F32x4(f32x4_pmin(self.0, f32x4_splat(bound)))
    }

    #[inline(always)]
    fn times_two_to(self, k: F32x4, k_and_magic: F32x4) -> F32x4 {
        // As for a number.
        const OFFSET: i32 = 64;
        const BIAS: i32 = 127;
        let negative = f32x4_lt(k.0, f32x4_splat(0.0));
        let either = |yes: i32, no: i32| v128_bitselect(i32x4_splat(yes), i32x4_splat(no), negative);
        let power = i32x4_shl(i32x4_add(k_and_magic.0, either(BIAS + OFFSET, BIAS - OFFSET)), 23);
        let back = either((BIAS - OFFSET) << 23, (BIAS + OFFSET) << 23);
        F32x4(f32x4_mul(f32x4_mul(self.0, power), back))
    }
}

impl Integers for F32x4 {
    type Ints = v128;
    const VECTORS: usize = 2;

    #[inline(always)]
    unsafe fn unsigned(at: *const u8) -> v128 {
        // SAFETY: `at` is readable for `WIDTH` = 4 bytes, by `# Safety`; the load needs no alignment.
        u32x4_extend_low_u16x8(u16x8_extend_low_u8x16(unsafe { v128_load32_zero(at.cast()) }))
    }

    #[inline(always)]
    unsafe fn signed(at: *const u8) -> v128 {
        // SAFETY: `at` is readable for `WIDTH` = 4 bytes, by `# Safety`; the load needs no alignment.
        i32x4_extend_low_i16x8(i16x8_extend_low_i8x16(unsafe { v128_load32_zero(at.cast()) }))
    }

    #[inline(always)]
    fn right(ints: v128, by: usize) -> v128 {
        i32x4_shr(ints, by as u32)
    }

    #[inline(always)]
    fn left(ints: v128, by: usize) -> v128 {
        i32x4_shl(ints, by as u32)
    }

    #[inline(always)]
    fn and(ints: v128, mask: i32) -> v128 {
        v128_and(ints, i32x4_splat(mask))
    }

    #[inline(always)]
    fn or(a: v128, b: v128) -> v128 {
        v128_or(a, b)
    }

    #[inline(always)]
    fn plus(ints: v128, number: i32) -> v128 {
        i32x4_add(ints, i32x4_splat(number))
    }

    #[inline(always)]
    fn where_set(bits: u32, number: i32) -> v128 {
        let own = i32x4(1, 2, 4, 8);
        let set = i32x4_eq(v128_and(i32x4_splat(bits as i32), own), own);
        v128_and(set, i32x4_splat(number))
    }

    #[inline(always)]
    fn entries(table: &[i8; 16], places: v128) -> v128 {
        // SAFETY: the load reads the 16 bytes of the table, and needs no alignment.
        let table = unsafe { v128_load(table.as_ptr().cast()) };
        // The number is the lowest byte of its position; the others ask for none.
        let lowest = v128_or(places, i32x4_splat(0x8080_8000_u32 as i32));
        i32x4_shr(i32x4_shl(i8x16_swizzle(table, lowest), 24), 24)
    }

    #[inline(always)]
    fn to_f32(ints: v128) -> F32x4 {
        F32x4(f32x4_convert_i32x4(ints))
    }
}
