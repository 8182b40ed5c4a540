//! Norms of vectors: over any axes, of differences, and limited to a maximum. Numbers whose powers would
//! leave the range of their dtype are scaled first.

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::{Axes, Axis},
        error::Result,
    },
    elements::dtype::DType,
    tensor::autocast,
};

/// The thresholds for scaling before squaring: magnitudes from `large` on are scaled by `down`, those
/// below `small` by `up`. In between, and after scaling, sums of 2²⁵ squares are in range.
struct Range {
    large: f64,
    down: f64,
    small: f64,
    up: f64,
}

impl Range {
    fn of(dtype: DType) -> Range {
        let two = |n: i32| 2f64.powi(n);
        if dtype.compute() == DType::F64 {
            Range { large: two(400), down: two(-600), small: two(-400), up: two(700) }
        } else {
            Range { large: two(50), down: two(-77), small: two(-50), up: two(100) }
        }
    }
}

impl Tensor {
    /// The p-norm along `axes` (`..` for all), which are kept with size 1 if `keepdim`: (Σ|x|ᵖ)^(1/p). ∞
    /// gives the greatest |x|, −∞ the least, 0 the number of nonzero elements. PyTorch's default is 2.
    /// Sums are in f32 or f64. The gradient is 0 at the norm 0, and for infinite p it is shared among
    /// equal elements. `torch.linalg.vector_norm`, `torch.norm`.
    ///
    /// # Errors
    /// No such axis, a dtype that is not floating-point, or for ±∞ and negative p an axis without
    /// elements.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let length = x.vector_norm(2, .., false)?; // [3, −4] gives 5
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
            // A negative power of an empty sum is undefined, like a minimum over nothing.
            x.abs().amin(axes, keepdim)?
        } else if p == 0.0 {
            x.ne_scalar(0.0).cast_unchecked(x.dtype()).sum_axis(axes, keepdim)?
        } else if p == 1.0 {
            x.abs().sum_axis(axes, keepdim)?
        } else if p == 2.0 {
            x.root_of_squares(axes, keepdim, 1.0)?
        } else {
            let (scaled, scale) = x.near_one(axes.clone())?;
            // A zero adds nothing, and its derivative is defined as 0, although |x|ᵖ has none there for
            // p < 1. For negative p, one zero makes the norm 0.
            let zero = scaled.eq_scalar(0.0);
            let powers = scaled.masked_fill(&zero, 1.0)?.abs().powf(p);
            let (powers, vanishes) = match p < 0.0 {
                false => (powers.masked_fill(&zero, 0.0)?, None),
                true => (powers, Some(zero.any_axis(axes.clone(), keepdim)?)),
            };
            let root = powers.sum_axis(axes, keepdim)?.root(p);
            let norm = root.div(&scale.reshape_unchecked(root.shape().clone()))?;
            match vanishes {
                None => norm,
                Some(vanishes) => norm.masked_fill(&vanishes, 0.0)?,
            }
        };
        norm.to_dtype(self.dtype())
    }

    /// √(Σx² / `divisor`) along axes, also if the squares leave the range of the dtype, f32 or f64. Its
    /// gradient at 0 is 0.
    ///
    /// The greatest magnitude is computed first, and x is scaled by a power of two if that is out of
    /// bounds; all other results are bit-identical to those without scaling.
    #[track_caller]
    pub(in crate::tensor) fn root_of_squares(
        &self,
        axes: Axes,
        keepdim: bool,
        divisor: f64,
    ) -> Result<Tensor> {
        if self.numel() == 0 {
            return Ok(self.powi(2).sum_axis(axes, keepdim)?.div_scalar(divisor).root(2.0));
        }
        let scale = self.detach().abs().amax(axes.clone(), true)?.scale_of_squares();
        let squares = self.mul(&scale)?.powi(2).sum_axis(axes, keepdim)?;
        let squares = if divisor == 1.0 { squares } else { squares.div_scalar(divisor) };
        let root = squares.root(2.0);
        root.div(&scale.reshape_unchecked(root.shape().clone()))
    }

    /// This f32 or f64 tensor multiplied by powers of two, which are constant along `axes`; the p-norm of the
    /// product; and the powers. The axes are kept. The norm of the product is in range even if that of the
    /// tensor is not: x / ‖x‖ is the first result divided by the second. The powers are 1 if squares are in
    /// range, and for p = 0.
    ///
    /// # Errors
    /// As [`Tensor::vector_norm`].
    #[doc(hidden)]
    #[track_caller]
    pub fn scaled_norm(&self, p: f64, axes: impl Into<Axes>) -> Result<[Tensor; 3]> {
        let axes = axes.into();
        if p == 0.0 || self.numel() == 0 {
            let norm = self.vector_norm(p, axes, true)?;
            let one = norm.constant(1.0.into()).expand_unchecked(norm.shape().clone());
            return Ok([self.clone(), norm, one]);
        }
        let scale = self.detach().abs().amax(axes.clone(), true)?.scale_of_squares();
        let scaled = self.mul(&scale)?;
        let norm = match p == 2.0 {
            true => scaled.powi(2).sum_axis(axes, true)?.root(2.0),
            false => scaled.vector_norm(p, axes, true)?,
        };
        Ok([scaled, norm, scale])
    }

    /// For each greatest magnitude, the power of two to multiply numbers by before squaring: 1 within
    /// the thresholds, and where the magnitude is not finite.
    #[doc(hidden)]
    #[track_caller]
    pub fn scale_of_squares(&self) -> Tensor {
        let Range { large, down, small, up } = Range::of(self.dtype());
        let one = self.constant(1.0.into());
        let (is_large, is_small) = (self.ge_scalar(large), self.lt_scalar(small));
        let scale = is_small.choose(&self.constant(up.into()), &one);
        let scale = is_large.choose(&self.constant(down.into()), &scale);
        // Zeros and infinities are not scaled.
        let plain = self.eq_scalar(0.0).logical_or_same(&self.isinf());
        plain.choose(&one, &scale)
    }

    /// This tensor scaled along axes by powers of two that bring its greatest magnitude near 1, and
    /// these powers, with the axes kept: for powers other than squares.
    #[track_caller]
    fn near_one(&self, axes: Axes) -> Result<(Tensor, Tensor)> {
        if self.numel() == 0 {
            return Ok((
                self.clone(),
                self.constant(1.0.into())
                    .expand(self.shape().reduced(&self.shape().axes(&axes, "norm")?, true))?,
            ));
        }
        let greatest = self.detach().abs().amax(axes, true)?;
        let plain = greatest.eq_scalar(0.0).logical_or_same(&greatest.isfinite().logical_not());
        let exponent = plain.choose(&greatest.constant(1.0.into()), &greatest).log2().floor();
        // Scaled in two steps, because the inverse of a denormal number is out of range.
        let half = exponent.mul_scalar(-0.5).floor();
        let rest = exponent.neg().sub(&half)?;
        let (a, b) = (half.exp2(), rest.exp2());
        Ok((self.mul(&a)?.mul(&b)?, a.mul(&b)?))
    }

    /// Whether either of two bool tensors of one shape is true.
    #[track_caller]
    fn logical_or_same(&self, rhs: &Tensor) -> Tensor {
        self.with_same(crate::kernels::operators::BinaryOp::Or, rhs)
    }

    /// x^(1/p) for non-negative x, with the gradient 0 at 0.
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
    /// Shapes that do not broadcast, two devices, a dtype that is not floating-point, or no elements for
    /// ±∞ and negative p.
    #[track_caller]
    pub fn dist(&self, other: &Tensor, p: impl Into<f64>) -> Result<Tensor> {
        let (a, b) = self.pair("dist", other.into())?;
        a.sub(&b)?.norm_by("dist", p.into(), Axes::all(), false)
    }

    /// This tensor with each slice along `axis` whose p-norm exceeds `maxnorm` scaled down to it; p is
    /// positive. `torch.renorm`.
    ///
    /// As in PyTorch, the factor is `maxnorm` / (norm + 1e-7). Norms below 1e-4, which that would not scale
    /// to `maxnorm`, are divided by without the epsilon.
    ///
    /// # Errors
    /// No such axis, p ≤ 0, a negative `maxnorm`, or a dtype that is not floating-point.
    #[track_caller]
    pub fn renorm(&self, p: impl Into<f64>, axis: impl Into<Axis>, maxnorm: f64) -> Result<Tensor> {
        self.renorm_by(p.into(), axis.into(), maxnorm)
    }

    #[track_caller]
    fn renorm_by(&self, p: f64, axis: Axis, maxnorm: f64) -> Result<Tensor> {
        const OP: &str = "renorm";
        let axis = self.shape().axis(axis, OP)?;
        // Negated, so that NaN fails too.
        if !(p > 0.0 && maxnorm >= 0.0) {
            let message =
                format!("p = {p} and a bound of {maxnorm}: p must be above 0, the bound at least 0");
            return Err(crate::base::error::Error::invalid(OP, message));
        }
        self.require_float(OP)?;
        let others: Vec<usize> = (0..self.rank()).filter(|&a| a != axis).collect();
        let wide = self.cast_unchecked(self.dtype().compute());
        let [scaled, norms, scale] = wide.scaled_norm(p, others)?;
        let has_epsilon = norms.ge(&scale.mul_scalar(1e-4))?;
        let epsilon = has_epsilon.choose(&scale.mul_scalar(1e-7), &norms.constant(0.0.into()));
        let is_long = norms.gt(&scale.mul_scalar(maxnorm))?;
        let divisor = is_long.choose(&norms.add(&epsilon)?, &norms.constant(1.0.into()));
        let factor = divisor.reciprocal().mul_scalar(maxnorm);
        is_long.where_cond(&scaled.mul(&factor)?, &wide)?.to_dtype(self.dtype())
    }
}
