//! Row kernels: softmax, layer norm and similar programs in one dispatch. There are two forms: one
//! invocation for each row, without barriers, and several invocations of a workgroup for each row, which
//! share their folds with a tree in workgroup memory.
//!
//! The program is cut at its folds into phases. A value that is one number for each row is a local variable
//! of every invocation of the row. Values that vary along the row stay in registers if several invocations
//! share a row and it is short enough (see `rows_held.rs`). Otherwise they are computed in one loop for each
//! phase, and again in later phases that need them.

use smallvec::SmallVec;
use tensor_core::{
    DType, Error, ReduceOp, Result, collapse,
    kernel::{Instr, Kernel, Program, Reg},
    rows::RowProgram,
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{is_packed, loaded, storage_size, unpacked},
        formulas,
        index::Space,
        storage::Elements,
        wgsl::Code,
    },
    kernels::{
        by_index,
        cut::{Cut, Place},
        fold::{
            accumulate::{Fold, combined, loop_steps, mean},
            rows_held::{Held, Row},
        },
        map::frame::Frames,
    },
};

/// Invocations of a workgroup whose invocations share rows.
const LANES_PER_WORKGROUP: usize = 256;
/// Invocations of a workgroup whose invocations each have a row.
const ROWS_PER_WORKGROUP: usize = 64;
/// Folds that use workgroup memory together, if it has room for them.
const FOLDS_TOGETHER: usize = 4;

/// The body of a row kernel.
pub(crate) struct Rows<'a> {
    pub(crate) row_axes: usize,
    pub(crate) program: &'a Program,
}

impl Cut for Rows<'_> {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        dispatches(kernel, self, place.first(), place.capabilities)
    }

    fn is_positional(&self) -> bool {
        formulas::is_positional(self.program)
    }
}

/// The dispatch of a row kernel whose first position has the flat index `first`.
fn dispatches(
    kernel: &Kernel,
    &Rows { row_axes, program }: &Rows<'_>,
    first: usize,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let lead = kernel.space.rank() - row_axes;
    let rows: usize = kernel.space[..lead].iter().product();
    let length: usize = kernel.space[lead..].iter().product();
    let folds = program.instrs.iter().filter(|i| matches!(i, Instr::Fold(..))).count();
    // A single invocation may exceed the iteration limit of the device.
    let far = (folds + 1) * (1 + formulas::rounds(program)) * length > loop_steps(capabilities.rounds);
    let direct = capabilities.direct && !far;
    let part = |from: usize, to: usize| {
        let strides: SmallVec<[&[isize]; 8]> =
            kernel.operands.iter().map(|o| &o.layout.strides()[from..to]).collect();
        collapse(&kernel.space[from..to], &strides)
    };
    let (across, along) = (part(0, lead), part(lead, kernel.space.rank()));

    let mut d = Dispatch::new("rows");
    d.params.size("rows", rows);
    d.params.size("length", length);
    let lanes = lanes(length);
    if !direct {
        d.params.size("lanes", lanes);
    }
    if first > 0 {
        d.params.size("first", first);
    }
    for (slot, &dtype) in program.scalars.iter().enumerate() {
        d.params.scalar(slot, dtype);
    }
    let by_row = Space::new("d", &across.shape, &mut d.params);
    let in_row = Space::new("e", &along.shape, &mut d.params);
    let in_fours = length.is_multiple_of(4);
    let code =
        RowProgram::of(kernel).ok_or_else(|| Error::invalid("rows", "the kernel is not a row kernel"))?;
    let held = if direct { None } else { Held::of(kernel, row_axes, &code, length, lanes) };
    let mut bases = Code::default();
    let mut steps = Vec::new();
    for (k, operand) in kernel.operands.iter().enumerate() {
        d.params.size(format!("o{k}"), operand.layout.offset());
        let base = by_row.offset(&format!("t{k}"), &across.strides[k], &mut d.params);
        bases.bind(format_args!("base{k}"), format_args!("params.o{k}{base}"));
        if program.is_indexed(k as u16) {
            bases.bind(format_args!("b{k}"), format_args!("base{k}"));
        }
        steps.push(in_row.offset(&format!("t{k}"), &along.strides[k], &mut d.params));
        let in_vectors = held.as_ref().is_some_and(|held| held.in_vectors(k));
        let elements = Elements::of(program.inputs[k]).in_fours(in_vectors);
        d.bind(format!("in{k}"), elements, false, Resource::Input(k));
    }
    by_index::load_functions(&kernel.operands, program, &mut d);
    let together = if direct { ROWS_PER_WORKGROUP } else { LANES_PER_WORKGROUP / lanes };
    let size = if direct { ROWS_PER_WORKGROUP } else { LANES_PER_WORKGROUP };
    d.workgroups = rows.div_ceil(together);
    let frames = Frames::new(kernel, d.workgroups * size, &mut d);
    for o in 0..program.outputs.len() {
        let dtype = program.output_dtype(o);
        let in_vectors = held.as_ref().is_some_and(Held::stores_vectors);
        let vectors = in_vectors && !code.is_per_row(o) && storage_size(dtype) <= 4 && !frames.has(o);
        let elements = Elements::of(dtype).in_fours(vectors || (in_fours && is_packed(dtype)));
        d.bind(format!("out{o}"), elements, true, Resource::Output(o));
    }
    let (unravel, later) = (in_row.unravel("j"), first > 0);
    let writer =
        Writer { program, capabilities, direct, rows: code, held, steps, unravel, later, in_fours, frames };
    let phases = writer.write(length, &mut d)?;

    d.code.entry(size, |c| {
        writer.frames.zeros(size, c);
        if direct {
            c.bind("row", "workgroup_index * 64u + local_index");
            c.return_if("row >= params.rows");
            c.bind("end", "params.length");
        } else {
            // Every invocation stays to the end because of the barriers; surplus invocations repeat the
            // last row without elements.
            c.bind("l", "local_index & (params.lanes - 1u)");
            c.bind("own", "workgroup_index * (256u / params.lanes) + local_index / params.lanes");
            c.bind("row", "min(own, params.rows - 1u)");
            c.bind("end", "select(0u, params.length, own < params.rows)");
        }
        c.bind("at", "row * params.length");
        c.append(&by_row.unravel("row"));
        c.append(bases.text());
        c.append(phases.text());
    });
    d.work = together * length.max(1) * writer.work();
    Ok(d.into())
}

/// The number of invocations that share a row: about four elements each, but whole memory transactions, and
/// at most a workgroup.
fn lanes(length: usize) -> usize {
    let least = length.next_power_of_two().min(32);
    length.div_ceil(4).next_power_of_two().clamp(least, LANES_PER_WORKGROUP)
}

/// The program in phases.
struct Writer<'a> {
    program: &'a Program,
    capabilities: &'a Capabilities,
    direct: bool,
    rows: RowProgram<'a>,
    /// The plan if values stay in registers.
    held: Option<Held>,
    /// For each input, its offset along the row from the row's base.
    steps: Vec<String>,
    /// The statements that compute the coordinates in the row.
    unravel: String,
    /// Whether flat positions start at a parameter.
    later: bool,
    /// Whether rows begin at multiples of four elements of an output.
    in_fours: bool,
    frames: Frames,
}

impl Writer<'_> {
    /// The folds whose results belong to a phase: the instruction, the operation and the operand.
    fn folds(&self, phase: usize) -> impl Iterator<Item = (usize, ReduceOp, Reg)> {
        self.rows.folds(phase).map(|(r, op, a)| (r as usize, op, a))
    }

    /// The instructions for each position, over all loops.
    fn work(&self) -> usize {
        if let Some(held) = &self.held {
            return held.work().max(1);
        }
        let of = |phase| self.rows.computed(phase).into_iter().filter(|&n| n).count();
        (0..=self.rows.last).map(of).sum::<usize>().max(1)
    }

    /// The statements after the bases of the row; adds the functions and shared arrays to the dispatch.
    fn write(&self, length: usize, d: &mut Dispatch) -> Result<Code> {
        let mut c = Code::default();
        let mut folds: Vec<Option<Fold>> = Vec::new();
        for (n, instr) in self.program.instrs.iter().enumerate() {
            folds.push(if let Instr::Fold(op, _) = *instr {
                let fold = Fold::new(op, self.program.dtypes[n], n.to_string(), self.capabilities)?;
                fold.function(&mut d.code);
                Some(fold)
            } else {
                None
            });
        }
        let mut trees = Trees::new(self.together());
        for phase in 0..=self.rows.last {
            self.steady(phase, &mut c)?;
            self.along(phase, &folds, &mut c)?;
            if !self.direct {
                let made = self.folds(phase + 1).map(|(n, ..)| (n, self.program.dtypes[n]));
                trees.write(&made.collect::<Vec<_>>(), &mut d.code, &mut c);
            }
            for (n, op, _) in self.folds(phase + 1) {
                let mut total = format!("total{n}");
                if op == ReduceOp::Mean {
                    total = mean(&total, length, self.program.dtypes[n], &format!("n{n}"), &mut d.params);
                }
                c.bind(format_args!("r{n}"), formulas::opaque(self.program.dtypes[n], &total));
            }
        }
        Ok(c)
    }

    /// The number of folds that use workgroup memory together.
    fn together(&self) -> usize {
        let of =
            |n: usize| storage_size(unpacked(self.program.dtypes[n])) * LANES_PER_WORKGROUP * FOLDS_TOGETHER;
        // Each dtype has its own arrays.
        let bytes: usize =
            (1..=self.rows.last).flat_map(|phase| self.folds(phase)).map(|(n, ..)| of(n)).sum();
        if bytes <= self.capabilities.workgroup_bytes { FOLDS_TOGETHER } else { 1 }
    }

    /// Computes the values that are one number for each row, after `phase` folds.
    fn steady(&self, phase: usize, c: &mut Code) -> Result<()> {
        let mut loaded = Vec::new();
        for n in 0..self.program.instrs.len() {
            let instr = self.program.instrs[n];
            if !self.rows.uniform[n] || self.rows.phase[n] != phase || matches!(instr, Instr::Fold(..)) {
                continue;
            }
            if let Instr::Load(k) = instr
                && !loaded.contains(&k)
            {
                c.bind(format_args!("x{k}"), format_args!("load_in{k}(base{k})"));
                loaded.push(k);
            }
            formulas::statement(self.program, n, self.capabilities, c)?;
        }
        for (o, r) in self.rows.due(phase, true) {
            let stored = formulas::store(self.program.output_dtype(o), &format!("r{r}"));
            let stored = format!("store_out{o}(row, {stored});");
            if self.direct {
                c.line(stored);
            } else {
                c.when("l == 0u && own < params.rows", |c| c.line(stored));
            }
        }
        Ok(())
    }

    /// Writes the loop along the row, after `phase` folds.
    fn along(&self, phase: usize, folds: &[Option<Fold>], c: &mut Code) -> Result<()> {
        let wanted: Vec<(&Fold, Reg)> =
            self.folds(phase + 1).filter_map(|(n, _, a)| folds[n].as_ref().map(|fold| (fold, a))).collect();
        let due: Vec<(usize, Reg)> = self.rows.due(phase, false).collect();
        if wanted.is_empty() && due.is_empty() {
            return Ok(());
        }
        if let Some(held) = &self.held {
            let Writer { program, capabilities, steps, unravel, later, frames, .. } = self;
            let row = Row { program, capabilities, steps, unravel, later: *later, frames };
            return row.unrolled(held, phase, &wanted, &due, c);
        }
        let all: Vec<&Fold> = wanted.iter().map(|(fold, _)| *fold).collect();
        let mut result = Ok(());
        if !due.iter().any(|&(o, _)| is_packed(self.program.output_dtype(o))) {
            let from_to = if self.direct { ["0u", "end", "1u"] } else { ["l", "end", "params.lanes"] };
            Fold::accumulate(&all, "j", from_to, c, |c| result = self.position(phase, &wanted, &due, c));
            return result;
        }
        // One invocation computes four aligned neighbours of the output and stores them together.
        let (before, limit) = (format!("before{phase}"), format!("limit{phase}"));
        c.bind(&before, "at & 3u");
        c.bind(&limit, format_args!("select(0u, end + {before}, end > 0u)"));
        let from_to =
            if self.direct { ["0u", &limit, "4u"] } else { ["l * 4u", &limit, "params.lanes * 4u"] };
        Fold::accumulate(&all, "group", from_to, c, |c| {
            c.bind("begin", format_args!("max(group, {before}) - {before}"));
            c.bind("stop", format_args!("min(group + 4u - {before}, end)"));
            let packed = || due.iter().filter(|&&(o, _)| is_packed(self.program.output_dtype(o)));
            for &(o, _) in packed() {
                let t = loaded(self.program.output_dtype(o));
                c.var(format_args!("four{o}"), format_args!("vec4<{t}>()"));
            }
            c.count("j", ["begin", "stop", "1u"], |c| result = self.position(phase, &wanted, &due, c));
            for &(o, _) in packed() {
                c.line(match self.in_fours {
                    true => format!("store4_out{o}(at + begin, four{o});"),
                    false => format!("store_some_out{o}(at + begin, four{o}, stop - begin);"),
                });
            }
        });
        result
    }

    /// The work at position `j` of the row: values for the folds, and outputs; packed ones go to `four<o>`.
    fn position(
        &self,
        phase: usize,
        wanted: &[(&Fold, Reg)],
        due: &[(usize, Reg)],
        c: &mut Code,
    ) -> Result<()> {
        let needed = self.rows.computed(phase);
        c.append(&self.unravel);
        c.bind("i", if self.later { "params.first + at + j" } else { "at + j" });
        let mut loaded = Vec::new();
        for n in (0..needed.len()).filter(|&n| needed[n]) {
            if let Some(k) = self.program.instrs[n].input()
                && !loaded.contains(&k)
            {
                let step = &self.steps[k as usize];
                match self.program.is_indexed(k) {
                    true => c.bind(format_args!("b{k}"), format_args!("base{k}{step}")),
                    false => c.bind(format_args!("x{k}"), format_args!("load_in{k}(base{k}{step})")),
                }
                loaded.push(k);
            }
            formulas::statement(self.program, n, self.capabilities, c)?;
        }
        for &(o, r) in due {
            let dtype = self.program.output_dtype(o);
            let stored = formulas::store(dtype, &format!("r{r}"));
            match is_packed(dtype) {
                true => c.set(format_args!("four{o}[j - begin]"), stored),
                false => {
                    let place = self.frames.place(o, "at + j");
                    c.line(format_args!("store_out{o}({place}, {stored});"));
                }
            }
        }
        wanted.iter().for_each(|(fold, a)| fold.add(&format!("r{a}"), c));
        Ok(())
    }
}

/// The trees in workgroup memory.
struct Trees {
    together: usize,
    names: Vec<String>,
    /// Whether the array was used before: all invocations have to read that result before the array is
    /// reused.
    used: bool,
}

impl Trees {
    fn new(together: usize) -> Trees {
        Trees { together, names: Vec::new(), used: false }
    }

    /// Combines `total<n>` of a row's invocations for each fold and its type; all invocations get the
    /// result.
    fn write(&mut self, folds: &[(usize, DType)], module: &mut Code, c: &mut Code) {
        for some in folds.chunks(self.together) {
            if std::mem::replace(&mut self.used, true) {
                c.line("workgroupBarrier();");
            }
            let names: Vec<String> = some
                .iter()
                .enumerate()
                .map(|(slot, &(_, d))| format!("shared_{}_{slot}", loaded(d)))
                .collect();
            for (name, &(n, dtype)) in names.iter().zip(some) {
                if !self.names.contains(name) {
                    module.line(format_args!(
                        "var<workgroup> {name}: array<{}, {LANES_PER_WORKGROUP}>;",
                        loaded(dtype)
                    ));
                    self.names.push(name.clone());
                }
                c.set(format_args!("{name}[local_index]"), formulas::store(dtype, &format!("total{n}")));
            }
            c.line("workgroupBarrier();");
            c.block("for (var half = params.lanes >> 1u; half > 0u; half >>= 1u)", |c| {
                c.when("l < half", |c| {
                    for (name, &(n, dtype)) in names.iter().zip(some) {
                        let combine = format!("combine{n}");
                        c.set(format_args!("{name}[local_index]"), combined(dtype, &combine, name, "half"));
                    }
                });
                c.line("workgroupBarrier();");
            });
            for (name, &(n, dtype)) in names.iter().zip(some) {
                let total = formulas::load(dtype, &format!("{name}[local_index - l]"));
                c.set(format_args!("total{n}"), total);
            }
        }
    }
}
