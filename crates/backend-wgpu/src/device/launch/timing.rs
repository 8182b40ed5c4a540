//! Times of work by the device's own clock.

use std::time::Duration;

use tensor_core::{Result, lock};

use crate::device::{
    gpu::Gpu,
    profiler::{KernelTime, Profiler, timestamps_of},
};

impl Gpu {
    pub(crate) fn has_timestamps(&self) -> bool {
        self.device.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// Does some work, which waits for the device at its end, with timestamps around its dispatches, and
    /// returns its result and the times of its kernels.
    pub(crate) fn profiled<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<KernelTime>)> {
        let spare = lock(&self.stream).spare_profiler.take();
        let profiler = match spare {
            Some(profiler) => profiler,
            None => self.scoped("profile", || Profiler::new(&self.device, &self.queue))?,
        };
        lock(&self.stream).profiler = Some(profiler);
        let done = work();
        let mut stream = lock(&self.stream);
        let mut profiler = stream.profiler.take();
        let totals = profiler.as_mut().map(|profiler| std::mem::take(&mut profiler.totals));
        // Commands that are not submitted, after an error or of another thread, still write its timestamps.
        stream.spare_profiler = profiler.filter(Profiler::is_between_batches);
        Ok((done?, totals.unwrap_or_default().into_values().collect()))
    }

    /// Does some work, waits for it, and returns the time of its dispatches on the device. None if the
    /// adapter has no timestamps, while a profile is taken, and for work without a dispatch.
    pub(crate) fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Duration>> {
        let mut all = || work().and_then(|()| self.settle());
        if !self.has_timestamps() || lock(&self.stream).profiler.is_some() {
            return all().map(|()| None);
        }
        let ((), times) = self.profiled(all)?;
        let nanoseconds = times.iter().map(|kernel| kernel.nanoseconds).sum();
        Ok((nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds)))
    }

    /// Waits for the batch that was submitted last, and adds its times to the totals.
    pub(super) fn collect_times(&self, profiler: &mut Profiler, batch: wgpu::SubmissionIndex) -> Result<()> {
        let dispatches = profiler.take_batch();
        if dispatches.is_empty() {
            return Ok(());
        }
        let bytes = 8 * u64::from(timestamps_of(&dispatches));
        self.scoped("profile", || profiler.readable.map_async(wgpu::MapMode::Read, ..bytes, |_| {}))?;
        self.wait(batch)?;
        let ticks: Vec<u64> = {
            let view = profiler
                .readable
                .get_mapped_range(..bytes)
                .map_err(|e| self.error(format!("the timestamps could not be read: {e}")))?;
            bytemuck::pod_collect_to_vec(&view)
        };
        profiler.readable.unmap();
        profiler.add(&dispatches, &ticks);
        Ok(())
    }
}
