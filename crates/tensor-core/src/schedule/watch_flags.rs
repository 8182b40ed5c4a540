//! Process-wide flags: whether launches are profiled, and whether they are searched for anomalies.

use std::sync::atomic::{AtomicU8, Ordering};

pub(super) const PROFILE: u8 = 1;
pub(super) const ANOMALY: u8 = 2;
/// The active instrumentation of the whole process, as flags.
static WATCHED: AtomicU8 = AtomicU8::new(0);

/// The set flags.
pub(super) fn watched() -> u8 {
    WATCHED.load(Ordering::Relaxed)
}

/// Clears a flag when the watched function ends, also by a panic.
pub(super) struct Watch(u8);

impl Watch {
    /// `None` if that flag is set already.
    pub(super) fn begin(flag: u8) -> Option<Watch> {
        (WATCHED.fetch_or(flag, Ordering::SeqCst) & flag == 0).then_some(Watch(flag))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.fetch_and(!self.0, Ordering::SeqCst);
    }
}

/// Whether operations must be computed as they are built.
pub(crate) fn is_looking_for_anomalies() -> bool {
    watched() & ANOMALY != 0
}
