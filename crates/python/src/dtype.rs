//! `torch.dtype`: the element types under PyTorch's names.

use pyo3::prelude::*;
use taper::DType;

use crate::errors::wrong_type;

/// An element type.
#[pyclass(name = "dtype", module = "torch", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDType(pub(crate) DType);

/// Other names of some types.
const ALIASES: &[(&str, DType)] = &[
    ("float", DType::F32),
    ("double", DType::F64),
    ("half", DType::F16),
    ("long", DType::I64),
    ("int", DType::I32),
    ("short", DType::I16),
];

/// The name of PyTorch, such as `float32`.
pub(crate) fn name(dtype: DType) -> &'static str {
    let name = dtype.info().torch;
    name.strip_prefix("torch.").unwrap_or(name)
}

#[pymethods]
impl PyDType {
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }

    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }

    #[getter]
    fn is_complex(&self) -> bool {
        false
    }

    #[getter]
    fn is_signed(&self) -> bool {
        self.0.is_signed()
    }

    /// The greatest and the least number, the distance from 1 to the next number, the least positive normal
    /// number, and the bits: what `finfo` and `iinfo` show.
    fn _limits(&self) -> (Number, Number, f64, f64, usize) {
        let dtype = self.0;
        let bits = dtype.size() * 8;
        (Number(dtype.greatest()), Number(dtype.least()), dtype.epsilon(), dtype.smallest_normal(), bits)
    }

    /// The name in numpy, if numpy has this type.
    #[getter]
    fn _numpy(&self) -> Option<&'static str> {
        match self.0 {
            DType::Bool => Some("bool"),
            dtype if dtype.info().numpy.is_some() => Some(name(dtype)),
            _ => None,
        }
    }

    fn __repr__(&self) -> String {
        format!("torch.{}", name(self.0))
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (String,))> {
        let make = py.import("taper")?.getattr("_dtype_of_name")?;
        Ok((make.unbind(), (name(self.0).to_string(),)))
    }
}

/// A number as Python has it: `bool`, `int` or `float`.
pub(crate) struct Number(pub(crate) taper::Scalar);

impl<'py> IntoPyObject<'py> for Number {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.0 {
            taper::Scalar::Bool(v) => v.into_pyobject(py)?.to_owned().into_any(),
            taper::Scalar::Int(v) => v.into_pyobject(py)?.into_any(),
            taper::Scalar::Unsigned(v) => v.into_pyobject(py)?.into_any(),
            taper::Scalar::Float(v) => v.into_pyobject(py)?.into_any(),
        })
    }
}

/// An element type as an argument: one of ours, or Python's `float`, `int` and `bool`.
#[derive(Clone, Copy)]
pub(crate) struct Kind(pub(crate) DType);

impl<'py> FromPyObject<'_, 'py> for Kind {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Kind> {
        if let Ok(dtype) = object.cast::<PyDType>() {
            return Ok(Kind(dtype.get().0));
        }
        let name = object.getattr("__name__").and_then(|name| name.extract::<String>());
        match name.as_deref() {
            Ok("float") => Ok(Kind(DType::F64)),
            Ok("int") => Ok(Kind(DType::I64)),
            Ok("bool") => Ok(Kind(DType::Bool)),
            _ => Err(wrong_type(format!("{} is not a torch.dtype", object.get_type()))),
        }
    }
}

/// Every type under every name, for the package: `taper.float32`, `taper.long`.
pub(crate) fn names() -> Vec<(&'static str, PyDType)> {
    let own = DType::ALL.into_iter().map(|dtype| (name(dtype), PyDType(dtype)));
    own.chain(ALIASES.iter().map(|&(name, dtype)| (name, PyDType(dtype)))).collect()
}

/// `torch.promote_types`.
#[pyfunction]
pub(crate) fn promote_types(a: Kind, b: Kind) -> PyDType {
    PyDType(a.0.promote(b.0))
}

/// `torch.get_default_dtype`.
#[pyfunction]
pub(crate) fn get_default_dtype() -> PyDType {
    PyDType(taper::default_dtype())
}

/// `torch.set_default_dtype`.
#[pyfunction]
pub(crate) fn set_default_dtype(dtype: Kind) -> PyResult<()> {
    taper::set_default_dtype(dtype.0).map_err(crate::errors::raise)
}
