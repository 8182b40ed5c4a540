//! Times of work by the device's own clock.

use std::time::Duration;

use tensor_core::Result;

use crate::device::{faults::lock, gpu::Gpu, profiler::Profiler};

impl Gpu {
    pub(crate) fn has_timestamps(&self) -> bool {
        self.device.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }

    /// Does some work, waits for it, and returns the time of its dispatches on the device. None if the
    /// adapter has no timestamps, while a profile is taken, and for work without a dispatch.
    pub(crate) fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Duration>> {
        let spare = {
            let mut stream = lock(&self.stream);
            (self.has_timestamps() && stream.profiler.is_none()).then(|| stream.spare_profiler.take())
        };
        let Some(spare) = spare else {
            work()?;
            self.settle()?;
            return Ok(None);
        };
        let profiler = match spare {
            Some(profiler) => profiler,
            None => self.scoped("profile", || Profiler::new(&self.device, &self.queue))?,
        };
        lock(&self.stream).profiler = Some(profiler);
        let done = work().and_then(|()| self.settle());
        let mut stream = lock(&self.stream);
        let mut profiler = stream.profiler.take();
        let nanoseconds = profiler.as_mut().map_or(0, Profiler::take_time);
        stream.spare_profiler = profiler;
        done?;
        Ok((nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds)))
    }

    /// Waits for the batch that was submitted last, and adds its times to the totals.
    pub(super) fn collect_times(&self, profiler: &mut Profiler, batch: wgpu::SubmissionIndex) -> Result<()> {
        let (dispatches, timestamps) = profiler.take_batch();
        if timestamps == 0 {
            return Ok(());
        }
        let bytes = 8 * u64::from(timestamps);
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
