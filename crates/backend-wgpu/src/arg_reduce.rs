//! The index of an extreme along one axis: a thread for each result, or for each part of one, whose winners a second
//! step compares. The first among equals wins, and a NaN counts as the extreme.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{ArgReduceOp, DType, Result, collapse, kernel::ArgReduceKernel};

use crate::{
    draft::{Draft, Drafts, Facts, Slot},
    dtypes::lane,
    index::Space,
};

/// The draft of an arg-reduction.
pub(crate) fn draft(kernel: &ArgReduceKernel, facts: &Facts<'_>) -> Result<Drafts> {
    let length = kernel.input.shape()[kernel.axis];
    let results: usize = kernel.input.numel() / length.max(1);
    let splits = if results >= facts.threads {
        1
    } else {
        (length / 512).clamp(1, facts.threads.div_ceil(results.max(1)))
    };
    if splits == 1 {
        return Ok(step(kernel, length, 1, false, Slot::Output(0)).into());
    }
    let first = step(kernel, length, splits, false, Slot::Temp(0));
    let second = step(kernel, splits, 1, true, Slot::Output(0));
    Ok(Drafts { steps: vec![first, second], temps: vec![(DType::I32, results * splits)] })
}

/// One step. With `winners`, the candidates are indices in the temporary, else all along the axis.
fn step(kernel: &ArgReduceKernel, length: usize, splits: usize, winners: bool, output: Slot) -> Draft {
    let layout = &kernel.input;
    let others: SmallVec<[usize; 8]> = (0..layout.shape().rank()).filter(|&a| a != kernel.axis).collect();
    let shape: SmallVec<[usize; 8]> = others.iter().map(|&a| layout.shape()[a]).collect();
    let strides: SmallVec<[isize; 8]> = others.iter().map(|&a| layout.strides()[a]).collect();
    let merged = collapse(&shape, &[&strides]);
    let results: usize = shape.iter().product();

    let mut d = Draft::new("arg_reduce");
    d.params.size("total", results * splits);
    d.params.size("length", length);
    d.params.size("splits", splits);
    d.params.size("chunk", length.div_ceil(splits));
    d.params.size("offset", layout.offset());
    d.params.stride("axis_stride", layout.strides()[kernel.axis]);
    let space = Space::new("d", &merged.shape, &mut d.params);
    let base = space.offset("t", &merged.strides[0], &mut d.params);
    let t = lane(kernel.dtype);
    d.bind("input", t, false, Slot::Input(0));
    if winners {
        d.bind("winners", "i32", false, Slot::Temp(0));
    }
    d.bind("output", "i32", true, output);

    let sign = if kernel.op == ArgReduceOp::ArgMax { ">" } else { "<" };
    let better = if kernel.dtype.is_float() {
        format!("!is_nan_{t}(best) && (is_nan_{t}(x) || x {sign} best)")
    } else {
        format!("x {sign} best")
    };
    let candidate = |r: &str| {
        if winners { format!("winners[result * params.length + {r}]") } else { format!("i32({r})") }
    };
    let mut body = String::new();
    let _ = write!(
        body,
        "@compute @workgroup_size(64)\n{}    let g = group * 64u + lane;\n    if (g >= params.total) {{\n        return;\n    }}\n    let result = g / params.splits;\n    let begin = (g - result * params.splits) * params.chunk;\n    let end = min(begin + params.chunk, params.length);\n{}    let base = params.offset{base};\n    var at = {};\n    var best = input[base + u32(at) * params.axis_stride];\n    for (var r = begin + 1u; r < end; r += 1u) {{\n        let j = {};\n        let x = input[base + u32(j) * params.axis_stride];\n        if ({better}) {{\n            best = x;\n            at = j;\n        }}\n    }}\n    output[g] = at;\n}}\n",
        taper_shaders::ENTRY,
        space.unravel("result"),
        candidate("min(begin, params.length - 1u)"),
        candidate("r"),
    );
    d.body = body;
    d.groups = (results * splits).div_ceil(64);
    d.work = 64 * length.div_ceil(splits);
    d
}
