//! Several tensors as one.

use pyo3::prelude::*;
use taper::{Result, Tensor};

use crate::{
    args::{built, values},
    errors::{runtime, wrong_value},
    tensor::{PyTensor, made},
};

/// Joins tensors along an axis, in the dtype of all of them.
#[pyfunction]
#[pyo3(signature = (tensors, dim = 0))]
fn cat(py: Python<'_>, tensors: &Bound<'_, PyAny>, dim: isize) -> PyResult<PyTensor> {
    let tensors = joinable(tensors, "torch.cat")?;
    // As PyTorch: empty tensors of one axis are left out.
    let counts = |tensor: &&Tensor| tensor.dims() != [0];
    let kept: Vec<Tensor> = tensors.iter().filter(counts).cloned().collect();
    made(py, "CatBackward0", move || Tensor::concat(if kept.is_empty() { &tensors } else { &kept }, dim))
}

/// Joins tensors of the same sizes along a new axis.
#[pyfunction]
#[pyo3(signature = (tensors, dim = 0))]
fn stack(py: Python<'_>, tensors: &Bound<'_, PyAny>, dim: isize) -> PyResult<PyTensor> {
    let tensors = joinable(tensors, "stack")?;
    made(py, "StackBackward0", move || Tensor::stack(&tensors, dim))
}

/// Joins tensors by rows, columns, depth or as columns.
#[pyfunction]
fn _stack_by(py: Python<'_>, how: &str, tensors: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let tensors = joinable(tensors, how)?;
    let join: fn(&[Tensor]) -> Result<Tensor> = match how {
        "hstack" => Tensor::hstack,
        "vstack" => Tensor::vstack,
        "dstack" => Tensor::dstack,
        "column_stack" => Tensor::column_stack,
        "block_diag" => Tensor::block_diag,
        "cartesian_prod" => Tensor::cartesian_prod,
        _ => return Err(wrong_value(format!("{how} is no way to join tensors"))),
    };
    made(py, "CatBackward0", move || join(&tensors))
}

fn joinable(tensors: &Bound<'_, PyAny>, op: &str) -> PyResult<Vec<Tensor>> {
    let tensors = values(tensors)?;
    let Some(first) = tensors.first() else {
        let message = format!("{op}(): expected a non-empty list of Tensors");
        let by_rows = matches!(op, "hstack" | "vstack" | "dstack" | "column_stack");
        return Err(if by_rows { runtime(message) } else { wrong_value(message) });
    };
    let dtype = tensors.iter().fold(first.dtype(), |dtype, tensor| dtype.promote(tensor.dtype()));
    tensors.iter().map(|tensor| built(tensor.to_dtype(dtype))).collect()
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(cat, module)?)?;
    module.add_function(wrap_pyfunction!(stack, module)?)?;
    module.add_function(wrap_pyfunction!(_stack_by, module)?)
}
