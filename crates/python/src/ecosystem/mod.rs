//! Ways to other programs: known models, ONNX files, TensorBoard, and how a program shows its work.

mod inspect;
mod models;
mod onnx;
mod summary;

use pyo3::prelude::*;

/// Adds all functions and classes of this folder to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    inspect::register(module)?;
    models::register(module)?;
    onnx::register(module)?;
    summary::register(module)
}
