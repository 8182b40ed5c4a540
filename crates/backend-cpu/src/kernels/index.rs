//! Reading and adding by index. Where the index varies along all axes, so do the elements that move: line by line along the axis
//! indexed. Else the index is read once, over the axes along which it varies; behind them lie blocks that move as one (whole rows of
//! an embedding), and a block is contiguous more often than not.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use half::slice::HalfFloatSliceExt;
use smallvec::SmallVec;
use tensor_core::{DType, Error, ErrorKind, Launch, Layout, Result, bf16, f16, kernel::Operand};

use crate::{
    memory::{
        buffer::{Bound, Memory},
        lines::{Band, Lines, Walk, pieces},
        pool::Pool,
        strided,
    },
    simd::isa::Isa,
    threads,
};

/// Calls a macro with the element type of a dtype, the type that sums are kept in, and how an element is added to one.
macro_rules! sums {
    ($dtype:expr, $go:ident) => {
        match $dtype {
            DType::F64 => $go!(f64, f64, |a: f64, b: f64| a + b),
            DType::F32 => $go!(f32, f32, |a: f32, b: f32| a + b),
            DType::F16 => $go!(f16, f32, |a: f32, b: f16| a + b.to_f32()),
            DType::BF16 => $go!(bf16, f32, |a: f32, b: bf16| a + b.to_f32()),
            DType::I64 => $go!(i64, i64, i64::wrapping_add),
            DType::I32 => $go!(i32, i32, i32::wrapping_add),
            DType::U32 => $go!(u32, u32, u32::wrapping_add),
            DType::U8 => $go!(u8, u8, u8::wrapping_add),
            DType::Bool => $go!(bool, bool, |a: bool, b: bool| a | b),
        }
    };
}

/// Halves that a thread converts at once.
const CONVERTED: usize = 1 << 16;

/// Where the sums of a scatter-add are kept: in the output, or beside it where they are wider than what is stored.
struct Sums {
    memory: Memory,
    /// What `memory` points to, of a half type.
    wide: Vec<f32>,
}

impl Sums {
    /// Sums that begin with what the output of `numel` elements holds.
    fn open(out: Memory, numel: usize) -> Sums {
        let mut wide = match out.dtype {
            DType::F16 => widened::<f16>(out, numel),
            DType::BF16 => widened::<bf16>(out, numel),
            DType::Bool | DType::U8 | DType::U32 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => {
                return Sums { memory: out, wide: Vec::new() };
            }
        };
        Sums { memory: Memory { ptr: wide.as_mut_ptr().cast(), numel, dtype: DType::F32 }, wide }
    }

    /// Rounds wider sums, once, into the output.
    fn close(self, out: Memory) {
        match out.dtype {
            DType::F16 => narrow::<f16>(&self.wide, out),
            DType::BF16 => narrow::<bf16>(&self.wide, out),
            // Nothing is wider.
            DType::Bool | DType::U8 | DType::U32 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => {}
        }
    }
}

fn widened<H: Copy + Send + Sync>(from: Memory, numel: usize) -> Vec<f32>
where
    [H]: HalfFloatSliceExt,
{
    // SAFETY: the launch checked that the output holds so many, and `copy_base` wrote them.
    let halves = unsafe { std::slice::from_raw_parts(from.at::<H>(0), numel) };
    let mut wide = vec![0f32; numel];
    threads::share_chunks(&mut wide, CONVERTED, |i, wide| {
        halves[i * CONVERTED..][..wide.len()].convert_to_f32_slice(wide);
    });
    wide
}

fn narrow<H: Copy + Send + Sync>(wide: &[f32], to: Memory)
where
    [H]: HalfFloatSliceExt,
{
    // SAFETY: the launch checked that the output holds so many, and that it lies apart.
    let halves = unsafe { std::slice::from_raw_parts_mut(to.at::<H>(0), wide.len()) };
    threads::share_chunks(halves, CONVERTED, |i, halves| {
        halves.convert_from_f32_slice(&wide[i * CONVERTED..][..halves.len()]);
    });
}

/// Whether an index differs from place to place along every axis of more than one.
fn varies(index: &Layout) -> bool {
    index.shape().iter().zip(index.strides()).all(|(&n, &stride)| n == 1 || stride != 0)
}

/// Lines that are worked on together.
const WIDE: usize = 1024;
/// Indices that are read at once.
const NUMBERS: usize = 128;

/// Elements that each have an index of their own: lines of the index, of what lies as the index does, and of what is indexed.
struct ByLines<'a> {
    op: &'static str,
    index: Memory,
    index_layout: &'a Layout,
    axis: usize,
    size: usize,
    lines: Lines<3>,
}

impl ByLines<'_> {
    /// Calls `f` with the distance of each element that lies as the index does, and of the one that its index means. Along a
    /// line in ascending order; each line comes from one thread.
    fn go(&self, f: impl Fn(isize, isize) + Sync) -> Result<()> {
        self.index.require(self.op, self.index.dtype, self.index_layout.span().1)?;
        let first_bad: Mutex<Option<(isize, i64)>> = Mutex::new(None);
        let bad = |at: isize, index: i64| {
            let mut first = first_bad.lock().unwrap_or_else(PoisonError::into_inner);
            // The one that comes first in memory, whichever thread met it.
            if first.is_none_or(|(other, _)| at < other) {
                *first = Some((at, index));
            }
        };
        match self.index.dtype {
            DType::I64 | DType::I32 | DType::U32 | DType::U8 => self.run(&f, &bad),
            other => return Err(no_index(self.op, other)),
        }
        match first_bad.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, index)) => Err(Error::new(ErrorKind::IndexOutOfRange {
                op: self.op,
                index,
                axis: self.axis,
                size: self.size,
            })),
            None => Ok(()),
        }
    }

    fn run(&self, f: &(impl Fn(isize, isize) + Sync), bad: &(dyn Fn(isize, i64) + Sync)) {
        let lines = &self.lines;
        // Lines of one element lie side by side in any case.
        let by_columns = lines.side_by_side() || lines.length == 1;
        lines.for_each(WIDE, self.index_layout.numel(), &|Band { lines: count, starts }| {
            let (outer, inner) = if by_columns { (lines.length, count) } else { (count, lines.length) };
            let (over, within) =
                if by_columns { (lines.along, lines.across) } else { (lines.across, lines.along) };
            // Along the axis itself, what is indexed stays where its line starts.
            let still = |strides: [isize; 3], along: bool| if along { 0 } else { strides[2] };
            let (over_far, within_far) = (still(over, by_columns), still(within, !by_columns));
            let mut numbers = [0i64; NUMBERS];
            for i in 0..outer as isize {
                let start = [0, 1].map(|l| starts[l] + i * over[l]);
                let far = starts[2] + i * over_far;
                for first in (0..inner).step_by(NUMBERS) {
                    let numbers = &mut numbers[..NUMBERS.min(inner - first)];
                    self.numbers(start[0] + first as isize * within[0], within[0], numbers);
                    for (j, &picked) in (first as isize..).zip(&*numbers) {
                        if (0..self.size as i64).contains(&picked) {
                            let far = far + j * within_far + picked as isize * lines.along[2];
                            f(start[1] + j * within[1], far);
                        } else {
                            bad(start[0] + j * within[0], picked);
                        }
                    }
                }
            }
        });
    }

    /// Reads indices from distance `at` on, `stride` elements apart, of which the line has as many.
    fn numbers(&self, at: isize, stride: isize, numbers: &mut [i64]) {
        macro_rules! go {
            ($t:ty) => {{
                let index = self.index.at::<$t>(self.index_layout.offset()).cast_const();
                for (j, number) in numbers.iter_mut().enumerate() {
                    // SAFETY: the index's span was checked.
                    *number = unsafe { index.wrapping_offset(at + j as isize * stride).read() } as i64;
                }
            }};
        }
        match self.index.dtype {
            DType::I64 => go!(i64),
            DType::I32 => go!(i32),
            DType::U32 => go!(u32),
            _ => go!(u8),
        }
    }
}

/// An index over the axes along which it varies, and the shape of the blocks behind them.
struct Picks {
    lead: SmallVec<[usize; 5]>,
    numbers: Vec<usize>,
    block: SmallVec<[usize; 5]>,
}

impl Picks {
    fn read(
        op: &'static str,
        memory: Memory,
        dtype: DType,
        layout: &Layout,
        axis: usize,
        size: usize,
    ) -> Result<Picks> {
        memory.require(op, dtype, layout.span().1)?;
        let dims = layout.shape().dims();
        let steady = |a: usize| layout.strides()[a] == 0 || dims[a] == 1;
        let first = (axis + 1..dims.len()).rev().take_while(|&a| steady(a)).last().unwrap_or(dims.len());
        let (lead, block) = dims.split_at(first);
        let count = if layout.numel() == 0 { 0 } else { lead.iter().product() };
        let mut numbers = Vec::with_capacity(count);
        let mut walk = Walk::new(lead, &layout.strides()[..first], 0);
        macro_rules! go {
            ($t:ty) => {
                for _ in 0..count {
                    // SAFETY: the span was checked.
                    let index = unsafe { memory.at::<$t>(layout.offset()).offset(walk.offset).read() } as i64;
                    if !(0..size as i64).contains(&index) {
                        return Err(Error::new(ErrorKind::IndexOutOfRange { op, index, axis, size }));
                    }
                    numbers.push(index as usize);
                    walk.next();
                }
            };
        }
        match dtype {
            DType::I64 => go!(i64),
            DType::I32 => go!(i32),
            DType::U32 => go!(u32),
            DType::U8 => go!(u8),
            other => return Err(no_index(op, other)),
        }
        Ok(Picks { lead: lead.into(), numbers, block: block.into() })
    }

    /// Strides over the leading axes, without the one that is picked from.
    fn off_axis(&self, strides: &[isize], axis: usize) -> SmallVec<[isize; 5]> {
        strides[..self.lead.len()].iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
    }
}

fn no_index(op: &'static str, dtype: DType) -> Error {
    Error::invalid(op, format!("an index cannot be {dtype}; cast it to I32"))
}

/// Whether a block with these strides is one run of memory.
fn is_run(block: &[usize], strides: &[isize]) -> bool {
    let mut expected = 1;
    for (&d, &s) in block.iter().zip(strides).rev() {
        if d != 1 && s != expected {
            return false;
        }
        expected *= d as isize;
    }
    true
}

pub(crate) fn gather(pool: &Arc<Pool>, axis: usize, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "gather";
    let bound = Bound::of_launch(pool, launch)?;
    let (input, out) = (bound.inputs[0], bound.outputs[0]);
    let [from_operand, index] = &launch.kernel.operands[..] else { return Err(malformed(OP)) };
    let (layout, dtype, size) = (&from_operand.layout, from_operand.dtype, from_operand.layout.shape()[axis]);
    if varies(&index.layout) {
        let output = Layout::contiguous(index.layout.shape().clone());
        let pass = ByLines {
            op: OP,
            index: bound.inputs[1],
            index_layout: &index.layout,
            axis,
            size,
            lines: Lines::new([&index.layout, &output, layout], axis),
        };
        macro_rules! lines {
            ($t:ty) => {{
                // SAFETY: as below: `ByLines` refuses an index beyond the axis, and the spans were checked.
                let take = |to: isize, from: isize| unsafe {
                    let from = input.at::<$t>(layout.offset()).offset(from).cast_const();
                    out.at::<$t>(0).offset(to).write(from.read());
                };
                pass.go(take)
            }};
        }
        return match dtype.size() {
            1 => lines!(u8),
            2 => lines!(u16),
            4 => lines!(u32),
            _ => lines!(u64),
        };
    }
    let picks = Picks::read(OP, bound.inputs[1], index.dtype, &index.layout, axis, size)?;
    let strides = layout.strides();
    let (off_axis, along) = (picks.off_axis(strides, axis), strides[axis]);
    let within = &strides[picks.lead.len()..];
    let length: usize = picks.block.iter().product();
    let run = is_run(&picks.block, within);
    macro_rules! go {
        ($t:ty) => {
            pieces(picks.numbers.len(), picks.numbers.len() * length, &|start, end| {
                let mut walk = Walk::new(&picks.lead, &off_axis, start);
                for (i, &number) in picks.numbers[start..end].iter().enumerate() {
                    let from = walk.offset + number as isize * along;
                    // SAFETY: an index beyond the axis was refused, and off the axis the index is no larger than the input,
                    // whose span was checked; each piece writes blocks of its own.
                    unsafe {
                        let from = input.at::<$t>(layout.offset()).offset(from).cast_const();
                        let to = out.at::<$t>((start + i) * length);
                        match length {
                            1 => to.write(from.read()),
                            _ if run => std::ptr::copy_nonoverlapping(from, to, length),
                            _ => {
                                let mut inner = Walk::new(&picks.block, within, 0);
                                for j in 0..length {
                                    to.add(j).write(from.offset(inner.offset).read());
                                    inner.next();
                                }
                            }
                        }
                    }
                    walk.next();
                }
            })
        };
    }
    match dtype.size() {
        1 => go!(u8),
        2 => go!(u16),
        4 => go!(u32),
        _ => go!(u64),
    }
    Ok(())
}

pub(crate) fn scatter_add(isa: Isa, pool: &Arc<Pool>, axis: usize, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "scatter_add";
    let bound = Bound::of_launch(pool, launch)?;
    let (base, src, out) = (bound.inputs[0], bound.inputs[2], bound.outputs[0]);
    let [base_operand, index, source] = &launch.kernel.operands[..] else { return Err(malformed(OP)) };
    let (shape, dtype) = (&launch.kernel.space, base_operand.dtype);
    if index.layout.numel() == 0 {
        // SAFETY: both layouts were checked, and the output lies apart.
        unsafe { copy_base(isa, base_operand, base, out) };
        return Ok(());
    }
    let plain = shape.contiguous_strides();
    if varies(&index.layout) {
        let output = Layout::contiguous(shape.clone());
        let pass = ByLines {
            op: OP,
            index: bound.inputs[1],
            index_layout: &index.layout,
            axis,
            size: shape[axis],
            lines: Lines::new([&index.layout, &source.layout, &output], axis),
        };
        macro_rules! lines {
            ($t:ty, $sum:ty, $add:expr) => {{
                // SAFETY: both layouts were checked, and the output lies apart.
                unsafe { copy_base(isa, base_operand, base, out) };
                let sums = Sums::open(out, shape.numel());
                let to_sums = sums.memory;
                // SAFETY: as below: `ByLines` refuses an index beyond the axis, and the spans were checked; each line of the
                // output is one thread's.
                let add = |from: isize, to: isize| unsafe {
                    let from = src.at::<$t>(source.layout.offset()).offset(from);
                    let to = to_sums.at::<$sum>(0).offset(to);
                    to.write($add(to.read(), from.read()));
                };
                let done = pass.go(add);
                sums.close(out);
                done
            }};
        }
        return sums!(dtype, lines);
    }
    let picks = Picks::read(OP, bound.inputs[1], index.dtype, &index.layout, axis, shape[axis])?;
    let lead = picks.lead.len();
    let (off_axis, along) = (picks.off_axis(&plain, axis), plain[axis]);
    let (src_lead, src_within) = source.layout.strides().split_at(lead);
    let length: usize = picks.block.iter().product();
    let runs = is_run(&picks.block, src_within) && is_run(&picks.block, &plain[lead..]);
    macro_rules! go {
        ($t:ty, $sum:ty, $add:expr) => {{
            // SAFETY: both layouts were checked, and the output lies apart.
            unsafe { copy_base(isa, base_operand, base, out) };
            let sums = Sums::open(out, shape.numel());
            let to_sums = sums.memory;
            // Every pick in order of position, so that repeated indices add up the same way each time; a thread has some
            // elements of each block.
            let some = |start: usize, end: usize| {
                let mut to = Walk::new(&picks.lead, &off_axis, 0);
                let mut from = Walk::new(&picks.lead, src_lead, 0);
                for &number in &picks.numbers {
                    // SAFETY: as in `gather`, for the output and the source.
                    unsafe {
                        let to = to_sums.at::<$sum>(0).offset(to.offset + number as isize * along);
                        let from = src.at::<$t>(source.layout.offset()).offset(from.offset).cast_const();
                        if runs {
                            for j in start..end {
                                to.add(j).write($add(to.add(j).read(), from.add(j).read()));
                            }
                        } else {
                            let mut a = Walk::new(&picks.block, &plain[lead..], start);
                            let mut b = Walk::new(&picks.block, src_within, start);
                            for _ in start..end {
                                let to = to.offset(a.offset);
                                to.write($add(to.read(), from.offset(b.offset).read()));
                                a.next();
                                b.next();
                            }
                        }
                    }
                    to.next();
                    from.next();
                }
            };
            // Narrow blocks are not worth dividing.
            let work = if length >= 64 { picks.numbers.len() * length } else { 0 };
            pieces(length, work, &some);
            sums.close(out);
        }};
    }
    sums!(dtype, go);
    Ok(())
}

/// The base of a scatter-add into its output.
///
/// # Safety
/// Both lie in the memory given, and the output apart.
unsafe fn copy_base(isa: Isa, operand: &Operand, base: Memory, out: Memory) {
    let Operand { dtype, layout } = operand;
    let (shape, strides) = (layout.shape(), layout.strides());
    let plain = shape.contiguous_strides();
    macro_rules! go {
        ($t:ty) => {{
            let from = base.at::<$t>(layout.offset()).cast_const();
            // SAFETY: the caller's promise.
            unsafe { strided::copy::<$t>(isa, shape, from, strides, out.at::<$t>(0), &plain) }
        }};
    }
    match dtype.size() {
        1 => go!(u8),
        2 => go!(u16),
        4 => go!(u32),
        _ => go!(u64),
    }
}

/// The error of a kernel with other operands than its body has.
fn malformed(op: &'static str) -> Error {
    Error::invalid(op, "the kernel has other operands than its body")
}
