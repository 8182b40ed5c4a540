//! Operations with native kernels, as data: each is a `CustomKernel` that a backend may implement. The
//! callers, in `tensor`, `fft` and the crate `nn`, have the compositions for devices without such a
//! kernel.
//! It depends on `kernels`, `base` and `elements`.

pub(crate) mod attention;
pub(crate) mod bag;
pub(crate) mod cached_attention;
pub(crate) mod distances;
pub(crate) mod fourier;
pub(crate) mod grid_sample;
pub(crate) mod max_pool;
pub(crate) mod nonzero;
pub(crate) mod packed_rows;
pub(crate) mod places;
pub(crate) mod recurrence;
pub(crate) mod running_extreme;
