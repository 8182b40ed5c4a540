//! Gathers: reading by index along an axis, in runs of elements that one index is for.

use tensor_core::{collapse, kernel::Kernel};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Resource},
        dtypes::{storage_size, storage_type},
        index,
    },
    kernels::{
        by_index::{Along, fours, index_functions, off_axis},
        copy,
    },
};

/// The dispatch of a gather from the part of the table that the kernel has.
pub(crate) fn dispatch(kernel: &Kernel, along: Along, capabilities: &Capabilities) -> Dispatch {
    let (axis, dtype) = (along.axis, kernel.outputs[0].dtype);
    let (input, index) = (&kernel.operands[0].layout, &kernel.operands[1].layout);
    let index_dtype = kernel.operands[1].dtype;
    let merged = collapse(index.shape(), &[index.strides(), &off_axis(input.strides(), axis)]);
    let (mut shape, mut strides) = (merged.shape, merged.strides);
    let mut axis_stride = input.strides()[axis];
    let mut offset = input.offset();
    // The elements that one index is for, one after another in the output.
    let (mut run, mut run_stride) = (1, 0);
    if let (Some(&n), Some(0)) = (shape.last(), strides[0].last()) {
        shape.pop();
        strides[0].pop();
        (run, run_stride) = (n, strides[1].pop().unwrap_or(0));
    }
    let vectors = storage_size(dtype) == 4
        && run_stride == 1
        && fours(&[run as isize, axis_stride, offset as isize])
        && fours(&strides[1]);
    let word = match storage_size(dtype) {
        8 => "vec2<u32>",
        _ if vectors => "vec4<u32>",
        _ => "u32",
    };
    if vectors {
        (run, offset, axis_stride) = (run / 4, offset / 4, axis_stride / 4);
        strides[1].iter_mut().for_each(|s| *s /= 4);
    }
    let mut d = Dispatch::new("gather");
    copy::in_runs(shape.iter().product(), run, STEP, &mut d, capabilities);
    d.params.stride("run_stride", run_stride);
    d.params.size("start", along.start);
    d.params.size("count", input.shape()[axis]);
    d.params.size("size", along.size);
    d.params.stride("axis_stride", axis_stride);
    d.bind("input", word, false, Resource::Input(0));
    d.bind("index", storage_type(index_dtype), false, Resource::Input(1));
    d.bind("output", word, true, Resource::Output(0));
    d.code.line(format_args!("alias Word = {word};"));
    index_functions(index_dtype, &mut d);
    let operands = [(&strides[0][..], index.offset()), (&strides[1][..], offset)];
    d.code.append(&index::places(&shape, &operands, &mut d.params));
    d.code.kernel(256, taper_shaders::GATHER);
    d
}

/// The most words that one invocation of a software adapter reads from one place.
const STEP: usize = 64;
