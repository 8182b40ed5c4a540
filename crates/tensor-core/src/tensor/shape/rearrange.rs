//! Rearranging elements: roll, repeat, rotate, move axes, split. The result is a view if possible.

use smallvec::SmallVec;

use crate::tensor::{Tensor, creation::create::host_index};
use crate::{
    base::{
        axes::{Axes, Axis, Dims},
        error::{Error, Result},
        shape::Shape,
    },
    elements::dtype::DType,
};

impl Tensor {
    /// The elements shifted cyclically along `axes`: `out[(i + shift) mod n] = self[i]`. Negative shifts
    /// move toward the start. There is one shift for each axis; with `..` for the axes, one shift moves
    /// all elements in row-major order, as PyTorch does without `dims`. `torch.roll`.
    ///
    /// # Errors
    /// A number of shifts other than that of axes, or no such axis.
    ///
    /// ```
    /// # fn f(x: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let y = x.roll(1, 0)?; // [1, 2, 3] gives [3, 1, 2]
    /// let y = x.roll([1, -2], [0, 1])?;
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn roll(&self, shifts: impl Into<Dims>, axes: impl Into<Axes>) -> Result<Tensor> {
        self.roll_by(shifts.into(), axes.into())
    }

    #[track_caller]
    fn roll_by(&self, shifts: Dims, axes: Axes) -> Result<Tensor> {
        const OP: &str = "roll";
        let shifts = shifts.0;
        if axes.given().is_none() && shifts.len() == 1 {
            let flat = self.flatten_all().roll_one(shifts[0], 0)?;
            return Ok(flat.reshape_unchecked(self.shape().clone()));
        }
        // An axis may be given twice: its shifts add up, as in PyTorch.
        let list = match axes.given() {
            Some(list) => list.to_vec(),
            None => (0..self.rank() as isize).collect(),
        };
        if shifts.len() != list.len() {
            return Err(Error::invalid(
                OP,
                format!("{} shifts for {} axes: give one for each", shifts.len(), list.len()),
            ));
        }
        let mut out = self.clone();
        for (&shift, &axis) in shifts.iter().zip(&list) {
            out = out.roll_one(shift, self.shape().axis(axis, OP)?)?;
        }
        Ok(out)
    }

    #[track_caller]
    fn roll_one(&self, shift: isize, axis: usize) -> Result<Tensor> {
        let n = self.dims()[axis];
        if n == 0 {
            return Ok(self.clone());
        }
        let shift = shift.rem_euclid(n as isize) as usize;
        if shift == 0 {
            return Ok(self.clone());
        }
        let (tail, head) =
            (self.slice_unchecked(axis, n - shift, shift, 1), self.slice_unchecked(axis, 0, n - shift, 1));
        Tensor::concat(&[tail, head], axis)
    }

    /// The whole tensor repeated `counts[i]` times along axis `i`: `[a, b]` repeated `[2, 3]` times is
    /// `[2·a, 3·b]`. More counts than axes add leading axes. `torch.Tensor.repeat`.
    ///
    /// # Errors
    /// Fewer counts than axes ([`Tensor::tile`] accepts them), or a result that is too large.
    #[track_caller]
    pub fn repeat(&self, counts: impl Into<Shape>) -> Result<Tensor> {
        self.repeat_by("repeat", counts.into())
    }

    /// [`Tensor::repeat`] with any number of counts, which are for the last axes; the others are not
    /// repeated. `torch.tile`.
    ///
    /// # Errors
    /// A result that is too large.
    #[track_caller]
    pub fn tile(&self, counts: impl Into<Shape>) -> Result<Tensor> {
        let counts = counts.into();
        let missing = self.rank().saturating_sub(counts.rank());
        let counts = std::iter::repeat_n(1, missing).chain(counts.iter().copied()).collect();
        self.repeat_by("tile", counts)
    }

    #[track_caller]
    fn repeat_by(&self, op: &'static str, counts: Shape) -> Result<Tensor> {
        let Some(new) = counts.rank().checked_sub(self.rank()) else {
            return Err(Error::invalid(
                op,
                format!(
                    "{} counts for shape {}: give one for each axis, or use tile",
                    counts.rank(),
                    self.shape()
                ),
            ));
        };
        let sizes: SmallVec<[usize; 5]> =
            std::iter::repeat_n(1, new).chain(self.dims().iter().copied()).collect();
        let both = || counts.iter().zip(&sizes);
        let out: Shape = both().map(|(&count, &size)| count.saturating_mul(size)).collect();
        crate::tensor::creation::create::check(op, &out, self.dtype(), &self.device())?;
        // Each axis is preceded by an axis of copies, if there is more than one copy.
        let (mut alone, mut wide): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        for (&count, &size) in both() {
            if count != 1 {
                alone.push(1);
                wide.push(count);
            }
            alone.push(size);
            wide.push(size);
        }
        let alone = self.reshape_unchecked(Shape::from(alone));
        Ok(alone.expand_unchecked(Shape::from(wide).checked(op)?).reshape_unchecked(out))
    }

    /// Each element repeated `repeats` times along an axis: `[1, 2]` twice is `[1, 1, 2, 2]`.
    /// `torch.repeat_interleave` with a number; without an axis, PyTorch flattens first, like
    /// [`Tensor::flatten_all`].
    ///
    /// # Errors
    /// No such axis, or a result that is too large.
    #[track_caller]
    pub fn repeat_interleave(&self, repeats: usize, axis: impl Into<Axis>) -> Result<Tensor> {
        const OP: &str = "repeat_interleave";
        let axis = self.shape().axis(axis, OP)?;
        let sizes = self.dims().iter().enumerate();
        let out: Shape = sizes.map(|(a, &n)| if a == axis { n.saturating_mul(repeats) } else { n }).collect();
        crate::tensor::creation::create::check(OP, &out, self.dtype(), &self.device())?;
        let wide = self.unsqueeze(axis + 1)?;
        let mut shape = wide.dims().to_vec();
        shape[axis + 1] = repeats;
        Ok(wide.expand_unchecked(Shape::from(shape).checked(OP)?).reshape_unchecked(out))
    }

    /// Element `i` of an axis repeated `counts[i]` times, for integer counts `[n]`, or `[1]` for all:
    /// `[1, 2]` with `[2, 0]` is `[1, 1]`. `torch.repeat_interleave` with a tensor. The counts determine
    /// the shape, so they are read on the host.
    ///
    /// # Errors
    /// No such axis, or counts that are not non-negative integers, one for each element.
    #[track_caller]
    #[doc(alias = "repeat_interleave")]
    pub fn repeat_interleave_counts(&self, counts: &Tensor, axis: impl Into<Axis>) -> Result<Tensor> {
        const OP: &str = "repeat_interleave";
        let axis = self.shape().axis(axis, OP)?;
        let n = self.dims()[axis];
        if !counts.dtype().is_int() || counts.rank() != 1 || (counts.numel() != n && counts.numel() != 1) {
            return Err(Error::invalid(
                OP,
                format!(
                    "counts {} of {}: give integers [{n}], one for each element of axis {axis} of {}",
                    counts.shape(),
                    counts.dtype(),
                    self.shape()
                ),
            ));
        }
        let list = counts.detach().to_dtype(counts.device().int_dtype())?.to_f64_vec()?;
        let mut places = Vec::new();
        for i in 0..n {
            let count = list[if list.len() == 1 { 0 } else { i }];
            if count < 0.0 {
                return Err(Error::invalid(
                    OP,
                    format!("element {i} {count} times: give counts of at least 0"),
                ));
            }
            if count + places.len() as f64 > i32::MAX as f64 {
                return Err(Error::invalid(OP, format!("more than {} elements along axis {axis}", i32::MAX)));
            }
            places.extend(std::iter::repeat_n(i, count as usize));
        }
        let index = host_index(&places, Shape::from([places.len()]), &self.device())?;
        self.index_select(axis, &index)
    }

    /// The tensor split along an axis into `chunks` parts of size ⌈n / chunks⌉, of which the last may be
    /// smaller; there are fewer parts if the first ones cover the axis. Views. `torch.chunk`.
    ///
    /// # Errors
    /// No such axis, or `chunks` = 0.
    #[track_caller]
    pub fn chunk(&self, chunks: usize, axis: impl Into<Axis>) -> Result<Vec<Tensor>> {
        let at = self.shape().axis(axis, "chunk")?;
        if chunks == 0 {
            return Err(Error::invalid("chunk", "no chunks: give at least 1"));
        }
        match self.dims()[at].div_ceil(chunks) {
            0 => Ok(vec![self.clone(); chunks]),
            size => self.split(size, at),
        }
    }

    /// The tensor split along an axis into parts of these sizes. Views. `torch.split` with a list.
    ///
    /// # Errors
    /// No such axis, or sizes that do not add up to the axis.
    #[track_caller]
    #[doc(alias = "split")]
    pub fn split_with_sizes(&self, sizes: &[usize], axis: impl Into<Axis>) -> Result<Vec<Tensor>> {
        const OP: &str = "split_with_sizes";
        let at = self.shape().axis(axis, OP)?;
        let n = self.dims()[at];
        let total = sizes.iter().fold(0usize, |sum, &size| sum.saturating_add(size));
        if total != n {
            return Err(Error::invalid(
                OP,
                format!("sizes {sizes:?} are {total} together, and axis {at} of {} has {n}", self.shape()),
            ));
        }
        let mut start = 0;
        let mut parts = Vec::with_capacity(sizes.len());
        for &size in sizes {
            parts.push(self.narrow(at, start, size)?);
            start += size;
        }
        Ok(parts)
    }

    /// The tensor split along an axis into exactly `sections` parts, whose sizes differ by at most 1,
    /// the larger ones first. Views. `torch.tensor_split` with a number.
    ///
    /// # Errors
    /// No such axis, or `sections` = 0.
    #[track_caller]
    #[doc(alias("array_split", "hsplit", "vsplit", "dsplit"))]
    pub fn tensor_split(&self, sections: usize, axis: impl Into<Axis>) -> Result<Vec<Tensor>> {
        const OP: &str = "tensor_split";
        let at = self.shape().axis(axis, OP)?;
        if sections == 0 {
            return Err(Error::invalid(OP, "no sections: give at least 1"));
        }
        let (size, more) = (self.dims()[at] / sections, self.dims()[at] % sections);
        let sizes: Vec<usize> = (0..sections).map(|i| size + usize::from(i < more)).collect();
        self.split_with_sizes(&sizes, at)
    }

    /// The tensor split along an axis before each of these positions: `[2, 3]` gives `..2`, `2..3` and
    /// `3..`, as slices in Python (negative positions count from the end, and all are clamped to the
    /// axis). Views. `torch.tensor_split` with a list.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    #[doc(alias("tensor_split", "array_split"))]
    pub fn tensor_split_at(&self, places: &[isize], axis: impl Into<Axis>) -> Result<Vec<Tensor>> {
        let at = self.shape().axis(axis, "tensor_split")?;
        let mut parts = Vec::with_capacity(places.len() + 1);
        let mut start = 0;
        for &place in places {
            parts.push(self.slice(at, start..place)?);
            start = place;
        }
        parts.push(self.slice(at, start..)?);
        Ok(parts)
    }

    /// The result of [`Tensor::select`] for each position of an axis, which is removed. Views.
    /// `torch.unbind`.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    pub fn unbind(&self, axis: impl Into<Axis>) -> Result<Vec<Tensor>> {
        let at = self.shape().axis(axis, "unbind")?;
        let mut parts = Vec::with_capacity(self.dims()[at]);
        for i in 0..self.dims()[at] {
            parts.push(self.select(at, i)?);
        }
        Ok(parts)
    }

    /// The slices along the first axis, in order, as in Python's `for row in x`: views without that axis. An
    /// iterator cannot fail, so a tensor without axes is an error here; `for row in &x` panics there instead.
    ///
    /// # Errors
    /// No axis.
    ///
    /// ```
    /// # use tensor_core::{Device, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]], device)?;
    /// let mut sums = Vec::new();
    /// for row in x.iter()? {
    ///     sums.push(row.sum().item::<f32>()?);
    /// }
    /// assert_eq!(sums, [3.0, 7.0]);
    /// assert_eq!((&x).into_iter().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias("__iter__", "unbind"))]
    pub fn iter(&self) -> Result<std::vec::IntoIter<Tensor>> {
        if self.rank() == 0 {
            let message = "a tensor without axes has no rows; read its element with .item()";
            return Err(Error::invalid("iter", message));
        }
        Ok(self.unbind(0)?.into_iter())
    }

    /// The tensor with axis `source[i]` moved to position `destination[i]`; the others keep their order.
    /// A view. `torch.movedim`.
    ///
    /// # Errors
    /// Lists of different lengths, no such axis, or an axis given twice.
    #[track_caller]
    #[doc(alias = "moveaxis")]
    pub fn movedim(&self, source: impl Into<Axes>, destination: impl Into<Axes>) -> Result<Tensor> {
        self.movedim_by(source.into(), destination.into())
    }

    #[track_caller]
    fn movedim_by(&self, source: Axes, destination: Axes) -> Result<Tensor> {
        const OP: &str = "movedim";
        let source = self.shape().axes_in_order(&source, OP)?;
        let destination = self.shape().axes_in_order(&destination, OP)?;
        if source.len() != destination.len() {
            return Err(Error::invalid(
                OP,
                format!("{} axes to {} places: give a place for each", source.len(), destination.len()),
            ));
        }
        let mut others = (0..self.rank()).filter(|axis| !source.contains(axis));
        let order = (0..self.rank()).map(|place| match destination.iter().position(|&d| d == place) {
            Some(k) => source[k],
            None => others.next().unwrap_or(place),
        });
        Ok(self.permute_unchecked(order.collect()))
    }

    /// The tensor rotated `k` times by 90° in the plane of two axes, from the first toward the second;
    /// in the opposite direction for negative `k`. A view. `torch.rot90`.
    ///
    /// # Errors
    /// A number of axes other than two, or the same axis twice.
    #[track_caller]
    pub fn rot90(&self, k: i32, axes: impl Into<Axes>) -> Result<Tensor> {
        self.rot90_by(k, axes.into())
    }

    #[track_caller]
    fn rot90_by(&self, k: i32, axes: Axes) -> Result<Tensor> {
        const OP: &str = "rot90";
        let resolved = self.shape().axes_in_order(&axes, OP)?;
        let &[a, b] = resolved.as_slice() else {
            return Err(Error::invalid(
                OP,
                format!("{} axes of {}: give the two of a plane", resolved.len(), self.shape()),
            ));
        };
        match k.rem_euclid(4) {
            0 => Ok(self.clone()),
            1 => self.flip(b)?.transpose(a, b),
            2 => self.flip([a, b]),
            _ => self.flip(a)?.transpose(a, b),
        }
    }

    /// `out[i, j, …] = self.flatten_all()[offset + i·strides[0] + j·strides[1] + …]`. The strides refer
    /// to the elements in row-major order, not to memory: the result is a copy, and the gradients of
    /// repeated elements add up. `torch.as_strided`. [`Tensor::unfold`] makes windows without a copy.
    ///
    /// # Errors
    /// A number of strides other than that of sizes, or elements beyond the last.
    #[track_caller]
    pub fn as_strided(&self, sizes: impl Into<Shape>, strides: &[usize], offset: usize) -> Result<Tensor> {
        self.as_strided_by(sizes.into(), strides, offset)
    }

    #[track_caller]
    fn as_strided_by(&self, sizes: Shape, strides: &[usize], offset: usize) -> Result<Tensor> {
        const OP: &str = "as_strided";
        if strides.len() != sizes.rank() {
            let message = format!("{} strides for {} sizes: give one for each", strides.len(), sizes.rank());
            return Err(Error::invalid(OP, message));
        }
        crate::tensor::creation::create::check(OP, &sizes, self.dtype(), &self.device())?;
        if sizes.numel() == 0 {
            return Ok(self.flatten_all().slice_unchecked(0, 0, 0, 1).reshape_unchecked(sizes));
        }
        let steps = sizes.iter().zip(strides).map(|(&size, &stride)| (size - 1).saturating_mul(stride));
        let last = steps.fold(offset, usize::saturating_add);
        if last >= self.numel() {
            let message = format!("element {last} of {}: shape {} has no more", self.numel(), self.shape());
            return Err(Error::invalid(OP, message));
        }
        let dtype = self.device().int_dtype();
        if dtype == DType::I32 && last > i32::MAX as usize {
            return Err(Error::invalid(
                OP,
                format!("element {last} passes the i32 indices that this device has"),
            ));
        }
        let mut index = Tensor::full((), offset as i64, (dtype, &self.device()))?;
        for (axis, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
            let line = Tensor::arange(0i64, size as i64, 1i64, (dtype, &self.device()))?;
            let line =
                line.reshape_unchecked((0..sizes.rank()).map(|a| if a == axis { size } else { 1 }).collect());
            index = index.add(&line.mul_scalar(stride as i64))?;
        }
        let found =
            self.flatten_all().index_select(0, &index.expand_unchecked(sizes.clone()).flatten_all())?;
        Ok(found.reshape_unchecked(sizes))
    }

    /// The powers of numbers `[…, n]` along a new last axis of size `columns`: x⁰, x¹, … if
    /// `increasing`, else from the highest to x⁰. `torch.vander` (whose defaults are n columns and
    /// decreasing powers), also for batches. A 0-d tensor is a vector of one number. Integers and bools give
    /// i64 (i32 on a device without i64).
    ///
    /// # Errors
    /// A result that is too large.
    #[track_caller]
    pub fn vander(&self, columns: usize, increasing: bool) -> Result<Tensor> {
        const OP: &str = "vander";
        if self.rank() == 0 {
            return self.as_line().vander(columns, increasing);
        }
        let dtype = if self.dtype().is_float() { self.dtype() } else { self.device().int_dtype() };
        let x = self.cast_unchecked(dtype).unsqueeze(-1)?;
        let of = |columns: usize| x.dims()[..self.rank()].iter().copied().chain([columns]).collect::<Shape>();
        crate::tensor::creation::create::check(OP, &of(columns), dtype, &self.device())?;
        if columns == 0 {
            return Ok(x.slice_unchecked(self.rank(), 0, 0, 1));
        }
        let ones = Tensor::ones(of(1), (dtype, &self.device()))?;
        let powers = x.expand_unchecked(of(columns - 1)).cumprod(-1)?;
        let powers = Tensor::concat(&[ones, powers], -1)?;
        if increasing { Ok(powers) } else { powers.flip(-1) }
    }
}

/// The slices along the first axis: [`Tensor::iter`].
///
/// # Panics
/// At a tensor without axes, as indexing a slice does.
impl IntoIterator for &Tensor {
    type Item = Tensor;
    type IntoIter = std::vec::IntoIter<Tensor>;

    #[track_caller]
    #[allow(clippy::panic)] // like an operator's misfit; `iter` is the checked twin
    fn into_iter(self) -> Self::IntoIter {
        match self.iter() {
            Ok(rows) => rows,
            Err(error) => panic!("{error}"),
        }
    }
}
