//! Differences between neighbours along an axis, and integrals by the trapezoidal rule.

use super::Tensor;
use crate::{Axis, CompareOp, DType, Error, Result, Scalar, Shape};

/// Where the points of a function lie along an axis.
enum Points<'a> {
    Apart(f64),
    At(&'a Tensor),
}

impl Tensor {
    /// The `n`-th difference along an axis: `x[i + 1] − x[i]`, n times over, n elements fewer. Of bools, whether both differ. `torch.diff`.
    ///
    /// # Errors
    /// No such axis.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let steps = x.diff(1, -1)?; // of [1, 4, 9]: [3, 5]
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
            x = match x.dtype() {
                DType::Bool => high.compare(CompareOp::Ne, &low)?,
                _ => high.sub(&low)?,
            };
        }
        Ok(x)
    }

    /// All elements along an axis but the last, and all but the first.
    #[track_caller]
    fn neighbours(&self, axis: usize) -> Result<(Tensor, Tensor)> {
        let n = self.dims()[axis].saturating_sub(1);
        let first = self.dims()[axis] - n;
        Ok((self.narrow(axis, 0, n)?, self.narrow(axis, first, n)?))
    }

    /// The integral along an axis by the trapezoidal rule, of values that are `dx` apart: dx · Σ(y\[i\] + y\[i + 1\]) / 2. PyTorch's default is 1.
    /// Integers and bools give the default dtype. `torch.trapezoid`.
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
        // All but the two ends count whole.
        let inner = x.narrow(at, 1, n - 2)?.sum_axis(at, false)?;
        let ends = x.select(at, 0)?.add(&x.select(at, -1)?)?.mul_scalar(0.5);
        Ok(inner.add(&ends)?.mul_scalar(Scalar::Float(dx)))
    }

    /// The integral along an axis by the trapezoidal rule, of values at the points `x`, `[n]` for all lines or of a shape that broadcasts with
    /// this one. `torch.trapezoid`.
    ///
    /// # Errors
    /// No such axis, points that do not fit it, or two devices.
    #[track_caller]
    #[doc(alias("trapezoid", "trapz"))]
    pub fn trapezoid_at(&self, x: &Tensor, axis: impl Into<Axis>) -> Result<Tensor> {
        let (areas, axis) = self.areas("trapezoid_at", Points::At(x), axis.into())?;
        Ok(areas.sum_axis(axis, false)?.cast_unchecked(self.dtype_with(x)))
    }

    /// The integral along an axis up to each value but the first: as [`Tensor::trapezoid`], one element fewer than values. `torch.cumulative_trapezoid`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn cumulative_trapezoid(&self, dx: f64, axis: impl Into<Axis>) -> Result<Tensor> {
        let (areas, axis) = self.areas("cumulative_trapezoid", Points::Apart(dx), axis.into())?;
        Ok(areas.cumsum(axis)?.cast_unchecked(self.floating_dtype()))
    }

    /// The integral along an axis up to each value but the first: as [`Tensor::trapezoid_at`]. `torch.cumulative_trapezoid`.
    ///
    /// # Errors
    /// No such axis, points that do not fit it, or two devices.
    #[track_caller]
    #[doc(alias = "cumulative_trapezoid")]
    pub fn cumulative_trapezoid_at(&self, x: &Tensor, axis: impl Into<Axis>) -> Result<Tensor> {
        let (areas, axis) = self.areas("cumulative_trapezoid_at", Points::At(x), axis.into())?;
        Ok(areas.cumsum(axis)?.cast_unchecked(self.dtype_with(x)))
    }

    /// The dtype of what is made of this tensor at points `x`.
    fn dtype_with(&self, x: &Tensor) -> DType {
        self.floating_dtype().promote(x.dtype())
    }

    /// The area between each two neighbours, of half types in f32, and the axis they lie along.
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
        Ok((mean.mul(&widths.diff(1, axis)?)?, axis))
    }
}
