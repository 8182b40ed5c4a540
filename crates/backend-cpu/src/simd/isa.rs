//! Which instruction set the inner loops run on. Every loop is written once as a [`Job`], compiled for
//! AVX-512, AVX2 with FMA and the target's baseline (which has NEON on aarch64), or for some of these
//! ([`Sets`]), and chosen at run time.
//!
//! Every one of them gives the same bits always; sets with fused multiply-add differ from the others in the
//! last bits of those real functions that use it (see `math`), and in nothing else.
#![allow(unsafe_code)]

use std::fmt;

/// Whether the baseline multiplies and adds in one step.
pub(crate) const BASELINE_FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// The instruction sets with loops of their own. Private, so that an [`Isa`] is proof of detection.
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

/// A loop to be compiled for every instruction set. `run` must be `#[inline(always)]`, and so must what it
/// calls.
pub trait Job {
    /// What the loop gives.
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

    /// Whether this is what is called so; what every processor of an architecture has may be called
    /// `baseline` on any.
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

    /// Whether a multiplication and an addition can be one instruction.
    pub(crate) fn has_fma(self) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx2 => true,
            Level::Baseline => BASELINE_FMA,
        }
    }

    /// Whether this is AVX-512 with its byte, word, doubleword and vector-length parts.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_avx512(self) -> bool {
        self.0 == Level::Avx512
    }

    /// Whether this is AVX2 with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn is_avx2(self) -> bool {
        self.0 == Level::Avx2
    }

    /// Runs the job as compiled for this instruction set.
    #[inline]
    pub(crate) fn run<J: Job>(self, job: J) -> J::Output {
        match self.0 {
            // SAFETY: `available` makes this value only where the processor has the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512(job) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2(job) },
            Level::Baseline => job.run(),
        }
    }

    /// For loops that memory limits, or that few programs run: without a version for AVX-512.
    pub(crate) fn narrow(self) -> Narrow {
        Narrow(self)
    }

    /// For loops with fused multiply-add, where there is one.
    pub(crate) fn fused(self) -> Option<Fused> {
        self.has_fma().then_some(Fused(self))
    }
}

/// The versions of a loop that are compiled, and which of them runs. Each costs time to build, so that a loop
/// has those that pay.
pub(crate) trait Sets: Copy + Send + Sync {
    /// Whether loops over blocks have one form for all places of the output, shorter to compile and a little
    /// slower.
    const SHORT: bool;
    fn run<J: Job>(self, job: J) -> J::Output;
}

impl Sets for Isa {
    const SHORT: bool = false;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        Isa::run(self, job)
    }
}

/// AVX2 and the baseline.
#[derive(Clone, Copy)]
pub(crate) struct Narrow(Isa);

impl Sets for Narrow {
    const SHORT: bool = true;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        match self.0.0 {
            // SAFETY: `available` makes these values only where the processor has the features; AVX-512 comes
            // with those of AVX2.
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
    const SHORT: bool = true;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        job.run()
    }
}

/// Those with fused multiply-add: see [`Isa::has_fma`].
#[derive(Clone, Copy)]
pub(crate) struct Fused(Isa);

impl Sets for Fused {
    const SHORT: bool = false;
    #[inline]
    fn run<J: Job>(self, job: J) -> J::Output {
        match self.0.0 {
            // SAFETY: `available` makes this value only where the processor has the features.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512(job) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2(job) },
            #[cfg(any(target_arch = "aarch64", target_feature = "fma"))]
            Level::Baseline => job.run(),
            #[cfg(not(any(target_arch = "aarch64", target_feature = "fma")))]
            Level::Baseline => unreachable!("`Isa::fused` gives none without fused multiply-add"),
        }
    }
}

/// All sets of `S`, in the short form.
#[derive(Clone, Copy)]
pub(crate) struct Short<S>(pub(crate) S);

impl<S: Sets> Sets for Short<S> {
    const SHORT: bool = true;
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

/// The job as compiled for AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c,lzcnt,popcnt")]
pub(crate) fn avx512<J: Job>(job: J) -> J::Output {
    job.run()
}

/// The job as compiled for AVX2 with fused multiply-add.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,f16c,lzcnt,popcnt")]
pub(crate) fn avx2<J: Job>(job: J) -> J::Output {
    job.run()
}
