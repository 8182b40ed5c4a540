//! Diagonals: views of them, matrices with a given diagonal, and block-diagonal matrices.

use smallvec::SmallVec;

use crate::tensor::{Tensor, shape::combine::first_of, shape::movement::references, shape_misfit};
use crate::{
    base::{
        axes::Axis,
        error::{Error, Result},
        shape::Shape,
    },
    elements::{dtype::DType, scalar::Scalar},
    kernels::operators::ScatterOp,
};

/// The positions of a diagonal in a matrix in row-major order: its first element, the stride, and the
/// number of elements.
#[derive(Clone, Copy)]
struct Line {
    start: usize,
    step: usize,
    len: usize,
}

impl Line {
    /// The diagonal `offset` columns to the right of the main one (below it if negative).
    fn new(rows: usize, columns: usize, offset: isize) -> Line {
        let (down, right) = (offset.min(0).unsigned_abs(), offset.max(0).unsigned_abs());
        let len = rows.saturating_sub(down).min(columns.saturating_sub(right));
        let start = if len == 0 { 0 } else { down * columns + right };
        Line { start, step: columns + 1, len }
    }
}

/// Two different axes as numbers.
#[track_caller]
fn plane(op: &'static str, shape: &Shape, axis1: Axis, axis2: Axis) -> Result<(usize, usize)> {
    let (a, b) = (shape.axis(axis1, op)?, shape.axis(axis2, op)?);
    if a == b {
        return Err(Error::invalid(op, format!("axis {a} is given twice; a diagonal is of two axes")));
    }
    Ok((a, b))
}

impl Tensor {
    /// This tensor with two axes moved last and merged, so that a diagonal of them is a strided slice.
    #[track_caller]
    fn matrices_as_lines(&self, a: usize, b: usize) -> Tensor {
        let others = (0..self.rank()).filter(|&axis| axis != a && axis != b);
        let order: SmallVec<[usize; 5]> = others.clone().chain([a, b]).collect();
        let flat = others.map(|axis| self.dims()[axis]).chain([self.dims()[a] * self.dims()[b]]).collect();
        self.permute_unchecked(order).reshape_unchecked(flat)
    }

    /// The elements of a diagonal of two axes, which are removed, along a new last axis: `out[…, i] =
    /// self[…, i, …, i + offset, …]`; a positive offset is above the main diagonal. A view if the two
    /// axes can be merged. `torch.diagonal`; its defaults are offset 0 and axes 0 and 1.
    ///
    /// # Errors
    /// No such axis, or the same axis twice.
    #[track_caller]
    pub fn diagonal(&self, offset: isize, axis1: impl Into<Axis>, axis2: impl Into<Axis>) -> Result<Tensor> {
        self.diagonal_by("diagonal", offset, axis1.into(), axis2.into())
    }

    #[track_caller]
    fn diagonal_by(&self, op: &'static str, offset: isize, axis1: Axis, axis2: Axis) -> Result<Tensor> {
        let (a, b) = plane(op, self.shape(), axis1, axis2)?;
        let Line { start, step, len } = Line::new(self.dims()[a], self.dims()[b], offset);
        let lines = self.matrices_as_lines(a, b);
        Ok(lines.slice_unchecked(self.rank() - 2, start, len, step as isize))
    }

    /// Matrices with the last axis along a diagonal, and 0 elsewhere: `[…, n]` gives matrices of n +
    /// |offset| rows and columns in the axes `axis1` and `axis2` of the result. `torch.diag_embed`; its
    /// defaults are offset 0 and axes −2 and −1.
    ///
    /// # Errors
    /// A 0-d tensor, no such axis of the result, the same axis twice, or a result that is too large.
    #[track_caller]
    pub fn diag_embed(
        &self,
        offset: isize,
        axis1: impl Into<Axis>,
        axis2: impl Into<Axis>,
    ) -> Result<Tensor> {
        self.diag_embed_by("diag_embed", offset, axis1.into(), axis2.into())
    }

    #[track_caller]
    fn diag_embed_by(&self, op: &'static str, offset: isize, axis1: Axis, axis2: Axis) -> Result<Tensor> {
        let Some((&n, lead)) = self.dims().split_last() else {
            return Err(Error::invalid(op, "a scalar is no diagonal; use .unsqueeze(0)?"));
        };
        let size = n.saturating_add(offset.unsigned_abs());
        let square: Shape = lead.iter().copied().chain([size, size]).collect();
        crate::tensor::creation::create::check(op, &square, self.dtype(), &self.device())?;
        let (a, b) = plane(op, &square, axis1, axis2)?;
        let matrices = self.along_line(Line::new(size, size, offset), size * size, Scalar::Int(0))?;
        let matrices = matrices.reshape_unchecked(square);
        let last = lead.len();
        let mut others = 0..last;
        let order = (0..last + 2).map(|place| match place {
            place if place == a => last,
            place if place == b => last + 1,
            _ => others.next().unwrap_or(place),
        });
        Ok(matrices.permute_unchecked(order.collect()))
    }

    /// The last axis scattered along a line within `size` elements, with `fill` elsewhere.
    #[track_caller]
    fn along_line(&self, line: Line, size: usize, fill: Scalar) -> Result<Tensor> {
        let last = self.rank() - 1;
        let shape: Shape = self.dims()[..last].iter().copied().chain([size]).collect();
        let (mut before, mut interior) =
            (SmallVec::from_elem(0, self.rank()), SmallVec::from_elem(0, self.rank()));
        before[last] = line.start;
        interior[last] = if line.len > 1 { line.step - 1 } else { 0 };
        self.pad_between(before, interior, shape, fill)
    }

    /// For a vector `[n]`, the matrix with that diagonal; for a matrix, its diagonal, as a view.
    /// `torch.diag`.
    ///
    /// # Errors
    /// A tensor that has neither one nor two axes.
    #[track_caller]
    pub fn diag(&self, offset: isize) -> Result<Tensor> {
        const OP: &str = "diag";
        match self.rank() {
            1 => self.diag_embed_by(OP, offset, Axis(0), Axis(1)),
            2 => self.diagonal_by(OP, offset, Axis(0), Axis(1)),
            _ => Err(Error::invalid(
                OP,
                format!(
                    "shape {} is neither a vector nor a matrix; use diagonal or diag_embed",
                    self.shape()
                ),
            )),
        }
    }

    /// The matrix with all elements of this tensor along a diagonal. `torch.diagflat`.
    ///
    /// # Errors
    /// A result that is too large.
    #[track_caller]
    pub fn diagflat(&self, offset: isize) -> Result<Tensor> {
        self.flatten_all().diag_embed_by("diagflat", offset, Axis(0), Axis(1))
    }

    /// The sum of a matrix's main diagonal, 0-d, in the dtype of [`Tensor::sum`]. `torch.trace`.
    ///
    /// # Errors
    /// A tensor that is not a matrix.
    #[track_caller]
    pub fn trace(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            let hint = "use .diagonal(0, -2, -1)?.sum_axis(-1, false)? for batches";
            return Err(Error::invalid("trace", format!("shape {} is no matrix; {hint}", self.shape())));
        }
        Ok(self.diagonal(0, 0, 1)?.sum())
    }

    /// This tensor with a diagonal of two axes replaced by `src`, which has the shape of
    /// [`Tensor::diagonal`]. Gradients flow to both. `torch.diagonal_scatter`.
    ///
    /// # Errors
    /// No such axis, the same axis twice, or a `src` of another shape, dtype or device.
    #[track_caller]
    pub fn diagonal_scatter(
        &self,
        src: &Tensor,
        offset: isize,
        axis1: impl Into<Axis>,
        axis2: impl Into<Axis>,
    ) -> Result<Tensor> {
        const OP: &str = "diagonal_scatter";
        Tensor::same_device(OP, &[self, src])?;
        let (a, b) = plane(OP, self.shape(), axis1.into(), axis2.into())?;
        let line = Line::new(self.dims()[a], self.dims()[b], offset);
        let others = || (0..self.rank()).filter(|&axis| axis != a && axis != b);
        let wanted: Shape = others().map(|axis| self.dims()[axis]).chain([line.len]).collect();
        crate::tensor::indexing::checks::same_part(OP, src, &wanted, self.dtype())?;
        if src.numel() == 0 {
            return Ok(self.clone());
        }
        // The flat row-major positions of the diagonal's elements in this tensor, whose axes keep their
        // order.
        let device = self.device();
        let dtype = if self.numel() > i32::MAX as usize { device.int_dtype() } else { DType::I32 };
        let strides = self.shape().contiguous_strides();
        let along = |count: usize, stride: isize| {
            let places = Tensor::arange(0i64, count as i64, 1i64, (dtype, &device))?;
            Ok::<Tensor, Error>(places.mul_scalar(stride as i64))
        };
        let first = strides[a] * offset.min(0).abs() + strides[b] * offset.max(0);
        let mut places = along(line.len, strides[a] + strides[b])?.add_scalar(first as i64);
        for axis in others().rev() {
            let shape: Shape = [self.dims()[axis]].into_iter().chain(vec![1; places.rank()]).collect();
            places = along(self.dims()[axis], strides[axis])?.reshape_unchecked(shape).add(&places)?;
        }
        let flat = self.flatten_all();
        let out = flat.scatter_with(ScatterOp::Replace, 0, &places.flatten_all(), &src.flatten_all())?;
        Ok(out.reshape_unchecked(self.shape().clone()))
    }

    /// The matrix with these matrices along its diagonal, and 0 elsewhere, in their promoted dtype.
    /// Vectors count as rows, scalars as matrices of one element. `torch.block_diag`.
    ///
    /// # Errors
    /// An empty list, more than two axes, or several devices.
    #[track_caller]
    pub fn block_diag<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        Tensor::block_diag_by(&references(tensors))
    }

    #[track_caller]
    fn block_diag_by(tensors: &[&Tensor]) -> Result<Tensor> {
        const OP: &str = "block_diag";
        let first = first_of(OP, tensors)?;
        let mut dtype = first.dtype();
        let mut blocks = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            if tensor.rank() > 2 {
                let hint = "blocks are matrices, vectors or scalars";
                return Err(shape_misfit(OP, first.shape(), tensor.shape(), hint));
            }
            dtype = dtype.promote(tensor.dtype());
            blocks.push(tensor.with_lead(2));
        }
        let columns: usize = blocks.iter().map(|block| block.dims()[1]).sum();
        let zero = Tensor::zeros(Shape::scalar(), (dtype, &first.device()))?;
        let mut left = 0;
        let mut rows = Vec::with_capacity(blocks.len());
        for block in &blocks {
            let [height, width] = [block.dims()[0], block.dims()[1]];
            let zeros = |width: usize| zero.expand_unchecked([height, width].into());
            // One kernel copies the parts of all nested concatenations directly.
            rows.push(Tensor::concat(
                &[zeros(left), block.to_dtype(dtype)?, zeros(columns - left - width)],
                1,
            )?);
            left += width;
        }
        Tensor::concat(&rows, 0)
    }
}
