//! Times of each kind of kernel, for users.

use tensor_core::{Device, Error, Result, eval_pending};

use crate::{device::profiler::KernelTime, registry::backend_of};

/// Runs `work`, and returns the times of its kernels on `device`, the longest first.
///
/// While this runs, timestamps separate the dispatches, so `work` as a whole takes longer than usual. Kernels
/// that other threads start on the device meanwhile are counted too.
///
/// ```no_run
/// # fn main() -> tensor_core::Result<()> {
/// # use tensor_core::Tensor;
/// let device = backend_wgpu::wgpu(0)?;
/// let work = || Tensor::ones([1000, 1000], &device)?.sum().item::<f32>();
/// let (sum, times) = backend_wgpu::profile(&device, work)?;
/// for kernel in times {
///     println!("{:10} {:6} dispatches {:12} ns", kernel.name, kernel.count, kernel.nanoseconds);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Invalid` for a device of another backend, or one whose adapter has no timestamps; any error of `work`.
pub fn profile<T>(device: &Device, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<KernelTime>)> {
    let backend = backend_of(device, "profile")?;
    let gpu = &backend.gpu;
    if !gpu.has_timestamps() {
        return Err(Error::invalid("profile", format!("the adapter of {device} has no timestamps")));
    }
    eval_pending()?;
    gpu.finish()?;
    let (out, mut times) = gpu.profiled(|| {
        let out = work()?;
        eval_pending()?;
        gpu.finish()?;
        Ok(out)
    })?;
    times.sort_by_key(|t| std::cmp::Reverse(t.nanoseconds));
    Ok((out, times))
}
