//! Control flow: graphs within a node, which read the values around it.

use std::sync::Arc;

use tensor_core::{DType, Result, Tensor};

use super::Row;
use crate::{
    context::Context,
    graph::Graph,
    value::{DataType, HostData, HostTensor, Value},
    value_info::{Size, describe},
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
    let first = tensors.first().ok_or_else(|| c.error("there is nothing to stack"))?;
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
        let mut outputs = c.run_graph(&body, of_iteration(iteration, carried))?.into_iter();
        let next = outputs.next().ok_or_else(|| c.error("the body gives no condition"))?;
        go = holds(c, &next)?;
        carried = outputs.by_ref().take(states).collect();
        collected.iter_mut().zip(outputs).for_each(|(list, value)| list.push(value));
        iteration += 1;
    }
    if iteration == 0 {
        let axes = vec![0; scans];
        carried.extend(empty_scans(c, &body, of_iteration(0, carried.clone()), 1 + states, &axes)?);
        return Ok(carried);
    }
    for list in collected {
        carried.push(stacked(c, &list, 0, false)?);
    }
    Ok(carried)
}

/// The inputs of a loop's body: the iteration's number, the condition, and the values of the iteration
/// before.
fn of_iteration(iteration: i64, carried: Vec<Value>) -> Vec<Option<Value>> {
    let number = Value::from(HostTensor::integer(iteration));
    [number, HostTensor::truth(true).into()].into_iter().chain(carried).map(Some).collect()
}

/// The element type and the sizes of an output, as far as the file declares them.
type Declared = (Option<DataType>, Option<Vec<Option<usize>>>);

/// The scan outputs of a body that never runs: no elements along `axes`, and the element types and other
/// sizes that the outputs of the body from `first` on declare. Other sizes are found by building it once with
/// these inputs, which computes nothing; a body that fails for them leaves sizes of 0 and f32.
fn empty_scans(
    c: &Context<'_>,
    body: &Graph,
    inputs: Vec<Option<Value>>,
    first: usize,
    axes: &[i64],
) -> Result<Vec<Value>> {
    let declared: Vec<Declared> = body
        .outputs
        .get(first..)
        .unwrap_or(&[])
        .iter()
        .zip(axes)
        .map(|(output, _)| {
            let info = describe(&output.name, output.r#type.as_ref(), false);
            let known = |size: &Size| match size {
                Size::Known(size) => Some(*size),
                Size::Symbolic(_) => None,
            };
            (info.data_type, info.shape.map(|shape| shape.iter().map(known).collect()))
        })
        .collect();
    let is_known = declared.iter().all(|(data_type, shape)| {
        data_type.is_some() && shape.as_ref().is_some_and(|shape| shape.iter().all(Option::is_some))
    });
    let built = if is_known { None } else { c.run_graph(body, inputs).ok() };
    let mut empty = Vec::with_capacity(axes.len());
    for (at, ((data_type, shape), &axis)) in declared.into_iter().zip(axes).enumerate() {
        let value = built.as_ref().and_then(|values| values.get(first + at));
        let found = value.and_then(|value| Some((value.data_type()?, value.dims()?.to_vec())));
        let (data_type, mut shape) = match found {
            Some(found) => found,
            None => (
                data_type.unwrap_or(DataType::Tensor(DType::F32)),
                shape.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect(),
            ),
        };
        shape.insert(c.axis(axis, shape.len() + 1)?, 0);
        empty.push(HostTensor::new(data_type, shape, HostData::none(data_type))?.into());
    }
    Ok(empty)
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
    if steps == 0 {
        let mut given: Vec<Option<Value>> = carried.iter().cloned().map(Some).collect();
        for (line, &axis) in lines.iter().zip(&axes) {
            let mut shape = line.dims().to_vec();
            shape.remove(axis);
            given.push(Some(Tensor::zeros(shape, (line.dtype(), c.device()))?.into()));
        }
        carried.extend(empty_scans(c, &body, given, states, &axes_out)?);
        return Ok(carried);
    }
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
