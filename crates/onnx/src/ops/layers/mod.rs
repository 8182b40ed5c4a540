//! Operators that are layers of networks.

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod linear_attention;
pub(crate) mod loss;
pub(crate) mod norm;
pub(crate) mod pool;
