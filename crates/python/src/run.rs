//! The one place where operations run: without the interpreter's lock, in the modes of the thread, ascribed
//! to the line of Python, and with errors and panics as exceptions.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use pyo3::prelude::*;
use taper::{
    DType, Result,
    tensor_core::{ask_before_kernels, with_location},
};

use crate::{
    dtype::{Kind, PyDType},
    errors::{keep, panicked, raise},
    lines,
};

thread_local! {
    /// Whether this thread records gradients.
    static RECORDING: Cell<bool> = const { Cell::new(true) };
    /// The dtype of `torch.autocast` in this thread.
    static AUTOCAST: Cell<Option<DType>> = const { Cell::new(None) };
}

/// Runs an operation without the interpreter's lock, and raises its error.
pub(crate) fn run<R: Send>(py: Python<'_>, f: impl FnOnce() -> Result<R> + Send) -> PyResult<R> {
    let (recording, autocast) = (RECORDING.get(), AUTOCAST.get());
    let line = lines::caller(py);
    let ran = py.detach(move || {
        let f = || match line {
            Some(line) => with_location(line, f),
            None => f(),
        };
        catch_unwind(AssertUnwindSafe(|| {
            taper::autograd::set_grad_enabled(recording, || match autocast {
                Some(dtype) => taper::autocast(dtype, f),
                None => f(),
            })
        }))
    });
    match ran {
        Ok(result) => result.map_err(raise),
        Err(panic) => Err(panicked(panic.as_ref())),
    }
}

/// The time between two looks at the signals of the process.
const SIGNALS: Duration = Duration::from_millis(50);

/// Lets Ctrl-C end an evaluation between two kernels: the exception of Python's handler is kept for
/// [`raise`].
pub(crate) fn end_evaluations_by_signals() {
    ask_before_kernels(|| {
        thread_local! {
            static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
        }
        if LOOKED.get().is_some_and(|looked| looked.elapsed() < SIGNALS) {
            return Ok(());
        }
        LOOKED.set(Some(Instant::now()));
        let handled = Python::try_attach(|py| py.check_signals());
        handled.unwrap_or(Ok(())).map_err(|error| keep("evaluation", error))
    });
}

/// Whether this thread records gradients.
pub(crate) fn is_recording() -> bool {
    RECORDING.get()
}

/// Whether gradients are recorded in this thread.
#[pyfunction]
pub(crate) fn is_grad_enabled() -> bool {
    RECORDING.get()
}

/// Sets whether gradients are recorded in this thread, and gives what it was.
#[pyfunction]
pub(crate) fn _set_grad_enabled(enabled: bool) -> bool {
    RECORDING.replace(enabled)
}

/// Sets the dtype of `torch.autocast` in this thread, and gives what it was.
#[pyfunction]
#[pyo3(signature = (dtype))]
pub(crate) fn _set_autocast(dtype: Option<Kind>) -> Option<PyDType> {
    AUTOCAST.replace(dtype.map(|Kind(dtype)| dtype)).map(PyDType)
}
