//! Element types: the table of dtypes, the Rust types of elements, scalars, rounding.
//! It depends on no other module of the crate.

pub(crate) mod dtype;
pub(crate) mod element;
pub(crate) mod rounding;
pub(crate) mod scalar;
