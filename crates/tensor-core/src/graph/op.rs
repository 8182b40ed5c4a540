//! Operations as data. Everything a tensor can be made by is a value of [`Op`]; all else is a composition.
//! The scheduler, the gradient rules, the graph pictures and the kernels each match on it in one place.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use crate::{
    base::{error::Result, shape::Shape},
    elements::scalar::Scalar,
    graph::handle::Tensor,
    kernels::{
        custom::CustomKernel,
        formula::Formula,
        operators::{
            ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, RandomKind, ReduceOp, Refusal, ScatterOp, UnaryOp,
        },
    },
};

/// The axes of an operation: two in place, more elsewhere, so that nodes stay small.
pub type OpAxes = SmallVec<[usize; 2]>;

/// What [`Op::Arange`] counts by.
#[derive(Clone, Debug)]
pub struct Progression {
    /// The first value.
    pub start: Scalar,
    /// The difference of neighbours.
    pub step: Scalar,
}

/// Where [`Op::Pad`] puts its input, and what it puts round it.
#[derive(Clone, Debug)]
pub struct Padding {
    /// Per axis: elements before the first.
    pub before: SmallVec<[usize; 5]>,
    /// Per axis: elements between neighbours.
    pub interior: SmallVec<[usize; 5]>,
    /// What fills the rest.
    pub value: Scalar,
}

/// Which axes of two operands and of their contraction are the same, by a label each, as the letters of
/// `einsum`. No label comes twice in one list; each of the result's is an operand's, and each of an operand's
/// is the result's or the other operand's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscripts {
    /// Of the left operand's axes.
    pub lhs: SmallVec<[u8; 8]>,
    /// Of the right operand's axes.
    pub rhs: SmallVec<[u8; 8]>,
    /// Of the result's axes.
    pub out: SmallVec<[u8; 8]>,
}

impl Subscripts {
    /// Those of a matrix product of operands with so many leading axes, aligned at the last, where the result
    /// has the more of them.
    pub(crate) fn matmul(lhs: usize, rhs: usize) -> Subscripts {
        let batch = lhs.max(rhs) as u8;
        let (m, k, n) = (batch, batch + 1, batch + 2);
        let of = |lead: usize, last: [u8; 2]| (batch - lead as u8..batch).chain(last).collect();
        Subscripts { lhs: of(lhs, [m, k]), rhs: of(rhs, [k, n]), out: of(batch as usize, [m, n]) }
    }

    fn is_matmul(&self) -> bool {
        match (&self.lhs[..], &self.rhs[..], &self.out[..]) {
            ([.., m, k], [.., l, n], [.., i, j]) => m == i && n == j && k == l,
            _ => false,
        }
    }
}

/// How a tensor was made from its inputs. What is rare and large is boxed: every node holds one of these.
///
/// An operation with several results (see [`Op::is_tuple`]) is one node, whose value is a tuple. Each result
/// is an [`Op::TupleElement`] of it, with a shape, a dtype and a life of its own.
#[derive(Clone, Debug)]
pub enum Op {
    /// Data from the host or another device, or a parameter: nothing to compute.
    Leaf,
    /// One value everywhere.
    Full(Scalar),
    /// `start + step·i` at flat index `i`, in the tensor's dtype (integers wrap).
    Arange(Box<Progression>),
    /// Random numbers from a block of a generator's stream.
    Random {
        /// Which distribution.
        kind: RandomKind,
        /// The generator's seed.
        seed: u64,
        /// The counter of the first element.
        offset: u64,
    },
    /// An elementwise function.
    Unary(UnaryOp),
    /// xⁿ by repeated multiplication (n < 0: of the reciprocal).
    Powi(i32),
    /// An elementwise function that kernels compute by others.
    Formula(Formula),
    /// An elementwise function of two broadcast inputs.
    Binary(BinaryOp),
    /// An elementwise comparison of two broadcast inputs.
    Compare(CompareOp),
    /// `condition ? a : b`, inputs in that order, broadcast.
    Where,
    /// Conversion to this tensor's dtype.
    Cast,
    /// The same elements under another shape.
    Reshape,
    /// Axes reordered: output axis `i` is input axis `axes[i]`.
    Permute(OpAxes),
    /// Broadcast to this tensor's shape.
    Expand,
    /// Every `step`-th element from `start` along one axis; a negative step walks backwards.
    Slice {
        /// The axis.
        axis: usize,
        /// Index of the first element taken.
        start: usize,
        /// Distance between elements taken; not 0.
        step: isize,
    },
    /// Windows along an axis, which may overlap: element `j` of window `i` is element `i·step + j·dilation`
    /// of the axis. Windows take the axis's place, and the elements of each are a new last axis.
    Unfold {
        /// The axis.
        axis: usize,
        /// Distance from window to window; not 0.
        step: usize,
        /// Distance from element to element of a window; not 0.
        dilation: usize,
    },
    /// The inputs one after the other along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// The input placed in a larger tensor of `value`: along each axis, element `i` goes to `before + i·(1 +
    /// interior)`.
    Pad(Box<Padding>),
    /// A reduction along `axes` (ascending).
    Reduce {
        /// Which.
        op: ReduceOp,
        /// The axes reduced, ascending.
        axes: OpAxes,
        /// Whether reduced axes stay, with size 1.
        keepdim: bool,
    },
    /// The index of an extreme along one axis, i32.
    ArgReduce {
        /// Which.
        op: ArgReduceOp,
        /// The axis reduced.
        axis: usize,
        /// Whether the axis stays, with size 1.
        keepdim: bool,
    },
    /// A cumulative operation along one axis.
    Cumulative {
        /// Which.
        op: CumulativeOp,
        /// The axis.
        axis: usize,
        /// Whether element i is made of the elements i.. instead of those up to it.
        reverse: bool,
    },
    /// A tuple: the elements along one axis in order, and their i32 indices. Equal elements keep the order of
    /// their indices. NaN is the greatest. As many as the results have along the axis, the first ones.
    Sort {
        /// The axis.
        axis: usize,
        /// Whether the greatest come first.
        descending: bool,
    },
    /// The sum of the products of two inputs over the axes that the result lacks: matrix products, and einsum
    /// of two.
    Contract(Box<Subscripts>),
    /// `out[i][j][k] = input[i][index[i][j][k]][k]` (for axis 1 of 3): inputs are the tensor and an index.
    Gather {
        /// The axis indexed.
        axis: usize,
        /// The meaning of an index outside the axis, where it is not a user's index.
        refusal: Option<&'static Refusal>,
    },
    /// `out = base; out[i][index[i][j][k]][k] = op(out[i][index[i][j][k]][k], src[i][j][k])` (for axis 1 of
    /// 3): inputs base, index, src. Repeated indices go in ascending order of j, so that results repeat bit
    /// by bit.
    Scatter {
        /// What the two become.
        op: ScatterOp,
        /// The axis indexed.
        axis: usize,
    },
    /// The same elements in a row-major buffer from its first element on: a copy where they do not lie so.
    Contiguous,
    /// A copy from another device.
    ToDevice,
    /// A tuple: the results of a user's own differentiable function. They were computed from the first inputs
    /// by other operations (or by a kernel of the user's own) without a tape, and are the last inputs. Each
    /// element reads its own result, so that this node is never evaluated: it is there for the tape.
    Custom(Arc<dyn CustomOp>),
    /// A tuple: the results of an operation from elsewhere, by a kernel of its own. It has no gradient, but
    /// an [`Op::Custom`] around it may; only [`Fourier`](crate::Fourier) has a rule on the tape.
    CustomKernel(Arc<dyn CustomKernel>),
    /// One result of an operation with several: the first input is the tuple. Of an [`Op::Custom`], the
    /// second is the result.
    TupleElement {
        /// The name of the tuple's operation.
        of: &'static str,
        /// Which result.
        index: usize,
    },
}

/// A differentiable function with a gradient of its own. See the `autograd` crate for the way to call one.
pub trait CustomOp: fmt::Debug + Send + Sync {
    /// The name shown as `grad_fn` and in graphs.
    fn name(&self) -> &'static str;

    /// Gradients for each input, given the inputs, the results, and the gradients with respect to the
    /// results: `None` for a result that was not used. Gives `None` where an input has no gradient.
    fn backward(
        &self,
        inputs: &[Tensor],
        results: &[Tensor],
        gradients: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>>;

    /// Whether the gradients are computed from the results too. If not, `backward` gets none, and none is
    /// kept for it.
    fn reads_results(&self) -> bool {
        true
    }
}

/// Which tensors a gradient rule reads: so that evaluation keeps these and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Bit `i` is set when the rule reads input `i`.
    pub inputs: u32,
    /// Bit `k` is set when the rule reads result `k`: bit 0 is the output of an operation with one.
    pub results: u32,
}

/// How an operation comes by its results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A tensor in memory: its value is there from the start.
    Leaf,
    /// Each element is a function of its position alone: there are no inputs.
    Generator,
    /// Each element is a function of the inputs' elements at its position.
    Elementwise,
    /// The last input's buffer, seen another way.
    View,
    /// Several results.
    Tuple,
    /// One result, which is reduced, contracted, read by indices, put together or copied to another device.
    Other,
}

impl Op {
    /// The name in error messages, in PyTorch's words.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Leaf => "leaf",
            Op::Full(_) => "full",
            Op::Arange(_) => "arange",
            Op::Random { kind, .. } => kind.name(),
            Op::Unary(op) => op.name(),
            Op::Powi(_) => "powi",
            Op::Formula(formula) => formula.name(),
            Op::Binary(op) => op.name(),
            Op::Compare(op) => op.name(),
            Op::Where => "where",
            Op::Cast => "to_dtype",
            Op::Reshape => "reshape",
            Op::Permute(_) => "permute",
            Op::Expand => "expand",
            Op::Slice { .. } => "slice",
            Op::Unfold { .. } => "unfold",
            Op::Concat { .. } => "concat",
            Op::Pad(_) => "pad",
            Op::Reduce { op, .. } => op.name(),
            Op::ArgReduce { op, .. } => op.name(),
            Op::Cumulative { op, .. } => op.name(),
            Op::Sort { .. } => "sort",
            Op::Contract(subscripts) if subscripts.is_matmul() => "matmul",
            Op::Contract(_) => "einsum",
            Op::Gather { .. } => "gather",
            Op::Scatter { op, .. } => op.name(),
            Op::Contiguous => "contiguous",
            Op::ToDevice => "to",
            Op::Custom(op) => op.name(),
            Op::CustomKernel(kernel) => kernel.name(),
            Op::TupleElement { of, .. } => of,
        }
    }

    /// The name as it is printed after `grad_fn=`: the operation's, in capitals, as in `Mean` or `MatMul`.
    pub fn grad_name(&self) -> String {
        if let Op::Contract(subscripts) = self
            && subscripts.is_matmul()
        {
            return "MatMul".into();
        }
        if let Op::Powi(_) = self {
            return "Pow".into();
        }
        let capital = |word: &str| {
            let mut chars = word.chars();
            chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect::<Vec<_>>()
        };
        self.name().split('_').flat_map(capital).collect()
    }

    /// Whether there are several results: the node's own value is never read, but those of its elements.
    pub fn is_tuple(&self) -> bool {
        self.class() == Class::Tuple
    }

    /// Whether the output is computed element by element over one index space, and so can fuse.
    pub fn is_elementwise(&self) -> bool {
        matches!(self.class(), Class::Generator | Class::Elementwise)
    }

    /// Whether an element depends on its flat position, and so means nothing in a kernel over another space.
    pub(crate) fn is_positional(&self) -> bool {
        matches!(self, Op::Arange(_) | Op::Random { .. })
    }

    /// Whether there are no inputs.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self.class(), Class::Leaf | Class::Generator)
    }

    /// Whether the output is another view of the last input's buffer, where strides can express it.
    pub fn is_view(&self) -> bool {
        self.class() == Class::View
    }

    /// A new operation gets its class here, and with it the answers above.
    const fn class(&self) -> Class {
        match self {
            Op::Leaf => Class::Leaf,
            Op::Full(_) | Op::Arange(_) | Op::Random { .. } => Class::Generator,
            Op::Unary(_)
            | Op::Powi(_)
            | Op::Formula(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Where
            | Op::Cast => Class::Elementwise,
            Op::Reshape
            | Op::Permute(_)
            | Op::Expand
            | Op::Slice { .. }
            | Op::Unfold { .. }
            | Op::Contiguous
            | Op::TupleElement { .. } => Class::View,
            Op::Sort { .. } | Op::Custom(_) | Op::CustomKernel(_) => Class::Tuple,
            Op::Concat { .. }
            | Op::Pad(_)
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::Cumulative { .. }
            | Op::Contract(_)
            | Op::Gather { .. }
            | Op::Scatter { .. }
            | Op::ToDevice => Class::Other,
        }
    }

    /// What this operation's gradient rule reads when the inputs in `wanted` (a bit each) want gradients. A
    /// rule that reads more still works, at the price of computing it anew.
    pub fn saved(&self, wanted: u32) -> Saved {
        // Of a product, each factor is read for the other's gradient.
        let others = (wanted & 1) << 1 | (wanted >> 1 & 1);
        use BinaryOp as B;
        use UnaryOp as U;
        let (inputs, results) = match self {
            Op::Unary(op) => match op {
                U::Exp | U::Sqrt | U::Rsqrt | U::Reciprocal | U::Tan | U::Relu => (0, 1),
                U::Abs
                | U::Expm1
                | U::Log
                | U::Log1p
                | U::Sin
                | U::Cos
                | U::Tanh
                | U::Sigmoid
                | U::Erf
                | U::Ndtr
                | U::Gaussian => (1, 0),
                U::Neg
                | U::Sign
                | U::Floor
                | U::Ceil
                | U::Round
                | U::Trunc
                | U::Not
                | U::IsNan
                | U::IsInf => (0, 0),
            },
            Op::Powi(_) => (1, 0),
            Op::Formula(formula) => formula.saved(),
            Op::Binary(op) => match op {
                B::Mul => (others, 0),
                B::Div => (0b10, u32::from(wanted & 0b10 != 0)),
                B::Remainder | B::Maximum | B::Minimum | B::Atan2 => (0b11, 0),
                B::Pow => (0b11, 1),
                B::Add | B::Sub | B::FloorDiv => (0, 0),
                B::And | B::Or | B::Xor | B::LeftShift | B::RightShift | B::Gcd => (0, 0),
            },
            Op::Where => (0b001, 0),
            Op::Reduce { op, .. } => match op {
                ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod => (1, 1),
                ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Any | ReduceOp::All => (0, 0),
            },
            Op::Cumulative { op, .. } => match op {
                CumulativeOp::Prod | CumulativeOp::LogSumExp => (1, 1),
                CumulativeOp::Sum | CumulativeOp::ArgMax | CumulativeOp::ArgMin => (0, 0),
            },
            Op::Contract(_) => (others, 0),
            Op::Gather { .. } => (0b10, 0),
            Op::Scatter { .. } => (0b10, 0),
            Op::Sort { .. } => (0, 0b10),
            Op::Custom(op) => (u32::MAX, if op.reads_results() { u32::MAX } else { 0 }),
            Op::Leaf
            | Op::Full(_)
            | Op::Arange(_)
            | Op::Random { .. }
            | Op::Compare(_)
            | Op::Cast
            | Op::Reshape
            | Op::Permute(_)
            | Op::Expand
            | Op::Slice { .. }
            | Op::Unfold { .. }
            | Op::Concat { .. }
            | Op::Pad(_)
            | Op::ArgReduce { .. }
            | Op::Contiguous
            | Op::ToDevice
            | Op::CustomKernel(_)
            | Op::TupleElement { .. } => (0, 0),
        };
        Saved { inputs, results }
    }
}

/// The shape of `pad` over `shape`: `before + after` more along each axis. Sizes that pass `usize` are held
/// at its end, where no shape is that a tensor can have.
pub(crate) fn padded(shape: &Shape, padding: &[(usize, usize)]) -> Shape {
    shape.iter().zip(padding).map(|(&d, p)| p.0.saturating_add(d).saturating_add(p.1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten thousand waiting nodes hold as many operations.
    #[test]
    fn operations_stay_small() {
        assert!(size_of::<Op>() <= 32, "{} bytes", size_of::<Op>());
    }
}
