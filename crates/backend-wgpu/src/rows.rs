//! Row kernels: softmax, layer norm and their like in one dispatch. Two forms: a thread for each row, with no barrier, and
//! some threads of a workgroup for each row, which share their folds by a tree in shared memory.
//!
//! The program is cut at its folds into phases. What is one value a row is a local of every thread of the row; what varies
//! along the row is computed in one loop over it for each phase, and again where a later phase needs it: on a GPU the
//! memory is the limit. A thread with a row to itself keeps dear values in the buffers of outputs that are not yet due.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{
    DType, ReduceOp, Result, Strides, UnaryOp, collapse,
    kernel::{Instr, Program, Reg, RowKernel},
};

use crate::{
    draft::{Draft, Drafts, Facts, Slot},
    dtypes::{FIELDS, MANY, lane, lane_size, of_pairs, pairs, value},
    formulas,
    index::Space,
    reduce::{Fold, mean},
};

/// Threads of a workgroup that share rows.
const SHARED: usize = 256;
/// Threads of a workgroup that have a row each.
const APART: usize = 64;
/// Folds that go through shared memory together, where it has room for them.
const TOGETHER: usize = 4;
/// Instructions of a program of which a thread takes eight positions at a time, at most.
const SHORT: usize = 32;
/// A value that costs this many simple operations or fewer is computed again rather than kept.
const CHEAP: u32 = 4;

/// The draft of a row kernel; `first` is the flat index of its first position, where it is a part of a larger one.
pub(crate) fn draft(kernel: &RowKernel, first: usize, facts: &Facts<'_>) -> Result<Drafts> {
    let program = &kernel.program;
    let folds = program.instrs.iter().filter(|i| matches!(i, Instr::Fold(..))).count();
    let shared = Facts { direct: false, ..*facts };
    // A thread with a row to itself may have too far to go.
    let far = (folds + 1)
        * (1 + formulas::rounds(program))
        * kernel.shape[kernel.shape.rank() - kernel.row_axes..].iter().product::<usize>();
    let facts = if far > facts.rounds { &shared } else { facts };
    let lead = kernel.shape.rank() - kernel.row_axes;
    let part = |from: usize, to: usize| {
        let strides: SmallVec<[&[isize]; 8]> = kernel.inputs.iter().map(|l| &l.strides()[from..to]).collect();
        collapse(&kernel.shape[from..to], &strides)
    };
    let (across, along) = (part(0, lead), part(lead, kernel.shape.rank()));
    let rows: usize = kernel.shape[..lead].iter().product();
    let length: usize = kernel.shape[lead..].iter().product();

    let fits = |by: usize| vectors(kernel, length, by, &across.strides, &along.strides);
    let eight = rows * length >= MANY && program.instrs.len() <= SHORT && fits(8);
    let unit = match facts.direct {
        true if eight => 8,
        true if fits(4) => 4,
        _ => 1,
    };
    let wide = unit > 1;
    let pairs = eight && wide && facts.info.dtypes.contains(&DType::I64);

    let mut d = Draft::new("rows");
    d.params.size("rows", rows);
    d.params.size("length", length);
    let lanes = lanes(length);
    if !facts.direct {
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
    let mut bases = String::new();
    let mut steps = Vec::new();
    for (k, layout) in kernel.inputs.iter().enumerate() {
        d.params.size(format!("o{k}"), layout.offset());
        let base = by_row.offset(&format!("t{k}"), &across.strides[k], &mut d.params);
        let _ = writeln!(bases, "    let base{k} = params.o{k}{base};");
        let steady = along.strides[k].iter().all(|&s| s == 0);
        steps.push((!steady).then(|| in_row.offset(&format!("t{k}"), &along.strides[k], &mut d.params)));
        d.bind(format!("in{k}"), element(program.inputs[k], wide && !steady), false, Slot::Input(k));
    }
    for o in 0..program.outputs.len() {
        let vectors = wide && !kernel.per_row[o];
        let element = match vectors && pairs {
            true => "vec4<u64>".into(),
            false => element(program.output_dtype(o), vectors),
        };
        d.bind(format!("out{o}"), element, true, Slot::Output(o));
    }
    let writer = Writer::new(kernel, facts, (unit, pairs), steps, in_row.unravel("j"), first > 0);
    let (functions, phases) = writer.write(length, &mut d)?;

    let mut body = functions;
    let width = if facts.direct { APART } else { SHARED };
    let _ = write!(body, "\n@compute @workgroup_size({width})\n{}", taper_shaders::ENTRY);
    body.push_str(if facts.direct {
        "    let row = group * 64u + lane;\n    if (row >= params.rows) {\n        return;\n    }\n    let end = params.length;\n"
    } else {
        // Every thread stays to the end, for the barriers; those past the last row find nothing in it.
        "    let l = lane & (params.lanes - 1u);\n    let own = group * (256u / params.lanes) + lane / params.lanes;\n    let row = min(own, params.rows - 1u);\n    let end = select(0u, params.length, own < params.rows);\n"
    });
    body.push_str("    let at = row * params.length;\n");
    body.push_str(&by_row.unravel("row"));
    body.push_str(&bases);
    body.push_str(&phases);
    body.push_str("}\n");
    d.body = body;
    let together = if facts.direct { APART } else { SHARED / lanes };
    d.work = together * length.max(1) * writer.work();
    d.groups = rows.div_ceil(together);
    Ok(d.into())
}

/// The type of a buffer's elements, in vectors of four or not.
fn element(dtype: DType, vectors: bool) -> String {
    if vectors { format!("vec4<{}>", lane(dtype)) } else { lane(dtype).into() }
}

/// Whether rows can be taken by so many elements at a time and read in vectors of four: a processor reads memory thread by
/// thread, and four elements of a thread cost it little more than one.
fn vectors(kernel: &RowKernel, length: usize, by: usize, across: &[Strides], along: &[Strides]) -> bool {
    let outputs = (0..kernel.program.outputs.len()).filter(|&o| !kernel.per_row[o]);
    let mut dtypes =
        outputs.map(|o| kernel.program.output_dtype(o)).chain(kernel.program.inputs.iter().copied());
    let aligned = kernel.inputs.iter().zip(across.iter().zip(along)).all(|(layout, (across, along))| {
        let Some((&last, rest)) = along.split_last() else { return true };
        let steady = along.iter().all(|&s| s == 0);
        let multiple =
            rest.iter().chain(across.iter()).all(|s| s % 4 == 0) && layout.offset().is_multiple_of(4);
        steady || (last == 1 && multiple)
    });
    let dense =
        along.iter().all(|along| along.len() <= 1) || kernel.shape.last().is_some_and(|n| n % by == 0);
    length >= 8 && length.is_multiple_of(by) && dense && aligned && dtypes.all(|d| lane_size(d) == 4)
}

/// How many threads share a row: about four elements each, but whole memory transactions, up to a workgroup.
fn lanes(length: usize) -> usize {
    let least = length.next_power_of_two().min(32);
    length.div_ceil(4).next_power_of_two().clamp(least, SHARED)
}

/// What an instruction costs beside an addition.
fn price(instr: &Instr) -> u32 {
    match instr {
        Instr::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Not, _) => 1,
        Instr::Unary(..) | Instr::Random { .. } => 8,
        Instr::Powi(..) => 2,
        _ => 1,
    }
}

/// A value that waits in the buffer of output `output` from the loop of phase `from` on.
#[derive(Clone, Copy)]
struct Kept {
    output: usize,
    from: usize,
}

/// The program in phases.
struct Writer<'a> {
    kernel: &'a RowKernel,
    program: &'a Program,
    facts: &'a Facts<'a>,
    /// How many positions are taken at a time: 1, or 4 or 8 in vectors of four.
    unit: usize,
    /// Whether outputs of all positions are four pairs of lanes, as 64-bit words.
    pairs: bool,
    uniform: Vec<bool>,
    /// How many folds deep each register lies.
    phase: Vec<usize>,
    last: usize,
    kept: Vec<Option<Kept>>,
    /// For each input that varies along the row, the offset from its base.
    steps: Vec<Option<String>>,
    /// The coordinates in the row.
    unravel: String,
    /// Whether flat positions start at a parameter.
    later: bool,
}

impl<'a> Writer<'a> {
    fn new(
        kernel: &'a RowKernel,
        facts: &'a Facts<'a>,
        (unit, pairs): (usize, bool),
        steps: Vec<Option<String>>,
        unravel: String,
        later: bool,
    ) -> Writer<'a> {
        let program = &kernel.program;
        let mut phase: Vec<usize> = Vec::with_capacity(program.instrs.len());
        for instr in &program.instrs {
            let deepest = instr.operands().iter().map(|&r| phase[r as usize]).max().unwrap_or(0);
            phase.push(deepest + usize::from(matches!(instr, Instr::Fold(..))));
        }
        let last = phase.iter().copied().max().unwrap_or(0);
        let uniform = kernel.uniform();
        let kept = vec![None; program.instrs.len()];
        let mut writer =
            Writer { kernel, program, facts, unit, pairs, uniform, phase, last, kept, steps, unravel, later };
        if facts.direct {
            writer.keep();
        }
        writer
    }

    /// The folds whose results are there after `phase` folds.
    fn folds(&self, phase: usize) -> impl Iterator<Item = (usize, ReduceOp, Reg)> {
        let instrs = self.program.instrs.iter().enumerate();
        instrs.filter_map(move |(n, instr)| match *instr {
            Instr::Fold(op, a) if self.phase[n] == phase => Some((n, op, a)),
            _ => None,
        })
    }

    /// The outputs that are due after `phase` folds, of one value a row or of all positions.
    fn due(&self, phase: usize, per_row: bool) -> impl Iterator<Item = (usize, Reg)> {
        let outputs = self.program.outputs.iter().copied().enumerate();
        outputs.filter(move |&(o, r)| self.phase[r as usize] == phase && self.kernel.per_row[o] == per_row)
    }

    /// The registers that the loop of a phase computes or reads back.
    fn needed(&self, phase: usize) -> Vec<bool> {
        let mut needed = vec![false; self.program.instrs.len()];
        let stored = self.due(phase, false).map(|(_, r)| r);
        stored.chain(self.folds(phase + 1).map(|(_, _, a)| a)).for_each(|r| needed[r as usize] = true);
        for n in (0..needed.len()).rev() {
            if self.uniform[n] {
                needed[n] = false;
            } else if needed[n] && self.kept[n].is_none_or(|kept| kept.from >= phase) {
                self.program.instrs[n].operands().iter().for_each(|&r| needed[r as usize] = true);
            }
        }
        needed
    }

    /// Instructions for each position, over all loops.
    fn work(&self) -> usize {
        (0..=self.last)
            .map(|phase| self.needed(phase).into_iter().filter(|&n| n).count())
            .sum::<usize>()
            .max(1)
    }

    /// Chooses values to keep: the dearest of those that several phases need, as long as there are outputs that come later.
    fn keep(&mut self) {
        let n = self.program.instrs.len();
        let mut free: Vec<usize> =
            (0..self.program.outputs.len()).filter(|&o| !self.kernel.per_row[o]).collect();
        loop {
            let needed: Vec<Vec<bool>> = (0..=self.last).map(|phase| self.needed(phase)).collect();
            let mut cost = vec![0u32; n];
            let mut best: Option<(u32, usize, Kept)> = None;
            for r in 0..n {
                let instr = &self.program.instrs[r];
                if self.uniform[r] || self.kept[r].is_some() {
                    continue;
                }
                let below =
                    instr.operands().iter().fold(0u32, |sum, &a| sum.saturating_add(cost[a as usize]));
                cost[r] = below.saturating_add(price(instr));
                let mut phases = (0..=self.last).filter(|&phase| needed[phase][r]);
                let (Some(from), Some(until)) = (phases.next(), phases.next_back()) else { continue };
                let dear = cost[r] > CHEAP && best.is_none_or(|(most, ..)| cost[r] >= most);
                if !dear || matches!(instr, Instr::Load(_)) {
                    continue;
                }
                let dtype = self.program.dtypes[r];
                // Its own buffer, where nothing is rounded away, or one that is written later.
                let alike = |&o: &usize| lane(self.program.output_dtype(o)) == value(dtype);
                let own = |&o: &usize| self.program.outputs[o] as usize == r && dtype == dtype.compute();
                let later = |&o: &usize| self.phase[self.program.outputs[o] as usize] >= until;
                let mut places = free.iter().copied().filter(alike);
                if let Some(output) = places.clone().find(own).or_else(|| places.find(later)) {
                    best = Some((cost[r], r, Kept { output, from }));
                }
            }
            let Some((_, r, kept)) = best else { return };
            self.kept[r] = Some(kept);
            free.retain(|&o| o != kept.output);
        }
    }

    /// The functions and shared arrays, and the statements after the row's bases.
    fn write(&self, length: usize, d: &mut Draft) -> Result<(String, String)> {
        let (mut functions, mut out) = (String::new(), String::new());
        let mut folds: Vec<Option<Fold>> = Vec::new();
        for (n, instr) in self.program.instrs.iter().enumerate() {
            let Instr::Fold(op, _) = *instr else {
                folds.push(None);
                continue;
            };
            let fold = Fold::new(op, self.program.dtypes[n], n.to_string(), self.facts)?;
            functions.push_str(&fold.function());
            folds.push(Some(fold));
        }
        let mut shared = Shared::new(self.together());
        for phase in 0..=self.last {
            self.steady(phase, &mut out)?;
            self.along(phase, &folds, &mut out)?;
            if !self.facts.direct {
                let made = self.folds(phase + 1).map(|(n, ..)| (n, value(self.program.dtypes[n])));
                shared.trees(&made.collect::<Vec<_>>(), &mut out);
            }
            for (n, op, _) in self.folds(phase + 1) {
                let mut total = format!("total{n}");
                if op == ReduceOp::Mean {
                    total = mean(&total, length, self.program.dtypes[n], &format!("n{n}"), &mut d.params);
                }
                let _ = writeln!(out, "    let r{n} = {};", formulas::opaque(self.program.dtypes[n], &total));
            }
        }
        functions.push_str(&shared.arrays);
        Ok((functions, out))
    }

    /// How many folds go through shared memory together.
    fn together(&self) -> usize {
        let of = |n: usize| lane_size(self.program.dtypes[n]) * SHARED * TOGETHER;
        // Each dtype has arrays of its own.
        let bytes: usize = (1..=self.last).flat_map(|phase| self.folds(phase)).map(|(n, ..)| of(n)).sum();
        if bytes <= self.facts.shared_bytes { TOGETHER } else { 1 }
    }

    /// What is one value a row, after `phase` folds.
    fn steady(&self, phase: usize, out: &mut String) -> Result<()> {
        let mut loaded = Vec::new();
        for n in 0..self.program.instrs.len() {
            let instr = self.program.instrs[n];
            if !self.uniform[n] || self.phase[n] != phase || matches!(instr, Instr::Fold(..)) {
                continue;
            }
            if let Instr::Load(k) = instr
                && !loaded.contains(&k)
            {
                let _ = writeln!(out, "    let x{k} = in{k}[base{k}];");
                loaded.push(k);
            }
            formulas::statement(self.program, n, self.facts, out)?;
        }
        for (o, r) in self.due(phase, true) {
            let stored = formulas::store(self.program.output_dtype(o), &format!("r{r}"));
            let _ = if self.facts.direct {
                writeln!(out, "    out{o}[row] = {stored};")
            } else {
                writeln!(
                    out,
                    "    if (l == 0u && own < params.rows) {{\n        out{o}[row] = {stored};\n    }}"
                )
            };
        }
        Ok(())
    }

    /// The loop along the row after `phase` folds.
    fn along(&self, phase: usize, folds: &[Option<Fold>], out: &mut String) -> Result<()> {
        let wanted: Vec<(&Fold, Reg)> =
            self.folds(phase + 1).filter_map(|(n, _, a)| folds[n].as_ref().map(|fold| (fold, a))).collect();
        let due: Vec<(usize, Reg)> = self.due(phase, false).collect();
        if wanted.is_empty() && due.is_empty() {
            return Ok(());
        }
        wanted.iter().for_each(|(fold, _)| out.push_str(&fold.start()));
        let wide = self.unit > 1;
        let (start, step) = match self.facts.direct {
            true => ("0u", format!("{}u", self.unit)),
            false => ("l", "params.lanes".into()),
        };
        let _ = writeln!(out, "    for (var j = {start}; j < end; j += {step}) {{");
        out.push_str(&self.unravel);
        let needed = self.needed(phase);
        // Memory is read first, then everything is computed for each position, then memory is written.
        let pieces = self.unit.div_ceil(4);
        let place = |piece: usize| match (wide, piece) {
            (false, _) => "at + j".to_string(),
            (_, 0) => "((at + j) >> 2u)".into(),
            _ => format!("((at + j) >> 2u) + {piece}u"),
        };
        let mut taken = String::new();
        let mut loaded = Vec::new();
        // The element `[c]` of vectors, or what was read.
        let taken_from = |name: &str| if wide { format!("{name}[c]") } else { name.to_string() };
        for n in (0..needed.len()).filter(|&n| needed[n]) {
            match (self.program.instrs[n], self.kept[n]) {
                (_, Some(kept)) if kept.from < phase => {
                    let o = kept.output;
                    let t = value(self.program.dtypes[n]);
                    if self.pairs {
                        let _ = writeln!(out, "    let pairs{n} = out{o}[(at + j) >> 3u];");
                    }
                    for piece in 0..pieces {
                        let _ = if self.pairs {
                            let halves =
                                [0, 1, 2, 3].map(|c| of_pairs(&format!("pairs{n}"), piece * 4 + c, t));
                            writeln!(out, "    let was{n}_{piece} = vec4<{t}>({});", halves.join(", "))
                        } else if wide {
                            writeln!(out, "    let was{n}_{piece} = out{o}[{}];", place(piece))
                        } else {
                            writeln!(out, "    let was{n} = out{o}[{}];", place(0))
                        };
                    }
                    let _ = writeln!(taken, "    let r{n} = {};", taken_from(&format!("was{n}")));
                }
                (Instr::Load(k), _) if !loaded.contains(&k) => {
                    let step = self.steps[k as usize].as_deref().unwrap_or_default();
                    let at = format!("base{k}{step}");
                    if wide {
                        let _ = writeln!(out, "    let from{k} = ({at}) >> 2u;");
                        for piece in 0..pieces {
                            let _ = writeln!(out, "    let read{k}_{piece} = in{k}[from{k} + {piece}u];");
                        }
                    } else {
                        let _ = writeln!(out, "    let read{k} = in{k}[{at}];");
                    }
                    let _ = writeln!(taken, "    let x{k} = {};", taken_from(&format!("read{k}")));
                    loaded.push(k);
                }
                _ => {}
            }
        }
        let mut computed = taken;
        for n in (0..needed.len()).filter(|&n| needed[n]) {
            if self.kept[n].is_none_or(|kept| kept.from >= phase) {
                formulas::statement(self.program, n, self.facts, &mut computed)?;
            }
        }
        // What is kept is written last, after what was kept there before is read.
        let mut stored: Vec<(usize, String, &str)> = Vec::new();
        for n in (0..needed.len()).filter(|&n| needed[n]) {
            let is_due = |kept: &Kept| due.contains(&(kept.output, n as Reg));
            if let Some(kept) = self.kept[n].filter(|kept| kept.from == phase && !is_due(kept)) {
                stored.push((kept.output, format!("r{n}"), value(self.program.dtypes[n])));
            }
        }
        for &(o, r) in &due {
            let dtype = self.program.output_dtype(o);
            stored.push((o, formulas::store(dtype, &format!("r{r}")), lane(dtype)));
        }
        let first = if self.later { "params.first + " } else { "" };
        if wide {
            let mut folded: Vec<Reg> = wanted.iter().map(|&(_, a)| a).collect();
            folded.sort_unstable();
            folded.dedup();
            for piece in 0..pieces {
                for (o, _, t) in &stored {
                    let _ = writeln!(out, "    var new{o}_{piece} = vec4<{t}>();");
                }
                for a in &folded {
                    let t = value(self.program.dtypes[*a as usize]);
                    let _ = writeln!(out, "    var all{a}_{piece} = vec4<{t}>();");
                }
            }
            // Unrolled here: few compilers unroll a loop of four.
            for c in 0..self.unit {
                let element = format!("_{}[{}]", c / 4, c % 4);
                let _ = writeln!(out, "    {{\n    let i = {first}at + j + {c}u;");
                out.push_str(&computed.replace("[c]", &element));
                for (o, x, _) in &stored {
                    let _ = writeln!(out, "    new{o}{element} = {x};");
                }
                for a in &folded {
                    let _ = writeln!(out, "    all{a}{element} = r{a};");
                }
                out.push_str("    }\n");
            }
            for (o, ..) in &stored {
                if self.pairs {
                    let lanes = std::array::from_fn(|e| format!("new{o}_{}.{}", e / 4, FIELDS[e % 4]));
                    let _ = writeln!(out, "    out{o}[(at + j) >> 3u] = {};", pairs(lanes));
                } else {
                    for piece in 0..pieces {
                        let _ = writeln!(out, "    out{o}[{}] = new{o}_{piece};", place(piece));
                    }
                }
            }
            for (fold, a) in &wanted {
                let all: Vec<String> =
                    (0..self.unit).map(|c| format!("all{a}_{}[{}]", c / 4, c % 4)).collect();
                out.push_str(&fold.add_all(&all));
            }
        } else {
            let _ = writeln!(out, "    let i = {first}at + j;");
            out.push_str(&computed);
            for (o, x, _) in &stored {
                let _ = writeln!(out, "    out{o}[{}] = {x};", place(0));
            }
            wanted.iter().for_each(|(fold, a)| out.push_str(&fold.add(&format!("r{a}"))));
        }
        out.push_str("    }\n");
        wanted.iter().for_each(|(fold, _)| out.push_str(&fold.end()));
        Ok(())
    }
}

/// The trees in shared memory.
struct Shared {
    together: usize,
    arrays: String,
    names: Vec<String>,
    /// Whether a tree came before, whose result must be read by all before the array is used again.
    used: bool,
}

impl Shared {
    fn new(together: usize) -> Shared {
        Shared { together, arrays: String::new(), names: Vec::new(), used: false }
    }

    /// Brings `total<n>` of a row's threads together, for each fold and its type: all threads have the result.
    fn trees(&mut self, folds: &[(usize, &'static str)], out: &mut String) {
        for some in folds.chunks(self.together) {
            if std::mem::replace(&mut self.used, true) {
                out.push_str("    workgroupBarrier();\n");
            }
            let mut joins = String::new();
            let mut results = String::new();
            for (slot, &(n, t)) in some.iter().enumerate() {
                let name = format!("shared_{t}_{slot}");
                if !self.names.contains(&name) {
                    let _ = writeln!(self.arrays, "var<workgroup> {name}: array<{t}, {SHARED}>;");
                    self.names.push(name.clone());
                }
                let _ = writeln!(out, "    {name}[lane] = total{n};");
                let _ = writeln!(
                    joins,
                    "            {name}[lane] = combine{n}({name}[lane], {name}[lane + half]);"
                );
                let _ = writeln!(results, "    total{n} = {name}[lane - l];");
            }
            let _ = write!(
                out,
                "    workgroupBarrier();\n    for (var half = params.lanes >> 1u; half > 0u; half >>= 1u) {{\n        if (l < half) {{\n{joins}        }}\n        workgroupBarrier();\n    }}\n{results}"
            );
        }
    }
}
