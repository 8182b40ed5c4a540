//! The size of a cache line, and prefetch hints.
#![allow(unsafe_code)]

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Prefetches a cache line into the first-level cache (`NEAREST`) or the second-level cache.
#[inline(always)]
pub(crate) fn prefetch<const NEAREST: bool, T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address only fills the cache, and SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match NEAREST {
            true => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
            false => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
        }
    }
    let _ = at;
}
