//! Histograms: the number of elements in each of several intervals, along one axis or several.

use crate::tensor::Tensor;
use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
    },
    elements::{dtype::DType, scalar::Scalar},
};

/// The intervals of a histogram along one line. Each includes its lower bound, the last also its upper
/// bound.
#[derive(Clone, Copy, Debug)]
pub enum Bins<'a> {
    /// This number of intervals of equal width between the least and the greatest element; if these are
    /// equal, from half below to half above them, and from 0 to 1 if there are no elements.
    Count(usize),
    /// This number of intervals of equal width between two bounds, the lower one first; from half below
    /// to half above if the bounds are equal.
    Between(usize, f64, f64),
    /// The intervals between consecutive numbers of this ascending vector `[n + 1]`.
    Edges(&'a Tensor),
}

/// The options of [`Tensor::histogram_with`] and [`Tensor::histogramdd`]. By default each element counts
/// once.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistogramOptions<'a> {
    /// The weight of each element or point, in the input's dtype.
    pub weight: Option<&'a Tensor>,
    /// Whether each number is divided by the sum of all and by the size of its interval, so that the
    /// integral is 1.
    pub density: bool,
}

/// The intervals along a line, as tensors.
struct Line {
    /// The bounds, `[bins + 1]`.
    edges: Tensor,
    bins: usize,
    /// The interval of each element, i32, and whether it is in any interval.
    part: Tensor,
    inside: Tensor,
}

impl Tensor {
    /// The number of elements in each of `bins` intervals of equal width between `low` and `high`, the
    /// last of which includes `high`: `[bins]`, in this dtype. Elements outside and NaN are not counted.
    /// If both bounds are 0, the least and the greatest element are used instead, as in PyTorch; if
    /// these are equal, the intervals reach from one below to one above. `torch.histc`.
    ///
    /// # Errors
    /// No bins, bounds that are not finite or not in order, or a dtype that is not floating-point. If
    /// elements determine the bounds, infinite or NaN ones are an error: the bounds are read on the host
    /// for this check, except where nothing can be read, under `vmap` and in a browser; the counts are
    /// then meaningless.
    #[track_caller]
    pub fn histc(&self, bins: usize, low: f64, high: f64) -> Result<Tensor> {
        const OP: &str = "histc";
        let bounds =
            if low == 0.0 && high == 0.0 { Bins::Count(bins) } else { Bins::Between(bins, low, high) };
        self.require_float(OP)?;
        let line = self.flatten_all().line_of(OP, bounds, 1.0)?;
        counts(OP, self, &[line], HistogramOptions::default())
    }

    /// [`Tensor::histc`] with the bounds of the intervals, `[bins + 1]`. If the least and the greatest
    /// element are equal, the intervals reach from half below to half above, and from 0 to 1 if there
    /// are no elements. `torch.histogram`; [`Tensor::histogram_with`] has weights, densities and
    /// arbitrary bounds.
    ///
    /// # Errors
    /// As [`Tensor::histc`].
    #[track_caller]
    pub fn histogram(&self, bins: usize, low: f64, high: f64) -> Result<(Tensor, Tensor)> {
        let bounds =
            if low == 0.0 && high == 0.0 { Bins::Count(bins) } else { Bins::Between(bins, low, high) };
        self.one_line("histogram", bounds, HistogramOptions::default())
    }

    /// The number of elements in each of the intervals `bins`, or the sum of their weights, `[n]`, and
    /// the bounds, `[n + 1]`, both in this dtype. Elements outside are not counted. `torch.histogram`.
    ///
    /// # Errors
    /// As [`Tensor::histc`]; edges or weights of another dtype or device, edges that are not a vector of
    /// at least two, weights of another shape.
    ///
    /// ```
    /// # use tensor_core::{Bins, HistogramOptions, Tensor};
    /// # fn f(x: &Tensor, edges: &Tensor) -> tensor_core::Result<()> {
    /// let options = HistogramOptions { density: true, ..Default::default() };
    /// // [1, 2, 4] with the edges [0, 2, 6] gives [0.1667, 0.1667].
    /// let (density, edges) = x.histogram_with(Bins::Edges(edges), options)?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias = "histogram")]
    pub fn histogram_with(&self, bins: Bins<'_>, options: HistogramOptions<'_>) -> Result<(Tensor, Tensor)> {
        self.one_line("histogram_with", bins, options)
    }

    #[track_caller]
    fn one_line(
        &self,
        op: &'static str,
        bins: Bins<'_>,
        options: HistogramOptions<'_>,
    ) -> Result<(Tensor, Tensor)> {
        self.require_float(op)?;
        let line = self.flatten_all().line_of(op, bins, 0.5)?;
        let edges = line.edges.to_dtype(self.dtype())?;
        Ok((counts(op, self, &[line], options)?, edges))
    }

    /// The number of points `[…, d]` in each box of a d-dimensional grid, where `bins` has the intervals
    /// along each dimension: `[n₁, …, n_d]`, and the bounds along each, `[nᵢ + 1]`. Points outside are
    /// not counted. Weights have the shape of the points, without the last axis. `torch.histogramdd`.
    ///
    /// # Errors
    /// Points without axes, a number of `bins` other than that of the coordinates, more boxes than i32
    /// can index; else as [`Tensor::histogram_with`].
    #[track_caller]
    pub fn histogramdd(
        &self,
        bins: &[Bins<'_>],
        options: HistogramOptions<'_>,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        const OP: &str = "histogramdd";
        self.require_float(OP)?;
        let coordinates = self.dims().last().copied().unwrap_or(0);
        if bins.is_empty() || bins.len() != coordinates {
            let message = format!("bins for {} coordinates, and points {}", bins.len(), self.shape());
            return Err(Error::invalid(OP, message));
        }
        let mut lines = Vec::with_capacity(bins.len());
        for (k, bins) in bins.iter().enumerate() {
            lines.push(self.select(-1, k)?.flatten_all().line_of(OP, *bins, 0.5)?);
        }
        let points = self.select(-1, 0)?;
        let histogram = counts(OP, &points, &lines, options)?;
        let mut edges = Vec::with_capacity(lines.len());
        for line in lines {
            edges.push(line.edges.to_dtype(self.dtype())?);
        }
        Ok((histogram, edges))
    }

    /// The intervals along a line of elements, extended by `half` on both sides if their width would be
    /// 0.
    #[track_caller]
    fn line_of(&self, op: &'static str, bins: Bins<'_>, half: f64) -> Result<Line> {
        let x = self.detach().cast_unchecked(self.dtype().compute());
        let number = |v: f64| x.constant(Scalar::Float(v));
        match bins {
            Bins::Edges(edges) => x.line_between(op, self.dtype(), edges),
            Bins::Between(count, low, high) => {
                check_count(op, count)?;
                if !(low.is_finite() && high.is_finite() && low <= high) {
                    let message = format!("from {low} to {high}: give finite bounds, the lower first");
                    return Err(Error::invalid(op, message));
                }
                let half = if low == high { half } else { 0.0 };
                x.line_within(count, &number(low - half), &number(high + half))
            }
            Bins::Count(count) if x.numel() == 0 => {
                check_count(op, count)?;
                // As in PyTorch: without elements the range is 0 to 1, also for histc, which does not
                // return it.
                x.line_within(count, &number(0.0), &number(1.0))
            }
            Bins::Count(count) => {
                check_count(op, count)?;
                let (least, greatest) = (x.min()?, x.max()?);
                // Where nothing can be read, the counts are meaningless, as documented.
                if let Ok(ends) = Tensor::stack(&[&least, &greatest], 0)?.to_f64_vec()
                    && !ends.iter().all(|end| end.is_finite())
                {
                    let message = format!(
                        "the elements lie between {} and {}: give finite bounds, or elements that are finite",
                        ends[0], ends[1]
                    );
                    return Err(Error::invalid(op, message));
                }
                let half = least.eq(&greatest)?.cast_unchecked(x.dtype()).mul_scalar(half);
                x.line_within(count, &least.sub(&half)?, &greatest.add(&half)?)
            }
        }
    }

    /// Intervals of equal width.
    #[track_caller]
    fn line_within(&self, bins: usize, least: &Tensor, greatest: &Tensor) -> Result<Line> {
        let x = self;
        // The bounds by linspace's formula, from both ends, so that both are exact.
        let width = greatest.sub(least)?;
        let step = width.div_scalar(bins as f64);
        let bound = |places: &Tensor| -> Result<Tensor> {
            let (place, rest) = (places.cast_unchecked(x.dtype()), places.neg().add_scalar(bins as i64));
            let from_low = least.add(&place.mul(&step)?)?;
            let from_high = greatest.sub(&rest.cast_unchecked(x.dtype()).mul(&step)?)?;
            places.lt_scalar((bins / 2 + 1) as i64).where_cond(&from_low, &from_high)
        };
        let edges = bound(&Tensor::arange(0i64, bins as i64 + 1, 1i64, (DType::I32, &self.device()))?)?;
        // A quotient gives the approximate interval, and its bounds then correct it.
        let guess = x.sub(least)?.div(&width)?.mul_scalar(bins as f64).floor();
        let guess =
            guess.nan_to_num(0.0, None, None).clamp(0.0, bins as f64 - 1.0).cast_unchecked(DType::I32);
        let below = x.lt(&bound(&guess)?)?.cast_unchecked(DType::I32);
        let above = x.ge(&bound(&guess.add_scalar(1))?)?.cast_unchecked(DType::I32);
        let part = guess.sub(&below)?.add(&above)?.clamp(0, bins as i64 - 1);
        let inside = x.ge(least)?.bitwise_and(&x.le(greatest)?)?;
        Ok(Line { edges, bins, part, inside })
    }

    /// The intervals between consecutive `edges`.
    #[track_caller]
    fn line_between(&self, op: &'static str, dtype: DType, edges: &Tensor) -> Result<Line> {
        Tensor::same_device(op, &[self, edges])?;
        if edges.rank() != 1 || edges.numel() < 2 {
            let message = format!("edges of shape {}: give two or more along one axis", edges.shape());
            return Err(Error::invalid(op, message));
        }
        if edges.dtype() != dtype {
            let hint = format!("cast the edges with .to_dtype(DType::{dtype:?})?");
            return Err(crate::tensor::dtype_misfit(op, dtype, edges.dtype(), hint));
        }
        let bins = edges.numel() - 1;
        check_count(op, bins)?;
        let edges = edges.detach().cast_unchecked(self.dtype());
        let place = edges.searchsorted(self, true)?.sub_scalar(1).cast_unchecked(DType::I32);
        let inside = self.ge(&edges.select(0, 0)?)?.bitwise_and(&self.le(&edges.select(0, -1)?)?)?;
        Ok(Line { edges, bins, part: place.clamp(0, bins as i64 - 1), inside })
    }
}

#[track_caller]
fn check_count(op: &'static str, bins: usize) -> Result<()> {
    if bins == 0 || bins >= i32::MAX as usize {
        return Err(Error::invalid(op, format!("{bins} bins: give at least one, and fewer than 2^31 - 1")));
    }
    Ok(())
}

/// The counts of `points` in the boxes of a grid.
#[track_caller]
fn counts(
    op: &'static str,
    points: &Tensor,
    lines: &[Line],
    options: HistogramOptions<'_>,
) -> Result<Tensor> {
    let shape: Shape = lines.iter().map(|line| line.bins).collect();
    let boxes = shape.checked_numel().filter(|&n| n < i32::MAX as usize);
    let Some(boxes) = boxes else {
        return Err(Error::invalid(op, format!("{shape} boxes: give fewer than 2^31 - 1")));
    };
    let (mut place, mut inside) = (lines[0].part.clone(), lines[0].inside.clone());
    for line in &lines[1..] {
        place = place.mul_scalar(line.bins as i64).add(&line.part)?;
        inside = inside.bitwise_and(&line.inside)?;
    }
    // One more box is for points outside.
    let place = inside.where_cond(&place, &place.constant(Scalar::Int(boxes as i64)))?;
    let wide = points.dtype().compute();
    let sums = match options.weight {
        None => {
            let counts = Tensor::zeros([boxes + 1], (DType::I32, &points.device()))?;
            counts.scatter_add(0, &place, &place.one_for_each()?)?
        }
        Some(weight) => {
            Tensor::same_device(op, &[points, weight])?;
            if weight.shape() != points.shape() || weight.dtype() != points.dtype() {
                let (found, wanted) = (weight.shape(), points.shape());
                let (a, b) = (weight.dtype(), points.dtype());
                let message = format!("a weight of {found} {a} for {wanted} {b}: give one for each");
                return Err(Error::invalid(op, message));
            }
            let weight = weight.detach().flatten_all().cast_unchecked(wide);
            Tensor::zeros([boxes + 1], (wide, &points.device()))?.scatter_add(0, &place, &weight)?
        }
    };
    let mut sums = sums.narrow(0, 0, boxes)?.reshape_unchecked(shape);
    if options.density {
        sums = sums.cast_unchecked(wide);
        sums = sums.div(&sums.sum())?;
        for (axis, line) in lines.iter().enumerate() {
            let widths = line.edges.diff(1, 0)?;
            let along = (0..lines.len()).map(|a| if a == axis { line.bins } else { 1 }).collect();
            sums = sums.div(&widths.reshape_unchecked(along))?;
        }
    }
    sums.to_dtype(points.dtype())
}
