//! Conversions between narrow types and the types that compute them: single elements, and whole buffers in
//! pieces that threads share.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{DType, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, Result, bf16, f16};

use crate::{
    memory::{
        buffer::{CpuBuffer, Memory},
        pool::Pool,
    },
    simd::{isa::Isa, loops::map1},
    threads,
    tuning::ELEMENT_GRAIN,
};

/// The Rust type of a narrow dtype.
pub(crate) trait Narrow: Copy + Send + Sync {
    /// The type that computes it.
    type Wide: Copy + Send + Sync + bytemuck::Pod;
    /// Whether loops of conversions vectorise well enough to have a version for AVX-512.
    const VECTORISES: bool = false;
    fn widen(self) -> Self::Wide;
    /// The nearest number for floats; the low bits for integers.
    fn narrow(wide: Self::Wide) -> Self;
}

/// The difference of the exponents' biases, in the bits of f32.
const F16_REBIAS: u32 = (127 - 15) << 23;
/// 2⁻²⁴, the least f16 above 0.
const F16_LEAST: f32 = f32::from_bits((127 - 24) << 23);
const F32_INFINITY: u32 = 0x7f80_0000;
/// The first bits of f32 that are 2¹⁶ or more, and those that are 2⁻¹⁴ or more: the range of normal f16.
const F16_END: u32 = (127 + 16) << 23;
const F16_NORMAL: u32 = (127 - 14) << 23;

// Both half types are converted without branches, so that loops over them vectorise.
impl Narrow for f16 {
    type Wide = f32;
    const VECTORISES: bool = true;
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = i32::from(self.to_bits());
        let magnitude = bits & 0x7fff;
        let shifted = (magnitude as u32) << 13;
        // A product with a denormal number would take a hundred cycles.
        let small = (magnitude as f32 * F16_LEAST).to_bits();
        // NaN is quiet.
        let special = shifted | F32_INFINITY | u32::from(magnitude > 0x7c00) << 22;
        let finite = if magnitude < 0x400 { small } else { shifted + F16_REBIAS };
        let wide = if magnitude < 0x7c00 { finite } else { special };
        f32::from_bits(wide | (bits as u32 & 0x8000) << 16)
    }
    #[inline(always)]
    fn narrow(wide: f32) -> f16 {
        let bits = wide.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        // To the nearest, ties to even; a carry reaches the exponent, and infinity.
        let to_even = (magnitude >> 13) & 1;
        let normal = magnitude.wrapping_sub(F16_REBIAS).wrapping_add(0xfff + to_even) >> 13;
        // The addition rounds to multiples of the least f16.
        let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let quiet = 0x7e00 | (magnitude >> 13) & 0x3ff;
        let large = if magnitude > F32_INFINITY { quiet } else { 0x7c00 };
        let finite = if magnitude < F16_NORMAL { small } else { normal };
        let narrow = if magnitude < F16_END { finite } else { large };
        f16::from_bits((narrow | (bits >> 16) & 0x8000) as u16)
    }
}

impl Narrow for bf16 {
    type Wide = f32;
    const VECTORISES: bool = true;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn narrow(wide: f32) -> bf16 {
        let bits = wide.to_bits();
        let to_even = (bits >> 16) & 1;
        let rounded = bits.wrapping_add(0x7fff + to_even) >> 16;
        let quiet = (bits >> 16) | 0x40;
        bf16::from_bits((if wide.is_nan() { quiet } else { rounded }) as u16)
    }
}

macro_rules! eight_bits {
    ($($t:ty),*) => {$(
        impl Narrow for $t {
            type Wide = f32;
            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }
            #[inline(always)]
            fn narrow(wide: f32) -> $t {
                <$t>::from_f32(wide)
            }
        }
    )*};
}
eight_bits!(F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ);

macro_rules! small_integers {
    ($($t:ty),*) => {$(
        impl Narrow for $t {
            type Wide = i32;
            #[inline(always)]
            fn widen(self) -> i32 {
                self.into()
            }
            #[inline(always)]
            fn narrow(wide: i32) -> $t {
                wide as $t
            }
        }
    )*};
}
small_integers!(u8, i8, u16, i16);

/// Calls a macro with the Rust type of a narrow dtype; evaluates an expression for any other.
macro_rules! by_narrow {
    ($dtype:expr, $go:ident, $otherwise:expr) => {
        match $dtype {
            tensor_core::DType::U8 => $go!(u8),
            tensor_core::DType::I8 => $go!(i8),
            tensor_core::DType::U16 => $go!(u16),
            tensor_core::DType::I16 => $go!(i16),
            tensor_core::DType::F8E4M3FN => $go!(tensor_core::F8E4M3FN),
            tensor_core::DType::F8E5M2 => $go!(tensor_core::F8E5M2),
            tensor_core::DType::F8E4M3FNUZ => $go!(tensor_core::F8E4M3FNUZ),
            tensor_core::DType::F8E5M2FNUZ => $go!(tensor_core::F8E5M2FNUZ),
            tensor_core::DType::F16 => $go!(tensor_core::f16),
            tensor_core::DType::BF16 => $go!(tensor_core::bf16),
            tensor_core::DType::Bool
            | tensor_core::DType::U32
            | tensor_core::DType::I32
            | tensor_core::DType::U64
            | tensor_core::DType::I64
            | tensor_core::DType::F32
            | tensor_core::DType::F64 => $otherwise,
        }
    };
}
pub(crate) use by_narrow;

/// A conversion between `T` and its compute type, for `n` elements.
///
/// # Safety
/// As for [`map1`].
#[inline(always)]
unsafe fn converted<T: Narrow, A: Copy, O: Copy>(
    isa: Isa,
    from: *const A,
    to: *mut O,
    n: usize,
    f: impl Fn(A) -> O,
) {
    // SAFETY: `map1` asks for what `# Safety` gives.
    unsafe {
        match T::VECTORISES {
            true => map1(isa, from, to, n, f),
            false => map1(isa.narrow(), from, to, n, f),
        }
    }
}

/// Widens `n` elements of a narrow dtype; does nothing for any other.
///
/// # Safety
/// `from` is aligned and valid for reads of `n` elements of the dtype, `to` for writes of `n` of its compute
/// type; they do not overlap.
pub(crate) unsafe fn widen(isa: Isa, dtype: DType, from: *const u8, to: *mut u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::F16 && isa.has_f16c() {
        // SAFETY: `has_f16c` proves the instructions; `from` holds `n` f16 and `to` has room for `n` f32,
        // apart, by `# Safety`.
        return unsafe { f16c::widen(from.cast(), to.cast(), n) };
    }
    macro_rules! go {
        ($t:ty) => {
            // SAFETY: `from` holds `n` elements of `$t`, the dtype's type, and `to` has room for `n` of
            // `Wide`, apart, by `# Safety`.
            unsafe { converted::<$t, _, _>(isa, from.cast::<$t>(), to.cast(), n, <$t as Narrow>::widen) }
        };
    }
    by_narrow!(dtype, go, ())
}

/// Narrows `n` elements of the compute type of a narrow dtype, each rounded once; does nothing for any other.
///
/// # Safety
/// `from` is aligned and valid for reads of `n` elements of the compute type, `to` for writes of `n` of the
/// dtype; they do not overlap.
pub(crate) unsafe fn narrow(isa: Isa, dtype: DType, from: *const u8, to: *mut u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::F16 && isa.has_f16c() {
        // SAFETY: `has_f16c` proves the instructions; `from` holds `n` f32 and `to` has room for `n` f16,
        // apart, by `# Safety`.
        return unsafe { f16c::narrow(from.cast(), to.cast(), n) };
    }
    macro_rules! go {
        ($t:ty) => {
            // SAFETY: `from` holds `n` elements of `Wide` and `to` has room for `n` of `$t`, the dtype's
            // type, apart, by `# Safety`.
            unsafe { converted::<$t, _, _>(isa, from.cast(), to.cast::<$t>(), n, <$t as Narrow>::narrow) }
        };
    }
    by_narrow!(dtype, go, ())
}

/// Numbers of the compute type of a narrow dtype, rounded to the dtype; does nothing for any other.
///
/// # Safety
/// `from` is aligned and valid for reads of `n` elements of the compute type, `to` for writes of as many;
/// they do not overlap, or they are the same.
pub(crate) unsafe fn round(isa: Isa, dtype: DType, from: *const u8, to: *mut u8, n: usize) {
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::F16 && isa.has_f16c() {
        // SAFETY: `has_f16c` proves the instructions; `from` holds `n` f32 and `to` has room for `n`, the
        // same or apart, by `# Safety`.
        return unsafe { f16c::round(from.cast(), to.cast(), n) };
    }
    macro_rules! go {
        ($t:ty) => {
            // SAFETY: `from` holds `n` of `Wide` and `to` has room for `n`, the same or apart, by `# Safety`.
            unsafe {
                let round = |v: <$t as Narrow>::Wide| <$t as Narrow>::narrow(v).widen();
                converted::<$t, _, _>(isa, from.cast(), to.cast(), n, round)
            }
        };
    }
    by_narrow!(dtype, go, ())
}

/// Conversions of f16 by the processor's instructions, eight at a time. Their bits are those of [`Narrow`].
#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_loadu_ps, _mm256_storeu_ps,
    };

    use tensor_core::f16;

    use super::Narrow;

    /// Numbers of a register.
    const LANES: usize = 8;

    /// # Safety
    /// As [`super::widen`]; the processor has these features.
    #[target_feature(enable = "avx,f16c")]
    pub(super) unsafe fn widen(from: *const f16, to: *mut f32, n: usize) {
        let whole = n - n % LANES;
        // SAFETY: `from` has `n` f16 and `to` room for `n` f32, by `# Safety`; a register ends at or before
        // `whole` ≤ n.
        unsafe {
            for i in (0..whole).step_by(LANES) {
                _mm256_storeu_ps(to.add(i), _mm256_cvtph_ps(_mm_loadu_si128(from.add(i).cast())));
            }
            for i in whole..n {
                to.add(i).write(Narrow::widen(from.add(i).read()));
            }
        }
    }

    /// # Safety
    /// As [`super::round`]; the processor has these features.
    #[target_feature(enable = "avx,f16c")]
    pub(super) unsafe fn round(from: *const f32, to: *mut f32, n: usize) {
        let whole = n - n % LANES;
        // SAFETY: `from` has `n` f32 and `to` room for `n`, by `# Safety`; a register ends at or before
        // `whole` ≤ n, and each number is read before it is written.
        unsafe {
            for i in (0..whole).step_by(LANES) {
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.add(i)));
                _mm256_storeu_ps(to.add(i), _mm256_cvtph_ps(halves));
            }
            for i in whole..n {
                to.add(i).write(<f16 as Narrow>::narrow(from.add(i).read()).widen());
            }
        }
    }

    /// # Safety
    /// As [`super::narrow`]; the processor has these features.
    #[target_feature(enable = "avx,f16c")]
    pub(super) unsafe fn narrow(from: *const f32, to: *mut f16, n: usize) {
        let whole = n - n % LANES;
        // SAFETY: `from` has `n` f32 and `to` room for `n` f16, by `# Safety`; a register ends at or before
        // `whole` ≤ n.
        unsafe {
            for i in (0..whole).step_by(LANES) {
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.add(i)));
                _mm_storeu_si128(to.add(i).cast(), halves);
            }
            for i in whole..n {
                to.add(i).write(Narrow::narrow(from.add(i).read()));
            }
        }
    }
}

/// A copy of the first `numel` elements of a buffer in its compute type; None if its type is not narrow.
///
/// # Errors
/// The pool's limit.
///
/// # Safety
/// The buffer holds that many initialised elements, and they are not written meanwhile.
pub(crate) unsafe fn widened(
    isa: Isa,
    pool: &Arc<Pool>,
    from: Memory,
    numel: usize,
) -> Result<Option<CpuBuffer>> {
    let dtype = from.dtype;
    if !dtype.is_narrow() {
        return Ok(None);
    }
    let wide = CpuBuffer::new(pool, dtype.register(), numel)?;
    let to = wide.memory();
    threads::share_ranges(numel, ELEMENT_GRAIN, |range| {
        let at = range.start;
        // SAFETY: `from` holds `numel` elements, by `# Safety`, and so does `wide`; ranges are apart.
        unsafe {
            let from = from.at::<u8>(at);
            widen(isa, dtype, from, to.at::<u8>(at), range.len());
        }
    });
    Ok(Some(wide))
}

/// Narrows the first `numel` elements of `wide` into `to`, a buffer of a narrow dtype with the compute
/// dtype of `wide`. Each element is rounded once.
///
/// # Safety
/// Both hold that many elements, those of `wide` initialised; they do not overlap. Nothing writes to `wide`,
/// and nothing else accesses `to`.
pub(crate) unsafe fn narrow_into(isa: Isa, wide: Memory, to: Memory, numel: usize) {
    debug_assert_eq!(wide.dtype, to.dtype.register());
    threads::share_ranges(numel, ELEMENT_GRAIN, |range| {
        let at = range.start;
        // SAFETY: both hold `numel` elements and do not overlap, by `# Safety`; each range is below `numel`,
        // and ranges are apart.
        unsafe {
            let from = wide.at::<u8>(at);
            narrow(isa, to.dtype, from, to.at::<u8>(at), range.len());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_widened_as_half_does() {
        for bits in 0..=u16::MAX {
            let (x, y) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert_eq!(x.widen().to_bits(), x.to_f32().to_bits(), "{bits:x}");
            // The bits of NaN are kept.
            assert_eq!(y.widen().to_bits(), u32::from(bits) << 16);
        }
    }

    /// Whole buffers on each instruction set, with and without a remainder.
    #[test]
    fn buffers_are_converted_as_their_elements() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let singles: Vec<f32> = (0..=u16::MAX)
            .flat_map(|high| {
                [0, 0x1000, 0x3001, 0xffff].map(|low| f32::from_bits(u32::from(high) << 16 | low))
            })
            .collect();
        for isa in Isa::available() {
            for rest in 0..9 {
                let (wide_count, count) = (halves.len() - rest, singles.len() - rest);
                let mut wide = vec![0f32; wide_count];
                let mut narrowed = vec![f16::ZERO; count];
                // SAFETY: `halves` and `wide` hold at least `wide_count` elements, `singles` and `narrowed`
                // at least `count`.
                unsafe {
                    widen(isa, DType::F16, halves.as_ptr().cast(), wide.as_mut_ptr().cast(), wide_count);
                    narrow(isa, DType::F16, singles.as_ptr().cast(), narrowed.as_mut_ptr().cast(), count);
                }
                for (wide, half) in wide.iter().zip(&halves) {
                    assert_eq!(wide.to_bits(), half.widen().to_bits(), "{half:?} with {isa:?}");
                }
                let mut rounded = singles[..count].to_vec();
                let at: *mut u8 = rounded.as_mut_ptr().cast();
                // SAFETY: `rounded` holds `count` f32, which are rounded in place.
                unsafe { round(isa, DType::F16, at, at, count) };
                for ((half, rounded), &single) in narrowed.iter().zip(&rounded).zip(&singles) {
                    let expected = <f16 as Narrow>::narrow(single);
                    assert_eq!(half.to_bits(), expected.to_bits(), "{single:?} with {isa:?}");
                    assert_eq!(rounded.to_bits(), expected.widen().to_bits(), "{single:?} with {isa:?}");
                }
            }
        }
    }

    #[test]
    fn every_half_and_what_is_between_is_rounded_as_half_does() {
        for high in 0..=u16::MAX {
            for low in [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let v = f32::from_bits(u32::from(high) << 16 | low);
                for below in [v, f32::from_bits(v.to_bits() ^ 0x2000)] {
                    let (x, y) = (<f16 as Narrow>::narrow(below), <bf16 as Narrow>::narrow(below));
                    assert_eq!(x.to_bits(), f16::from_f32(below).to_bits(), "{below:?} of {high:x} {low:x}");
                    assert_eq!(y.to_bits(), bf16::from_f32(below).to_bits(), "{below:?} of {high:x} {low:x}");
                }
            }
        }
    }
}
