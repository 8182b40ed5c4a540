//! The lazy graph: operations as data, nodes, the tensor as a handle to a node, and known facts about
//! values. It computes nothing and builds no operations.
//! It depends on `devices`, `kernels`, `base` and `elements`.

pub(crate) mod build_log;
pub(crate) mod facts;
pub(crate) mod grad_mode;
pub(crate) mod handle;
pub(crate) mod layer_calls;
pub(crate) mod memory_log;
mod new_node;
pub(crate) mod node;
pub(crate) mod op;
pub(crate) mod state;
pub(crate) mod trace;
