//! Registers of 32 small integers in bytes: those of a group of a block format, multiplied with vectors that
//! are rounded to 8 bits. Processors multiply and add four neighbours at once.
#![allow(unsafe_code)]

use smallvec::SmallVec;
use tensor_core::f16;

use crate::simd::isa::{Isa, Job};

/// Neighbours in a block that are decoded together, and those with one scale.
pub(crate) const GROUP: usize = 32;
pub(crate) const HALF: usize = GROUP / 2;

/// The instructions that multiply bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteForm {
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Plain,
}

impl ByteForm {
    /// The best form that this processor has of an instruction set.
    pub(crate) fn best(isa: Isa) -> ByteForm {
        ByteForm::available(isa)[0]
    }

    /// Those that this processor has of an instruction set, best first.
    pub(crate) fn available(isa: Isa) -> SmallVec<[ByteForm; 4]> {
        let mut all = SmallVec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if isa.is_avx512() && is_x86_feature_detected!("avx512vnni") {
                all.push(ByteForm::Avx512Vnni);
            }
            if isa.is_avx512() || isa.is_avx2() {
                if is_x86_feature_detected!("avxvnni") {
                    all.push(ByteForm::AvxVnni);
                }
                all.push(ByteForm::Avx2);
            }
        }
        let _ = isa;
        all.push(ByteForm::Plain);
        all
    }
}

/// Expands to `$go` with `$b` as the registers of a form.
macro_rules! by_bytes {
    ($form:expr, $b:ident => $go:expr) => {{
        use $crate::simd::bytes::ByteForm;
        match $form {
            #[cfg(target_arch = "x86_64")]
            ByteForm::Avx512Vnni => {
                type $b = $crate::simd::bytes::Avx512Vnni;
                $go
            }
            #[cfg(target_arch = "x86_64")]
            ByteForm::AvxVnni => {
                type $b = $crate::simd::bytes::AvxVnni;
                $go
            }
            #[cfg(target_arch = "x86_64")]
            ByteForm::Avx2 => {
                type $b = $crate::simd::bytes::Avx2;
                $go
            }
            ByteForm::Plain => {
                type $b = $crate::simd::bytes::Plain;
                $go
            }
        }
    }};
}
pub(crate) use by_bytes;

/// Sums of the products of four neighbours each: a group has as many.
pub(crate) const SUMS: usize = GROUP / 4;

/// Registers whose instruction set converts f16.
pub(crate) trait HalfPair {
    /// Two neighbouring f16.
    ///
    /// # Safety
    /// `at` is valid for reads of four bytes, and the processor has the instruction set.
    unsafe fn halves(at: *const u8) -> [f32; 2];
}

/// A register of 32 bytes, and one of as many f32 as a group has [`SUMS`]. It may only be used inside its own
/// [`Bytes::run`].
pub(crate) trait Bytes: HalfPair {
    type Register: Copy;
    type Ints: Copy;
    type Floats: Copy;

    /// Runs a loop that uses these registers.
    ///
    /// # Safety
    /// The processor has their instruction set.
    unsafe fn run<J: Job>(job: J) -> J::Output;
    /// # Safety
    /// `at` is valid for reads of 32 bytes.
    unsafe fn load(at: *const u8) -> Self::Register;
    /// The low four bits of sixteen bytes, then the high four bits of each.
    ///
    /// # Safety
    /// `at` is valid for reads of 16 bytes.
    unsafe fn nibbles(at: *const u8) -> Self::Register;
    /// `number` where one of the 32 bits is set, the lowest being that of the first byte, and 0 elsewhere.
    fn where_set(bits: u32, number: u8) -> Self::Register;
    /// The bits of `mask`, a number of bits without gaps from the lowest on, of each byte that is shifted
    /// right.
    fn right(bytes: Self::Register, by: usize, mask: u8) -> Self::Register;
    /// Each byte shifted left; no bit leaves its byte.
    fn left(bytes: Self::Register, by: usize) -> Self::Register;
    fn or(a: Self::Register, b: Self::Register) -> Self::Register;
    /// The number of a table at each position, which is below 16.
    fn entries(table: &[i8; 16], places: Self::Register) -> Self::Register;
    /// Sums of the products of four neighbours each, of unsigned numbers up to 128 and of signed ones, which
    /// are not −128: two products fit 16 bits.
    fn dot(a: Self::Register, b: Self::Register) -> Self::Ints;
    /// As [`Bytes::dot`], with any signed numbers on the left.
    fn dot_signed(a: Self::Register, b: Self::Register) -> Self::Ints;
    fn splat(number: f32) -> Self::Floats;
    /// A number for the sums of each half.
    fn by_halves(numbers: [f32; 2]) -> Self::Floats;
    /// Adds integers times their scales.
    fn add(sums: Self::Floats, ints: Self::Ints, scales: Self::Floats) -> Self::Floats;
    fn total(sums: Self::Floats) -> f32;
}

/// Arrays, for any processor.
pub(crate) struct Plain;

/// The sums of four neighbouring terms.
#[inline(always)]
fn sums_of_four(term: impl Fn(usize) -> i32) -> [i32; SUMS] {
    std::array::from_fn(|i| term(4 * i) + term(4 * i + 1) + term(4 * i + 2) + term(4 * i + 3))
}

impl Bytes for Plain {
    type Register = [u8; GROUP];
    type Ints = [i32; SUMS];
    type Floats = [f32; SUMS];

    #[inline(always)]
    unsafe fn run<J: Job>(job: J) -> J::Output {
        job.run()
    }

    #[inline(always)]
    unsafe fn load(at: *const u8) -> [u8; GROUP] {
        // SAFETY: `at` is readable for 32 bytes, by `# Safety`: the array, which needs no alignment.
        unsafe { at.cast::<[u8; GROUP]>().read() }
    }

    #[inline(always)]
    unsafe fn nibbles(at: *const u8) -> [u8; GROUP] {
        // SAFETY: `at` is readable for 16 bytes, by `# Safety`: the array, which needs no alignment.
        let bytes = unsafe { at.cast::<[u8; HALF]>().read() };
        std::array::from_fn(|i| if i < HALF { bytes[i] & 15 } else { bytes[i - HALF] >> 4 })
    }

    #[inline(always)]
    fn where_set(bits: u32, number: u8) -> [u8; GROUP] {
        std::array::from_fn(|i| if bits >> i & 1 == 1 { number } else { 0 })
    }

    #[inline(always)]
    fn right(bytes: [u8; GROUP], by: usize, mask: u8) -> [u8; GROUP] {
        bytes.map(|byte| byte >> by & mask)
    }

    #[inline(always)]
    fn left(bytes: [u8; GROUP], by: usize) -> [u8; GROUP] {
        bytes.map(|byte| byte << by)
    }

    #[inline(always)]
    fn or(a: [u8; GROUP], b: [u8; GROUP]) -> [u8; GROUP] {
        std::array::from_fn(|i| a[i] | b[i])
    }

    #[inline(always)]
    fn entries(table: &[i8; 16], places: [u8; GROUP]) -> [u8; GROUP] {
        places.map(|place| table[usize::from(place & 15)] as u8)
    }

    #[inline(always)]
    fn dot(a: [u8; GROUP], b: [u8; GROUP]) -> [i32; SUMS] {
        sums_of_four(|i| i32::from(a[i]) * i32::from(b[i] as i8))
    }

    #[inline(always)]
    fn dot_signed(a: [u8; GROUP], b: [u8; GROUP]) -> [i32; SUMS] {
        sums_of_four(|i| i32::from(a[i] as i8) * i32::from(b[i] as i8))
    }

    #[inline(always)]
    fn splat(number: f32) -> [f32; SUMS] {
        [number; SUMS]
    }

    #[inline(always)]
    fn by_halves(numbers: [f32; 2]) -> [f32; SUMS] {
        std::array::from_fn(|i| numbers[i / (SUMS / 2)])
    }

    #[inline(always)]
    fn add(sums: [f32; SUMS], ints: [i32; SUMS], scales: [f32; SUMS]) -> [f32; SUMS] {
        std::array::from_fn(|i| sums[i] + scales[i] * ints[i] as f32)
    }

    #[inline(always)]
    fn total([a, b, c, d, e, f, g, h]: [f32; SUMS]) -> f32 {
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
}

impl HalfPair for Plain {
    #[inline(always)]
    unsafe fn halves(at: *const u8) -> [f32; 2] {
        // SAFETY: `at` is readable for four bytes, by `# Safety`: the array, which needs no alignment.
        let [a, b, c, d] = unsafe { at.cast::<[u8; 4]>().read() };
        [[a, b], [c, d]].map(|bytes| f16::from_bits(u16::from_le_bytes(bytes)).to_f32_const())
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512Vnni, AvxVnni, half_pair};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Bytes, HalfPair};
    use crate::simd::isa::{self, Job};

    /// [`HalfPair::halves`] of every instruction set that has the conversion.
    ///
    /// # Safety
    /// `at` is valid for reads of four bytes, and the processor has F16C.
    #[inline(always)]
    pub(crate) unsafe fn half_pair(at: *const u8) -> [f32; 2] {
        // SAFETY: the processor has F16C, and `at` is readable for the four bytes, by `# Safety`.
        unsafe {
            let both = _mm_cvtph_ps(_mm_loadu_si32(at));
            [_mm_cvtss_f32(both), _mm_cvtss_f32(_mm_movehdup_ps(both))]
        }
    }

    // Every block below relies on the rule of [`Bytes`]: a register is only used inside its own `run`, whose
    // caller promises that the processor has the instruction set.
    macro_rules! bytes {
        (
            $(#[$docs:meta])* $name:ident, $run:ident;
            |$bits:ident, $number:ident| $where_set:expr;
            |$a:ident, $b:ident| $dot:expr
        ) => {
            $(#[$docs])*
            pub(crate) struct $name;

            impl Bytes for $name {
                type Register = __m256i;
                type Ints = __m256i;
                type Floats = __m256;

                #[inline(always)]
                unsafe fn run<J: Job>(job: J) -> J::Output {
                    // SAFETY: the processor has the instruction set that `isa::$run` enables, by `# Safety`.
                    unsafe { isa::$run(job) }
                }

                #[inline(always)]
                unsafe fn load(at: *const u8) -> __m256i {
                    // SAFETY: `run` asks for AVX2, and `at` is readable for 32 bytes, by `# Safety`.
                    unsafe { _mm256_loadu_si256(at.cast()) }
                }

                #[inline(always)]
                unsafe fn nibbles(at: *const u8) -> __m256i {
                    // SAFETY: `run` asks for AVX2, and `at` is readable for 16 bytes, by `# Safety`.
                    unsafe {
                        let low = _mm_loadu_si128(at.cast());
                        let both = _mm256_set_m128i(_mm_srli_epi16::<4>(low), low);
                        _mm256_and_si256(both, _mm256_set1_epi8(15))
                    }
                }

                #[inline(always)]
                fn where_set($bits: u32, $number: u8) -> __m256i {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { $where_set }
                }

                #[inline(always)]
                fn right(bytes: __m256i, by: usize, mask: u8) -> __m256i {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe {
                        let shifted = _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(by as i32));
                        _mm256_and_si256(shifted, _mm256_set1_epi8(mask as i8))
                    }
                }

                #[inline(always)]
                fn left(bytes: __m256i, by: usize) -> __m256i {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { _mm256_sll_epi16(bytes, _mm_cvtsi32_si128(by as i32)) }
                }

                #[inline(always)]
                fn or(a: __m256i, b: __m256i) -> __m256i {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { _mm256_or_si256(a, b) }
                }

                #[inline(always)]
                fn entries(table: &[i8; 16], places: __m256i) -> __m256i {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions; the
                    // load reads the 16 bytes of the table.
                    unsafe {
                        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
                        _mm256_shuffle_epi8(table, places)
                    }
                }

                #[inline(always)]
                fn dot($a: __m256i, $b: __m256i) -> __m256i {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { $dot }
                }

                #[inline(always)]
                fn dot_signed(a: __m256i, b: __m256i) -> __m256i {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    let (magnitudes, signed) = unsafe { (_mm256_abs_epi8(a), _mm256_sign_epi8(b, a)) };
                    Self::dot(magnitudes, signed)
                }

                #[inline(always)]
                fn splat(number: f32) -> __m256 {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { _mm256_set1_ps(number) }
                }

                #[inline(always)]
                fn by_halves([first, second]: [f32; 2]) -> __m256 {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { _mm256_set_m128(_mm_set1_ps(second), _mm_set1_ps(first)) }
                }

                #[inline(always)]
                fn add(sums: __m256, ints: __m256i, scales: __m256) -> __m256 {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe { _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(ints), sums) }
                }

                #[inline(always)]
                fn total(sums: __m256) -> f32 {
                    // SAFETY: a register is only used inside its `run`, which asks for the instructions.
                    unsafe {
                        let four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums));
                        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
                    }
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

    /// Each byte of a register whose bit is set.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn bytes_of_bits(bits: u32, number: u8) -> __m256i {
        // SAFETY: the processor has AVX2, by `# Safety`; the instructions access no memory.
        unsafe {
            let place =
                _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
            let own = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), place);
            let each = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(own, each), each);
            _mm256_and_si256(set, _mm256_set1_epi8(number as i8))
        }
    }

    bytes! {
        /// AVX-512 with its instructions for products of bytes.
        Avx512Vnni, avx512_vnni;
        |bits, number| _mm256_maskz_set1_epi8(bits, number as i8);
        |a, b| _mm256_dpbusd_epi32(_mm256_setzero_si256(), a, b)
    }
    bytes! {
        /// AVX2 with the same instructions for products of bytes.
        AvxVnni, avx_vnni;
        |bits, number| bytes_of_bits(bits, number);
        |a, b| _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), a, b)
    }
    bytes! {
        /// AVX2, whose sums of two products have 16 bits.
        Avx2, avx2;
        |bits, number| bytes_of_bits(bits, number);
        |a, b| _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1))
    }
}
