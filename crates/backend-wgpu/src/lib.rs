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
//! | `gpu`, `pool`, `stream`, `profile`, `faults` | one open device: memory, command batches, times, failures |
//! | `draft`, `pipeline`, `disk_cache`, `index`, `formulas` | how a kernel becomes WGSL and a pipeline |
//! | `window` | kernels over more of a buffer than one binding shows |
//! | `map`, `reduce`, `rows`, `arg_reduce`, `matmul`, `tile`, `by_index`, `copy` | the kernels |
//!
//! The WGSL that is not generated is in the crate `taper-shaders`. No type of wgpu appears in this interface.

mod adapter;
mod arg_reduce;
mod backend;
mod by_index;
mod copy;
mod disk_cache;
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
mod profile;
mod reduce;
mod registry;
mod rows;
mod stream;
mod strip;
mod tile;
#[cfg(test)]
mod validate;
mod window;

use std::{ffi::OsStr, path::PathBuf};

use tensor_core::{DType, Error, Result};

pub use backend::WgpuBackend;
pub use draft::Form;
pub use profile::{KernelTime, profile};
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
    /// The directory where compiled pipelines are kept from one process to the next, where the driver hands them out;
    /// none keeps none.
    pub cache_dir: Option<PathBuf>,
    /// Limits below the adapter's own.
    pub caps: Caps,
}

/// Limits below an adapter's own, so that tests meet with small tensors what large ones and lesser adapters meet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caps {
    /// Bytes of one binding: larger tensors are worked through in windows. At least 512.
    pub binding_bytes: Option<u64>,
    /// Workgroups in each dimension of a dispatch.
    pub groups: Option<u32>,
    /// Storage buffers of one kernel; every adapter has 8.
    pub storage_buffers: Option<u32>,
    /// Elementary steps in one dispatch; longer ones are split, lest the system take the device for hung.
    pub dispatch_work: Option<u64>,
    /// Dtypes to do without.
    pub without: &'static [DType],
    /// Kernels use no subgroups, as where an adapter has none or their size varies.
    pub no_subgroups: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            immediates: true,
            memory_limit: None,
            form: Form::Auto,
            cache_dir: disk_cache::directory(None),
            caps: Caps::default(),
        }
    }
}

impl Options {
    /// The defaults, changed by `TAPER_WGPU_MEMORY_LIMIT` (bytes), `TAPER_WGPU_NO_IMMEDIATES=1`, and `TAPER_CACHE_DIR`
    /// (a directory for compiled pipelines, or `off`).
    ///
    /// # Errors
    /// `Invalid` for a memory limit that is not a number of bytes.
    pub fn from_env() -> Result<Options> {
        let memory_limit = match std::env::var_os("TAPER_WGPU_MEMORY_LIMIT") {
            Some(text) if !text.is_empty() => Some(bytes("TAPER_WGPU_MEMORY_LIMIT", &text)?),
            _ => None,
        };
        Ok(Options {
            immediates: std::env::var_os("TAPER_WGPU_NO_IMMEDIATES").is_none_or(|v| v != "1"),
            memory_limit,
            form: Form::Auto,
            cache_dir: disk_cache::directory(std::env::var_os("TAPER_CACHE_DIR").as_deref()),
            caps: Caps::default(),
        })
    }
}

/// The number of bytes that an environment variable sets.
fn bytes(name: &'static str, text: &OsStr) -> Result<u64> {
    text.to_str().and_then(|t| t.trim().parse().ok()).filter(|&bytes| bytes > 0).ok_or_else(|| {
        let text = text.to_string_lossy();
        Error::invalid(name, format!("{text:?} is no number of bytes; write it out, as in {name}=8589934592"))
    })
}
