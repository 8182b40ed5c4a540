//! Distinct elements, and how many elements there are of each kind.

use super::Tensor;
use crate::{
    base::{
        error::{Error, Result},
        shape::Axis,
    },
    elements::dtype::DType,
    kernels::operators::CompareOp,
};

impl Tensor {
    /// The distinct elements, ascending, in one axis. NaN equals nothing. `torch.unique`.
    ///
    /// How many there are decides the shape, so that where each begins is read on the host. No gradient flows
    /// back.
    ///
    /// # Errors
    /// More elements than i32 reaches, or whatever the device reports.
    #[track_caller]
    pub fn unique(&self) -> Result<Tensor> {
        Ok(self.unique_all()?.0)
    }

    /// The distinct elements, ascending, in one axis; for each element of this tensor the place of its value
    /// there, of this shape; and how many there are of each. Indices and counts are i64 (i32 on a device
    /// without). `torch.unique(return_inverse=True, return_counts=True)`.
    ///
    /// # Errors
    /// Those of [`Tensor::unique`].
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let (values, inverse, counts) = x.unique_all()?; // of [5, 2, 5]: [2, 5], [1, 0, 1] and [1, 2]
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

    /// The elements in row-major order without those that equal the one before, in one axis.
    /// `torch.unique_consecutive`.
    ///
    /// How many there are decides the shape, so that where each begins is read on the host. No gradient flows
    /// back.
    ///
    /// # Errors
    /// More elements than i32 reaches, or whatever the device reports.
    #[track_caller]
    pub fn unique_consecutive(&self) -> Result<Tensor> {
        Ok(self.unique_consecutive_all()?.0)
    }

    /// [`Tensor::unique_consecutive`]; for each element of this tensor the place of its value there, of this
    /// shape; and how many equal each in a row. Indices and counts are i64 (i32 on a device without).
    /// `torch.unique_consecutive(return_inverse=True, return_counts=True)`.
    ///
    /// # Errors
    /// Those of [`Tensor::unique_consecutive`].
    #[track_caller]
    #[doc(alias = "unique_consecutive")]
    pub fn unique_consecutive_all(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let flat = self.detach().flatten_all();
        flat.check_indices("unique_consecutive", 0)?;
        let (values, run, counts) = flat.runs()?;
        Ok((values, run.as_index().reshape_unchecked(self.shape().clone()), counts))
    }

    /// The distinct slices of an axis, ascending by their first elements that differ; for each slice of this
    /// tensor the place of its equal there, `[n]`; and how many there are of each. Indices and counts are i64
    /// (i32 on a device without). `torch.unique(dim=…)`.
    ///
    /// It takes a sort for each element of a slice. How many there are is read on the host, as for
    /// [`Tensor::unique`].
    ///
    /// # Errors
    /// No such axis, one longer than i32 reaches, or whatever the device reports.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let (rows, inverse, counts) = x.unique_along(0)?; // of [[2, 1], [0, 5], [2, 1]]: [[0, 5], [2, 1]], [1, 0, 1] and [1, 2]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "unique")]
    pub fn unique_along(&self, axis: impl Into<Axis>) -> Result<(Tensor, Tensor, Tensor)> {
        self.unique_along_by(axis.into())
    }

    #[track_caller]
    fn unique_along_by(&self, axis: Axis) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "unique_along";
        let axis = self.shape().axis(axis, OP)?;
        self.check_indices(OP, axis)?;
        let front = self.detach().movedim(axis, 0)?;
        let n = front.dims()[0];
        let rows = front.reshape_unchecked([n, front.numel().checked_div(n).unwrap_or(0)].into());
        // Stable sorts from the last column to the first: those before are decided among equals.
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

    /// The slices of an axis without those that equal the one before; for each slice of this tensor the
    /// place of its equal there, `[n]`; and how many equal each in a row. Indices and counts are i64 (i32
    /// on a device without). `torch.unique_consecutive(dim=…)`.
    ///
    /// How many there are is read on the host, as for [`Tensor::unique`].
    ///
    /// # Errors
    /// No such axis, one longer than i32 reaches, or whatever the device reports.
    #[track_caller]
    #[doc(alias = "unique_consecutive")]
    pub fn unique_consecutive_along(&self, axis: impl Into<Axis>) -> Result<(Tensor, Tensor, Tensor)> {
        const OP: &str = "unique_consecutive_along";
        let axis = self.shape().axis(axis, OP)?;
        self.check_indices(OP, axis)?;
        let front = self.detach().movedim(axis, 0)?;
        let n = front.dims()[0];
        let rows = front.reshape_unchecked([n, front.numel().checked_div(n).unwrap_or(0)].into());
        let (places, run, counts) = rows.row_groups()?;
        Ok((front.index_select(0, &places)?.movedim(0, axis)?, run.as_index(), counts))
    }

    /// [`groups`] of equal rows that are neighbours.
    #[track_caller]
    fn row_groups(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let n = self.dims()[0];
        let changes = self.slice(0, 1..)?.compare(CompareOp::Ne, &self.narrow(0, 0, n.saturating_sub(1))?)?;
        groups(&changes.any_axis(1, false)?, n)
    }

    /// The first of each run of equal neighbours in one axis, the number of the run of each element (i32),
    /// and how long the runs are.
    #[track_caller]
    fn runs(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let n = self.numel();
        let changes = self.slice(0, 1..)?.compare(CompareOp::Ne, &self.narrow(0, 0, n.saturating_sub(1))?)?;
        let (places, run, counts) = groups(&changes, n)?;
        Ok((self.index_select(0, &places)?, run, counts))
    }

    /// How often each of the numbers 0, 1, … comes among integers `[n]`: `[length]`, i64 (i32 on a device
    /// without). Of `None` there are as many as the greatest number asks for, which is read on the host.
    /// `torch.bincount`, whose `minlength` is never too small.
    ///
    /// # Errors
    /// A dtype that is not an integer, or not one axis. A negative number, or one of `length` and more, is
    /// [`crate::ErrorKind::IndexOutOfRange`] when the result is computed.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let counts = x.bincount(4)?; // of [2, 0, 2]: [1, 0, 2, 0]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn bincount(&self, length: impl Into<Option<usize>>) -> Result<Tensor> {
        Ok(self.binned("bincount", &self.one_for_each()?, length.into())?.as_index())
    }

    /// The sum of the `weights` `[n]` of each of the numbers 0, 1, … among integers `[n]`: `[length]`, of
    /// the weights' dtype; f64 (the default dtype on a device without) where these are integers or bools.
    /// As [`Tensor::bincount`]. `torch.bincount(weights=…)`.
    ///
    /// # Errors
    /// Those of [`Tensor::bincount`], weights of another shape, or two devices.
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

    /// 1 (i32) in this shape: one element in memory, where a computed one would be written out for a kernel
    /// that reads it as an operand.
    #[track_caller]
    pub(super) fn one_for_each(&self) -> Result<Tensor> {
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

/// Where each run begins in a line of `n` whose elements but the first differ from those before as `changes`
/// says, the number of the run of each element (i32), and how long the runs are. How many there are is read
/// on the host.
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
