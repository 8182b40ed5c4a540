//! A global allocator that counts: the bytes in use and the most that were in use since the last reset.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The system's allocator, with its bytes counted.
pub(crate) struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn added(bytes: usize) {
    let now = IN_USE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(now, Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged; the counters touch none of its memory.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System` asks for a layout whose size is not 0, as this method's caller promises.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            added(layout.size());
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `System` asks for a layout whose size is not 0, as this method's caller promises.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            added(layout.size());
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller promises memory of this allocator with this layout; all of it is of `System`.
        unsafe { System.dealloc(memory, layout) };
        IN_USE.fetch_sub(layout.size(), Relaxed);
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises memory of this allocator, which comes from `System`, with this layout,
        // and a new size that `realloc` allows.
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            IN_USE.fetch_sub(layout.size(), Relaxed);
            added(size);
        }
        moved
    }
}

/// The most bytes that were in use while `work` ran, beyond those at its start; and its result.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = IN_USE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (PEAK.load(Relaxed).saturating_sub(before), result)
}
