//! Taper's errors and panics as the exceptions that PyTorch raises in the same place.

use std::any::Any;
use std::cell::RefCell;

use pyo3::{
    exceptions::{PyIndexError, PyNotImplementedError, PyOSError, PyRuntimeError, PyTypeError, PyValueError},
    prelude::*,
};
use taper::{Error, ErrorKind};

thread_local! {
    /// The exception of a Python function that Taper called, such as a hook: it is raised when the operation
    /// around it has failed because of it.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Keeps an exception of Python for [`raise`], and gives the error that ends the operation around it.
pub(crate) fn keep(op: &'static str, error: PyErr) -> Error {
    let message = error.to_string();
    RAISED.with_borrow_mut(|raised| *raised = Some(error));
    Error::invalid(op, message)
}

/// The exception for an error. PyTorch raises `IndexError` for axes and indices out of range, and
/// `RuntimeError` for nearly everything else.
pub(crate) fn raise(error: Error) -> PyErr {
    if let Some(raised) = RAISED.with_borrow_mut(Option::take) {
        return raised;
    }
    // Python's traceback has the line of a call that fails. Where an operation fails that another line built,
    // the message has that line.
    let message = match error.op() {
        Some(_) => error.to_string(),
        None => error.kind().to_string(),
    };
    match error.kind() {
        ErrorKind::IndexOutOfRange { op, .. } if op.starts_with("scatter") || *op == "gather" => {
            PyRuntimeError::new_err(message)
        }
        ErrorKind::AxisOutOfRange { .. } | ErrorKind::IndexOutOfRange { .. } => {
            PyIndexError::new_err(message)
        }
        ErrorKind::Unsupported { .. } => PyNotImplementedError::new_err(message),
        ErrorKind::Io { .. } | ErrorKind::File { .. } => PyOSError::new_err(message),
        _ => PyRuntimeError::new_err(message),
    }
}

/// The exception for a panic.
pub(crate) fn panicked(payload: &(dyn Any + Send)) -> PyErr {
    let words = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message");
    PyRuntimeError::new_err(words.to_string())
}

pub(crate) fn runtime(message: impl Into<String>) -> PyErr {
    PyRuntimeError::new_err(message.into())
}

pub(crate) fn wrong_type(message: impl Into<String>) -> PyErr {
    PyTypeError::new_err(message.into())
}

pub(crate) fn wrong_value(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}

pub(crate) fn index(message: impl Into<String>) -> PyErr {
    PyIndexError::new_err(message.into())
}
