//! Linear recurrences over an axis by halving: a number of operations that grows with the logarithm of the
//! length.

use autograd::{Function, apply};
use tensor_core::{Error, Result, Shape, Tensor, is_grad_enabled};

const OP: &str = "linear_scan";

/// The states `h[t] = decay[t] · h[t − 1] + input[t]` along an axis, with h before the first step 0: the
/// recurrence of state space models and gated linear attention. Both tensors have the result's shape.
/// `torch._higher_order_ops.associative_scan` of `(a, b), (c, d) → (a·c, c·b + d)`.
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
/// let states = linear_scan(&decay, &Tensor::ones(4, &device)?, 0)?;
/// assert_eq!(states.to_vec::<f32>()?, [1.0, 1.5, 1.75, 1.875]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Tensors of different shapes, no such axis, a dtype that is not floating-point, two devices.
#[track_caller]
pub fn linear_scan(decay: &Tensor, input: &Tensor, axis: isize) -> Result<Tensor> {
    if decay.shape() != input.shape() {
        let message = format!("decay {} and input {} have different shapes", decay.shape(), input.shape());
        return Err(Error::invalid(OP, message));
    }
    if let Some(other) = [decay, input].iter().find(|tensor| !tensor.dtype().is_float()) {
        let message = format!("a tensor of {}: cast it with .to_dtype(DType::F32)?", other.dtype());
        return Err(Error::invalid(OP, message));
    }
    let axis = input.shape().axis(axis, OP)?;
    if input.dims()[axis] < 2 {
        // The only state: the decay has no part in it.
        return input.add(&decay.mul_scalar(0.0));
    }
    if is_grad_enabled() && (decay.is_tracked() || input.is_tracked()) {
        return apply(LinearScan { axis }, &[decay, input]);
    }
    scan(decay, input, axis)
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
        scan(inputs[0], inputs[1], self.axis)
    }

    /// g[t] = gradient[t] + decay[t + 1] · g[t + 1] is the gradient of the input, and g[t] · h[t − 1] that of
    /// the decay.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], states: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (axis, decay) = (self.axis, &inputs[0]);
        let steps = states.dims()[axis];
        let later = shifted(&decay.narrow(axis, 1, steps - 1)?, axis, [0, 1])?;
        let of_input = linear_scan(&later.flip(axis)?, &gradient.flip(axis)?, axis as isize)?.flip(axis)?;
        let earlier = shifted(&states.narrow(axis, 0, steps - 1)?, axis, [1, 0])?;
        Ok(vec![Some(of_input.mul(&earlier)?), Some(of_input)])
    }
}

/// A tensor with zeros before and after it along an axis.
#[track_caller]
fn shifted(x: &Tensor, axis: usize, [before, after]: [usize; 2]) -> Result<Tensor> {
    let mut padding = vec![(0, 0); x.rank()];
    padding[axis] = (before, after);
    x.pad(&padding, 0.0)
}

/// The sizes of `shape` with those of `axis` in place of its size.
fn with_axis(shape: &Shape, axis: usize, sizes: &[usize]) -> Vec<usize> {
    let dims = shape.dims();
    [&dims[..axis], sizes, &dims[axis + 1..]].concat()
}

/// The states, of a recurrence of at least one step.
#[track_caller]
fn scan(decay: &Tensor, input: &Tensor, axis: usize) -> Result<Tensor> {
    let steps = input.dims()[axis];
    if steps == 1 {
        return Ok(input.clone());
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
    let seconds = scan(&second_decay.mul(&first_decay)?, &joined, axis)?;
    let before = match pairs {
        1 => first_input.zeros_like(),
        _ => shifted(&seconds.narrow(axis, 0, pairs - 1)?, axis, [1, 0])?,
    };
    let firsts = first_decay.mul(&before)?.add(&first_input)?;
    let whole = with_axis(input.shape(), axis, &[2 * pairs]);
    let states = Tensor::stack(&[&firsts, &seconds], axis + 1)?.reshape(whole.as_slice())?;
    if 2 * pairs == steps {
        return Ok(states);
    }
    let last = |x: &Tensor| x.narrow(axis, steps - 1, 1);
    let end = last(decay)?.mul(&seconds.narrow(axis, pairs - 1, 1)?)?.add(&last(input)?)?;
    Tensor::concat(&[&states, &end], axis)
}
