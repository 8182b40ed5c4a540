//! Tensors from numbers, sequences and buffers.

use pyo3::{
    prelude::*,
    types::{PyBool, PyFloat, PyInt, PyList, PyTuple},
};
use taper::{DType, Device, Scalar, Tensor};

use crate::{
    args::{Ints, Plain},
    device::{At, open},
    dtype::Kind,
    errors::{runtime, wrong_type, wrong_value},
    promote::held_by,
    tensor::{PyTensor, made, run},
};

/// The dtype and device of a new tensor.
fn target(dtype: Option<Kind>, usual: DType, device: Option<At>) -> PyResult<(DType, Device)> {
    let device = open(device)?;
    Ok((held_by(&device, dtype.map_or(usual, |kind| kind.0)), device))
}

/// A new tensor, which needs a gradient if the call says so.
fn finish(tensor: PyTensor, requires_grad: bool) -> PyResult<PyTensor> {
    if requires_grad {
        if !tensor.read()?.dtype().is_float() {
            return Err(runtime("Only Tensors of floating point and complex dtype can require gradients"));
        }
        tensor.base().require_grad(true).map_err(crate::errors::raise)?;
    }
    Ok(tensor)
}

/// A tensor of one number.
#[pyfunction]
#[pyo3(signature = (size, value, dtype = None, device = None, requires_grad = false))]
fn _full(
    py: Python<'_>,
    size: Ints,
    value: Plain,
    dtype: Option<Kind>,
    device: Option<At>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let usual = match value.0 {
        Scalar::Float(_) => taper::default_dtype(),
        Scalar::Bool(_) => DType::Bool,
        Scalar::Int(_) | Scalar::Unsigned(_) => DType::I64,
    };
    let (dtype, device) = target(dtype, usual, device)?;
    let sizes = size.sizes()?;
    finish(made(py, "", move || Tensor::full(sizes, value.0, (dtype, &device)))?, requires_grad)
}

/// Numbers from `start` by `step` up to, and without, `end`.
#[pyfunction]
#[pyo3(signature = (start, end, step, dtype = None, device = None, requires_grad = false))]
fn _arange(
    py: Python<'_>,
    start: Plain,
    end: Plain,
    step: Plain,
    dtype: Option<Kind>,
    device: Option<At>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let whole = [start, end, step].iter().all(|number| !matches!(number.0, Scalar::Float(_)));
    let (first, last, by) = (start.0.as_f64(), end.0.as_f64(), step.0.as_f64());
    if by == 0.0 {
        return Err(runtime("step must be nonzero"));
    }
    if (last - first) * by < 0.0 {
        return Err(runtime("upper bound and lower bound inconsistent with step sign"));
    }
    let (dtype, device) = target(dtype, if whole { DType::I64 } else { taper::default_dtype() }, device)?;
    let made = made(py, "", move || {
        // Whole numbers become floats exactly where they fit.
        let within = if dtype.is_float() && whole { held_by(&device, DType::I64) } else { dtype };
        Tensor::arange(start.0, end.0, step.0, (within, &device))?.to_dtype(dtype)
    })?;
    finish(made, requires_grad)
}

/// Evenly spaced numbers, or powers of `base` at them.
#[pyfunction]
#[pyo3(signature = (start, end, steps, base = None, dtype = None, device = None, requires_grad = false))]
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn _linspace(
    py: Python<'_>,
    start: f64,
    end: f64,
    steps: usize,
    base: Option<f64>,
    dtype: Option<Kind>,
    device: Option<At>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let (dtype, device) = target(dtype, taper::default_dtype(), device)?;
    let within = if dtype.is_float() { dtype } else { DType::F64 };
    // The bounds of whole numbers are whole.
    let (start, end) = if dtype.is_float() { (start, end) } else { (start.trunc(), end.trunc()) };
    let made = made(py, "", move || {
        match base {
            Some(base) => Tensor::logspace(start, end, steps, base, (within, &device)),
            None => Tensor::linspace(start, end, steps, (within, &device)),
        }?
        .to_dtype(dtype)
    })?;
    finish(made, requires_grad)
}

/// A matrix with ones on its diagonal.
#[pyfunction]
#[pyo3(signature = (n, m = None, dtype = None, device = None, requires_grad = false))]
fn eye(
    py: Python<'_>,
    n: usize,
    m: Option<usize>,
    dtype: Option<Kind>,
    device: Option<At>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let (dtype, device) = target(dtype, taper::default_dtype(), device)?;
    let columns = m.unwrap_or(n);
    let made = made(py, "", move || {
        Tensor::eye(n.max(columns), (dtype, &device))?.narrow(0, 0, n)?.narrow(1, 0, columns)
    })?;
    finish(made, requires_grad)
}

/// The numbers of a nested sequence, and its sizes.
#[derive(Default)]
struct Nested {
    numbers: Vec<Scalar>,
    sizes: Vec<usize>,
    has_floats: bool,
    has_integers: bool,
}

impl Nested {
    fn read(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if !object.is_instance_of::<PyList>() && !object.is_instance_of::<PyTuple>() {
            return self.number(object, depth);
        }
        let len = object.len()?;
        match self.sizes.get(depth) {
            None => self.sizes.push(len),
            Some(&size) if size == len => {}
            Some(&size) => {
                return Err(wrong_value(format!(
                    "expected sequence of length {size} at dim {depth} (got {len})"
                )));
            }
        }
        for item in object.try_iter()? {
            self.read(&item?, depth + 1)?;
        }
        Ok(())
    }

    fn number(&mut self, object: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        if depth != self.sizes.len() || object.is_instance_of::<pyo3::types::PyString>() {
            let of = object.get_type();
            return Err(wrong_type(format!(
                "not a sequence of numbers, or a ragged one: {of} at dim {depth}"
            )));
        }
        let Plain(number) = object
            .extract()
            .map_err(|_| wrong_type(format!("new(): invalid data type '{}'", object.get_type())))?;
        match number {
            Scalar::Float(_) => self.has_floats = true,
            Scalar::Int(_) | Scalar::Unsigned(_) => self.has_integers = true,
            Scalar::Bool(_) => {}
        }
        self.numbers.push(number);
        Ok(())
    }
}

/// A tensor of a number or of nested lists and tuples of numbers.
#[pyfunction]
#[pyo3(signature = (data, dtype = None, device = None, requires_grad = false))]
fn _tensor(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    dtype: Option<Kind>,
    device: Option<At>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let mut nested = Nested::default();
    match data.is_instance_of::<PyBool>()
        || data.is_instance_of::<PyInt>()
        || data.is_instance_of::<PyFloat>()
    {
        true => nested.number(data, 0)?,
        false => nested.read(data, 0)?,
    }
    let usual = match (nested.has_floats || nested.numbers.is_empty(), nested.has_integers) {
        (true, _) => taper::default_dtype(),
        (false, true) => DType::I64,
        (false, false) => DType::Bool,
    };
    let (dtype, device) = target(dtype, usual, device)?;
    let bytes = Scalar::to_bytes(dtype, &nested.numbers);
    let made = made(py, "", move || Tensor::from_bytes_of(dtype, &bytes, nested.sizes, &device))?;
    finish(made, requires_grad)
}

/// A tensor of the bytes of a buffer, in row-major order. The bytes are copied.
#[pyfunction]
#[pyo3(signature = (bytes, size, dtype, device = None, requires_grad = false))]
fn _from_bytes(
    py: Python<'_>,
    bytes: &[u8],
    size: Vec<usize>,
    dtype: Kind,
    device: Option<At>,
    requires_grad: bool,
) -> PyResult<PyTensor> {
    let device = open(device)?;
    let made = run(py, move || {
        let host = Tensor::from_bytes_of(dtype.0, bytes, size, &taper::cpu())?;
        host.to_dtype(held_by(&device, dtype.0))?.to(&device)
    })?;
    finish(PyTensor::plain(made), requires_grad)
}

/// A window function by its name.
#[pyfunction]
#[pyo3(signature = (name, length, periodic, numbers, dtype = None, device = None))]
fn _window(
    py: Python<'_>,
    name: &str,
    length: usize,
    periodic: bool,
    numbers: Vec<f64>,
    dtype: Option<Kind>,
    device: Option<At>,
) -> PyResult<PyTensor> {
    let (dtype, device) = target(dtype, taper::default_dtype(), device)?;
    let name = name.to_string();
    made(py, "", move || {
        let options = (dtype, &device);
        match (name.as_str(), &numbers[..]) {
            ("hann", _) => Tensor::hann_window(length, periodic, options),
            ("bartlett", _) => Tensor::bartlett_window(length, periodic, options),
            ("blackman", _) => Tensor::blackman_window(length, periodic, options),
            ("hamming", &[alpha, beta]) => Tensor::hamming_window(length, periodic, alpha, beta, options),
            ("kaiser", &[beta]) => Tensor::kaiser_window(length, periodic, beta, options),
            ("cosine", _) => Tensor::cosine_window(length, periodic, options),
            ("nuttall", _) => Tensor::nuttall_window(length, periodic, options),
            ("gaussian", &[std]) => Tensor::gaussian_window(length, periodic, std, options),
            ("exponential", &[tau]) => Tensor::exponential_window(length, periodic, None, tau, options),
            ("exponential", &[tau, center]) => {
                Tensor::exponential_window(length, periodic, Some(center), tau, options)
            }
            ("general_cosine", factors) => Tensor::general_cosine_window(length, periodic, factors, options),
            _ => Err(taper::Error::invalid("window", format!("no window function {name}"))),
        }
    })
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_full, module)?)?;
    module.add_function(wrap_pyfunction!(_arange, module)?)?;
    module.add_function(wrap_pyfunction!(_linspace, module)?)?;
    module.add_function(wrap_pyfunction!(eye, module)?)?;
    module.add_function(wrap_pyfunction!(_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(_from_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(_window, module)?)
}
