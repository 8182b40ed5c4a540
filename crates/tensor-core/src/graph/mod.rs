//! The lazy graph: operations as data, nodes, the tensor as a handle on one, and what is known of values.
//! It depends on `devices`, `kernels`, `base` and `elements`. It computes nothing and builds no operations.

pub(crate) mod facts;
pub(crate) mod grad_mode;
pub(crate) mod handle;
pub(crate) mod memory_log;
pub(crate) mod node;
pub(crate) mod op;
pub(crate) mod state;
