//! Sorting along an axis, and the top k. Both are one operation with two results; a result that is not
//! used costs nothing.

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::Axis,
        error::{Error, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    graph::op::Op,
};

impl Tensor {
    /// The elements along an axis in ascending or descending order, and their indices, i64 (i32 on a
    /// device without i64).
    ///
    /// The sort is stable in both directions, and NaN is the greatest, so that every device gives the
    /// same results. `torch.sort(stable=True)`.
    ///
    /// # Errors
    /// No such axis, or one longer than i32 can index.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let (values, indices) = x.sort(-1, true)?; // [1, 3, 3] gives [3, 3, 1] and [1, 2, 0]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn sort(&self, axis: impl Into<Axis>, descending: bool) -> Result<(Tensor, Tensor)> {
        self.sort_by(axis.into(), descending)
    }

    #[track_caller]
    fn sort_by(&self, axis: Axis, descending: bool) -> Result<(Tensor, Tensor)> {
        let (values, indices) = self.whole_order("sort", axis, descending)?;
        Ok((values, indices.as_index()))
    }

    /// The indices that sort an axis, i64 (i32 on a device without i64): the second result of
    /// [`Tensor::sort`].
    ///
    /// # Errors
    /// No such axis, or one longer than i32 can index.
    #[track_caller]
    pub fn argsort(&self, axis: impl Into<Axis>, descending: bool) -> Result<Tensor> {
        Ok(self.whole_order("argsort", axis.into(), descending)?.1.as_index())
    }

    /// The `k` greatest elements along an axis (or least, if not `largest`), sorted from the extreme on,
    /// and their indices, i64 (i32 on a device without i64).
    ///
    /// They are the first `k` of [`Tensor::sort`]: of equal elements the lower index comes first, and
    /// NaN is the greatest.
    ///
    /// # Errors
    /// No such axis, one longer than i32 can index, or fewer than `k` elements along it.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: impl Into<Axis>, largest: bool) -> Result<(Tensor, Tensor)> {
        self.topk_by(k, axis.into(), largest)
    }

    #[track_caller]
    fn topk_by(&self, k: usize, axis: Axis, largest: bool) -> Result<(Tensor, Tensor)> {
        const OP: &str = "topk";
        if self.rank() == 0 {
            let (values, indices) = self.as_line().topk_by(k, axis, largest)?;
            // For a scalar, k = 0 gives an empty vector.
            return Ok(if k == 0 { (values, indices) } else { (values.as_scalar(), indices.as_scalar()) });
        }
        let at = self.shape().axis(axis, OP)?;
        if k > self.dims()[at] {
            return Err(Error::invalid(
                OP,
                format!(
                    "k = {k} of {} elements along axis {at} of shape {}; take fewer",
                    self.dims()[at],
                    self.shape()
                ),
            ));
        }
        let (values, indices) = self.first_of_order(OP, at, k, largest)?;
        Ok((values, indices.as_index()))
    }

    #[track_caller]
    fn whole_order(&self, op: &'static str, axis: Axis, descending: bool) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            let (values, indices) = self.as_line().whole_order(op, axis, descending)?;
            return Ok((values.as_scalar(), indices.as_scalar()));
        }
        let axis = self.shape().axis(axis, op)?;
        self.first_of_order(op, axis, self.dims()[axis], descending)
    }

    #[track_caller]
    fn first_of_order(
        &self,
        op: &'static str,
        axis: usize,
        k: usize,
        descending: bool,
    ) -> Result<(Tensor, Tensor)> {
        self.check_indices(op, axis)?;
        Ok(self.order(axis, k, descending))
    }

    /// The first `k` elements along an axis in sorted order, and their i32 indices.
    #[track_caller]
    pub(in crate::tensor) fn order(&self, axis: usize, k: usize, descending: bool) -> (Tensor, Tensor) {
        let shape: Shape =
            self.dims().iter().enumerate().map(|(a, &n)| if a == axis { k } else { n }).collect();
        let results = [(shape.clone(), self.dtype()), (shape, DType::I32)];
        Tensor::build_tuple(Op::Sort { axis, descending }, results, &[self]).into()
    }
}
