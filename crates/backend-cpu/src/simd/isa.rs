//! The instruction set of the inner loops. Every loop is written once as a [`Job`], compiled for AVX-512,
//! AVX2 with FMA and the target's baseline (which includes NEON on aarch64), or for some of these
//! ([`Sets`]), and selected at run time.
//!
//! Each instruction set always gives the same bits. Sets with fused multiply-add differ from the others
//! only in the last bits of the real functions that use it (see `math`).
#![allow(unsafe_code)]

use std::fmt;

/// Whether the baseline has fused multiply-add.
pub(crate) const BASELINE_FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// The instruction sets that loops are compiled for. Private, so that an [`Isa`] proves detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// An instruction set that this processor has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Isa(Level);

/// A loop that is compiled for every instruction set. `run` and the functions that it calls must be
/// `#[inline(always)]`.
pub trait Job {
    /// The result of the loop.
    type Output;
    /// Runs the loop.
    fn run(self) -> Self::Output;
}

impl Isa {
    /// Every instruction set of this processor, best first.
    pub(crate) fn available() -> Vec<Isa> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            macro_rules! has { ($($feature:tt),*) => { $(is_x86_feature_detected!($feature))&&* } }
            let avx2 = has!("avx2", "fma", "bmi1", "bmi2", "f16c", "lzcnt", "popcnt");
            if avx2 && has!("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl") {
                all.push(Isa(Level::Avx512));
            }
            if avx2 {
                all.push(Isa(Level::Avx2));
            }
        }
        all.push(Isa(Level::Baseline));
        all
    }

    /// Whether this instruction set has that name. The baseline of any architecture may also be called
    /// `baseline`.
    pub(crate) fn is(self, name: &str) -> bool {
        self.name() == name || name == "baseline" && self.0 == Level::Baseline
    }

    /// `avx512`, `avx2`, `neon` or `baseline`.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            Level::Baseline if cfg!(target_arch = "aarch64") => "neon",
            Level::Baseline => "baseline",
        }
    }

    /// Whether it has fused multiply-add.
    pub(crate) fn has_fma(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx2 => true,
            Level::Baseline => BASELINE_FMA,
        }
    }

    /// Whether this is AVX-512 with its BW, DQ and VL extensions.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_avx512(self) -> bool {
        self.0 == Level::Avx512
    }

    /// Whether it converts f16, as all sets with AVX2 do.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn has_f16c(self) -> bool {
        self.0 != Level::Baseline
    }

    /// Whether this is AVX2 with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_avx2(self) -> bool {
        self.0 == Level::Avx2
    }

    /// Runs the job compiled for this instruction set.
    #[inline]
    pub(crate) fn run<J: Job>(self, job: J) -> J::Output {
        match self.0 {
            // SAFETY: `available` creates this value only if the processor has all features of `avx512`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512(job) },
            // SAFETY: `available` creates this value only if the processor has all features of `avx2`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2(job) },
            Level::Baseline => job.run(),
        }
    }

    /// The sets for loops that are limited by memory, or that few programs run: no AVX-512 version.
    pub(crate) fn narrow(self) -> Narrow {
        Narrow(self)
    }

    /// The sets for loops with fused multiply-add, if the processor has it.
    pub(crate) fn fused(self) -> Option<Fused> {
        self.has_fma().then_some(Fused(self))
    }
}

/// The instruction sets that a loop is compiled for, and the selected one. Each version costs build time,
/// so a loop has only the versions that pay.
pub(crate) trait Sets: Copy + Send + Sync {
    /// Whether block loops have a single form for all aliasing cases of the output: faster to compile and
    /// slightly slower.
    const ONE_FORM: bool;
    fn run<J: Job>(self, job: J) -> J::Output;
}

impl Sets for Isa {
    const ONE_FORM: bool = false;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        Isa::run(self, job)
    }
}

/// AVX2 and the baseline.
#[derive(Clone, Copy)]
pub(crate) struct Narrow(Isa);

impl Sets for Narrow {
    const ONE_FORM: bool = true;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        match self.0.0 {
            // SAFETY: `available` creates these values only if the processor has all features of `avx2`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx2 => unsafe { avx2(job) },
            Level::Baseline => job.run(),
        }
    }
}

/// The baseline, for loops that do not vectorise.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl Sets for Plain {
    const ONE_FORM: bool = true;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        job.run()
    }
}

/// The sets with fused multiply-add: see [`Isa::has_fma`].
#[derive(Clone, Copy)]
pub(crate) struct Fused(Isa);

impl Sets for Fused {
    const ONE_FORM: bool = false;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        match self.0.0 {
            // SAFETY: `available` creates this value only if the processor has all features of `avx512`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512(job) },
            // SAFETY: `available` creates this value only if the processor has all features of `avx2`.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2(job) },
            #[cfg(any(target_arch = "aarch64", target_feature = "fma"))]
            Level::Baseline => job.run(),
            #[cfg(not(any(target_arch = "aarch64", target_feature = "fma")))]
            Level::Baseline => unreachable!("`Isa::fused` gives none without fused multiply-add"),
        }
    }
}

/// All sets of `S`, with the short form of block loops.
#[derive(Clone, Copy)]
pub(crate) struct Short<S>(pub(crate) S);

impl<S: Sets> Sets for Short<S> {
    const ONE_FORM: bool = true;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        self.0.run(job)
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Runs the job compiled for AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c,lzcnt,popcnt")]
pub(crate) fn avx512<J: Job>(job: J) -> J::Output {
    job.run()
}

/// Runs the job compiled for AVX-512 with its instructions for products of bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(
    enable = "avx512vnni,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c,lzcnt,popcnt"
)]
pub(crate) fn avx512_vnni<J: Job>(job: J) -> J::Output {
    job.run()
}

/// Runs the job compiled for AVX2 with instructions for products of bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avxvnni,avx2,fma,bmi1,bmi2,f16c,lzcnt,popcnt")]
pub(crate) fn avx_vnni<J: Job>(job: J) -> J::Output {
    job.run()
}

/// Runs the job compiled for AVX2 with fused multiply-add.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c,lzcnt,popcnt")]
pub(crate) fn avx2<J: Job>(job: J) -> J::Output {
    job.run()
}
