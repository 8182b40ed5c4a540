//! `Hooked`: a layer with forward hooks.

use std::{fmt, sync::Arc};

use autograd::TensorGrad;
use tensor_core::{Error, Result, Tensor};

use super::call;
use crate::{Layer, Module, Visitor, VisitorMut};

/// A hook that gets one tensor, and may return a replacement.
type Look = Arc<dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync>;
/// A hook that gets an input and an output, and may return another output.
type LookAtBoth = Arc<dyn Fn(&Tensor, &Tensor) -> Result<Option<Tensor>> + Send + Sync>;

/// A layer with hooks, which get its inputs, outputs and their gradients, and may replace them:
/// `register_forward_pre_hook`, `register_forward_hook` and `register_full_backward_hook` of
/// `torch.nn.Module`.
///
/// The wrapper does not change names: its state dict is the layer's. It derefs to the layer. A hook returns
/// `None` to leave a tensor unchanged, and an error of a hook is an error of the pass. Hooks run in the
/// order in which they were added; a clone shares them.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use autograd::TensorGrad;
/// use nn::{Hooked, Layer, Linear};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let notes = seen.clone();
/// let layer = Hooked::new(Linear::new(2, 3, &rng)?)
///     .on_output(move |_input, output| {
///         if let Ok(mut notes) = notes.lock() {
///             notes.push(output.dims().to_vec());
///         }
///         Ok(None)
///     })
///     .on_grad_output(|gradient| Ok(Some(gradient.clamp(-1.0, 1.0))));
/// layer.forward(&Tensor::ones([4, 2], rng.device())?)?.powi(2).sum().backward()?;
/// assert_eq!(*seen.lock().unwrap(), [vec![4, 3]]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[doc(alias("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"))]
pub struct Hooked<L> {
    layer: L,
    inputs: Vec<Look>,
    outputs: Vec<LookAtBoth>,
    grad_inputs: Vec<Look>,
    grad_outputs: Vec<Look>,
}

impl<L> Hooked<L> {
    /// A layer without hooks.
    pub fn new(layer: L) -> Hooked<L> {
        Hooked {
            layer,
            inputs: Vec::new(),
            outputs: Vec::new(),
            grad_inputs: Vec::new(),
            grad_outputs: Vec::new(),
        }
    }

    /// Adds a hook that runs before the layer, with its input.
    #[must_use]
    pub fn on_input(
        mut self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Hooked<L> {
        self.inputs.push(Arc::new(hook));
        self
    }

    /// Adds a hook that runs after the layer, with its input and its output.
    #[must_use]
    pub fn on_output(
        mut self,
        hook: impl Fn(&Tensor, &Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Hooked<L> {
        self.outputs.push(Arc::new(hook));
        self
    }

    /// Adds a hook that runs in the backward pass after the layer's part, with the gradient of its input,
    /// which must require gradients.
    #[must_use]
    pub fn on_grad_input(
        mut self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Hooked<L> {
        self.grad_inputs.push(Arc::new(hook));
        self
    }

    /// Adds a hook that runs in the backward pass before the layer's part, with the gradient of its output.
    #[must_use]
    pub fn on_grad_output(
        mut self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Hooked<L> {
        self.grad_outputs.push(Arc::new(hook));
        self
    }

    /// The layer, without its hooks.
    pub fn into_inner(self) -> L {
        self.layer
    }
}

impl<L> std::ops::Deref for Hooked<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.layer
    }
}

/// A tensor whose gradient is passed to these hooks.
#[track_caller]
fn watched(tensor: Tensor, hooks: &[Look]) -> Result<Tensor> {
    if !tensor.is_tracked() {
        return Ok(tensor);
    }
    // The backward pass visits the tensor that was wrapped last first, so hooks are wrapped in reverse
    // order.
    hooks.iter().rev().try_fold(tensor, |tensor, hook| {
        let hook = hook.clone();
        tensor.register_hook(move |gradient| hook(gradient))
    })
}

#[track_caller]
fn replaced(tensor: Tensor, other: Option<Tensor>) -> Result<Tensor> {
    match other {
        Some(other) if other.device() != tensor.device() => Err(Error::invalid(
            "Hooked",
            "a hook returned a tensor on another device: move it with .to(&device)?",
        )),
        Some(other) => Ok(other),
        None => Ok(tensor),
    }
}

impl<L: Layer> Hooked<L> {
    /// The layer's output, after all hooks.
    ///
    /// # Errors
    /// The errors of the layer and of the hooks, and a hook's tensor on another device.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut input = input.clone();
        for hook in &self.inputs {
            let other = hook(&input)?;
            input = replaced(input, other)?;
        }
        let input = watched(input, &self.grad_inputs)?;
        let mut output = call::dispatch(&self.layer, &input, call::caller())?;
        for hook in &self.outputs {
            let other = hook(&input, &output)?;
            output = replaced(output, other)?;
        }
        watched(output, &self.grad_outputs)
    }
}

impl<L: Layer> Layer for Hooked<L> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let caller = call::caller();
        tensor_core::with_location(caller, || Hooked::forward(self, input))
    }
}

impl<L: fmt::Debug> fmt::Debug for Hooked<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.layer.fmt(f)
    }
}

impl<L: Module> Module for Hooked<L> {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.inner(&self.layer);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.layer.visit_mut(visitor);
    }
}
