//! WGSL that converts a flat row-major position to the offsets of strided operands: one division for each
//! axis except the first. Sizes and strides are parameters; only the number of axes is part of the text.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{Layout, Shape};

use crate::codegen::{dispatch::Params, wgsl::Code};

/// An index space in a dispatch: its sizes are parameters `<space><axis>`, its coordinates local variables
/// `<space>c<axis>`.
pub(crate) struct Space {
    name: &'static str,
    rank: usize,
}

impl Space {
    /// Adds the sizes of `shape` to the parameters.
    pub(crate) fn new(name: &'static str, shape: &[usize], params: &mut Params) -> Space {
        for (axis, &size) in shape.iter().enumerate().skip(1) {
            params.size(format!("{name}{axis}"), size);
        }
        Space { name, rank: shape.len() }
    }

    /// Statements that split the flat position `from` into coordinates.
    pub(crate) fn unravel(&self, from: &str) -> String {
        let Space { name, rank } = *self;
        let mut c = Code::default();
        let mut rest = from.to_string();
        for axis in (1..rank).rev() {
            c.bind(format_args!("{name}q{axis}"), format_args!("{rest} / params.{name}{axis}"));
            c.bind(
                format_args!("{name}c{axis}"),
                format_args!("{rest} - {name}q{axis} * params.{name}{axis}"),
            );
            rest = format!("{name}q{axis}");
        }
        if rank > 0 {
            c.bind(format_args!("{name}c0"), rest);
        }
        c.text().to_string()
    }

    /// Adds the strides of an operand to the parameters; returns the expression of its offset, with a
    /// leading plus. Axes of stride 0 are kept, so that the text does not depend on which strides are 0.
    pub(crate) fn offset(&self, operand: &str, strides: &[isize], params: &mut Params) -> String {
        let mut out = String::new();
        for (axis, &stride) in strides.iter().enumerate().take(self.rank) {
            let word = format!("{operand}{}{axis}", self.name);
            params.stride(&word, stride);
            let _ = write!(out, " + {}c{axis} * params.{word}", self.name);
        }
        out
    }
}

/// A function `name(i) -> u32`: the buffer index at flat position `i` of `shape`, for an operand at
/// `offset` with `strides`. Axes are merged where possible.
pub(crate) fn function(
    name: &'static str,
    shape: &[usize],
    strides: &[isize],
    offset: usize,
    params: &mut Params,
) -> String {
    let collapsed = tensor_core::collapse(shape, &[strides]);
    let (shape, strides) = (&collapsed.shape, &collapsed.strides[0]);
    let space = Space::new(name, shape, params);
    params.size(format!("{name}_offset"), offset);
    let sum = space.offset(name, strides, params);
    let mut c = Code::default();
    c.function(name, &[("i", "u32")], "u32", |c| {
        c.append(&space.unravel("i"));
        c.line(format_args!("return params.{name}_offset{sum};"));
    });
    c.text().to_string()
}

/// A function `places(i) -> vec2<u32>` or `vec3<u32>`: the buffer indices at flat position `i` of `shape`
/// for two or three operands with these strides and offsets. Axes are merged if all operands allow it.
pub(crate) fn places(shape: &[usize], operands: &[(&[isize], usize)], params: &mut Params) -> String {
    let strides: SmallVec<[&[isize]; 3]> = operands.iter().map(|&(strides, _)| strides).collect();
    let merged = tensor_core::collapse(shape, &strides);
    let space = Space::new("p", &merged.shape, params);
    let sums: Vec<String> = ["a", "b", "c"]
        .into_iter()
        .zip(operands)
        .zip(&merged.strides)
        .map(|((name, &(_, offset)), strides)| {
            params.size(format!("{name}_offset"), offset);
            format!("params.{name}_offset{}", space.offset(name, strides, params))
        })
        .collect();
    let vector = format!("vec{}<u32>", sums.len());
    let mut c = Code::default();
    c.function("places", &[("i", "u32")], &vector, |c| {
        c.append(&space.unravel("i"));
        c.line(format_args!("return {vector}({});", sums.join(", ")));
    });
    c.text().to_string()
}

/// The lines along `axis` of an input, and of a row-major output that may be shorter along it.
pub(crate) struct Lines<'a> {
    pub(crate) input: &'a Layout,
    pub(crate) output: &'a Shape,
    pub(crate) axis: usize,
}

impl Lines<'_> {
    /// The sizes of the other axes.
    fn others(&self) -> SmallVec<[usize; 8]> {
        without(self.input.shape(), self.axis)
    }

    /// The number of lines.
    pub(crate) fn count(&self) -> usize {
        self.others().iter().product()
    }

    /// The number of elements in a line of the input.
    pub(crate) fn length(&self) -> usize {
        self.input.shape()[self.axis]
    }

    /// The stride between elements of a line in the input.
    pub(crate) fn stride(&self) -> isize {
        self.input.strides()[self.axis]
    }

    /// The stride between elements of a line in the output.
    pub(crate) fn output_stride(&self) -> isize {
        self.output.contiguous_strides()[self.axis]
    }

    /// The function `input_at(line)`: the offset of element `first` of line `line` in the input.
    pub(crate) fn input_at(&self, first: usize, params: &mut Params) -> String {
        let offset = self.input.offset() as isize + first as isize * self.stride();
        let strides = without(self.input.strides(), self.axis);
        function("input_at", &self.others(), &strides, offset as usize, params)
    }

    /// The function `output_at(line)`: the same for the output.
    pub(crate) fn output_at(&self, first: usize, params: &mut Params) -> String {
        let strides = self.output.contiguous_strides();
        let offset = first * strides[self.axis].unsigned_abs();
        function("output_at", &self.others(), &without(&strides, self.axis), offset, params)
    }
}

/// A list without the entry for one axis.
pub(crate) fn without<T: Copy>(all: &[T], axis: usize) -> SmallVec<[T; 8]>
where
    [T; 8]: smallvec::Array<Item = T>,
{
    all.iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, &x)| x).collect()
}
