//! Writing at indices: replaced, reduced and masked elements. Each function returns a new tensor. If
//! several elements go to one position, the result is the same on every device, and so are the
//! gradients.

use crate::tensor::{
    Span, Tensor,
    indexing::checks::{are_lines, check_index, index_dtype, require_bool, same_part, source},
    indexing::index::{Index, Operand},
};
use crate::{
    base::{
        axes::{Axis, Int},
        error::{Error, Result},
        shape::Shape,
    },
    elements::{dtype::DType, scalar::Scalar},
    graph::{grad_mode::is_grad_enabled, op::Op},
    kernels::operators::ScatterOp,
};

/// The reduction of several elements that go to one position, in [`Tensor::scatter_reduce`] and
/// [`Tensor::index_reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// Σx.
    Sum,
    /// Πx.
    Prod,
    /// Σx / n; rounded down for integers.
    Mean,
    /// The greatest; NaN if any is NaN.
    Amax,
    /// The least; NaN if any is NaN.
    Amin,
}

impl Tensor {
    /// A copy of this tensor with `self[i][index[i][j][k]][k] = src[i][j][k]` for axis 1 of 3; `src` may be a
    /// number. `torch.scatter`.
    ///
    /// If several elements go to one position, the last along the axis wins (PyTorch leaves this
    /// unspecified), and only that one gets a gradient.
    ///
    /// # Errors
    /// A different rank, an index larger than this tensor along another axis or than the source, an
    /// index that is not of integers, a source of another dtype, two devices. An index outside the axis
    /// is [`crate::ErrorKind::IndexOutOfRange`] when the result is computed.
    #[track_caller]
    #[doc(alias = "scatter_")]
    pub fn scatter(&self, axis: impl Into<Axis>, index: &Tensor, src: impl Into<Operand>) -> Result<Tensor> {
        self.scatter_by(axis.into(), index, src.into())
    }

    #[track_caller]
    fn scatter_by(&self, axis: Axis, index: &Tensor, src: Operand) -> Result<Tensor> {
        const OP: &str = "scatter";
        if are_lines(self, index) {
            let src = match src {
                Operand::Tensor(src) => src.as_line().into(),
                number @ Operand::Scalar(_) => number,
            };
            let line = self.as_line().scatter_by(axis, &index.as_line(), src)?;
            return Ok(line.reshape_unchecked(self.shape().clone()));
        }
        let axis = check_index(self, OP, axis, index, self.shape())?;
        let index = index_dtype(OP, index)?;
        let src = match src {
            Operand::Scalar(value) => self.constant(value).expand_unchecked(index.shape().clone()),
            Operand::Tensor(src) => {
                source(OP, self, &index, &src)?;
                src.corner(index.shape())
            }
        };
        if index.numel() == 0 {
            return Ok(self.clone());
        }
        self.scatter_with(ScatterOp::Replace, axis, &index, &src)
    }

    /// [`Tensor::scatter`] with a reduction of all elements that go to one position, including the old
    /// element if `include_self`. Elements without an index are unchanged. `torch.scatter_reduce`.
    ///
    /// For maxima and minima, equal elements share the gradient, as in PyTorch. Sums are added in the order
    /// of [`Tensor::scatter_add`].
    ///
    /// For bools, sums are logical or, and products logical and.
    ///
    /// # Errors
    /// As [`Tensor::scatter`]; the mean of bools.
    #[track_caller]
    #[doc(alias = "scatter_reduce_")]
    pub fn scatter_reduce(
        &self,
        axis: impl Into<Axis>,
        index: &Tensor,
        src: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        self.scatter_reduce_by("scatter_reduce", axis.into(), index, src, reduce, include_self)
    }

    #[track_caller]
    fn scatter_reduce_by(
        &self,
        op: &'static str,
        axis: Axis,
        index: &Tensor,
        src: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        use ScatterReduce as R;
        if are_lines(self, index) {
            let (index, src) = (index.as_line(), src.as_line());
            let line = self.as_line().scatter_reduce_by(op, axis, &index, &src, reduce, include_self)?;
            return Ok(line.reshape_unchecked(self.shape().clone()));
        }
        let axis = check_index(self, op, axis, index, self.shape())?;
        let index = index_dtype(op, index)?;
        source(op, self, &index, src)?;
        let reduce = match (self.dtype(), reduce) {
            (DType::Bool, R::Mean) => {
                let hint = "bools have no means; cast with .to_dtype(DType::I32)?, or take Amax or Amin";
                return Err(Error::invalid(op, hint));
            }
            (DType::Bool, R::Sum) => R::Amax,
            (DType::Bool, R::Prod) => R::Amin,
            (_, reduce) => reduce,
        };
        if index.numel() == 0 {
            return Ok(self.clone());
        }
        // A mean's sum and partial products may be out of a half type's range.
        if let (R::Mean | R::Prod, Some(wide)) = (reduce, self.half_as_f32()) {
            let src = src.cast_unchecked(wide.dtype());
            let found = wide.scatter_reduce_by(op, axis.into(), &index, &src, reduce, include_self)?;
            return Ok(found.cast_unchecked(self.dtype()));
        }
        let region = region(self, axis, &index);
        let (base, src) = (self.corner(&region), src.corner(index.shape()));
        // The old elements where they count, and the neutral element elsewhere.
        let kept = |neutral: f64| -> Result<Tensor> {
            match include_self {
                true => Ok(base.clone()),
                false => base.masked_fill(&hits(axis, &index, &region)?.gt_scalar(0), neutral),
            }
        };
        let part = match reduce {
            R::Sum => kept(0.0)?.scatter_add(axis, &index, &src)?,
            R::Mean => {
                let sum = kept(0.0)?.scatter_add(axis, &index, &src)?;
                let hits = hits(axis, &index, &region)?;
                let count = if include_self { hits.add_scalar(1) } else { hits.maximum_scalar(1) };
                let count = count.cast_unchecked(self.dtype());
                if self.dtype().is_float() { sum.div(&count)? } else { sum.floor_divide(&count)? }
            }
            R::Prod => kept(1.0)?.mul(&products(axis, &index, &src, &region)?)?,
            R::Amax | R::Amin => extremes(axis, &index, &src, &base, reduce == R::Amax, include_self)?,
        };
        self.with_corner(op, part)
    }

    /// A copy of this tensor with the slices of `src` at the positions that a 1-D index selects along an
    /// axis; the last one wins. `torch.index_copy`.
    ///
    /// # Errors
    /// No such axis, an index that is not a vector of integers, a source without exactly one slice for
    /// each index, another dtype, two devices. An index outside the axis is an error when the result is
    /// computed.
    #[track_caller]
    #[doc(alias = "index_copy_")]
    pub fn index_copy(&self, axis: impl Into<Axis>, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        const OP: &str = "index_copy";
        Tensor::same_device(OP, &[self, index, src])?;
        if self.rank() == 0 {
            return Ok(self.as_line().index_copy(axis, index, &src.as_line())?.as_scalar());
        }
        let axis = self.shape().axis(axis, OP)?;
        let index = line_index(OP, index)?;
        let sizes = self.dims().iter().enumerate();
        let slices = sizes.map(|(a, &n)| if a == axis { index.numel() } else { n }).collect();
        same_part(OP, src, &slices, self.dtype())?;
        if index.numel() == 0 || self.numel() == 0 {
            return Ok(self.clone());
        }
        let (index, axis) = self.spread_index(OP, Axis(axis as isize), &index)?;
        self.scatter_with(ScatterOp::Replace, axis, &index, src)
    }

    /// A copy of this tensor with `value`, a number or a 0-d tensor, in the slices that a 1-D index
    /// selects along an axis; negative numbers count from the end. Gradients flow to the rest of this
    /// tensor and to the value. `torch.index_fill`.
    ///
    /// # Errors
    /// No such axis, an index that is not a vector of integers, a value that is not 0-d, two devices. An
    /// index outside the axis is an error when the result is computed.
    #[track_caller]
    #[doc(alias = "index_fill_")]
    pub fn index_fill(
        &self,
        axis: impl Into<Axis>,
        index: &Tensor,
        value: impl Into<Operand>,
    ) -> Result<Tensor> {
        self.index_fill_by(axis.into(), index, value.into())
    }

    #[track_caller]
    fn index_fill_by(&self, axis: Axis, index: &Tensor, value: Operand) -> Result<Tensor> {
        const OP: &str = "index_fill";
        Tensor::same_device(OP, &[self, index])?;
        if self.rank() == 0 {
            return Ok(self.as_line().index_fill_by(axis, index, value)?.as_scalar());
        }
        let axis = self.shape().axis(axis, OP)?;
        let value = match value {
            Operand::Scalar(number) => self.constant(number),
            Operand::Tensor(value) if value.rank() == 0 => {
                Tensor::same_device(OP, &[self, &value])?;
                value.cast_unchecked(self.dtype())
            }
            Operand::Tensor(value) => {
                let message = format!("a value of shape {}: give a number or a 0-d tensor", value.shape());
                return Err(Error::invalid(OP, message));
            }
        };
        let index = line_index(OP, index)?.counted_from_start(self.dims()[axis])?;
        if index.numel() == 0 {
            return Ok(self.clone());
        }
        let hits = hits(0, &index, &[self.dims()[axis]].into())?;
        self.along(axis, &hits.gt_scalar(0)).where_cond(&value, self)
    }

    /// [`Tensor::scatter_reduce`] for the slices that a 1-D index selects along an axis: `src` has one
    /// slice for each index. `torch.index_reduce`; [`Tensor::index_add`] computes sums too.
    ///
    /// # Errors
    /// As [`Tensor::scatter_reduce`], and an index that is not 1-D.
    #[track_caller]
    #[doc(alias = "index_reduce_")]
    pub fn index_reduce(
        &self,
        axis: impl Into<Axis>,
        index: &Tensor,
        src: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        const OP: &str = "index_reduce";
        if self.rank() == 0 {
            same_part(OP, src, self.shape(), self.dtype())?;
            let line = self.as_line().index_reduce(axis, index, &src.as_line(), reduce, include_self)?;
            return Ok(line.as_scalar());
        }
        let (index, axis) = self.spread_index(OP, axis.into(), index)?;
        self.scatter_reduce_by(OP, Axis(axis as isize), &index, src, reduce, include_self)
    }

    /// This tensor with the elements where the bool `mask` is true replaced by consecutive elements of
    /// `source`. The tensor and the mask broadcast. `torch.masked_scatter`.
    ///
    /// # Errors
    /// A mask that is not bool or does not broadcast, another dtype, two devices. A source with too few
    /// elements is [`crate::ErrorKind::IndexOutOfRange`] when the result is computed.
    #[track_caller]
    #[doc(alias = "masked_scatter_")]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Result<Tensor> {
        const OP: &str = "masked_scatter";
        Tensor::same_device(OP, &[self, mask, source])?;
        require_bool(OP, mask)?;
        if source.dtype() != self.dtype() {
            let hint = format!("cast the source with .to_dtype(DType::{:?})?", self.dtype());
            return Err(crate::tensor::dtype_misfit(OP, self.dtype(), source.dtype(), hint));
        }
        let shape = self.shape().broadcast(mask.shape(), OP)?;
        let this = self.expand_unchecked(shape.clone());
        let mask = mask.expand_unchecked(shape.clone()).flatten_all();
        if this.numel() == 0 {
            return Ok(this);
        }
        if source.numel() == 0 {
            if mask.any().item::<bool>()? {
                return Err(Error::invalid(OP, "the source has no elements, and the mask asks for some"));
            }
            return Ok(this);
        }
        let turn = match mask.numel() <= i32::MAX as usize {
            true => mask.running_count(),
            false => mask.cumsum(0)?,
        };
        let turn = turn.sub_scalar(1);
        let taken = source.flatten_all().gather(0, &mask.where_cond(&turn, &turn.full_like(0))?)?;
        let out = mask.where_cond(&taken, &this.flatten_all())?;
        Ok(out.reshape_unchecked(shape))
    }

    /// This tensor with the slice of [`Tensor::select`] replaced by `src`, which has its shape.
    /// `torch.select_scatter`.
    ///
    /// # Errors
    /// No such axis, an index outside it, a `src` of another shape, dtype or device.
    #[track_caller]
    pub fn select_scatter(&self, src: &Tensor, axis: impl Into<Axis>, index: impl Int) -> Result<Tensor> {
        const OP: &str = "select_scatter";
        let axis = self.shape().axis(axis, OP)?;
        let place = Tensor::place(OP, index.as_isize(), axis, self.dims()[axis])?;
        same_part(OP, src, &self.shape().reduced(&[axis], false), self.dtype())?;
        self.put_along(OP, axis, Index::At(place as isize), src)
    }

    /// This tensor with every `step`-th element of a range of an axis replaced by `src`, which has the
    /// shape of [`Tensor::slice_step`]. `torch.slice_scatter`.
    ///
    /// # Errors
    /// No such axis, a step below 1, a `src` of another shape, dtype or device.
    #[track_caller]
    pub fn slice_scatter(
        &self,
        src: &Tensor,
        axis: impl Into<Axis>,
        range: impl Into<Span>,
        step: impl Int,
    ) -> Result<Tensor> {
        const OP: &str = "slice_scatter";
        let axis = self.shape().axis(axis, OP)?;
        let (range, step) = (range.into(), step.as_isize());
        let part = self.slice_by(OP, axis, range, step)?;
        same_part(OP, src, part.shape(), self.dtype())?;
        self.put_along(OP, axis, Index::Span(range, step), src)
    }

    /// This tensor with `src` in the part of one axis that `part` selects.
    #[track_caller]
    fn put_along(&self, op: &'static str, axis: usize, part: Index, src: &Tensor) -> Result<Tensor> {
        let whole = std::iter::repeat_n(Index::from(..), axis);
        self.put(op, whole.chain([part]).collect(), Operand::Tensor(src.clone()), false)
    }

    /// The leading `sizes` elements along each axis.
    #[track_caller]
    pub(in crate::tensor) fn corner(&self, sizes: &Shape) -> Tensor {
        let mut out = self.clone();
        for (axis, &size) in sizes.iter().enumerate() {
            if size != out.dims()[axis] {
                out = out.slice_unchecked(axis, 0, size, 1);
            }
        }
        out
    }

    /// This tensor with its [`Tensor::corner`] replaced.
    #[track_caller]
    fn with_corner(&self, op: &'static str, part: Tensor) -> Result<Tensor> {
        if part.shape() == self.shape() {
            return Ok(part);
        }
        let spans = part.dims().iter().map(|&size| Index::from(..size)).collect();
        self.put(op, spans, Operand::Tensor(part), false)
    }

    /// A vector broadcast along an axis of this tensor.
    #[track_caller]
    fn along(&self, axis: usize, line: &Tensor) -> Tensor {
        let sizes = (0..self.rank()).map(|a| if a == axis { line.numel() } else { 1 });
        line.reshape_unchecked(sizes.collect())
    }
}

/// The shape of the region that an index can address: the whole axis, and the index's sizes along the
/// others.
fn region(tensor: &Tensor, axis: usize, index: &Tensor) -> Shape {
    let sizes = index.dims().iter().enumerate();
    sizes.map(|(a, &n)| if a == axis { tensor.dims()[a] } else { n }).collect()
}

/// Checks that an index is a vector of integers.
#[track_caller]
fn line_index(op: &'static str, index: &Tensor) -> Result<Tensor> {
    let index = &index.as_line();
    if index.rank() != 1 {
        let message = format!("the index must have one axis, not shape {}", index.shape());
        return Err(Error::invalid(op, message));
    }
    index_dtype(op, index)
}

/// The number of indices that select each position, i32.
#[track_caller]
fn hits(axis: usize, index: &Tensor, region: &Shape) -> Result<Tensor> {
    let of = |shape: &Shape, value: i64| {
        Tensor::source_unchecked(Op::Full(Scalar::Int(value)), shape.clone(), DType::I32, &index.device())
    };
    of(region, 0).scatter_add(axis, index, &of(&Shape::scalar(), 1).expand_unchecked(index.shape().clone()))
}

/// For each position, one plus the ordinal along the axis of the last index that selects it, i32; 0 if
/// there is none.
#[track_caller]
pub(in crate::tensor) fn last_turns(axis: usize, index: &Tensor, region: &Shape) -> Result<Tensor> {
    let zeros = Op::Full(Scalar::Int(0));
    let zeros = Tensor::source_unchecked(zeros, region.clone(), DType::I32, &index.device());
    zeros.scatter_with(ScatterOp::Max, axis, index, &turns(axis, index)?.add_scalar(1))
}

/// The ordinal of each index along the axis, i32.
#[track_caller]
fn turns(axis: usize, index: &Tensor) -> Result<Tensor> {
    let n = index.dims()[axis];
    let turns = Tensor::arange(0i64, n as i64, 1i64, (DType::I32, &index.device()))?;
    Ok(index.along(axis, &turns).expand_unchecked(index.shape().clone()))
}

/// An index in a dtype that can represent −1.
#[track_caller]
fn signed(index: &Tensor) -> Tensor {
    if index.dtype() == DType::I32 { index.clone() } else { index.as_index() }
}

/// The product of the elements that go to each position; 1 if there are none. Runs of equal indices in
/// sorted order are multiplied by doubling, so that zeros have gradients too.
#[track_caller]
fn products(axis: usize, index: &Tensor, src: &Tensor, region: &Shape) -> Result<Tensor> {
    let n = index.dims()[axis];
    let (sorted, order) = signed(index).order(axis, n, false);
    let mut run = src.gather(axis, &order)?;
    let mut apart = 1;
    while apart < n {
        let mut padding = vec![(0, 0); run.rank()];
        padding[axis].0 = apart;
        let before = |t: &Tensor, fill: i64| t.slice_unchecked(axis, 0, n - apart, 1).pad(&padding, fill);
        let same = sorted.eq(&before(&sorted, -1)?)?;
        let factor = same.where_cond(&before(&run, 1)?, &run.full_like(1))?;
        run = run.mul(&factor)?;
        apart *= 2;
    }
    let turn = last_turns(axis, &sorted, region)?;
    let found = run.gather(axis, &turn.sub_scalar(1).maximum_scalar(0))?;
    turn.gt_scalar(0).where_cond(&found, &found.full_like(1))
}

/// The greatest or least of the elements that go to each position, including the old one if
/// `include_self`.
#[track_caller]
fn extremes(
    axis: usize,
    index: &Tensor,
    src: &Tensor,
    base: &Tensor,
    greatest: bool,
    include_self: bool,
) -> Result<Tensor> {
    let dtype = src.dtype();
    // Bools are computed as integers, whose scatter every device has.
    let number = |t: Tensor| if dtype == DType::Bool { t.cast_unchecked(DType::I32) } else { t };
    let (values, old) = (number(src.detach()), number(base.detach()));
    let held = values.dtype();
    let has_infinity = held.float_format().is_some_and(|format| format.has_infinity);
    let (op, neutral) = match (greatest, has_infinity) {
        (true, true) => (ScatterOp::Max, Scalar::Float(f64::NEG_INFINITY)),
        (true, false) => (ScatterOp::Max, held.least()),
        (false, true) => (ScatterOp::Min, Scalar::Float(f64::INFINITY)),
        (false, false) => (ScatterOp::Min, held.greatest()),
    };
    let named = if include_self { None } else { Some(hits(axis, index, base.shape())?.gt_scalar(0)) };
    let start = match &named {
        Some(named) => old.masked_fill(named, neutral)?,
        None => old.clone(),
    };
    let out = start.scatter_with(op, axis, index, &values)?;
    let out = if dtype == DType::Bool { out.ne_scalar(0) } else { out };
    if !is_grad_enabled() || !(src.is_tracked() || base.is_tracked()) {
        return Ok(out);
    }
    // All elements equal to the result share its gradient, as in a mean of them, whose value is known.
    let finite = |t: &Tensor| t.isinf().logical_not();
    let mut own = old.eq(&out)?.bitwise_and(&finite(&old))?;
    if let Some(named) = &named {
        own = own.bitwise_and(&named.logical_not())?;
    }
    let sent = values.eq(&out.gather(axis, index)?)?.bitwise_and(&finite(&values))?;
    let count = own.cast_unchecked(DType::I32).scatter_add(axis, index, &sent.cast_unchecked(DType::I32))?;
    let none = |t: &Tensor| t.full_like(0.0);
    let shares =
        own.where_cond(base, &none(base))?.scatter_add(axis, index, &sent.where_cond(src, &none(src))?)?;
    let shares = shares.div(&count.maximum_scalar(1).cast_unchecked(base.dtype()))?;
    out.add(&shares.sub(&shares.detach())?)
}
