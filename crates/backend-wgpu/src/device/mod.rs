//! One open device: adapters, memory, pipelines, command batches, reads, times and failures. `gpu.rs` has the
//! device itself; the files beside it are what it does, each in an `impl` of its own.

pub(crate) mod adapter;
pub(crate) mod compiled;
pub(crate) mod disk_cache;
pub(crate) mod fault_table;
pub(crate) mod faults;
pub(crate) mod first_use;
pub(crate) mod gpu;
pub(crate) mod instance;
pub(crate) mod options;
pub(crate) mod pipeline;
pub(crate) mod pool;
pub(crate) mod profiler;
pub(crate) mod read_back;
pub(crate) mod record;
pub(crate) mod stream;
pub(crate) mod waiting;
