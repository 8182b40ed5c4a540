//! The properties of `torch.Tensor`, whose class is in `handle`.

use std::sync::Arc;

use pyo3::{prelude::*, types::PyTuple};
use taper::{DType, Scalar, Tensor};

use crate::{
    args::{Ints, Value},
    cell::{Base, Place},
    device::{At, PyDevice},
    dtype::{Kind, Number, PyDType},
    errors::{raise, runtime, wrong_type, wrong_value},
    run,
    view::Recipe,
};

pub(crate) use crate::{
    handle::{PyTensor, made},
    run::run,
};

#[pymethods]
impl PyTensor {
    /// `torch.Tensor(2, 3)` with sizes, or `torch.Tensor([1, 2])` with numbers, of the default dtype.
    #[new]
    #[pyo3(signature = (*args))]
    fn new_of(args: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let dtype = PyDType(taper::default_dtype());
        let first = if args.len() == 1 { Some(args.get_item(0)?) } else { None };
        if let Some(data) = first.filter(|first| !first.is_instance_of::<pyo3::types::PyInt>()) {
            let named = pyo3::types::PyDict::new(args.py());
            named.set_item("dtype", dtype)?;
            let made = args.py().import("taper")?.getattr("tensor")?.call((data,), Some(&named))?;
            return Ok(PyTensor::at(made.cast::<PyTensor>()?.get().place()));
        }
        let sizes = if args.is_empty() { vec![0] } else { Ints(args.extract()?).sizes()? };
        let made = Tensor::zeros(sizes, (dtype.0, &taper::cpu()));
        made.map(PyTensor::plain).map_err(raise)
    }

    #[getter]
    fn dtype(&self) -> PyResult<PyDType> {
        Ok(PyDType(self.read()?.dtype()))
    }

    #[getter]
    fn device(&self) -> PyResult<PyDevice> {
        Ok(PyDevice::of(&self.read()?.device()))
    }

    #[getter]
    fn ndim(&self) -> PyResult<usize> {
        Ok(self.read()?.rank())
    }

    fn dim(&self) -> PyResult<usize> {
        self.ndim()
    }

    fn numel(&self) -> PyResult<usize> {
        Ok(self.read()?.numel())
    }

    /// The sizes as a tuple; the package makes a `Size` of it.
    fn _sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.read()?.dims())
    }

    #[pyo3(signature = (dim = None))]
    fn stride<'py>(&self, py: Python<'py>, dim: Option<isize>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.read()?;
        let strides = self.place().strided(value.dims()).strides;
        match dim {
            Some(dim) => {
                let stride = strides[crate::args::axis(dim, value.rank(), 0)?];
                Ok(stride.into_pyobject(py)?.into_any())
            }
            None => Ok(PyTuple::new(py, strides)?.into_any()),
        }
    }

    fn storage_offset(&self) -> PyResult<isize> {
        let dims = self.read()?;
        Ok(self.place().strided(dims.dims()).offset)
    }

    fn is_contiguous(&self) -> PyResult<bool> {
        let value = self.read()?;
        Ok(self.place().strided(value.dims()).is_contiguous(value.dims()))
    }

    fn is_floating_point(&self) -> PyResult<bool> {
        Ok(self.read()?.dtype().is_float())
    }

    #[getter]
    fn _version(&self) -> u64 {
        self.base().version()
    }

    /// The number of this tensor's memory: views of one base have the same.
    fn data_ptr(&self) -> usize {
        Arc::as_ptr(&self.base()) as usize
    }

    #[getter]
    fn _is_view(&self) -> bool {
        self.place().view.is_some()
    }

    #[getter]
    fn requires_grad(&self) -> PyResult<bool> {
        Ok(self.read()?.is_tracked())
    }

    #[setter]
    fn set_requires_grad(&self, required: bool) -> PyResult<()> {
        self.require_grad(required)
    }

    #[getter]
    fn is_leaf(&self) -> PyResult<bool> {
        let value = self.read()?;
        Ok(!value.is_tracked() || self.place().view.is_none() && self.base().own().is_leaf())
    }

    /// The name of the gradient function of a result that is recorded, such as `MulBackward0`.
    #[getter]
    fn _grad_name(&self) -> PyResult<Option<String>> {
        let value = self.read()?;
        if !value.is_tracked() || self.is_leaf()? {
            return Ok(None);
        }
        let name = self.place().name();
        Ok(Some(if name.is_empty() { format!("{}Backward0", value.op().grad_name()) } else { name.into() }))
    }

    /// For each operand of a recorded result: the name of the step that it came from with the operand, or
    /// `None` if it needs no gradient.
    fn _grad_inputs(&self) -> PyResult<Vec<Option<(String, PyTensor)>>> {
        let named = |input: Tensor| {
            let name = match input.is_cell() {
                true => "AccumulateGrad".to_string(),
                false => format!("{}Backward0", input.op().grad_name()),
            };
            input.is_tracked().then(|| (name, PyTensor::new(input, "")))
        };
        Ok(self.read()?.inputs().into_iter().map(named).collect())
    }

    #[getter]
    fn grad(&self) -> Option<PyTensor> {
        self.base().grad().map(|base| PyTensor::at(Place { base, view: None }))
    }

    #[setter]
    fn set_grad(&self, grad: Option<PyRef<'_, PyTensor>>) -> PyResult<()> {
        let Some(grad) = grad else {
            self.base().set_grad(None);
            return Ok(());
        };
        let (own, value) = (self.read()?, grad.read()?);
        if own.dims() != value.dims() || own.dtype() != value.dtype() || own.device() != value.device() {
            return Err(runtime(format!(
                "assigned grad has data of a different size, dtype or device: {} {} on {} for {} {} on {}",
                value.dtype(),
                value.shape(),
                value.device(),
                own.dtype(),
                own.shape(),
                own.device()
            )));
        }
        let place = grad.place();
        let alone = place.view.is_none() && !Arc::ptr_eq(&place.base, &self.base()) && !value.is_cell();
        let base = if alone { place.base } else { Base::new(value.detach(), "") };
        self.base().set_grad(Some(base));
        Ok(())
    }

    /// Makes this a leaf that needs a gradient, or no longer one.
    fn require_grad(&self, required: bool) -> PyResult<()> {
        let value = self.read()?;
        if value.is_tracked() == required {
            return Ok(());
        }
        if !self.is_leaf()? {
            return Err(runtime(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a \
                 subgraph that doesn't require differentiation use var_no_grad = var.detach().",
            ));
        }
        if required && !value.dtype().is_float() {
            return Err(runtime("only Tensors of floating point dtype can require gradients"));
        }
        if self.place().view.is_some() {
            // A view that becomes a leaf begins a memory of its own.
            self.set_place(Place::new(value, ""));
        }
        self.base().require_grad(required).map_err(raise)
    }

    /// Replaces the value, whatever it was: the setter of `data`.
    fn _set_data(&self, py: Python<'_>, value: Value) -> PyResult<()> {
        let place = self.place();
        let value = value.0.detach();
        if place.view.is_some() {
            self.set_place(Place::new(value, ""));
            return Ok(());
        }
        run(py, move || place.base.replace(&value, ""))
    }

    /// The end of an operation in place: the result becomes the value of this tensor, in its dtype.
    fn _replace<'py>(slf: &Bound<'py, Self>, result: Bound<'py, PyTensor>) -> PyResult<Bound<'py, Self>> {
        let (own, tensor) = (slf.get().read()?, result.get());
        let value = tensor.read()?;
        if value.dims() != own.dims() {
            return Err(runtime(format!(
                "output with shape {:?} doesn't match the broadcast shape {:?}",
                own.dims(),
                value.dims()
            )));
        }
        let (from, to) = (value.dtype(), own.dtype());
        if category(from) > category(to) {
            return Err(runtime(format!(
                "result type {} can't be cast to the desired output type {}",
                crate::print::type_name(from),
                crate::print::type_name(to)
            )));
        }
        let name = tensor.place().name();
        let value = if from == to { value } else { run(slf.py(), move || value.to_dtype(to))? };
        slf.get().write(slf.py(), &value, name)?;
        Ok(slf.clone())
    }

    /// `copy_`: the values of another tensor, in this one's dtype and sizes and on its device.
    #[pyo3(signature = (src, non_blocking = false))]
    fn copy_<'py>(slf: &Bound<'py, Self>, src: Value, non_blocking: bool) -> PyResult<Bound<'py, Self>> {
        let _ = non_blocking;
        let own = slf.get().read()?;
        let (dtype, device, dims) = (own.dtype(), own.device(), own.dims().to_vec());
        let value = run(slf.py(), move || src.0.to(&device)?.to_dtype(dtype)?.expand(dims))?;
        slf.get().write(slf.py(), &value, "CopyBackwards")?;
        Ok(slf.clone())
    }

    /// `fill_` with a number, and `zero_`.
    fn _fill<'py>(slf: &Bound<'py, Self>, value: crate::args::Plain) -> PyResult<Bound<'py, Self>> {
        let own = slf.get().read()?;
        let value = run(slf.py(), move || Ok(own.full_like(value.0)))?;
        slf.get().write(slf.py(), &value, "FillBackward0")?;
        Ok(slf.clone())
    }

    /// `set_`: this handle becomes one of the other tensor's memory.
    fn set_<'py>(slf: &Bound<'py, Self>, source: PyRef<'py, PyTensor>) -> Bound<'py, Self> {
        slf.get().set_place(source.place());
        slf.clone()
    }

    fn detach(&self) -> PyResult<PyTensor> {
        self.view_by(Recipe::Detach, "")
    }

    fn detach_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let value = slf.get().read()?.detach();
        slf.get().set_place(Place::new(value, ""));
        Ok(slf.clone())
    }

    fn contiguous(slf: &Bound<'_, Self>) -> PyResult<Py<PyTensor>> {
        if slf.get().is_contiguous()? {
            return Ok(slf.clone().unbind());
        }
        Py::new(slf.py(), slf.get().clone_value("CloneBackward0")?)
    }

    /// A copy, which no write to this one changes. Values never change, so it costs nothing.
    #[pyo3(signature = (memory_format = None))]
    fn clone(&self, memory_format: Option<&Bound<'_, PyAny>>) -> PyResult<PyTensor> {
        let _ = memory_format;
        self.clone_value("CloneBackward0")
    }

    /// The bytes of all elements in order.
    fn _bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let value = self.read()?;
        let bytes = run(py, move || value.read_bytes())?;
        Ok(pyo3::types::PyBytes::new(py, &bytes))
    }

    fn item(&self, py: Python<'_>) -> PyResult<Number> {
        self.scalar(py).map(Number)
    }

    /// All elements in order, as numbers.
    fn _numbers(&self, py: Python<'_>) -> PyResult<Vec<Number>> {
        let value = self.read()?;
        let dtype = value.dtype();
        let bytes = run(py, move || value.read_bytes())?;
        Ok(Scalar::from_bytes(dtype, &bytes).into_iter().map(Number).collect())
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let count = self.read()?.numel();
        if count != 1 {
            let what = if count == 0 { "no values" } else { "more than one value" };
            return Err(runtime(format!("Boolean value of Tensor with {what} is ambiguous")));
        }
        Ok(self.scalar(py)?.as_bool())
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.scalar(py)?.as_f64())
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<Number> {
        match self.scalar(py)? {
            Scalar::Float(v) if !v.is_finite() => {
                Err(wrong_value(format!("cannot convert float {v} to integer")))
            }
            Scalar::Float(v) => Ok(Number(Scalar::Int(v as i64))),
            Scalar::Bool(v) => Ok(Number(Scalar::Int(i64::from(v)))),
            number => Ok(Number(number)),
        }
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<Number> {
        let value = self.read()?;
        if value.numel() != 1 || value.dtype().is_float() {
            return Err(wrong_type("only integer tensors of a single element can be converted to an index"));
        }
        match self.scalar(py)? {
            Scalar::Bool(v) => Ok(Number(Scalar::Int(i64::from(v)))),
            number => Ok(Number(number)),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        let value = self.read()?;
        value.dims().first().copied().ok_or_else(|| wrong_type("len() of a 0-d tensor"))
    }

    /// Another device or dtype; the tensor itself if both are its own.
    #[pyo3(signature = (device = None, dtype = None, copy = false))]
    fn _to(
        slf: &Bound<'_, Self>,
        device: Option<At>,
        dtype: Option<Kind>,
        copy: bool,
    ) -> PyResult<Py<PyTensor>> {
        let value = slf.get().read()?;
        let device = device.map_or_else(|| Ok(value.device()), |At(device)| device.open())?;
        let mut dtype = dtype.map_or(value.dtype(), |Kind(dtype)| dtype);
        // A device without 64-bit integers keeps them in 32 bits.
        if dtype == DType::I64 && !device.supports(DType::I64) {
            dtype = device.int_dtype();
        }
        if !copy && value.device() == device && value.dtype() == dtype {
            return Ok(slf.clone().unbind());
        }
        let value = value.clone();
        // The narrower form travels.
        let moved = made(slf.py(), "ToCopyBackward0", move || {
            if device.supports(value.dtype()) && value.dtype().size() <= dtype.size() {
                value.to(&device)?.to_dtype(dtype)
            } else {
                value.to_dtype(dtype)?.to(&device)
            }
        })?;
        if copy && Arc::ptr_eq(&moved.base(), &slf.get().base()) {
            return Py::new(slf.py(), moved.clone_value("CloneBackward0")?);
        }
        Py::new(slf.py(), moved)
    }

    /// The text of `print`, with the options of `set_printoptions`.
    fn _text(&self, py: Python<'_>, options: crate::print::Options) -> PyResult<String> {
        let (grad, leaf) = (self._grad_name()?, self.is_leaf()?);
        let value = self.read()?;
        let state = match (value.is_tracked(), leaf, grad) {
            (true, false, Some(name)) => Some(format!("grad_fn=<{name}>")),
            (true, ..) => Some("requires_grad=True".to_string()),
            (false, ..) => None,
        };
        let device = PyDevice::of(&value.device());
        run(py, move || crate::print::text(&value, device, state, &options))
    }
}

impl PyTensor {
    /// The value in a cell of its own.
    pub(crate) fn clone_value(&self, name: &'static str) -> PyResult<PyTensor> {
        let value = self.read()?;
        // A recorded clone is a node of its own, so that each has its own gradient.
        let value = match run::is_recording() && value.is_tracked() {
            true => value.contiguous_copy(),
            false => value.detach(),
        };
        Ok(PyTensor::new(value, name))
    }
}

/// PyTorch's order of kinds: a result of a later kind cannot be written to a tensor of an earlier one.
pub(crate) fn category(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        dtype if dtype.is_int() => 1,
        _ => 2,
    }
}

/// Sizes of a call, for the package.
#[pyfunction]
pub(crate) fn _ints(sizes: Ints) -> Vec<isize> {
    sizes.0
}
