//! Generators, and tensors of random numbers.

use std::sync::{LazyLock, Mutex};

use pyo3::prelude::*;
use taper::tensor_core::lock;
use taper::{DType, Device, Generator, Tensor};

use crate::{
    args::{Ints, Value},
    device::{At, PyDevice, open},
    dtype::Kind,
    errors::runtime,
    tensor::{PyTensor, made},
};

/// The generators of calls that name none: that of the processor, and one for each other device, seeded
/// alike.
static DEFAULT: LazyLock<Mutex<Vec<Generator>>> = LazyLock::new(|| {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = time.map_or(0, |time| time.as_nanos() as u64);
    Mutex::new(vec![Generator::seed(seed, &taper::cpu())])
});

/// The default generator of a device.
fn default_of(device: &Device) -> Generator {
    let mut all = lock(&DEFAULT);
    if let Some(found) = all.iter().find(|generator| generator.device() == device) {
        return found.clone();
    }
    let fresh = Generator::seed(all[0].initial_seed(), device);
    all.push(fresh.clone());
    fresh
}

/// `torch.Generator`: a state of random numbers on a device.
#[pyclass(name = "Generator", module = "torch", frozen)]
pub(crate) struct PyGenerator(Generator);

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device = None))]
    fn new(device: Option<At>) -> PyResult<PyGenerator> {
        Ok(PyGenerator(Generator::seed(67_280_421_310_721, &open(device)?)))
    }

    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice::of(self.0.device())
    }

    fn initial_seed(&self) -> u64 {
        self.0.initial_seed()
    }

    fn manual_seed(slf: PyRef<'_, Self>, seed: i64) -> PyRef<'_, Self> {
        slf.0.set_seed_and_offset(seed as u64, 0);
        slf
    }

    fn seed(&self) -> u64 {
        let seed = default_of(&taper::cpu()).next_u64();
        self.0.set_seed_and_offset(seed, 0);
        seed
    }

    /// Seed and offset, as a tensor of two numbers.
    fn get_state(&self, py: Python<'_>) -> PyResult<PyTensor> {
        let state = [self.0.initial_seed() as i64, self.0.offset() as i64];
        made(py, "", move || Tensor::from_slice(&state, [2], &taper::cpu()))
    }

    fn set_state<'py>(slf: PyRef<'py, Self>, state: Value) -> PyResult<PyRef<'py, Self>> {
        match crate::args::built(state.0.to_vec::<i64>())?[..] {
            [seed, offset] => slf.0.set_seed_and_offset(seed as u64, offset as u64),
            _ => return Err(runtime("a generator's state has two numbers")),
        }
        Ok(slf)
    }

    /// An order of the numbers below `n`, for samplers.
    fn _permutation(&self, n: usize) -> Vec<usize> {
        self.0.permutation(n)
    }
}

/// The default generator of a device, for the package.
#[pyfunction]
#[pyo3(signature = (device = None))]
fn _default_generator(device: Option<At>) -> PyResult<PyGenerator> {
    Ok(PyGenerator(default_of(&open(device)?)))
}

/// Seeds the default generators of all devices.
#[pyfunction]
fn _manual_seed(seed: i64) {
    lock(&DEFAULT).iter().for_each(|generator| generator.set_seed_and_offset(seed as u64, 0));
}

/// A distribution by its name, with its numbers.
fn draw(
    name: &str,
    sizes: Vec<usize>,
    numbers: &[f64],
    dtype: DType,
    rng: &Generator,
) -> taper::Result<Tensor> {
    let drawn = match (name, numbers) {
        ("rand", _) => return Tensor::rand_dtype(sizes, dtype, rng),
        ("randn", _) => return Tensor::randn_dtype(sizes, dtype, rng),
        ("uniform", &[low, high]) => Tensor::uniform(sizes, low, high, rng),
        ("normal", &[mean, std]) => {
            let normal = Tensor::randn_dtype(sizes, dtype.compute(), rng)?;
            Ok(normal.mul_scalar(std).add_scalar(mean))
        }
        ("randint", &[low, high]) => Tensor::randint(low as i32, high as i32, sizes, rng),
        ("randperm", &[n]) => Tensor::randperm(n as usize, rng),
        ("exponential", &[rate]) => Tensor::exponential(sizes, rate, rng),
        ("log_normal", &[mean, std]) => Tensor::log_normal(sizes, mean, std, rng),
        ("cauchy", &[median, sigma]) => Tensor::cauchy(sizes, median, sigma, rng),
        ("geometric", &[p]) => Tensor::geometric(sizes, p, rng),
        ("truncated_normal", &[mean, std, low, high]) => {
            Tensor::truncated_normal(sizes, mean, std, low, high, rng)
        }
        ("bernoulli", &[p]) => Ok(Tensor::rand(sizes, rng)?.lt_scalar(p)),
        _ => Err(taper::Error::invalid("random", format!("no distribution {name} of {numbers:?}"))),
    };
    drawn?.to_dtype(dtype)
}

/// A tensor of random numbers.
#[pyfunction]
#[pyo3(signature = (name, size, numbers, dtype = None, device = None, generator = None, requires_grad = false))]
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn _random(
    py: Python<'_>,
    name: &str,
    size: Ints,
    numbers: Vec<f64>,
    dtype: Option<Kind>,
    device: Option<At>,
    generator: Option<PyRef<'_, PyGenerator>>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let device = match (device, &generator) {
        (None, Some(generator)) => generator.0.device().clone(),
        (device, _) => open(device)?,
    };
    let rng = match generator {
        Some(generator) if *generator.0.device() != device => {
            return Err(runtime(format!(
                "Expected a '{}' device type for generator but found '{}'",
                PyDevice::of(&device).text(),
                PyDevice::of(generator.0.device()).text()
            )));
        }
        Some(generator) => generator.0.clone(),
        None => default_of(&device),
    };
    let usual = if name.starts_with("randint") || name == "randperm" {
        crate::promote::held_by(&device, DType::I64)
    } else {
        taper::default_dtype()
    };
    let dtype = dtype.map_or(usual, |kind| crate::promote::held_by(&device, kind.0));
    let (name, sizes) = (name.to_string(), size.sizes()?);
    let tensor = made(py, "", move || draw(&name, sizes, &numbers, dtype, &rng))?;
    if requires_grad {
        tensor.base().require_grad(true).map_err(crate::errors::raise)?;
    }
    Ok(tensor)
}

/// Draws whose parameters are the elements of a tensor.
#[pyfunction]
#[pyo3(signature = (name, input, generator = None, other = None))]
fn _sample(
    py: Python<'_>,
    name: &str,
    input: Value,
    generator: Option<PyRef<'_, PyGenerator>>,
    other: Option<Value>,
) -> PyResult<PyTensor> {
    let rng = generator.map_or_else(|| default_of(&input.0.device()), |generator| generator.0.clone());
    let (name, input) = (name.to_string(), input.0);
    made(py, "", move || match (name.as_str(), other) {
        ("bernoulli", _) => input.bernoulli(&rng),
        ("poisson", _) => input.poisson(&rng),
        ("gamma", _) => input.standard_gamma(&rng),
        ("dirichlet", _) => input.dirichlet(&rng),
        ("binomial", Some(Value(probabilities))) => input.binomial(&probabilities, &rng),
        ("beta", Some(Value(other))) => input.beta(&other, &rng),
        _ => Err(taper::Error::invalid("random", format!("no distribution {name}"))),
    })
}

/// Draws of indices with the weights of the last axis.
#[pyfunction]
#[pyo3(signature = (input, num_samples, replacement = false, generator = None))]
fn multinomial(
    py: Python<'_>,
    input: Value,
    num_samples: usize,
    replacement: bool,
    generator: Option<PyRef<'_, PyGenerator>>,
) -> PyResult<PyTensor> {
    let rng = generator.map_or_else(|| default_of(&input.0.device()), |generator| generator.0.clone());
    made(py, "", move || input.0.multinomial(num_samples, replacement, &rng))
}

impl PyGenerator {
    /// The generator of a call, or the default one of a device.
    pub(crate) fn of(generator: Option<PyRef<'_, PyGenerator>>, device: &Device) -> Generator {
        generator.map_or_else(|| default_of(device), |generator| generator.0.clone())
    }
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_default_generator, module)?)?;
    module.add_function(wrap_pyfunction!(_manual_seed, module)?)?;
    module.add_function(wrap_pyfunction!(_random, module)?)?;
    module.add_function(wrap_pyfunction!(_sample, module)?)?;
    module.add_function(wrap_pyfunction!(multinomial, module)?)
}
