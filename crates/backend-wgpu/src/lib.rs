//! Taper on any GPU: the [`tensor_core::Backend`] over wgpu (Vulkan, Metal, DX12; WebGPU in browsers).
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
//! | room | what lives there |
//! |---|---|
//! | `registry`, `backend`, `profile` | the devices of a process, the contract of `tensor_core::Backend`, times for users |
//! | `tuning` | the ways of matrix products, measured |
//! | `kernels` | what each kernel does: a file for each body, and `window` for what is larger than a binding |
//! | `device` | one open device: adapter, memory, pipelines, command batches, reads, failures |
//! | `codegen` | what a dispatch is, and the writer of its WGSL |
//! | `platform` | what differs between systems: clocks, and whether a thread can wait |
//!
//! Each room uses those below it alone; `kernels` and `device` do not know of each other.
//!
//! The WGSL that is not generated is in the crate `taper-shaders`. No type of wgpu appears in this interface.

#![deny(clippy::wildcard_enum_match_arm)] // a new variant is to be met everywhere

mod backend;
mod codegen;
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
pub use codegen::capabilities::Form;
#[doc(hidden)]
pub use device::options::Forced;
pub use device::{options::Options, profiler::KernelTime};
pub use kernels::custom::{WgslKernel, WgslProgram};
pub use profile::profile;
pub use registry::{
    MOST_LOGICAL, WgpuDevices, adapters, adapters_async, destroy, logical, logical_async, open, open_async,
    wgpu, wgpu_async,
};

/// The root of these sources, for `taper`: errors name no line in them.
#[doc(hidden)]
pub const ROOT: &str = file!();
