//! [`Description`]: a plan as buffers and steps, in the form in which it is interpreted and written. Native
//! operations are lowered to plain kernels, what depends on constants alone is computed, and every buffer of
//! a step is a window that begins at the first element that the step may read.

use tensor_core::{
    BufferSource, DType, Kernel, Layout, ListedStep, Location, PlanListing, Result, Scalar, Shape,
    kernel::{Body, Instr, Operand, Output, Program},
};

use crate::{fold, lower, operations, relayout};

/// The number of a buffer in [`Description::buffers`].
pub(crate) type BufferId = usize;

/// A compiled function, ready to be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) steps: Vec<Step>,
    /// The shape and the dtype of each argument, and its buffer if anything reads it.
    pub(crate) arguments: Vec<(Shape, DType, Option<BufferId>)>,
    /// The shape of each result, and its buffer.
    pub(crate) results: Vec<(Shape, BufferId)>,
}

/// A buffer of the program.
#[derive(Clone, Debug)]
pub(crate) struct Buffer {
    pub(crate) dtype: DType,
    pub(crate) numel: usize,
    pub(crate) role: Role,
}

impl Buffer {
    pub(crate) fn bytes(&self) -> usize {
        self.numel * self.dtype.size()
    }
}

/// The place of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Role {
    /// The caller's argument with this number.
    Argument(usize),
    /// The caller's array for the result with this number.
    Result(usize),
    /// Static data.
    Constant(Vec<u8>),
    /// The arena.
    Arena,
}

/// Consecutive elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) buffer: BufferId,
    /// The first element.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// A kernel with its windows. Layouts are relative to these.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) kernel: Kernel,
    pub(crate) inputs: Vec<Window>,
    pub(crate) outputs: Vec<Window>,
    pub(crate) scalars: Vec<Scalar>,
    pub(crate) op: &'static str,
    pub(crate) location: Location,
}

impl Step {
    /// The input whose buffer an output overwrites in place.
    pub(crate) fn overwritten(&self, output: usize) -> Option<usize> {
        let of = |window: &Window| (window.buffer, window.start);
        self.inputs.iter().position(|input| of(input) == of(&self.outputs[output]))
    }

    fn reads(&self, buffer: BufferId) -> bool {
        self.inputs.iter().any(|input| input.buffer == buffer)
    }
}

impl Description {
    /// The description of a plan.
    ///
    /// # Errors
    /// An operation that cannot be shipped, with the line that made it.
    pub(crate) fn of(listing: PlanListing) -> Result<Description> {
        let mut plan = Description::default();
        for buffer in listing.buffers {
            let role = match buffer.source {
                BufferSource::Argument(k) => Role::Argument(k),
                BufferSource::Constant(bytes) => Role::Constant(bytes),
                BufferSource::Made => Role::Arena,
            };
            plan.buffer(buffer.dtype, buffer.numel, role);
        }
        plan.arguments = listing.arguments;
        let results = listing.results.iter().map(|value| value.buffer);
        let alive = alive(&listing.steps, results.collect());
        for (step, _) in listing.steps.iter().zip(&alive).filter(|(_, alive)| **alive) {
            lower::step(&mut plan, step, &listing.steps, &listing.results)?;
        }
        for value in &listing.results {
            plan.result(value.buffer, value.dtype, &value.layout);
        }
        for step in &plan.steps {
            operations::check(step, &plan)?;
        }
        fold::constants(&mut plan)?;
        relayout::constants(&mut plan);
        plan.drop_unused();
        Ok(plan)
    }

    pub(crate) fn buffer(&mut self, dtype: DType, numel: usize, role: Role) -> BufferId {
        self.buffers.push(Buffer { dtype, numel, role });
        self.buffers.len() - 1
    }

    /// Adds a step whose windows begin at the buffers' elements that `inputs` and `outputs` give.
    pub(crate) fn step(
        &mut self,
        mut kernel: Kernel,
        inputs: Vec<(BufferId, usize)>,
        outputs: Vec<(BufferId, usize)>,
        scalars: Vec<Scalar>,
        of: &ListedStep,
    ) {
        let is_in_place = |buffer: BufferId| outputs.iter().any(|(output, _)| *output == buffer);
        let windows = inputs.iter().zip(&mut kernel.operands).map(|(&(buffer, start), operand)| {
            if is_in_place(buffer) && matches!(kernel.body, Body::Map(_)) && operand.layout.is_contiguous() {
                let offset = operand.layout.offset();
                operand.layout = Layout::contiguous(operand.layout.shape().clone());
                return Window { buffer, start: start + offset, len: operand.layout.numel() };
            }
            let (low, high) = operand.reach().span();
            let Operand { layout, .. } = &*operand;
            let offset = layout.offset() - low.min(layout.offset());
            operand.layout = Layout::new(layout.shape().clone(), layout.strides(), offset);
            Window { buffer, start: start + low, len: high - low }
        });
        let inputs = windows.collect();
        let output = |(&(buffer, start), output): (&(BufferId, usize), &Output)| Window {
            buffer,
            start,
            len: output.stored(),
        };
        let outputs = outputs.iter().zip(&kernel.outputs).map(output).collect();
        let (op, location) = (of.op, of.location);
        self.steps.push(Step { kernel, inputs, outputs, scalars, op, location });
    }

    /// Makes a value the next result: its buffer becomes the caller's array, or a step copies it there.
    fn result(&mut self, buffer: BufferId, dtype: DType, layout: &Layout) {
        let number = self.results.len();
        let shape = layout.shape().clone();
        let is_whole = layout.is_contiguous() && layout.offset() == 0;
        let Buffer { numel, ref role, .. } = self.buffers[buffer];
        if is_whole && numel == shape.numel() && *role == Role::Arena {
            self.buffers[buffer].role = Role::Result(number);
            self.results.push((shape, buffer));
            return;
        }
        let to = self.buffer(dtype, shape.numel(), Role::Result(number));
        self.results.push((shape.clone(), to));
        if shape.numel() == 0 {
            return;
        }
        let program = load(dtype);
        let kernel = Kernel::map(shape, [layout.clone()], program);
        let maker = self.steps.iter().rev().find(|step| step.outputs.iter().any(|w| w.buffer == buffer));
        let (op, location) = maker.map_or(("result", Location::caller()), |step| (step.op, step.location));
        let of = ListedStep {
            kernel: kernel.clone(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            scalars: Vec::new(),
            op,
            location,
        };
        self.step(kernel, vec![(buffer, 0)], vec![(to, 0)], Vec::new(), &of);
    }

    /// Drops the contents of constants that nothing reads.
    fn drop_unused(&mut self) {
        for id in 0..self.buffers.len() {
            let is_read = self.steps.iter().any(|step| step.reads(id));
            let buffer = &mut self.buffers[id];
            if !is_read && matches!(buffer.role, Role::Constant(_)) {
                *buffer = Buffer { dtype: buffer.dtype, numel: 0, role: Role::Arena };
            }
        }
        for (_, _, buffer) in &mut self.arguments {
            if buffer.is_some_and(|id| !self.steps.iter().any(|step| step.reads(id))) {
                *buffer = None;
            }
        }
    }
}

/// A program that loads its only operand.
pub(crate) fn load(dtype: DType) -> Program {
    Program {
        instrs: vec![Instr::Load(0)],
        dtypes: vec![dtype],
        inputs: vec![dtype],
        outputs: vec![0],
        scalars: Vec::new(),
    }
}

/// For each step, whether a result depends on it.
fn alive(steps: &[ListedStep], results: Vec<usize>) -> Vec<bool> {
    let mut wanted = results;
    let mut alive = vec![false; steps.len()];
    for (k, step) in steps.iter().enumerate().rev() {
        if step.outputs.iter().any(|output| wanted.contains(output)) {
            alive[k] = true;
            wanted.extend(&step.inputs);
        }
    }
    alive
}
