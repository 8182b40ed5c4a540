//! A caching pool for buffers. Fresh pages cost more than most arithmetic on them, so freed memory is kept
//! by size class and reused. Pieces that were not used for many allocations are given back, so that sizes
//! that no longer occur take no memory; a step that repeats uses all of its own. Memory is zeroed when it
//! comes from the system, so it never holds uninitialised bytes.
#![allow(unsafe_code)]

use std::{
    alloc::Layout,
    ptr::NonNull,
    sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use tensor_core::{Error, ErrorKind, FreeBuffers, MemoryStats, Result, backend::limit_below_use};

use crate::{
    simd::cache::LINE,
    tuning::{POOL_IDLE, POOL_KEEP_BYTES},
};

/// Alignment of every chunk: a cache line, and a whole AVX-512 register.
pub(crate) const ALIGN: usize = LINE;

/// Bytes up to which elements are in their buffer, and the pool only counts them.
pub(crate) const INLINE: usize = ALIGN;

/// Exact classes up to `EXACT · ALIGN` bytes, then eight to each power of two, so that at most an eighth is
/// wasted.
const EXACT: usize = 16;

/// Sizes from which a chunk is a mapping of its own. An allocator keeps freed memory for itself, after a
/// while also large pieces, so that a process would not become smaller.
const MAPPED: usize = if cfg!(target_os = "linux") { 1 << 18 } else { usize::MAX };

/// A piece of memory of one size class.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The system's allocation; `data` is its first aligned byte.
    base: NonNull<u8>,
    data: NonNull<u8>,
    size: usize,
    class: usize,
    /// The number of allocations at its last release.
    released: u64,
}

// SAFETY: a chunk is the only owner of its memory; access to the bytes is ordered by the pool's gate.
unsafe impl Send for Chunk {}
// SAFETY: a shared reference only gives the address; the pool's gate orders access to the bytes.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// The first byte.
    pub(crate) fn data(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// Zeroed memory from the system, or `None` if it has none.
    fn fresh(size: usize, class: usize) -> Option<Chunk> {
        let layout = Chunk::layout(size)?;
        let base = match size >= MAPPED {
            true => map(layout.size())?,
            // SAFETY: `layout` adds `ALIGN` to the size, so its size is not 0.
            false => NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?,
        };
        let skip = base.as_ptr().align_offset(ALIGN);
        // SAFETY: `skip < ALIGN`, and `layout` has room for `ALIGN` bytes more than the size.
        let data = unsafe { base.add(skip) };
        want_huge_pages(data, size);
        Some(Chunk { base, data, size, class, released: 0 })
    }

    /// A larger alignment would make `alloc_zeroed` write every page, so the address is aligned here.
    fn layout(size: usize) -> Option<Layout> {
        Layout::from_size_align(size.checked_add(ALIGN)?, 16).ok()
    }

    fn give_back(self) {
        if let Some(layout) = Chunk::layout(self.size) {
            // SAFETY: `fresh` got `base` for this layout and in this way; the chunk is its only owner and is
            // dropped here.
            unsafe {
                match self.size >= MAPPED {
                    true => unmap(self.base, layout.size()),
                    false => std::alloc::dealloc(self.base.as_ptr(), layout),
                }
            }
        }
    }
}

/// Zeroed memory of the system, or `None` if it has none.
#[cfg(target_os = "linux")]
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the system chooses changes no other memory.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
    NonNull::new(base.cast()).filter(|_| base != libc::MAP_FAILED)
}

/// Gives the memory of [`map`] back.
///
/// # Safety
/// `map` gave `base` for as many bytes, and nothing accesses them any more.
#[cfg(target_os = "linux")]
unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the whole mapping ends, by `# Safety`. It cannot fail for one that exists.
    unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
}

#[cfg(not(target_os = "linux"))]
fn map(_: usize) -> Option<NonNull<u8>> {
    None
}

#[cfg(not(target_os = "linux"))]
unsafe fn unmap(_: NonNull<u8>, _: usize) {}

/// Requests huge pages for the whole ones in a chunk: fewer page faults at the first write, and fewer TLB
/// misses.
#[cfg(target_os = "linux")]
fn want_huge_pages(data: NonNull<u8>, size: usize) {
    const HUGE: usize = 1 << 21;
    let skip = data.as_ptr().align_offset(HUGE);
    let whole = size.saturating_sub(skip) / HUGE * HUGE;
    if whole >= HUGE {
        // Without huge pages the call fails and changes nothing.
        // SAFETY: the range is within the chunk, whose contents do not change.
        unsafe { libc::madvise(data.as_ptr().add(skip).cast(), whole, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn want_huge_pages(_: NonNull<u8>, _: usize) {}

/// The size class for a size: its number, and the bytes of a chunk of that class.
fn class_of(bytes: usize) -> (usize, usize) {
    let units = bytes.div_ceil(ALIGN).max(1);
    if units <= EXACT {
        return (units - 1, units * ALIGN);
    }
    let shift = (units - 1).ilog2() - 3;
    let steps = ((units - 1) >> shift) + 1;
    (EXACT + (shift as usize - 1) * 8 + steps - 9, (steps << shift) * ALIGN)
}

#[derive(Debug, Default)]
struct State {
    free: Vec<Vec<Chunk>>,
    /// Bytes in `free`.
    cached: u64,
    /// The number of allocations at the last search for idle chunks.
    searched: u64,
    stats: MemoryStats,
}

impl State {
    /// Counts a new buffer.
    fn count(&mut self, bytes: usize) {
        let stats = &mut self.stats;
        stats.allocated += bytes as u64;
        stats.peak = stats.peak.max(stats.allocated);
        stats.allocations += 1;
    }

    /// Frees the chunks that have not been in use for [`POOL_IDLE`] allocations. The first of a class are
    /// those that have waited longest.
    fn drop_idle(&mut self) {
        const BETWEEN_SEARCHES: u64 = POOL_IDLE / 4;
        let now = self.stats.allocations;
        if now < self.searched + BETWEEN_SEARCHES {
            return;
        }
        self.searched = now;
        for list in &mut self.free {
            let idle = list.partition_point(|chunk| now > chunk.released + POOL_IDLE);
            for chunk in list.drain(..idle) {
                self.stats.reserved -= chunk.size as u64;
                self.cached -= chunk.size as u64;
                chunk.give_back();
            }
        }
    }

    fn trim(&mut self) {
        for chunk in self.free.drain(..).flatten() {
            self.stats.reserved -= chunk.size as u64;
            chunk.give_back();
        }
        self.cached = 0;
    }
}

/// The pool of one device.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The device's name, for errors.
    device: String,
    state: Mutex<State>,
    /// Held while the contents of buffers are accessed: exclusively by a launch, shared by reads.
    gate: RwLock<()>,
}

impl Pool {
    /// The pool of the device `cpu`, which reserves at most `limit` bytes.
    #[cfg(test)]
    pub(crate) fn new(limit: Option<u64>) -> Pool {
        Pool::of("cpu".into(), limit)
    }

    /// The pool of a device, which reserves at most `limit` bytes.
    pub(crate) fn of(device: String, limit: Option<u64>) -> Pool {
        let stats = MemoryStats { limit, ..MemoryStats::default() };
        Pool { device, state: Mutex::new(State { stats, ..State::default() }), gate: RwLock::new(()) }
    }

    pub(crate) fn read_gate(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write_gate(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each statement leaves the state consistent, so a panic of another thread does not invalidate it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A chunk of at least `bytes` bytes: a cached one, or a fresh one within the budget.
    pub(crate) fn take(&self, bytes: usize) -> Result<Chunk> {
        if bytes > isize::MAX as usize {
            return Err(too_large(bytes as u64));
        }
        let (class, size) = class_of(bytes);
        let mut state = self.state();
        let chunk = match state.free.get_mut(class).and_then(Vec::pop) {
            Some(chunk) => {
                state.cached -= size as u64;
                chunk
            }
            None => self.reserve(&mut state, bytes, size, || Chunk::fresh(size, class))?,
        };
        state.count(bytes);
        state.drop_idle();
        Ok(chunk)
    }

    /// Counts `bytes` bytes that are stored in their buffer, at most [`INLINE`].
    pub(crate) fn take_inline(&self, bytes: usize) -> Result<()> {
        let mut state = self.state();
        self.reserve(&mut state, bytes, INLINE, || Some(()))?;
        state.count(bytes);
        Ok(())
    }

    /// Reserves `size` bytes within the budget, for a buffer of `bytes`; frees the cache if necessary.
    fn reserve<T>(
        &self,
        state: &mut State,
        bytes: usize,
        size: usize,
        get: impl Fn() -> Option<T>,
    ) -> Result<T> {
        for last in [false, true] {
            let within = state.stats.limit.is_none_or(|limit| {
                state.stats.reserved.checked_add(size as u64).is_some_and(|total| total <= limit)
            });
            if within && let Some(memory) = get() {
                state.stats.reserved += size as u64;
                return Ok(memory);
            }
            if !last {
                state.trim();
            }
        }
        Err(Error::new(ErrorKind::OutOfMemory {
            device: self.device.clone(),
            asked: bytes as u64,
            in_use: state.stats.allocated,
            reserved: state.stats.reserved,
            limit: state.stats.limit,
        }))
    }

    /// Counts the drop of a buffer that stored `bytes` bytes itself.
    pub(crate) fn release_inline(&self, bytes: usize) {
        let stats = &mut self.state().stats;
        stats.allocated -= bytes as u64;
        stats.reserved -= INLINE as u64;
    }

    /// Takes back a chunk that was taken for `bytes` bytes.
    pub(crate) fn release(&self, mut chunk: Chunk, bytes: usize) {
        let mut state = self.state();
        chunk.released = state.stats.allocations;
        state.stats.allocated -= bytes as u64;
        let size = chunk.size as u64;
        if state.cached + size > state.stats.peak.max(POOL_KEEP_BYTES) {
            state.stats.reserved -= size;
            drop(state);
            chunk.give_back();
            return;
        }
        state.cached += size;
        let class = chunk.class;
        if state.free.len() <= class {
            state.free.resize_with(class + 1, Vec::new);
        }
        state.free[class].push(chunk);
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        self.state().stats
    }

    /// The cached chunks by size.
    pub(crate) fn free_buffers(&self) -> Vec<FreeBuffers> {
        let of = |list: &Vec<Chunk>| {
            list.first().map(|chunk| FreeBuffers { bytes: chunk.size as u64, count: list.len() })
        };
        self.state().free.iter().filter_map(of).collect()
    }

    pub(crate) fn reset_peak(&self) {
        let stats = &mut self.state().stats;
        stats.peak = stats.allocated;
    }

    pub(crate) fn trim(&self) {
        self.state().trim();
    }

    /// Sets the budget; frees the cache if necessary.
    pub(crate) fn set_limit(&self, limit: Option<u64>) -> Result<()> {
        let mut state = self.state();
        if let Some(limit) = limit {
            if state.stats.reserved > limit {
                state.trim();
            }
            if state.stats.reserved > limit {
                return Err(limit_below_use(limit, state.stats.reserved));
            }
        }
        state.stats.limit = limit;
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

/// The error for more bytes than an address space can hold in one piece.
pub(crate) fn too_large(asked: u64) -> Error {
    Error::new(ErrorKind::TooLarge { device: "cpu".into(), asked, limit: isize::MAX as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_dense_and_large_enough() {
        let mut last = class_of(0);
        for bytes in (0..200_000).chain([1 << 30, (1 << 30) + 1, isize::MAX as usize]) {
            let (class, size) = class_of(bytes);
            assert!(size >= bytes && (bytes < 1024 || size - bytes <= bytes / 7), "{bytes} {size}");
            assert!(class >= last.0 && (class > last.0) == (size > last.1), "{bytes}");
            last = (class, size);
        }
    }

    #[test]
    fn statistics_return_to_zero() {
        let pool = Pool::new(Some(1 << 20));
        let a = pool.take(1000).unwrap();
        let b = pool.take(5000).unwrap();
        assert_eq!(a.data() as usize % ALIGN, 0);
        assert_eq!((pool.stats().allocated, pool.stats().peak), (6000, 6000));
        let first = a.data();
        pool.release(a, 1000);
        let again = pool.take(990).unwrap();
        assert_eq!(again.data(), first);
        pool.release(again, 990);
        pool.release(b, 5000);
        assert!(pool.stats().reserved > 0);
        pool.trim();
        pool.reset_peak();
        let stats = pool.stats();
        assert_eq!((stats.allocated, stats.reserved, stats.peak, stats.allocations), (0, 0, 0, 3));
    }

    #[test]
    fn sizes_that_no_longer_occur_are_given_back() {
        let pool = Pool::new(None);
        let [old, other, used] = [1 << 20, 1 << 20, 3 << 20].map(|bytes| pool.take(bytes).unwrap());
        pool.release(old, 1 << 20);
        pool.release(other, 1 << 20);
        pool.release(used, 3 << 20);
        // One chunk of the two of a class is in use all the time, and so is the larger one.
        assert_eq!(pool.stats().reserved, 5 << 20);
        for _ in 0..POOL_IDLE {
            for bytes in [1 << 20, 3 << 20] {
                pool.release(pool.take(bytes).unwrap(), bytes);
            }
        }
        let stats = pool.stats();
        assert_eq!((stats.reserved, pool.state().cached), (4 << 20, 4 << 20));
    }

    #[test]
    fn what_lies_in_its_buffer_is_counted() {
        let pool = Pool::new(Some(200));
        pool.take_inline(40).unwrap();
        let stats = pool.stats();
        assert_eq!((stats.allocated, stats.reserved, stats.peak, stats.allocations), (40, 64, 40, 1));
        pool.release(pool.take(128).unwrap(), 128);
        // The cache is freed to make room; after that the budget is used up.
        pool.take_inline(1).unwrap();
        pool.take_inline(64).unwrap();
        assert!(matches!(
            pool.take_inline(1).unwrap_err().kind(),
            ErrorKind::OutOfMemory { asked: 1, in_use: 105, .. }
        ));
        [40, 1, 64].into_iter().for_each(|bytes| pool.release_inline(bytes));
        assert_eq!((pool.stats().allocated, pool.stats().reserved), (0, 0));
    }

    #[test]
    fn the_budget_counts_the_cache_last() {
        let pool = Pool::new(Some(10_000));
        let a = pool.take(6000).unwrap();
        assert!(matches!(
            pool.take(6000).unwrap_err().kind(),
            ErrorKind::OutOfMemory { asked: 6000, in_use: 6000, .. }
        ));
        pool.release(a, 6000);
        let b = pool.take(8000).unwrap();
        assert_eq!(pool.stats().allocated, 8000);
        pool.release(b, 8000);
    }

    #[test]
    fn a_terabyte_is_an_error() {
        let pool = Pool::new(Some(1 << 34));
        assert!(matches!(pool.take(1 << 40).unwrap_err().kind(), ErrorKind::OutOfMemory { .. }));
        assert!(matches!(pool.take(isize::MAX as usize).unwrap_err().kind(), ErrorKind::OutOfMemory { .. }));
        assert!(matches!(
            Pool::new(None).take(isize::MAX as usize).unwrap_err().kind(),
            ErrorKind::OutOfMemory { .. }
        ));
        assert!(matches!(pool.take(usize::MAX).unwrap_err().kind(), ErrorKind::TooLarge { .. }));
        assert_eq!(pool.stats().allocated, 0);
    }
}
