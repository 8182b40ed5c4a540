//! Devices by name: what a backend says of the devices that it can open, so that a program can list them and
//! choose one at run time.

use std::{
    future::{Future, ready},
    pin::Pin,
};

use crate::{
    base::error::Result,
    devices::{backend::DeviceInfo, device::Device},
};

/// A result that is awaited.
pub type Awaited<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The devices of a backend by name. `mine:1#2` is device number 1 of the provider that is called `mine`, and
/// on the same hardware the device number 2 beside the first.
///
/// `taper::register_backend` takes one; from then on `taper::device`, the variable `TAPER_DEVICE`,
/// `taper::devices` and the errors of these know its names. The backends of Taper itself are found in the
/// same way.
pub trait DeviceProvider: Send + Sync {
    /// What the names of its devices begin with: a small letter, then small letters, digits, `-` or `_`. Not
    /// `auto`.
    fn name(&self) -> &str;

    /// Other names that mean the same, with the same letters.
    fn aliases(&self) -> &[&str] {
        &[]
    }

    /// The devices there are, in the order of their numbers. None is opened. Each is named as
    /// [`Device::name`] will be, `mine:0`; the first may be `mine`.
    fn devices(&self) -> Vec<DeviceInfo>;

    /// As [`DeviceProvider::devices`], awaited: for a page of a browser, where no thread can wait.
    fn devices_async(&self) -> Awaited<'_, Vec<DeviceInfo>> {
        Box::pin(ready(self.devices()))
    }

    /// How many devices there can be on the same hardware, `mine:0` and `mine:0#1` among them.
    fn logical_devices(&self) -> usize {
        1
    }

    /// The device of two numbers, the second below [`DeviceProvider::logical_devices`]. It is the same device
    /// at every call, unless it was lost in between: tensors of two devices do not mix, whatever these are
    /// called.
    ///
    /// # Errors
    /// `UnknownDevice` where there is no such device, and what keeps it from being opened.
    fn open(&self, index: usize, logical: usize) -> Result<Device>;

    /// As [`DeviceProvider::open`], awaited.
    fn open_async(&self, index: usize, logical: usize) -> Awaited<'_, Result<Device>> {
        Box::pin(ready(self.open(index, logical)))
    }

    /// The variables of the environment that it reads and whose names begin with `TAPER_`. Any other of that
    /// kind is reported to the user as one that nothing reads.
    fn variables(&self) -> &[&'static str] {
        &[]
    }
}
