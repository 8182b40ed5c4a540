//! Checks of indices, sources and masks.

use crate::{
    base::{
        axes::Axis,
        error::{Error, ErrorKind, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    tensor::{Tensor, dtype_misfit, shape_misfit},
};

/// Whether the tensor or its index is 0-d and both have at most one axis: PyTorch then treats them as
/// vectors.
pub(in crate::tensor) fn are_lines(tensor: &Tensor, index: &Tensor) -> bool {
    let (a, b) = (tensor.rank(), index.rank());
    a.min(b) == 0 && a.max(b) <= 1
}

/// Checks that a source has the tensor's dtype and is no smaller than the index.
#[track_caller]
pub(in crate::tensor) fn source(
    op: &'static str,
    tensor: &Tensor,
    index: &Tensor,
    src: &Tensor,
) -> Result<()> {
    Tensor::same_device(op, &[tensor, src])?;
    if src.rank() != index.rank() || src.dims().iter().zip(index.dims()).any(|(s, i)| s < i) {
        let hint = "the source has as many axes as the index, and is no smaller along each";
        return Err(shape_misfit(op, index.shape(), src.shape(), hint));
    }
    if src.dtype() != tensor.dtype() {
        let hint = format!("cast the source with .to_dtype(DType::{:?})?", tensor.dtype());
        return Err(dtype_misfit(op, tensor.dtype(), src.dtype(), hint));
    }
    Ok(())
}

/// The axis number, after checking that the index has the rank of `limit` and no larger sizes along
/// other axes.
#[track_caller]
pub(in crate::tensor) fn check_index(
    tensor: &Tensor,
    op: &'static str,
    axis: Axis,
    index: &Tensor,
    limit: &Shape,
) -> Result<usize> {
    let axis = tensor.shape().axis(axis, op)?;
    Tensor::same_device(op, &[tensor, index])?;
    let fits = index.rank() == limit.rank()
        && index.dims().iter().zip(limit.iter()).enumerate().all(|(i, (a, b))| i == axis || a <= b);
    if fits {
        return Ok(axis);
    }
    Err(Error::new(ErrorKind::ShapeMismatch {
        op,
        lhs: limit.clone(),
        rhs: index.shape().clone(),
        hint: format!("the index needs as many axes, and on those other than {axis} no larger sizes"),
    }))
}

/// Fails unless `src` can replace a part of this shape and dtype.
#[track_caller]
pub(in crate::tensor) fn same_part(op: &'static str, src: &Tensor, part: &Shape, dtype: DType) -> Result<()> {
    if src.shape() != part {
        return Err(shape_misfit(
            op,
            part,
            src.shape(),
            "the source must have the shape of the part it replaces",
        ));
    }
    if src.dtype() != dtype {
        let hint = format!("cast the source with .to_dtype(DType::{dtype:?})?");
        return Err(dtype_misfit(op, dtype, src.dtype(), hint));
    }
    Ok(())
}

#[track_caller]
pub(in crate::tensor) fn index_dtype(op: &'static str, index: &Tensor) -> Result<Tensor> {
    if index.dtype().is_int() {
        return Ok(index.clone());
    }
    Err(Error::new(ErrorKind::DTypeMismatch {
        op,
        lhs: index.dtype(),
        rhs: DType::I32,
        hint: "an index must be of an integer dtype: cast it with .to_dtype(DType::I32)?".into(),
    }))
}

#[track_caller]
pub(in crate::tensor) fn require_bool(op: &'static str, mask: &Tensor) -> Result<()> {
    if mask.dtype() == DType::Bool {
        return Ok(());
    }
    Err(dtype_misfit(op, mask.dtype(), DType::Bool, "the mask must be bool: compare, as in x.gt_scalar(0.0)"))
}
