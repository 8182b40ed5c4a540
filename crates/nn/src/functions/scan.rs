//! Linear recurrences over an axis by halving: a number of operations that grows with the logarithm of the
//! length.

use autograd::{Function, apply};
use tensor_core::{Error, Result, Shape, Tensor, caller_line, is_grad_enabled};

const OP: &str = "linear_scan";

/// The states `h[t] = decay[t] · h[t − 1] + input[t]` along an axis, from `initial` before the first step, or
/// 0 without: the recurrence of state space models and gated linear attention. `decay` and `input` have the
/// result's shape, and `initial` the size 1 along the axis. `torch._higher_order_ops.associative_scan` of
/// `(a, b), (c, d) → (a·c, c·b + d)`.
///
/// Pairs of steps are joined to one step each, until one is left; the states between follow from those at
/// the ends of pairs. Each level is a few operations on half the elements of the one above, so that the work
/// is about three times that of a loop, without a kernel for each step. The gradient is another scan, from
/// the end.
///
/// ```
/// use nn::functional::linear_scan;
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let decay = Tensor::full(4, 0.5f32, &device)?;
/// let states = linear_scan(&decay, &Tensor::ones(4, &device)?, None, 0)?;
/// assert_eq!(states.to_vec::<f32>()?, [1.0, 1.5, 1.75, 1.875]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Tensors of other shapes, no such axis, no steps, a dtype that is not floating-point, two devices.
#[track_caller]
pub fn linear_scan(decay: &Tensor, input: &Tensor, initial: Option<&Tensor>, axis: isize) -> Result<Tensor> {
    let _line = caller_line();
    let axis = input.shape().axis(axis, OP)?;
    let one = with_axis(input.shape(), axis, &[1]);
    if decay.shape() != input.shape() || initial.is_some_and(|initial| initial.dims() != one) {
        let message = format!(
            "decay {}, input {} and a state {}: both have one shape, and the state {one:?}",
            decay.shape(),
            input.shape(),
            initial.map_or_else(|| "none".into(), |initial| initial.shape().to_string())
        );
        return Err(Error::invalid(OP, message));
    }
    let all = [Some(decay), Some(input), initial];
    let all: Vec<&Tensor> = all.into_iter().flatten().collect();
    if let Some(other) = all.iter().find(|tensor| !tensor.dtype().is_float()) {
        let message = format!("a tensor of {}: cast it with .to_dtype(DType::F32)?", other.dtype());
        return Err(Error::invalid(OP, message));
    }
    if input.dims()[axis] == 0 {
        return Err(Error::invalid(OP, format!("no steps: input {} along axis {axis}", input.shape())));
    }
    if input.dims()[axis] > 1 && is_grad_enabled() && all.iter().any(|tensor| tensor.is_tracked()) {
        return apply(LinearScan { axis }, &all);
    }
    scan(decay, input, initial, axis)
}

/// The recurrence along an axis, with its gradient.
#[derive(Clone, Copy, Debug)]
struct LinearScan {
    axis: usize,
}

impl Function for LinearScan {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "LinearScan"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        scan(inputs[0], inputs[1], inputs.get(2).copied(), self.axis)
    }

    /// g[t] = gradient[t] + decay[t + 1] · g[t + 1] is the gradient of the input, g[t] · h[t − 1] that of the
    /// decay, and decay[0] · g[0] that of the state before the first step.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], states: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (axis, decay, initial) = (self.axis, &inputs[0], inputs.get(2));
        let steps = states.dims()[axis];
        let first = decay.narrow(axis, 0, 1)?;
        // The last step has none after it; any decay from there meets a state of 0.
        let later = Tensor::concat(&[&decay.narrow(axis, 1, steps - 1)?, &first], axis)?;
        let of_input =
            linear_scan(&later.flip(axis)?, &gradient.flip(axis)?, None, axis as isize)?.flip(axis)?;
        let of_decay = of_input.mul(&before(states, initial, axis)?)?;
        let mut found = vec![Some(of_decay), Some(of_input.clone())];
        if initial.is_some() {
            found.push(Some(first.mul(&of_input.narrow(axis, 0, 1)?)?));
        }
        Ok(found)
    }
}

/// The states before each step.
#[track_caller]
fn before(states: &Tensor, initial: Option<&Tensor>, axis: usize) -> Result<Tensor> {
    let steps = states.dims()[axis];
    let first = match initial {
        Some(initial) => initial.clone(),
        None => states.narrow(axis, 0, 1)?.zeros_like(),
    };
    match steps {
        1 => Ok(first),
        _ => Tensor::concat(&[&first, &states.narrow(axis, 0, steps - 1)?], axis),
    }
}

/// The sizes of `shape` with those of `axis` in place of its size.
fn with_axis(shape: &Shape, axis: usize, sizes: &[usize]) -> Vec<usize> {
    let dims = shape.dims();
    [&dims[..axis], sizes, &dims[axis + 1..]].concat()
}

/// The states, of a recurrence of at least one step.
#[track_caller]
fn scan(decay: &Tensor, input: &Tensor, initial: Option<&Tensor>, axis: usize) -> Result<Tensor> {
    let steps = input.dims()[axis];
    if steps == 1 {
        return match initial {
            Some(initial) => decay.mul(initial)?.add(input),
            None => Ok(input.clone()),
        };
    }
    let pairs = steps / 2;
    let split = with_axis(input.shape(), axis, &[pairs, 2]);
    let parts = |x: &Tensor| {
        let x = x.narrow(axis, 0, 2 * pairs)?.reshape(split.as_slice())?;
        Ok((x.select(axis + 1, 0)?, x.select(axis + 1, 1)?))
    };
    let ((first_decay, second_decay), (first_input, second_input)) = (parts(decay)?, parts(input)?);
    // The states after the second step of each pair.
    let joined = second_decay.mul(&first_input)?.add(&second_input)?;
    let seconds = scan(&second_decay.mul(&first_decay)?, &joined, initial, axis)?;
    let firsts = first_decay.mul(&before(&seconds, initial, axis)?)?.add(&first_input)?;
    let whole = with_axis(input.shape(), axis, &[2 * pairs]);
    let states = Tensor::stack(&[&firsts, &seconds], axis + 1)?.reshape(whole.as_slice())?;
    if 2 * pairs == steps {
        return Ok(states);
    }
    let last = |x: &Tensor| x.narrow(axis, steps - 1, 1);
    let end = last(decay)?.mul(&seconds.narrow(axis, pairs - 1, 1)?)?.add(&last(input)?)?;
    Tensor::concat(&[&states, &end], axis)
}
