//! Reductions over all or some axes, and their compositions: softmax, log-sum-exp, sums without NaN.

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::{Axes, Axis},
        error::{Error, ErrorKind, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    graph::{
        op::Op,
        trace::{Argument, traced},
    },
    kernels::operators::{ArgReduceOp, ReduceOp},
    tensor::autocast,
};

impl Tensor {
    /// A reduction along `axes` (`..` for all).
    ///
    /// Sums and products of integers and bools are in i64 (i32 on a device without i64); means of them
    /// are in the default dtype.
    ///
    /// # Errors
    /// No such axis; a maximum or minimum of no elements.
    #[doc(hidden)]
    #[track_caller]
    pub fn reduce(&self, op: ReduceOp, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.reduce_by(op, axes.into(), keepdim)
    }

    #[track_caller]
    fn reduce_by(&self, op: ReduceOp, axes: Axes, keepdim: bool) -> Result<Tensor> {
        let axes = self.shape().axes(&axes, op.name())?;
        let shape = self.shape().reduced(&axes, keepdim);
        let nothing = axes.iter().any(|&a| self.dims()[a] == 0);
        if nothing && shape.numel() > 0 && matches!(op, ReduceOp::Max | ReduceOp::Min) {
            return Err(Error::invalid(
                op.name(),
                format!(
                    "shape {} has no elements along axes {axes:?}: nothing is greatest or least",
                    self.shape()
                ),
            ));
        }
        let this = self.reducible(op);
        if axes.is_empty() {
            return Ok(this);
        }
        let dtype = this.dtype();
        let axes = axes.as_slice().into();
        Ok(Tensor::build(Op::Reduce { op, axes, keepdim }, shape, dtype, &[&this]))
    }

    /// This tensor in the dtype in which `op` reduces it.
    #[track_caller]
    pub(in crate::tensor) fn reducible(&self, op: ReduceOp) -> Tensor {
        match op {
            ReduceOp::Mean => self.floating(),
            ReduceOp::Sum | ReduceOp::Prod if !self.dtype().is_float() => {
                self.cast_unchecked(self.device().int_dtype())
            }
            ReduceOp::Any | ReduceOp::All => self.cast_unchecked(DType::Bool),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => {
                autocast::widened(op.name(), self).unwrap_or_else(|| self.clone())
            }
        }
    }

    /// A reduction of all elements, by an operation that is defined for none.
    #[track_caller]
    fn reduce_all(&self, op: ReduceOp) -> Tensor {
        let this = self.reducible(op);
        let axes = (0..self.rank()).collect();
        Tensor::build(Op::Reduce { op, axes, keepdim: false }, Shape::scalar(), this.dtype(), &[&this])
    }

    /// Σx over all elements, 0-d. Integers and bools are summed in i64 (i32 on a device without i64).
    #[track_caller]
    pub fn sum(&self) -> Tensor {
        self.reduce_all(ReduceOp::Sum)
    }

    /// Σx / n over all elements, 0-d; NaN for no elements. Integers and bools give the default dtype.
    #[track_caller]
    pub fn mean(&self) -> Tensor {
        self.reduce_all(ReduceOp::Mean)
    }

    /// Whether any element is true (or not 0), as a 0-d bool.
    #[track_caller]
    pub fn any(&self) -> Tensor {
        self.reduce_all(ReduceOp::Any)
    }

    /// Whether all elements are true (or not 0), as a 0-d bool.
    #[track_caller]
    pub fn all(&self) -> Tensor {
        self.reduce_all(ReduceOp::All)
    }

    /// The greatest element, 0-d; NaN if any is NaN.
    ///
    /// # Errors
    /// No elements.
    #[track_caller]
    pub fn max(&self) -> Result<Tensor> {
        self.reduce(ReduceOp::Max, .., false)
    }

    /// The least element, 0-d; NaN if any is NaN.
    ///
    /// # Errors
    /// No elements.
    #[track_caller]
    pub fn min(&self) -> Result<Tensor> {
        self.reduce(ReduceOp::Min, .., false)
    }

    /// Σx along `axes`, which are kept with size 1 if `keepdim`.
    #[track_caller]
    #[doc(alias = "sum")]
    pub fn sum_axis(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.reduce(ReduceOp::Sum, axes, keepdim)
    }

    /// Πx over all elements, 0-d; 1 for no elements. Integers and bools are multiplied in i64 (i32 on a
    /// device without i64). `torch.prod`.
    #[track_caller]
    pub fn prod(&self) -> Tensor {
        self.reduce_all(ReduceOp::Prod)
    }

    /// Whether any element along `axes` is true (or not 0), as bool; the axes are kept with size 1 if
    /// `keepdim`. `torch.any`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    #[doc(alias = "any")]
    pub fn any_axis(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.reduce(ReduceOp::Any, axes, keepdim)
    }

    /// Whether all elements along `axes` are true (or not 0), as bool; the axes are kept with size 1 if
    /// `keepdim`. `torch.all`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    #[doc(alias = "all")]
    pub fn all_axis(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.reduce(ReduceOp::All, axes, keepdim)
    }

    /// The number of nonzero elements along `axes` (`..` for all), i64 (i32 on a device without i64).
    /// NaN is not 0. `torch.count_nonzero`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn count_nonzero(&self, axes: impl Into<Axes>) -> Result<Tensor> {
        self.cast_unchecked(DType::Bool).reduce(ReduceOp::Sum, axes, false)
    }

    /// Σx along `axes` (`..` for all) over all elements but NaN; 0 if there are none. `torch.nansum`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn nansum(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.without_nan().reduce(ReduceOp::Sum, axes, keepdim)
    }

    /// The mean along `axes` (`..` for all) of all elements but NaN; NaN if there are none. Integers and
    /// bools give the default dtype. `torch.nanmean`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn nanmean(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.nanmean_by(axes.into(), keepdim)
    }

    #[track_caller]
    fn nanmean_by(&self, axes: Axes, keepdim: bool) -> Result<Tensor> {
        let this = self.floating();
        let wide = this.cast_unchecked(this.dtype().compute());
        let numbers = wide.isnan().logical_not().cast_unchecked(wide.dtype());
        let sum = wide.nansum(axes.clone(), keepdim)?;
        Ok(sum.div(&numbers.sum_axis(axes, keepdim)?)?.cast_unchecked(this.dtype()))
    }

    /// This tensor with 0 in place of NaN.
    #[track_caller]
    fn without_nan(&self) -> Tensor {
        if !self.dtype().is_float() {
            return self.clone();
        }
        self.isnan().choose(&self.constant(0.0.into()), self)
    }

    /// The mean along `axes`, which are kept with size 1 if `keepdim`.
    #[track_caller]
    #[doc(alias = "mean")]
    pub fn mean_axis(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.reduce(ReduceOp::Mean, axes, keepdim)
    }

    /// Πx along `axes`, which are kept with size 1 if `keepdim`.
    #[track_caller]
    #[doc(alias = "prod")]
    pub fn prod_axis(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.reduce(ReduceOp::Prod, axes, keepdim)
    }

    /// The greatest element along `axes`, which are kept with size 1 if `keepdim`; NaN if any is NaN.
    /// Equal elements share the gradient.
    ///
    /// # Errors
    /// No such axis, or no elements along one.
    #[track_caller]
    #[doc(alias = "max")]
    pub fn amax(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.reduce_by(ReduceOp::Max, axes.into(), keepdim)
    }

    /// The least element along `axes`, which are kept with size 1 if `keepdim`; NaN if any is NaN. Equal
    /// elements share the gradient.
    ///
    /// # Errors
    /// No such axis, or no elements along one.
    #[track_caller]
    #[doc(alias = "min")]
    pub fn amin(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.reduce_by(ReduceOp::Min, axes.into(), keepdim)
    }

    /// The greatest element along one axis, NaN if any is NaN, and its index, i64 (i32 on a device
    /// without i64): the first of equal ones, which gets the whole gradient; [`Tensor::amax`] shares it.
    /// The axis is kept with size 1 if `keepdim`. `torch.max(dim=…)`.
    ///
    /// # Errors
    /// No such axis, or no elements along it.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let (values, indices) = x.max_axis(-1, false)?; // [1, 3, 2] gives 3 and 1
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "max")]
    pub fn max_axis(&self, axis: impl Into<Axis>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.extreme_by(ArgReduceOp::ArgMax, axis.into(), keepdim)
    }

    /// The least element along one axis, NaN if any is NaN, and its index: see [`Tensor::max_axis`].
    /// `torch.min(dim=…)`.
    ///
    /// # Errors
    /// No such axis, or no elements along it.
    #[track_caller]
    #[doc(alias = "min")]
    pub fn min_axis(&self, axis: impl Into<Axis>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.extreme_by(ArgReduceOp::ArgMin, axis.into(), keepdim)
    }

    #[track_caller]
    fn extreme_by(&self, op: ArgReduceOp, axis: Axis, keepdim: bool) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            let (value, index) = self.as_line().extreme_by(op, axis, true)?;
            return Ok((value.as_scalar(), index.as_scalar()));
        }
        let index = self.arg_reduce_by(op, axis, true)?;
        let value = self.gather(axis, &index)?;
        if keepdim { Ok((value, index)) } else { Ok((value.squeeze(axis)?, index.squeeze(axis)?)) }
    }

    /// The least and the greatest elements along `axes` (`..` for all): [`Tensor::amin`] and
    /// [`Tensor::amax`]. `torch.aminmax`.
    ///
    /// # Errors
    /// No such axis, or no elements along one.
    #[track_caller]
    pub fn aminmax(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.aminmax_by(axes.into(), keepdim)
    }

    #[track_caller]
    fn aminmax_by(&self, axes: Axes, keepdim: bool) -> Result<(Tensor, Tensor)> {
        Ok((self.amin(axes.clone(), keepdim)?, self.amax(axes, keepdim)?))
    }

    /// The index of an extreme along one axis: the first of equal ones; a NaN takes precedence.
    ///
    /// # Errors
    /// No such axis, or no elements along it.
    #[doc(hidden)]
    #[track_caller]
    pub fn arg_reduce(&self, op: ArgReduceOp, axis: impl Into<Axis>, keepdim: bool) -> Result<Tensor> {
        self.arg_reduce_by(op, axis.into(), keepdim)
    }

    #[track_caller]
    fn arg_reduce_by(&self, op: ArgReduceOp, axis: Axis, keepdim: bool) -> Result<Tensor> {
        if self.rank() == 0 {
            return Ok(self.as_line().arg_reduce_by(op, axis, true)?.as_scalar());
        }
        let axis = self.shape().axis(axis, op.name())?;
        if self.dims()[axis] == 0 {
            return Err(Error::invalid(
                op.name(),
                format!("shape {} has no elements along axis {axis}", self.shape()),
            ));
        }
        self.check_indices(op.name(), axis)?;
        let shape = self.shape().reduced(&[axis], keepdim);
        let index = Tensor::build(Op::ArgReduce { op, axis, keepdim }, shape, DType::I32, &[self]);
        Ok(index.as_index())
    }

    /// An i32 index cast to the dtype of indices: that of integers on its device.
    #[track_caller]
    pub(in crate::tensor) fn as_index(&self) -> Tensor {
        self.cast_unchecked(self.device().int_dtype())
    }

    /// Fails for an axis that is too long for i32 indices.
    #[track_caller]
    pub(in crate::tensor) fn check_indices(&self, op: &'static str, axis: usize) -> Result<()> {
        if self.dims()[axis] <= i32::MAX as usize {
            return Ok(());
        }
        Err(Error::invalid(op, format!("axis {axis} of shape {} passes i32 indices", self.shape())))
    }

    /// The flat index of the greatest element, 0-d, i64 (i32 on a device without i64).
    #[track_caller]
    pub fn argmax(&self) -> Result<Tensor> {
        self.flatten_all().arg_reduce(ArgReduceOp::ArgMax, 0, false)
    }

    /// The flat index of the least element, 0-d, i64 (i32 on a device without i64).
    #[track_caller]
    pub fn argmin(&self) -> Result<Tensor> {
        self.flatten_all().arg_reduce(ArgReduceOp::ArgMin, 0, false)
    }

    /// The index of the greatest element along an axis, i64 (i32 on a device without i64).
    #[track_caller]
    #[doc(alias = "argmax")]
    pub fn argmax_axis(&self, axis: impl Into<Axis>, keepdim: bool) -> Result<Tensor> {
        self.arg_reduce(ArgReduceOp::ArgMax, axis, keepdim)
    }

    /// The index of the least element along an axis, i64 (i32 on a device without i64).
    #[track_caller]
    #[doc(alias = "argmin")]
    pub fn argmin_axis(&self, axis: impl Into<Axis>, keepdim: bool) -> Result<Tensor> {
        self.arg_reduce(ArgReduceOp::ArgMin, axis, keepdim)
    }

    /// eˣ / Σeˣ along an axis, computed from x − max x.
    ///
    /// # Errors
    /// No such axis, or a dtype that is not floating-point.
    #[track_caller]
    pub fn softmax(&self, axis: impl Into<Axis>) -> Result<Tensor> {
        self.softmax_by(axis.into())
    }

    #[track_caller]
    fn softmax_by(&self, axis: Axis) -> Result<Tensor> {
        if let Some(wide) = autocast::widened("softmax", self) {
            return wide.softmax_by(axis);
        }
        if let Some(wide) = self.half_as_f32() {
            return Ok(wide.softmax_by(axis)?.cast_unchecked(self.dtype()));
        }
        let Some(shifted) = self.shifted("softmax", axis)? else { return Ok(self.clone()) };
        let exp = shifted.exp();
        // One division per row.
        let out = exp.mul(&exp.sum_axis(axis, true)?.reciprocal())?;
        Ok(self.traced_along("softmax", axis, out))
    }

    /// x − ln Σeˣ along an axis, computed from x − max x.
    ///
    /// # Errors
    /// No such axis, or a dtype that is not floating-point.
    #[track_caller]
    pub fn log_softmax(&self, axis: impl Into<Axis>) -> Result<Tensor> {
        self.log_softmax_by(axis.into())
    }

    #[track_caller]
    fn log_softmax_by(&self, axis: Axis) -> Result<Tensor> {
        if let Some(wide) = autocast::widened("log_softmax", self) {
            return wide.log_softmax_by(axis);
        }
        if let Some(wide) = self.half_as_f32() {
            return Ok(wide.log_softmax_by(axis)?.cast_unchecked(self.dtype()));
        }
        let Some(shifted) = self.shifted("log_softmax", axis)? else { return Ok(self.clone()) };
        let out = shifted.sub(&shifted.exp().sum_axis(axis, true)?.log())?;
        Ok(self.traced_along("log_softmax", axis, out))
    }

    /// Notes a function of this tensor along an axis.
    fn traced_along(&self, name: &'static str, axis: Axis, out: Tensor) -> Tensor {
        let at = || self.shape().axis(axis, name).map_or(0, |axis| axis as i64);
        traced(name, [Some(self)], out, || vec![("axis", Argument::Int(at()))])
    }

    /// ln Σeˣ along `axes`, computed from x − max x; −∞ for no elements. The axes are kept with size 1
    /// if `keepdim`. Integers and bools give the default dtype.
    #[track_caller]
    pub fn logsumexp(&self, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.logsumexp_by(axes.into(), keepdim)
    }

    #[track_caller]
    fn logsumexp_by(&self, axes: Axes, keepdim: bool) -> Result<Tensor> {
        if let Some(wide) = autocast::widened("logsumexp", self) {
            return wide.logsumexp_by(axes, keepdim);
        }
        if let Some(wide) = self.half_as_f32() {
            return Ok(wide.logsumexp_by(axes, keepdim)?.cast_unchecked(self.dtype()));
        }
        if !self.dtype().is_float() {
            return self.floating().logsumexp_by(axes, keepdim);
        }
        if self.shape().axes(&axes, "logsumexp")?.iter().any(|&a| self.dims()[a] == 0) {
            // Without elements there is no maximum, and no overflow either.
            return Ok(self.exp().sum_axis(axes, keepdim)?.log());
        }
        let max = self.detach().amax(axes.clone(), true)?;
        // An infinite maximum would give ∞ − ∞: shift by 0 there.
        let infinite = max.isinf();
        let max = max.masked_fill(&infinite, 0.0)?;
        let log = self.sub(&max)?.exp().sum_axis(axes, keepdim)?.log();
        log.add(&max.reshape_unchecked(log.shape().clone()))
    }

    /// x − max x along an axis, where the maximum is detached: its gradient cancels. `None` if there are
    /// no elements.
    #[track_caller]
    fn shifted(&self, op: &'static str, axis: Axis) -> Result<Option<Tensor>> {
        self.shape().axes(&axis.into(), op)?;
        self.require_float(op)?;
        if self.numel() == 0 {
            return Ok(None);
        }
        self.sub(&self.detach().amax(axis, true)?).map(Some)
    }

    /// Fails for a dtype that is not floating-point.
    #[track_caller]
    pub(in crate::tensor) fn require_float(&self, op: &'static str) -> Result<()> {
        if self.dtype().is_float() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::DTypeMismatch {
            op,
            lhs: self.dtype(),
            rhs: DType::F32,
            hint: "a floating-point tensor is needed: cast it with .to_dtype(DType::F32)".into(),
        }))
    }
}
