//! Reductions along axes, places of extremes, running sums.

use tensor_core::{CumulativeOp, DType, Result, Tensor};

use super::{Row, one};
use crate::{context::Context, value::Value};

pub(crate) const TABLE: &[Row] = &[
    ("", "ArgMax", 1, |c| place(c, true)),
    ("", "ArgMin", 1, |c| place(c, false)),
    ("", "CumProd", 26, |c| running(c, CumulativeOp::Prod)),
    ("", "CumSum", 11, |c| running(c, CumulativeOp::Sum)),
    ("", "ReduceL1", 1, |c| reduce(c, |x, axes| x.abs().sum_axis(axes, true))),
    ("", "ReduceL2", 1, |c| {
        reduce(c, |x, axes| x.square().sum_axis(axes, true)?.to_dtype(wide(x))?.sqrt().to_dtype(x.dtype()))
    }),
    ("", "ReduceLogSum", 1, |c| reduce(c, |x, axes| Ok(x.sum_axis(axes, true)?.log()))),
    ("", "ReduceLogSumExp", 1, |c| reduce(c, log_sum_exp)),
    ("", "ReduceMax", 1, |c| reduce(c, |x, axes| extreme(x, axes, true))),
    ("", "ReduceMean", 1, |c| reduce(c, |x, axes| x.to_dtype(wide(x))?.mean_axis(axes, true))),
    ("", "ReduceMin", 1, |c| reduce(c, |x, axes| extreme(x, axes, false))),
    ("", "ReduceProd", 1, |c| reduce(c, |x, axes| x.prod_axis(axes, true))),
    ("", "ReduceSum", 1, |c| reduce(c, |x, axes| x.sum_axis(axes, true))),
    ("", "ReduceSumSquare", 1, |c| reduce(c, |x, axes| x.square().sum_axis(axes, true))),
];

/// The dtype in which means and roots are computed.
fn wide(x: &Tensor) -> DType {
    if x.dtype().is_float() { x.dtype() } else { DType::F32 }
}

/// Axes that are an attribute or, in newer versions, the second input.
pub(crate) fn axes(c: &Context<'_>, rank: usize) -> Result<Option<Vec<usize>>> {
    let list = match c.ints("axes")? {
        Some(list) => Some(list),
        None => c.integers(1)?,
    };
    let Some(list) = list else { return Ok(None) };
    list.iter().map(|&axis| c.axis(axis, rank)).collect::<Result<Vec<_>>>().map(Some)
}

/// A reduction that keeps its axes with size 1, in the dtype of the input.
fn reduce(c: &Context<'_>, f: impl FnOnce(&Tensor, &[usize]) -> Result<Tensor>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let given = axes(c, x.rank())?.filter(|axes| !axes.is_empty());
    let axes = match given {
        Some(axes) => axes,
        None if c.flag("noop_with_empty_axes", false)? => return one(f(&x, &[])?.to_dtype(x.dtype())?),
        None => (0..x.rank()).collect(),
    };
    let reduced = f(&x, &axes)?.to_dtype(x.dtype())?;
    one(if c.flag("keepdims", true)? || axes.is_empty() { reduced } else { reduced.squeeze(axes)? })
}

/// The extreme of no elements is the dtype's own, or infinite.
fn extreme(x: &Tensor, axes: &[usize], greatest: bool) -> Result<Tensor> {
    if x.dtype().is_bool() {
        return if greatest { x.any_axis(axes, true) } else { x.all_axis(axes, true) };
    }
    if axes.iter().any(|&axis| x.dims()[axis] == 0) {
        let shape = x.shape().reduced(axes, true);
        let bound = match (x.dtype().is_float(), greatest) {
            (true, true) => f64::NEG_INFINITY.into(),
            (true, false) => f64::INFINITY.into(),
            (false, true) => x.dtype().least(),
            (false, false) => x.dtype().greatest(),
        };
        return Tensor::full(shape, bound, (x.dtype(), &x.device()));
    }
    if greatest { x.amax(axes, true) } else { x.amin(axes, true) }
}

fn log_sum_exp(x: &Tensor, axes: &[usize]) -> Result<Tensor> {
    if axes.iter().any(|&axis| x.dims()[axis] == 0) {
        return Ok(x.exp().sum_axis(axes, true)?.log());
    }
    x.to_dtype(wide(x))?.logsumexp(axes, true)
}

/// The place of the greatest or the least, the first of equal ones unless asked otherwise.
fn place(c: &Context<'_>, greatest: bool) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axis = c.axis_or("axis", 0, x.rank())?;
    let keepdims = c.flag("keepdims", true)?;
    let find =
        |x: &Tensor| if greatest { x.argmax_axis(axis, keepdims) } else { x.argmin_axis(axis, keepdims) };
    let found = if c.flag("select_last_index", false)? {
        let from_end = find(&x.flip(axis)?)?;
        from_end.neg().add_scalar(x.dims()[axis] as i64 - 1)
    } else {
        find(&x)?
    };
    one(found.to_dtype(c.index_dtype())?)
}

fn running(c: &Context<'_>, op: CumulativeOp) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axis = c.integer(1)?.ok_or_else(|| c.error("the axis is missing"))?;
    let axis = c.axis(axis, x.rank())?;
    let reverse = c.flag("reverse", false)?;
    let mut y = x.cumulative(op, axis, reverse)?.to_dtype(x.dtype())?;
    if c.flag("exclusive", false)? {
        // Each place has what is before it.
        let n = x.dims()[axis];
        let mut padding = vec![(0, 0); x.rank()];
        padding[axis] = if reverse { (0, 1) } else { (1, 0) };
        let neutral = if op == CumulativeOp::Prod { 1 } else { 0 };
        y = y.narrow(axis, usize::from(reverse && n > 0), n.saturating_sub(1))?.pad(&padding, neutral)?;
    }
    one(y)
}
