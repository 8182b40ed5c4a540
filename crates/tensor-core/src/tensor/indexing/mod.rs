//! Reads and writes at indices.

pub(crate) mod index;
pub(crate) mod scatter;
pub(crate) mod slices;
