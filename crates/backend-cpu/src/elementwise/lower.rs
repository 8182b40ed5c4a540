//! Lowers a program to steps on numbered block registers, once for each kernel. The engine runs the steps.

use smallvec::SmallVec;
use tensor_core::{
    BinaryOp, CompareOp, DType, Error, RandomKind, Result, UnaryOp, collapse,
    kernel::{IndexedAxis, Instr, Operand, Program, Reg},
};

use crate::{
    elementwise::table::takes_number,
    tuning::{MIN_RUN_POSITIONS, PREFETCH_MIN_POSITIONS},
};

/// The source of a step's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Src {
    /// A register.
    Reg(u16),
    /// An input's elements of this block: its own memory if it can be used in place, else a register of its
    /// own.
    Input(u16),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Code {
    Arange {
        start: u16,
        step: u16,
    },
    Random {
        kind: RandomKind,
        seed: u16,
        offset: u16,
    },
    Unary(UnaryOp, Src),
    Powi(i32, Src),
    Binary(BinaryOp, Src, Src),
    Compare(CompareOp, Src, Src),
    Select(Src, Src, Src),
    /// A comparison of the first two operands, fused with the selection between the last two that is its
    /// only user.
    Choose(CompareOp, [Src; 4]),
    Cast(Src),
    LoadAt(LoadAt),
}

/// Elements of an input that are read at indices; `by_run` if the index is constant along the innermost
/// axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadAt {
    pub(crate) input: u16,
    pub(crate) index: Src,
    pub(crate) by_run: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) code: Code,
    /// The dtype of the operands; for a selection, the dtype of the values it selects.
    pub(crate) from: DType,
    /// The dtype of the result.
    pub(crate) to: DType,
    /// The register of the result.
    pub(crate) dst: u16,
    /// The output that the result is, if the step can write it directly.
    pub(crate) output: Option<u16>,
}

/// The access to one input over the collapsed index space.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) dtype: DType,
    pub(crate) offset: usize,
    pub(crate) strides: SmallVec<[isize; 5]>,
    /// Whether its elements are row-major over the whole space.
    pub(crate) contiguous: bool,
    /// Whether it is one element everywhere.
    pub(crate) single: bool,
    /// Whether it is one element along the innermost axis and every reader accepts it as a number.
    pub(crate) number: bool,
    /// Whether it holds indices that are constant along the innermost axis and that steps read in place;
    /// blocks do not load such an input.
    pub(crate) names_runs: bool,
    /// The last step that reads it; `usize::MAX` if it is an output itself.
    pub(crate) last_use: usize,
    /// One past the greatest element touched.
    pub(crate) end: usize,
    /// The axis along which steps read it at indices; blocks do not load such an input.
    pub(crate) indexed: Option<IndexedAxis>,
    /// The kernel operand that it is, for an input that is read at indices.
    pub(crate) operand: usize,
}

/// A program ready to run on blocks.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) steps: Vec<Step>,
    /// The step that takes the longest; 0 if there is none.
    pub(crate) costliest: usize,
    /// The cost of all steps per position, in additions.
    pub(crate) cost: u32,
    /// Registers in all: scalars first, then one for each input, then temporaries.
    pub(crate) registers: usize,
    pub(crate) scalars: Vec<DType>,
    pub(crate) inputs: Vec<Access>,
    pub(crate) outputs: Vec<(Src, DType)>,
    /// Whether each step reads inputs in place and produces an output, so that no registers are needed.
    pub(crate) direct: bool,
    /// The collapsed index space, innermost axis last; empty for one element.
    pub(crate) dims: SmallVec<[usize; 5]>,
    pub(crate) numel: usize,
    /// Whether blocks end at row ends, so that inputs with long runs along the innermost axis are read in
    /// place.
    pub(crate) stops_at_rows: bool,
}

impl Lowered {
    pub(crate) fn input_register(&self, k: u16) -> u16 {
        self.scalars.len() as u16 + k
    }

    /// Whether this is a copy of one input whose innermost stride is not 1, such as a transpose.
    pub(crate) fn is_strided_copy(&self) -> bool {
        let apart = |access: &Access| !matches!(access.strides.last(), None | Some(0 | 1));
        matches!((&self.outputs[..], &self.inputs[..]), ([(Src::Input(0), _)], [access]) if apart(access))
    }

    /// Whether some input can be read in place if blocks end at row ends.
    fn gains_by_rows(&self) -> bool {
        let of = |step: &Step| if let Code::LoadAt(load) = step.code { Some(load) } else { None };
        let is_run = |load: LoadAt| {
            let access = &self.inputs[load.input as usize];
            load.by_run && !access.dtype.is_narrow() && access.strides.last() == Some(&1)
        };
        let mut at_indices = self.steps.iter().filter_map(of).peekable();
        at_indices.peek().is_none()
            || at_indices.any(is_run)
            || self.inputs.iter().any(|access| access.number || self.is_read_by_rows(access))
    }

    /// The length of runs along the innermost axis.
    pub(crate) fn inner(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    /// Whether prefetching the next block is worth it. With one or two steps over contiguous inputs the
    /// hardware prefetches well; with more steps between the reads, or at the end of a row, it does not.
    pub(crate) fn is_far(&self) -> bool {
        let gains =
            |access: &Access| self.is_read_by_rows(access) || self.steps.len() > 2 && access.contiguous;
        self.numel >= PREFETCH_MIN_POSITIONS && !self.steps.is_empty() && self.inputs.iter().any(gains)
    }

    /// Whether blocks read rows of an input in place, each row at an address of its own.
    pub(crate) fn is_read_by_rows(&self, access: &Access) -> bool {
        let plain = !access.dtype.is_narrow() && access.indexed.is_none();
        let Some((1, outer)) = access.strides.split_last() else { return false };
        plain
            && !access.contiguous
            && self.inner() >= MIN_RUN_POSITIONS
            && outer.iter().any(|&stride| stride != 0)
    }
}

/// Lowers a program over an index space. `is_stored` tells which results are only stored in memory of their
/// dtype: a store rounds, so a cast to a narrow type before it can be dropped.
pub(crate) fn lower(
    program: &Program,
    shape: &[usize],
    sources: &[Operand],
    is_stored: impl Fn(usize) -> bool,
) -> Result<Lowered> {
    let output_dtypes: SmallVec<[DType; 4]> =
        (0..program.outputs.len()).map(|o| program.output_dtype(o)).collect();
    let without = without_idle_casts(program, is_stored);
    let program = without.as_ref().unwrap_or(program);
    let strides: SmallVec<[&[isize]; 4]> = sources.iter().map(|operand| operand.layout.strides()).collect();
    // The row-major position takes part as an operand, so that merging axes never reorders the space.
    let collapsed = collapse(shape, &strides);
    let numel = shape.iter().product();
    let mut plain: SmallVec<[isize; 5]> = SmallVec::from_elem(1, collapsed.shape.len());
    for axis in (1..plain.len()).rev() {
        plain[axis - 1] = plain[axis] * collapsed.shape[axis] as isize;
    }
    let mut inputs: Vec<Access> = sources
        .iter()
        .enumerate()
        .zip(&collapsed.strides)
        .zip(&program.inputs)
        .map(|(((k, operand), strides), &dtype)| {
            let is_plain = operand.indexed.is_none();
            // An integer may be the index of a run, which is read in place; a narrow one has to be widened
            // first.
            let may_be_number = dtype == DType::F32 || dtype.is_int() && !dtype.is_narrow();
            Access {
                dtype,
                offset: operand.layout.offset(),
                contiguous: is_plain && strides.as_slice() == plain.as_slice(),
                single: is_plain && strides.iter().all(|&s| s == 0),
                number: is_plain && strides.last() == Some(&0) && may_be_number,
                strides: strides.clone(),
                names_runs: false,
                last_use: 0,
                end: operand.reach().span().1,
                indexed: operand.indexed,
                operand: k,
            }
        })
        .collect();
    let scalars = program.scalars.len();
    let mut lowering = Lowering {
        program,
        output_dtypes: &output_dtypes,
        place: vec![Src::Reg(0); program.instrs.len()],
        fused: fused(program),
        by_run: along_runs(program, &inputs),
        last_use: Vec::new(),
        free: Vec::new(),
        registers: scalars + inputs.len(),
        steps: Vec::new(),
        costs: Vec::new(),
    };
    lowering.last_use = lowering.last_uses();
    for i in 0..program.instrs.len() {
        lowering.step(i)?;
    }
    for (at, step) in lowering.steps.iter().enumerate() {
        for src in operands(&step.code) {
            if let Src::Input(k) = src {
                inputs[k as usize].last_use = at;
            }
        }
    }
    let outputs: Vec<(Src, DType)> =
        program.outputs.iter().zip(&output_dtypes).map(|(&o, &d)| (lowering.place[o as usize], d)).collect();
    for (src, _) in &outputs {
        if let Src::Input(k) = src {
            inputs[*k as usize].last_use = usize::MAX;
            inputs[*k as usize].number = false;
        }
    }
    for step in &lowering.steps {
        // One of two operands of a binary step may be a number.
        let taken = match step.code {
            Code::Binary(op, Src::Input(a), Src::Input(b)) if takes_number(op, step.from) => {
                if inputs[b as usize].number { Some(b) } else { Some(a) }.filter(|_| a != b)
            }
            Code::Binary(op, Src::Input(k), _) | Code::Binary(op, _, Src::Input(k))
                if takes_number(op, step.from) =>
            {
                Some(k)
            }
            Code::LoadAt(LoadAt { index: Src::Input(k), by_run: true, .. }) => Some(k),
            Code::Arange { .. } | Code::Random { .. } | Code::Unary(..) | Code::Powi(..) => None,
            Code::Binary(..) | Code::Compare(..) | Code::Select(..) | Code::Choose(..) => None,
            Code::LoadAt(_) | Code::Cast(_) => None,
        };
        for src in operands(&step.code) {
            if let Src::Input(k) = src
                && taken != Some(k)
            {
                inputs[k as usize].number = false;
            }
        }
    }
    for access in &mut inputs {
        access.names_runs = access.number && access.dtype != DType::F32;
        access.number &= !access.names_runs;
    }
    // The first of several equally costly steps.
    let costs = &lowering.costs;
    let costliest = (0..costs.len()).rev().max_by_key(|&i| costs[i]).unwrap_or(0);
    let in_place = |src: &Src| match src {
        Src::Input(k) => {
            let access: &Access = &inputs[*k as usize];
            access.contiguous && !access.dtype.is_narrow()
        }
        Src::Reg(_) => false,
    };
    let direct = lowering.steps.len() == outputs.len()
        && lowering.steps.iter().all(|step| {
            matches!(step.code, Code::Unary(..) | Code::Binary(..))
                && step.output.is_some()
                && operands(&step.code).iter().all(in_place)
        });
    let mut lowered = Lowered {
        direct,
        cost: costs.iter().sum(),
        steps: lowering.steps,
        costliest,
        registers: lowering.registers,
        scalars: program.scalars.clone(),
        inputs,
        outputs,
        dims: collapsed.shape,
        numel,
        stops_at_rows: true,
    };
    lowered.stops_at_rows = lowered.gains_by_rows();
    Ok(lowered)
}

pub(crate) fn operands(code: &Code) -> SmallVec<[Src; 4]> {
    match *code {
        Code::Arange { .. } | Code::Random { .. } => SmallVec::new(),
        Code::Unary(_, a) | Code::Powi(_, a) | Code::Cast(a) | Code::LoadAt(LoadAt { index: a, .. }) => {
            SmallVec::from_slice(&[a])
        }
        Code::Binary(_, a, b) | Code::Compare(_, a, b) => SmallVec::from_slice(&[a, b]),
        Code::Select(c, a, b) => SmallVec::from_slice(&[c, a, b]),
        Code::Choose(_, operands) => SmallVec::from_slice(&operands),
    }
}

/// Whether each register is constant along the innermost axis of the collapsed space.
fn along_runs(program: &Program, inputs: &[Access]) -> Vec<bool> {
    // A space of one element has no innermost axis.
    let is_steady = |k: u16| inputs[k as usize].strides.last().is_none_or(|&stride| stride == 0);
    let mut steady: Vec<bool> = Vec::with_capacity(program.instrs.len());
    for instr in &program.instrs {
        let all = instr.operands().iter().all(|&r| steady[r as usize]);
        steady.push(match *instr {
            Instr::Load(k) => is_steady(k),
            Instr::LoadAt { input, .. } => all && is_steady(input),
            Instr::Arange { .. } | Instr::Random { .. } | Instr::Fold(..) => false,
            Instr::Scalar(_) | Instr::Unary(..) | Instr::Powi(..) | Instr::Binary(..) => all,
            Instr::Compare(..) | Instr::Select(..) | Instr::Cast(_) => all,
        });
    }
    steady
}

/// The program without casts that have no effect here: from a narrow type to the type that computes it, and
/// to a narrow type if the result is only stored. None if there is no such cast. An unread scalar replaces
/// each removed cast.
fn without_idle_casts(program: &Program, is_stored: impl Fn(usize) -> bool) -> Option<Program> {
    if !program.dtypes.iter().any(|dtype| dtype.is_narrow()) {
        return None;
    }
    let is_output = |i: usize| program.outputs.contains(&(i as Reg));
    // Values that were read from memory are written unchanged.
    let is_given = |r: Reg| {
        let instr = program.instrs[r as usize];
        instr.input().is_some() || matches!(instr, Instr::Scalar(_))
    };
    // Marks registers with a reader that would see the rounding.
    let mut seen = vec![false; program.instrs.len()];
    program.instrs.iter().flat_map(Instr::operands).for_each(|r| seen[r as usize] = true);
    for (o, &r) in program.outputs.iter().enumerate() {
        seen[r as usize] |= !is_stored(o);
    }
    let mut root: Vec<Reg> = (0..program.instrs.len() as Reg).collect();
    let mut without = program.clone();
    for i in 0..program.instrs.len() {
        let mut instr = program.instrs[i];
        if let Instr::Cast(a) = instr {
            let (from, to) = (program.dtypes[a as usize], program.dtypes[i]);
            let is_same = from.is_narrow() && to == from.register();
            let is_rounded_where_stored = to.is_narrow() && from.register() == to.register() && !seen[i];
            let is_copy = is_output(i) && is_given(root[a as usize]);
            if (is_same || is_rounded_where_stored) && !is_copy {
                root[i] = root[a as usize];
                instr = Instr::Scalar(0);
            }
        }
        without.instrs[i] = instr.map_operands(|r| root[r as usize]);
    }
    without.outputs.iter_mut().for_each(|r| *r = root[*r as usize]);
    Some(without)
}

/// A comparison that is fused into selections: writing and reading the truth values would cost more than
/// computing them.
type Test = (CompareOp, Reg, Reg);

/// A comparison or a NaN test of numbers that are computed in f32.
fn test_of(program: &Program, i: usize) -> Option<Test> {
    let instr = program.instrs[i];
    let (op, x, y) = if let Instr::Compare(op, x, y) = instr {
        (op, x, y)
    } else if let Instr::Unary(UnaryOp::IsNan, x) = instr {
        // Only NaN differs from itself.
        (CompareOp::Ne, x, x)
    } else {
        return None;
    };
    (program.dtypes[x as usize].register() == DType::F32).then_some((op, x, y))
}

/// The comparisons that are fused into the selections that use them.
fn fused(program: &Program) -> Vec<Option<Test>> {
    // The number of uses of each register, and of uses as the condition of an f32 selection.
    let (mut uses, mut conditions) = (vec![0usize; program.instrs.len()], vec![0usize; program.instrs.len()]);
    program.outputs.iter().for_each(|&o| uses[o as usize] += 1);
    for (instr, dtype) in program.instrs.iter().zip(&program.dtypes) {
        instr.operands().iter().for_each(|&r| uses[r as usize] += 1);
        if let Instr::Select(c, ..) = *instr
            && dtype.register() == DType::F32
        {
            conditions[c as usize] += 1;
        }
    }
    (0..uses.len()).map(|i| if uses[i] == conditions[i] { test_of(program, i) } else { None }).collect()
}

struct Lowering<'a> {
    program: &'a Program,
    output_dtypes: &'a [DType],
    place: Vec<Src>,
    /// See [`fused`].
    fused: Vec<Option<Test>>,
    /// See [`along_runs`].
    by_run: Vec<bool>,
    last_use: Vec<usize>,
    /// The cost of each step per position, in additions.
    costs: Vec<u32>,
    free: Vec<u16>,
    registers: usize,
    steps: Vec<Step>,
}

impl Lowering<'_> {
    /// The registers that the step of instruction `i` reads; for a selection with a fused test, also the
    /// test's operands.
    fn reads(&self, i: usize) -> SmallVec<[Reg; 4]> {
        let instr = &self.program.instrs[i];
        if let Instr::Select(c, a, b) = *instr
            && let Some((_, x, y)) = self.fused[c as usize]
        {
            return SmallVec::from_slice(&[x, y, a, b]);
        }
        SmallVec::from_slice(&instr.operands())
    }

    /// The last instruction whose step reads each register.
    fn last_uses(&self) -> Vec<usize> {
        let mut last = vec![0; self.program.instrs.len()];
        for i in (0..last.len()).filter(|&i| self.fused[i].is_none()) {
            self.reads(i).iter().for_each(|&r| last[r as usize] = i);
        }
        // Outputs live to the end of the block.
        self.program.outputs.iter().for_each(|&o| last[o as usize] = usize::MAX);
        last
    }

    fn step(&mut self, i: usize) -> Result<()> {
        if self.fused[i].is_some() {
            return Ok(());
        }
        let program = self.program;
        let at = |r: Reg| self.place[r as usize];
        let dtype_of = |r: Reg| program.dtypes[r as usize];
        let to = program.dtypes[i];
        let (code, from) = match program.instrs[i] {
            Instr::Load(k) => {
                self.place[i] = Src::Input(k);
                return Ok(());
            }
            Instr::Scalar(n) => {
                self.place[i] = Src::Reg(n);
                return Ok(());
            }
            Instr::Arange { start, step } => (Code::Arange { start, step }, to),
            Instr::Random { kind, seed, offset } => (Code::Random { kind, seed, offset }, to),
            Instr::Unary(op, a) => (Code::Unary(op, at(a)), dtype_of(a)),
            Instr::Powi(n, a) => (Code::Powi(n, at(a)), dtype_of(a)),
            Instr::Binary(op, a, b) => (Code::Binary(op, at(a), at(b)), to),
            Instr::Compare(op, a, b) => (Code::Compare(op, at(a), at(b)), dtype_of(a)),
            Instr::Select(c, a, b) => match self.fused[c as usize] {
                Some((op, x, y)) => (Code::Choose(op, [at(x), at(y), at(a), at(b)]), to),
                _ => (Code::Select(at(c), at(a), at(b)), to),
            },
            Instr::Cast(a) => (Code::Cast(at(a)), dtype_of(a)),
            Instr::LoadAt { input, index } => {
                let by_run = self.by_run[index as usize];
                (Code::LoadAt(LoadAt { input, index: at(index), by_run }), dtype_of(index))
            }
            Instr::Fold(..) => {
                return Err(Error::invalid("launch", "only row kernels may contain folds"));
            }
        };
        // The result's register is taken before the operands' registers are freed, so no operand is
        // overwritten while it is read.
        let dst = self.free.pop().unwrap_or_else(|| {
            self.registers += 1;
            (self.registers - 1) as u16
        });
        for r in self.reads(i) {
            if self.last_use[r as usize] == i
                && let Src::Reg(reg) = self.place[r as usize]
                && reg as usize >= program.scalars.len() + program.inputs.len()
                && !self.free.contains(&reg)
            {
                self.free.push(reg);
            }
        }
        let output = program
            .outputs
            .iter()
            .zip(self.output_dtypes)
            .position(|(&o, &stored)| o as usize == i && stored == to && to.register() == to)
            .map(|o| o as u16);
        self.place[i] = Src::Reg(dst);
        self.costs.push(program.instrs[i].cost());
        self.steps.push(Step { code, from, to, dst, output });
        Ok(())
    }
}
