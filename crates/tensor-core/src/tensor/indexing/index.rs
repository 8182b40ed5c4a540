//! Indexing in the style of Python's brackets, `x.i((.., 3.., -1, NewAxis))`, and assignment to a part
//! of a cell. Integers and ranges give views; index tensors, lists and masks gather. The order of result
//! axes follows PyTorch.

use std::{
    ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive},
    sync::Arc,
};

use smallvec::SmallVec;

use crate::tensor::{
    Tensor, autograd_misuse,
    creation::create::host_index,
    dtype_misfit,
    indexing::checks::{index_dtype, require_bool},
    shape_misfit,
};
use crate::{
    base::{
        axes::{Axis, Int},
        error::{Error, ErrorKind, Result},
        location::Location,
        shape::Shape,
    },
    devices::device::Device,
    elements::{dtype::DType, scalar::Scalar},
    graph::grad_mode::{is_grad_enabled, set_grad_enabled},
    kernels::operators::ScatterOp,
    native::nonzero::Nonzero,
    tensor::autocast,
};

/// A range of one axis: any Rust range of any integers. Negative bounds count from the end, and bounds
/// are clamped to the axis, as in Python: `1..`, `..-1`, `-3..=-1`, `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: Option<isize>,
    /// The exclusive end.
    end: Option<isize>,
}

impl Span {
    /// The bounds for an axis of `size` elements: `start <= end <= size`.
    pub(in crate::tensor) fn resolve(self, size: usize) -> (usize, usize) {
        let size = isize::try_from(size).unwrap_or(isize::MAX);
        let hold = |i: isize| (if i < 0 { i.saturating_add(size) } else { i }).clamp(0, size);
        let (start, end) = (self.start.map_or(0, hold), self.end.map_or(size, hold));
        (start.unsigned_abs(), end.max(start).unsigned_abs())
    }

    /// The exclusive end of a range that includes `last`.
    fn past(last: isize) -> Option<isize> {
        match last {
            -1 => None,
            last => Some(last.saturating_add(1)),
        }
    }
}

impl From<RangeFull> for Span {
    fn from(_: RangeFull) -> Span {
        Span { start: None, end: None }
    }
}

macro_rules! spans {
    ($($range:ident, $r:ident => $start:expr, $end:expr;)*) => {$(
        impl<I: Int> From<$range<I>> for Span {
            fn from($r: $range<I>) -> Span { Span { start: $start, end: $end } }
        }
        impl<I: Int> From<$range<I>> for Index {
            fn from(range: $range<I>) -> Index { Index::Span(range.into(), 1) }
        }
    )*};
}
spans! {
    Range, r => Some(r.start.as_isize()), Some(r.end.as_isize());
    RangeFrom, r => Some(r.start.as_isize()), None;
    RangeTo, r => None, Some(r.end.as_isize());
    RangeInclusive, r => Some(r.start().as_isize()), Span::past(r.end().as_isize());
    RangeToInclusive, r => None, Span::past(r.end.as_isize());
}

/// An index part that inserts a new axis of size 1. `None` or `np.newaxis` in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewAxis;

/// An index part that stands for all axes that no other part names. `...` in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ellipsis;

/// Every `n`-th element of a range: `StepBy(1.., 2)` is Python's `1::2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepBy<R>(pub R, pub isize);

/// One part of an index, which applies to one axis (or, for a mask, to several).
#[derive(Clone, Debug)]
pub enum Index {
    /// One element; the axis is removed. Negative numbers count from the end.
    At(isize),
    /// A range with a step of at least 1.
    Span(Span, isize),
    /// A new axis of size 1.
    NewAxis,
    /// All axes that no other part names.
    Ellipsis,
    /// An index tensor of any integer dtype and any shape, whose axes replace the axis; or a bool mask,
    /// which selects elements along as many axes as it has.
    Tensor(Tensor),
    /// A list of element numbers.
    List(Vec<isize>),
}

impl<I: Int> From<I> for Index {
    fn from(at: I) -> Index {
        Index::At(at.as_isize())
    }
}
impl From<RangeFull> for Index {
    fn from(range: RangeFull) -> Index {
        Index::Span(range.into(), 1)
    }
}
impl<R: Into<Span>> From<StepBy<R>> for Index {
    fn from(StepBy(range, step): StepBy<R>) -> Index {
        Index::Span(range.into(), step)
    }
}
impl From<NewAxis> for Index {
    fn from(_: NewAxis) -> Index {
        Index::NewAxis
    }
}
impl From<Ellipsis> for Index {
    fn from(_: Ellipsis) -> Index {
        Index::Ellipsis
    }
}
impl From<Tensor> for Index {
    fn from(index: Tensor) -> Index {
        Index::Tensor(index)
    }
}
impl From<&Tensor> for Index {
    fn from(index: &Tensor) -> Index {
        Index::Tensor(index.clone())
    }
}
impl<I: Int> From<&[I]> for Index {
    fn from(list: &[I]) -> Index {
        Index::List(list.iter().map(|i| i.as_isize()).collect())
    }
}
impl<I: Int, const N: usize> From<[I; N]> for Index {
    fn from(list: [I; N]) -> Index {
        list.as_slice().into()
    }
}
impl<I: Int> From<Vec<I>> for Index {
    fn from(list: Vec<I>) -> Index {
        list.as_slice().into()
    }
}
impl<I: Int> From<&Vec<I>> for Index {
    fn from(list: &Vec<I>) -> Index {
        list.as_slice().into()
    }
}

/// The argument of an indexing method: one [`Index`], a tuple of up to eight, or a vector of them.
#[diagnostic::on_unimplemented(
    message = "a tensor cannot be indexed with `{Self}`",
    note = "an index is an integer, a range, `StepBy(range, n)`, `NewAxis`, `Ellipsis`, a list of integers, an index tensor, a bool mask, \
            or a tuple of such"
)]
pub trait Indices {
    /// The parts, outermost axis first.
    fn into_parts(self) -> Vec<Index>;
}

impl<T: Into<Index>> Indices for T {
    fn into_parts(self) -> Vec<Index> {
        vec![self.into()]
    }
}
impl Indices for Vec<Index> {
    fn into_parts(self) -> Vec<Index> {
        self
    }
}
impl Indices for () {
    fn into_parts(self) -> Vec<Index> {
        Vec::new()
    }
}

macro_rules! tuples {
    ($($($t:ident $v:ident)*;)*) => {$(
        impl<$($t: Into<Index>),*> Indices for ($($t,)*) {
            fn into_parts(self) -> Vec<Index> {
                let ($($v,)*) = self;
                vec![$($v.into()),*]
            }
        }
    )*};
}
tuples! {
    A a;
    A a B b;
    A a B b C c;
    A a B b C c D d;
    A a B b C c D d E e;
    A a B b C c D d E e F f;
    A a B b C c D d E e F f G g;
    A a B b C c D d E e F f G g H h;
}

/// A tensor or a number: the second operand of a function, or the value assigned to a part of a tensor.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A tensor, which is broadcast.
    Tensor(Tensor),
    /// A number. As an operand it takes the dtype of the other operand or promotes it, like any scalar;
    /// as a value it takes the dtype of the assigned tensor.
    Scalar(Scalar),
}

impl From<&Tensor> for Operand {
    fn from(tensor: &Tensor) -> Operand {
        Operand::Tensor(tensor.clone())
    }
}
impl From<Tensor> for Operand {
    fn from(tensor: Tensor) -> Operand {
        Operand::Tensor(tensor)
    }
}
impl<S: crate::tensor::Number> From<S> for Operand {
    fn from(number: S) -> Operand {
        Operand::Scalar(number.into())
    }
}
impl From<bool> for Operand {
    fn from(truth: bool) -> Operand {
        Operand::Scalar(truth.into())
    }
}

/// An index tensor for one axis of a view.
struct Gathered {
    axis: usize,
    index: Tensor,
    /// Whether all numbers are known to be within the axis and not negative.
    within: bool,
}

/// A view with all indexed axes merged into one, and the combined index into that axis.
struct Merged {
    view: Tensor,
    /// The merged axis.
    axis: usize,
    /// The positions along it, as a vector.
    index: Tensor,
    /// The shape of the selected part.
    part: Shape,
    /// For each axis of the view before the merge, its original axis.
    order: SmallVec<[usize; 5]>,
}

impl Tensor {
    /// The part of this tensor that `index` selects, like Python's `x[...]`: one [`Index`], or a tuple
    /// of them for the axes from the outermost on. Axes without an index stay whole.
    ///
    /// | part | in Python | selects |
    /// |---|---|---|
    /// | `2`, `-1` | `2`, `-1` | one element; the axis is removed |
    /// | `1..3`, `..`, `-3..`, `..=5` | `1:3`, `:`, `-3:`, `:6` | a range, clamped to the axis |
    /// | `StepBy(1.., 2)` | `1::2` | every second element of a range |
    /// | `NewAxis` | `None` | a new axis of size 1 |
    /// | `Ellipsis` | `...` | the axes that nothing else names |
    /// | `[0, 2]`, `vec![…]`, `&indices` | `[0, 2]`, `indices` | elements by number, in its shape |
    /// | `&mask` (bool) | `mask` | the elements where it is true; one axis replaces its axes |
    ///
    /// Integers, ranges, `NewAxis` and `Ellipsis` give a view and copy nothing. Several index tensors
    /// are broadcast together; their axes replace the indexed axes if these are adjacent (once integers
    /// are removed), else they come first, as in PyTorch. Gradients flow through all forms. The number
    /// of elements that a mask selects determines the shape, so a mask is evaluated and read on the
    /// host.
    ///
    /// # Errors
    /// More parts than axes, two ellipses, an integer or a list's number outside its axis, a step below
    /// 1, index tensors that do not broadcast or are neither integers nor bool, a mask whose shape
    /// differs from that of its axes, two devices. An index tensor's number outside its axis is
    /// [`crate::ErrorKind::IndexOutOfRange`] when the result is computed.
    ///
    /// ```
    /// # use tensor_core::{Device, DType, Ellipsis, NewAxis, StepBy, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// let x = Tensor::arange(0, 24, 1, device)?.reshape((2, 3, 4))?;
    /// assert_eq!(x.i(1)?.dims(), [3, 4]);
    /// assert_eq!(x.i((.., 1.., -1))?.dims(), [2, 2]);
    /// assert_eq!(x.i((Ellipsis, StepBy(.., 2), NewAxis))?.dims(), [2, 3, 2, 1]);
    /// assert_eq!(x.i((0, [2, 0]))?.dims(), [2, 4]);
    /// assert_eq!(x.i(&x.gt_scalar(20))?.to_vec::<i64>()?, [21, 22, 23]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias("index", "getitem", "masked_select", "slice"))]
    pub fn i(&self, index: impl Indices) -> Result<Tensor> {
        self.at("i", index.into_parts())
    }

    /// This tensor with the part that `index` selects (see [`Tensor::i`]) replaced by `value`, broadcast
    /// to it, or with `value` added to it if `accumulate`. `torch.index_put`.
    ///
    /// The tensor itself is not changed; [`Tensor::index_assign`] changes a cell. If an index selects an
    /// element several times, the last value stays, or with `accumulate` all are added in order.
    /// Gradients flow to the rest of this tensor and to `value`.
    ///
    /// # Errors
    /// As [`Tensor::i`]; a `value` of another dtype (a number is cast), or one that does not broadcast
    /// to the part.
    #[track_caller]
    pub fn index_put(
        &self,
        index: impl Indices,
        value: impl Into<Operand>,
        accumulate: bool,
    ) -> Result<Tensor> {
        const OP: &str = "index_put";
        match value.into() {
            Operand::Tensor(value) => {
                let cast = autocast::cast(OP, [self, &value], [])?;
                let ([this, value], []) = cast.tensors();
                this.put(OP, index.into_parts(), Operand::Tensor(value.clone()), accumulate)
            }
            scalar @ Operand::Scalar(_) => self.put(OP, index.into_parts(), scalar, accumulate),
        }
    }

    /// Replaces the part of this cell that `index` selects (see [`Tensor::i`]) by `value`: Python's
    /// `x[index] = value`.
    ///
    /// A cell is a tensor made by [`Tensor::into_cell`], a parameter or a buffer. All its handles see
    /// the new value; graphs built before keep the old one, so a change made after the forward pass
    /// never makes a backward pass wrong (PyTorch counts versions, and refuses). The assigned value has
    /// no history: no gradient flows to `value`; [`Tensor::index_put`] is the differentiable form.
    ///
    /// # Errors
    /// Not a cell; a cell that requires gradients, outside of `no_grad`; else as [`Tensor::index_put`].
    /// The cell is then unchanged.
    ///
    /// ```
    /// # use tensor_core::{Device, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// let x = Tensor::zeros((2, 3), device)?.into_cell(false)?;
    /// x.index_assign((.., 1..), 5.0)?;
    /// x.index_add_assign((0, -1), 1.0)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.0, 5.0, 6.0, 0.0, 5.0, 5.0]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias("setitem", "copy_", "index_put_", "masked_fill_", "index_fill_", "i_assign"))]
    pub fn index_assign(&self, index: impl Indices, value: impl Into<Operand>) -> Result<()> {
        self.put_in_cell("index_assign", index.into_parts(), value.into(), false)
    }

    /// Adds `value` to the part of this cell that `index` selects; elements that are selected several
    /// times accumulate. `index_put_(…, accumulate=True)`. See [`Tensor::index_assign`].
    ///
    /// # Errors
    /// As [`Tensor::index_assign`].
    #[track_caller]
    #[doc(alias("index_put_", "index_add_"))]
    pub fn index_add_assign(&self, index: impl Indices, value: impl Into<Operand>) -> Result<()> {
        self.put_in_cell("index_add_assign", index.into_parts(), value.into(), true)
    }

    /// The coordinates of the elements that are not zero (or not false), in row-major order: `[n,
    /// rank]`, in the dtype of indices (i64, or i32 on a device without i64). `torch.nonzero`.
    ///
    /// The number of these elements determines the shape: they are counted, and the count is read on the
    /// host.
    ///
    /// # Errors
    /// Whatever the device reports.
    #[track_caller]
    #[doc(alias = "argwhere")]
    pub fn nonzero(&self) -> Result<Tensor> {
        let (mask, rank) = (self.cast_unchecked(DType::Bool).detach(), self.rank());
        /// Bytes of a number in a running count.
        const WORD: u64 = 4;
        // Evaluated first, so that the mask is computed only once.
        mask.eval()?;
        // An empty mask needs no read, which a browser cannot do here.
        let count = if mask.numel() == 0 { 0 } else { mask.sum().item::<i64>()? as usize };
        if count == 0 || rank == 0 {
            return host_index(&[], Shape::from([count, rank]), &self.device());
        }
        match Tensor::has_custom_kernel(Arc::new(Nonzero { count }), &[&mask])? {
            true => Ok(Tensor::custom_kernel(Arc::new(Nonzero { count }), &[&mask])?.swap_remove(0)),
            // A running count is over one line, which cannot be split.
            false if mask.numel() as u64 * WORD <= self.device().info().limits.max_indexed_bytes => {
                mask.nonzero_static(count, 0)
            }
            false => mask.nonzero_on_host(),
        }
    }

    /// The coordinates of the true elements of a mask that is read on the host.
    #[track_caller]
    fn nonzero_on_host(&self) -> Result<Tensor> {
        let rank = self.rank();
        let truth = self.to_vec::<bool>()?;
        let places: Vec<usize> = truth.iter().enumerate().filter(|(_, t)| **t).map(|(i, _)| i).collect();
        let dims = self.dims();
        let mut coordinates = Vec::with_capacity(places.len() * rank);
        // The current line along the last axis, and its coordinates.
        let length = dims.last().copied().unwrap_or(1).max(1);
        let mut lead: SmallVec<[usize; 5]> = SmallVec::from_elem(0, rank.saturating_sub(1));
        let mut start = 0;
        for &place in places.iter().filter(|_| rank > 0) {
            if place - start >= length {
                let mut line = place / length;
                start = line * length;
                for (coordinate, &n) in lead.iter_mut().zip(dims).rev() {
                    *coordinate = line % n;
                    line /= n;
                }
            }
            coordinates.extend_from_slice(&lead);
            coordinates.push(place - start);
        }
        host_index(&coordinates, Shape::from([places.len(), rank]), &self.device())
    }

    /// The first `size` rows of [`Tensor::nonzero`], padded with `fill`: `[size, rank]`, i64 (i32 on a
    /// device without i64). The shape does not depend on the elements, so nothing is read on the host.
    /// PyTorch's default `fill` is −1. `torch.nonzero_static`.
    ///
    /// # Errors
    /// More elements than i32 can index, or a result that is too large.
    #[track_caller]
    pub fn nonzero_static(&self, size: usize, fill: i64) -> Result<Tensor> {
        const OP: &str = "nonzero_static";
        let mask = self.cast_unchecked(DType::Bool).detach().flatten_all();
        mask.check_indices(OP, 0)?;
        let device = self.device();
        let shape = Shape::from([size, self.rank()]).checked(OP)?;
        crate::tensor::creation::create::check(OP, &shape, device.int_dtype(), &device)?;
        let none = Tensor::full([size.saturating_add(1)], -1i64, (DType::I32, &device))?;
        // Each true element goes to its row; all others, and those beyond `size`, go to one extra row.
        let places = if mask.numel() == 0 {
            none
        } else {
            let turn = mask.running_count().sub_scalar(1);
            let counts = mask.bitwise_and(&turn.lt_scalar(size as i64))?;
            let target = counts.where_cond(&turn, &turn.constant(Scalar::Int(size as i64)))?;
            let numbers = Tensor::arange(0i64, mask.numel() as i64, 1i64, (DType::I32, &device))?;
            none.scatter_with(ScatterOp::Replace, 0, &target, &numbers)?
        };
        let places = places.narrow(0, 0, size)?;
        if self.rank() == 0 {
            return Tensor::zeros(shape, (device.int_dtype(), &device));
        }
        let absent = places.lt_scalar(0);
        let coordinates = places.maximum_scalar(0).coordinates_in(self.shape())?;
        let coordinates = Tensor::stack(&coordinates, 1)?.as_index();
        coordinates.masked_fill(&absent.unsqueeze(1)?, fill)
    }

    /// The coordinates in `shape` of elements given by their flat row-major indices: a tensor of this
    /// tensor's shape for each axis, outermost first, i64 (i32 on a device without i64).
    /// `torch.unravel_index`.
    ///
    /// # Errors
    /// A dtype that is not an integer, a shape without elements or too large. Indices outside the shape
    /// are not detected.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let coordinates = x.unravel_index([2, 3])?; // [4, 2] gives [1, 0] and [1, 2]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn unravel_index(&self, shape: impl Into<Shape>) -> Result<Vec<Tensor>> {
        const OP: &str = "unravel_index";
        let shape = shape.into().checked(OP)?;
        let index = index_dtype(OP, self)?.as_index();
        if shape.numel() == 0 {
            return Err(Error::invalid(OP, format!("shape {shape} has no elements to number")));
        }
        index.coordinates_in(&shape)
    }

    /// The coordinates of flat indices in a shape.
    #[track_caller]
    fn coordinates_in(&self, shape: &Shape) -> Result<Vec<Tensor>> {
        let mut rest = self.clone();
        let mut coordinates = Vec::with_capacity(shape.rank());
        for &size in shape.iter().rev() {
            let size = size.max(1) as i64;
            coordinates.push(rest.remainder_scalar(size));
            rest = rest.floor_divide_scalar(size);
        }
        coordinates.reverse();
        Ok(coordinates)
    }

    /// The elements where the bool `mask`, broadcast with this tensor, is true, as a vector.
    /// `torch.masked_select`. The number is found as in [`Tensor::nonzero`].
    ///
    /// # Errors
    /// A mask that is not bool or does not broadcast, or two devices.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        const OP: &str = "masked_select";
        Tensor::same_device(OP, &[self, mask])?;
        require_bool(OP, mask)?;
        let shape = self.shape().broadcast(mask.shape(), OP)?;
        let (x, mask) = (self.expand_unchecked(shape.clone()), mask.expand_unchecked(shape));
        x.flatten_all().index_select(0, &mask.true_places()?)
    }

    /// The flat indices of the nonzero elements, as a vector.
    #[track_caller]
    pub(in crate::tensor) fn true_places(&self) -> Result<Tensor> {
        let places = self.flatten_all().nonzero()?;
        let count = places.numel();
        Ok(places.reshape_unchecked([count].into()))
    }

    /// The part that `parts` select; `op` is for errors.
    #[track_caller]
    pub(in crate::tensor) fn at(&self, op: &'static str, parts: Vec<Index>) -> Result<Tensor> {
        let (view, gathered) = self.view_at(op, parts)?;
        if gathered.is_empty() { Ok(view) } else { view.gathered(op, gathered) }
    }

    /// The view by all integers, ranges and new axes, and the remaining index tensors for its axes, in
    /// ascending order.
    #[track_caller]
    fn view_at(&self, op: &'static str, parts: Vec<Index>) -> Result<(Tensor, SmallVec<[Gathered; 2]>)> {
        let named: usize = parts.iter().map(axes_of).sum();
        let ellipses = parts.iter().filter(|p| matches!(p, Index::Ellipsis)).count();
        if ellipses > 1 {
            return Err(Error::invalid(op, "an index has at most one Ellipsis; write .. for a whole axis"));
        }
        if named > self.rank() {
            return Err(Error::invalid(
                op,
                format!("{named} axes are indexed, but shape {} has {}", self.shape(), self.rank()),
            ));
        }
        let mut view = self.clone();
        let mut gathered = SmallVec::new();
        // The next axis of the view, and the corresponding axis of this tensor.
        let (mut axis, mut source) = (0, 0);
        for part in parts {
            let taken = axes_of(&part);
            match part {
                Index::At(index) => {
                    let size = view.dims()[axis];
                    let at = Tensor::place(op, index, source, size)?;
                    let one = view.slice_unchecked(axis, at, 1, 1);
                    view = one.reshape_unchecked(view.shape().reduced(&[axis], false));
                }
                Index::Span(span, step) => {
                    view = view.slice_by(op, axis, span, step)?;
                    axis += 1;
                }
                Index::NewAxis => {
                    view = view.unsqueeze(axis)?;
                    axis += 1;
                }
                Index::Ellipsis => {
                    axis += self.rank() - named;
                    source += self.rank() - named;
                }
                Index::List(list) => {
                    let size = view.dims()[axis];
                    let mut places = Vec::with_capacity(list.len());
                    for index in list {
                        places.push(Tensor::place(op, index, source, size)?);
                    }
                    let index = host_index(&places, Shape::from([places.len()]), &self.device())?;
                    gathered.push(Gathered { axis, index, within: true });
                    axis += 1;
                }
                Index::Tensor(index) => {
                    Tensor::same_device(op, &[self, &index])?;
                    if index.dtype() == DType::Bool {
                        let dims = &view.dims()[axis..axis + taken];
                        if index.dims() != dims || taken == 0 {
                            return Err(shape_misfit(
                                op,
                                self.shape(),
                                index.shape(),
                                format!("a mask from axis {source} on must have the sizes {dims:?}"),
                            ));
                        }
                        let places = index.nonzero()?;
                        for k in 0..taken {
                            let index = places.select(1, k)?;
                            gathered.push(Gathered { axis: axis + k, index, within: true });
                        }
                    } else if index.dtype().is_int() {
                        gathered.push(Gathered { axis, index: index.detach(), within: false });
                    } else {
                        return Err(Error::invalid(
                            op,
                            format!(
                                "an index must be of integers or bool, not {}; cast it with .to_dtype(DType::I64)?",
                                index.dtype()
                            ),
                        ));
                    }
                    axis += taken;
                }
            }
            source += taken;
        }
        Ok((view, gathered))
    }

    /// The position of `index` on an axis of `size` elements, counted from the start.
    #[track_caller]
    pub(in crate::tensor) fn place(
        op: &'static str,
        index: isize,
        axis: usize,
        size: usize,
    ) -> Result<usize> {
        let at = if index < 0 { index.checked_add_unsigned(size).unwrap_or(-1) } else { index };
        if at < 0 || at.unsigned_abs() >= size {
            return Err(Error::new(ErrorKind::IndexOutOfRange { op, index: index as i64, axis, size }));
        }
        Ok(at.unsigned_abs())
    }

    /// This index with negative numbers, which count from the end of `size` elements, counted from the
    /// start. An index of unsigned integers is returned as it is.
    #[track_caller]
    pub(in crate::tensor) fn counted_from_start(&self, size: usize) -> Result<Tensor> {
        if !matches!(self.dtype(), DType::I32 | DType::I64) {
            return Ok(self.clone());
        }
        // Numbers that stay out of range are not changed, so that errors show them as they were given.
        let index = self.cast_unchecked(self.device().int_dtype());
        let beyond = index.lt_scalar(0).bitwise_and(&index.ge_scalar(-(size as i64)))?;
        beyond.where_cond(&index.add_scalar(size as i64), &index)
    }

    /// The elements that index tensors select along axes of this view.
    #[track_caller]
    fn gathered(&self, op: &'static str, gathered: SmallVec<[Gathered; 2]>) -> Result<Tensor> {
        let Merged { view, axis, index, part, .. } = self.merged(op, gathered)?;
        Ok(view.index_select(axis, &index)?.reshape_unchecked(part))
    }

    /// This view with `value` put where index tensors select elements, or added there.
    #[track_caller]
    fn put_gathered(
        &self,
        op: &'static str,
        gathered: SmallVec<[Gathered; 2]>,
        value: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        let Merged { view, axis, index, part, order } = self.merged(op, gathered)?;
        must_broadcast(op, value, &part)?;
        if part.numel() == 0 {
            return Ok(self.clone());
        }
        let (spread, _) = view.spread_index(op, Axis(axis as isize), &index)?;
        let value = value.expand_unchecked(part).reshape_unchecked(spread.shape().clone());
        let how = if accumulate { ScatterOp::Add } else { ScatterOp::Replace };
        let out = view.scatter_with(how, axis, &spread, &value)?;
        // Restores the original order of the axes.
        let mut back: SmallVec<[usize; 5]> = SmallVec::from_elem(0, order.len());
        order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
        let dims = order.iter().map(|&axis| self.dims()[axis]).collect();
        Ok(out.reshape_unchecked(dims).permute_unchecked(back))
    }

    /// This view with the indexed axes moved together and merged, and the index tensors combined into
    /// one.
    #[track_caller]
    fn merged(&self, op: &'static str, gathered: SmallVec<[Gathered; 2]>) -> Result<Merged> {
        let mut shape = Shape::scalar();
        for Gathered { index, .. } in &gathered {
            shape = shape.broadcast(index.shape(), op)?;
        }
        let first = gathered[0].axis;
        let together = gathered.iter().enumerate().all(|(k, g)| g.axis == first + k);
        let (order, first): (SmallVec<[usize; 5]>, usize) = if together {
            ((0..self.rank()).collect(), first)
        } else {
            let indexed = gathered.iter().map(|g| g.axis);
            let others = (0..self.rank()).filter(|a| gathered.iter().all(|g| g.axis != *a));
            (indexed.chain(others).collect(), 0)
        };
        let view = if together { self.clone() } else { self.permute_unchecked(order.clone()) };
        let last = first + gathered.len();
        let sizes: SmallVec<[usize; 5]> = view.dims()[first..last].into();
        let index = flat_index(op, &sizes, gathered, &shape, &self.device())?;
        let dims = view.dims();
        let merged: Shape = dims[..first]
            .iter()
            .copied()
            .chain([sizes.iter().product()])
            .chain(dims[last..].iter().copied())
            .collect();
        // The other sizes of an empty index count too.
        let part = dims[..first].iter().chain(shape.dims()).chain(&dims[last..]).copied();
        let part = part.collect::<Shape>().checked(op)?;
        Ok(Merged { view: view.reshape_unchecked(merged), axis: first, index, part, order })
    }

    #[track_caller]
    fn put_in_cell(
        &self,
        op: &'static str,
        parts: Vec<Index>,
        value: Operand,
        accumulate: bool,
    ) -> Result<()> {
        if !self.is_cell() {
            return Err(Error::invalid(
                op,
                "this tensor is not a cell, and others are never changed; make one with .into_cell(false)?, or use \
                 .index_put(index, &value, false)?, which gives a new tensor",
            ));
        }
        if self.is_tracked() && is_grad_enabled() {
            return Err(autograd_misuse(
                op,
                "this cell requires gradients, and a change of it would not be recorded; make it under no_grad(|| ...), or use \
                 .index_put(index, &value, false)?, which is recorded",
            ));
        }
        let here = Location::caller();
        let next = set_grad_enabled(false, || {
            crate::base::origin::with_location(here, || self.put(op, parts, value, accumulate))
        })?;
        self.assign(&next)
    }

    #[track_caller]
    pub(in crate::tensor) fn put(
        &self,
        op: &'static str,
        parts: Vec<Index>,
        value: Operand,
        accumulate: bool,
    ) -> Result<Tensor> {
        let value = match value {
            Operand::Scalar(scalar) => self.constant(scalar),
            Operand::Tensor(value) => value,
        };
        Tensor::same_device(op, &[self, &value])?;
        if value.dtype() != self.dtype() {
            return Err(dtype_misfit(
                op,
                self.dtype(),
                value.dtype(),
                format!("cast the value with .to_dtype(DType::{:?})?", self.dtype()),
            ));
        }
        if !parts.iter().any(|part| matches!(part, Index::Tensor(_) | Index::List(_))) {
            return self.put_in_view(op, parts, &value, accumulate);
        }
        let whole = parts.iter().all(|part| match part {
            Index::Tensor(_) | Index::List(_) | Index::Ellipsis => true,
            Index::Span(span, step) => *span == Span::from(..) && *step == 1,
            Index::At(_) | Index::NewAxis => false,
        });
        // Elements are put in the view by the integers and ranges, and that view is then put back.
        let around = if whole { Vec::new() } else { parts.iter().flat_map(without_gathers).collect() };
        let (view, gathered) = self.view_at(op, parts)?;
        let view = view.put_gathered(op, gathered, &value, accumulate)?;
        if whole { Ok(view) } else { self.put_in_view(op, around, &view, false) }
    }

    /// [`Tensor::put`] for a part that only integers and ranges select: along one axis after the other,
    /// this tensor's slices before the part, the value, and the slices after it.
    #[track_caller]
    fn put_in_view(
        &self,
        op: &'static str,
        parts: Vec<Index>,
        value: &Tensor,
        accumulate: bool,
    ) -> Result<Tensor> {
        let (view, _) = self.view_at(op, parts.clone())?;
        must_broadcast(op, value, view.shape())?;
        if view.numel() == 0 {
            return Ok(self.clone());
        }
        let rank = self.rank();
        // The part of each axis: its first element, its step and its size, which is 1 for an integer.
        let mut named: SmallVec<[(usize, usize, usize); 5]> =
            self.dims().iter().map(|&n| (0, 1, n)).collect();
        let count: usize = parts.iter().map(axes_of).sum();
        let mut axis = 0;
        for part in &parts {
            match *part {
                Index::At(index) => {
                    named[axis] = (Tensor::place(op, index, axis, self.dims()[axis])?, 1, 1);
                }
                Index::Span(span, step) => {
                    let (start, end) = span.resolve(self.dims()[axis]);
                    let size = (end - start).div_ceil(step.unsigned_abs());
                    // A single element leaves no gaps, whatever the step is.
                    named[axis] = (start, if size > 1 { step.unsigned_abs() } else { 1 }, size);
                }
                Index::Ellipsis => axis += rank - count,
                Index::NewAxis | Index::Tensor(_) | Index::List(_) => {}
            }
            axis += axes_of(part);
        }
        let sizes: Shape = named.iter().map(|&(.., size)| size).collect();
        let value = value.expand_unchecked(view.shape().clone());
        let value = if accumulate { view.add(&value)? } else { value };
        // For each axis, this tensor narrowed by the parts of the axes before it; the value replaces a
        // part of it along that axis.
        let mut around: SmallVec<[Tensor; 5]> = SmallVec::new();
        let mut inner = self.clone();
        for (axis, &(start, step, size)) in named.iter().enumerate() {
            let part = match size == self.dims()[axis] {
                true => inner.clone(),
                false => inner.slice_unchecked(axis, start, size, step as isize),
            };
            around.push(std::mem::replace(&mut inner, part));
        }
        let mut out = value.reshape_unchecked(sizes);
        for (axis, (whole, &(start, step, size))) in around.iter().zip(&named).enumerate().rev() {
            let n = whole.dims()[axis];
            if size == n {
                continue;
            }
            if step > 1 {
                let places = numbers(size, &self.device())?.mul_scalar(step as i64).add_scalar(start as i64);
                let (places, _) = whole.spread_index(op, Axis(axis as isize), &places)?;
                out = whole.scatter_with(ScatterOp::Replace, axis, &places, &out)?;
                continue;
            }
            let (before, behind) =
                (whole.narrow(axis, 0, start)?, whole.narrow(axis, start + size, n - start - size)?);
            let pieces = [before, out, behind].into_iter().filter(|piece| piece.dims()[axis] > 0);
            out = Tensor::concat(&pieces.collect::<SmallVec<[Tensor; 3]>>(), axis)?;
        }
        Ok(out)
    }
}

/// A part of an index, with gathered axes replaced by whole ones.
fn without_gathers(part: &Index) -> SmallVec<[Index; 1]> {
    match part {
        Index::Tensor(_) | Index::List(_) => SmallVec::from_elem(Index::from(..), axes_of(part)),
        Index::At(_) | Index::Span(..) | Index::NewAxis | Index::Ellipsis => {
            SmallVec::from_elem(part.clone(), 1)
        }
    }
}

/// Fails unless `value` broadcasts to `part`.
#[track_caller]
pub(in crate::tensor) fn must_broadcast(op: &'static str, value: &Tensor, part: &Shape) -> Result<()> {
    if value.shape().broadcast(part, op).is_ok_and(|shape| shape == *part) {
        return Ok(());
    }
    Err(shape_misfit(op, part, value.shape(), "the value must broadcast to the part that is named"))
}

/// The number of the tensor's axes that a part indexes.
fn axes_of(part: &Index) -> usize {
    match part {
        Index::At(_) | Index::Span(..) | Index::List(_) => 1,
        Index::NewAxis | Index::Ellipsis => 0,
        Index::Tensor(index) if index.dtype() == DType::Bool => index.rank(),
        Index::Tensor(_) => 1,
    }
}

/// The numbers 0, 1, … below `n`, in the dtype of indices.
#[track_caller]
fn numbers(n: usize, device: &Device) -> Result<Tensor> {
    let dtype = device.int_dtype();
    if dtype == DType::I32 && n > i32::MAX as usize {
        return Err(Error::invalid("index", format!("{n} elements pass the i32 indices that {device} has")));
    }
    Tensor::arange(0i64, n as i64, 1i64, (dtype, device))
}

/// The flat index, as a vector, for merged axes of these `sizes`. Negative numbers count from the end of
/// their axis.
#[track_caller]
fn flat_index(
    op: &'static str,
    sizes: &[usize],
    gathered: SmallVec<[Gathered; 2]>,
    shape: &Shape,
    device: &Device,
) -> Result<Tensor> {
    let dtype = device.int_dtype();
    let total: usize = sizes.iter().product();
    let alone = gathered.len() == 1;
    if dtype == DType::I32 && total > i32::MAX as usize {
        return Err(Error::invalid(
            op,
            format!("{total} elements pass the i32 indices that this device has"),
        ));
    }
    let mut flat: Option<Tensor> = None;
    let mut stride = total;
    for (Gathered { index, within, .. }, &size) in gathered.into_iter().zip(sizes) {
        let mut index = if within { index } else { index.counted_from_start(size)? }.cast_unchecked(dtype);
        if !within && !alone {
            // With merged axes, a number outside its own axis could still be inside the whole.
            let shape = index.shape().clone();
            index = numbers(size, device)?.gather(0, &index.flatten_all())?.reshape_unchecked(shape);
        }
        stride = stride.checked_div(size).unwrap_or(0);
        let part = if stride == 1 { index } else { index.mul_scalar(stride as i64) };
        flat = Some(match flat {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    let flat = flat.unwrap_or(Tensor::full((), 0, (dtype, device))?);
    Ok(flat.expand_unchecked(shape.clone()).flatten_all())
}
