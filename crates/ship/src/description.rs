//! [`Description`]: a plan as buffers and steps, in the form in which it is interpreted and written. Every
//! buffer of a step is a window that begins at the first element that the step may read. `read` makes it.

use tensor_core::{
    DType, Error, Kernel, Layout, ListedStep, Location, Scalar, Shape,
    kernel::{Body, Instr, Operand, Output, Program},
};

use crate::blocks::Blocks;

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
    /// For a constant whose bytes are blocks, their format; `dtype` and `numel` are those of the decoded
    /// elements.
    pub(crate) blocks: Option<Blocks>,
}

impl Buffer {
    pub(crate) fn bytes(&self) -> usize {
        match (&self.blocks, &self.role) {
            (Some(_), Role::Constant(bytes)) => bytes.len(),
            _ => self.numel * self.dtype.size(),
        }
    }

    /// The dtype and the number of elements of its array: blocks are bytes.
    pub(crate) fn stored(&self) -> (DType, usize) {
        match self.blocks {
            Some(_) => (DType::U8, self.bytes()),
            None => (self.dtype, self.numel),
        }
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
    /// The output that overwrites an input in place.
    pub(crate) fn overwriting(&self, input: usize) -> Option<usize> {
        let of = |window: &Window| (window.buffer, window.start);
        self.outputs.iter().position(|output| of(output) == of(&self.inputs[input]))
    }

    /// The error of a step that cannot be shipped, with its line.
    pub(crate) fn refuse(&self, message: impl Into<String>) -> Error {
        let listed = ListedStep {
            kernel: self.kernel.clone(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            scalars: Vec::new(),
            op: self.op,
            location: self.location,
        };
        listed.refuse(message.into())
    }

    /// The dtype in which a contraction adds: that of its factors, or i32 for integers of fewer bits whose
    /// sum the epilogue takes as i32.
    pub(crate) fn sum_dtype(&self) -> DType {
        match &self.kernel.body {
            Body::Contract(Some(epilogue)) => epilogue.inputs[0],
            _ => self.kernel.outputs[0].dtype,
        }
    }

    pub(crate) fn reads(&self, buffer: BufferId) -> bool {
        self.inputs.iter().any(|input| input.buffer == buffer)
    }
}

impl Description {
    /// The blocks of an input of a step, if it has some.
    pub(crate) fn blocks(&self, step: &Step, input: usize) -> Option<&Blocks> {
        self.buffers[step.inputs[input].buffer].blocks.as_ref()
    }

    /// The constants in blocks.
    pub(crate) fn all_blocks(&self) -> impl Iterator<Item = &Blocks> {
        self.buffers.iter().filter_map(|buffer| buffer.blocks.as_ref())
    }

    pub(crate) fn buffer(&mut self, dtype: DType, numel: usize, role: Role) -> BufferId {
        self.buffers.push(Buffer { dtype, numel, role, blocks: None });
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
