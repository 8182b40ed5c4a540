//! Loops of fused multiply-adds that touch nothing but registers: what the processor could do at best.
//!
//! Every loop carries sixteen independent accumulators, more than any processor's latency times its units
//! needs. The instruction set is found at run time. All `unsafe` of this crate is here.
#![allow(unsafe_code)]

use std::hint::black_box;

/// Accumulators of one loop.
const LANES_OF_WORK: usize = 16;

/// One way to spin: its name, the f32 it holds in a register, and the loop.
#[derive(Clone, Copy)]
pub(crate) struct Spinner {
    /// The instruction set, in words for the reader.
    pub(crate) name: &'static str,
    width: usize,
    spin: fn(u64) -> f32,
}

impl Spinner {
    /// The widest one that this processor has.
    pub(crate) fn best() -> Spinner {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has AVX-512F, as the line above found.
                return Spinner { name: "avx512f", width: 16, spin: |rounds| unsafe { x86::avx512(rounds) } };
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: the processor has AVX2 and FMA, as the line above found.
                return Spinner { name: "avx2+fma", width: 8, spin: |rounds| unsafe { x86::avx2(rounds) } };
            }
        }
        #[cfg(target_arch = "aarch64")]
        return Spinner { name: "neon", width: 4, spin: aarch64::neon };
        #[cfg(not(target_arch = "aarch64"))]
        Spinner { name: "scalar, multiply then add", width: 1, spin: scalar }
    }

    /// The floating-point operations of `rounds` rounds: a fused multiply-add counts as two.
    pub(crate) fn flop(self, rounds: u64) -> f64 {
        2.0 * (LANES_OF_WORK * self.width) as f64 * rounds as f64
    }

    /// Spins, on the calling thread.
    pub(crate) fn spin(self, rounds: u64) {
        black_box((self.spin)(black_box(rounds)));
    }
}

/// Beginnings that differ, so that no two accumulators can be merged into one.
fn beginnings() -> [f32; LANES_OF_WORK] {
    black_box(std::array::from_fn(|i| i as f32))
}

#[cfg(not(target_arch = "aarch64"))]
fn scalar(rounds: u64) -> f32 {
    let (factor, term) = black_box((0.999_f32, 0.001_f32));
    let mut sums = beginnings();
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = *sum * factor + term;
        }
    }
    sums.iter().sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{beginnings, black_box};

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512(rounds: u64) -> f32 {
        let (factor, term) = black_box((0.999, 0.001));
        let (factor, term) = (_mm512_set1_ps(factor), _mm512_set1_ps(term));
        let mut sums = beginnings().map(|start| _mm512_set1_ps(start));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, term);
            }
        }
        sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2(rounds: u64) -> f32 {
        let (factor, term) = black_box((0.999, 0.001));
        let (factor, term) = (_mm256_set1_ps(factor), _mm256_set1_ps(term));
        // Sixteen registers in all: the sums are taken in two halves, so that none is spilled.
        let (low, high) = split(beginnings());
        let mut total = 0.0;
        for half in [low, high] {
            let mut sums = half.map(|start| _mm256_set1_ps(start));
            for _ in 0..rounds {
                for sum in &mut sums {
                    *sum = _mm256_fmadd_ps(*sum, factor, term);
                }
            }
            total += sums.into_iter().map(|sum| _mm256_cvtss_f32(sum)).sum::<f32>();
        }
        total
    }

    fn split(all: [f32; 16]) -> ([f32; 8], [f32; 8]) {
        (std::array::from_fn(|i| all[i]), std::array::from_fn(|i| all[i + 8]))
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::aarch64::*;

    use super::{beginnings, black_box};

    #[target_feature(enable = "neon")]
    fn spin(rounds: u64) -> f32 {
        let (factor, term) = black_box((0.999, 0.001));
        let (factor, term) = (vdupq_n_f32(factor), vdupq_n_f32(term));
        let mut sums = beginnings().map(|start| vdupq_n_f32(start));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = vfmaq_f32(term, *sum, factor);
            }
        }
        sums.into_iter().map(|sum| vaddvq_f32(sum)).sum()
    }

    pub(super) fn neon(rounds: u64) -> f32 {
        // SAFETY: every aarch64 processor that Rust's standard library runs on has NEON.
        unsafe { spin(rounds) }
    }
}
