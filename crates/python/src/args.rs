//! Arguments as PyTorch takes them: tensors, numbers, axes and sizes, in brackets or without.

use pyo3::{
    prelude::*,
    types::{PyBool, PyFloat, PyInt, PyList, PyTuple},
};
use taper::{Axes, Scalar, Tensor};

use crate::{
    errors::{raise, wrong_type},
    handle::PyTensor,
};

/// The present value of a tensor.
pub(crate) struct Value(pub(crate) Tensor);

impl<'py> FromPyObject<'_, 'py> for Value {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Value> {
        match object.cast::<PyTensor>() {
            Ok(tensor) => tensor.get().read().map(Value),
            Err(_) => Err(wrong_type(format!("must be Tensor, not {}", object.get_type().name()?))),
        }
    }
}

/// A tensor or a number.
#[derive(Clone)]
pub(crate) enum Operand {
    Tensor(Tensor),
    Number(Scalar),
}

impl<'py> FromPyObject<'_, 'py> for Operand {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Operand> {
        match object.cast::<PyTensor>() {
            Ok(tensor) => tensor.get().read().map(Operand::Tensor),
            Err(_) => object.extract::<Plain>().map(|Plain(number)| Operand::Number(number)),
        }
    }
}

/// A number: Python's own, or one of numpy.
#[derive(Clone, Copy)]
pub(crate) struct Plain(pub(crate) Scalar);

impl<'py> FromPyObject<'_, 'py> for Plain {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Plain> {
        if let Ok(truth) = object.cast::<PyBool>() {
            return Ok(Plain(Scalar::Bool(truth.is_true())));
        }
        if object.is_instance_of::<PyFloat>() {
            return Ok(Plain(Scalar::Float(object.extract()?)));
        }
        if object.is_instance_of::<PyInt>() {
            return whole(object).map(Plain);
        }
        if let Ok(tensor) = object.cast::<PyTensor>() {
            return tensor.get().scalar(object.py()).map(Plain);
        }
        let wrong = || wrong_type(format!("must be Number, not {}", object.get_type()));
        if object.hasattr("__len__")? && object.len().is_ok() {
            return Err(wrong());
        }
        if object.hasattr("__index__")? {
            return whole(object).map(Plain);
        }
        if object.hasattr("__float__")? {
            return Ok(Plain(Scalar::Float(object.call_method0("__float__")?.extract()?)));
        }
        Err(wrong())
    }
}

fn whole(object: Borrowed<'_, '_, PyAny>) -> PyResult<Scalar> {
    match object.extract::<i64>() {
        Ok(number) => Ok(Scalar::Int(number)),
        Err(_) => object.extract::<u64>().map(Scalar::from_u64),
    }
}

/// One integer or a sequence of them.
#[derive(Clone, Debug)]
pub(crate) struct Ints(pub(crate) Vec<isize>);

impl<'py> FromPyObject<'_, 'py> for Ints {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Ints> {
        if object.is_instance_of::<PyTuple>() || object.is_instance_of::<PyList>() {
            return Ok(Ints(object.extract()?));
        }
        match object.extract::<isize>() {
            Ok(one) => Ok(Ints(vec![one])),
            Err(error) => object.extract().map(Ints).map_err(|_| error),
        }
    }
}

impl Ints {
    /// Integers of a call such as `view(2, 3)`, `view((2, 3))` or `view(size)`.
    pub(crate) fn of(args: &Bound<'_, PyTuple>) -> PyResult<Ints> {
        match args.len() {
            1 => args.get_item(0)?.extract(),
            _ => Ok(Ints(args.extract()?)),
        }
    }

    /// Sizes, none of which is negative.
    pub(crate) fn sizes(&self) -> PyResult<Vec<usize>> {
        let size = |&size: &isize| {
            usize::try_from(size).map_err(|_| {
                crate::errors::runtime(format!(
                    "Trying to create tensor with negative dimension {size}: {:?}",
                    self.0
                ))
            })
        };
        self.0.iter().map(size).collect()
    }

    /// One number for each of `D` axes; a single one counts for all.
    pub(crate) fn window<const D: usize>(&self, what: &str) -> PyResult<[usize; D]> {
        let sizes = self.sizes()?;
        match sizes[..] {
            [one] => Ok([one; D]),
            _ => sizes.try_into().map_err(|_| {
                crate::errors::runtime(format!(
                    "{what} must be a number or have {D} of them, not {:?}",
                    self.0
                ))
            }),
        }
    }
}

/// The axes of a reduction: `None`, and for most functions an empty list, mean all.
pub(crate) fn axes(dim: Option<Ints>) -> Axes {
    match dim {
        Some(Ints(list)) if !list.is_empty() => Axes::from(list),
        _ => Axes::all(),
    }
}

/// An axis of a tensor, counted from the start. `extra` axes more may be named, as `unsqueeze` does.
pub(crate) fn axis(dim: isize, rank: usize, extra: usize) -> PyResult<usize> {
    let bound = (rank + extra).max(1) as isize;
    let at = if dim < 0 { dim + bound } else { dim };
    if (0..bound).contains(&at) {
        return Ok(at as usize);
    }
    Err(crate::errors::index(format!(
        "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
        -bound,
        bound - 1
    )))
}

/// The tensors of a sequence.
pub(crate) fn values(tensors: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    tensors.try_iter()?.map(|tensor| Ok(tensor?.extract::<Value>()?.0)).collect()
}

/// The value of an optional tensor, for a call that takes a reference.
pub(crate) fn optional(value: Option<Value>) -> Option<Tensor> {
    value.map(|Value(tensor)| tensor)
}

/// Raises the error of an operation that is built without leaving Python.
pub(crate) fn built<T>(result: taper::Result<T>) -> PyResult<T> {
    result.map_err(raise)
}
