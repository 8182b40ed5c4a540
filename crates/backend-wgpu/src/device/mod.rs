//! An open device: adapters, memory, pipelines, command batches, reads, timestamps and failures. `gpu.rs`
//! defines the device from the parts in the other files; `launch` is its work on kernels.

pub(crate) mod adapter;
pub(crate) mod bind_groups;
pub(crate) mod compiled;
pub(crate) mod counter;
pub(crate) mod disk_cache;
pub(crate) mod fault_table;
pub(crate) mod faults;
pub(crate) mod first_use;
pub(crate) mod gpu;
pub(crate) mod instance;
pub(crate) mod launch;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod profiler;
pub(crate) mod shader_module;
pub(crate) mod stream;
pub(crate) mod waiting;
