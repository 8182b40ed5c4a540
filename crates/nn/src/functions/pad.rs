//! Padding with elements of the input or with a constant.

use autograd::{Function, apply};
use tensor_core::{Argument, Error, Int, Result, Tensor, caller_line, is_grad_enabled, traced};

/// The values of the padding. The `mode` of `torch.nn.functional.pad`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// A constant.
    Constant(f64),
    /// The elements next to the edge, mirrored, without the edge itself: `c b | a b c | b a`.
    Reflect,
    /// The edge element, repeated: `a a | a b c | c c`.
    Replicate,
    /// The elements at the other end: `b c | a b c | a b`.
    Circular,
}

/// Pads the input along each of its last axes: `padding` has a pair of numbers of elements before and after
/// for each of them, in the order of the axes. A negative number removes elements; those at the other side of
/// the axis are still repeated and mirrored. `torch.nn.functional.pad`, whose list begins with the last axis.
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
/// More pairs than axes; removing more elements than there are; more padding than elements to mirror (all
/// but one) or to take from the other end.
#[track_caller]
pub fn pad<I: Int>(input: &Tensor, padding: &[(I, I)], mode: PadMode) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "pad";
    let Some(first) = input.rank().checked_sub(padding.len()) else {
        let message = format!("{} pairs for an input of shape {}", padding.len(), input.shape());
        return Err(Error::invalid(OP, message));
    };
    let pairs: Vec<(isize, isize)> = padding.iter().map(|(a, b)| (a.as_isize(), b.as_isize())).collect();
    let is_mixed = pairs.iter().any(|&(before, after)| before.min(after) < 0 && before.max(after) > 0);
    if is_mixed && matches!(mode, PadMode::Replicate | PadMode::Reflect) {
        // The elements that one side loses may be copied to the other.
        let added: Vec<(usize, usize)> =
            pairs.iter().map(|&(before, after)| (before.max(0) as usize, after.max(0) as usize)).collect();
        let cuts: Vec<(isize, isize)> =
            pairs.iter().map(|&(before, after)| (before.min(0), after.min(0))).collect();
        return Ok(pad_by(OP, input, &added, mode)?.cut_by(OP, first, &cuts)?.0);
    }
    let (cut, padding) = input.cut_by(OP, first, &pairs)?;
    pad_by(OP, &cut, &padding, mode)
}

#[track_caller]
pub(crate) fn pad_by(
    op: &'static str,
    input: &Tensor,
    padding: &[(usize, usize)],
    mode: PadMode,
) -> Result<Tensor> {
    let _line = caller_line();
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
    if is_grad_enabled() && input.is_tracked() {
        return apply(Bordered { first, padding: padding.to_vec(), mode }, &[input]);
    }
    let out = bordered(input, first, padding, mode)?;
    Ok(traced("pad", [Some(input)], out, || {
        let (before, after): (Vec<usize>, Vec<usize>) = padding.iter().copied().unzip();
        let mode = match mode {
            PadMode::Constant(_) => "constant",
            PadMode::Reflect => "reflect",
            PadMode::Replicate => "edge",
            PadMode::Circular => "wrap",
        };
        vec![
            ("before", Argument::sizes(&before)),
            ("after", Argument::sizes(&after)),
            ("mode", Argument::Text(mode)),
        ]
    }))
}

/// Padding with the input's own elements, whose gradient is computed axis by axis: that of nested parts
/// would be summed for each part.
#[derive(Debug)]
struct Bordered {
    first: usize,
    padding: Vec<(usize, usize)>,
    mode: PadMode,
}

impl Function for Bordered {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Pad"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        bordered(inputs[0], self.first, &self.padding, self.mode)
    }

    /// Each element gets the gradients of its copies.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let mut sum = gradient.clone();
        for (axis, &(before, after)) in (self.first..).zip(&self.padding) {
            let n = inputs[0].dims()[axis];
            let (left, right) = (sum.narrow(axis, 0, before)?, sum.narrow(axis, before + n, after)?);
            // The elements that the padding of each side was copied from, and its start.
            let sides = match self.mode {
                PadMode::Reflect => [(left.flip(axis)?, 1), (right.flip(axis)?, n.saturating_sub(1 + after))],
                PadMode::Circular => [(left, n - before), (right, 0)],
                PadMode::Replicate | PadMode::Constant(_) => {
                    [(left.sum_axis(axis, true)?, 0), (right.sum_axis(axis, true)?, n.saturating_sub(1))]
                }
            };
            sum = sum.narrow(axis, before, n)?;
            for ((part, start), _) in sides.into_iter().zip([before, after]).filter(|(_, count)| *count > 0) {
                let mut around = vec![(0, 0); sum.rank()];
                around[axis] = (start, n - start - part.dims()[axis]);
                sum = sum.add(&part.pad(&around, 0.0)?)?;
            }
        }
        Ok(vec![Some(sum)])
    }
}

/// The input with its own elements as padding along the axes from `axis` on. Parts are concatenated along
/// one axis within the other, in one kernel.
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

/// The input with a constant padding of its last axes, one pair for each; the input itself if the padding is
/// empty.
#[track_caller]
pub(super) fn padded(input: &Tensor, padding: &[(usize, usize)], value: f64) -> Result<Tensor> {
    let _line = caller_line();
    if padding.iter().all(|&sides| sides == (0, 0)) {
        return Ok(input.clone());
    }
    pad_by("pad", input, padding, PadMode::Constant(value))
}
