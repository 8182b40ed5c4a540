//! Profiles, explanations, pictures of graphs, memory by line, and the studio: how to see a program's work
//! and where it comes from.

use std::sync::Mutex;

use pyo3::prelude::*;
use taper::{
    inspect::{Graph, Profile, explain, memory_snapshot, record_memory},
    tensor_core::{Profiling, lock},
};

use crate::{
    args::Value,
    errors::{raise, runtime},
    tensor::run,
};

/// A profile that is taken, and then its kernels.
#[pyclass(name = "_Profile", module = "taper._taper", frozen)]
struct PyProfile(Mutex<State>);

enum State {
    Running(Profiling),
    Ended(Profile<()>),
    Failed,
}

#[pymethods]
impl PyProfile {
    /// Begins a profile.
    #[new]
    fn new(py: Python<'_>) -> PyResult<PyProfile> {
        Ok(PyProfile(Mutex::new(State::Running(run(py, Profiling::begin)?))))
    }

    /// Ends it.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let before = std::mem::replace(&mut *lock(&self.0), State::Failed);
        let after = match before {
            State::Running(profiling) => State::Ended(Profile::new((), run(py, move || profiling.end())?)),
            other => other,
        };
        *lock(&self.0) = after;
        Ok(())
    }

    /// The table of kernels by line, the longest first.
    fn table(&self) -> PyResult<String> {
        self.ended(ToString::to_string)
    }

    /// The kernels as a trace, which <https://ui.perfetto.dev> shows.
    fn trace(&self) -> PyResult<String> {
        self.ended(Profile::trace)
    }

    /// For each kernel of each line: device, kernel, operation, file, line, runs, microseconds, bytes and
    /// floating-point operations.
    #[allow(clippy::type_complexity)] // a row of a table
    fn rows(&self) -> PyResult<Vec<(String, String, String, String, u32, u64, f64, u64, u64)>> {
        self.ended(|profile| {
            let row = |line: taper::inspect::ProfileLine<'_>| {
                let run = line.run;
                let (file, number) = (run.location.file().into(), run.location.line());
                let microseconds = line.time.as_secs_f64() * 1e6;
                let (device, kernel, op) = (run.device.clone(), run.kernel.into(), run.op.into());
                (device, kernel, op, file, number, line.count, microseconds, line.bytes, line.flops)
            };
            profile.lines().into_iter().map(row).collect()
        })
    }
}

impl PyProfile {
    fn ended<R>(&self, f: impl FnOnce(&Profile<()>) -> R) -> PyResult<R> {
        match &*lock(&self.0) {
            State::Ended(profile) => Ok(f(profile)),
            _ => Err(runtime("the profile has not ended: leave its with block first")),
        }
    }
}

/// How a tensor is computed: its operations, the kernels that they become, what is stored and why, the bytes,
/// and the lines of the program. Nothing is computed.
#[pyfunction(name = "explain")]
#[pyo3(signature = (tensor))]
fn explain_tensor(py: Python<'_>, tensor: Value) -> PyResult<String> {
    run(py, move || Ok(explain(&tensor.0)?.to_string()))
}

/// The graph by which tensors were made, for a notebook or a file: `kind` is `svg`, `dot` (Graphviz) or
/// `json`. Names are those of parameters.
#[pyfunction]
#[pyo3(signature = (outputs, names, kind, folded))]
fn _graph(
    py: Python<'_>,
    outputs: Vec<Value>,
    names: Vec<(String, Value)>,
    kind: &str,
    folded: bool,
) -> PyResult<String> {
    let outputs: Vec<_> = outputs.into_iter().map(|output| output.0).collect();
    let names: Vec<_> = names.into_iter().map(|(name, tensor)| (name, tensor.0)).collect();
    let drawn = run(py, || {
        let graph = Graph::of(&outputs, &names);
        let graph = if folded { graph.folded() } else { graph };
        Ok(match kind {
            "svg" => Some(graph.svg()),
            "dot" => Some(graph.dot()),
            "json" => Some(graph.json()),
            _ => None,
        })
    })?;
    drawn.ok_or_else(|| runtime(format!("a graph as {kind:?}: svg, dot and json are known")))
}

/// Begins or ends the record of which line holds which memory.
#[pyfunction]
fn _record_memory(on: bool) {
    record_memory(on);
}

/// The lines that hold memory now, as a table.
#[pyfunction]
fn _memory_snapshot(py: Python<'_>) -> PyResult<String> {
    run(py, || Ok(memory_snapshot()?.to_string()))
}

/// Serves the studio's page on this machine, and gives its address.
#[pyfunction]
fn _serve_studio() -> PyResult<String> {
    taper::studio::serve().map_err(raise)
}

/// Adds the functions of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyProfile>()?;
    module.add_function(wrap_pyfunction!(explain_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(_graph, module)?)?;
    module.add_function(wrap_pyfunction!(_record_memory, module)?)?;
    module.add_function(wrap_pyfunction!(_memory_snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(_serve_studio, module)?)
}
