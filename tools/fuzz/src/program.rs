//! Programs as data: a list of steps, each an operation on the results of earlier ones. [`Action::apply`]
//! runs an operation; `code.rs` prints it as Rust, in the same order line by line.

use taper::{
    DType, Device, Generator, Result, Scalar, Tensor,
    tensor_core::{ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, ReduceOp, UnaryOp},
};
use taper_testing::of_scalars;

use crate::table;

/// The seed of every program's own generator.
pub const DRAWS: u64 = 7;

/// A list of steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// An operation, and the steps whose results it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The operation.
    pub action: Action,
    /// Places of earlier steps.
    pub inputs: Vec<usize>,
}

/// Functions of one tensor that are compositions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Composite {
    /// The logarithm in base 2.
    Log2,
    /// The logarithm in base 10.
    Log10,
    /// x · sigmoid(x).
    Silu,
    /// x · Φ(x).
    Gelu,
}

/// Distributions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Draw {
    /// Uniform on [0, 1).
    Uniform,
    /// Standard normal.
    Normal,
    /// Integers of a range.
    Integers(i32, i32),
}

/// Every public operation of `Tensor` that gives one tensor.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // named for the methods they call
pub enum Action {
    Leaf {
        shape: Vec<usize>,
        dtype: DType,
        values: Vec<Scalar>,
    },
    Full {
        shape: Vec<usize>,
        dtype: DType,
        value: Scalar,
    },
    Arange {
        start: i64,
        step: i64,
        n: usize,
        dtype: DType,
    },
    Eye {
        n: usize,
        dtype: DType,
    },
    Draw {
        kind: Draw,
        shape: Vec<usize>,
        dtype: DType,
    },
    /// Half of the elements set to 0, the others doubled.
    Dropout,
    Unary(UnaryOp),
    Composite(Composite),
    Powi(i32),
    Powf(f64),
    Clamp(Scalar, Scalar),
    Binary(BinaryOp),
    BinaryScalar(BinaryOp, Scalar),
    /// `scalar op x` with an operator: + − · /.
    ScalarBinary(BinaryOp, f64),
    Compare(CompareOp),
    CompareScalar(CompareOp, Scalar),
    Where,
    MaskedFill(Scalar),
    Cast(DType),
    Reshape(Vec<usize>),
    Flatten,
    Permute(Vec<usize>),
    Expand(Vec<usize>),
    Slice {
        axis: usize,
        start: usize,
        end: usize,
        step: usize,
    },
    Narrow {
        axis: usize,
        start: usize,
        len: usize,
    },
    Select {
        axis: usize,
        index: usize,
    },
    Flip(Vec<usize>),
    Squeeze,
    Unsqueeze(usize),
    Contiguous,
    Detach,
    Concat(usize),
    Stack(usize),
    Split {
        size: usize,
        axis: usize,
        which: usize,
    },
    Pad {
        padding: Vec<(usize, usize)>,
        value: Scalar,
    },
    Tril(i32),
    Triu(i32),
    Reduce {
        op: ReduceOp,
        axes: Vec<usize>,
        keepdim: bool,
    },
    ArgReduce {
        op: ArgReduceOp,
        axis: usize,
        keepdim: bool,
    },
    Var {
        axes: Vec<usize>,
        correction: f64,
        keepdim: bool,
    },
    Std {
        axes: Vec<usize>,
        correction: f64,
        keepdim: bool,
    },
    Softmax(usize),
    LogSoftmax(usize),
    LogSumExp {
        axes: Vec<usize>,
        keepdim: bool,
    },
    /// (x − mean) / √(variance + 10⁻³) along the last axis.
    LayerNorm,
    /// Inputs are logits `[n, c]` and labels `[n]`.
    CrossEntropy,
    Cumulative {
        op: CumulativeOp,
        axis: usize,
        reverse: bool,
    },
    CumExtreme {
        max: bool,
        axis: usize,
    },
    Sort {
        axis: usize,
        descending: bool,
    },
    ArgSort {
        axis: usize,
        descending: bool,
    },
    TopK {
        k: usize,
        axis: usize,
        largest: bool,
        indices: bool,
    },
    MatMul,
    Gather(usize),
    ScatterAdd(usize),
    IndexSelect(usize),
    IndexAdd(usize),
    /// A result of a row of the table of operations, by its place there.
    Row {
        row: usize,
        which: usize,
    },
}

impl Action {
    /// Builds the step's result from those of its inputs. Draws come from `rng`, whose device is the one
    /// used.
    pub fn apply(&self, x: &[&Tensor], rng: &Generator) -> Result<Tensor> {
        use Action as A;
        let device: &Device = rng.device();
        let axis = |a: &usize| *a as isize;
        match self {
            A::Leaf { shape, dtype, values } => of_scalars(values, shape, *dtype, device),
            A::Full { shape, dtype, value } => Tensor::full(shape.clone(), *value, (*dtype, device)),
            A::Arange { start, step, n, dtype } => {
                Tensor::arange(*start, start + step * *n as i64, *step, (*dtype, device))
            }
            A::Eye { n, dtype } => Tensor::eye(*n, (*dtype, device)),
            A::Draw { kind: Draw::Uniform, shape, dtype } => Tensor::rand_dtype(shape.clone(), *dtype, rng),
            A::Draw { kind: Draw::Normal, shape, dtype } => Tensor::randn_dtype(shape.clone(), *dtype, rng),
            A::Draw { kind: Draw::Integers(low, high), shape, dtype } => {
                Tensor::randint(*low, *high, shape.clone(), rng)?.to_dtype(*dtype)
            }
            A::Dropout => {
                let kept = Tensor::rand(x[0].shape(), rng)?.ge_scalar(0.5);
                x[0].mul(&kept.to_dtype(x[0].dtype())?).map(|x| x.mul_scalar(2.0))
            }
            A::Unary(op) => Ok(x[0].unary(*op)),
            A::Composite(f) => Ok(match f {
                Composite::Log2 => x[0].log2(),
                Composite::Log10 => x[0].log10(),
                Composite::Silu => x[0].silu(),
                Composite::Gelu => x[0].gelu(),
            }),
            A::Powi(n) => Ok(x[0].powi(*n)),
            A::Powf(p) => Ok(x[0].powf(*p)),
            A::Clamp(low, high) => Ok(x[0].clamp(*low, *high)),
            A::Binary(op) => x[0].binary(*op, x[1]),
            A::BinaryScalar(op, s) => Ok(binary_scalar(x[0], *op, *s)),
            A::ScalarBinary(op, s) => Ok(match op {
                BinaryOp::Add => *s + x[0],
                BinaryOp::Sub => *s - x[0],
                BinaryOp::Mul => *s * x[0],
                _ => *s / x[0],
            }),
            A::Compare(op) => x[0].compare(*op, x[1]),
            A::CompareScalar(op, s) => Ok(x[0].compare_scalar(*op, *s)),
            A::Where => x[0].where_cond(x[1], x[2]),
            A::MaskedFill(s) => x[0].masked_fill(x[1], *s),
            A::Cast(dtype) => x[0].to_dtype(*dtype),
            A::Reshape(shape) => x[0].reshape(shape.as_slice()),
            A::Flatten => Ok(x[0].flatten_all()),
            A::Permute(axes) => x[0].permute(axes.as_slice()),
            A::Expand(shape) => x[0].expand(shape.as_slice()),
            A::Slice { axis: a, start, end, step } => x[0].slice_step(axis(a), *start..*end, *step),
            A::Narrow { axis: a, start, len } => x[0].narrow(axis(a), *start, *len),
            A::Select { axis: a, index } => x[0].select(axis(a), *index as isize),
            A::Flip(axes) => x[0].flip(axes.as_slice()),
            A::Squeeze => x[0].squeeze(..),
            A::Unsqueeze(a) => x[0].unsqueeze(axis(a)),
            A::Contiguous => x[0].contiguous(),
            A::Detach => Ok(x[0].detach()),
            A::Concat(a) => Tensor::concat(x, axis(a)),
            A::Stack(a) => Tensor::stack(x, axis(a)),
            A::Split { size, axis: a, which } => {
                let parts = x[0].split(*size, axis(a))?;
                parts.into_iter().nth(*which).map_or_else(|| x[0].narrow(axis(a), 0, 0), Ok)
            }
            A::Pad { padding, value } => x[0].pad(padding, *value),
            A::Tril(diagonal) => x[0].tril(*diagonal),
            A::Triu(diagonal) => x[0].triu(*diagonal),
            A::Reduce { op, axes, keepdim } => x[0].reduce(*op, axes.as_slice(), *keepdim),
            A::ArgReduce { op, axis: a, keepdim } => x[0].arg_reduce(*op, axis(a), *keepdim),
            A::Var { axes, correction, keepdim } => x[0].var_axis(axes.as_slice(), *correction, *keepdim),
            A::Std { axes, correction, keepdim } => x[0].std_axis(axes.as_slice(), *correction, *keepdim),
            A::Softmax(a) => x[0].softmax(axis(a)),
            A::LogSoftmax(a) => x[0].log_softmax(axis(a)),
            A::LogSumExp { axes, keepdim } => x[0].logsumexp(axes.as_slice(), *keepdim),
            A::LayerNorm => {
                let centred = x[0].sub(&x[0].mean_axis(-1, true)?)?;
                centred.mul(&centred.powi(2).mean_axis(-1, true)?.add_scalar(1e-3).rsqrt())
            }
            A::CrossEntropy => taper::nn::cross_entropy(x[0], x[1]),
            A::Cumulative { op, axis: a, reverse } => x[0].cumulative(*op, axis(a), *reverse),
            A::CumExtreme { max: true, axis: a } => Ok(x[0].cummax(axis(a))?.0),
            A::CumExtreme { max: false, axis: a } => Ok(x[0].cummin(axis(a))?.0),
            A::Sort { axis: a, descending } => Ok(x[0].sort(axis(a), *descending)?.0),
            A::ArgSort { axis: a, descending } => x[0].argsort(axis(a), *descending),
            A::TopK { k, axis: a, largest, indices } => {
                let (values, places) = x[0].topk(*k, axis(a), *largest)?;
                Ok(if *indices { places } else { values })
            }
            A::MatMul => x[0].matmul(x[1]),
            A::Gather(a) => x[0].gather(axis(a), x[1]),
            A::ScatterAdd(a) => x[0].scatter_add(axis(a), x[1], x[2]),
            A::IndexSelect(a) => x[0].index_select(axis(a), x[1]),
            A::IndexAdd(a) => x[0].index_add(axis(a), x[1], x[2]),
            A::Row { row, which } => table::apply(*row, *which, x),
        }
    }

    /// Whether the result holds elements of the inputs, moved about and not changed.
    pub fn moves(&self) -> bool {
        use Action as A;
        matches!(
            self,
            A::Reshape(_)
                | A::Flatten
                | A::Permute(_)
                | A::Expand(_)
                | A::Slice { .. }
                | A::Narrow { .. }
                | A::Select { .. }
                | A::Flip(_)
                | A::Squeeze
                | A::Unsqueeze(_)
                | A::Contiguous
                | A::Detach
                | A::Split { .. }
                | A::Gather(_)
                | A::IndexSelect(_)
        )
    }

    /// Whether it takes no inputs.
    pub fn is_source(&self) -> bool {
        use Action as A;
        matches!(self, A::Leaf { .. } | A::Full { .. } | A::Arange { .. } | A::Eye { .. } | A::Draw { .. })
    }
}

fn binary_scalar(x: &Tensor, op: BinaryOp, s: Scalar) -> Tensor {
    use BinaryOp as B;
    match op {
        B::Add => x.add_scalar(s),
        B::Sub => x.sub_scalar(s),
        B::Mul => x.mul_scalar(s),
        B::Div => x.div_scalar(s),
        B::FloorDiv => x.floor_divide_scalar(s),
        B::Remainder => x.remainder_scalar(s),
        B::Pow => x.pow_scalar(s),
        B::Maximum => x.maximum_scalar(s),
        B::Minimum => x.minimum_scalar(s),
        B::Atan2 => x.atan2_scalar(s),
        // These have no scalar form: the generator never asks for one.
        B::And | B::Or | B::Xor | B::LeftShift | B::RightShift | B::Gcd => x.clone(),
    }
}

impl Program {
    /// Whether a step's result is an input of another.
    pub fn is_used(&self, place: usize) -> bool {
        self.steps.iter().any(|step| step.inputs.contains(&place))
    }

    /// These steps and all steps that they depend on.
    pub fn ancestors(&self, of: &[usize]) -> Vec<bool> {
        let mut needed = vec![false; self.steps.len()];
        of.iter().for_each(|&i| needed[i] = true);
        for i in (0..self.steps.len()).rev() {
            if needed[i] {
                self.steps[i].inputs.iter().for_each(|&j| needed[j] = true);
            }
        }
        needed
    }
}
