//! [`Device`]: the run-time choice of the place where tensors live.

use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
};

use crate::{
    base::error::{Error, ErrorKind, Result},
    devices::backend::{Backend, DeviceInfo, MemoryStats},
    elements::dtype::DType,
};

/// A place for tensors: a cheap handle to a backend. Prints as `cpu` or `wgpu:0`.
#[derive(Clone)]
pub struct Device(Arc<Shared>);

struct Shared {
    backend: Arc<dyn Backend>,
    /// The scheduler's state for the device.
    attached: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Device {
    /// A device on a backend. Handles cloned from one call are equal; two calls make two devices.
    pub fn new(backend: Arc<dyn Backend>) -> Device {
        Device(Arc::new(Shared { backend, attached: OnceLock::new() }))
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.0.backend
    }

    /// The name: `cpu`, `wgpu:0`.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    /// The device's properties, which print as one line. `torch.cuda.get_device_properties`.
    #[doc(alias("get_device_properties", "get_device_name", "get_device_capability"))]
    pub fn info(&self) -> &DeviceInfo {
        self.0.backend.info()
    }

    /// Whether the device stores and computes `dtype`.
    pub fn supports(&self, dtype: DType) -> bool {
        self.info().dtypes.contains(&dtype)
    }

    /// Fails with an error that suggests a cast, unless the device supports `dtype`.
    #[track_caller]
    pub(crate) fn require(&self, dtype: DType, op: &'static str) -> Result<()> {
        if self.supports(dtype) {
            return Ok(());
        }
        let other = if dtype.is_float() { "F32" } else { "I32" };
        Err(Error::new(ErrorKind::Unsupported {
            op,
            device: self.name().into(),
            dtype,
            hint: format!(
                "cast first with .to_dtype(DType::{other}) on a device that has it, or stay on the cpu"
            ),
        }))
    }

    /// The scheduler's state for this device. The first call creates it, by default; all calls must name the
    /// same type.
    pub(crate) fn attached<T: Any + Send + Sync + Default>(&self) -> &T {
        let attached = self.0.attached.get_or_init(|| Box::<T>::default());
        match attached.downcast_ref() {
            Some(state) => state,
            None => unreachable!("a device keeps state of one type"),
        }
    }

    /// Memory in use, which prints as one line. `torch.cuda.memory_allocated`, `memory_reserved` and
    /// `max_memory_allocated` in one.
    #[doc(alias(
        "memory_allocated",
        "memory_reserved",
        "max_memory_allocated",
        "memory_stats",
        "memory_summary"
    ))]
    pub fn memory(&self) -> MemoryStats {
        self.0.backend.memory()
    }

    /// Resets the peak to the bytes allocated now.
    #[doc(alias("reset_peak_memory_stats", "reset_max_memory_allocated"))]
    pub fn reset_peak(&self) {
        self.0.backend.reset_peak();
    }

    /// Returns cached free memory to the system.
    pub fn empty_cache(&self) {
        self.0.backend.empty_cache();
    }

    /// Sets the memory budget in bytes: an allocation that would exceed it is `OutOfMemory`, and all
    /// live tensors stay intact. `None` removes the budget.
    /// `torch.cuda.set_per_process_memory_fraction`, in bytes.
    ///
    /// # Errors
    /// A budget below the bytes of live tensors (the old budget then stays), or a backend without
    /// budgets.
    #[track_caller]
    #[doc(alias = "set_per_process_memory_fraction")]
    pub fn set_memory_limit(&self, limit: impl Into<Option<u64>>) -> Result<()> {
        match self.0.backend.set_memory_limit(limit.into()) {
            Err(error) => Err(error.here()),
            set => set,
        }
    }

    /// Waits for all work on the device.
    ///
    /// # Errors
    /// A failure of the device itself. Index errors are not reported here but when a dependent value is
    /// read.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        self.0.backend.synchronize()
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}
