//! Gather and scatter-add. A bad index reads as 0 (or is not added) and is written down in the device's status
//! buffer, which every read-back looks at.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{
    BinaryOp, DType, Error, Layout, Result,
    kernel::{GatherKernel, ScatterAddKernel},
};

use crate::{
    draft::{Draft, Drafts, Facts, Slot},
    dtypes::{lane, lane_size},
    formulas, index,
};

/// Words of the status buffer: whether taken, the operation, axis, size, and the index in two words.
pub(crate) const STATUS_WORDS: usize = 8;

const GATHER: u32 = 1;
const SCATTER_ADD: u32 = 2;

/// The error that the status buffer tells of, if any.
pub(crate) fn fault(words: &[u32]) -> Option<Error> {
    let &[taken, op, axis, size, low, high, ..] = words else { return None };
    (taken != 0).then(|| Error::IndexOutOfRange {
        op: if op == SCATTER_ADD { "scatter_add" } else { "gather" },
        index: (u64::from(low) | u64::from(high) << 32) as i64,
        axis: axis as usize,
        size: size as usize,
    })
}

/// Functions to read an index: its value with a mark when it does not fit a word, and the report of a bad one.
fn index_functions(dtype: DType, op: u32, axis: usize, d: &mut Draft) -> String {
    d.params.size("axis", axis);
    d.bind("status", "atomic<u32>", true, Slot::Status);
    let t = lane(dtype);
    let (low, high) = match t {
        "u32" => ("word", "0u"),
        "i32" => ("bitcast<u32>(word)", "select(0u, 0xffffffffu, word < 0)"),
        _ => ("u32_from_i64(word)", "u32_from_i64(word >> 32u)"),
    };
    format!(
        "fn index_value(word: {t}) -> vec2<u32> {{\n    return vec2<u32>({low}, {high});\n}}\n\
         fn report(word: {t}) {{\n    if (atomicExchange(&status[0], 1u) == 0u) {{\n        atomicStore(&status[1], {op}u);\n        atomicStore(&status[2], params.axis);\n        atomicStore(&status[3], params.size);\n        atomicStore(&status[4], {low});\n        atomicStore(&status[5], {high});\n    }}\n}}\n"
    )
}

/// The strides of a layout with the one along `axis` set to 0, so that walking it stays at the axis's start.
fn off_axis(layout: &Layout, axis: usize) -> SmallVec<[isize; 8]> {
    layout.strides().iter().enumerate().map(|(a, &s)| if a == axis { 0 } else { s }).collect()
}

/// The draft of a gather.
pub(crate) fn gather(kernel: &GatherKernel) -> Result<Drafts> {
    let GatherKernel { axis, dtype, index_dtype, input, index } = kernel;
    let shape = index.shape();
    let total = shape.numel();
    let mut d = Draft::new("gather");
    d.params.size("total", total);
    d.params.size("size", input.shape()[*axis]);
    d.params.stride("axis_stride", input.strides()[*axis]);
    let word = if lane_size(*dtype) == 8 { "vec2<u32>" } else { "u32" };
    d.bind("input", word, false, Slot::Input(0));
    d.bind("index", lane(*index_dtype), false, Slot::Input(1));
    d.bind("output", word, true, Slot::Output(0));
    let mut body = format!("alias Word = {word};\n");
    body.push_str(&index_functions(*index_dtype, GATHER, *axis, &mut d));
    body.push_str(&index::function(
        "input_at",
        shape,
        &off_axis(input, *axis),
        input.offset(),
        &mut d.params,
    ));
    body.push_str(&index::function("index_at", shape, index.strides(), index.offset(), &mut d.params));
    body.push_str(taper_shaders::GATHER);
    d.body = body;
    d.groups = total.div_ceil(256);
    d.work = 256;
    Ok(d.into())
}

/// The draft of a scatter-add.
pub(crate) fn scatter_add(kernel: &ScatterAddKernel, facts: &Facts<'_>) -> Result<Drafts> {
    let ScatterAddKernel { axis, dtype, index_dtype, base, index, src } = kernel;
    let (out_shape, src_shape) = (base.shape(), src.shape());
    let (size, length) = (out_shape[*axis], src_shape[*axis]);
    let lines = src_shape.iter().enumerate().filter(|&(a, _)| a != *axis).map(|(_, &n)| n).product::<usize>();
    let Some(sum) = formulas::binary(BinaryOp::Add, *dtype, "a", "b").filter(|_| *dtype != DType::Bool)
    else {
        return Err(facts.unsupported("scatter_add", *dtype, "cast first with .to_dtype(DType::F32)"));
    };
    // What the slowest thread does in each form; half types must not round after every addition.
    let by_element = out_shape.numel().div_ceil(facts.threads) * length;
    let by_line = lines.div_ceil(facts.threads) * length;
    let wide = dtype.compute() == *dtype;
    let t = lane(*dtype);
    let mut functions = format!("fn add(a: {t}, b: {t}) -> {t} {{\n    return {sum};\n}}\n");
    let _ =
        writeln!(functions, "fn store(x: {t}) -> {t} {{\n    return {};\n}}", formulas::store(*dtype, "x"));

    let mut d = Draft::new("scatter_add");
    d.params.size("size", size);
    d.params.size("length", length);
    d.params.stride("index_stride", index.strides()[*axis]);
    d.params.stride("src_stride", src.strides()[*axis]);
    // With no output to own, only the lines still look at every index, and tell of it: each is out of range.
    let nowhere = out_shape.numel() == 0;
    if nowhere || wide && by_line.saturating_mul(2) < by_element {
        let copy = crate::copy::whole("scatter_base", base, *dtype, 0);
        d.params.size("total", lines);
        d.bind("index", lane(*index_dtype), false, Slot::Input(1));
        d.bind("src", t, false, Slot::Input(2));
        d.bind("output", t, true, Slot::Output(0));
        let mut body = functions;
        body.push_str(&index_functions(*index_dtype, SCATTER_ADD, *axis, &mut d));
        let mut shape: SmallVec<[usize; 8]> = src_shape.iter().copied().collect();
        shape[*axis] = 1;
        let strides = out_shape.contiguous_strides();
        d.params.stride("output_stride", strides[*axis]);
        for (name, strides, offset) in [
            ("index_at", index.strides(), index.offset()),
            ("src_at", src.strides(), src.offset()),
            ("output_at", &strides[..], 0),
        ] {
            body.push_str(&index::function(name, &shape, strides, offset, &mut d.params));
        }
        body.push_str(taper_shaders::SCATTER_LINE);
        d.body = body;
        d.groups = lines.div_ceil(64);
        d.work = 64 * length;
        let mut steps: Vec<Draft> = copy.into_iter().collect();
        if lines * length > 0 {
            steps.push(d);
        }
        return Ok(Drafts { steps, temps: Vec::new() });
    }

    d.params.size("total", out_shape.numel());
    d.bind("base", t, false, Slot::Input(0));
    d.bind("index", lane(*index_dtype), false, Slot::Input(1));
    d.bind("src", t, false, Slot::Input(2));
    d.bind("output", t, true, Slot::Output(0));
    let mut body = functions;
    body.push_str(&index_functions(*index_dtype, SCATTER_ADD, *axis, &mut d));
    body.push_str(&index::function("base_at", out_shape, base.strides(), base.offset(), &mut d.params));
    body.push_str(&index::function(
        "index_at",
        out_shape,
        &off_axis(index, *axis),
        index.offset(),
        &mut d.params,
    ));
    body.push_str(&index::function("src_at", out_shape, &off_axis(src, *axis), src.offset(), &mut d.params));
    // Coordinates of an output element: along the axis, and whether the source reaches it off the axis.
    let strides = out_shape.contiguous_strides();
    d.params.size("axis_step", strides[*axis].unsigned_abs());
    body.push_str("fn along(i: u32) -> u32 {\n    return (i / params.axis_step) % params.size;\n}\n");
    body.push_str("fn inside(i: u32) -> bool {\n    var inside = true;\n");
    for a in (0..out_shape.rank()).filter(|&a| a != *axis && src_shape[a] < out_shape[a]) {
        d.params.size(format!("step{a}"), strides[a].unsigned_abs());
        d.params.size(format!("size{a}"), out_shape[a]);
        d.params.size(format!("reach{a}"), src_shape[a]);
        let _ =
            writeln!(body, "    inside = inside && (i / params.step{a}) % params.size{a} < params.reach{a};");
    }
    body.push_str("    return inside;\n}\n");
    body.push_str(taper_shaders::SCATTER_ELEMENT);
    d.body = body;
    d.groups = out_shape.numel().div_ceil(256);
    d.work = 256 * length.max(1);
    Ok(d.into())
}
