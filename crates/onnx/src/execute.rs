//! Runs a graph: step by step, and each value is dropped after the last step that reads it.

use tensor_core::{Device, Error, ErrorKind, Result, Tensor};

use crate::{
    context::Context,
    graph::{Action, Constant, Graph, Node},
    value::Value,
};

/// The device and the weights, which all graphs of one run share.
pub(crate) struct Run<'a> {
    pub(crate) device: &'a Device,
    pub(crate) weights: &'a [Tensor],
}

/// The outputs of a graph for inputs in order; `outer` has the values of the surrounding graph.
pub(crate) fn run_graph(
    run: &Run<'_>,
    graph: &Graph,
    inputs: Vec<Option<Value>>,
    outer: &[Option<Value>],
) -> Result<Vec<Value>> {
    let mut values: Vec<Option<Value>> = vec![None; graph.slots];
    for (slot, constant) in &graph.constants {
        values[*slot] = Some(match constant {
            Constant::Host(host) => Value::Host(host.clone()),
            Constant::Weight(index) => Value::Tensor(run.weights[*index].clone()),
        });
    }
    if inputs.len() > graph.inputs.len() {
        let message = format!("{} inputs for a graph of {}", inputs.len(), graph.inputs.len());
        return Err(Error::invalid("onnx", message));
    }
    for (input, value) in graph.inputs.iter().zip(inputs) {
        if value.is_some() {
            values[input.slot] = value;
        }
    }
    for &(from, to) in &graph.captures {
        values[to] = outer[from].clone();
    }
    for step in &graph.steps {
        let outputs = run_step(run, step, &values).map_err(|error| at(step, error))?;
        for (slot, output) in step.outputs.iter().zip(outputs) {
            if let Some(slot) = slot {
                values[*slot] = Some(output);
            }
        }
        step.frees.iter().for_each(|&slot| values[slot] = None);
    }
    let output = |output: &crate::graph::Output| {
        values[output.slot].clone().ok_or_else(|| {
            Error::invalid("onnx", format!("the output \"{}\" has no value: nothing gave one", output.name))
        })
    };
    graph.outputs.iter().map(output).collect()
}

fn run_step(run: &Run<'_>, step: &Node, values: &[Option<Value>]) -> Result<Vec<Value>> {
    let inputs: Vec<Option<Value>> =
        step.inputs.iter().map(|slot| slot.and_then(|slot| values[slot].clone())).collect();
    match &step.action {
        Action::Operator(operator, on_host) => {
            let context = Context { node: step, run, values, inputs };
            if let Some(on_host) = on_host
                && let Some(outputs) = on_host(&context)?
            {
                return Ok(outputs);
            }
            operator.run(&context)
        }
        Action::Call(graph) => run_graph(run, graph, inputs, &[]),
    }
}

/// The error with the node's name before it. Device failures are not changed.
fn at(step: &Node, error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutOfMemory { .. } | ErrorKind::DeviceLost { .. } => error,
        ErrorKind::Invalid { op: "onnx", message } => {
            Error::invalid("onnx", format!("{}: {message}", step.title()))
        }
        _ => Error::invalid("onnx", format!("{}: {error}", step.title())),
    }
}
