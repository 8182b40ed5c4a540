//! Values on the host: reads, printing, other libraries.

pub(crate) mod display;
#[cfg(feature = "ndarray")]
mod ndarray;
pub(crate) mod read;
pub(crate) mod representation;
