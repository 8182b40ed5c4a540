//! Logarithms of sums and of quotients, powers, hypotenuses and angles: elementwise functions computed
//! in f32 or f64 and rounded once.
//!
//! A branch that is not selected never has an infinite derivative, which times 0 would give NaN.

use std::f64::consts::{LN_2, PI};

use crate::tensor::{Operand, Tensor};
use crate::{
    base::error::{Error, Result},
    elements::dtype::DType,
    kernels::formula::Formula,
};

impl Tensor {
    /// √(a² + b²), broadcast, without intermediate overflow; ∞ if either is infinite. Integers and bools
    /// give the default dtype. `torch.hypot`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn hypot(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.hypot_by(rhs.into())
    }

    #[track_caller]
    fn hypot_by(&self, rhs: Operand) -> Result<Tensor> {
        let (a, b, dtype) = self.real_pair("hypot", rhs)?;
        // Powers of two that keep two squares in range, no further from 1 than that takes: the gradient is
        // divided by them. The result does not depend on the scale, so the scale needs no gradient.
        let [large, down, small, up] = match a.dtype() == DType::F64 {
            true => [510, -513, -510, 565],
            false => [62, -65, -62, 87],
        }
        .map(|exponent| 2f64.powi(exponent));
        let greater = a.detach().abs().maximum(&b.detach().abs())?;
        let power = |k: f64| greater.constant(k.into());
        let scale = greater.lt_scalar(small).choose(&power(up), &power(1.0));
        let scale = greater.ge_scalar(large).choose(&power(down), &scale);
        let length = a.mul(&scale)?.powi(2).add(&b.mul(&scale)?.powi(2))?.sqrt().div(&scale)?;
        // An infinity wins over NaN, as in IEEE 754.
        let infinite = a.isinf().bitwise_or(&b.isinf())?;
        length.masked_fill(&infinite, f64::INFINITY)?.to_dtype(dtype)
    }

    /// x · ln y, broadcast; 0 where x is 0, unless y is NaN. Integers and bools give the default dtype.
    /// `torch.xlogy`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn xlogy(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.xlogy_by(rhs.into())
    }

    #[track_caller]
    fn xlogy_by(&self, rhs: Operand) -> Result<Tensor> {
        let (x, y, dtype) = self.real_pair("xlogy", rhs)?;
        // These arguments would give 0 times an infinity or a NaN.
        let unbounded = y.le_scalar(0.0).bitwise_or(&y.isinf())?;
        let zero = x.eq_scalar(0.0).bitwise_and(&unbounded)?;
        x.mul(&y.masked_fill(&zero, 1.0)?.log())?.to_dtype(dtype)
    }

    /// ln(eᵃ + eᵇ), broadcast, without overflow. Integers and bools give the default dtype.
    /// `torch.logaddexp`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn logaddexp(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.log_of_sum("logaddexp", rhs.into(), 1.0)
    }

    /// log₂(2ᵃ + 2ᵇ), broadcast, without overflow. Integers and bools give the default dtype.
    /// `torch.logaddexp2`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn logaddexp2(&self, rhs: impl Into<Operand>) -> Result<Tensor> {
        self.log_of_sum("logaddexp2", rhs.into(), LN_2)
    }

    /// The logarithm of the sum of two powers of a base, where `per_log` is the base's natural
    /// logarithm: max(a, b) + ln(1 + e^(−|a − b|·per_log)) / per_log, smooth also where both are equal.
    #[track_caller]
    fn log_of_sum(&self, op: &'static str, rhs: Operand, per_log: f64) -> Result<Tensor> {
        let (a, b, dtype) = self.real_pair(op, rhs)?;
        // The difference of two equal infinities would be NaN.
        let infinite = a.eq(&b)?.bitwise_and(&a.isinf())?;
        let (x, y) = (a.masked_fill(&infinite, 0.0)?, b.masked_fill(&infinite, 0.0)?);
        let difference = x.sub(&y)?;
        let above = difference.gt_scalar(0.0);
        let falling = above.where_cond(&difference.neg(), &difference)?;
        let rest = if per_log == 1.0 {
            falling.exp().log1p()
        } else {
            falling.mul_scalar(per_log).exp().log1p().div_scalar(per_log)
        };
        let sum = above.where_cond(&x, &y)?.add(&rest)?;
        infinite.where_cond(&a, &sum)?.to_dtype(dtype)
    }

    /// ln(x / (1 − x)), the inverse of [`Tensor::sigmoid`]: ∓∞ at 0 and 1, NaN outside. With `eps`, x is
    /// first clamped to [eps, 1 − eps], and has no gradient where it was outside. Integers and bools
    /// give the default dtype. `torch.logit`.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) {
    /// let y = x.logit(None); // [0.5, 0.8] gives [0, 1.3863]
    /// let z = x.logit(1e-6);
    /// # }
    /// ```
    #[track_caller]
    pub fn logit(&self, eps: impl Into<Option<f64>>) -> Tensor {
        self.logit_by(eps.into())
    }

    #[track_caller]
    fn logit_by(&self, eps: Option<f64>) -> Tensor {
        let this = self.floating();
        let wide = this.cast_unchecked(this.dtype().compute());
        let x = match eps {
            Some(eps) => wide.clamp(eps, 1.0 - eps),
            None => wide,
        };
        x.formula(Formula::Logit).cast_unchecked(this.dtype())
    }

    /// x · π/180. `torch.deg2rad`.
    #[track_caller]
    #[doc(alias = "radians")]
    pub fn deg2rad(&self) -> Tensor {
        self.floating().mul_scalar(PI / 180.0)
    }

    /// x · 180/π. `torch.rad2deg`.
    #[track_caller]
    #[doc(alias = "degrees")]
    pub fn rad2deg(&self) -> Tensor {
        self.floating().mul_scalar(180.0 / PI)
    }

    /// aᵇ in f64 for any dtypes, broadcast; in the default dtype on a device without f64.
    /// `torch.float_power`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn float_power(&self, exponent: impl Into<Operand>) -> Result<Tensor> {
        self.float_power_by(exponent.into())
    }

    #[track_caller]
    fn float_power_by(&self, exponent: Operand) -> Result<Tensor> {
        let device = self.device();
        let dtype = if device.supports(DType::F64) { DType::F64 } else { device.float_dtype() };
        let base = self.cast_unchecked(dtype);
        match exponent {
            Operand::Scalar(exponent) => Ok(base.pow_scalar(exponent)),
            Operand::Tensor(exponent) => {
                Tensor::same_device("float_power", &[self, &exponent])?;
                self.shape().broadcast(exponent.shape(), "float_power")?;
                base.pow(&exponent.cast_unchecked(dtype))
            }
        }
    }

    /// x · 2ⁿ, broadcast. Integers and bools give the default dtype. `torch.ldexp`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, or two devices.
    #[track_caller]
    pub fn ldexp(&self, exponent: impl Into<Operand>) -> Result<Tensor> {
        self.ldexp_by(exponent.into())
    }

    #[track_caller]
    fn ldexp_by(&self, exponent: Operand) -> Result<Tensor> {
        let (x, n, dtype) = self.real_pair("ldexp", exponent)?;
        x.mul(&n.exp2())?.to_dtype(dtype)
    }

    /// The logarithm of the multivariate gamma function of dimension p: p·(p − 1)/4 · ln π + Σ ln Γ(x − j/2)
    /// over j < p, for x above (p − 1)/2. Integers and bools give the default dtype. `torch.mvlgamma`.
    ///
    /// # Errors
    /// p = 0.
    #[track_caller]
    #[doc(alias = "multigammaln")]
    pub fn mvlgamma(&self, p: u32) -> Result<Tensor> {
        if p == 0 {
            return Err(Error::invalid("mvlgamma", "p = 0: the dimension must be at least 1"));
        }
        let this = self.floating();
        let x = this.cast_unchecked(this.dtype().compute());
        let mut sum = x.lgamma();
        for j in 1..p {
            sum = sum.add(&x.sub_scalar(f64::from(j) / 2.0).lgamma())?;
        }
        let p = f64::from(p);
        Ok(sum.add_scalar(p * (p - 1.0) / 4.0 * PI.ln()).cast_unchecked(this.dtype()))
    }
}
