//! The index of an extreme along one axis: a thread for each result, or for each part of one, whose winners a second
//! step compares. The first among equals wins, and a NaN counts as the extreme.

use smallvec::SmallVec;
use tensor_core::{ArgReduceOp, DType, collapse, kernel::ArgReduceKernel};

use crate::{
    draft::{Draft, Drafts, Facts, Slot},
    dtypes::lane,
    index::Space,
};

/// Where the winners of parts go, by their positions along the axis and by their values: all results of one part, then those
/// of the next.
const WINNERS: [Slot; 2] = [Slot::Temp(0), Slot::Temp(1)];

/// The drafts of an arg-reduction.
pub(crate) fn draft(kernel: &ArgReduceKernel, facts: &Facts<'_>) -> Drafts {
    let splits = splits(kernel, facts);
    if splits == 1 {
        return search(kernel, 0, 1, None).into();
    }
    let mut out = Drafts::from(search(kernel, 0, splits, Some(0)));
    out.append(compare(kernel, splits));
    out
}

/// How many threads search for one result.
pub(crate) fn splits(kernel: &ArgReduceKernel, facts: &Facts<'_>) -> usize {
    let (results, length) = (results(kernel), kernel.input.shape()[kernel.axis]);
    let few = (length / 512).clamp(1, facts.threads.div_ceil(results.max(1)));
    let splits = if results >= facts.threads { 1 } else { few };
    splits.max(length.div_ceil(facts.rounds))
}

/// How many results there are.
fn results(kernel: &ArgReduceKernel) -> usize {
    kernel.input.numel() / kernel.input.shape()[kernel.axis].max(1)
}

/// Whether `x` is to win over `best`, which comes before it.
fn better(kernel: &ArgReduceKernel) -> String {
    let sign = if kernel.op == ArgReduceOp::ArgMax { ">" } else { "<" };
    if kernel.dtype.is_float() {
        let t = lane(kernel.dtype);
        format!("!is_nan_{t}(best) && (is_nan_{t}(x) || x {sign} best)")
    } else {
        format!("x {sign} best")
    }
}

/// The search through a part of the axis, which starts at position `first` of the whole, by `splits` threads for each result.
/// Each has the result, or is one of the winners, from the `winners`-th on.
pub(crate) fn search(kernel: &ArgReduceKernel, first: usize, splits: usize, winners: Option<usize>) -> Draft {
    let layout = &kernel.input;
    let length = layout.shape()[kernel.axis];
    let others: SmallVec<[usize; 8]> = (0..layout.shape().rank()).filter(|&a| a != kernel.axis).collect();
    let shape: SmallVec<[usize; 8]> = others.iter().map(|&a| layout.shape()[a]).collect();
    let strides: SmallVec<[isize; 8]> = others.iter().map(|&a| layout.strides()[a]).collect();
    let merged = collapse(&shape, &[&strides]);
    let results: usize = shape.iter().product();

    let mut d = Draft::new("arg_reduce");
    d.params.size("total", results * splits);
    d.params.size("results", results);
    d.params.size("length", length);
    d.params.size("splits", splits);
    d.params.size("chunk", length.div_ceil(splits));
    d.params.size("offset", layout.offset());
    d.params.stride("axis_stride", layout.strides()[kernel.axis]);
    d.params.size("first", first);
    d.params.size("winners", winners.unwrap_or(0));
    let space = Space::new("d", &merged.shape, &mut d.params);
    let base = space.offset("t", &merged.strides[0], &mut d.params);
    let t = lane(kernel.dtype);
    d.bind("input", t, false, Slot::Input(0));
    let store = if winners.is_some() {
        d.bind("positions", "i32", true, WINNERS[0]);
        d.bind("values", t, true, WINNERS[1]);
        "    let o = (params.winners + split) * params.results + result;\n    positions[o] = i32(params.first + at);\n    values[o] = best;\n"
    } else {
        d.bind("output", "i32", true, Slot::Output(0));
        "    output[result] = i32(params.first + at);\n"
    };
    d.body = format!(
        "@compute @workgroup_size(64)\n{}    let g = group * 64u + lane;\n    if (g >= params.total) {{\n        return;\n    }}\n    let result = g / params.splits;\n    let split = g - result * params.splits;\n    let begin = split * params.chunk;\n    let end = min(begin + params.chunk, params.length);\n{}    let base = params.offset{base};\n    var at = min(begin, params.length - 1u);\n    var best = input[base + at * params.axis_stride];\n    for (var r = begin + 1u; r < end; r += 1u) {{\n        let x = input[base + r * params.axis_stride];\n        if ({}) {{\n            best = x;\n            at = r;\n        }}\n    }}\n{store}}}\n",
        taper_shaders::ENTRY,
        space.unravel("result"),
        better(kernel),
    );
    d.groups = (results * splits).div_ceil(64);
    d.work = 64 * length.div_ceil(splits);
    d
}

/// The comparison of `winners` for each result.
pub(crate) fn compare(kernel: &ArgReduceKernel, winners: usize) -> Drafts {
    let results = results(kernel);
    let all = results * winners;
    let mut d = Draft::new("arg_reduce");
    d.params.size("results", results);
    d.params.size("all", all);
    d.bind("positions", "i32", false, WINNERS[0]);
    d.bind("values", lane(kernel.dtype), false, WINNERS[1]);
    d.bind("output", "i32", true, Slot::Output(0));
    d.body = format!(
        "@compute @workgroup_size(64)\n{}    let result = group * 64u + lane;\n    if (result >= params.results) {{\n        return;\n    }}\n    var at = result;\n    var best = values[result];\n    for (var r = result + params.results; r < params.all; r += params.results) {{\n        let x = values[r];\n        if ({}) {{\n            best = x;\n            at = r;\n        }}\n    }}\n    output[result] = positions[at];\n}}\n",
        taper_shaders::ENTRY,
        better(kernel),
    );
    d.groups = results.div_ceil(64);
    d.work = 64 * winners;
    Drafts { steps: vec![d], temps: vec![(DType::I32, all), (kernel.dtype, all)] }
}
