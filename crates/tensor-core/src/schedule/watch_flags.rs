//! Process-wide flags: whether launches are profiled, whether they are searched for anomalies, and whether
//! operations are fused.

use std::sync::atomic::{AtomicU8, Ordering};

pub(super) const PROFILE: u8 = 1;
pub(super) const ANOMALY: u8 = 2;
pub(super) const UNFUSED: u8 = 4;
/// The active instrumentation of the whole process, as flags.
static WATCHED: AtomicU8 = AtomicU8::new(0);

/// The set flags.
pub(super) fn watched() -> u8 {
    WATCHED.load(Ordering::Relaxed)
}

/// Clears a flag when the watched function ends, also by a panic.
#[derive(Debug)]
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
pub(crate) fn computes_each_operation() -> bool {
    watched() & (ANOMALY | UNFUSED) != 0
}
