//! Reductions of consecutive segments of an axis.

use crate::base::{
    axes::Axis,
    error::{Error, Result},
    origin::at_caller,
};
use crate::tensor::{ScatterReduce, Tensor};

impl Tensor {
    /// An axis divided into consecutive segments of these lengths, each reduced to one element: `[…, n,
    /// …]` gives `[…, segments, …]`. An empty segment gives 0 for a sum, 1 for a product, NaN for a
    /// mean, −∞ for a maximum and ∞ for a minimum. `torch.segment_reduce`, whose lengths are a tensor.
    ///
    /// # Errors
    /// No such axis, lengths that do not add up to it, a dtype that is not floating-point.
    ///
    /// ```
    /// # use tensor_core::{Device, Result, ScatterReduce, Tensor};
    /// # fn f(device: &Device) -> Result<()> {
    /// let x = Tensor::new([1.0f32, 2.0, 3.0, 4.0], device)?;
    /// let means = x.segment_reduce(ScatterReduce::Mean, &[1, 3], 0)?; // 1 and 3
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn segment_reduce(
        &self,
        reduce: ScatterReduce,
        lengths: &[usize],
        axis: impl Into<Axis>,
    ) -> Result<Tensor> {
        let axis = axis.into();
        at_caller(|| self.segments(reduce, lengths, axis))
    }

    fn segments(&self, reduce: ScatterReduce, lengths: &[usize], axis: Axis) -> Result<Tensor> {
        const OP: &str = "segment_reduce";
        self.require_float(OP)?;
        if let (ScatterReduce::Mean, Some(wide)) = (reduce, self.half_as_f32()) {
            return Ok(wide.segments(reduce, lengths, axis)?.cast_unchecked(self.dtype()));
        }
        let axis = self.shape().axis(axis, OP)?;
        let n = self.dims()[axis];
        let sum = lengths.iter().try_fold(0usize, |sum, &length| sum.checked_add(length));
        if sum != Some(n) {
            let sum = sum.map_or("more than can be counted".to_string(), |sum| sum.to_string());
            let message =
                format!("lengths that add up to {sum} for axis {axis} of {}, which is {n}", self.shape());
            return Err(Error::invalid(OP, message));
        }
        let places: Vec<usize> =
            (0..lengths.len()).flat_map(|k| std::iter::repeat_n(k, lengths[k])).collect();
        let index = crate::tensor::creation::create::host_index(&places, [n].into(), &self.device())?;
        let mut shape = self.dims().to_vec();
        shape[axis] = lengths.len();
        let (empty, by) = match reduce {
            ScatterReduce::Sum | ScatterReduce::Mean => (0.0, ScatterReduce::Sum),
            ScatterReduce::Prod => (1.0, reduce),
            ScatterReduce::Amax => (f64::NEG_INFINITY, reduce),
            ScatterReduce::Amin => (f64::INFINITY, reduce),
        };
        let base = Tensor::full(shape, empty, (self.dtype(), &self.device()))?;
        let found = base.index_reduce(axis, &index, self, by, false)?;
        if reduce != ScatterReduce::Mean {
            return Ok(found);
        }
        let count = |k: usize| lengths.get(k).map_or(0.0, |&length| length as f64);
        let counts = Tensor::from_formula(OP, lengths.len(), count, (self.dtype(), &self.device()).into())?;
        let mut along = vec![1; self.rank()];
        along[axis] = lengths.len();
        found.div(&counts.reshape(along)?)
    }
}
