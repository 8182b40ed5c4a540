//! The flags of the process that say whether launches are profiled or searched for anomalies.

use std::sync::atomic::{AtomicU8, Ordering};

pub(super) const PROFILE: u8 = 1;
pub(super) const ANOMALY: u8 = 2;
/// What is watched for, in the whole process.
static WATCHED: AtomicU8 = AtomicU8::new(0);
/// The flags that are set.
pub(super) fn watched() -> u8 {
    WATCHED.load(Ordering::Relaxed)
}

/// Switches a flag off again, however the watched function ends.
pub(super) struct Watch(u8);

impl Watch {
    /// None if somebody watches for the same already.
    pub(super) fn begin(flag: u8) -> Option<Watch> {
        (WATCHED.fetch_or(flag, Ordering::SeqCst) & flag == 0).then_some(Watch(flag))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.fetch_and(!self.0, Ordering::SeqCst);
    }
}

/// Whether operations are to be computed as they are built.
pub(crate) fn is_looking_for_anomalies() -> bool {
    watched() & ANOMALY != 0
}
