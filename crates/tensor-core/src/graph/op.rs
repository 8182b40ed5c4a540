//! [`Op`]: operations as data. Every node of the graph has one; all other operations are compositions.
//! The scheduler, the gradient rules, the graph pictures and the kernels each match on it in one place.

use std::{fmt, mem, sync::Arc};

use smallvec::SmallVec;

use crate::{
    base::{error::Result, shape::Shape},
    elements::scalar::Scalar,
    graph::handle::Tensor,
    kernels::{
        custom::CustomKernel,
        formula::Formula,
        operators::{
            ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, NOTHING_READ, READS_BOTH, READS_INPUT,
            RandomKind, ReduceOp, Refusal, ScatterOp, UnaryOp, number_of,
        },
    },
};

/// The axes of an operation: up to two inline, more on the heap, so that nodes stay small.
pub type OpAxes = SmallVec<[usize; 2]>;

/// The start and step of [`Op::Arange`].
#[derive(Clone, Debug)]
pub struct Progression {
    /// The first value.
    pub start: Scalar,
    /// The difference between neighbours.
    pub step: Scalar,
}

/// The parameters of [`Op::Pad`]: the input's position in the result, and the fill value.
#[derive(Clone, Debug)]
pub struct Padding {
    /// Per axis: the number of elements before the first.
    pub before: SmallVec<[usize; 5]>,
    /// Per axis: the number of elements between neighbours.
    pub interior: SmallVec<[usize; 5]>,
    /// The fill value.
    pub value: Scalar,
}

/// Labels that identify the axes of two operands and of their contraction, like the letters of `einsum`.
/// No label occurs twice in one list; each label of the result is an operand's, and each label of an
/// operand is the result's or the other operand's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscripts {
    /// Labels of the left operand's axes.
    pub lhs: SmallVec<[u8; 8]>,
    /// Labels of the right operand's axes.
    pub rhs: SmallVec<[u8; 8]>,
    /// Labels of the result's axes.
    pub out: SmallVec<[u8; 8]>,
}

impl Subscripts {
    /// The subscripts of a matrix product whose operands have `lhs` and `rhs` leading axes. These are
    /// aligned at the last one; the result has as many as the operand with more.
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

/// The operation that makes a tensor from its inputs. Rare and large variants are boxed, since every
/// node holds one.
///
/// An operation with several results (see [`Op::is_tuple`]) is one node, whose value is a tuple. Each
/// result is an [`Op::TupleElement`] of it, with its own shape, dtype and lifetime.
#[derive(Clone, Debug)]
pub enum Op {
    /// Data from the host or another device, or a parameter: nothing to compute.
    Leaf,
    /// The same value everywhere.
    Full(Scalar),
    /// `start + step·i` at flat index `i`, in the tensor's dtype (integers wrap).
    Arange(Box<Progression>),
    /// Random numbers from a block of a generator's stream.
    Random {
        /// The distribution.
        kind: RandomKind,
        /// The generator's seed.
        seed: u64,
        /// The counter of the first element.
        offset: u64,
    },
    /// An elementwise function.
    Unary(UnaryOp),
    /// xⁿ by repeated multiplication (of the reciprocal for n < 0).
    Powi(i32),
    /// An elementwise function that kernels expand into others.
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
    /// Every `step`-th element from `start` along one axis; a negative step goes backwards.
    Slice {
        /// The axis.
        axis: usize,
        /// Index of the first element taken.
        start: usize,
        /// The distance between the elements; not 0.
        step: isize,
    },
    /// Windows along an axis, which may overlap: element `j` of window `i` is element `i·step +
    /// j·dilation` of the axis. The windows take the axis's place, and the elements of each are along a
    /// new last axis.
    Unfold {
        /// The axis.
        axis: usize,
        /// The distance between windows; not 0.
        step: usize,
        /// The distance between the elements of a window; not 0.
        dilation: usize,
    },
    /// The inputs one after the other along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// The input embedded in a larger tensor of `value`: along each axis, element `i` goes to `before +
    /// i·(1 + interior)`.
    Pad(Box<Padding>),
    /// A reduction along `axes` (ascending).
    Reduce {
        /// The reduction.
        op: ReduceOp,
        /// The axes reduced, ascending.
        axes: OpAxes,
        /// Whether reduced axes are kept with size 1.
        keepdim: bool,
    },
    /// The i32 index of an extreme along one axis.
    ArgReduce {
        /// The kind of extreme.
        op: ArgReduceOp,
        /// The axis reduced.
        axis: usize,
        /// Whether the axis is kept with size 1.
        keepdim: bool,
    },
    /// A cumulative operation along one axis.
    Cumulative {
        /// The operation.
        op: CumulativeOp,
        /// The axis.
        axis: usize,
        /// Whether result i depends on the elements i.. instead of ..=i.
        reverse: bool,
    },
    /// A tuple: the elements along one axis in sorted order, and their i32 indices. The sort is stable,
    /// and NaN is the greatest. The results have the first elements, as many as their size along the
    /// axis.
    Sort {
        /// The axis.
        axis: usize,
        /// Whether the order is descending.
        descending: bool,
    },
    /// The sum of the products of two inputs over the axes that the result lacks: matrix products, and
    /// einsum of two.
    Contract(Box<Subscripts>),
    /// `out[i][j][k] = input[i][index[i][j][k]][k]` (for axis 1 of 3): inputs are the tensor and an index.
    Gather {
        /// The axis indexed.
        axis: usize,
        /// The error of an out-of-range index, if the gather is a part of another operation.
        refusal: Option<&'static Refusal>,
    },
    /// `out = base; out[i][index[i][j][k]][k] = op(out[i][index[i][j][k]][k], src[i][j][k])` (for axis 1
    /// of 3): inputs base, index, src. Repeated indices apply in ascending order of j, so that results
    /// are reproducible bit for bit.
    Scatter {
        /// The function that combines the two.
        op: ScatterOp,
        /// The axis indexed.
        axis: usize,
    },
    /// The same elements in a row-major buffer from its first element on; a copy unless they are already.
    Contiguous,
    /// A copy from another device.
    ToDevice,
    /// A tuple: the results of a user's own differentiable function. They were computed from the first
    /// inputs without a tape, by other operations or a custom kernel, and are the last inputs. Each
    /// element reads its own result, so this node is never evaluated: it exists for the tape.
    Custom(Arc<dyn CustomOp>),
    /// A tuple: the results of a custom kernel. It has no gradient of its own, but an [`Op::Custom`]
    /// around it may; only [`Fourier`](crate::Fourier) has a gradient rule.
    CustomKernel(Arc<dyn CustomKernel>),
    /// One result of an operation with several: the first input is the tuple. For an [`Op::Custom`], the
    /// second input is the result.
    TupleElement {
        /// The name of the tuple's operation.
        of: &'static str,
        /// The number of the result.
        index: usize,
    },
}

/// A differentiable function with its own gradient. The `autograd` crate shows how to call one.
pub trait CustomOp: fmt::Debug + Send + Sync {
    /// The name shown as `grad_fn` and in graphs.
    fn name(&self) -> &'static str;

    /// The gradient of each input, from the inputs, the results, and the gradients of the results:
    /// `None` for a result that was not used. Returns `None` for an input without a gradient.
    fn backward(
        &self,
        inputs: &[Tensor],
        results: &[Tensor],
        gradients: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>>;

    /// Whether the gradients also depend on the results. If not, `backward` gets none, and none are kept
    /// for it.
    fn reads_results(&self) -> bool {
        true
    }
}

/// The tensors that a gradient rule reads: evaluation keeps these and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Bit `i` is set when the rule reads input `i`.
    pub inputs: u32,
    /// Bit `k` is set when the rule reads result `k`; bit 0 is the output of an operation with only one.
    pub results: u32,
}

/// An operation by the way in which it gets its results, with its parameters: see [`Op::class`].
#[derive(Clone, Copy, Debug)]
pub enum OpClass<'a> {
    /// A tensor in memory, which has its value from the start.
    Leaf,
    /// Each element is a function of its position, and of the inputs' elements there.
    Expression(Expression<'a>),
    /// Another view of the last input's buffer, if strides can express it.
    View(ViewOp<'a>),
    /// Several results.
    Tuple(TupleOp<'a>),
    /// One result by any other means.
    Other(OtherOp<'a>),
}

/// An elementwise operation, of those that [`Op`] describes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the variants are those of `Op`
pub enum Expression<'a> {
    Full(&'a Scalar),
    Arange(&'a Progression),
    Random(RandomKind),
    Unary(UnaryOp),
    Powi(i32),
    Formula(Formula),
    Binary(BinaryOp),
    Compare(CompareOp),
    Where,
    Cast,
}

/// An operation that shows its input's elements in another order or shape, of those that [`Op`] describes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the variants are those of `Op`
pub enum ViewOp<'a> {
    Reshape,
    Permute(&'a [usize]),
    Expand,
    Slice { axis: usize, start: usize, step: isize },
    Unfold { axis: usize, step: usize, dilation: usize },
    Contiguous,
    TupleElement { index: usize },
}

/// An operation with several results, of those that [`Op`] describes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the variants are those of `Op`
pub enum TupleOp<'a> {
    Sort { axis: usize, descending: bool },
    Custom(&'a Arc<dyn CustomOp>),
    CustomKernel(&'a Arc<dyn CustomKernel>),
}

/// A reduction, a contraction, an operation at indices, a copy, of those that [`Op`] describes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the variants are those of `Op`
pub enum OtherOp<'a> {
    Concat { axis: usize },
    Pad(&'a Padding),
    Reduce { op: ReduceOp, axes: &'a [usize], keepdim: bool },
    ArgReduce { op: ArgReduceOp, axis: usize, keepdim: bool },
    Cumulative { op: CumulativeOp, axis: usize, reverse: bool },
    Contract(&'a Subscripts),
    Gather { axis: usize },
    Scatter { op: ScatterOp, axis: usize },
    ToDevice,
}

/// An operation's name as after `grad_fn=`: see [`Op::grad_name`].
pub(crate) fn camel_case(name: &str) -> String {
    let capital = |word: &str| {
        let mut chars = word.chars();
        chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect::<Vec<_>>()
    };
    match name {
        "matmul" => "MatMul".into(),
        "powi" => "Pow".into(),
        name => name.split('_').flat_map(capital).collect(),
    }
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

    /// The name as printed after `grad_fn=`: the operation's name in camel case, such as `Mean` or
    /// `MatMul`.
    pub fn grad_name(&self) -> String {
        camel_case(self.name())
    }

    /// Whether there are several results: the node's elements have values, the node itself never does.
    pub fn is_tuple(&self) -> bool {
        matches!(self.class(), OpClass::Tuple(_))
    }

    /// Whether the output is computed element by element over one index space, and can therefore be
    /// fused.
    pub fn is_elementwise(&self) -> bool {
        matches!(self.class(), OpClass::Expression(_))
    }

    /// Whether an element depends on its flat position, and so cannot be computed in a kernel over
    /// another space.
    pub(crate) fn is_positional(&self) -> bool {
        matches!(self, Op::Arange(_) | Op::Random { .. })
    }

    /// Whether there are no inputs.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self, Op::Leaf | Op::Full(_) | Op::Arange(_) | Op::Random { .. })
    }

    /// Whether the output is another view of the last input's buffer, if strides can express it.
    pub fn is_view(&self) -> bool {
        matches!(self.class(), OpClass::View(_))
    }

    /// The class of the operation, from which the predicates above follow. Code that treats a class alike
    /// matches on it instead of on all operations.
    pub fn class(&self) -> OpClass<'_> {
        use self::Expression as E;
        use OpClass::{Expression, Other, Tuple, View};
        use OtherOp as O;
        use TupleOp as T;
        use ViewOp as V;
        match *self {
            Op::Leaf => OpClass::Leaf,
            Op::Full(ref value) => Expression(E::Full(value)),
            Op::Arange(ref progression) => Expression(E::Arange(progression)),
            Op::Random { kind, .. } => Expression(E::Random(kind)),
            Op::Unary(op) => Expression(E::Unary(op)),
            Op::Powi(n) => Expression(E::Powi(n)),
            Op::Formula(formula) => Expression(E::Formula(formula)),
            Op::Binary(op) => Expression(E::Binary(op)),
            Op::Compare(op) => Expression(E::Compare(op)),
            Op::Where => Expression(E::Where),
            Op::Cast => Expression(E::Cast),
            Op::Reshape => View(V::Reshape),
            Op::Permute(ref axes) => View(V::Permute(axes)),
            Op::Expand => View(V::Expand),
            Op::Slice { axis, start, step } => View(V::Slice { axis, start, step }),
            Op::Unfold { axis, step, dilation } => View(V::Unfold { axis, step, dilation }),
            Op::Contiguous => View(V::Contiguous),
            Op::TupleElement { index, .. } => View(V::TupleElement { index }),
            Op::Sort { axis, descending } => Tuple(T::Sort { axis, descending }),
            Op::Custom(ref op) => Tuple(T::Custom(op)),
            Op::CustomKernel(ref kernel) => Tuple(T::CustomKernel(kernel)),
            Op::Concat { axis } => Other(O::Concat { axis }),
            Op::Pad(ref padding) => Other(O::Pad(padding)),
            Op::Reduce { op, ref axes, keepdim } => Other(O::Reduce { op, axes, keepdim }),
            Op::ArgReduce { op, axis, keepdim } => Other(O::ArgReduce { op, axis, keepdim }),
            Op::Cumulative { op, axis, reverse } => Other(O::Cumulative { op, axis, reverse }),
            Op::Contract(ref subscripts) => Other(O::Contract(subscripts)),
            Op::Gather { axis, .. } => Other(O::Gather { axis }),
            Op::Scatter { op, axis } => Other(O::Scatter { op, axis }),
            Op::ToDevice => Other(O::ToDevice),
        }
    }

    /// A number of the variant, for keys of plans.
    pub(crate) fn number(&self) -> u64 {
        number_of(&mem::discriminant(self))
    }

    /// The tensors that this operation's gradient rule reads if the inputs in `wanted` (a bit each) need
    /// gradients. A rule that reads more still works, but the tensor is then computed again.
    pub fn saved(&self, wanted: u32) -> Saved {
        // The gradient of each factor of a product reads the other one.
        let others = (wanted & 1) << 1 | (wanted >> 1 & 1);
        use BinaryOp as B;
        use Expression as E;
        let (inputs, results) = match self.class() {
            OpClass::Leaf | OpClass::View(_) => NOTHING_READ,
            OpClass::Expression(expression) => match expression {
                E::Unary(op) => op.saved(),
                E::Powi(_) => READS_INPUT,
                E::Formula(formula) => formula.saved(),
                E::Binary(op) => match op {
                    B::Mul => (others, 0),
                    B::Div => (0b10, u32::from(wanted & 0b10 != 0)),
                    B::Remainder | B::Maximum | B::Minimum | B::Atan2 => (0b11, 0),
                    B::Pow => (0b11, 1),
                    B::Add | B::Sub | B::FloorDiv => NOTHING_READ,
                    B::And | B::Or | B::Xor | B::LeftShift | B::RightShift | B::Gcd => NOTHING_READ,
                },
                E::Where => READS_INPUT,
                E::Full(_) | E::Arange(_) | E::Random(_) | E::Compare(_) | E::Cast => NOTHING_READ,
            },
            OpClass::Tuple(tuple) => match tuple {
                TupleOp::Sort { .. } => (0, 0b10),
                TupleOp::Custom(op) => (u32::MAX, if op.reads_results() { u32::MAX } else { 0 }),
                TupleOp::CustomKernel(_) => NOTHING_READ,
            },
            OpClass::Other(other) => match other {
                OtherOp::Reduce { op, .. } => op.saved(),
                OtherOp::Cumulative { op, .. } => match op {
                    CumulativeOp::Prod | CumulativeOp::LogSumExp => READS_BOTH,
                    CumulativeOp::Sum | CumulativeOp::ArgMax | CumulativeOp::ArgMin => NOTHING_READ,
                },
                OtherOp::Contract(_) => (others, 0),
                OtherOp::Gather { .. } | OtherOp::Scatter { .. } => (0b10, 0),
                OtherOp::Concat { .. } | OtherOp::Pad(_) => NOTHING_READ,
                OtherOp::ArgReduce { .. } | OtherOp::ToDevice => NOTHING_READ,
            },
        };
        Saved { inputs, results }
    }
}

/// The shape of `pad` over `shape`: `before + after` more along each axis. Sizes saturate at
/// `usize::MAX`, which is beyond the limit of any tensor.
pub(crate) fn padded(shape: &Shape, padding: &[(usize, usize)]) -> Shape {
    shape.iter().zip(padding).map(|(&d, p)| p.0.saturating_add(d).saturating_add(p.1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pending node holds an operation, so its size matters.
    #[test]
    fn operations_stay_small() {
        assert!(size_of::<Op>() <= 32, "{} bytes", size_of::<Op>());
    }
}
