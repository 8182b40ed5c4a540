//! Devices: the contract of a backend, the handle on one, devices by name, and the dtypes that they default
//! to.
//! It depends on `kernels`, `base` and `elements`.

pub mod backend;
pub(crate) mod defaults;
pub(crate) mod device;
pub(crate) mod provider;
