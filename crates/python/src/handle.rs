//! `torch.Tensor`: a handle of a [cell](crate::cell).

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use taper::tensor_core::lock;
use taper::{Result, Scalar, Tensor};

use crate::{
    cell::{Base, Hook, Place},
    errors::{raise, runtime},
    run::{self, run},
    view::Recipe,
};

/// Runs an operation whose result is a new tensor, with the name of its gradient.
pub(crate) fn made(
    py: Python<'_>,
    name: &'static str,
    f: impl FnOnce() -> Result<Tensor> + Send,
) -> PyResult<PyTensor> {
    Ok(PyTensor::new(run(py, f)?, name))
}

/// A tensor as Python has it.
#[pyclass(name = "Tensor", module = "torch", subclass, dict, weakref, frozen)]
pub(crate) struct PyTensor(Mutex<Place>);

impl PyTensor {
    pub(crate) fn new(value: Tensor, name: &'static str) -> PyTensor {
        PyTensor::at(Place::new(value, name))
    }

    /// A tensor without history.
    pub(crate) fn plain(value: Tensor) -> PyTensor {
        PyTensor::new(value, "")
    }

    pub(crate) fn at(place: Place) -> PyTensor {
        PyTensor(Mutex::new(place))
    }

    pub(crate) fn place(&self) -> Place {
        lock(&self.0).clone()
    }

    pub(crate) fn set_place(&self, place: Place) {
        *lock(&self.0) = place;
    }

    /// The present value; a view whose base has changed is taken anew.
    pub(crate) fn read(&self) -> PyResult<Tensor> {
        lock(&self.0).read(run::is_recording()).map_err(raise)
    }

    pub(crate) fn base(&self) -> Arc<Base> {
        lock(&self.0).base.clone()
    }

    /// A view of this tensor.
    pub(crate) fn view_by(&self, recipe: Recipe, name: &'static str) -> PyResult<PyTensor> {
        let viewed = lock(&self.0).viewed(recipe, name, run::is_recording());
        viewed.map(PyTensor::at).map_err(raise)
    }

    /// Adds a hook, which is called with the gradient of this tensor.
    pub(crate) fn hook(&self, hook: Hook) -> PyResult<()> {
        lock(&self.0).hook(hook).map_err(raise)
    }

    /// Replaces the value of this tensor, of its base and so of all views, as an operation in place does.
    pub(crate) fn write(&self, py: Python<'_>, value: &Tensor, name: &'static str) -> PyResult<()> {
        let place = self.place();
        self.refuse_leaf(place.view.is_some())?;
        let value = value.clone();
        run(py, move || place.write(&value, name))
    }

    /// The error of a change in place of a leaf, or of a view of one, that no gradient would know of.
    pub(crate) fn refuse_leaf(&self, is_view: bool) -> PyResult<()> {
        if !run::is_recording() || !self.place().is_of_leaf() {
            return Ok(());
        }
        let what = if is_view { "a view of a leaf" } else { "a leaf" };
        Err(runtime(format!("{what} Variable that requires grad is being used in an in-place operation.")))
    }

    /// The only element, as a number.
    pub(crate) fn scalar(&self, py: Python<'_>) -> PyResult<Scalar> {
        let value = self.read()?;
        if value.numel() != 1 {
            return Err(runtime(format!(
                "a Tensor with {} elements cannot be converted to Scalar",
                value.numel()
            )));
        }
        let dtype = value.dtype();
        let bytes = run(py, move || value.read_bytes())?;
        let number = Scalar::from_bytes(dtype, &bytes).first().copied();
        number.ok_or_else(|| runtime("nothing was read"))
    }
}
