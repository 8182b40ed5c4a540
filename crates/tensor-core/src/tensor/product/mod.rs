//! Products of matrices and of tensors.

pub(crate) mod addmm;
pub(crate) mod einsum;
pub(crate) mod linear;
pub(crate) mod products;
