//! Insertion points in sorted numbers, and membership in a set.

use std::sync::Arc;

use crate::tensor::Tensor;
use crate::{
    base::error::{Error, Result},
    elements::{dtype::DType, scalar::Scalar},
    graph::op::Op,
    kernels::operators::ReduceOp,
    native::places::SearchSorted,
};

/// On a device without a kernel for [`SearchSorted`], up to this many sorted numbers are all compared with
/// each value, in one kernel; longer sequences use binary search, with a gather for each step.
const COMPARED_MAX_ELEMENTS: usize = 64;

impl Tensor {
    /// For each of `values`, the number of these sorted numbers that precede it: those less than it or,
    /// with `right`, those not greater than it. So `sorted[i − 1] < v ≤ sorted[i]`, or `sorted[i − 1] ≤
    /// v < sorted[i]` with `right`. NaN is the greatest, as in [`Tensor::sort`]. i64 (i32 on a device
    /// without i64). `torch.searchsorted`.
    ///
    /// Sorted numbers `[n]` accept values of any shape; `[…, n]` accept `[…, m]`, row by row. For a
    /// sorter, pass `sequence.gather(-1, &sorter)?`. For numbers that are not sorted, the result is
    /// unspecified.
    ///
    /// # Errors
    /// A 0-d sequence, leading axes that differ, two devices, a sequence longer than i32 can index.
    ///
    /// ```
    /// # fn f(sorted: &tensor_core::Tensor, values: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let places = sorted.searchsorted(values, false)?; // 3 and 4 in [1, 3, 5] give 1 and 2
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        self.places_of("searchsorted", values, right)
    }

    /// The bucket of each number among sorted `boundaries` `[n]`: [`Tensor::searchsorted`] with the
    /// operands exchanged. `torch.bucketize`.
    ///
    /// # Errors
    /// Boundaries that are not a vector, or two devices.
    #[track_caller]
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Result<Tensor> {
        const OP: &str = "bucketize";
        if boundaries.rank() != 1 {
            let message = format!("boundaries of shape {}: give a vector", boundaries.shape());
            return Err(Error::invalid(OP, message));
        }
        boundaries.places_of(OP, self, right)
    }

    #[track_caller]
    fn places_of(&self, op: &'static str, values: &Tensor, right: bool) -> Result<Tensor> {
        Tensor::same_device(op, &[self, values])?;
        let Some((&n, lead)) = self.dims().split_last() else {
            return Err(Error::invalid(op, "a scalar is no sorted sequence; use .unsqueeze(0)?"));
        };
        let own_rows = !lead.is_empty();
        if own_rows && (values.rank() != self.rank() || values.dims()[..lead.len()] != *lead) {
            let hint = "rows of sorted numbers take values with the same leading axes; one row takes any";
            return Err(crate::tensor::shape_misfit(op, self.shape(), values.shape(), hint));
        }
        self.check_indices(op, lead.len())?;
        let (sorted, values) = (self.detach(), values.detach());
        let line = if own_rows { values.clone() } else { values.flatten_all() };
        let dtype = crate::tensor::pointwise::elementwise::promoted(&sorted, &line);
        let (kernel, given) =
            (Arc::new(SearchSorted { right }), [&sorted, &line].map(|t| t.cast_unchecked(dtype)));
        let given = [&given[0], &given[1]];
        if Tensor::has_custom_kernel(kernel.clone(), &given)? {
            let places = Tensor::custom_kernel(kernel, &given)?.swap_remove(0);
            return Ok(places.as_index().reshape_unchecked(values.shape().clone()));
        }
        // NaN is the greatest, and equal to itself, as in a sort.
        let before = |sorted: &Tensor, values: &Tensor| -> Result<Tensor> {
            let less = if right { sorted.le(values)? } else { sorted.lt(values)? };
            match (values.dtype().is_float(), right) {
                (false, _) => Ok(less),
                (true, true) => less.bitwise_or(&values.isnan()),
                (true, false) => less.bitwise_or(&values.isnan().bitwise_and(&sorted.isnan().logical_not())?),
            }
        };
        if n <= COMPARED_MAX_ELEMENTS {
            let sorted = if own_rows { sorted.unsqueeze(-2)? } else { sorted };
            return before(&sorted, &values.unsqueeze(-1)?)?.sum_axis(-1, false);
        }
        let zeros = Op::Full(Scalar::Int(0));
        let dtype = self.device().int_dtype();
        let mut place = Tensor::source_unchecked(zeros, line.shape().clone(), dtype, &self.device());
        let mut step = 1 << n.ilog2();
        while step > 0 {
            let next = place.add_scalar(step as i64);
            let there = sorted.gather(-1, &next.minimum_scalar(n as i64).sub_scalar(1))?;
            let on = next.le_scalar(n as i64).bitwise_and(&before(&there, &line)?)?;
            place = on.where_cond(&next, &place)?;
            step /= 2;
        }
        Ok(place.reshape_unchecked(values.shape().clone()))
    }

    /// Whether each element occurs in `test`, which may have any shape; gives bool. NaN equals nothing.
    /// `torch.isin`; [`Tensor::logical_not`] inverts it.
    ///
    /// # Errors
    /// Two devices, or more test elements than i32 can index.
    #[track_caller]
    pub fn isin(&self, test: &Tensor) -> Result<Tensor> {
        const OP: &str = "isin";
        Tensor::same_device(OP, &[self, test])?;
        let (x, test) = (self.detach(), test.detach().flatten_all());
        match test.numel() {
            0 => {
                let none = Op::Full(Scalar::Bool(false));
                Ok(Tensor::source_unchecked(none, x.shape().clone(), DType::Bool, &x.device()))
            }
            n if n <= COMPARED_MAX_ELEMENTS => x.unsqueeze(-1)?.eq(&test)?.reduce(ReduceOp::Any, -1, false),
            n => {
                let (sorted, _) = test.sort(0, false)?;
                let place = sorted.places_of(OP, &x, false)?.minimum_scalar(n as i64 - 1);
                let found = sorted.gather(0, &place.flatten_all())?;
                found.reshape_unchecked(x.shape().clone()).eq(&x)
            }
        }
    }
}
