//! Kernels over more of a buffer than one binding covers, or with more loop iterations than an invocation
//! may run.
//!
//! Such a kernel is cut along an axis of its space into halves, repeatedly, until each piece fits: every
//! operand of the piece is within one binding, which may start anywhere in the buffer, or is small enough
//! to be copied to contiguous memory first. The results of a piece are written to their place in the
//! output: directly if that is one run at which a binding may start, else through a temporary. Along a
//! reduced, searched or indexed axis a kernel has *parts*, whose results are combined. The
//! body answers the other questions ([`Cut`]).

use smallvec::SmallVec;
use tensor_core::{
    DType, Error, Kernel, Layout, Result,
    kernel::{Operand, Output},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatches, Resource},
        dtypes::storage_size,
    },
    kernels::{
        blocks::{
            Bound, MAX_PIECES, align, bind_at, copies, operand_window, rebind, refused, room, starts, widest,
        },
        cut::{Aliases, Cut, PIECE_TEMPORARIES, Parts, Place},
    },
};

/// A kernel of any size, and what its dispatches depend on.
#[derive(Clone, Copy)]
pub(crate) struct Windows<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) cut: &'a dyn Cut,
    pub(crate) aliases: &'a Aliases,
    pub(crate) capabilities: &'a Capabilities,
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

impl Windows<'_> {
    /// The dispatches of the kernel, in as many pieces as its operands need.
    pub(crate) fn dispatches(&self) -> Result<Dispatches> {
        let mut out = Dispatches::default();
        let origin = SmallVec::from_elem(0, self.kernel.space.rank());
        let mut open = vec![Piece { kernel: self.kernel.clone(), origin }];
        let mut done = 0;
        while let Some(piece) = open.pop() {
            let next = self.next(&piece.kernel)?;
            done += usize::from(!matches!(next, Next::Cut(_)));
            match next {
                Next::Whole => out.append(self.piece(piece)?),
                Next::Parts(parts) => out.append(self.parts(&piece, parts)?),
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

    /// Whether the kernel is one piece.
    pub(crate) fn is_one_piece(&self) -> Result<bool> {
        Ok(matches!(self.next(self.kernel)?, Next::Whole))
    }

    /// Copies of operand `k` through `from` to the output through `to`.
    pub(crate) fn copied(&self, k: usize, from: &Layout, to: &Layout) -> Result<Dispatches> {
        self.between(k, self.kernel.operands[k].dtype, from, to)
    }

    fn between(&self, k: usize, dtype: DType, from: &Layout, to: &Layout) -> Result<Dispatches> {
        copies(k, dtype, from, to, self.capabilities).ok_or_else(|| self.refused(self.kernel))
    }

    /// The elements of a dtype that fit one binding.
    fn room(&self, dtype: DType) -> usize {
        room(dtype, self.capabilities)
    }

    /// The start of the window over an operand, in elements; None if it does not fit one window.
    fn window(&self, operand: &Operand) -> Option<usize> {
        operand_window(operand, self.capabilities)
    }

    /// The operands of a kernel that do not fit a window, except one that is already in the output.
    fn wide<'k>(&self, kernel: &'k Kernel) -> impl Iterator<Item = (usize, &'k Operand)> {
        let first = usize::from(self.cut.changes_output());
        kernel.operands.iter().enumerate().skip(first).filter(|(_, operand)| self.window(operand).is_none())
    }

    /// Whether a kernel can be cut along an axis that it keeps.
    fn cuts(&self, kernel: &Kernel, axis: usize) -> bool {
        // A piece must start at a single flat position.
        let ordered = !self.cut.is_positional() || kernel.space[..axis].iter().all(|&n| n == 1);
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
        if let Some(temporary) = self.cut.temporary(kernel)
            && temporary.elements > self.room(temporary.dtype)
        {
            return cut(temporary.axis.filter(|&axis| self.cuts(kernel, axis)).or_else(|| axes().next()));
        }
        let inner = self.cut.inner(kernel);
        for (k, operand) in self.wide(kernel) {
            // The axis at whose positions a program reads cannot be cut.
            if operand.indexed.is_some_and(|axis| {
                axis.size.saturating_sub(1).saturating_mul(axis.stride.unsigned_abs())
                    >= self.room(operand.dtype)
            }) {
                return Err(self.refused(kernel));
            }
            let axis = widest(&operand.layout, |_| true);
            // A cut of the space does not shorten an operand's own axis of the same number.
            if let Some(axis) = axis.filter(|&axis| !inner.is_of_operand(axis, k) && self.cuts(kernel, axis))
            {
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
        let most = match self.cut.inner(kernel).is_joined {
            true => MAX_PIECES.min(stored / Self::pitch(kernel).max(1)),
            false => MAX_PIECES,
        };
        let mut parts = Vec::new();
        let mut open = vec![kernel.clone()];
        while let Some(part) = open.pop() {
            let (wide, inner) = (self.wide(&part).next(), self.cut.inner(&part));
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

    /// The layouts of a piece's outputs within the outputs of the whole kernel.
    fn goals(&self, Piece { kernel, origin }: &Piece) -> SmallVec<[Layout; 2]> {
        let goal = |(whole, part): (&Output, &Output)| {
            let axes = whole.axes.iter().enumerate();
            axes.fold(Layout::contiguous(whole.shape.clone()), |layout, (own, &axis)| {
                layout.slice(own, origin[axis], part.shape[own], 1)
            })
        };
        self.kernel.outputs.iter().zip(&kernel.outputs).map(goal).collect()
    }

    fn place<'a>(&'a self, origin: &'a [usize], aliases: &'a Aliases) -> Place<'a> {
        Place { whole: self.kernel, origin, aliases, capabilities: self.capabilities }
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
            let in_output = k == 0 && self.cut.changes_output();
            // An operand that shares an output's buffer uses the output's binding.
            let start = match aliases.get(k).copied().flatten() {
                Some(o) => Some(goals[usize::from(o)].offset()),
                None if in_output => Some(0),
                None => self.window(operand),
            };
            if let Some(start) = start {
                bound.push(bind_at(k, operand, start));
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
        let goals = self.goals(&piece);
        // If a binding cannot start there, the output is written to a temporary, and so shares no buffer
        // with an input.
        let apart = Aliases::from_elem(None, self.aliases.len());
        let aliases = if starts(&piece.kernel, &goals) { self.aliases } else { &apart };
        let place = self.place(&piece.origin, aliases);
        let mut kernel = piece.kernel;
        let (bound, copies) = self.bind(&mut kernel, aliases, &goals, PIECE_TEMPORARIES)?;
        let mut made = self.cut.piece(&kernel, place)?;
        rebind(&mut made, &bound);
        if !copies.list.is_empty() {
            made.temporaries.resize(PIECE_TEMPORARIES, (DType::U32, 0));
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
            if self.cut.changes_output() {
                // The operation needs the present contents of the output.
                let before = copied(&goals[o], &here, [Resource::Output(o), temporary])?;
                made.list.splice(0..0, before);
            }
            made.list.extend(copied(&here, &goals[o], [temporary, Resource::Output(o)])?);
        }
        Ok(())
    }

    /// The dispatches of a piece in parts. The first temporaries hold the results of the parts.
    fn parts(&self, piece: &Piece, parts: Vec<Kernel>) -> Result<Dispatches> {
        let (count, pitch, aliases) = (parts.len(), Self::pitch(&piece.kernel), Aliases::new());
        let place = self.place(&piece.origin, &aliases);
        let mut progress = Parts { place, count, pitch, positions: 0, results: 0 };
        let mut out = Dispatches::default();
        for mut part in parts {
            let (bound, _) = self.bind(&mut part, &aliases, &[], 0)?;
            let mut made = self.cut.part(&part, &mut progress)?;
            rebind(&mut made, &bound);
            out.append(made);
        }
        // The join may read operands that the parts share, which fit windows.
        let mut kernel = piece.kernel.clone();
        let operands = kernel.operands.iter_mut().enumerate();
        let bound: Bound =
            operands.map(|(k, operand)| bind_at(k, operand, self.window(operand).unwrap_or(0))).collect();
        let mut joined = self.cut.join(&kernel, &progress)?;
        rebind(&mut joined, &bound);
        out.append(joined);
        self.move_outputs(&mut out, &kernel, &self.goals(piece))?;
        Ok(out)
    }

    /// The error for a kernel that cannot be cut.
    fn refused(&self, kernel: &Kernel) -> Error {
        let output = &kernel.outputs[0];
        let (rounds, most) = (self.cut.inner(kernel).rounds, self.capabilities.rounds);
        let temporary = self.cut.temporary(kernel);
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
            None => match temporary.filter(|temporary| temporary.elements > self.room(temporary.dtype)) {
                Some(temporary) => (kernel.operands[0].dtype, temporary.elements),
                None => (output.dtype, output.shape.numel()),
            },
        };
        refused(kernel, dtype, elements, self.capabilities)
    }
}
