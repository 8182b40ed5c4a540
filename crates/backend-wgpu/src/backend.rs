//! [`WgpuBackend`]: implements `tensor_core::Backend` with the device of `gpu.rs`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use tensor_core::{
    Backend, Buffer, DType, DeviceInfo, FreeBuffers, Kernel, Launch, MemoryStats, Result, Storage,
    backend::{Download, Upcoming, limit_below_use},
    kernel::{Body, Compiled},
    lock,
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches},
        dtypes::to_storage,
    },
    device::{
        compiled::CompiledKernel,
        gpu::Gpu,
        launch::pipeline::{assemble, create_together},
    },
    kernels::{
        body,
        cut::Aliases,
        native::{self, custom},
    },
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

impl Variants {
    fn get(&self, aliases: &Aliases, silent: bool) -> Option<Arc<CompiledKernel>> {
        let made = lock(&self.made);
        made.iter().find(|(a, s, _)| a == aliases && *s == silent).map(|(.., made)| Arc::clone(made))
    }
}

/// The dispatches of a kernel; `silent` if it has no bad index to report.
fn generated(
    kernel: &Kernel,
    aliases: &Aliases,
    silent: bool,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let elsewhere = kernel.outputs.iter().map(|o| o.dtype).find(|d| !capabilities.info.dtypes.contains(d));
    if let Some(dtype) = elsewhere {
        return Err(capabilities.unsupported(kernel.name(), dtype, "cast first, or compute it on the cpu"));
    }
    let mut made = body::dispatches(kernel, aliases, capabilities)?;
    if silent {
        made.silence();
    }
    Ok(made)
}

impl WgpuBackend {
    fn compile(&self, launch: &Launch<'_>, aliases: &Aliases) -> Result<Arc<CompiledKernel>> {
        let gpu = &self.gpu;
        let tuned = match &self.tuning {
            Some(tuning) => tuning.choose(gpu, launch)?,
            None => None,
        };
        let tuned = tuned.map(|variant| gpu.capabilities.with(variant));
        let silent = launch.tickets.is_empty();
        let capabilities = tuned.as_ref().unwrap_or(&gpu.capabilities);
        Ok(Arc::new(assemble(gpu, generated(launch.kernel, aliases, silent, capabilities)?)?))
    }

    /// The place of the compiled variants of a kernel; None if another device uses the slot.
    fn variants<'a>(&self, slot: &'a Compiled) -> Result<Option<&'a Variants>> {
        let device = self.gpu.id;
        let kept = slot.get_or_try(|| Ok(Variants { device, made: Mutex::default() }))?;
        Ok(kept.filter(|variants| variants.device == device))
    }

    /// The compiled kernel of a launch: stored with the kernel, or compiled now.
    fn compiled(&self, launch: &Launch<'_>, aliases: Aliases) -> Result<Arc<CompiledKernel>> {
        let Some(variants) = self.variants(launch.compiled)? else {
            return self.compile(launch, &aliases);
        };
        let silent = launch.tickets.is_empty();
        if let Some(made) = variants.get(&aliases, silent) {
            return Ok(made);
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
            Body::Map(_) | Body::Reduce { .. } | Body::Rows { .. } | Body::Contract(_) => true,
            Body::Copy { .. } | Body::ArgReduce { .. } | Body::Cumulative { .. } => true,
            Body::ArgSort { .. } | Body::Gather { .. } | Body::Scatter { .. } => true,
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

    /// Compiles the pipelines of all kernels on several threads, unless autotuning chooses among forms at
    /// the launches.
    fn prepare(&self, upcoming: &[Upcoming<'_>]) {
        if !CAN_WAIT || self.tuning.is_some() {
            return;
        }
        let mut seen = FxHashSet::default();
        let mut new = Vec::new();
        for one in upcoming {
            let aliases: Aliases = one.shared.iter().map(|o| o.map(|o| o as u8)).collect();
            let Ok(Some(variants)) = self.variants(one.compiled) else { continue };
            if variants.get(&aliases, true).is_some()
                || !seen.insert((std::ptr::from_ref(one.compiled), aliases.clone()))
            {
                continue;
            }
            // The launch of a kernel that fails here reports the failure.
            if let Ok(made) = generated(one.kernel, &aliases, true, &self.gpu.capabilities) {
                new.push((variants, aliases, made));
            }
        }
        create_together(&self.gpu, new.iter_mut().map(|(.., made)| made));
        for (variants, aliases, made) in new {
            if let Ok(made) = assemble(&self.gpu, made) {
                lock(&variants.made).push((aliases, true, Arc::new(made)));
            }
        }
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

    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Duration>> {
        self.gpu.timed(work)
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
        body::dispatches(kernel, &aliases, capabilities).map(texts).unwrap_or_default()
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
