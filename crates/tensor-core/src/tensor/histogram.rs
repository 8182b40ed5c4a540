//! Histograms count the elements in each of several intervals, along one axis or along several.

use super::Tensor;
use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
    },
    elements::{dtype::DType, scalar::Scalar},
};

/// The intervals of a histogram along one line. Each holds its lower bound, the last its upper bound too.
#[derive(Clone, Copy, Debug)]
pub enum Bins<'a> {
    /// This number of intervals of equal width between the least and the greatest element; between half
    /// below and half above where these are equal, and between 0 and 1 where there are none.
    Count(usize),
    /// This number of intervals of equal width between two bounds, the lower first; between half below and
    /// half above where they are equal.
    Between(usize, f64, f64),
    /// Intervals between neighbours of these ascending numbers `[n + 1]`.
    Edges(&'a Tensor),
}

/// The counting of [`Tensor::histogram_with`] and [`Tensor::histogramdd`]. The default counts each element
/// once.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistogramOptions<'a> {
    /// The weight of each element, or of each point; of the input's dtype.
    pub weight: Option<&'a Tensor>,
    /// Whether each number is divided by the sum of all, and by the size of its interval: the integral is 1
    /// then.
    pub density: bool,
}

/// The intervals along a line, made.
struct Line {
    /// `[bins + 1]`.
    edges: Tensor,
    bins: usize,
    /// The interval of each element, i32, and whether it is in any.
    part: Tensor,
    inside: Tensor,
}

impl Tensor {
    /// How many elements lie in each of `bins` parts of equal width between `low` and `high`, the last of
    /// which holds `high` too: `[bins]`, of this dtype. Elements outside are not counted, nor is NaN. Where
    /// both are 0, they are the least and the greatest element, as in PyTorch; where they are equal then,
    /// the parts lie between one less and one more. `torch.histc`.
    ///
    /// # Errors
    /// No bins, bounds that are not finite or the wrong way round, or a dtype that is not floating-point.
    /// Elements that are infinite or NaN where they are the bounds: these are read on the host to see it,
    /// except where nothing can be read, under `vmap` and in a browser; the counts have no meaning there.
    #[track_caller]
    pub fn histc(&self, bins: usize, low: f64, high: f64) -> Result<Tensor> {
        const OP: &str = "histc";
        let bounds =
            if low == 0.0 && high == 0.0 { Bins::Count(bins) } else { Bins::Between(bins, low, high) };
        self.require_float(OP)?;
        let line = self.flatten_all().line_of(OP, bounds, 1.0)?;
        counts(OP, self, &[line], HistogramOptions::default())
    }

    /// [`Tensor::histc`], and the bounds of its parts, `[bins + 1]`; where the least and the greatest
    /// element are equal, the parts lie between half below and half above, and between 0 and 1 where there
    /// are none. `torch.histogram`; [`Tensor::histogram_with`] has weights, densities and bounds of any
    /// kind.
    ///
    /// # Errors
    /// As [`Tensor::histc`].
    #[track_caller]
    pub fn histogram(&self, bins: usize, low: f64, high: f64) -> Result<(Tensor, Tensor)> {
        let bounds =
            if low == 0.0 && high == 0.0 { Bins::Count(bins) } else { Bins::Between(bins, low, high) };
        self.one_line("histogram", bounds, HistogramOptions::default())
    }

    /// How many elements lie in each of the intervals that `bins` names, or the sum of their weights,
    /// `[n]`, and the bounds of these, `[n + 1]`, both of this dtype. Elements outside are not counted.
    /// `torch.histogram`.
    ///
    /// # Errors
    /// As [`Tensor::histc`]; edges or weights of another dtype or device, edges that are not one axis of
    /// two or more, weights of another shape.
    ///
    /// ```
    /// # use tensor_core::{Bins, HistogramOptions, Tensor};
    /// # fn f(x: &Tensor, edges: &Tensor) -> tensor_core::Result<()> {
    /// let options = HistogramOptions { density: true, ..Default::default() };
    /// // The elements [1, 2, 4] between [0, 2, 6]: [0.1667, 0.1667].
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

    /// How many of the points `[…, d]` lie in each box of a grid in d dimensions, `bins` naming the
    /// intervals along each: `[n₁, …, n_d]`, and the bounds of the intervals along each, `[nᵢ + 1]`.
    /// Elements outside are not counted. Weights have the shape of the points, without the last axis.
    /// `torch.histogramdd`.
    ///
    /// # Errors
    /// Points without axes, another number of `bins` than coordinates, more boxes than i32 reaches; else as
    /// [`Tensor::histogram_with`].
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

    /// The intervals along a line of elements, with `half` added on both sides where they would have no
    /// width.
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
                // As PyTorch has it: histc gives no bounds.
                x.line_within(count, &number(0.0), &number(1.0))
            }
            Bins::Count(count) => {
                check_count(op, count)?;
                let (least, greatest) = (x.min()?, x.max()?);
                // Where nothing can be read now, the counts say nothing, as the documentation says.
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
        // The bounds by linspace's formula: from both ends, so that both are exact.
        let width = greatest.sub(least)?;
        let step = width.div_scalar(bins as f64);
        let bound = |places: &Tensor| -> Result<Tensor> {
            let (place, rest) = (places.cast_unchecked(x.dtype()), places.neg().add_scalar(bins as i64));
            let from_low = least.add(&place.mul(&step)?)?;
            let from_high = greatest.sub(&rest.cast_unchecked(x.dtype()).mul(&step)?)?;
            places.lt_scalar((bins / 2 + 1) as i64).where_cond(&from_low, &from_high)
        };
        let edges = bound(&Tensor::arange(0i64, bins as i64 + 1, 1i64, (DType::I32, &self.device()))?)?;
        // Near the right part by a quotient, and then by its bounds.
        let guess = x.sub(least)?.div(&width)?.mul_scalar(bins as f64).floor();
        let guess =
            guess.nan_to_num(0.0, None, None).clamp(0.0, bins as f64 - 1.0).cast_unchecked(DType::I32);
        let below = x.lt(&bound(&guess)?)?.cast_unchecked(DType::I32);
        let above = x.ge(&bound(&guess.add_scalar(1))?)?.cast_unchecked(DType::I32);
        let part = guess.sub(&below)?.add(&above)?.clamp(0, bins as i64 - 1);
        let inside = x.ge(least)?.bitwise_and(&x.le(greatest)?)?;
        Ok(Line { edges, bins, part, inside })
    }

    /// The intervals between neighbours of `edges`.
    #[track_caller]
    fn line_between(&self, op: &'static str, dtype: DType, edges: &Tensor) -> Result<Line> {
        Tensor::same_device(op, &[self, edges])?;
        if edges.rank() != 1 || edges.numel() < 2 {
            let message = format!("edges of shape {}: give two or more along one axis", edges.shape());
            return Err(Error::invalid(op, message));
        }
        if edges.dtype() != dtype {
            let hint = format!("cast the edges with .to_dtype(DType::{dtype:?})?");
            return Err(super::dtype_misfit(op, dtype, edges.dtype(), hint));
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

/// The counts of `points` in the boxes that lines make.
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
    // One part more for elements outside.
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
