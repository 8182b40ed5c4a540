//! Numbers that real functions are written for: one f32, over which compilers vectorise, or a whole register of them, where an
//! instruction set has something that compilers do not find. Both give the same bits.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::map;

/// An f32, or several side by side.
pub(crate) trait Real: Copy {
    fn splat(x: f32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// self · b + c: rounded once if `FUSED`.
    fn mul_add<const FUSED: bool>(self, b: Self, c: Self) -> Self;
    /// The greater of this and a bound; NaN stays.
    fn at_least(self, bound: f32) -> Self;
    /// The lesser of this and a bound; NaN stays.
    fn at_most(self, bound: f32) -> Self;
    /// self · 2^k, rounded once, for an integer k in −150..=128 and self in [½, 2); `k_and_magic` is k + 1.5 · 2²³.
    fn times_two_to(self, k: Self, k_and_magic: Self) -> Self;
}

/// A function of them. Not a closure, which would be compiled by itself, without the instruction set that it is used in: its
/// method must be `#[inline(always)]`, and so must what it calls.
pub(crate) trait Function {
    fn of<V: Real>(&self, x: V) -> V;
}

/// 2^(k + n) for the integer k in the low bits of `k_and_magic`, |k + n| ≤ 126: what stands above those is shifted out.
#[inline(always)]
pub(crate) fn two_to(k_and_magic: f32, n: i32) -> f32 {
    f32::from_bits(k_and_magic.to_bits().wrapping_add(127i32.wrapping_add(n) as u32) << 23)
}

impl Real for f32 {
    #[inline(always)]
    fn splat(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn add(self, other: f32) -> f32 {
        self + other
    }

    #[inline(always)]
    fn sub(self, other: f32) -> f32 {
        self - other
    }

    #[inline(always)]
    fn mul(self, other: f32) -> f32 {
        self * other
    }

    #[inline(always)]
    fn mul_add<const FUSED: bool>(self, b: f32, c: f32) -> f32 {
        if FUSED { f32::mul_add(self, b, c) } else { self * b + c }
    }

    #[inline(always)]
    fn at_least(self, bound: f32) -> f32 {
        // Comparisons are false for NaN, which passes.
        if self < bound { bound } else { self }
    }

    #[inline(always)]
    fn at_most(self, bound: f32) -> f32 {
        if self > bound { bound } else { self }
    }

    #[inline(always)]
    fn times_two_to(self, k: f32, k_and_magic: f32) -> f32 {
        // An offset keeps the power within the range; taking that away again is the only rounding, and the only way out.
        const OFFSET: i32 = 64;
        let negative = k < 0.0;
        let offset = if negative { OFFSET } else { -OFFSET };
        let back = if negative { two_to(0.0, -OFFSET) } else { two_to(0.0, OFFSET) };
        self * two_to(k_and_magic, offset) * back
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::{Function, Real};
    use crate::simd::isa::{Isa, Job};

    /// Sixteen. Only to be used where AVX-512 was found, which is where [`map`] calls its function.
    #[derive(Clone, Copy)]
    pub(crate) struct F32x16(__m512);

    // SAFETY of every block below: an `F32x16` is made by `map` alone, on processors that have AVX-512.
    impl Real for F32x16 {
        #[inline(always)]
        fn splat(x: f32) -> F32x16 {
            // SAFETY: see above.
            F32x16(unsafe { _mm512_set1_ps(x) })
        }

        #[inline(always)]
        fn add(self, other: F32x16) -> F32x16 {
            // SAFETY: see above.
            F32x16(unsafe { _mm512_add_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn sub(self, other: F32x16) -> F32x16 {
            // SAFETY: see above.
            F32x16(unsafe { _mm512_sub_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn mul(self, other: F32x16) -> F32x16 {
            // SAFETY: see above.
            F32x16(unsafe { _mm512_mul_ps(self.0, other.0) })
        }

        #[inline(always)]
        fn mul_add<const FUSED: bool>(self, b: F32x16, c: F32x16) -> F32x16 {
            if !FUSED {
                return self.mul(b).add(c);
            }
            // SAFETY: see above.
            F32x16(unsafe { _mm512_fmadd_ps(self.0, b.0, c.0) })
        }

        #[inline(always)]
        fn at_least(self, bound: f32) -> F32x16 {
            // With a NaN these give their second operand.
            // SAFETY: see above.
            F32x16(unsafe { _mm512_max_ps(_mm512_set1_ps(bound), self.0) })
        }

        #[inline(always)]
        fn at_most(self, bound: f32) -> F32x16 {
            // SAFETY: see above.
            F32x16(unsafe { _mm512_min_ps(_mm512_set1_ps(bound), self.0) })
        }

        #[inline(always)]
        fn times_two_to(self, k: F32x16, _: F32x16) -> F32x16 {
            // SAFETY: see above.
            F32x16(unsafe { _mm512_scalef_ps(self.0, k.0) })
        }
    }

    struct Map<F> {
        x: *const f32,
        out: *mut f32,
        n: usize,
        f: F,
    }

    impl<F: Function> Job for Map<F> {
        type Output = ();
        #[inline(always)]
        fn run(self) {
            let mut i = 0;
            while i < self.n {
                let mask = (u32::MAX >> (32 - (self.n - i).min(16))) as __mmask16;
                // SAFETY: the caller gives `n` elements behind each pointer, and the mask ends there.
                unsafe {
                    let x = F32x16(_mm512_maskz_loadu_ps(mask, self.x.add(i)));
                    _mm512_mask_storeu_ps(self.out.add(i), mask, self.f.of(x).0);
                }
                i += 16;
            }
        }
    }

    /// `out[i] = f(x[i])` for i < n, sixteen at a time; `isa` is AVX-512.
    ///
    /// # Safety
    /// `x` and `out` are good for `n` elements; they are the same or lie apart.
    pub(crate) unsafe fn map(isa: Isa, x: *const f32, out: *mut f32, n: usize, f: impl Function) {
        debug_assert!(isa.is_avx512());
        isa.run(Map { x, out, n, f });
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use crate::simd::{isa::Isa, math};

    /// Registers give what single numbers do, in every place of a register and over the whole range.
    #[test]
    fn a_register_gives_the_same_bits_as_a_number() {
        let Some(isa) = Isa::available().into_iter().find(|isa| isa.is_avx512()) else {
            eprintln!("no AVX-512 here: there is nothing but single numbers");
            return;
        };
        // Spread over all bit patterns, with what lies about the ends of the range.
        let spread = (0..1 << 22).map(|i: u32| f32::from_bits(i.wrapping_mul(1021)));
        let ends = (0..4000).flat_map(|i| [-104.5 + i as f32 * 0.005, 87.5 + i as f32 * 0.0005]);
        let special =
            [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN, f32::MIN_POSITIVE, f32::MAX];
        let x: Vec<f32> = spread.chain(ends).chain(special).collect();
        for n in [x.len(), x.len() - 1, x.len() - 15, 1, 0] {
            let mut out = vec![7.0; x.len()];
            // SAFETY: both hold n elements.
            unsafe { super::map(isa, x.as_ptr(), out.as_mut_ptr(), n, math::Exp) };
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
