//! Failures that wgpu reports from the side: errors outside every scope, and the loss of the device.
//! They are stored here, never a panic, and read before any result is believed.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tensor_core::{Error, ErrorKind, Result};

/// A lock whose holder panicked is still a lock: what it guards here is valid between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
enum Fault {
    Message(String),
    Error(Error),
}

/// What went wrong on one device and was not told yet.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    lost: AtomicBool,
    reason: Mutex<String>,
    pending: Mutex<Option<Fault>>,
    any: AtomicBool,
}

impl Faults {
    /// Listens to `device` from now on.
    pub(crate) fn watch(device: &wgpu::Device) -> Arc<Faults> {
        let faults = Arc::new(Faults::default());
        let other = Arc::clone(&faults);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| other.store(error.to_string())));
        let other = Arc::clone(&faults);
        device.set_device_lost_callback(move |reason, message| {
            other.lose(if message.is_empty() { format!("{reason:?}") } else { message });
        });
        faults
    }

    /// Keeps the first message until somebody looks.
    pub(crate) fn store(&self, message: String) {
        lock(&self.pending).get_or_insert(Fault::Message(message));
        self.any.store(true, Ordering::Release);
    }

    /// Keeps an error that came up where nobody could be told.
    pub(crate) fn keep(&self, error: Error) {
        lock(&self.pending).get_or_insert(Fault::Error(error));
        self.any.store(true, Ordering::Release);
    }

    /// Marks the device as gone for good.
    pub(crate) fn lose(&self, reason: String) {
        let mut kept = lock(&self.reason);
        if kept.is_empty() {
            *kept = reason;
        }
        self.lost.store(true, Ordering::Release);
    }

    /// Whether the device is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// `DeviceLost` if the device is gone.
    pub(crate) fn alive(&self, device: &str) -> Result<()> {
        if self.is_lost() {
            return Err(Error::new(ErrorKind::DeviceLost {
                device: device.into(),
                reason: lock(&self.reason).clone(),
            }));
        }
        Ok(())
    }

    /// `DeviceLost`, or the failure that was stored and not told yet.
    pub(crate) fn check(&self, device: &str) -> Result<()> {
        self.alive(device)?;
        if self.any.swap(false, Ordering::AcqRel)
            && let Some(fault) = lock(&self.pending).take()
        {
            return Err(match fault {
                Fault::Message(message) => Error::new(ErrorKind::Backend { device: device.into(), message }),
                Fault::Error(error) => error,
            });
        }
        Ok(())
    }
}

/// What an error scope caught.
pub(crate) enum Caught {
    /// The driver has no memory left.
    OutOfMemory,
    /// Anything else, in wgpu's words.
    Other(String),
}

/// Runs `work` with scopes for every kind of error around it. Scopes belong to the calling thread.
pub(crate) fn scoped<T>(device: &wgpu::Device, work: impl FnOnce() -> T) -> (T, Option<Caught>) {
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let out = work();
    let validation = pollster::block_on(validation.pop());
    let memory = pollster::block_on(memory.pop());
    let internal = pollster::block_on(internal.pop());
    let caught = match (memory, validation.or(internal)) {
        (Some(_), _) => Some(Caught::OutOfMemory),
        (None, Some(error)) => Some(Caught::Other(error.to_string())),
        (None, None) => None,
    };
    (out, caught)
}
