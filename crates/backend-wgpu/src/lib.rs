//! Taper's GPU backend: implements [`tensor_core::Backend`] with wgpu (Vulkan, Metal, DX12; WebGPU in
//! browsers).
//!
//! ```no_run
//! # fn main() -> tensor_core::Result<()> {
//! let device = backend_wgpu::wgpu(0)?;
//! let x = tensor_core::Tensor::arange(0.0, 10.0, 1.0, &device)?;
//! println!("{}", x.sum());
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `registry`, `backend` | the process's devices, the `Backend` contract |
//! | `profile`, `counts` | times of kernels, and counted work |
//! | `tuning` | measured variants of matrix products |
//! | `kernels` | a room for each kind of body; `native`: operations as data; `window`: large operands |
//! | `device` | an open device: adapter, memory, pipelines, command batches, reads, failures |
//! | `codegen` | dispatches, and the writer of their WGSL |
//! | `platform` | differences between systems: clocks, and whether a thread can wait |
//! | `at_exit` | the end of a process whose software GPU still computes |
//!
//! Each module uses only those below it; `kernels` and `device` are independent of each other.
//!
//! WGSL that is not generated is in the crate `taper-shaders`. This interface exposes no wgpu types.

#![deny(clippy::wildcard_enum_match_arm)] // every place has to handle a new variant

#[cfg(target_os = "linux")]
mod at_exit;
mod backend;
mod codegen;
mod counts;
mod device;
mod kernels;
mod platform;
mod profile;
mod registry;
mod tuning;
#[cfg(test)]
mod validate;

pub use backend::WgpuBackend;
#[doc(hidden)]
pub use codegen::capabilities::{Form, MatrixUnits};
pub use counts::{Counts, counted};
#[doc(hidden)]
pub use device::options::Forced;
pub use device::{counter::KernelCount, options::Options, profiler::KernelTime};
#[doc(hidden)]
pub use kernels::native::NATIVE_KERNELS;
pub use kernels::native::custom::{WgslKernel, WgslProgram};
pub use profile::profile;
pub use registry::{
    MOST_LOGICAL, WgpuDevices, adapters, adapters_async, destroy, logical, logical_async, open, open_async,
    wgpu, wgpu_async,
};

/// The source root of this crate. `taper` uses it to keep errors from naming lines of this crate.
#[doc(hidden)]
pub const ROOT: &str = file!();
