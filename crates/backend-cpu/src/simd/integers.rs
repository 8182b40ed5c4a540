//! Registers of small integers that become f32: the elements of block formats on their way to a sum.
#![allow(unsafe_code)]

use crate::simd::{
    F32x4,
    bytes::{HalfPair, Plain},
    vector::Vector,
};

/// A register of f32 with its register of as many integers of 32 bits. As [`Vector`], it may only be used
/// inside its own [`Vector::run`].
pub(crate) trait Integers: Vector<Number = f32> + HalfPair {
    type Ints: Copy;
    /// The vectors that a register of integers is multiplied with: there are registers for their sums.
    const VECTORS: usize;
    /// Unsigned bytes as integers.
    ///
    /// # Safety
    /// `at` is valid for reads of [`Vector::WIDTH`] bytes.
    unsafe fn unsigned(at: *const u8) -> Self::Ints;
    /// Signed bytes as integers.
    ///
    /// # Safety
    /// `at` is valid for reads of [`Vector::WIDTH`] bytes.
    unsafe fn signed(at: *const u8) -> Self::Ints;
    /// Each integer, which is not negative, shifted right.
    fn right(ints: Self::Ints, by: usize) -> Self::Ints;
    /// Each integer shifted left.
    fn left(ints: Self::Ints, by: usize) -> Self::Ints;
    fn and(ints: Self::Ints, mask: i32) -> Self::Ints;
    fn or(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    fn plus(ints: Self::Ints, number: i32) -> Self::Ints;
    /// `number` where a bit of `bits` is set, the lowest being that of the first integer, and 0 elsewhere.
    fn where_set(bits: u32, number: i32) -> Self::Ints;
    /// The number of a table at each position, which is below 16.
    fn entries(table: &[i8; 16], places: Self::Ints) -> Self::Ints;
    fn to_f32(ints: Self::Ints) -> Self;
}

impl HalfPair for F32x4 {
    #[inline(always)]
    unsafe fn halves(at: *const u8) -> [f32; 2] {
        // SAFETY: `at` is readable for four bytes, by `# Safety`, which is all that `Plain` asks.
        unsafe { Plain::halves(at) }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Integers;
    use crate::simd::{
        bytes::{HalfPair, half_pair},
        vector::{F32x8, F32x16},
    };

    // Every block below relies on the rule of [`Integers`]: a register is only used inside its own `run`,
    // whose caller promises that the processor has the instruction set.
    macro_rules! integers {
        (
            $name:ident, $ints:ty, $vectors:literal; |$at:ident| $unsigned:expr, $signed:expr;
            $splat:ident, $right:ident, $left:ident, $and:ident, $or:ident, $add:ident, $convert:ident;
            |$bits:ident, $number:ident| $where_set:expr;
            |$table:ident, $places:ident| $entries:expr
        ) => {
            impl Integers for $name {
                type Ints = $ints;
                const VECTORS: usize = $vectors;

                #[inline(always)]
                unsafe fn unsigned($at: *const u8) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; the
                    // load reads `WIDTH` bytes, which `# Safety` makes readable.
                    unsafe { $unsigned }
                }

                #[inline(always)]
                unsafe fn signed($at: *const u8) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; the
                    // load reads `WIDTH` bytes, which `# Safety` makes readable.
                    unsafe { $signed }
                }

                #[inline(always)]
                fn right(ints: $ints, by: usize) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { $right(ints, $splat(by as i32)) }
                }

                #[inline(always)]
                fn left(ints: $ints, by: usize) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { $left(ints, $splat(by as i32)) }
                }

                #[inline(always)]
                fn and(ints: $ints, mask: i32) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { $and(ints, $splat(mask)) }
                }

                #[inline(always)]
                fn or(a: $ints, b: $ints) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { $or(a, b) }
                }

                #[inline(always)]
                fn plus(ints: $ints, number: i32) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { $add(ints, $splat(number)) }
                }

                #[inline(always)]
                fn where_set($bits: u32, $number: i32) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { $where_set }
                }

                #[inline(always)]
                fn entries($table: &[i8; 16], $places: $ints) -> $ints {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; the
                    // load reads the 16 bytes of the table.
                    unsafe { $entries }
                }

                #[inline(always)]
                fn to_f32(ints: $ints) -> $name {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    $name(unsafe { $convert(ints) })
                }
            }

            impl HalfPair for $name {
                #[inline(always)]
                unsafe fn halves(at: *const u8) -> [f32; 2] {
                    // SAFETY: the processor has the instruction set, which includes F16C, and `at` is
                    // readable for four bytes, by `# Safety`.
                    unsafe { half_pair(at) }
                }
            }
        };
    }
    integers! {
        F32x16, __m512i, 16;
        |at| _mm512_cvtepu8_epi32(_mm_loadu_si128(at.cast())), _mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()));
        _mm512_set1_epi32, _mm512_srlv_epi32, _mm512_sllv_epi32, _mm512_and_si512, _mm512_or_si512,
        _mm512_add_epi32, _mm512_cvtepi32_ps;
        |bits, number| _mm512_maskz_set1_epi32(bits as __mmask16, number);
        |table, places| {
            let table = _mm512_cvtepi8_epi32(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_permutexvar_epi32(places, table)
        }
    }
    integers! {
        F32x8, __m256i, 4;
        |at| _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())), _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()));
        _mm256_set1_epi32, _mm256_srlv_epi32, _mm256_sllv_epi32, _mm256_and_si256, _mm256_or_si256,
        _mm256_add_epi32, _mm256_cvtepi32_ps;
        |bits, number| {
            let each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let own = _mm256_and_si256(_mm256_set1_epi32(bits as i32), each);
            _mm256_and_si256(_mm256_cmpeq_epi32(own, each), _mm256_set1_epi32(number))
        };
        |table, places| {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            // The number is the lowest byte of its position; the others ask for none.
            let lowest = _mm256_or_si256(places, _mm256_set1_epi32(0x8080_8000_u32 as i32));
            _mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(_mm256_shuffle_epi8(table, lowest)))
        }
    }
}
