//! The work of a backend as data: kernels, their operands and layouts, formats of storage in blocks,
//! launches and the checks of their indices.
//! It depends on `base` and `elements`; it knows neither devices nor graphs.

pub(crate) mod blocks;
pub mod contraction;
pub mod custom;
pub(crate) mod formula;
pub(crate) mod identity;
pub mod kernel;
mod kernel_cost;
pub(crate) mod launch;
pub(crate) mod layout;
pub(crate) mod operators;
mod program_text;
pub mod rows;
pub(crate) mod storage;
pub(crate) mod ticket;
