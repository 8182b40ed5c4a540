//! Buffers, and the locks that a launch takes on them: one per distinct buffer, in the order of their addresses, so
//! that two launches can never wait for each other.
#![allow(unsafe_code)]

use std::{
    any::Any,
    fmt,
    mem::ManuallyDrop,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use smallvec::SmallVec;
use tensor_core::{Buffer, DType, Error, Result, Storage};

use crate::pool::{Chunk, Pool, too_large};

/// Elements in memory from the pool.
pub(crate) struct CpuBuffer {
    dtype: DType,
    numel: usize,
    memory: RwLock<ManuallyDrop<Chunk>>,
    pool: Arc<Pool>,
}

impl CpuBuffer {
    pub(crate) fn new(pool: &Arc<Pool>, dtype: DType, numel: usize) -> Result<CpuBuffer> {
        let bytes = numel.checked_mul(dtype.size()).ok_or_else(|| too_large(u64::MAX))?;
        let memory = RwLock::new(ManuallyDrop::new(pool.take(bytes)?));
        Ok(CpuBuffer { dtype, numel, memory, pool: pool.clone() })
    }

    fn bytes(&self) -> usize {
        self.numel * self.dtype.size()
    }

    /// The buffer behind a storage handle.
    pub(crate) fn of(storage: &Storage) -> Result<&CpuBuffer> {
        let any: &dyn Any = &**storage;
        any.downcast_ref().ok_or_else(|| {
            Error::invalid(
                "cpu",
                "a buffer of another device was handed to the cpu; move it with .to(&device)?",
            )
        })
    }

    /// Copies bytes in, from the start of the buffer; what does not fit is left out.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let guard = self.memory.write().unwrap_or_else(PoisonError::into_inner);
        let len = bytes.len().min(self.bytes());
        // SAFETY: the chunk holds `self.bytes()` bytes, and the write lock makes this the only access.
        let memory = unsafe { std::slice::from_raw_parts_mut(guard.data(), len) };
        if self.dtype == DType::Bool {
            // The loops count on truth values of 0 and 1.
            memory.iter_mut().zip(bytes).for_each(|(to, &from)| *to = u8::from(from != 0));
        } else {
            memory.copy_from_slice(&bytes[..len]);
        }
    }

    /// Copies bytes out, from element `start` on.
    pub(crate) fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        let guard = self.memory.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the chunk holds `self.bytes()` initialised bytes, and the read lock keeps writers away.
        let memory = unsafe { std::slice::from_raw_parts(guard.data(), self.bytes()) };
        let begin = start.checked_mul(self.dtype.size());
        let range = begin.and_then(|begin| Some(begin..begin.checked_add(out.len())?));
        let Some(from) = range.and_then(|range| memory.get(range)) else {
            return Err(Error::invalid(
                "download",
                format!(
                    "{} bytes from element {start} were asked of a buffer of {} elements",
                    out.len(),
                    self.numel
                ),
            ));
        };
        out.copy_from_slice(from);
        Ok(())
    }
}

impl Buffer for CpuBuffer {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn numel(&self) -> usize {
        self.numel
    }
}

impl fmt::Debug for CpuBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuBuffer({} x {})", self.numel, self.dtype)
    }
}

impl Drop for CpuBuffer {
    fn drop(&mut self) {
        let bytes = self.bytes();
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the buffer ends here, so nobody looks at the chunk again.
        let chunk = unsafe { ManuallyDrop::take(memory) };
        self.pool.release(chunk, bytes);
    }
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, ManuallyDrop<Chunk>>),
    Write(RwLockWriteGuard<'a, ManuallyDrop<Chunk>>),
}

impl Guard<'_> {
    fn data(&self) -> *mut u8 {
        match self {
            Guard::Read(chunk) => chunk.data(),
            Guard::Write(chunk) => chunk.data(),
        }
    }
}

/// The memory of one locked buffer. The pointer is good for `numel` elements of `dtype` while its [`Bound`] lives.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) ptr: *mut u8,
    pub(crate) numel: usize,
    pub(crate) dtype: DType,
}

// SAFETY: the launch holds the buffer's lock; the kernels divide what they write among their threads.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The address of element `at`, as a type of the element's size.
    pub(crate) fn at<T>(self, at: usize) -> *mut T {
        debug_assert!(at <= self.numel);
        self.ptr.wrapping_add(at * self.dtype.size()).cast()
    }

    /// Fails unless elements up to `numel` of this dtype may be touched.
    pub(crate) fn require(self, op: &'static str, dtype: DType, numel: usize) -> Result<()> {
        if self.dtype == dtype && numel <= self.numel {
            return Ok(());
        }
        Err(Error::invalid(
            op,
            format!(
                "the kernel needs {numel} elements of {dtype}, the buffer has {} of {}",
                self.numel, self.dtype
            ),
        ))
    }
}

/// A launch's buffers, locked: outputs for writing, all else for reading.
pub(crate) struct Bound<'a> {
    _guards: SmallVec<[Guard<'a>; 4]>,
    pub(crate) inputs: SmallVec<[Memory; 4]>,
    pub(crate) outputs: SmallVec<[Memory; 2]>,
}

impl<'a> Bound<'a> {
    pub(crate) fn new(inputs: &'a [Storage], outputs: &'a [Storage]) -> Result<Bound<'a>> {
        let mut order: SmallVec<[(&CpuBuffer, bool, usize); 6]> = SmallVec::new();
        for (i, storage) in outputs.iter().chain(inputs).enumerate() {
            order.push((CpuBuffer::of(storage)?, i < outputs.len(), i));
        }
        // Among equal addresses the stable sort leaves the output first, so that the stronger lock is taken.
        order.sort_by_key(|&(buffer, _, _)| std::ptr::from_ref(buffer).addr());
        let mut guards: SmallVec<[Guard<'a>; 4]> = SmallVec::new();
        let nothing = Memory { ptr: std::ptr::null_mut(), numel: 0, dtype: DType::U8 };
        let mut all: SmallVec<[Memory; 6]> = SmallVec::from_elem(nothing, order.len());
        let mut last: Option<&CpuBuffer> = None;
        for (buffer, writes, i) in order {
            if !last.is_some_and(|last| std::ptr::eq(last, buffer)) {
                guards.push(if writes {
                    Guard::Write(buffer.memory.write().unwrap_or_else(PoisonError::into_inner))
                } else {
                    Guard::Read(buffer.memory.read().unwrap_or_else(PoisonError::into_inner))
                });
                last = Some(buffer);
            } else if writes {
                return Err(Error::invalid("launch", "one buffer was given for two outputs"));
            }
            let ptr = guards.last().map_or(std::ptr::null_mut(), Guard::data);
            all[i] = Memory { ptr, numel: buffer.numel, dtype: buffer.dtype };
        }
        let outs = outputs.len();
        Ok(Bound {
            _guards: guards,
            inputs: SmallVec::from_slice(&all[outs..]),
            outputs: SmallVec::from_slice(&all[..outs]),
        })
    }

    /// Whether the output's memory is also an input's.
    pub(crate) fn is_in_place(&self, output: usize) -> bool {
        self.inputs.iter().any(|input| input.ptr == self.outputs[output].ptr)
    }

    /// Fails unless there are this many inputs and outputs.
    pub(crate) fn require(&self, op: &'static str, inputs: usize, outputs: usize) -> Result<()> {
        if self.inputs.len() == inputs && self.outputs.len() == outputs {
            return Ok(());
        }
        Err(Error::invalid(
            op,
            format!(
                "the kernel has {inputs} inputs and {outputs} outputs, the launch {} and {}",
                self.inputs.len(),
                self.outputs.len()
            ),
        ))
    }

    /// Fails when an output is an input's buffer too: only a map may work in place.
    pub(crate) fn require_apart(&self, op: &'static str) -> Result<()> {
        match (0..self.outputs.len()).any(|o| self.is_in_place(o)) {
            true => Err(Error::invalid(op, "the output is an input's own buffer; only a map works in place")),
            false => Ok(()),
        }
    }
}
