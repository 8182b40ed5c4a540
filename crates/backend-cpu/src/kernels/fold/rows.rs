//! Row kernels: elementwise expressions and reductions along rows, a few rows at a time in cache.
//!
//! The program is cut at its folds into passes over the rows. A pass computes, block by block, the operands
//! of the next folds and the outputs that are ready by then. Between two passes, the values that are one
//! number for each row are computed for all rows of the tile at once. A value that a later pass needs is
//! kept for the tile if it is expensive, and recomputed if it is cheap.
#![allow(unsafe_code)]

use std::{ops::Range, sync::Arc};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tensor_core::{
    DType, Error, Kernel, Launch, Layout, Result, Shape,
    kernel::{Body, Instr, Operand, Program, Reg},
    rows::RowProgram,
};

use super::row_fold::{RowFold, Term, Total};
use crate::{
    elementwise::{
        engine::{Evaluator, Stream, with_scratch, words},
        lower::{Access, Lowered, lower},
    },
    memory::{
        buffer::{Bound, Memory, compiled},
        pool::Pool,
    },
    simd::isa::Isa,
    threads,
    tuning::{
        BLOCK_POSITIONS, LONG_ROW_PASS, PREFETCH_MIN_POSITIONS, RECOMPUTE_LIMIT, SERIAL_STEPS,
        row_tile_positions,
    },
};

/// The source of a pass's input.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    /// An input of the kernel.
    Input(u16),
    /// A value kept for the tile by an earlier pass.
    Saved(u16),
    /// One value for each row.
    Row(u16),
}

/// The destination of a pass's result.
#[derive(Clone, Copy)]
enum Destination {
    /// An output of the kernel.
    Output(u16),
    Saved(u16),
    Row(u16),
}

/// A run over a tile: over its positions, or over its rows.
struct RowPass {
    program: Lowered,
    inputs: SmallVec<[Source; 4]>,
    outputs: SmallVec<[Destination; 4]>,
    /// The folds; their operands are the results after the outputs.
    folds: SmallVec<[RowFold; 2]>,
    /// The terms that the folds read in place, if the pass does nothing else.
    terms: Option<SmallVec<[Term; 2]>>,
    by_row: bool,
}

/// A kernel ready to run.
pub(crate) struct RowKernel {
    passes: Vec<RowPass>,
    /// Number and length of the rows.
    rows: usize,
    length: usize,
    /// Rows in a tile: whole rows; short rows fill whole blocks.
    tile: usize,
    /// The dtype of each value kept for a tile, and of each value that is one number for each row.
    saved: Vec<DType>,
    row_values: Vec<DType>,
    /// One past the greatest element that each input reads.
    ends: Vec<usize>,
    steps: usize,
    /// The memory that each pass prefetches.
    ahead: Vec<SmallVec<[Wanted; 4]>>,
}

/// Memory to prefetch.
struct Wanted {
    /// The number of the input, or of the output if it is written.
    index: u16,
    write: bool,
    /// The offset of its first element, and an element's bytes.
    offset: usize,
    size: usize,
    distance: Distance,
}

/// The distance between the current block and the prefetched memory.
#[derive(Clone, Copy)]
enum Distance {
    /// The current block, which a later pass will read.
    Here,
    Block,
    Tile,
}

/// The memory that each pass prefetches: all contiguous inputs and outputs, except inputs that an earlier
/// pass has read. With short rows, the pass with the most computation prefetches for all passes; for itself
/// and earlier passes it prefetches the next tile.
fn wanted(kernel: &Kernel, passes: &[RowPass], length: usize) -> Vec<SmallVec<[Wanted; 4]>> {
    let cost = |pass: &RowPass| if pass.by_row || pass.terms.is_some() { 0 } else { pass.program.cost };
    let busy = (0..passes.len()).rev().max_by_key(|&i| cost(&passes[i])).unwrap_or(0);
    let mut wanted: Vec<SmallVec<[Wanted; 4]>> = passes.iter().map(|_| SmallVec::new()).collect();
    for (at, pass) in passes.iter().enumerate().filter(|(_, pass)| !pass.by_row) {
        let (looks, distance) = match () {
            () if length >= LONG_ROW_PASS => (at, Distance::Block),
            () if at <= busy => (busy, Distance::Tile),
            () => (busy, Distance::Here),
        };
        for (place, access) in pass.inputs.iter().zip(&pass.program.inputs) {
            if let Source::Input(index) = *place
                && access.contiguous
                && wanted.iter().flatten().all(|w| w.write || w.index != index)
            {
                let (offset, size) = (access.offset, access.dtype.size());
                wanted[looks].push(Wanted { index, write: false, offset, size, distance });
            }
        }
        for to in &pass.outputs {
            if let Destination::Output(index) = *to {
                let size = kernel.outputs[index as usize].dtype.size();
                wanted[looks].push(Wanted { index, write: true, offset: 0, size, distance });
            }
        }
    }
    // Only steps issue prefetches.
    let idle = |pass: &RowPass| pass.program.steps.is_empty() || pass.terms.is_some();
    wanted.iter_mut().zip(passes).filter(|(_, pass)| idle(pass)).for_each(|(wanted, _)| wanted.clear());
    wanted
}

struct Compiler<'a> {
    kernel: &'a Kernel,
    code: RowProgram<'a>,
    saved: FxHashMap<Reg, u16>,
    row: FxHashMap<Reg, u16>,
    saved_types: Vec<DType>,
    row_types: Vec<DType>,
    rows: Shape,
}

/// The program of a pass under construction.
struct PassBuilder {
    program: Program,
    inputs: SmallVec<[Source; 4]>,
    operands: Vec<Operand>,
    regs: FxHashMap<Reg, Reg>,
}

fn compile(kernel: &Kernel) -> Result<RowKernel> {
    let malformed = || Error::invalid("rows", "the kernel is not a row kernel");
    let Body::Rows { row_axes, .. } = &kernel.body else { return Err(malformed()) };
    let mut compiler = Compiler {
        kernel,
        code: RowProgram::of(kernel).ok_or_else(malformed)?,
        saved: FxHashMap::default(),
        row: FxHashMap::default(),
        saved_types: Vec::new(),
        row_types: Vec::new(),
        rows: kernel.space[..kernel.space.rank() - row_axes].iter().copied().collect(),
    };
    compiler.choose_kept();
    let mut passes = Vec::new();
    for phase in 0..=compiler.code.last {
        passes.extend(compiler.row_pass(phase)?);
        passes.extend(compiler.full_pass(phase)?);
    }
    let rows = compiler.rows.numel();
    let length = kernel.space.numel() / rows.max(1);
    let tile = (row_tile_positions() / length.max(1)).max(1);
    Ok(RowKernel {
        ahead: wanted(kernel, &passes, length),
        rows,
        length,
        tile,
        saved: compiler.saved_types,
        row_values: compiler.row_types,
        ends: kernel.operands.iter().map(|operand| operand.reach().span().1).collect(),
        steps: passes.iter().map(|p| p.program.steps.len() + 1).sum(),
        passes,
    })
}

impl Compiler<'_> {
    fn instr(&self, r: Reg) -> Instr {
        self.code.program.instrs[r as usize]
    }

    fn is_fold(&self, r: Reg) -> bool {
        matches!(self.instr(r), Instr::Fold(..))
    }

    /// Whether a register holds an input or a scalar of the launch.
    fn is_given(&self, r: Reg) -> bool {
        matches!(self.instr(r), Instr::Load(_) | Instr::Scalar(_))
    }

    /// Chooses the values to keep for the tile, and the values to keep for each row.
    fn choose_kept(&mut self) {
        let program = self.code.program;
        let n = program.instrs.len();
        let mut later = vec![false; n];
        let mut read = vec![false; n];
        for (i, instr) in program.instrs.iter().enumerate() {
            // A fold's operand is read in the pass before the fold's result.
            let reader = self.code.phase[i] - usize::from(matches!(instr, Instr::Fold(..)));
            for r in instr.operands() {
                later[r as usize] |= reader > self.code.phase[r as usize];
                // A value that is one number for each row is kept if another pass reads it.
                read[r as usize] |= !self.code.uniform[i]
                    || self.is_fold(i as Reg)
                    || self.code.phase[i] > self.code.phase[r as usize];
            }
        }
        for (o, &r) in program.outputs.iter().enumerate() {
            read[r as usize] |= !self.code.is_per_row(o);
        }
        let mut cost = vec![0u32; n];
        for i in 0..n {
            let r = i as Reg;
            let dtype = program.dtypes[i].register();
            if self.is_fold(r) || (self.code.uniform[i] && !self.is_given(r) && read[i]) {
                self.row.insert(r, self.row_types.len() as u16);
                self.row_types.push(dtype);
            } else if !self.code.uniform[i] && !self.is_given(r) {
                let operands = program.instrs[i].operands();
                let below = operands.iter().fold(0u32, |sum, &a| sum.saturating_add(cost[a as usize]));
                cost[i] = below.saturating_add(program.instrs[i].cost());
                if later[i] && cost[i] > RECOMPUTE_LIMIT {
                    cost[i] = 0;
                    self.saved.insert(r, self.saved_types.len() as u16);
                    self.saved_types.push(dtype);
                }
            }
        }
    }

    /// The pass over rows, after `phase` folds: it computes values that are one number for each row.
    fn row_pass(&self, phase: usize) -> Result<Option<RowPass>> {
        let program = self.code.program;
        let mut builder = PassBuilder::new();
        let mut wanted: Vec<(Reg, Destination)> = Vec::new();
        for i in 0..program.instrs.len() {
            let r = i as Reg;
            if self.code.uniform[i]
                && self.code.phase[i] == phase
                && !self.is_fold(r)
                && let Some(&row) = self.row.get(&r)
            {
                wanted.push((r, Destination::Row(row)));
            }
        }
        wanted.extend(self.code.due(phase, true).map(|(o, r)| (r, Destination::Output(o as u16))));
        if wanted.is_empty() {
            return Ok(None);
        }
        let regs: Vec<Reg> = wanted.iter().map(|&(r, _)| self.emit_row(&mut builder, r, phase)).collect();
        self.finish(builder, regs, wanted.into_iter().map(|w| w.1).collect(), SmallVec::new(), true).map(Some)
    }

    fn emit_row(&self, builder: &mut PassBuilder, r: Reg, phase: usize) -> Reg {
        if let Some(&known) = builder.regs.get(&r) {
            return known;
        }
        let dtype = self.code.program.dtypes[r as usize];
        // Already computed by an earlier pass.
        let known_row =
            |r: Reg| self.row.contains_key(&r) && (self.is_fold(r) || self.code.phase[r as usize] < phase);
        let instr = self.instr(r);
        let of_rows = |layout: &Layout| {
            Layout::new(self.rows.clone(), &layout.strides()[..self.rows.rank()], layout.offset())
        };
        let reg = if let Instr::Load(k) = instr {
            let layout = of_rows(&self.kernel.operands[k as usize].layout);
            builder.load(Source::Input(k), layout, self.code.program.inputs[k as usize], dtype)
        } else if let Some(&row) = self.row.get(&r).filter(|_| known_row(r)) {
            builder.load(Source::Row(row), Layout::contiguous(self.rows.clone()), dtype.register(), dtype)
        } else if let Instr::LoadAt { input: k, index } = instr {
            let index = self.emit_row(builder, index, phase);
            let operand = &self.kernel.operands[k as usize];
            builder.load_at(k, operand, of_rows(&operand.layout), index, dtype)
        } else {
            let instr = instr.map_operands(|a| self.emit_row(builder, a, phase));
            builder.push(instr, dtype)
        };
        builder.regs.insert(r, reg);
        reg
    }

    /// The pass over positions, after `phase` folds: it computes everything that is ready by then.
    fn full_pass(&self, phase: usize) -> Result<Option<RowPass>> {
        let program = self.code.program;
        let mut builder = PassBuilder::new();
        let (mut wanted, mut outputs) = (Vec::new(), SmallVec::new());
        for (o, r) in self.code.due(phase, false) {
            wanted.push(r);
            outputs.push(Destination::Output(o as u16));
        }
        for i in 0..program.instrs.len() {
            if self.code.phase[i] == phase
                && let Some(&saved) = self.saved.get(&(i as Reg))
            {
                wanted.push(i as Reg);
                outputs.push(Destination::Saved(saved));
            }
        }
        let mut folds = SmallVec::new();
        for (r, op, a) in self.code.folds(phase + 1) {
            if let Some(&row) = self.row.get(&r) {
                wanted.push(a);
                folds.push(RowFold { op, dtype: program.dtypes[r as usize], row });
            }
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        let regs: Vec<Reg> = wanted.iter().map(|&r| self.emit_full(&mut builder, r, phase)).collect();
        self.finish(builder, regs, outputs, folds, false).map(Some)
    }

    fn emit_full(&self, builder: &mut PassBuilder, r: Reg, phase: usize) -> Reg {
        if let Some(&known) = builder.regs.get(&r) {
            return known;
        }
        let dtype = self.code.program.dtypes[r as usize];
        let shape = &self.kernel.space;
        let instr = self.instr(r);
        let reg = if let Instr::Load(k) = instr {
            let layout = self.kernel.operands[k as usize].layout.clone();
            builder.load(Source::Input(k), layout, self.code.program.inputs[k as usize], dtype)
        } else if let Some(&row) = self.row.get(&r) {
            let mut strides = self.rows.contiguous_strides();
            strides.resize(shape.rank(), 0);
            let layout = Layout::new(shape.clone(), &strides, 0);
            builder.load(Source::Row(row), layout, dtype.register(), dtype)
        } else if let Some(&saved) = self.saved.get(&r).filter(|_| self.code.phase[r as usize] < phase) {
            builder.load(Source::Saved(saved), Layout::contiguous(shape.clone()), dtype.register(), dtype)
        } else if let Instr::LoadAt { input: k, index } = instr {
            let index = self.emit_full(builder, index, phase);
            let operand = &self.kernel.operands[k as usize];
            builder.load_at(k, operand, operand.layout.clone(), index, dtype)
        } else {
            let instr = instr.map_operands(|a| self.emit_full(builder, a, phase));
            builder.push(instr, dtype)
        };
        builder.regs.insert(r, reg);
        reg
    }

    fn finish(
        &self,
        mut builder: PassBuilder,
        regs: Vec<Reg>,
        outputs: SmallVec<[Destination; 4]>,
        folds: SmallVec<[RowFold; 2]>,
        by_row: bool,
    ) -> Result<RowPass> {
        builder.program.scalars = self.code.program.scalars.clone();
        builder.program.outputs = regs;
        let shape = if by_row { &self.rows } else { &self.kernel.space };
        // Other passes read the values kept for the tile, so only outputs of the kernel count as stored.
        let is_stored = |o: usize| matches!(outputs.get(o), Some(Destination::Output(_)));
        let mut program = lower(&builder.program, shape, &builder.operands, is_stored)?;
        for (access, from) in program.inputs.iter_mut().zip(&builder.inputs) {
            if let Source::Input(k) = *from {
                access.operand = k as usize;
            }
        }
        for (out, to) in program.outputs.iter_mut().zip(&outputs) {
            // A value kept for the tile keeps its compute dtype.
            if !matches!(to, Destination::Output(_)) {
                out.1 = out.1.register();
            }
        }
        let is_row_value = |k: u16| matches!(builder.inputs[k as usize], Source::Row(_));
        let terms = match outputs.is_empty() {
            true => {
                let in_order = |access: &Access| access.contiguous;
                let term = |(f, fold)| Term::of(&program, f, fold, in_order, is_row_value);
                folds.iter().enumerate().map(term).collect()
            }
            false => None,
        };
        Ok(RowPass { program, inputs: builder.inputs, outputs, folds, terms, by_row })
    }
}

impl PassBuilder {
    fn new() -> PassBuilder {
        PassBuilder {
            program: Program::default(),
            inputs: SmallVec::new(),
            operands: Vec::new(),
            regs: FxHashMap::default(),
        }
    }

    fn push(&mut self, instr: Instr, dtype: DType) -> Reg {
        self.program.instrs.push(instr);
        self.program.dtypes.push(dtype);
        (self.program.instrs.len() - 1) as Reg
    }

    /// `stored` is the dtype in memory, `dtype` the register's.
    fn load(&mut self, from: Source, layout: Layout, stored: DType, dtype: DType) -> Reg {
        let slot = self.input(from, Operand::new(stored, layout));
        self.push(Instr::Load(slot), dtype)
    }

    /// Adds an input.
    fn input(&mut self, from: Source, operand: Operand) -> u16 {
        self.inputs.push(from);
        self.program.inputs.push(operand.dtype);
        self.operands.push(operand);
        (self.inputs.len() - 1) as u16
    }

    /// Reads the kernel's operand `k`, with layout `layout`, at the indices in a register.
    fn load_at(&mut self, k: u16, operand: &Operand, layout: Layout, index: Reg, dtype: DType) -> Reg {
        let known = self.inputs.iter().zip(&self.operands).position(|(from, read)| {
            *from == Source::Input(k) && read.indexed.is_some() && read.layout == layout
        });
        let read = Operand { layout, ..operand.clone() };
        let input = known.map_or_else(|| self.input(Source::Input(k), read), |slot| slot as u16);
        self.push(Instr::LoadAt { input, index }, dtype)
    }
}

pub(crate) fn run(isa: Isa, pool: &Arc<Pool>, program: &Program, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "rows";
    let rows = compiled(launch, || compile(launch.kernel))?;
    let bound = Bound::new(pool, launch.inputs, launch.outputs)?;
    bound.require(OP, rows.ends.len(), program.outputs.len())?;
    bound.require_apart(OP)?;
    if launch.scalars.len() != program.scalars.len() {
        return Err(Error::invalid(OP, "the launch's scalars do not match the kernel"));
    }
    for ((input, operand), &end) in bound.inputs.iter().zip(&launch.kernel.operands).zip(&rows.ends) {
        input.require(OP, operand.dtype, end)?;
    }
    for (output, spec) in bound.outputs.iter().zip(&launch.kernel.outputs) {
        output.require(OP, spec.dtype, spec.shape.numel())?;
    }
    if rows.rows * rows.length == 0 {
        return Ok(());
    }
    let far = rows.rows * rows.length >= PREFETCH_MIN_POSITIONS;
    let task = RowRunner { isa, rows, launch, inputs: &bound.inputs, outputs: &bound.outputs, far };
    let tile = rows.tile;
    let large = rows.rows * rows.length * rows.steps >= SERIAL_STEPS && threads::available() > 1;
    if !large {
        return task.some(0, rows.rows, tile);
    }
    threads::try_share_ranges(rows.rows, tile, |some| task.some(some.start, some.end, tile))
}

struct RowRunner<'a> {
    isa: Isa,
    rows: &'a RowKernel,
    launch: &'a Launch<'a>,
    inputs: &'a [Memory],
    outputs: &'a [Memory],
    /// Whether prefetching is worth it.
    far: bool,
}

impl RowRunner<'_> {
    /// Runs rows `first..end`, a tile at a time.
    fn some(&self, first: usize, end: usize, tile: usize) -> Result<()> {
        let rows = self.rows;
        // 8 bytes per element fit every dtype; each piece begins on a cache line.
        let (row_words, saved_words) = (tile.next_multiple_of(8), (tile * rows.length).next_multiple_of(8));
        let registers: usize = rows.passes.iter().map(|p| words(&p.program)).sum();
        let total = registers + rows.row_values.len() * row_words + rows.saved.len() * saved_words;
        with_scratch(total, |scratch| {
            let row_at = |r: u16| scratch.wrapping_add(registers + r as usize * row_words);
            let saved_base = registers + rows.row_values.len() * row_words;
            let saved_at = |s: u16| scratch.wrapping_add(saved_base + s as usize * saved_words);
            // The tile's values; the address is shifted so that they are indexed by the number of the row.
            let row_value = |r: u16, from: usize| {
                let dtype = rows.row_values[r as usize];
                let ptr = row_at(r).cast::<u8>().wrapping_sub(from * dtype.size());
                Memory { ptr, numel: rows.rows, dtype }
            };
            let saved_value = |s: u16, from: usize| {
                let dtype = rows.saved[s as usize];
                let ptr = saved_at(s).cast::<u8>().wrapping_sub(from * rows.length * dtype.size());
                Memory { ptr, numel: rows.rows * rows.length, dtype }
            };
            let inputs = |pass: &RowPass, from: usize| -> SmallVec<[Memory; 4]> {
                let place = |f: &Source| match *f {
                    Source::Input(k) => self.inputs[k as usize],
                    Source::Saved(s) => saved_value(s, from),
                    Source::Row(r) => row_value(r, from),
                };
                pass.inputs.iter().map(place).collect()
            };
            let outputs = |pass: &RowPass, from: usize| -> SmallVec<[Memory; 4]> {
                let place = |t: &Destination| match *t {
                    Destination::Output(o) => self.outputs[o as usize],
                    Destination::Saved(s) => saved_value(s, from),
                    Destination::Row(r) => row_value(r, from),
                };
                pass.outputs.iter().map(place).collect()
            };
            let mut used = 0;
            let mut evaluators: SmallVec<[(Evaluator<'_>, SmallVec<[Memory; 4]>); 6]> = SmallVec::new();
            for pass in &rows.passes {
                let own = scratch.wrapping_add(used);
                used += words(&pass.program);
                let (inputs, targets) = (inputs(pass, first), outputs(pass, first));
                let evaluator = Evaluator::new(self.isa, &pass.program, inputs, self.launch, &targets, own);
                evaluators.push((evaluator, targets));
            }
            // The tile's buffers are reused for the next rows, so their addresses are shifted back.
            let shift = |memory: &mut Memory, elements: usize| {
                memory.ptr = memory.ptr.wrapping_sub(elements * memory.dtype.size());
            };
            for from in (first..end).step_by(tile) {
                let to = end.min(from + tile);
                for (at, (pass, (evaluator, targets))) in rows.passes.iter().zip(&mut evaluators).enumerate()
                {
                    if from > first {
                        for (memory, place) in evaluator.inputs.iter_mut().zip(&pass.inputs) {
                            match place {
                                Source::Input(_) => {}
                                Source::Saved(_) => shift(memory, tile * rows.length),
                                Source::Row(_) => shift(memory, tile),
                            }
                        }
                        for (memory, place) in targets.iter_mut().zip(&pass.outputs) {
                            match place {
                                Destination::Output(_) => {}
                                Destination::Saved(_) => shift(memory, tile * rows.length),
                                Destination::Row(_) => shift(memory, tile),
                            }
                        }
                    }
                    if pass.by_row {
                        blocks(from, to, |row, n| evaluator.block(row, n, targets, row))?;
                    } else {
                        let ahead = if self.far { &rows.ahead[at][..] } else { &[] };
                        self.full(pass, evaluator, targets, from..to, ahead, &row_value)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Runs a pass over the positions of rows `from..to`.
    fn full(
        &self,
        pass: &RowPass,
        evaluator: &mut Evaluator<'_>,
        targets: &[Memory],
        rows: Range<usize>,
        ahead: &[Wanted],
        row_value: &impl Fn(u16, usize) -> Memory,
    ) -> Result<()> {
        let Range { start: from, end: to } = rows;
        let length = self.rows.length;
        let look_ahead = |evaluator: &mut Evaluator<'_>, pos: usize, n: usize| {
            for w in ahead {
                let memory = match w.write {
                    true => &self.outputs[w.index as usize],
                    false => &self.inputs[w.index as usize],
                };
                let distance = match w.distance {
                    Distance::Here => 0,
                    Distance::Block => n,
                    Distance::Tile => self.rows.tile * length,
                };
                let at = memory.ptr.wrapping_add((w.offset + pos + distance) * w.size);
                evaluator.ahead.push(Stream { at, bytes: n * w.size, write: w.write });
            }
        };
        let stored = targets.len();
        if pass.folds.is_empty() {
            let mut pos = from * length;
            while pos < to * length {
                let n = evaluator.block_len(pos, to * length);
                look_ahead(evaluator, pos, n);
                evaluator.block(pos, n, targets, pos)?;
                pos += n;
            }
            return Ok(());
        }
        if let Some(terms) = &pass.terms {
            for row in from..to {
                let at = |term: &Term| {
                    term.at(&pass.program, &evaluator.inputs, self.launch.scalars, row, row * length)
                };
                let terms = terms.iter().map(at);
                for (fold, source) in pass.folds.iter().zip(terms) {
                    let mut total = Total::start(fold);
                    blocks(0, length, |start, n| {
                        // SAFETY: `run` checked that the inputs reach their ends, and saved values have a
                        // row for each of the tile; `start + n` is at most `length`.
                        unsafe { total.add_terms(self.isa, fold, &source, start, n) };
                        Ok(())
                    })?;
                    // SAFETY: the tile has a value for each of its rows, of which `row` is one.
                    unsafe { total.finish(fold, length, row_value(fold.row, from), row) };
                }
            }
            return Ok(());
        }
        if length <= BLOCK_POSITIONS / 2 {
            // A block holds several short rows.
            return blocks_of(from, to, BLOCK_POSITIONS / length, |row, n| {
                look_ahead(evaluator, row * length, n * length);
                evaluator.block(row * length, n * length, targets, row * length)?;
                for (f, fold) in pass.folds.iter().enumerate() {
                    let size = fold.dtype.register().size();
                    for i in 0..n {
                        let mut total = Total::start(fold);
                        // SAFETY: `evaluator.block` computed `n` rows of `length` elements; i < n.
                        unsafe {
                            total.add(
                                self.isa,
                                fold,
                                evaluator.result(stored + f)?.wrapping_add(i * length * size),
                                length,
                            )
                        };
                        // SAFETY: the tile has a value for each of its rows, of which `row + i` is one.
                        unsafe { total.finish(fold, length, row_value(fold.row, from), row + i) };
                    }
                }
                Ok(())
            });
        }
        for row in from..to {
            let mut totals: SmallVec<[Total; 2]> = pass.folds.iter().map(Total::start).collect();
            blocks(row * length, (row + 1) * length, |pos, n| {
                look_ahead(evaluator, pos, n);
                evaluator.block(pos, n, targets, pos)?;
                for (f, (fold, total)) in pass.folds.iter().zip(&mut totals).enumerate() {
                    // SAFETY: `evaluator.block` computed `n` elements of each result.
                    unsafe { total.add(self.isa, fold, evaluator.result(stored + f)?, n) };
                }
                Ok(())
            })?;
            for (fold, total) in pass.folds.iter().zip(&totals) {
                // SAFETY: the tile has a value for each of its rows, of which `row` is one.
                unsafe { total.finish(fold, length, row_value(fold.row, from), row) };
            }
        }
        Ok(())
    }
}

/// Calls `f(start, n)` for pieces of `from..to`, each at most a block.
fn blocks(from: usize, to: usize, f: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
    blocks_of(from, to, BLOCK_POSITIONS, f)
}

fn blocks_of(
    from: usize,
    to: usize,
    size: usize,
    mut f: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    (from..to).step_by(size).try_for_each(|start| f(start, size.min(to - start)))
}
