//! From a kernel to text: what a dispatch is, the writer of WGSL, the formulas of programs, and what all of
//! them ask of a device. Nothing here needs a device.

pub(crate) mod blocks;
pub(crate) mod capabilities;
pub(crate) mod dispatch;
pub(crate) mod dtypes;
pub(crate) mod formulas;
pub(crate) mod index;
pub(crate) mod storage;
pub(crate) mod wgsl;
