//! The form of bf16 products: with AMX tiles, with AVX512-BF16, or widened to f32. The processor's features
//! are detected at run time; for tiles, the system must also grant permission.
#![allow(unsafe_code)]

use std::fmt;

use crate::simd::isa::Isa;

/// Private, so that a [`Bf16`] is proof of detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Widen,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Amx,
}

/// A form of bf16 products that this processor has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bf16(Level);

/// Instructions that multiply pairs of bf16 and add the products to f32.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairs {
    Avx512,
    Amx,
}

impl Bf16 {
    /// Every form that works with an instruction set, best first. Packing pairs needs AVX-512.
    pub(crate) fn available(isa: Isa) -> Vec<Bf16> {
        #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
        let mut all = vec![Bf16(Level::Widen)];
        #[cfg(target_arch = "x86_64")]
        if isa.is_avx512() && is_x86_feature_detected!("avx512bf16") {
            // Intel processors multiply pairs at half the rate of f32, AMD processors at twice the rate.
            let at = if x86::is_intel() { 1 } else { 0 };
            all.insert(at, Bf16(Level::Avx512));
            if x86::has_tiles() {
                all.insert(0, Bf16(Level::Amx));
            }
        }
        let _ = isa;
        all
    }

    /// `amx`, `avx512bf16` or `widen`.
    pub(crate) fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Amx => "amx",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512bf16",
            Level::Widen => "widen",
        }
    }

    /// The instructions; None if products are widened.
    pub(crate) fn pairs(self) -> Option<Pairs> {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Level::Amx => Some(Pairs::Amx),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => Some(Pairs::Avx512),
            Level::Widen => None,
        }
    }
}

impl fmt::Debug for Bf16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::{
        arch::x86_64::{__cpuid, __cpuid_count},
        sync::OnceLock,
    };

    pub(super) fn is_intel() -> bool {
        let leaf = __cpuid(0);
        [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
    }

    /// Whether the processor has bf16 tiles and the system lets this process use them; detected once.
    pub(super) fn has_tiles() -> bool {
        static HAS: OnceLock<bool> = OnceLock::new();
        *HAS.get_or_init(|| has_instructions() && system_allows())
    }

    /// AMX-BF16, AMX-TILE, and eight tiles of 16 rows of 64 bytes.
    fn has_instructions() -> bool {
        const AMX_BF16: u32 = 1 << 22;
        const AMX_TILE: u32 = 1 << 24;
        const MOST_LEAF: u32 = 0x1d;
        if __cpuid(0).eax < MOST_LEAF {
            return false;
        }
        let features = __cpuid_count(7, 0).edx;
        let palette = __cpuid_count(MOST_LEAF, 1);
        features & AMX_BF16 != 0
            && features & AMX_TILE != 0
            && palette.ebx & 0xffff == 64
            && palette.ebx >> 16 == 8
            && palette.ecx & 0xffff == 16
    }

    /// Linux saves tiles on a context switch only for processes that requested permission.
    #[cfg(target_os = "linux")]
    fn system_allows() -> bool {
        const ARCH_GET_XCOMP_SUPP: libc::c_ulong = 0x1021;
        const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_ulong = 18;
        let mut supported = 0u64;
        // SAFETY: the first call writes one u64 to the address; the second requests a permission by number.
        unsafe {
            libc::syscall(libc::SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &raw mut supported) == 0
                && supported >> XFEATURE_XTILEDATA & 1 == 1
                && libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn system_allows() -> bool {
        false
    }
}
