//! `torch.device`. `cpu` is the processor, and `cuda:0` the first GPU that Taper finds, of any maker.

use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use pyo3::{prelude::*, types::PyTuple};
use taper::{Device, ErrorKind, tensor_core::lock};

use crate::errors::{raise, runtime, wrong_type};

/// The variable of the environment that names more GPUs than there are: `TORCH_CUDA_DEVICES=4` makes
/// `cuda:0` to `cuda:3`, of which those beyond the GPUs of this machine share them. Programs for several
/// GPUs so run with one.
const COUNT: &str = "TORCH_CUDA_DEVICES";

/// A device by its name. `cuda` without a number is the current one, which is the first. `meta`, on which
/// PyTorch computes no values, is another device on the processor: Taper computes no value before it is read.
#[pyclass(name = "device", module = "torch", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PyDevice {
    kind: Kind,
    index: Option<usize>,
}

/// Taper's name of the device `meta`.
const META: &str = "cpu#1";

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Cpu,
    Cuda,
    Meta,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Cpu => "cpu",
            Kind::Cuda => "cuda",
            Kind::Meta => "meta",
        }
    }
}

impl PyDevice {
    const CPU: PyDevice = PyDevice { kind: Kind::Cpu, index: None };

    /// The name of a device of Taper.
    pub(crate) fn of(device: &Device) -> PyDevice {
        let name = device.name();
        if name.starts_with("cpu") {
            let kind = if name == META { Kind::Meta } else { Kind::Cpu };
            return PyDevice { kind, index: None };
        }
        let index = (0..count()).find(|&index| taper_name(index) == name).unwrap_or(0);
        PyDevice { kind: Kind::Cuda, index: Some(index) }
    }

    fn parse(text: &str) -> PyResult<PyDevice> {
        let unknown = || runtime(format!("Invalid device string: '{text}'"));
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => (kind, Some(index.parse::<usize>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let kind = match kind {
            "cpu" => Kind::Cpu,
            "cuda" | "wgpu" => Kind::Cuda,
            "meta" => Kind::Meta,
            _ => {
                return Err(runtime(format!(
                    "Expected one of cpu, cuda, meta device type at start of device string: {text}"
                )));
            }
        };
        Ok(PyDevice { kind, index })
    }

    /// The device itself, which is opened when it is first asked for.
    pub(crate) fn open(self) -> PyResult<Device> {
        match self.kind {
            Kind::Cpu => return Ok(taper::cpu()),
            Kind::Meta => return taper::device(META).map_err(raise),
            Kind::Cuda => {}
        }
        let index = self.index.unwrap_or(0);
        match count() {
            0 => {
                Err(runtime("Found no GPU: Taper knows none on this machine, see taper.cuda.is_available()"))
            }
            there if index >= there => Err(runtime(format!(
                "CUDA error: invalid device ordinal: there are {there} devices, and cuda:{index} is not one of them"
            ))),
            _ => taper::device(&taper_name(index)).map_err(raise),
        }
    }

    /// As PyTorch writes it: `cuda:0`.
    pub(crate) fn text(self) -> String {
        let kind = self.kind.name();
        self.index.map_or(kind.to_string(), |index| format!("{kind}:{index}"))
    }
}

/// The GPUs of this machine, as Taper counts them.
fn adapters() -> usize {
    static ADAPTERS: OnceLock<usize> = OnceLock::new();
    *ADAPTERS.get_or_init(|| taper::device_count("wgpu"))
}

/// The number of names `cuda:…`.
pub(crate) fn count() -> usize {
    static NAMES: OnceLock<usize> = OnceLock::new();
    *NAMES.get_or_init(|| {
        let asked = std::env::var(COUNT).ok().and_then(|count| count.trim().parse().ok());
        match adapters() {
            0 => 0,
            adapters => asked.unwrap_or(adapters),
        }
    })
}

/// Taper's name of the device with this number. Numbers past the last GPU begin again at the first, as
/// further devices on it.
fn taper_name(index: usize) -> String {
    let adapters = adapters().max(1);
    match (index / adapters, index % adapters) {
        (0, adapter) => format!("wgpu:{adapter}"),
        (again, adapter) => format!("wgpu:{adapter}#{again}"),
    }
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (r#type, index = None))]
    fn new(r#type: &Bound<'_, PyAny>, index: Option<usize>) -> PyResult<PyDevice> {
        let device = named(r#type.as_borrowed())?;
        Ok(PyDevice { index: index.or(device.index), ..device })
    }

    #[getter]
    fn r#type(&self) -> &'static str {
        self.kind.name()
    }

    #[getter]
    fn index(&self) -> Option<usize> {
        self.index
    }

    fn __str__(&self) -> String {
        self.text()
    }

    fn __repr__(&self) -> String {
        let index = self.index.map_or(String::new(), |index| format!(", index={index}"));
        format!("device(type='{}'{index})", self.r#type())
    }

    /// `with torch.device("cuda"):` makes it the device of calls that name none.
    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        let device = *slf.get();
        device.open()?;
        let before = std::mem::replace(&mut *DEFAULT.write().unwrap_or_else(PoisonError::into_inner), device);
        lock(&BEFORE).push(before);
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        let before = lock(&BEFORE).pop();
        *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = before.unwrap_or(PyDevice::CPU);
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (String,))> {
        let make = py.import("taper")?.getattr("_device_of_name")?;
        Ok((make.unbind(), (self.text(),)))
    }
}

fn named(object: Borrowed<'_, '_, PyAny>) -> PyResult<PyDevice> {
    if let Ok(device) = object.cast::<PyDevice>() {
        return Ok(*device.get());
    }
    if let Ok(text) = object.extract::<String>() {
        return PyDevice::parse(&text);
    }
    if let Ok(index) = object.extract::<usize>() {
        return Ok(PyDevice { kind: Kind::Cuda, index: Some(index) });
    }
    Err(wrong_type(format!("{} is not a torch.device", object.get_type())))
}

/// A device as an argument: an object, a text such as `cuda:0`, or the number of a GPU.
#[derive(Clone, Copy)]
pub(crate) struct At(pub(crate) PyDevice);

impl<'py> FromPyObject<'_, 'py> for At {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<At> {
        named(object).map(At)
    }
}

/// The device of an argument that may be missing: `set_default_device` chooses what is meant then.
pub(crate) fn open(device: Option<At>) -> PyResult<Device> {
    device.map_or_else(default, |At(device)| device).open()
}

/// The device of a call that names none; the processor until a program says otherwise.
static DEFAULT: RwLock<PyDevice> = RwLock::new(PyDevice::CPU);

/// The devices that were the default outside of each `with`.
static BEFORE: Mutex<Vec<PyDevice>> = Mutex::new(Vec::new());

fn default() -> PyDevice {
    *DEFAULT.read().unwrap_or_else(PoisonError::into_inner)
}

/// The number of GPUs that `taper.cuda` names.
#[pyfunction]
pub(crate) fn cuda_device_count() -> usize {
    count()
}

/// The name of a GPU and its memory in bytes.
#[pyfunction]
pub(crate) fn cuda_properties(device: At) -> PyResult<(String, Option<u64>)> {
    let device = device.0.open()?;
    let info = device.info();
    Ok((info.description.clone(), info.memory))
}

/// Bytes in use, their peak, and the bytes that are reserved.
#[pyfunction]
pub(crate) fn memory_stats(device: At) -> PyResult<(u64, u64, u64)> {
    let memory = device.0.open()?.memory();
    Ok((memory.allocated, memory.peak, memory.reserved))
}

/// Frees the buffers that a device keeps for later, or begins the peak anew.
#[pyfunction]
pub(crate) fn empty_cache(device: At, peak_only: bool) -> PyResult<()> {
    let device = device.0.open()?;
    if peak_only {
        device.reset_peak()
    } else {
        device.empty_cache()
    }
    Ok(())
}

/// Computes everything that is pending, and waits until a device has done it.
#[pyfunction]
pub(crate) fn synchronize(py: Python<'_>, device: At) -> PyResult<()> {
    let device = device.0.open()?;
    crate::tensor::run(py, move || {
        match taper::eval_pending() {
            // A slice of a `vmap` that is still held has no value; a reader of it meets the error.
            Err(error) if !matches!(error.kind(), ErrorKind::Unsupported { op: "vmap", .. }) => {
                return Err(error);
            }
            _ => {}
        }
        device.synchronize()
    })
}

/// `torch.set_default_device`; `None` takes it back.
#[pyfunction]
#[pyo3(signature = (device))]
pub(crate) fn set_default_device(device: Option<At>) -> PyResult<()> {
    let device = device.map_or(PyDevice::CPU, |At(device)| device);
    device.open()?;
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = device;
    Ok(())
}

/// `torch.get_default_device`.
#[pyfunction]
pub(crate) fn get_default_device() -> PyDevice {
    default()
}

/// The number of threads of the CPU.
#[pyfunction]
pub(crate) fn _num_threads() -> usize {
    taper::num_threads()
}

/// Sets the number of threads of the CPU.
#[pyfunction]
pub(crate) fn _set_num_threads(py: Python<'_>, count: usize) -> PyResult<()> {
    crate::run::run(py, || taper::set_num_threads(count))
}
