//! An open device: the wgpu handles, the adapter's limits, and its memory, pipelines and command stream.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tensor_core::{DType, DeviceKind, Error, ErrorKind, Result, Storage, lock};

use crate::{
    Forced,
    codegen::{
        capabilities::{Capabilities, Form},
        dtypes::storage_size,
    },
    device::{
        adapter::{self, Found},
        compiled::Pipelines,
        counter::Made,
        disk_cache::DiskCache,
        faults::{Caught, Faults, scoped},
        first_use::FirstUse,
        pool::{Numbered, Pool, WgpuBuffer, size_class},
        shader_module::Checks,
        stream::Stream,
        waiting::Waiting,
    },
    platform::CAN_WAIT,
};

/// An open device.
pub(crate) struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) capabilities: Capabilities,
    pub(crate) faults: Arc<Faults>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) pipelines: Pipelines,
    pub(crate) checks: Checks,
    pub(crate) first_use: FirstUse,
    /// How long a wait asks the device again and again before its thread sleeps.
    pub(crate) spin: Duration,
    /// The on-disk pipeline cache, if there is one.
    pub(crate) disk_cache: Option<DiskCache>,
    pub(crate) stream: Mutex<Stream>,
    /// Asynchronous reads in progress.
    pub(crate) waiting: Waiting,
    /// The number of the open batch of commands.
    pub(crate) batch: AtomicU64,
    /// A number that is unique among the devices of the process.
    pub(crate) id: u64,
    /// Bound in place of an input without elements.
    pub(crate) dummy: Arc<Numbered>,
    /// Counts of the objects made.
    pub(crate) made: Made,
    /// Whether dispatches are recorded but not run.
    pub(crate) dry: bool,
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {:?}, {:?})", self.capabilities.info.name, self.pool, self.pipelines)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Some(cache) = self.disk_cache.as_ref().filter(|_| !self.faults.is_lost()) {
            cache.close(self.pipelines.len());
        }
    }
}

fn lower<T: Ord>(limit: &mut T, cap: Option<T>) {
    if let Some(cap) = cap.filter(|cap| cap < limit) {
        *limit = cap;
    }
}

/// How long a wait asks a hardware adapter before its thread sleeps. To wake a thread takes some 20 µs on
/// Linux, as long as a small kernel runs, and a longer wait is not shortened by much.
const SPIN: Duration = Duration::from_micros(500);

/// Whether one thread may be busy with waiting.
fn several_processors() -> bool {
    std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1)
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Gpu {
    /// Opens the adapter `found`.
    pub(crate) async fn open(found: &Found, options: &crate::Options) -> Result<Gpu> {
        let name = found.info.name.clone();
        let backend = |message: String| Error::new(ErrorKind::Backend { device: name.clone(), message });
        let Forced {
            form,
            no_immediates,
            binding_bytes,
            workgroups,
            storage_buffers,
            dispatch_work,
            invocations,
            matrix_units,
            no_subgroups,
            no_dots,
            trace,
            without,
            hardware,
            dry,
            ref pipeline_log,
        } = options.forced;
        let mut limits = found.adapter.limits();
        // Requested from wgpu too, so that it validates them.
        lower(&mut limits.max_storage_buffer_binding_size, binding_bytes);
        lower(&mut limits.max_compute_workgroups_per_dimension, workgroups);
        lower(&mut limits.max_storage_buffers_per_shader_stage, storage_buffers);
        let mut info = found.info.clone();
        info.limits = adapter::limits(&limits);
        info.dtypes.retain(|d| !without.contains(d));
        let use_units = options.matrix_units.unwrap_or_else(|| adapter::has_tested_units(&found.adapter));
        let units = use_units.then(|| adapter::matrix_units(&found.adapter)).flatten();
        let mut wanted = wgpu::Features::SHADER_INT64
            | wgpu::Features::SHADER_F64
            | wgpu::Features::IMMEDIATES
            | wgpu::Features::PIPELINE_CACHE
            | wgpu::Features::TIMESTAMP_QUERY
            | wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES
            | wgpu::Features::SUBGROUP;
        if units.is_some() {
            wanted |= adapter::MATRIX_FEATURES;
        }
        let features = found.adapter.features() & wanted;
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("taper"),
            required_features: features,
            required_limits: limits.clone(),
            experimental_features: if units.is_some() {
                adapter::experimental()
            } else {
                wgpu::ExperimentalFeatures::disabled()
            },
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        };
        let opened = found.adapter.request_device(&descriptor).await;
        let (device, queue) = opened.map_err(|e| backend(format!("the adapter could not be opened: {e}")))?;
        let faults = Faults::watch(&device);
        let software = found.software && !hardware;
        let immediates = features.contains(wgpu::Features::IMMEDIATES) && !no_immediates;
        let capabilities = Capabilities {
            direct: match form {
                Form::Auto => software,
                Form::Direct => true,
                Form::Tiled => false,
            },
            // In a browser, WGSL has to enable subgroups first, which native naga refuses.
            subgroups: features.contains(wgpu::Features::SUBGROUP) && CAN_WAIT && !no_subgroups,
            // Metal has no such instruction, and browsers may lack the function.
            dots: CAN_WAIT && found.adapter.get_info().backend != wgpu::Backend::Metal && !no_dots,
            invocations: invocations.unwrap_or(if software { 1024 } else { 65_536 }),
            workgroup_bytes: limits.max_compute_workgroup_storage_size as usize,
            binding_bytes: limits.max_storage_buffer_binding_size.max(512) / 256 * 256,
            // lavapipe silently leaves an invocation's loops after 65,535 iterations. Half of them are
            // reserved for inner loops.
            rounds: if software { 1 << 15 } else { usize::MAX },
            immediate_bytes: if immediates { limits.max_immediate_size.min(128) } else { 0 },
            uniform_alignment: limits.min_uniform_buffer_offset_alignment.max(4),
            max_workgroups: limits.max_compute_workgroups_per_dimension.max(1),
            dispatch_work: dispatch_work.unwrap_or(match info.kind {
                _ if hardware => 1 << 37,
                DeviceKind::DiscreteGpu => 1 << 37,
                DeviceKind::Cpu
                | DeviceKind::IntegratedGpu
                | DeviceKind::VirtualGpu
                | DeviceKind::SoftwareGpu
                | DeviceKind::Other => 1 << 33,
            }),
            matrix_units: matrix_units.or(units),
            variant: None,
            info,
        };
        let buffer = |label, size, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let (made, caught) = scoped(&device, &faults, "the first buffers", || {
            (
                buffer("dummy", 256, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST),
                Stream::new(&device, capabilities.binding_bytes),
            )
        });
        if let Some(Caught::Other(message)) = caught {
            return Err(backend(message));
        }
        let (dummy, stream) = made;
        let disk_cache = options
            .cache_dir
            .as_deref()
            .and_then(|dir| DiskCache::open(&device, &faults, &found.adapter.get_info(), dir));
        Ok(Gpu {
            queue,
            capabilities,
            faults,
            pool: Pool::new(options.memory_limit.or(found.memory_limit)),
            pipelines: Pipelines { log: pipeline_log.clone(), ..Default::default() },
            checks: match (trace, options.checked) {
                (true, _) => Checks::Traced,
                (_, true) => Checks::Checked,
                _ => Checks::Trusted,
            },
            first_use: FirstUse::new(),
            // A software adapter computes on the processors, which a thread that asks would keep from it.
            spin: if software || !several_processors() { Duration::ZERO } else { SPIN },
            disk_cache,
            stream: Mutex::new(stream),
            waiting: Waiting::default(),
            batch: AtomicU64::new(1),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            dummy: Numbered::new(dummy),
            made: Made::default(),
            dry,
            device,
        })
    }

    /// Saves new pipelines to disk, at most every now and then unless `now` is set.
    pub(crate) fn keep_pipelines(&self, now: bool) {
        if let Some(cache) = &self.disk_cache {
            cache.save(self.pipelines.len(), now);
        }
    }

    /// The device's name.
    pub(crate) fn name(&self) -> &str {
        &self.capabilities.info.name
    }

    /// An [`ErrorKind::Backend`] of this device, or `DeviceLost` if the device is lost.
    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        match self.faults.alive(self.name()) {
            Err(lost) => lost,
            Ok(()) => Error::new(ErrorKind::Backend { device: self.name().into(), message: message.into() }),
        }
    }

    /// The error of a call that would have to wait for the device in a browser page.
    pub(crate) fn must_be_awaited(&self, what: &str) -> Error {
        self.error(format!(
            "{what} would block on the device, which a browser page cannot do: await to_vec_async or item_async"
        ))
    }

    /// Runs `work` in error scopes; a caught error is returned.
    pub(crate) fn scoped<T>(&self, what: &str, work: impl FnOnce() -> T) -> Result<T> {
        self.faults.alive(self.name())?;
        let (out, caught) = scoped(&self.device, &self.faults, what, work);
        self.faults.alive(self.name())?;
        match caught {
            None => Ok(out),
            Some(Caught::OutOfMemory) => Err(self.out_of_memory(0)),
            Some(Caught::Other(message)) => Err(self.error(format!("{what}: {message}"))),
        }
    }

    fn out_of_memory(&self, asked: u64) -> Error {
        let stats = self.pool.stats();
        Error::new(ErrorKind::OutOfMemory {
            device: self.name().into(),
            asked,
            in_use: stats.allocated,
            reserved: stats.reserved,
            limit: stats.limit,
        })
    }

    /// A buffer for `numel` elements.
    pub(crate) fn allocate(&self, dtype: DType, numel: usize) -> Result<WgpuBuffer> {
        self.faults.alive(self.name())?;
        if !self.capabilities.info.dtypes.contains(&dtype) {
            return Err(Error::new(ErrorKind::Unsupported {
                op: "allocate",
                device: self.name().into(),
                dtype,
                hint: "this adapter does not support the dtype; cast first, or use the cpu".into(),
            }));
        }
        let limit = self.capabilities.info.limits.max_buffer_bytes;
        let bytes = (numel as u64).saturating_mul(storage_size(dtype) as u64);
        if bytes > limit {
            return Err(Error::new(ErrorKind::TooLarge { device: self.name().into(), asked: bytes, limit }));
        }
        let wrap = |made| WgpuBuffer::new(made, &self.pool, self.id, dtype, numel);
        if numel == 0 {
            return Ok(wrap(None));
        }
        let size = size_class(bytes, limit);
        let cached = |spares| self.pool.take(size, self.batch.load(Ordering::Acquire), spares);
        let found = match cached(true) {
            Some(made) => Some(made),
            None => match self.create(size)? {
                Some(made) => Some(made),
                None => cached(false),
            },
        };
        let made = match found {
            Some(made) => made,
            None => {
                // Finish the pending work, free the cache, and try once more.
                self.reclaim()?;
                self.create(size)?.ok_or_else(|| self.out_of_memory(bytes))?
            }
        };
        Ok(wrap(Some(made)))
    }

    /// A new buffer from the driver; None if the budget or the driver's memory is used up.
    fn create(&self, size: u64) -> Result<Option<Arc<Numbered>>> {
        if !self.pool.reserve(size) {
            return Ok(None);
        }
        let (raw, caught) = scoped(&self.device, &self.faults, "a new buffer", || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let failed = match (self.faults.alive(self.name()), caught) {
            (Err(lost), _) => Err(lost),
            (Ok(()), None) => {
                self.made.buffers.add_one();
                return Ok(Some(Numbered::new(raw)));
            }
            (Ok(()), Some(Caught::OutOfMemory)) => Ok(None),
            (Ok(()), Some(Caught::Other(message))) => Err(self.error(message)),
        };
        self.pool.release(size);
        failed
    }

    /// Waits for all work and frees every cached buffer.
    pub(crate) fn reclaim(&self) -> Result<()> {
        let flushed = if CAN_WAIT { self.finish() } else { self.flush(&mut lock(&self.stream)).map(|_| ()) };
        self.pool.trim();
        // Bind groups hold their buffers.
        let retired = self.pool.take_retired();
        lock(&self.stream).bind_groups.forget(&retired);
        // The driver frees memory when it is polled after the last use.
        let _ = self.device.poll(wgpu::PollType::Poll);
        flushed
    }

    /// The buffer of a storage, if it belongs to this device.
    pub(crate) fn buffer<'a>(&self, storage: &'a Storage) -> Result<&'a WgpuBuffer> {
        let any: &dyn std::any::Any = storage.as_ref();
        let buffer = any
            .downcast_ref::<WgpuBuffer>()
            .ok_or_else(|| self.error("a buffer of another backend was passed to this device"))?;
        if buffer.device() != self.id {
            return Err(self.error(
                "a buffer of another device was passed to this one; if the device was reopened, reload the tensor",
            ));
        }
        Ok(buffer)
    }
}
