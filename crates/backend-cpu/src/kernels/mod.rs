//! One file for each body of [`tensor_core::kernel::Body`] but the map, which lives with its engine in
//! `elementwise`. Uses every other room. Of each other, they use `index` (what [`gather`] and [`scatter`]
//! share), `accumulator` (what [`reduce`] and [`rows`] share), `few_terms` (a form of [`reduce`]), `row_fold`
//! (the folds of [`rows`]), `running` (one of [`cumulative`] and of `running_extreme`), `interleave` (one of
//! [`copy`]) and [`contract`]'s micro-kernels.

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
