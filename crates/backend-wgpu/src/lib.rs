//! Taper on any GPU: the [`tensor_core::Backend`] over wgpu (Vulkan, Metal, DX12).
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
//! | module | what lives there |
//! |---|---|
//! | `registry`, `instance`, `adapter`, `options` | which adapters there are, and the devices open on them |
//! | `gpu`, `pool`, `stream`, `read_back`, `profile`, `fault_table`, `faults` | one open device: memory, command batches, reads, times, failures |
//! | `draft`, `pipeline`, `first_use`, `disk_cache`, `index`, `lines`, `formulas` | how a kernel becomes WGSL and a pipeline |
//! | `tuning` | the ways of matrix products, measured |
//! | `window` | kernels over more of a buffer than one binding shows |
//! | `map`, `reduce`, `rows`, `arg_reduce`, `cumulative`, `sort`, `matmul`, `tile`, `by_index`, `copy` | the kernels |
//!
//! The WGSL that is not generated is in the crate `taper-shaders`. No type of wgpu appears in this interface.

mod adapter;
mod arg_reduce;
mod backend;
mod by_index;
mod capabilities;
mod contract;
mod copy;
mod cumulative;
mod disk_cache;
mod dispatch;
mod dtypes;
mod fault_table;
mod faults;
mod first_use;
mod formulas;
mod gpu;
mod index;
mod instance;
mod map;
mod options;
mod pipeline;
mod pool;
mod profile;
mod read_back;
mod reduce;
mod registry;
mod rows;
mod sort;
mod stream;
mod tile;
mod tuning;
#[cfg(test)]
mod validate;
mod wgsl;
mod window;

pub use backend::WgpuBackend;
#[doc(hidden)]
pub use capabilities::Form;
#[doc(hidden)]
pub use options::Forced;
pub use options::Options;
pub use profile::{KernelTime, profile};
pub use registry::{adapters, destroy, open, wgpu};
