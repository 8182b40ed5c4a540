//! Progress notice while the driver compiles. A driver compiles a kernel when it is created or at its first
//! run, and most drivers keep it on disk for the next start. Without that, the first training step may take
//! seconds.

use std::{
    io::{IsTerminal, Write},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tensor_core::lock;

use crate::platform::Instant;

/// The time spent on new kernels before the notice is printed.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// The total time that this device's user has waited for new kernels. Once it exceeds [`NOTICE_AFTER`], one
/// line is written to stderr, if that is a terminal.
#[derive(Debug)]
pub(crate) struct FirstUse {
    /// Kernels created since the last wait for the device.
    new: AtomicUsize,
    waited: Mutex<Duration>,
    /// Whether no notice is needed any more.
    said: AtomicBool,
}

impl FirstUse {
    pub(crate) fn new() -> FirstUse {
        let silent = !std::io::stderr().is_terminal();
        FirstUse { new: AtomicUsize::new(0), waited: Mutex::default(), said: AtomicBool::new(silent) }
    }

    /// Counts kernels whose creation began at `start`.
    pub(crate) fn made(&self, count: usize, start: Instant, device: &str) {
        self.new.fetch_add(count, Ordering::Relaxed);
        self.add(start.elapsed(), device);
    }

    /// The time that a wait may take before the notice is due; None if no notice is needed.
    pub(crate) fn time_until_notice(&self) -> Option<Duration> {
        let quiet = self.said.load(Ordering::Relaxed) || self.new.load(Ordering::Relaxed) == 0;
        (!quiet).then(|| NOTICE_AFTER.saturating_sub(*lock(&self.waited)))
    }

    /// Counts a wait for the device that began at `start`; `over` means that all kernels created before
    /// have run.
    pub(crate) fn waited(&self, start: Instant, over: bool, device: &str) {
        let new = if over { self.new.swap(0, Ordering::Relaxed) } else { self.new.load(Ordering::Relaxed) };
        if new > 0 {
            self.add(start.elapsed(), device);
        }
    }

    fn add(&self, time: Duration, device: &str) {
        let mut waited = lock(&self.waited);
        *waited += time;
        if *waited >= NOTICE_AFTER && !self.said.swap(true, Ordering::Relaxed) {
            let line = format!(
                "taper: the first run of each kernel on {device} includes its compilation; the driver keeps it for later starts\n"
            );
            // A write to a closed terminal may fail; that is ignored.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening() -> FirstUse {
        FirstUse { new: AtomicUsize::new(0), waited: Mutex::default(), said: AtomicBool::new(false) }
    }

    #[test]
    fn a_second_of_waiting_for_new_kernels_is_said_once() {
        let first = listening();
        let ago =
            |ms: u64| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap_or_else(Instant::now);
        // No new kernel: a long wait is caused by the work itself.
        assert_eq!(first.time_until_notice(), None);
        first.waited(ago(5000), true, "wgpu:9");
        first.made(1, ago(100), "wgpu:9");
        let left = first.time_until_notice();
        assert!(left.is_some_and(|left| left <= Duration::from_millis(900)), "{left:?}");
        first.waited(ago(300), true, "wgpu:9");
        assert_eq!(first.time_until_notice(), None);
        assert!(!first.said.load(Ordering::Relaxed));
        first.made(1, ago(1), "wgpu:9");
        first.waited(ago(700), false, "wgpu:9");
        assert!(first.said.load(Ordering::Relaxed) && first.time_until_notice().is_none());
    }

    #[test]
    fn nothing_is_said_where_nobody_reads_it() {
        let first = listening();
        first.said.store(true, Ordering::Relaxed);
        first.made(1, Instant::now(), "wgpu:9");
        assert_eq!(first.time_until_notice(), None);
    }
}
