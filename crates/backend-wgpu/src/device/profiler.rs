//! Timestamps before and after every dispatch, written by the device while profiling is on.

use std::collections::BTreeMap;

/// Dispatches in one submission.
pub(crate) const MAX_DISPATCHES: usize = 256;

/// Two timestamps for each dispatch.
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

/// The timestamps of the open batch of commands, and the totals of earlier batches.
pub(crate) struct Profiler {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    pub(super) readable: wgpu::Buffer,
    /// Nanoseconds per tick.
    period: f64,
    /// The labels of the dispatches in the open batch.
    pub(super) labels: Vec<&'static str>,
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
            labels: Vec::new(),
            totals: BTreeMap::new(),
        }
    }

    /// A compute pass for one dispatch, between two timestamps.
    pub(crate) fn pass(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        label: &'static str,
    ) -> wgpu::ComputePass<'static> {
        let at = 2 * self.labels.len() as u32;
        self.labels.push(label);
        let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(at),
            end_of_pass_write_index: Some(at + 1),
        });
        let descriptor = wgpu::ComputePassDescriptor { label: Some(label), timestamp_writes };
        encoder.begin_compute_pass(&descriptor).forget_lifetime()
    }

    /// Records the commands that make the timestamps of this batch readable.
    pub(crate) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let count = 2 * self.labels.len() as u32;
        if count > 0 {
            encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
            encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readable, 0, 8 * u64::from(count));
        }
    }

    /// Adds the times of a batch to the totals: two ticks for each of its dispatches.
    pub(super) fn add(&mut self, labels: &[&'static str], ticks: &[u64]) {
        for (&name, &[begin, end]) in labels.iter().zip(ticks.as_chunks().0) {
            let total = self.totals.entry(name).or_insert(KernelTime { name, count: 0, nanoseconds: 0 });
            total.count += 1;
            total.nanoseconds += (end.saturating_sub(begin) as f64 * self.period) as u64;
        }
    }
}
