//! The ground of the crate: errors and where they were met, shapes, files, counter-based random numbers.
//! It depends on `elements` only.

pub(crate) mod error;
pub mod file;
pub mod npy;
pub(crate) mod origin;
pub(crate) mod philox;
pub(crate) mod shape;
pub(crate) mod sync;
pub(crate) mod write_file;
