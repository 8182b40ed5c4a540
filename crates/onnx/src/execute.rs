//! Runs a graph: step by step, and each value is dropped after the last step that reads it.

use std::{
    cell::RefCell,
    sync::{Arc, PoisonError},
};

use autograd::is_grad_enabled;
use tensor_core::{Error, ErrorKind, Result, Tensor, autocast, eval_all, note_guard};

use crate::{
    context::{Context, Run},
    graph::{Action, Constant, Graph, Kept, Node, Output, Prepared},
    value::Value,
};

/// Operators that change the sequence in their first input.
const IN_PLACE: &[&str] = &["SequenceErase", "SequenceInsert"];

impl Prepared {
    /// Computes the results, or takes kept ones.
    fn run(&self, run: &Run<'_>, values: &mut [Option<Value>]) -> Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let weights = || self.weights.iter().map(|&index| &run.weights[index]);
        let recorded = is_grad_enabled() && weights().any(Tensor::is_tracked);
        if recorded || autocast::autocast_dtype().is_some() {
            return run_steps(run, &self.steps, values);
        }
        let ids: Vec<u64> = weights().map(Tensor::value_id).collect();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kept = match kept.filter(|kept| kept.device == *run.device && kept.ids == ids) {
            Some(kept) => kept,
            None => {
                run_steps(run, &self.steps, values)?;
                let mut results = Vec::with_capacity(self.results.len());
                for &(slot, repeats) in &self.results {
                    match &values[slot] {
                        Some(Value::Tensor(tensor)) if repeats => {
                            results.push((slot, tensor.contiguous()?.into()));
                        }
                        Some(value) => results.push((slot, value.clone())),
                        None => {}
                    }
                }
                let tensors = results.iter().filter_map(|(_, value)| match value {
                    Value::Tensor(tensor) => Some(tensor),
                    Value::Host(_) | Value::Sequence(_) | Value::Nothing => None,
                });
                eval_all(&tensors.collect::<Vec<&Tensor>>())?;
                let kept = Arc::new(Kept { device: run.device.clone(), ids: ids.clone(), values: results });
                *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept.clone());
                kept
            }
        };
        kept.values.iter().for_each(|(slot, value)| values[*slot] = Some(value.clone()));
        // Repeated runs read the kept results.
        note_guard(|| {
            let weights: Vec<Tensor> = weights().cloned().collect();
            Box::new(move || weights.iter().map(Tensor::value_id).eq(ids.iter().copied()))
        });
        Ok(())
    }
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
    graph.prepared.run(run, &mut values)?;
    run_steps(run, &graph.steps, &mut values)?;
    let output = |output: &Output| {
        values[output.slot].clone().ok_or_else(|| {
            Error::invalid("onnx", format!("the output \"{}\" has no value: nothing gave one", output.name))
        })
    };
    graph.outputs.iter().map(output).collect()
}

fn run_steps(run: &Run<'_>, steps: &[Node], values: &mut [Option<Value>]) -> Result<()> {
    for step in steps {
        let outputs = run_step(run, step, values).map_err(|error| at(step, error))?;
        for (slot, mut output) in step.outputs.iter().zip(outputs) {
            output.hold_within(run.meter).map_err(|error| at(step, error))?;
            if let Some(slot) = slot {
                values[*slot] = Some(output);
            }
        }
        step.frees.iter().for_each(|&slot| values[slot] = None);
    }
    Ok(())
}

fn run_step(run: &Run<'_>, step: &Node, values: &mut [Option<Value>]) -> Result<Vec<Value>> {
    let mut inputs: Vec<Option<Value>> =
        step.inputs.iter().map(|slot| slot.and_then(|slot| values[slot].clone())).collect();
    match &step.action {
        Action::Operator(operator, on_host) => {
            // A sequence that no later step reads is changed in place: it has its only owner here.
            let owned = match (step.inputs.first(), inputs.first_mut()) {
                (Some(&Some(slot)), Some(first @ Some(Value::Sequence(_))))
                    if IN_PLACE.contains(&step.op_type.as_str())
                        && operator.is_builtin()
                        && step.frees.contains(&slot) =>
                {
                    values[slot] = None;
                    first.take()
                }
                _ => None,
            };
            let context = Context { node: step, run, values, inputs, owned: RefCell::new(owned) };
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
