//! Elementwise choices and mixtures of two or three tensors: bounds that are tensors, interpolation, a sum with a product or a quotient.

use super::{Operand, Tensor, elementwise::promoted};
use crate::{CompareOp, DType, Error, Result, Scalar};

impl Tensor {
    /// x². `torch.square`.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self.powi(2)
    }

    /// x + `weight`·(`end` − x), broadcast, with a number or a tensor for the weight; exact at weights 0 and 1. Integers and bools give the
    /// default dtype. `torch.lerp`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    #[doc(alias = "mix")]
    pub fn lerp(&self, end: &Tensor, weight: impl Into<Operand>) -> Result<Tensor> {
        self.lerp_by(end, weight.into())
    }

    #[track_caller]
    fn lerp_by(&self, end: &Tensor, weight: Operand) -> Result<Tensor> {
        const OP: &str = "lerp";
        let (a, b, dtype) = self.real_pair(OP, end.into())?;
        let span = b.sub(&a)?;
        // From the nearer end.
        let mixed = match weight {
            Operand::Scalar(weight) if weight.as_f64().abs() < 0.5 => a.add(&span.mul_scalar(weight))?,
            Operand::Scalar(weight) => b.sub(&span.mul_scalar(1.0 - weight.as_f64()))?,
            Operand::Tensor(weight) => {
                let (span, weight, _) = span.real_pair(OP, weight.into())?;
                let from_a = a.add(&span.mul(&weight)?)?;
                let from_b = b.sub(&span.mul(&weight.neg().add_scalar(1))?)?;
                weight.abs().lt_scalar(0.5).where_cond(&from_a, &from_b)?
            }
        };
        mixed.to_dtype(if mixed.dtype() == dtype.compute() { dtype } else { mixed.dtype() })
    }

    /// x + `value` · a · b, broadcast. `torch.addcmul`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or several devices.
    #[track_caller]
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.addcmul_by(a, b, value.into())
    }

    #[track_caller]
    fn addcmul_by(&self, a: &Tensor, b: &Tensor, value: Scalar) -> Result<Tensor> {
        let (a, b) = a.pair("addcmul", b.into())?;
        let wide = a.dtype().compute();
        let product = a.cast_unchecked(wide).mul(&b.cast_unchecked(wide))?.mul_scalar(value);
        self.plus_wide("addcmul", &product, a.dtype())
    }

    /// x + `value` · a / b, broadcast; a quotient of integers has the default dtype. `torch.addcdiv`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or several devices.
    #[track_caller]
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.addcdiv_by(a, b, value.into())
    }

    #[track_caller]
    fn addcdiv_by(&self, a: &Tensor, b: &Tensor, value: Scalar) -> Result<Tensor> {
        let (a, b, dtype) = a.real_pair("addcdiv", b.into())?;
        self.plus_wide("addcdiv", &a.div(&b)?.mul_scalar(value), dtype)
    }

    /// The sum with a tensor that was computed in f32 for a half dtype, rounded once.
    #[track_caller]
    fn plus_wide(&self, op: &'static str, rhs: &Tensor, dtype: DType) -> Result<Tensor> {
        if !matches!(dtype, DType::F16 | DType::BF16) {
            return self.pair(op, rhs.into()).and_then(|(a, b)| a.add(&b));
        }
        let dtype = promoted(self, &rhs.cast_unchecked(dtype));
        self.cast_unchecked(dtype.compute()).add(&rhs.cast_unchecked(dtype.compute()))?.to_dtype(dtype)
    }

    /// Elements held between bounds that are tensors, broadcast; either may be absent. Where both meet, the upper one holds. A NaN of any
    /// of them stays. The gradient goes where the number came from, at a bound to x. [`Tensor::clamp`] takes numbers. `torch.clamp` with tensors.
    ///
    /// # Errors
    /// No bounds, shapes that do not broadcast, or several devices.
    #[track_caller]
    #[doc(alias("clamp", "clip"))]
    pub fn clamp_tensor(&self, low: Option<&Tensor>, high: Option<&Tensor>) -> Result<Tensor> {
        const OP: &str = "clamp_tensor";
        if low.is_none() && high.is_none() {
            return Err(Error::invalid(OP, "neither a lower nor an upper bound: give at least one"));
        }
        let mut x = self.clone();
        for (bound, beyond) in [(low, CompareOp::Lt), (high, CompareOp::Gt)] {
            if let Some(bound) = bound {
                let (inner, bound) = x.pair(OP, bound.into())?;
                let mut held = inner.compare(beyond, &bound)?;
                if bound.dtype().is_float() {
                    held = held.bitwise_or(&bound.isnan())?;
                }
                x = held.where_cond(&bound, &inner)?;
            }
        }
        Ok(x)
    }

    /// The greater of a and b, broadcast; where one is NaN the other. Among equals it is a, with all of the gradient. `torch.fmax`;
    /// [`Tensor::maximum`] passes NaN on.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn fmax(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.number_of("fmax", CompareOp::Ge, rhs.into())
    }

    /// The lesser of a and b, broadcast; where one is NaN the other. Among equals it is a, with all of the gradient. `torch.fmin`;
    /// [`Tensor::minimum`] passes NaN on.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn fmin(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.number_of("fmin", CompareOp::Le, rhs.into())
    }

    #[track_caller]
    fn number_of(&self, op: &'static str, wins: CompareOp, rhs: Operand) -> Result<Tensor> {
        let (a, b) = self.pair(op, rhs)?;
        let mut first = a.compare(wins, &b)?;
        if b.dtype().is_float() {
            first = first.bitwise_or(&b.isnan())?;
        }
        first.where_cond(&a, &b)
    }
}
