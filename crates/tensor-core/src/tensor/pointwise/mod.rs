//! Functions of each element: arithmetic, activations, special functions, bits.

pub(crate) mod activation;
pub(crate) mod affine;
pub(crate) mod bits;
pub(crate) mod blend;
pub(crate) mod elementwise;
pub(crate) mod logarithms;
pub(crate) mod operators;
pub(crate) mod signs;
pub(crate) mod special;
