//! Reads and writes at indices.

pub(in crate::tensor) mod checks;
pub(crate) mod index;
pub(crate) mod scatter;
pub(crate) mod slices;
