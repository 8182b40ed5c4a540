//! Gradients of operations that move elements: each moves the gradient back to the elements' old positions.

use smallvec::SmallVec;
use tensor_core::{Padding, Result, Scalar, Tensor};

use super::{Gradients, Step};

pub(super) fn permute(axes: &[usize], g: &Tensor) -> Gradients {
    let mut inverse = vec![0; axes.len()];
    for (i, &axis) in axes.iter().enumerate() {
        inverse[axis] = i;
    }
    Ok(vec![Some(g.permute(inverse)?)])
}

/// The gradient of a slice goes to the positions of its elements; the other positions get zeros.
pub(super) fn slice(axis: usize, start: usize, step: isize, x: &Tensor, g: &Tensor) -> Gradients {
    let len = g.dims()[axis];
    if len == 0 {
        return Ok(vec![Some(x.zeros_like())]);
    }
    let (g, first) =
        if step < 0 { (g.flip(axis)?, start - (len - 1) * step.unsigned_abs()) } else { (g.clone(), start) };
    if len == x.dims()[axis] {
        return Ok(vec![Some(g)]);
    }
    let mut before: SmallVec<[usize; 5]> = SmallVec::from_elem(0, x.rank());
    let mut interior = before.clone();
    before[axis] = first;
    interior[axis] = step.unsigned_abs() - 1;
    Ok(vec![Some(g.pad_between(before, interior, x.shape().clone(), Scalar::Float(0.0))?)])
}

/// The gradient of windows goes to the positions of their elements, and is summed where windows overlap.
pub(super) fn unfold(axis: usize, step: usize, dilation: usize, x: &Tensor, g: &Tensor) -> Gradients {
    let (count, last) = (g.dims()[axis], g.rank() - 1);
    let size = g.dims()[last];
    if dilation == 1 && (1..=step).contains(&size) && count > 0 {
        return Ok(vec![Some(separate_windows(axis, step, x, g)?)]);
    }
    let mut sum: Option<Tensor> = None;
    // One element of each window at a time: windows are small, or overlap little.
    for j in 0..size {
        let element = g.select(last, j)?;
        let (mut before, mut interior) = (SmallVec::from_elem(0, x.rank()), SmallVec::from_elem(0, x.rank()));
        before[axis] = j * dilation;
        interior[axis] = if count > 1 { step - 1 } else { 0 };
        let placed = element.pad_between(before, interior, x.shape().clone(), Scalar::Float(0.0))?;
        sum = Some(match sum {
            Some(sum) => sum.add(&placed)?,
            None => placed,
        });
    }
    Ok(vec![Some(sum.unwrap_or_else(|| x.zeros_like()))])
}

/// The gradient of windows that do not overlap: they follow each other along the axis, with zeros between
/// them.
fn separate_windows(axis: usize, step: usize, x: &Tensor, g: &Tensor) -> Result<Tensor> {
    let (count, last, n) = (g.dims()[axis], g.rank() - 1, x.dims()[axis]);
    let order: Vec<usize> = (0..=axis).chain([last]).chain(axis + 1..last).collect();
    let mut windows = g.permute(order)?;
    let gap = if count > 1 { step - g.dims()[last] } else { 0 };
    if gap > 0 {
        let mut padding = vec![(0, 0); windows.rank()];
        padding[axis + 1].1 = gap;
        windows = windows.pad(&padding, Scalar::Float(0.0))?;
    }
    let covered = count * windows.dims()[axis + 1];
    let sizes = x.dims().iter().enumerate().map(|(a, &size)| if a == axis { covered } else { size });
    let line = windows.reshape(sizes.collect::<Vec<usize>>())?;
    // The gap after the last window may extend past the end.
    let line = line.narrow(axis, 0, covered.min(n))?;
    let mut padding = vec![(0, 0); x.rank()];
    padding[axis].1 = n - covered.min(n);
    if padding[axis].1 == 0 { Ok(line) } else { line.pad(&padding, Scalar::Float(0.0)) }
}

pub(super) fn concat(axis: usize, step: &Step<'_>) -> Gradients {
    let mut start = 0;
    let mut out = Vec::with_capacity(step.inputs.len());
    for (k, input) in step.inputs.iter().enumerate() {
        let len = input.dims()[axis];
        out.push(step.when(k, || step.gradient.narrow(axis as isize, start, len))?);
        start += len;
    }
    Ok(out)
}

/// The gradient is sliced to the positions of the input.
pub(super) fn pad(padding: &Padding, x: &Tensor, g: &Tensor) -> Gradients {
    let mut out = g.clone();
    for axis in 0..x.rank() {
        let n = x.dims()[axis];
        let step = padding.interior[axis] as isize + 1;
        let first = padding.before[axis] as isize;
        let end = if n == 0 { first } else { first + (n as isize - 1) * step + 1 };
        out = out.slice_step(axis, first..end, step)?;
    }
    Ok(vec![Some(out)])
}
