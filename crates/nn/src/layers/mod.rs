//! Layers: modules that map one tensor to another.

mod activation;
mod dropout;
mod embedding;
mod flatten;
mod linear;
mod sequential;

pub use activation::{Gelu, LogSoftmax, ReLU, Sigmoid, Silu, Softmax, Tanh};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use flatten::{Flatten, Identity};
pub use linear::{Linear, LinearConfig};
pub use sequential::Sequential;

use tensor_core::{Result, Tensor};

use crate::Module;

/// A module that maps one tensor to another, and so can stand in a [`Sequential`].
pub trait Layer: Module + Send + Sync {
    /// The output for an input.
    ///
    /// # Errors
    /// An input that does not fit the layer.
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Result<Tensor>;
}

impl<L: Layer + ?Sized> Layer for Box<L> {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        (**self).forward(input)
    }
}

/// A layer whose own `forward` is [`Layer::forward`], so that it can be called without the trait at hand.
macro_rules! layer {
    ($($layer:ty),*) => {$(
        impl $crate::Layer for $layer {
            #[track_caller]
            fn forward(&self, input: &tensor_core::Tensor) -> tensor_core::Result<tensor_core::Tensor> {
                <$layer>::forward(self, input)
            }
        }
    )*};
}
pub(crate) use layer;

/// A layer without parameters is a module without tensors.
macro_rules! stateless {
    ($($layer:ty),*) => {$(
        impl $crate::Module for $layer {
            fn visit<'a>(&'a self, _: &mut $crate::Visitor<'a>) {}
            fn visit_mut<'a>(&'a mut self, _: &mut $crate::VisitorMut<'a>) {}
        }
    )*};
}
pub(crate) use stateless;
