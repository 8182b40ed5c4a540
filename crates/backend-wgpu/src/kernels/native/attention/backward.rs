//! The backward pass. It computes the weights of each tile again from the log-sum-exp that the forward pass
//! stored.
//!
//! With P the weights and dP = gradient · valueᵀ, the gradient of the scores is dS = P ∘ (dP − Σ P ∘ dP);
//! the sum equals that of gradient ∘ out. Three dispatches compute the sums, the gradient of the queries by
//! blocks of queries, and those of keys and values by blocks of keys: each result is added up by one
//! invocation, in one order.

use tensor_core::DType;

use super::{
    GRADIENT, KEY, MASK, Matrix, OUT, Problem, QUERY, VALUE, bases,
    forward::{scores, seen},
    store,
    tile::{self, INNER, INVOCATIONS, OUTER, Rows},
};
use crate::codegen::{
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::FIELDS,
    index,
    storage::Elements,
    wgsl::Code,
};

/// The inputs: query, key and value are the first three.
const OUT_INPUT: usize = 3;
const LOGARITHMS_INPUT: usize = 4;
const GRADIENT_INPUT: usize = 5;

/// Features of a workgroup: of the gradient of queries, and of each of those of keys and values.
const QUERY_SLICE: usize = 128;
const KEY_SLICE: usize = 64;

/// Queries of a workgroup that computes sums, each by 8 invocations.
const SUMS: usize = INVOCATIONS / 8;

pub(super) fn dispatches(p: &Problem<'_>) -> Dispatches {
    // A pair of words for each query, and two pairs for the position in the random stream.
    let words = 2 * (p.batches * p.rows + 2);
    Dispatches { list: vec![terms(p), of_queries(p), of_keys(p)], temporaries: vec![(DType::U32, words)] }
}

/// Writes a pair of words for each query, the log-sum-exp and the sum of gradient ∘ out. The pairs after
/// them hold the seed and the offset of the random stream, so that the later dispatches need no binding for
/// it: browsers allow eight.
fn terms(p: &Problem<'_>) -> Dispatch {
    let mut d = Dispatch::new("attention_terms");
    let lines = p.batches * p.rows;
    d.workgroups = lines.div_ceil(SUMS);
    d.work = p.features * SUMS;
    p.sizes(&mut d);
    d.params.size("lines", lines);
    p.matrix(OUT, OUT_INPUT, &mut d);
    p.matrix(GRADIENT, GRADIENT_INPUT, &mut d);
    let operand = &p.kernel.operands[LOGARITHMS_INPUT];
    d.bind("logarithms", Elements::of(operand.dtype), false, Resource::Input(LOGARITHMS_INPUT));
    let layout = &operand.layout;
    let (shape, strides, offset) = (layout.shape(), layout.strides(), layout.offset());
    let function = index::function("logarithm_at", shape, strides, offset, &mut d.params);
    d.code.append(&function);
    p.place_in_stream(&mut d);
    d.bind("terms", "vec2<u32>", true, Resource::Temporary(0));
    let c = &mut d.code;
    c.line(format_args!("var<workgroup> parts: array<f32, {INVOCATIONS}>;"));
    c.entry(INVOCATIONS, |c| {
        tile::place(c);
        c.bind("line", format_args!("workgroup_index * {SUMS}u + ty"));
        c.bind("batch", "min(line / params.rows, params.batches - 1u)");
        c.bind("row", "line - batch * params.rows");
        bases(&[OUT, GRADIENT], c);
        c.var("sum", "0.0");
        c.count("f", ["tx * 4u", "params.features", "32u"], |c| {
            c.bind("a", "attended4(attended_base, row, f)");
            c.line("sum += dot(a, gradient4(gradient_base, row, f));");
        });
        c.set("parts[local_index]", "sum");
        c.line("workgroupBarrier();");
        c.when("tx == 0u && line < params.lines", |c| {
            c.bind("first", "ty * 8u");
            let parts: Vec<String> = (0..8).map(|t| format!("parts[first + {t}u]")).collect();
            c.bind("logarithm", "load_logarithms(logarithm_at(line))");
            let pair = format!("bitcast<u32>(logarithm), bitcast<u32>({})", parts.join(" + "));
            c.set("terms[line]", format_args!("vec2<u32>({pair})"));
        });
        if p.place().is_some() {
            c.when("workgroup_index == 0u && local_index < 2u", |c| {
                let word = |i: &str| format!("place[params.place_first + {i} * params.place_step]");
                let pair = [word("(local_index * 2u)"), word("(local_index * 2u + 1u)")].join(", ");
                c.set("terms[params.lines + local_index]", format_args!("vec2<u32>({pair})"));
            });
        }
    });
    d
}

/// The parts that the two later dispatches share.
fn declare(p: &Problem<'_>, d: &mut Dispatch) {
    p.sizes(d);
    d.params.size("workgroups", d.workgroups);
    d.params.size("lines", p.batches * p.rows);
    for (k, matrix) in [QUERY, KEY, VALUE].into_iter().enumerate() {
        p.matrix(matrix, k, d);
    }
    p.matrix(GRADIENT, GRADIENT_INPUT, d);
    p.declare_mask(d);
    d.bind("terms", "vec2<u32>", false, Resource::Temporary(0));
    p.declare_kept("terms[params.lines]", "terms[params.lines + 1u]", d);
    Problem::declare_functions(&mut d.code);
    // The terms of a query; the weights of one beyond the last are 0.
    d.code.function("term", &[("batch", "u32"), ("row", "u32")], "vec2<f32>", |c| {
        c.when("row >= params.rows", |c| c.line("return vec2<f32>(inf_f32(), 0.0);"));
        c.line("return bitcast<vec2<f32>>(terms[batch * params.rows + row]);");
    });
    tile::declare(false, &mut d.code);
}

/// The bases of all matrices.
fn all_bases(p: &Problem<'_>, c: &mut Code) {
    bases(&[QUERY, KEY, VALUE, GRADIENT], c);
    if p.attention.mask {
        bases(&[MASK], c);
    }
}

/// The gradient of the queries.
fn of_queries(p: &Problem<'_>) -> Dispatch {
    let mut d = Dispatch::new("attention_of_queries");
    let (blocks, slices) = (p.rows.div_ceil(OUTER), p.width.div_ceil(QUERY_SLICE));
    d.workgroups = p.batches * blocks * slices;
    d.work = ((p.width + p.features + p.width.min(QUERY_SLICE)) * OUTER).saturating_mul(p.keys);
    d.params.size("blocks", blocks);
    declare(p, &mut d);
    let fours = p.width.is_multiple_of(4);
    let dtype = p.kernel.outputs[0].dtype;
    d.bind("query_gradient", Elements::of(dtype).in_fours(fours), true, Resource::Output(0));
    let groups = tile::groups(p.width.min(QUERY_SLICE));
    d.code.entry(INVOCATIONS, |c| {
        c.return_if("workgroup_index >= params.workgroups");
        c.bind("q0", format_args!("(params.blocks - 1u - workgroup_index % params.blocks) * {OUTER}u"));
        c.bind("batch", "(workgroup_index / params.blocks) % params.batches");
        c.bind("f0", format_args!("workgroup_index / (params.blocks * params.batches) * {QUERY_SLICE}u"));
        tile::place(c);
        all_bases(p, c);
        c.bind("row", "q0 + ty * 4u");
        (0..4).for_each(|r| c.bind(format_args!("term{r}"), format_args!("term(batch, row + {r}u)")));
        tile::sums("sum", groups, c);
        c.bind("seen", seen(p));
        c.count("k0", ["0u", "seen", &format!("{INNER}u")], |c| {
            let [queries, keys] = [("q0", QUERY), ("k0", KEY)].map(|(first, matrix)| Rows { matrix, first });
            tile::product("s", queries, keys, c);
            let [outer, inner] =
                [("q0", GRADIENT), ("k0", VALUE)].map(|(first, matrix)| Rows { matrix, first });
            tile::product("g", outer, inner, c);
            c.bind("key", "k0 + tx * 4u");
            scores(p, c);
            for r in 0..4 {
                c.bind(format_args!("weight{r}"), format_args!("exp4(s{r} - vec4<f32>(term{r}.x))"));
                if p.attention.dropout.is_some() {
                    let kept =
                        [0, 1, 2, 3].map(|e| format!("kept(batch, row + {r}u, key + {e}u)")).join(", ");
                    c.line(format_args!("g{r} *= vec4<f32>({kept});"));
                }
                c.set(format_args!("g{r}"), format_args!("weight{r} * (g{r} - vec4<f32>(term{r}.y))"));
            }
            tile::put("g", c);
            tile::accumulate("sum", groups, keys, "f0", c);
        });
        for r in 0..4 {
            c.when(format_args!("row + {r}u < params.rows"), |c| {
                c.bind("line", format_args!("(batch * params.rows + row + {r}u) * params.width"));
                for g in 0..groups {
                    let column = format!("column{g}");
                    c.bind(&column, format_args!("f0 + {}u + tx * 4u", g * 32));
                    let value = format!("(sum{r}_{g} * bitcast<f32>(params.scale))");
                    store(["query_gradient", "line", &column, "params.width", &value], fours, c);
                }
            });
        }
    });
    d
}

/// The gradients of keys and values. The outer rows of a tile are keys, and the inner ones queries.
fn of_keys(p: &Problem<'_>) -> Dispatch {
    let mut d = Dispatch::new("attention_of_keys");
    let (blocks, slices) = (p.keys.div_ceil(OUTER), p.width.max(p.features).div_ceil(KEY_SLICE));
    d.workgroups = p.batches * blocks * slices;
    d.work = ((p.width + p.features + 2 * KEY_SLICE) * OUTER).saturating_mul(p.rows);
    d.params.size("blocks", blocks);
    declare(p, &mut d);
    let results = [
        Given {
            name: "key_gradient",
            to: "sum_key",
            matrix: KEY,
            size: p.width,
            factor: " * bitcast<f32>(params.scale)",
        },
        Given { name: "value_gradient", to: "sum_value", matrix: VALUE, size: p.features, factor: "" },
    ];
    for (k, Given { name, size, .. }) in results.iter().enumerate() {
        let elements = Elements::of(p.kernel.outputs[k + 1].dtype).in_fours(size.is_multiple_of(4));
        d.bind(*name, elements, true, Resource::Output(k + 1));
    }
    d.code.entry(INVOCATIONS, |c| {
        c.return_if("workgroup_index >= params.workgroups");
        // Under a causal mask most queries see the first keys, which come first.
        c.bind("k0", format_args!("workgroup_index % params.blocks * {OUTER}u"));
        c.bind("batch", "(workgroup_index / params.blocks) % params.batches");
        c.bind("f0", format_args!("workgroup_index / (params.blocks * params.batches) * {KEY_SLICE}u"));
        tile::place(c);
        all_bases(p, c);
        c.bind("key", "k0 + ty * 4u");
        for Given { to, .. } in &results {
            tile::sums(to, results_groups(&results, to), c);
        }
        let start = match p.attention.causal {
            // The first query that sees key k0, at the start of its tile.
            Some(_) => format!("(max(k0, params.first) - params.first) / {INNER}u * {INNER}u"),
            None => "0u".into(),
        };
        c.bind("start", start);
        c.count("q0", ["start", "params.rows", &format!("{INNER}u")], |c| tile_of_keys(p, &results, c));
        for r in 0..4 {
            c.when(format_args!("key + {r}u < params.keys"), |c| {
                c.bind("line", format_args!("batch * params.keys + key + {r}u"));
                for Given { name, to, matrix, size, factor } in &results {
                    let columns = format!("params.{}", matrix.columns);
                    c.bind(format_args!("{name}_line"), format_args!("line * {columns}"));
                    for g in 0..results_groups(&results, to) {
                        let column = format!("{name}_column{g}");
                        c.bind(&column, format_args!("f0 + {}u + tx * 4u", g * 32));
                        let value = format!("({to}{r}_{g}{factor})");
                        let line = format!("{name}_line");
                        store([name, &line, &column, &columns, &value], size.is_multiple_of(4), c);
                    }
                }
            });
        }
    });
    d
}

/// A result of [`of_keys`].
struct Given {
    name: &'static str,
    to: &'static str,
    /// The matrix of which it is the gradient.
    matrix: Matrix,
    size: usize,
    factor: &'static str,
}

fn results_groups(results: &[Given; 2], to: &str) -> usize {
    results.iter().find(|result| result.to == to).map_or(0, |result| tile::groups(result.size.min(KEY_SLICE)))
}

/// Adds the contribution of 32 queries to the gradients of 64 keys and values.
fn tile_of_keys(p: &Problem<'_>, results: &[Given; 2], c: &mut Code) {
    let [keys, queries] = [("k0", KEY), ("q0", QUERY)].map(|(first, matrix)| Rows { matrix, first });
    let [values, gradients] = [("k0", VALUE), ("q0", GRADIENT)].map(|(first, matrix)| Rows { matrix, first });
    tile::product("s", keys, queries, c);
    tile::product("g", values, gradients, c);
    c.bind("row", "q0 + tx * 4u");
    for e in 0..4 {
        c.bind(format_args!("term{e}"), format_args!("term(batch, row + {e}u)"));
    }
    c.bind("logarithms", "vec4<f32>(term0.x, term1.x, term2.x, term3.x)");
    c.bind("term_sums", "vec4<f32>(term0.y, term1.y, term2.y, term3.y)");
    c.bind("unseen", "hidden()");
    if p.attention.causal.is_some() {
        // The keys that each of the four queries sees end before these.
        c.bind("ends", "vec4<u32>(row, row + 1u, row + 2u, row + 3u) + vec4<u32>(params.first + 1u)");
    }
    if p.attention.mask {
        for e in 0..4 {
            c.bind(format_args!("m{e}"), format_args!("mask4(mask_base, row + {e}u, key)"));
        }
    }
    for (r, x) in FIELDS.iter().enumerate() {
        c.line(format_args!("s{r} *= bitcast<f32>(params.scale);"));
        if let Some(k) = p.mask() {
            let parts = format!("(m0.{x}, m1.{x}, m2.{x}, m3.{x})");
            match p.kernel.operands[k].dtype.is_bool() {
                true => {
                    let is_seen = format!("vec4<u32>{parts} != vec4<u32>()");
                    c.set(format_args!("s{r}"), format_args!("select(unseen, s{r}, {is_seen})"));
                }
                false => c.line(format_args!("s{r} += vec4<f32>{parts};")),
            }
        }
        if p.attention.causal.is_some() {
            let beyond = format!("vec4<u32>(key + {r}u) >= ends");
            c.set(format_args!("s{r}"), format_args!("select(s{r}, unseen, {beyond})"));
        }
        c.set(format_args!("s{r}"), format_args!("exp4(s{r} - logarithms)"));
        if p.attention.dropout.is_some() {
            let kept = [0, 1, 2, 3].map(|e| format!("kept(batch, row + {e}u, key + {r}u)")).join(", ");
            c.bind(format_args!("kept{r}"), format_args!("vec4<f32>({kept})"));
            c.set(format_args!("g{r}"), format_args!("s{r} * (g{r} * kept{r} - term_sums)"));
            c.line(format_args!("s{r} *= kept{r};"));
        } else {
            c.set(format_args!("g{r}"), format_args!("s{r} * (g{r} - term_sums)"));
        }
    }
    let [of_key, of_value] = results;
    tile::put("s", c);
    tile::accumulate(of_value.to, results_groups(results, of_value.to), gradients, "f0", c);
    tile::put("g", c);
    tile::accumulate(of_key.to, results_groups(results, of_key.to), queries, "f0", c);
}
