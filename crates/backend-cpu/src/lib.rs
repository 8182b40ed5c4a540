//! Taper's CPU backend.
//!
//! Fused expressions run through a block engine: about a thousand positions at a time, with all temporaries
//! in the first-level cache, in loops compiled for AVX-512, AVX2 and a baseline and selected at run time.
//! Products run in micro-kernels that are compiled the same way. `rayon` provides the threads. A pool
//! provides the memory, because fresh pages cost more than arithmetic.
//!
//! The modules; each uses only those above it.
//!
//! | module | contents |
//! |---|---|
//! | `environment` | environment variables |
//! | `simd` | instruction sets, vectors, real functions, inner loops, the order of elements |
//! | `machine`, `tuning` | the machine and its caches; every threshold |
//! | `threads`, `rounding` | sharing of a kernel's work between threads; rounding of vectors beside blocks |
//! | `memory` | pool, buffers, walks along strides, strided copies, conversions of half types |
//! | `elementwise` | programs lowered to steps, the block engine, the table of formulas, the map kernel |
//! | `kernels` | one file for each other body of a kernel |
//! | `dense` | products, threads and loops for algorithms in other crates |
//! | `settings`, and this file | the device |
//!
//! | variable | meaning |
//! |---|---|
//! | `TAPER_CPU_ISA` | `avx512`, `avx2` or `baseline`: the instruction set, which the processor must have |
//! | `TAPER_CPU_BF16` | `amx`, `avx512bf16` or `widen`: the form of bf16 products, if available |
//! | `TAPER_CPU_BLOCKS` | `exact` or `int8`: products with weights in blocks, see [`set_int8_activations`] |
//! | `TAPER_CPU_MEMORY_LIMIT` | the memory budget in bytes |
//! | `TAPER_THREADS` | threads that share large kernels, with the caller: see [`set_num_threads`] |
//! | `RAYON_NUM_THREADS` | the same if `TAPER_THREADS` is not set; 0 means one per processor |
//!
//! A value that cannot be parsed is an error of [`open`], and of every use of memory of [`cpu`]'s device.
//! `taper` reports variables that begin with `TAPER_` and that no backend reads.

#![deny(clippy::wildcard_enum_match_arm)] // every place has to handle a new variant

pub mod dense;
mod elementwise;
mod environment;
mod forms;
mod kernels;
mod machine;
mod memory;
mod rounding;
mod settings;
mod simd;
mod threads;
mod tuning;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use tensor_core::{
    Backend, DType, Device, DeviceInfo, DeviceKind, DeviceProvider, Error, ErrorKind, FreeBuffers, HostBytes,
    Kernel, Launch, Limits, MemoryStats, Result, Storage, backend::Fill, kernel::Body,
};

#[doc(hidden)]
pub use crate::kernels::native::custom::NATIVE_KERNELS;
pub use crate::kernels::native::custom::{CpuInput, CpuKernel, CpuOutput};
pub use crate::rounding::{int8_activations, set_int8_activations};
pub use crate::threads::{num_threads, set_num_threads};
use crate::{
    elementwise::map,
    environment::Misread,
    kernels::{
        fold::{arg_reduce, reduce, rows},
        movement::{copy, gather, scatter},
        native::custom,
        product,
        scan::cumulative,
        sort::arg_sort,
    },
    machine::machine,
    memory::{buffer::CpuBuffer, pool::Pool},
    settings::Settings,
    simd::{bf16::Bf16, isa::Isa},
};

/// The source root of this crate. `taper` uses it to keep errors from naming lines of this crate.
#[doc(hidden)]
pub const ROOT: &str = file!();

/// The host's processor as a device for tensors.
#[derive(Debug)]
pub struct CpuBackend {
    info: DeviceInfo,
    isa: Isa,
    bf16: Bf16,
    pool: Arc<Pool>,
    /// The first environment variable that could not be parsed.
    misread: Option<Misread>,
}

impl CpuBackend {
    /// A backend with its own memory pool. Most programs want [`cpu`], which is shared.
    ///
    /// If an environment variable cannot be parsed, each allocation returns that error.
    pub fn new() -> CpuBackend {
        CpuBackend::named("cpu".into())
    }

    fn named(name: String) -> CpuBackend {
        match Settings::from_env() {
            Ok(Settings { isa, bf16, budget }) => CpuBackend::with(name, isa, bf16, budget),
            Err(misread) => {
                let isa = machine().isas[0];
                let backend = CpuBackend::with(name, isa, Bf16::available(isa)[0], machine().memory);
                CpuBackend { misread: Some(misread), ..backend }
            }
        }
    }

    /// Returns the error of the environment, if there is one.
    fn settled(&self) -> Result<()> {
        self.misread.as_ref().map_or(Ok(()), |misread| Err(misread.error()))
    }

    fn with(name: String, isa: Isa, bf16: Bf16, budget: Option<u64>) -> CpuBackend {
        let pool = Arc::new(Pool::of(name.clone(), budget));
        CpuBackend {
            info: DeviceInfo {
                name,
                description: machine().processor.clone(),
                driver: isa.name().into(),
                kind: DeviceKind::Cpu,
                memory: machine().memory,
                dtypes: DType::ALL.to_vec(),
                limits: Limits {
                    max_buffer_bytes: isize::MAX as u64,
                    max_indexed_bytes: isize::MAX as u64,
                    // A gather copies runs, and an in-place map finds its result in the cache: see decision
                    // 47.
                    gathers_in_maps: false,
                    max_inputs: 64,
                    max_outputs: 32,
                    max_instrs: 256,
                    max_row: 1 << 17,
                    max_epilogue: 64,
                    // Reading short rows with gaps between them costs more than the copy of a padding.
                    min_framed_bytes: usize::MAX,
                },
            },
            isa,
            bf16,
            pool,
            misread: None,
        }
    }
}

impl Default for CpuBackend {
    fn default() -> CpuBackend {
        CpuBackend::new()
    }
}

/// The device that all tensors on the host's processor share; it prints as `cpu`.
///
/// If an environment variable cannot be parsed, creating a tensor on it returns that error; [`open`]
/// returns it at once.
pub fn cpu() -> Device {
    shared().0.clone()
}

/// The same device as [`cpu`].
///
/// # Errors
/// `Invalid` for an environment variable that cannot be parsed; the message lists the valid values.
pub fn open() -> Result<Device> {
    let (device, backend) = shared();
    backend.settled().map(|()| device.clone())
}

/// One of several logical devices on the host's processor: 0 is [`cpu`], any other prints as `cpu#1` and so
/// on, and has its own memory, plans and budget; every call returns the same device. They share the
/// threads. Use them to test a program for several devices on one machine.
///
/// # Errors
/// As [`open`], and `UnknownDevice` from [`MOST_LOGICAL`] on.
pub fn logical(number: usize) -> Result<Device> {
    static OTHERS: Mutex<BTreeMap<usize, (Device, Arc<CpuBackend>)>> = Mutex::new(BTreeMap::new());
    if number == 0 {
        return open();
    }
    if number >= MOST_LOGICAL {
        return Err(Error::new(ErrorKind::UnknownDevice {
            asked: format!("cpu#{number}"),
            hint: format!("the number after # is below {MOST_LOGICAL}"),
        }));
    }
    let mut others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    let (device, backend) = others.entry(number).or_insert_with(|| device_of(format!("cpu#{number}")));
    backend.settled().map(|()| device.clone())
}

/// The number of logical devices on one processor.
pub const MOST_LOGICAL: usize = 64;

/// This backend's devices by name: `cpu`, and `cpu#1` for another one on the same processor.
#[derive(Clone, Copy, Debug)]
pub struct CpuDevices;

impl DeviceProvider for CpuDevices {
    fn name(&self) -> &str {
        "cpu"
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        vec![cpu().info().clone()]
    }

    fn logical_devices(&self) -> usize {
        MOST_LOGICAL
    }

    fn open(&self, index: usize, logical: usize) -> Result<Device> {
        if index > 0 {
            let hint = "a machine has one cpu; cpu#1 is a further device on it".into();
            return Err(Error::new(ErrorKind::UnknownDevice { asked: format!("cpu:{index}"), hint }));
        }
        crate::logical(logical)
    }

    fn variables(&self) -> &[&'static str] {
        settings::VARIABLES
    }
}

fn shared() -> &'static (Device, Arc<CpuBackend>) {
    static CPU: OnceLock<(Device, Arc<CpuBackend>)> = OnceLock::new();
    CPU.get_or_init(|| device_of("cpu".into()))
}

fn device_of(name: String) -> (Device, Arc<CpuBackend>) {
    let backend = Arc::new(CpuBackend::named(name));
    let shared: Arc<CpuBackend> = Arc::clone(&backend);
    (Device::new(shared), backend)
}

impl Backend for CpuBackend {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        self.settled()?;
        Ok(Arc::new(CpuBuffer::new(&self.pool, dtype, numel)?))
    }

    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        self.settled()?;
        let mut buffer = CpuBuffer::new(&self.pool, dtype, bytes.len() / dtype.size())?;
        buffer.write(bytes);
        Ok(Arc::new(buffer))
    }

    fn upload_with(&self, dtype: DType, numel: usize, fill: &Fill<'_>) -> Result<Storage> {
        self.settled()?;
        let mut buffer = CpuBuffer::new(&self.pool, dtype, numel)?;
        buffer.write_with(fill)?;
        Ok(Arc::new(buffer))
    }

    fn adopt(&self, dtype: DType, bytes: HostBytes) -> Result<Option<Storage>> {
        self.settled()?;
        let buffer = CpuBuffer::adopt(&self.pool, dtype, bytes);
        Ok(buffer.map(|buffer| Arc::new(buffer) as Storage))
    }

    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        CpuBuffer::of(storage)?.read(start, out)
    }

    fn download_with(
        &self,
        storage: &Storage,
        start: usize,
        numel: usize,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        CpuBuffer::of(storage)?.read_with(start, numel, take)
    }

    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        if cfg!(debug_assertions) {
            launch.check()?;
        }
        if launch.kernel.is_framed() {
            return Err(Error::invalid(launch.kernel.name(), "this backend stores no zeros around results"));
        }
        let (isa, pool) = (self.isa, &self.pool);
        match &launch.kernel.body {
            Body::Map(program) => map::run(isa, pool, program, launch),
            Body::Reduce { op, program } => reduce::run(isa, pool, *op, program, launch),
            Body::Rows { row_axes: _, program } => rows::run(isa, pool, program, launch),
            Body::Contract(_) => product::run(isa, self.bf16, pool, launch),
            Body::Copy { fill, regions } => copy::run(isa, pool, *fill, regions, launch),
            Body::ArgReduce { op, axis } => arg_reduce::run(isa, pool, *op, *axis, launch),
            Body::Cumulative { op, axis, reverse } => {
                cumulative::run(isa, pool, (*op, *axis, *reverse), launch)
            }
            Body::ArgSort { axis, descending } => arg_sort::run(isa, pool, *axis, *descending, launch),
            Body::Custom(custom) => custom::run(self, custom.as_ref(), launch),
            Body::Gather { axis } => gather::run(isa, pool, *axis, launch),
            Body::Scatter { op, axis } => scatter::run(isa, pool, *op, *axis, launch),
        }
    }

    fn implements(&self, kernel: &Kernel) -> bool {
        match &kernel.body {
            Body::Custom(custom) => custom::implements(self, custom.as_ref(), kernel),
            Body::Map(_) | Body::Reduce { .. } | Body::Rows { .. } | Body::Contract(_) => true,
            Body::Copy { .. } | Body::ArgReduce { .. } | Body::Cumulative { .. } => true,
            Body::ArgSort { .. } | Body::Gather { .. } | Body::Scatter { .. } => true,
        }
    }

    fn synchronize(&self) -> Result<()> {
        // Kernels have finished when `run` returns.
        Ok(())
    }

    fn memory(&self) -> MemoryStats {
        self.pool.stats()
    }

    fn free_buffers(&self) -> Vec<FreeBuffers> {
        self.pool.free_buffers()
    }

    fn reset_peak(&self) {
        self.pool.reset_peak();
    }

    fn empty_cache(&self) {
        self.pool.trim();
    }

    fn set_memory_limit(&self, limit: Option<u64>) -> Result<()> {
        self.pool.set_limit(limit)
    }
}
