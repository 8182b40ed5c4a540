//! The forward pass of a block of queries: one pass over the keys, with a running maximum of the scores and
//! a running sum of exponentials.

use super::{
    KEY, MASK, Problem, QUERY, VALUE, bases, store,
    tile::{self, INNER, INVOCATIONS, OUTER, Rows},
};
use crate::codegen::{
    dispatch::{Dispatch, Resource},
    dtypes::FIELDS,
    storage::Elements,
    wgsl::Code,
};

/// Features of a workgroup: 64 results in registers for each invocation.
const SLICE: usize = 128;

pub(super) fn dispatch(p: &Problem<'_>) -> Dispatch {
    let mut d = Dispatch::new("attention");
    let (blocks, slices) = (p.rows.div_ceil(OUTER), p.features.div_ceil(SLICE).max(1));
    d.workgroups = p.batches * blocks * slices;
    d.work = ((p.width + p.features.min(SLICE)) * OUTER).saturating_mul(p.keys);
    p.sizes(&mut d);
    d.params.size("blocks", blocks);
    d.params.size("workgroups", d.workgroups);
    p.declare_inputs(&mut d);
    let fours = p.features.is_multiple_of(4);
    let outputs = &p.kernel.outputs;
    d.bind("out", Elements::of(outputs[0].dtype).in_fours(fours), true, Resource::Output(0));
    d.bind("logarithms", Elements::of(outputs[1].dtype), true, Resource::Output(1));
    let c = &mut d.code;
    Problem::declare_functions(c);
    tile::declare(true, c);
    c.entry(INVOCATIONS, |c| entry(p, fours, c));
    d
}

fn entry(p: &Problem<'_>, fours: bool, c: &mut Code) {
    let groups = tile::groups(p.features.min(SLICE));
    // Whole workgroups leave or stay, so all invocations of a workgroup reach the barriers below.
    c.return_if("workgroup_index >= params.workgroups");
    // Under a causal mask the last queries take longest, so they come first.
    c.bind("q0", format_args!("(params.blocks - 1u - workgroup_index % params.blocks) * {OUTER}u"));
    c.bind("batch", "(workgroup_index / params.blocks) % params.batches");
    c.bind("slice", "workgroup_index / (params.blocks * params.batches)");
    tile::place(c);
    bases(&[QUERY, KEY, VALUE], c);
    if p.attention.mask {
        bases(&[MASK], c);
    }
    c.bind("row", "q0 + ty * 4u");
    c.bind("f0", format_args!("slice * {SLICE}u"));
    c.var("greatest", "hidden()");
    c.var("totals", "vec4<f32>()");
    tile::sums("sum", groups, c);
    c.bind("seen", seen(p));
    c.count("k0", ["0u", "seen", &format!("{INNER}u")], |c| {
        tile::product("s", Rows { matrix: QUERY, first: "q0" }, Rows { matrix: KEY, first: "k0" }, c);
        c.bind("key", "k0 + tx * 4u");
        scores(p, c);
        softmax(groups, c);
        if p.attention.dropout.is_some() {
            for r in 0..4 {
                for (e, x) in FIELDS.iter().enumerate() {
                    c.line(format_args!("s{r}.{x} *= kept(batch, row + {r}u, key + {e}u);"));
                }
            }
        }
        tile::put("s", c);
        tile::accumulate("sum", groups, Rows { matrix: VALUE, first: "k0" }, "f0", c);
    });
    results(groups, fours, c);
}

/// The number of keys that some query of the block from `q0` on sees; they are the first ones.
pub(super) fn seen(p: &Problem<'_>) -> String {
    match p.attention.causal {
        Some(_) => format!("min(params.keys, params.first + min(q0 + {OUTER}u, params.rows))"),
        None => "params.keys".into(),
    }
}

/// Turns products `s<r>` of the queries `row` + r with the keys from `key` on into scores.
pub(super) fn scores(p: &Problem<'_>, c: &mut Code) {
    c.bind("places", "vec4<u32>(key, key + 1u, key + 2u, key + 3u)");
    c.bind("unseen", "hidden()");
    for r in 0..4 {
        c.line(format_args!("s{r} *= bitcast<f32>(params.scale);"));
        if let Some(k) = p.mask() {
            c.bind(format_args!("m{r}"), format_args!("mask4(mask_base, row + {r}u, key)"));
            match p.kernel.operands[k].dtype.is_bool() {
                true => {
                    c.set(format_args!("s{r}"), format_args!("select(unseen, s{r}, m{r} != vec4<u32>())"))
                }
                false => c.line(format_args!("s{r} += m{r};")),
            }
        }
        // Query i sees the keys up to first + i.
        let end = match p.attention.causal {
            Some(_) => format!("min(params.keys, params.first + row + {}u)", r + 1),
            None => "params.keys".into(),
        };
        let beyond = format!("places >= vec4<u32>({end})");
        c.set(format_args!("s{r}"), format_args!("select(s{r}, unseen, {beyond})"));
    }
}

/// Turns scores into exponentials, and updates the maxima, the totals and the sums.
fn softmax(groups: usize, c: &mut Code) {
    c.set("partial[tx * 16u + ty]", "vec4<f32>(most4(s0), most4(s1), most4(s2), most4(s3))");
    c.line("workgroupBarrier();");
    c.var("next", "greatest");
    for t in 0..8 {
        c.bind(format_args!("most{t}"), format_args!("partial[{}u + ty]", t * 16));
        c.set("next", format_args!("select(next, most{t}, most{t} > next)"));
    }
    // A query that has seen no key yet: −∞ − −∞ would be NaN.
    c.bind("base", "select(next, vec4<f32>(), bitcast<vec4<u32>>(next) == vec4<u32>(0xff800000u))");
    c.bind("factor", "exp4(greatest - base)");
    c.set("greatest", "next");
    c.line("totals *= factor;");
    for (r, x) in FIELDS.iter().enumerate() {
        c.set(format_args!("s{r}"), format_args!("exp4(s{r} - vec4<f32>(base.{x}))"));
        c.line(format_args!("totals.{x} += (s{r}.x + s{r}.y) + (s{r}.z + s{r}.w);"));
        for g in 0..groups {
            c.line(format_args!("sum{r}_{g} *= factor.{x};"));
        }
    }
}

/// Adds the totals of the invocations of a row, and writes the results.
fn results(groups: usize, fours: bool, c: &mut Code) {
    c.set("partial[tx * 16u + ty]", "totals");
    c.line("workgroupBarrier();");
    let parts: Vec<String> = (0..8).map(|t| format!("partial[{}u + ty]", t * 16)).collect();
    c.bind("total", parts.join(" + "));
    for (r, x) in FIELDS.iter().enumerate() {
        c.when(format_args!("row + {r}u < params.rows"), |c| {
            c.bind("at", format_args!("batch * params.rows + row + {r}u"));
            // A query that sees no keys gets zeros; NaN stays.
            c.bind("blind", format_args!("(bitcast<u32>(total.{x}) & 0x7fffffffu) == 0u"));
            c.bind("share", format_args!("select(1.0 / total.{x}, 0.0, blind)"));
            c.bind("line", "at * params.features");
            for g in 0..groups {
                let column = format!("column{g}");
                c.bind(&column, format_args!("f0 + {}u + tx * 4u", g * 32));
                let value = format!("(sum{r}_{g} * share)");
                store(["out", "line", &column, "params.features", &value], fours, c);
            }
            c.when("slice == 0u && tx == 0u", |c| {
                let logarithm = format!("greatest.{x} + log_f32(total.{x})");
                c.line(format_args!("store_logarithms(at, select({logarithm}, inf_f32(), blind));"));
            });
        });
    }
}
