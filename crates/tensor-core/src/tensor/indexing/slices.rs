//! Gather, scatter and their relatives: reading and adding at indices.

use crate::tensor::{
    Tensor,
    indexing::checks::{are_lines, check_index, index_dtype, same_part, source},
};
use crate::{
    base::{
        axes::Axis,
        error::{Error, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    graph::{
        op::Op,
        trace::{Argument, traced},
    },
    kernels::operators::{Refusal, ScatterOp},
    tensor::autocast,
};

impl Tensor {
    /// `out[i][j][k] = self[i][index[i][j][k]][k]` for axis 1 of 3; the result has the index's shape.
    /// `torch.gather`.
    ///
    /// A different rank (a scalar counts as a vector of one element), an index larger than this tensor along
    /// another axis, an index dtype that is not an integer, or two devices. An index outside the axis, also a
    /// negative one, is [`ErrorKind::IndexOutOfRange`](crate::ErrorKind::IndexOutOfRange) when the result is
    /// computed.
    #[track_caller]
    pub fn gather(&self, axis: impl Into<Axis>, index: &Tensor) -> Result<Tensor> {
        self.gather_by(None, axis.into(), index)
    }

    /// [`Tensor::gather`] as a part of another operation, which an error about an index names.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[doc(hidden)] // for `nn`
    #[track_caller]
    pub fn gather_for(&self, of: &'static Refusal, axis: impl Into<Axis>, index: &Tensor) -> Result<Tensor> {
        self.gather_by(Some(of), axis.into(), index)
    }

    #[track_caller]
    fn gather_by(&self, refusal: Option<&'static Refusal>, axis: Axis, index: &Tensor) -> Result<Tensor> {
        let name = refusal.map_or("gather", |refusal| refusal.op);
        if are_lines(self, index) {
            let line = self.as_line().gather_by(refusal, axis, &index.as_line())?;
            return Ok(line.reshape_unchecked(index.shape().clone()));
        }
        let axis = check_index(self, name, axis, index, self.shape())?;
        let index = index_dtype(name, index)?;
        Ok(Tensor::build(Op::Gather { axis, refusal }, index.shape().clone(), self.dtype(), &[self, &index]))
    }

    /// A copy of this tensor with `self[i][index[i][j][k]][k] += src[i][j][k]` for axis 1 of 3.
    /// `torch.scatter_add`.
    ///
    /// Repeated indices add up in an order that depends only on the index (on the CPU, that of the
    /// positions), so that results are reproducible bit for bit. For bools, addition is logical or. The
    /// source may be larger than the index; only its leading elements along each axis are used.
    ///
    /// # Errors
    /// Incompatible shapes, dtypes or devices. An index outside the axis is an error when the result is
    /// computed.
    #[track_caller]
    #[doc(alias = "scatter_add_")]
    pub fn scatter_add(&self, axis: impl Into<Axis>, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scatter_with(ScatterOp::Add, axis, index, src)
    }

    /// A copy of this tensor in which the source elements are combined with the elements at the indices
    /// by a [`ScatterOp`]. [`ScatterOp::Max`] and [`ScatterOp::Min`] have no gradient here;
    /// [`Tensor::scatter_reduce`] has one.
    ///
    /// # Errors
    /// As [`Tensor::scatter_add`].
    #[doc(hidden)]
    #[track_caller]
    pub fn scatter_with(
        &self,
        op: ScatterOp,
        axis: impl Into<Axis>,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<Tensor> {
        self.scatter_with_by(op, axis.into(), index, src)
    }

    #[track_caller]
    fn scatter_with_by(&self, op: ScatterOp, axis: Axis, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        let name = op.name();
        let cast = autocast::cast(name, [self, src], [])?;
        let ([this, src], []) = cast.tensors();
        if are_lines(self, index) {
            let line = this.as_line().scatter_with_by(op, axis, &index.as_line(), &src.as_line())?;
            return Ok(line.reshape_unchecked(self.shape().clone()));
        }
        let axis = check_index(self, name, axis, index, self.shape())?;
        source(name, this, index, src)?;
        let index = index_dtype(name, index)?;
        let src = &src.corner(index.shape());
        if this.dtype() == DType::Bool {
            // Computed on integers, whose scatter every device has. The maximum is the logical or.
            let op = if op == ScatterOp::Add { ScatterOp::Max } else { op };
            let (this, src) = (this.cast_unchecked(DType::I32), src.cast_unchecked(DType::I32));
            return Ok(this.scatter_with_by(op, Axis(axis as isize), &index, &src)?.ne_scalar(0));
        }
        Ok(Tensor::build(Op::Scatter { op, axis }, this.shape().clone(), this.dtype(), &[this, &index, src]))
    }

    /// [`Tensor::gather`] with the tensor and the index broadcast along the other axes; negative numbers
    /// count from the end of the axis. `torch.take_along_dim`, whose indices `argsort` and
    /// `argmax_axis(…, true)` give.
    ///
    /// # Errors
    /// A different rank, sizes that do not broadcast, an index that is not of integers, two devices. An
    /// index outside the axis is an error when the result is computed.
    #[track_caller]
    #[doc(alias = "take_along_axis")]
    pub fn take_along_dim(&self, index: &Tensor, axis: impl Into<Axis>) -> Result<Tensor> {
        const OP: &str = "take_along_dim";
        let axis = self.shape().axis(axis, OP)?;
        if index.rank() != self.rank() {
            let hint = "the index has as many axes as the tensor";
            return Err(crate::tensor::shape_misfit(OP, self.shape(), index.shape(), hint));
        }
        let with = |t: &Tensor, n: usize| -> Shape {
            t.dims().iter().enumerate().map(|(a, &d)| if a == axis { n } else { d }).collect()
        };
        let both = with(self, 1).broadcast(&with(index, 1), OP)?;
        let spread = |t: &Tensor| {
            let sizes = both.iter().enumerate().map(|(a, &d)| if a == axis { t.dims()[axis] } else { d });
            t.expand_unchecked(sizes.collect())
        };
        let index = index_dtype(OP, index)?.counted_from_start(self.dims()[axis])?;
        spread(self).gather(axis, &spread(&index))
    }

    /// The elements of this tensor, flattened in row-major order, at an integer index of any shape;
    /// negative numbers count from the end. The result has the index's shape. `torch.take`.
    ///
    /// # Errors
    /// An index that is not of integers, or two devices. An index outside the tensor is an error when
    /// the result is computed.
    #[track_caller]
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        const OP: &str = "take";
        let index = index_dtype(OP, index)?;
        self.flatten_all().at(OP, vec![crate::tensor::Index::Tensor(index)])
    }

    /// The slices along an axis that a 1-D index (or a 0-d one, of one number) selects, in its order.
    /// `torch.index_select`.
    ///
    /// # Errors
    /// An index with more axes or not of an integer dtype; for a scalar, an index other than a single
    /// number. An index outside the axis is an error when the result is computed.
    #[track_caller]
    #[doc(alias = "embedding")]
    pub fn index_select(&self, axis: impl Into<Axis>, index: &Tensor) -> Result<Tensor> {
        self.index_select_by(None, axis.into(), index)
    }

    /// [`Tensor::index_select`] as a part of another operation, which an error about an index names.
    ///
    /// # Errors
    /// As [`Tensor::index_select`].
    #[doc(hidden)] // for `nn`
    #[track_caller]
    pub fn index_select_for(
        &self,
        of: &'static Refusal,
        axis: impl Into<Axis>,
        index: &Tensor,
    ) -> Result<Tensor> {
        self.index_select_by(Some(of), axis.into(), index)
    }

    #[track_caller]
    fn index_select_by(
        &self,
        refusal: Option<&'static Refusal>,
        axis: Axis,
        index: &Tensor,
    ) -> Result<Tensor> {
        if self.rank() == 0 {
            let line = self.as_line().index_select_by(refusal, axis, index)?;
            return if line.numel() == 1 {
                Ok(line.as_scalar())
            } else {
                Err(one_of_scalar("index_select", index))
            };
        }
        let (spread, _) = self.spread_index("index_select", axis, index)?;
        let out = self.gather_by(refusal, axis, &spread)?;
        let at = || self.shape().axis(axis, "index_select").map_or(0, |axis| axis as i64);
        Ok(traced("index_select", [Some(self), Some(index)], out, || vec![("axis", Argument::Int(at()))]))
    }

    /// A copy of this tensor with the slices of `src` added at the positions that a 1-D index selects
    /// along an axis. `torch.index_add`.
    #[track_caller]
    #[doc(alias = "index_add_")]
    pub fn index_add(&self, axis: impl Into<Axis>, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.index_add_by(axis.into(), index, src)
    }

    #[track_caller]
    fn index_add_by(&self, axis: Axis, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 {
            same_part("index_add", src, self.shape(), self.dtype())?;
            return Ok(self.as_line().index_add_by(axis, index, &src.as_line())?.as_scalar());
        }
        let (index, _) = self.spread_index("index_add", axis, index)?;
        self.scatter_add(axis, &index, src)
    }

    /// For labels `[…]` of an integer dtype, 1 at each label's position along a new last axis and 0
    /// elsewhere: `[…, num_classes]`, i64 (i32 on a device without i64). With `None`, the greatest label
    /// determines the number of classes and is read on the host. `torch.nn.functional.one_hot`.
    ///
    /// # Errors
    /// Labels that are not integers, or no classes. A label outside the classes, also a negative one, is
    /// [`ErrorKind::IndexOutOfRange`](crate::ErrorKind::IndexOutOfRange) when the result is computed.
    ///
    /// ```
    /// # fn f(labels: &tensor_core::Tensor) -> tensor_core::Result<()> {
    /// let rows = labels.one_hot(3)?; // [2, 0] gives [[0, 0, 1], [1, 0, 0]]
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn one_hot(&self, num_classes: impl Into<Option<usize>>) -> Result<Tensor> {
        const OP: &str = "one_hot";
        let index = index_dtype(OP, self)?;
        let classes = match num_classes.into() {
            Some(classes) => classes,
            None if self.numel() == 0 => {
                return Err(Error::invalid(OP, "there are no labels to count classes by: give their number"));
            }
            None => usize::try_from(index.max()?.item::<i64>()?).map_or(0, |greatest| greatest + 1),
        };
        if classes == 0 && self.numel() > 0 {
            return Err(Error::invalid(
                OP,
                "labels of no classes: give the number of classes, and labels of at least 0",
            ));
        }
        let shape: Shape = self.dims().iter().copied().chain([classes]).collect();
        let zeros = Tensor::zeros(shape, (DType::I32, &self.device()))?;
        let index = index.unsqueeze(-1)?;
        Ok(zeros.scatter_add(-1, &index, &index.one_for_each()?)?.as_index())
    }

    /// A 1-D index broadcast along all other axes: a view.
    #[track_caller]
    pub(in crate::tensor) fn spread_index(
        &self,
        op: &'static str,
        axis: Axis,
        index: &Tensor,
    ) -> Result<(Tensor, usize)> {
        let axis = self.shape().axis(axis, op)?;
        let index = &index.as_line();
        if index.rank() != 1 {
            return Err(Error::invalid(
                op,
                format!("the index must have one axis, not shape {}", index.shape()),
            ));
        }
        let line: Shape = (0..self.rank()).map(|i| if i == axis { index.numel() } else { 1 }).collect();
        let full: Shape =
            self.dims().iter().enumerate().map(|(i, &d)| if i == axis { index.numel() } else { d }).collect();
        Ok((index.reshape_unchecked(line).expand_unchecked(full.checked(op)?), axis))
    }
}

/// The error of an index into a scalar that is not a single number.
#[track_caller]
fn one_of_scalar(op: &'static str, index: &Tensor) -> Error {
    Error::invalid(op, format!("an index of shape {} into a scalar: give one number", index.shape()))
}
