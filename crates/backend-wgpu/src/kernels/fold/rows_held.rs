//! Row kernels whose rows fit the registers of their invocations: every element is read once and every
//! value is computed once, in the first phase that needs it; later phases reuse it. An invocation has up to
//! four groups of four elements, which the text unrolls, because an index into registers must be constant.

use tensor_core::{
    Result, collapse,
    kernel::{Kernel, Program, Reg},
    rows::RowProgram,
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dtypes::{FIELDS, is_packed, loaded, storage_size, value},
        formulas,
        wgsl::Code,
    },
    kernels::{fold::accumulate::Fold, map::frame::Frames},
};

/// The most groups of four elements of an invocation.
const MAX_GROUPS: usize = 4;
/// The most instructions of an unrolled program.
const MAX_UNROLLED: usize = 320;
/// The most registers of an invocation for values that a later phase reuses.
const MAX_HELD_WORDS: usize = 64;

/// The values of a phase.
struct Phase {
    /// The registers that it computes.
    computed: Vec<bool>,
    /// The registers of earlier phases that it reuses.
    reused: Vec<bool>,
}

/// The plan of a row kernel whose rows fit registers.
pub(super) struct Held {
    groups: usize,
    /// Whether the elements of a group are neighbours. If not, neighbouring elements belong to neighbouring
    /// invocations.
    fours: bool,
    /// For each input, whether a group is loaded as a vector.
    vectors: Vec<bool>,
    phases: Vec<Phase>,
}

impl Held {
    /// The plan, if the rows fit.
    pub(super) fn of(
        kernel: &Kernel,
        row_axes: usize,
        rows: &RowProgram<'_>,
        length: usize,
        lanes: usize,
    ) -> Option<Held> {
        let program = rows.program;
        let groups = length.div_ceil(4 * lanes).next_power_of_two();
        let fours = length.is_multiple_of(4);
        let packed =
            (0..program.outputs.len()).any(|o| !rows.is_per_row(o) && is_packed(program.output_dtype(o)));
        // Elements that share a word are stored by one invocation.
        if groups > MAX_GROUPS || (packed && !fours) {
            return None;
        }
        let phases = phases(rows);
        let unrolled: usize = phases.iter().map(|p| p.computed.iter().filter(|&&n| n).count()).sum();
        let held = |n: &usize| phases.iter().any(|phase| phase.reused[*n]);
        let words: usize = (0..program.instrs.len())
            .filter(held)
            .map(|n| storage_size(program.dtypes[n].register()).div_ceil(4))
            .sum();
        if unrolled * 4 * groups > MAX_UNROLLED || words * 4 * groups > MAX_HELD_WORDS {
            return None;
        }
        let vectors = (0..kernel.operands.len()).map(|k| fours && is_vector(kernel, row_axes, program, k));
        Some(Held { groups, fours, vectors: vectors.collect(), phases })
    }

    /// The number of instructions for each position, over all phases.
    pub(super) fn work(&self) -> usize {
        self.phases.iter().map(|phase| phase.computed.iter().filter(|&&n| n).count()).sum()
    }

    /// Whether input `k` is loaded in vectors.
    pub(super) fn in_vectors(&self, k: usize) -> bool {
        self.vectors[k]
    }

    /// Whether outputs are stored in vectors.
    pub(super) fn stores_vectors(&self) -> bool {
        self.fours
    }
}

/// The values of each phase, if earlier phases keep all that they compute.
fn phases(rows: &RowProgram<'_>) -> Vec<Phase> {
    let instrs = &rows.program.instrs;
    let mut known = vec![false; instrs.len()];
    let mut phases = Vec::new();
    for p in 0..=rows.last {
        let mut wanted = vec![false; instrs.len()];
        let stored = rows.due(p, false).map(|(_, r)| r);
        stored.chain(rows.folds(p + 1).map(|(.., a)| a)).for_each(|r| wanted[usize::from(r)] = true);
        let (mut computed, mut reused) = (vec![false; instrs.len()], vec![false; instrs.len()]);
        for n in (0..instrs.len()).rev() {
            if !wanted[n] || rows.uniform[n] {
                continue;
            }
            if known[n] {
                reused[n] = true;
                continue;
            }
            computed[n] = true;
            instrs[n].operands().iter().for_each(|&a| wanted[usize::from(a)] = true);
        }
        known.iter_mut().zip(&computed).for_each(|(known, &now)| *known |= now);
        phases.push(Phase { computed, reused });
    }
    phases
}

/// Whether four neighbours of a row are an aligned vector of operand `k`.
fn is_vector(kernel: &Kernel, row_axes: usize, program: &Program, k: usize) -> bool {
    let operand = &kernel.operands[k];
    let lead = kernel.space.rank() - row_axes;
    let (across, along) = operand.layout.strides().split_at(lead);
    let merged = collapse(&kernel.space[lead..], &[along]);
    let fours = |strides: &[isize]| strides.iter().all(|s| s % 4 == 0);
    let sizes = kernel.space[..lead].iter().zip(across);
    let moves: Vec<isize> = sizes.filter(|&(&n, _)| n > 1).map(|(_, &s)| s).collect();
    !program.is_indexed(k as u16)
        && operand.format.is_none()
        && storage_size(program.inputs[k]) <= 4
        && operand.layout.offset().is_multiple_of(4)
        && fours(&moves)
        && merged.shape.last().is_some_and(|n| n % 4 == 0)
        && merged.strides[0].split_last().is_some_and(|(&last, rest)| last == 1 && fours(rest))
}

/// The parts of a row kernel that do not depend on the plan.
pub(super) struct Row<'a> {
    pub(super) program: &'a Program,
    pub(super) capabilities: &'a Capabilities,
    /// For each input, its offset along the row from the row's base.
    pub(super) steps: &'a [String],
    /// The statements that compute the coordinates in the row.
    pub(super) unravel: &'a str,
    /// Whether flat positions start at a parameter.
    pub(super) later: bool,
    pub(super) frames: &'a Frames,
}

impl Row<'_> {
    /// Writes the elements of a row, after `phase` folds, unrolled.
    pub(super) fn unrolled(
        &self,
        held: &Held,
        phase: usize,
        folds: &[(&Fold, Reg)],
        due: &[(usize, Reg)],
        c: &mut Code,
    ) -> Result<()> {
        let program = self.program;
        for (fold, _) in folds {
            fold.open(c);
        }
        let later = |n: usize| held.phases[phase + 1..].iter().any(|later| later.reused[n]);
        let kept: Vec<usize> =
            (0..program.instrs.len()).filter(|&n| held.phases[phase].computed[n] && later(n)).collect();
        for &n in &kept {
            for e in 0..4 * held.groups {
                c.line(format_args!("var kept{n}_{e}: {};", value(program.dtypes[n])));
            }
        }
        for g in 0..held.groups {
            self.load_vectors(held, phase, g, c);
        }
        let mut result = Ok(());
        for g in 0..held.groups {
            let four = |o: usize| format!("four{phase}_{o}_{g}");
            for &(o, _) in due.iter().filter(|_| held.fours) {
                c.var(four(o), format_args!("vec4<{}>()", loaded(program.output_dtype(o))));
            }
            for (e, field) in FIELDS.iter().enumerate() {
                c.block("", |c| {
                    let done = self.element(held, phase, (g, e), c);
                    if done.is_err() {
                        result = done;
                    }
                    for &n in &kept {
                        c.set(format_args!("kept{n}_{}", 4 * g + e), format_args!("r{n}"));
                    }
                    for (fold, a) in folds {
                        fold.add_if("valid", &format!("r{a}"), c);
                    }
                    for &(o, r) in due {
                        let stored = formulas::store(program.output_dtype(o), &format!("r{r}"));
                        if held.fours {
                            c.set(format_args!("{}.{field}", four(o)), stored);
                        } else {
                            let place = self.frames.place(o, "at + own_j");
                            c.when("valid", |c| c.line(format_args!("store_out{o}({place}, {stored});")));
                        }
                    }
                });
            }
            if held.fours && !due.is_empty() {
                let j = format!("(l + {g}u * params.lanes) * 4u");
                c.when(format_args!("{j} < end"), |c| {
                    for &(o, _) in due {
                        if self.frames.has(o) {
                            let elements = FIELDS.map(|field| format!("{}.{field}", four(o)));
                            self.frames.store_four(o, &format!("at + {j}"), elements, None, c);
                            continue;
                        }
                        c.line(format_args!("store4_out{o}(at + {j}, {});", four(o)));
                    }
                });
            }
        }
        result
    }

    /// The loads of a phase that are vectors, for group `g`.
    fn load_vectors(&self, held: &Held, phase: usize, g: usize, c: &mut Code) {
        let mut inputs: Vec<u16> = (0..self.program.instrs.len())
            .filter(|&n| held.phases[phase].computed[n])
            .filter_map(|n| self.program.instrs[n].input())
            .filter(|&k| held.vectors[usize::from(k)])
            .collect();
        inputs.sort_unstable();
        inputs.dedup();
        if inputs.is_empty() {
            return;
        }
        for k in &inputs {
            let t = loaded(self.program.inputs[usize::from(*k)]);
            c.line(format_args!("var v{phase}_{k}_{g}: vec4<{t}>;"));
        }
        c.block("", |c| {
            // After the end, the last group of the row is loaded again.
            c.bind("j", format_args!("min((l + {g}u * params.lanes) * 4u, params.length - 4u)"));
            c.append(self.unravel);
            for k in &inputs {
                let step = &self.steps[usize::from(*k)];
                c.set(format_args!("v{phase}_{k}_{g}"), format_args!("load4_in{k}(base{k}{step})"));
            }
        });
    }

    /// The registers of one element that a phase computes or reuses.
    fn element(&self, held: &Held, phase: usize, (g, e): (usize, usize), c: &mut Code) -> Result<()> {
        let Phase { computed, reused } = &held.phases[phase];
        c.bind(
            "own_j",
            match held.fours {
                true => format!("(l + {g}u * params.lanes) * 4u + {e}u"),
                false => format!("l + {}u * params.lanes", 4 * g + e),
            },
        );
        c.bind("valid", "own_j < end");
        c.bind("j", "min(own_j, params.length - 1u)");
        c.append(self.unravel);
        c.bind("i", if self.later { "params.first + at + j" } else { "at + j" });
        let mut read = Vec::new();
        for n in 0..self.program.instrs.len() {
            if reused[n] {
                c.bind(format_args!("r{n}"), format_args!("kept{n}_{}", 4 * g + e));
            }
            if !computed[n] {
                continue;
            }
            if let Some(k) = self.program.instrs[n].input()
                && !read.contains(&k)
            {
                let step = &self.steps[usize::from(k)];
                if self.program.is_indexed(k) {
                    c.bind(format_args!("b{k}"), format_args!("base{k}{step}"));
                } else if held.vectors[usize::from(k)] {
                    c.bind(format_args!("x{k}"), format_args!("v{phase}_{k}_{g}.{}", FIELDS[e]));
                } else {
                    c.bind(format_args!("x{k}"), format_args!("load_in{k}(base{k}{step})"));
                }
                read.push(k);
            }
            formulas::statement(self.program, n, self.capabilities, c)?;
        }
        Ok(())
    }
}
