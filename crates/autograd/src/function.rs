//! Differentiable functions of a user's own.

use std::{fmt, sync::Arc};

use tensor_core::{CustomOp, Result, Tensor};

use crate::no_grad;

/// A function with a gradient of its own. `torch.autograd.Function`.
///
/// Fields are its constants. The forward pass is not recorded; the backward pass is, where a second derivative is asked for.
pub trait Function: fmt::Debug + Send + Sync + 'static {
    /// The name shown as `grad_fn` and in graphs.
    fn name(&self) -> &'static str;

    /// The value.
    ///
    /// # Errors
    /// Whatever its operations give.
    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor>;

    /// For each input the gradient, given that with respect to the output; `None` for an input without one.
    ///
    /// # Errors
    /// Whatever its operations give.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], output: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>>;
}

#[derive(Debug)]
struct Custom<F>(F);

impl<F: Function> CustomOp for Custom<F> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], output: &Tensor, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        self.0.backward(inputs, output, grad)
    }
}

/// The function's value at `inputs`, with its gradient recorded where an input is tracked.
///
/// # Errors
/// Those of the function's forward pass.
///
/// ```
/// use autograd::{Function, TensorGrad, apply};
/// use tensor_core::{Result, Tensor};
///
/// /// x² whose gradient is clipped to ±1.
/// #[derive(Debug)]
/// struct ClippedSquare;
/// impl Function for ClippedSquare {
///     fn name(&self) -> &'static str { "ClippedSquare" }
///     fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> { inputs[0].mul(inputs[0]) }
///     fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
///         Ok(vec![Some(gradient.mul(&(&inputs[0] * 2.0))?.clamp(-1.0, 1.0))])
///     }
/// }
///
/// let x = Tensor::new([0.25f32, 3.0], &backend_cpu::cpu())?.requires_grad();
/// apply(ClippedSquare, &[&x])?.sum().backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.5, 1.0]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn apply<T: AsRef<Tensor>>(function: impl Function, inputs: &[T]) -> Result<Tensor> {
    let inputs: Vec<&Tensor> = inputs.iter().map(AsRef::as_ref).collect();
    let value = no_grad(|| function.forward(&inputs))?;
    Ok(Tensor::custom(Arc::new(Custom(function)), &inputs, &value))
}
