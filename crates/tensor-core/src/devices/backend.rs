//! [`Backend`]: the contract between the tensor graph and a device, about ten methods, object-safe. A
//! backend can live in any crate; `Device::new` takes it. `kernel.rs` defines the work that it is given.

use std::{any::Any, fmt, future::Future, pin::Pin, time::Duration};

use crate::{
    base::{
        error::{Error, Result},
        host_bytes::HostBytes,
    },
    elements::dtype::DType,
    kernels::{
        kernel::{Compiled, Kernel},
        launch::Launch,
    },
};

pub use crate::kernels::storage::{Buffer, Storage};

/// A pending read from a device, which gives the bytes.
pub type Download<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send + 'a>>;

/// Fills a piece of a buffer's bytes, given the piece's offset in the buffer. See
/// [`Backend::upload_with`].
pub type Fill<'a> = dyn Fn(usize, &mut [u8]) -> Result<()> + Sync + 'a;

/// A device that holds buffers and runs kernels.
///
/// All calls may come from several threads at once. The observable order of kernels is the order of the
/// calls.
pub trait Backend: Any + fmt::Debug + Send + Sync {
    /// The device's properties.
    fn info(&self) -> &DeviceInfo;

    /// A buffer for `numel` elements with unspecified contents (0 elements are allowed).
    ///
    /// # Errors
    /// `OutOfMemory` if the budget is used up even after the cache was freed, `TooLarge` for more bytes
    /// than one buffer may hold, `Unsupported` for a dtype that the device lacks, `DeviceLost`.
    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage>;

    /// A buffer with these elements, in host byte order.
    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage>;

    /// A buffer of `numel` elements whose bytes `fill` writes. `fill` is called once for each piece of
    /// the buffer, with the piece's byte offset, in any order and perhaps on several threads. The
    /// default calls it for one piece and uploads that.
    ///
    /// # Errors
    /// The first error of `fill`, and those of [`Backend::upload`].
    fn upload_with(&self, dtype: DType, numel: usize, fill: &Fill<'_>) -> Result<Storage> {
        let mut bytes = vec![0; numel * dtype.size()];
        fill(0, &mut bytes)?;
        self.upload(dtype, &bytes)
    }

    /// A buffer whose memory is these bytes, such as pages of a file. The default, for devices with memory of
    /// their own, is `None`: the bytes are uploaded then. So are those that are not aligned for the dtype.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn adopt(&self, _dtype: DType, _bytes: HostBytes) -> Result<Option<Storage>> {
        Ok(None)
    }

    /// Reads `out.len()` bytes of elements, from element `start` on; waits for the kernels that write
    /// them.
    ///
    /// This read's own failure, and a lost device. A bad index is not reported here but by the
    /// [`crate::Ticket`] of its launch, which is decided when this returns.
    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()>;

    /// Passes the bytes of `numel` elements, from element `start` on, to `take`, in consecutive pieces.
    /// The default reads pieces of some megabytes; a backend whose memory the host sees passes it
    /// without a copy, so `take` must not use any device.
    ///
    /// # Errors
    /// The first error of `take`, and those of [`Backend::download`].
    fn download_with(
        &self,
        storage: &Storage,
        start: usize,
        numel: usize,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        const PIECE: usize = 1 << 24;
        let size = storage.dtype().size();
        let mut bytes = vec![0; numel.min(PIECE / size) * size];
        for first in (0..numel).step_by(PIECE / size) {
            let piece = &mut bytes[..(numel - first).min(PIECE / size) * size];
            self.download(storage, start + first, piece)?;
            take(piece)?;
        }
        Ok(())
    }

    /// Like [`Backend::download`] for `numel` elements, without blocking the thread while the device
    /// works. The default is for devices that compute on the calling thread: it completes at the first
    /// poll.
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
    /// `Unsupported` for a kernel or dtype that the backend lacks: it never falls back to the host
    /// silently. `IndexOutOfRange` for an index outside its axis, unless the launch's ticket is
    /// deferred.
    fn run(&self, launch: &Launch<'_>) -> Result<()>;

    /// Prepares kernels that will soon run for the first time, so that a backend can compile them on
    /// several threads. It reports no failure: that of a kernel is reported by its launch, which knows the
    /// line. The default is for backends that compile nothing.
    fn prepare(&self, _upcoming: &[Upcoming<'_>]) {}

    /// Whether [`Backend::run`] has an implementation of a [`crate::kernel::Body::Custom`]. Callers that
    /// can compose the operation ask this first. The default is that there is none.
    fn implements(&self, _kernel: &Kernel) -> bool {
        false
    }

    /// The kernel's compiled source, for inspection (WGSL on a GPU). The default is for backends that
    /// compile none.
    fn source(&self, _kernel: &Kernel) -> Vec<String> {
        Vec::new()
    }

    /// Whether a thread can wait for the device, as everywhere but in a page of a browser. If it cannot,
    /// evaluating leaves the checks of indices to the next awaited read of a value that depends on them.
    fn can_wait(&self) -> bool {
        true
    }

    /// Decides every [`crate::Ticket`] that a launch deferred so far; waits for the device if it must.
    /// The default is for backends whose `run` reports bad indices at once and defers nothing.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until all queued work is done.
    ///
    /// # Errors
    /// A failure of the device itself. Index errors are not reported here but when a dependent value is
    /// read.
    fn synchronize(&self) -> Result<()>;

    /// Does some work, waits until the device has done it, and returns the time that the device itself
    /// measured. None, the default, if it has no clock: the caller's counts then.
    ///
    /// # Errors
    /// The errors of `work` and of [`Backend::synchronize`].
    fn timed(&self, work: &mut dyn FnMut() -> Result<()>) -> Result<Option<Duration>> {
        work()?;
        self.synchronize()?;
        Ok(None)
    }

    /// The memory in use.
    fn memory(&self) -> MemoryStats;

    /// Cached free buffers by size, the smallest first. The default is for backends without a cache.
    fn free_buffers(&self) -> Vec<FreeBuffers> {
        Vec::new()
    }

    /// Resets `peak` to the bytes allocated now.
    fn reset_peak(&self);

    /// Returns cached free memory to the system.
    fn empty_cache(&self);

    /// Sets the memory budget: an allocation that would exceed it is `OutOfMemory`. `None` removes the
    /// budget. Cached free memory is returned to the system as needed. The default is for backends
    /// without budgets.
    ///
    /// # Errors
    /// `Invalid` for a budget below the bytes in use (the old budget then stays), and from a backend
    /// without budgets.
    fn set_memory_limit(&self, _limit: Option<u64>) -> Result<()> {
        let message = format!("{} has no budget of memory that can be set", self.info().name);
        Err(Error::invalid("set_memory_limit", message))
    }
}

/// A kernel before its buffers exist. See [`Backend::prepare`].
#[derive(Debug)]
pub struct Upcoming<'a> {
    /// The kernel. No launch of it has tickets.
    pub kernel: &'a Kernel,
    /// The slot for the backend's compiled form of the kernel, as in its [`Launch`].
    pub compiled: &'a Compiled,
    /// For each input, the number of the output that will have the same buffer.
    pub shared: Vec<Option<usize>>,
}

/// The error for a budget of `limit` bytes that is below the `in_use` bytes of live tensors. For
/// backends.
#[track_caller]
pub fn limit_below_use(limit: u64, in_use: u64) -> Error {
    let (limit, in_use) = (readable_bytes(limit), readable_bytes(in_use));
    let message =
        format!("a limit of {limit} is below the {in_use} in use; drop tensors first, or set a higher one");
    Error::invalid("set_memory_limit", message)
}

/// The properties of a device.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The name that `taper::device` takes: `cpu`, `wgpu:0`.
    pub name: String,
    /// The processor or adapter, as its vendor calls it.
    pub description: String,
    /// The API and driver behind it, such as `Vulkan, llvmpipe (LLVM 15.0.6)`.
    pub driver: String,
    /// The kind of processor.
    pub kind: DeviceKind,
    /// Its memory in bytes, if known.
    pub memory: Option<u64>,
    /// The dtypes it stores and computes.
    pub dtypes: Vec<DType>,
    /// The greatest sizes of buffers and kernels.
    pub limits: Limits,
}

/// The properties on one line: name, vendor's description, driver, kind, memory, dtypes.
impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory.map_or_else(|| "unknown memory".to_string(), readable_bytes);
        let dtypes: Vec<String> = self.dtypes.iter().map(ToString::to_string).collect();
        let (name, description, driver, kind) = (&self.name, &self.description, &self.driver, self.kind);
        write!(f, "{name}: {description} ({kind}; {driver}), {memory}, {}", dtypes.join(" "))
    }
}

/// The kind of processor that a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The host's CPU.
    Cpu,
    /// A GPU with its own memory.
    DiscreteGpu,
    /// A GPU that shares the host's memory.
    IntegratedGpu,
    /// A virtual machine's GPU.
    VirtualGpu,
    /// A graphics API implemented in software on the host's CPU.
    SoftwareGpu,
    /// Any other.
    Other,
}

impl DeviceKind {
    /// Whether it is a real GPU, as opposed to a software adapter on the host's CPU.
    #[must_use]
    pub fn is_hardware_gpu(self) -> bool {
        match self {
            DeviceKind::DiscreteGpu | DeviceKind::IntegratedGpu | DeviceKind::VirtualGpu => true,
            DeviceKind::Cpu | DeviceKind::SoftwareGpu | DeviceKind::Other => false,
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DeviceKind::Cpu => "CPU",
            DeviceKind::DiscreteGpu => "discrete GPU",
            DeviceKind::IntegratedGpu => "integrated GPU",
            DeviceKind::VirtualGpu => "virtual GPU",
            DeviceKind::SoftwareGpu => "software GPU",
            DeviceKind::Other => "other",
        })
    }
}

/// A device's limits for one kernel; the scheduler stays within them.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one buffer.
    pub max_buffer_bytes: u64,
    /// Bytes, in the device's own representation, of a buffer that a program may read at computed
    /// indices ([`crate::kernel::Instr::LoadAt`]); a larger buffer is read by a gather kernel.
    pub max_indexed_bytes: u64,
    /// Whether a map reads at computed indices itself rather than reading a gather's output, at no extra
    /// cost. Reductions, row kernels and programs that compute the indices read for themselves on every
    /// device.
    pub gathers_in_maps: bool,
    /// Inputs of one map or reduction.
    pub max_inputs: usize,
    /// Outputs of one map or row kernel.
    pub max_outputs: usize,
    /// Instructions of one program.
    pub max_instrs: usize,
    /// Elements in a row of a [`crate::kernel::Body::Rows`]; 0 if the backend has no row kernels.
    pub max_row: usize,
    /// Instructions of the epilogue that a [`crate::kernel::Body::Contract`] applies to its sums before
    /// it stores them, if it has many; 0 if the backend runs it as a separate kernel.
    /// [`Limits::max_epilogue_of`] has the limit for few.
    pub max_epilogue: usize,
    /// Bytes of the smallest elements that a map or a row kernel may store in a [`crate::kernel::Frame`];
    /// `usize::MAX` if the backend has none.
    pub min_framed_bytes: usize,
}

impl Limits {
    /// The positions of an index space up to which launching a kernel takes longer than running it.
    pub const SMALL_SPACE: usize = 1 << 14;

    /// Instructions of the epilogue of a contraction with this number of results. One with few results may
    /// have a longer epilogue than [`Limits::max_epilogue`], because a separate kernel costs more.
    pub fn max_epilogue_of(&self, results: usize) -> usize {
        match self.max_epilogue {
            0 => 0,
            most if results > Limits::SMALL_SPACE => most,
            most => most.max(self.max_instrs / 2),
        }
    }
}

/// A device's memory, in bytes unless noted otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in live tensors and in pending work.
    pub allocated: u64,
    /// Bytes held from the driver or system: allocated ones and those cached for reuse.
    pub reserved: u64,
    /// The greatest `allocated` since the start or the last `reset_peak`.
    pub peak: u64,
    /// The number of allocations since the start.
    pub allocations: u64,
    /// The budget, if one is set.
    pub limit: Option<u64>,
}

/// Cached free buffers of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBuffers {
    /// Bytes of each buffer.
    pub bytes: u64,
    /// The number of buffers.
    pub count: usize,
}

/// `allocated 4.00 MiB, reserved 8.00 MiB, peak 6.00 MiB, limit 15.6 GiB, 12 allocations`.
impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [allocated, reserved, peak] = [self.allocated, self.reserved, self.peak].map(readable_bytes);
        let limit = self
            .limit
            .map_or_else(|| "no limit".to_string(), |limit| format!("limit {}", readable_bytes(limit)));
        let allocations = self.allocations;
        write!(
            f,
            "allocated {allocated}, reserved {reserved}, peak {peak}, {limit}, {allocations} allocations"
        )
    }
}

/// A number of bytes in human-readable form, to three digits: `512 B`, `4.00 MiB`, `15.6 GiB`.
#[must_use]
pub fn readable_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // From 1023.5 on the number would round to 1024, so it goes to the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_readable() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (10 << 20, "10.0 MiB"),
            ((1 << 20) - 1, "1.00 MiB"),
            (123 << 30, "123 GiB"),
            (u64::MAX, "16384 PiB"),
        ] {
            assert_eq!(readable_bytes(bytes), text);
        }
        let stats = MemoryStats {
            allocated: 4 << 20,
            reserved: 8 << 20,
            peak: 6 << 20,
            allocations: 12,
            limit: None,
        };
        let text = "allocated 4.00 MiB, reserved 8.00 MiB, peak 6.00 MiB, no limit, 12 allocations";
        assert_eq!(stats.to_string(), text);
    }
}
