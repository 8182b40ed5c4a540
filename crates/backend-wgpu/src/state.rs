//! What went wrong outside a call: wgpu reports lost devices and late errors to callbacks, and goes on as if nothing had
//! happened. They are stored here, and looked at before any result is believed.

use std::sync::{Arc, Mutex};

use tensor_core::{Error, Result};

use crate::pool::lock;

/// The health of one device, shared with its callbacks.
#[derive(Clone)]
pub(crate) struct Health {
    name: String,
    lost: Arc<Mutex<Option<String>>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Health {
    /// Hangs itself on the device's callbacks.
    pub(crate) fn watch(name: &str, device: &wgpu::Device) -> Health {
        let health = Health { name: name.into(), lost: Arc::default(), failure: Arc::default() };
        let lost = health.lost.clone();
        device.set_device_lost_callback(move |reason, message| {
            lock(&lost).get_or_insert(format!("{reason:?}: {message}"));
        });
        let failure = health.failure.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            lock(&failure).get_or_insert(error.to_string());
        }));
        health
    }

    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.lost).is_some()
    }

    /// The loss of the device, for good; or a failure that nobody was told of yet, once.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(reason) = lock(&self.lost).clone() {
            return Err(Error::DeviceLost { device: self.name.clone(), reason });
        }
        match lock(&self.failure).take() {
            Some(message) => Err(Error::Backend { device: self.name.clone(), message }),
            None => Ok(()),
        }
    }

    /// An error of the backend's, unless the device is lost, which explains it.
    pub(crate) fn blame(&self, message: String) -> Error {
        match self.check() {
            Err(error) => error,
            Ok(()) => Error::Backend { device: self.name.clone(), message },
        }
    }
}
