//! A layer whose inside the backward pass computes again.

use std::fmt;

use autograd::checkpoint;
use tensor_core::{Result, Tensor};

use super::call;
use crate::{Layer, Module, Visitor, VisitorMut};

/// A layer of which training keeps the input only: what its gradient reads is computed again in the backward
/// pass. See [`autograd::checkpoint`], which does the same for a function of any form.
/// [`crate::Sequential::forward_checkpointed`] is for several layers at a time.
///
/// The wrapper adds nothing to names: its state dict is the layer's. It derefs to the layer.
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
///     model.push(Checkpointed::new(block)); // keeps 4 features of each example, and not 16
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
    /// The layer, checkpointed.
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
    /// Those of the layer.
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
