//! Distinct elements, and histograms of integers.

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::Axis,
        error::{Error, Result},
    },
    elements::dtype::DType,
    kernels::operators::CompareOp,
};

impl Tensor {
    /// The distinct elements in ascending order, as a vector. NaN equals nothing. `torch.unique`.
    ///
    /// The number of distinct elements determines the shape, so the device's result is read on the host.
    /// Gradients do not flow back.
    ///
    /// # Errors
    /// More elements than i32 can index, or whatever the device reports.
    #[track_caller]
    pub fn unique(&self) -> Result<Tensor> {
        Ok(self.unique_all()?.0)
    }

    /// The distinct elements in ascending order, as a vector; the index of each element's value in it,
    /// with this tensor's shape; and the count of each value. Indices and counts are i64 (i32 on a
    /// device without i64). `torch.unique(return_inverse=True, return_counts=True)`.
    ///
    /// # Errors
    /// As [`Tensor::unique`].
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let (values, inverse, counts) = x.unique_all()?; // [5, 2, 5] gives [2, 5], [1, 0, 1] and [1, 2]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias("unique", "unique_counts", "unique_inverse"))]
    pub fn unique_all(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let flat = self.detach().flatten_all();
        flat.check_indices("unique", 0)?;
        let (sorted, order) = flat.order(0, flat.numel(), false);
        let (values, run, counts) = sorted.runs()?;
        let inverse = run.zeros_like().scatter_add(0, &order, &run)?;
        Ok((values, inverse.as_index().reshape_unchecked(self.shape().clone()), counts))
    }

    /// The elements in row-major order, without those that equal their predecessor, as a vector.
    /// `torch.unique_consecutive`.
    ///
    /// The number of runs determines the shape, so the device's result is read on the host. Gradients do
    /// not flow back.
    ///
    /// # Errors
    /// More elements than i32 can index, or whatever the device reports.
    #[track_caller]
    pub fn unique_consecutive(&self) -> Result<Tensor> {
        Ok(self.unique_consecutive_all()?.0)
    }

    /// [`Tensor::unique_consecutive`]; the index of each element's value in it, with this tensor's
    /// shape; and the length of each run. Indices and counts are i64 (i32 on a device without i64).
    /// `torch.unique_consecutive(return_inverse=True, return_counts=True)`.
    ///
    /// # Errors
    /// As [`Tensor::unique_consecutive`].
    #[track_caller]
    #[doc(alias = "unique_consecutive")]
    pub fn unique_consecutive_all(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let flat = self.detach().flatten_all();
        flat.check_indices("unique_consecutive", 0)?;
        let (values, run, counts) = flat.runs()?;
        Ok((values, run.as_index().reshape_unchecked(self.shape().clone()), counts))
    }

    /// The distinct slices along an axis in lexicographic order; for each slice of this tensor the index
    /// of its equal among them, `[n]`; and the count of each. Indices and counts are i64 (i32 on a
    /// device without i64). `torch.unique(dim=…)`.
    ///
    /// It sorts once for each element of a slice. The number of distinct slices is read on the host, as
    /// in [`Tensor::unique`].
    ///
    /// # Errors
    /// No such axis, one longer than i32 can index, or whatever the device reports.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// // [[2, 1], [0, 5], [2, 1]] gives [[0, 5], [2, 1]], [1, 0, 1] and [1, 2].
    /// let (rows, inverse, counts) = x.unique_axis(0)?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "unique")]
    pub fn unique_axis(&self, axis: impl Into<Axis>) -> Result<(Tensor, Tensor, Tensor)> {
        self.unique_axis_by(axis.into())
    }

    #[track_caller]
    fn unique_axis_by(&self, axis: Axis) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "unique_axis";
        let axis = self.shape().axis(axis, OP)?;
        self.check_indices(OP, axis)?;
        let front = self.detach().movedim(axis, 0)?;
        let n = front.dims()[0];
        let rows = front.reshape_unchecked([n, front.numel().checked_div(n).unwrap_or(0)].into());
        // Stable sorts from the last column to the first: later sorts keep the earlier order of equal
        // rows.
        let mut order = Tensor::arange(0i64, n as i64, 1i64, (DType::I32, &self.device()))?;
        for column in (0..rows.dims()[1]).rev() {
            let (_, next) = rows.select(1, column)?.gather(0, &order)?.order(0, n, false);
            order = order.gather(0, &next)?;
        }
        let sorted = front.index_select(0, &order)?;
        let lines = rows.index_select(0, &order)?;
        let (places, run, counts) = lines.row_groups()?;
        let inverse = run.zeros_like().scatter_add(0, &order, &run)?;
        Ok((sorted.index_select(0, &places)?.movedim(0, axis)?, inverse.as_index(), counts))
    }

    /// The slices along an axis, without those that equal their predecessor; for each slice of this
    /// tensor the index of its equal among them, `[n]`; and the length of each run. Indices and counts
    /// are i64 (i32 on a device without i64). `torch.unique_consecutive(dim=…)`.
    ///
    /// The number of runs is read on the host, as in [`Tensor::unique`].
    ///
    /// # Errors
    /// No such axis, one longer than i32 can index, or whatever the device reports.
    #[track_caller]
    #[doc(alias = "unique_consecutive")]
    pub fn unique_consecutive_axis(&self, axis: impl Into<Axis>) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "unique_consecutive_axis";
        let axis = self.shape().axis(axis, OP)?;
        self.check_indices(OP, axis)?;
        let front = self.detach().movedim(axis, 0)?;
        let n = front.dims()[0];
        let rows = front.reshape_unchecked([n, front.numel().checked_div(n).unwrap_or(0)].into());
        let (places, run, counts) = rows.row_groups()?;
        Ok((front.index_select(0, &places)?.movedim(0, axis)?, run.as_index(), counts))
    }

    /// [`groups`] of consecutive equal rows.
    #[track_caller]
    fn row_groups(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let n = self.dims()[0];
        let changes = self.slice(0, 1..)?.compare(CompareOp::Ne, &self.narrow(0, 0, n.saturating_sub(1))?)?;
        groups(&changes.any_axis(1, false)?, n)
    }

    /// The first element of each run of equal elements, as a vector; the run number of each element
    /// (i32); and the lengths of the runs.
    #[track_caller]
    fn runs(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let n = self.numel();
        let changes = self.slice(0, 1..)?.compare(CompareOp::Ne, &self.narrow(0, 0, n.saturating_sub(1))?)?;
        let (places, run, counts) = groups(&changes, n)?;
        Ok((self.index_select(0, &places)?, run, counts))
    }

    /// The number of occurrences of each of 0, 1, … among integers `[n]`: `[length]`, i64 (i32 on a
    /// device without i64). With `None`, the greatest number determines the length and is read on the
    /// host. `torch.bincount`, but its `minlength` is only a lower bound.
    ///
    /// # Errors
    /// A dtype that is not an integer, or a tensor that is not a vector. A number that is negative or at
    /// least `length` is [`crate::ErrorKind::IndexOutOfRange`] when the result is computed.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let counts = x.bincount(4)?; // [2, 0, 2] gives [1, 0, 2, 0]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn bincount(&self, length: impl Into<Option<usize>>) -> Result<Tensor> {
        Ok(self.binned("bincount", &self.one_for_each()?, length.into())?.as_index())
    }

    /// The sum of the `weights` `[n]` for each of 0, 1, … among integers `[n]`: `[length]`, in the
    /// weights' dtype, or f64 (the default dtype on a device without f64) if these are integers or
    /// bools. See [`Tensor::bincount`]. `torch.bincount(weights=…)`.
    ///
    /// # Errors
    /// As [`Tensor::bincount`]; weights of another shape, or two devices.
    #[track_caller]
    #[doc(alias = "bincount")]
    pub fn bincount_weighted(&self, weights: &Tensor, length: impl Into<Option<usize>>) -> Result<Tensor> {
        let device = self.device();
        let dtype = if weights.dtype().is_float() {
            weights.dtype()
        } else if device.supports(DType::F64) {
            DType::F64
        } else {
            device.float_dtype()
        };
        self.binned("bincount_weighted", &weights.cast_unchecked(dtype), length.into())
    }

    /// 1 (i32) in this shape, with only one element in memory; as a computed constant it would be
    /// materialised for a kernel that reads it as an operand.
    #[track_caller]
    pub(in crate::tensor) fn one_for_each(&self) -> Result<Tensor> {
        let one = Tensor::from_slice(&[1i32], (), &self.device())?;
        Ok(one.expand_unchecked(self.shape().clone()))
    }

    #[track_caller]
    fn binned(&self, op: &'static str, weights: &Tensor, length: Option<usize>) -> Result<Tensor> {
        if !self.dtype().is_int() || self.rank() != 1 {
            let message = format!("{} of shape {}: integers [n] are needed", self.dtype(), self.shape());
            return Err(Error::invalid(op, message));
        }
        if weights.shape() != self.shape() {
            let message =
                format!("weights of shape {} for numbers of shape {}", weights.shape(), self.shape());
            return Err(Error::invalid(op, message));
        }
        let length = match length {
            Some(length) => length,
            None if self.numel() == 0 => 0,
            None => usize::try_from(self.max()?.item::<i64>()?).map_or(0, |greatest| greatest + 1),
        };
        if length == 0 && self.numel() > 0 {
            return Err(Error::invalid(op, "negative numbers have no place among the counts"));
        }
        Tensor::zeros([length], (weights.dtype(), &self.device()))?.scatter_add(0, self, weights)
    }
}

/// The start of each run in a line of `n` elements, where `changes` says whether each element but the
/// first differs from its predecessor; the run number of each element (i32); and the lengths of the
/// runs. The number of runs is read on the host.
#[track_caller]
fn groups(changes: &Tensor, n: usize) -> Result<(Tensor, Tensor, Tensor)> {
    let begins = if n == 0 { changes.clone() } else { changes.pad(&[(1, 0)], true)? };
    let places = begins.true_places()?;
    let counts = if n == 0 {
        places.clone()
    } else {
        let end = Tensor::full([1], n as i64, (places.dtype(), &places.device()))?;
        Tensor::concat(&[places.slice(0, 1..)?, end], 0)?.sub(&places)?
    };
    Ok((places, begins.running_count().sub_scalar(1), counts))
}
