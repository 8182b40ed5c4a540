//! The operations on one tile of scores, keys by queries: micro-kernel products, masks, exponentials.
//! Queries run along registers, sixteen to a [`Lanes`] group. So a value that belongs to a query (its
//! maximum, its sum) is one lane, and no reduction runs across a register.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use tensor_core::philox;

use crate::{
    kernels::product::{
        kernel_table::{HasMicroKernels, MicroKernels},
        micro_kernel::MicroTile,
        operands::{Panels, WIDEST},
    },
    simd::{
        isa::{Isa, Job, Plain, Sets},
        math,
        vector::Vector,
    },
    threads,
};

/// Queries of a group: whole registers on every instruction set.
pub(super) const LANES: usize = WIDEST;
/// One number for each query of a group.
pub(super) type Lanes<T> = [T; LANES];

/// f32 and f64.
pub(super) trait Score: HasMicroKernels {
    const INFINITY: Self;
    const NEG_INFINITY: Self;
    fn ln(self) -> Self;
    fn reciprocal(self) -> Self;
    /// Runs the job with the exponential function of the instruction set.
    fn with_exp<J: ExpJob<Self>>(isa: Isa, job: J) -> J::Output;
}

/// e^x of a group. Its method must be `#[inline(always)]`.
pub(super) trait Exp<T> {
    fn exp(x: Lanes<T>) -> Lanes<T>;
}

/// A [`Job`] with exponentials.
pub(super) trait ExpJob<T> {
    type Output;
    fn run<E: Exp<T>>(self) -> Self::Output;
}

struct WithExp<J, E>(J, PhantomData<E>);

macro_rules! with_exp {
    ($t:ty) => {
        impl<J: ExpJob<$t>, E: Exp<$t>> Job for WithExp<J, (E, $t)> {
            type Output = J::Output;
            #[inline(always)]
            fn run(self) -> J::Output {
                self.0.run::<E>()
            }
        }
    };
}
with_exp!(f32);
with_exp!(f64);

/// Uses AVX-512 registers.
#[cfg(target_arch = "x86_64")]
struct Wide;
#[cfg(target_arch = "x86_64")]
impl Exp<f32> for Wide {
    #[inline(always)]
    fn exp(mut x: Lanes<f32>) -> Lanes<f32> {
        use crate::simd::vector::F32x16;
        // SAFETY: the array is one register long; `with_exp` uses this only if the processor has AVX-512.
        unsafe {
            let y = math::exp::<true, F32x16>(F32x16::load(x.as_ptr()));
            y.store_first(x.as_mut_ptr(), LANES);
        }
        x
    }
}

/// Computes each number separately; the compiler vectorises the loop.
struct Each<const FUSED: bool>;
impl<const FUSED: bool> Exp<f32> for Each<FUSED> {
    #[inline(always)]
    fn exp(mut x: Lanes<f32>) -> Lanes<f32> {
        for x in &mut x {
            *x = math::exp::<FUSED, f32>(*x);
        }
        x
    }
}
impl<const FUSED: bool> Exp<f64> for Each<FUSED> {
    #[inline(always)]
    fn exp(mut x: Lanes<f64>) -> Lanes<f64> {
        for x in &mut x {
            *x = x.exp();
        }
        x
    }
}

macro_rules! score {
    ($t:ident, $isa:ident, $job:ident => $with_exp:block) => {
        impl Score for $t {
            const INFINITY: $t = $t::INFINITY;
            const NEG_INFINITY: $t = $t::NEG_INFINITY;
            fn ln(self) -> $t {
                self.ln()
            }
            fn reciprocal(self) -> $t {
                1.0 / self
            }
            fn with_exp<J: ExpJob<$t>>($isa: Isa, $job: J) -> J::Output $with_exp
        }
    };
}
score!(f32, isa, job => {
    #[cfg(target_arch = "x86_64")]
    if isa.is_avx512() {
        // SAFETY: `is_avx512` is true only if the processor has AVX-512.
        return unsafe { crate::simd::vector::F32x16::run(WithExp(job, PhantomData::<(Wide, f32)>)) };
    }
    match isa.has_fma() {
        true => isa.narrow().run(WithExp(job, PhantomData::<(Each<true>, f32)>)),
        false => Plain.run(WithExp(job, PhantomData::<(Each<false>, f32)>)),
    }
});
score!(f64, isa, job => { isa.narrow().run(WithExp(job, PhantomData::<(Each<false>, f64)>)) });

/// A product of a left operand with a right one whose columns are contiguous, cut into micro-tiles. `tile`
/// gives the address of the first element of each operand; its `last` is ignored.
///
/// # Safety
/// As [`MicroKernels::run`] for these rows and columns. Whole registers may be read of `b`, up to the one
/// with the last column.
pub(super) unsafe fn product<T: HasMicroKernels>(
    kernels: &MicroKernels<T>,
    rows: usize,
    columns: usize,
    tile: &MicroTile<T>,
) {
    let panels = Panels::of(columns, kernels.width, kernels.registers());
    let parts = rows.div_ceil(kernels.rows(panels.most()));
    for i in 0..parts {
        let some = threads::part(rows, 1, parts, i);
        let tile = tile.skip_rows(some.start);
        for panel in 0..panels.count() {
            let (first, registers) = panels.place(panel);
            let micro = MicroTile {
                b: tile.b.wrapping_add(first),
                to: tile.to.wrapping_add(first),
                last: (columns - first).min(registers * kernels.width) - (registers - 1) * kernels.width,
                ..tile
            };
            // SAFETY: by `# Safety` all rows and columns are in memory, of which these are some; `last`
            // keeps writes within `columns`.
            unsafe { kernels.run(some.len(), registers, &micro) };
        }
    }
}

/// Multiplies every row of a tile by the factors of its queries.
pub(super) struct Rescale<'a, T> {
    pub(super) tile: &'a mut [Lanes<T>],
    pub(super) factors: &'a [Lanes<T>],
}

impl<T: Score> Job for Rescale<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for row in self.tile.chunks_exact_mut(self.factors.len()) {
            for (x, factor) in row.iter_mut().zip(self.factors) {
                for q in 0..LANES {
                    x[q] = x[q] * factor[q];
                }
            }
        }
    }
}

/// Multiplies a tile elementwise by another.
pub(super) struct Multiply<'a, T> {
    pub(super) tile: &'a mut [Lanes<T>],
    pub(super) by: &'a [Lanes<T>],
}

impl<T: Score> Job for Multiply<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for (x, by) in self.tile.iter_mut().zip(self.by) {
            for q in 0..LANES {
                x[q] = x[q] * by[q];
            }
        }
    }
}

/// Applies a mask: numbers are added; a zero byte sets the score to −∞.
pub(super) struct Masked<'a, T, M> {
    pub(super) scores: &'a mut [Lanes<T>],
    pub(super) mask: &'a [Lanes<M>],
}

impl<T: Score> Job for Masked<'_, T, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for (x, mask) in self.scores.iter_mut().zip(self.mask) {
            for q in 0..LANES {
                x[q] = x[q] + mask[q];
            }
        }
    }
}

/// A byte of a bool mask.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct Seen(pub(super) u8);

impl<T: Score> Job for Masked<'_, T, Seen> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for (x, mask) in self.scores.iter_mut().zip(self.mask) {
            for q in 0..LANES {
                x[q] = if mask[q].0 == 0 { T::NEG_INFINITY } else { x[q] };
            }
        }
    }
}

/// Dropout factors of weights: 0, or 1 / (1 − p).
pub(super) struct Draw<'a, T> {
    pub(super) to: &'a mut [Lanes<T>],
    /// Groups of queries in a row.
    pub(super) groups: usize,
    pub(super) seed: u64,
    /// The stream position of the first query and key, and the distance between the positions of
    /// neighbouring queries.
    pub(super) first: u64,
    pub(super) query: u64,
    pub(super) p: f64,
}

impl<T: Score> Job for Draw<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let (p, kept) = (self.p as f32, T::rounded(1.0 / (1.0 - self.p)));
        for (key, row) in self.to.chunks_exact_mut(self.groups).enumerate() {
            for (group, x) in row.iter_mut().enumerate() {
                for (q, x) in x.iter_mut().enumerate() {
                    let query = (group * LANES + q) as u64;
                    let at = self.first.wrapping_add(query.wrapping_mul(self.query)).wrapping_add(key as u64);
                    let uniform = (philox(self.seed, at)[0] >> 8) as f32 * (1.0 / (1 << 24) as f32);
                    *x = if uniform >= p { kept } else { T::ZERO };
                }
            }
        }
    }
}

/// Processes one more tile of scores of an online softmax: scores become e^(score − maximum).
pub(super) struct Softmax<'a, T> {
    pub(super) scores: &'a mut [Lanes<T>],
    /// The greatest score so far and the sum of exponentials so far, for each query.
    pub(super) greatest: &'a mut [Lanes<T>],
    pub(super) sums: &'a mut [Lanes<T>],
    /// The factors by which earlier exponentials have to be multiplied.
    pub(super) factors: &'a mut [Lanes<T>],
}

impl<T: Score> ExpJob<T> for Softmax<'_, T> {
    /// Whether some factor differs from 1.
    type Output = bool;
    #[inline(always)]
    fn run<E: Exp<T>>(self) -> bool {
        let groups = self.greatest.len();
        let mut changed = false;
        for group in 0..groups {
            let before = self.greatest[group];
            let mut greatest = before;
            for x in self.scores[group..].iter().step_by(groups) {
                for q in 0..LANES {
                    greatest[q] = if x[q] > greatest[q] { x[q] } else { greatest[q] };
                }
            }
            // A query that has seen no key yet: −∞ − −∞ would be NaN.
            let mut base = greatest;
            let mut factors = before;
            for q in 0..LANES {
                base[q] = if base[q] == T::NEG_INFINITY { T::ZERO } else { base[q] };
                factors[q] = factors[q] - base[q];
            }
            let factors = E::exp(factors);
            let mut sums = self.sums[group];
            for q in 0..LANES {
                sums[q] = sums[q] * factors[q];
                changed |= factors[q] != T::ONE;
            }
            let mut total = [T::ZERO; LANES];
            for x in self.scores[group..].iter_mut().step_by(groups) {
                let mut y = *x;
                for q in 0..LANES {
                    y[q] = y[q] - base[q];
                }
                y = E::exp(y);
                for q in 0..LANES {
                    total[q] = total[q] + y[q];
                }
                *x = y;
            }
            for q in 0..LANES {
                sums[q] = sums[q] + total[q];
            }
            (self.greatest[group], self.sums[group], self.factors[group]) = (greatest, sums, factors);
        }
        changed
    }
}

/// Turns scores into weights, and gradients with respect to weights into gradients with respect to scores.
pub(super) struct SoftmaxBackward<'a, T> {
    pub(super) scores: &'a mut [Lanes<T>],
    pub(super) gradients: &'a mut [Lanes<T>],
    /// The dropout factors of the weights, if there is dropout.
    pub(super) kept: Option<&'a [Lanes<T>]>,
    /// The log-sum-exp, and the sum of weights times their gradients, for each query.
    pub(super) logarithms: &'a [Lanes<T>],
    pub(super) sums: &'a [Lanes<T>],
}

impl<T: Score> ExpJob<T> for SoftmaxBackward<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<E: Exp<T>>(self) {
        let groups = self.logarithms.len();
        for (i, (x, gradient)) in self.scores.iter_mut().zip(self.gradients).enumerate() {
            let (logarithm, sum) = (&self.logarithms[i % groups], &self.sums[i % groups]);
            let mut weight = *x;
            for q in 0..LANES {
                weight[q] = weight[q] - logarithm[q];
            }
            let weight = E::exp(weight);
            let (mut of_weight, mut dropped) = (*gradient, weight);
            if let Some(kept) = self.kept {
                for q in 0..LANES {
                    of_weight[q] = of_weight[q] * kept[i][q];
                    dropped[q] = dropped[q] * kept[i][q];
                }
            }
            for q in 0..LANES {
                of_weight[q] = weight[q] * (of_weight[q] - sum[q]);
            }
            (*x, *gradient) = (dropped, of_weight);
        }
    }
}
