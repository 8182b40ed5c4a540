//! Counts of a device's work, for reports that must be the same on every run.

use tensor_core::{Device, Result, eval_pending, lock};

use crate::{
    device::{
        counter::{Counter, KernelCount},
        gpu::Gpu,
    },
    registry::backend_of,
};

/// The work that a device was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Dispatches.
    pub dispatches: u64,
    /// Dispatches before which wgpu records a barrier: one of their buffers was written before in the same
    /// submission, or was read there and is now written.
    pub hazards: u64,
    /// Submissions of commands.
    pub submissions: u64,
    /// Dispatches that were recorded before the first submission; the device waits for them.
    pub before_first: u64,
    /// Bind groups made.
    pub bind_groups: u64,
    /// Buffers made, those for reading back included.
    pub buffers: u64,
    /// Reads of device memory, each of which waits for the device.
    pub read_backs: u64,
    /// Pipelines made.
    pub pipelines: u64,
    /// The greatest number of bytes of live tensors at one time.
    pub peak_bytes: u64,
    /// The greatest number of bytes held from the driver: those of live tensors and of the cache.
    pub reserved_bytes: u64,
    /// Launches, in order.
    pub kernels: Vec<KernelCount>,
}

/// Runs `work` and counts the work that `device` is given meanwhile, up to the end of its kernels. The
/// memory's peak is reset. Commands of other threads are counted too.
///
/// ```no_run
/// # fn main() -> tensor_core::Result<()> {
/// # use tensor_core::Tensor;
/// let device = backend_wgpu::wgpu(0)?;
/// let (_, counts) = backend_wgpu::counted(&device, || Tensor::ones([10], &device)?.sum().item::<f32>())?;
/// println!("{} dispatches, {} hazards", counts.dispatches, counts.hazards);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Invalid` for a device of another backend; any error of `work`.
pub fn counted<T>(device: &Device, work: impl FnOnce() -> Result<T>) -> Result<(T, Counts)> {
    let backend = backend_of(device, "counted")?;
    let gpu = &backend.gpu;
    eval_pending()?;
    gpu.finish()?;
    gpu.pool.reset_peak();
    let before = totals(gpu);
    lock(&gpu.stream).counter = Some(Counter::default());
    let done = work().and_then(|out| {
        eval_pending()?;
        gpu.settle()?;
        Ok(out)
    });
    let counter = lock(&gpu.stream).counter.take().unwrap_or_default();
    let done = done?;
    let after = totals(gpu);
    let stats = gpu.pool.stats();
    let counts = Counts {
        dispatches: counter.dispatches,
        hazards: counter.hazards,
        submissions: after.submissions - before.submissions,
        before_first: counter.before_first.unwrap_or(counter.dispatches),
        bind_groups: after.bind_groups - before.bind_groups,
        buffers: after.buffers - before.buffers,
        read_backs: after.read_backs - before.read_backs,
        pipelines: after.pipelines - before.pipelines,
        peak_bytes: stats.peak,
        reserved_bytes: stats.reserved,
        kernels: counter.kernels,
    };
    Ok((done, counts))
}

/// The objects that a device made since it was opened.
fn totals(gpu: &Gpu) -> Counts {
    let made = &gpu.made;
    Counts {
        submissions: made.submissions.get(),
        bind_groups: made.bind_groups.get(),
        buffers: made.buffers.get(),
        read_backs: made.read_backs.get(),
        pipelines: gpu.pipelines.len() as u64,
        ..Counts::default()
    }
}
