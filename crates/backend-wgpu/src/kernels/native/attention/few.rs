//! The forward pass of few queries, as when a model generates one token after another. Almost all time goes
//! to reading keys and values, so the keys are split over workgroups, and a second dispatch joins the parts.
//!
//! A workgroup first computes all scores of its part, then their exponentials, then the sums of values.

use tensor_core::{Attention, AttentionPass, DType, Kernel, Layout, Shape};

use super::{KEY, MASK, Problem, QUERY, VALUE, bases, store, tile::INVOCATIONS};
use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::FIELDS,
    index::without,
    storage::Elements,
    wgsl::Code,
};

/// The most queries.
pub(super) const MAX_ROWS: usize = 8;
/// Scores of a workgroup: 8 KiB.
const SCORES: usize = 2048;
/// Keys of the smallest part.
const MIN_PART: usize = 128;

/// The same attention with the query heads that share a key as the rows of one batch position, so that each
/// key is read once for all of them; `None` if there is no such group of single queries.
pub(super) fn grouped(attention: &Attention, kernel: &Kernel) -> Option<Kernel> {
    let query = &kernel.operands[0].layout;
    let rows = query.shape().rank() - 2;
    let group = rows.checked_sub(1)?;
    let shares = |k: usize| kernel.operands[k].layout.strides()[group] == 0;
    let is_group = query.shape()[rows] == 1
        && (2..=MAX_ROWS).contains(&query.shape()[group])
        && shares(1)
        && shares(2)
        && attention.pass == AttentionPass::Forward
        // These depend on the numbers of a query and of its batch position.
        && attention.causal.is_none()
        && attention.dropout.is_none();
    if !is_group {
        return None;
    }
    let mut grouped = kernel.clone();
    for (k, operand) in grouped.operands.iter_mut().enumerate() {
        let axis = if k == 1 || k == 2 { group } else { rows };
        let (shape, strides) =
            (without(operand.layout.shape(), axis), without(operand.layout.strides(), axis));
        operand.layout = Layout::new(Shape::from(&shape[..]), &strides, operand.layout.offset());
    }
    for output in &mut grouped.outputs {
        output.shape = Shape::from(&without(&output.shape, rows)[..]);
    }
    Some(grouped)
}

/// The sizes that are part of the text.
struct Form {
    /// The number of queries, rounded up to a power of two.
    rows: usize,
    /// Keys that a workgroup computes at once, a score for each invocation.
    block: usize,
    /// Vectors of four features side by side, a power of two.
    across: usize,
    /// Whether the keys are one part, so that no second dispatch is needed.
    is_whole: bool,
}

impl Form {
    /// The most keys of a part.
    fn max_part(&self) -> usize {
        SCORES / self.rows
    }
}

pub(super) fn dispatches(p: &Problem<'_>, capabilities: &Capabilities) -> Dispatches {
    let rows = p.rows.next_power_of_two();
    let wanted = (capabilities.invocations / INVOCATIONS / p.batches).clamp(1, p.keys.div_ceil(MIN_PART));
    let part = p.keys.div_ceil(wanted).next_multiple_of(MIN_PART).min(SCORES / rows);
    let parts = p.keys.div_ceil(part);
    let across = p.features.div_ceil(4).next_power_of_two().min(INVOCATIONS);
    let form = Form { rows, block: INVOCATIONS / rows, across, is_whole: parts == 1 };
    let first = part_of_keys(p, &form, part, parts);
    if form.is_whole {
        return first.into();
    }
    let lines = parts * p.batches * p.rows;
    Dispatches {
        list: vec![first, join(p, parts)],
        temporaries: vec![(DType::F32, lines * p.features), (DType::F32, 2 * lines)],
    }
}

/// The results, if there is one part, or else the sums, greatest scores and totals of each part.
fn part_of_keys(p: &Problem<'_>, form: &Form, part: usize, parts: usize) -> Dispatch {
    let mut d = Dispatch::new("attention_few");
    d.workgroups = p.batches * parts;
    d.work = (p.width + p.features) * p.rows * part;
    p.sizes(&mut d);
    d.params.size("part", part);
    d.params.size("workgroups", d.workgroups);
    p.declare_inputs(&mut d);
    let fours = p.features.is_multiple_of(4);
    if form.is_whole {
        let outputs = &p.kernel.outputs;
        d.bind("out", Elements::of(outputs[0].dtype).in_fours(fours), true, Resource::Output(0));
        d.bind("logarithms", Elements::of(outputs[1].dtype), true, Resource::Output(1));
    } else {
        d.bind("out", Elements::of(DType::F32).in_fours(fours), true, Resource::Temporary(0));
        d.bind("terms", "vec2<f32>", true, Resource::Temporary(1));
    }
    let c = &mut d.code;
    c.line(format_args!("var<workgroup> scores: array<f32, {SCORES}>;"));
    c.line("var<workgroup> partial: array<vec4<f32>, 256>;");
    Problem::declare_functions(c);
    c.entry(INVOCATIONS, |c| {
        c.return_if("workgroup_index >= params.workgroups");
        c.bind("batch", "workgroup_index % params.batches");
        c.bind("begin", "workgroup_index / params.batches * params.part");
        c.bind("count", "min(params.part, params.keys - begin)");
        bases(&[QUERY, KEY, VALUE], c);
        if p.attention.mask {
            bases(&[MASK], c);
        }
        // A score of this invocation in each block of keys: of query `own_row`, of key `own` in the block.
        c.bind("own_row", format_args!("local_index / {}u", form.block));
        c.bind("own", format_args!("local_index % {}u", form.block));
        c.bind("own_scores", format_args!("own_row * {}u + own", form.max_part()));
        all_scores(p, form, c);
        exponentials(p, form, c);
        sums_of_values(form, fours, c);
    });
    d
}

/// Computes the scores of all keys of the part, and the greatest one of this invocation.
fn all_scores(p: &Problem<'_>, form: &Form, c: &mut Code) {
    let Form { rows, block, .. } = *form;
    c.var("greatest", "-inf_f32()");
    c.bind("group", "local_index / 8u");
    c.bind("lane", "local_index % 8u");
    c.count("k", ["0u", "count", &format!("{block}u")], |c| {
        // Eight invocations read a key.
        c.count("i", ["group", &format!("{block}u"), "16u"], |c| {
            c.bind("key", "begin + k + i");
            (0..rows).for_each(|r| c.var(format_args!("sum{r}"), "0.0"));
            c.count("f", ["lane * 4u", "params.width", "32u"], |c| {
                c.bind("features", "key4(key_base, key, f)");
                for r in 0..rows {
                    c.line(format_args!("sum{r} += dot(features, query4(query_base, {r}u, f));"));
                }
            });
            for r in 0..rows {
                let at = format!("({}u + i) * 2u + lane / 4u", r * block);
                c.set(format_args!("partial[{at}][lane % 4u]"), format_args!("sum{r}"));
            }
        });
        c.line("workgroupBarrier();");
        c.bind("key", "begin + k + own");
        c.bind("eight", "partial[local_index * 2u] + partial[local_index * 2u + 1u]");
        c.var("score", "((eight.x + eight.y) + (eight.z + eight.w)) * bitcast<f32>(params.scale)");
        if let Some(k) = p.mask() {
            c.when("own_row < params.rows && key < params.keys", |c| {
                c.bind("entry", "mask4(mask_base, own_row, key & ~3u)[key & 3u]");
                match p.kernel.operands[k].dtype.is_bool() {
                    true => c.set("score", "select(-inf_f32(), score, entry != 0u)"),
                    false => c.line("score += entry;"),
                }
            });
        }
        let end = match p.attention.causal {
            Some(_) => "min(params.keys, params.first + own_row + 1u)",
            None => "params.keys",
        };
        c.set("score", format_args!("select(score, -inf_f32(), key >= {end})"));
        c.set("greatest", "select(greatest, score, score > greatest)");
        c.set("scores[own_scores + k]", "score");
        c.line("workgroupBarrier();");
    });
}

/// Reads the vectors of partial numbers of this invocation's query; `each` gets the index of one.
fn each_partial(form: &Form, c: &mut Code, each: impl FnOnce(&mut Code)) {
    let vectors = form.block / 4;
    c.bind("first", format_args!("own_row * {vectors}u"));
    c.count("i", ["0u", &format!("{vectors}u"), "1u"], each);
}

/// Turns scores into exponentials, under dropout times the factors that keep or drop them. Defines `base`,
/// which was subtracted, and `total`, the sum of the exponentials, of this invocation's query.
fn exponentials(p: &Problem<'_>, form: &Form, c: &mut Code) {
    c.set("partial[local_index / 4u][local_index % 4u]", "greatest");
    c.line("workgroupBarrier();");
    c.block("", |c| {
        each_partial(form, c, |c| {
            c.bind("four", "most4(partial[first + i])");
            c.set("greatest", "select(greatest, four, four > greatest)");
        });
    });
    c.bind("base", "select(greatest, 0.0, bitcast<u32>(greatest) == 0xff800000u)");
    c.var("own_total", "0.0");
    c.count("k", ["own", "count", &format!("{}u", form.block)], |c| {
        c.bind("at", format_args!("own_row * {}u + k", form.max_part()));
        c.bind("power", "exp_f32(scores[at] - base)");
        c.line("own_total += power;");
        let kept = if p.attention.dropout.is_some() { " * kept(batch, own_row, begin + k)" } else { "" };
        c.set("scores[at]", format_args!("power{kept}"));
    });
    c.line("workgroupBarrier();");
    c.set("partial[local_index / 4u][local_index % 4u]", "own_total");
    c.line("workgroupBarrier();");
    c.var("four_totals", "vec4<f32>()");
    c.block("", |c| each_partial(form, c, |c| c.line("four_totals += partial[first + i];")));
    c.bind("total", "(four_totals.x + four_totals.y) + (four_totals.z + four_totals.w)");
    c.bind("blind", "(bitcast<u32>(total) & 0x7fffffffu) == 0u");
    c.when("own == 0u && own_row < params.rows", |c| match form.is_whole {
        true => {
            c.bind("line", "batch * params.rows + own_row");
            c.line("store_logarithms(line, select(greatest + log_f32(total), inf_f32(), blind));");
        }
        false => c.set("terms[workgroup_index * params.rows + own_row]", "vec2<f32>(greatest, total)"),
    });
    // The totals of all queries, for the invocations that divide by them.
    c.line("workgroupBarrier();");
    c.when("own == 0u", |c| {
        let share = if form.is_whole { "select(1.0 / total, 0.0, blind)" } else { "1.0" };
        c.set(format_args!("partial[{INVOCATIONS}u + own_row].x"), share);
    });
}

/// Adds the values of the part's keys, and writes the sums.
fn sums_of_values(form: &Form, fours: bool, c: &mut Code) {
    let Form { rows, across, .. } = *form;
    let slices = INVOCATIONS / across;
    c.bind("across", format_args!("local_index % {across}u"));
    c.bind("slice", format_args!("local_index / {across}u"));
    let line = if form.is_whole { "batch" } else { "workgroup_index" };
    c.line("workgroupBarrier();");
    c.count("f0", ["0u", "params.features", &format!("{}u", 4 * across)], |c| {
        c.bind("column", "f0 + across * 4u");
        (0..rows).for_each(|r| c.var(format_args!("sum{r}"), "vec4<f32>()"));
        c.count("k", ["slice", "count", &format!("{slices}u")], |c| {
            c.bind("features", "value4(value_base, begin + k, column)");
            for r in 0..rows {
                let at = format!("{}u + k", r * form.max_part());
                c.line(format_args!("sum{r} += scores[{at}] * features;"));
            }
        });
        for r in 0..rows {
            c.set("partial[local_index]", format_args!("sum{r}"));
            c.line("workgroupBarrier();");
            c.when(format_args!("slice == 0u && {r}u < params.rows"), |c| {
                c.var("whole", "vec4<f32>()");
                c.count("i", ["across", &format!("{INVOCATIONS}u"), &format!("{across}u")], |c| {
                    c.line("whole += partial[i];");
                });
                c.line(format_args!("whole *= partial[{}u].x;", INVOCATIONS + r));
                c.bind("line", format_args!("({line} * params.rows + {r}u) * params.features"));
                store(["out", "line", "column", "params.features", "whole"], fours, c);
            });
            c.line("workgroupBarrier();");
        }
    });
}

/// Joins the parts, four features of a query in each invocation.
fn join(p: &Problem<'_>, parts: usize) -> Dispatch {
    const LANES: usize = 64;
    let mut d = Dispatch::new("attention_join");
    let (lines, vectors) = (p.batches * p.rows, p.features.div_ceil(4));
    d.workgroups = (lines * vectors).div_ceil(LANES);
    d.work = 8 * parts * LANES;
    d.params.size("lines", lines);
    d.params.size("vectors", vectors);
    d.params.size("features", p.features);
    d.params.size("parts", parts);
    let (fours, outputs) = (p.features.is_multiple_of(4), &p.kernel.outputs);
    d.bind("sums", Elements::of(DType::F32).in_fours(fours), false, Resource::Temporary(0));
    d.bind("terms", "vec2<f32>", false, Resource::Temporary(1));
    d.bind("out", Elements::of(outputs[0].dtype).in_fours(fours), true, Resource::Output(0));
    d.bind("logarithms", Elements::of(outputs[1].dtype), true, Resource::Output(1));
    d.code.entry(LANES, |c| {
        c.bind("i", format_args!("workgroup_index * {LANES}u + local_index"));
        c.return_if("i >= params.lines * params.vectors");
        c.bind("at", "i / params.vectors");
        c.bind("column", "i % params.vectors * 4u");
        c.var("greatest", "-inf_f32()");
        c.count("part", ["0u", "params.parts", "1u"], |c| {
            c.bind("other", "terms[part * params.lines + at].x");
            c.set("greatest", "select(greatest, other, other > greatest)");
        });
        c.bind("base", "select(greatest, 0.0, bitcast<u32>(greatest) == 0xff800000u)");
        c.var("total", "0.0");
        c.var("sum", "vec4<f32>()");
        c.count("part", ["0u", "params.parts", "1u"], |c| {
            c.bind("line", "part * params.lines + at");
            c.bind("term", "terms[line]");
            c.bind("factor", "exp_f32(term.x - base)");
            c.line("total += factor * term.y;");
            if fours {
                c.line("sum += factor * load4_sums(line * params.features + column);");
            } else {
                for (e, x) in FIELDS.iter().enumerate() {
                    c.when(format_args!("column + {e}u < params.features"), |c| {
                        let place = format!("line * params.features + column + {e}u");
                        c.line(format_args!("sum.{x} += factor * load_sums({place});"));
                    });
                }
            }
        });
        c.bind("blind", "(bitcast<u32>(total) & 0x7fffffffu) == 0u");
        c.bind("whole", "sum * select(1.0 / total, 0.0, blind)");
        c.bind("line", "at * params.features");
        store(["out", "line", "column", "params.features", "whole"], fours, c);
        c.when("column == 0u", |c| {
            c.line("store_logarithms(at, select(greatest + log_f32(total), inf_f32(), blind));");
        });
    });
    d
}
