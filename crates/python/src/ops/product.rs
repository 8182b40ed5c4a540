//! Products of vectors, matrices and batches.

use pyo3::prelude::*;
use taper::{Result, Scalar, Tensor};

use super::methods;
use crate::{
    args::{Plain, Value, values},
    errors::wrong_type,
    tensor::{PyTensor, made},
};

const ONE: Plain = Plain(Scalar::Int(1));

/// Checks the number of axes, as PyTorch's functions for one number of axes do.
fn axes(op: &'static str, tensor: &Tensor, rank: usize) -> Result<()> {
    if tensor.rank() == rank {
        return Ok(());
    }
    let message = format!("a tensor of {rank} axes is needed, not of {}: {}", tensor.rank(), tensor.shape());
    Err(taper::Error::invalid(op, message))
}

/// A factor in the kind of numbers of the tensor: integers take its whole part.
fn factor(x: &Tensor, number: Plain) -> Scalar {
    if x.dtype().is_float() { number.0 } else { Scalar::Int(number.0.as_i64()) }
}

methods! {
    matmul(x, other: Value) "MmBackward0" => x.matmul(&other.0);
    mm(x, mat2: Value) "MmBackward0" => {
        axes("mm", &x, 2)?;
        axes("mm", &mat2.0, 2)?;
        x.matmul(&mat2.0)
    };
    bmm(x, mat2: Value) "BmmBackward0" => {
        axes("bmm", &x, 3)?;
        axes("bmm", &mat2.0, 3)?;
        x.matmul(&mat2.0)
    };
    mv(x, vec: Value) "MvBackward0" => {
        axes("mv", &x, 2)?;
        axes("mv", &vec.0, 1)?;
        x.matmul(&vec.0)
    };
    dot(x, tensor: Value) "DotBackward0" => x.dot(&tensor.0);
    outer(x, vec2: Value) "MulBackward0" => x.outer(&vec2.0);
    kron(x, other: Value) "ViewBackward0" => x.kron(&other.0);
    cross(x, other: Value, dim: isize = -1) "LinalgCrossBackward0" => {
        if x.rank() != other.0.rank() {
            let message = "linalg.cross: inputs must have the same number of dimensions.";
            return Err(taper::Error::invalid("cross", message));
        }
        x.cross(&other.0, dim)
    };
    vdot(x, other: Value) "DotBackward0" => x.dot(&other.0);
    _vecdot(x, other: Value, dim: isize) "SumBackward1" => x.vecdot(&other.0, dim);
    addmm(x, mat1: Value, mat2: Value, beta: Plain = ONE, alpha: Plain = ONE) "AddmmBackward0" => {
        x.addmm(&mat1.0, &mat2.0, factor(&x, beta), factor(&x, alpha))
    };
    addmv(x, mat: Value, vec: Value, beta: Plain = ONE, alpha: Plain = ONE) "AddmvBackward0" => {
        x.addmv(&mat.0, &vec.0, factor(&x, beta), factor(&x, alpha))
    };
    addbmm(x, batch1: Value, batch2: Value, beta: Plain = ONE, alpha: Plain = ONE) "AddbmmBackward0" => {
        x.addbmm(&batch1.0, &batch2.0, factor(&x, beta), factor(&x, alpha))
    };
    baddbmm(x, batch1: Value, batch2: Value, beta: Plain = ONE, alpha: Plain = ONE) "BaddbmmBackward0" => {
        x.baddbmm(&batch1.0, &batch2.0, factor(&x, beta), factor(&x, alpha))
    };
    addr(x, vec1: Value, vec2: Value, beta: Plain = ONE, alpha: Plain = ONE) "AddrBackward0" => {
        x.addr(&vec1.0, &vec2.0, factor(&x, beta), factor(&x, alpha))
    };
    _tensordot(x, other: Value, own: Vec<isize>, others: Vec<isize>) "ViewBackward0" => {
        x.tensordot(&other.0, own, others)
    };
    vander(x, n: usize, increasing: bool = false) "PowBackward0" => x.vander(n, increasing);
}

/// Sums of products by Einstein's notation.
#[pyfunction]
fn _einsum(py: Python<'_>, equation: &str, operands: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
    let operands = values(operands)?;
    if operands.is_empty() {
        return Err(wrong_type("einsum(): must provide at least one operand"));
    }
    let equation = equation.to_string();
    made(py, "EinsumBackward0", move || Tensor::einsum(&equation, &operands))
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_einsum, module)?)
}
