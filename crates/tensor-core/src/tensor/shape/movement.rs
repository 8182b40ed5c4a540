//! Views and concatenation.

use smallvec::SmallVec;

use crate::tensor::{Span, Tensor, shape_misfit};
use crate::{
    base::{
        axes::{Axes, Axis, Dims, Int},
        error::{Error, ErrorKind, Result},
        shape::Shape,
    },
    devices::device::Device,
    elements::{dtype::DType, scalar::Scalar},
    graph::op::{Op, Padding, padded},
    kernels::operators::BinaryOp,
};

impl Tensor {
    /// The same elements in the same order under another shape; one size may be -1, which is inferred.
    ///
    /// # Errors
    /// Sizes with another number of elements.
    #[track_caller]
    #[doc(alias("view", "view_as", "unflatten"))]
    pub fn reshape(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        self.reshape_by(dims.into())
    }

    #[track_caller]
    fn reshape_by(&self, dims: Dims) -> Result<Tensor> {
        let shape = dims.resolve(self.shape())?;
        Ok(self.reshape_unchecked(shape))
    }

    #[track_caller]
    pub(crate) fn reshape_unchecked(&self, shape: Shape) -> Tensor {
        if shape == *self.shape() {
            return self.clone();
        }
        Tensor::build(Op::Reshape, shape, self.dtype(), &[self])
    }

    /// All elements as a vector.
    #[track_caller]
    #[doc(alias("flatten", "ravel"))]
    pub fn flatten_all(&self) -> Tensor {
        self.reshape_unchecked([self.numel()].into())
    }

    /// Axes `start..=end` merged into one. `flatten(1, -1)` keeps a batch axis.
    #[track_caller]
    pub fn flatten(&self, start: impl Into<Axis>, end: impl Into<Axis>) -> Result<Tensor> {
        self.flatten_by(start.into(), end.into())
    }

    #[track_caller]
    fn flatten_by(&self, start: Axis, end: Axis) -> Result<Tensor> {
        if self.rank() == 0 {
            return Ok(self.reshape_unchecked([1].into()));
        }
        let (start, end) = (self.shape().axis(start, "flatten")?, self.shape().axis(end, "flatten")?);
        if start > end {
            return Err(Error::invalid("flatten", format!("axis {start} comes after axis {end}")));
        }
        let dims = self.dims();
        let merged = dims[start..=end].iter().product();
        let shape =
            dims[..start].iter().copied().chain([merged]).chain(dims[end + 1..].iter().copied()).collect();
        Ok(self.reshape_unchecked(shape))
    }

    /// Axes reordered: axis `i` of the result is axis `axes[i]` of this tensor.
    ///
    /// # Errors
    /// A list that does not name every axis exactly once.
    #[track_caller]
    #[doc(alias = "transpose")]
    pub fn permute(&self, axes: impl Into<Axes>) -> Result<Tensor> {
        self.permute_by(axes.into())
    }

    #[track_caller]
    fn permute_by(&self, axes: Axes) -> Result<Tensor> {
        let mut order: SmallVec<[usize; 5]> = SmallVec::new();
        for &axis in axes.given().unwrap_or(&[]) {
            let axis = self.shape().axis(axis, "permute")?;
            if order.contains(&axis) {
                return Err(Error::invalid("permute", format!("axis {axis} is given twice")));
            }
            order.push(axis);
        }
        if order.len() != self.rank() {
            return Err(Error::invalid(
                "permute",
                format!(
                    "{} axes are given for shape {}; name each of its axes once",
                    order.len(),
                    self.shape()
                ),
            ));
        }
        Ok(self.permute_unchecked(order))
    }

    #[track_caller]
    pub(crate) fn permute_unchecked(&self, order: SmallVec<[usize; 5]>) -> Tensor {
        if order.iter().enumerate().all(|(i, &a)| i == a) {
            return self.clone();
        }
        let shape = order.iter().map(|&a| self.dims()[a]).collect();
        Tensor::build(Op::Permute(order.as_slice().into()), shape, self.dtype(), &[self])
    }

    /// Two axes exchanged.
    #[track_caller]
    #[doc(alias("swapaxes", "swapdims"))]
    pub fn transpose(&self, a: impl Into<Axis>, b: impl Into<Axis>) -> Result<Tensor> {
        self.transpose_by(a.into(), b.into())
    }

    #[track_caller]
    fn transpose_by(&self, a: Axis, b: Axis) -> Result<Tensor> {
        if self.rank() == 0 {
            return Ok(self.as_line().transpose_by(a, b)?.as_scalar());
        }
        let (a, b) = (self.shape().axis(a, "transpose")?, self.shape().axis(b, "transpose")?);
        let mut order: SmallVec<[usize; 5]> = (0..self.rank()).collect();
        order.swap(a, b);
        Ok(self.permute_unchecked(order))
    }

    /// The transpose of a matrix.
    ///
    /// # Errors
    /// More than two axes (use [`Tensor::transpose`]). A vector or scalar is itself, as in PyTorch.
    #[track_caller]
    #[doc(alias("T", "mT"))]
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => self.transpose(0, 1),
            _ => Err(Error::invalid(
                "t",
                format!("shape {} has more than two axes; use .transpose(-2, -1)?", self.shape()),
            )),
        }
    }

    /// Removes axes of size 1: all with `..`, or the given ones; given axes of other sizes stay.
    #[track_caller]
    pub fn squeeze(&self, axes: impl Into<Axes>) -> Result<Tensor> {
        self.squeeze_by(axes.into())
    }

    #[track_caller]
    fn squeeze_by(&self, axes: Axes) -> Result<Tensor> {
        let axes = self.shape().axes(&axes, "squeeze")?;
        let dropped: SmallVec<[usize; 5]> = axes.into_iter().filter(|&a| self.dims()[a] == 1).collect();
        Ok(self.reshape_unchecked(self.shape().reduced(&dropped, false)))
    }

    /// Inserts an axis of size 1 at `axis` of the result; -1 is after the last.
    #[track_caller]
    #[doc(alias("newaxis", "expand_dims"))]
    pub fn unsqueeze(&self, axis: impl Into<Axis>) -> Result<Tensor> {
        self.unsqueeze_by(axis.into())
    }

    #[track_caller]
    fn unsqueeze_by(&self, axis: Axis) -> Result<Tensor> {
        self.unsqueeze_as("unsqueeze", axis)
    }

    #[track_caller]
    fn unsqueeze_as(&self, op: &'static str, axis: Axis) -> Result<Tensor> {
        let Axis(axis) = axis;
        let rank = self.rank() as isize + 1;
        let at = if axis < 0 { axis + rank } else { axis };
        if !(0..rank).contains(&at) {
            return Err(Error::invalid(
                op,
                format!(
                    "a new axis of shape {} cannot be axis {axis}: it can be 0 to {}, or -{rank} to -1 from the end",
                    self.shape(),
                    rank - 1
                ),
            ));
        }
        let (head, tail) = self.dims().split_at(at as usize);
        let shape = head.iter().copied().chain([1]).chain(tail.iter().copied()).collect();
        Ok(self.reshape_unchecked(shape))
    }

    /// Broadcast to `shape` without copying; -1 keeps a size.
    ///
    /// # Errors
    /// A shape to which this one does not broadcast.
    #[track_caller]
    #[doc(alias("expand_as", "broadcast_to"))]
    pub fn expand(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        self.expand_by(dims.into())
    }

    #[track_caller]
    fn expand_by(&self, dims: Dims) -> Result<Tensor> {
        let dims = dims.0;
        let lead = dims.len().wrapping_sub(self.rank());
        let mut shape: SmallVec<[usize; 5]> = SmallVec::new();
        for (i, &d) in dims.iter().enumerate() {
            shape.push(match d {
                -1 if dims.len() >= self.rank() && i >= lead => self.dims()[i - lead],
                d if d >= 0 => d as usize,
                _ => {
                    return Err(Error::invalid(
                        "expand",
                        format!("{} to {dims:?}: {d} is no size here", self.shape()),
                    ));
                }
            });
        }
        let shape = Shape::from(shape.as_slice()).checked("expand")?;
        if self.shape().broadcast(&shape, "expand")? != shape {
            return Err(Error::new(ErrorKind::ShapeMismatch {
                op: "expand",
                lhs: self.shape().clone(),
                rhs: shape,
                hint: "only axes of size 1, and new ones in front, can be widened".into(),
            }));
        }
        Ok(self.expand_unchecked(shape))
    }

    #[track_caller]
    pub(crate) fn expand_unchecked(&self, shape: Shape) -> Tensor {
        if shape == *self.shape() {
            return self.clone();
        }
        Tensor::build(Op::Expand, shape, self.dtype(), &[self])
    }

    /// Windows of `size` elements along an axis, one every `step` elements, as a view: the windows take
    /// the axis's place, and their elements are along a new last axis. `[…, n, …]` gives `[…, (n − size)
    /// / step + 1, …, size]`.
    ///
    /// # Errors
    /// No such axis, a step of 0, a window larger than the axis.
    #[track_caller]
    pub fn unfold(&self, axis: impl Into<Axis>, size: usize, step: usize) -> Result<Tensor> {
        self.windows_by(axis.into(), size, step, 1)
    }

    /// [`Tensor::unfold`] with elements `dilation` apart: a window spans `dilation·(size − 1) + 1`
    /// elements. Convolutions read their inputs in this form.
    ///
    /// # Errors
    /// No such axis, a step or a dilation of 0, a window that spans more than the axis.
    #[track_caller]
    pub fn windows(
        &self,
        axis: impl Into<Axis>,
        size: usize,
        step: usize,
        dilation: usize,
    ) -> Result<Tensor> {
        self.windows_by(axis.into(), size, step, dilation)
    }

    #[track_caller]
    fn windows_by(&self, axis: Axis, size: usize, step: usize, dilation: usize) -> Result<Tensor> {
        const OP: &str = "unfold";
        if self.rank() == 0 {
            return self.as_line().windows_by(axis, size, step, dilation)?.select(0, 0);
        }
        let axis = self.shape().axis(axis, OP)?;
        let n = self.dims()[axis];
        if step == 0 || dilation == 0 {
            return Err(Error::invalid(
                OP,
                "a step or dilation of 0: windows and their elements must be apart",
            ));
        }
        let reach = size.saturating_sub(1).saturating_mul(dilation).saturating_add(usize::from(size > 0));
        if reach > n {
            return Err(Error::invalid(
                OP,
                format!(
                    "a window of {size} elements, {dilation} apart, reaches over {reach}; axis {axis} of {} has {n}",
                    self.shape()
                ),
            ));
        }
        let count = (n - reach) / step + 1;
        let sizes = self.dims().iter().enumerate().map(|(a, &n)| if a == axis { count } else { n });
        let shape = sizes.chain([size]).collect::<Shape>().checked(OP)?;
        Ok(Tensor::build(Op::Unfold { axis, step, dilation }, shape, self.dtype(), &[self]))
    }

    /// A range of an axis, as in `x.slice(1, 2..)?`: any Rust range of any integers. Negative bounds
    /// count from the end; bounds are clamped to the axis, as in Python. [`Tensor::i`] takes ranges of
    /// several axes.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    #[doc(alias = "index")]
    pub fn slice(&self, axis: impl Into<Axis>, range: impl Into<Span>) -> Result<Tensor> {
        self.slice_step_by(axis.into(), range.into(), 1)
    }

    /// Every `step`-th element of a range of an axis, for a positive `step`: `x.slice_step(0, 1.., 2)?` is
    /// Python's `x[1::2]`.
    ///
    /// # Errors
    /// A step below 1 (use [`Tensor::flip`] to reverse), or no such axis.
    #[track_caller]
    pub fn slice_step(
        &self,
        axis: impl Into<Axis>,
        range: impl Into<Span>,
        step: impl Int,
    ) -> Result<Tensor> {
        self.slice_step_by(axis.into(), range.into(), step.as_isize())
    }

    #[track_caller]
    fn slice_step_by(&self, axis: Axis, range: Span, step: isize) -> Result<Tensor> {
        let axis = self.shape().axis(axis, "slice")?;
        self.slice_by("slice", axis, range, step)
    }

    #[track_caller]
    pub(in crate::tensor) fn slice_by(
        &self,
        op: &'static str,
        axis: usize,
        range: Span,
        step: isize,
    ) -> Result<Tensor> {
        if step < 1 {
            return Err(Error::invalid(
                op,
                format!("step {step}: give one of at least 1, and flip to reverse"),
            ));
        }
        let (start, end) = range.resolve(self.dims()[axis]);
        let len = (end - start).div_ceil(step.unsigned_abs());
        if len == self.dims()[axis] && step == 1 {
            return Ok(self.clone());
        }
        Ok(self.slice_unchecked(axis, start, len, step))
    }

    #[track_caller]
    pub(crate) fn slice_unchecked(&self, axis: usize, start: usize, len: usize, step: isize) -> Tensor {
        let shape = self.dims().iter().enumerate().map(|(i, &d)| if i == axis { len } else { d }).collect();
        Tensor::build(Op::Slice { axis, start, step }, shape, self.dtype(), &[self])
    }

    /// `len` elements of an axis from `start` on. `torch.narrow`.
    ///
    /// # Errors
    /// A range that exceeds the axis.
    #[track_caller]
    pub fn narrow(&self, axis: impl Into<Axis>, start: usize, len: usize) -> Result<Tensor> {
        self.narrow_by(axis.into(), start, len)
    }

    #[track_caller]
    fn narrow_by(&self, axis: Axis, start: usize, len: usize) -> Result<Tensor> {
        let at = self.shape().axis(axis, "narrow")?;
        let size = self.dims()[at];
        if start.checked_add(len).is_none_or(|end| end > size) {
            return Err(Error::invalid(
                "narrow",
                format!(
                    "{len} elements from {start} leave axis {at} of size {size} of shape {}",
                    self.shape()
                ),
            ));
        }
        if len == size {
            return Ok(self.clone());
        }
        Ok(self.slice_unchecked(at, start, len, 1))
    }

    /// One element of an axis, which is removed. Negative numbers count from the end. `torch.select`.
    ///
    /// # Errors
    /// An index outside the axis.
    #[track_caller]
    #[doc(alias = "index")]
    pub fn select(&self, axis: impl Into<Axis>, index: impl Int) -> Result<Tensor> {
        self.select_by(axis.into(), index.as_isize())
    }

    #[track_caller]
    fn select_by(&self, axis: Axis, index: isize) -> Result<Tensor> {
        let at = self.shape().axis(axis, "select")?;
        let place = Tensor::place("select", index, at, self.dims()[at])?;
        let one = self.slice_unchecked(at, place, 1, 1);
        let shape = self.shape().reduced(&[at], false);
        Ok(one.reshape_unchecked(shape))
    }

    /// The order of elements reversed along `axes`.
    #[track_caller]
    #[doc(alias("fliplr", "flipud"))]
    pub fn flip(&self, axes: impl Into<Axes>) -> Result<Tensor> {
        self.flip_by(axes.into())
    }

    #[track_caller]
    fn flip_by(&self, axes: Axes) -> Result<Tensor> {
        let axes = self.shape().axes(&axes, "flip")?;
        let mut out = self.clone();
        for axis in axes {
            let n = self.dims()[axis];
            if n > 1 {
                out = out.slice_unchecked(axis, n - 1, n, -1);
            }
        }
        Ok(out)
    }

    /// Tensors concatenated along an axis, in their promoted dtype. `torch.cat`.
    ///
    /// # Errors
    /// An empty list, sizes that differ along other axes, or several devices.
    #[track_caller]
    #[doc(alias("cat", "concatenate"))]
    pub fn concat<T: AsRef<Tensor>>(tensors: &[T], axis: impl Into<Axis>) -> Result<Tensor> {
        Tensor::concat_by(&references(tensors), axis.into())
    }

    #[track_caller]
    fn concat_by(tensors: &[&Tensor], axis: Axis) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::invalid("concat", "no tensors are given; give at least one"));
        };
        Tensor::same_device("concat", tensors)?;
        let axis = first.shape().axis(axis, "concat")?;
        let mut size = 0usize;
        let mut dtype = first.dtype();
        for (i, tensor) in tensors.iter().enumerate() {
            if tensor.rank() != first.rank() {
                return Err(shape_misfit(
                    "concat",
                    first.shape(),
                    tensor.shape(),
                    format!(
                        "tensor 0 has {} axes and tensor {i} has {}; all need as many",
                        first.rank(),
                        tensor.rank()
                    ),
                ));
            }
            let differs = (0..first.rank()).find(|&a| a != axis && tensor.dims()[a] != first.dims()[a]);
            if let Some(a) = differs {
                return Err(shape_misfit(
                    "concat",
                    first.shape(),
                    tensor.shape(),
                    format!(
                        "tensor {i} has size {} at axis {a}, where tensor 0 has {}; sizes must agree on every axis but {axis}",
                        tensor.dims()[a],
                        first.dims()[a]
                    ),
                ));
            }
            size = size.saturating_add(tensor.dims()[axis]);
            dtype = dtype.promote(tensor.dtype());
        }
        if tensors.len() == 1 {
            return Ok((*first).clone());
        }
        let sizes = first.dims().iter().enumerate();
        let shape: Shape = sizes.map(|(i, &d)| if i == axis { size } else { d }).collect();
        let shape = shape.checked("concat")?;
        // Not in a closure, which would hide the caller's line.
        let mut cast = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            cast.push(tensor.to_dtype(dtype)?);
        }
        Ok(Tensor::build(Op::Concat { axis }, shape, dtype, &cast.iter().collect::<Vec<_>>()))
    }

    /// Tensors of one shape, stacked along a new axis.
    #[track_caller]
    pub fn stack<T: AsRef<Tensor>>(tensors: &[T], axis: impl Into<Axis>) -> Result<Tensor> {
        Tensor::stack_by(&references(tensors), axis.into())
    }

    #[track_caller]
    fn stack_by(tensors: &[&Tensor], axis: Axis) -> Result<Tensor> {
        let Some(first) = tensors.first() else {
            return Err(Error::invalid("stack", "no tensors are given; give at least one"));
        };
        if let Some(i) = tensors.iter().position(|t| t.shape() != first.shape()) {
            let other = tensors[i].shape();
            let at = (0..first.rank().min(other.rank())).find(|&a| first.dims()[a] != other[a]);
            let hint = match at {
                Some(a) if first.rank() == other.rank() => format!(
                    "tensor {i} has size {} at axis {a}, where tensor 0 has {}; all must have one shape (concat joins along an \
                     axis that there is)",
                    other[a],
                    first.dims()[a]
                ),
                _ => format!(
                    "tensor {i} has {} axes, tensor 0 has {}; all must have one shape",
                    other.rank(),
                    first.rank()
                ),
            };
            return Err(shape_misfit("stack", first.shape(), other, hint));
        }
        let mut wide = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            wide.push(tensor.unsqueeze_as("stack", axis)?);
        }
        Tensor::concat_by(&references(&wide), axis)
    }

    /// The tensor split along an axis into pieces of `size`; the last may be smaller. `torch.split`.
    #[track_caller]
    pub fn split(&self, size: usize, axis: impl Into<Axis>) -> Result<Vec<Tensor>> {
        self.split_by(size, axis.into())
    }

    #[track_caller]
    fn split_by(&self, size: usize, axis: Axis) -> Result<Vec<Tensor>> {
        let at = self.shape().axis(axis, "split")?;
        if size == 0 {
            return Err(Error::invalid("split", "pieces of size 0 never end; give at least 1"));
        }
        let n = self.dims()[at];
        (0..n.max(1)).step_by(size).map(|start| self.narrow(at, start, size.min(n - start))).collect()
    }

    /// Padded with `value`: `padding[i]` elements before and after along axis `i`. A negative number
    /// removes elements.
    ///
    /// # Errors
    /// A number of pairs other than the rank, or more elements removed than there are.
    #[track_caller]
    #[doc(alias = "constant_pad_nd")]
    pub fn pad<I: Int>(&self, padding: &[(I, I)], value: impl Into<Scalar>) -> Result<Tensor> {
        let padding: SmallVec<[(isize, isize); 5]> =
            padding.iter().map(|(before, after)| (before.as_isize(), after.as_isize())).collect();
        let (cut, padding) = self.cut_by("pad", 0, &padding)?;
        cut.pad_by(&padding, value.into())
    }

    /// This tensor without the elements that negative numbers of a padding of the axes from `first` on
    /// remove, and the remaining positive padding.
    ///
    /// # Errors
    /// More elements removed than there are.
    #[doc(hidden)]
    #[track_caller]
    pub fn cut_by(
        &self,
        op: &'static str,
        first: usize,
        padding: &[(isize, isize)],
    ) -> Result<(Tensor, Vec<(usize, usize)>)> {
        let mut cut = self.clone();
        for (axis, &(before, after)) in (first..self.rank()).zip(padding) {
            let (lost, tail) = (before.min(0).unsigned_abs(), after.min(0).unsigned_abs());
            if lost == 0 && tail == 0 {
                continue;
            }
            let Some(left) = self.dims()[axis].checked_sub(lost.saturating_add(tail)) else {
                let message =
                    format!("{lost} and {tail} elements taken away from axis {axis} of {}", self.shape());
                return Err(Error::invalid(op, message));
            };
            cut = cut.slice_unchecked(axis, lost, left, 1);
        }
        let rest = padding.iter().map(|&(before, after)| (before.max(0) as usize, after.max(0) as usize));
        Ok((cut, rest.collect()))
    }

    #[track_caller]
    fn pad_by(&self, padding: &[(usize, usize)], value: Scalar) -> Result<Tensor> {
        if padding.len() != self.rank() {
            return Err(Error::invalid(
                "pad",
                format!(
                    "{} pairs are given for shape {}; give one for each axis",
                    padding.len(),
                    self.shape()
                ),
            ));
        }
        let before: SmallVec<[usize; 5]> = padding.iter().map(|p| p.0).collect();
        let interior = SmallVec::from_elem(0, self.rank());
        let shape = padded(self.shape(), padding);
        crate::tensor::creation::create::check("pad", &shape, self.dtype(), &self.device())?;
        Ok(self.pad_unchecked(before, interior, shape, value))
    }

    /// The general form of padding: element `i` of an axis goes to `before + i·(1 + interior)` of
    /// `shape`, and the rest is filled with `value`. The gradient of a strided slice.
    ///
    /// # Errors
    /// Elements that would be outside `shape`.
    #[doc(hidden)]
    #[track_caller]
    pub fn pad_between(
        &self,
        before: SmallVec<[usize; 5]>,
        interior: SmallVec<[usize; 5]>,
        shape: Shape,
        value: Scalar,
    ) -> Result<Tensor> {
        const OP: &str = "pad";
        let rank = self.rank();
        let shape = shape.checked(OP)?;
        let fits = [before.len(), interior.len(), shape.rank()] == [rank; 3]
            && (0..rank).all(|axis| {
                let gaps = self.dims()[axis].saturating_sub(1);
                let last = interior[axis].checked_add(1).and_then(|step| step.checked_mul(gaps));
                let end = last.and_then(|last| last.checked_add(before[axis])?.checked_add(1));
                self.dims()[axis] == 0 || end.is_some_and(|end| end <= shape[axis])
            });
        if !fits {
            return Err(Error::invalid(
                OP,
                format!("{} from {before:?} with {interior:?} between leaves {shape}", self.shape()),
            ));
        }
        Ok(self.pad_unchecked(before, interior, shape, value))
    }

    /// [`Tensor::pad_between`] after the checks.
    #[track_caller]
    pub(crate) fn pad_unchecked(
        &self,
        before: SmallVec<[usize; 5]>,
        interior: SmallVec<[usize; 5]>,
        shape: Shape,
        value: Scalar,
    ) -> Tensor {
        let op = Op::Pad(Box::new(Padding { before, interior, value: value.cast(self.dtype()) }));
        Tensor::build(op, shape, self.dtype(), &[self])
    }

    /// The lower triangle of a matrix or of the last two axes: elements above the `diagonal` set to 0.
    /// `torch.tril`.
    #[track_caller]
    pub fn tril(&self, diagonal: i32) -> Result<Tensor> {
        self.triangle("tril", diagonal, true)
    }

    /// The upper triangle: elements below the `diagonal` set to 0. `torch.triu`.
    #[track_caller]
    pub fn triu(&self, diagonal: i32) -> Result<Tensor> {
        self.triangle("triu", diagonal, false)
    }

    /// The indices of the lower triangle of a matrix, in row-major order: `[2, n]`, rows and columns,
    /// i64 (i32 on a device without i64). `torch.tril_indices`.
    ///
    /// # Errors
    /// Indices beyond the dtype, or out of memory.
    #[track_caller]
    pub fn tril_indices(rows: usize, columns: usize, diagonal: i32, device: &Device) -> Result<Tensor> {
        let end = |row| row + i64::from(diagonal) + 1;
        triangle_indices("tril_indices", rows, columns, |row| (0, end(row)), device)
    }

    /// The indices of the upper triangle of a matrix, in row-major order: `[2, n]`, rows and columns,
    /// i64 (i32 on a device without i64). `torch.triu_indices`.
    ///
    /// # Errors
    /// Indices beyond the dtype, or out of memory.
    #[track_caller]
    pub fn triu_indices(rows: usize, columns: usize, diagonal: i32, device: &Device) -> Result<Tensor> {
        let start = |row| row + i64::from(diagonal);
        triangle_indices("triu_indices", rows, columns, |row| (start(row), i64::MAX), device)
    }

    #[track_caller]
    fn triangle(&self, op: &'static str, diagonal: i32, lower: bool) -> Result<Tensor> {
        let [.., rows, columns] = *self.dims() else {
            return Err(Error::invalid(
                op,
                format!("shape {} is no matrix; two axes are needed", self.shape()),
            ));
        };
        let options = (DType::I32, &self.device());
        let row = Tensor::arange(0i64, rows as i64, 1i64, options)?.reshape([rows, 1])?;
        let column = Tensor::arange(0i64, columns as i64, 1i64, options)?;
        let distance = column.binary(BinaryOp::Sub, &row)?;
        let kept = if lower { distance.le_scalar(diagonal) } else { distance.ge_scalar(diagonal) };
        kept.where_cond(self, &Tensor::full((), 0.0, (self.dtype(), &self.device()))?)
    }
}

/// The indices of a part of a matrix: `kept` gives the range of columns of each row, which is clamped to
/// the matrix.
#[track_caller]
fn triangle_indices(
    op: &'static str,
    rows: usize,
    columns: usize,
    kept: impl Fn(i64) -> (i64, i64) + Sync,
    device: &Device,
) -> Result<Tensor> {
    let size = || Error::invalid(op, format!("a matrix of {rows} rows and {columns} columns"));
    if rows.max(columns) > i32::MAX as usize || rows.checked_mul(columns).is_none() {
        return Err(size());
    }
    let kept = |row: usize| {
        let (start, end) = kept(row as i64);
        let end = end.clamp(0, columns as i64) as usize;
        (start.max(0) as usize).min(end)..end
    };
    // The non-empty rows are consecutive. `begins` has the number of indices before each of them, and
    // the total.
    let top = (0..rows).find(|&row| !kept(row).is_empty()).unwrap_or(rows);
    let end = (top..rows).find(|&row| kept(row).is_empty()).unwrap_or(rows);
    let mut begins = Vec::new();
    begins.try_reserve_exact(end - top + 1).map_err(|_| size())?;
    let mut count = 0usize;
    begins.push(count);
    for row in top..end {
        count += kept(row).len();
        begins.push(count);
    }
    // The first half of the result is rows, the second columns.
    let write = |first: usize, mut some: &mut [usize]| {
        let mut is_column = first >= count;
        let mut place = if is_column { first - count } else { first };
        let mut row = begins.partition_point(|&begin| begin <= place) - 1;
        while !some.is_empty() {
            let kept = kept(top + row);
            let start = kept.start + place - begins[row];
            let (of_row, rest) = some.split_at_mut(some.len().min(kept.end - start));
            match is_column {
                true => of_row.iter_mut().zip(start..).for_each(|(to, column)| *to = column),
                false => of_row.fill(top + row),
            }
            place += of_row.len();
            some = rest;
            row += 1;
            if place == count {
                (is_column, place, row) = (true, 0, 0);
            }
        }
    };
    let greatest = rows.max(columns).saturating_sub(1);
    Tensor::from_indices(op, Shape::from([2, count]), device, greatest, write)
}

/// References to the tensors of a user's list.
pub(in crate::tensor) fn references<T: AsRef<Tensor>>(tensors: &[T]) -> SmallVec<[&Tensor; 8]> {
    tensors.iter().map(AsRef::as_ref).collect()
}
