//! Layers one after the other.

use std::{fmt, panic::Location};

use tensor_core::{Result, Tensor};

use super::{call, record};
use crate::{Layer, Module, Visitor, VisitorMut};

/// Layers one after the other; parameters are named by position, `0.weight`. `torch.nn.Sequential`.
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
/// It is not `Clone`, since layers of your own need not be: build a second one and give it the first's state dict.
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
    /// The first failure of a layer. It names the line that called this, unless a layer of your own has a line of its own.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.run(input, call::caller())
    }

    fn run(&self, input: &Tensor, caller: &'static Location<'static>) -> Result<Tensor> {
        let mut out = input.clone();
        for layer in &self.layers {
            let calls = call::count();
            let next = call::dispatch(&**layer, &out, caller);
            // A layer that did not record its call, nor called any that did, is one of the user's, whole.
            out = if call::count() == calls { record(&**layer, next)? } else { next? };
        }
        Ok(out)
    }
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

/// As PyTorch prints it: one layer a line, with its position.
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
