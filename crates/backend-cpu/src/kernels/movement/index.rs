//! The index operand of [`gather`](super::gather) and [`scatter`](super::scatter). If the index varies
//! along its last axis, each element moves by itself, line by line along the indexed axis ([`ByLines`]).
//! Otherwise the index is read once, over the axes along which it varies ([`Picks`]); the remaining axes
//! form blocks that move as one, such as whole rows of an embedding, and these blocks are usually
//! contiguous.
#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError};

use smallvec::SmallVec;
use tensor_core::{DType, Error, ErrorKind, Layout, Result};

use crate::{
    memory::{
        buffer::Memory,
        lines::{Band, Lines, Walk},
    },
    threads,
    tuning::{COSTLY_ELEMENT_GRAIN, INDEX_BAND_LINES},
};

/// Whether elements have to move one by one: the index varies along the last axis that has more than one
/// element.
pub(crate) fn varies(index: &Layout) -> bool {
    let axes = index.shape().iter().zip(index.strides()).rev();
    axes.into_iter().find(|(n, _)| **n != 1).is_none_or(|(_, &stride)| stride != 0)
}

/// Calls a macro with the Rust type of an integer dtype; evaluates an expression for any other.
macro_rules! by_index {
    ($dtype:expr, $go:ident, $otherwise:expr) => {
        match ($dtype.is_int(), $dtype.width(), $dtype.is_signed()) {
            (true, tensor_core::Width::W8, true) => $go!(i8),
            (true, tensor_core::Width::W8, false) => $go!(u8),
            (true, tensor_core::Width::W16, true) => $go!(i16),
            (true, tensor_core::Width::W16, false) => $go!(u16),
            (true, tensor_core::Width::W32, true) => $go!(i32),
            (true, tensor_core::Width::W32, false) => $go!(u32),
            (true, tensor_core::Width::W64, true) => $go!(i64),
            (true, tensor_core::Width::W64, false) => $go!(u64),
            (false, ..) => $otherwise,
        }
    };
}
pub(crate) use by_index;

/// Indices that are read at once.
const NUMBERS: usize = 128;

/// Elements that each have their own index: lines of the index, of the tensor with the index's shape, and
/// of the indexed tensor.
pub(crate) struct ByLines<'a> {
    pub(crate) op: &'static str,
    pub(crate) index: Memory,
    pub(crate) index_layout: &'a Layout,
    pub(crate) axis: usize,
    pub(crate) size: usize,
    pub(crate) lines: Lines<3>,
}

impl ByLines<'_> {
    /// Calls `f` with the offset of each element of the tensor with the index's shape, and with the offset
    /// that its index selects in the indexed tensor. A line is processed in ascending order by one thread.
    pub(crate) fn go(&self, f: impl Fn(isize, isize) + Copy + Sync) -> Result<()> {
        self.go_after(None, f)
    }

    /// Like [`ByLines::go`]. It also calls `before` with the offset of each line of the indexed tensor,
    /// before the line's elements; only for lines that have their own indices.
    pub(crate) fn go_after(
        &self,
        before: Option<&(dyn Fn(isize) + Sync)>,
        f: impl Fn(isize, isize) + Copy + Sync,
    ) -> Result<()> {
        self.index.require(self.op, self.index.dtype, self.index_layout.span().1)?;
        let first_bad: Mutex<Option<(isize, i64)>> = Mutex::new(None);
        let bad = |at: isize, index: i64| {
            let mut first = first_bad.lock().unwrap_or_else(PoisonError::into_inner);
            // Keeps the bad index that comes first in memory, whichever thread found it.
            if first.is_none_or(|(other, _)| at < other) {
                *first = Some((at, index));
            }
        };
        match self.index.dtype {
            dtype if dtype.is_int() => self.run(before, &f, &bad),
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

    /// Calls `f` for each element of the only line, in order: with its number modulo `N`, its offset in the
    /// tensor with the index's shape, and its index.
    pub(crate) fn along_one_line<const N: usize>(&self, f: impl Fn(usize, isize, usize)) -> Result<()> {
        const { assert!(NUMBERS.is_multiple_of(N), "elements that are read at once begin with number 0") };
        let (op, axis, size, dtype) = (self.op, self.axis, self.size, self.index.dtype);
        self.index.require(op, dtype, self.index_layout.span().1)?;
        if !dtype.is_int() {
            return Err(no_index(op, dtype));
        }
        let Lines { length, along, .. } = self.lines;
        let mut numbers = [0i64; NUMBERS];
        for first in (0..length).step_by(NUMBERS) {
            let numbers = &mut numbers[..NUMBERS.min(length - first)];
            self.numbers(first as isize * along[0], along[0], numbers);
            if !are_inside(numbers, size as i64 - 1)
                && let Some(&index) = numbers.iter().find(|&&index| !(0..size as i64).contains(&index))
            {
                return Err(Error::new(ErrorKind::IndexOutOfRange { op, index, axis, size }));
            }
            let distance = |j: usize| (first + j) as isize * along[1];
            let (groups, rest) = numbers.as_chunks::<N>();
            for (i, group) in groups.iter().enumerate() {
                for (j, &picked) in group.iter().enumerate() {
                    f(j, distance(i * N + j), picked as usize);
                }
            }
            for (j, &picked) in rest.iter().enumerate() {
                f(j, distance(groups.len() * N + j), picked as usize);
            }
        }
        Ok(())
    }

    /// The number of parts to cut lines into if the order of elements does not matter: more than 1 if there
    /// are too few lines for all threads.
    pub(crate) fn parts(&self) -> usize {
        let threads = threads::available();
        let parts =
            threads.min(self.index_layout.numel() / COSTLY_ELEMENT_GRAIN).min(self.lines.length).max(1);
        if self.lines.tasks(INDEX_BAND_LINES) < threads { parts } else { 1 }
    }

    /// Calls `f` for each of `parts` parts of all lines, cut along them: with the part's number, its lines,
    /// and the offset of its first element in the tensor with the index's shape. Threads share the parts.
    /// Returns the error of the first part that failed.
    pub(crate) fn go_by_parts(
        &self,
        parts: usize,
        f: impl Fn(usize, ByLines<'_>, isize) -> Result<()> + Sync,
    ) -> Result<()> {
        let first_error: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        threads::share(parts, |number| {
            let range = threads::part(self.lines.length, 1, parts, number);
            let index = self.index_layout.slice(self.axis, range.start, range.len(), 1);
            let part = ByLines { index_layout: &index, lines: self.lines.first(range.len()), ..*self };
            if let Err(error) = f(number, part, range.start as isize * self.lines.along[1]) {
                let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                if first.as_ref().is_none_or(|(other, _)| number < *other) {
                    *first = Some((number, error));
                }
            }
        });
        let first = first_error.into_inner().unwrap_or_else(PoisonError::into_inner);
        first.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn run(
        &self,
        before: Option<&(dyn Fn(isize) + Sync)>,
        f: &(impl Fn(isize, isize) + Copy + Sync),
        bad: &(dyn Fn(isize, i64) + Sync),
    ) {
        let lines = &self.lines;
        // Lines of one element count as side by side.
        let side_by_side = match lines.across[0] {
            // All lines share one line of indices: the tensor with the index's shape decides.
            0 => lines.across[1] != 0 && lines.across[1].unsigned_abs() < lines.along[1].unsigned_abs(),
            _ => lines.side_by_side(),
        };
        let by_columns = side_by_side || lines.length == 1;
        if self.is_shared() {
            return self.run_shared(by_columns, f, bad);
        }
        let band = |count: usize, starts: [isize; 3]| {
            if let Some(before) = before {
                (0..count as isize).for_each(|line| before(starts[2] + line * lines.across[2]));
            }
            let (outer, inner) = if by_columns { (lines.length, count) } else { (count, lines.length) };
            let (over, within) =
                if by_columns { (lines.along, lines.across) } else { (lines.across, lines.along) };
            // Along the indexed axis itself, the offset in the indexed tensor stays at the start of its
            // line.
            let still = |strides: [isize; 3], along: bool| if along { 0 } else { strides[2] };
            let (over_far, within_far) = (still(over, by_columns), still(within, !by_columns));
            let runs = Runs { outer, inner, over, within, over_far, within_far, starts };
            // Several short runs are read at once if they are contiguous.
            let follow = over[0] == within[0] * inner as isize;
            match follow && 2 * inner <= NUMBERS {
                true => self.short_runs(&runs, f, bad),
                false => self.long_runs(&runs, f, bad),
            }
        };
        // With one line at a time, the data that `before` writes for a long line is still in the cache when
        // the line's elements are processed.
        let one_by_one = before.is_some() && !by_columns && 2 * lines.length > NUMBERS;
        lines.for_each(INDEX_BAND_LINES, self.index_layout.numel(), &|Band { lines: count, starts }| {
            match one_by_one {
                true => (0..count as isize)
                    .for_each(|line| band(1, [0, 1, 2].map(|l| starts[l] + line * lines.across[l]))),
                false => band(count, starts),
            }
        });
    }

    /// Processes runs one by one.
    #[inline(always)]
    fn long_runs(&self, runs: &Runs, f: &(impl Fn(isize, isize) + Copy), bad: &(dyn Fn(isize, i64) + Sync)) {
        let Runs { outer, inner, over, within, over_far, within_far, starts } = *runs;
        let mut numbers = [0i64; NUMBERS];
        // Local copies stay in registers, because the writes of `f` cannot change them.
        let (f, last, pick) = (*f, self.size as i64 - 1, self.lines.along[2]);
        for i in 0..outer as isize {
            let start = [0, 1].map(|l| starts[l] + i * over[l]);
            let far = starts[2] + i * over_far;
            for first in (0..inner).step_by(NUMBERS) {
                let numbers = &mut numbers[..NUMBERS.min(inner - first)];
                self.numbers(start[0] + first as isize * within[0], within[0], numbers);
                let all_inside = are_inside(numbers, last);
                for (j, &picked) in (first as isize..).zip(&*numbers) {
                    if all_inside || (0..=last).contains(&picked) {
                        f(start[1] + j * within[1], far + j * within_far + picked as isize * pick);
                    } else {
                        bad(start[0] + j * within[0], picked);
                    }
                }
            }
        }
    }

    /// Processes several short runs together, in loops over the runs; the elements of a line are still
    /// processed in order.
    #[inline(never)]
    fn short_runs(&self, runs: &Runs, f: &(impl Fn(isize, isize) + Copy), bad: &(dyn Fn(isize, i64) + Sync)) {
        let Runs { outer, inner, over, within, over_far, within_far, starts } = *runs;
        let mut numbers = [0i64; NUMBERS];
        let (f, last, pick) = (*f, self.size as i64 - 1, self.lines.along[2]);
        let together = NUMBERS / inner.max(1);
        for first in (0..outer).step_by(together) {
            let numbers = &mut numbers[..together.min(outer - first) * inner];
            self.numbers(starts[0] + first as isize * over[0], within[0], numbers);
            let all_inside = are_inside(numbers, last);
            for j in 0..inner {
                let start = [0, 1].map(|l| starts[l] + j as isize * within[l]);
                let far = starts[2] + j as isize * within_far;
                for (i, &picked) in (first as isize..).zip(numbers[j..].iter().step_by(inner)) {
                    if all_inside || (0..=last).contains(&picked) {
                        f(start[1] + i * over[1], far + i * over_far + picked as isize * pick);
                    } else {
                        bad(start[0] + i * over[0], picked);
                    }
                }
            }
        }
    }

    /// Whether several lines share the same indices.
    pub(crate) fn is_shared(&self) -> bool {
        let shape = self.index_layout.shape();
        let mut axes = shape.iter().zip(self.index_layout.strides()).enumerate();
        self.index_layout.numel() > shape[self.axis]
            && axes.all(|(a, (&n, &stride))| a == self.axis || n == 1 || stride == 0)
    }

    /// Reads and checks the indices once, for all lines.
    fn run_shared(
        &self,
        by_columns: bool,
        f: &(impl Fn(isize, isize) + Sync),
        bad: &(dyn Fn(isize, i64) + Sync),
    ) {
        let Lines { length, along, across, .. } = self.lines;
        let mut numbers = vec![0i64; length];
        self.numbers(0, along[0], &mut numbers);
        if let Some(i) = numbers.iter().position(|picked| !(0..self.size as i64).contains(picked)) {
            return bad(i as isize * along[0], numbers[i]);
        }
        let far: Vec<isize> = numbers.iter().map(|&picked| picked as isize * along[2]).collect();
        self.lines.for_each(
            INDEX_BAND_LINES,
            self.index_layout.numel(),
            &|Band { lines, starts: [_, near, start] }| {
                if by_columns {
                    for (i, far) in (0..).zip(&far) {
                        let (near, far) = (near + i * along[1], start + far);
                        (0..lines as isize).for_each(|j| f(near + j * across[1], far + j * across[2]));
                    }
                } else {
                    for j in 0..lines as isize {
                        let (near, start) = (near + j * across[1], start + j * across[2]);
                        (0..).zip(&far).for_each(|(i, far)| f(near + i * along[1], start + far));
                    }
                }
            },
        );
    }

    /// Reads `numbers.len()` indices from offset `at` on, `stride` elements apart.
    fn numbers(&self, at: isize, stride: isize, numbers: &mut [i64]) {
        macro_rules! go {
            ($t:ty) => {{
                let index = self.index.at::<$t>(self.index_layout.offset()).cast_const();
                let index = index.wrapping_offset(at);
                macro_rules! read {
                    ($stride:expr) => {
                        for (j, number) in numbers.iter_mut().enumerate() {
                            // SAFETY: callers read elements of the index, whose span `go_after` or
                            // `along_one_line` checked with `require`.
                            *number = unsafe { index.wrapping_offset(j as isize * $stride).read() } as i64;
                        }
                    };
                }
                // With a stride known at compile time the loop vectorises.
                if stride == 1 { read!(1) } else { read!(stride) }
            }};
        }
        // `go` refuses other dtypes; -1 is out of range for every axis.
        by_index!(self.index.dtype, go, numbers.fill(-1));
    }
}

/// A band of lines, arranged as runs along the axis with the smaller stride: the number of runs and their
/// length, the distances between runs and within one, and the offsets of the first.
struct Runs {
    outer: usize,
    inner: usize,
    over: [isize; 3],
    within: [isize; 3],
    over_far: isize,
    within_far: isize,
    starts: [isize; 3],
}

/// Whether all are in `0..=last`. The sign bit is set for an index below 0 or above `last`; without an
/// early exit the loop vectorises.
fn are_inside(numbers: &[i64], last: i64) -> bool {
    numbers.iter().fold(0, |bits, &picked| bits | picked | last.wrapping_sub(picked)) >= 0
}

/// The indices over the axes along which they vary, and the shape of the blocks they select.
pub(crate) struct Picks {
    pub(crate) lead: SmallVec<[usize; 5]>,
    pub(crate) numbers: Vec<usize>,
    pub(crate) block: SmallVec<[usize; 5]>,
}

impl Picks {
    pub(crate) fn read(
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
        // Lines along the last axis, one after the other.
        let (&length, others) = lead.split_last().unwrap_or((&1, &[]));
        let stride = lead.len().checked_sub(1).map_or(0, |last| layout.strides()[last]);
        let mut walk = Walk::new(others, &layout.strides()[..others.len()], 0);
        macro_rules! go {
            ($t:ty) => {
                while numbers.len() < count {
                    let line = memory.at::<$t>(layout.offset()).wrapping_offset(walk.offset);
                    for i in 0..length as isize {
                        // SAFETY: `require` above checked the index's span, and this element is in it.
                        let index = unsafe { line.wrapping_offset(i * stride).read() } as i64;
                        if !(0..size as i64).contains(&index) {
                            return Err(Error::new(ErrorKind::IndexOutOfRange { op, index, axis, size }));
                        }
                        numbers.push(index as usize);
                    }
                    walk.next();
                }
            };
        }
        by_index!(dtype, go, return Err(no_index(op, dtype)));
        Ok(Picks { lead: lead.into(), numbers, block: block.into() })
    }

    /// The strides over the leading axes, with 0 for the indexed axis.
    pub(crate) fn off_axis(&self, strides: &[isize], axis: usize) -> SmallVec<[isize; 5]> {
        strides[..self.lead.len()].iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
    }
}

fn no_index(op: &'static str, dtype: DType) -> Error {
    Error::invalid(op, format!("an index cannot be {dtype}; cast it to I32"))
}

/// Whether a block with these strides is contiguous.
pub(crate) fn is_run(block: &[usize], strides: &[isize]) -> bool {
    let mut expected = 1;
    for (&d, &s) in block.iter().zip(strides).rev() {
        if d != 1 && s != expected {
            return false;
        }
        expected *= d as isize;
    }
    true
}

/// The error of a kernel whose operands do not match its body.
pub(crate) fn malformed(op: &'static str) -> Error {
    Error::invalid(op, "the kernel's operands do not match its body")
}
