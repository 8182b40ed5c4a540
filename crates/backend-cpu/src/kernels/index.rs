//! An index of [`gather`](super::gather) and [`scatter`](super::scatter). If it varies along the last axis,
//! each element moves by itself: line by line along the axis indexed. Else it is read once, over the axes
//! along which it varies; behind them lie blocks that move as one (whole rows of an embedding), and a block
//! is contiguous more often than not.
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

/// Whether no elements move as one: the index differs from place to place along the last axis of more than
/// one.
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

/// Elements that each have an index of their own: lines of the index, of what lies as the index does, and of
/// what is indexed.
pub(crate) struct ByLines<'a> {
    pub(crate) op: &'static str,
    pub(crate) index: Memory,
    pub(crate) index_layout: &'a Layout,
    pub(crate) axis: usize,
    pub(crate) size: usize,
    pub(crate) lines: Lines<3>,
}

impl ByLines<'_> {
    /// Calls `f` with the distance of each element that lies as the index does, and of the one that its index
    /// means. Along a line in ascending order; each line comes from one thread.
    pub(crate) fn go(&self, f: impl Fn(isize, isize) + Copy + Sync) -> Result<()> {
        self.go_after(None, f)
    }

    /// As [`ByLines::go`], where `before` is called with the distance of each line of what is indexed, ahead
    /// of its elements: of lines that have indices of their own.
    pub(crate) fn go_after(
        &self,
        before: Option<&(dyn Fn(isize) + Sync)>,
        f: impl Fn(isize, isize) + Copy + Sync,
    ) -> Result<()> {
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

    /// Calls `f` with the number of each element of the one line, counted modulo `N`, the distance of what
    /// lies as the index does, and the index: in order.
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

    /// How many parts lines are worth being cut in, where the order of elements does not show: more than 1
    /// where there are too few lines for all threads.
    pub(crate) fn parts(&self) -> usize {
        let threads = threads::available();
        let parts =
            threads.min(self.index_layout.numel() / COSTLY_ELEMENT_GRAIN).min(self.lines.length).max(1);
        if self.lines.tasks(INDEX_BAND_LINES) < threads { parts } else { 1 }
    }

    /// Calls `f` with each of so many parts of all lines, one after the other along them: its number, and how
    /// far what lies as the index does begins from the first element of all. Threads share the parts. The
    /// error is that of the first part with one.
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
        // Lines of one element lie side by side in any case.
        let side_by_side = match lines.across[0] {
            // One line of indices for all: what lies as the index does decides.
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
            // Along the axis itself, what is indexed stays where its line starts.
            let still = |strides: [isize; 3], along: bool| if along { 0 } else { strides[2] };
            let (over_far, within_far) = (still(over, by_columns), still(within, !by_columns));
            let runs = Runs { outer, inner, over, within, over_far, within_far, starts };
            // Several short ones are read at once, if one follows the other.
            let follow = over[0] == within[0] * inner as isize;
            match follow && 2 * inner <= NUMBERS {
                true => self.short_runs(&runs, f, bad),
                false => self.long_runs(&runs, f, bad),
            }
        };
        // What is written ahead of a long line's elements is still at hand when they come, if other lines
        // wait.
        let one_by_one = before.is_some() && !by_columns && 2 * lines.length > NUMBERS;
        lines.for_each(INDEX_BAND_LINES, self.index_layout.numel(), &|Band { lines: count, starts }| {
            match one_by_one {
                true => (0..count as isize)
                    .for_each(|line| band(1, [0, 1, 2].map(|l| starts[l] + line * lines.across[l]))),
                false => band(count, starts),
            }
        });
    }

    /// Runs one by one.
    #[inline(always)]
    fn long_runs(&self, runs: &Runs, f: &(impl Fn(isize, isize) + Copy), bad: &(dyn Fn(isize, i64) + Sync)) {
        let Runs { outer, inner, over, within, over_far, within_far, starts } = *runs;
        let mut numbers = [0i64; NUMBERS];
        // Copies, which what `f` writes cannot change: they stay in registers.
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

    /// Runs that are shorter than what is read at once, several together, in loops over the runs: along a
    /// line elements come in the same order.
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

    /// Whether several lines go by the same indices.
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

    /// Reads indices from distance `at` on, `stride` elements apart, of which the line has as many.
    fn numbers(&self, at: isize, stride: isize, numbers: &mut [i64]) {
        macro_rules! go {
            ($t:ty) => {{
                let index = self.index.at::<$t>(self.index_layout.offset()).cast_const();
                let index = index.wrapping_offset(at);
                macro_rules! read {
                    ($stride:expr) => {
                        for (j, number) in numbers.iter_mut().enumerate() {
                            // SAFETY: the index's span was checked.
                            *number = unsafe { index.wrapping_offset(j as isize * $stride).read() } as i64;
                        }
                    };
                }
                // A stride that the compiler knows is read in vectors.
                if stride == 1 { read!(1) } else { read!(stride) }
            }};
        }
        // `go` refuses other types; a number that is no index is beyond every axis.
        by_index!(self.index.dtype, go, numbers.fill(-1));
    }
}

/// A band of lines as runs along what lies closest: how many and how long, the distances from run to run and
/// within one, and where the first begins.
struct Runs {
    outer: usize,
    inner: usize,
    over: [isize; 3],
    within: [isize; 3],
    over_far: isize,
    within_far: isize,
    starts: [isize; 3],
}

/// Whether all are from 0 to the last. By the sign bit of an index below 0 or beyond it: found in vectors, as
/// there is no way out of the loop.
fn are_inside(numbers: &[i64], last: i64) -> bool {
    numbers.iter().fold(0, |bits, &picked| bits | picked | last.wrapping_sub(picked)) >= 0
}

/// An index over the axes along which it varies, and the shape of the blocks behind them.
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
                        // SAFETY: the span was checked.
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

    /// Strides over the leading axes, without the one that is picked from.
    pub(crate) fn off_axis(&self, strides: &[isize], axis: usize) -> SmallVec<[isize; 5]> {
        strides[..self.lead.len()].iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
    }
}

fn no_index(op: &'static str, dtype: DType) -> Error {
    Error::invalid(op, format!("an index cannot be {dtype}; cast it to I32"))
}

/// Whether a block with these strides is one run of memory.
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

/// The error of a kernel with other operands than its body has.
pub(crate) fn malformed(op: &'static str) -> Error {
    Error::invalid(op, "the kernel has other operands than its body")
}
