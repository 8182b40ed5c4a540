//! Differences between neighbours along an axis, and integrals by the trapezoidal rule.

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::{Axes, Axis},
        error::{Error, Result},
        shape::Shape,
    },
    elements::{dtype::DType, scalar::Scalar},
    kernels::operators::CompareOp,
};

/// The sample points of a function along an axis.
enum Points<'a> {
    Apart(f64),
    At(&'a Tensor),
}

impl Tensor {
    /// The `n`-th difference along an axis: `x[i + 1] − x[i]`, applied n times, with n elements fewer.
    /// For bools, whether the two differ. `torch.diff`.
    ///
    /// # Errors
    /// No such axis.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let steps = x.diff(1, -1)?; // [1, 4, 9] gives [3, 5]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn diff(&self, n: usize, axis: impl Into<Axis>) -> Result<Tensor> {
        self.diff_by(n, axis.into())
    }

    #[track_caller]
    fn diff_by(&self, n: usize, axis: Axis) -> Result<Tensor> {
        let axis = self.shape().axis(axis, "diff")?;
        let mut x = self.clone();
        for _ in 0..n.min(self.dims()[axis]) {
            let (low, high) = x.neighbours(axis)?;
            x = if x.dtype().is_bool() { high.compare(CompareOp::Ne, &low)? } else { high.sub(&low)? };
        }
        Ok(x)
    }

    /// The derivative along each of `axes` (`..` for all) of a function with these values at points
    /// `spacing` apart, one number for all axes or one for each. Inside it is the central difference, of
    /// second order; at both ends a one-sided difference of order `edge_order`, 1 or 2. There is a
    /// tensor of this shape for each axis. PyTorch's defaults are 1 and 1. Integers and bools give the
    /// default dtype. `torch.gradient`.
    ///
    /// # Errors
    /// No such axis, a wrong number of spacings, an `edge_order` that is not 1 or 2, or an axis with no
    /// more elements than that.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let slopes = x.gradient(&[1.0], 0, 1)?; // [1, 2, 4, 8] gives [1, 1.5, 3, 4]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn gradient(&self, spacing: &[f64], axes: impl Into<Axes>, edge_order: usize) -> Result<Vec<Tensor>> {
        const OP: &str = "gradient";
        let axes = self.sloped(OP, axes.into(), edge_order)?;
        if spacing.len() != 1 && spacing.len() != axes.len() {
            let message =
                format!("{} spacings for {} axes: give one, or one for each", spacing.len(), axes.len());
            return Err(Error::invalid(OP, message));
        }
        let x = self.floating();
        let mut slopes = Vec::with_capacity(axes.len());
        for (k, &axis) in axes.iter().enumerate() {
            let h = spacing[if spacing.len() == 1 { 0 } else { k }];
            let part = |first: usize, len: usize| x.narrow(axis, first, len);
            let n = x.dims()[axis];
            let inner = part(2, n - 2)?.sub(&part(0, n - 2)?)?.div_scalar(2.0 * h);
            // One-sided, from the three points at an end, counted from that end.
            let end = |points: [usize; 3], h: f64| -> Result<Tensor> {
                let [a, b, c] = points;
                if edge_order == 1 {
                    return Ok(part(b, 1)?.sub(&part(a, 1)?)?.div_scalar(h));
                }
                let near = part(a, 1)?.mul_scalar(-1.5).add(&part(b, 1)?.mul_scalar(2.0))?;
                Ok(near.sub(&part(c, 1)?.mul_scalar(0.5))?.div_scalar(h))
            };
            let (third, third_last) = (2.min(n - 1), n.saturating_sub(3));
            let (first, last) = (end([0, 1, third], h)?, end([n - 1, n - 2, third_last], -h)?);
            slopes.push(Tensor::concat(&[first, inner, last], axis)?);
        }
        Ok(slopes)
    }

    /// [`Tensor::gradient`] for a function sampled at the points `coordinates`, a vector for each axis.
    /// `torch.gradient(spacing=…)` with tensors.
    ///
    /// # Errors
    /// As [`Tensor::gradient`]; coordinates whose number is not the axis's size, two devices.
    #[track_caller]
    #[doc(alias = "gradient")]
    pub fn gradient_at<T: AsRef<Tensor>>(
        &self,
        coordinates: &[T],
        axes: impl Into<Axes>,
        edge_order: usize,
    ) -> Result<Vec<Tensor>> {
        self.gradient_at_by(&crate::tensor::shape::movement::references(coordinates), axes.into(), edge_order)
    }

    #[track_caller]
    fn gradient_at_by(&self, coordinates: &[&Tensor], axes: Axes, edge_order: usize) -> Result<Vec<Tensor>> {
        const OP: &str = "gradient_at";
        let axes = self.sloped(OP, axes, edge_order)?;
        if coordinates.len() != axes.len() {
            let message =
                format!("{} coordinates for {} axes: give one for each", coordinates.len(), axes.len());
            return Err(Error::invalid(OP, message));
        }
        let x = self.floating();
        let mut slopes = Vec::with_capacity(axes.len());
        for (&axis, &points) in axes.iter().zip(coordinates) {
            Tensor::same_device(OP, &[self, points])?;
            let n = x.dims()[axis];
            if points.dims() != [n] {
                let message = format!("coordinates of shape {} for axis {axis}: give [{n}]", points.shape());
                return Err(Error::invalid(OP, message));
            }
            let steps = points.cast_unchecked(x.dtype()).diff(1, 0)?;
            let line: Shape = (0..x.rank()).map(|a| if a == axis { n - 1 } else { 1 }).collect();
            let steps = steps.reshape_unchecked(line);
            // The slope of each step; from these, the derivative at each inner point and at both ends.
            let rises = x.diff(1, axis)?.div(&steps)?;
            let of = |t: &Tensor, first: usize, len: usize| t.narrow(axis, first, len);
            let (low, high) = (of(&steps, 0, n - 2)?, of(&steps, 1, n - 2)?);
            let (rising, falling) = (of(&rises, 0, n - 2)?, of(&rises, 1, n - 2)?);
            let inner = rising.mul(&high)?.add(&falling.mul(&low)?)?.div(&low.add(&high)?)?;
            let end = |near: usize, far: usize| -> Result<Tensor> {
                let slope = of(&rises, near, 1)?;
                if edge_order == 1 {
                    return Ok(slope);
                }
                let both = of(&steps, near, 1)?.add(&of(&steps, far, 1)?)?;
                let bend = slope.sub(&of(&rises, far, 1)?)?.div(&both)?;
                slope.add(&bend.mul(&of(&steps, near, 1)?)?)
            };
            let (second, second_last) = (1.min(n - 2), n.saturating_sub(3));
            slopes.push(Tensor::concat(&[end(0, second)?, inner, end(n - 2, second_last)?], axis)?);
        }
        Ok(slopes)
    }

    /// The axes of the derivatives, in the order in which the caller gave them.
    #[track_caller]
    fn sloped(&self, op: &'static str, axes: Axes, edge_order: usize) -> Result<Vec<usize>> {
        if edge_order != 1 && edge_order != 2 {
            return Err(Error::invalid(op, format!("an edge of order {edge_order}: give 1 or 2")));
        }
        let axes = self.shape().axes_in_order(&axes, op)?;
        if let Some(axis) = axes.iter().find(|&&axis| self.dims()[axis] <= edge_order) {
            let message = format!(
                "axis {axis} of {} has not more than {edge_order} elements, which an edge of that order takes",
                self.shape()
            );
            return Err(Error::invalid(op, message));
        }
        Ok(axes.to_vec())
    }

    /// All elements along an axis but the last, and all but the first.
    #[track_caller]
    fn neighbours(&self, axis: usize) -> Result<(Tensor, Tensor)> {
        let n = self.dims()[axis].saturating_sub(1);
        let first = self.dims()[axis] - n;
        Ok((self.narrow(axis, 0, n)?, self.narrow(axis, first, n)?))
    }

    /// The integral along an axis by the trapezoidal rule, for values `dx` apart: dx · Σ(y\[i\] + y\[i +
    /// 1\]) / 2. PyTorch's default is 1. Integers and bools give the default dtype. `torch.trapezoid`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    #[doc(alias = "trapz")]
    pub fn trapezoid(&self, dx: f64, axis: impl Into<Axis>) -> Result<Tensor> {
        const OP: &str = "trapezoid";
        let axis = axis.into();
        if let Some(wide) = self.half_as_f32() {
            return Ok(wide.trapezoid(dx, axis)?.cast_unchecked(self.dtype()));
        }
        let x = self.floating();
        let at = self.shape().axis(axis, OP)?;
        let n = self.dims()[at];
        if n < 2 {
            return self.areas(OP, Points::Apart(dx), axis)?.0.sum_axis(at, false);
        }
        // All values but those at the two ends have full weight.
        let inner = x.narrow(at, 1, n - 2)?.sum_axis(at, false)?;
        let ends = x.select(at, 0)?.add(&x.select(at, -1)?)?.mul_scalar(0.5);
        Ok(inner.add(&ends)?.mul_scalar(Scalar::Float(dx)))
    }

    /// The integral along an axis by the trapezoidal rule, for values at the points `x`, which are `[n]`
    /// for all lines or broadcast with this tensor. `torch.trapezoid`.
    ///
    /// # Errors
    /// No such axis, points that do not fit it, or two devices.
    #[track_caller]
    #[doc(alias("trapezoid", "trapz"))]
    pub fn trapezoid_at(&self, x: &Tensor, axis: impl Into<Axis>) -> Result<Tensor> {
        let (areas, axis) = self.areas("trapezoid_at", Points::At(x), axis.into())?;
        Ok(areas.sum_axis(axis, false)?.cast_unchecked(self.dtype_with(x)))
    }

    /// The running integral along an axis, from the first value to each of the others, by the rule of
    /// [`Tensor::trapezoid`]: one element fewer than values. `torch.cumulative_trapezoid`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn cumulative_trapezoid(&self, dx: f64, axis: impl Into<Axis>) -> Result<Tensor> {
        let (areas, axis) = self.areas("cumulative_trapezoid", Points::Apart(dx), axis.into())?;
        Ok(areas.cumsum(axis)?.cast_unchecked(self.floating_dtype()))
    }

    /// The running integral along an axis, from the first value to each of the others, by the rule of
    /// [`Tensor::trapezoid_at`]. `torch.cumulative_trapezoid`.
    ///
    /// # Errors
    /// No such axis, points that do not fit it, or two devices.
    #[track_caller]
    #[doc(alias = "cumulative_trapezoid")]
    pub fn cumulative_trapezoid_at(&self, x: &Tensor, axis: impl Into<Axis>) -> Result<Tensor> {
        let (areas, axis) = self.areas("cumulative_trapezoid_at", Points::At(x), axis.into())?;
        Ok(areas.cumsum(axis)?.cast_unchecked(self.dtype_with(x)))
    }

    /// The dtype of an integral of this tensor over points `x`.
    fn dtype_with(&self, x: &Tensor) -> DType {
        self.floating_dtype().promote(x.dtype())
    }

    /// The areas between neighbours (of half types in f32), and their axis.
    #[track_caller]
    fn areas(&self, op: &'static str, points: Points<'_>, axis: Axis) -> Result<(Tensor, usize)> {
        let axis = self.shape().axis(axis, op)?;
        let floating = self.floating_dtype();
        let (low, high) = self.cast_unchecked(floating.compute()).neighbours(axis)?;
        let mean = low.add(&high)?.mul_scalar(0.5);
        let widths = match points {
            Points::Apart(dx) => return Ok((mean.mul_scalar(Scalar::Float(dx)), axis)),
            Points::At(x) => x,
        };
        let n = self.dims()[axis];
        let line: Shape = (0..self.rank()).map(|a| if a == axis { n } else { 1 }).collect();
        let widths = match widths.rank() {
            1 if widths.numel() == n => widths.reshape_unchecked(line),
            rank if rank == self.rank() && widths.dims()[axis] == n => widths.clone(),
            _ => {
                let (x, y) = (widths.shape(), self.shape());
                let message = format!("points of shape {x} for axis {axis} of {y}: give [{n}], or {y}");
                return Err(Error::invalid(op, message));
            }
        };
        // Cast first: differences of unsigned integers would wrap.
        Ok((mean.mul(&widths.floating().diff(1, axis)?)?, axis))
    }
}
