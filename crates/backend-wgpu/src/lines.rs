//! The lines of a kernel that works along one axis: where each begins, in the input and in a row-major output.

use smallvec::SmallVec;
use tensor_core::{Layout, Shape};

use crate::{draft::Params, index};

/// The lines along `axis` of an input and of an output that may be shorter along it.
pub(crate) struct Lines<'a> {
    pub(crate) input: &'a Layout,
    pub(crate) output: &'a Shape,
    pub(crate) axis: usize,
}

impl Lines<'_> {
    /// The sizes of the other axes.
    fn others(&self) -> SmallVec<[usize; 8]> {
        off(self.input.shape(), self.axis)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.others().iter().product()
    }

    /// Elements of an input's line.
    pub(crate) fn length(&self) -> usize {
        self.input.shape()[self.axis]
    }

    /// The distance from one element of a line to the next, in the input.
    pub(crate) fn stride(&self) -> isize {
        self.input.strides()[self.axis]
    }

    /// The distance from one element of a line to the next, in the output.
    pub(crate) fn output_stride(&self) -> isize {
        self.output.contiguous_strides()[self.axis]
    }

    /// The function `input_at(line)`: where line `line` has its element `first`.
    pub(crate) fn input_at(&self, first: usize, params: &mut Params) -> String {
        let offset = self.input.offset() as isize + first as isize * self.stride();
        let strides = off(self.input.strides(), self.axis);
        index::function("input_at", &self.others(), &strides, offset as usize, params)
    }

    /// The function `output_at(line)`: likewise in the output.
    pub(crate) fn output_at(&self, first: usize, params: &mut Params) -> String {
        let strides = self.output.contiguous_strides();
        let offset = first * strides[self.axis].unsigned_abs();
        index::function("output_at", &self.others(), &off(&strides, self.axis), offset, params)
    }
}

/// A list without the entry of one axis.
fn off<T: Copy>(all: &[T], axis: usize) -> SmallVec<[T; 8]>
where
    [T; 8]: smallvec::Array<Item = T>,
{
    all.iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, &x)| x).collect()
}
