//! Padding with elements of the input or with a constant.

use tensor_core::{Error, Result, Tensor};

/// What an input is padded with. The `mode` of `torch.nn.functional.pad`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// This number.
    Constant(f64),
    /// The elements next to the edge, mirrored, without the edge itself: `c b | a b c | b a`.
    Reflect,
    /// The edge: `a a | a b c | c c`.
    Replicate,
    /// The elements at the other end: `b c | a b c | a b`.
    Circular,
}

/// The input with so many elements put before and after along each of its last axes: `padding` has one pair for each of them, in the order
/// of the axes. `torch.nn.functional.pad`, whose list begins with the last axis.
///
/// ```
/// use nn::functional::{PadMode, pad};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let x = Tensor::new([[1.0f32, 2.0, 3.0]], &backend_cpu::cpu())?;
/// assert_eq!(pad(&x, &[(2, 1)], PadMode::Reflect)?.to_vec::<f32>()?, [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// More pairs than axes; more elements than there are to mirror (all but one) or to take from the other end.
#[track_caller]
pub fn pad(input: &Tensor, padding: &[(usize, usize)], mode: PadMode) -> Result<Tensor> {
    pad_by("pad", input, padding, mode)
}

#[track_caller]
pub(crate) fn pad_by(
    op: &'static str,
    input: &Tensor,
    padding: &[(usize, usize)],
    mode: PadMode,
) -> Result<Tensor> {
    let Some(first) = input.rank().checked_sub(padding.len()) else {
        let message = format!("{} pairs for an input of shape {}", padding.len(), input.shape());
        return Err(Error::invalid(op, message));
    };
    if let PadMode::Constant(value) = mode {
        let all: Vec<(usize, usize)> =
            std::iter::repeat_n((0, 0), first).chain(padding.iter().copied()).collect();
        return input.pad(&all, value);
    }
    for (axis, &(before, after)) in (first..).zip(padding) {
        let n = input.dims()[axis];
        let (room, what) = match mode {
            PadMode::Reflect => (n.saturating_sub(1), "there are to mirror"),
            PadMode::Circular => (n, "the axis has"),
            PadMode::Replicate if n == 0 => (0, "there are"),
            PadMode::Replicate | PadMode::Constant(_) => (usize::MAX, ""),
        };
        if before > room || after > room {
            return Err(Error::invalid(
                op,
                format!(
                    "{before} elements before and {after} after along axis {axis} of {} are more than the {room} that {what}",
                    input.shape()
                ),
            ));
        }
    }
    bordered(input, first, padding, mode)
}

/// The input with its own elements round the axes from `axis` on. Parts of it are concatenated along one axis within the other, which is one
/// kernel.
#[track_caller]
fn bordered(input: &Tensor, axis: usize, padding: &[(usize, usize)], mode: PadMode) -> Result<Tensor> {
    let Some((&(before, after), rest)) = padding.split_first() else { return Ok(input.clone()) };
    let n = input.dims()[axis];
    let side = |start: usize, count: usize| input.narrow(axis, start, count);
    let repeated = |start: usize, count: usize| {
        let mut shape = input.dims().to_vec();
        shape[axis] = count;
        side(start, 1)?.expand(shape.as_slice())
    };
    let mut parts = Vec::with_capacity(3);
    if before > 0 {
        parts.push(match mode {
            PadMode::Reflect => side(1, before)?.flip(axis)?,
            PadMode::Circular => side(n - before, before)?,
            PadMode::Replicate | PadMode::Constant(_) => repeated(0, before)?,
        });
    }
    parts.push(input.clone());
    if after > 0 {
        parts.push(match mode {
            PadMode::Reflect => side(n - 1 - after, after)?.flip(axis)?,
            PadMode::Circular => side(0, after)?,
            PadMode::Replicate | PadMode::Constant(_) => repeated(n - 1, after)?,
        });
    }
    let parts = parts.iter().map(|part| bordered(part, axis + 1, rest, mode)).collect::<Result<Vec<_>>>()?;
    match parts.as_slice() {
        [alone] => Ok(alone.clone()),
        several => Tensor::concat(several, axis),
    }
}

/// The input with this number round its last axes, `padding` pairs of them; itself where there is nothing to put.
#[track_caller]
pub(super) fn padded(input: &Tensor, padding: &[(usize, usize)], value: f64) -> Result<Tensor> {
    if padding.iter().all(|&sides| sides == (0, 0)) {
        return Ok(input.clone());
    }
    pad_by("pad", input, padding, PadMode::Constant(value))
}
