//! Device memory: one wgpu buffer per tensor, in size classes, kept for reuse when freed. A freed buffer
//! can be reused at once, because the queue executes in order; but a kernel that reuses one of the open
//! batch waits for the kernels before it, so others are taken first. Every byte is counted.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use rustc_hash::FxHashSet;
use tensor_core::{Buffer, DType, FreeBuffers, MemoryStats, lock};

use crate::codegen::dtypes::storage_size;

/// The least size of a buffer and the unit of all sizes; a multiple of every required alignment.
const UNIT: u64 = 256;
/// A freed buffer of at most so much is not reused at once, if there is an alternative: see [`Pool::take`].
const SPARED: u64 = 256 << 10;
/// The most bytes of such buffers; small enough for the caches of GPUs.
const MOST_SPARED: u64 = 16 << 20;
/// Cached memory that is kept regardless of the peak usage.
const CACHE_FLOOR: u64 = 64 << 20;

/// The most bytes of cached memory, for the greatest usage: room for small buffers that are not reused at
/// once, and a quarter more, because the free buffers may not fit the tensors of a step. Without these it
/// would return some memory at its end, and make the buffers again in the next step, with all their bind
/// groups.
fn most_cached(most_used: u64) -> u64 {
    (most_used + most_used / 4 + MOST_SPARED).max(CACHE_FLOOR)
}

/// The size class for `bytes`, at most `most`: eight classes between each power of two and the next, so at
/// most an eighth is wasted.
pub(crate) fn size_class(bytes: u64, most: u64) -> u64 {
    let bytes = bytes.max(1);
    let step = (bytes.next_power_of_two() / 16).max(UNIT);
    // Rounding up must not push a tensor that fits over the adapter's limit (itself a multiple of 16).
    bytes.next_multiple_of(step).min(most)
}

/// A wgpu buffer with a number that no other buffer of the process ever has.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) raw: wgpu::Buffer,
    pub(crate) id: u64,
    /// The last batch of commands that uses it; 0 if none does.
    used: AtomicU64,
}

impl Numbered {
    pub(crate) fn new(raw: wgpu::Buffer) -> Arc<Numbered> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Numbered { raw, id: NEXT.fetch_add(1, Ordering::Relaxed), used: AtomicU64::new(0) })
    }

    /// Notes that a command of this batch uses it.
    pub(crate) fn used_in(&self, batch: u64) {
        self.used.store(batch, Ordering::Release);
    }

    /// The last batch that uses it.
    pub(crate) fn last_used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }
}

/// The freed buffers of one size. Commands of the open batch use the young ones: a kernel that writes to one
/// has to wait for them.
#[derive(Default)]
struct FreeList {
    /// By number: the lowest is taken first, so that every step of a training loop takes the same buffers
    /// and finds its bind groups.
    old: BTreeMap<u64, Arc<Numbered>>,
    /// In the order in which they were freed.
    young: Vec<Arc<Numbered>>,
}

impl FreeList {
    fn len(&self) -> usize {
        self.old.len() + self.young.len()
    }

    /// Moves the young buffers that only batches before `open` use, and returns their number.
    fn grow_old(&mut self, open: u64) -> usize {
        let grown = self.young.extract_if(.., |made| made.last_used() < open);
        let before = self.old.len();
        self.old.extend(grown.map(|made| (made.id, made)));
        self.old.len() - before
    }
}

#[derive(Default)]
struct Inner {
    free: BTreeMap<u64, FreeList>,
    cached: u64,
    /// The greatest number of allocated bytes since the cache was last dropped; `reset_peak` leaves it.
    most: u64,
    /// The bytes of small young buffers.
    spared: u64,
    /// The numbers of buffers that returned to the driver, for the bind groups that hold them.
    retired: FxHashSet<u64>,
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
        let filled = lists.iter().filter(|(_, list)| list.len() > 0);
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

    /// A cached buffer of at least `size` bytes without too much waste; `open` is the number of the open
    /// batch. With `spares`, a small buffer that the open batch uses is left alone while such buffers take
    /// little memory.
    pub(crate) fn take(&self, size: u64, open: u64, spares: bool) -> Option<Arc<Numbered>> {
        let inner = &mut *lock(&self.inner);
        let fits = size..=size + size / 4;
        for (&class, list) in inner.free.range_mut(fits.clone()) {
            let grown = list.grow_old(open) as u64;
            if class <= SPARED {
                inner.spared -= grown * class;
            }
            if let Some((_, made)) = list.old.pop_first() {
                inner.cached -= class;
                return Some(made);
            }
        }
        if spares && size <= SPARED && inner.spared < MOST_SPARED {
            return None;
        }
        let (&class, list) = inner.free.range_mut(fits).find(|(_, list)| !list.young.is_empty())?;
        let made = list.young.pop()?;
        inner.cached -= class;
        if class <= SPARED {
            inner.spared -= class;
        }
        Some(made)
    }

    /// The numbers of the buffers that returned to the driver since the last call.
    pub(crate) fn take_retired(&self) -> FxHashSet<u64> {
        std::mem::take(&mut lock(&self.inner).retired)
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
        inner.most = inner.most.max(inner.stats.allocated);
    }

    /// Takes back the buffer of a tensor.
    fn give_back(&self, made: Arc<Numbered>, bytes: u64) {
        let size = made.raw.size();
        let dropped;
        {
            let mut inner = lock(&self.inner);
            inner.stats.allocated = inner.stats.allocated.saturating_sub(bytes);
            // Memory beyond that is returned to the driver.
            if inner.cached + size <= most_cached(inner.most) {
                inner.free.entry(size).or_default().young.push(made);
                inner.cached += size;
                if size <= SPARED {
                    inner.spared += size;
                }
                dropped = None;
            } else {
                inner.stats.reserved = inner.stats.reserved.saturating_sub(size);
                inner.retired.insert(made.id);
                dropped = Some(made);
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
            inner.spared = 0;
            inner.most = inner.stats.allocated;
            let Inner { free, retired, .. } = &mut *inner;
            for list in free.values() {
                retired.extend(list.old.keys().copied().chain(list.young.iter().map(|made| made.id)));
            }
            std::mem::take(&mut inner.free)
        };
        drop(dropped);
    }
}

/// A tensor's memory on the device.
pub(crate) struct WgpuBuffer {
    made: Option<Arc<Numbered>>,
    pool: Arc<Pool>,
    device: u64,
    bytes: u64,
    dtype: DType,
    numel: usize,
}

impl WgpuBuffer {
    pub(crate) fn new(
        made: Option<Arc<Numbered>>,
        pool: &Arc<Pool>,
        device: u64,
        dtype: DType,
        numel: usize,
    ) -> WgpuBuffer {
        let bytes = (numel * storage_size(dtype)) as u64;
        pool.count(bytes);
        WgpuBuffer { made, pool: Arc::clone(pool), device, bytes, dtype, numel }
    }

    /// The wgpu buffer; None for an empty tensor.
    pub(crate) fn raw(&self) -> Option<&wgpu::Buffer> {
        self.made.as_ref().map(|made| &made.raw)
    }

    /// The wgpu buffer with its number; None for an empty tensor.
    pub(crate) fn made(&self) -> Option<&Arc<Numbered>> {
        self.made.as_ref()
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
        if let Some(made) = self.made.take() {
            self.pool.give_back(made, self.bytes);
        }
    }
}

impl fmt::Debug for WgpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuBuffer({} x {})", self.numel, self.dtype)
    }
}
