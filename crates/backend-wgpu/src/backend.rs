//! The backend itself: a device with its pool, queue and pipelines.

use std::{fmt, sync::Arc};

use tensor_core::{
    Backend, DType, DeviceInfo, DeviceKind, Error, Kernel, Launch, MemoryStats, Result, Storage,
    backend::Download,
};

use crate::{
    kernels,
    lanes::{from_lanes, lane_size, to_lanes, unsupported},
    pool::{Pool, WgpuBuffer},
    queue::{Pipelines, Queue},
    state::Health,
};

/// A GPU adapter as a place for tensors.
pub struct WgpuBackend {
    pub(crate) info: DeviceInfo,
    pub(crate) device: wgpu::Device,
    pub(crate) health: Health,
    pub(crate) pool: Arc<Pool>,
    pub(crate) queue: Queue,
    pub(crate) pipelines: Pipelines,
}

impl fmt::Debug for WgpuBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuBackend({}, {})", self.info.name, self.info.description)
    }
}

impl WgpuBackend {
    pub(crate) fn open(adapter: &wgpu::Adapter, info: DeviceInfo) -> Result<WgpuBackend> {
        let name = info.name.clone();
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some(&name),
            required_features: adapter.features() & wgpu::Features::SHADER_INT64,
            required_limits: adapter.limits(),
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        }))
        .map_err(|error| Error::Backend {
            device: name.clone(),
            message: format!("cannot be opened: {error}"),
        })?;
        let health = Health::watch(&name, &device);
        let asked = std::env::var("TAPER_WGPU_MEMORY_LIMIT").ok().and_then(|v| v.parse().ok());
        // A software adapter promises more than the host has.
        let limit = asked.or(match info.kind {
            DeviceKind::SoftwareGpu => info.memory.map(|m| m / 4 * 3),
            _ => None,
        });
        let pool = Arc::new(Pool::new(device.clone(), name, info.limits.max_buffer_bytes, limit));
        let queue = Queue::new(device.clone(), queue, health.clone());
        Ok(WgpuBackend { info, device, health, pool, queue, pipelines: Pipelines::default() })
    }

    /// Whether the device is gone for good.
    pub(crate) fn is_lost(&self) -> bool {
        self.health.is_lost()
    }

    /// Destroys the device, as a driver's reset would: for tests of what happens then.
    #[doc(hidden)]
    pub fn destroy(&self) {
        self.device.destroy();
        let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
    }

    fn require(&self, op: &'static str, dtype: DType) -> Result<()> {
        if self.info.dtypes.contains(&dtype) { Ok(()) } else { Err(unsupported(op, &self.info.name, dtype)) }
    }

    fn range(&self, storage: &Storage, start: usize, numel: usize) -> Result<(u64, u64)> {
        let buffer = WgpuBuffer::of(storage)?;
        if start.checked_add(numel).is_none_or(|end| end > buffer.numel) {
            return Err(Error::invalid(
                "download",
                format!("elements {start} to {start} + {numel} leave a buffer of {}", buffer.numel),
            ));
        }
        let size = lane_size(buffer.dtype) as u64;
        Ok((start as u64 * size, numel as u64 * size))
    }
}

impl Backend for WgpuBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        self.require("allocate", dtype)?;
        Ok(Arc::new(self.pool.take(&self.health, dtype, numel)?))
    }

    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        self.require("upload", dtype)?;
        let buffer = self.pool.take(&self.health, dtype, bytes.len() / dtype.size())?;
        if !bytes.is_empty() {
            self.queue.write(&buffer, &to_lanes(dtype, bytes))?;
        }
        Ok(Arc::new(buffer))
    }

    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        let dtype = storage.dtype();
        let (offset, len) = self.range(storage, start, out.len() / dtype.size())?;
        let lanes = self.queue.read(WgpuBuffer::of(storage)?, offset, len)?;
        from_lanes(dtype, &lanes, out);
        Ok(())
    }

    fn download_async<'a>(&'a self, storage: &'a Storage, start: usize, numel: usize) -> Download<'a> {
        Box::pin(async move {
            let dtype = storage.dtype();
            let (offset, len) = self.range(storage, start, numel)?;
            let lanes = self.queue.read_async(WgpuBuffer::of(storage)?, offset, len, false).await?;
            let mut out = vec![0; numel * dtype.size()];
            from_lanes(dtype, &lanes, &mut out);
            Ok(out)
        })
    }

    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        self.health.check()?;
        match launch.kernel {
            Kernel::Map(kernel) => kernels::map::run(self, kernel, launch),
            Kernel::Reduce(kernel) => kernels::reduce::run(self, kernel, launch),
            Kernel::MatMul(kernel) => kernels::fixed::matmul(self, kernel, launch),
            Kernel::Copy(kernel) => kernels::fixed::copy(self, kernel, launch),
            Kernel::ArgReduce(kernel) => kernels::fixed::arg_reduce(self, kernel, launch),
            Kernel::Gather(kernel) => kernels::fixed::gather(self, kernel, launch),
            Kernel::ScatterAdd(kernel) => kernels::fixed::scatter_add(self, kernel, launch),
            other => Err(unsupported(
                other.name(),
                &self.info.name,
                other.outputs().first().map_or(DType::F32, |o| o.1),
            )),
        }
    }

    fn synchronize(&self) -> Result<()> {
        // A read of nothing waits for everything, and brings the status along.
        let nothing = self.pool.take(&self.health, DType::U32, 0)?;
        self.queue.read(&nothing, 0, 0).map(|_| ())
    }

    fn memory(&self) -> MemoryStats {
        self.pool.stats()
    }

    fn reset_peak(&self) {
        self.pool.reset_peak();
    }

    fn empty_cache(&self) {
        self.pool.trim();
        self.queue.trim();
        let _ = self.device.poll(wgpu::PollType::Poll);
    }
}
