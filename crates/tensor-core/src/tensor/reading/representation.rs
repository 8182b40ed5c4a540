//! The representation of floats: mantissa and exponent, and adjacent numbers.

use crate::tensor::{Tensor, pointwise::signs::greatest};
use crate::{base::error::Result, elements::dtype::DType};

impl Tensor {
    /// The mantissa m and the exponent e (i32) of x = m·2ᵉ with ½ ≤ |m| < 1; zeros, infinities and NaN
    /// are their own mantissas, with the exponent 0. The gradient is the mantissa's. `torch.frexp`.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    #[track_caller]
    pub fn frexp(&self) -> Result<(Tensor, Tensor)> {
        self.require_float("frexp")?;
        let x = self.cast_unchecked(self.dtype().compute());
        let exponent = x.exponent()?;
        let fraction = x.times_power_of_two(&exponent.neg())?;
        Ok((fraction.cast_unchecked(self.dtype()), exponent.cast_unchecked(DType::I32)))
    }

    /// The exponent of x in f32 or f64, as in [`Tensor::frexp`], in the dtype of x.
    #[track_caller]
    fn exponent(&self) -> Result<Tensor> {
        let x = self.detach().abs();
        let (one, zero) = (x.constant(1.0.into()), x.constant(0.0.into()));
        let regular = x.gt_scalar(0.0).bitwise_and(&x.isfinite())?;
        let x = regular.choose(&x, &one);
        // The logarithm may be off in its last bit, and the exponent by at most one.
        let near = x.log2().floor().add_scalar(1.0);
        let fraction = x.times_power_of_two(&near.neg())?;
        let up = fraction.ge_scalar(1.0).cast_unchecked(x.dtype());
        let down = fraction.lt_scalar(0.5).cast_unchecked(x.dtype());
        Ok(regular.choose(&near.add(&up)?.sub(&down)?, &zero))
    }

    /// x·2ⁿ for integral n, in two steps, so that neither power overflows or is denormal unless the
    /// result is.
    #[track_caller]
    fn times_power_of_two(&self, n: &Tensor) -> Result<Tensor> {
        let half = n.mul_scalar(0.5).floor();
        let rest = n.sub(&half)?;
        self.mul(&half.detach().exp2())?.mul(&rest.detach().exp2())
    }

    /// The number of the dtype next to a in the direction of b, broadcast; b where both are equal, NaN
    /// where either is NaN. Gradients do not flow back. A GPU may flush denormal numbers to zero.
    /// `torch.nextafter`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, two devices, or a dtype that is not floating-point.
    #[track_caller]
    pub fn nextafter(&self, toward: &Tensor) -> Result<Tensor> {
        const OP: &str = "nextafter";
        let (x, toward) = self.detach().pair(OP, toward.detach().into())?;
        x.require_float(OP)?;
        let dtype = x.dtype();
        // Half the distance from 1 to the next number, and the least positive number, as exponents.
        let half = dtype.epsilon().log2() as i32 - 1;
        let least = dtype.smallest_normal().log2() as i32 + 1 + half;
        let (x, toward) = (x.cast_unchecked(dtype.compute()), toward.cast_unchecked(dtype.compute()));
        let zero = x.eq_scalar(0.0);
        // Small numbers are scaled up, so that no step is denormal, which a device may flush to 0.
        let small = x.abs().lt_scalar(2f64.powi(-60));
        let by =
            |small: &Tensor, factor: f64| small.choose(&x.constant(factor.into()), &x.constant(1.0.into()));
        let lifted = x.mul(&by(&small, 2f64.powi(64)))?;
        // A step just above half the distance to the neighbour, also below a power of two, reaches the
        // neighbour when the sum is rounded (Rump, Zimmermann, Boldo and Melquiond, "Computing
        // predecessor and successor in rounding to nearest", 2009).
        let step = lifted.abs().mul_scalar(2f64.powi(half) * (1.0 + 2f64.powi(half + 1)));
        let step =
            step.maximum(&small.choose(&x.constant(2f64.powi(least + 64).into()), &x.constant(0.0.into())))?;
        let up = toward.gt(&x)?;
        let next =
            up.where_cond(&lifted.add(&step)?, &lifted.sub(&step)?)?.mul(&by(&small, 2f64.powi(-64)))?;
        // A number that steps to 0 keeps its sign.
        let next = zero.where_cond(&next, &next.copysign(&x)?)?;
        let end = x.constant(greatest(dtype).unwrap_or(f64::MAX).into()).copysign(&x)?;
        let next = x.isinf().where_cond(&end, &next)?;
        let next = x.eq(&toward)?.where_cond(&toward, &next)?;
        next.masked_fill(&x.isnan().bitwise_or(&toward.isnan())?, f64::NAN)?.to_dtype(dtype)
    }
}
