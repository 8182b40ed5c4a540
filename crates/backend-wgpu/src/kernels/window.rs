//! Kernels over more of a buffer than one binding covers, or with more loop iterations than an invocation
//! may run.
//!
//! Such a kernel is cut along an axis of its space into halves, repeatedly, until each piece fits: every
//! operand of the piece is within one binding, which may start anywhere in the buffer, or is small enough
//! to be copied to contiguous memory first. The results of a piece are written to their place in the
//! output: directly if that is one run at which a binding may start, else through a temporary. Along a
//! reduced, searched or indexed axis a kernel has *parts*, whose results are combined.

use smallvec::SmallVec;
use tensor_core::{
    DType, Error, Kernel, Layout, ReduceOp, Result, ScatterOp, Shape, collapse,
    kernel::{Body, Instr, Operand, Output, Program},
};

use crate::{
    codegen::{
        blocks::text as blocks_text,
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{storage_size, unpacked},
    },
    kernels::{
        arg_reduce::{self, Search},
        blocks::{MAX_PIECES, align, copies, room, shifted, widest, window},
        body,
        by_index::Along,
        contract, copy, custom, epilogue, gather,
        map::Aliases,
        reduce::{self, Reduce},
        regions as boxes,
        scatter::{self, Form},
        scatter_segments,
    },
};

/// The dispatches of a kernel, in as many pieces as its operands need.
pub(crate) fn dispatches(
    kernel: &Kernel,
    aliases: &Aliases,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let merged = merged(kernel);
    let kernel = merged.as_ref().unwrap_or(kernel);
    for operand in &kernel.operands {
        if let Some(format) = &operand.format
            && blocks_text(format.as_ref()).is_none()
        {
            let hint = format!(
                "blocks of {format} have no WGSL; implement BlockFormat::wgsl, or call .dequantize() on the cpu"
            );
            return Err(capabilities.unsupported(kernel.name(), operand.dtype, &hint));
        }
    }
    let whole = Whole { kernel, aliases, capabilities };
    if let Body::Copy { fill, regions } = &kernel.body {
        return whole.copy(*fill, regions);
    }
    if let Body::Custom(custom) = &kernel.body {
        return custom::dispatches(kernel, custom.as_ref(), capabilities);
    }
    let mut out = Dispatches::default();
    if let Body::Scatter { .. } = kernel.body {
        if let Some(made) = whole.summed_apart()? {
            return Ok(made);
        }
        // The base is copied to the output, and the source is added there.
        let goal = Layout::contiguous(kernel.space.clone());
        out.append(whole.copied(0, &kernel.operands[0].layout, &goal)?);
    }
    out.append(whole.pieces()?);
    Ok(out)
}
/// A map with merged axes: fewer and longer axes need fewer pieces.
fn merged(kernel: &Kernel) -> Option<Kernel> {
    // A frame is around axes that must stay apart.
    let (Body::Map(program), false) = (&kernel.body, kernel.is_framed()) else { return None };
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

struct Whole<'a> {
    kernel: &'a Kernel,
    aliases: &'a Aliases,
    capabilities: &'a Capabilities,
}

/// A piece of a kernel along axes of its space, with its start along each axis.
struct Piece {
    kernel: Kernel,
    origin: SmallVec<[usize; 6]>,
}

/// The next step for a piece.
enum Next {
    /// It is a single kernel.
    Whole,
    /// It is split into parts along an axis that its result does not have, or that its result indexes.
    Parts(Vec<Kernel>),
    /// It is cut along this axis.
    Cut(usize),
}

/// The bindings of a kernel's operands: the resource, and the byte offset at which the binding starts.
type Bound = SmallVec<[(Resource, u64); 4]>;

/// Whether a layout is contiguous.
fn is_run(layout: &Layout) -> bool {
    let merged = collapse(layout.shape(), &[layout.strides()]);
    merged.shape.is_empty() || merged.strides[0][..] == [1]
}

/// The axes along which a kernel has parts: axes that its result does not have, or that its result indexes.
struct Inner {
    axes: SmallVec<[usize; 5]>,
    /// The operands that are split, if the others do not have the axis.
    operands: Option<std::ops::Range<usize>>,
    /// The loop iterations of one invocation along these axes, if the kernel does not share them between
    /// invocations.
    rounds: usize,
}

impl Inner {
    fn of(kernel: &Kernel) -> Inner {
        let inner = |axes, operands, rounds| Inner { axes, operands, rounds };
        let along = |axis| SmallVec::from_slice(&[axis]);
        if let Body::Reduce { .. } = kernel.body {
            inner(kernel.reduced_axes(), None, 0)
        } else if let Body::Contract(_) = kernel.body {
            let axes = kernel.reduced_axes();
            let rounds = axes.iter().map(|&axis| kernel.space[axis]).product();
            inner(axes, None, rounds)
        } else if let Body::ArgReduce { axis, .. } | Body::Gather { axis } = kernel.body {
            inner(along(axis), Some(0..1), 0)
        } else if let Body::Scatter { op, axis } = kernel.body {
            // Replacing needs no loop.
            let rounds = op.binary().map_or(0, |_| kernel.operands[2].layout.shape()[axis]);
            inner(along(axis), Some(1..3), rounds)
        } else {
            inner(SmallVec::new(), None, 0)
        }
    }

    /// The size of an axis.
    fn size(&self, kernel: &Kernel, axis: usize) -> usize {
        let own = |of: &std::ops::Range<usize>| kernel.operands[of.start].layout.shape()[axis];
        self.operands.as_ref().map_or(kernel.space[axis], own)
    }

    /// The part of a kernel over some positions along an axis.
    fn part(&self, kernel: &Kernel, axis: usize, start: usize, len: usize) -> Option<Kernel> {
        let Some(operands) = &self.operands else { return kernel.narrow(axis, start, len) };
        let mut part = kernel.clone();
        for operand in &mut part.operands[operands.clone()] {
            operand.layout = operand.layout.slice(axis, start, len, 1);
        }
        Some(part)
    }
}

/// The largest temporary of a kernel, if it may be larger than its output: its dtype and elements, and the
/// axis along which a cut makes it smaller, unless that is the first axis that can be cut.
fn temporary(kernel: &Kernel) -> Option<(DType, usize, Option<usize>)> {
    let operand = kernel.operands.first()?;
    if let Body::ArgSort { .. } = kernel.body {
        // The keys: even if the input is a single repeated element, or the output has only a few.
        Some((unpacked(operand.dtype), kernel.space.numel(), None))
    } else if let Body::Scatter { op: ScatterOp::Replace, axis } = kernel.body {
        Some((DType::U32, scatter::turns(kernel, axis).numel(), Some(axis)))
    } else if let Body::Contract(Some(_)) = kernel.body {
        // The sums, which the epilogue reads from memory.
        Some((operand.dtype.register(), kernel.outputs[0].shape.numel(), None))
    } else {
        None
    }
}

/// Whether a kernel's results depend on the flat position.
fn is_positional(kernel: &Kernel) -> bool {
    let depends = |instr: &Instr| matches!(instr, Instr::Arange { .. } | Instr::Random { .. });
    kernel.body.program().is_some_and(|program| program.instrs.iter().any(depends))
}

impl Whole<'_> {
    /// The dispatches of the whole kernel, in pieces.
    fn pieces(&self) -> Result<Dispatches> {
        let mut out = Dispatches::default();
        let origin = SmallVec::from_elem(0, self.kernel.space.rank());
        let mut open = vec![Piece { kernel: self.kernel.clone(), origin }];
        let mut done = 0;
        while let Some(piece) = open.pop() {
            let next = self.next(&piece.kernel)?;
            done += usize::from(!matches!(next, Next::Cut(_)));
            match next {
                Next::Whole => out.append(self.piece(piece)?),
                Next::Parts(parts) => out.append(self.parts(piece, parts)?),
                // The earlier half is popped from the stack first.
                Next::Cut(axis) if done + open.len() < MAX_PIECES => {
                    let halves = self.halves(&piece, axis).ok_or_else(|| self.refused(&piece.kernel))?;
                    open.extend(halves.into_iter().rev());
                }
                Next::Cut(_) => return Err(self.refused(&piece.kernel)),
            }
        }
        Ok(out)
    }

    /// A scatter-add to elements of a half type in the per-line form: sums are stored in f32 and rounded at
    /// the end.
    fn summed_apart(&self) -> Result<Option<Dispatches>> {
        const SUMS: Resource = Resource::Temporary(0);
        let (kernel, capabilities) = (self.kernel, self.capabilities);
        let (dtype, numel) = (kernel.outputs[0].dtype, kernel.space.numel());
        let Body::Scatter { op: ScatterOp::Add, axis } = kernel.body else { return Ok(None) };
        if !dtype.is_reduced_float() || numel == 0 || kernel.operands[2].layout.numel() == 0 {
            return Ok(None);
        }
        if matches!(self.next(kernel)?, Next::Whole)
            && scatter::form(kernel, axis, capabilities) != Form::Lines
        {
            return Ok(None);
        }
        let apart = Aliases::from_elem(None, 1);
        let cast = |layout: &Layout, from: DType, to: DType| {
            let program = Program {
                instrs: vec![Instr::Load(0), Instr::Cast(0)],
                dtypes: vec![from, to],
                inputs: vec![from],
                scalars: Vec::new(),
                outputs: vec![1],
            };
            dispatches(&Kernel::map(kernel.space.clone(), [layout.clone()], program), &apart, capabilities)
        };
        let mut sums = kernel.clone();
        sums.operands[0] = Operand::new(dtype.register(), Layout::contiguous(kernel.space.clone()));
        sums.outputs[0].dtype = dtype.register();
        let unrounded = cast(&kernel.operands[0].layout, dtype, dtype.register())?;
        let added = Whole { kernel: &sums, ..*self }.pieces()?;
        let rounded = cast(&sums.operands[0].layout, dtype.register(), dtype)?;
        let mut out = Dispatches { list: Vec::new(), temporaries: vec![(dtype.register(), numel)] };
        for (mut made, from, to) in [
            (unrounded, Resource::Output(0), SUMS),
            (added, Resource::Output(0), SUMS),
            (rounded, Resource::Input(0), SUMS),
        ] {
            made.shift_temporaries();
            made.redirect(from, to);
            out.append(made);
        }
        Ok(Some(out))
    }

    /// The elements of a dtype that fit one binding.
    fn room(&self, dtype: DType) -> usize {
        room(dtype, self.capabilities)
    }

    /// The start of the window over an operand, in elements; None if it does not fit one window.
    fn window(&self, operand: &Operand) -> Option<usize> {
        if let Some(format) = &operand.format {
            let bytes = operand.reach().span().1 as f64 * format.bits_per_element() / 8.0;
            return (bytes <= self.capabilities.binding_bytes as f64).then_some(0);
        }
        window(&operand.reach(), operand.dtype, self.capabilities)
    }

    /// Copies of operand `k` through `from` to the output through `to`.
    fn copied(&self, k: usize, from: &Layout, to: &Layout) -> Result<Dispatches> {
        self.between(k, self.kernel.operands[k].dtype, from, to)
    }

    fn between(&self, k: usize, dtype: DType, from: &Layout, to: &Layout) -> Result<Dispatches> {
        copies(k, dtype, from, to, self.capabilities).ok_or_else(|| self.refused(self.kernel))
    }

    /// The operands of a kernel that do not fit a window, except a base that is already in the output.
    fn wide<'k>(&self, kernel: &'k Kernel) -> impl Iterator<Item = (usize, &'k Operand)> {
        let first = usize::from(matches!(kernel.body, Body::Scatter { .. }));
        kernel.operands.iter().enumerate().skip(first).filter(|(_, operand)| self.window(operand).is_none())
    }

    /// Whether a kernel can be cut along an axis that it keeps.
    fn cuts(&self, kernel: &Kernel, axis: usize) -> bool {
        // A piece must start at a single flat position.
        let ordered = !is_positional(kernel) || kernel.space[..axis].iter().all(|&n| n == 1);
        let kept = kernel.outputs.iter().all(|output| output.axes.contains(&axis));
        kernel.space[axis] > 1 && ordered && kept && kernel.narrow(axis, 0, 1).is_some()
    }

    fn next(&self, kernel: &Kernel) -> Result<Next> {
        if kernel.outputs.iter().all(|output| output.shape.numel() == 0) {
            return Ok(Next::Whole);
        }
        let axes = || (0..kernel.space.rank()).filter(|&axis| self.cuts(kernel, axis));
        let cut = |axis: Option<usize>| axis.map(Next::Cut).ok_or_else(|| self.refused(kernel));
        if kernel.outputs.iter().any(|output| output.shape.numel() > self.room(output.dtype)) {
            return cut(axes().next());
        }
        if let Some((dtype, numel, axis)) = temporary(kernel)
            && numel > self.room(dtype)
        {
            return cut(axis.filter(|&axis| self.cuts(kernel, axis)).or_else(|| axes().next()));
        }
        let inner = Inner::of(kernel);
        for (k, operand) in self.wide(kernel) {
            // A cut of the space does not shorten an operand's own axis of the same number.
            let own = |axis| {
                inner.axes.contains(&axis) && inner.operands.as_ref().is_some_and(|of| of.contains(&k))
            };
            // The axis at whose positions a program reads cannot be cut.
            if operand.indexed.is_some_and(|axis| {
                axis.size.saturating_sub(1).saturating_mul(axis.stride.unsigned_abs())
                    >= self.room(operand.dtype)
            }) {
                return Err(self.refused(kernel));
            }
            let axis = widest(&operand.layout, |_| true);
            if let Some(axis) = axis.filter(|&axis| !own(axis) && self.cuts(kernel, axis)) {
                return Ok(Next::Cut(axis));
            }
            if let Some(parts) = self.in_parts(kernel) {
                return Ok(Next::Parts(parts));
            }
        }
        if inner.rounds > self.capabilities.rounds {
            return self.in_parts(kernel).map(Next::Parts).ok_or_else(|| self.refused(kernel));
        }
        // Operands that have to be copied to contiguous memory must be small enough for that.
        let apart = |operand: &Operand| {
            operand.indexed.is_some()
                || operand.format.is_some()
                || operand.layout.numel() > self.room(operand.dtype)
        };
        match self.wide(kernel).find(|(_, operand)| apart(operand)) {
            None => Ok(Next::Whole),
            Some((_, operand)) => {
                cut(widest(&operand.layout, |axis| self.cuts(kernel, axis)).or_else(|| axes().next()))
            }
        }
    }

    /// Two halves along an axis; the second starts at a window boundary of the output if possible.
    fn halves(&self, piece: &Piece, axis: usize) -> Option<[Piece; 2]> {
        let n = piece.kernel.space[axis];
        let stride = self.kernel.outputs[0].strides_over(self.kernel.space.rank())[axis].unsigned_abs();
        let align = self.kernel.outputs.iter().map(|output| align(output.dtype)).max().unwrap_or(1);
        let unit = align >> stride.trailing_zeros().min(align.trailing_zeros());
        let half =
            Some(n.div_ceil(2).next_multiple_of(unit)).filter(|&half| half < n).unwrap_or(n.div_ceil(2));
        let part = |start: usize, len: usize| {
            let mut origin = piece.origin.clone();
            origin[axis] += start;
            Some(Piece { kernel: piece.kernel.narrow(axis, start, len)?, origin })
        };
        Some([part(0, half)?, part(half, n - half)?])
    }

    /// The distance between the results of neighbouring parts, in elements.
    fn pitch(kernel: &Kernel) -> usize {
        kernel.outputs[0].shape.numel().next_multiple_of(align(kernel.outputs[0].dtype))
    }

    /// A kernel cut into parts that fit, along axes that its result does not have or that it indexes; None
    /// if that is impossible, or if the results of all parts do not fit a binding.
    fn in_parts(&self, kernel: &Kernel) -> Option<Vec<Kernel>> {
        let stored =
            self.room(kernel.outputs[0].dtype.register()).min(self.room(kernel.operands[0].dtype.register()));
        // Gathers and scatters write to the output directly.
        let most = match matches!(kernel.body, Body::Gather { .. } | Body::Scatter { .. }) {
            true => MAX_PIECES,
            false => MAX_PIECES.min(stored / Self::pitch(kernel).max(1)),
        };
        let mut parts = Vec::new();
        let mut open = vec![kernel.clone()];
        while let Some(part) = open.pop() {
            let (wide, inner) = (self.wide(&part).next(), Inner::of(&part));
            let axis = match wide {
                Some((_, operand)) => widest(&operand.layout, |_| true),
                None if inner.rounds <= self.capabilities.rounds => {
                    parts.push(part);
                    continue;
                }
                None => inner.axes.iter().copied().max_by_key(|&axis| inner.size(&part, axis)),
            };
            let axis = axis.filter(|axis| inner.axes.contains(axis))?;
            let n = inner.size(&part, axis);
            if n < 2 || parts.len() + open.len() + 1 >= most {
                return None;
            }
            // Whole vectors of four, if there are enough elements.
            let half = if n >= 8 { (n / 2).next_multiple_of(4) } else { n / 2 };
            open.extend([inner.part(&part, axis, half, n - half)?, inner.part(&part, axis, 0, half)?]);
        }
        Some(parts)
    }

    /// The layout of a piece's output `o` within the output of the whole kernel.
    fn goal(&self, Piece { kernel, origin }: &Piece, o: usize) -> Layout {
        let (whole, part) = (&self.kernel.outputs[o], &kernel.outputs[o]);
        let axes = whole.axes.iter().enumerate();
        axes.fold(Layout::contiguous(whole.shape.clone()), |layout, (own, &axis)| {
            layout.slice(own, origin[axis], part.shape[own], 1)
        })
    }

    /// The slice of the indexed axis that a piece covers.
    fn along(&self, piece: &Piece) -> Along {
        let (axis, start, size) = if let Body::Gather { axis } = self.kernel.body {
            (axis, 0, self.kernel.operands[0].layout.shape()[axis])
        } else if let Body::Scatter { axis, .. } = self.kernel.body {
            (axis, piece.origin[axis], self.kernel.space[axis])
        } else {
            (0, 0, 0)
        };
        Along { axis, start, size }
    }

    /// Makes the layouts of a kernel's operands relative to the starts of their bindings. An operand that
    /// fits no window is first copied into a temporary after the first `reserved`; returns those copies.
    fn bind(
        &self,
        kernel: &mut Kernel,
        aliases: &Aliases,
        goals: &[Layout],
        reserved: usize,
    ) -> Result<(Bound, Dispatches)> {
        let (mut bound, mut copies) = (Bound::new(), Dispatches::default());
        for (k, operand) in kernel.operands.iter_mut().enumerate() {
            let base = k == 0 && matches!(self.kernel.body, Body::Scatter { .. });
            let size = storage_size(operand.dtype);
            // An operand that shares an output's buffer uses the output's binding.
            let start = match aliases.get(k).copied().flatten() {
                Some(o) => Some(goals[usize::from(o)].offset()),
                None if base => Some(0),
                None => self.window(operand),
            };
            if let Some(start) = start {
                operand.layout = shifted(&operand.layout, start);
                bound.push((Resource::Input(k), (start * size) as u64));
                continue;
            }
            let together = Layout::contiguous(operand.layout.shape().clone());
            let mut made = self.copied(k, &operand.layout, &together)?;
            let temporary = Resource::Temporary(reserved + copies.temporaries.len());
            copies.temporaries.push((operand.dtype, together.numel()));
            made.redirect(Resource::Output(0), temporary);
            copies.list.extend(made.list);
            operand.layout = together;
            bound.push((temporary, 0));
        }
        Ok((bound, copies))
    }

    /// The dispatches of a piece that is a single kernel.
    fn piece(&self, piece: Piece) -> Result<Dispatches> {
        let goals: SmallVec<[Layout; 2]> =
            (0..piece.kernel.outputs.len()).map(|o| self.goal(&piece, o)).collect();
        // If a binding cannot start there, the output is written to a temporary, and so shares no buffer
        // with an input.
        let apart = Aliases::from_elem(None, self.aliases.len());
        let aliases = if starts(&piece.kernel, &goals) { self.aliases } else { &apart };
        let along = self.along(&piece);
        let steps = self.kernel.space.contiguous_strides();
        let first = piece.origin.iter().zip(&steps).map(|(&at, step)| at * step.unsigned_abs()).sum();
        let mut kernel = piece.kernel;
        // No kernel has more temporaries of its own than a scatter by segments.
        const OWN: usize = scatter_segments::TEMPORARIES;
        let (bound, copies) = self.bind(&mut kernel, aliases, &goals, OWN)?;
        let mut made = body::dispatches(&kernel, aliases, first, along, self.capabilities)?;
        place(&mut made, &bound);
        if !copies.list.is_empty() {
            made.temporaries.resize(OWN, (DType::U32, 0));
            made.temporaries.extend(copies.temporaries);
            made.list.splice(0..0, copies.list);
        }
        self.move_outputs(&mut made, &kernel, &goals)?;
        Ok(made)
    }

    /// Moves outputs to their place in the whole output: by the start of their bindings, or with copies
    /// from temporaries.
    fn move_outputs(&self, made: &mut Dispatches, kernel: &Kernel, goals: &[Layout]) -> Result<()> {
        if starts(kernel, goals) {
            for binding in made.bindings() {
                if let Resource::Output(o) = binding.resource {
                    binding.start = (goals[o].offset() * storage_size(kernel.outputs[o].dtype)) as u64;
                }
            }
            return Ok(());
        }
        let adds = matches!(kernel.body, Body::Scatter { .. });
        for (o, output) in kernel.outputs.iter().enumerate() {
            let temporary = Resource::Temporary(made.temporaries.len());
            made.temporaries.push((output.dtype, output.shape.numel()));
            made.redirect(Resource::Output(o), temporary);
            let here = Layout::contiguous(goals[o].shape().clone());
            let copied = |from, to, [source, target]: [Resource; 2]| {
                let mut copied = self.between(0, output.dtype, from, to)?;
                copied.redirect(Resource::Output(0), target);
                copied.redirect(Resource::Input(0), source);
                Ok(copied.list)
            };
            if adds {
                // The operation needs the present contents of the output.
                let before = copied(&goals[o], &here, [Resource::Output(o), temporary])?;
                made.list.splice(0..0, before);
            }
            made.list.extend(copied(&here, &goals[o], [temporary, Resource::Output(o)])?);
        }
        Ok(())
    }

    /// The dispatches of a piece in parts. The first temporaries hold the results of the parts.
    fn parts(&self, piece: Piece, parts: Vec<Kernel>) -> Result<Dispatches> {
        const FOUND: Resource = Resource::Temporary(0);
        let kernel = &piece.kernel;
        let output = &kernel.outputs[0];
        let summed =
            if matches!(kernel.body, Body::Contract(_)) { kernel.operands[0].dtype } else { output.dtype };
        let (count, pitch, stored) = (parts.len(), Self::pitch(kernel), summed.register());
        // The positions along the axis and the winners of earlier parts.
        let (mut first, mut winners) = (0, 0);
        let along = self.along(&piece);
        let mut out = Dispatches::default();
        for (p, mut part) in parts.into_iter().enumerate() {
            let (bound, _) = self.bind(&mut part, &Aliases::new(), &[], 0)?;
            let mut made = match &part.body {
                Body::Gather { axis } => {
                    let along = Along { start: first, ..along };
                    first += part.operands[0].layout.shape()[*axis];
                    gather::dispatch(&part, along, self.capabilities).into()
                }
                Body::Scatter { op, .. } => scatter::dispatches(&part, *op, along, self.capabilities)?,
                Body::ArgReduce { op, axis } => {
                    let search = Search::new(&part, *op, *axis);
                    let most =
                        self.room(part.operands[0].dtype).min(self.room(DType::I32)) / pitch.max(1) / count;
                    let splits = arg_reduce::splits(search, self.capabilities).min(most).max(1);
                    let made = arg_reduce::search(search, first, splits, Some(winners), self.capabilities);
                    first += search.length();
                    winners += splits;
                    made.into()
                }
                Body::Reduce { op, program } => {
                    let reduce = Reduce { kernel: &part, op: *op, program };
                    self.one_of(reduce::part(reduce, self.capabilities)?, p * pitch * storage_size(stored))
                }
                Body::Contract(_) => self.one_of(
                    contract::dispatches(&epilogue::sums(&part), self.capabilities)?,
                    p * pitch * storage_size(stored),
                ),
                // These have no parts (`Inner`).
                Body::Map(_) | Body::Rows { .. } | Body::Cumulative { .. } => return Err(self.refused(&part)),
                Body::ArgSort { .. } | Body::Copy { .. } | Body::Custom(_) => return Err(self.refused(&part)),
            };
            place(&mut made, &bound);
            out.append(made);
        }
        let joined = match &kernel.body {
            Body::ArgReduce { op, axis } => {
                let search = Search::new(kernel, *op, *axis);
                out.append(arg_reduce::compare(search, winners, self.capabilities));
                None
            }
            Body::Reduce { op, program } => Some((*op, Reduce { kernel, op: *op, program }.mean_over())),
            Body::Contract(_) => Some((ReduceOp::Sum, None)),
            // Parts of these write their own places of the output.
            Body::Map(_) | Body::Rows { .. } | Body::Cumulative { .. } | Body::ArgSort { .. } => None,
            Body::Gather { .. } | Body::Scatter { .. } | Body::Copy { .. } | Body::Custom(_) => None,
        };
        if let Some((op, divide)) = joined {
            let sizes = [output.shape.numel(), count, pitch];
            let has_epilogue = matches!(kernel.body, Body::Contract(Some(_)));
            let dtype = if has_epilogue { stored } else { output.dtype };
            let join = reduce::join(op, dtype, sizes, divide, FOUND, self.capabilities)?;
            let mut joined = Dispatches { list: vec![join], temporaries: vec![(stored, count * pitch)] };
            if has_epilogue {
                // The temporaries of the parts are free by now.
                const SUMS: Resource = Resource::Temporary(1);
                joined.temporaries.push((stored, output.shape.numel()));
                joined.redirect(Resource::Output(0), SUMS);
                joined.list.extend(self.epilogue(kernel, SUMS)?);
            }
            out.append(joined);
        }
        let goals: SmallVec<[Layout; 2]> = (0..kernel.outputs.len()).map(|o| self.goal(&piece, o)).collect();
        self.move_outputs(&mut out, kernel, &goals)?;
        Ok(out)
    }

    /// The epilogue of a contraction whose sums are stored in `from`. Its operands fit windows.
    fn epilogue(&self, kernel: &Kernel, from: Resource) -> Result<Vec<Dispatch>> {
        let (mut kernel, mut bound) = (kernel.clone(), Bound::new());
        for (k, operand) in kernel.operands.iter_mut().enumerate() {
            let start = self.window(operand).filter(|_| k > 1).unwrap_or(0);
            operand.layout = shifted(&operand.layout, start);
            bound.push((Resource::Input(k), (start * storage_size(operand.dtype)) as u64));
        }
        let list = epilogue::apart(&kernel, from, self.capabilities)?;
        let mut made = Dispatches { list, temporaries: Vec::new() };
        place(&mut made, &bound);
        Ok(made.list)
    }

    /// The dispatches of one part, whose result goes to the shared temporary at byte `start`; the part's
    /// own temporaries follow that one.
    fn one_of(&self, mut made: Dispatches, start: usize) -> Dispatches {
        made.shift_temporaries();
        for binding in made.bindings() {
            if let Resource::Output(_) = binding.resource {
                (binding.resource, binding.start) = (Resource::Temporary(0), start as u64);
            }
        }
        made
    }

    /// The dispatches of a copy kernel: a fill if requested, then each region.
    fn copy(&self, fill: bool, regions: &[Layout]) -> Result<Dispatches> {
        if let Some(one) = boxes::dispatch(self.kernel, fill, regions, self.capabilities) {
            return Ok(one.into());
        }
        let output = &self.kernel.outputs[0];
        let (dtype, numel) = (output.dtype, output.shape.numel());
        let room = (self.room(dtype) / align(dtype) * align(dtype)).max(align(dtype));
        let mut out = Dispatches::default();
        for first in (0..if fill { numel } else { 0 }).step_by(room) {
            let mut one = copy::fill(room.min(numel - first), dtype);
            one.bindings[0].start = (first * storage_size(dtype)) as u64;
            out.list.push(one);
        }
        for (k, (operand, goal)) in self.kernel.operands.iter().zip(regions).enumerate() {
            out.append(self.copied(k, &operand.layout, goal)?);
        }
        Ok(out)
    }

    /// The error for a kernel that cannot be cut.
    fn refused(&self, kernel: &Kernel) -> Error {
        let output = &kernel.outputs[0];
        let (rounds, most) = (Inner::of(kernel).rounds, self.capabilities.rounds);
        let (dtype, elements) = match self.wide(kernel).next() {
            Some((_, operand)) => {
                let (low, high) = operand.reach().span();
                (operand.dtype, high - low)
            }
            None if rounds > most => {
                let hint = format!(
                    "an invocation of this kernel would go round its loop {rounds} times, where one of a software adapter may go \
                     {most} times in all; split the tensor, or compute it on the cpu"
                );
                return self.capabilities.unsupported(kernel.name(), output.dtype, &hint);
            }
            // The keys of a sort.
            None if matches!(kernel.body, Body::ArgSort { .. }) => {
                (kernel.operands[0].dtype, kernel.space.numel())
            }
            None => (output.dtype, output.shape.numel()),
        };
        let hint = format!(
            "one operand lies over {} bytes, one binding of this adapter shows {} (max_storage_buffer_binding_size), and \
             this kernel cannot be worked through in windows; split the tensor, or compute it on the cpu",
            elements * storage_size(dtype),
            self.capabilities.binding_bytes
        );
        self.capabilities.unsupported(kernel.name(), dtype, &hint)
    }
}

/// Whether bindings of a kernel's outputs can start at all of these places.
fn starts(kernel: &Kernel, goals: &[Layout]) -> bool {
    let fits = |(goal, output): (&Layout, &Output)| {
        is_run(goal) && goal.offset().is_multiple_of(align(output.dtype))
    };
    goals.iter().zip(&kernel.outputs).all(fits)
}

/// Moves the operands of dispatches to the places at which they are bound.
fn place(made: &mut Dispatches, bound: &Bound) {
    for binding in made.bindings() {
        if let Resource::Input(k) = binding.resource
            && let Some(&(resource, start)) = bound.get(k)
        {
            (binding.resource, binding.start) = (resource, start);
        }
    }
}
