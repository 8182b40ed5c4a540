//! Norms of vectors: over any axes, of differences, and held below a bound.

use super::Tensor;
use crate::{Axes, Axis, Result, autocast};

impl Tensor {
    /// The p-norm along `axes` (`..` for all), which stay with size 1 if `keepdim`: (Σ|x|ᵖ)^(1/p). ∞ gives the greatest |x|, −∞ the least, 0 how
    /// many are not 0. PyTorch's default is 2. Summed in f32 or f64; the gradient at the norm 0 is 0, and where p is ∞ shared among equals.
    /// `torch.linalg.vector_norm`, `torch.norm`.
    ///
    /// # Errors
    /// No such axis, a dtype that is not floating-point, or for ±∞ and below 0 nothing along an axis.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let length = x.vector_norm(2, .., false)?; // of [3, −4]: 5
    /// let greatest = x.vector_norm(f64::INFINITY, .., false)?; // 4
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "norm")]
    pub fn vector_norm(&self, p: impl Into<f64>, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.norm_by("vector_norm", p.into(), axes.into(), keepdim)
    }

    #[track_caller]
    fn norm_by(&self, op: &'static str, p: f64, axes: Axes, keepdim: bool) -> Result<Tensor> {
        self.require_float(op)?;
        if let Some(wide) = autocast::widened(op, self) {
            return wide.norm_by(op, p, axes, keepdim);
        }
        self.shape().axes(&axes, op)?;
        let x = self.cast_unchecked(self.dtype().compute());
        let norm = if p == f64::INFINITY {
            x.abs().amax(axes, keepdim)?
        } else if p == f64::NEG_INFINITY || p < 0.0 && self.numel() == 0 {
            // Of nothing a negative power is as little defined as the least.
            x.abs().amin(axes, keepdim)?
        } else if p == 0.0 {
            x.ne_scalar(0.0).cast_unchecked(x.dtype()).sum_axis(axes, keepdim)?
        } else if p == 1.0 {
            x.abs().sum_axis(axes, keepdim)?
        } else if p == 2.0 {
            x.powi(2).sum_axis(axes, keepdim)?.root(2.0)
        } else if p < 0.0 {
            x.abs().powf(p).sum_axis(axes, keepdim)?.powf(1.0 / p)
        } else {
            // A zero adds nothing, and its derivative is 0 although |x|ᵖ has none there for p < 1.
            let zero = x.eq_scalar(0.0);
            let powers = x.masked_fill(&zero, 1.0)?.abs().powf(p).masked_fill(&zero, 0.0)?;
            powers.sum_axis(axes, keepdim)?.root(p)
        };
        norm.to_dtype(self.dtype())
    }

    /// x^(1/p) of numbers that are not negative, with the gradient 0 at 0.
    #[track_caller]
    fn root(&self, p: f64) -> Tensor {
        let (zero, one) = (self.eq_scalar(0.0), self.constant(1.0.into()));
        let safe = zero.choose(&one, self);
        let root = if p == 2.0 { safe.sqrt() } else { safe.powf(1.0 / p) };
        zero.choose(&self.constant(0.0.into()), &root)
    }

    /// The p-norm of a − b, broadcast, over all elements, 0-d. `torch.dist`.
    ///
    /// # Errors
    /// Shapes that do not broadcast, two devices, a dtype that is not floating-point, or no elements for ±∞ and below 0.
    #[track_caller]
    pub fn dist(&self, other: &Tensor, p: impl Into<f64>) -> Result<Tensor> {
        let (a, b) = self.pair("dist", other.into())?;
        a.sub(&b)?.norm_by("dist", p.into(), Axes::all(), false)
    }

    /// This tensor with each slice of `axis` whose p-norm is above `maxnorm` scaled down to it; p is above 0. `torch.renorm`.
    ///
    /// # Errors
    /// No such axis, p of 0 or less, a negative `maxnorm`, or a dtype that is not floating-point.
    #[track_caller]
    pub fn renorm(&self, p: impl Into<f64>, axis: impl Into<Axis>, maxnorm: f64) -> Result<Tensor> {
        self.renorm_by(p.into(), axis.into(), maxnorm)
    }

    #[track_caller]
    fn renorm_by(&self, p: f64, axis: Axis, maxnorm: f64) -> Result<Tensor> {
        const OP: &str = "renorm";
        let axis = self.shape().axis(axis, OP)?;
        // A NaN is neither.
        if !(p > 0.0 && maxnorm >= 0.0) {
            let message =
                format!("p = {p} and a bound of {maxnorm}: p must be above 0, the bound at least 0");
            return Err(crate::Error::invalid(OP, message));
        }
        self.require_float(OP)?;
        let others: Vec<usize> = (0..self.rank()).filter(|&a| a != axis).collect();
        let wide = self.cast_unchecked(self.dtype().compute());
        let norms = wide.norm_by(OP, p, others.into(), true)?;
        // PyTorch's epsilon.
        let factor = norms.add_scalar(1e-7).reciprocal().mul_scalar(maxnorm);
        let factor = norms.gt_scalar(maxnorm).where_cond(&factor, &factor.constant(1.0.into()))?;
        wide.mul(&factor)?.to_dtype(self.dtype())
    }
}
