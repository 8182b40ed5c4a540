//! [`WgpuBackend`]: the contract of `tensor_core::Backend`, over the device of `gpu.rs`.

use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use tensor_core::{
    Backend, Buffer, DType, DeviceInfo, Kernel, Launch, MemoryStats, Result, Storage, backend::Download,
};

use crate::{
    arg_reduce,
    by_index::{self, Along},
    copy, cumulative,
    draft::{Drafts, Facts},
    dtypes::{is_plain, to_lanes},
    faults::lock,
    gpu::Gpu,
    map::{self, Aliases},
    matmul,
    pipeline::{Plan, assemble},
    reduce, rows, sort, window,
};

/// A graphics adapter as a place for tensors.
#[derive(Debug)]
pub struct WgpuBackend {
    pub(crate) gpu: Arc<Gpu>,
}

/// The plans of a kernel, by which of its inputs live in an output's buffer.
struct Plans {
    device: u64,
    made: Mutex<Variants>,
}

type Variants = SmallVec<[(Aliases, Arc<Plan>); 1]>;

/// The drafts of a kernel whose operands fit a binding each. Where it is a part of a larger kernel, `first` is the flat index of
/// its first output element, and `along` which part it has of the axis that is indexed.
pub(crate) fn drafts(
    kernel: &Kernel,
    aliases: &Aliases,
    first: usize,
    along: Along,
    facts: &Facts<'_>,
) -> Result<Drafts> {
    match kernel {
        Kernel::Map(k) => map::draft(k, aliases, first, facts),
        Kernel::Reduce(k) => reduce::draft(k, facts),
        Kernel::Rows(k) => rows::draft(k, first, facts),
        Kernel::ArgReduce(k) => Ok(arg_reduce::draft(k, facts)),
        Kernel::Cumulative(k) => cumulative::draft(k, facts),
        Kernel::ArgSort(k) => sort::draft(k, facts),
        Kernel::MatMul(k) => matmul::draft(k, facts),
        Kernel::Gather(k) => Ok(by_index::gather(k, along, facts).into()),
        Kernel::ScatterAdd(k) => by_index::scatter_add(k, along, facts),
        Kernel::Copy(k) => Ok(copy::draft(k, facts)),
        other => Err(facts.unsupported(other.name(), DType::F32, "compute it on the cpu")),
    }
}

impl WgpuBackend {
    fn make(&self, launch: &Launch<'_>, aliases: &Aliases) -> Result<Arc<Plan>> {
        let (gpu, kernel) = (&self.gpu, launch.kernel);
        let mut facts = Facts {
            info: &gpu.info,
            direct: gpu.facts.direct,
            threads: gpu.facts.threads,
            shared_bytes: gpu.facts.shared_bytes,
            subgroup: gpu.facts.subgroup,
            binding_bytes: gpu.facts.binding_bytes,
            rounds: gpu.facts.rounds,
            way: None,
        };
        let elsewhere = kernel.outputs().iter().find(|(_, d)| !gpu.info.dtypes.contains(d)).map(|o| o.1);
        if let Some(dtype) = elsewhere {
            return Err(facts.unsupported(kernel.name(), dtype, "cast first, or compute it on the cpu"));
        }
        facts.way = gpu.tuned(launch, &facts)?;
        Ok(Arc::new(assemble(gpu, window::drafts(kernel, aliases, &facts)?)?))
    }

    /// The plan of a launch: kept with it, or made.
    fn plan(&self, launch: &Launch<'_>, aliases: Aliases) -> Result<Arc<Plan>> {
        let device = self.gpu.id;
        let kept = launch.compiled.get_or_try(|| Ok(Plans { device, made: Mutex::default() }))?;
        let Some(plans) = kept.filter(|p| p.device == device) else {
            return self.make(launch, &aliases);
        };
        if let Some((_, plan)) = lock(&plans.made).iter().find(|(a, _)| *a == aliases) {
            return Ok(Arc::clone(plan));
        }
        let plan = self.make(launch, &aliases)?;
        lock(&plans.made).push((aliases, Arc::clone(&plan)));
        Ok(plan)
    }

    /// Pipelines made so far.
    #[doc(hidden)]
    pub fn pipelines(&self) -> usize {
        self.gpu.pipelines.len()
    }

    /// The file that measured choices are kept in, if they are.
    #[doc(hidden)]
    pub fn tuning_file(&self) -> Option<&std::path::Path> {
        self.gpu.tuning.as_ref().and_then(|t| t.path())
    }

    /// The file that pipelines are kept in, if they are.
    #[doc(hidden)]
    pub fn cache_file(&self) -> Option<&std::path::Path> {
        self.gpu.disk_cache.as_ref().map(|c| c.path())
    }
}

impl Backend for WgpuBackend {
    fn info(&self) -> &DeviceInfo {
        &self.gpu.info
    }

    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        Ok(Arc::new(self.gpu.allocate(dtype, numel)?.0))
    }

    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        let (buffer, batch) = self.gpu.allocate(dtype, bytes.len() / dtype.size())?;
        if let Some(raw) = buffer.raw() {
            if is_plain(dtype) {
                self.gpu.write(raw, batch, &bytes[..buffer.numel() * dtype.size()])?;
            } else {
                self.gpu.write(raw, batch, &to_lanes(dtype, bytes))?;
            }
        }
        Ok(Arc::new(buffer))
    }

    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        self.gpu.read(storage, start, out)
    }

    fn download_async<'a>(&'a self, storage: &'a Storage, start: usize, numel: usize) -> Download<'a> {
        Box::pin(Arc::clone(&self.gpu).read_async(Arc::clone(storage), start, numel))
    }

    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        self.gpu.faults.alive(self.gpu.name())?;
        let same = |a: &Storage, b: &Storage| Arc::as_ptr(a).cast::<()>() == Arc::as_ptr(b).cast::<()>();
        let aliases: Aliases = launch
            .inputs
            .iter()
            .map(|i| launch.outputs.iter().position(|o| same(i, o)).map(|o| o as u8))
            .collect();
        let plan = self.plan(launch, aliases)?;
        self.gpu.encode(&plan, launch)
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

    fn reset_peak(&self) {
        self.gpu.pool.reset_peak();
    }

    fn empty_cache(&self) {
        self.gpu.empty_cache();
    }
}
