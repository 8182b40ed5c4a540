//! Activation functions as layers, one row of a table each. As functions they are methods of [`Tensor`].

use std::fmt;

use tensor_core::{Device, Error, Generator, Result, Tensor, default_dtype};

use super::{layer, linear::parameter, record, stateless};
use crate::{Module, Training, Visitor, VisitorMut, functions};

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
            /// Applies the function to every element.
            ///
            /// # Errors
            /// None; the signature is that of every layer.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> { record!(self, Ok(input.$method())) }
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
    /// [`Tensor::gelu_tanh`]: near [`Gelu`], by tanh. `torch.nn.GELU(approximate="tanh")`.
    GeluTanh => gelu_tanh;
    /// x · sigmoid(x). `torch.nn.SiLU`.
    #[doc(alias = "SiLU")]
    #[doc(alias = "Swish")]
    Silu => silu;
    /// ln sigmoid(x). `torch.nn.LogSigmoid`.
    LogSigmoid => logsigmoid;
    /// Scaled [`Elu`] of self-normalizing networks. `torch.nn.SELU`.
    #[doc(alias = "SELU")]
    Selu => selu;
    /// x clamped to [0, 6]. `torch.nn.ReLU6`.
    #[doc(alias = "ReLU6")]
    Relu6 => relu6;
    /// (x + 3) / 6 clamped to [0, 1]. `torch.nn.Hardsigmoid`.
    Hardsigmoid => hardsigmoid;
    /// x · hardsigmoid(x). `torch.nn.Hardswish`.
    Hardswish => hardswish;
    /// x · tanh(softplus(x)). `torch.nn.Mish`.
    Mish => mish;
    /// x / (1 + |x|). `torch.nn.Softsign`.
    Softsign => softsign;
    /// x − tanh x. `torch.nn.Tanhshrink`.
    Tanhshrink => tanhshrink;
}

/// Activations with parameters: the fields with PyTorch's defaults, and the method that takes them.
macro_rules! with_numbers {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident = $default:expr),* } => $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $name { $($(#[$field_doc])* pub $field: f64),* }

        impl Default for $name {
            fn default() -> $name { $name { $($field: $default),* } }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let numbers = [$(format!(concat!(stringify!($field), "={:?}"), self.$field)),*];
                write!(f, concat!(stringify!($name), "({})"), numbers.join(", "))
            }
        }

        impl $name {
            /// Applies the function to every element.
            ///
            /// # Errors
            /// None; the signature is that of every layer.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> { record!(self, Ok(input.$method($(self.$field),*))) }
        }

        layer!($name);
        stateless!($name);
    )*};
}

with_numbers! {
    /// ln(1 + e^(βx)) / β. `torch.nn.Softplus`. See [`Tensor::softplus`].
    Softplus {
        /// β, 1 by default.
        beta = 1.0,
        /// The threshold of β·x above which the result is x itself: 20 by default.
        threshold = 20.0
    } => softplus_with;
    /// x for x > 0 and α·(eˣ − 1) otherwise. `torch.nn.ELU`.
    #[doc(alias = "ELU")]
    Elu {
        /// α, 1 by default.
        alpha = 1.0
    } => elu;
    /// x for x > 0 and α·(e^(x/α) − 1) otherwise. `torch.nn.CELU`.
    #[doc(alias = "CELU")]
    Celu {
        /// α, 1 by default.
        alpha = 1.0
    } => celu;
    /// x for x > 0 and slope·x otherwise. `torch.nn.LeakyReLU`.
    #[doc(alias = "LeakyReLU")]
    LeakyRelu {
        /// The slope below 0: 0.01 by default.
        negative_slope = 0.01
    } => leaky_relu;
    /// x clamped to the bounds. `torch.nn.Hardtanh`.
    Hardtanh {
        /// The lower bound, −1 by default.
        min_val = -1.0,
        /// The upper bound, 1 by default.
        max_val = 1.0
    } => hardtanh;
    /// 0 within [−λ, λ] and x otherwise. `torch.nn.Hardshrink`.
    Hardshrink {
        /// λ, ½ by default.
        lambd = 0.5
    } => hardshrink;
    /// x − λ above λ, x + λ below −λ and 0 between. `torch.nn.Softshrink`.
    Softshrink {
        /// λ, ½ by default; a negative one is taken as 0.
        lambd = 0.5
    } => softshrink;
    /// x above a threshold and a value otherwise. `torch.nn.Threshold`, which has no defaults.
    Threshold {
        /// The threshold, 0 by default.
        threshold = 0.0,
        /// The value, 0 by default.
        value = 0.0
    } => threshold;
}

/// x for x > 0 and weight·x otherwise, with a trainable weight: one, or one for each channel.
/// `torch.nn.PReLU`.
#[derive(Clone)]
#[doc(alias = "PReLU")]
pub struct Prelu {
    /// The weight `[1]` or `[channels]`; initially 0.25.
    pub weight: Tensor,
}

impl Prelu {
    /// A layer with `num_parameters` weights, 1 or the number of channels, of the default dtype (f32).
    /// PyTorch's default is 1.
    ///
    /// # Errors
    /// No weights, a default dtype that the device lacks, or too little memory.
    #[track_caller]
    pub fn new(num_parameters: usize, device: &Device) -> Result<Prelu> {
        if num_parameters == 0 {
            return Err(Error::invalid("PReLU", "no parameters: give 1, or the number of channels"));
        }
        let weight = Tensor::full([num_parameters], 0.25, (default_dtype(), device))?;
        Ok(Prelu { weight: parameter(weight, default_dtype())? })
    }

    /// Applies the function to every element.
    ///
    /// # Errors
    /// Neither one weight nor one for each channel (axis 1), another dtype, another device.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, input.prelu(&self.weight))
    }
}

impl fmt::Debug for Prelu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prelu(num_parameters={})", self.weight.numel())
    }
}

layer!(Prelu);

impl Module for Prelu {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.parameter("weight", &self.weight);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        visitor.parameter("weight", &mut self.weight);
    }
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
            /// A layer along this axis, which may count from the end.
            pub fn new(axis: isize) -> $name { $name { axis } }

            /// Applies the function along the axis.
            ///
            /// # Errors
            /// No such axis, or a dtype that is not floating-point.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> { record!(self, input.$method(self.axis)) }
        }

        layer!($name);
        stateless!($name);
    )*};
}

along_axis! {
    /// eˣ / Σeˣ along an axis. `torch.nn.Softmax`.
    Softmax => softmax;
    /// e⁻ˣ / Σe⁻ˣ along an axis. `torch.nn.Softmin`.
    Softmin => softmin;
    /// x − ln Σeˣ along an axis. `torch.nn.LogSoftmax`.
    LogSoftmax => log_softmax;
    /// The first half of an axis times the sigmoid of the second half. `torch.nn.GLU`.
    #[doc(alias = "GLU")]
    Glu => glu;
}

/// [`Softmax`] over the channels of an image: along axis −3 of `[N, C, H, W]` or `[C, H, W]`.
/// `torch.nn.Softmax2d`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Softmax2d;

impl Softmax2d {
    /// Applies the softmax over channels at every position.
    ///
    /// # Errors
    /// Neither four axes nor three, or a dtype that is not floating-point.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        if !(3..=4).contains(&input.rank()) {
            let message = format!("an input is [N, C, H, W] or [C, H, W], not {}", input.shape());
            return Err(Error::invalid("Softmax2d", message));
        }
        record!(self, input.softmax(-3))
    }
}

layer!(Softmax2d);
stateless!(Softmax2d);

/// The randomized leaky ReLU: x for x > 0 and a·x otherwise, with a drawn from [lower, upper) for each
/// element in training, and the mean of the bounds in evaluation. `torch.nn.RReLU`. See
/// [`functional::rrelu`](crate::functional::rrelu).
#[derive(Clone)]
#[doc(alias = "RReLU")]
pub struct Rrelu {
    bounds: (f64, f64),
    rng: Generator,
    training: Training,
}

impl Rrelu {
    /// A layer with PyTorch's bounds, 1/8 and 1/3. It draws from `rng`, which it shares.
    pub fn new(rng: &Generator) -> Rrelu {
        Rrelu { bounds: (1.0 / 8.0, 1.0 / 3.0), rng: rng.clone(), training: Training::default() }
    }

    /// A layer with other bounds.
    ///
    /// # Errors
    /// Bounds that are not finite or out of order.
    #[track_caller]
    pub fn with_bounds(lower: f64, upper: f64, rng: &Generator) -> Result<Rrelu> {
        functions::check_rrelu(lower, upper)?;
        Ok(Rrelu { bounds: (lower, upper), ..Rrelu::new(rng) })
    }

    /// Applies the function to every element.
    ///
    /// # Errors
    /// A device that cannot draw that many numbers.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (lower, upper) = self.bounds;
        record!(self, functions::rrelu(input, lower, upper, self.training.get(), &self.rng))
    }
}

impl fmt::Debug for Rrelu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rrelu(lower={:?}, upper={:?})", self.bounds.0, self.bounds.1)
    }
}

layer!(Rrelu);

impl Module for Rrelu {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.generator(&self.rng);
        visitor.training(&self.training);
    }
    fn visit_mut(&mut self, _: &mut VisitorMut) {}
}
