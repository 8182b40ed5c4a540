//! The index of an extreme along one axis. Each result has one invocation, or several that search parts of
//! the axis, whose winners a second dispatch compares. The first of equal elements wins, and NaN counts as
//! the extreme.

use tensor_core::{
    ArgReduceOp, DType, collapse,
    kernel::{Kernel, Operand},
};

use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::{loaded, unpacked},
    index::{Space, without},
    storage::Elements,
    wgsl::Code,
};

/// The operand, axis and kind of a search.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    op: ArgReduceOp,
    axis: usize,
    operand: &'a Operand,
}

impl<'a> Search<'a> {
    pub(crate) fn new(kernel: &'a Kernel, op: ArgReduceOp, axis: usize) -> Search<'a> {
        Search { op, axis, operand: &kernel.operands[0] }
    }

    /// The number of positions along the axis.
    pub(crate) fn length(&self) -> usize {
        self.operand.layout.shape()[self.axis]
    }

    /// The number of results.
    fn results(&self) -> usize {
        self.operand.layout.numel() / self.length().max(1)
    }

    /// The condition for `x` to replace `best`, which comes before it.
    fn better(&self) -> String {
        let sign = if self.op == ArgReduceOp::ArgMax { ">" } else { "<" };
        if self.operand.dtype.is_float() {
            let t = loaded(self.operand.dtype);
            format!("!is_nan_{t}(best) && (is_nan_{t}(x) || x {sign} best)")
        } else {
            format!("x {sign} best")
        }
    }
}

/// The winners of the parts: their positions along the axis, and their values. All results of one part are
/// followed by those of the next.
const WINNERS: [Resource; 2] = [Resource::Temporary(0), Resource::Temporary(1)];

/// The dispatches of an arg-reduction.
pub(crate) fn dispatches(of: Search<'_>, capabilities: &Capabilities) -> Dispatches {
    let splits = splits(of, capabilities);
    if splits == 1 {
        return search(of, 0, 1, None).into();
    }
    let mut out = Dispatches::from(search(of, 0, splits, Some(0)));
    out.append(compare(of, splits));
    out
}

/// The number of invocations that search for one result.
pub(crate) fn splits(of: Search<'_>, capabilities: &Capabilities) -> usize {
    let (results, length) = (of.results(), of.length());
    let busy = capabilities.invocations;
    let few = (length / 512).clamp(1, busy.div_ceil(results.max(1)));
    let splits = if results >= busy { 1 } else { few };
    splits.max(length.div_ceil(capabilities.rounds))
}

/// Takes `x`, at position `r`, if it is better than the best so far.
fn take(of: Search<'_>, x: &str, c: &mut Code) {
    c.bind("x", x);
    c.when(of.better(), |c| {
        c.set("best", "x");
        c.set("at", "r");
    });
}

/// The search in a window of the axis that starts at position `first`, by `splits` invocations for each
/// result. An invocation writes the result, or one of the winners, counted from `winners` on.
pub(crate) fn search(of: Search<'_>, first: usize, splits: usize, winners: Option<usize>) -> Dispatch {
    let (layout, axis, length) = (&of.operand.layout, of.axis, of.length());
    let shape = without(layout.shape(), axis);
    let merged = collapse(&shape, &[&without(layout.strides(), axis)]);
    let results: usize = shape.iter().product();

    let mut d = Dispatch::new("arg_reduce");
    let sizes = [
        ("total", results * splits),
        ("results", results),
        ("length", length),
        ("splits", splits),
        ("chunk", length.div_ceil(splits)),
        ("offset", layout.offset()),
        ("first", first),
        ("winners", winners.unwrap_or(0)),
    ];
    sizes.into_iter().for_each(|(name, size)| d.params.size(name, size));
    d.params.stride("axis_stride", layout.strides()[axis]);
    let space = Space::new("d", &merged.shape, &mut d.params);
    let base = space.offset("t", &merged.strides[0], &mut d.params);
    d.bind("input", Elements::of(of.operand.dtype), false, Resource::Input(0));
    if winners.is_some() {
        d.bind("positions", "i32", true, WINNERS[0]);
        d.bind("values", loaded(of.operand.dtype), true, WINNERS[1]);
    } else {
        d.bind("output", "i32", true, Resource::Output(0));
    }
    d.code.entry(64, |c| {
        c.bind("g", "workgroup_index * 64u + local_index");
        c.return_if("g >= params.total");
        c.bind("result", "g / params.splits");
        c.bind("split", "g - result * params.splits");
        c.bind("begin", "split * params.chunk");
        c.bind("end", "min(begin + params.chunk, params.length)");
        c.append(&space.unravel("result"));
        c.bind("base", format_args!("params.offset{base}"));
        c.var("at", "min(begin, params.length - 1u)");
        c.var("best", "load_input(base + at * params.axis_stride)");
        c.count("r", ["begin + 1u", "end", "1u"], |c| {
            take(of, "load_input(base + r * params.axis_stride)", c);
        });
        if winners.is_some() {
            c.bind("o", "(params.winners + split) * params.results + result");
            c.set("positions[o]", "i32(params.first + at)");
            c.set("values[o]", "best");
        } else {
            c.set("output[result]", "i32(params.first + at)");
        }
    });
    d.workgroups = (results * splits).div_ceil(64);
    d.work = 64 * length.div_ceil(splits);
    d
}

/// The comparison of `winners` winners for each result.
pub(crate) fn compare(of: Search<'_>, winners: usize) -> Dispatches {
    let results = of.results();
    let all = results * winners;
    let mut d = Dispatch::new("arg_reduce");
    d.params.size("results", results);
    d.params.size("all", all);
    d.bind("positions", "i32", false, WINNERS[0]);
    d.bind("values", loaded(of.operand.dtype), false, WINNERS[1]);
    d.bind("output", "i32", true, Resource::Output(0));
    d.code.entry(64, |c| {
        c.bind("result", "workgroup_index * 64u + local_index");
        c.return_if("result >= params.results");
        c.var("at", "result");
        c.var("best", "values[result]");
        c.count("r", ["result + params.results", "params.all", "params.results"], |c| {
            take(of, "values[r]", c);
        });
        c.set("output[result]", "positions[at]");
    });
    d.workgroups = results.div_ceil(64);
    d.work = 64 * winners;
    Dispatches { list: vec![d], temporaries: vec![(DType::I32, all), (unpacked(of.operand.dtype), all)] }
}
