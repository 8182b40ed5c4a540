//! [`Hooked`]: a device whose kernels a test intercepts.

use std::{fmt, sync::Arc};

use tensor_core::{
    Backend, DType, Device, DeviceInfo, Launch, MemoryStats, Result, Storage,
    backend::{Download, Upcoming},
};

type Run = dyn Fn(&dyn Backend, &Launch<'_>) -> Result<()> + Send + Sync;

/// A wrapper of another backend that passes its kernels to a function, which runs them on that backend
/// or does anything else.
pub struct Hooked {
    inner: Arc<dyn Backend>,
    run: Box<Run>,
    can_wait: bool,
}

/// A device whose kernels go to `run`, and all other calls to `inner`.
pub fn hooked(
    inner: Arc<dyn Backend>,
    run: impl Fn(&dyn Backend, &Launch<'_>) -> Result<()> + Send + Sync + 'static,
) -> Device {
    let can_wait = inner.can_wait();
    Device::new(Arc::new(Hooked { inner, run: Box::new(run), can_wait }))
}

/// The same backend in a page of a browser, where no thread can wait for a device.
pub fn without_waiting(inner: Arc<dyn Backend>) -> Device {
    let run = |inner: &dyn Backend, launch: &Launch<'_>| inner.run(launch);
    Device::new(Arc::new(Hooked { inner, run: Box::new(run), can_wait: false }))
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Backend for Hooked {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }
    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        self.inner.allocate(dtype, numel)
    }
    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        self.inner.upload(dtype, bytes)
    }
    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        self.inner.download(storage, start, out)
    }
    fn download_async<'a>(&'a self, storage: &'a Storage, start: usize, numel: usize) -> Download<'a> {
        self.inner.download_async(storage, start, numel)
    }
    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        (self.run)(self.inner.as_ref(), launch)
    }
    fn prepare(&self, upcoming: &[Upcoming<'_>]) {
        self.inner.prepare(upcoming);
    }
    fn can_wait(&self) -> bool {
        self.can_wait
    }
    fn settle(&self) -> Result<()> {
        self.inner.settle()
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
    fn memory(&self) -> MemoryStats {
        self.inner.memory()
    }
    fn reset_peak(&self) {
        self.inner.reset_peak();
    }
    fn empty_cache(&self) {
        self.inner.empty_cache();
    }
}
