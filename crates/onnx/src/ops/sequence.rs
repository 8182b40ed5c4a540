//! Sequences and optionals.

use std::sync::Arc;

use tensor_core::{Result, Tensor};

use super::{Row, shape::split_sizes};
use crate::{
    context::Context,
    value::{HostTensor, Value},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "ConcatFromSequence", 11, concat_from),
    ("", "Optional", 15, |c| Ok(vec![c.input(0).cloned().unwrap_or(Value::Nothing)])),
    ("", "OptionalGetElement", 15, optional_get),
    ("", "OptionalHasElement", 15, optional_has),
    ("", "SequenceAt", 11, at),
    ("", "SequenceConstruct", 11, construct),
    ("", "SequenceEmpty", 11, |_| Ok(vec![Value::Sequence(Arc::new(Vec::new()))])),
    ("", "SequenceErase", 11, erase),
    ("", "SequenceInsert", 11, insert),
    ("", "SequenceLength", 11, |c| Ok(vec![HostTensor::integer(c.sequence(0)?.len() as i64).into()])),
    ("", "SplitToSequence", 11, split_to),
];

/// An index of a sequence; negative ones count from the end, and with `end` it may be `count`.
fn place(c: &Context<'_>, input: usize, count: usize, end: bool) -> Result<Option<usize>> {
    let Some(place) = c.integer(input)? else { return Ok(None) };
    let from_start = if place < 0 { place + count as i64 } else { place };
    let found = usize::try_from(from_start).ok().filter(|&at| at < count || end && at == count);
    found.map(Some).ok_or_else(|| c.error(format!("place {place} of a sequence of {count}")))
}

fn at(c: &Context<'_>) -> Result<Vec<Value>> {
    let list = c.sequence(0)?;
    let at = place(c, 1, list.len(), false)?.ok_or_else(|| c.error("the place is missing"))?;
    Ok(vec![list[at].clone()])
}

fn construct(c: &Context<'_>) -> Result<Vec<Value>> {
    Ok(vec![Value::Sequence(Arc::new(c.inputs.iter().flatten().cloned().collect()))])
}

fn insert(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut list = c.changeable_sequence()?;
    let at = place(c, 2, list.len(), true)?.unwrap_or(list.len());
    list.insert(at, c.value(1)?.clone());
    Ok(vec![Value::Sequence(Arc::new(list))])
}

fn erase(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut list = c.changeable_sequence()?;
    let last = list.len().checked_sub(1).ok_or_else(|| c.error("the sequence is empty"))?;
    let at = place(c, 1, list.len(), false)?.unwrap_or(last);
    list.remove(at);
    Ok(vec![Value::Sequence(Arc::new(list))])
}

fn concat_from(c: &Context<'_>) -> Result<Vec<Value>> {
    let list = c.sequence(0)?.iter().map(|value| value.to_tensor(c.device())).collect::<Result<Vec<_>>>()?;
    let first = list.first().ok_or_else(|| c.error("the sequence is empty"))?;
    if c.flag("new_axis", false)? {
        let axis = c.axis_or("axis", 0, first.rank() + 1)?;
        return super::one(Tensor::stack(&list, axis)?);
    }
    let axis = c.axis_or("axis", 0, first.rank())?;
    super::one(Tensor::concat(&list, axis)?)
}

/// Parts of a tensor along an axis: of given sizes, of one size, or single slices.
fn split_to(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axis = c.axis_or("axis", 0, x.rank())?;
    let size = x.dims()[axis];
    let keepdims = c.flag("keepdims", true)?;
    let split = c.input(1).map(|value| value.dims().map(<[usize]>::len));
    let parts = match (split, c.integers(1)?) {
        (Some(Some(0)), Some(each)) => {
            let each = usize::try_from(each[0]).ok().filter(|&each| each > 0);
            x.split(each.ok_or_else(|| c.error("parts of no elements"))?, axis)?
        }
        (_, given @ Some(_)) => x.split_with_sizes(&split_sizes(c, size, given)?, axis)?,
        (_, None) => x.split(1, axis)?,
    };
    let squeeze = split.is_none() && !keepdims;
    let parts = parts.into_iter().map(|part| Ok(if squeeze { part.squeeze(axis)? } else { part }.into()));
    Ok(vec![Value::Sequence(Arc::new(parts.collect::<Result<_>>()?))])
}

fn optional_get(c: &Context<'_>) -> Result<Vec<Value>> {
    match c.value(0)? {
        Value::Nothing => Err(c.error("the optional is empty")),
        value @ (Value::Tensor(_) | Value::Host(_) | Value::Sequence(_)) => Ok(vec![value.clone()]),
    }
}

fn optional_has(c: &Context<'_>) -> Result<Vec<Value>> {
    let is_there = !matches!(c.input(0), None | Some(Value::Nothing));
    Ok(vec![HostTensor::truth(is_there).into()])
}
