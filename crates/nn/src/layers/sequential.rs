//! A sequence of layers.

use std::fmt;

use autograd::checkpoint;
use tensor_core::{Error, Location, Result, Tensor, begin_layer_call};

use super::call;
use crate::{Layer, Module, Visitor, VisitorMut};

/// A sequence of layers; parameters are named by position, `0.weight`. `torch.nn.Sequential`.
///
/// ```
/// use nn::{Linear, Module, Relu, Sequential};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let rng = Generator::seed(0, &device);
/// let model = Sequential::new().add(Linear::new(4, 8, &rng)?).add(Relu).add(Linear::new(8, 2, &rng)?);
/// assert_eq!(model.forward(&Tensor::ones([5, 4], &device)?)?.dims(), [5, 2]);
/// assert_eq!(model.named_parameters()[2].0, "2.weight");
/// let printed = "Sequential(
///   (0): Linear(in_features=4, out_features=8, bias=true)
///   (1): Relu()
///   (2): Linear(in_features=8, out_features=2, bias=true)
/// )";
/// assert_eq!(format!("{model:?}"), printed);
/// # Ok(()) }
/// ```
///
/// It is not `Clone`, since your own layers need not be: build a second one and load the first's state dict.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// A sequence without layers: the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Adds a layer at the end.
    #[allow(clippy::should_implement_trait)] // nothing is summed here
    pub fn add(mut self, layer: impl Layer + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }

    /// Adds a layer at the end, in place.
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
    /// The first error of a layer. It names the line that called this method, unless one of your own layers
    /// has its own line.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.run(input, call::caller())
    }

    /// The output of the last layer, with the layers in `segments` groups of equal length (the last one may
    /// be longer). Training stores only the inputs of the groups: the backward pass recomputes the rest. The
    /// last group is not checkpointed, because its gradient is computed first. See
    /// [`autograd::checkpoint()`]. `torch.utils.checkpoint.checkpoint_sequential`.
    ///
    /// For n layers, about √n segments take the least memory.
    ///
    /// ```
    /// use autograd::TensorGrad;
    /// use nn::{Linear, Module, Sequential, Tanh};
    /// use tensor_core::{Generator, Tensor};
    /// # fn main() -> tensor_core::Result<()> {
    /// let rng = Generator::seed(0, &backend_cpu::cpu());
    /// let mut model = Sequential::new();
    /// for _ in 0..9 {
    ///     model.push(Linear::new(8, 8, &rng)?);
    ///     model.push(Tanh);
    /// }
    /// model.forward_checkpointed(3, &Tensor::ones([2, 8], rng.device())?)?.sum().backward()?;
    /// assert!(model.parameters().iter().all(|parameter| parameter.grad().is_some()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The first error of a layer, and a number of segments that is 0 or above the number of layers.
    #[track_caller]
    #[doc(alias = "checkpoint_sequential")]
    pub fn forward_checkpointed(&self, segments: usize, input: &Tensor) -> Result<Tensor> {
        if segments == 0 || segments > self.len() {
            let message = format!(
                "{segments} segments of {} layers: give from 1 to as many as there are layers",
                self.len()
            );
            return Err(Error::invalid("forward_checkpointed", message));
        }
        let caller = call::caller();
        let length = self.len() / segments;
        let (first, last) = self.layers.split_at(length * (segments - 1));
        let mut out = input.clone();
        for (k, segment) in first.chunks(length).enumerate() {
            out = checkpoint(|inputs| run(segment, k * length, &inputs[0], caller), &[out])?;
        }
        run(last, first.len(), &out, caller)
    }

    fn run(&self, input: &Tensor, caller: Location) -> Result<Tensor> {
        run(&self.layers, 0, input, caller)
    }
}

/// The output of the last of some layers, which begin at position `first` of their sequence.
fn run(layers: &[Box<dyn Layer>], first: usize, input: &Tensor, caller: Location) -> Result<Tensor> {
    let mut out = input.clone();
    for (index, layer) in layers.iter().enumerate() {
        let (calls, begun) = (call::count(), begin_layer_call());
        let next = call::dispatch(&**layer, &out, caller);
        // A layer that recorded no call, neither its own nor another layer's, is a user's layer as a whole.
        let next = if call::count() == calls { call::record(&**layer, begun, next) } else { next };
        out = next.map_err(|error| error.in_layer(first + index, || call::type_name(&**layer)))?;
    }
    Ok(out)
}

impl Layer for Sequential {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.run(input, call::caller())
    }
}

impl Module for Sequential {
    fn visit(&self, visitor: &mut Visitor) {
        self.layers.visit(visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.layers.visit_mut(visitor);
    }
}

/// Formats the layers as PyTorch does: one per line, with its position.
impl fmt::Debug for Sequential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.layers.is_empty() {
            return f.write_str("Sequential()");
        }
        f.write_str("Sequential(\n")?;
        for (i, layer) in self.layers.iter().enumerate() {
            let text = if f.alternate() { format!("{layer:#?}") } else { format!("{layer:?}") };
            writeln!(f, "  ({i}): {}", text.replace('\n', "\n  "))?;
        }
        f.write_str(")")
    }
}
