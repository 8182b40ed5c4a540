//! Elementwise operations: functions of one tensor, of two, comparisons, `where`, and casts.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use crate::tensor::Tensor;
use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        origin::{caller_line, here, with_location},
    },
    elements::{
        dtype::{DType, Kind},
        scalar::Scalar,
    },
    graph::{
        grad_mode::set_grad_enabled,
        node::Node,
        op::Op,
        trace::{Argument, traced},
    },
    kernels::{
        formula::Formula,
        operators::{BinaryDomain, BinaryOp, CompareOp, UnaryDomain, UnaryOp},
    },
    schedule::replay,
    tensor::autocast,
};

impl Tensor {
    /// An elementwise function of this tensor. For a real-valued function, integers and bools are first
    /// cast to the default dtype.
    #[doc(hidden)]
    #[track_caller]
    pub fn unary(&self, op: UnaryOp) -> Tensor {
        use UnaryOp as U;
        if let Some(wide) = autocast::widened(op.name(), self) {
            return wide.unary(op);
        }
        let dtype = self.dtype();
        let keeps = match op.domain() {
            UnaryDomain::Numbers if op == U::Sign && dtype == DType::Bool => return self.clone(),
            UnaryDomain::Numbers => dtype != DType::Bool,
            UnaryDomain::Rounding if !dtype.is_float() => return self.clone(),
            UnaryDomain::Bits if dtype.is_float() => return self.cast_unchecked(DType::Bool).unary(op),
            UnaryDomain::Bits => true,
            UnaryDomain::Real | UnaryDomain::Rounding | UnaryDomain::Test => dtype.is_float(),
        };
        if !keeps {
            return self.cast_unchecked(self.device().float_dtype()).unary(op);
        }
        if matches!(op, U::Abs | U::Sign | U::Relu) && dtype.info().kind == Kind::Unsigned {
            return if op == U::Sign {
                self.compare_scalar(CompareOp::Ne, 0).cast_unchecked(dtype)
            } else {
                self.clone()
            };
        }
        Tensor::build(Op::Unary(op), self.shape().clone(), op.result_dtype(dtype), &[self])
    }

    /// An elementwise function of two tensors, broadcast, in their promoted dtype.
    ///
    /// # Errors
    /// Shapes that do not broadcast, two devices, or a dtype that the function does not take.
    #[doc(hidden)]
    #[track_caller]
    pub fn binary(&self, op: BinaryOp, rhs: &Tensor) -> Result<Tensor> {
        Tensor::same_device(op.name(), &[self, rhs])?;
        let shape = self.shape().broadcast(rhs.shape(), op.name())?;
        let cast = autocast::cast(op.name(), [self, rhs], [])?;
        let ([lhs, rhs], []) = cast.tensors();
        let dtype = promoted(lhs, rhs);
        check_binary(op, dtype)?;
        let is_real = op.domain() == BinaryDomain::Real;
        let dtype = if is_real && !dtype.is_float() { self.device().float_dtype() } else { dtype };
        if lhs.dtype() == dtype && rhs.dtype() == dtype {
            return Ok(Tensor::build(Op::Binary(op), shape, dtype, &[lhs, rhs]));
        }
        let (a, b) = (lhs.operand_in(dtype)?, rhs.operand_in(dtype)?);
        Ok(Tensor::build(Op::Binary(op), shape, dtype, &[&a, &b]))
    }

    /// This tensor as an operand of arithmetic in `dtype`. A wider 0-d tensor beside a half tensor is
    /// cast to f32, the dtype of the computation: 70000 · 0.5 fits in f16, though 70000 does not.
    #[track_caller]
    fn operand_in(&self, dtype: DType) -> Result<Tensor> {
        let is_number = self.rank() == 0 && self.dtype().promote(dtype) == self.dtype();
        self.cast_if(if is_number { dtype.compute() } else { dtype })
    }

    /// `self op scalar`, or `scalar op self` when `flipped`. Bools with an integer give i64 (i32 on a
    /// device without i64), integers with a float give the default dtype; nothing can fail.
    #[track_caller]
    pub(crate) fn with_scalar(&self, op: BinaryOp, scalar: Scalar, flipped: bool) -> Tensor {
        if let Some(wide) = autocast::widened(op.name(), self) {
            return wide.with_scalar(op, scalar, flipped);
        }
        let mut dtype = self.promoted_with(scalar);
        if op.domain() == BinaryDomain::Real && !dtype.is_float() {
            dtype = self.device().float_dtype();
        }
        // Then both are bool.
        if dtype == DType::Bool && op.domain() == BinaryDomain::Numbers {
            // b¹ is b, and b⁰ is true.
            if op == BinaryOp::Pow && !flipped {
                return if scalar.as_bool() { self.clone() } else { self.full_like(true) };
            }
            dtype = DType::I32;
        }
        let this = self.cast_unchecked(dtype);
        // Half types are computed in f32, and so is a number beside them.
        let constant = this.constant_of(scalar, dtype.compute());
        let inputs = if flipped { [&constant, &this] } else { [&this, &constant] };
        Tensor::build(Op::Binary(op), self.shape().clone(), dtype, &inputs)
    }

    /// A comparison with another tensor, broadcast, in their promoted dtype; gives bool.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[doc(hidden)]
    #[track_caller]
    pub fn compare(&self, op: CompareOp, rhs: &Tensor) -> Result<Tensor> {
        Tensor::same_device(op.name(), &[self, rhs])?;
        let shape = self.shape().broadcast(rhs.shape(), op.name())?;
        let dtype = promoted(self, rhs);
        let (a, b) = (self.cast_if(dtype)?, rhs.cast_if(dtype)?);
        Ok(Tensor::build(Op::Compare(op), shape, DType::Bool, &[&a, &b]))
    }

    /// A comparison with a scalar; gives bool. An integer outside the dtype's range is less or greater
    /// than all elements.
    #[doc(hidden)]
    #[track_caller]
    pub fn compare_scalar(&self, op: CompareOp, scalar: impl Into<Scalar>) -> Tensor {
        self.compare_scalar_by(op, scalar.into())
    }

    #[track_caller]
    fn compare_scalar_by(&self, op: CompareOp, scalar: Scalar) -> Tensor {
        let dtype = self.promoted_with(scalar);
        if let (Scalar::Int(asked), Scalar::Int(nearest)) = (scalar, scalar.saturate(dtype))
            && asked != nearest
        {
            let answer = match op {
                CompareOp::Eq => false,
                CompareOp::Ne => true,
                CompareOp::Lt | CompareOp::Le => asked > nearest,
                CompareOp::Gt | CompareOp::Ge => asked < nearest,
            };
            let op = Op::Full(Scalar::Bool(answer));
            return Tensor::source_unchecked(op, self.shape().clone(), DType::Bool, &self.device());
        }
        let this = self.cast_unchecked(dtype);
        let constant = this.constant(scalar);
        Tensor::build(Op::Compare(op), self.shape().clone(), DType::Bool, &[&this, &constant])
    }

    /// Elements of `a` where this bool tensor is true, of `b` elsewhere; all three broadcast. `torch.where`.
    ///
    /// # Errors
    /// A condition that is not bool, shapes that do not broadcast, or several devices.
    #[track_caller]
    #[doc(alias = "where")]
    pub fn where_cond(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        if self.dtype() != DType::Bool {
            return Err(Error::new(ErrorKind::DTypeMismatch {
                op: "where",
                lhs: self.dtype(),
                rhs: DType::Bool,
                hint: "the condition must be bool: compare it, as in x.gt_scalar(0.0)".into(),
            }));
        }
        Tensor::same_device("where", &[self, a, b])?;
        let shape = self.shape().broadcast(a.shape(), "where")?.broadcast(b.shape(), "where")?;
        let dtype = promoted(a, b);
        let (a, b) = (a.cast_if(dtype)?, b.cast_if(dtype)?);
        Ok(Tensor::build(Op::Where, shape, dtype, &[self, &a, &b]))
    }

    /// This tensor with `value` where the bool `mask` (broadcast to this shape) is true.
    /// `torch.masked_fill`.
    #[track_caller]
    #[doc(alias = "masked_fill_")]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.masked_fill_by(mask, value.into())
    }

    #[track_caller]
    fn masked_fill_by(&self, mask: &Tensor, value: Scalar) -> Result<Tensor> {
        let value = self.constant(value);
        mask.where_cond(&value, self)
    }

    /// This tensor in another dtype; itself if it already has it. Floats to integers truncate toward
    /// zero and saturate.
    ///
    /// # Errors
    /// A dtype that the device lacks.
    #[track_caller]
    #[doc(alias("type", "astype", "cast", "float", "double", "half", "long", "int", "bool", "to"))]
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        self.device().require(dtype, "to_dtype")?;
        Ok(self.cast_unchecked(dtype))
    }

    /// A 0-d constant of this tensor's dtype and device. Constants in use on this thread are shared, so
    /// that a loop of `x * 0.5` makes only one. In a function that is being compiled they are apart, because
    /// some differ at later calls.
    #[track_caller]
    pub(in crate::tensor) fn constant(&self, value: Scalar) -> Tensor {
        self.constant_of(value, self.dtype())
    }

    /// [`Tensor::constant`] in another dtype.
    #[track_caller]
    pub(in crate::tensor) fn constant_of(&self, value: Scalar, dtype: DType) -> Tensor {
        const KEPT: usize = 8;
        type Kept = (DType, Scalar, Weak<Node>);
        thread_local! {
            static RECENT: RefCell<(usize, [Kept; KEPT])> =
                const { RefCell::new((0, [const { (DType::Bool, Scalar::Int(0), Weak::new()) }; KEPT])) };
        }
        let value = value.cast(dtype);
        let device = self.device();
        // Within a closure, `#[track_caller]` does not hold.
        let _line = caller_line();
        if replay::has_own_constants() {
            return Tensor::source_unchecked(Op::Full(value), ().into(), dtype, &device);
        }
        RECENT.with_borrow_mut(|(next, kept)| {
            for (d, v, node) in kept.iter() {
                if *d == dtype
                    && v.same_bits(value)
                    && let Some(node) = node.upgrade()
                    && node.device == device
                {
                    return Tensor::from_node(node);
                }
            }
            let fresh = Tensor::source_unchecked(Op::Full(value), ().into(), dtype, &device);
            kept[*next] = (dtype, value, Arc::downgrade(&fresh.0));
            *next = (*next + 1) % KEPT;
            fresh
        })
    }

    /// The promoted dtype of this tensor with a scalar.
    pub(in crate::tensor) fn promoted_with(&self, scalar: Scalar) -> DType {
        match (self.dtype(), scalar) {
            (dtype, _) if dtype.is_float() => dtype,
            (dtype, scalar) => scalar.promote_with(dtype, &self.device()),
        }
    }

    /// A tensor of a half type cast to f32: functions that compose several operations compute all of
    /// them in f32, and round once. `None` for any other dtype.
    #[track_caller]
    pub(crate) fn half_as_f32(&self) -> Option<Tensor> {
        let wide = self.dtype().compute();
        (wide != self.dtype()).then(|| self.cast_unchecked(wide))
    }

    /// This tensor, cast to the default dtype if it has integers or bools.
    #[track_caller]
    pub(in crate::tensor) fn floating(&self) -> Tensor {
        self.cast_unchecked(self.floating_dtype())
    }

    /// The dtype of [`Tensor::floating`].
    pub(in crate::tensor) fn floating_dtype(&self) -> DType {
        if self.dtype().is_float() { self.dtype() } else { self.device().float_dtype() }
    }

    #[track_caller]
    pub(in crate::tensor) fn cast_if(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype { Ok(self.clone()) } else { self.to_dtype(dtype) }
    }

    #[track_caller]
    pub(crate) fn cast_unchecked(&self, dtype: DType) -> Tensor {
        if self.dtype() == dtype {
            return self.clone();
        }
        // Blocks can be decoded to any float dtype.
        if let Ok(Some(blocks)) = self.blocks_to("to_dtype", &self.device(), dtype) {
            return blocks;
        }
        Tensor::build(Op::Cast, self.shape().clone(), dtype, &[self])
    }

    /// xⁿ by repeated multiplication; for n < 0, of 1/x (integers are then cast to the default dtype).
    /// Bools give i64 (i32 on a device without i64).
    #[track_caller]
    #[doc(alias = "pow")]
    pub fn powi(&self, n: i32) -> Tensor {
        if let Some(wide) = autocast::widened("pow", self) {
            return wide.powi(n);
        }
        let this = if n < 0 && !self.dtype().is_float() {
            self.floating()
        } else if self.dtype().is_bool() {
            self.cast_unchecked(self.device().int_dtype())
        } else {
            self.clone()
        };
        Tensor::build(Op::Powi(n), this.shape().clone(), this.dtype(), &[&this])
    }

    /// Applies a formula; users call the methods of the same names.
    #[doc(hidden)]
    #[track_caller]
    pub fn formula(&self, formula: Formula) -> Tensor {
        if let Some(wide) = autocast::widened(formula.name(), self) {
            return wide.formula(formula);
        }
        let x = self.floating();
        Tensor::build(Op::Formula(formula), x.shape().clone(), x.dtype(), &[&x])
    }

    /// The `n`-th derivative of [`Tensor::digamma`], and digamma itself for 0: (−1)ⁿ⁺¹·n!·Σ 1/(x + k)ⁿ⁺¹
    /// over k ≥ 0. ∞, or −∞ for even n, at 0, −1, −2 … `torch.polygamma`.
    #[track_caller]
    pub fn polygamma(&self, n: u8) -> Tensor {
        self.formula(if n == 0 { Formula::Digamma } else { Formula::Polygamma(n) })
    }

    /// I₀(x), the modified Bessel function of the first kind of order 0: Σ (x²/4)ᵏ / k!². `torch.special.i0`.
    #[track_caller]
    pub fn i0(&self) -> Tensor {
        self.formula(Formula::I0)
    }

    /// I₁(x), the modified Bessel function of the first kind of order 1: x/2 · Σ (x²/4)ᵏ / (k!·(k + 1)!).
    /// `torch.special.i1`.
    #[track_caller]
    pub fn i1(&self) -> Tensor {
        self.formula(Formula::I1)
    }

    /// e^(−|x|)·I₀(x), which does not overflow: [`Tensor::i0`] scaled. `torch.special.i0e`.
    #[track_caller]
    pub fn i0e(&self) -> Tensor {
        self.formula(Formula::I0e)
    }

    /// e^(−|x|)·I₁(x), which does not overflow: [`Tensor::i1`] scaled. `torch.special.i1e`.
    #[track_caller]
    pub fn i1e(&self) -> Tensor {
        self.formula(Formula::I1e)
    }

    /// xᵖ. A small integral `p` is computed by repeated multiplication.
    #[track_caller]
    #[doc(alias = "pow")]
    pub fn powf(&self, p: f64) -> Tensor {
        if p.fract() == 0.0 && p.abs() <= 8.0 { self.powi(p as i32) } else { self.pow_scalar(p) }
    }

    /// Elements clamped to [low, high]; NaN stays NaN without a gradient, and a NaN bound makes all
    /// elements NaN. A bound outside an integer dtype's range is clamped to it. Integers with float
    /// bounds become the default dtype, as in PyTorch. No gradient flows where an element is at or
    /// beyond a bound.
    #[track_caller]
    #[doc(alias("clip", "clamp_min", "clamp_max"))]
    pub fn clamp(&self, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Tensor {
        self.clamp_by(low.into(), high.into())
    }

    #[track_caller]
    fn clamp_by(&self, low: Scalar, high: Scalar) -> Tensor {
        let dtype = high.promote_with(self.promoted_with(low), &self.device());
        let x = self.cast_unchecked(dtype);
        let (low_bound, high) = (low.saturate(dtype), high.saturate(dtype));
        let low = x.held(CompareOp::Gt, BinaryOp::Maximum, low_bound);
        let out = low.held(CompareOp::Lt, BinaryOp::Minimum, high);
        traced("clamp", [Some(&x)], out, || {
            vec![("min", Argument::Float(low_bound.as_f64())), ("max", Argument::Float(high.as_f64()))]
        })
    }

    /// The elements whose comparison with the bound is `inside`; elsewhere the bound, or a NaN of
    /// either, without a gradient.
    #[track_caller]
    fn held(&self, inside: CompareOp, extreme: BinaryOp, bound: Scalar) -> Tensor {
        let user = here();
        let inside = self.compare_scalar(inside, bound);
        let edge =
            set_grad_enabled(false, || with_location(user, || self.with_scalar(extreme, bound, false)));
        Tensor::build(Op::Where, self.shape().clone(), self.dtype(), &[&inside, self, &edge])
    }
}

/// The dtype of an elementwise result of two tensors: promoted, except that a 0-d tensor does not widen
/// a tensor of the same category (bool, integer, float), as in PyTorch.
pub(in crate::tensor) fn promoted(a: &Tensor, b: &Tensor) -> DType {
    let category = |d: DType| if d.is_float() { 2 } else { u8::from(d.is_int()) };
    let (da, db) = (a.dtype(), b.dtype());
    match (a.rank(), b.rank()) {
        (0, 1..) if category(db) >= category(da) => db,
        (1.., 0) if category(da) >= category(db) => da,
        _ => da.promote(db),
    }
}

#[track_caller]
fn check_binary(op: BinaryOp, dtype: DType) -> Result<()> {
    let (fits, hint) = op.fits(dtype);
    if fits { Ok(()) } else { Err(Error::invalid(op.name(), format!("dtype {dtype}: {hint}"))) }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor { self.unary(UnaryOp::$op) }
        )*}
    };
}

unary! {
    /// −x.
    #[doc(alias = "negative")]
    neg => Neg;
    /// |x|.
    #[doc(alias = "absolute")]
    abs => Abs;
    /// −1, 0 or 1 by the sign of x; 0 for NaN.
    #[doc(alias = "sgn")]
    sign => Sign;
    /// eˣ.
    exp => Exp;
    /// eˣ − 1, accurate near 0.
    expm1 => Expm1;
    /// ln x.
    #[doc(alias = "ln")]
    log => Log;
    /// ln(1 + x), accurate near 0.
    log1p => Log1p;
    /// √x.
    sqrt => Sqrt;
    /// 1 / √x.
    rsqrt => Rsqrt;
    /// 1 / x.
    reciprocal => Reciprocal;
    /// sin x, radians.
    sin => Sin;
    /// cos x, radians.
    cos => Cos;
    /// tan x, radians.
    tan => Tan;
    /// tanh x.
    tanh => Tanh;
    /// 1 / (1 + e⁻ˣ).
    #[doc(alias = "expit")]
    sigmoid => Sigmoid;
    /// max(x, 0); NaN for NaN, −0 for −0.
    relu => Relu;
    /// The error function.
    erf => Erf;
    /// Φ(x) = ½·erfc(−x/√2), the standard normal distribution function. `torch.special.ndtr`.
    ndtr => Ndtr;
    /// The greatest integer ≤ x.
    floor => Floor;
    /// The least integer ≥ x.
    ceil => Ceil;
    /// The nearest integer, halves to even.
    round => Round;
    /// x truncated toward zero.
    #[doc(alias = "fix")]
    trunc => Trunc;
    /// Whether x is NaN; gives bool.
    #[doc(alias = "is_nan")]
    isnan => IsNan;
    /// Whether x is infinite; gives bool.
    #[doc(alias = "is_infinite")]
    isinf => IsInf;
}

macro_rules! formula {
    ($($(#[$doc:meta])* $name:ident => $formula:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor { self.formula(Formula::$formula) }
        )*}
    };
}

formula! {
    /// The arc sine, in [−π/2, π/2]; NaN beyond ±1.
    #[doc(alias = "arcsin")]
    asin => Asin;
    /// The arc cosine, in [0, π]; NaN beyond ±1.
    #[doc(alias = "arccos")]
    acos => Acos;
    /// The arc tangent, in (−π/2, π/2).
    #[doc(alias = "arctan")]
    atan => Atan;
    /// (eˣ − e⁻ˣ) / 2.
    sinh => Sinh;
    /// (eˣ + e⁻ˣ) / 2.
    cosh => Cosh;
    /// The inverse of sinh, ln(x + √(x² + 1)).
    #[doc(alias = "arcsinh")]
    asinh => Asinh;
    /// The inverse of cosh, ln(x + √(x² − 1)); NaN below 1.
    #[doc(alias = "arccosh")]
    acosh => Acosh;
    /// The inverse of tanh, ½·ln((1 + x) / (1 − x)); ±∞ at ±1, NaN beyond.
    #[doc(alias = "arctanh")]
    atanh => Atanh;
    /// 2ˣ.
    exp2 => Exp2;
    /// The logarithm to base 2, exact at powers of 2.
    log2 => Log2;
    /// The decimal logarithm, exact at powers of 10 that the dtype represents.
    log10 => Log10;
    /// sin(πx) / (πx), and 1 at 0.
    sinc => Sinc;
    /// 1 − erf x, without cancellation for large x: within a relative error of 10⁻¹³ in f64.
    erfc => Erfc;
    /// The inverse of the error function; ±∞ at ±1, NaN beyond.
    erfinv => Erfinv;
    /// ln |Γ(x)|; ∞ at 0 and at negative integers.
    #[doc(alias = "gammaln")]
    lgamma => Lgamma;
    /// ψ(x), the derivative of ln Γ; −∞ at 0 and ∞ at −0, NaN at negative integers.
    #[doc(alias = "psi")]
    digamma => Digamma;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident => $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// Shapes that do not broadcast, two devices, or a dtype that the operation does not take.
            #[track_caller]
            pub fn $name(&self, rhs: &Tensor) -> Result<Tensor> { self.binary(BinaryOp::$op, rhs) }

            $(#[$doc])*
            /// The same function with a scalar for b.
            #[track_caller]
            pub fn $scalar(&self, rhs: impl Into<Scalar>) -> Tensor {
                self.with_scalar(BinaryOp::$op, rhs.into(), false)
            }
        )*}
    };
}

binary! {
    /// a + b, broadcast.
    add, add_scalar => Add;
    /// a − b, broadcast.
    #[doc(alias = "subtract")]
    sub, sub_scalar => Sub;
    /// a · b elementwise, broadcast.
    #[doc(alias = "multiply")]
    mul, mul_scalar => Mul;
    /// a / b, broadcast; integers give the default dtype.
    #[doc(alias = "true_divide")]
    div, div_scalar => Div;
    /// ⌊a / b⌋, broadcast; for integers b = 0 gives 0.
    #[doc(alias = "//")]
    floor_divide, floor_divide_scalar => FloorDiv;
    /// The remainder of a / b with the sign of b, broadcast; for integers b = 0 gives 0.
    #[doc(alias = "%")]
    remainder, remainder_scalar => Remainder;
    /// aᵇ, broadcast.
    #[doc(alias = "**")]
    pow, pow_scalar => Pow;
    /// The greater of a and b, broadcast; NaN if either is NaN.
    maximum, maximum_scalar => Maximum;
    /// The lesser of a and b, broadcast; NaN if either is NaN.
    minimum, minimum_scalar => Minimum;
    /// The angle of the point (b, a), broadcast.
    atan2, atan2_scalar => Atan2;
}

impl Tensor {
    /// Whether x is false or 0; gives bool. NaN is not 0.
    #[track_caller]
    pub fn logical_not(&self) -> Tensor {
        if self.dtype().is_bool() { self.unary(UnaryOp::Not) } else { self.compare_scalar(CompareOp::Eq, 0) }
    }

    /// The bitwise complement of an integer, −x − 1 for a signed one; the negation of a bool.
    ///
    /// # Errors
    /// A floating-point dtype.
    #[track_caller]
    pub fn bitwise_not(&self) -> Result<Tensor> {
        if self.dtype().is_float() {
            return Err(Error::invalid(
                "bitwise_not",
                format!("dtype {}: bool or integers are needed; use logical_not, or cast", self.dtype()),
            ));
        }
        Ok(self.unary(UnaryOp::Not))
    }

    /// a and b, logical for bools and bitwise for integers, broadcast.
    #[track_caller]
    #[doc(alias = "&")]
    pub fn bitwise_and(&self, rhs: &Tensor) -> Result<Tensor> {
        self.binary(BinaryOp::And, rhs)
    }

    /// a or b, logical for bools and bitwise for integers, broadcast.
    #[track_caller]
    #[doc(alias = "|")]
    pub fn bitwise_or(&self, rhs: &Tensor) -> Result<Tensor> {
        self.binary(BinaryOp::Or, rhs)
    }

    /// a exclusive-or b, logical for bools and bitwise for integers, broadcast.
    #[track_caller]
    #[doc(alias = "^")]
    pub fn bitwise_xor(&self, rhs: &Tensor) -> Result<Tensor> {
        self.binary(BinaryOp::Xor, rhs)
    }
}

macro_rules! compare {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident => $op:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// Shapes that do not broadcast, or two devices.
            #[track_caller]
            pub fn $name(&self, rhs: &Tensor) -> Result<Tensor> { self.compare(CompareOp::$op, rhs) }

            $(#[$doc])*
            /// The same comparison with a scalar for b.
            #[track_caller]
            pub fn $scalar(&self, rhs: impl Into<Scalar>) -> Tensor { self.compare_scalar(CompareOp::$op, rhs) }
        )*}
    };
}

compare! {
    /// Whether a = b, elementwise.
    #[doc(alias = "==")]
    eq, eq_scalar => Eq;
    /// Whether a ≠ b, elementwise.
    #[doc(alias = "!=")]
    ne, ne_scalar => Ne;
    /// Whether a < b, elementwise.
    #[doc(alias = "<")]
    lt, lt_scalar => Lt;
    /// Whether a ≤ b, elementwise.
    #[doc(alias = "<=")]
    le, le_scalar => Le;
    /// Whether a > b, elementwise.
    #[doc(alias = ">")]
    gt, gt_scalar => Gt;
    /// Whether a ≥ b, elementwise.
    #[doc(alias = ">=")]
    ge, ge_scalar => Ge;
}
