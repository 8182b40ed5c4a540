//! Code generation: dispatches, the WGSL writer, the formulas of programs, and the device limits that they
//! depend on. Nothing here needs a device.

pub(crate) mod blocks;
pub(crate) mod capabilities;
pub(crate) mod dispatch;
pub(crate) mod dtypes;
pub(crate) mod formulas;
pub(crate) mod index;
pub(crate) mod storage;
pub(crate) mod trace;
pub(crate) mod wgsl;
