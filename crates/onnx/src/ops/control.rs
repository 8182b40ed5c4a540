//! Control flow: graphs within a node, which read the values around it.

use std::sync::Arc;

use tensor_core::{Result, Tensor};

use super::Row;
use crate::{
    context::Context,
    value::{HostTensor, Value},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "If", 1, if_),
    ("", "Loop", 1, loop_),
    ("", "Scan", 8, scan_batched),
    ("", "Scan", 9, scan),
    ("", "SequenceMap", 17, sequence_map),
];

/// Whether a condition of one element holds.
fn holds(c: &Context<'_>, value: &Value) -> Result<bool> {
    let host = value.to_host()?;
    host.to_i64s()?.first().map(|&x| x != 0).ok_or_else(|| c.error("the condition has no elements"))
}

fn if_(c: &Context<'_>) -> Result<Vec<Value>> {
    let branch = if holds(c, c.value(0)?)? { "then_branch" } else { "else_branch" };
    c.run_graph(&*c.graph(branch)?, Vec::new())
}

/// Values stacked along an axis, in their order or from the last on.
fn stacked(c: &Context<'_>, list: &[Value], axis: i64, reverse: bool) -> Result<Value> {
    let mut tensors = list.iter().map(|value| value.to_tensor(c.device())).collect::<Result<Vec<_>>>()?;
    if reverse {
        tensors.reverse();
    }
    let Some(first) = tensors.first() else {
        return Err(c.error("a loop without iterations has no shape of what it would have made"));
    };
    let axis = c.axis(axis, first.rank() + 1)?;
    Ok(Tensor::stack(&tensors, axis)?.into())
}

fn loop_(c: &Context<'_>) -> Result<Vec<Value>> {
    let body = c.graph("body")?;
    let limit = c.integer(0)?;
    let mut go = c.input(1).map_or(Ok(true), |condition| holds(c, condition))?;
    let mut carried: Vec<Value> =
        (2..c.input_count()).map(|index| c.value(index).cloned()).collect::<Result<_>>()?;
    let (states, scans) = (carried.len(), c.output_count().saturating_sub(carried.len()));
    if body.inputs.len() < states + 2 || body.outputs.len() < 1 + states + scans {
        return Err(c.error("the body has fewer inputs or outputs than the loop gives and takes"));
    }
    let mut collected: Vec<Vec<Value>> = vec![Vec::new(); scans];
    let mut iteration = 0;
    while go && limit.is_none_or(|limit| iteration < limit) {
        let number = Value::from(HostTensor::integer(iteration));
        let inputs = [number, HostTensor::truth(true).into()].into_iter().chain(carried).map(Some);
        let mut outputs = c.run_graph(&body, inputs.collect())?.into_iter();
        let next = outputs.next().ok_or_else(|| c.error("the body gives no condition"))?;
        go = holds(c, &next)?;
        carried = outputs.by_ref().take(states).collect();
        collected.iter_mut().zip(outputs).for_each(|(list, value)| list.push(value));
        iteration += 1;
    }
    for list in collected {
        carried.push(match list.as_slice() {
            [] => empty_scan(c)?,
            several => stacked(c, several, 0, false)?,
        });
    }
    Ok(carried)
}

/// The scan output of a loop without iterations: no elements.
fn empty_scan(c: &Context<'_>) -> Result<Value> {
    Ok(Tensor::zeros([0], c.device())?.into())
}

/// The numbers of an attribute with one for each of `count` inputs or outputs, 0 by default.
fn each(c: &Context<'_>, name: &str, count: usize) -> Result<Vec<i64>> {
    match c.ints(name)? {
        None => Ok(vec![0; count]),
        Some(list) if list.len() == count => Ok(list),
        Some(list) => Err(c.error(format!("attribute \"{name}\" has {} numbers for {count}", list.len()))),
    }
}

fn scan(c: &Context<'_>) -> Result<Vec<Value>> {
    let inputs: Vec<Value> =
        (0..c.input_count()).map(|index| c.value(index).cloned()).collect::<Result<_>>()?;
    scanned(c, inputs, 0)
}

/// Before version 9 every input has a batch axis first, whose elements are scanned one by one.
fn scan_batched(c: &Context<'_>) -> Result<Vec<Value>> {
    let inputs: Vec<Tensor> = (1..c.input_count()).map(|index| c.tensor(index)).collect::<Result<_>>()?;
    let batch = inputs.first().and_then(|x| x.dims().first().copied()).unwrap_or(0);
    let mut results: Vec<Vec<Value>> = Vec::new();
    for element in 0..batch {
        let own = inputs.iter().map(|x| Ok(x.select(0, element)?.into())).collect::<Result<Vec<Value>>>()?;
        for (at, value) in scanned(c, own, 0)?.into_iter().enumerate() {
            match results.get_mut(at) {
                Some(list) => list.push(value),
                None => results.push(vec![value]),
            }
        }
    }
    results.iter().map(|list| stacked(c, list, 0, false)).collect()
}

fn scanned(c: &Context<'_>, inputs: Vec<Value>, axis_default: i64) -> Result<Vec<Value>> {
    let body = c.graph("body")?;
    let scans = usize::try_from(c.int_or("num_scan_inputs", 0)?).unwrap_or(usize::MAX);
    let states = inputs.len().checked_sub(scans).filter(|_| scans > 0);
    let states = states.ok_or_else(|| c.error("num_scan_inputs does not fit the number of inputs"))?;
    let made = body.outputs.len().saturating_sub(states);
    let axes_in = each(c, "scan_input_axes", scans)?;
    let axes_out = each(c, "scan_output_axes", made)?;
    let backward_in = each(c, "scan_input_directions", scans)?;
    let backward_out = each(c, "scan_output_directions", made)?;
    let mut carried = inputs;
    let lines = carried.split_off(states);
    let lines = lines.iter().map(|value| value.to_tensor(c.device())).collect::<Result<Vec<_>>>()?;
    let mut axes = Vec::with_capacity(scans);
    for (line, &axis) in lines.iter().zip(&axes_in) {
        axes.push(c.axis(axis + axis_default, line.rank())?);
    }
    let steps = lines[0].dims()[axes[0]];
    let mut collected: Vec<Vec<Value>> = vec![Vec::new(); made];
    for step in 0..steps {
        let mut given: Vec<Option<Value>> = carried.into_iter().map(Some).collect();
        for ((line, &axis), &backward) in lines.iter().zip(&axes).zip(&backward_in) {
            let at = if backward == 1 { steps - 1 - step } else { step };
            given.push(Some(line.select(axis, at)?.into()));
        }
        let mut outputs = c.run_graph(&body, given)?.into_iter();
        carried = outputs.by_ref().take(states).collect();
        collected.iter_mut().zip(outputs).for_each(|(list, value)| list.push(value));
    }
    for ((list, &axis), &backward) in collected.iter().zip(&axes_out).zip(&backward_out) {
        carried.push(stacked(c, list, axis, backward == 1)?);
    }
    Ok(carried)
}

/// The body for each element of the first sequence; of other sequences the element at the same place.
fn sequence_map(c: &Context<'_>) -> Result<Vec<Value>> {
    let body = c.graph("body")?;
    let count = c.sequence(0)?.len();
    let mut results: Vec<Vec<Value>> = vec![Vec::with_capacity(count); body.outputs.len()];
    for element in 0..count {
        let mut given = Vec::with_capacity(c.input_count());
        for index in 0..c.input_count() {
            given.push(Some(match c.value(index)? {
                Value::Sequence(list) => {
                    list.get(element).cloned().ok_or_else(|| c.error("the sequences differ in length"))?
                }
                other => other.clone(),
            }));
        }
        let outputs = c.run_graph(&body, given)?;
        results.iter_mut().zip(outputs).for_each(|(list, value)| list.push(value));
    }
    Ok(results.into_iter().map(|list| Value::Sequence(Arc::new(list))).collect())
}
