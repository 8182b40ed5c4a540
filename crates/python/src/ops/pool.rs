//! Pooling along one to three axes.

use pyo3::prelude::*;
use taper::nn::functional::{self as f, PoolOptions, UnpoolOptions};

use crate::{
    args::{Ints, Value},
    errors::wrong_value,
    tensor::{PyTensor, made, run},
};

/// The options of a pooling along `D` axes, as a call gives them.
struct Given {
    kernel: Ints,
    stride: Option<Ints>,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Option<usize>,
}

impl Given {
    fn options<const D: usize>(&self) -> PyResult<([usize; D], PoolOptions<D>)> {
        let stride = match &self.stride {
            Some(stride) if !stride.0.is_empty() => Some(stride.window("stride")?),
            _ => None,
        };
        let options = PoolOptions {
            stride,
            padding: self.padding.window("padding")?,
            dilation: self.dilation.window("dilation")?,
            ceil_mode: self.ceil_mode,
            count_include_pad: self.count_include_pad,
            divisor_override: self.divisor_override,
        };
        Ok((self.kernel.window("kernel_size")?, options))
    }
}

/// The pooling along a number of axes, which is a type in Taper.
macro_rules! pooled {
    ($py:ident, $kind:ident, $x:ident, $given:ident, $d:literal, $max:ident, $avg:ident) => {{
        let (window, options) = $given.options::<$d>()?;
        match $kind {
            "max" => {
                Ok(vec![made($py, "MaxPoolWithIndicesBackward0", move || f::$max(&$x, window, options))?])
            }
            "avg" => Ok(vec![made($py, "AvgPoolBackward0", move || f::$avg(&$x, window, options))?]),
            "max_with_indices" => {
                let (values, places) = run($py, move || f::max_pool_with_indices(&$x, window, options))?;
                Ok(vec![PyTensor::new(values, "MaxPoolWithIndicesBackward0"), PyTensor::plain(places)])
            }
            _ => Err(wrong_value(format!("no pooling {}", $kind))),
        }
    }};
}

/// A pooling by its name: `max`, `avg` or `max_with_indices`.
#[pyfunction]
#[pyo3(signature = (kind, d, input, kernel, stride, padding, dilation, ceil_mode, count_include_pad = true, divisor_override = None))]
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn _pool(
    py: Python<'_>,
    kind: &str,
    d: usize,
    input: Value,
    kernel: Ints,
    stride: Option<Ints>,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: Option<usize>,
) -> PyResult<Vec<PyTensor>> {
    let given = Given { kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor_override };
    let x = input.0;
    match d {
        1 => pooled!(py, kind, x, given, 1, max_pool1d_with, avg_pool1d_with),
        2 => pooled!(py, kind, x, given, 2, max_pool2d_with, avg_pool2d_with),
        3 => pooled!(py, kind, x, given, 3, max_pool3d_with, avg_pool3d_with),
        _ => Err(wrong_value(format!("a pooling along {d} axes"))),
    }
}

/// A pooling to a size; a missing size keeps that of the input.
#[pyfunction]
fn _adaptive_pool(py: Python<'_>, kind: &str, input: Value, size: Vec<Option<usize>>) -> PyResult<PyTensor> {
    let x = input.0;
    let own = x.dims().iter().skip(x.rank().saturating_sub(size.len()));
    let sizes: Vec<usize> = size.iter().zip(own).map(|(size, &own)| size.unwrap_or(own)).collect();
    let average = kind == "avg";
    made(py, "AdaptivePoolBackward0", move || match (sizes[..].len(), average) {
        (1, true) => f::adaptive_avg_pool1d(&x, sizes[0]),
        (1, false) => f::adaptive_max_pool1d(&x, sizes[0]),
        (2, true) => f::adaptive_avg_pool2d(&x, [sizes[0], sizes[1]]),
        (2, false) => f::adaptive_max_pool2d(&x, [sizes[0], sizes[1]]),
        (3, true) => f::adaptive_avg_pool3d(&x, [sizes[0], sizes[1], sizes[2]]),
        (3, false) => f::adaptive_max_pool3d(&x, [sizes[0], sizes[1], sizes[2]]),
        (rank, _) => Err(taper::Error::invalid("adaptive_pool", format!("a pooling along {rank} axes"))),
    })
}

/// A maximum pooling to a size, with the places of the maxima.
#[pyfunction]
fn _adaptive_max_pool(
    py: Python<'_>,
    input: Value,
    size: Vec<Option<usize>>,
) -> PyResult<(PyTensor, PyTensor)> {
    let x = input.0;
    let own = x.dims().iter().skip(x.rank().saturating_sub(size.len()));
    let sizes: Vec<usize> = size.iter().zip(own).map(|(size, &own)| size.unwrap_or(own)).collect();
    let (values, places) = run(py, move || match sizes[..] {
        [a] => f::adaptive_max_pool_with_indices(&x, [a]),
        [a, b] => f::adaptive_max_pool_with_indices(&x, [a, b]),
        [a, b, c] => f::adaptive_max_pool_with_indices(&x, [a, b, c]),
        _ => Err(taper::Error::invalid("adaptive_max_pool", "a pooling along one to three axes")),
    })?;
    Ok((PyTensor::new(values, "AdaptiveMaxPoolBackward0"), PyTensor::plain(places)))
}

/// The elements of a maximum pooling at their places, between zeros.
#[pyfunction]
#[pyo3(signature = (d, input, indices, kernel, stride, padding, output_size))]
#[allow(clippy::too_many_arguments)] // those of PyTorch
fn _max_unpool(
    py: Python<'_>,
    d: usize,
    input: Value,
    indices: Value,
    kernel: Ints,
    stride: Option<Ints>,
    padding: Ints,
    output_size: Option<Vec<usize>>,
) -> PyResult<PyTensor> {
    macro_rules! unpooled {
        ($d:literal, $unpool:ident) => {{
            let window = kernel.window::<$d>("kernel_size")?;
            let output_size = match output_size {
                Some(size) => Some(size[size.len().saturating_sub($d)..].try_into().map_err(|_| {
                    crate::errors::wrong_value("output_size should have a number for each axis")
                })?),
                None => None,
            };
            let options = UnpoolOptions {
                stride: stride.map(|stride| stride.window("stride")).transpose()?,
                padding: padding.window("padding")?,
                output_size,
            };
            made(py, "MaxUnpoolBackward0", move || f::$unpool(&input.0, &indices.0, window, options))
        }};
    }
    match d {
        1 => unpooled!(1, max_unpool1d),
        2 => unpooled!(2, max_unpool2d),
        3 => unpooled!(3, max_unpool3d),
        _ => Err(wrong_value(format!("a pooling along {d} axes"))),
    }
}

/// A maximum pooling with windows at random places, of which `samples` has one number for each channel and
/// axis.
#[pyfunction]
fn _fractional_max_pool(
    py: Python<'_>,
    input: Value,
    kernel: Ints,
    size: Vec<usize>,
    samples: Value,
) -> PyResult<(PyTensor, PyTensor)> {
    let (x, samples) = (input.0, samples.0);
    let (values, places) = match size[..] {
        [a, b] => {
            let window = kernel.window::<2>("kernel_size")?;
            run(py, move || f::fractional_max_pool_with_indices(&x, window, [a, b], &samples))?
        }
        [a, b, c] => {
            let window = kernel.window::<3>("kernel_size")?;
            run(py, move || f::fractional_max_pool_with_indices(&x, window, [a, b, c], &samples))?
        }
        _ => return Err(wrong_value("fractional_max_pool: give two or three sizes")),
    };
    Ok((PyTensor::new(values, "FractionalMaxPoolBackward0"), PyTensor::plain(places)))
}

/// Power-average pooling, (Σxᵖ)^(1/p) over windows.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // those of PyTorch
#[pyo3(signature = (d, input, norm_type, kernel, stride, ceil_mode))]
fn _lp_pool(
    py: Python<'_>,
    d: usize,
    input: Value,
    norm_type: f64,
    kernel: Ints,
    stride: Option<Ints>,
    ceil_mode: bool,
) -> PyResult<PyTensor> {
    let given = Given {
        kernel,
        stride,
        padding: Ints(vec![0]),
        dilation: Ints(vec![1]),
        ceil_mode,
        count_include_pad: true,
        divisor_override: None,
    };
    macro_rules! pooled {
        ($d:literal, $pool:ident) => {{
            let (window, options) = given.options::<$d>()?;
            made(py, "PowBackward0", move || f::$pool(&input.0, norm_type, window, options))
        }};
    }
    match d {
        1 => pooled!(1, lp_pool1d),
        2 => pooled!(2, lp_pool2d),
        3 => pooled!(3, lp_pool3d),
        _ => Err(wrong_value(format!("a pooling along {d} axes"))),
    }
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_pool, module)?)?;
    module.add_function(wrap_pyfunction!(_adaptive_pool, module)?)?;
    module.add_function(wrap_pyfunction!(_adaptive_max_pool, module)?)?;
    module.add_function(wrap_pyfunction!(_max_unpool, module)?)?;
    module.add_function(wrap_pyfunction!(_lp_pool, module)?)?;
    module.add_function(wrap_pyfunction!(_fractional_max_pool, module)?)
}
