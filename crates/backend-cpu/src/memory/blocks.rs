//! Operands in a block format: bytes that the format decodes, a run of elements at a time.
#![allow(unsafe_code)]

use std::cell::RefCell;

use tensor_core::{Arithmetic, BlockFormat, DType, Error, GgmlType, Result, kernel::Operand};

use crate::{
    memory::{
        buffer::Memory,
        narrow::{Narrow, by_narrow, narrow},
    },
    simd::{
        block_formats::{decode, ggml},
        isa::Isa,
    },
};

/// The elements of an operand in a block format.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'a> {
    isa: Isa,
    memory: Memory,
    format: &'a dyn BlockFormat,
    /// The float type that elements are rounded to.
    dtype: DType,
}

thread_local! {
    /// Decoded numbers before their conversion to another type.
    static DECODED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl<'a> Blocks<'a> {
    /// The elements of an operand, in a buffer that was checked for the launch; None if the operand has no
    /// block format.
    pub(crate) fn of(isa: Isa, operand: &'a Operand, memory: Memory) -> Option<Blocks<'a>> {
        let format = operand.format.as_deref()?;
        Some(Blocks { isa, memory, format, dtype: operand.dtype })
    }

    /// The bytes, and the format of GGUF files that they have, if it is one and elements are f32.
    pub(crate) fn ggml(&self) -> Option<(&[u8], GgmlType)> {
        let format = ggml(self.format).filter(|_| self.dtype == DType::F32)?;
        Some((self.bytes(), format))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the launch holds the buffer, which has that many initialised bytes and is not written.
        unsafe { std::slice::from_raw_parts(self.memory.at::<u8>(0), self.memory.numel) }
    }

    /// Fails unless a buffer holds as many elements of the operand's format as its layout needs.
    pub(crate) fn require(op: &'static str, operand: &Operand, memory: Memory) -> Result<()> {
        let Some(format) = &operand.format else {
            return memory.require(op, operand.dtype, operand.layout.span().1);
        };
        let (wanted, held) = (operand.layout.span().1, format.elements(memory.numel));
        if memory.dtype == DType::U8 && wanted <= held {
            return Ok(());
        }
        let message = format!("the kernel needs {wanted} elements in {format} blocks, the buffer has {held}");
        Err(Error::invalid(op, message))
    }

    /// Decodes elements `start..start + out.len()`, each rounded to the operand's dtype.
    pub(crate) fn decode(&self, start: usize, out: &mut [f32]) {
        match ggml(self.format) {
            Some(format) => decode(self.isa, format, self.bytes(), start, out),
            None => self.format.decode(self.bytes(), start, out),
        }
        if self.dtype.arithmetic() == Arithmetic::F32 && self.dtype != DType::F32 {
            self.round(out);
        }
    }

    fn round(&self, out: &mut [f32]) {
        macro_rules! go {
            ($t:ty) => {
                for x in out {
                    let wide = bytemuck::cast::<f32, <$t as Narrow>::Wide>(*x);
                    *x = bytemuck::cast(<$t as Narrow>::narrow(wide).widen());
                }
            };
        }
        by_narrow!(self.dtype, go, ());
    }

    /// Decodes `numel` elements from `start` on into a buffer of the operand's dtype, from `at` on.
    ///
    /// # Safety
    /// `to` is a buffer of the operand's dtype with room for elements `at..at + numel`, which nothing else
    /// accesses.
    pub(crate) unsafe fn decode_into(&self, start: usize, to: Memory, at: usize, numel: usize) {
        debug_assert_eq!(to.dtype, self.dtype);
        if self.dtype == DType::F32 {
            // SAFETY: `to` holds `numel` f32 from `at` on that nothing else accesses, by `# Safety`; the
            // pool's memory is never uninitialised.
            return self.decode(start, unsafe { std::slice::from_raw_parts_mut(to.at::<f32>(at), numel) });
        }
        DECODED.with_borrow_mut(|decoded| {
            decoded.resize(numel, 0.0);
            self.decode(start, decoded);
            if self.dtype == DType::F64 {
                // SAFETY: `to` holds `numel` f64 from `at` on that nothing else accesses, by `# Safety`; the
                // pool's memory is never uninitialised.
                let out = unsafe { std::slice::from_raw_parts_mut(to.at::<f64>(at), numel) };
                out.iter_mut().zip(&*decoded).for_each(|(to, &x)| *to = x.into());
                return;
            }
            let out = to.at::<u8>(at);
            // SAFETY: `decoded` holds `numel` f32, the compute type of narrow floats, and `out` has room for
            // `numel` of the dtype, by `# Safety`.
            unsafe { narrow(self.isa, self.dtype, decoded.as_ptr().cast(), out, numel) };
        });
    }
}

// SAFETY: the bytes are only read while the launch holds them, and formats are shared values.
unsafe impl Send for Blocks<'_> {}
// SAFETY: a shared `Blocks` only reads the bytes that the launch holds, and its format is `Sync`.
unsafe impl Sync for Blocks<'_> {}
