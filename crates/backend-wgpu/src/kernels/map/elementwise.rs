//! Fused elementwise kernels. One invocation computes one element; or four, if every operand allows vectors
//! or if elements of an output share words, so that an invocation owns the words that it writes.

use smallvec::SmallVec;
use tensor_core::{
    DType, Layout, Result, Shape, collapse,
    kernel::{Instr, Kernel, Program},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Params, Resource},
        dtypes::{FIELDS, is_packed, loaded, storage_size},
        formulas,
        index::Space,
        storage::Elements,
        wgsl::Code,
    },
    kernels::{
        by_index, copy,
        cut::{Aliases, Cut, Place},
        map::frame::Frames,
        window::Windows,
    },
};

/// The body of a map: its program.
struct Map<'a>(&'a Program);

impl Cut for Map<'_> {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        dispatches(kernel, self.0, place.aliases, place.first(), place.capabilities)
    }

    fn is_positional(&self) -> bool {
        formulas::is_positional(self.0)
    }
}

/// The dispatches of a map of any size.
pub(crate) fn in_windows(
    kernel: &Kernel,
    program: &Program,
    aliases: &Aliases,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let merged = merged(kernel, program);
    let kernel = merged.as_ref().unwrap_or(kernel);
    Windows { kernel, cut: &Map(program), aliases, capabilities }.dispatches()
}

/// A map with merged axes: fewer and longer axes need fewer pieces.
fn merged(kernel: &Kernel, program: &Program) -> Option<Kernel> {
    // A frame is around axes that must stay apart.
    if kernel.is_framed() {
        return None;
    }
    let layouts = kernel.layouts();
    let strides: SmallVec<[&[isize]; 8]> = layouts.iter().map(Layout::strides).collect();
    let merged = collapse(&kernel.space, &strides);
    let space = Shape::from(&merged.shape[..]);
    let over = layouts.iter().zip(&merged.strides);
    let layouts = over.map(|(layout, s)| Layout::new(space.clone(), s, layout.offset())).collect::<Vec<_>>();
    let indexed = kernel.operands.iter().map(|operand| operand.indexed);
    let mut merged = Kernel::map(space, layouts, program.clone()).with_indexed(indexed);
    for (operand, own) in merged.operands.iter_mut().zip(&kernel.operands) {
        operand.format.clone_from(&own.format);
    }
    Some(merged)
}

/// The way an invocation reads an input.
enum Load {
    /// From offset `at`, with the elements that `reach` tells.
    Element { buffer: String, at: String, reach: Reach },
    /// At indices: the offset of the first position, and the distance between neighbouring positions.
    AtIndex { from: String, apart: String },
}

/// The elements of an input that an invocation of several neighbouring positions reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reach {
    /// One element for all positions.
    One,
    /// Four elements at once.
    Four,
    /// One element for each position, with a constant stride.
    Strided,
}

/// The dispatch of a map. `aliases` tells which inputs share an output's buffer; `first` is the flat index
/// of its first position if it is a piece of a larger map.
pub(crate) fn dispatches(
    kernel: &Kernel,
    program: &Program,
    aliases: &Aliases,
    first: usize,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let numel = kernel.space.numel();
    let operands = kernel.layouts();
    // A plain load is a copy, which also handles transposes.
    if let ([Instr::Load(0)], [0], [layout], [None]) =
        (&program.instrs[..], &program.outputs[..], &operands[..], &aliases[..])
        && program.inputs[0] == program.dtypes[0]
        && kernel.operands[0].format.is_none()
        && !kernel.is_framed()
        && let Some(copied) = copy::transposed("map", layout, program.inputs[0])
    {
        return Ok(copied.into());
    }
    let layouts: SmallVec<[&[isize]; 8]> = operands.iter().map(Layout::strides).collect();
    let merged = collapse(&kernel.space, &layouts);
    let (shape, strides) = (&merged.shape, &merged.strides);
    let inner = shape.last().copied().unwrap_or(1);
    let outputs: Vec<DType> = (0..program.outputs.len()).map(|o| program.output_dtype(o)).collect();
    let packs = outputs.iter().any(|&dtype| is_packed(dtype));
    // Whether four positions from a multiple of four on are neighbours along the last axis. Beyond the end
    // of a run whose length is not a multiple of four there are no indices and no blocks to read.
    let indexed = kernel.operands.iter().any(|operand| operand.indexed.is_some() || operand.format.is_some());
    let in_fours = shape.len() <= 1 && !indexed || inner % 4 == 0;
    let reach = |k: usize| match strides[k].split_last() {
        None | Some((0, _)) => Reach::One,
        Some((1, rest))
            if storage_size(program.inputs[k]) <= 4
                && operands[k].offset().is_multiple_of(4)
                && rest.iter().all(|s| s % 4 == 0) =>
        {
            Reach::Four
        }
        _ => Reach::Strided,
    };
    let vectors = in_fours
        && numel >= 4
        && program.inputs.iter().chain(&outputs).all(|&d| storage_size(d) <= 4)
        && (0..operands.len()).all(|k| program.is_indexed(k as u16) || reach(k) != Reach::Strided);
    let unit: usize = if vectors || packs { 4 } else { 1 };
    // The index space in units (positions, or groups of four); units that may cross a row end are counted
    // by flat position.
    let mut space_shape = shape.clone();
    if let Some(last) = space_shape.last_mut().filter(|_| in_fours) {
        *last = last.div_ceil(unit);
    }
    let total = numel.div_ceil(unit);

    let mut d = Dispatch::new("map");
    d.params.size("total", total);
    if packs || kernel.is_framed() {
        d.params.size("numel", numel);
    }
    if first > 0 {
        d.params.size("first", first);
    }
    by_index::load_functions(&kernel.operands, program, &mut d);
    d.code.append(&formulas::function(program, false, &mut d.params, capabilities)?);
    let space = Space::new("d", &space_shape, &mut d.params);
    let contiguous = tensor_core::Shape::from(shape.as_slice()).contiguous_strides();
    let across = if in_fours { unit } else { 1 };
    let mut loads = Vec::new();
    let mut coordinates = false;
    for (k, (layout, s)) in operands.iter().zip(strides).enumerate() {
        let indexed = program.is_indexed(k as u16);
        let reach = if unit == 1 { Reach::One } else { reach(k) };
        d.params.size(format!("o{k}"), layout.offset());
        let at = if s.iter().all(|&s| s == 0) {
            format!("params.o{k}")
        } else if s[..] == contiguous[..] {
            if across == 1 { format!("params.o{k} + u") } else { format!("params.o{k} + u * 4u") }
        } else {
            coordinates = true;
            let mut per_unit: SmallVec<[isize; 8]> = s.iter().copied().collect();
            per_unit.iter_mut().rev().take(1).for_each(|last| *last *= across as isize);
            format!("params.o{k}{}", space.offset(&format!("t{k}"), &per_unit, &mut d.params))
        };
        if indexed {
            let elements = Elements::of_operand(&kernel.operands[k]);
            d.bind(format!("in{k}"), elements, false, Resource::Input(k));
            let word = format!("apart{k}");
            d.params.stride(&word, s.last().copied().unwrap_or(0));
            loads.push(Load::AtIndex { from: at, apart: format!("params.{word}") });
            continue;
        }
        if reach == Reach::Strided && in_fours {
            d.params.stride(format!("apart{k}"), s.last().copied().unwrap_or(0));
        }
        let buffer = match aliases.get(k).copied().flatten() {
            Some(o) => format!("out{o}"),
            None => {
                let elements = Elements::of_operand(&kernel.operands[k]);
                let elements = elements.in_fours(in_fours && reach == Reach::Four);
                d.bind(format!("in{k}"), elements, false, Resource::Input(k));
                format!("in{k}")
            }
        };
        loads.push(Load::Element { buffer, at, reach });
    }
    let squares = strided_axis(shape, strides).filter(|_| !vectors && (in_fours || unit == 1));
    d.workgroups = match squares {
        Some(axis) => squares_along(&space_shape, axis, &mut d.params),
        None => total.div_ceil(256),
    };
    let frames = Frames::new(kernel, d.workgroups * 256, &mut d);
    for (o, &dtype) in outputs.iter().enumerate() {
        let vectors = unit == 4 && storage_size(dtype) <= 4 && !frames.has(o);
        let elements = Elements::of(dtype).in_fours(vectors);
        d.bind(format!("out{o}"), elements, true, Resource::Output(o));
    }
    let from = if first == 0 { "" } else { "params.first + " };
    let (ordered, unravel) =
        (in_fours || unit == 1, if coordinates { space.unravel("u") } else { String::new() });
    if !ordered {
        // Each of the four positions separately.
        let result = match outputs[..] {
            [dtype] => loaded(dtype),
            _ => "Results",
        };
        d.code.function("at_position", &[("u", "u32")], result, |c| {
            c.append(&unravel);
            let value = |load: &Load| match load {
                Load::Element { buffer, at, .. } => format!(", load_{buffer}({at})"),
                Load::AtIndex { from, .. } => format!(", {from}"),
            };
            let list: String = loads.iter().map(value).collect();
            c.line(format_args!("return program({from}u{list});"));
        });
    }
    d.code.entry(256, |c| {
        frames.zeros(256, c);
        match squares {
            Some(_) => in_squares(c),
            None => c.bind("u", "workgroup_index * 256u + local_index"),
        }
        c.return_if("u >= params.total");
        // The last unit may have fewer than four positions: the last one is read again for the others.
        let own_places = |load: &Load| match load {
            Load::Element { reach, .. } => *reach == Reach::Strided,
            Load::AtIndex { .. } => true,
        };
        let some_are_missing = packs && ordered && loads.iter().any(own_places);
        if some_are_missing {
            c.bind("last", "params.numel - 1u - u * 4u");
        }
        let lane = |e: usize| match some_are_missing && e > 0 {
            true => format!("min({e}u, last)"),
            false => format!("{e}u"),
        };
        if ordered {
            c.append(&unravel);
            for (k, load) in loads.iter().enumerate() {
                match load {
                    Load::AtIndex { from, .. } => c.bind(format_args!("v{k}"), from),
                    Load::Element { buffer, at, reach: Reach::One } => {
                        c.bind(format_args!("v{k}"), format_args!("load_{buffer}({at})"));
                    }
                    Load::Element { buffer, at, reach: Reach::Four } => {
                        c.bind(format_args!("v{k}"), format_args!("load4_{buffer}({at})"));
                    }
                    Load::Element { buffer, at, reach: Reach::Strided } => {
                        c.bind(format_args!("at{k}"), at);
                        for e in 0..unit {
                            let place = format!("at{k} + {} * params.apart{k}", lane(e));
                            c.bind(format_args!("v{k}_{e}"), format_args!("load_{buffer}({place})"));
                        }
                    }
                }
            }
        }
        for (e, field) in FIELDS.iter().enumerate().take(unit) {
            if !ordered {
                let place = format!("min(u * 4u + {e}u, params.numel - 1u)");
                c.bind(format_args!("y{e}"), format_args!("at_position({place})"));
                continue;
            }
            let value = |(k, load): (usize, &Load)| match load {
                Load::AtIndex { apart, .. } if e > 0 => format!(", v{k} + {} * {apart}", lane(e)),
                Load::Element { reach: Reach::Four, .. } => format!(", v{k}.{field}"),
                Load::Element { reach: Reach::Strided, .. } => format!(", v{k}_{e}"),
                Load::Element { reach: Reach::One, .. } | Load::AtIndex { .. } => format!(", v{k}"),
            };
            let list: String = loads.iter().enumerate().map(value).collect();
            let i = if unit == 1 { format!("{from}u") } else { format!("{from}u * 4u + {e}u") };
            c.bind(format_args!("y{e}"), format_args!("program({i}{list})"));
        }
        for (o, &dtype) in outputs.iter().enumerate() {
            let field = if outputs.len() > 1 { format!(".o{o}") } else { String::new() };
            if unit == 1 {
                c.line(format_args!("store_out{o}({}, y0{field});", frames.place(o, "u")));
                continue;
            }
            if frames.has(o) {
                let four = [0, 1, 2, 3].map(|e| format!("y{e}{field}"));
                frames.store_four(o, "u * 4u", four, Some("params.numel"), c);
                continue;
            }
            let all = [0, 1, 2, 3].map(|e| format!("y{e}{field}")).join(", ");
            let four = format!("vec4<{}>({all})", loaded(dtype));
            c.line(match packs {
                true => format!("store_first_out{o}(u * 4u, {four}, params.numel - u * 4u);"),
                false => format!("store4_out{o}(u * 4u, {four});"),
            });
        }
    });
    d.work = 256 * unit * program.instrs.len().max(1);
    Ok(d.into())
}

/// The side of the square of positions that a workgroup computes if an input is dense along another axis
/// than the output.
const SQUARE_SIDE: usize = 16;

/// The axis, other than the last, along which some input is dense that is not dense along the last axis.
fn strided_axis(shape: &[usize], strides: &[impl std::ops::Deref<Target = [isize]>]) -> Option<usize> {
    let wide = |axis: usize| shape[axis] >= SQUARE_SIDE;
    let last = shape.len().checked_sub(1).filter(|&last| wide(last))?;
    strides
        .iter()
        .filter(|s| s[last].unsigned_abs() > 1)
        .find_map(|s| (0..last).find(|&axis| s[axis].unsigned_abs() == 1 && wide(axis)))
}

/// Adds the sizes that [`in_squares`] reads; returns the number of workgroups.
fn squares_along(shape: &[usize], axis: usize, params: &mut Params) -> usize {
    let inner = shape.last().copied().unwrap_or(1);
    let (rows, middle) = (shape[axis], shape[axis + 1..shape.len() - 1].iter().product::<usize>());
    let (across, along) = (inner.div_ceil(SQUARE_SIDE), rows.div_ceil(SQUARE_SIDE));
    let sizes = [("inner", inner), ("rows", rows), ("middle", middle), ("across", across), ("along", along)];
    for (name, size) in sizes {
        params.size(name, size);
    }
    across * along * (shape.iter().product::<usize>() / (inner * rows))
}

/// Computes an invocation's position `u` from squares along an axis and the last axis, so that inputs dense
/// along either axis use all of each memory transaction. Beyond an edge, `u` is `params.total`.
fn in_squares(c: &mut Code) {
    c.bind("square", "workgroup_index / params.across");
    c.bind("batch", "square / params.along");
    c.bind(
        "ci",
        format_args!(
            "(workgroup_index - square * params.across) * {SQUARE_SIDE}u + local_index % {SQUARE_SIDE}u"
        ),
    );
    c.bind(
        "cr",
        format_args!("(square - batch * params.along) * {SQUARE_SIDE}u + local_index / {SQUARE_SIDE}u"),
    );
    c.bind("outer", "batch / params.middle");
    c.bind("row", "(outer * params.rows + cr) * params.middle + (batch - outer * params.middle)");
    c.bind("u", "select(params.total, row * params.inner + ci, ci < params.inner && cr < params.rows)");
}
