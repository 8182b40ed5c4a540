//! Errors and their source locations, shapes, files, counter-based random numbers, and locks.
//! It depends on `elements` only.

pub(crate) mod axes;
pub(crate) mod error;
pub mod file;
pub(crate) mod host_bytes;
pub(crate) mod location;
pub(crate) mod near_names;
pub mod npy;
pub(crate) mod on_drop;
pub(crate) mod origin;
pub(crate) mod parameter_names;
pub(crate) mod philox;
pub(crate) mod shape;
pub(crate) mod sync;
pub(crate) mod write_file;
