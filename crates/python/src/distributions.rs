//! Taper's distributions behind one class; `python/taper/distributions` has PyTorch's classes over it.

use pyo3::{prelude::*, types::PyTuple};
use taper::{
    Device, Result, Tensor,
    distributions::{
        Bernoulli, Beta, Binomial, Categorical, Cumulative, Dirichlet, Distribution, Exponential, Gamma,
        Laplace, LogNormal, MultivariateNormal, Normal, Poisson, Reparameterized, Uniform, kl_divergence,
    },
};

use crate::{
    args::Value,
    ops::PyGenerator,
    tensor::{PyTensor, made, run},
};

/// A distribution of each kind.
enum Kind {
    Bernoulli(Bernoulli),
    Beta(Beta),
    Binomial(Binomial),
    Categorical(Categorical),
    Dirichlet(Dirichlet),
    Exponential(Exponential),
    Gamma(Gamma),
    Laplace(Laplace),
    LogNormal(LogNormal),
    MultivariateNormal(MultivariateNormal),
    Normal(Normal),
    Poisson(Poisson),
    Uniform(Uniform),
}

impl Kind {
    /// The distribution of this name with these parameters.
    fn new(name: &str, parameters: &[Tensor]) -> Result<Kind> {
        Ok(match (name, parameters) {
            ("Bernoulli", [probs]) => Kind::Bernoulli(Bernoulli::from_probs(probs)?),
            ("BernoulliOfLogits", [logits]) => Kind::Bernoulli(Bernoulli::from_logits(logits)?),
            ("Beta", [a, b]) => Kind::Beta(Beta::new(a, b)?),
            ("Binomial", [count, probs]) => Kind::Binomial(Binomial::from_probs(count, probs)?),
            ("BinomialOfLogits", [count, logits]) => Kind::Binomial(Binomial::from_logits(count, logits)?),
            ("Categorical", [probs]) => Kind::Categorical(Categorical::from_probs(probs)?),
            ("CategoricalOfLogits", [logits]) => Kind::Categorical(Categorical::from_logits(logits)?),
            ("Dirichlet", [concentration]) => Kind::Dirichlet(Dirichlet::new(concentration)?),
            ("Exponential", [rate]) => Kind::Exponential(Exponential::new(rate)?),
            ("Gamma", [concentration, rate]) => Kind::Gamma(Gamma::new(concentration, rate)?),
            ("Laplace", [loc, scale]) => Kind::Laplace(Laplace::new(loc, scale)?),
            ("LogNormal", [loc, scale]) => Kind::LogNormal(LogNormal::new(loc, scale)?),
            ("MultivariateNormal", [loc, scale_tril]) => {
                Kind::MultivariateNormal(MultivariateNormal::from_scale_tril(loc, scale_tril)?)
            }
            ("Normal", [loc, scale]) => Kind::Normal(Normal::new(loc, scale)?),
            ("Poisson", [rate]) => Kind::Poisson(Poisson::new(rate)?),
            ("Uniform", [low, high]) => Kind::Uniform(Uniform::new(low, high)?),
            (name, parameters) => {
                let message = format!("no distribution {name} of {} parameters", parameters.len());
                return Err(taper::Error::invalid("distributions", message));
            }
        })
    }

    fn any(&self) -> &dyn Distribution {
        match self {
            Kind::Bernoulli(this) => this,
            Kind::Beta(this) => this,
            Kind::Binomial(this) => this,
            Kind::Categorical(this) => this,
            Kind::Dirichlet(this) => this,
            Kind::Exponential(this) => this,
            Kind::Gamma(this) => this,
            Kind::Laplace(this) => this,
            Kind::LogNormal(this) => this,
            Kind::MultivariateNormal(this) => this,
            Kind::Normal(this) => this,
            Kind::Poisson(this) => this,
            Kind::Uniform(this) => this,
        }
    }

    fn reparameterized(&self) -> Option<&dyn Reparameterized> {
        match self {
            Kind::Beta(this) => Some(this),
            Kind::Dirichlet(this) => Some(this),
            Kind::Exponential(this) => Some(this),
            Kind::Gamma(this) => Some(this),
            Kind::Laplace(this) => Some(this),
            Kind::LogNormal(this) => Some(this),
            Kind::MultivariateNormal(this) => Some(this),
            Kind::Normal(this) => Some(this),
            Kind::Uniform(this) => Some(this),
            Kind::Bernoulli(_) | Kind::Binomial(_) | Kind::Categorical(_) | Kind::Poisson(_) => None,
        }
    }

    fn cumulative(&self) -> Option<&dyn Cumulative> {
        match self {
            Kind::Exponential(this) => Some(this),
            Kind::Laplace(this) => Some(this),
            Kind::LogNormal(this) => Some(this),
            Kind::Normal(this) => Some(this),
            Kind::Uniform(this) => Some(this),
            // The package raises PyTorch's error for the others.
            _ => None,
        }
    }

    /// The divergence from another distribution, or `None` if there is no formula for the pair.
    fn divergence(&self, other: &Kind) -> Option<Result<Tensor>> {
        macro_rules! pairs {
            ($($p:ident: $($q:ident)*;)*) => {
                match (self, other) {
                    $($((Kind::$p(p), Kind::$q(q)) => Some(kl_divergence(p, q)),)*)*
                    _ => None,
                }
            };
        }
        pairs! {
            Bernoulli: Bernoulli Poisson;
            Beta: Beta Exponential Gamma Normal Uniform;
            Binomial: Binomial;
            Categorical: Categorical;
            Dirichlet: Dirichlet;
            Exponential: Beta Exponential Gamma Normal Uniform;
            Gamma: Beta Exponential Gamma Normal Uniform;
            Laplace: Beta Exponential Gamma Laplace Normal Uniform;
            LogNormal: LogNormal;
            MultivariateNormal: MultivariateNormal;
            Normal: Beta Exponential Gamma Laplace Normal Uniform;
            Poisson: Bernoulli Binomial Poisson;
            Uniform: Beta Exponential Gamma Normal Uniform;
        }
    }
}

/// A distribution of Taper, and the device of its parameters.
#[pyclass(name = "_Distribution", module = "taper._taper", frozen)]
struct PyDistribution(Kind, Device);

/// The error of a method that a distribution does not have; the package raises PyTorch's before it.
fn missing(method: &'static str) -> taper::Error {
    taper::Error::invalid(method, "this distribution does not have it")
}

#[pymethods]
impl PyDistribution {
    #[new]
    fn new(py: Python<'_>, name: &str, parameters: Vec<Value>) -> PyResult<PyDistribution> {
        let parameters: Vec<Tensor> = parameters.into_iter().map(|parameter| parameter.0).collect();
        let (name, device) = (name.to_string(), parameters.first().map_or_else(taper::cpu, Tensor::device));
        run(py, move || Kind::new(&name, &parameters)).map(|kind| PyDistribution(kind, device))
    }

    fn batch_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.any().batch_shape().dims())
    }

    fn event_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.any().event_shape().dims())
    }

    #[pyo3(signature = (shape, generator = None))]
    fn sample(
        &self,
        py: Python<'_>,
        shape: Vec<usize>,
        generator: Option<PyRef<'_, PyGenerator>>,
    ) -> PyResult<PyTensor> {
        let rng = PyGenerator::of(generator, &self.1);
        made(py, "", || Ok(self.0.any().draw(shape.into(), &rng)?.detach()))
    }

    #[pyo3(signature = (shape, generator = None))]
    fn rsample(
        &self,
        py: Python<'_>,
        shape: Vec<usize>,
        generator: Option<PyRef<'_, PyGenerator>>,
    ) -> PyResult<PyTensor> {
        let rng = PyGenerator::of(generator, &self.1);
        made(py, "", || match self.0.reparameterized() {
            Some(this) => this.draw_reparameterized(shape.into(), &rng),
            None => Err(missing("rsample")),
        })
    }

    fn log_prob(&self, py: Python<'_>, value: Value) -> PyResult<PyTensor> {
        made(py, "", || self.0.any().log_prob(&value.0))
    }

    fn entropy(&self, py: Python<'_>) -> PyResult<PyTensor> {
        made(py, "", || self.0.any().entropy())
    }

    fn mean(&self, py: Python<'_>) -> PyResult<PyTensor> {
        made(py, "", || self.0.any().mean())
    }

    fn variance(&self, py: Python<'_>) -> PyResult<PyTensor> {
        made(py, "", || self.0.any().variance())
    }

    fn cdf(&self, py: Python<'_>, value: Value) -> PyResult<PyTensor> {
        made(py, "", || match self.0.cumulative() {
            Some(this) => this.cdf(&value.0),
            None => Err(missing("cdf")),
        })
    }

    fn icdf(&self, py: Python<'_>, value: Value) -> PyResult<PyTensor> {
        made(py, "", || match self.0.cumulative() {
            Some(this) => this.icdf(&value.0),
            None => Err(missing("icdf")),
        })
    }

    /// The divergence from another distribution; `None` if there is no formula for the pair.
    fn kl_divergence(&self, py: Python<'_>, other: &Bound<'_, PyDistribution>) -> PyResult<Option<PyTensor>> {
        let other = other.get();
        let found = run(py, || self.0.divergence(&other.0).transpose())?;
        Ok(found.map(PyTensor::plain))
    }
}

/// Adds the class of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyDistribution>()
}
