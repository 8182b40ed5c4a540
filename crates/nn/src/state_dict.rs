//! [`StateDict`]: the tensors of a module by their names.

use std::collections::BTreeMap;

use tensor_core::Tensor;

/// Tensors by name: `fc1.weight`. It is a snapshot, which later training does not change.
pub type StateDict = BTreeMap<String, Tensor>;
