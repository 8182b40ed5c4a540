//! Fused elementwise kernels.
//!
//! | file | contents |
//! |---|---|
//! | `elementwise` | the kernel: one invocation for each element, or for four |
//! | `frame` | zeros around the elements of an output, also of row kernels |

pub(crate) mod elementwise;
pub(crate) mod frame;
