//! WGSL that turns a flat row-major position into the offsets of strided operands: one division for each axis but
//! the first, with sizes and strides as parameters. Only the number of axes is text.

use std::fmt::Write;

use smallvec::SmallVec;

use crate::draft::Params;

/// An index space in a draft: its axes are parameters `<space><axis>`, its coordinates locals `<space>c<axis>`.
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
        let mut out = String::new();
        let mut rest = from.to_string();
        for axis in (1..rank).rev() {
            let _ = writeln!(out, "    let {name}q{axis} = {rest} / params.{name}{axis};");
            let _ = writeln!(out, "    let {name}c{axis} = {rest} - {name}q{axis} * params.{name}{axis};");
            rest = format!("{name}q{axis}");
        }
        if rank > 0 {
            let _ = writeln!(out, "    let {name}c0 = {rest};");
        }
        out
    }

    /// Adds strides of an operand to the parameters; gives the expression of the offset they make, with a leading
    /// plus. Axes of stride 0 everywhere are kept: which are 0 is not structure.
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

/// A function `name(i) -> u32`: the buffer index at flat position `i` of `shape`, for an operand at `offset` with
/// `strides`. Axes are merged first.
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
    format!("fn {name}(i: u32) -> u32 {{\n{}    return params.{name}_offset{sum};\n}}\n", space.unravel("i"))
}

/// A function `places(i) -> vec2<u32>` or `vec3<u32>`: the buffer indices at flat position `i` of `shape`, for two or three
/// operands with their strides and offsets. Axes are merged first, those that all operands can merge.
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
    let (count, sums) = (sums.len(), sums.join(", "));
    format!(
        "fn places(i: u32) -> vec{count}<u32> {{\n{}    return vec{count}<u32>({sums});\n}}\n",
        space.unravel("i")
    )
}
