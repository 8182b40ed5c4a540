//! Work on its way to the device: one open encoder and compute pass, submitted when someone reads, when enough is recorded,
//! or when a write must come after it. Submissions under way are bounded, and the device is polled, so that memory never creeps.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, mpsc},
};

use tensor_core::{Error, Result};

use crate::{
    pool::{WgpuBuffer, lock},
    state::Health,
};

/// Dispatches recorded before they are submitted without being asked.
const MAX_DISPATCHES: usize = 256;
/// Submissions that may be under way.
const MAX_IN_FLIGHT: usize = 4;
/// Bytes uploaded before they are submitted without being asked: until then wgpu holds a copy.
const MAX_UPLOAD: u64 = 32 << 20;
/// Bytes that one dispatch's parameters may take; as large a window is bound each time.
pub(crate) const PARAM_WINDOW: u64 = 1024;
/// Bytes of parameters that fit one batch.
const PARAM_BYTES: u64 = MAX_DISPATCHES as u64 * PARAM_WINDOW;
/// Words for the note of a bad index: the launch's number, the index, whether it was negative, and one unused.
const STATUS_BYTES: u64 = 16;

/// What a launch that reads indices could be blamed for.
#[derive(PartialEq)]
pub(crate) struct Indexing {
    pub(crate) op: &'static str,
    pub(crate) axis: usize,
    pub(crate) size: usize,
}

/// One dispatch, ready to record.
pub(crate) struct Dispatch<'a> {
    pub(crate) pipeline: &'a wgpu::ComputePipeline,
    pub(crate) layout: &'a wgpu::BindGroupLayout,
    /// Buffers in the order of their bindings; the parameters come after them.
    pub(crate) buffers: &'a [&'a WgpuBuffer],
    pub(crate) params: &'a [u32],
    pub(crate) threads: u64,
    pub(crate) workgroup: u32,
    /// Whether the status buffer is bound, as binding 9.
    pub(crate) status: bool,
}

pub(crate) struct Queue {
    device: wgpu::Device,
    queue: wgpu::Queue,
    health: Health,
    params: wgpu::Buffer,
    status: wgpu::Buffer,
    alignment: u64,
    max_groups: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    dispatches: usize,
    /// Parameters of the recorded dispatches, written before these are submitted.
    params: Vec<u8>,
    in_flight: VecDeque<wgpu::SubmissionIndex>,
    uploaded: u64,
    staging: Vec<wgpu::Buffer>,
    /// Launches since the status was last read that it may name, from 1 on.
    indexings: Vec<Indexing>,
}

struct Open {
    encoder: wgpu::CommandEncoder,
    pass: wgpu::ComputePass<'static>,
}

impl Queue {
    pub(crate) fn new(device: wgpu::Device, queue: wgpu::Queue, health: Health) -> Queue {
        let limits = device.limits();
        let buffer = |size, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        use wgpu::BufferUsages as U;
        let params = buffer(PARAM_BYTES + PARAM_WINDOW, U::STORAGE | U::COPY_DST);
        let status = buffer(STATUS_BYTES, U::STORAGE | U::COPY_SRC | U::COPY_DST);
        Queue {
            params,
            status,
            alignment: u64::from(limits.min_storage_buffer_offset_alignment),
            max_groups: limits.max_compute_workgroups_per_dimension,
            device,
            queue,
            health,
            state: Mutex::default(),
        }
    }

    /// Takes note of a launch that reads indices, and gives the number that blames it.
    pub(crate) fn note(&self, indexing: Indexing) -> u32 {
        let mut state = lock(&self.state);
        // Launches alike share a number, so that a loop that never reads does not grow the list.
        let known = state.indexings.iter().position(|i| *i == indexing);
        let at = known.unwrap_or_else(|| {
            state.indexings.push(indexing);
            state.indexings.len() - 1
        });
        at as u32 + 1
    }

    /// Records a dispatch, and submits when enough is recorded.
    pub(crate) fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<()> {
        let size = dispatch.params.len() as u64 * 4;
        if size > PARAM_WINDOW {
            return Err(Error::invalid(
                "wgpu",
                format!("a kernel's {size} bytes of parameters pass {PARAM_WINDOW}"),
            ));
        }
        if dispatch.threads == 0 {
            return Ok(());
        }
        let mut state = lock(&self.state);
        if state.dispatches >= MAX_DISPATCHES || state.params.len() as u64 + PARAM_WINDOW > PARAM_BYTES {
            self.submit(&mut state, |_| ())?;
        }
        let offset = state.params.len();
        state.params.extend_from_slice(bytemuck::cast_slice(dispatch.params));
        let aligned = (state.params.len() as u64).next_multiple_of(self.alignment) as usize;
        state.params.resize(aligned, 0);
        let mut entries: Vec<wgpu::BindGroupEntry<'_>> = dispatch
            .buffers
            .iter()
            .enumerate()
            .map(|(i, b)| wgpu::BindGroupEntry { binding: i as u32, resource: b.raw().as_entire_binding() })
            .collect();
        entries.push(wgpu::BindGroupEntry {
            binding: entries.len() as u32,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &self.params,
                offset: 0,
                size: wgpu::BufferSize::new(PARAM_WINDOW),
            }),
        });
        if dispatch.status {
            entries.push(wgpu::BindGroupEntry { binding: 9, resource: self.status.as_entire_binding() });
        }
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: dispatch.layout,
            entries: &entries,
        });
        let groups = dispatch.threads.div_ceil(u64::from(dispatch.workgroup));
        let across = groups.min(u64::from(self.max_groups));
        let down = groups.div_ceil(across);
        if down > u64::from(self.max_groups) {
            return Err(Error::invalid(
                "wgpu",
                format!("{} threads are more than one dispatch takes", dispatch.threads),
            ));
        }
        let open = state.open.get_or_insert_with(|| self.begin());
        open.pass.set_pipeline(dispatch.pipeline);
        open.pass.set_bind_group(0, &group, &[offset as u32]);
        open.pass.dispatch_workgroups(across as u32, down as u32, 1);
        state.dispatches += 1;
        Ok(())
    }

    fn begin(&self) -> Open {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime();
        Open { encoder, pass }
    }

    /// Submits what is recorded, with `after` recorded behind it.
    fn submit(&self, state: &mut State, after: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<()> {
        let mut encoder = match state.open.take() {
            Some(open) => {
                drop(open.pass);
                open.encoder
            }
            None => self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()),
        };
        after(&mut encoder);
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        if !state.params.is_empty() {
            // Earlier submissions have read theirs by the time this is written: the queue keeps the order.
            self.queue.write_buffer(&self.params, 0, &state.params);
        }
        let index = self.queue.submit([encoder.finish()]);
        let invalid = pollster::block_on(validation.pop());
        let exhausted = pollster::block_on(memory.pop());
        state.params.clear();
        state.dispatches = 0;
        state.uploaded = 0;
        state.in_flight.push_back(index);
        if let Some(error) = invalid.or(exhausted) {
            return Err(self.health.blame(format!("a submission failed: {error}")));
        }
        let _ = self.device.poll(wgpu::PollType::Poll);
        while state.in_flight.len() > MAX_IN_FLIGHT {
            self.wait(state.in_flight.pop_front())?;
        }
        Ok(())
    }

    fn wait(&self, index: Option<wgpu::SubmissionIndex>) -> Result<()> {
        self.device
            .poll(wgpu::PollType::Wait { submission_index: index, timeout: None })
            .map(|_| ())
            .map_err(|error| self.health.blame(format!("waiting for the device failed: {error}")))
    }

    /// Writes a new tensor's elements, as lanes.
    pub(crate) fn write(&self, buffer: &WgpuBuffer, lanes: &[u8]) -> Result<()> {
        self.health.check()?;
        let mut state = lock(&self.state);
        // A write comes before all that is recorded; what still reads the memory's former contents must go first.
        if buffer.reused && state.open.is_some() {
            self.submit(&mut state, |_| ())?;
        }
        // Buffers are a multiple of four bytes, and so are lanes.
        self.queue.write_buffer(buffer.raw(), 0, lanes);
        state.uploaded += lanes.len() as u64;
        if state.uploaded > MAX_UPLOAD {
            self.submit(&mut state, |_| ())?;
        }
        Ok(())
    }

    /// Copies bytes of a buffer back to the host: waits for all work before, and reports its failures.
    pub(crate) fn read(&self, buffer: &WgpuBuffer, offset: u64, len: u64) -> Result<Vec<u8>> {
        pollster::block_on(self.read_async(buffer, offset, len, true))
    }

    /// Like [`Queue::read`], without blocking unless `wait`: another thread must poll the device then.
    pub(crate) async fn read_async(
        &self,
        buffer: &WgpuBuffer,
        offset: u64,
        len: u64,
        wait: bool,
    ) -> Result<Vec<u8>> {
        self.health.check()?;
        let (staging, receiver, indexings) = {
            let mut state = lock(&self.state);
            let staging = self.take_staging(&mut state, len + STATUS_BYTES);
            self.submit(&mut state, |encoder| {
                if len > 0 {
                    encoder.copy_buffer_to_buffer(buffer.raw(), offset, &staging, STATUS_BYTES, len);
                }
                encoder.copy_buffer_to_buffer(&self.status, 0, &staging, 0, STATUS_BYTES);
                encoder.clear_buffer(&self.status, 0, None);
            })?;
            let indexings = std::mem::take(&mut state.indexings);
            let (sender, receiver) = mpsc::channel();
            staging.map_async(wgpu::MapMode::Read, 0..len + STATUS_BYTES, move |result| {
                // The receiver may be gone when the read was given up.
                let _ = sender.send(result);
            });
            if wait {
                let last = state.in_flight.pop_back();
                state.in_flight.clear();
                self.wait(last)?;
            }
            (staging, receiver, indexings)
        };
        let mapped = loop {
            match receiver.try_recv() {
                Ok(result) => break result,
                Err(mpsc::TryRecvError::Disconnected) => {
                    return Err(self.health.blame("a read was dropped by the device".into()));
                }
                Err(mpsc::TryRecvError::Empty) => {
                    let _ = self.device.poll(wgpu::PollType::Poll);
                    YieldOnce(false).await;
                }
            }
        };
        self.health.check()?;
        mapped.map_err(|error| self.health.blame(format!("a read failed: {error}")))?;
        let bytes = staging
            .get_mapped_range(0..len + STATUS_BYTES)
            .map(|view| view.to_vec())
            .map_err(|error| self.health.blame(format!("a read failed: {error}")))?;
        staging.unmap();
        let mut state = lock(&self.state);
        if state.staging.len() < 4 {
            state.staging.push(staging);
        }
        drop(state);
        self.health.check()?;
        let word = |i: usize| {
            bytes.get(i * 4..i * 4 + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
        };
        if let Some(blamed) = (word(0) as usize).checked_sub(1).and_then(|i| indexings.get(i)) {
            let index = if word(2) == 1 { i64::from(word(1) as i32) } else { i64::from(word(1)) };
            return Err(Error::IndexOutOfRange {
                op: blamed.op,
                index,
                axis: blamed.axis,
                size: blamed.size,
            });
        }
        Ok(bytes[STATUS_BYTES as usize..].to_vec())
    }

    fn take_staging(&self, state: &mut State, size: u64) -> wgpu::Buffer {
        if let Some(i) = state.staging.iter().position(|b| b.size() >= size && b.size() <= size * 4 + 65536) {
            return state.staging.swap_remove(i);
        }
        state.staging.pop();
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: size.next_power_of_two().max(4096),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    /// Lets staging buffers go.
    pub(crate) fn trim(&self) {
        lock(&self.state).staging.clear();
    }
}

/// Ready the second time it is asked.
struct YieldOnce(bool);

impl Future for YieldOnce {
    type Output = ();
    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    }
}

/// A pipeline with the layout of its bindings.
pub(crate) struct Pipeline {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
}

/// Pipelines by their full source and which bindings are written.
#[derive(Default)]
pub(crate) struct Pipelines(Mutex<rustc_hash::FxHashMap<(String, u32, bool), Arc<Pipeline>>>);

impl Pipelines {
    /// The pipeline of a source whose bindings 0..n are buffers (bit i of `written`: read_write), n the parameters, and 9 the
    /// status if `status`.
    ///
    /// # Errors
    /// A source that does not compile: it is named, and so is what the compiler said.
    pub(crate) fn get(
        &self,
        device: &wgpu::Device,
        health: &Health,
        name: &str,
        source: String,
        buffers: usize,
        written: u32,
        status: bool,
    ) -> Result<Arc<Pipeline>> {
        let key = (source, written, status);
        if let Some(known) = lock(&self.0).get(&key) {
            return Ok(known.clone());
        }
        let entry = |binding: u32, read_only: bool, dynamic: bool| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only },
                has_dynamic_offset: dynamic,
                min_binding_size: None,
            },
            count: None,
        };
        let mut entries: Vec<_> =
            (0..buffers as u32).map(|i| entry(i, written >> i & 1 == 0, false)).collect();
        entries.push(entry(buffers as u32, true, true));
        if status {
            entries.push(entry(9, false, false));
        }
        let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(name),
            source: wgpu::ShaderSource::Wgsl(key.0.as_str().into()),
        });
        let layout = device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        let invalid = pollster::block_on(validation.pop());
        let internal = pollster::block_on(internal.pop());
        if let Some(error) = invalid.or(internal) {
            return Err(health.blame(format!("shader {name} does not compile: {error}\n{}", key.0)));
        }
        let made = Arc::new(Pipeline { pipeline, layout });
        lock(&self.0).insert(key, made.clone());
        Ok(made)
    }
}
