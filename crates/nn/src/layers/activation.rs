//! Activation functions as layers, one row of a table each. As functions they are methods of [`Tensor`].

use std::fmt;

use tensor_core::{Result, Tensor};

use super::{layer, record, stateless};

macro_rules! activation {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        pub struct $name;

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "()"))
            }
        }

        impl $name {
            /// The function of every element.
            ///
            /// # Errors
            /// None; the signature is that of every layer.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> { record(self, Ok(input.$method())) }
        }

        layer!($name);
        stateless!($name);
    )*};
}

activation! {
    /// max(x, 0). `torch.nn.ReLU`.
    #[doc(alias = "ReLU")]
    Relu => relu;
    /// 1 / (1 + e⁻ˣ). `torch.nn.Sigmoid`.
    Sigmoid => sigmoid;
    /// tanh x. `torch.nn.Tanh`.
    Tanh => tanh;
    /// x · Φ(x), by the error function. `torch.nn.GELU`.
    #[doc(alias = "GELU")]
    Gelu => gelu;
    /// x · sigmoid(x). `torch.nn.SiLU`.
    #[doc(alias = "SiLU")]
    #[doc(alias = "Swish")]
    Silu => silu;
}

macro_rules! along_axis {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name {
            axis: isize,
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(axis={})"), self.axis)
            }
        }

        impl $name {
            /// Along this axis, which may count from the end.
            pub fn new(axis: isize) -> $name { $name { axis } }

            /// The function of every line along the axis.
            ///
            /// # Errors
            /// No such axis, or a dtype that is not floating-point.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> { record(self, input.$method(self.axis)) }
        }

        layer!($name);
        stateless!($name);
    )*};
}

along_axis! {
    /// eˣ / Σeˣ along an axis. `torch.nn.Softmax`.
    Softmax => softmax;
    /// x − ln Σeˣ along an axis. `torch.nn.LogSoftmax`.
    LogSoftmax => log_softmax;
}
