//! Fused elementwise kernels: an invocation for each element, or for four where every operand allows vectors.

use smallvec::SmallVec;
use tensor_core::{
    DType, Layout, Result, collapse,
    kernel::{Instr, Kernel, Program},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Params, Resource},
        dtypes::{FIELDS, storage_size, storage_type},
        formulas,
        index::Space,
        wgsl::Code,
    },
    kernels::{by_index, copy},
};

/// For each input, the output whose buffer it shares, if any.
pub(crate) type Aliases = SmallVec<[Option<u8>; 8]>;

/// How an invocation reads an input.
enum Load {
    /// By an expression of its place, in vectors of four or not.
    Element { buffer: String, at: String, vector: bool },
    /// At indices, from this place on, and so far apart for neighbouring positions.
    AtIndex { from: String, apart: String },
}

/// The dispatch of a map. `aliases` says which inputs live in an output's buffer; `first` is the flat index of its first
/// position, where it is a part of a larger one.
pub(crate) fn dispatches(
    kernel: &Kernel,
    program: &Program,
    aliases: &Aliases,
    first: usize,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let numel = kernel.space.numel();
    let operands = kernel.layouts();
    // Nothing but a read: a copy, which knows how to go about a transpose.
    if let ([Instr::Load(0)], [0], [layout], [None]) =
        (&program.instrs[..], &program.outputs[..], &operands[..], &aliases[..])
        && program.inputs[0] == program.dtypes[0]
        && let Some(copied) = copy::transposed("map", layout, program.inputs[0])
    {
        return Ok(copied.into());
    }
    let layouts: SmallVec<[&[isize]; 8]> = operands.iter().map(Layout::strides).collect();
    let merged = collapse(&kernel.space, &layouts);
    let (shape, strides) = (&merged.shape, &merged.strides);
    let inner = shape.last().copied().unwrap_or(1);
    let outputs: Vec<DType> = (0..program.outputs.len()).map(|o| program.output_dtype(o)).collect();
    let vectors = numel >= 4
        && program.inputs.iter().chain(&outputs).all(|&d| storage_size(d) == 4)
        // Past the end of a run that is no whole number of vectors there are no indices.
        && (inner % 4 == 0 || shape.len() <= 1 && !kernel.operands.iter().any(|operand| operand.indexed.is_some()))
        && operands.iter().zip(strides).enumerate().all(|(k, (layout, s))| match s.split_last() {
            _ if program.is_indexed(k as u16) => true,
            None | Some((0, _)) => true,
            Some((1, rest)) => layout.offset() % 4 == 0 && rest.iter().all(|s| s % 4 == 0),
            _ => false,
        });
    let unit: usize = if vectors { 4 } else { 1 };
    // The index space in units; the innermost axis counts vectors.
    let mut space_shape = shape.clone();
    if let Some(last) = space_shape.last_mut() {
        *last = last.div_ceil(unit);
    }
    let total = space_shape.iter().product::<usize>();

    let mut d = Dispatch::new("map");
    d.params.size("total", total);
    if first > 0 {
        d.params.size("first", first);
    }
    by_index::load_functions(&kernel.operands, program, &mut d);
    d.code.append(&formulas::function(program, false, &mut d.params, capabilities)?);
    let space = Space::new("d", &space_shape, &mut d.params);
    let contiguous = tensor_core::Shape::from(shape.as_slice()).contiguous_strides();
    let mut loads = Vec::new();
    let mut coordinates = false;
    for (k, (layout, s)) in operands.iter().zip(strides).enumerate() {
        let indexed = program.is_indexed(k as u16);
        let vector = vectors && !indexed && s.last().is_some_and(|&s| s != 0);
        let scale = if vector { 4 } else { 1 };
        d.params.size(format!("o{k}"), layout.offset() / scale);
        let at = if s.iter().all(|&s| s == 0) {
            format!("params.o{k}")
        } else if s[..] == contiguous[..] && !indexed {
            format!("params.o{k} + u")
        } else {
            coordinates = true;
            let mut per_unit: SmallVec<[isize; 8]> =
                s.iter().map(|&s| if vector { s / 4 } else { s }).collect();
            if let Some(last) = per_unit.last_mut() {
                // The innermost axis counts vectors.
                *last = if vector { 1 } else { *last * unit as isize };
            }
            format!("params.o{k}{}", space.offset(&format!("t{k}"), &per_unit, &mut d.params))
        };
        if indexed {
            d.bind(format!("in{k}"), element(program.inputs[k], false), false, Resource::Input(k));
            let word = format!("apart{k}");
            d.params.stride(&word, s.last().copied().unwrap_or(0));
            loads.push(Load::AtIndex { from: at, apart: format!("params.{word}") });
            continue;
        }
        let buffer = match aliases.get(k).copied().flatten() {
            Some(o) => format!("out{o}"),
            None => {
                d.bind(format!("in{k}"), element(program.inputs[k], vector), false, Resource::Input(k));
                format!("in{k}")
            }
        };
        loads.push(Load::Element { buffer, at, vector });
    }
    for (o, &dtype) in outputs.iter().enumerate() {
        d.bind(format!("out{o}"), element(dtype, vectors), true, Resource::Output(o));
    }
    let squares = strided_axis(shape, strides).filter(|_| !vectors);
    d.workgroups = match squares {
        Some(axis) => squares_along(shape, axis, &mut d.params),
        None => total.div_ceil(256),
    };
    d.code.entry(256, |c| {
        match squares {
            Some(_) => in_squares(c),
            None => c.bind("u", "workgroup_index * 256u + local_index"),
        }
        c.return_if("u >= params.total");
        if coordinates {
            c.append(&space.unravel("u"));
        }
        for (k, load) in loads.iter().enumerate() {
            match load {
                Load::Element { buffer, at, .. } => {
                    c.bind(format_args!("v{k}"), format_args!("{buffer}[{at}]"));
                }
                Load::AtIndex { from, .. } => c.bind(format_args!("v{k}"), from),
            }
        }
        let from = if first == 0 { "" } else { "params.first + " };
        for (e, field) in FIELDS.iter().enumerate().take(unit) {
            let value = |(k, load): (usize, &Load)| match load {
                Load::Element { vector: true, .. } => format!(", v{k}.{field}"),
                Load::AtIndex { apart, .. } if e > 0 => format!(", v{k} + {e}u * {apart}"),
                Load::Element { .. } | Load::AtIndex { .. } => format!(", v{k}"),
            };
            let list: String = loads.iter().enumerate().map(value).collect();
            let i = if unit == 1 { format!("{from}u") } else { format!("{from}u * 4u + {e}u") };
            c.bind(format_args!("y{e}"), format_args!("program({i}{list})"));
        }
        for (o, &dtype) in outputs.iter().enumerate() {
            let field = if outputs.len() > 1 { format!(".o{o}") } else { String::new() };
            let all: Vec<String> = (0..unit).map(|e| format!("y{e}{field}")).collect();
            let stored =
                if vectors { format!("{}({})", element(dtype, true), all.join(", ")) } else { all.join("") };
            c.set(format_args!("out{o}[u]"), stored);
        }
    });
    d.work = 256 * unit * program.instrs.len().max(1);
    Ok(d.into())
}

/// The WGSL type of a buffer's elements, in vectors of four or not.
fn element(dtype: DType, vector: bool) -> String {
    let t = storage_type(dtype);
    if vector { format!("vec4<{t}>") } else { t.into() }
}

/// The side of the square of positions that a workgroup takes where an input lies across the output.
const SQUARE: usize = 16;

/// The axis, other than the last, along which some input is dense that is not dense along the last.
fn strided_axis(shape: &[usize], strides: &[impl std::ops::Deref<Target = [isize]>]) -> Option<usize> {
    let wide = |axis: usize| shape[axis] >= SQUARE;
    let last = shape.len().checked_sub(1).filter(|&last| wide(last))?;
    strides
        .iter()
        .filter(|s| s[last].unsigned_abs() > 1)
        .find_map(|s| (0..last).find(|&axis| s[axis].unsigned_abs() == 1 && wide(axis)))
}

/// Adds the sizes that [`in_squares`] reads; gives how many workgroups that takes.
fn squares_along(shape: &[usize], axis: usize, params: &mut Params) -> usize {
    let inner = shape.last().copied().unwrap_or(1);
    let (rows, middle) = (shape[axis], shape[axis + 1..shape.len() - 1].iter().product::<usize>());
    let (across, along) = (inner.div_ceil(SQUARE), rows.div_ceil(SQUARE));
    let sizes = [("inner", inner), ("rows", rows), ("middle", middle), ("across", across), ("along", along)];
    for (name, size) in sizes {
        params.size(name, size);
    }
    across * along * (shape.iter().product::<usize>() / (inner * rows))
}

/// Gives an invocation its position `u` in squares along an axis and the last axis, so that inputs dense along either use all of
/// the memory that they touch; beyond an edge, `u` is `params.total`.
fn in_squares(c: &mut Code) {
    c.bind("square", "workgroup_index / params.across");
    c.bind("batch", "square / params.along");
    c.bind(
        "ci",
        format_args!("(workgroup_index - square * params.across) * {SQUARE}u + local_index % {SQUARE}u"),
    );
    c.bind("cr", format_args!("(square - batch * params.along) * {SQUARE}u + local_index / {SQUARE}u"));
    c.bind("outer", "batch / params.middle");
    c.bind("row", "(outer * params.rows + cr) * params.middle + (batch - outer * params.middle)");
    c.bind("u", "select(params.total, row * params.inner + ci, ci < params.inner && cr < params.rows)");
}
