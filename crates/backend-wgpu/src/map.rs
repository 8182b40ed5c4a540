//! Fused elementwise kernels: one thread for each element, or for four where every operand allows vectors.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{
    Layout, Result, collapse,
    kernel::{Instr, MapKernel},
};

use crate::{
    copy,
    draft::{Draft, Drafts, Facts, Params, Slot},
    dtypes::{lane, lane_size},
    formulas,
    index::Space,
};

/// For each input, the output whose buffer it shares, if any.
pub(crate) type Aliases = SmallVec<[Option<u8>; 8]>;

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
    let unit = if vectors { 4 } else { 1 };
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
    let function = formulas::function(program, false, &mut d.params, facts)?;
    let space = Space::new("d", &space_shape, &mut d.params);
    let contiguous = tensor_core::Shape::from(shape.as_slice()).contiguous_strides();
    let mut loads = String::new();
    let mut arguments: Vec<(String, bool)> = Vec::new();
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
            Read::Linear => format!("params.o{k} + u"),
            Read::Strided => {
                coordinates = true;
                let mut per_unit: SmallVec<[isize; 8]> =
                    s.iter().map(|&s| if wide { s / 4 } else { s }).collect();
                if let (true, Some(last)) = (wide, per_unit.last_mut()) {
                    *last = 1;
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
        let _ = writeln!(loads, "    let v{k} = {name}[{at}];");
        arguments.push((format!("v{k}"), wide));
    }
    for o in 0..program.outputs.len() {
        let element = lane(program.output_dtype(o));
        let element = if vectors { format!("vec4<{element}>") } else { element.into() };
        d.bind(format!("out{o}"), element, true, Slot::Output(o));
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
    for lane in 0..unit {
        let list: String = arguments
            .iter()
            .map(
                |(v, wide)| {
                    if *wide { format!(", {v}.{}", ["x", "y", "z", "w"][lane]) } else { format!(", {v}") }
                },
            )
            .collect();
        let i = if vectors { format!("{from}u * 4u + {lane}u") } else { format!("{from}u") };
        let _ = writeln!(body, "    let y{lane} = program({i}{list});");
    }
    for o in 0..program.outputs.len() {
        let field = if program.outputs.len() > 1 { format!(".o{o}") } else { String::new() };
        let value = if vectors {
            let ty = lane(program.output_dtype(o));
            format!("vec4<{ty}>(y0{field}, y1{field}, y2{field}, y3{field})")
        } else {
            format!("y0{field}")
        };
        let _ = writeln!(body, "    out{o}[u] = {value};");
    }
    body.push_str("}\n");
    d.body = body;
    d.work = 256 * unit * program.instrs.len().max(1);
    Ok(d.into())
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
