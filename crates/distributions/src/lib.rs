//! Probability distributions as objects, as `torch.distributions` has them: draws, densities, entropies,
//! divergences.
//!
//! A distribution holds its parameters, tensors that may require gradients. They broadcast to its *batch
//! shape*: one independent distribution for each element. A draw of one distribution has its *event shape*:
//! `[]` for a number, `[n]` for a vector. [`Distribution::sample`] of shape `S` gives `S + batch + event`,
//! and [`Distribution::log_prob`] of such a tensor `S + batch`.
//!
//! | | [`Reparameterized`] | [`Cumulative`] |
//! |---|---|---|
//! | [`Normal`], [`LogNormal`], [`Laplace`], [`Uniform`], [`Exponential`] | yes | yes |
//! | `MultivariateNormal` (feature `linalg`) | yes | |
//! | [`Gamma`], [`Beta`], [`Dirichlet`] | yes | |
//! | [`Bernoulli`], [`Binomial`], [`Categorical`], [`Poisson`] | | |
//! | [`Independent`]: batch axes as event axes | as its base | |
//!
//! **Gradients.** Densities, entropies and divergences have gradients in values and parameters. Draws have
//! them where a distribution is [`Reparameterized`]. The other distributions draw counts and categories,
//! which are no differentiable functions of a parameter: multiply `log_prob` of a draw by its cost instead.
//! `Gamma`, `Beta` and `Dirichlet` are drawn by rejection and have implicit gradients: the derivative of a
//! draw at a fixed quantile, by PyTorch's approximations, within 5·10⁻⁴ of it.
//!
//! **Checks.** Constructors check shapes, dtypes and devices. They do not read values, which would wait for
//! the device: [`Distribution::validate`] reads them and names the parameter that is out of its range.
//!
//! A step of REINFORCE, for a policy that chooses among four actions:
//!
//! ```
//! use autograd::TensorGrad;
//! use distributions::{Categorical, Distribution};
//! use tensor_core::{Generator, Tensor, caller_line};
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

use tensor_core::{Generator, Result, Shape, Tensor, caller_line};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();

/// A batch of probability distributions. `torch.distributions.Distribution`.
pub trait Distribution {
    /// The shape of the batch: one distribution, with its own parameters, for each element.
    fn batch_shape(&self) -> Shape;

    /// The shape of one draw of one distribution. The default is `[]`, a number.
    fn event_shape(&self) -> Shape {
        Shape::scalar()
    }

    /// [`Distribution::sample`] in a form that a `dyn Distribution` can call.
    ///
    /// # Errors
    /// As [`Distribution::sample`].
    fn draw(&self, shape: Shape, rng: &Generator) -> Result<Tensor>;

    /// Draws `shape + batch + event`, without a gradient. The random numbers come from `rng`, whichever
    /// device the parameters are on.
    ///
    /// # Errors
    /// More elements than the device holds. [`Categorical`], [`Poisson`] and [`Binomial`] read their
    /// parameters, and report values that are out of range.
    #[track_caller]
    fn sample(&self, shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor>
    where
        Self: Sized,
    {
        let _line = caller_line();
        self.draw(shape.into(), rng)
    }

    /// The logarithm of the density, or of the probability, at `value`, which broadcasts with `batch +
    /// event`. The result is without the event axes, and −∞ where the density is 0.
    ///
    /// # Errors
    /// A value that does not broadcast, or is on another device.
    fn log_prob(&self, value: &Tensor) -> Result<Tensor>;

    /// The entropy in nats, the expectation of −[`log_prob`](Distribution::log_prob), in the shape of the
    /// batch.
    ///
    /// # Errors
    /// A distribution without a formula for it ([`Poisson`], [`Binomial`]).
    fn entropy(&self) -> Result<Tensor>;

    /// The mean, `batch + event`.
    ///
    /// # Errors
    /// A distribution without a mean ([`Categorical`]).
    fn mean(&self) -> Result<Tensor>;

    /// The variance, `batch + event`.
    ///
    /// # Errors
    /// As [`Distribution::mean`].
    fn variance(&self) -> Result<Tensor>;

    /// The standard deviation, `batch + event`: the square root of the variance.
    ///
    /// # Errors
    /// As [`Distribution::mean`].
    #[track_caller]
    fn stddev(&self) -> Result<Tensor> {
        Ok(self.variance()?.sqrt())
    }

    /// Reads the parameters, and reports the first that is out of its range: PyTorch's `validate_args`, on
    /// request.
    ///
    /// # Errors
    /// A parameter out of its range, by name.
    fn validate(&self) -> Result<()>;
}

/// A distribution whose draws are differentiable functions of its parameters and of noise. PyTorch's
/// `has_rsample`.
pub trait Reparameterized: Distribution {
    /// [`Reparameterized::rsample`] in a form that a `dyn Reparameterized` can call.
    ///
    /// # Errors
    /// As [`Distribution::sample`].
    fn draw_reparameterized(&self, shape: Shape, rng: &Generator) -> Result<Tensor>;

    /// Draws as [`Distribution::sample`] does, with gradients in the parameters.
    ///
    /// # Errors
    /// As [`Distribution::sample`].
    #[track_caller]
    fn rsample(&self, shape: impl Into<Shape>, rng: &Generator) -> Result<Tensor>
    where
        Self: Sized,
    {
        let _line = caller_line();
        self.draw_reparameterized(shape.into(), rng)
    }
}

/// A distribution with formulas for its cumulative distribution function and the inverse.
pub trait Cumulative: Distribution {
    /// The cumulative distribution function: the probability of a draw that is at most `value`.
    ///
    /// # Errors
    /// A value that does not broadcast with the batch, or is on another device.
    fn cdf(&self, value: &Tensor) -> Result<Tensor>;

    /// The inverse of [`Cumulative::cdf`]: the quantile of this probability. NaN for a probability outside
    /// [0, 1].
    ///
    /// # Errors
    /// As [`Cumulative::cdf`].
    fn icdf(&self, probability: &Tensor) -> Result<Tensor>;
}
