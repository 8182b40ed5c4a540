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
//! | `registry`, `adapter` | which adapters there are, and the devices open on them |
//! | `gpu`, `pool`, `stream`, `faults` | one open device: memory, command batches, failures |
//! | `draft`, `pipeline`, `index`, `formulas` | how a kernel becomes WGSL and a pipeline |
//! | `map`, `reduce`, `rows`, `arg_reduce`, `matmul`, `tile`, `by_index`, `copy` | the kernels |
//!
//! The WGSL that is not generated is in the crate `taper-shaders`. No type of wgpu appears in this interface.

mod adapter;
mod arg_reduce;
mod backend;
mod by_index;
mod copy;
mod draft;
mod dtypes;
mod faults;
mod formulas;
mod gpu;
mod index;
mod map;
mod matmul;
mod pipeline;
mod pool;
mod reduce;
mod registry;
mod rows;
mod stream;
mod tile;
#[cfg(test)]
mod validate;

pub use backend::WgpuBackend;
pub use draft::Form;
pub use registry::{adapters, destroy, open, wgpu};

/// How to open a device, where the defaults will not do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether parameters of kernels go as immediates (push constants) where the adapter has them, or through a
    /// uniform buffer always.
    pub immediates: bool,
    /// The memory budget in bytes; without one, three quarters of the system's memory on software adapters, and the
    /// driver's word on others.
    pub memory_limit: Option<u64>,
    /// Which family of kernels to use.
    pub form: Form,
}

impl Default for Options {
    fn default() -> Options {
        Options { immediates: true, memory_limit: None, form: Form::Auto }
    }
}

impl Options {
    /// The defaults, changed by `TAPER_WGPU_MEMORY_LIMIT` (bytes) and `TAPER_WGPU_NO_IMMEDIATES=1`.
    pub fn from_env() -> Options {
        Options {
            immediates: std::env::var_os("TAPER_WGPU_NO_IMMEDIATES").is_none_or(|v| v != "1"),
            memory_limit: std::env::var("TAPER_WGPU_MEMORY_LIMIT").ok().and_then(|v| v.trim().parse().ok()),
            form: Form::Auto,
        }
    }
}
