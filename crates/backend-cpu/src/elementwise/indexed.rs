//! Elements of an input that are read at indices: see [`tensor_core::kernel::Instr::LoadAt`]. They are read
//! in runs along the innermost axis; all indices of a run are checked before one of them is used.
#![allow(unsafe_code)]

use tensor_core::{Arithmetic, DType, kernel::IndexedAxis};

use crate::{
    elementwise::{
        engine::{offset_of, runs},
        lower::{Access, Code, Lowered, Src, Step},
    },
    memory::{
        buffer::Memory,
        narrow::{Narrow, by_narrow},
    },
    simd::cache::{LINE, prefetch},
    tuning::{PREFETCH_ROW_BYTES, PREFETCH_RUN_BYTES, ROWS_AHEAD},
};

/// An input that is read at indices, with the indices of a block.
#[derive(Clone, Copy)]
pub(crate) struct Indexed<'a> {
    pub(crate) access: &'a Access,
    pub(crate) axis: IndexedAxis,
    /// The sizes of the collapsed space, and their product.
    pub(crate) dims: &'a [usize],
    pub(crate) numel: usize,
    pub(crate) memory: Memory,
    pub(crate) index: *const u8,
    pub(crate) index_dtype: DType,
    /// Whether all positions of a run share one index.
    pub(crate) by_run: bool,
    /// The source of the run indices, if they are not loaded into the block.
    pub(crate) runs: Option<(&'a Access, Memory)>,
}

/// An integer type of indices.
trait Pick: Copy + Into<i64> {
    /// Whether all are in `0..=last`.
    fn are_inside(picks: &[Self], last: i64) -> bool {
        // The sign bit is set for an index below 0 or above `last`.
        let outside = |bits: i64, &pick: &Self| bits | pick.into() | last.wrapping_sub(pick.into());
        picks.iter().fold(0, outside) >= 0
    }
}

impl Pick for i64 {}
impl Pick for u32 {}

impl Pick for i32 {
    /// 32-bit arithmetic needs half as many registers.
    fn are_inside(picks: &[i32], last: i64) -> bool {
        let last = i32::try_from(last).unwrap_or(i32::MAX);
        picks.iter().fold(0, |bits, &pick| bits | pick | last.wrapping_sub(pick)) >= 0
    }
}

/// The address of the index of row `row`, for indices that are constant along the innermost axis.
pub(crate) fn index_of_row(access: &Access, memory: Memory, dims: &[usize], row: usize) -> *const u8 {
    let at = offset_of(access, dims, row, 0);
    memory.at::<u8>(0).wrapping_add(at * access.dtype.size()).cast_const()
}

/// Rows that indices select, used in place: a program that does nothing but read them.
pub(crate) struct NamedRows<'a> {
    indexed: Indexed<'a>,
    index: &'a Access,
    indices: Memory,
}

impl<'a> NamedRows<'a> {
    /// The rows of a program, if it does nothing but read rows at indices.
    pub(crate) fn of(program: &'a Lowered, inputs: &[Memory]) -> Option<NamedRows<'a>> {
        let [Step { code: Code::LoadAt(load), from, dst, .. }] = program.steps[..] else { return None };
        let [(Src::Reg(result), _)] = program.outputs[..] else { return None };
        let Src::Input(k) = load.index else { return None };
        let (access, index) = (&program.inputs[load.input as usize], &program.inputs[k as usize]);
        let (dims, numel) = (&program.dims[..], program.numel);
        let memory = inputs[load.input as usize];
        let (index_dtype, by_run) = (from, load.by_run);
        // Indices of a narrow type have to be widened before they are read.
        let axis = access.indexed.filter(|_| result == dst && !index.dtype.is_narrow())?;
        let indexed = Indexed {
            access,
            axis,
            dims,
            numel,
            memory,
            index: std::ptr::null(),
            index_dtype,
            by_run,
            runs: None,
        };
        indexed.is_run().then_some(NamedRows { indexed, index, indices: inputs[k as usize] })
    }

    /// The kernel operand that holds the rows.
    pub(crate) fn operand(&self) -> usize {
        self.indexed.access.operand
    }

    /// The address of positions `pos..pos + n`, which are within one row.
    ///
    /// # Errors
    /// The index, if it is outside the axis.
    ///
    /// # Safety
    /// The launch checked the bounds of the inputs, and the positions, at least one, are within the space.
    pub(crate) unsafe fn at(&self, pos: usize, n: usize) -> Result<*const u8, i64> {
        let Indexed { dims, numel, .. } = self.indexed;
        let inner = dims.last().copied().unwrap_or(1);
        let (row, column) = (pos / inner, pos % inner);
        let index = |row| index_of_row(self.index, self.indices, dims, row);
        // SAFETY: `row` is in the space, by `# Safety`, and so is `ahead` where it is used: both have an
        // index in the input that the launch checked.
        unsafe {
            // Prefetches a row far enough ahead to hide the memory latency.
            let ahead = row + ROWS_AHEAD;
            if ahead * inner < numel {
                self.indexed.look_ahead(index(ahead), ahead, column, n);
            }
            Indexed { index: index(row), ..self.indexed }.run(row, column)
        }
    }
}

/// Calls a macro with the Rust type of an index dtype. The contract of a launch allows no other dtypes.
macro_rules! by_index {
    ($dtype:expr, $go:ident) => {
        match $dtype.arithmetic() {
            // A u64 beyond i64 becomes a negative index, which is out of range.
            Arithmetic::I64 | Arithmetic::U64 => $go!(i64),
            Arithmetic::U32 => $go!(u32),
            Arithmetic::I32 | Arithmetic::Bool | Arithmetic::F32 | Arithmetic::F64 => $go!(i32),
        }
    };
}

impl Indexed<'_> {
    /// Whether the run that one index selects can be used in place by the engine.
    pub(crate) fn is_run(&self) -> bool {
        self.by_run && !self.access.dtype.is_narrow() && matches!(self.access.strides.last(), None | Some(1))
    }

    /// Prefetches the run that the next index, stored at `index`, selects: `n` elements from column
    /// `column` of row `row` on.
    ///
    /// # Safety
    /// As [`Indexed::run`], for the index at `index`.
    pub(crate) unsafe fn look_ahead(&self, index: *const u8, row: usize, column: usize, n: usize) {
        let next = Indexed { index, ..*self };
        // SAFETY: `# Safety` is that of `run` for the index at `index`; the prefetches access no memory.
        if let Ok(run) = unsafe { next.run(row, column) } {
            let bytes = (n * self.access.dtype.size()).min(PREFETCH_RUN_BYTES);
            (0..bytes.max(1)).step_by(LINE).for_each(|at| prefetch::<true, _>(run.wrapping_add(at)));
        }
    }

    /// The address of the elements that the first index selects, from column `column` of row `row` on.
    ///
    /// # Errors
    /// The index, if it is outside the axis.
    ///
    /// # Safety
    /// `self.index` is aligned and valid for reads of one index of `index_dtype`'s compute type, an integer.
    /// The row and the column are in the space, and the input is as large as its access says.
    pub(crate) unsafe fn run(&self, row: usize, column: usize) -> Result<*const u8, i64> {
        macro_rules! first {
            ($i:ty) => {
                // SAFETY: `self.index` is readable for one index, by `# Safety`; `by_index!` gives its type.
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

    /// Copies the elements selected by the indices of positions `pos..pos + n` to `out`, in their compute
    /// dtype.
    ///
    /// # Errors
    /// The first index that is outside the axis.
    ///
    /// # Safety
    /// The positions are in the space. `self.index` is aligned and valid for reads of `n` indices of
    /// `index_dtype`'s compute type, an integer, unless `self.runs` is their source. The inputs are as large
    /// as their accesses say. `out` is aligned, valid for writes of `n` elements of the compute dtype, and
    /// apart from the input and the indices.
    pub(crate) unsafe fn load(&self, pos: usize, n: usize, out: *mut u8) -> Result<(), i64> {
        macro_rules! go {
            ($t:ty, $o:ty, $f:expr) => {{
                macro_rules! of {
                    ($i:ty) => {
                        // SAFETY: `# Safety` is that of `load_as`; `$t` has the size of an element, and
                        // `by_index!` gives the type of the index dtype.
                        unsafe { self.load_as::<$t, $o, $i>(pos, n, out.cast(), $f) }
                    };
                }
                by_index!(self.index_dtype, of)
            }};
        }
        macro_rules! widen {
            ($t:ty) => {
                go!($t, <$t as Narrow>::Wide, |v: $t| v.widen())
            };
        }
        by_narrow!(
            self.access.dtype,
            widen,
            match self.access.dtype.arithmetic() {
                Arithmetic::Bool => go!(u8, u8, |v| v),
                Arithmetic::I32 | Arithmetic::U32 | Arithmetic::F32 => go!(u32, u32, |v| v),
                Arithmetic::I64 | Arithmetic::U64 | Arithmetic::F64 => go!(u64, u64, |v| v),
            }
        )
    }

    /// # Safety
    /// As [`Indexed::load`], for elements of this size and indices of this type.
    unsafe fn load_as<T: Copy, O, I: Pick>(
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
        let inner = self.dims.last().copied().unwrap_or(1).max(1);
        let mut row = pos / inner;
        let mut by_run = |done: usize, at: isize, stride: isize, len: usize| {
            let index = match self.runs {
                Some((access, memory)) => index_of_row(access, memory, self.dims, row).cast::<I>(),
                None => index.wrapping_add(done),
            };
            row += 1;
            // SAFETY: `index` is one of the `n`, or that of `row` in its input; within the axis it selects a
            // run of the input, and `out` has room for `done + len` elements.
            unsafe {
                let picked: i64 = index.read().into();
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
            // SAFETY: indices `done..done + len` are among the `n`, by `# Safety`. An index within the axis
            // selects an element of the input, and `out` has room for the positions.
            unsafe {
                let picks = std::slice::from_raw_parts(index.add(done), len);
                if !I::are_inside(picks, last) {
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
        // The next row is prefetched while this one's elements are used, if most of its cache lines will be
        // read.
        let bytes = size * size_of::<T>();
        let dense = !self.by_run && along == 1 && bytes <= PREFETCH_ROW_BYTES && n * LINE >= bytes;
        if dense && (pos + n).is_multiple_of(inner) && pos + n < self.numel {
            let next =
                from.wrapping_add(offset_of(self.access, self.dims, (pos + n) / inner, 0)).cast::<u8>();
            (0..bytes).step_by(LINE).for_each(|at| prefetch::<true, _>(next.wrapping_add(at)));
        }
        // SAFETY: `# Safety` puts the positions into the space of `self.dims`.
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
