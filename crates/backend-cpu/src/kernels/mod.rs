//! One file for each variant of [`tensor_core::kernel::Body`], except the map, which is beside its engine
//! in `elementwise`. The kernels use all other modules of the crate. Several of them share code: `index`
//! serves [`gather`] and [`scatter`], `accumulator` serves [`reduce`] and [`rows`], `few_terms` is a
//! special case of [`reduce`], `row_fold` has the folds of [`rows`], `running` and `running_extreme` belong
//! to [`cumulative`], `interleave` belongs to [`copy`], and several kernels use [`contract`]'s
//! micro-kernels.

mod accumulator;
pub(crate) mod arg_reduce;
pub(crate) mod arg_sort;
pub(crate) mod attention;
pub(crate) mod bag;
pub(crate) mod contract;
pub(crate) mod copy;
pub(crate) mod cumulative;
pub(crate) mod custom;
pub(crate) mod distances;
mod few_terms;
#[cfg(feature = "fft")]
pub(crate) mod fourier;
#[cfg(not(feature = "fft"))]
#[path = "fourier_off.rs"]
pub(crate) mod fourier;
pub(crate) mod gather;
mod grid_sample;
mod index;
mod interleave;
mod max_pool;
pub(crate) mod nonzero;
pub(crate) mod places;
pub(crate) mod recurrence;
pub(crate) mod reduce;
mod row_fold;
pub(crate) mod rows;
mod running;
mod running_extreme;
pub(crate) mod scatter;
