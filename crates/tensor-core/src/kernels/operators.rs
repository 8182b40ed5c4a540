//! The functions that kernels compute, as enums with names: elementwise functions, comparisons,
//! reductions, scatters and random numbers.

use std::{
    hash::{Hash, Hasher},
    mem,
};

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
    // A table: each row ends with what is known about the variant.
    ($(#[$m:meta])* $v:vis enum $name:ident: $facts:ty {
        $($(#[$d:meta])* $variant:ident => $text:literal, $row:expr;)*
    }) => {
        names! { $(#[$m])* $v enum $name { $($(#[$d])* $variant => $text,)* } }
        impl $name {
            const fn facts(self) -> $facts {
                match self { $($name::$variant => $row,)* }
            }
        }
    };
}

/// The dtypes for which a function of one tensor exists, and that of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryDomain {
    /// A function of real numbers: floats only.
    Real,
    /// A function of numbers: floats and integers.
    Numbers,
    /// A rounding to integers, which changes no integer.
    Rounding,
    /// A test of floats, with a result of bool; false for all others.
    Test,
    /// A function of bits: bool and integers.
    Bits,
}

/// The dtypes for which a function of two tensors exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryDomain {
    /// Every dtype, where bool counts as 0 and 1.
    All,
    /// A function of real numbers: all others are cast to floats first.
    Real,
    /// All except bool.
    Numbers,
    /// Bool and integers.
    Bits,
    /// Integers except bool.
    Integers,
}

/// The narrow types that may lack the result of a function of theirs, computed in a wider type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    None,
    Integers,
    Floats,
    All,
}

impl Leaves {
    const fn has(self, dtype: DType) -> bool {
        match self {
            Leaves::None => false,
            Leaves::Integers => !dtype.is_float(),
            Leaves::Floats => dtype.is_float(),
            Leaves::All => true,
        }
    }
}

/// The inputs and the results that a gradient rule reads, a bit for each.
pub(crate) type Reads = (u32, u32);
pub(crate) const NOTHING_READ: Reads = (0, 0);
pub(crate) const READS_INPUT: Reads = (1, 0);
pub(crate) const READS_RESULT: Reads = (0, 1);
pub(crate) const READS_BOTH: Reads = (1, 1);

/// The facts of a function of one tensor: its domain, the narrow types that lack some of its results,
/// the cost of computing it again, in additions, and what its gradient reads.
struct UnaryFacts(UnaryDomain, Leaves, u32, Reads);

/// The facts of a function of two tensors: its domain, the narrow types that lack some of its
/// results, and the cost of computing it again, in additions.
struct BinaryFacts(BinaryDomain, Leaves, u32);

/// The facts of a reduction: whether a narrow type may lack its result, and what its gradient reads.
struct ReduceFacts(bool, Reads);

names! {
    /// Elementwise functions of one tensor. NaN in gives NaN out, except for `Sign`; formulas are for
    /// real x.
    pub enum UnaryOp: UnaryFacts {
        /// −x; wraps for integers.
        Neg => "neg", UnaryFacts(UnaryDomain::Numbers, Leaves::Integers, 1, NOTHING_READ);
        /// |x|; wraps for integers.
        Abs => "abs", UnaryFacts(UnaryDomain::Numbers, Leaves::Integers, 1, READS_INPUT);
        /// −1, 0 or 1 by the sign of x; 0 for both zeros and for NaN.
        Sign => "sign", UnaryFacts(UnaryDomain::Numbers, Leaves::None, 1, NOTHING_READ);
        /// eˣ.
        Exp => "exp", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_RESULT);
        /// eˣ − 1, accurate near 0.
        Expm1 => "expm1", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// ln x; −∞ at 0, NaN below.
        Log => "log", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// ln(1 + x), accurate near 0.
        Log1p => "log1p", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// √x; NaN below 0.
        Sqrt => "sqrt", UnaryFacts(UnaryDomain::Real, Leaves::All, 3, READS_RESULT);
        /// 1 / √x.
        Rsqrt => "rsqrt", UnaryFacts(UnaryDomain::Real, Leaves::All, 3, READS_RESULT);
        /// 1 / x.
        Reciprocal => "reciprocal", UnaryFacts(UnaryDomain::Real, Leaves::All, 3, READS_RESULT);
        /// sin x, radians.
        Sin => "sin", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// cos x, radians.
        Cos => "cos", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// tan x, radians.
        Tan => "tan", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_RESULT);
        /// tanh x.
        Tanh => "tanh", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// 1 / (1 + e⁻ˣ).
        Sigmoid => "sigmoid", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// max(x, 0); NaN for NaN, −0 for −0.
        Relu => "relu", UnaryFacts(UnaryDomain::Numbers, Leaves::None, 1, READS_RESULT);
        /// The error function, 2/√π ∫₀ˣ e^(−t²) dt.
        Erf => "erf", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// The standard normal distribution function Φ(x), accurate in the lower tail.
        Ndtr => "ndtr", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// e^(−x²/2).
        Gaussian => "gaussian", UnaryFacts(UnaryDomain::Real, Leaves::All, 6, READS_INPUT);
        /// The greatest integer ≤ x.
        Floor => "floor", UnaryFacts(UnaryDomain::Rounding, Leaves::None, 1, NOTHING_READ);
        /// The least integer ≥ x.
        Ceil => "ceil", UnaryFacts(UnaryDomain::Rounding, Leaves::None, 1, NOTHING_READ);
        /// The nearest integer, halves to even.
        Round => "round", UnaryFacts(UnaryDomain::Rounding, Leaves::None, 1, NOTHING_READ);
        /// x truncated toward zero.
        Trunc => "trunc", UnaryFacts(UnaryDomain::Rounding, Leaves::None, 1, NOTHING_READ);
        /// Logical not of a bool, bitwise not of an integer.
        Not => "not", UnaryFacts(UnaryDomain::Bits, Leaves::Integers, 1, NOTHING_READ);
        /// Whether x is NaN; gives bool.
        IsNan => "isnan", UnaryFacts(UnaryDomain::Test, Leaves::None, 1, NOTHING_READ);
        /// Whether x is +∞ or −∞; gives bool.
        IsInf => "isinf", UnaryFacts(UnaryDomain::Test, Leaves::None, 1, NOTHING_READ);
    }
}

names! {
    /// Elementwise functions of two tensors of one dtype, broadcast together.
    pub enum BinaryOp: BinaryFacts {
        /// a + b; integers wrap. Logical or for bool.
        Add => "add", BinaryFacts(BinaryDomain::All, Leaves::All, 1);
        /// a − b; integers wrap. Not for bool.
        Sub => "sub", BinaryFacts(BinaryDomain::Numbers, Leaves::All, 1);
        /// a · b; integers wrap. Logical and for bool.
        Mul => "mul", BinaryFacts(BinaryDomain::All, Leaves::All, 1);
        /// a / b, floats only (the method converts integers to floats first).
        Div => "div", BinaryFacts(BinaryDomain::Real, Leaves::All, 2);
        /// ⌊a / b⌋ of the exact quotient, as in Python and PyTorch: (a − r) / b rounded to an integer,
        /// with r the remainder below; so 1.0 by 0.1 is 9, and −5 by ∞ is −1. For b = 0, floats give a /
        /// b and integers 0.
        FloorDiv => "floor_divide", BinaryFacts(BinaryDomain::Numbers, Leaves::All, 6);
        /// a − b·⌊a / b⌋: the remainder of truncating division, which is exact, plus b if that remainder
        /// is nonzero and its sign differs from b's. For b = 0, floats give NaN and integers 0.
        Remainder => "remainder", BinaryFacts(BinaryDomain::Numbers, Leaves::Floats, 6);
        /// aᵇ as IEEE `pow`; a negative base with an integral exponent is defined. For integers a negative
        /// exponent gives 0 except for bases 1 and −1, and products wrap.
        Pow => "pow", BinaryFacts(BinaryDomain::Numbers, Leaves::All, 6);
        /// The greater; NaN if either is NaN.
        Maximum => "maximum", BinaryFacts(BinaryDomain::All, Leaves::None, 1);
        /// The lesser; NaN if either is NaN.
        Minimum => "minimum", BinaryFacts(BinaryDomain::All, Leaves::None, 1);
        /// The angle of the point (b, a), in (−π, π].
        Atan2 => "atan2", BinaryFacts(BinaryDomain::Real, Leaves::All, 6);
        /// Logical or bitwise and (bool and integers).
        And => "bitwise_and", BinaryFacts(BinaryDomain::Bits, Leaves::None, 1);
        /// Logical or bitwise or (bool and integers).
        Or => "bitwise_or", BinaryFacts(BinaryDomain::Bits, Leaves::None, 1);
        /// Logical or bitwise exclusive or (bool and integers).
        Xor => "bitwise_xor", BinaryFacts(BinaryDomain::Bits, Leaves::None, 1);
        /// a · 2ᵇ for integers; bits beyond the dtype are lost. 0 if b is negative or at least the bits
        /// of the dtype.
        LeftShift => "bitwise_left_shift", BinaryFacts(BinaryDomain::Integers, Leaves::All, 1);
        /// ⌊a / 2ᵇ⌋ for integers. If b is negative or at least the bits of the dtype: 0, or −1 for
        /// negative a.
        RightShift => "bitwise_right_shift", BinaryFacts(BinaryDomain::Integers, Leaves::None, 1);
        /// The greatest common divisor of integers, not negative; |b| for b and 0. In i8 that of −128 and 0
        /// is 128.
        Gcd => "gcd", BinaryFacts(BinaryDomain::Integers, Leaves::All, 6);
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
    pub enum ReduceOp: ReduceFacts {
        /// Σx; 0 for no elements.
        Sum => "sum", ReduceFacts(true, NOTHING_READ);
        /// Σx / n; NaN for no elements. Floats only.
        Mean => "mean", ReduceFacts(true, NOTHING_READ);
        /// Πx; 1 for no elements.
        Prod => "prod", ReduceFacts(true, READS_INPUT);
        /// The greatest.
        Max => "max", ReduceFacts(false, READS_BOTH);
        /// The least.
        Min => "min", ReduceFacts(false, READS_BOTH);
        /// Whether any is true; bool only.
        Any => "any", ReduceFacts(false, NOTHING_READ);
        /// Whether all are true; bool only.
        All => "all", ReduceFacts(false, NOTHING_READ);
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
    /// The dtypes for which it exists.
    pub const fn domain(self) -> UnaryDomain {
        self.facts().0
    }

    /// Whether a result for a narrow type, computed in the wider one, may be a number that the narrow
    /// type lacks.
    pub(crate) const fn leaves(self, dtype: DType) -> bool {
        self.facts().1.has(dtype)
    }

    /// The relative cost of computing it again, in additions.
    pub(crate) const fn cost(self) -> u32 {
        self.facts().2
    }

    /// The inputs and results that its gradient rule reads.
    pub(crate) const fn saved(self) -> Reads {
        self.facts().3
    }

    /// The dtype of the result for a tensor of dtype `dtype`.
    pub(crate) const fn result_dtype(self, dtype: DType) -> DType {
        match self.domain() {
            UnaryDomain::Test => DType::Bool,
            UnaryDomain::Real | UnaryDomain::Numbers | UnaryDomain::Rounding | UnaryDomain::Bits => dtype,
        }
    }
}

impl BinaryOp {
    /// The dtypes for which it exists.
    pub const fn domain(self) -> BinaryDomain {
        self.facts().0
    }

    /// Whether a result for a narrow type, computed in the wider one, may be a number that the narrow
    /// type lacks.
    pub(crate) const fn leaves(self, dtype: DType) -> bool {
        self.facts().1.has(dtype)
    }

    /// The relative cost of computing it again, in additions.
    pub(crate) const fn cost(self) -> u32 {
        self.facts().2
    }

    /// Whether it is defined on bits or on integers only: floats lack it, and it has no gradient.
    pub const fn is_integral(self) -> bool {
        matches!(self.domain(), BinaryDomain::Bits | BinaryDomain::Integers)
    }

    /// Whether the operation exists for a dtype, and advice for the error if not.
    pub(crate) const fn fits(self, dtype: DType) -> (bool, &'static str) {
        match self.domain() {
            BinaryDomain::All | BinaryDomain::Real => (true, ""),
            BinaryDomain::Numbers => (
                !dtype.is_bool(),
                "bool has no such operation; cast with .to_dtype(DType::I32), or use logical ones",
            ),
            BinaryDomain::Bits => (!dtype.is_float(), "bool or integers are needed; compare first, or cast"),
            BinaryDomain::Integers => {
                (dtype.is_int(), "integers are needed; cast with .to_dtype(DType::I32)")
            }
        }
    }
}

impl ReduceOp {
    /// Whether a result for a narrow type, computed in the wider one, may be a number that the narrow
    /// type lacks.
    pub(crate) const fn leaves(self) -> bool {
        self.facts().0
    }

    /// The inputs and results that its gradient rule reads.
    pub(crate) const fn saved(self) -> Reads {
        self.facts().1
    }
}

/// The number of an enum's variant, in the order of its declaration.
pub(crate) fn number_of<T>(variant: &mem::Discriminant<T>) -> u64 {
    /// The only word that is hashed.
    struct Word(u64);
    impl Hasher for Word {
        fn write(&mut self, bytes: &[u8]) {
            self.0 = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        fn write_isize(&mut self, i: isize) {
            self.0 = i as u64;
        }
        fn finish(&self) -> u64 {
            self.0
        }
    }
    let mut word = Word(0);
    variant.hash(&mut word);
    word.finish()
}
