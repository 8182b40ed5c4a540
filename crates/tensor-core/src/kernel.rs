//! What the scheduler hands to a backend: a few typed kernels, shapes and layouts resolved.
//! A kernel is structure only; scalars come at launch, so that one plan and one pipeline serve every step of a training.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use smallvec::SmallVec;

use crate::{
    ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, DType, Layout, RandomKind, ReduceOp, Result, Scalar,
    Shape, Ticket, UnaryOp, backend::Storage,
};

/// A value inside a [`Program`]: the index of the instruction that makes it.
pub type Reg = u16;

/// One step of an elementwise program. Registers name earlier instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Instr {
    /// The element of input `n` at this position.
    Load(u16),
    /// The `n`-th scalar of the launch, already cast to this instruction's dtype.
    Scalar(u16),
    /// `start + step·i`, of two scalars of the launch, at flat row-major index `i` of the index space.
    /// Floats compute in their own dtype, integers wrap.
    Arange {
        /// Scalar slot of the first value.
        start: u16,
        /// Scalar slot of the difference.
        step: u16,
    },
    /// A random number for flat row-major index `i`: see [`RandomKind`] for the formula.
    Random {
        /// Which distribution.
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
    /// The value converted to this instruction's dtype as Rust's `as` does: floats to integers cut toward zero and
    /// saturate with NaN → 0; to bool is `≠ 0`; from bool is 0 or 1.
    Cast(Reg),
    /// The reduction of a value over the row that this position lies in. Only in a [`RowKernel`].
    Fold(ReduceOp, Reg),
}

impl Instr {
    /// The registers that the instruction reads.
    pub fn operands(&self) -> SmallVec<[Reg; 3]> {
        match *self {
            Instr::Unary(_, a) | Instr::Powi(_, a) | Instr::Cast(a) | Instr::Fold(_, a) => {
                SmallVec::from_slice(&[a])
            }
            Instr::Binary(_, a, b) | Instr::Compare(_, a, b) => SmallVec::from_slice(&[a, b]),
            Instr::Select(c, a, b) => SmallVec::from_slice(&[c, a, b]),
            Instr::Load(_) | Instr::Scalar(_) | Instr::Arange { .. } | Instr::Random { .. } => {
                SmallVec::new()
            }
        }
    }
}

/// A straight-line elementwise program: what a fused kernel computes at each position.
///
/// Instruction `i` makes register `i`, of dtype `dtypes[i]`. `f16` and `bf16` registers are computed in f32 and
/// rounded to their own dtype when stored, and may be kept wider in between.
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
    /// The registers that are the results.
    pub outputs: Vec<Reg>,
}

impl Program {
    /// The dtype of output `n`.
    pub fn output_dtype(&self, n: usize) -> DType {
        self.dtypes[self.outputs[n] as usize]
    }

    /// For each input, whether output `n` depends on it.
    pub(crate) fn inputs_of(&self, n: usize) -> Vec<bool> {
        let mut wanted = vec![false; self.instrs.len()];
        wanted[self.outputs[n] as usize] = true;
        let mut read = vec![false; self.inputs.len()];
        // Registers name earlier instructions.
        for (r, instr) in self.instrs.iter().enumerate().rev() {
            if !wanted[r] {
                continue;
            }
            if let Instr::Load(k) = *instr {
                read[k as usize] = true;
            }
            instr.operands().iter().for_each(|&operand| wanted[operand as usize] = true);
        }
        read
    }
}

/// One unit of work for a backend. Outputs are always fresh row-major buffers, or (for `Map`) an input's own buffer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Kernel {
    /// A fused elementwise expression with one or several outputs.
    Map(MapKernel),
    /// A reduction with an elementwise prologue.
    Reduce(ReduceKernel),
    /// Elementwise expressions and reductions along rows, together: softmax, layer norm and their like.
    Rows(RowKernel),
    /// The index of an extreme along one axis.
    ArgReduce(ArgReduceKernel),
    /// A cumulative operation along one axis.
    Cumulative(CumulativeKernel),
    /// The indices of the elements along one axis in order.
    ArgSort(ArgSortKernel),
    /// A batched matrix product.
    MatMul(MatMulKernel),
    /// Reading by index along an axis.
    Gather(GatherKernel),
    /// Adding by index along an axis.
    ScatterAdd(ScatterAddKernel),
    /// Strided copies into one output: concatenation, padding.
    Copy(CopyKernel),
}

/// `outputs[o][p] = program(inputs at p)` for every position p of `shape`.
///
/// Every layout in `inputs` has the shape `shape`. Outputs are row-major, all of `shape`. An output may be given an
/// input's own buffer: then that input's layout is row-major at offset 0 with the output's dtype, and any other input
/// that shares the buffer has the same layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapKernel {
    /// The index space.
    pub shape: Shape,
    /// How each input is read over the index space.
    pub inputs: SmallVec<[Layout; 4]>,
    /// What is computed at each position.
    pub program: Program,
}

/// `output[kept] = reduce(op, program(inputs at p))` over all positions p whose kept axes are `kept`.
///
/// The program has one output, of the same dtype as the result (f16 and bf16 accumulate in f32), and no instruction that
/// depends on the flat position, so the index space may be walked in any order. The output is row-major over the kept axes in
/// their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReduceKernel {
    /// Which reduction.
    pub op: ReduceOp,
    /// The index space before the reduction.
    pub shape: Shape,
    /// The axes reduced, ascending.
    pub axes: SmallVec<[usize; 5]>,
    /// How each input is read over the index space.
    pub inputs: SmallVec<[Layout; 4]>,
    /// The prologue: what is reduced.
    pub program: Program,
}

/// A program over rows: the last `row_axes` axes of `shape` make a row, those before them count the rows. [`Instr::Fold`]
/// reduces a value over each row; its result is one value everywhere in the row.
///
/// Outputs are row-major: one marked in `per_row` holds one value a row (its register is the same all along a row), of the
/// shape without the row's axes; any other a value for each position. Outputs are never an input's buffer. A row has at
/// most [`crate::Limits::max_row`] elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RowKernel {
    /// The index space.
    pub shape: Shape,
    /// How many axes, the last ones, make a row.
    pub row_axes: usize,
    /// How each input is read over the index space: stride 0 along the row's axes for one value a row.
    pub inputs: SmallVec<[Layout; 4]>,
    /// What is computed at each position.
    pub program: Program,
    /// For each output, whether it holds one value a row.
    pub per_row: SmallVec<[bool; 4]>,
}

impl RowKernel {
    /// The shape of the rows' numbering: the axes before the row's.
    pub fn rows(&self) -> Shape {
        self.shape[..self.shape.rank() - self.row_axes].iter().copied().collect()
    }

    /// For each register, whether it is the same all along a row.
    pub fn uniform(&self) -> Vec<bool> {
        let lead = self.shape.rank() - self.row_axes;
        let steady = |layout: &Layout| {
            layout.strides()[lead..].iter().zip(&self.shape[lead..]).all(|(&s, &d)| s == 0 || d == 1)
        };
        let mut uniform: Vec<bool> = Vec::with_capacity(self.program.instrs.len());
        for instr in &self.program.instrs {
            uniform.push(match instr {
                Instr::Load(k) => steady(&self.inputs[*k as usize]),
                Instr::Scalar(_) | Instr::Fold(..) => true,
                Instr::Arange { .. } | Instr::Random { .. } => false,
                _ => instr.operands().iter().all(|&r| uniform[r as usize]),
            });
        }
        uniform
    }
}

/// The i32 index along `axis` of the extreme element of input 0. The output is row-major over the other axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgReduceKernel {
    /// Which extreme.
    pub op: ArgReduceOp,
    /// The axis reduced; its size is not 0.
    pub axis: usize,
    /// The input's dtype.
    pub dtype: DType,
    /// The input's layout.
    pub input: Layout,
}

/// `output[i][j][k] = op(input[i][0][k], …, input[i][j][k])` (for axis 1 of 3), row-major; with `reverse`, of `input[i][j..][k]`.
///
/// Sums and products of half types are taken in f32 and rounded where they are stored. Indices are i32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CumulativeKernel {
    /// Which operation.
    pub op: CumulativeOp,
    /// The axis.
    pub axis: usize,
    /// Whether it runs from the end of the axis to its start.
    pub reverse: bool,
    /// The input's dtype; the output's too, but for indices.
    pub dtype: DType,
    /// The input's layout.
    pub input: Layout,
}

/// The i32 indices of the first `k` elements along `axis` in order, row-major; equal elements in the order of their indices.
///
/// NaN is greater than all else and equal to NaN, and −0 is equal to 0, so that every device gives the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgSortKernel {
    /// The axis.
    pub axis: usize,
    /// Whether the greatest come first.
    pub descending: bool,
    /// How many are wanted: at most the axis's size.
    pub k: usize,
    /// The input's dtype.
    pub dtype: DType,
    /// The input's layout.
    pub input: Layout,
}

/// `output[b, i, j] = Σₖ lhs[b, i, k] · rhs[b, k, j]`, row-major. Half types accumulate in f32; integers wrap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatMulKernel {
    /// The leading axes, broadcast; empty for a plain product.
    pub batch: Shape,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// The inner size.
    pub k: usize,
    /// The dtype of both inputs and of the output.
    pub dtype: DType,
    /// `[batch…, m, k]`, any strides: 0 where broadcast, swapped where transposed, negative where flipped.
    pub lhs: Layout,
    /// `[batch…, k, n]`, any strides.
    pub rhs: Layout,
}

/// `output[p] = input[p with axis := index[p]]`, row-major of the index's shape. Inputs: the tensor, the index.
///
/// Off the axis, the index's sizes are at most the input's. An index outside the axis is
/// [`crate::ErrorKind::IndexOutOfRange`]: of [`crate::Backend::run`] at once, or by the launch's [`Ticket`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GatherKernel {
    /// The axis indexed.
    pub axis: usize,
    /// The dtype of the input and the output.
    pub dtype: DType,
    /// The dtype of the index: i32, i64, u32 or u8.
    pub index_dtype: DType,
    /// The input's layout.
    pub input: Layout,
    /// The index's layout; its shape is the output's. An axis may have stride 0 (index_select does).
    pub index: Layout,
}

/// `output = base; output[p with axis := index[p]] += src[p]`, row-major of the base's shape. Inputs: base, index, src.
///
/// Repeated indices add in ascending order of position along the axis; half types add in f32 and are rounded once. Out-of-range indices are as in [`GatherKernel`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScatterAddKernel {
    /// The axis indexed.
    pub axis: usize,
    /// The dtype of base, src and output.
    pub dtype: DType,
    /// The dtype of the index: i32, i64, u32 or u8.
    pub index_dtype: DType,
    /// The base's layout; its shape is the output's.
    pub base: Layout,
    /// The index's layout, of src's shape.
    pub index: Layout,
    /// The source's layout.
    pub src: Layout,
}

/// An output of `shape`, row-major, filled with scalar 0 of the launch if `fill`, then overwritten by each region in order.
/// Without `fill` the regions cover the whole output. Regions do not overlap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CopyKernel {
    /// The output's shape.
    pub shape: Shape,
    /// The dtype of everything.
    pub dtype: DType,
    /// Whether positions outside the regions take the launch's scalar.
    pub fill: bool,
    /// For each input, where it goes in the output buffer and how it is read. Both layouts have one shape.
    pub regions: SmallVec<[Region; 4]>,
}

/// One strided copy of a [`CopyKernel`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Where the elements go in the output's buffer.
    pub dst: Layout,
    /// Where they are read in the input's buffer.
    pub src: Layout,
}

/// What a kernel's indices run over, and how they are read.
#[derive(Clone, Copy, Debug)]
pub struct IndexOperand<'a> {
    /// The axis that they name positions of.
    pub axis: usize,
    /// Its size.
    pub size: usize,
    /// How they lie in their buffer.
    pub layout: &'a Layout,
    /// Their dtype.
    pub dtype: DType,
}

impl Kernel {
    /// The kernel's name, for errors and profiles.
    pub fn name(&self) -> &'static str {
        match self {
            Kernel::Map(_) => "map",
            Kernel::Reduce(k) => k.op.name(),
            Kernel::Rows(_) => "rows",
            Kernel::ArgReduce(k) => k.op.name(),
            Kernel::Cumulative(k) => k.op.name(),
            Kernel::ArgSort(_) => "argsort",
            Kernel::MatMul(_) => "matmul",
            Kernel::Gather(_) => "gather",
            Kernel::ScatterAdd(_) => "scatter_add",
            Kernel::Copy(_) => "copy",
        }
    }

    /// The indices of a kernel that goes by some: its input 1.
    pub fn index_operand(&self) -> Option<IndexOperand<'_>> {
        match self {
            Kernel::Gather(k) => Some(IndexOperand {
                axis: k.axis,
                size: k.input.shape()[k.axis],
                layout: &k.index,
                dtype: k.index_dtype,
            }),
            Kernel::ScatterAdd(k) => Some(IndexOperand {
                axis: k.axis,
                size: k.base.shape()[k.axis],
                layout: &k.index,
                dtype: k.index_dtype,
            }),
            Kernel::Map(_)
            | Kernel::Reduce(_)
            | Kernel::Rows(_)
            | Kernel::ArgReduce(_)
            | Kernel::Cumulative(_)
            | Kernel::ArgSort(_)
            | Kernel::MatMul(_)
            | Kernel::Copy(_) => None,
        }
    }

    /// The shape and dtype of each output.
    pub fn outputs(&self) -> SmallVec<[(Shape, DType); 2]> {
        let one = |shape: Shape, dtype: DType| SmallVec::from_iter([(shape, dtype)]);
        match self {
            Kernel::Map(k) => {
                (0..k.program.outputs.len()).map(|o| (k.shape.clone(), k.program.output_dtype(o))).collect()
            }
            Kernel::Rows(k) => (0..k.program.outputs.len())
                .map(|o| {
                    let shape = if k.per_row[o] { k.rows() } else { k.shape.clone() };
                    (shape, k.program.output_dtype(o))
                })
                .collect(),
            Kernel::Reduce(k) => one(k.shape.reduced(&k.axes, false), k.program.output_dtype(0)),
            Kernel::ArgReduce(k) => one(k.input.shape().reduced(&[k.axis], false), DType::I32),
            Kernel::Cumulative(k) => {
                one(k.input.shape().clone(), if k.op.is_arg() { DType::I32 } else { k.dtype })
            }
            Kernel::ArgSort(k) => {
                let sizes = k.input.shape().iter().enumerate();
                one(sizes.map(|(a, &n)| if a == k.axis { k.k } else { n }).collect(), DType::I32)
            }
            Kernel::MatMul(k) => one(k.batch.iter().copied().chain([k.m, k.n]).collect(), k.dtype),
            Kernel::Gather(k) => one(k.index.shape().clone(), k.dtype),
            Kernel::ScatterAdd(k) => one(k.base.shape().clone(), k.dtype),
            Kernel::Copy(k) => one(k.shape.clone(), k.dtype),
        }
    }
}

/// A slot in which a backend keeps what it made of a kernel (bytecode, a pipeline), for as long as the plan lives.
#[derive(Debug, Default)]
pub struct Compiled(OnceLock<Arc<dyn Any + Send + Sync>>);

impl Compiled {
    /// What is kept here, made by `make` the first time. `None` if something of another type is kept.
    pub fn get_or_try<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Result<T>) -> Result<Option<&T>> {
        if self.0.get().is_none() {
            let made: Arc<dyn Any + Send + Sync> = Arc::new(make()?);
            // Two threads may race; one wins, both made the same.
            let _ = self.0.set(made);
        }
        Ok(self.0.get().and_then(|kept| kept.downcast_ref()))
    }
}

/// A kernel with what it needs for one run. [`Launch::check`] holds it to the kernel's contract.
#[derive(Debug)]
pub struct Launch<'a> {
    /// What to do.
    pub kernel: &'a Kernel,
    /// Where the backend may keep what it made of the kernel.
    pub compiled: &'a Compiled,
    /// The scalars, each already cast to the dtype that the program gives its slot.
    pub scalars: &'a [Scalar],
    /// The input buffers, in the kernel's order. One buffer may come twice.
    pub inputs: &'a [Storage],
    /// The output buffers, in the kernel's order, each at least as large as the output.
    pub outputs: &'a [Storage],
    /// Where a backend says that it will only know later whether all indices are in range. `None` for a kernel without indices,
    /// and where it is known that they are; memory must be safe even then.
    pub ticket: Option<&'a Arc<Ticket>>,
}
