//! Gradients: `backward`, `autograd.grad`, hooks, and functions whose gradient is written in Python.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use pyo3::{prelude::*, types::PyTuple};
use taper::{
    Result, Tensor,
    autograd::TensorGrad,
    tensor_core::{CustomOp, lock},
};

use crate::{
    args::Value,
    errors::{keep, runtime},
    tensor::{PyTensor, run},
};

/// One tensor whose gradient is the sum of those of all outputs, each times its seed.
pub(crate) fn root(outputs: &[(Tensor, Option<Tensor>)]) -> Result<Tensor> {
    taper::enable_grad(|| {
        let mut sum: Option<Tensor> = None;
        for (output, seed) in outputs {
            let part = match seed {
                Some(seed) if seed.shape() != output.shape() => {
                    let message = format!(
                        "Mismatch in shape: grad_output has a shape of {} and output has a shape of {}.",
                        seed.shape(),
                        output.shape()
                    );
                    return Err(taper::Error::invalid("backward", message));
                }
                Some(seed) => output.mul(seed)?.sum(),
                None if output.numel() != 1 => {
                    let message = "grad can be implicitly created only for scalar outputs";
                    return Err(taper::Error::invalid("backward", message));
                }
                None => output.reshape(())?,
            };
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        sum.ok_or_else(|| taper::Error::invalid("backward", "there is no output"))
    })
}

/// The errors of outputs and inputs without a record.
pub(crate) fn check_tracked(outputs: &[Value], inputs: &[Value]) -> PyResult<()> {
    let all_tracked = |values: &[Value]| values.iter().all(|value| value.0.is_tracked());
    if !all_tracked(outputs) {
        return Err(runtime("element 0 of tensors does not require grad and does not have a grad_fn"));
    }
    if !all_tracked(inputs) {
        return Err(runtime("One of the differentiated Tensors does not require grad"));
    }
    Ok(())
}

/// The leaves that a result was computed from.
pub(crate) fn leaves(root: &Tensor) -> Vec<Tensor> {
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    let mut waiting = vec![root.clone()];
    while let Some(node) = waiting.pop() {
        if !seen.insert(node.id()) || !node.is_tracked() {
            continue;
        }
        match node.leaf() {
            Some(leaf) if seen.insert(leaf.id()) || leaf.id() == node.id() => found.push(leaf),
            Some(_) => {}
            None => waiting.extend(node.recorded_inputs()),
        }
    }
    found
}

/// Adds the gradients of the outputs to the leaves they were computed from, or to some of them.
#[pyfunction]
#[pyo3(signature = (outputs, seeds, retain_graph, create_graph, inputs = None))]
fn _backward(
    py: Python<'_>,
    outputs: Vec<Value>,
    seeds: Vec<Option<Value>>,
    retain_graph: bool,
    create_graph: bool,
    inputs: Option<Vec<PyRef<'_, PyTensor>>>,
) -> PyResult<()> {
    check_tracked(&outputs, &[])?;
    let pairs: Vec<(Tensor, Option<Tensor>)> =
        outputs.into_iter().zip(seeds).map(|(output, seed)| (output.0, seed.map(|seed| seed.0))).collect();
    let inputs = inputs.map(|inputs| inputs.iter().map(|input| input.base().own()).collect::<Vec<_>>());
    run(py, move || {
        if let ([(output, None)], false, None) = (&pairs[..], create_graph, &inputs)
            && output.numel() == 1
        {
            return if retain_graph { output.backward_retain() } else { output.backward() };
        }
        let root = root(&pairs)?;
        if !create_graph && inputs.is_none() {
            return if retain_graph { root.backward_retain() } else { root.backward() };
        }
        let into = inputs.unwrap_or_else(|| leaves(&root));
        let gradients = taper::grad(&[&root], &into, create_graph)?;
        taper::autograd::set_grad_enabled(create_graph, || {
            for (leaf, gradient) in into.iter().zip(gradients) {
                let Some(gradient) = gradient else { continue };
                let sum = match leaf.grad() {
                    Some(before) => before.add(&gradient)?,
                    None => gradient,
                };
                leaf.set_grad(Some(sum));
            }
            Ok(())
        })
    })
}

/// The gradients of the outputs by the inputs; `None` for an input that no output depends on.
#[pyfunction]
fn _grad(
    py: Python<'_>,
    outputs: Vec<Value>,
    seeds: Vec<Option<Value>>,
    inputs: Vec<Value>,
    create_graph: bool,
) -> PyResult<Vec<Option<PyTensor>>> {
    check_tracked(&outputs, &inputs)?;
    let pairs: Vec<(Tensor, Option<Tensor>)> =
        outputs.into_iter().zip(seeds).map(|(output, seed)| (output.0, seed.map(|seed| seed.0))).collect();
    let inputs: Vec<Tensor> = inputs.into_iter().map(|input| input.0).collect();
    let gradients = run(py, move || taper::grad(&[&root(&pairs)?], &inputs, create_graph))?;
    Ok(gradients.into_iter().map(|gradient| gradient.map(|value| PyTensor::new(value, ""))).collect())
}

/// A switch that takes a hook away.
#[pyclass(frozen)]
struct HookSwitch(Arc<AtomicBool>);

#[pymethods]
impl HookSwitch {
    fn remove(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[pymethods]
impl PyTensor {
    /// Calls a function with the gradient of this tensor when it is computed; a tensor that it returns takes
    /// the gradient's place.
    fn _register_hook(&self, hook: Py<PyAny>) -> PyResult<HookSwitch> {
        let value = self.read()?;
        if !value.is_tracked() {
            return Err(runtime("cannot register a hook on a tensor that doesn't require gradient"));
        }
        let on = Arc::new(AtomicBool::new(true));
        let switch = HookSwitch(on.clone());
        self.hook(Arc::new(move |gradient| {
            if !on.load(Ordering::Relaxed) {
                return Ok(None);
            }
            Python::attach(|py| {
                let given = PyTensor::new(gradient.clone(), "");
                let other = hook.call1(py, (given,))?;
                other.extract::<Option<Value>>(py).map(|value| value.map(|Value(tensor)| tensor))
            })
            .map_err(|error| keep("hook", error))
        }))?;
        Ok(switch)
    }

    /// Keeps the gradient of a result, so that `grad` shows it.
    fn retain_grad(&self) -> PyResult<()> {
        let value = self.read()?;
        if !value.is_tracked() {
            return Err(runtime("can't retain_grad on Tensor that has requires_grad=False"));
        }
        if value.is_leaf() {
            return Ok(());
        }
        let slot = self.base().retain();
        self.hook(Arc::new(move |gradient| {
            *lock(&slot) = Some(gradient.clone());
            Ok(None)
        }))
    }
}

/// A function whose gradient a Python function computes.
struct Custom {
    name: &'static str,
    backward: Py<PyAny>,
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl CustomOp for Custom {
    fn name(&self) -> &'static str {
        self.name
    }

    fn backward(
        &self,
        inputs: &[Tensor],
        _results: &[Tensor],
        gradients: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let found = Python::attach(|py| {
            let given = gradients
                .iter()
                .map(|gradient| {
                    gradient.clone().map(|value| Py::new(py, PyTensor::new(value, ""))).transpose()
                })
                .collect::<PyResult<Vec<_>>>()?;
            let found = self.backward.call1(py, (PyTuple::new(py, given)?,))?;
            let found: Vec<Option<Value>> = found.extract(py)?;
            Ok(found.into_iter().map(|value| value.map(|Value(tensor)| tensor)).collect::<Vec<_>>())
        });
        let found = found.map_err(|error| keep(self.name, error))?;
        if found.len() != inputs.len() {
            let message = format!("returned {} gradients for {} tensors", found.len(), inputs.len());
            return Err(taper::Error::invalid("backward", message));
        }
        Ok(found)
    }
}

/// Ties results that were computed without a record to the tensors they depend on. `backward` gets a tuple
/// of the results' gradients, and gives a list with a gradient or `None` for each tensor.
#[pyfunction]
fn _custom(
    py: Python<'_>,
    name: String,
    backward: Py<PyAny>,
    inputs: Vec<Value>,
    results: Vec<Value>,
) -> PyResult<Vec<PyTensor>> {
    let inputs: Vec<Tensor> = inputs.into_iter().map(|input| input.0).collect();
    let results: Vec<Tensor> = results.into_iter().map(|result| result.0.detach()).collect();
    let name = interned(name);
    let tied = run(py, move || {
        let op = Arc::new(Custom { name, backward });
        Ok(Tensor::custom(op, &inputs.iter().collect::<Vec<_>>(), &results))
    })?;
    Ok(tied.into_iter().map(|result| PyTensor::new(result, name)).collect())
}

/// A name that lives as long as the program; each is kept once.
fn interned(name: String) -> &'static str {
    static NAMES: std::sync::Mutex<Option<HashSet<&'static str>>> = std::sync::Mutex::new(None);
    let mut names = lock(&NAMES);
    let names = names.get_or_insert_default();
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let kept: &'static str = Box::leak(name.into_boxed_str());
    names.insert(kept);
    kept
}

/// Compares the gradients of a Python function with finite differences.
#[pyfunction]
fn _gradcheck(py: Python<'_>, function: Py<PyAny>, inputs: Vec<Value>) -> PyResult<()> {
    let inputs: Vec<Tensor> = inputs.into_iter().map(|input| input.0).collect();
    run(py, move || {
        let call = |given: &[Tensor]| {
            Python::attach(|py| {
                let given = given.iter().map(|one| PyTensor::new(one.clone(), ""));
                let given = given.map(|one| Py::new(py, one)).collect::<PyResult<Vec<_>>>()?;
                function.call1(py, PyTuple::new(py, given)?)?.extract::<Value>(py).map(|value| value.0)
            })
            .map_err(|error| keep("gradcheck", error))
        };
        taper::autograd::gradcheck(call, &inputs)
    })
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_backward, module)?)?;
    module.add_function(wrap_pyfunction!(_grad, module)?)?;
    module.add_function(wrap_pyfunction!(_gradcheck, module)?)?;
    module.add_function(wrap_pyfunction!(_custom, module)?)
}
