//! `vmap` and gradients for a batch of seeds, over Taper's function transforms: the parts of `torch.func`
//! that need the recorded graph. The package composes the other transforms of them.

use std::{cell::RefCell, collections::HashSet};

use pyo3::{prelude::*, types::PyList};
use taper::{ErrorKind, Result, Tensor, autograd::func::vmap, tensor_core::Op};

use crate::{
    args::Value,
    autograd::{check_tracked, leaves, root},
    errors::keep,
    tensor::{PyTensor, run},
};

/// The name of `vmap` in Taper's errors.
const OP: &str = "vmap";

/// Calls a Python function, which takes a list of tensors and gives one, for the operation `op`.
pub(crate) fn called(function: &Py<PyAny>, op: &'static str, given: &[Tensor]) -> Result<Vec<Tensor>> {
    Python::attach(|py| {
        let given = given.iter().map(|one| Py::new(py, PyTensor::plain(one.clone())));
        let given = PyList::new(py, given.collect::<PyResult<Vec<_>>>()?)?;
        let results: Vec<Value> = function.call1(py, (given,))?.extract(py)?;
        Ok(results.into_iter().map(|Value(result)| result).collect())
    })
    .map_err(|error| keep(op, error))
}

/// Applies a Python function to all slices of the inputs along the given axes. It is called once, with a list
/// of slices, and gives a list of tensors; the results have the axis of slices first.
#[pyfunction]
fn _vmap(
    py: Python<'_>,
    function: Py<PyAny>,
    inputs: Vec<Value>,
    axes: Vec<Option<isize>>,
) -> PyResult<Vec<PyTensor>> {
    let inputs: Vec<Tensor> = inputs.into_iter().map(|input| input.0).collect();
    let results = run(py, move || vmap(|slices: &[Tensor]| called(&function, OP, slices), &inputs, &axes))?;
    Ok(results.into_iter().map(PyTensor::plain).collect())
}

/// The gradients of the outputs by the inputs for each of a batch of seeds, which is the first axis of the
/// seeds and of the gradients. `None` for an input that no output depends on.
#[pyfunction]
fn _grad_batched(
    py: Python<'_>,
    outputs: Vec<Value>,
    seeds: Vec<Value>,
    inputs: Vec<Value>,
    create_graph: bool,
) -> PyResult<Vec<Option<PyTensor>>> {
    check_tracked(&outputs, &inputs)?;
    let outputs: Vec<Tensor> = outputs.into_iter().map(|output| output.0).collect();
    let seeds: Vec<Tensor> = seeds.into_iter().map(|seed| seed.0).collect();
    let inputs: Vec<Tensor> = inputs.into_iter().map(|input| input.0).collect();
    let gradients = run(py, move || {
        let reached = RefCell::new(vec![false; inputs.len()]);
        let pull = |seeds: &[Tensor]| {
            let pairs: Vec<_> = outputs.iter().cloned().zip(seeds.iter().cloned().map(Some)).collect();
            let found = taper::grad(&[&root(&pairs)?], &inputs, create_graph)?;
            reached.replace(found.iter().map(Option::is_some).collect());
            let complete = found.into_iter().zip(&inputs);
            Ok(complete.map(|(found, input)| found.unwrap_or_else(|| input.zeros_like())).collect::<Vec<_>>())
        };
        let batched = match vmap(pull, &seeds, &vec![Some(0); seeds.len()]) {
            // A rule that reads values has no batched form.
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported { op: OP, .. }) => {
                one_by_one(pull, &seeds, inputs.len())?
            }
            batched => batched?,
        };
        Ok(batched
            .into_iter()
            .zip(reached.into_inner())
            .map(|(one, is)| is.then_some(one))
            .collect::<Vec<_>>())
    })?;
    Ok(gradients.into_iter().map(|gradient| gradient.map(PyTensor::plain)).collect())
}

/// The gradients of each seed by itself.
fn one_by_one(
    pull: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    seeds: &[Tensor],
    inputs: usize,
) -> Result<Vec<Tensor>> {
    let mut rows: Vec<Vec<Tensor>> = vec![Vec::new(); inputs];
    for at in 0..seeds.first().map_or(0, |seed| seed.dims()[0]) {
        let seed = seeds.iter().map(|seed| seed.select(0, at as isize)).collect::<Result<Vec<_>>>()?;
        for (row, found) in rows.iter_mut().zip(pull(&seed)?) {
            row.push(found);
        }
    }
    rows.iter().map(|row| Tensor::stack(row, 0)).collect()
}

/// Whether tensors depend on leaves that need a gradient and are none of these.
#[pyfunction]
fn _depend_on_others(tensors: Vec<Value>, own: Vec<Value>) -> bool {
    let own: HashSet<u64> = own.iter().filter_map(|one| one.0.leaf()).map(|leaf| leaf.id()).collect();
    tensors.iter().any(|one| leaves(&one.0).iter().any(|leaf| !own.contains(&leaf.id())))
}

/// Whether a tensor depends on the slices of a `vmap` that is running, so that it has no value.
#[pyfunction]
fn _is_mapped(tensor: Value) -> bool {
    let (mut seen, mut waiting) = (HashSet::new(), vec![tensor.0.resolve()]);
    while let Some(node) = waiting.pop() {
        if matches!(node.op(), Op::CustomKernel(kernel) if kernel.name() == OP) {
            return true;
        }
        if seen.insert(node.id()) {
            waiting.extend(node.recorded_inputs().iter().map(Tensor::resolve));
        }
    }
    false
}

#[pymethods]
impl PyTensor {
    /// The tensor of the whole memory that this one is a view of.
    fn _whole(&self) -> PyTensor {
        PyTensor::at(crate::cell::Place { base: self.base(), view: None })
    }
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_vmap, module)?)?;
    module.add_function(wrap_pyfunction!(_grad_batched, module)?)?;
    module.add_function(wrap_pyfunction!(_is_mapped, module)?)?;
    module.add_function(wrap_pyfunction!(_depend_on_others, module)?)
}
