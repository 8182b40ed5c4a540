//! Dropout.

use std::fmt;

use tensor_core::{Generator, Result, Tensor};

use super::{layer, record};
use crate::{Module, Training, Visitor, VisitorMut, functions};

/// In training, sets each element to 0 with probability p and scales the others by 1 / (1 − p); in
/// evaluation, returns the input itself. `torch.nn.Dropout`.
///
/// Srivastava et al.: Dropout, a simple way to prevent neural networks from overfitting (2014).
///
/// Each layer draws from its own random stream, whose seed it takes from the generator it is made with; it
/// drops the same elements on every device. The position of the stream is not in the state dict, as in
/// PyTorch, but in [`Module::rng_state`]: with both, a resumed training drops the same elements as one that
/// was not stopped. A clone of the layer draws from the same stream.
#[derive(Clone)]
pub struct Dropout {
    p: f64,
    rng: Generator,
    training: Training,
}

impl Dropout {
    /// A layer that drops with probability `p`.
    ///
    /// # Errors
    /// A `p` outside [0, 1].
    #[track_caller]
    pub fn new(p: f64, rng: &Generator) -> Result<Dropout> {
        functions::check_probability("Dropout", p)?;
        let rng = Generator::seed(rng.next_u64(), rng.device());
        Ok(Dropout { p, rng, training: Training::default() })
    }

    /// The probability of dropping an element.
    pub fn p(&self) -> f64 {
        self.p
    }

    /// The random stream of the layer.
    pub(super) fn rng(&self) -> &Generator {
        &self.rng
    }
}

impl Dropout {
    /// The input with elements dropped, if the layer is in training mode.
    ///
    /// # Errors
    /// A device that cannot draw that many numbers.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        record!(self, functions::dropout(input, self.p, self.training.get(), &self.rng))
    }
}

impl fmt::Debug for Dropout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dropout(p={:?})", self.p)
    }
}

layer!(Dropout);

/// Dropout of whole channels over `D` axes: see [`functional::dropout2d`](crate::functional::dropout2d). Use
/// it as [`Dropout1d`], [`Dropout2d`] and [`Dropout3d`]. It has its own random stream, as [`Dropout`] has.
#[derive(Clone)]
pub struct ChannelDropout<const D: usize>(Dropout);

/// Drops whole channels of `[N, C, L]`. `torch.nn.Dropout1d`.
pub type Dropout1d = ChannelDropout<1>;
/// Drops whole channels of images `[N, C, H, W]`. `torch.nn.Dropout2d`.
pub type Dropout2d = ChannelDropout<2>;
/// Drops whole channels of volumes `[N, C, D, H, W]`. `torch.nn.Dropout3d`.
pub type Dropout3d = ChannelDropout<3>;

impl<const D: usize> ChannelDropout<D> {
    /// A layer that drops with probability `p`.
    ///
    /// # Errors
    /// A `p` outside [0, 1].
    #[track_caller]
    pub fn new(p: f64, rng: &Generator) -> Result<ChannelDropout<D>> {
        Ok(ChannelDropout(Dropout::new(p, rng)?))
    }

    /// The input with channels dropped, if the layer is in training mode.
    ///
    /// # Errors
    /// Another number of axes, or a device that cannot draw that many numbers.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let Dropout { p, rng, training } = &self.0;
        record!(self, functions::channel_dropout::<D>(input, *p, training.get(), rng))
    }
}

impl<const D: usize> fmt::Debug for ChannelDropout<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dropout{D}d(p={:?})", self.0.p)
    }
}

layer!(ChannelDropout<1>, ChannelDropout<2>, ChannelDropout<3>);

impl<const D: usize> Module for ChannelDropout<D> {
    fn visit(&self, visitor: &mut Visitor) {
        self.0.visit(visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.0.visit_mut(visitor);
    }
}

/// Drops the residual branch of whole examples: see
/// [`functional::stochastic_depth`](crate::functional::stochastic_depth). It has its own random stream, as
/// [`Dropout`] has. `torchvision.ops.StochasticDepth`.
#[derive(Clone)]
#[doc(alias = "DropPath")]
pub struct StochasticDepth {
    dropout: Dropout,
    batch: bool,
}

impl StochasticDepth {
    /// A layer that drops each example with probability `p`: torchvision's mode `"row"`.
    ///
    /// # Errors
    /// A `p` outside [0, 1].
    #[track_caller]
    pub fn new(p: f64, rng: &Generator) -> Result<StochasticDepth> {
        Ok(StochasticDepth { dropout: Dropout::new(p, rng)?, batch: false })
    }

    /// A layer that drops all examples together with probability `p`: torchvision's mode `"batch"`.
    ///
    /// # Errors
    /// A `p` outside [0, 1].
    #[track_caller]
    pub fn of_batch(p: f64, rng: &Generator) -> Result<StochasticDepth> {
        Ok(StochasticDepth { dropout: Dropout::new(p, rng)?, batch: true })
    }

    /// The input with examples dropped, if the layer is in training mode.
    ///
    /// # Errors
    /// An input without axes, or a device that cannot draw that many numbers.
    #[track_caller]
    pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let Dropout { p, rng, training } = &self.dropout;
        record!(self, functions::stochastic_depth(input, *p, self.batch, training.get(), rng))
    }
}

impl fmt::Debug for StochasticDepth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.batch { "batch" } else { "row" };
        write!(f, "StochasticDepth(p={:?}, mode={mode})", self.dropout.p)
    }
}

layer!(StochasticDepth);

impl Module for StochasticDepth {
    fn visit(&self, visitor: &mut Visitor) {
        self.dropout.visit(visitor);
    }
    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        self.dropout.visit_mut(visitor);
    }
}

impl Module for Dropout {
    fn visit(&self, visitor: &mut Visitor) {
        visitor.generator(&self.rng);
        visitor.training(&self.training);
    }
    fn visit_mut(&mut self, _: &mut VisitorMut) {}
}

macro_rules! alpha_dropouts {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        /// It has its own random stream, as [`Dropout`] has.
        #[derive(Clone)]
        pub struct $name(Dropout);

        impl $name {
            /// A layer that drops with probability `p`.
            ///
            /// # Errors
            /// A `p` outside [0, 1].
            #[track_caller]
            pub fn new(p: f64, rng: &Generator) -> Result<$name> {
                Ok($name(Dropout::new(p, rng)?))
            }

            /// The input with elements dropped, if the layer is in training mode.
            ///
            /// # Errors
            /// A dtype that is not floating-point, too few axes, or a device that cannot draw that many
            /// numbers.
            #[track_caller]
            pub fn forward(&self, input: &Tensor) -> Result<Tensor> {
                let Dropout { p, rng, training } = &self.0;
                record!(self, functions::$function(input, *p, training.get(), rng))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}(p={:?})", stringify!($name), self.0.p)
            }
        }

        layer!($name);

        impl Module for $name {
            fn visit(&self, visitor: &mut Visitor) {
                self.0.visit(visitor);
            }
            fn visit_mut(&mut self, visitor: &mut VisitorMut) {
                self.0.visit_mut(visitor);
            }
        }
    )*};
}

alpha_dropouts! {
    /// Dropout that preserves the mean and variance of SELU's outputs: see
    /// [`functional::alpha_dropout`](crate::functional::alpha_dropout).
    /// `torch.nn.AlphaDropout`.
    AlphaDropout = alpha_dropout;
    /// Alpha dropout of whole channels: see
    /// [`functional::feature_alpha_dropout`](crate::functional::feature_alpha_dropout).
    /// `torch.nn.FeatureAlphaDropout`.
    FeatureAlphaDropout = feature_alpha_dropout;
}
