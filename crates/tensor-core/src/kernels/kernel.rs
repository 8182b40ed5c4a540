//! [`Kernel`]: the unit of work that the scheduler gives to a backend, with shapes and layouts resolved.
//! A kernel has structure only; scalars come at launch, so that one plan and one pipeline serve every
//! training step.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use smallvec::SmallVec;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::{
        blocks::BlockFormat,
        custom::CustomKernel,
        layout::{Layout, Strides},
        operators::{
            ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, RandomKind, ReduceOp, ScatterOp, UnaryOp,
        },
    },
};

/// A value inside a [`Program`]: the index of the instruction that makes it.
pub type Reg = u16;

/// One instruction of an elementwise program. Registers name earlier instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instr {
    /// The element of input `n` at this position.
    Load(u16),
    /// An element of an input at a computed index. The operand has an axis beyond those of the space
    /// (see [`IndexedAxis`]), and `index` is the position along it, of an integer dtype. An index out of
    /// range is handled as in [`Body::Gather`].
    LoadAt {
        /// The input.
        input: u16,
        /// The register of the index.
        index: Reg,
    },
    /// The `n`-th scalar of the launch, already cast to this instruction's dtype.
    Scalar(u16),
    /// `start + step·i`, from two scalars of the launch, at flat row-major index `i` of the index space.
    /// Floats compute in their own dtype, integers wrap.
    Arange {
        /// Scalar slot of the first value.
        start: u16,
        /// Scalar slot of the step.
        step: u16,
    },
    /// A random number for flat row-major index `i`: see [`RandomKind`] for the formula.
    Random {
        /// The distribution.
        kind: RandomKind,
        /// Scalar slot of the seed (the `i64` with the same bits).
        seed: u16,
        /// Scalar slot of the offset (the `i64` with the same bits).
        offset: u16,
    },
    /// A function of one value.
    Unary(UnaryOp, Reg),
    /// A value to a constant integer power, by repeated multiplication.
    Powi(i32, Reg),
    /// A function of two values of one dtype, which is also the result's.
    Binary(BinaryOp, Reg, Reg),
    /// A comparison of two values of one dtype; the result is bool.
    Compare(CompareOp, Reg, Reg),
    /// `Select(condition, a, b)`: a where the bool condition holds, else b.
    Select(Reg, Reg, Reg),
    /// The value converted to this instruction's dtype as Rust's `as` does: floats to integers truncate
    /// toward zero and saturate with NaN → 0; to bool is `≠ 0`; from bool is 0 or 1.
    Cast(Reg),
    /// The reduction of a value over the row that contains this position. Only in a [`Body::Rows`].
    Fold(ReduceOp, Reg),
}

impl Instr {
    /// The relative cost of computing the instruction again, in additions.
    pub fn cost(&self) -> u32 {
        match self {
            Instr::Load(_) | Instr::Scalar(_) => 0,
            Instr::Arange { .. } | Instr::Compare(..) | Instr::Select(..) | Instr::Cast(_) => 1,
            Instr::Fold(..) => 1,
            Instr::LoadAt { .. } => LOAD_AT_COST,
            Instr::Random { .. } => RANDOM_COST,
            Instr::Unary(op, _) => op.cost(),
            Instr::Powi(..) => POWI_COST,
            Instr::Binary(op, ..) => op.cost(),
        }
    }

    /// The instruction with `f` applied to each register that it reads. A fold stays as it is: its
    /// operand is computed in an earlier pass.
    pub fn map_operands(self, mut f: impl FnMut(Reg) -> Reg) -> Instr {
        match self {
            Instr::Unary(op, a) => Instr::Unary(op, f(a)),
            Instr::Powi(n, a) => Instr::Powi(n, f(a)),
            Instr::Cast(a) => Instr::Cast(f(a)),
            Instr::Binary(op, a, b) => Instr::Binary(op, f(a), f(b)),
            Instr::Compare(op, a, b) => Instr::Compare(op, f(a), f(b)),
            Instr::Select(c, a, b) => Instr::Select(f(c), f(a), f(b)),
            Instr::LoadAt { input, index } => Instr::LoadAt { input, index: f(index) },
            Instr::Load(_) | Instr::Scalar(_) | Instr::Arange { .. } | Instr::Random { .. } => self,
            Instr::Fold(..) => self,
        }
    }

    /// The input that the instruction reads.
    pub fn input(&self) -> Option<u16> {
        let (Instr::Load(k) | Instr::LoadAt { input: k, .. }) = *self else { return None };
        Some(k)
    }

    /// The registers that the instruction reads.
    pub fn operands(&self) -> SmallVec<[Reg; 3]> {
        match *self {
            Instr::Unary(_, a)
            | Instr::Powi(_, a)
            | Instr::Cast(a)
            | Instr::Fold(_, a)
            | Instr::LoadAt { input: _, index: a } => SmallVec::from_slice(&[a]),
            Instr::Binary(_, a, b) | Instr::Compare(_, a, b) => SmallVec::from_slice(&[a, b]),
            Instr::Select(c, a, b) => SmallVec::from_slice(&[c, a, b]),
            Instr::Load(_) | Instr::Scalar(_) | Instr::Arange { .. } | Instr::Random { .. } => {
                SmallVec::new()
            }
        }
    }
}

/// The cost of a random number, in additions.
pub(crate) const RANDOM_COST: u32 = 16;
/// The cost of reading an element at an index: its address, and the check of the index.
pub(crate) const LOAD_AT_COST: u32 = 4;
/// The cost of a power with a small integer exponent.
pub(crate) const POWI_COST: u32 = 2;

/// A straight-line elementwise program: the computation of a fused kernel at each position.
///
/// Instruction `i` defines register `i`, of dtype `dtypes[i]`. A register of `f16` or `bf16` holds a
/// number of that type: such numbers are loaded, selected, negated and so on as they are, but arithmetic
/// is in f32, and a [`Instr::Cast`] rounds its result to the half type. A backend may hold such
/// registers in f32, so that a cast from a half type to f32 costs nothing. A half register that any
/// instruction other than these defines need not be rounded before it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Program {
    /// The instructions, in order of evaluation.
    pub instrs: Vec<Instr>,
    /// The dtype of each instruction's result.
    pub dtypes: Vec<DType>,
    /// The dtype of each input buffer.
    pub inputs: Vec<DType>,
    /// The dtype of each scalar slot (`I64` for seeds and offsets).
    pub scalars: Vec<DType>,
    /// The registers of the results.
    pub outputs: Vec<Reg>,
}

impl Program {
    /// The dtype of output `n`.
    pub fn output_dtype(&self, n: usize) -> DType {
        self.dtypes[self.outputs[n] as usize]
    }

    /// Whether an instruction reads input `k` at computed indices.
    pub fn is_indexed(&self, k: u16) -> bool {
        self.instrs.iter().any(|instr| matches!(instr, Instr::LoadAt { input, .. } if *input == k))
    }

    /// For each input, whether output `n` depends on it.
    pub(crate) fn inputs_of(&self, n: usize) -> Vec<bool> {
        let mut wanted = vec![false; self.instrs.len()];
        wanted[self.outputs[n] as usize] = true;
        let mut read = vec![false; self.inputs.len()];
        // Registers name earlier instructions, so one pass from the end suffices.
        for (r, instr) in self.instrs.iter().enumerate().rev() {
            if !wanted[r] {
                continue;
            }
            if let Some(k) = instr.input() {
                read[k as usize] = true;
            }
            instr.operands().iter().for_each(|&operand| wanted[operand as usize] = true);
        }
        read
    }
}

/// One unit of work for a backend: its inputs, its index space, its computation, and its outputs.
///
/// The index space has every axis that the work iterates over, reduced axes included. This struct holds
/// all that kernels have in common, so that checks, windows over large buffers and cuts along an axis
/// are written once; the [`Body`] is the computation at each position.
///
/// Outputs are new row-major buffers. Only in a [`Body::Map`] may an output be an input's own buffer:
/// then that input's layout is row-major at offset 0 with the output's dtype, and any other input that
/// shares the buffer has the same layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The index space.
    pub space: Shape,
    /// The inputs, in the order of the launch's.
    pub operands: SmallVec<[Operand; 4]>,
    /// The outputs, in the order of the launch's.
    pub outputs: SmallVec<[Output; 2]>,
    /// The computation.
    pub body: Body,
}

/// An input of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The layout. It has the axes and sizes of the index space, with stride 0 along each axis that the
    /// operand does not depend on; [`Body::Gather`], [`Body::Scatter`], [`Body::Copy`] and
    /// [`Body::Custom`] say where their operands differ.
    pub layout: Layout,
    /// The axis along which [`Instr::LoadAt`] reads the operand. `None` if [`Instr::Load`] reads it.
    pub indexed: Option<IndexedAxis>,
    /// The block format, if the `U8` buffer encodes the elements in blocks; `None` if the buffer holds
    /// elements of `dtype` themselves. The layout is in elements. A decoded number that `dtype` cannot
    /// represent is rounded once.
    ///
    /// Only these operands may be in blocks: the factors of a [`Body::Contract`], operand 0 of a
    /// [`Body::Gather`], and the operand of a [`Body::Map`] that only loads it.
    pub format: Option<Arc<dyn BlockFormat>>,
}

/// An axis of an operand beyond those of the index space; [`Instr::LoadAt`] computes the position along
/// it.
///
/// At a position p of the space, index i selects the element at `layout` of p, plus i times `stride`.
/// Indices along several axes are flattened into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndexedAxis {
    /// The number of the axis in the user's operation, for errors.
    pub axis: usize,
    /// Its size.
    pub size: usize,
    /// The stride along it, in elements.
    pub stride: isize,
}

impl Operand {
    /// An operand of `dtype` with a layout.
    pub fn new(dtype: DType, layout: Layout) -> Operand {
        Operand { dtype, layout, indexed: None, format: None }
    }

    /// An operand of `dtype` that is read at indices along `axis`, relative to the position that
    /// `layout` gives.
    pub fn indexed(dtype: DType, layout: Layout, axis: IndexedAxis) -> Operand {
        Operand { dtype, layout, indexed: Some(axis), format: None }
    }

    /// The operand with its buffer in blocks of a format, if there is one.
    pub fn in_blocks(self, format: Option<Arc<dyn BlockFormat>>) -> Operand {
        Operand { format, ..self }
    }

    /// The dtype of the buffer's elements.
    pub fn stored(&self) -> DType {
        if self.format.is_some() { DType::U8 } else { self.dtype }
    }

    /// All elements that may be read: the layout, with the indexed axis appended, if there is one.
    pub fn reach(&self) -> Layout {
        let Some(IndexedAxis { size, stride, .. }) = self.indexed else { return self.layout.clone() };
        let shape: Shape = self.layout.shape().iter().copied().chain([size]).collect();
        let strides: Strides = self.layout.strides().iter().copied().chain([stride]).collect();
        Layout::new(shape, &strides, self.layout.offset())
    }
}

/// Zeros around the elements of an output, as a convolution with padding reads them: the elements are a box
/// of a larger row-major buffer, which is zero elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The zeros before the first element along the last two axes.
    pub before: [usize; 2],
    /// The zeros after the last element along them.
    pub after: [usize; 2],
}

impl Frame {
    /// The sizes of the buffer, for elements of `shape`, which has two axes at least.
    pub fn outer(&self, shape: &Shape) -> Shape {
        let lead = shape.rank().saturating_sub(2);
        let size = |(axis, &n): (usize, &usize)| match axis.checked_sub(lead) {
            Some(k) => self.before[k] + n + self.after[k],
            None => n,
        };
        shape.iter().enumerate().map(size).collect()
    }

    /// The layout of the elements in the buffer.
    pub fn layout(&self, shape: &Shape) -> Layout {
        let lead = shape.rank().saturating_sub(2);
        let whole = Layout::contiguous(self.outer(shape));
        (lead..shape.rank())
            .fold(whole, |layout, axis| layout.slice(axis, self.before[axis - lead], shape[axis], 1))
    }
}

/// An output of a kernel: a row-major buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Output {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The sizes.
    pub shape: Shape,
    /// The zeros around the elements, if there are any; only in a [`Body::Map`] and a [`Body::Rows`], of an
    /// output over the whole space. The buffer has [`Output::stored`] elements.
    pub frame: Option<Frame>,
    /// For each output axis, the corresponding axis of the index space, in ascending order. The other
    /// axes of the space are reduced.
    pub axes: SmallVec<[usize; 5]>,
}

impl Output {
    /// An output over all axes of a space.
    fn whole(dtype: DType, shape: &Shape) -> Output {
        Output { dtype, shape: shape.clone(), frame: None, axes: (0..shape.rank()).collect() }
    }

    /// An output over the axes of `space` that are not in `reduced`.
    fn over(dtype: DType, space: &Shape, reduced: &[usize]) -> Output {
        let axes: SmallVec<[usize; 5]> = (0..space.rank()).filter(|axis| !reduced.contains(axis)).collect();
        Output { dtype, shape: axes.iter().map(|&axis| space[axis]).collect(), frame: None, axes }
    }

    /// The number of elements of its buffer.
    pub fn stored(&self) -> usize {
        self.frame.map_or_else(|| self.shape.numel(), |frame| frame.outer(&self.shape).numel())
    }

    /// The strides of the output over a space of this rank: 0 along axes that the output lacks.
    pub fn strides_over(&self, rank: usize) -> Strides {
        let mut strides: Strides = SmallVec::from_elem(0, rank);
        for (&axis, stride) in self.axes.iter().zip(self.shape.contiguous_strides()) {
            strides[axis] = stride;
        }
        strides
    }
}

/// The computation of a kernel on its operands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// `output[o][p] = program(operands at p)` for every position p of the space: a fused elementwise
    /// expression with one or several outputs, each over the whole space.
    Map(Program),
    /// `output[kept] = reduce(op, program(operands at p))` over all positions p whose kept axes are
    /// `kept`: a reduction with an elementwise prologue. The axes that the output lacks are reduced.
    ///
    /// The program has one output, of the result's dtype (f16 and bf16 accumulate in f32), and no
    /// instruction that depends on the flat position, so the index space may be iterated in any order.
    Reduce {
        /// The reduction.
        op: ReduceOp,
        /// The prologue, which computes the reduced values.
        program: Program,
    },
    /// Elementwise expressions fused with reductions along rows, such as softmax and layer norm. The
    /// last `row_axes` axes of the space make a row, and the axes before them enumerate the rows.
    /// [`Instr::Fold`] reduces a value over each row; its result is the same at every position of the
    /// row.
    ///
    /// An output without the row's axes holds one value per row, from a register that is uniform along a
    /// row; any other output covers the whole space. A row has at most [`crate::Limits::max_row`]
    /// elements.
    Rows {
        /// The number of trailing axes that make a row.
        row_axes: usize,
        /// The program for each position.
        program: Program,
    },
    /// The i32 index along `axis` of the extreme element of the operand.
    ArgReduce {
        /// The kind of extreme.
        op: ArgReduceOp,
        /// The axis reduced; its size is not 0.
        axis: usize,
    },
    /// `output[i][j][k] = op(operand[i][0][k], …, operand[i][j][k])` (for axis 1 of 3); with `reverse`,
    /// over `operand[i][j..][k]`.
    ///
    /// Sums and products of half types accumulate in f32 and are rounded when stored. Indices are i32.
    Cumulative {
        /// The operation.
        op: CumulativeOp,
        /// The axis.
        axis: usize,
        /// Whether it runs from the end of the axis to its start.
        reverse: bool,
    },
    /// The i32 indices of the first elements in sorted order along `axis`, as many as the output has
    /// there; a stable sort.
    ///
    /// NaN is greater than all other values and equal to NaN, and −0 is equal to 0, so that every device
    /// gives the same order.
    ArgSort {
        /// The axis.
        axis: usize,
        /// Whether the order is descending.
        descending: bool,
    },
    /// `output = Σ operand 0 · operand 1`, summed over the axes that the output lacks: matrix products,
    /// and everything that can be written as one over any number of axes, such as convolutions over
    /// sliding windows. [`crate::contraction::Contraction`] gives its matrices.
    ///
    /// Half types accumulate in f32; integers wrap. An operand may overlap itself.
    ///
    /// With a program, its *epilogue*, the outputs are the program's, all over the same axes. Input 0 is
    /// the finished sum at each position, of the dtype of operands 0 and 1 (half types not yet rounded),
    /// and input `k` is operand `k + 1`, which has stride 0 along the summed axes. No instruction
    /// depends on the flat position. A program has at most [`crate::Limits::max_epilogue_of`] its results
    /// instructions.
    Contract(Option<Program>),
    /// `output[p] = operand 0[p with axis := operand 1[p]]`.
    ///
    /// The space is the index's shape. Operand 0 may have another size along the axis. An index outside
    /// the axis is [`crate::ErrorKind::IndexOutOfRange`]: [`crate::Backend::run`] reports it at once, or
    /// the launch's [`Ticket`](crate::Ticket) does later.
    Gather {
        /// The axis indexed.
        axis: usize,
    },
    /// `output = operand 0; output[q] = op(output[q], operand 2[p])` with `q = p with axis := operand 1[p]`,
    /// for every position p of operand 2.
    ///
    /// The space is the shape of operand 0. Operands 1 and 2 have the same shape, which has any size
    /// along the axis and at most the space's size along the others. Repeated indices apply in an
    /// order that depends only on the index, and of several replacements the last position along the axis
    /// remains; half types add in f32 and are rounded once. Indices out of range are handled as in
    /// [`Body::Gather`].
    Scatter {
        /// The function that combines an element with one that is scattered to it.
        op: ScatterOp,
        /// The axis indexed.
        axis: usize,
    },
    /// Concatenation and padding: the output is filled with scalar 0 of the launch if `fill`, then
    /// overwritten by each operand in order. Without `fill` the operands cover the whole output. Their
    /// regions do not overlap.
    Copy {
        /// Whether positions outside the regions are filled with the launch's scalar.
        fill: bool,
        /// For each operand, the layout of its destination in the output's buffer, of the operand's own
        /// shape.
        regions: SmallVec<[Layout; 4]>,
    },
    /// An operation of another crate, by its implementation for this backend
    /// ([`crate::custom::implementation`]).
    ///
    /// Operands and outputs have shapes of their own, and the space is that of the first output.
    /// Operands are row-major from their buffers' first elements on, unless the operation takes strides.
    Custom(Arc<dyn CustomKernel>),
}

/// The computation of a kernel by what its operands are read by, with its parts: see [`Body::class`].
#[derive(Clone, Copy, Debug)]
pub enum BodyClass<'a> {
    /// A program of the operands at each position.
    Program(&'a Program),
    /// The products of two operands, with a program of their sums.
    Contract(Option<&'a Program>),
    /// A search, a running value or a sort along an axis of the operand.
    Along(usize),
    /// Elements of operand 0 at the indices in operand 1, along an axis.
    Gather(usize),
    /// Elements of operand 2 that go to the indices in operand 1, along an axis.
    Scatter(usize),
    /// A copy of regions.
    Copy,
    /// An operation of another crate.
    Custom,
}

impl Body {
    /// The class of the computation. Code that treats a class alike matches on it instead of on all bodies.
    pub fn class(&self) -> BodyClass<'_> {
        match self {
            Body::Map(program) | Body::Reduce { program, .. } | Body::Rows { program, .. } => {
                BodyClass::Program(program)
            }
            Body::Contract(epilogue) => BodyClass::Contract(epilogue.as_ref()),
            Body::ArgReduce { axis, .. } | Body::Cumulative { axis, .. } => BodyClass::Along(*axis),
            Body::ArgSort { axis, .. } => BodyClass::Along(*axis),
            Body::Gather { axis } => BodyClass::Gather(*axis),
            Body::Scatter { axis, .. } => BodyClass::Scatter(*axis),
            Body::Copy { .. } => BodyClass::Copy,
            Body::Custom(_) => BodyClass::Custom,
        }
    }

    /// The elementwise program, if the body has one.
    pub fn program(&self) -> Option<&Program> {
        match self.class() {
            BodyClass::Program(program) => Some(program),
            BodyClass::Contract(epilogue) => epilogue,
            BodyClass::Along(_) | BodyClass::Gather(_) | BodyClass::Scatter(_) => None,
            BodyClass::Copy | BodyClass::Custom => None,
        }
    }
}

/// An operand whose elements are selected by computed indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedOperand {
    /// The operand's number.
    pub operand: usize,
    /// The axis of the indices.
    pub axis: usize,
    /// Its size.
    pub size: usize,
}

/// The operands of a program over one space.
fn read(program: &Program, layouts: impl IntoIterator<Item = Layout>) -> SmallVec<[Operand; 4]> {
    program.inputs.iter().zip(layouts).map(|(&dtype, layout)| Operand::new(dtype, layout)).collect()
}

/// Constructors.
impl Kernel {
    /// A [`Body::Map`]; every layout is of shape `space`.
    pub fn map(space: Shape, layouts: impl IntoIterator<Item = Layout>, program: Program) -> Kernel {
        let dtypes = (0..program.outputs.len()).map(|o| program.output_dtype(o));
        let outputs = dtypes.map(|dtype| Output::whole(dtype, &space)).collect();
        Kernel { operands: read(&program, layouts), outputs, space, body: Body::Map(program) }
    }

    /// A [`Body::Reduce`] over `axes`; every layout is of shape `space`.
    pub fn reduce(
        op: ReduceOp,
        space: Shape,
        axes: &[usize],
        layouts: impl IntoIterator<Item = Layout>,
        program: Program,
    ) -> Kernel {
        let outputs = SmallVec::from_iter([Output::over(program.output_dtype(0), &space, axes)]);
        Kernel { operands: read(&program, layouts), outputs, space, body: Body::Reduce { op, program } }
    }

    /// A [`Body::Rows`]; every layout is of shape `space`, and `per_row` says which outputs hold one
    /// value per row.
    pub fn rows(
        space: Shape,
        row_axes: usize,
        layouts: impl IntoIterator<Item = Layout>,
        program: Program,
        per_row: &[bool],
    ) -> Kernel {
        let row: SmallVec<[usize; 5]> = (space.rank().saturating_sub(row_axes)..space.rank()).collect();
        let outputs = per_row
            .iter()
            .enumerate()
            .map(|(o, &one)| Output::over(program.output_dtype(o), &space, if one { &row } else { &[] }))
            .collect();
        Kernel { operands: read(&program, layouts), outputs, space, body: Body::Rows { row_axes, program } }
    }

    /// A [`Body::ArgReduce`].
    pub fn arg_reduce(op: ArgReduceOp, axis: usize, input: Operand) -> Kernel {
        let space = input.layout.shape().clone();
        let outputs = SmallVec::from_iter([Output::over(DType::I32, &space, &[axis])]);
        Kernel { space, operands: SmallVec::from_iter([input]), outputs, body: Body::ArgReduce { op, axis } }
    }

    /// A [`Body::Cumulative`].
    pub fn cumulative(op: CumulativeOp, axis: usize, reverse: bool, input: Operand) -> Kernel {
        let space = input.layout.shape().clone();
        let dtype = if op.is_arg() { DType::I32 } else { input.dtype };
        let outputs = SmallVec::from_iter([Output::whole(dtype, &space)]);
        let body = Body::Cumulative { op, axis, reverse };
        Kernel { space, operands: SmallVec::from_iter([input]), outputs, body }
    }

    /// A [`Body::ArgSort`] that gives the first `k` indices.
    pub fn arg_sort(axis: usize, descending: bool, k: usize, input: Operand) -> Kernel {
        let space = input.layout.shape().clone();
        let mut output = Output::whole(DType::I32, &space);
        output.shape = output.shape.iter().enumerate().map(|(a, &n)| if a == axis { k } else { n }).collect();
        let body = Body::ArgSort { axis, descending };
        Kernel { space, operands: SmallVec::from_iter([input]), outputs: SmallVec::from_iter([output]), body }
    }

    /// A [`Body::Contract`] of two operands over one space, summed over `reduced`.
    pub fn contract(dtype: DType, lhs: Layout, rhs: Layout, reduced: &[usize]) -> Kernel {
        let space = lhs.shape().clone();
        let outputs = SmallVec::from_iter([Output::over(dtype, &space, reduced)]);
        let operands = SmallVec::from_iter([Operand::new(dtype, lhs), Operand::new(dtype, rhs)]);
        Kernel { space, operands, outputs, body: Body::Contract(None) }
    }

    /// A contraction with an epilogue: `layouts` are those of the program's inputs after the first, each
    /// of the output's shape.
    pub fn with_epilogue(mut self, program: Program, layouts: impl IntoIterator<Item = Layout>) -> Kernel {
        let Some(sums) = self.outputs.first().cloned() else { return self };
        for (&dtype, layout) in program.inputs.iter().skip(1).zip(layouts) {
            let mut strides: Strides = SmallVec::from_elem(0, self.space.rank());
            sums.axes.iter().zip(layout.strides()).for_each(|(&axis, &stride)| strides[axis] = stride);
            self.operands
                .push(Operand::new(dtype, Layout::new(self.space.clone(), &strides, layout.offset())));
        }
        let dtypes = (0..program.outputs.len()).map(|o| program.output_dtype(o));
        self.outputs = dtypes.map(|dtype| Output { dtype, ..sums.clone() }).collect();
        self.body = Body::Contract(Some(program));
        self
    }

    /// A contraction without its epilogue: only the sums, in one output.
    pub fn without_epilogue(&self) -> Kernel {
        let dtype = self.operands.first().map_or(DType::F32, |operand| operand.dtype);
        Kernel {
            space: self.space.clone(),
            operands: self.operands.iter().take(2).cloned().collect(),
            outputs: self.outputs.iter().take(1).map(|sums| Output { dtype, ..sums.clone() }).collect(),
            body: Body::Contract(None),
        }
    }

    /// The epilogue of a contraction as a map over the output's shape. Operand 0 is the sums in
    /// row-major order; a backend that keeps the sums of half types in f32 reads them as f32.
    pub fn epilogue_map(&self) -> Option<Kernel> {
        let (Body::Contract(Some(program)), Some(sums)) = (&self.body, self.outputs.first()) else {
            return None;
        };
        let over = |layout: &Layout| {
            let strides: Strides = sums.axes.iter().map(|&axis| layout.strides()[axis]).collect();
            Layout::new(sums.shape.clone(), &strides, layout.offset())
        };
        let own = Layout::contiguous(sums.shape.clone());
        let layouts: SmallVec<[Layout; 4]> = std::iter::once(own)
            .chain(self.operands.iter().skip(2).map(|operand| over(&operand.layout)))
            .collect();
        Some(Kernel::map(sums.shape.clone(), layouts, program.clone()))
    }

    /// The matrix product of `[batch…, m, k]` and `[batch…, k, n]` with equal batch axes, as a
    /// [`Body::Contract`] over `[batch…, m, n, k]`.
    pub fn matmul(dtype: DType, lhs: &Layout, rhs: &Layout) -> Kernel {
        let rank = lhs.shape().rank();
        let batch = &lhs.shape()[..rank - 2];
        let (m, k, n) = (lhs.shape()[rank - 2], lhs.shape()[rank - 1], rhs.shape()[rank - 1]);
        let space: Shape = batch.iter().copied().chain([m, n, k]).collect();
        let over = |layout: &Layout, last: [isize; 3]| {
            let lead = &layout.strides()[..rank - 2];
            let strides: Strides = lead.iter().copied().chain(last).collect();
            Layout::new(space.clone(), &strides, layout.offset())
        };
        let (l, r) = (&lhs.strides()[rank - 2..], &rhs.strides()[rank - 2..]);
        Kernel::contract(dtype, over(lhs, [l[0], 0, l[1]]), over(rhs, [0, r[1], r[0]]), &[rank])
    }

    /// A [`Body::Gather`]; along other axes the input may be larger than the index, which then selects
    /// its leading part.
    pub fn gather(axis: usize, input: Operand, index: Operand) -> Kernel {
        let space = index.layout.shape().clone();
        let within = (0..space.rank()).filter(|&a| a != axis);
        let layout = within.fold(input.layout.clone(), |layout, a| layout.slice(a, 0, space[a], 1));
        let outputs = SmallVec::from_iter([Output::whole(input.dtype, &space)]);
        let operands = SmallVec::from_iter([Operand { layout, ..input }, index]);
        Kernel { space, operands, outputs, body: Body::Gather { axis } }
    }

    /// A [`Body::Scatter`].
    pub fn scatter(op: ScatterOp, axis: usize, base: Operand, index: Operand, src: Operand) -> Kernel {
        let space = base.layout.shape().clone();
        let outputs = SmallVec::from_iter([Output::whole(base.dtype, &space)]);
        let operands = SmallVec::from_iter([base, index, src]);
        Kernel { space, operands, outputs, body: Body::Scatter { op, axis } }
    }

    /// A [`Body::Copy`] of `(destination, source)` layouts into an output of `shape`.
    pub fn copy(
        dtype: DType,
        shape: Shape,
        fill: bool,
        regions: impl IntoIterator<Item = (Layout, Layout)>,
    ) -> Kernel {
        let (regions, sources): (SmallVec<[Layout; 4]>, SmallVec<[Layout; 4]>) = regions.into_iter().unzip();
        let operands = sources.into_iter().map(|layout| Operand::new(dtype, layout)).collect();
        let outputs = SmallVec::from_iter([Output::whole(dtype, &shape)]);
        Kernel { space: shape, operands, outputs, body: Body::Copy { fill, regions } }
    }

    /// A [`Body::Custom`] with these results.
    pub fn custom(
        custom: Arc<dyn CustomKernel>,
        operands: impl IntoIterator<Item = Operand>,
        results: &[(Shape, DType)],
    ) -> Kernel {
        let space = results.first().map_or_else(Shape::scalar, |(shape, _)| shape.clone());
        let outputs = results.iter().map(|(shape, dtype)| Output::whole(*dtype, shape)).collect();
        Kernel { space, operands: operands.into_iter().collect(), outputs, body: Body::Custom(custom) }
    }
}

impl Kernel {
    /// The kernel's name, for errors and profiles.
    pub fn name(&self) -> &'static str {
        match &self.body {
            Body::Map(_) => "map",
            Body::Reduce { op, .. } => op.name(),
            Body::Rows { .. } => "rows",
            Body::ArgReduce { op, .. } => op.name(),
            Body::Cumulative { op, .. } => op.name(),
            Body::ArgSort { .. } => "argsort",
            Body::Contract(_) => "matmul",
            Body::Gather { .. } => "gather",
            Body::Scatter { op, .. } => op.name(),
            Body::Copy { .. } => "copy",
            Body::Custom(custom) => custom.name(),
        }
    }

    /// The layouts of the operands.
    pub fn layouts(&self) -> SmallVec<[Layout; 4]> {
        self.operands.iter().map(|operand| operand.layout.clone()).collect()
    }

    /// For each operand, whether output `o` depends on it.
    pub(crate) fn operands_of(&self, o: usize) -> Vec<bool> {
        let Some(program) = self.body.program() else { return vec![true; self.operands.len()] };
        let mut read = program.inputs_of(o);
        // The first input of an epilogue is the sums, which need both factors.
        if let Body::Contract(_) = self.body {
            read.insert(0, read.first().copied().unwrap_or(true));
        }
        read
    }

    /// The axes of the space that output 0 lacks, ascending.
    pub fn reduced_axes(&self) -> SmallVec<[usize; 5]> {
        let kept = self.outputs.first().map_or(&[][..], |output| &output.axes);
        (0..self.space.rank()).filter(|axis| !kept.contains(axis)).collect()
    }

    /// The kernel with some operands read at indices: for each operand, the indexed axis, if it has one.
    pub fn with_indexed(mut self, axes: impl IntoIterator<Item = Option<IndexedAxis>>) -> Kernel {
        self.operands.iter_mut().zip(axes).for_each(|(operand, axis)| operand.indexed = axis);
        self
    }

    /// The kernel with zeros around some outputs.
    pub fn with_frames(mut self, frames: impl IntoIterator<Item = Option<Frame>>) -> Kernel {
        self.outputs.iter_mut().zip(frames).for_each(|(output, frame)| output.frame = frame);
        self
    }

    /// Whether an output has zeros around it.
    pub fn is_framed(&self) -> bool {
        self.outputs.iter().any(|output| output.frame.is_some())
    }

    /// Whether it only copies one operand, in blocks or not, into its output.
    pub fn is_copy(&self) -> bool {
        let Body::Map(program) = &self.body else { return false };
        program.instrs[..] == [Instr::Load(0)] && program.outputs[..] == [0] && self.operands.len() == 1
    }

    /// The operands that are read or, in a scatter, written at indices. The indices are operand 1 of a
    /// gather or a scatter, and registers of a program.
    pub fn indexed_operands(&self) -> SmallVec<[IndexedOperand; 1]> {
        match self.body.class() {
            BodyClass::Gather(axis) => {
                let table = self.operands.first().map(|table| table.layout.shape()[axis]);
                table.map(|size| IndexedOperand { operand: 0, axis, size }).into_iter().collect()
            }
            BodyClass::Scatter(axis) => {
                SmallVec::from_iter([IndexedOperand { operand: 0, axis, size: self.space[axis] }])
            }
            BodyClass::Program(_) | BodyClass::Contract(_) => {
                let of = |(operand, read): (usize, &Operand)| {
                    read.indexed.map(|IndexedAxis { axis, size, .. }| IndexedOperand { operand, axis, size })
                };
                self.operands.iter().enumerate().filter_map(of).collect()
            }
            BodyClass::Along(_) | BodyClass::Copy | BodyClass::Custom => SmallVec::new(),
        }
    }

    /// The part of the kernel over positions `start..start + len` of an axis of the space. Its outputs
    /// are the corresponding parts of the outputs, as separate buffers; a part along a reduced axis
    /// gives partial sums.
    ///
    /// `None` if parts along the axis are not independent: a cumulative operation, a sort or an
    /// arg-reduction along it, rows cut within a row, outputs in frames, copies, and custom kernels.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Option<Kernel> {
        if self.is_framed() {
            return None;
        }
        match self.body.class() {
            BodyClass::Along(along) if axis == along => return None,
            BodyClass::Copy | BodyClass::Custom => return None,
            BodyClass::Program(_) | BodyClass::Contract(_) | BodyClass::Along(_) => {}
            BodyClass::Gather(_) | BodyClass::Scatter(_) => {}
        }
        if let Body::Rows { row_axes, .. } = &self.body
            && axis + row_axes >= self.space.rank()
        {
            return None;
        }
        let mut part = self.clone();
        for (k, operand) in part.operands.iter_mut().enumerate() {
            let (from, to) = match self.body.class() {
                BodyClass::Gather(along) if along == axis && k == 0 => continue,
                BodyClass::Scatter(along) if along == axis && k > 0 => continue,
                // The source may end before the base does.
                BodyClass::Scatter(_) => {
                    let reach = operand.layout.shape()[axis];
                    (start.min(reach), (start + len).min(reach))
                }
                BodyClass::Program(_) | BodyClass::Contract(_) | BodyClass::Along(_) => (start, start + len),
                BodyClass::Gather(_) | BodyClass::Copy | BodyClass::Custom => (start, start + len),
            };
            operand.layout = operand.layout.slice(axis, from, to - from, 1);
        }
        let shortened = |shape: &Shape, axis: usize| -> Shape {
            shape.iter().enumerate().map(|(a, &n)| if a == axis { len } else { n }).collect()
        };
        part.space = shortened(&part.space, axis);
        for output in &mut part.outputs {
            if let Some(own) = output.axes.iter().position(|&a| a == axis) {
                output.shape = shortened(&output.shape, own);
            }
        }
        Some(part)
    }

    /// For each register of a [`Body::Rows`], whether it is uniform along a row.
    pub fn uniform(&self) -> Vec<bool> {
        let Body::Rows { row_axes, program } = &self.body else { return Vec::new() };
        let lead = self.space.rank() - row_axes;
        let steady = |layout: &Layout| {
            layout.strides()[lead..].iter().zip(&self.space[lead..]).all(|(&s, &d)| s == 0 || d == 1)
        };
        let mut uniform: Vec<bool> = Vec::with_capacity(program.instrs.len());
        for instr in &program.instrs {
            let all = |instr: &Instr| instr.operands().iter().all(|&r| uniform[r as usize]);
            uniform.push(match instr {
                Instr::Load(k) => steady(&self.operands[*k as usize].layout),
                Instr::Scalar(_) | Instr::Fold(..) => true,
                Instr::Arange { .. } | Instr::Random { .. } => false,
                Instr::Unary(..) | Instr::Powi(..) | Instr::Binary(..) | Instr::Compare(..) => all(instr),
                Instr::Select(..) | Instr::Cast(_) => all(instr),
                Instr::LoadAt { input, index } => {
                    uniform[*index as usize] && steady(&self.operands[*input as usize].layout)
                }
            });
        }
        uniform
    }
}

/// A slot in which a backend keeps the compiled form of a kernel (bytecode, a pipeline) for the life of
/// the plan.
#[derive(Debug, Default)]
pub struct Compiled(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Compiled {
    /// The kept value, made by `make` the first time. `None` if the kept value is of another type.
    pub fn get_or_try<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Result<T>) -> Result<Option<&T>> {
        if self.0.get().is_none() {
            let made: Arc<dyn Any + Send + Sync> = Arc::new(make()?);
            // Two threads may race; one wins, and both made equal values.
            let _ = self.0.set(made);
        }
        Ok(self.0.get().and_then(|kept| kept.downcast_ref()))
    }
}
