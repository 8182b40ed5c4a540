//! Errors that wgpu reports asynchronously: errors outside every scope, and the loss of the device. Results
//! may be wrong after either, so both mark the device as lost. They never panic, and every later reader
//! gets the error.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tensor_core::{Error, ErrorKind, Result, lock};

use crate::platform::now_or_later;

/// Whether the device is lost. Once it is, every call fails until the device is opened again.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    lost: AtomicBool,
    reason: Mutex<String>,
}

impl Faults {
    /// Starts to observe errors of `device`.
    pub(crate) fn watch(device: &wgpu::Device) -> Arc<Faults> {
        let faults = Arc::new(Faults::default());
        let other = Arc::clone(&faults);
        // A command failed, and the results that depend on it are unknown.
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            other.lose(format!("a command failed, and results that depend on it are wrong: {error}"));
        }));
        let other = Arc::clone(&faults);
        device.set_device_lost_callback(move |reason, message| {
            other.lose(if message.is_empty() { format!("{reason:?}") } else { message });
        });
        faults
    }

    /// Marks the device as permanently lost. The first reason is kept.
    pub(crate) fn lose(&self, reason: String) {
        let mut kept = lock(&self.reason);
        if kept.is_empty() {
            *kept = reason;
        }
        self.lost.store(true, Ordering::Release);
    }

    /// Whether the device is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// `DeviceLost` if the device is lost.
    pub(crate) fn alive(&self, device: &str) -> Result<()> {
        if self.is_lost() {
            return Err(Error::new(ErrorKind::DeviceLost {
                device: device.into(),
                reason: lock(&self.reason).clone(),
            }));
        }
        Ok(())
    }
}

/// An error caught by an error scope.
pub(crate) enum Caught {
    /// The driver is out of memory.
    OutOfMemory,
    /// Any other error, with wgpu's message.
    Other(String),
}

impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caught::OutOfMemory => f.write_str("out of memory"),
            Caught::Other(message) => f.write_str(message),
        }
    }
}

/// Runs `work` inside scopes for every kind of error. Scopes belong to the calling thread. An error that
/// arrives only after this returns, as in a browser, makes the device lost, because other work already
/// depends on `work`.
pub(crate) fn scoped<T>(
    device: &wgpu::Device,
    faults: &Arc<Faults>,
    what: &str,
    work: impl FnOnce() -> T,
) -> (T, Option<Caught>) {
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let out = work();
    let (validation, memory, internal) = (validation.pop(), memory.pop(), internal.pop());
    let caught = async move {
        let (validation, memory, internal) = (validation.await, memory.await, internal.await);
        match (memory, validation.or(internal)) {
            (Some(_), _) => Some(Caught::OutOfMemory),
            (None, Some(error)) => Some(Caught::Other(error.to_string())),
            (None, None) => None,
        }
    };
    let (faults, what) = (Arc::clone(faults), what.to_owned());
    let late = move |caught: Option<Caught>| {
        if let Some(caught) = caught {
            faults.lose(format!("{what} failed, and other work already depends on it: {caught}"));
        }
    };
    (out, now_or_later(caught, late).flatten())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tensor_core::{DType, ErrorKind};

    use crate::{
        Options,
        device::{adapter, gpu::Gpu},
    };

    /// A regression test: only the next reader used to get the error.
    #[test]
    fn an_error_outside_every_scope_is_told_to_everybody_from_then_on() {
        let Some(found) = taper_testing::settings::opened(pollster::block_on(adapter::find(0))) else {
            return;
        };
        let gpu = pollster::block_on(Gpu::open(&found, &Options::default())).unwrap();
        gpu.finish().unwrap();
        // No buffer may have both of these usages.
        let _refused = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("impossible"),
            size: 256,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE,
            mapped_at_creation: false,
        });
        assert!(gpu.faults.is_lost());
        for _ in 0..3 {
            let errors = [gpu.finish().unwrap_err(), gpu.allocate(DType::F32, 4).map(|_| ()).unwrap_err()];
            for error in errors {
                assert!(matches!(error.kind(), ErrorKind::DeviceLost { .. }), "{error}");
                assert!(error.to_string().contains("impossible"), "{error}");
            }
        }
    }
}
