//! Signs, truncating division, rounding to decimals, and tests for finite numbers.

use crate::tensor::{Operand, Tensor, pointwise::elementwise::promoted};
use crate::{
    base::error::{Error, Result},
    elements::{
        dtype::{DType, Kind},
        scalar::Scalar,
    },
    graph::op::Op,
    kernels::operators::CompareOp,
};

impl Tensor {
    /// This tensor and another operand, both in the promoted dtype.
    #[track_caller]
    pub(in crate::tensor) fn pair(&self, op: &'static str, rhs: Operand) -> Result<(Tensor, Tensor)> {
        match rhs {
            Operand::Tensor(rhs) => {
                Tensor::same_device(op, &[self, &rhs])?;
                self.shape().broadcast(rhs.shape(), op)?;
                let dtype = promoted(self, &rhs);
                Ok((self.cast_if(dtype)?, rhs.cast_if(dtype)?))
            }
            Operand::Scalar(scalar) => {
                let this = self.cast_unchecked(self.promoted_with(scalar));
                let scalar = this.constant(scalar);
                Ok((this, scalar))
            }
        }
    }

    /// [`Tensor::pair`] in the dtype in which a real-valued function is computed, f32 or f64, and the
    /// dtype of its result: integers and bools give the default dtype.
    #[track_caller]
    pub(in crate::tensor) fn real_pair(
        &self,
        op: &'static str,
        rhs: Operand,
    ) -> Result<(Tensor, Tensor, DType)> {
        let (given, promoted) = match rhs {
            Operand::Tensor(rhs) => {
                Tensor::same_device(op, &[self, &rhs])?;
                self.shape().broadcast(rhs.shape(), op)?;
                let dtype = promoted(self, &rhs);
                (rhs, dtype)
            }
            Operand::Scalar(scalar) => {
                let dtype = self.promoted_with(scalar);
                let wide = if dtype.is_float() { dtype.compute() } else { dtype };
                (self.constant_of(scalar, wide), dtype)
            }
        };
        let dtype = if promoted.is_float() { promoted } else { self.device().float_dtype() };
        // Integers are first cast to their promoted dtype.
        let wide = |x: &Tensor| match promoted.is_float() {
            true => x.cast_unchecked(dtype.compute()),
            false => x.cast_unchecked(promoted).cast_unchecked(dtype.compute()),
        };
        Ok((wide(self), wide(&given), dtype))
    }

    /// Whether the sign bit is set: true for negative numbers and −0, and false for NaN. Gives bool.
    /// `torch.signbit`.
    #[track_caller]
    pub fn signbit(&self) -> Tensor {
        let below = self.lt_scalar(0);
        if !self.dtype().is_float() {
            return below;
        }
        // The reciprocal of −0 is −∞.
        let minus_zero = self.reciprocal().lt_scalar(0);
        Tensor::build(
            Op::Binary(crate::kernels::operators::BinaryOp::Or),
            self.shape().clone(),
            DType::Bool,
            &[&below, &minus_zero],
        )
    }

    /// The magnitude of a with the sign of b (also that of a zero), broadcast; integers and bools give
    /// the default dtype. Gradients do not flow to b, nor to a at a = 0. `torch.copysign`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn copysign(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.copysign_by(rhs.into())
    }

    #[track_caller]
    fn copysign_by(&self, rhs: Operand) -> Result<Tensor> {
        let (a, b) = self.pair("copysign", rhs)?;
        let (size, negative) = (a.floating().abs(), b.signbit());
        negative.where_cond(&size.neg(), &size)
    }

    /// The remainder of a / b with the sign of a, a − b·trunc(a / b), broadcast: C's `fmod` and Rust's
    /// `%`. For b = 0, floats give NaN and integers 0. [`Tensor::remainder`] has the sign of b.
    /// `torch.fmod`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, two devices, or bools.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let r = x.fmod(3)?; // [−7, 7] gives [−1, 1], where remainder gives [2, 1]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn fmod(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.fmod_by(rhs.into())
    }

    #[track_caller]
    fn fmod_by(&self, rhs: Operand) -> Result<Tensor> {
        let (a, b) = self.pair("fmod", rhs)?;
        if a.dtype() == DType::Bool {
            let message = "bools have no remainder; cast with .to_dtype(DType::I32)";
            return Err(Error::invalid("fmod", message));
        }
        if a.dtype().is_float() {
            // For two magnitudes, both remainders are the same, and exact.
            let (negative, down) = (a.signbit(), b.lt_scalar(0));
            let r = negative.where_cond(&a.neg(), &a)?.remainder(&down.where_cond(&b.neg(), &b)?)?;
            return negative.where_cond(&r.neg(), &r);
        }
        let r = a.remainder(&b)?;
        let other_sign = r.lt_scalar(0).ne(&a.lt_scalar(0))?.bitwise_and(&r.ne_scalar(0))?;
        other_sign.where_cond(&r.sub(&b)?, &r)
    }

    /// trunc(a / b), broadcast: the quotient truncated toward zero. For b = 0, floats give a / b and
    /// integers 0. `torch.div(rounding_mode="trunc")`; [`Tensor::floor_divide`] rounds down.
    ///
    /// # Errors
    /// Shapes that do not broadcast, two devices, or bools.
    #[track_caller]
    #[doc(alias = "div")]
    pub fn trunc_divide(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.trunc_divide_by(rhs.into())
    }

    #[track_caller]
    fn trunc_divide_by(&self, rhs: Operand) -> Result<Tensor> {
        let (a, b) = self.pair("trunc_divide", rhs)?;
        match a.dtype().info().kind {
            Kind::Bool => {
                let message = "bools have no quotient; cast with .to_dtype(DType::I32)";
                Err(Error::invalid("trunc_divide", message))
            }
            Kind::Float => Ok(a.div(&b)?.trunc()),
            // Without the remainder, the quotient is an integer.
            Kind::Signed | Kind::Unsigned => a.sub(&a.fmod(&b)?)?.floor_divide(&b),
        }
    }

    /// x rounded to `decimals` decimals, halves to even: round(x·10ᵈ) / 10ᵈ. Negative numbers round to
    /// tens, hundreds and so on. Integers and bools give the default dtype. `torch.round(decimals=…)`.
    #[track_caller]
    #[doc(alias = "round")]
    pub fn round_to(&self, decimals: i32) -> Tensor {
        let this = self.floating();
        let wide = this.cast_unchecked(this.dtype().compute());
        let scale = 10f64.powi(decimals.saturating_abs());
        let rounded = if decimals < 0 {
            wide.div_scalar(scale).round().mul_scalar(scale)
        } else {
            wide.mul_scalar(scale).round().div_scalar(scale)
        };
        rounded.cast_unchecked(this.dtype())
    }

    /// The fractional part, x − trunc x, with the sign of x; NaN for infinities. `torch.frac`.
    #[track_caller]
    #[doc(alias = "fract")]
    pub fn frac(&self) -> Tensor {
        let x = self.floating();
        x.with_same(crate::kernels::operators::BinaryOp::Sub, &x.trunc())
    }

    /// 0 for negative x, 1 for positive x, and `values` at 0, broadcast; 0 for NaN. `torch.heaviside`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn heaviside(&self, values: impl Into<Operand>) -> Result<Tensor> {
        self.heaviside_by(values.into())
    }

    #[track_caller]
    fn heaviside_by(&self, values: Operand) -> Result<Tensor> {
        let (x, values) = self.pair("heaviside", values)?;
        let step = x.gt_scalar(0).cast_unchecked(x.dtype());
        x.eq_scalar(0).where_cond(&values, &step)
    }

    /// Whether x is neither infinite nor NaN; gives bool. `torch.isfinite`.
    #[track_caller]
    #[doc(alias = "is_finite")]
    pub fn isfinite(&self) -> Tensor {
        self.floating().abs().lt_scalar(f64::INFINITY)
    }

    /// Whether x is +∞; gives bool. `torch.isposinf`.
    #[track_caller]
    pub fn isposinf(&self) -> Tensor {
        self.floating().eq_scalar(f64::INFINITY)
    }

    /// Whether x is −∞; gives bool. `torch.isneginf`.
    #[track_caller]
    pub fn isneginf(&self) -> Tensor {
        self.floating().eq_scalar(f64::NEG_INFINITY)
    }

    /// This tensor with `nan` in place of NaN, `posinf` in place of +∞ and `neginf` in place of −∞,
    /// without a gradient there; `None` means the greatest and the least number of the dtype. Integers
    /// and bools are unchanged. PyTorch's defaults are 0, `None` and `None`. `torch.nan_to_num`.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) {
    /// let y = x.nan_to_num(0.0, None, -1.0); // [NaN, ∞, −∞] in f32 gives [0, 3.4028e38, −1]
    /// # }
    /// ```
    #[track_caller]
    pub fn nan_to_num(
        &self,
        nan: f64,
        posinf: impl Into<Option<f64>>,
        neginf: impl Into<Option<f64>>,
    ) -> Tensor {
        self.nan_to_num_by(nan, posinf.into(), neginf.into())
    }

    #[track_caller]
    fn nan_to_num_by(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Tensor {
        let Some(greatest) = greatest(self.dtype()) else { return self.clone() };
        let number = |value: f64| self.constant(Scalar::Float(value));
        let x = self.isnan().choose(&number(nan), self);
        let x = self.isposinf().choose(&number(posinf.unwrap_or(greatest)), &x);
        self.isneginf().choose(&number(neginf.unwrap_or(-greatest)), &x)
    }

    /// Whether elements are close to those of `other`, broadcast: |a − b| ≤ `atol` + `rtol` · |b|; equal
    /// infinities are close; NaN is close to NaN with `equal_nan`, else to nothing. Gives bool.
    /// PyTorch's defaults are 1e-5, 1e-8 and false. `torch.isclose`; [`Tensor::allclose`] tests all
    /// elements.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn isclose(&self, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<Tensor> {
        let (a, b) = self.pair("isclose", other.into())?;
        // Integers are compared exactly: f32 would round them.
        let mut same = a.compare(CompareOp::Eq, &b)?;
        let (a, b) = (a.floating(), b.floating());
        if equal_nan {
            same = same.bitwise_or(&a.isnan().bitwise_and(&b.isnan())?)?;
        }
        let distance = a.sub(&b)?.abs();
        let bound = b.abs().mul_scalar(rtol).add_scalar(atol);
        // An infinite bound would accept any distance.
        let near = distance.le(&bound)?.bitwise_and(&distance.isinf().logical_not())?;
        same.bitwise_or(&near)
    }
}

/// The greatest finite number of a floating-point dtype.
pub(in crate::tensor) fn greatest(dtype: DType) -> Option<f64> {
    dtype.float_format().map(|format| format.greatest)
}
