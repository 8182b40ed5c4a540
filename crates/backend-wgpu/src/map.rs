//! Fused elementwise kernels: one thread for each element, or for four where every operand allows vectors. A processor
//! reads and writes memory thread by thread, in a loop with branches: there a thread takes eight where there are many.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{
    DType, Layout, Result, collapse,
    kernel::{Instr, MapKernel},
};

use crate::{
    copy,
    draft::{Draft, Drafts, Facts, Params, Slot},
    dtypes::{FIELDS, MANY, lane, lane_size, pairs},
    formulas,
    index::Space,
};

/// For each input, the output whose buffer it shares, if any.
pub(crate) type Aliases = SmallVec<[Option<u8>; 8]>;

/// Instructions of a program that is written out eight times, at most.
const SHORT: usize = 128;

/// How an input is read.
#[derive(Clone, Copy, PartialEq)]
enum Read {
    /// One element for all positions.
    Splat,
    /// The position itself, from an offset on.
    Linear,
    /// By coordinates.
    Strided,
}

/// The draft of a map. `aliases` says which inputs live in an output's buffer; `first` is the flat index of its first
/// position, where it is a part of a larger one.
pub(crate) fn draft(
    kernel: &MapKernel,
    aliases: &Aliases,
    first: usize,
    facts: &Facts<'_>,
) -> Result<Drafts> {
    let numel = kernel.shape.numel();
    let program = &kernel.program;
    // Nothing but a read: a copy, which knows how to go about a transpose.
    if let ([Instr::Load(0)], [0], [layout], [None]) =
        (&program.instrs[..], &program.outputs[..], &kernel.inputs[..], &aliases[..])
        && program.inputs[0] == program.dtypes[0]
        && let Some(copied) = copy::transposed("map", layout, program.inputs[0], facts)
    {
        return Ok(copied.into());
    }
    let layouts: SmallVec<[&[isize]; 8]> = kernel.inputs.iter().map(Layout::strides).collect();
    let merged = collapse(&kernel.shape, &layouts);
    let (shape, strides) = (&merged.shape, &merged.strides);
    let inner = shape.last().copied().unwrap_or(1);
    let vectors = numel >= 4
        && program.inputs.iter().all(|&d| lane_size(d) == 4)
        && (0..program.outputs.len()).all(|o| lane_size(program.output_dtype(o)) == 4)
        && (shape.len() <= 1 || inner % 4 == 0)
        && kernel.inputs.iter().zip(strides).all(|(layout, s)| match s.split_last() {
            None | Some((0, _)) => true,
            Some((1, rest)) => layout.offset() % 4 == 0 && rest.iter().all(|s| s % 4 == 0),
            _ => false,
        });
    let eight = vectors
        && facts.direct
        && numel >= MANY
        && program.instrs.len() <= SHORT
        && (shape.len() <= 1 || inner % 8 == 0);
    // A thread's elements, in vectors of four where there is more than one.
    let unit: usize = match (eight, vectors) {
        (true, _) => 8,
        (_, true) => 4,
        _ => 1,
    };
    let pieces = unit.div_ceil(4);
    // The index space in units; the innermost axis counts vectors.
    let mut space_shape = shape.clone();
    if let Some(last) = space_shape.last_mut() {
        *last = last.div_ceil(unit);
    }
    let total = space_shape.iter().product::<usize>();

    let mut d = Draft::new("map");
    d.params.size("total", total);
    let from = if first == 0 { "" } else { "params.first + " };
    if first > 0 {
        d.params.size("first", first);
    }
    let mut function = formulas::function(program, false, &mut d.params, facts)?;
    // A processor computes both sides of a branch; what is rare and dear is computed apart there.
    let near = if vectors && facts.direct { formulas::near(&function) } else { None };
    let space = Space::new("d", &space_shape, &mut d.params);
    let contiguous = tensor_core::Shape::from(shape.as_slice()).contiguous_strides();
    let mut loads = String::new();
    let mut arguments: Vec<(usize, bool)> = Vec::new();
    let mut coordinates = false;
    for (k, (layout, s)) in kernel.inputs.iter().zip(strides).enumerate() {
        let read = if s.iter().all(|&s| s == 0) {
            Read::Splat
        } else if s[..] == contiguous[..] {
            Read::Linear
        } else {
            Read::Strided
        };
        let wide = vectors && s.last().is_some_and(|&s| s != 0);
        let scale = if wide { 4 } else { 1 };
        d.params.size(format!("o{k}"), layout.offset() / scale);
        let at = match read {
            Read::Splat => format!("params.o{k}"),
            Read::Linear if wide && pieces > 1 => format!("params.o{k} + u * {pieces}u"),
            Read::Linear => format!("params.o{k} + u"),
            Read::Strided => {
                coordinates = true;
                let mut per_unit: SmallVec<[isize; 8]> =
                    s.iter().map(|&s| if wide { s / 4 } else { s }).collect();
                if let (true, Some(last)) = (wide, per_unit.last_mut()) {
                    *last = pieces as isize;
                }
                format!("params.o{k}{}", space.offset(&format!("t{k}"), &per_unit, &mut d.params))
            }
        };
        let element = lane(program.inputs[k]);
        let name = match aliases.get(k).copied().flatten() {
            Some(o) => format!("out{o}"),
            None => {
                let element = if wide { format!("vec4<{element}>") } else { element.into() };
                d.bind(format!("in{k}"), element, false, Slot::Input(k));
                format!("in{k}")
            }
        };
        if wide {
            for piece in 0..pieces {
                let then = if piece == 0 { String::new() } else { format!(" + {piece}u") };
                let _ = writeln!(loads, "    let v{k}_{piece} = {name}[{at}{then}];");
            }
        } else {
            let _ = writeln!(loads, "    let v{k} = {name}[{at}];");
        }
        arguments.push((k, wide));
    }
    // Eight elements are written as four pairs, unless an input is read from there.
    let paired =
        |o: usize| unit == 8 && facts.info.dtypes.contains(&DType::I64) && !aliases.contains(&Some(o as u8));
    for o in 0..program.outputs.len() {
        let element = lane(program.output_dtype(o));
        let element = match (paired(o), vectors) {
            (true, _) => "vec4<u64>".into(),
            (_, true) => format!("vec4<{element}>"),
            _ => element.into(),
        };
        d.bind(format!("out{o}"), element, true, Slot::Output(o));
    }
    if let Some(near) = &near {
        function.push_str(near);
    }

    let mut body = function;
    let _ = write!(body, "\n@compute @workgroup_size(256)\n{}", taper_shaders::ENTRY);
    d.groups = match crosswise(shape, strides).filter(|_| !vectors) {
        Some(axis) => in_squares(shape, axis, &mut d.params, &mut body),
        None => {
            body.push_str("    let u = group * 256u + lane;\n");
            total.div_ceil(256)
        }
    };
    body.push_str("    if (u >= params.total) {\n        return;\n    }\n");
    if coordinates {
        body.push_str(&space.unravel("u"));
    }
    body.push_str(&loads);
    let element = |k: usize, wide: bool, e: usize| {
        if wide { format!("v{k}_{}.{}", e / 4, FIELDS[e % 4]) } else { format!("v{k}") }
    };
    let of_unit = if unit == 1 { format!("{from}u") } else { format!("{from}u * {unit}u") };
    let (bind, program_name) = if near.is_some() { ("var", "program_near") } else { ("let", "program") };
    for e in 0..unit {
        let list: String = arguments.iter().map(|&(k, wide)| format!(", {}", element(k, wide, e))).collect();
        let i = if unit == 1 { of_unit.clone() } else { format!("{of_unit} + {e}u") };
        let _ = writeln!(body, "    {bind} y{e} = {program_name}({i}{list});");
    }
    if near.is_some() {
        again(unit, &of_unit, &arguments, element, &mut body);
    }
    for o in 0..program.outputs.len() {
        let field = if program.outputs.len() > 1 { format!(".o{o}") } else { String::new() };
        let ty = lane(program.output_dtype(o));
        let y = |e: usize| format!("y{e}{field}");
        if unit == 1 {
            let _ = writeln!(body, "    out{o}[u] = {};", y(0));
        } else if paired(o) {
            let _ = writeln!(body, "    out{o}[u] = {};", pairs(std::array::from_fn(y)));
        } else {
            for piece in 0..pieces {
                let at = if pieces == 1 { "u".into() } else { format!("u * {pieces}u + {piece}u") };
                let all = [0, 1, 2, 3].map(|e| y(piece * 4 + e)).join(", ");
                let _ = writeln!(body, "    out{o}[{at}] = vec4<{ty}>({all});");
            }
        }
    }
    body.push_str("}\n");
    d.body = body;
    d.work = 256 * unit * program.instrs.len().max(1);
    Ok(d.into())
}

/// Statements that compute the elements of a thread once more by the whole `program`, where `program_near` met an argument that
/// was not near. In a loop over the elements, so that its text is carried out once where there are none.
fn again(
    unit: usize,
    of_unit: &str,
    arguments: &[(usize, bool)],
    element: impl Fn(usize, bool, usize) -> String,
    body: &mut String,
) {
    let _ = writeln!(body, "    for (var e = 0u; farthest >= {}u && e < {unit}u; e += 1u) {{", formulas::FAR);
    let mut list = String::new();
    for &(k, wide) in arguments {
        if !wide {
            let _ = write!(list, ", v{k}");
            continue;
        }
        let mut chosen = element(k, wide, 0);
        for e in 1..unit {
            chosen = format!("select({chosen}, {}, e == {e}u)", element(k, wide, e));
        }
        let _ = writeln!(body, "    let a{k} = {chosen};");
        let _ = write!(list, ", a{k}");
    }
    let _ = writeln!(body, "    let y = program({of_unit} + e{list});");
    for e in 0..unit {
        let _ = writeln!(body, "    if (e == {e}u) {{\n        y{e} = y;\n    }}");
    }
    body.push_str("    }\n");
}

/// The side of the square of positions that a workgroup takes where an input lies crosswise.
const SQUARE: usize = 16;

/// The axis, other than the last, along which some input is dense that is not dense along the last.
fn crosswise(shape: &[usize], strides: &[impl std::ops::Deref<Target = [isize]>]) -> Option<usize> {
    let wide = |axis: usize| shape[axis] >= SQUARE;
    let last = shape.len().checked_sub(1).filter(|&last| wide(last))?;
    strides
        .iter()
        .filter(|s| s[last].unsigned_abs() > 1)
        .find_map(|s| (0..last).find(|&axis| s[axis].unsigned_abs() == 1 && wide(axis)))
}

/// Statements that give a thread its position `u` in squares along `axis` and the last axis, so that inputs dense along
/// either use all of the memory that they touch; beyond an edge, `u` is `params.total`. Gives how many workgroups that takes.
fn in_squares(shape: &[usize], axis: usize, params: &mut Params, body: &mut String) -> usize {
    let inner = shape.last().copied().unwrap_or(1);
    let (rows, middle) = (shape[axis], shape[axis + 1..shape.len() - 1].iter().product::<usize>());
    let (across, along) = (inner.div_ceil(SQUARE), rows.div_ceil(SQUARE));
    params.size("inner", inner);
    params.size("rows", rows);
    params.size("middle", middle);
    params.size("across", across);
    params.size("along", along);
    let _ = writeln!(
        body,
        "    let square = group / params.across;\n    let batch = square / params.along;\n    let ci = (group - square * params.across) * {SQUARE}u + lane % {SQUARE}u;\n    let cr = (square - batch * params.along) * {SQUARE}u + lane / {SQUARE}u;\n    let outer = batch / params.middle;\n    let line = (outer * params.rows + cr) * params.middle + (batch - outer * params.middle);\n    let u = select(params.total, line * params.inner + ci, ci < params.inner && cr < params.rows);"
    );
    across * along * (shape.iter().product::<usize>() / (inner * rows))
}
