//! Order statistics along an axis: medians, quantiles, the k-th smallest element; and the most frequent
//! one.

use crate::tensor::Tensor;
use crate::{
    base::{
        axes::{Axes, Axis},
        error::{Error, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    kernels::operators::{ArgReduceOp, CumulativeOp},
    tensor::Operand,
};

/// The value of a quantile whose rank is between two elements. PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Interpolation {
    /// Linear interpolation between the two.
    #[default]
    Linear,
    /// The lower one.
    Lower,
    /// The higher one.
    Higher,
    /// The nearer one; of equal distances the one of even rank.
    Nearest,
    /// Their mean.
    Midpoint,
}

impl Interpolation {
    /// The quantile of a fractional rank: `at` reads the element at the rank rounded down, to nearest,
    /// or up, and `weight` is the fractional part.
    #[track_caller]
    fn between<R>(
        self,
        at: impl Fn(R) -> Result<Tensor>,
        [below, nearest, above]: [R; 3],
        weight: impl Into<Operand>,
    ) -> Result<Tensor> {
        match self {
            Interpolation::Linear => at(below)?.lerp(&at(above)?, weight),
            Interpolation::Lower => at(below),
            Interpolation::Higher => at(above),
            Interpolation::Nearest => at(nearest),
            Interpolation::Midpoint => at(below)?.lerp(&at(above)?, 0.5),
        }
    }
}

impl Tensor {
    /// The median of all elements, 0-d: the lower one of the two middle elements. NaN if any is NaN.
    /// `torch.median`.
    ///
    /// # Errors
    /// No elements.
    #[track_caller]
    pub fn median(&self) -> Result<Tensor> {
        Ok(self.flatten_all().median_by("median", 0.into(), false, false)?.0)
    }

    /// The median along an axis, the lower one of the two middle elements, and its index, i64 (i32 on a
    /// device without i64). If there is a NaN, it is the median. The axis is kept with size 1 if
    /// `keepdim`. `torch.median`.
    ///
    /// # Errors
    /// No such axis, or no elements along it.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let (values, indices) = x.median_axis(-1, false)?; // [4, 1, 3, 2] gives 2 and 3
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "median")]
    pub fn median_axis(&self, axis: impl Into<Axis>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.median_by("median", axis.into(), keepdim, false)
    }

    /// The median of all elements but NaN, 0-d: the lower one of the two middle elements; NaN if all are
    /// NaN. `torch.nanmedian`.
    ///
    /// # Errors
    /// No elements.
    #[track_caller]
    pub fn nanmedian(&self) -> Result<Tensor> {
        Ok(self.flatten_all().median_by("nanmedian", 0.into(), false, true)?.0)
    }

    /// The median along an axis of all elements but NaN, the lower one of the two middle elements, and
    /// its index, i64 (i32 on a device without i64). The axis is kept with size 1 if `keepdim`.
    /// `torch.nanmedian`.
    ///
    /// # Errors
    /// No such axis, or no elements along it.
    #[track_caller]
    #[doc(alias = "nanmedian")]
    pub fn nanmedian_axis(&self, axis: impl Into<Axis>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.median_by("nanmedian", axis.into(), keepdim, true)
    }

    #[track_caller]
    fn median_by(
        &self,
        op: &'static str,
        axis: Axis,
        keepdim: bool,
        skip_nan: bool,
    ) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            return self.as_line().median_by(op, axis, false, skip_nan);
        }
        let (axis, n) = self.some_along(op, axis)?;
        let middle = (n - 1) / 2;
        let place = if !self.dtype().is_float() {
            self.order(axis, middle + 1, false).1.narrow(axis, middle, 1)?
        } else if skip_nan {
            // NaN is the greatest, so the other elements come first.
            let numbers = self.isnan().logical_not().sum_axis(axis, true)?;
            let rank = numbers.sub_scalar(1).floor_divide_scalar(2).maximum_scalar(0);
            self.order(axis, n, false).1.gather(axis, &rank)?
        } else {
            let place = self.order(axis, middle + 1, false).1.narrow(axis, middle, 1)?;
            let nan = self.arg_reduce(ArgReduceOp::ArgMax, axis, true)?.cast_unchecked(DType::I32);
            self.isnan().any_axis(axis, true)?.where_cond(&nan, &place)?
        };
        self.taken(axis, &place, keepdim)
    }

    /// The `k`-th least element along an axis, k ≥ 1, and its index, i64 (i32 on a device without i64):
    /// the first of equal ones, and NaN is the greatest. The axis is kept with size 1 if `keepdim`.
    /// `torch.kthvalue`.
    ///
    /// # Errors
    /// No such axis, or k outside 1 to the number of elements along it.
    #[track_caller]
    pub fn kthvalue(&self, k: usize, axis: impl Into<Axis>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.kthvalue_by(k, axis.into(), keepdim)
    }

    #[track_caller]
    fn kthvalue_by(&self, k: usize, axis: Axis, keepdim: bool) -> Result<(Tensor, Tensor)> {
        const OP: &str = "kthvalue";
        if self.rank() == 0 {
            return self.as_line().kthvalue_by(k, axis, false);
        }
        let (axis, n) = self.some_along(OP, axis)?;
        if k == 0 || k > n {
            let message = format!(
                "k = {k} of {n} elements along axis {axis} of shape {}: 1 is the least",
                self.shape()
            );
            return Err(Error::invalid(OP, message));
        }
        let place = self.order(axis, k, false).1.narrow(axis, k - 1, 1)?;
        self.taken(axis, &place, keepdim)
    }

    /// The most frequent element along an axis, the least of several, and the index of its last
    /// occurrence, i64 (i32 on a device without i64). A NaN equals nothing. The axis is kept with size 1
    /// if `keepdim`. `torch.mode`.
    ///
    /// # Errors
    /// No such axis, or no elements along it.
    #[track_caller]
    pub fn mode(&self, axis: impl Into<Axis>, keepdim: bool) -> Result<(Tensor, Tensor)> {
        self.mode_by(axis.into(), keepdim)
    }

    #[track_caller]
    fn mode_by(&self, axis: Axis, keepdim: bool) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 {
            return self.as_line().mode_by(axis, false);
        }
        let (axis, n) = self.some_along("mode", axis)?;
        let (sorted, order) = self.detach().order(axis, n, false);
        // The distance of each element in sorted order from the first of its equals: the first greatest
        // distance ends the longest run.
        let mut padding = vec![(0, 0); self.rank()];
        padding[axis] = (1, 0);
        let begins =
            sorted.narrow(axis, 1, n - 1)?.ne(&sorted.narrow(axis, 0, n - 1)?)?.pad(&padding, true)?;
        let line: Shape = (0..self.rank()).map(|a| if a == axis { n } else { 1 }).collect();
        let places =
            Tensor::arange(0i64, n as i64, 1i64, (DType::I32, &self.device()))?.reshape_unchecked(line);
        let begin = begins.where_cond(&places, &places.constant(0.into()))?;
        let begin = begin.gather(axis, &begin.cumulative(CumulativeOp::ArgMax, axis, false)?)?;
        let ends = places.sub(&begin)?.arg_reduce(ArgReduceOp::ArgMax, axis, true)?;
        self.taken(axis, &order.gather(axis, &ends)?, keepdim)
    }

    /// The number and the size of an axis, which must have elements.
    #[track_caller]
    fn some_along(&self, op: &'static str, axis: Axis) -> Result<(usize, usize)> {
        let axis = self.shape().axis(axis, op)?;
        self.check_indices(op, axis)?;
        match self.dims()[axis] {
            0 => {
                let message = format!("shape {} has no elements along axis {axis}", self.shape());
                Err(Error::invalid(op, message))
            }
            n => Ok((axis, n)),
        }
    }

    /// The elements at positions along an axis, one per line, and the positions in the dtype of indices.
    #[track_caller]
    fn taken(&self, axis: usize, place: &Tensor, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let (values, indices) = (self.gather(axis, place)?, place.as_index());
        if keepdim { Ok((values, indices)) } else { Ok((values.squeeze(axis)?, indices.squeeze(axis)?)) }
    }

    /// The `q`-quantile along `axes` (`..` for all), 0 ≤ q ≤ 1: the element of rank q·(n − 1) in
    /// ascending order, linearly interpolated between two of them. NaN if any is NaN. The axes are kept
    /// with size 1 if `keepdim`. `torch.quantile`; [`Tensor::quantiles`] gives several.
    ///
    /// # Errors
    /// A q outside 0 to 1, no such axis, no elements along the axes, or a dtype that is not
    /// floating-point.
    #[track_caller]
    #[doc(alias = "percentile")]
    pub fn quantile(&self, q: f64, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.ranked("quantile", &[q], axes.into(), Interpolation::Linear, keepdim, false)?.squeeze(0)
    }

    /// Several quantiles along `axes`, with a new leading axis: `[q.len(), …]`. Like
    /// [`Tensor::quantile`], with a choice of interpolation. The elements are sorted once.
    /// `torch.quantile`.
    ///
    /// # Errors
    /// No quantiles or one outside 0 to 1, no such axis, no elements along the axes, or a dtype that is not
    /// floating-point.
    ///
    /// ```
    /// # use tensor_core::Interpolation;
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// // [0, 1, 2, 3] gives [0.75, 1.5, 2.25].
    /// let quartiles = x.quantiles(&[0.25, 0.5, 0.75], .., Interpolation::Linear, false)?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "quantile")]
    pub fn quantiles(
        &self,
        q: &[f64],
        axes: impl Into<Axes>,
        interpolation: Interpolation,
        keepdim: bool,
    ) -> Result<Tensor> {
        self.ranked("quantiles", q, axes.into(), interpolation, keepdim, false)
    }

    /// [`Tensor::quantile`] of all elements but NaN; NaN if all are NaN. `torch.nanquantile`.
    ///
    /// # Errors
    /// As [`Tensor::quantile`].
    #[track_caller]
    pub fn nanquantile(&self, q: f64, axes: impl Into<Axes>, keepdim: bool) -> Result<Tensor> {
        self.ranked("nanquantile", &[q], axes.into(), Interpolation::Linear, keepdim, true)?.squeeze(0)
    }

    /// [`Tensor::quantiles`] of all elements but NaN. `torch.nanquantile`.
    ///
    /// # Errors
    /// As [`Tensor::quantiles`].
    #[track_caller]
    #[doc(alias = "nanquantile")]
    pub fn nanquantiles(
        &self,
        q: &[f64],
        axes: impl Into<Axes>,
        interpolation: Interpolation,
        keepdim: bool,
    ) -> Result<Tensor> {
        self.ranked("nanquantiles", q, axes.into(), interpolation, keepdim, true)
    }

    /// [`Tensor::quantiles`] for the numbers in a tensor `q`, 0-d or `[m]`: `[m, …]`, without the first
    /// axis for a 0-d one. Linear interpolation also has a gradient with respect to q. `torch.quantile`
    /// with a tensor.
    ///
    /// # Errors
    /// As [`Tensor::quantiles`]; a q of more axes, of another dtype or device. A number in q outside 0
    /// to 1 is [`crate::ErrorKind::IndexOutOfRange`] when the result is computed, if its rank is out of
    /// range.
    #[track_caller]
    #[doc(alias = "quantile")]
    pub fn quantiles_at(
        &self,
        q: &Tensor,
        axes: impl Into<Axes>,
        interpolation: Interpolation,
        keepdim: bool,
    ) -> Result<Tensor> {
        self.ranked_at("quantiles_at", q, axes.into(), interpolation, keepdim, false)
    }

    /// [`Tensor::quantiles_at`] of all elements but NaN; NaN if all are NaN. `torch.nanquantile` with a
    /// tensor.
    ///
    /// # Errors
    /// As [`Tensor::quantiles_at`].
    #[track_caller]
    #[doc(alias = "nanquantile")]
    pub fn nanquantiles_at(
        &self,
        q: &Tensor,
        axes: impl Into<Axes>,
        interpolation: Interpolation,
        keepdim: bool,
    ) -> Result<Tensor> {
        self.ranked_at("nanquantiles_at", q, axes.into(), interpolation, keepdim, true)
    }

    #[track_caller]
    fn ranked_at(
        &self,
        op: &'static str,
        q: &Tensor,
        axes: Axes,
        interpolation: Interpolation,
        keepdim: bool,
        skip_nan: bool,
    ) -> Result<Tensor> {
        Tensor::same_device(op, &[self, q])?;
        self.require_float(op)?;
        if q.rank() > 1 || q.dtype() != self.dtype() || q.numel() == 0 {
            let (found, dtype) = (q.shape(), q.dtype());
            let message =
                format!("quantiles {found} of {dtype}: give one axis of {}, or a number", self.dtype());
            return Err(Error::invalid(op, message));
        }
        let (axes, lines, last) = self.lines_along(op, &axes)?;
        let n = lines.dims()[last];
        let nan = lines.isnan();
        // Lines without a result.
        let (lines, undefined) = if skip_nan {
            // Zeros in their place keep NaN out of the gradient of q.
            let undefined = nan.all_axis(last, true)?;
            (lines.masked_fill(&undefined, 0.0)?, undefined)
        } else {
            let undefined = nan.any_axis(last, true)?;
            (lines, undefined)
        };
        let sorted = lines.order(last, n, false).0;
        let wide = self.dtype().compute();
        let q_line = q.as_line().cast_unchecked(wide);
        let m = q_line.numel();
        let line: Shape = (0..=last).map(|axis| if axis == last { m } else { 1 }).collect();
        let spread: Shape = lines.dims()[..last].iter().copied().chain([m]).collect();
        let q_line = q_line.reshape_unchecked(line);
        let rank = if skip_nan {
            let numbers = lines.isnan().logical_not().cast_unchecked(wide).sum_axis(last, true)?;
            q_line.mul(&numbers.sub_scalar(1.0))?
        } else {
            q_line.mul_scalar((n - 1) as f64)
        };
        let at = |rank: Tensor| {
            let index = rank.detach().cast_unchecked(DType::I32).expand_unchecked(spread.clone());
            sorted.gather(last, &index)
        };
        let (below, above) = (rank.floor().detach(), rank.ceil().detach());
        let weight = rank.sub(&below)?.cast_unchecked(self.dtype());
        let value = interpolation.between(at, [below, rank.round(), above], weight)?;
        let value = value.masked_fill(&undefined, f64::NAN)?;
        let one: Shape = self.shape().reduced(&axes, keepdim);
        let lead = (q.rank() == 1).then_some(m);
        let shape: Shape = lead.into_iter().chain(one.iter().copied()).collect();
        Ok(value.movedim(-1, 0)?.reshape_unchecked(shape))
    }

    /// The axes; this tensor with them moved last and merged, with at least one element along them; and
    /// the number of the merged axis.
    #[track_caller]
    fn lines_along(&self, op: &'static str, axes: &Axes) -> Result<(Vec<usize>, Tensor, usize)> {
        let axes = self.shape().axes(axes, op)?;
        let kept = (0..self.rank()).filter(|axis| !axes.contains(axis));
        let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
        let mut lines = self.shape().reduced(&axes, false).to_vec();
        let (last, n) = (lines.len(), axes.iter().map(|&a| self.dims()[a]).product());
        lines.push(n);
        let lines = self.permute(order)?.reshape_unchecked(lines.into());
        lines.some_along(op, last.into())?;
        Ok((axes.to_vec(), lines, last))
    }

    #[track_caller]
    fn ranked(
        &self,
        op: &'static str,
        q: &[f64],
        axes: Axes,
        interpolation: Interpolation,
        keepdim: bool,
        skip_nan: bool,
    ) -> Result<Tensor> {
        self.require_float(op)?;
        if q.is_empty() {
            return Err(Error::invalid(op, "no quantiles: give at least one"));
        }
        if let Some(wrong) = q.iter().find(|q| !(0.0..=1.0).contains(*q)) {
            return Err(Error::invalid(op, format!("the quantile {wrong}: give numbers from 0 to 1")));
        }
        let (axes, lines, last) = self.lines_along(op, &axes)?;
        let n = lines.dims()[last];
        let sorted = lines.order(last, n, false).0;
        let nan = lines.isnan();
        let wide = self.dtype().compute();
        let numbers = nan.logical_not().cast_unchecked(wide).sum_axis(last, true)?;
        let mut quantiles = Vec::with_capacity(q.len());
        for &q in q {
            let value = if skip_nan {
                let rank = numbers.sub_scalar(1.0).mul_scalar(q).maximum_scalar(0.0);
                let at = |rank: Tensor| sorted.gather(last, &rank.cast_unchecked(DType::I32));
                let (below, above) = (rank.floor(), rank.ceil());
                let weight = rank.sub(&below)?;
                interpolation.between(at, [below, rank.round(), above], weight)?
            } else {
                let rank = q * (n - 1) as f64;
                let at = |rank: f64| sorted.narrow(last, rank as usize, 1);
                let ranks = [rank.floor(), rank.round_ties_even(), rank.ceil()];
                let value = interpolation.between(at, ranks, rank - rank.floor())?;
                value.masked_fill(&nan.any_axis(last, true)?, f64::NAN)?
            };
            quantiles.push(value.reshape_unchecked(self.shape().reduced(&axes, keepdim)));
        }
        Tensor::stack(&quantiles, 0)
    }
}
