//! Timestamps between dispatches, written by the device while profiling is on. Where the device can write
//! them within a pass, the end of a dispatch is the beginning of the next; otherwise each dispatch has a
//! pass.

use std::collections::BTreeMap;

/// Dispatches in one submission.
pub(crate) const MAX_DISPATCHES: usize = 256;

/// At most two timestamps for each dispatch.
const QUERIES: u32 = 2 * MAX_DISPATCHES as u32;
const BYTES: u64 = 8 * QUERIES as u64;

/// The total time of one kind of kernel, over all its dispatches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelTime {
    /// The kernel: `map`, `reduce`, `matmul`, ….
    pub name: &'static str,
    /// Dispatches.
    pub count: u64,
    /// Time on the device.
    pub nanoseconds: u64,
}

/// A dispatch and the number of its first timestamp; its second one is the next.
pub(super) struct Timed {
    label: &'static str,
    begin: u32,
}

/// The number of timestamps around some dispatches.
pub(super) fn timestamps_of(dispatches: &[Timed]) -> u32 {
    dispatches.last().map_or(0, |last| last.begin + 2)
}

/// The timestamps of the open batch of commands, and the totals of earlier batches.
pub(crate) struct Profiler {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    pub(super) readable: wgpu::Buffer,
    /// Nanoseconds per tick.
    period: f64,
    /// Whether timestamps are written within a pass.
    within_passes: bool,
    /// The dispatches in the open batch.
    dispatches: Vec<Timed>,
    pub(crate) totals: BTreeMap<&'static str, KernelTime>,
}

impl Profiler {
    pub(crate) fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Profiler {
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("timestamps"),
                size: BYTES,
                usage,
                mapped_at_creation: false,
            })
        };
        Profiler {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count: QUERIES,
            }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            readable: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
            period: f64::from(queue.get_timestamp_period()),
            within_passes: device.features().contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES),
            dispatches: Vec::new(),
            totals: BTreeMap::new(),
        }
    }

    /// The pass of the next dispatch, whose time begins now: the open pass or a new one.
    pub(super) fn begin<'a>(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        open: &'a mut Option<wgpu::ComputePass<'static>>,
        label: &'static str,
    ) -> &'a mut wgpu::ComputePass<'static> {
        let next = timestamps_of(&self.dispatches);
        // An open pass has no timestamp if it was begun before the profile.
        let begin = if self.within_passes && open.is_some() && next > 0 { next - 1 } else { next };
        self.dispatches.push(Timed { label, begin });
        if !self.within_passes {
            // A pass has to end before the next one begins.
            *open = None;
            let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
                query_set: &self.queries,
                beginning_of_pass_write_index: Some(begin),
                end_of_pass_write_index: Some(begin + 1),
            });
            let descriptor = wgpu::ComputePassDescriptor { label: Some(label), timestamp_writes };
            return open.insert(encoder.begin_compute_pass(&descriptor).forget_lifetime());
        }
        let pass =
            open.get_or_insert_with(|| encoder.begin_compute_pass(&Default::default()).forget_lifetime());
        if begin == next {
            pass.write_timestamp(&self.queries, begin);
        }
        pass
    }

    /// Ends the time of the dispatch that was recorded last.
    pub(super) fn end(&self, pass: &mut wgpu::ComputePass<'static>) {
        if let Some(last) = self.dispatches.last().filter(|_| self.within_passes) {
            pass.write_timestamp(&self.queries, last.begin + 1);
        }
    }

    /// Records the commands that make the timestamps of this batch readable.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let count = timestamps_of(&self.dispatches);
        if count > 0 {
            encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readable, 0, 8 * u64::from(count));
        }
    }

    /// Whether the open batch has no timestamps.
    pub(super) fn is_between_batches(&self) -> bool {
        self.dispatches.is_empty()
    }

    /// The dispatches of the batch; the next batch begins.
    pub(super) fn take_batch(&mut self) -> Vec<Timed> {
        std::mem::take(&mut self.dispatches)
    }

    /// Adds the times of a batch to the totals.
    pub(super) fn add(&mut self, dispatches: &[Timed], ticks: &[u64]) {
        for &Timed { label: name, begin } in dispatches {
            let [start, end] = [begin, begin + 1].map(|at| ticks[at as usize]);
            let time = end.saturating_sub(start);
            let total = self.totals.entry(name).or_insert(KernelTime { name, count: 0, nanoseconds: 0 });
            total.count += 1;
            total.nanoseconds += (time as f64 * self.period) as u64;
        }
    }
}
