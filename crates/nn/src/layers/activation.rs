//! Activation functions as layers, one row of a table each. As functions they are methods of [`Tensor`].

use tensor_core::{Result, Tensor};

use super::stateless;
use crate::Layer;

macro_rules! activation {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        stateless!($name);

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, input: &Tensor) -> Result<Tensor> { Ok(input.$method()) }
        }
    )*};
}

activation! {
    /// max(x, 0). `torch.nn.ReLU`.
    ReLU => relu;
    /// 1 / (1 + e⁻ˣ). `torch.nn.Sigmoid`.
    Sigmoid => sigmoid;
    /// tanh x. `torch.nn.Tanh`.
    Tanh => tanh;
    /// x · Φ(x), by the error function. `torch.nn.GELU`.
    Gelu => gelu;
    /// x · sigmoid(x). `torch.nn.SiLU`.
    Silu => silu;
}

macro_rules! along_axis {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            axis: isize,
        }

        impl $name {
            /// Along this axis, which may count from the end.
            pub fn new(axis: isize) -> $name { $name { axis } }
        }

        stateless!($name);

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, input: &Tensor) -> Result<Tensor> { input.$method(self.axis) }
        }
    )*};
}

along_axis! {
    /// eˣ / Σeˣ along an axis. `torch.nn.Softmax`.
    Softmax => softmax;
    /// x − ln Σeˣ along an axis. `torch.nn.LogSoftmax`.
    LogSoftmax => log_softmax;
}
