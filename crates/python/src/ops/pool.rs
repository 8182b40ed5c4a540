//! Pooling along one to three axes.

use pyo3::prelude::*;
use taper::nn::functional::{self as f, PoolOptions};

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

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_pool, module)?)?;
    module.add_function(wrap_pyfunction!(_adaptive_pool, module)?)
}
