//! Taper's backend for GPUs, by wgpu: Vulkan, Metal and DX12, or a software adapter.
//!
//! One buffer a tensor comes from a pool (`pool`); kernels are recorded into one open command buffer and submitted together
//! (`queue`); fused expressions become WGSL (`expression`, `kernels`), all else is specialised from the `taper-shaders` crate.
//! Sizes, strides and scalars are parameters, never text, so that a new shape compiles nothing. Failures of the driver, late or
//! early, are errors (`state`).
//!
//! | variable | meaning |
//! |---|---|
//! | `TAPER_ADAPTER` | part of the name of the adapter that `wgpu:0` is |
//! | `TAPER_WGPU_MEMORY_LIMIT` | the memory budget in bytes |

mod adapters;
mod backend;
mod expression;
mod kernels;
mod lanes;
mod pool;
mod queue;
mod state;

pub use adapters::{adapters, wgpu};
pub use backend::WgpuBackend;

/// Destroys the device behind a `wgpu` device, as a driver's reset would: for tests of what happens then.
#[doc(hidden)]
pub fn destroy(device: &tensor_core::Device) {
    let backend: &dyn std::any::Any = device.backend().as_ref();
    if let Some(backend) = backend.downcast_ref::<WgpuBackend>() {
        backend.destroy();
    }
}
