//! Elements by number: gathering, scattering, sorting, finding.

use std::{cmp::Ordering, collections::HashMap};

use tensor_core::{Result, ScatterReduce, Tensor};

use super::{Row, all, from_start, one};
use crate::{
    context::Context,
    value::{HostData, HostTensor, Value},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "Compress", 9, compress),
    ("", "Gather", 1, gather),
    ("", "GatherElements", 11, gather_elements),
    ("", "GatherND", 11, gather_nd),
    ("", "NonZero", 9, |c| {
        c.refuse_trace(c.value(0)?)?;
        one(c.tensor(0)?.nonzero()?.t()?.to_dtype(c.index_dtype())?)
    }),
    ("", "OneHot", 9, one_hot),
    ("", "ReverseSequence", 10, reverse_sequence),
    ("", "Scatter", 9, scatter_elements),
    ("", "ScatterElements", 11, scatter_elements),
    ("", "ScatterND", 11, scatter_nd),
    ("", "TensorScatter", 24, tensor_scatter),
    ("", "TopK", 1, top_k),
    ("", "Unique", 11, unique),
];

fn gather(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axis = c.axis_or("axis", 0, x.rank())?;
    let size = x.dims()[axis];
    // A single index that is known is a view.
    if let Value::Host(host) = c.value(1)?
        && let ([], HostData::Int(list)) = (host.dims(), host.data())
        && let &[index] = list.as_slice()
    {
        return one(x.select(axis, index as isize)?);
    }
    let index = c.tensor(1)?;
    let flat = from_start(c, &index.flatten_all(), size)?;
    let shape: Vec<usize> =
        x.dims()[..axis].iter().chain(index.dims()).chain(&x.dims()[axis + 1..]).copied().collect();
    one(x.index_select(axis, &flat)?.reshape(shape)?)
}

fn gather_elements(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axis = c.axis_or("axis", 0, x.rank())?;
    one(x.gather(axis, &from_start(c, &c.tensor(1)?, x.dims()[axis])?)?)
}

/// The positions that tuples of indices `[…, k]` name among the first k axes of `dims`, as numbers in
/// row-major order.
fn positions(c: &Context<'_>, indices: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let last = indices.rank() - 1;
    let mut sum: Option<Tensor> = None;
    for (axis, &size) in dims.iter().enumerate() {
        let index = from_start(c, &indices.select(last, axis)?, size)?;
        sum = Some(match sum {
            Some(sum) => sum.mul_scalar(size as i64).add(&index)?,
            None => index,
        });
    }
    sum.ok_or_else(|| c.error("the indices have no elements along their last axis"))
}

/// How many axes tuples of indices name.
fn named_axes(c: &Context<'_>, x: &Tensor, indices: &Tensor, batch: usize) -> Result<usize> {
    let named = indices.dims().last().copied().unwrap_or(0);
    if named == 0 || batch + named > x.rank() || batch >= indices.rank() {
        return Err(c.error(format!("indices {} for a tensor {}", indices.shape(), x.shape())));
    }
    Ok(named)
}

fn gather_nd(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, indices) = (c.tensor(0)?, c.tensor(1)?);
    let batch = usize::try_from(c.int_or("batch_dims", 0)?).unwrap_or(usize::MAX).min(x.rank());
    let named = named_axes(c, &x, &indices, batch)?;
    let (dims, rest) = (&x.dims()[batch..batch + named], &x.dims()[batch + named..]);
    let mut place = positions(c, &indices, dims)?;
    let count: usize = dims.iter().product();
    let batches: usize = x.dims()[..batch].iter().product();
    let shape: Vec<usize> = indices.dims()[..indices.rank() - 1].iter().chain(rest).copied().collect();
    if batch > 0 {
        let first = Tensor::arange(0, batches as i64, 1, (c.index_dtype(), c.device()))?;
        let each = place.numel() / batches.max(1);
        place = place.reshape([batches, each])?.add(&first.mul_scalar(count as i64).unsqueeze(1)?)?;
    }
    let rows = x.reshape([batches * count, rest.iter().product()])?;
    one(rows.index_select(0, &place.flatten_all())?.reshape(shape)?)
}

/// The reduction of elements that go to one place; `None` if the last one stays.
fn reduction(c: &Context<'_>) -> Result<Option<ScatterReduce>> {
    Ok(match c.text_or("reduction", "none")? {
        "none" => None,
        "add" => Some(ScatterReduce::Sum),
        "mul" => Some(ScatterReduce::Prod),
        "max" => Some(ScatterReduce::Amax),
        "min" => Some(ScatterReduce::Amin),
        other => return Err(c.error(format!("reduction \"{other}\"; none, add, mul, max and min are known"))),
    })
}

fn scatter_elements(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, src) = (c.tensor(0)?, c.tensor(2)?);
    let axis = c.axis_or("axis", 0, x.rank())?;
    let index = from_start(c, &c.tensor(1)?, x.dims()[axis])?;
    one(match reduction(c)? {
        None => x.scatter(axis, &index, &src)?,
        Some(reduce) => x.scatter_reduce(axis, &index, &src, reduce, true)?,
    })
}

fn scatter_nd(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, indices, src) = (c.tensor(0)?, c.tensor(1)?, c.tensor(2)?);
    let named = named_axes(c, &x, &indices, 0)?;
    let (dims, rest) = x.dims().split_at(named);
    let place = positions(c, &indices, dims)?.flatten_all();
    let width: usize = rest.iter().product();
    let rows = x.reshape([dims.iter().product::<usize>(), width])?;
    let src = src.reshape([place.numel(), width])?;
    let changed = match reduction(c)? {
        None => rows.index_copy(0, &place, &src)?,
        Some(ScatterReduce::Sum) => rows.index_add(0, &place, &src)?,
        Some(reduce) => rows.index_reduce(0, &place, &src, reduce, true)?,
    };
    one(changed.reshape(x.dims())?)
}

/// A cache with rows replaced from a place on, which may differ by batch element; `circular` counts beyond
/// the end from the start.
fn tensor_scatter(c: &Context<'_>) -> Result<Vec<Value>> {
    let (cache, update) = (c.tensor(0)?, c.tensor(1)?);
    let axis = c.axis_or("axis", -2, cache.rank())?;
    let circular = match c.text_or("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(c.error(format!("mode \"{other}\"; linear and circular are known"))),
    };
    if update.rank() != cache.rank() {
        return Err(c.error(format!("an update {} of a cache {}", update.shape(), cache.shape())));
    }
    let steps = update.dims()[axis];
    let along = |count: usize, at: usize| {
        let mut shape = vec![1; cache.rank()];
        shape[at] = count;
        shape
    };
    let offsets = Tensor::arange(0, steps as i64, 1, (c.index_dtype(), c.device()))?;
    let mut index = offsets.reshape(along(steps, axis))?;
    if let Some(starts) = c.optional_tensor(2)? {
        let starts = starts.to_dtype(c.index_dtype())?;
        index = index.add(&starts.reshape(along(starts.numel(), 0))?)?;
    }
    if circular {
        index = index.remainder_scalar(cache.dims()[axis] as i64);
    }
    one(cache.scatter(axis, &index.expand(update.dims())?, &update)?)
}

/// The slices along an axis, or the elements, for which a condition holds.
fn compress(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut x = c.tensor(0)?;
    let axis = match c.int("axis")? {
        Some(axis) => c.axis(axis, x.rank())?,
        None => {
            x = x.flatten_all();
            0
        }
    };
    c.refuse_trace(c.value(1)?)?;
    let condition = c.tensor(1)?;
    let count = condition.numel().min(x.dims()[axis]);
    let kept = condition.flatten_all().narrow(0, 0, count)?.nonzero()?.flatten_all();
    one(x.index_select(axis, &kept)?)
}

fn one_hot(c: &Context<'_>) -> Result<Vec<Value>> {
    let (indices, values) = (c.tensor(0)?, c.tensor(2)?);
    let depth = c.integer(1)?.ok_or_else(|| c.error("the depth is missing"))?;
    let axis = c.axis_or("axis", -1, indices.rank() + 1)?;
    let depth = usize::try_from(depth).map_err(|_| c.error(format!("a depth of {depth}")))?;
    let index = from_start(c, &indices, depth)?.unsqueeze(axis)?;
    let mut shape = vec![1; index.rank()];
    shape[axis] = depth;
    let classes = Tensor::arange(0, depth as i64, 1, (c.index_dtype(), c.device()))?.reshape(shape)?;
    one(index.eq(&classes)?.where_cond(&values.select(0, 1)?, &values.select(0, 0)?)?)
}

fn top_k(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axis = c.axis_or("axis", -1, x.rank())?;
    let k = match c.int("k")? {
        Some(k) => k,
        None => c.integer(1)?.ok_or_else(|| c.error("k is missing"))?,
    };
    let k = usize::try_from(k).map_err(|_| c.error(format!("k is {k}")))?;
    let (values, indices) = x.topk(k, axis, c.flag("largest", true)?)?;
    all([values, indices.to_dtype(c.index_dtype())?])
}

/// The first `lengths[b]` steps of each sequence turned round.
fn reverse_sequence(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, lengths) = (c.tensor(0)?, c.tensor(1)?.to_dtype(c.index_dtype())?);
    let batch = c.axis_or("batch_axis", 1, x.rank())?;
    let time = c.axis_or("time_axis", 0, x.rank())?;
    let along = |count: usize, at: usize| {
        let mut shape = vec![1; x.rank()];
        shape[at] = count;
        shape
    };
    let steps = x.dims()[time];
    let step =
        Tensor::arange(0, steps as i64, 1, (c.index_dtype(), c.device()))?.reshape(along(steps, time))?;
    let length = lengths.reshape(along(x.dims()[batch], batch))?;
    let mirrored = length.sub(&step)?.sub_scalar(1);
    let from = step.lt(&length)?.where_cond(&mirrored, &step)?;
    one(x.gather(time, &from.expand(x.dims())?)?)
}

/// The unique elements, or unique slices along an axis, with the index of the first occurrence of each, the
/// inverse indices, and the counts. Computed on the host, because the output size depends on the values.
fn unique(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.host_data(0)?;
    let (outer, count, inner, axis) = match c.int("axis")? {
        Some(axis) => {
            let axis = c.axis(axis, x.dims().len())?;
            let (before, after) = (&x.dims()[..axis], &x.dims()[axis + 1..]);
            (before.iter().product(), x.dims()[axis], after.iter().product::<usize>(), Some(axis))
        }
        None => (1, x.data().len(), 1, None),
    };
    let place = |slice: usize, at: usize| (at / inner * count + slice) * inner + at % inner;
    let width = outer * inner;
    let compare = |a: usize, b: usize| -> Ordering {
        let at = (0..width).map(|at| compare_at(x.data(), place(a, at), place(b, at)));
        at.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| compare(a, b));
    // Slices that are equal have the number of their first one.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for slice in order {
        match groups.last_mut() {
            Some(group) if compare(group[0], slice).is_eq() => group.push(slice),
            _ => groups.push(vec![slice]),
        }
    }
    if !c.flag("sorted", true)? {
        groups.sort_by_key(|group| group[0]);
    }
    let number: HashMap<usize, i64> = groups
        .iter()
        .enumerate()
        .flat_map(|(number, group)| group.iter().map(move |&slice| (slice, number as i64)))
        .collect();
    let found = groups.len();
    let positions = (0..outer).flat_map(|outer_at| {
        let groups = &groups;
        let place = &place;
        groups.iter().flat_map(move |group| {
            (0..inner).map(move |inner_at| place(group[0], outer_at * inner + inner_at))
        })
    });
    let data = x.data().pick(c.meter(), positions)?;
    let shape = match axis {
        Some(axis) => {
            let mut shape = x.dims().to_vec();
            shape[axis] = found;
            shape
        }
        None => vec![found],
    };
    Ok(vec![
        HostTensor::new(x.data_type(), shape, data)?.into(),
        HostTensor::integers(groups.iter().map(|group| group[0] as i64).collect()).into(),
        HostTensor::integers((0..count).map(|slice| number[&slice]).collect()).into(),
        HostTensor::integers(groups.iter().map(|group| group.len() as i64).collect()).into(),
    ])
}

/// The order of two elements; NaN is the greatest.
fn compare_at(data: &HostData, a: usize, b: usize) -> Ordering {
    match data {
        HostData::Int(list) => list[a].cmp(&list[b]),
        HostData::Float(list) => {
            list[a].partial_cmp(&list[b]).unwrap_or_else(|| list[a].is_nan().cmp(&list[b].is_nan()))
        }
        HostData::Bool(list) => list[a].cmp(&list[b]),
        HostData::Text(list) => list[a].cmp(&list[b]),
    }
}
