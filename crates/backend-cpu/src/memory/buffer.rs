//! Buffers, and the one lock that orders access to them: a launch holds the pool's gate exclusively, reads
//! share it. A lock for each buffer would cost more than a small kernel, and launches on one device run one
//! at a time anyway.
#![allow(unsafe_code)]

use std::{
    any::Any,
    cell::UnsafeCell,
    fmt,
    mem::ManuallyDrop,
    sync::{Arc, RwLockWriteGuard},
};

use smallvec::SmallVec;
use tensor_core::{Buffer, DType, Error, HostBytes, Launch, Result, Storage, backend::Fill, kernel::Body};

use crate::{
    memory::{
        blocks::Blocks,
        pool::{Chunk, INLINE, Pool, too_large},
    },
    threads,
    tuning::HOST_PIECE_BYTES,
};

/// Elements in memory that the pool accounts for.
pub(crate) struct CpuBuffer {
    dtype: DType,
    numel: usize,
    memory: Elements,
    pool: Arc<Pool>,
}

/// Once the buffer is shared, these are only read and written under the pool's gate.
enum Elements {
    /// A few elements are stored in the buffer itself: a chunk would cost more time and memory.
    Inline(UnsafeCell<[u64; INLINE / 8]>),
    Pooled(ManuallyDrop<Chunk>),
    /// Memory that others account for, such as pages of a file.
    Adopted(HostBytes),
}

// SAFETY: the gate orders access to inline elements, as it does for chunks.
unsafe impl Sync for Elements {}

impl Elements {
    /// The address of the first byte; valid until the buffer moves. A shared buffer does not move.
    fn data(&self) -> *mut u8 {
        match self {
            Elements::Inline(words) => words.get().cast(),
            Elements::Pooled(chunk) => chunk.data(),
            Elements::Adopted(bytes) => bytes.data(),
        }
    }
}

impl CpuBuffer {
    pub(crate) fn new(pool: &Arc<Pool>, dtype: DType, numel: usize) -> Result<CpuBuffer> {
        let bytes = numel.checked_mul(dtype.size()).ok_or_else(|| too_large(u64::MAX))?;
        let memory = if bytes <= INLINE {
            pool.take_inline(bytes)?;
            Elements::Inline(UnsafeCell::new([0; INLINE / 8]))
        } else {
            Elements::Pooled(ManuallyDrop::new(pool.take(bytes)?))
        };
        Ok(CpuBuffer { dtype, numel, memory, pool: pool.clone() })
    }

    /// A buffer of these bytes. `None` if the loops could not read them: they are not aligned for the dtype,
    /// or bools, which may be neither 0 nor 1.
    pub(crate) fn adopt(pool: &Arc<Pool>, dtype: DType, bytes: HostBytes) -> Option<CpuBuffer> {
        let (size, length) = (dtype.size(), bytes.as_slice().len());
        let fits = bytes.data().addr().is_multiple_of(size) && length.is_multiple_of(size);
        let memory = (fits && dtype != DType::Bool).then_some(Elements::Adopted(bytes))?;
        Some(CpuBuffer { dtype, numel: length / size, memory, pool: pool.clone() })
    }

    /// Its memory; valid until the buffer moves.
    pub(crate) fn memory(&self) -> Memory {
        Memory { ptr: self.memory.data(), numel: self.numel, dtype: self.dtype }
    }

    fn bytes(&self) -> usize {
        self.numel * self.dtype.size()
    }

    /// The buffer behind a storage handle.
    pub(crate) fn of(storage: &Storage) -> Result<&CpuBuffer> {
        let any: &dyn Any = &**storage;
        any.downcast_ref().ok_or_else(foreign)
    }

    /// Copies bytes to the start of the buffer; bytes that do not fit are dropped.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.bytes());
        let truths = self.dtype == DType::Bool;
        let memory = &mut self.bytes_mut()[..len];
        if truths {
            // The loops require bools to be 0 or 1.
            memory.iter_mut().zip(bytes).for_each(|(to, &from)| *to = u8::from(from != 0));
        } else {
            memory.copy_from_slice(&bytes[..len]);
        }
    }

    /// Fills all bytes, in pieces that threads share; `fill` writes each piece.
    pub(crate) fn write_with(&mut self, fill: &Fill<'_>) -> Result<()> {
        let truths = self.dtype == DType::Bool;
        threads::try_share_chunks(self.bytes_mut(), HOST_PIECE_BYTES, |i, piece| {
            fill(i * HOST_PIECE_BYTES, piece)?;
            if truths {
                piece.iter_mut().for_each(|truth| *truth = u8::from(*truth != 0));
            }
            Ok(())
        })
    }

    /// The bytes of a buffer that is not shared yet.
    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory holds `self.bytes()` initialised bytes, and `self` is not shared.
        unsafe { std::slice::from_raw_parts_mut(self.memory.data(), self.bytes()) }
    }

    /// Copies bytes out, from element `start` on.
    pub(crate) fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        self.look(start, out.len(), |from| {
            out.copy_from_slice(from);
            Ok(())
        })
    }

    /// Passes the bytes of `numel` elements, from element `start` on, to a function in pieces; kernels may
    /// run between two pieces.
    pub(crate) fn read_with(
        &self,
        start: usize,
        numel: usize,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let step = HOST_PIECE_BYTES / self.dtype.size();
        (0..numel).step_by(step).try_for_each(|first| {
            let count = (numel - first).min(step);
            self.look(start + first, count * self.dtype.size(), &mut *take)
        })
    }

    /// Calls `f` with `length` bytes, from element `start` on, while no kernel runs.
    fn look<R>(&self, start: usize, length: usize, f: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let _shared = self.pool.read_gate();
        // SAFETY: the memory holds `self.bytes()` initialised bytes, and the gate excludes writers.
        let memory = unsafe { std::slice::from_raw_parts(self.memory.data(), self.bytes()) };
        let begin = start.checked_mul(self.dtype.size());
        let range = begin.and_then(|begin| Some(begin..begin.checked_add(length)?));
        let Some(bytes) = range.and_then(|range| memory.get(range)) else {
            return Err(Error::invalid(
                "download",
                format!(
                    "{length} bytes from element {start} are beyond the end of a buffer of {} elements",
                    self.numel
                ),
            ));
        };
        f(bytes)
    }
}

fn foreign() -> Error {
    Error::invalid("cpu", "a buffer of another device was passed to the cpu; move it with .to(&device)?")
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
        match &mut self.memory {
            Elements::Inline(_) => self.pool.release_inline(bytes),
            Elements::Adopted(_) => {}
            Elements::Pooled(chunk) => {
                // SAFETY: the buffer is dropped here, so the chunk is not used again.
                let chunk = unsafe { ManuallyDrop::take(chunk) };
                self.pool.release(chunk, bytes);
            }
        }
    }
}

/// Calls a macro with the unsigned integer as large as an element of a dtype.
macro_rules! by_size {
    ($dtype:expr, $go:ident) => {
        match $dtype.width() {
            tensor_core::Width::W8 => $go!(u8),
            tensor_core::Width::W16 => $go!(u16),
            tensor_core::Width::W32 => $go!(u32),
            tensor_core::Width::W64 => $go!(u64),
        }
    };
}
pub(crate) use by_size;

/// The memory of one buffer of a launch. The pointer is valid for `numel` elements of `dtype` while its
/// [`Bound`] lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) ptr: *mut u8,
    pub(crate) numel: usize,
    pub(crate) dtype: DType,
}

// SAFETY: the launch holds the gate; kernels give their threads disjoint parts to write.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` only gives the address; kernels give their threads disjoint parts to write.
unsafe impl Sync for Memory {}

impl Memory {
    /// The address of element `at`, as a type of the element's size.
    pub(crate) fn at<T>(self, at: usize) -> *mut T {
        debug_assert!(at <= self.numel);
        self.ptr.wrapping_add(at * self.dtype.size()).cast()
    }

    /// Fails unless the memory has this dtype and at least `numel` elements.
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

/// The value that `make` computes from a kernel at its first launch.
pub(crate) fn compiled<'a, T: Send + Sync + 'static>(
    launch: &Launch<'a>,
    make: impl FnOnce() -> Result<T>,
) -> Result<&'a T> {
    launch.compiled.get_or_try(make)?.ok_or_else(|| {
        Error::invalid(
            "launch",
            "the kernel was compiled by another backend; use a fresh Compiled for each device",
        )
    })
}

/// A launch's buffers, held exclusively.
pub(crate) struct Bound<'a> {
    _gate: RwLockWriteGuard<'a, ()>,
    pub(crate) inputs: SmallVec<[Memory; 4]>,
    pub(crate) outputs: SmallVec<[Memory; 2]>,
    /// Whether some output buffer has other owners. If none has, no output is an input, and none was given
    /// twice.
    shared: bool,
}

impl<'a> Bound<'a> {
    pub(crate) fn new(pool: &'a Arc<Pool>, inputs: &[Storage], outputs: &[Storage]) -> Result<Bound<'a>> {
        let gate = pool.write_gate();
        let memory = |storage: &Storage| {
            let buffer = CpuBuffer::of(storage)?;
            if !Arc::ptr_eq(&buffer.pool, pool) {
                return Err(foreign());
            }
            Ok(buffer.memory())
        };
        let mut bound = Bound {
            _gate: gate,
            inputs: SmallVec::with_capacity(inputs.len()),
            outputs: SmallVec::with_capacity(outputs.len()),
            shared: outputs.iter().any(|output| Arc::strong_count(output) > 1),
        };
        for storage in inputs {
            bound.inputs.push(memory(storage)?);
        }
        for storage in outputs {
            bound.outputs.push(memory(storage)?);
        }
        for (o, output) in bound.outputs.iter().enumerate() {
            if bound.shared && bound.outputs[..o].iter().any(|other| other.ptr == output.ptr) {
                return Err(Error::invalid("launch", "one buffer was given for two outputs"));
            }
        }
        Ok(bound)
    }

    /// The buffers of a launch that is not in place, but for results of a custom kernel that replace an
    /// input: of its kernel's dtypes, large enough, and with outputs that are not inputs.
    pub(crate) fn of_launch(pool: &'a Arc<Pool>, launch: &Launch<'_>) -> Result<Bound<'a>> {
        let (kernel, op) = (launch.kernel, launch.kernel.name());
        let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
        bound.require(op, kernel.operands.len(), kernel.outputs.len())?;
        let custom = if let Body::Custom(custom) = &kernel.body { Some(custom) } else { None };
        bound.require_apart_but(op, |o| custom.and_then(|custom| custom.replaces(o)))?;
        for (input, operand) in bound.inputs.iter().zip(&kernel.operands) {
            Blocks::require(op, operand, *input)?;
        }
        for (output, spec) in bound.outputs.iter().zip(&kernel.outputs) {
            output.require(op, spec.dtype, spec.shape.numel())?;
        }
        Ok(bound)
    }

    /// Whether the output's memory is also an input's.
    pub(crate) fn is_in_place(&self, output: usize) -> bool {
        self.shared && self.inputs.iter().any(|input| input.ptr == self.outputs[output].ptr)
    }

    /// Whether no output is an input's buffer too.
    pub(crate) fn are_apart(&self) -> bool {
        !(0..self.outputs.len()).any(|o| self.is_in_place(o))
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

    /// Fails if an output is an input's buffer too: only a map may work in place.
    pub(crate) fn require_apart(&self, op: &'static str) -> Result<()> {
        self.require_apart_but(op, |_| None)
    }

    /// The same, but for the input that each output may replace.
    fn require_apart_but(&self, op: &'static str, replaces: impl Fn(usize) -> Option<usize>) -> Result<()> {
        let is_other = |o: usize| {
            let mut inputs = self.inputs.iter().enumerate();
            inputs.any(|(k, input)| input.ptr == self.outputs[o].ptr && replaces(o) != Some(k))
        };
        match self.shared && (0..self.outputs.len()).any(is_other) {
            false => Ok(()),
            true => Err(Error::invalid(op, "the output is an input's own buffer; only a map works in place")),
        }
    }
}
