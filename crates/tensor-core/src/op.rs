//! [`Op`]: operations as data. Every node of the graph has one; all other operations are compositions.
//! The scheduler, the gradient rules, the graph pictures and the kernels each match on it in one place.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use crate::{CustomKernel, DType, Formula, Result, Scalar, Shape, Tensor};

macro_rules! names {
    ($(#[$m:meta])* $v:vis enum $name:ident { $($(#[$d:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $v enum $name { $($(#[$d])* $variant,)* }
        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// The name of the tensor method.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

names! {
    /// Elementwise functions of one tensor. NaN in gives NaN out, except for `Sign`; formulas are for
    /// real x.
    pub enum UnaryOp {
        /// −x; wraps for integers.
        Neg => "neg",
        /// |x|; wraps for integers.
        Abs => "abs",
        /// −1, 0 or 1 by the sign of x; 0 for both zeros and for NaN.
        Sign => "sign",
        /// eˣ.
        Exp => "exp",
        /// eˣ − 1, accurate near 0.
        Expm1 => "expm1",
        /// ln x; −∞ at 0, NaN below.
        Log => "log",
        /// ln(1 + x), accurate near 0.
        Log1p => "log1p",
        /// √x; NaN below 0.
        Sqrt => "sqrt",
        /// 1 / √x.
        Rsqrt => "rsqrt",
        /// 1 / x.
        Reciprocal => "reciprocal",
        /// sin x, radians.
        Sin => "sin",
        /// cos x, radians.
        Cos => "cos",
        /// tan x, radians.
        Tan => "tan",
        /// tanh x.
        Tanh => "tanh",
        /// 1 / (1 + e⁻ˣ).
        Sigmoid => "sigmoid",
        /// max(x, 0); NaN for NaN, −0 for −0.
        Relu => "relu",
        /// The error function, 2/√π ∫₀ˣ e^(−t²) dt.
        Erf => "erf",
        /// The standard normal distribution function Φ(x), accurate in the lower tail.
        Ndtr => "ndtr",
        /// e^(−x²/2).
        Gaussian => "gaussian",
        /// The greatest integer ≤ x.
        Floor => "floor",
        /// The least integer ≥ x.
        Ceil => "ceil",
        /// The nearest integer, halves to even.
        Round => "round",
        /// x truncated toward zero.
        Trunc => "trunc",
        /// Logical not of a bool, bitwise not of an integer.
        Not => "not",
        /// Whether x is NaN; gives bool.
        IsNan => "isnan",
        /// Whether x is +∞ or −∞; gives bool.
        IsInf => "isinf",
    }
}

names! {
    /// Elementwise functions of two tensors of one dtype, broadcast together.
    pub enum BinaryOp {
        /// a + b; integers wrap. Logical or for bool.
        Add => "add",
        /// a − b; integers wrap. Not for bool.
        Sub => "sub",
        /// a · b; integers wrap. Logical and for bool.
        Mul => "mul",
        /// a / b, floats only (the method converts integers to floats first).
        Div => "div",
        /// ⌊a / b⌋ of the exact quotient, as in Python and PyTorch: (a − r) / b rounded to an integer,
        /// with r the remainder below; so 1.0 by 0.1 is 9, and −5 by ∞ is −1. For b = 0, floats give a /
        /// b and integers 0.
        FloorDiv => "floor_divide",
        /// a − b·⌊a / b⌋: the remainder of truncating division, which is exact, plus b if that remainder
        /// is nonzero and its sign differs from b's. For b = 0, floats give NaN and integers 0.
        Remainder => "remainder",
        /// aᵇ as IEEE `pow`; a negative base with an integral exponent is defined. For integers a negative
        /// exponent gives 0 except for bases 1 and −1, and products wrap.
        Pow => "pow",
        /// The greater; NaN if either is NaN.
        Maximum => "maximum",
        /// The lesser; NaN if either is NaN.
        Minimum => "minimum",
        /// The angle of the point (b, a), in (−π, π].
        Atan2 => "atan2",
        /// Logical or bitwise and (bool and integers).
        And => "bitwise_and",
        /// Logical or bitwise or (bool and integers).
        Or => "bitwise_or",
        /// Logical or bitwise exclusive or (bool and integers).
        Xor => "bitwise_xor",
        /// a · 2ᵇ for integers; bits beyond the dtype are lost. 0 if b is negative or at least the bits
        /// of the dtype.
        LeftShift => "bitwise_left_shift",
        /// ⌊a / 2ᵇ⌋ for integers. If b is negative or at least the bits of the dtype: 0, or −1 for
        /// negative a.
        RightShift => "bitwise_right_shift",
        /// The greatest common divisor of integers, not negative; |b| for b and 0.
        Gcd => "gcd",
    }
}

names! {
    /// Elementwise comparisons of two tensors of one dtype; they give bool. A NaN makes all but `Ne` false.
    pub enum CompareOp {
        /// a = b.
        Eq => "eq",
        /// a ≠ b.
        Ne => "ne",
        /// a < b.
        Lt => "lt",
        /// a ≤ b.
        Le => "le",
        /// a > b.
        Gt => "gt",
        /// a ≥ b.
        Ge => "ge",
    }
}

names! {
    /// Reductions along axes. `Max` and `Min` propagate NaN.
    pub enum ReduceOp {
        /// Σx; 0 for no elements.
        Sum => "sum",
        /// Σx / n; NaN for no elements. Floats only.
        Mean => "mean",
        /// Πx; 1 for no elements.
        Prod => "prod",
        /// The greatest.
        Max => "max",
        /// The least.
        Min => "min",
        /// Whether any is true; bool only.
        Any => "any",
        /// Whether all are true; bool only.
        All => "all",
    }
}

names! {
    /// Reductions to the index of an element. The first of equal elements wins; a NaN counts as the
    /// extreme.
    pub enum ArgReduceOp {
        /// The index of the greatest.
        ArgMax => "argmax",
        /// The index of the least.
        ArgMin => "argmin",
    }
}

names! {
    /// Cumulative operations along an axis: result i depends on elements 0..=i.
    pub enum CumulativeOp {
        /// Σx. Half types are summed in f32, and each output is rounded once; integers wrap.
        Sum => "cumsum",
        /// Σx. Half types accumulate in f32, and each result is rounded once; integers wrap.
        Prod => "cumprod",
        /// Πx; otherwise like the sum.
        LogSumExp => "logcumsumexp",
        /// The i32 index of the greatest element so far: the last of equal ones, and that of the last
        /// NaN once there is one.
        ArgMax => "cummax",
        /// The index of the least element so far, likewise.
        ArgMin => "cummin",
    }
}

impl CumulativeOp {
    /// Whether the results are indices.
    pub const fn is_arg(self) -> bool {
        matches!(self, CumulativeOp::ArgMax | CumulativeOp::ArgMin)
    }
}

names! {
    /// The function that combines an element with one that is scattered to it, in an [`Op::Scatter`].
    pub enum ScatterOp {
        /// Their sum; integers wrap. Half types accumulate in f32, and each output is rounded once. Not
        /// every device has it for bool.
        Add => "scatter_add",
        /// The greater; NaN if either is NaN.
        Max => "scatter_max",
        /// The lesser; NaN if either is NaN.
        Min => "scatter_min",
        /// The scattered one: of several, the last along the axis.
        Replace => "scatter",
    }
}

impl ScatterOp {
    /// The function of the two; `None` if the old element is ignored.
    pub const fn binary(self) -> Option<BinaryOp> {
        match self {
            ScatterOp::Add => Some(BinaryOp::Add),
            ScatterOp::Max => Some(BinaryOp::Maximum),
            ScatterOp::Min => Some(BinaryOp::Minimum),
            ScatterOp::Replace => None,
        }
    }
}

names! {
    /// Counter-based random numbers (Philox4x32-10, Salmon et al. 2011). Element `i` of a draw uses the
    /// block with key = the generator's seed and counter = [lo, hi, 0, 0] of `offset + i`, whose words
    /// are w0..w3.
    pub enum RandomKind {
        /// Uniform on [0, 1): `(w0 >> 8)·2⁻²⁴` in f32, `((w0·2³² + w1) >> 11)·2⁻⁵³` in f64. A half type
        /// truncates the f32 draw to its precision, `(w0 >> 21)·2⁻¹¹` in f16 and `(w0 >> 24)·2⁻⁸` in
        /// bf16, so that no draw rounds up to 1.
        Uniform => "rand",
        /// Standard normal by Box and Muller: √(−2 ln u₁)·cos(2π u₂), with u₁ = ((w0 >> 8) + 1)·2⁻²⁴ and
        /// u₂ = (w1 >> 8)·2⁻²⁴ in f32; in f64, u₁ = (((w0·2³² + w1) >> 11) + 1)·2⁻⁵³, and u₂ from w2 and
        /// w3 likewise, without the + 1.
        Normal => "randn",
        /// The word w0 as u32.
        Bits => "random_bits",
    }
}

/// The axes of an operation: up to two inline, more on the heap, so that nodes stay small.
pub type OpAxes = SmallVec<[usize; 2]>;

/// The error of a check of values on the device: the operation that refuses them, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The user's operation.
    pub op: &'static str,
    /// The reason.
    pub message: &'static str,
}

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
        /// The error of an out-of-range index that is not the user's own.
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

/// The way in which an operation gets its results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A tensor in memory, which has its value from the start.
    Leaf,
    /// Each element is a function of its position only: there are no inputs.
    Generator,
    /// Each element is a function of the inputs' elements at its position.
    Elementwise,
    /// Another view of the last input's buffer.
    View,
    /// Several results.
    Tuple,
    /// One result by any other means: reduction, contraction, indexing, concatenation, or a copy from
    /// another device.
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

    /// The name as printed after `grad_fn=`: the operation's name in camel case, such as `Mean` or
    /// `MatMul`.
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

    /// Whether there are several results: the node's elements have values, the node itself never does.
    pub fn is_tuple(&self) -> bool {
        self.class() == Class::Tuple
    }

    /// Whether the output is computed element by element over one index space, and can therefore be
    /// fused.
    pub fn is_elementwise(&self) -> bool {
        matches!(self.class(), Class::Generator | Class::Elementwise)
    }

    /// Whether an element depends on its flat position, and so cannot be computed in a kernel over
    /// another space.
    pub(crate) fn is_positional(&self) -> bool {
        matches!(self, Op::Arange(_) | Op::Random { .. })
    }

    /// Whether there are no inputs.
    pub(crate) fn is_source(&self) -> bool {
        matches!(self.class(), Class::Leaf | Class::Generator)
    }

    /// Whether the output is another view of the last input's buffer, if strides can express it.
    pub fn is_view(&self) -> bool {
        self.class() == Class::View
    }

    /// The class of the operation, from which the predicates above follow.
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

    /// The tensors that this operation's gradient rule reads if the inputs in `wanted` (a bit each) need
    /// gradients. A rule that reads more still works, but the tensor is then computed again.
    pub fn saved(&self, wanted: u32) -> Saved {
        // The gradient of each factor of a product reads the other one.
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

impl UnaryOp {
    /// Whether a result for a narrow type, computed in the wider one, may be a number that the narrow
    /// type lacks.
    pub(crate) const fn leaves(self, dtype: DType) -> bool {
        match self {
            // The least integer has no negative, and unsigned ones have none at all.
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not => !dtype.is_float(),
            UnaryOp::Sign
            | UnaryOp::Relu
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Trunc
            | UnaryOp::IsNan
            | UnaryOp::IsInf => false,
            UnaryOp::Sqrt
            | UnaryOp::Rsqrt
            | UnaryOp::Reciprocal
            | UnaryOp::Exp
            | UnaryOp::Expm1
            | UnaryOp::Log
            | UnaryOp::Log1p
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tan
            | UnaryOp::Tanh
            | UnaryOp::Sigmoid
            | UnaryOp::Erf
            | UnaryOp::Ndtr
            | UnaryOp::Gaussian => true,
        }
    }

    /// The relative cost of computing it again, in additions.
    pub(crate) const fn cost(self) -> u32 {
        match self {
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sign
            | UnaryOp::Relu
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Trunc
            | UnaryOp::Not
            | UnaryOp::IsNan
            | UnaryOp::IsInf => 1,
            UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Reciprocal => 3,
            UnaryOp::Exp
            | UnaryOp::Expm1
            | UnaryOp::Log
            | UnaryOp::Log1p
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Tan
            | UnaryOp::Tanh
            | UnaryOp::Sigmoid
            | UnaryOp::Erf
            | UnaryOp::Ndtr
            | UnaryOp::Gaussian => 6,
        }
    }
}

impl BinaryOp {
    /// Whether a result for a narrow type, computed in the wider one, may be a number that the narrow
    /// type lacks.
    pub(crate) const fn leaves(self, dtype: DType) -> bool {
        match self {
            BinaryOp::Maximum
            | BinaryOp::Minimum
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::RightShift => false,
            BinaryOp::Remainder => dtype.is_float(),
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::FloorDiv
            | BinaryOp::Pow
            | BinaryOp::Atan2
            | BinaryOp::LeftShift
            // In i8 the greatest common divisor of −128 and 0 is 128.
            | BinaryOp::Gcd => true,
        }
    }

    /// Whether it is defined on bits or on integers only: floats lack it, and it has no gradient.
    pub const fn is_integral(self) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor) || self.is_of_numbers()
    }

    /// Whether it is defined on integers but not on bool.
    const fn is_of_numbers(self) -> bool {
        matches!(self, BinaryOp::LeftShift | BinaryOp::RightShift | BinaryOp::Gcd)
    }

    /// Whether the operation exists for a dtype, and advice for the error if not.
    pub(crate) const fn fits(self, dtype: DType) -> (bool, &'static str) {
        if self.is_of_numbers() {
            return (dtype.is_int(), "integers are needed; cast with .to_dtype(DType::I32)");
        }
        match self {
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                (!dtype.is_float(), "bool or integers are needed; compare first, or cast")
            }
            BinaryOp::Sub | BinaryOp::FloorDiv | BinaryOp::Remainder | BinaryOp::Pow => (
                !dtype.is_bool(),
                "bool has no such operation; cast with .to_dtype(DType::I32), or use logical ones",
            ),
            BinaryOp::Add
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Maximum
            | BinaryOp::Minimum
            | BinaryOp::Atan2
            | BinaryOp::LeftShift
            | BinaryOp::RightShift
            | BinaryOp::Gcd => (true, ""),
        }
    }

    /// The relative cost of computing it again, in additions.
    pub(crate) const fn cost(self) -> u32 {
        match self {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Maximum
            | BinaryOp::Minimum
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::LeftShift
            | BinaryOp::RightShift => 1,
            BinaryOp::Div => 2,
            BinaryOp::FloorDiv | BinaryOp::Remainder | BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Gcd => 6,
        }
    }
}

impl ReduceOp {
    /// Whether a result for a narrow type, computed in the wider one, may be a number that the narrow
    /// type lacks.
    pub(crate) const fn leaves(self) -> bool {
        match self {
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::Prod => true,
            ReduceOp::Max | ReduceOp::Min | ReduceOp::Any | ReduceOp::All => false,
        }
    }
}

/// The dtype of `op` applied to a tensor of dtype `dtype`.
pub(crate) fn unary_dtype(op: UnaryOp, dtype: DType) -> DType {
    if matches!(op, UnaryOp::IsNan | UnaryOp::IsInf) { DType::Bool } else { dtype }
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
