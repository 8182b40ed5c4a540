//! [`Aside`]: the studio's own time between two steps.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use web_time::Instant;

use crate::record::is_recording;

/// Nanoseconds that passed in the studio's own functions since the last step.
static ASIDE_NANOS: AtomicU64 = AtomicU64::new(0);

/// Time that the studio takes between two steps, until this is dropped: it does not count as loading. The
/// functions of this crate take care of their own.
///
/// ```
/// # fn main() -> tensor_core::Result<()> {
/// studio::step(0, || Ok(()))?;
/// let aside = studio::Aside::begin();
/// std::thread::sleep(std::time::Duration::from_millis(1)); // write a checkpoint, measure an accuracy …
/// drop(aside);
/// studio::step(1, || Ok(()))?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "time counts as the studio's until this is dropped"]
pub struct Aside(Option<Instant>);

thread_local! {
    /// Whether an [`Aside`] of this thread is open.
    static IS_ASIDE: Cell<bool> = const { Cell::new(false) };
}

impl Aside {
    /// Begins such a time. Within another one, and while nothing is recorded, it does nothing.
    pub fn begin() -> Aside {
        let begins = is_recording() && !IS_ASIDE.replace(true);
        Aside(begins.then(Instant::now))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(begun) = self.0 {
            IS_ASIDE.set(false);
            ASIDE_NANOS.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// The time since this was called last.
pub(crate) fn take() -> Duration {
    Duration::from_nanos(ASIDE_NANOS.swap(0, Ordering::Relaxed))
}
