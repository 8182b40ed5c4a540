//! Records launches in the [`Stream`] of a device and submits them: bind groups, passes, submissions, and
//! host writes in order.

use std::{
    ops::Range,
    sync::{Arc, MutexGuard, atomic::Ordering},
    time::Duration,
};

use tensor_core::{Launch, Result, Storage, Ticket};

use crate::{
    codegen::dispatch::Resource,
    device::{
        compiled::{Compiled, CompiledKernel},
        fault_table::Slots,
        faults::lock,
        gpu::Gpu,
        pool::WgpuBuffer,
        profiler::{MAX_DISPATCHES, Profiler},
        stream::{Stream, UNIFORM_BYTES},
    },
    platform::{CAN_WAIT, Instant},
};

/// The most bytes bound by the dispatches of one submission, so that a device starts early on large work.
const MAX_BYTES: u64 = 256 << 20;
/// The most work of one submission, in units of the largest dispatch.
const MAX_WORK: u64 = 4;
/// The most bytes of host writes between submissions: wgpu holds a copy of each until then.
const MAX_WRITTEN: u64 = 32 << 20;
/// The most submissions in flight.
const MAX_IN_FLIGHT: usize = 4;

impl Gpu {
    /// Records all dispatches of a kernel.
    pub(crate) fn encode(&self, kernel: &CompiledKernel, launch: &Launch<'_>) -> Result<()> {
        // Temporaries come first, because their allocation may flush the stream.
        let temporaries: Vec<WgpuBuffer> = kernel
            .temporaries
            .iter()
            .map(|&(dtype, n)| Ok(self.allocate(dtype, n)?.0))
            .collect::<Result<_>>()?;
        let (slots, mut stream) = self.fault_slots(launch.tickets)?;
        let same_loop = |a: &Compiled, b: &Compiled| a.repeated.is_some() && a.repeated == b.repeated;
        for stages in kernel.dispatches.chunk_by(same_loop) {
            let rounds = stages[0].repeated.map_or(1, |(_, rounds)| rounds);
            for (round, one) in (0..rounds).flat_map(|round| stages.iter().map(move |one| (round, one))) {
                let mut words = std::mem::take(&mut stream.words);
                one.params.fill(launch.scalars, |operand| slots.of(operand), round as u32, &mut words);
                for first in (0..one.workgroups).step_by(one.most) {
                    // `first_workgroup` is the first parameter.
                    words[0] = first as u32;
                    let buffers = [launch.inputs, launch.outputs];
                    self.record(&mut stream, one, first, &words, buffers, &temporaries)?;
                    if stream.dispatches >= MAX_DISPATCHES
                        || stream.bytes >= MAX_BYTES
                        || stream.work / MAX_WORK >= self.capabilities.dispatch_work
                    {
                        self.flush(&mut stream)?;
                    }
                }
                stream.words = words;
            }
        }
        Ok(())
    }

    /// Records one dispatch: the workgroups of a kernel's dispatch from `first` on, with these parameters.
    fn record(
        &self,
        stream: &mut Stream,
        one: &Compiled,
        first: usize,
        words: &[u32],
        [inputs, outputs]: [&[Storage]; 2],
        temporaries: &[WgpuBuffer],
    ) -> Result<()> {
        let mut uniform = None;
        if !one.immediates {
            let room = (words.len() * 4).next_multiple_of(self.capabilities.uniform_alignment as usize);
            if room as u64 > UNIFORM_BYTES {
                return Err(self.error(format!("{}: too many parameters for one kernel", one.label)));
            }
            if (stream.uniform_bytes.len() + room) as u64 > UNIFORM_BYTES {
                self.flush(stream)?;
            }
            let at = stream.uniform_bytes.len();
            stream.uniform_bytes.extend_from_slice(bytemuck::cast_slice(words));
            stream.uniform_bytes.resize(at + room, 0);
            uniform = Some((at as u64, words.len() as u64 * 4));
        }

        let mut bound = Vec::with_capacity(one.resources.len());
        for &(resource, start) in &one.resources {
            let storage = |list: &[Storage], k: usize| -> Result<wgpu::Buffer> {
                let storage = list.get(k).ok_or_else(|| self.error("a launch lacks a buffer"))?;
                // wgpu's handles are reference-counted; a clone copies no memory.
                Ok(self.buffer(storage)?.raw().unwrap_or(&self.dummy).clone())
            };
            let buffer = match resource {
                Resource::Input(k) => storage(inputs, k)?,
                Resource::Output(k) => storage(outputs, k)?,
                Resource::Temporary(k) => {
                    temporaries.get(k).and_then(WgpuBuffer::raw).unwrap_or(&self.dummy).clone()
                }
                Resource::Faults => stream.faults.raw.clone(),
            };
            // A buffer larger than a binding is bound only up to the limit.
            let size = buffer.size().saturating_sub(start).min(self.capabilities.binding_bytes);
            stream.bytes += size;
            bound.push((buffer, start, size));
        }
        bound.extend(uniform.map(|(offset, size)| (stream.uniforms.clone(), offset, size)));
        let entries: Vec<wgpu::BindGroupEntry<'_>> = bound
            .iter()
            .zip(0..)
            .map(|((buffer, offset, size), binding)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset: *offset,
                    size: std::num::NonZeroU64::new(*size),
                }),
            })
            .collect();
        // No error scope here: a failure reaches the uncaptured-error handler, which marks the device as
        // lost.
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &one.pipeline.layout,
            entries: &entries,
        });
        let workgroups = (one.workgroups - first).min(one.most);
        let x = workgroups.min(self.capabilities.max_workgroups as usize);
        let y = workgroups.div_ceil(x);
        let pass = stream.pass(&self.device, one.label);
        pass.set_pipeline(&one.pipeline.raw);
        pass.set_bind_group(0, &group, &[]);
        if one.immediates {
            pass.set_immediates(0, bytemuck::cast_slice(words));
        }
        pass.dispatch_workgroups(x as u32, y as u32, 1);
        stream.dispatches += 1;
        stream.work = stream.work.saturating_add(workgroups as u64 * one.work as u64);
        Ok(())
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
        stream.dispatches = 0;
        stream.bytes = 0;
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
        if !CAN_WAIT {
            return self.faults.alive(self.name());
        }
        let wait = |timeout: Option<Duration>| {
            let start = Instant::now();
            let submission_index = Some(index.clone());
            let waited = self.device.poll(wgpu::PollType::Wait { submission_index, timeout });
            let over = !matches!(waited, Err(wgpu::PollError::Timeout));
            self.first_use.waited(start, over, self.name());
            waited
        };
        let mut waited = wait(self.first_use.time_until_notice());
        if matches!(waited, Err(wgpu::PollError::Timeout)) {
            waited = wait(None);
        }
        self.faults.alive(self.name())?;
        waited.map(|_| ()).map_err(|e| self.error(format!("waiting for the device: {e}")))
    }

    /// Fills a buffer from `allocate` (with the batch that it came with) from the host.
    pub(crate) fn write(&self, raw: &wgpu::Buffer, batch: u64, bytes: &[u8]) -> Result<()> {
        let mut stream = lock(&self.stream);
        // A host write overtakes recorded commands, and those may still use this memory for its former
        // tensor.
        if stream.encoder.is_some() && batch == self.batch.load(Ordering::Acquire) {
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
        let index = {
            let mut stream = lock(&self.stream);
            let index = self.flush(&mut stream)?;
            stream.in_flight.clear();
            index
        };
        if !CAN_WAIT {
            return Err(self.must_be_awaited("synchronize"));
        }
        self.wait(index)
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
            let table = stream.faults.raw.clone();
            let encoder = stream.encoder(&self.device);
            for Range { start, end } in cleared {
                encoder.clear_buffer(&table, start, Some(end - start));
            }
        }
    }

    /// Waits for the batch that was submitted last, and adds its times to the totals.
    fn collect_times(&self, profiler: &mut Profiler, batch: wgpu::SubmissionIndex) -> Result<()> {
        let labels = std::mem::take(&mut profiler.labels);
        if labels.is_empty() {
            return Ok(());
        }
        let bytes = 16 * labels.len() as u64;
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
        profiler.add(&labels, &ticks);
        Ok(())
    }
}
