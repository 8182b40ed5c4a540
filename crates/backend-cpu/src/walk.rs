//! Positions of a shape in row-major order, what it takes to go along one axis, and work shared among threads.

use rayon::prelude::*;
use smallvec::SmallVec;
use tensor_core::{Layout, Strides, collapse};

use crate::threads;

/// Elements below which the work stays on the calling thread.
const PARALLEL: usize = 1 << 17;

/// The distance from the first element as the positions of a shape go by in row-major order.
pub(crate) struct Walk<'a> {
    dims: &'a [usize],
    strides: &'a [isize],
    index: SmallVec<[usize; 5]>,
    pub(crate) offset: isize,
}

impl<'a> Walk<'a> {
    /// A walk that begins at flat position `start`.
    pub(crate) fn new(dims: &'a [usize], strides: &'a [isize], start: usize) -> Walk<'a> {
        let mut walk = Walk { dims, strides, index: SmallVec::from_elem(0, dims.len()), offset: 0 };
        let mut rest = start;
        for axis in (0..dims.len()).rev() {
            walk.index[axis] = rest % dims[axis].max(1);
            rest /= dims[axis].max(1);
            walk.offset += walk.index[axis] as isize * strides[axis];
        }
        walk
    }

    pub(crate) fn next(&mut self) {
        for axis in (0..self.dims.len()).rev() {
            self.index[axis] += 1;
            self.offset += self.strides[axis];
            if self.index[axis] < self.dims[axis] {
                return;
            }
            self.offset -= self.strides[axis] * self.dims[axis] as isize;
            self.index[axis] = 0;
        }
    }
}

/// `0..count` in a few pieces, side by side where the work is worth it.
pub(crate) fn pieces(count: usize, work: usize, f: impl Fn(usize, usize) + Sync) {
    let threads = threads::available();
    if work < PARALLEL || threads == 1 {
        return f(0, count);
    }
    let piece = count.div_ceil(threads * 4).max(1);
    (0..count.div_ceil(piece)).into_par_iter().for_each(|i| f(i * piece, count.min((i + 1) * piece)));
}

/// All lines along one axis of an input and a row-major output, which may be shorter along it. The other axes are merged where both
/// allow it; lines that are neighbours on the last of them make a band.
pub(crate) struct Lines {
    dims: SmallVec<[usize; 5]>,
    from: Strides,
    to: Strides,
    /// Lines of a band, and the distance from one to the next.
    pub(crate) band: usize,
    pub(crate) across: (isize, isize),
    /// The distance from one element of a line to the next.
    pub(crate) along: (isize, isize),
    /// Elements of an input's line.
    pub(crate) length: usize,
}

/// Some neighbouring lines: how many, and the first elements of the first, from those of the layouts.
pub(crate) struct Band {
    pub(crate) lines: usize,
    pub(crate) from: isize,
    pub(crate) to: isize,
}

impl Lines {
    pub(crate) fn new(input: &Layout, output: &Layout, axis: usize) -> Lines {
        let others = |all: &[isize]| -> Strides {
            all.iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, &s)| s).collect()
        };
        let sizes = input.shape().iter().enumerate().filter(|(a, _)| *a != axis);
        let sizes: SmallVec<[usize; 5]> = sizes.map(|(_, &n)| n).collect();
        let merged = collapse(&sizes, &[&others(input.strides()), &others(output.strides())]);
        let (mut dims, mut from) = (merged.shape, merged.strides[0].clone());
        let mut to = merged.strides[1].clone();
        let band = dims.pop().unwrap_or(1);
        Lines {
            band,
            across: (from.pop().unwrap_or(0), to.pop().unwrap_or(0)),
            along: (input.strides()[axis], output.strides()[axis]),
            length: input.shape()[axis],
            dims,
            from,
            to,
        }
    }

    /// Calls `f` with all lines, at most `width` at a time, side by side where `work` is worth it.
    pub(crate) fn for_each(&self, width: usize, work: usize, f: impl Fn(Band) + Sync) {
        let blocks = self.band.div_ceil(width);
        let bands: usize = self.dims.iter().product();
        pieces(bands * blocks, work, |start, end| {
            let mut from = Walk::new(&self.dims, &self.from, start / blocks.max(1));
            let mut to = Walk::new(&self.dims, &self.to, start / blocks.max(1));
            for task in start..end {
                let first = task % blocks * width;
                f(Band {
                    lines: width.min(self.band - first),
                    from: from.offset + first as isize * self.across.0,
                    to: to.offset + first as isize * self.across.1,
                });
                if task % blocks + 1 == blocks {
                    from.next();
                    to.next();
                }
            }
        });
    }
}
