//! ONNX files: networks of Python as files, and files as networks.

use std::path::PathBuf;

use pyo3::prelude::*;
use taper::{
    Tensor,
    nn::{Module, Visitor, VisitorMut},
    no_grad,
    onnx::{DynamicAxis, Export, Model, export_with},
};

use crate::{
    args::Value,
    device::{At, open},
    func::called,
    tensor::{PyTensor, run},
};

/// The parameters and buffers of a module of Python, with their names in its state dict.
struct Named {
    parameters: Vec<(String, Tensor)>,
    buffers: Vec<(String, Tensor)>,
}

impl Module for Named {
    fn visit(&self, visitor: &mut Visitor) {
        for (name, tensor) in &self.parameters {
            visitor.parameter(name, tensor);
        }
        for (name, tensor) in &self.buffers {
            visitor.buffer(name, tensor);
        }
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut) {
        for (name, tensor) in &mut self.parameters {
            visitor.parameter(name, tensor);
        }
        for (name, tensor) in &mut self.buffers {
            visitor.buffer(name, tensor);
        }
    }
}

fn tensors(named: Vec<(String, Value)>) -> Vec<(String, Tensor)> {
    named.into_iter().map(|(name, tensor)| (name, tensor.0)).collect()
}

/// Writes a function of tensors as an ONNX file, and gives the number of nodes of each operator. The function
/// takes a list of inputs and gives a list of outputs; it is called several times if axes are dynamic.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // those of the package's function
fn _export_onnx(
    py: Python<'_>,
    function: Py<PyAny>,
    parameters: Vec<(String, Value)>,
    buffers: Vec<(String, Value)>,
    inputs: Vec<(String, Value)>,
    path: PathBuf,
    output_names: Vec<String>,
    dynamic_axes: Vec<(String, usize, String)>,
    opset: i64,
) -> PyResult<Vec<(String, usize)>> {
    let model = Named { parameters: tensors(parameters), buffers: tensors(buffers) };
    let inputs = tensors(inputs);
    let axes = dynamic_axes.into_iter().map(|(input, axis, name)| DynamicAxis { input, axis, name });
    let options = Export { opset, output_names, dynamic_axes: axes.collect(), ..Default::default() };
    run(py, move || {
        let call = |_: &Named, given: &[Tensor]| called(&function, "onnx.export", given);
        let inputs = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let written = export_with(&model, call, inputs, &path, &options)?;
        Ok(written.operators.into_iter().collect())
    })
}

/// A network from an ONNX file.
#[pyclass(name = "_OnnxModel", module = "taper._taper", frozen)]
struct PyModel(Model);

#[pymethods]
impl PyModel {
    #[new]
    #[pyo3(signature = (path, device = None))]
    fn new(py: Python<'_>, path: PathBuf, device: Option<At>) -> PyResult<PyModel> {
        let device = open(device)?;
        Ok(PyModel(run(py, move || Model::load(path, &device))?))
    }

    /// The outputs with their names, for inputs by name.
    fn run(&self, py: Python<'_>, inputs: Vec<(String, Value)>) -> PyResult<Vec<(String, PyTensor)>> {
        let inputs = tensors(inputs);
        let outputs = run(py, || {
            let outputs =
                no_grad(|| self.0.run(inputs.iter().map(|(name, tensor)| (name.as_str(), tensor))))?;
            let names: Vec<String> = outputs.iter().map(|(name, _)| name.to_string()).collect();
            Ok(names.into_iter().zip(outputs.tensors()?).collect::<Vec<_>>())
        })?;
        Ok(outputs.into_iter().map(|(name, output)| (name, PyTensor::plain(output))).collect())
    }

    fn input_names(&self) -> Vec<String> {
        self.0.inputs().into_iter().map(|input| input.name).collect()
    }

    fn output_names(&self) -> Vec<String> {
        self.0.output_names().map(String::from).collect()
    }

    /// The inputs with dtypes and sizes, and the outputs.
    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyModel>()?;
    module.add_function(wrap_pyfunction!(_export_onnx, module)?)
}
