//! [`DeviceProvider`]: devices by name. A backend describes the devices that it can open, so that a
//! program can list them and choose one at run time.

use std::{
    future::{Future, ready},
    pin::Pin,
};

use crate::{
    base::error::Result,
    devices::{backend::DeviceInfo, device::Device},
};

/// A future of a result.
pub type Awaited<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The devices of a backend by name. `mine:1#2` is device number 1 of the provider called `mine`, as
/// logical device number 2 on that hardware.
///
/// Give one to `taper::register_backend`; from then on `taper::device`, the variable `TAPER_DEVICE`,
/// `taper::devices` and their error messages know its names. Taper's own backends are registered in the
/// same way.
pub trait DeviceProvider: Send + Sync {
    /// The prefix of its devices' names: a lowercase letter, then lowercase letters, digits, `-` or `_`.
    /// Not `auto`.
    fn name(&self) -> &str;

    /// Aliases of the prefix, with the same characters.
    fn aliases(&self) -> &[&str] {
        &[]
    }

    /// The existing devices, in the order of their numbers, without opening any. Each is named as
    /// [`Device::name`] will be, `mine:0`; the first may be `mine`.
    fn devices(&self) -> Vec<DeviceInfo>;

    /// [`DeviceProvider::devices`] as a future: for browsers, where no thread can block.
    fn devices_async(&self) -> Awaited<'_, Vec<DeviceInfo>> {
        Box::pin(ready(self.devices()))
    }

    /// The number of logical devices on the same hardware, `mine:0` and `mine:0#1` for example.
    fn logical_devices(&self) -> usize {
        1
    }

    /// The device with these two numbers, the second below [`DeviceProvider::logical_devices`]. Every
    /// call returns the same device, unless it was lost in between: tensors of two devices do not mix,
    /// even if both have the same name.
    ///
    /// # Errors
    /// `UnknownDevice` for a number out of range, and any failure to open the device.
    fn open(&self, index: usize, logical: usize) -> Result<Device>;

    /// [`DeviceProvider::open`] as a future.
    fn open_async(&self, index: usize, logical: usize) -> Awaited<'_, Result<Device>> {
        Box::pin(ready(self.open(index, logical)))
    }

    /// The environment variables with the prefix `TAPER_` that it reads. Any other one with that prefix
    /// is reported to the user as unused.
    fn variables(&self) -> &[&'static str] {
        &[]
    }
}
