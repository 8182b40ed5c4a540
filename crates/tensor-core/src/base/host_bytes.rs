//! Files as memory: [`HostBytes`], pages of a file that a buffer may be in place of a copy of them.
#![allow(unsafe_code)]

use std::{any::Any, fmt, sync::Arc};

/// Initialised bytes in the memory of the host that belong to one buffer alone.
pub struct HostBytes {
    data: *mut u8,
    length: usize,
    /// Keeps the memory.
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: `new`'s caller promises that nothing else accesses the bytes; the holder orders its own accesses.
unsafe impl Send for HostBytes {}
// SAFETY: a shared reference only reads; a holder that writes through `data` orders its own accesses.
unsafe impl Sync for HostBytes {}

impl HostBytes {
    /// The `length` bytes from `data` on.
    ///
    /// # Safety
    /// They are initialised, and valid for reads and writes while `owner` lives. Nothing else accesses them.
    pub unsafe fn new(data: *mut u8, length: usize, owner: Arc<dyn Any + Send + Sync>) -> HostBytes {
        HostBytes { data, length, _owner: owner }
    }

    /// The address of the first byte. The bytes may be read and written while this lives.
    pub fn data(&self) -> *mut u8 {
        self.data
    }

    /// The bytes, for a holder that has written none of them yet.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `new`'s caller promises initialised bytes that nothing else accesses.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}

impl fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBytes({})", self.length)
    }
}

#[cfg(all(feature = "mmap", unix))]
pub(crate) use mapped::Mapping;

#[cfg(all(feature = "mmap", unix))]
mod mapped {
    use std::{
        collections::BTreeMap,
        fs::File,
        sync::{Arc, Mutex, OnceLock},
    };

    use memmap2::{MmapOptions, MmapRaw};

    use super::HostBytes;
    use crate::base::sync::lock;

    /// Ranges below this are read: a copy takes less than the faults of its pages, and parameters that are
    /// trained soon leave the file.
    const MIN_MAPPED_BYTES: usize = 1 << 16;

    /// A file's pages, mapped when the first range is asked for. Pages that are written become private
    /// copies: the file does not change.
    #[derive(Debug, Default)]
    pub(crate) struct Mapping {
        pages: OnceLock<Option<Arc<MmapRaw>>>,
        /// The ranges that buffers have, by their starts: the ends. A buffer may have written to its range,
        /// so that no range is lent again.
        lent: Mutex<BTreeMap<usize, usize>>,
    }

    impl Mapping {
        /// A range of a file that has `length` bytes. `None` for one that is small or lent already, and if
        /// the system does not map the file.
        pub(crate) fn lend(&self, file: &File, length: u64, at: u64, bytes: usize) -> Option<HostBytes> {
            let (start, length) = (usize::try_from(at).ok()?, usize::try_from(length).ok()?);
            let end = start.checked_add(bytes).filter(|&end| end <= length)?;
            if bytes < MIN_MAPPED_BYTES {
                return None;
            }
            let pages = self.pages.get_or_init(|| {
                // SAFETY: the pages are private. Another program that writes to the file or cuts it off
                // meanwhile is a fault of that program, which the guide names.
                let pages = unsafe { MmapOptions::new().len(length).no_reserve_swap().map_copy(file) };
                pages.ok().map(|pages| Arc::new(MmapRaw::from(pages)))
            });
            let pages = pages.as_ref()?;
            let mut lent = lock(&self.lent);
            if lent.range(..end).next_back().is_some_and(|(_, &taken)| taken > start) {
                return None;
            }
            lent.insert(start, end);
            // SAFETY: the range is within the file's length, no other range overlaps, and the buffer keeps
            // the pages.
            Some(unsafe { HostBytes::new(pages.as_mut_ptr().add(start), bytes, pages.clone()) })
        }
    }
}

/// Files are read on targets without mappings, and without the feature `mmap`.
#[cfg(not(all(feature = "mmap", unix)))]
#[derive(Debug, Default)]
pub(crate) struct Mapping {}

#[cfg(not(all(feature = "mmap", unix)))]
impl Mapping {
    pub(crate) fn lend(&self, _: &std::fs::File, _: u64, _: u64, _: usize) -> Option<HostBytes> {
        None
    }
}
