//! Records launches in the [`Stream`] of a device and submits them: bind groups, passes, submissions, and
//! host writes in order.

use std::{
    ops::Range,
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tensor_core::{DeviceKind, Launch, Result, Storage, Ticket, lock};

use crate::{
    codegen::dispatch::Resource,
    device::{
        bind_groups::Key,
        compiled::{Bound, Compiled, CompiledKernel, Pipeline},
        fault_table::Slots,
        gpu::Gpu,
        pool::{Numbered, WgpuBuffer},
        stream::{Stream, UNIFORM_BYTES},
    },
    platform::{CAN_WAIT, Instant},
};

/// The most bytes of buffers bound in one submission, so that a device starts early on large work.
const MAX_BYTES: u64 = 256 << 20;
/// The same for a discrete GPU, whose memory is some ten times faster.
const MAX_BYTES_DISCRETE: u64 = 2 << 30;
/// The most work of one submission, in units of the largest dispatch.
const MAX_WORK: u64 = 4;
/// The most bytes of host writes between submissions: wgpu holds a copy of each until then.
const MAX_WRITTEN: u64 = 32 << 20;
/// The most submissions in flight.
const MAX_IN_FLIGHT: usize = 4;

/// A buffer bound by a dispatch.
#[derive(Clone)]
pub(super) struct BoundBuffer {
    pub(super) buffer: Arc<Numbered>,
    /// The first byte of the binding.
    pub(super) start: u64,
    pub(super) writes: bool,
}

/// The buffers of a dispatch, in the order of its bindings.
pub(super) type Buffers = SmallVec<[BoundBuffer; 6]>;

/// A dispatch to record.
#[derive(Clone, Copy)]
pub(super) struct Command<'a> {
    pub(super) label: &'static str,
    pub(super) pipeline: &'a Pipeline,
    pub(super) workgroups: usize,
    /// Work of a workgroup.
    pub(super) work: usize,
    pub(super) words: &'a [u32],
    pub(super) buffers: &'a [BoundBuffer],
}

impl Gpu {
    /// Records all dispatches of a kernel.
    pub(crate) fn encode(&self, kernel: &CompiledKernel, launch: &Launch<'_>) -> Result<()> {
        // Temporaries come first, because their allocation may flush the stream.
        let temporaries: Vec<WgpuBuffer> =
            kernel.temporaries.iter().map(|&(dtype, n)| self.allocate(dtype, n)).collect::<Result<_>>()?;
        let (slots, mut stream) = self.fault_slots(launch.tickets)?;
        if let Some(counter) = &mut stream.counter {
            counter.launch(launch.kernel);
        }
        let faults = Arc::clone(&stream.faults.made);
        let same_loop = |a: &Compiled, b: &Compiled| a.repeated.is_some() && a.repeated == b.repeated;
        for stages in kernel.dispatches.chunk_by(same_loop) {
            let rounds = stages[0].repeated.map_or(1, |(_, rounds)| rounds);
            for (round, one) in (0..rounds).flat_map(|round| stages.iter().map(move |one| (round, one))) {
                let mut words = std::mem::take(&mut stream.words);
                one.params.fill(launch.scalars, |operand| slots.of(operand), round as u32, &mut words);
                let buffers = self.bound_buffers(one, launch, &temporaries, &faults)?;
                for first in (0..one.workgroups).step_by(one.most) {
                    // `first_workgroup` is the first parameter.
                    words[0] = first as u32;
                    let command = Command {
                        label: one.label,
                        pipeline: &one.pipeline,
                        workgroups: (one.workgroups - first).min(one.most),
                        work: one.work,
                        words: &words,
                        buffers: &buffers,
                    };
                    self.record(&mut stream, &command)?;
                }
                stream.words = words;
            }
        }
        Ok(())
    }

    /// The buffers of a dispatch, in the order of its bindings.
    fn bound_buffers(
        &self,
        one: &Compiled,
        launch: &Launch<'_>,
        temporaries: &[WgpuBuffer],
        faults: &Arc<Numbered>,
    ) -> Result<Buffers> {
        let storage = |list: &[Storage], k: usize| -> Result<Arc<Numbered>> {
            let storage = list.get(k).ok_or_else(|| self.error("a launch lacks a buffer"))?;
            Ok(Arc::clone(self.buffer(storage)?.made().unwrap_or(&self.dummy)))
        };
        let bound = |bound: &Bound| {
            let buffer = match bound.resource {
                Resource::Input(k) => storage(launch.inputs, k)?,
                Resource::Output(k) => storage(launch.outputs, k)?,
                Resource::Temporary(k) => {
                    Arc::clone(temporaries.get(k).and_then(WgpuBuffer::made).unwrap_or(&self.dummy))
                }
                Resource::Faults => Arc::clone(faults),
            };
            Ok(BoundBuffer { buffer, start: bound.start, writes: bound.writes })
        };
        one.resources.iter().map(bound).collect()
    }

    /// Records one dispatch, and submits if there is enough.
    pub(super) fn record(&self, stream: &mut Stream, command: &Command<'_>) -> Result<()> {
        let Command { label, pipeline, workgroups, work, words, buffers } = *command;
        let mut uniform = None;
        if !pipeline.immediates {
            let room = (words.len() * 4).next_multiple_of(self.capabilities.uniform_alignment as usize);
            if room as u64 > UNIFORM_BYTES {
                return Err(self.error(format!("{label}: too many parameters for one kernel")));
            }
            if (stream.uniform_bytes.len() + room) as u64 > UNIFORM_BYTES {
                self.flush(stream)?;
            }
            let at = stream.uniform_bytes.len();
            stream.uniform_bytes.extend_from_slice(bytemuck::cast_slice(words));
            stream.uniform_bytes.resize(at + room, 0);
            uniform = Some((at as u32, words.len() as u64 * 4));
        }
        let group = self.bind_group(stream, pipeline, uniform.map_or(0, |(_, bytes)| bytes), buffers);
        let x = workgroups.min(self.capabilities.max_workgroups as usize);
        let y = workgroups.div_ceil(x);
        let pass = stream.pass(&self.device, label);
        pass.set_pipeline(&pipeline.raw);
        let offset = uniform.map(|(at, _)| at);
        pass.set_bind_group(0, &group, offset.as_slice());
        if pipeline.immediates {
            pass.set_immediates(0, bytemuck::cast_slice(words));
        }
        // No workgroups are the same work for the host.
        let x = if self.dry { 0 } else { x };
        pass.dispatch_workgroups(x as u32, y as u32, 1);
        stream.dispatched(workgroups as u64 * work as u64);
        if stream.dispatches >= stream.limit {
            stream.is_busy();
            self.flush(stream)?;
        } else if stream.bytes >= self.most_bytes()
            || stream.work / MAX_WORK >= self.capabilities.dispatch_work
        {
            self.flush(stream)?;
        }
        Ok(())
    }

    /// The bind group of a dispatch: a kept one, or a new one. Its buffers are noted as used.
    fn bind_group(
        &self,
        stream: &mut Stream,
        pipeline: &Pipeline,
        uniform_bytes: u64,
        buffers: &[BoundBuffer],
    ) -> wgpu::BindGroup {
        let batch = self.batch.load(Ordering::Acquire);
        let Stream { bind_groups, counter, bytes, bound, uniforms, .. } = stream;
        // A buffer larger than a binding is bound only up to the limit.
        let size = |bound: &BoundBuffer| {
            bound.buffer.raw.size().saturating_sub(bound.start).min(self.capabilities.binding_bytes)
        };
        for one in buffers {
            one.buffer.used_in(batch);
            if bound.insert(one.buffer.id) {
                *bytes += size(one);
            }
        }
        if let Some(counter) = counter {
            counter.dispatch(buffers.iter().map(|one| (one.buffer.id, one.writes)));
        }
        let places = buffers.iter().map(|one| (one.buffer.id, one.start));
        let key = Key::new(&pipeline.layout, uniform_bytes, places);
        if let Some(group) = bind_groups.get(&key) {
            return group.clone();
        }
        let storages = buffers.iter().map(|one| (&one.buffer.raw, one.start, size(one)));
        let uniform = (uniform_bytes > 0).then_some((&*uniforms, 0, uniform_bytes));
        let entries: SmallVec<[wgpu::BindGroupEntry<'_>; 8]> = storages
            .chain(uniform)
            .zip(0..)
            .map(|((buffer, offset, size), binding)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset,
                    size: std::num::NonZeroU64::new(size),
                }),
            })
            .collect();
        // No error scope here: a failure reaches the uncaptured-error handler, which marks the device as
        // lost.
        let layout = &pipeline.layout.raw;
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        let group = self.device.create_bind_group(&descriptor);
        self.made.bind_groups.add_one();
        bind_groups.keep(key, group.clone());
        group
    }

    /// The most bytes of buffers bound in one submission.
    fn most_bytes(&self) -> u64 {
        match self.capabilities.info.kind {
            DeviceKind::DiscreteGpu => MAX_BYTES_DISCRETE,
            DeviceKind::Cpu | DeviceKind::IntegratedGpu | DeviceKind::VirtualGpu => MAX_BYTES,
            DeviceKind::SoftwareGpu | DeviceKind::Other => MAX_BYTES,
        }
    }

    /// Submits the recorded commands.
    pub(crate) fn flush(&self, stream: &mut Stream) -> Result<wgpu::SubmissionIndex> {
        self.faults.alive(self.name())?;
        stream.pass = None;
        let mut encoder = stream.encoder.take();
        if let (Some(encoder), Some(profiler)) = (&mut encoder, &stream.profiler) {
            profiler.resolve(encoder);
        }
        let uniform_bytes = std::mem::take(&mut stream.uniform_bytes);
        if encoder.is_some() {
            self.made.submissions.add_one();
            if let Some(counter) = &mut stream.counter {
                counter.submitted();
            }
        }
        stream.dispatches = 0;
        stream.bytes = 0;
        stream.bound.clear();
        stream.bind_groups.forget(&self.pool.take_retired());
        stream.work = 0;
        stream.written = 0;
        self.batch.fetch_add(1, Ordering::AcqRel);
        let index = self.scoped("submit", || {
            let commands = encoder.map(wgpu::CommandEncoder::finish);
            // Writes run before this submission and after all earlier ones, so one buffer serves every
            // batch.
            if !uniform_bytes.is_empty() {
                self.queue.write_buffer(&stream.uniforms, 0, &uniform_bytes);
            }
            self.queue.submit(commands)
        });
        stream.uniform_bytes = uniform_bytes;
        stream.uniform_bytes.clear();
        // The failing commands cannot be attributed: every result on the device may be wrong.
        let index = index.inspect_err(|error| {
            self.faults.lose(format!("commands and their results were lost: {error}"));
        })?;
        if let Some(mut profiler) = stream.profiler.take() {
            let collected = self.collect_times(&mut profiler, index.clone());
            stream.profiler = Some(profiler);
            collected?;
        }
        stream.in_flight.push_back(index.clone());
        while stream.in_flight.len() > MAX_IN_FLIGHT {
            if let Some(oldest) = stream.in_flight.pop_front() {
                self.wait(oldest)?;
            }
        }
        let _ = self.device.poll(wgpu::PollType::Poll);
        Ok(index)
    }

    /// Waits for a submission. A browser page cannot wait; it only checks that the device is alive.
    pub(crate) fn wait(&self, index: wgpu::SubmissionIndex) -> Result<()> {
        if CAN_WAIT {
            let start = Instant::now();
            let submission_index = Some(index);
            let waited = self.device.poll(wgpu::PollType::Wait { submission_index, timeout: None });
            self.first_use.waited(start, true, self.name());
            waited.map_err(|e| self.error(format!("waiting for the device: {e}")))?;
        }
        self.faults.alive(self.name())
    }

    /// Waits for a submission that soon ends: asks the device again and again until `is_over`, for as long as
    /// that is faster than to sleep, or until the notice about new kernels is due, and then waits.
    pub(crate) fn wait_soon(&self, index: wgpu::SubmissionIndex, is_over: impl Fn() -> bool) -> Result<()> {
        const PAUSE: Duration = Duration::from_millis(1);
        let start = Instant::now();
        while CAN_WAIT && !is_over() {
            // Not a wait with a timeout: wgpu panics if another thread's poll empties the queue meanwhile.
            if !matches!(self.device.poll(wgpu::PollType::Poll), Ok(wgpu::PollStatus::Poll)) {
                break;
            }
            let elapsed = start.elapsed();
            if elapsed < self.spin {
                std::hint::spin_loop();
            } else if self.first_use.time_until_notice().is_some_and(|left| elapsed < left) {
                std::thread::sleep(PAUSE);
            } else {
                break;
            }
        }
        self.first_use.waited(start, false, self.name());
        self.wait(index)
    }

    /// Fills a buffer from `allocate` from the host.
    pub(crate) fn write(&self, made: &Numbered, bytes: &[u8]) -> Result<()> {
        let raw = &made.raw;
        let mut stream = lock(&self.stream);
        // A host write overtakes recorded commands, and those may still use this memory for its former
        // tensor.
        if stream.has_commands() && made.last_used() == self.batch.load(Ordering::Acquire) {
            self.flush(&mut stream)?;
        }
        // Writes are in whole words; a buffer has whole words too.
        let (words, rest) = bytes.split_at(bytes.len() / 4 * 4);
        self.scoped("upload", || {
            self.queue.write_buffer(raw, 0, words);
            if !rest.is_empty() {
                let mut last = [0; 4];
                last[..rest.len()].copy_from_slice(rest);
                self.queue.write_buffer(raw, words.len() as u64, &last);
            }
        })?;
        stream.written += bytes.len() as u64;
        if stream.written >= MAX_WRITTEN {
            self.flush(&mut stream)?;
        }
        Ok(())
    }

    /// Submits everything and waits for it.
    pub(crate) fn settle(&self) -> Result<()> {
        let is_over = Arc::new(AtomicBool::new(false));
        let index = {
            let mut stream = lock(&self.stream);
            let index = self.flush(&mut stream)?;
            let over = Arc::clone(&is_over);
            self.queue.on_submitted_work_done(move || over.store(true, Ordering::Release));
            stream.will_be_idle();
            stream.in_flight.clear();
            index
        };
        if !CAN_WAIT {
            return Err(self.must_be_awaited("synchronize"));
        }
        self.wait_soon(index, || is_over.load(Ordering::Acquire))
    }

    /// Submits everything, waits for it, and writes new pipelines to disk.
    pub(crate) fn finish(&self) -> Result<()> {
        self.settle()?;
        self.keep_pipelines(true);
        Ok(())
    }

    /// Returns staging buffers and cached memory to the driver.
    pub(crate) fn empty_cache(&self) {
        lock(&self.stream).staging.clear();
        // If the device is lost, the next use reports it; this function has no error to return.
        let _ = self.reclaim();
    }

    /// The slots of a launch with these tickets, and the stream to record it in.
    pub(crate) fn fault_slots(
        &self,
        tickets: &[(usize, Arc<Ticket>)],
    ) -> Result<(Slots, MutexGuard<'_, Stream>)> {
        loop {
            let mut stream = lock(&self.stream);
            if let Some(slots) = stream.faults.defer(tickets) {
                return Ok((slots, stream));
            }
            let cleared = stream.faults.sweep();
            if cleared.is_empty() {
                drop(stream);
                self.settle_tickets()?;
                continue;
            }
            let table = stream.faults.made.raw.clone();
            let encoder = stream.encoder(&self.device);
            for Range { start, end } in cleared {
                encoder.clear_buffer(&table, start, Some(end - start));
            }
        }
    }
}
