//! Elements by index tensors: gather, scatter and their relatives.

use pyo3::prelude::*;
use taper::{ScatterReduce, Tensor};

use super::{functions, methods};
use crate::{
    args::{Operand, Plain, Value},
    dtype::PyDType,
    errors::runtime,
    promote::{all, result_type},
    tensor::{PyTensor, made, run},
};

/// A way to combine elements, by its name in PyTorch.
fn reduction(name: &str) -> taper::Result<ScatterReduce> {
    Ok(match name {
        "sum" | "add" => ScatterReduce::Sum,
        "prod" | "multiply" => ScatterReduce::Prod,
        "mean" => ScatterReduce::Mean,
        "amax" => ScatterReduce::Amax,
        "amin" => ScatterReduce::Amin,
        _ => {
            let message = format!("reduce argument must be sum, prod, mean, amax or amin, got {name}");
            return Err(taper::Error::invalid("scatter_reduce", message));
        }
    })
}

/// A value for the elements of `x`: a tensor, or a number in the dtype of `x`.
fn source(x: &Tensor, value: &Operand) -> taper::Result<Tensor> {
    let [value] = all([value], |_| x.dtype())?;
    value.to(&x.device())
}

methods! {
    gather(x, dim: isize, index: Value, sparse_grad: bool = false) "GatherBackward0" => {
        let _ = sparse_grad;
        if index.0.numel() == 0 {
            return x.flatten_all().narrow(0, 0, 0)?.reshape(index.0.dims());
        }
        x.gather(dim, &index.0)
    };
    take(x, index: Value) "TakeBackward0" => x.take(&index.0);
    take_along_dim(x, indices: Value, dim: Option<isize> = None) "GatherBackward0" => match dim {
        Some(dim) => x.take_along_dim(&indices.0, dim),
        None => x.flatten_all().take_along_dim(&indices.0.flatten_all(), 0),
    };
    index_select(x, dim: isize, index: Value) "IndexSelectBackward0" => x.index_select(dim, &index.0);
    masked_select(x, mask: Value) "MaskedSelectBackward0" => x.masked_select(&mask.0);
    masked_scatter(x, mask: Value, source: Value) "MaskedScatterBackward0" => {
        x.masked_scatter(&mask.0, &source.0)
    };
    scatter(x, dim: isize, index: Value, src: Option<Operand> = None, value: Option<Operand> = None,
        reduce: Option<String> = None) "ScatterBackward0" => {
        let Some(given) = src.or(value) else {
            return Err(taper::Error::invalid("scatter", "give src or value"));
        };
        match (reduce, given) {
            (None, Operand::Tensor(src)) => x.scatter(dim, &index.0, &src),
            (None, Operand::Number(value)) => x.scatter(dim, &index.0, value),
            (Some(reduce), given) => {
                let src = source(&x, &given)?;
                let src = if src.rank() == 0 { src.expand(index.0.dims())? } else { src };
                x.scatter_reduce(dim, &index.0, &src, reduction(&reduce)?, true)
            }
        }
    };
    scatter_add(x, dim: isize, index: Value, src: Value) "ScatterAddBackward0" => {
        x.scatter_add(dim, &index.0, &src.0)
    };
    scatter_reduce(x, dim: isize, index: Value, src: Value, reduce: String, include_self: bool = true)
        "ScatterReduceBackward0" => {
        x.scatter_reduce(dim, &index.0, &src.0, reduction(&reduce)?, include_self)
    };
    index_add(x, dim: isize, index: Value, source: Value, alpha: Plain = Plain(taper::Scalar::Int(1)))
        "IndexAddBackward0" => {
        let source = if alpha.0.as_f64() == 1.0 { source.0 } else { source.0.mul_scalar(alpha.0) };
        x.index_add(dim, &index.0, &source)
    };
    index_reduce(x, dim: isize, index: Value, source: Value, reduce: String, include_self: bool = true)
        "IndexReduceBackward0" => {
        x.index_reduce(dim, &index.0, &source.0, reduction(&reduce)?, include_self)
    };
    _slice_scatter(x, src: Value, dim: isize, start: usize, end: usize, step: usize) "SliceScatterBackward0" => {
        x.slice_scatter(&src.0, dim, start..end, step)
    };
    nonzero_static(x, size: usize, fill_value: i64 = -1) "" => x.nonzero_static(size, fill_value);
    _reduced_segments(x, reduce: String, lengths: Vec<usize>, axis: isize) "SegmentReduceBackward0" => {
        let reduce = match reduce.as_str() {
            "max" => "amax",
            "min" => "amin",
            other => other,
        };
        x.segment_reduce(reduction(reduce)?, &lengths, axis)
    };
    index_copy(x, dim: isize, index: Value, source: Value) "IndexCopyBackward0" => {
        x.index_copy(dim, &index.0, &source.0)
    };
    index_fill(x, dim: isize, index: Value, value: Operand) "IndexFillBackward0" => match value {
        Operand::Tensor(value) => x.index_fill(dim, &index.0, value),
        Operand::Number(value) => x.index_fill(dim, &index.0, value),
    };
    select_scatter(x, src: Value, dim: isize, index: isize) "SelectScatterBackward0" => {
        x.select_scatter(&src.0, dim, index)
    };
    diagonal_scatter(x, src: Value, offset: isize = 0, dim1: isize = 0, dim2: isize = 1)
        "DiagonalScatterBackward0" => x.diagonal_scatter(&src.0, offset, dim1, dim2);
    argwhere(x) "" => x.nonzero();
    _one_hot(x, num_classes: Option<usize>) "" => x.one_hot(num_classes);
    bucketize(x, boundaries: Value, out_int32: bool = false, right: bool = false) "" => {
        let [x, boundaries] = all([&Operand::Tensor(x), &Operand::Tensor(boundaries.0)], |dtype| dtype)?;
        let places = x.bucketize(&boundaries, right)?;
        if out_int32 { places.to_dtype(taper::DType::I32) } else { Ok(places) }
    };
}

#[pymethods]
impl PyTensor {
    /// The indices of elements other than zero, as rows or as a tensor for each axis.
    #[pyo3(signature = (as_tuple = false))]
    fn nonzero(&self, py: Python<'_>, as_tuple: bool) -> PyResult<Py<PyAny>> {
        let x = self.read()?;
        let (rank, x) = (x.rank(), if x.rank() == 0 && as_tuple { x.flatten_all() } else { x });
        let rows = made(py, "", move || x.nonzero())?;
        if !as_tuple {
            return Ok(rows.into_pyobject(py)?.into_any().unbind());
        }
        let rows = rows.read()?;
        let columns = (0..rank.max(1))
            .map(|axis| {
                made(py, "", {
                    let rows = rows.clone();
                    move || rows.select(1, axis)
                })
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(pyo3::types::PyTuple::new(py, columns)?.into_any().unbind())
    }
}

/// The dtype of an operation on two operands.
#[pyfunction]
fn _result_type(a: Operand, b: Operand) -> PyDType {
    PyDType(result_type(&[&a, &b]))
}

/// The sizes that some sizes broadcast to.
#[pyfunction]
fn _broadcast_shapes(shapes: Vec<Vec<usize>>) -> PyResult<Vec<usize>> {
    let mut all = taper::Shape::scalar();
    for shape in shapes {
        all = all.broadcast(&taper::Shape::from(shape), "broadcast_shapes").map_err(|error| {
            runtime(format!("Shape mismatch: objects cannot be broadcast to a single shape: {error}"))
        })?;
    }
    Ok(all.dims().to_vec())
}

/// Places in the axes of some sizes, from places in the flat order.
#[pyfunction]
fn unravel_index(py: Python<'_>, indices: Value, shape: Vec<usize>) -> PyResult<Vec<PyTensor>> {
    let places = run(py, move || indices.0.unravel_index(shape))?;
    Ok(places.into_iter().map(PyTensor::plain).collect())
}

functions! { add_functions:
    _triangle_indices(upper: bool, row: usize, col: usize, offset: i32) "" => match upper {
        true => Tensor::triu_indices(row, col, offset, &taper::cpu()),
        false => Tensor::tril_indices(row, col, offset, &taper::cpu()),
    };
    combinations(input: Value, r: usize = 2, with_replacement: bool = false) "MaskedSelectBackward0" => {
        input.0.combinations(r, with_replacement)
    };
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add_functions(module)?;
    module.add_function(wrap_pyfunction!(_result_type, module)?)?;
    module.add_function(wrap_pyfunction!(_broadcast_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(unravel_index, module)?)
}
