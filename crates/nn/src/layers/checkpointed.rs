//! A layer whose activations are recomputed in the backward pass.

use std::fmt;

use autograd::checkpoint;
use tensor_core::{Result, Tensor};

use super::call;
use crate::{Layer, Module, Visitor, VisitorMut};

/// A layer of which training stores only the input: the backward pass recomputes the tensors that its
/// gradient reads. [`autograd::checkpoint`] does the same for any function, and
/// [`crate::Sequential::forward_checkpointed`] for several layers at a time.
///
/// The wrapper does not change names: its state dict is the layer's. It derefs to the layer.
///
/// ```
/// use autograd::TensorGrad;
/// use nn::{Checkpointed, Layer, Linear, Module, Relu, Sequential};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let mut model = Sequential::new();
/// for _ in 0..8 {
///     let block = Sequential::new().add(Linear::new(4, 16, &rng)?).add(Relu).add(Linear::new(16, 4, &rng)?);
///     model.push(Checkpointed::new(block)); // stores 4 features of each example, not 16
/// }
/// assert_eq!(model.named_parameters()[0].0, "0.0.weight");
/// model.forward(&Tensor::ones([3, 4], rng.device())?)?.sum().backward()?;
/// assert!(model.parameters().iter().all(|parameter| parameter.grad().is_some()));
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[doc(alias("checkpoint_wrapper", "torch.utils.checkpoint"))]
pub struct Checkpointed<L> {
    layer: L,
}

impl<L> Checkpointed<L> {
    /// Wraps a layer.
    pub fn new(layer: L) -> Checkpointed<L> {
        Checkpointed { layer }
    }

    /// The layer itself.
    pub fn into_inner(self) -> L {
        self.layer
    }
}

impl<L> std::ops::Deref for Checkpointed<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.layer
    }
}

impl<L: Layer> Checkpointed<L> {
    /// The layer's output.
    ///
    /// # Errors
    /// The errors of the layer.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let caller = call::caller();
        checkpoint(|inputs| call::dispatch(&self.layer, &inputs[0], caller), &[input])
    }
}

impl<L: Layer> Layer for Checkpointed<L> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let caller = call::caller();
        tensor_core::with_location(caller, || Checkpointed::forward(self, input))
    }
}

impl<L: fmt::Debug> fmt::Debug for Checkpointed<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.layer.fmt(f)
    }
}

impl<L: Module> Module for Checkpointed<L> {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.inner(&self.layer);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.layer.visit_mut(visitor);
    }
}
