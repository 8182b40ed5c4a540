//! Counts of a device's work for [`crate::counted`]: counters of the objects that the host makes, and a
//! [`Counter`] that replays the rule by which wgpu records barriers.

use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use tensor_core::Kernel;

/// A number of objects made since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The objects made since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) submissions: Tally,
    pub(crate) bind_groups: Tally,
    pub(crate) buffers: Tally,
    pub(crate) read_backs: Tally,
}

/// The work of one kind of kernel, over all its launches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelCount {
    /// The kernel: `map`, `sum`, `matmul`, ….
    pub name: &'static str,
    /// Dispatches: one launch may need several.
    pub dispatches: u64,
    /// Bytes of elements that it reads and writes.
    pub bytes: u64,
    /// Arithmetic in additions, from [`Kernel::flops`]; 0 for a user's kernel.
    pub flops: u64,
}

/// How commands of the open submission used a buffer last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// The counts of the commands recorded while counting is on.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) dispatches: u64,
    pub(crate) hazards: u64,
    /// Dispatches before the first submission; `None` until then.
    pub(crate) before_first: Option<u64>,
    /// Launches in order.
    pub(crate) kernels: Vec<KernelCount>,
    /// The last use of each buffer in the open submission, by the buffer's number.
    used: FxHashMap<u64, Access>,
}

impl Counter {
    /// Adds a launch; its dispatches follow.
    pub(crate) fn launch(&mut self, kernel: &Kernel) {
        self.kernels.push(KernelCount {
            name: kernel.name(),
            dispatches: 0,
            bytes: kernel.bytes_read() + kernel.bytes_written(),
            flops: kernel.flops().unwrap_or(0),
        });
    }

    /// Adds a dispatch that binds these buffers, each with whether it is bound for writing. wgpu records a
    /// barrier before a dispatch if one of its buffers was written before, or was read and is now written,
    /// in the same submission (wgpu-core's `track::buffer`: only reads may follow each other without one).
    pub(crate) fn dispatch(&mut self, buffers: impl Iterator<Item = (u64, bool)>) {
        let mut is_hazard = false;
        for (buffer, writes) in buffers {
            let access = if writes { Access::Write } else { Access::Read };
            is_hazard |= match self.used.insert(buffer, access) {
                None => false,
                Some(Access::Write) => true,
                Some(Access::Read) => writes,
            };
        }
        self.dispatches += 1;
        self.hazards += u64::from(is_hazard);
        if let Some(launch) = self.kernels.last_mut() {
            launch.dispatches += 1;
        }
    }

    /// Ends the open submission.
    pub(crate) fn submitted(&mut self) {
        self.used.clear();
        self.before_first.get_or_insert(self.dispatches);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hazards(dispatches: &[&[(u64, bool)]]) -> u64 {
        let mut counter = Counter::default();
        dispatches.iter().for_each(|buffers| counter.dispatch(buffers.iter().copied()));
        counter.hazards
    }

    #[test]
    fn a_hazard_is_a_read_or_write_after_a_write_or_a_write_after_a_read() {
        let (reads, writes) = (false, true);
        assert_eq!(hazards(&[&[(1, reads), (2, writes)], &[(1, reads), (3, writes)]]), 0);
        assert_eq!(hazards(&[&[(1, writes)], &[(1, reads)], &[(1, reads)]]), 1);
        assert_eq!(hazards(&[&[(1, writes)], &[(1, writes)], &[(1, writes)]]), 2);
        assert_eq!(hazards(&[&[(1, reads)], &[(1, writes)]]), 1);
        // One barrier is recorded for all buffers of a dispatch.
        assert_eq!(hazards(&[&[(1, writes), (2, writes)], &[(1, reads), (2, reads)]]), 1);
    }

    #[test]
    fn a_submission_begins_without_hazards() {
        let mut counter = Counter::default();
        for _ in 0..2 {
            counter.dispatch([(1, true)].into_iter());
            counter.submitted();
        }
        assert_eq!((counter.dispatches, counter.hazards, counter.before_first), (2, 0, Some(1)));
    }
}
