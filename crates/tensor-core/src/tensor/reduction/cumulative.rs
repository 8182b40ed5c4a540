//! Cumulative operations along an axis: running sums, products and extremes.

use std::sync::Arc;

use crate::tensor::Tensor;
use crate::{
    base::{axes::Axis, error::Result},
    elements::dtype::DType,
    graph::{grad_mode::is_grad_enabled, op::Op},
    kernels::operators::{CumulativeOp, ReduceOp},
    native::running_extreme::RunningExtreme,
};

impl Tensor {
    /// A cumulative operation along one axis: result i depends on the elements 0..=i, or with `reverse`
    /// on i and all later ones. [`CumulativeOp`] defines each.
    ///
    /// Sums and products of integers and bools are computed in i64 (i32 on a device without i64).
    ///
    /// # Errors
    /// No such axis; for indices, an axis longer than i32 can index; for [`CumulativeOp::LogSumExp`], a
    /// dtype that is not floating-point.
    #[doc(hidden)]
    #[track_caller]
    pub fn cumulative(&self, op: CumulativeOp, axis: impl Into<Axis>, reverse: bool) -> Result<Tensor> {
        let result = self.cumulative_by(op, axis.into(), reverse)?;
        Ok(match op {
            CumulativeOp::ArgMax | CumulativeOp::ArgMin => result.as_index(),
            CumulativeOp::Sum | CumulativeOp::Prod | CumulativeOp::LogSumExp => result,
        })
    }

    /// The result in the operation's own dtype: indices are i32.
    #[track_caller]
    fn cumulative_by(&self, op: CumulativeOp, axis: Axis, reverse: bool) -> Result<Tensor> {
        if self.rank() == 0 {
            return Ok(self.as_line().cumulative_by(op, axis, reverse)?.as_scalar());
        }
        let axis = self.shape().axis(axis, op.name())?;
        let (this, dtype) = match op {
            CumulativeOp::ArgMax | CumulativeOp::ArgMin => {
                self.check_indices(op.name(), axis)?;
                (self.clone(), DType::I32)
            }
            CumulativeOp::LogSumExp => {
                self.require_float(op.name())?;
                (self.clone(), self.dtype())
            }
            CumulativeOp::Sum | CumulativeOp::Prod => {
                let this = self.reducible(ReduceOp::Sum);
                let dtype = this.dtype();
                (this, dtype)
            }
        };
        Ok(Tensor::build(Op::Cumulative { op, axis, reverse }, this.shape().clone(), dtype, &[&this]))
    }

    /// For each element of a bool vector, the number of true elements up to it, i32. Its length fits in
    /// i32.
    #[track_caller]
    pub(in crate::tensor) fn running_count(&self) -> Tensor {
        let op = Op::Cumulative { op: CumulativeOp::Sum, axis: 0, reverse: false };
        Tensor::build(op, self.shape().clone(), DType::I32, &[&self.cast_unchecked(DType::I32)])
    }

    /// The running sum along an axis: `y[i] = x[0] + … + x[i]`. Integers and bools are summed in i64 (in i32
    /// on a device without i64).
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn cumsum(&self, axis: impl Into<Axis>) -> Result<Tensor> {
        self.cumulative_by(CumulativeOp::Sum, axis.into(), false)
    }

    /// The running product along an axis: `y[i] = x[0] · … · x[i]`, in the dtype of [`Tensor::cumsum`].
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn cumprod(&self, axis: impl Into<Axis>) -> Result<Tensor> {
        self.cumulative_by(CumulativeOp::Prod, axis.into(), false)
    }

    /// ln(e^x\[0\] + … + e^x\[i\]) along an axis, without overflow.
    ///
    /// # Errors
    /// No such axis, or a dtype that is not floating-point.
    #[track_caller]
    pub fn logcumsumexp(&self, axis: impl Into<Axis>) -> Result<Tensor> {
        self.cumulative_by(CumulativeOp::LogSumExp, axis.into(), false)
    }

    /// The greatest element so far along an axis, and its index, i64 (i32 on a device without i64): the
    /// last of equal ones. NaN persists.
    ///
    /// # Errors
    /// No such axis, or one longer than i32 can index.
    #[track_caller]
    pub fn cummax(&self, axis: impl Into<Axis>) -> Result<(Tensor, Tensor)> {
        self.cummax_by(axis.into())
    }

    #[track_caller]
    fn cummax_by(&self, axis: Axis) -> Result<(Tensor, Tensor)> {
        self.running_extreme(axis, false)
    }

    /// The least element so far along an axis, and its index, i64 (i32 on a device without i64): the
    /// last of equal ones. NaN persists.
    ///
    /// # Errors
    /// No such axis, or one longer than i32 can index.
    #[track_caller]
    pub fn cummin(&self, axis: impl Into<Axis>) -> Result<(Tensor, Tensor)> {
        self.cummin_by(axis.into())
    }

    #[track_caller]
    fn cummin_by(&self, axis: Axis) -> Result<(Tensor, Tensor)> {
        self.running_extreme(axis, true)
    }

    /// The greatest or least element so far, and its index: in one pass if the device has a kernel for
    /// that and no gradient is needed, else gathered by the indices.
    #[track_caller]
    fn running_extreme(&self, axis: Axis, least: bool) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            let (extremes, places) = self.as_line().running_extreme(axis, least)?;
            return Ok((extremes.as_scalar(), places.as_scalar()));
        }
        let op = if least { CumulativeOp::ArgMin } else { CumulativeOp::ArgMax };
        let place = self.shape().axis(axis, op.name())?;
        let kernel = Arc::new(RunningExtreme { least });
        let wanted = is_grad_enabled() && self.is_tracked();
        if place + 1 == self.rank() && !wanted {
            self.check_indices(op.name(), place)?;
            let x = self.detach();
            if Tensor::has_custom_kernel(kernel.clone(), &[&x])? {
                let mut found = Tensor::custom_kernel(kernel, &[&x])?.into_iter();
                if let (Some(extremes), Some(places)) = (found.next(), found.next()) {
                    return Ok((extremes, places));
                }
            }
        }
        let indices = self.cumulative_by(op, axis, false)?;
        Ok((self.gather(axis, &indices)?, indices.as_index()))
    }
}
