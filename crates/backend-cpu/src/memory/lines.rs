//! Row-major iteration over the positions of a shape, lines along one axis, and the sharing of their work
//! between threads.

use smallvec::SmallVec;
use tensor_core::{Layout, Strides, collapse};

use crate::{threads, tuning::SERIAL_LINE_ELEMENTS};

/// The offset of an element as the positions of a shape are visited in row-major order.
pub(crate) struct Walk<'a> {
    dims: &'a [usize],
    strides: &'a [isize],
    index: SmallVec<[usize; 5]>,
    pub(crate) offset: isize,
}

impl<'a> Walk<'a> {
    /// Starts at row-major position `start`.
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

/// Calls `f` with pieces of `0..count`, in parallel if the work is worth it.
///
/// `f` is called through a pointer, so its loops are compiled once.
pub(crate) fn pieces(count: usize, work: usize, f: &(dyn Fn(usize, usize) + Sync)) {
    if work < SERIAL_LINE_ELEMENTS || threads::available() == 1 {
        return f(0, count);
    }
    threads::share_ranges(count, 1, |some| f(some.start, some.end));
}

/// All lines along one axis of several layouts. The layouts agree on the sizes of the other axes of the
/// first. Those axes are merged where every layout allows it; neighbouring lines along the last of them
/// form a band.
#[derive(Clone)]
pub(crate) struct Lines<const N: usize> {
    dims: SmallVec<[usize; 5]>,
    strides: [Strides; N],
    band: usize,
    /// The distance between neighbouring lines of a band, in each layout.
    pub(crate) across: [isize; N],
    /// The distance between neighbouring elements of a line, in each layout.
    pub(crate) along: [isize; N],
    /// The number of elements in a line of the first layout.
    pub(crate) length: usize,
}

/// Neighbouring lines: their number, and the offset of the first line in each layout.
pub(crate) struct Band<const N: usize> {
    pub(crate) lines: usize,
    pub(crate) starts: [isize; N],
}

impl<const N: usize> Lines<N> {
    pub(crate) fn new(layouts: [&Layout; N], axis: usize) -> Lines<N> {
        let others = |all: &[isize]| -> Strides {
            all.iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, &s)| s).collect()
        };
        let shape = layouts[0].shape();
        let sizes = shape.iter().enumerate().filter(|(a, _)| *a != axis);
        let sizes: SmallVec<[usize; 5]> = sizes.map(|(_, &n)| n).collect();
        let strides = layouts.map(|layout| others(layout.strides()));
        let merged = collapse(&sizes, &strides.each_ref().map(|s| s.as_slice()));
        let mut dims = merged.shape;
        let mut strides: [Strides; N] = std::array::from_fn(|l| merged.strides[l].clone());
        Lines {
            band: dims.pop().unwrap_or(1),
            across: strides.each_mut().map(|s| s.pop().unwrap_or(0)),
            along: layouts.map(|layout| layout.strides()[axis]),
            length: shape[axis],
            dims,
            strides,
        }
    }

    /// Whether there is one line.
    pub(crate) fn is_one(&self) -> bool {
        self.band == 1 && self.dims.is_empty()
    }

    /// The same lines, cut to their first `length` elements.
    pub(crate) fn first(&self, length: usize) -> Lines<N> {
        Lines { length, ..self.clone() }
    }

    /// The number of tasks of [`Lines::for_each`].
    pub(crate) fn tasks(&self, width: usize) -> usize {
        self.dims.iter().product::<usize>() * self.band.div_ceil(width)
    }

    /// Whether neighbours in the first layout belong to neighbouring lines, not to the same line.
    pub(crate) fn side_by_side(&self) -> bool {
        self.band > 1 && self.across[0].unsigned_abs() < self.along[0].unsigned_abs()
    }

    /// Calls `f` with all lines, at most `width` at a time, in parallel if `work` is large enough.
    pub(crate) fn for_each(&self, width: usize, work: usize, f: &(dyn Fn(Band<N>) + Sync)) {
        let blocks = self.band.div_ceil(width);
        pieces(self.tasks(width), work, &|start, end| {
            let mut walks = self.strides.each_ref().map(|s| Walk::new(&self.dims, s, start / blocks.max(1)));
            for task in start..end {
                let first = task % blocks * width;
                f(Band {
                    lines: width.min(self.band - first),
                    starts: std::array::from_fn(|l| walks[l].offset + first as isize * self.across[l]),
                });
                if task % blocks + 1 == blocks {
                    walks.iter_mut().for_each(Walk::next);
                }
            }
        });
    }
}
