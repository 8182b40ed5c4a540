//! Commands on their way to the device: one open encoder and compute pass, submitted for a read, when
//! enough work has accumulated, or when a host write must not overtake it. The number of submissions in
//! flight is bounded.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::device::{
    bind_groups::BindGroups,
    counter::Counter,
    fault_table::FaultTable,
    profiler::{MAX_DISPATCHES, Profiler},
};

/// The most bytes of parameters in one submission, if they go through a uniform buffer.
pub(super) const UNIFORM_BYTES: u64 = 256 << 10;

/// Dispatches in the first submission to an idle device: it starts while the rest is recorded. Each later one
/// may have twice as many, up to [`MAX_DISPATCHES`].
const FIRST_DISPATCHES: usize = 16;

/// The recorded and not yet submitted commands, and the submissions in flight.
pub(crate) struct Stream {
    pub(super) encoder: Option<wgpu::CommandEncoder>,
    pub(super) pass: Option<wgpu::ComputePass<'static>>,
    pub(super) dispatches: usize,
    /// The number of dispatches at which the commands are submitted: low while the device is idle.
    pub(super) limit: usize,
    /// The bytes of the buffers bound since the last submission, each counted once.
    pub(super) bytes: u64,
    /// The numbers of these buffers.
    pub(super) bound: FxHashSet<u64>,
    pub(crate) bind_groups: BindGroups,
    /// The work of the dispatches since the last submission.
    pub(super) work: u64,
    pub(super) written: u64,
    pub(super) in_flight: VecDeque<wgpu::SubmissionIndex>,
    pub(super) uniforms: wgpu::Buffer,
    pub(super) uniform_bytes: Vec<u8>,
    pub(crate) faults: FaultTable,
    /// Staging buffers for reading back, reused.
    pub(crate) staging: Vec<wgpu::Buffer>,
    pub(super) words: Vec<u32>,
    /// The profiler, while profiling is on.
    pub(crate) profiler: Option<Profiler>,
    /// A profiler of an earlier profile.
    pub(crate) spare_profiler: Option<Profiler>,
    /// The counter, while commands are counted.
    pub(crate) counter: Option<Counter>,
}

impl Stream {
    pub(crate) fn new(device: &wgpu::Device, binding_bytes: u64) -> Stream {
        let buffer = |label, size, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        Stream {
            encoder: None,
            pass: None,
            dispatches: 0,
            limit: FIRST_DISPATCHES,
            bytes: 0,
            bound: FxHashSet::default(),
            bind_groups: BindGroups::default(),
            work: 0,
            written: 0,
            in_flight: VecDeque::new(),
            uniforms: buffer(
                "uniforms",
                UNIFORM_BYTES,
                wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            ),
            uniform_bytes: Vec::new(),
            faults: FaultTable::new(device, binding_bytes),
            staging: Vec::new(),
            words: Vec::new(),
            profiler: None,
            spare_profiler: None,
            counter: None,
        }
    }

    /// Whether there are commands that are not submitted.
    pub(super) fn has_commands(&self) -> bool {
        self.encoder.is_some()
    }

    /// Notes that the device will have finished everything before more is recorded.
    pub(super) fn will_be_idle(&mut self) {
        self.limit = FIRST_DISPATCHES;
    }

    /// Notes that the commands are submitted because there are enough of them.
    pub(super) fn is_busy(&mut self) {
        self.limit = (2 * self.limit).min(MAX_DISPATCHES);
    }

    pub(crate) fn encoder(&mut self, device: &wgpu::Device) -> &mut wgpu::CommandEncoder {
        // A pass borrows its encoder, so it has to end before anything else is recorded.
        self.pass = None;
        self.encoder.get_or_insert_with(|| device.create_command_encoder(&Default::default()))
    }

    /// The pass for the next dispatch.
    pub(super) fn pass(
        &mut self,
        device: &wgpu::Device,
        label: &'static str,
    ) -> &mut wgpu::ComputePass<'static> {
        let encoder = self.encoder.get_or_insert_with(|| device.create_command_encoder(&Default::default()));
        if let Some(profiler) = &mut self.profiler {
            return profiler.begin(encoder, &mut self.pass, label);
        }
        self.pass.get_or_insert_with(|| encoder.begin_compute_pass(&Default::default()).forget_lifetime())
    }

    /// Counts a dispatch of this work, which was recorded in the open pass.
    pub(super) fn dispatched(&mut self, work: u64) {
        if let (Some(profiler), Some(pass)) = (&self.profiler, &mut self.pass) {
            profiler.end(pass);
        }
        self.dispatches += 1;
        self.work = self.work.saturating_add(work);
    }
}
