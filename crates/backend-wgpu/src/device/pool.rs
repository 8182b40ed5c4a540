//! Device memory: one wgpu buffer per tensor, in size classes, kept for reuse when freed. A freed buffer
//! can be reused at once, because the queue executes in order. Every byte is counted.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
};

use tensor_core::{Buffer, DType, FreeBuffers, MemoryStats};

use crate::{codegen::dtypes::storage_size, device::faults::lock};

/// The least size of a buffer and the unit of all sizes; a multiple of every required alignment.
const UNIT: u64 = 256;
/// Cached memory that is kept regardless of the peak usage.
const CACHE_FLOOR: u64 = 64 << 20;

/// The size class for `bytes`, at most `most`: eight classes between each power of two and the next, so at
/// most an eighth is wasted.
pub(crate) fn size_class(bytes: u64, most: u64) -> u64 {
    let bytes = bytes.max(1);
    let step = (bytes.next_power_of_two() / 16).max(UNIT);
    // Rounding up must not push a tensor that fits over the adapter's limit (itself a multiple of 16).
    bytes.next_multiple_of(step).min(most)
}

/// A freed buffer.
struct Free {
    raw: wgpu::Buffer,
    /// The batch of commands that was open when it was freed: its last possible use.
    batch: u64,
}

#[derive(Default)]
struct Inner {
    free: BTreeMap<u64, Vec<Free>>,
    cached: u64,
    stats: MemoryStats,
}

/// The memory of one device.
pub(crate) struct Pool {
    inner: Mutex<Inner>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({:?})", self.stats())
    }
}

impl Pool {
    pub(crate) fn new(limit: Option<u64>) -> Arc<Pool> {
        let inner = Inner { stats: MemoryStats { limit, ..Default::default() }, ..Default::default() };
        Arc::new(Pool { inner: Mutex::new(inner) })
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        lock(&self.inner).stats
    }

    /// The cache by size.
    pub(crate) fn free_buffers(&self) -> Vec<FreeBuffers> {
        let lists = &lock(&self.inner).free;
        let filled = lists.iter().filter(|(_, list)| !list.is_empty());
        filled.map(|(&bytes, list)| FreeBuffers { bytes, count: list.len() }).collect()
    }

    pub(crate) fn reset_peak(&self) {
        let mut inner = lock(&self.inner);
        inner.stats.peak = inner.stats.allocated;
    }

    /// Sets the budget. Fails with the reserved bytes if more than the budget is reserved.
    pub(crate) fn set_limit(&self, limit: Option<u64>) -> Result<(), u64> {
        let stats = &mut lock(&self.inner).stats;
        if limit.is_some_and(|limit| stats.reserved > limit) {
            return Err(stats.reserved);
        }
        stats.limit = limit;
        Ok(())
    }

    /// A cached buffer of at least `size` bytes without too much waste, with the batch that last used it.
    pub(crate) fn take(&self, size: u64) -> Option<(wgpu::Buffer, u64)> {
        let mut inner = lock(&self.inner);
        let (&class, list) =
            inner.free.range_mut(size..=size + size / 4).find(|(_, list)| !list.is_empty())?;
        let free = list.pop()?;
        inner.cached -= class;
        Some((free.raw, free.batch))
    }

    /// Reserves `size` bytes if they fit the budget, and returns whether they did.
    pub(crate) fn reserve(&self, size: u64) -> bool {
        let mut inner = lock(&self.inner);
        let after = inner.stats.reserved + size;
        if inner.stats.limit.is_some_and(|limit| after > limit) {
            return false;
        }
        inner.stats.reserved = after;
        true
    }

    /// Cancels a reservation, or counts a buffer that returns to the driver.
    pub(crate) fn release(&self, size: u64) {
        let mut inner = lock(&self.inner);
        inner.stats.reserved = inner.stats.reserved.saturating_sub(size);
    }

    /// Counts a buffer taken by a tensor.
    pub(crate) fn count(&self, bytes: u64) {
        let mut inner = lock(&self.inner);
        inner.stats.allocations += 1;
        inner.stats.allocated += bytes;
        inner.stats.peak = inner.stats.peak.max(inner.stats.allocated);
    }

    /// Takes back the buffer of a tensor.
    fn give_back(&self, raw: wgpu::Buffer, bytes: u64, batch: u64) {
        let size = raw.size();
        let dropped;
        {
            let mut inner = lock(&self.inner);
            inner.stats.allocated = inner.stats.allocated.saturating_sub(bytes);
            // The cache stays below the peak usage; memory beyond that is returned to the driver.
            if inner.cached + size <= inner.stats.peak.max(CACHE_FLOOR) {
                inner.free.entry(size).or_default().push(Free { raw, batch });
                inner.cached += size;
                dropped = None;
            } else {
                inner.stats.reserved = inner.stats.reserved.saturating_sub(size);
                dropped = Some(raw);
            }
        }
        // Dropped outside our lock, because wgpu takes locks of its own.
        drop(dropped);
    }

    /// Drops every cached buffer.
    pub(crate) fn trim(&self) {
        let dropped = {
            let mut inner = lock(&self.inner);
            inner.stats.reserved = inner.stats.reserved.saturating_sub(inner.cached);
            inner.cached = 0;
            std::mem::take(&mut inner.free)
        };
        drop(dropped);
    }
}

/// A tensor's memory on the device.
pub(crate) struct WgpuBuffer {
    raw: Option<wgpu::Buffer>,
    pool: Arc<Pool>,
    batch: Arc<std::sync::atomic::AtomicU64>,
    device: u64,
    bytes: u64,
    dtype: DType,
    numel: usize,
}

impl WgpuBuffer {
    pub(crate) fn new(
        raw: Option<wgpu::Buffer>,
        pool: &Arc<Pool>,
        batch: &Arc<std::sync::atomic::AtomicU64>,
        device: u64,
        dtype: DType,
        numel: usize,
    ) -> WgpuBuffer {
        let bytes = (numel * storage_size(dtype)) as u64;
        pool.count(bytes);
        WgpuBuffer { raw, pool: Arc::clone(pool), batch: Arc::clone(batch), device, bytes, dtype, numel }
    }

    /// The wgpu buffer; None for an empty tensor.
    pub(crate) fn raw(&self) -> Option<&wgpu::Buffer> {
        self.raw.as_ref()
    }

    /// The number of the device that it belongs to.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }
}

impl Buffer for WgpuBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn numel(&self) -> usize {
        self.numel
    }
}

impl Drop for WgpuBuffer {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            self.pool.give_back(raw, self.bytes, self.batch.load(std::sync::atomic::Ordering::Acquire));
        }
    }
}

impl fmt::Debug for WgpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuBuffer({} x {})", self.numel, self.dtype)
    }
}
