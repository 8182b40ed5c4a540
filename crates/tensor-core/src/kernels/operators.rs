//! The functions that kernels compute, as enums with names: elementwise functions, comparisons,
//! reductions, scatters and random numbers.

use crate::elements::dtype::DType;

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
        /// Σx. Half types accumulate in f32, and each result is rounded once; integers wrap.
        Sum => "cumsum",
        /// Πx; otherwise like the sum.
        Prod => "cumprod",
        /// ln Σeˣ, floats only.
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
    /// The function that combines an element with one that is scattered to it, in an
    /// [`Op::Scatter`](crate::Op::Scatter).
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

/// The error of a gather with an index out of range, for an operation that has the gather as a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The user's operation.
    pub op: &'static str,
    /// The reason for which it refuses values; `None` if the index is the user's own (a label, a row of a
    /// table), so that the error is about that.
    pub message: Option<&'static str>,
}

impl Refusal {
    /// The error about an index of the user's, in the name of `op`.
    pub const fn of_index(op: &'static str) -> Refusal {
        Refusal { op, message: None }
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
