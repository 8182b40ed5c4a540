//! Layers one after the other.

use tensor_core::{Result, Tensor};

use super::layer;
use crate::{Layer, Module, Visitor, VisitorMut};

/// Layers one after the other; parameters are named by position, `0.weight`. `torch.nn.Sequential`.
///
/// ```
/// use nn::{Linear, Module, ReLU, Sequential};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let rng = Generator::seed(0, &device);
/// let model = Sequential::new().add(Linear::new(4, 8, &rng)?).add(ReLU).add(Linear::new(8, 2, &rng)?);
/// assert_eq!(model.forward(&Tensor::ones([5, 4], &device)?)?.dims(), [5, 2]);
/// assert_eq!(model.named_parameters()[2].0, "2.weight");
/// # Ok(()) }
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// No layers: the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// One more layer at the end.
    #[allow(clippy::should_implement_trait)] // nothing is summed here
    pub fn add(mut self, layer: impl Layer + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }

    /// One more layer at the end, in place.
    pub fn push(&mut self, layer: impl Layer + 'static) {
        self.layers.push(Box::new(layer));
    }

    /// The number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there are no layers.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

impl Sequential {
    /// The output of the last layer.
    ///
    /// # Errors
    /// The first failure of a layer.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut out = input.clone();
        for layer in &self.layers {
            out = layer.forward(&out)?;
        }
        Ok(out)
    }
}

layer!(Sequential);

impl Module for Sequential {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.layers.visit(visitor);
    }
    fn visit_mut<'a>(&'a mut self, visitor: &mut VisitorMut<'a>) {
        self.layers.visit_mut(visitor);
    }
}
