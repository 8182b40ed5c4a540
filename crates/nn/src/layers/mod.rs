//! Layers: modules that map one tensor to another.

mod activation;
mod attention;
mod call;
mod checkpointed;
mod conv;
mod distance;
mod dropout;
mod embedding;
mod flatten;
mod frozen_norm;
mod hooked;
mod linear;
mod norm;
mod pool;
mod recurrent;
mod resize;
mod sequential;
mod transformer;

pub use activation::{
    Celu, Elu, Gelu, GeluTanh, Glu, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, LeakyRelu, LogSigmoid,
    LogSoftmax, Mish, Prelu, Relu, Relu6, Rrelu, Selu, Sigmoid, Silu, Softmax, Softmax2d, Softmin, Softplus,
    Softshrink, Softsign, Tanh, Tanhshrink, Threshold,
};
pub use attention::{
    AttentionMasks, InProjection, KeyValueCache, MultiHeadAttentionOptions, MultiheadAttention,
    MultiheadAttentionConfig, multi_head_attention_forward,
};
pub(crate) use call::{Call, recorded, with_hook};
pub use checkpointed::Checkpointed;
pub use conv::{
    Conv, Conv1d, Conv2d, Conv3d, ConvConfig, ConvTranspose, ConvTranspose1d, ConvTranspose2d,
    ConvTranspose3d, ConvTransposeConfig,
};
pub use distance::{CosineSimilarity, LocalResponseNorm, PairwiseDistance};
pub use dropout::{
    AlphaDropout, ChannelDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout,
    StochasticDepth,
};
pub use embedding::{Embedding, EmbeddingBag, EmbeddingBagConfig, EmbeddingConfig};
pub use flatten::{Flatten, Identity, Unflatten};
pub use frozen_norm::FrozenBatchNorm2d;
pub use hooked::Hooked;
pub use linear::{Bilinear, Linear, LinearConfig};
pub use norm::{
    BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormConfig, GroupNorm, InstanceNorm,
    InstanceNorm1d, InstanceNorm2d, InstanceNorm3d, LayerNorm, LayerNormConfig, RmsNorm,
};
#[doc(hidden)]
pub use norm::{Channels, Running};
pub use pool::{
    AvgPool, AvgPool1d, AvgPool2d, AvgPool3d, LpPool, LpPool1d, LpPool2d, LpPool3d, MaxPool, MaxPool1d,
    MaxPool2d, MaxPool3d, MaxUnpool, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d,
};
pub use recurrent::{Gru, GruCell, Lstm, LstmCell, Rnn, RnnCell, RnnConfig};
pub use resize::{
    AdaptiveAvgPool, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool,
    AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d, ChannelShuffle, CircularPad, CircularPad1d,
    CircularPad2d, CircularPad3d, Fold, PixelShuffle, PixelUnshuffle, ReflectionPad, ReflectionPad1d,
    ReflectionPad2d, ReflectionPad3d, ReplicationPad, ReplicationPad1d, ReplicationPad2d, ReplicationPad3d,
    Sides, Unfold, Upsample, ZeroPad, ZeroPad1d, ZeroPad2d, ZeroPad3d,
};
pub use sequential::Sequential;
pub use transformer::{
    TransformerActivation, TransformerConfig, TransformerDecoder, TransformerDecoderLayer,
    TransformerEncoder, TransformerEncoderLayer,
};

use std::{fmt, sync::Arc};

use tensor_core::{Result, Tensor};

use crate::Module;

/// A module that maps one tensor to another, so that it can be part of a [`Sequential`] or a `Box<dyn
/// Layer>`.
///
/// ```
/// use nn::{Layer, Linear, Module, Sequential};
/// use tensor_core::{Generator, Result, Tensor};
///
/// #[derive(Module, Debug)]
/// struct Residual { fc: Linear }
///
/// impl Layer for Residual {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         x.add(&self.fc.forward(x)?.relu())
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let device = backend_cpu::cpu();
/// let rng = Generator::seed(0, &device);
/// let residual = Residual { fc: Linear::new(4, 4, &rng)? };
/// let model = Sequential::new().add(residual).add(Linear::new(4, 2, &rng)?);
/// assert_eq!(model.forward(&Tensor::ones([3, 4], &device)?)?.dims(), [3, 2]);
/// # Ok(()) }
/// ```
///
/// Errors and tensors of a built-in layer name the line that called it: for a layer in a `Sequential` or a
/// `Box`, that of the user's `forward`. A bare `&dyn Layer` does not pass on the line; call
/// [`Sequential::forward`] or a `Box` if that matters.
pub trait Layer: Module + fmt::Debug + Send + Sync {
    /// The output for an input.
    ///
    /// # Errors
    /// An input that does not fit the layer.
    // Not `#[track_caller]`: within a user's layer, lines are those of that layer.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;
}

/// Pointers to layers are layers. They stand between the caller's line and a layer whose type is known only
/// at run time.
macro_rules! pointer {
    ($($pointer:ident)*) => {$(
        impl<L: Layer + ?Sized> Layer for $pointer<L> {
            #[track_caller]
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                call::dispatch(&**self, input, call::caller())
            }
        }
    )*};
}
pointer!(Box Arc);

/// Evaluates a layer's output, and notes the call if calls are recorded. A macro, because an argument of a
/// function would be evaluated in the wrong order, and a closure would lose the caller's line.
macro_rules! record {
    ($layer:expr, $output:expr) => {{
        let begun = tensor_core::begin_layer_call();
        $crate::layers::call::record($layer, begun, $output)
    }};
}
pub(crate) use record;

/// A layer whose inherent `forward` equals [`Layer::forward`], so that it can be called without importing
/// the trait.
macro_rules! layer {
    ($($layer:ty),*) => {$(
        impl $crate::Layer for $layer {
            #[track_caller]
            fn forward(&self, input: &tensor_core::Tensor) -> tensor_core::Result<tensor_core::Tensor> {
                let caller = super::call::caller();
                tensor_core::with_location(caller, || <$layer>::forward(self, input))
            }
        }
    )*};
}
pub(crate) use layer;

/// A layer with a weight and an optional bias is a module with both.
macro_rules! weight_and_bias {
    ($layer:ty $(, $($generic:tt)+)?) => {
        impl $(<$($generic)+>)? $crate::Module for $layer {
            fn visit(&self, visitor: &mut $crate::Visitor) {
                visitor.parameter("weight", &self.weight);
                if let Some(bias) = &self.bias {
                    visitor.parameter("bias", bias);
                }
            }
            fn visit_mut(&mut self, visitor: &mut $crate::VisitorMut) {
                visitor.parameter("weight", &mut self.weight);
                if let Some(bias) = &mut self.bias {
                    visitor.parameter("bias", bias);
                }
            }
        }
    };
}
pub(crate) use weight_and_bias;

/// A layer with a weight, an optional bias and adapters beside the weight.
macro_rules! adapted_weight_and_bias {
    ($layer:ty, |$this:ident| $kind:expr $(, $($generic:tt)+)?) => {
        impl $(<$($generic)+>)? $crate::Module for $layer {
            fn visit(&self, visitor: &mut $crate::Visitor) {
                visitor.parameter("weight", &self.weight);
                if let Some(bias) = &self.bias {
                    visitor.parameter("bias", bias);
                }
                let $this = self;
                self.adapters.visit(&self.weight, $kind, visitor);
            }
            fn visit_mut(&mut self, visitor: &mut $crate::VisitorMut) {
                visitor.parameter("weight", &mut self.weight);
                if let Some(bias) = &mut self.bias {
                    visitor.parameter("bias", bias);
                }
                self.adapters.visit_mut(visitor);
            }
        }
    };
}
pub(crate) use adapted_weight_and_bias;

/// A layer without parameters is a module without tensors.
macro_rules! stateless {
    ($($layer:ty),*) => {$(
        impl $crate::Module for $layer {
            fn visit(&self, _: &mut $crate::Visitor) {}
            fn visit_mut(&mut self, _: &mut $crate::VisitorMut) {}
        }
    )*};
}
pub(crate) use stateless;
