//! [`Storage`]: the memory that kernels read and write, as the graph and the kernels see it.

use std::{any::Any, fmt, sync::Arc};

use crate::elements::dtype::DType;

/// Memory on a device, owned by its backend and shared by the tensors that view it. Dropping the last
/// handle frees it.
pub type Storage = Arc<dyn Buffer>;

/// The properties that every backend's buffer reports. A backend gets its own type back by downcasting
/// `&dyn Any`.
pub trait Buffer: Any + fmt::Debug + Send + Sync {
    /// The dtype of the elements.
    fn dtype(&self) -> DType;

    /// The number of elements it was allocated for.
    fn numel(&self) -> usize;
}
