//! The contract between the tensor graph and a place that computes: [`Backend`], about ten methods,
//! object-safe. A backend can live in any crate; `Device::new` takes it. See `kernel.rs` for the work it is
//! given.

use std::{any::Any, fmt, future::Future, pin::Pin};

use crate::{
    base::error::{Error, Result},
    elements::dtype::DType,
    kernels::kernel::{Kernel, Launch},
};

pub use crate::kernels::storage::{Buffer, Storage};

/// The bytes of a read from a device, when they come.
pub type Download<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send + 'a>>;

/// Fills a piece of a buffer's bytes, given where in the buffer it begins. See [`Backend::upload_with`].
pub type Fill<'a> = dyn Fn(usize, &mut [u8]) -> Result<()> + Sync + 'a;

/// A place that holds buffers and runs kernels.
///
/// All calls may come from several threads at once. Kernels run, or seem to run, in the order of the calls.
pub trait Backend: Any + fmt::Debug + Send + Sync {
    /// What this device is.
    fn info(&self) -> &DeviceInfo;

    /// A buffer for `numel` elements with unspecified contents (0 elements are allowed).
    ///
    /// # Errors
    /// `OutOfMemory` when the budget is used up even after the cache was freed, `TooLarge` for more than one
    /// buffer may hold, `Unsupported` for a dtype that the device lacks, `DeviceLost`.
    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage>;

    /// A buffer with these elements, in host byte order.
    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage>;

    /// A buffer of `numel` elements whose bytes `fill` brings: it is called with pieces of them, each with
    /// where in them it begins, once for each byte, in any order and perhaps on several threads. The default
    /// has one piece, which is uploaded.
    ///
    /// # Errors
    /// The first of `fill`, and those of [`Backend::upload`].
    fn upload_with(&self, dtype: DType, numel: usize, fill: &Fill<'_>) -> Result<Storage> {
        let mut bytes = vec![0; numel * dtype.size()];
        fill(0, &mut bytes)?;
        self.upload(dtype, &bytes)
    }

    /// Reads `out.len()` bytes of elements, from element `start` on; waits for the work that makes them.
    ///
    /// # Errors
    /// This read's own, and those of a device that is lost. A bad index is told by the [`crate::Ticket`] of
    /// its launch, which is decided when this returns, and not here.
    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()>;

    /// Hands the bytes of `numel` elements to `take`, from element `start` on, in pieces one after the other.
    /// The default reads pieces of some megabytes; where the host sees the elements they are handed over
    /// without a copy, and `take` must use no device.
    ///
    /// # Errors
    /// The first of `take`, and those of [`Backend::download`].
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

    /// Like [`Backend::download`] for `numel` elements, without blocking the thread while the device works.
    /// The default is for devices that compute on the calling thread: done at the first poll.
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
    /// `Unsupported` for a kernel or dtype that the backend lacks: never a silent detour over the host.
    /// `IndexOutOfRange` for an index outside its axis, unless the launch's ticket is deferred.
    fn run(&self, launch: &Launch<'_>) -> Result<()>;

    /// Whether [`Backend::run`] has an implementation of a [`crate::kernel::Body::Custom`]. Who can compose
    /// the operation of others asks first. The default says that there is none.
    fn implements(&self, _kernel: &Kernel) -> bool {
        false
    }

    /// The texts of the programs that a kernel is compiled to, for who wants to read them: WGSL, of a GPU.
    /// The default is for backends that compile none.
    fn source(&self, _kernel: &Kernel) -> Vec<String> {
        Vec::new()
    }

    /// Decides every [`crate::Ticket`] that was deferred in a launch so far, waiting for the device where it
    /// must. The default is for backends whose `run` fails at once: there is none.
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

    /// Cached free buffers by size, the smallest first. The default is for backends that cache none.
    fn free_buffers(&self) -> Vec<FreeBuffers> {
        Vec::new()
    }

    /// Sets `peak` back to what is allocated now.
    fn reset_peak(&self);

    /// Gives cached free memory back to the system.
    fn empty_cache(&self);

    /// Sets the budget of memory: what would be reserved beyond it is `OutOfMemory`. `None` for no budget.
    /// Cached free memory is given back where that is needed. The default is for backends that keep none.
    ///
    /// # Errors
    /// `Invalid` for a budget below what is in use (then it stays as it was), and of a backend without
    /// budgets.
    fn set_memory_limit(&self, _limit: Option<u64>) -> Result<()> {
        let message = format!("{} has no budget of memory that can be set", self.info().name);
        Err(Error::invalid("set_memory_limit", message))
    }
}

/// The error of a budget of `limit` bytes where `in_use` cannot be given back. For backends.
#[track_caller]
pub fn limit_below_use(limit: u64, in_use: u64) -> Error {
    let (limit, in_use) = (readable_bytes(limit), readable_bytes(in_use));
    let message =
        format!("a limit of {limit} is below the {in_use} in use; drop tensors first, or set a higher one");
    Error::invalid("set_memory_limit", message)
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

/// The properties on one line: name, maker's words, driver, kind, memory, dtypes.
impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory.map_or_else(|| "unknown memory".to_string(), readable_bytes);
        let dtypes: Vec<String> = self.dtypes.iter().map(ToString::to_string).collect();
        let (name, description, driver, kind) = (&self.name, &self.description, &self.driver, self.kind);
        write!(f, "{name}: {description} ({kind}; {driver}), {memory}, {}", dtypes.join(" "))
    }
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

impl DeviceKind {
    /// Whether it is a graphics processor, and not a program that plays one on the host's processor.
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

/// How much a device takes in one kernel: the scheduler stays within these.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one buffer.
    pub max_buffer_bytes: u64,
    /// Bytes of a buffer that a program may read at indices ([`crate::kernel::Instr::LoadAt`]), as the device
    /// holds its elements; a larger one is read by a gather.
    pub max_indexed_bytes: u64,
    /// Whether a map reads at indices what a gather would store and another map read, at no more cost.
    /// Reductions and row kernels, and programs that compute the indices, read for themselves on every
    /// device.
    pub gathers_in_maps: bool,
    /// Inputs of one map or reduction.
    pub max_inputs: usize,
    /// Outputs of one map or row kernel.
    pub max_outputs: usize,
    /// Instructions of one program.
    pub max_instrs: usize,
    /// Elements in a row of a [`crate::kernel::Body::Rows`]; 0 where the backend has none.
    pub max_row: usize,
    /// Instructions of the elementwise program that a [`crate::kernel::Body::Contract`] applies to its sums
    /// before it stores them; 0 where the backend computes it in a kernel of its own.
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

/// Free buffers of one size, kept for the next tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBuffers {
    /// Bytes of each.
    pub bytes: u64,
    /// How many there are.
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

/// A number of bytes as people read it, to three digits: `512 B`, `4.00 MiB`, `15.6 GiB`.
#[must_use]
pub fn readable_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be printed as 1024 is 1 of the next.
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
