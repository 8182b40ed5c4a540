//! The contract between the tensor graph and a place that computes: [`Backend`], about ten methods, object-safe.
//! A backend can live in any crate; `Device::new` takes it. See `kernel.rs` for the work it is given.

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc};

use crate::{DType, Kernel, Launch, Result};

/// Memory on a device, owned by its backend and shared by the tensors that view it. Dropping the last handle gives it back.
pub type Storage = Arc<dyn Buffer>;

/// What every backend's buffer can say of itself. The backend finds its own type again by `&dyn Any`.
pub trait Buffer: Any + fmt::Debug + Send + Sync {
    /// The dtype of the elements.
    fn dtype(&self) -> DType;

    /// The number of elements it was allocated for.
    fn numel(&self) -> usize;
}

/// The bytes of a read from a device, when they come.
pub type Download<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send + 'a>>;

/// A place that holds buffers and runs kernels.
///
/// All calls may come from several threads at once. Kernels run, or seem to run, in the order of the calls.
pub trait Backend: Any + fmt::Debug + Send + Sync {
    /// What this device is.
    fn info(&self) -> &DeviceInfo;

    /// A buffer for `numel` elements with unspecified contents (0 elements are allowed).
    ///
    /// # Errors
    /// `OutOfMemory` when the budget is used up even after the cache was freed, `TooLarge` for more than one buffer may
    /// hold, `Unsupported` for a dtype that the device lacks, `DeviceLost`.
    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage>;

    /// A buffer with these elements, in host byte order.
    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage>;

    /// Reads `out.len()` bytes of elements, from element `start` on; waits for the work that makes them.
    ///
    /// # Errors
    /// This read's own, and those of a device that is lost. A bad index is told by the [`crate::Ticket`] of its launch, which is
    /// decided when this returns, and not here.
    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()>;

    /// Like [`Backend::download`] for `numel` elements, without blocking the thread while the device works. The default is
    /// for devices that compute on the calling thread: done at the first poll.
    fn download_async<'a>(&'a self, storage: &'a Storage, start: usize, numel: usize) -> Download<'a> {
        Box::pin(async move {
            let mut out = vec![0; numel * storage.dtype().size()];
            self.download(storage, start, &mut out)?;
            Ok(out)
        })
    }

    /// Runs a kernel, or queues it.
    ///
    /// # Errors
    /// `Unsupported` for a kernel or dtype that the backend lacks: never a silent detour over the host. `IndexOutOfRange` for an
    /// index outside its axis, unless the launch's ticket is deferred.
    fn run(&self, launch: &Launch<'_>) -> Result<()>;

    /// Whether [`Backend::run`] has an implementation of a [`crate::kernel::Body::Custom`]. Who can compose the operation of others asks first.
    /// The default says that there is none.
    fn implements(&self, _kernel: &Kernel) -> bool {
        false
    }

    /// Decides every [`crate::Ticket`] that was deferred in a launch so far, waiting for the device where it must. The default is
    /// for backends whose `run` fails at once: there is none.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until all queued work is done.
    ///
    /// # Errors
    /// What is wrong with the device. A bad index belongs to those who ask for what depends on it.
    fn synchronize(&self) -> Result<()>;

    /// How much memory is in use.
    fn memory(&self) -> MemoryStats;

    /// Sets `peak` back to what is allocated now.
    fn reset_peak(&self);

    /// Gives cached free memory back to the system.
    fn empty_cache(&self);
}

/// What a device is.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The name that `taper::device` takes: `cpu`, `wgpu:0`.
    pub name: String,
    /// The processor or adapter, in its maker's words.
    pub description: String,
    /// The API and driver behind it, such as `Vulkan, llvmpipe (LLVM 15.0.6)`.
    pub driver: String,
    /// What kind of processor it is.
    pub kind: DeviceKind,
    /// Its memory in bytes, when known.
    pub memory: Option<u64>,
    /// The dtypes it stores and computes.
    pub dtypes: Vec<DType>,
    /// How much it takes at once.
    pub limits: Limits,
}

/// What kind of processor a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The host's own processor.
    Cpu,
    /// A graphics processor with its own memory.
    DiscreteGpu,
    /// A graphics processor that shares the host's memory.
    IntegratedGpu,
    /// A graphics processor of a virtual machine.
    VirtualGpu,
    /// A graphics API implemented on the host's processor.
    SoftwareGpu,
    /// Something else.
    Other,
}

/// How much a device takes in one kernel: the scheduler stays within these.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one buffer.
    pub max_buffer_bytes: u64,
    /// Inputs of one map or reduction.
    pub max_inputs: usize,
    /// Outputs of one map or row kernel.
    pub max_outputs: usize,
    /// Instructions of one program.
    pub max_instrs: usize,
    /// Elements in a row of a [`crate::kernel::Body::Rows`]; 0 where the backend has none.
    pub max_row: usize,
    /// Instructions of the elementwise program that a [`crate::kernel::Body::Contract`] applies to its sums before it stores them; 0 where
    /// the backend computes it in a kernel of its own.
    pub max_epilogue: usize,
}

/// A device's memory, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// In live tensors and work under way.
    pub allocated: u64,
    /// Held from the driver or system: allocated, and cached for reuse.
    pub reserved: u64,
    /// The greatest `allocated` since the start or the last `reset_peak`.
    pub peak: u64,
    /// Allocations asked for since the start (a count).
    pub allocations: u64,
    /// The budget, when there is one.
    pub limit: Option<u64>,
}
