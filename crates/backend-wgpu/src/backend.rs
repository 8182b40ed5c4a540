//! [`WgpuBackend`]: implements `tensor_core::Backend` with the device of `gpu.rs`.

use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use tensor_core::{
    Backend, Buffer, DType, DeviceInfo, FreeBuffers, Kernel, Launch, MemoryStats, Result, Storage,
    backend::{Download, limit_below_use},
    kernel::Body,
};

use crate::{
    codegen::{
        dispatch::{Dispatch, Dispatches},
        dtypes::to_storage,
    },
    device::{compiled::CompiledKernel, faults::lock, gpu::Gpu, pipeline::assemble},
    kernels::{custom, map::Aliases, native, window},
    platform::CAN_WAIT,
    tuning::Tuning,
};

/// A graphics adapter as a device for tensors.
#[derive(Debug)]
pub struct WgpuBackend {
    pub(crate) gpu: Arc<Gpu>,
    /// The measured choices, if autotuning is on.
    pub(crate) tuning: Option<Tuning>,
}

/// The compiled variants of a kernel, by the inputs that share an output's buffer and by whether bad indices
/// are reported.
struct Variants {
    device: u64,
    made: Mutex<SmallVec<[Variant; 1]>>,
}

/// The aliases, whether it reports no bad index, and the kernel.
type Variant = (Aliases, bool, Arc<CompiledKernel>);

impl WgpuBackend {
    fn compile(&self, launch: &Launch<'_>, aliases: &Aliases) -> Result<Arc<CompiledKernel>> {
        let (gpu, kernel) = (&self.gpu, launch.kernel);
        let capabilities = &gpu.capabilities;
        let elsewhere =
            kernel.outputs.iter().map(|o| o.dtype).find(|d| !capabilities.info.dtypes.contains(d));
        if let Some(dtype) = elsewhere {
            return Err(capabilities.unsupported(
                kernel.name(),
                dtype,
                "cast first, or compute it on the cpu",
            ));
        }
        let tuned = match &self.tuning {
            Some(tuning) => tuning.choose(gpu, launch)?,
            None => None,
        };
        let mut made = match tuned {
            Some(variant) => window::dispatches(kernel, aliases, &capabilities.with(variant))?,
            None => window::dispatches(kernel, aliases, capabilities)?,
        };
        if launch.tickets.is_empty() {
            made.silence();
        }
        Ok(Arc::new(assemble(gpu, made)?))
    }

    /// The compiled kernel of a launch: stored with the kernel, or compiled now.
    fn compiled(&self, launch: &Launch<'_>, aliases: Aliases) -> Result<Arc<CompiledKernel>> {
        let device = self.gpu.id;
        let kept = launch.compiled.get_or_try(|| Ok(Variants { device, made: Mutex::default() }))?;
        let Some(variants) = kept.filter(|v| v.device == device) else {
            return self.compile(launch, &aliases);
        };
        let silent = launch.tickets.is_empty();
        let same = |(a, s, _): &&Variant| *a == aliases && *s == silent;
        if let Some((.., made)) = lock(&variants.made).iter().find(same) {
            return Ok(Arc::clone(made));
        }
        let made = self.compile(launch, &aliases)?;
        lock(&variants.made).push((aliases, silent, Arc::clone(&made)));
        Ok(made)
    }

    /// The number of pipelines compiled so far.
    #[doc(hidden)]
    pub fn pipelines(&self) -> usize {
        self.gpu.pipelines.len()
    }

    /// The file that stores measured choices, if there is one.
    #[doc(hidden)]
    pub fn tuning_file(&self) -> Option<&std::path::Path> {
        self.tuning.as_ref().and_then(|t| t.path())
    }

    /// The file that stores pipelines, if there is one.
    #[doc(hidden)]
    pub fn cache_file(&self) -> Option<&std::path::Path> {
        self.gpu.disk_cache.as_ref().map(|c| c.path())
    }
}

impl Backend for WgpuBackend {
    fn info(&self) -> &DeviceInfo {
        &self.gpu.capabilities.info
    }

    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        Ok(Arc::new(self.gpu.allocate(dtype, numel)?))
    }

    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        let buffer = self.gpu.allocate(dtype, bytes.len() / dtype.size())?;
        if let Some(made) = buffer.made() {
            self.gpu.write(made, &to_storage(dtype, &bytes[..buffer.numel() * dtype.size()]))?;
        }
        Ok(Arc::new(buffer))
    }

    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        self.gpu.read(storage, start, out)
    }

    fn download_async<'a>(&'a self, storage: &'a Storage, start: usize, numel: usize) -> Download<'a> {
        Box::pin(Arc::clone(&self.gpu).read_async(Arc::clone(storage), start, numel))
    }

    fn implements(&self, kernel: &Kernel) -> bool {
        match &kernel.body {
            Body::Custom(custom) => {
                native::implements(custom.as_ref(), kernel, &self.gpu.capabilities)
                    || custom::program(custom.as_ref(), kernel, &self.info().name).is_ok()
            }
            Body::Map(_)
            | Body::Reduce { .. }
            | Body::Rows { .. }
            | Body::Contract(_)
            | Body::Copy { .. }
            | Body::ArgReduce { .. }
            | Body::Cumulative { .. }
            | Body::ArgSort { .. }
            | Body::Gather { .. }
            | Body::Scatter { .. } => true,
        }
    }

    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        self.gpu.faults.alive(self.gpu.name())?;
        let same = |a: &Storage, b: &Storage| Arc::as_ptr(a).cast::<()>() == Arc::as_ptr(b).cast::<()>();
        let aliases: Aliases = launch
            .inputs
            .iter()
            .map(|i| launch.outputs.iter().position(|o| same(i, o)).map(|o| o as u8))
            .collect();
        let compiled = self.compiled(launch, aliases)?;
        self.gpu.encode(&compiled, launch)
    }

    fn can_wait(&self) -> bool {
        CAN_WAIT
    }

    fn settle(&self) -> Result<()> {
        self.gpu.settle_tickets()
    }

    fn synchronize(&self) -> Result<()> {
        self.gpu.finish()
    }

    fn memory(&self) -> MemoryStats {
        self.gpu.pool.stats()
    }

    fn free_buffers(&self) -> Vec<FreeBuffers> {
        self.gpu.pool.free_buffers()
    }

    fn reset_peak(&self) {
        self.gpu.pool.reset_peak();
    }

    fn source(&self, kernel: &Kernel) -> Vec<String> {
        let capabilities = &self.gpu.capabilities;
        let aliases = kernel.operands.iter().map(|_| None).collect();
        let texts = |made: Dispatches| {
            let fits = |d: &Dispatch| d.params.len() * 4 <= capabilities.immediate_bytes as usize;
            made.list.iter().filter(|d| d.workgroups > 0).map(|d| d.text(fits(d))).collect()
        };
        window::dispatches(kernel, &aliases, capabilities).map(texts).unwrap_or_default()
    }

    fn empty_cache(&self) {
        self.gpu.empty_cache();
    }

    fn set_memory_limit(&self, limit: Option<u64>) -> Result<()> {
        let pool = &self.gpu.pool;
        if pool.set_limit(limit).is_ok() {
            return Ok(());
        }
        self.gpu.empty_cache();
        match (pool.set_limit(limit), limit) {
            (Err(in_use), Some(limit)) => Err(limit_below_use(limit, in_use)),
            _ => Ok(()),
        }
    }
}
