//! Devices: the contract of a backend, the handle to a device, devices by name, and default dtypes.
//! It depends on `kernels`, `base` and `elements`.

pub mod backend;
pub(crate) mod defaults;
pub(crate) mod device;
pub(crate) mod provider;
