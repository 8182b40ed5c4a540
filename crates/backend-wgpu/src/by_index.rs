//! Gather and scatter-add. A bad index reads as 0 (or is not added) and is written down in the launch's slot of the device's
//! fault table.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{BinaryOp, DType, Result, Strides, collapse, kernel::Kernel};

use crate::{
    capabilities::Capabilities,
    copy,
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::{storage_size, storage_type},
    formulas, index,
};

/// Functions to read an index: its value with a mark when it does not fit a word, and the report of a bad one.
fn index_functions(dtype: DType, d: &mut Dispatch) -> String {
    d.params.fault();
    d.bind("faults", "atomic<u32>", true, Resource::Faults);
    let t = storage_type(dtype);
    let (low, high) = match t {
        "u32" => ("word", "0u"),
        "i32" => ("bitcast<u32>(word)", "select(0u, 0xffffffffu, word < 0)"),
        _ => ("u32_from_i64(word)", "u32_from_i64(word >> 32u)"),
    };
    format!(
        "fn index_value(word: {t}) -> vec2<u32> {{\n    return vec2<u32>({low}, {high});\n}}\n\
         fn report(word: {t}) {{\n    if (atomicExchange(&faults[params.fault], 1u) == 0u) {{\n        atomicStore(&faults[params.fault + 1u], {low});\n        atomicStore(&faults[params.fault + 2u], {high});\n    }}\n}}\n"
    )
}

/// Which part of the axis that is indexed a kernel's table or result has: a kernel over more of it than one binding shows is
/// several, each over a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Along {
    pub(crate) axis: usize,
    /// Where the part starts.
    pub(crate) start: usize,
    /// The size of the whole axis: of all that an index may name.
    pub(crate) size: usize,
}

/// The strides of a layout with the one along `axis` set to 0, so that walking it stays at the axis's start.
fn off_axis(strides: &[isize], axis: usize) -> Strides {
    strides.iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
}

fn fours(numbers: &[isize]) -> bool {
    numbers.iter().all(|n| n % 4 == 0)
}

/// The dispatch of a gather from the part of the table that the kernel has.
pub(crate) fn gather(kernel: &Kernel, along: Along, capabilities: &Capabilities) -> Dispatch {
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
    let mut body = format!("alias Word = {word};\n");
    body.push_str(&index_functions(index_dtype, &mut d));
    let operands = [(&strides[0][..], index.offset()), (&strides[1][..], offset)];
    body.push_str(&index::places(&shape, &operands, &mut d.params));
    body.push_str(taper_shaders::GATHER);
    d.code.append(&body);
    d
}

/// The most words that one thread of a processor reads from one place.
const STEP: usize = 64;

/// The dispatches of a scatter-add to the part of the result that the kernel has, whose base is in the output already.
pub(crate) fn scatter_add(kernel: &Kernel, along: Along, capabilities: &Capabilities) -> Result<Dispatches> {
    let list = scatter_more(kernel, along, capabilities)?.into_iter().chain(scatter_round(kernel));
    Ok(Dispatches { list: list.collect(), temporaries: Vec::new() })
}

/// The step of a scatter-add that adds to the output, not rounded.
pub(crate) fn scatter_more(
    kernel: &Kernel,
    along: Along,
    capabilities: &Capabilities,
) -> Result<Option<Dispatch>> {
    let (axis, dtype) = (along.axis, kernel.outputs[0].dtype);
    let (out_shape, src_shape) = (&kernel.space, kernel.operands[2].layout.shape());
    let length = src_shape[axis];
    let lines = src_shape.iter().enumerate().filter(|&(a, _)| a != axis).map(|(_, &n)| n).product::<usize>();
    let Some(sum) = formulas::binary(BinaryOp::Add, dtype, "a", "b").filter(|_| dtype != DType::Bool) else {
        return Err(capabilities.unsupported("scatter_add", dtype, "cast first with .to_dtype(DType::F32)"));
    };
    if lines * length == 0 {
        return Ok(None);
    }
    // What the slowest thread does in each form. The threads that keep a processor busy run a few at a time.
    let threads = if capabilities.direct { capabilities.invocations / 16 } else { capabilities.invocations };
    let by_element = out_shape.numel().div_ceil(threads) * length;
    let by_line = lines.div_ceil(threads) * length;
    // With no output to own, only the lines still look at every index, and tell of it: each is out of range.
    let nowhere = out_shape.numel() == 0;
    Ok(Some(if nowhere || by_line.saturating_mul(2) < by_element {
        scatter_lines(kernel, along, lines, &sum)
    } else {
        scatter_elements(kernel, along, &sum)
    }))
}

/// The last step of a scatter-add of a half type: sums are rounded when all is added, and not after every addition.
pub(crate) fn scatter_round(kernel: &Kernel) -> Option<Dispatch> {
    let (dtype, total) = (kernel.outputs[0].dtype, kernel.space.numel());
    if dtype.compute() == dtype || total == 0 || kernel.operands[2].layout.numel() == 0 {
        return None;
    }
    let mut d = Dispatch::new("scatter_round");
    d.params.size("total", total);
    d.bind("output", storage_type(dtype), true, Resource::Output(0));
    d.code.entry(256, |c| {
        c.bind("i", "workgroup_index * 256u + local_index");
        c.return_if("i >= params.total");
        c.set("output[i]", formulas::store(dtype, "output[i]"));
    });
    d.workgroups = total.div_ceil(256);
    d.work = 256;
    Some(d)
}

/// What both forms of a scatter-add begin with: the dispatch, and functions to read an index and to add.
fn scatter_parts(kernel: &Kernel, along: Along, element: &str, sum: &str) -> (Dispatch, String) {
    let (axis, index_dtype) = (along.axis, kernel.operands[1].dtype);
    let (index, src) = (&kernel.operands[1].layout, &kernel.operands[2].layout);
    let mut d = Dispatch::new("scatter_add");
    d.params.size("start", along.start);
    d.params.size("size", along.size);
    d.params.size("length", src.shape()[axis]);
    d.params.stride("index_stride", index.strides()[axis]);
    d.bind("index", storage_type(index_dtype), false, Resource::Input(1));
    d.bind("src", element, false, Resource::Input(2));
    d.bind("output", element, true, Resource::Output(0));
    let add = format!(
        "alias T = {element};\nfn add(a: {element}, b: {element}) -> {element} {{\n    return {sum};\n}}\n"
    );
    let body = add + &index_functions(index_dtype, &mut d);
    (d, body)
}

/// A thread for each line along the axis, or for four that lie side by side.
fn scatter_lines(kernel: &Kernel, along: Along, lines: usize, sum: &str) -> Dispatch {
    let (axis, dtype) = (along.axis, kernel.outputs[0].dtype);
    let (index, src) = (&kernel.operands[1].layout, &kernel.operands[2].layout);
    let mut shape: SmallVec<[usize; 8]> = src.shape().iter().copied().collect();
    shape[axis] = 1;
    let output = kernel.space.contiguous_strides();
    let merged = collapse(&shape, &[index.strides(), src.strides(), &output]);
    let (mut shape, mut strides) = (merged.shape, merged.strides);
    let mut steps = [src.strides()[axis], output[axis]];
    let mut offset = src.offset();
    let side_by_side = |strides: &[Strides]| {
        strides.iter().map(|s| s.last().copied()).eq([Some(0), Some(1), Some(1)])
            && strides[1..].iter().all(|s| fours(&s[..s.len() - 1]))
    };
    let vectors = matches!(dtype, DType::F32 | DType::I32 | DType::U32)
        && shape.last().is_some_and(|n| n % 4 == 0)
        && fours(&[steps[0], steps[1], offset as isize])
        && side_by_side(&strides);
    let unit = if vectors { 4 } else { 1 };
    if vectors {
        shape.iter_mut().rev().take(1).for_each(|n| *n /= 4);
        for strides in &mut strides[1..] {
            let last = strides.len() - 1;
            strides[..last].iter_mut().for_each(|s| *s /= 4);
        }
        steps.iter_mut().for_each(|s| *s /= 4);
        offset /= 4;
    }
    let t = storage_type(dtype);
    let element = if vectors { format!("vec4<{t}>") } else { t.into() };
    let (mut d, mut body) = scatter_parts(kernel, along, &element, sum);
    // Few invocations with much to do each: small workgroups keep every core busy.
    let group = 32;
    d.params.size("total", lines / unit);
    d.params.size("count", kernel.space[axis]);
    d.params.stride("src_stride", steps[0]);
    d.params.stride("output_stride", steps[1]);
    let offsets = [index.offset(), offset, 0];
    let operands: SmallVec<[(&[isize], usize); 3]> =
        strides.iter().zip(offsets).map(|(s, offset)| (&s[..], offset)).collect();
    body.push_str(&index::places(&shape, &operands, &mut d.params));
    let _ = writeln!(body, "const GROUP = {group}u;");
    body.push_str(taper_shaders::SCATTER_LINE);
    d.code.append(&body);
    d.workgroups = (lines / unit).div_ceil(group);
    d.work = group * src.shape()[axis];
    d
}

/// A thread for each element of the output.
fn scatter_elements(kernel: &Kernel, along: Along, sum: &str) -> Dispatch {
    let (axis, dtype) = (along.axis, kernel.outputs[0].dtype);
    let (index, src) = (&kernel.operands[1].layout, &kernel.operands[2].layout);
    let (shape, src_shape) = (&kernel.space, src.shape());
    let t = storage_type(dtype);
    let (mut d, mut body) = scatter_parts(kernel, along, t, sum);
    d.params.size("total", shape.numel());
    d.params.stride("src_stride", src.strides()[axis]);
    let operands = [
        (&off_axis(index.strides(), axis)[..], index.offset()),
        (&off_axis(src.strides(), axis)[..], src.offset()),
    ];
    body.push_str(&index::places(shape, &operands, &mut d.params));
    // Coordinates of an output element: along the axis, and whether the source reaches it off the axis.
    let strides = shape.contiguous_strides();
    d.params.size("axis_step", strides[axis].unsigned_abs());
    d.params.size("count", shape[axis]);
    body.push_str("fn along(i: u32) -> u32 {\n    return (i / params.axis_step) % params.count;\n}\n");
    body.push_str("fn inside(i: u32) -> bool {\n    var inside = true;\n");
    for a in (0..shape.rank()).filter(|&a| a != axis && src_shape[a] < shape[a]) {
        d.params.size(format!("step{a}"), strides[a].unsigned_abs());
        d.params.size(format!("size{a}"), shape[a]);
        d.params.size(format!("reach{a}"), src_shape[a]);
        let _ =
            writeln!(body, "    inside = inside && (i / params.step{a}) % params.size{a} < params.reach{a};");
    }
    body.push_str("    return inside;\n}\n");
    body.push_str(taper_shaders::SCATTER_ELEMENT);
    d.code.append(&body);
    d.workgroups = shape.numel().div_ceil(256);
    d.work = 256 * src_shape[axis];
    d
}
