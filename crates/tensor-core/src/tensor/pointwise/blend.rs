//! Elementwise selection and mixing of two or three tensors: clamping with tensors as bounds,
//! interpolation, and sums with a product or a quotient.

use crate::tensor::{Operand, Tensor, pointwise::elementwise::promoted};
use crate::{
    base::{
        error::{Error, Result},
        origin::{here, with_location},
    },
    elements::{dtype::DType, scalar::Scalar},
    kernels::operators::BinaryOp,
};

impl Tensor {
    /// x². `torch.square`.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        self.powi(2)
    }

    /// x + `weight`·(`end` − x), broadcast; the weight is a number or a tensor. The result is exact at the
    /// weights 0 and 1. The dtype is the promoted one of x and `end`; integers and bools give the default
    /// dtype. `torch.lerp`.
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
        // Interpolates from the nearer end. If the distance overflows, uses weighted ends instead; an
        // end with weight 0 is then left out.
        let (mixed, shares) = match weight {
            Operand::Scalar(weight) => {
                let w = weight.as_f64();
                let mixed = match w.abs() < 0.5 {
                    true => a.add(&span.mul_scalar(weight))?,
                    false => b.sub(&span.mul_scalar(1.0 - w))?,
                };
                let shares = match (w == 0.0, w == 1.0) {
                    (true, _) => a.add(&b.zeros_like())?,
                    (_, true) => b.add(&a.zeros_like())?,
                    _ => a.mul_scalar(1.0 - w).add(&b.mul_scalar(w))?,
                };
                (mixed, shares)
            }
            Operand::Tensor(weight) => {
                let (span, weight, _) = span.real_pair(OP, weight.into())?;
                let rest = weight.neg().add_scalar(1);
                let from_a = a.add(&span.mul(&weight)?)?;
                let from_b = b.sub(&span.mul(&rest)?)?;
                let of_a = a.mul(&rest)?.masked_fill(&rest.eq_scalar(0), 0.0)?;
                let of_b = b.mul(&weight)?.masked_fill(&weight.eq_scalar(0), 0.0)?;
                (weight.abs().lt_scalar(0.5).where_cond(&from_a, &from_b)?, of_a.add(&of_b)?)
            }
        };
        let is_far = span.isinf().bitwise_or(&a.isinf())?;
        is_far.where_cond(&shares, &mixed)?.to_dtype(dtype)
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

    /// The sum with a tensor that was computed in f32 for a reduced float, rounded once.
    #[track_caller]
    fn plus_wide(&self, op: &'static str, rhs: &Tensor, dtype: DType) -> Result<Tensor> {
        if !dtype.is_reduced_float() {
            return self.pair(op, rhs.into()).and_then(|(a, b)| a.add(&b));
        }
        let dtype = promoted(self, &rhs.cast_unchecked(dtype));
        self.cast_unchecked(dtype.compute()).add(&rhs.cast_unchecked(dtype.compute()))?.to_dtype(dtype)
    }

    /// Elements clamped to bounds that are tensors, broadcast; either may be absent. The upper bound
    /// wins if the bounds cross. NaN in any operand propagates. The gradient goes to the operand that
    /// was selected, and is shared where x equals a bound. [`Tensor::clamp`] takes numbers.
    /// `torch.clamp` with tensors.
    ///
    /// # Errors
    /// No bounds, shapes that do not broadcast, or several devices.
    #[track_caller]
    #[doc(alias("clamp", "clip"))]
    pub fn clamp_tensor(&self, low: Option<&Tensor>, high: Option<&Tensor>) -> Result<Tensor> {
        const OP: &str = "clamp_tensor";
        let held = |x: &Tensor, bound: &Tensor, extreme| {
            let (x, bound) = x.pair(OP, bound.into())?;
            x.binary(extreme, &bound)
        };
        let user = here();
        with_location(user, || match (low, high) {
            (Some(low), Some(high)) => {
                let above = held(self, low, BinaryOp::Maximum)?;
                held(&above, high, BinaryOp::Minimum)
            }
            (Some(low), None) => held(self, low, BinaryOp::Maximum),
            (None, Some(high)) => held(self, high, BinaryOp::Minimum),
            (None, None) => {
                Err(Error::invalid(OP, "neither a lower nor an upper bound: give at least one").here())
            }
        })
    }

    /// The greater of a and b, broadcast; the other one if one is NaN. Equal elements share the
    /// gradient. `torch.fmax`; [`Tensor::maximum`] propagates NaN.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn fmax(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.number_of("fmax", BinaryOp::Maximum, rhs.into())
    }

    /// The lesser of a and b, broadcast; the other one if one is NaN. Equal elements share the gradient.
    /// `torch.fmin`; [`Tensor::minimum`] propagates NaN.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn fmin(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.number_of("fmin", BinaryOp::Minimum, rhs.into())
    }

    /// The extreme of two elements, or the other one if one is NaN.
    #[track_caller]
    fn number_of(&self, op: &'static str, extreme: BinaryOp, rhs: Operand) -> Result<Tensor> {
        let (a, b) = self.pair(op, rhs)?;
        let both = a.binary(extreme, &b)?;
        if !both.dtype().is_float() {
            return Ok(both);
        }
        b.isnan().where_cond(&a, &a.isnan().where_cond(&b, &both)?)
    }
}
