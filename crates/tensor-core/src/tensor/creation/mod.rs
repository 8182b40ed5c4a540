//! New tensors: values, ranges, random numbers.

pub(crate) mod create;
pub(crate) mod nested;
pub(crate) mod random;
pub(crate) mod sampling;
