//! How long each kind of kernel takes, for users.

use tensor_core::{Device, Error, Result, eval_pending};

use crate::{
    device::{
        faults::lock,
        profiler::{KernelTime, Profiler},
    },
    registry::backend_of,
};

/// Runs `work`, and gives what its kernels took on `device`, the longest first.
///
/// Every dispatch goes in a pass of its own while this runs, so `work` as a whole takes longer than
/// otherwise. Kernels that other threads start on the device meanwhile are counted too.
///
/// ```no_run
/// # fn main() -> tensor_core::Result<()> {
/// # use tensor_core::Tensor;
/// let device = backend_wgpu::wgpu(0)?;
/// let (sum, times) = backend_wgpu::profile(&device, || Tensor::ones([1000, 1000], &device)?.sum().item::<f32>())?;
/// for kernel in times {
///     println!("{:10} {:6} dispatches {:12} ns", kernel.name, kernel.count, kernel.nanoseconds);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Invalid` for a device of another backend, or one whose adapter writes no timestamps; whatever `work`
/// fails with.
pub fn profile<T>(device: &Device, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<KernelTime>)> {
    let backend = backend_of(device, "profile")?;
    let gpu = &backend.gpu;
    if !gpu.device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
        return Err(Error::invalid("profile", format!("the adapter of {device} writes no timestamps")));
    }
    eval_pending()?;
    gpu.finish()?;
    let made = gpu.scoped("profile", || Profiler::new(&gpu.device, &gpu.queue))?;
    lock(&gpu.stream).profiler = Some(made);
    let done = work().and_then(|out| {
        eval_pending()?;
        gpu.finish()?;
        Ok(out)
    });
    let profiler = lock(&gpu.stream).profiler.take();
    let mut times: Vec<KernelTime> = profiler.map_or_else(Vec::new, |p| p.totals.into_values().collect());
    times.sort_by_key(|t| std::cmp::Reverse(t.nanoseconds));
    Ok((done?, times))
}
