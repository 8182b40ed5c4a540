//! One file for each body of [`tensor_core::kernel::Body`] but the map, which lives with its engine in `elementwise`. Uses every other
//! room.

pub(crate) mod arg_sort;
pub(crate) mod contract;
pub(crate) mod copy;
pub(crate) mod cumulative;
pub(crate) mod index;
pub(crate) mod reduce;
pub(crate) mod rows;
