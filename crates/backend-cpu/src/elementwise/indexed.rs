//! Elements of an input that indices name: see [`tensor_core::kernel::Instr::LoadAt`]. They are read run by run of the innermost axis; all
//! indices of a run are checked before one of them is used.
#![allow(unsafe_code)]

use tensor_core::{DType, bf16, f16, kernel::IndexedAxis};

use crate::{
    elementwise::{
        engine::{offset_of, runs},
        lower::Access,
    },
    memory::buffer::Memory,
};

/// An input that is read at indices, and the indices of a block.
pub(crate) struct Indexed<'a> {
    pub(crate) access: &'a Access,
    pub(crate) axis: IndexedAxis,
    /// The sizes of the collapsed space.
    pub(crate) dims: &'a [usize],
    pub(crate) memory: Memory,
    pub(crate) index: *const u8,
    pub(crate) index_dtype: DType,
    /// Whether the indices of a run are one number.
    pub(crate) by_run: bool,
}

/// Calls a macro with the type of indices of a dtype. The contract of a launch allows no other.
macro_rules! by_index {
    ($dtype:expr, $go:ident) => {
        match $dtype {
            DType::I64 => $go!(i64),
            DType::U32 => $go!(u32),
            DType::U8 => $go!(u8),
            DType::I32 | DType::Bool | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => $go!(i32),
        }
    };
}

impl Indexed<'_> {
    /// Whether what one index names of a run lies as the engine reads it.
    pub(crate) fn is_run(&self) -> bool {
        self.by_run && !self.access.dtype.is_half() && matches!(self.access.strides.last(), None | Some(1))
    }

    /// Where the elements lie that the first index names, from `column` of row `row` of the innermost axis on.
    ///
    /// # Errors
    /// The index, if it is outside the axis.
    ///
    /// # Safety
    /// There is an index, and the input reaches as far as its access says.
    pub(crate) unsafe fn run(&self, row: usize, column: usize) -> Result<*const u8, i64> {
        macro_rules! first {
            ($i:ty) => {
                // SAFETY: the caller's promise.
                i64::from(unsafe { self.index.cast::<$i>().read() })
            };
        }
        let index = by_index!(self.index_dtype, first);
        if !(0..self.axis.size as i64).contains(&index) {
            return Err(index);
        }
        let at = offset_of(self.access, self.dims, row, column) as isize + index as isize * self.axis.stride;
        Ok(self.memory.at::<u8>(0).wrapping_offset(at * self.access.dtype.size() as isize))
    }

    /// Copies the elements that the indices of positions `pos..pos + n` name to `out`, in their compute dtype.
    ///
    /// # Errors
    /// The first index that is outside the axis.
    ///
    /// # Safety
    /// There are `n` indices, the input reaches as far as its access says, and `out` has room for `n` elements of its compute dtype.
    pub(crate) unsafe fn load(&self, pos: usize, n: usize, out: *mut u8) -> Result<(), i64> {
        macro_rules! go {
            ($t:ty, $o:ty, $f:expr) => {{
                macro_rules! of {
                    ($i:ty) => {
                        // SAFETY: the caller's promise.
                        unsafe { self.load_as::<$t, $o, $i>(pos, n, out.cast(), $f) }
                    };
                }
                by_index!(self.index_dtype, of)
            }};
        }
        match self.access.dtype {
            DType::F16 => go!(f16, f32, |v: f16| v.to_f32()),
            DType::BF16 => go!(bf16, f32, |v: bf16| v.to_f32()),
            DType::Bool | DType::U8 => go!(u8, u8, |v| v),
            DType::I32 | DType::U32 | DType::F32 => go!(u32, u32, |v| v),
            DType::I64 | DType::F64 => go!(u64, u64, |v| v),
        }
    }

    /// # Safety
    /// As [`Indexed::load`], for elements of this size and indices of this type.
    unsafe fn load_as<T: Copy, O, I: Copy + Into<i64>>(
        &self,
        pos: usize,
        n: usize,
        out: *mut O,
        f: impl Fn(T) -> O + Copy,
    ) -> Result<(), i64> {
        let (from, index) = (self.memory.at::<T>(0).cast_const(), self.index.cast::<I>());
        let IndexedAxis { size, stride: along, .. } = self.axis;
        let last = size as i64 - 1;
        let mut found = Ok(());
        let by_run = |done: usize, at: isize, stride: isize, len: usize| {
            // SAFETY: the caller's promise: an index within the axis names elements of the input.
            unsafe {
                let picked: i64 = index.add(done).read().into();
                if !(0..=last).contains(&picked) {
                    return Err(picked);
                }
                let (from, to) = (from.wrapping_offset(at + picked as isize * along), out.add(done));
                match stride {
                    1 => (0..len).for_each(|i| to.add(i).write(f(from.add(i).read()))),
                    _ => (0..len).for_each(|i| to.add(i).write(f(from.offset(i as isize * stride).read()))),
                }
            }
            Ok(())
        };
        let by_element = |done: usize, at: isize, stride: isize, len: usize| {
            // SAFETY: as above.
            unsafe {
                let picks = std::slice::from_raw_parts(index.add(done), len);
                // The sign bit of an index below 0 or beyond the last.
                let outside = |bits: i64, &pick: &I| bits | pick.into() | last.wrapping_sub(pick.into());
                if picks.iter().fold(0, outside) < 0 {
                    let mut all = picks.iter().map(|&pick| pick.into());
                    return all.find(|pick| !(0..=last).contains(pick)).map_or(Ok(()), Err);
                }
                let (from, to) = (from.wrapping_offset(at), out.add(done));
                let place = |pick: I| Into::<i64>::into(pick) as isize * along;
                match (stride, along) {
                    (0, 1) => {
                        for (i, &pick) in picks.iter().enumerate() {
                            to.add(i).write(f(from.offset(pick.into() as isize).read()));
                        }
                    }
                    _ => {
                        for (i, &pick) in picks.iter().enumerate() {
                            to.add(i).write(f(from.offset(i as isize * stride + place(pick)).read()));
                        }
                    }
                }
            }
            Ok(())
        };
        // SAFETY: the positions are the space's.
        unsafe {
            runs(self.access.offset, &self.access.strides, self.dims, pos, n, |done, at, stride, len| {
                if found.is_ok() {
                    found = match self.by_run {
                        true => by_run(done, at, stride, len),
                        false => by_element(done, at, stride, len),
                    };
                }
            });
        }
        found
    }
}
