//! Layouts that do not depend on the plan: of views, and of operands over the space of a row kernel.

use smallvec::SmallVec;

use crate::{
    base::shape::Shape,
    graph::op::{Op, OpClass, ViewOp},
    kernels::{custom, layout::Layout},
};

/// The layout of a view operation over `base`, if strides can express it.
pub(super) fn view(op: &Op, base: &Layout, shape: &Shape) -> Option<Layout> {
    let OpClass::View(view) = op.class() else { return None };
    match view {
        ViewOp::Permute(axes) => Some(base.permute(axes)),
        ViewOp::Expand => Some(base.expand(shape)),
        ViewOp::Slice { axis, start, step } => Some(base.slice(axis, start, shape[axis], step)),
        ViewOp::Unfold { axis, step, dilation } => {
            Some(base.unfold(axis, shape[axis], shape[shape.rank() - 1], step, dilation))
        }
        ViewOp::Reshape | ViewOp::TupleElement { .. } => base.reshape(shape),
        ViewOp::Contiguous => custom::is_plain(base).then(|| base.clone()),
    }
}

/// Whether `shape` enumerates the rows of `space`: its axes are the leading ones, apart from axes of size 1.
pub(super) fn is_per_row(shape: &Shape, space: &Shape, row_axes: usize) -> bool {
    let lead = &space[..space.rank() - row_axes];
    shape.iter().filter(|&&size| size != 1).eq(lead.iter().filter(|&&size| size != 1))
}

/// The layout over `space` of an operand with `layout` over `shape`: the same shape, or a row kernel's
/// space whose rows `shape` enumerates.
pub(super) fn over_space(layout: &Layout, shape: &Shape, space: &Shape, row_axes: usize) -> Layout {
    let read = layout.expand(shape);
    if shape == space {
        return read;
    }
    let lead = space.rank() - row_axes;
    let mut strides_of_rows =
        (0..shape.rank()).filter(|&axis| shape[axis] != 1).map(|axis| read.strides()[axis]);
    let strides: SmallVec<[isize; 5]> = (0..space.rank())
        .map(|axis| if axis < lead && space[axis] != 1 { strides_of_rows.next().unwrap_or(0) } else { 0 })
        .collect();
    Layout::new(space.clone(), &strides, read.offset())
}

/// Whether a layout over `space` reads element `r` of a row-major buffer everywhere in row `r`.
pub(super) fn numbers_rows(layout: &Layout, space: &Shape, row_axes: usize) -> bool {
    let lead = space.rank() - row_axes;
    let rows: Shape = space[..lead].iter().copied().collect();
    let plain = rows.contiguous_strides();
    layout.offset() == 0
        && (0..space.rank()).all(|a| {
            let wanted = if a < lead { plain[a] } else { 0 };
            space[a] == 1 || layout.strides()[a] == wanted
        })
}
