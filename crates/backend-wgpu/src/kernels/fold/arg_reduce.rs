//! The index of an extreme along one axis. Each result has one invocation, or those of a workgroup that
//! share it (see `group.rs`), or several of either that search parts of the axis, whose winners a second
//! dispatch compares. The first of equal elements wins, and NaN counts as the extreme.

use tensor_core::{
    ArgReduceOp, DType, Result, collapse,
    kernel::{Kernel, Operand},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{loaded, unpacked},
        index::{self, without},
        storage::Elements,
        wgsl::Code,
    },
    kernels::{
        blocks::room,
        cut::{Cut, Inner, Parts, Place},
        fold::group::{Division, GROUP_INVOCATIONS, Group},
    },
};

/// The body of an arg-reduction.
pub(crate) struct ArgReduce {
    pub(crate) op: ArgReduceOp,
    pub(crate) axis: usize,
}

impl ArgReduce {
    fn search<'a>(&self, kernel: &'a Kernel) -> Search<'a> {
        Search { op: self.op, axis: self.axis, operand: &kernel.operands[0] }
    }
}

impl Cut for ArgReduce {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        Ok(dispatches(self.search(kernel), place.capabilities))
    }

    fn inner(&self, _: &Kernel) -> Inner {
        Inner { is_joined: true, ..Inner::of_operands(self.axis, 0..1) }
    }

    fn part(&self, part: &Kernel, parts: &mut Parts<'_>) -> Result<Dispatches> {
        let (search, capabilities) = (self.search(part), parts.place.capabilities);
        let room = room(part.operands[0].dtype, capabilities).min(room(DType::I32, capabilities));
        let most = room / parts.pitch.max(1) / parts.count;
        let splits = splits(search, capabilities).min(most).max(1);
        let made = search_in(search, parts.positions, splits, Some(parts.results), capabilities);
        parts.positions += search.length();
        parts.results += splits;
        Ok(made.into())
    }

    fn join(&self, kernel: &Kernel, parts: &Parts<'_>) -> Result<Dispatches> {
        Ok(compare(self.search(kernel), parts.results, parts.place.capabilities))
    }
}

/// The operand, axis and kind of a search.
#[derive(Clone, Copy)]
struct Search<'a> {
    op: ArgReduceOp,
    axis: usize,
    operand: &'a Operand,
}

impl Search<'_> {
    /// The number of positions along the axis.
    fn length(&self) -> usize {
        self.operand.layout.shape()[self.axis]
    }

    /// The number of results.
    fn results(&self) -> usize {
        self.operand.layout.numel() / self.length().max(1)
    }

    /// The function `better(best, x)`: whether `x` replaces `best`, which comes before it.
    fn better(&self, c: &mut Code) {
        let (sign, t) = (if self.op == ArgReduceOp::ArgMax { ">" } else { "<" }, loaded(self.operand.dtype));
        let condition = match self.operand.dtype.is_float() {
            true => format!("!is_nan_{t}(best) && (is_nan_{t}(x) || x {sign} best)"),
            false => format!("x {sign} best"),
        };
        c.expression("better", &[("best", t), ("x", t)], "bool", condition);
    }

    /// The division of a workgroup; None if each result has one invocation.
    fn group(&self, capabilities: &Capabilities) -> Option<Group> {
        let (results, length, busy) = (self.results(), self.length(), capabilities.invocations);
        if capabilities.direct || results == 0 {
            return None;
        }
        let layout = &self.operand.layout;
        if layout.strides()[self.axis].unsigned_abs() <= 1 {
            return Group::along(results, length, 1, busy);
        }
        let merged = collapse(&without(layout.shape(), self.axis), &[&without(layout.strides(), self.axis)]);
        Group::across(results, merged.shape.last().copied().unwrap_or(1), length, 1, busy)
    }
}

/// The winners of the parts: their positions along the axis, and their values. All results of one part are
/// followed by those of the next.
const WINNERS: [Resource; 2] = [Resource::Temporary(0), Resource::Temporary(1)];

fn dispatches(of: Search<'_>, capabilities: &Capabilities) -> Dispatches {
    let splits = splits(of, capabilities);
    if splits == 1 {
        return search_in(of, 0, 1, None, capabilities).into();
    }
    let mut out = Dispatches::from(search_in(of, 0, splits, Some(0), capabilities));
    out.append(compare(of, splits, capabilities));
    out
}

/// The parts of the axis that are searched apart for each result.
fn splits(of: Search<'_>, capabilities: &Capabilities) -> usize {
    let (results, length) = (of.results(), of.length());
    let busy = capabilities.invocations;
    let splits = match of.group(capabilities) {
        Some(group) => group.splits(results, length, busy),
        None if results >= busy => 1,
        None => (length / 512).clamp(1, busy.div_ceil(results.max(1))),
    };
    splits.max(length.div_ceil(capabilities.rounds))
}

/// The search in a window of the axis that starts at position `first`, in `splits` parts for each result.
/// Each part writes the result, or one of the winners, counted from `winners` on.
fn search_in(
    of: Search<'_>,
    first: usize,
    splits: usize,
    winners: Option<usize>,
    capabilities: &Capabilities,
) -> Dispatch {
    let (layout, axis) = (&of.operand.layout, of.axis);
    let (shape, strides) = (without(layout.shape(), axis), without(layout.strides(), axis));
    let mut d = Dispatch::new("arg_reduce");
    d.params.size("first", first);
    d.params.size("winners", winners.unwrap_or(0));
    d.params.stride("axis_stride", layout.strides()[axis]);
    d.bind("input", Elements::of(of.operand.dtype), false, Resource::Input(0));
    if winners.is_some() {
        d.bind("positions", "i32", true, WINNERS[0]);
        d.bind("values", loaded(of.operand.dtype), true, WINNERS[1]);
    } else {
        d.bind("output", "i32", true, Resource::Output(0));
    }
    d.code.append(&index::function("base_of", &shape, &strides, layout.offset(), &mut d.params));
    d.code.expression("element", &[("i", "u32")], loaded(of.operand.dtype), "load_input(i)");
    d.code.function("keep", &kept(of), "", |c| {
        if winners.is_none() {
            return c.set("output[result]", "i32(params.first + at)");
        }
        c.bind("o", "(params.winners + part) * params.results + result");
        c.set("positions[o]", "i32(params.first + at)");
        c.set("values[o]", "best");
    });
    walk(of, of.length(), splits, of.group(capabilities), &mut d);
    d
}

/// The comparison of `winners` winners for each result.
fn compare(of: Search<'_>, winners: usize, capabilities: &Capabilities) -> Dispatches {
    let (results, t) = (of.results(), loaded(of.operand.dtype));
    let all = results * winners;
    let mut d = Dispatch::new("arg_reduce");
    d.params.size("axis_stride", results);
    d.bind("positions", "i32", false, WINNERS[0]);
    d.bind("values", t, false, WINNERS[1]);
    d.bind("output", "i32", true, Resource::Output(0));
    d.code.expression("base_of", &[("result", "u32")], "u32", "result");
    d.code.expression("element", &[("i", "u32")], t, "values[i]");
    d.code.function("keep", &kept(of), "", |c| {
        c.set("output[result]", "positions[result + at * params.axis_stride]");
    });
    let group = (!capabilities.direct)
        .then(|| Group::across(results, results, winners, 1, capabilities.invocations))
        .flatten();
    walk(of, winners, 1, group, &mut d);
    Dispatches { list: vec![d], temporaries: vec![(DType::I32, all), (unpacked(of.operand.dtype), all)] }
}

/// The parameters of the function that stores the winner of a part of a result: its position and its value.
fn kept<'a>(of: Search<'_>) -> [(&'a str, &'a str); 4] {
    [("part", "u32"), ("result", "u32"), ("at", "u32"), ("best", loaded(of.operand.dtype))]
}

/// The loads of a round that do not wait for each other, where invocations of a workgroup share results.
const LOADS_TOGETHER: usize = 4;

/// Adds the walk along `length` positions in `splits` parts. The dispatch has the functions base_of(result),
/// the offset of position 0; element(i), the element at an offset; and keep(part, result, at, best).
fn walk(of: Search<'_>, length: usize, splits: usize, group: Option<Group>, d: &mut Dispatch) {
    let (results, t) = (of.results(), loaded(of.operand.dtype));
    let division = Division(group);
    division.params(results, splits, &mut d.params);
    d.params.size("length", length);
    d.params.size("chunk", length.div_ceil(splits));
    of.better(&mut d.code);
    if group.is_some() {
        d.code.line(format_args!("var<workgroup> best_values: array<{t}, {GROUP_INVOCATIONS}>;"));
        d.code.line(format_args!("var<workgroup> best_places: array<u32, {GROUP_INVOCATIONS}>;"));
    }
    d.code.entry(division.invocations(), |c| {
        division.begin(c);
        c.bind("begin", "part * params.chunk");
        c.bind("end", "min(begin + params.chunk, params.length)");
        c.bind("base", "base_of(result)");
        let [start, step] = match group {
            Some(_) => ["begin + lane", "params.lanes"],
            None => ["begin", "1u"],
        };
        // Lanes after the end look at the last element of the part again, and an empty part at the last of
        // all, which loses to itself in a part before it.
        c.bind("last", "end - 1u");
        c.var("at", format_args!("min({start}, last)"));
        c.var("best", "element(base + at * params.axis_stride)");
        let together = if group.is_some() { LOADS_TOGETHER } else { 1 };
        c.count("r", [&format!("at + {step}"), "end", &format!("{step} * {together}u")], |c| {
            let loads = 0..together;
            for n in loads.clone() {
                let place = if n == 0 { "r".into() } else { format!("min(r + {n}u * {step}, last)") };
                c.bind(format_args!("r{n}"), place);
                c.bind(format_args!("x{n}"), format_args!("element(base + r{n} * params.axis_stride)"));
            }
            for n in loads {
                c.when(format_args!("better(best, x{n})"), |c| {
                    c.set("best", format_args!("x{n}"));
                    c.set("at", format_args!("r{n}"));
                });
            }
        });
        if group.is_none() {
            return c.line("keep(part, result, at, best);");
        }
        c.set("best_values[slot]", "best");
        c.set("best_places[slot]", "at");
        let combine = |c: &mut Code| {
            c.bind("x", "best_values[local_index + half]");
            c.bind("own", "best_values[local_index]");
            c.bind("place", "best_places[local_index + half]");
            c.when("better(own, x) || (!better(x, own) && place < best_places[local_index])", |c| {
                c.set("best_values[local_index]", "x");
                c.set("best_places[local_index]", "place");
            });
        };
        Group::tree(combine, c);
        c.line("keep(part, made, best_places[local_index], best_values[local_index]);");
    });
    d.work = division.columns() * length.div_ceil(splits);
    d.workgroups = division.workgroups(results, splits);
}
