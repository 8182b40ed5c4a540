//! Probability distributions as objects, as `torch.distributions` has them: draws, densities, entropies,
//! divergences.
//!
//! A distribution holds its parameters, tensors that may require gradients. They broadcast to its *batch
//! shape*: so many distributions, each on its own. A draw of one has its *event shape*: none for a number,
//! `[n]` for a vector. [`Distribution::sample`] of shape `S` gives `S + batch + event`, and
//! [`Distribution::log_prob`] of such a tensor `S + batch`.
//!
//! | | [`Reparameterized`] | [`Cumulative`] |
//! |---|---|---|
//! | [`Normal`], [`LogNormal`], [`Laplace`], [`Uniform`], [`Exponential`] | yes | yes |
//! | `MultivariateNormal` (feature `linalg`) | yes | |
//! | [`Gamma`], [`Beta`], [`Dirichlet`] | yes | |
//! | [`Bernoulli`], [`Binomial`], [`Categorical`], [`Poisson`] | | |
//! | [`Independent`]: axes of a batch as parts of one event | as its base | |
//!
//! **Gradients.** Densities, entropies and divergences have gradients in values and parameters. Draws have them where a distribution is
//! [`Reparameterized`]; the others draw counts and places, which do not move with a parameter: multiply
//! `log_prob` of a draw by its cost instead. `Gamma`, `Beta` and `Dirichlet` are drawn by rejection, and
//! their gradients are implicit: how a draw moves when its quantile stays, by PyTorch's approximations,
//! within 5·10⁻⁴ of it.
//!
//! **Checks.** Shapes, dtypes and devices are checked where a distribution is made. Values are on a device and are not looked at, so that nothing waits
//! for them: [`Distribution::validate`] reads them and says which parameter is out of its range.
//!
//! A step of REINFORCE, for a policy that chooses among four actions:
//!
//! ```
//! use autograd::TensorGrad;
//! use distributions::{Categorical, Distribution};
//! use tensor_core::{Generator, Tensor};
//!
//! let device = backend_cpu::cpu();
//! let rng = Generator::seed(1, &device);
//! let preferences = Tensor::zeros([8, 4], &device)?.requires_grad();
//! let policy = Categorical::from_logits(&preferences)?;
//! let actions = policy.sample((), &rng)?;
//! let rewards = actions.eq_scalar(2).to_dtype(preferences.dtype())?; // action 2 is the right one
//! let loss = policy.log_prob(&actions)?.mul(&rewards)?.mean().neg();
//! loss.backward()?;
//! assert_eq!(preferences.grad().unwrap().dims(), [8, 4]);
//! # Ok::<(), tensor_core::Error>(())
//! ```
//!
//! The evidence lower bound of a variational autoencoder, with draws that gradients flow through:
//!
//! ```
//! use autograd::TensorGrad;
//! use distributions::{Bernoulli, Distribution, Independent, Normal, Reparameterized, kl_divergence};
//! use tensor_core::{Generator, Tensor};
//!
//! let device = backend_cpu::cpu();
//! let rng = Generator::seed(1, &device);
//! let (image, mean) = (Tensor::ones([8, 3], &device)?, Tensor::zeros([8, 3], &device)?.requires_grad());
//! let posterior = Independent::new(Normal::new(&mean, 0.5)?, 1)?; // what an encoder gave
//! let prior = Independent::new(Normal::new(&mean.zeros_like(), 1.0)?, 1)?;
//! let latent = posterior.rsample((), &rng)?;
//! let likelihood = Independent::new(Bernoulli::from_logits(&latent)?, 1)?; // a decoder would stand here
//! let bound = likelihood.log_prob(&image)?.sub(&kl_divergence(&posterior, &prior)?)?;
//! bound.mean().neg().backward()?;
//! assert_eq!(mean.grad().unwrap().dims(), [8, 3]);
//! # Ok::<(), tensor_core::Error>(())
//! ```

mod bernoulli;
mod binomial;
mod categorical;
mod exponential;
mod gamma;
mod gamma_gradient;
mod independent;
mod kl;
mod laplace;
#[cfg(feature = "linalg")]
mod multivariate_normal;
mod normal;
mod parameters;
mod poisson;
mod uniform;

pub use bernoulli::Bernoulli;
pub use binomial::Binomial;
pub use categorical::Categorical;
pub use exponential::Exponential;
pub use gamma::{Beta, Dirichlet, Gamma};
pub use independent::Independent;
pub use kl::{KlDivergence, kl_divergence};
pub use laplace::Laplace;
#[cfg(feature = "linalg")]
pub use multivariate_normal::MultivariateNormal;
pub use normal::{LogNormal, Normal};
pub use poisson::Poisson;
pub use uniform::Uniform;

use tensor_core::{Generator, Result, Shape, Tensor};

/// The root of these sources, for `taper`: errors name no line in them.
#[doc(hidden)]
pub const ROOT: &str = file!();

/// A batch of probability distributions. `torch.distributions.Distribution`.
pub trait Distribution {
    /// How many distributions there are, each with parameters of its own.
    fn batch_shape(&self) -> Shape;

    /// The shape of one draw of one of them. The default is a number's.
    fn event_shape(&self) -> Shape {
        Shape::scalar()
    }

    /// [`Distribution::sample`], for a `dyn Distribution`.
    ///
    /// # Errors
    /// As [`Distribution::sample`].
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor>;

    /// Draws `shape + batch + event`, without a gradient. The numbers come from `rng`, whatever the device of
    /// the parameters is.
    ///
    /// # Errors
    /// More elements than the device holds. A [`Categorical`], a [`Poisson`] and a [`Binomial`] read their
    /// parameters, and refuse those that make no sense.
    #[track_caller]
    fn sample(&self, shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor>
    where
        Self: Sized,
    {
        self.draw(shape.into(), rng)
    }

    /// The logarithm of the density, or of the probability, at `value`, which broadcasts with `batch +
    /// event`; without the axes of the event. −∞ where a density is 0.
    ///
    /// # Errors
    /// A value that does not broadcast, or is on another device.
    fn log_prob(&self, value: &Tensor) -> Result<Tensor>;

    /// The expectation of −[`log_prob`](Distribution::log_prob), in nats, over the batch.
    ///
    /// # Errors
    /// A distribution without a formula for it ([`Poisson`], [`Binomial`]).
    fn entropy(&self) -> Result<Tensor>;

    /// The expectation, `batch + event`.
    ///
    /// # Errors
    /// A distribution that has none ([`Categorical`]).
    fn mean(&self) -> Result<Tensor>;

    /// The variance, `batch + event`.
    ///
    /// # Errors
    /// As [`Distribution::mean`].
    fn variance(&self) -> Result<Tensor>;

    /// The root of the variance.
    ///
    /// # Errors
    /// As [`Distribution::mean`].
    #[track_caller]
    fn stddev(&self) -> Result<Tensor> {
        Ok(self.variance()?.sqrt())
    }

    /// Reads the parameters, and reports one that is out of its range. PyTorch's `validate_args`, when a user
    /// asks for it.
    ///
    /// # Errors
    /// A parameter out of its range, by name.
    fn validate(&self) -> Result<()>;
}

/// A distribution whose draws are functions of its parameters and of noise, so that gradients flow through
/// them. PyTorch's `has_rsample`.
pub trait Reparameterized: Distribution {
    /// [`Reparameterized::rsample`], for a `dyn Reparameterized`.
    ///
    /// # Errors
    /// As [`Distribution::sample`].
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor>;

    /// The numbers of [`Distribution::sample`], with a gradient in the parameters.
    ///
    /// # Errors
    /// As [`Distribution::sample`].
    #[track_caller]
    fn rsample(&self, shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor>
    where
        Self: Sized,
    {
        self.draw_reparameterized(shape.into(), rng)
    }
}

/// A distribution of numbers with a formula for its distribution function.
pub trait Cumulative: Distribution {
    /// The probability of numbers up to `value`.
    ///
    /// # Errors
    /// A value that does not broadcast with the batch, or is on another device.
    fn cdf(&self, value: &Tensor) -> Result<Tensor>;

    /// The number up to which numbers have this probability: the inverse of [`Cumulative::cdf`]. NaN for a
    /// probability outside [0, 1].
    ///
    /// # Errors
    /// As [`Cumulative::cdf`].
    fn icdf(&self, probability: &Tensor) -> Result<Tensor>;
}
