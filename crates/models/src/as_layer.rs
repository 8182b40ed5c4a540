//! The macro that makes a network with one input and one output a [`nn::Layer`].

/// A network or block whose inherent `forward` is that of [`Layer`].
macro_rules! layer {
    ($($layer:ty),*) => {$(
        impl nn::Layer for $layer {
            fn forward(&self, input: &tensor_core::Tensor) -> tensor_core::Result<tensor_core::Tensor> {
                <$layer>::forward(self, input)
            }
        }
    )*};
}
pub(crate) use layer;
