//! Shapes: reshaping, moving axes, cutting, joining, filling.

use tensor_core::{DType, Error, Result, Scalar, Tensor};

use super::{Row, one, sizes};
use crate::{
    context::Context,
    value::{DataType, HostData, HostTensor, Value, on_device},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "CenterCropPad", 18, center_crop_pad),
    ("", "Concat", 1, concat),
    ("", "Constant", 1, constant),
    ("", "ConstantOfShape", 9, constant_of_shape),
    ("", "DepthToSpace", 1, depth_to_space),
    ("", "Expand", 8, expand),
    ("", "EyeLike", 9, eye_like),
    ("", "Flatten", 1, flatten),
    ("", "Pad", 1, pad),
    ("", "Range", 11, range),
    ("", "Reshape", 1, reshape),
    ("", "Shape", 1, shape),
    ("", "Size", 1, size),
    ("", "Slice", 1, slice),
    ("", "SpaceToDepth", 1, space_to_depth),
    ("", "Split", 1, split),
    ("", "Squeeze", 1, squeeze),
    ("", "Tile", 1, tile),
    ("", "Transpose", 1, transpose),
    ("", "Trilu", 14, trilu),
    ("", "Unsqueeze", 1, unsqueeze),
];

/// A shape with 0 for "as before" and one −1 for "the rest".
pub(super) fn resolve_shape(
    c: &Context<'_>,
    dims: &[usize],
    wanted: &[i64],
    allow_zero: bool,
) -> Result<Vec<usize>> {
    let wrong = || c.error(format!("{wanted:?} for a tensor {dims:?}"));
    let mut shape = Vec::with_capacity(wanted.len());
    let mut rest = None;
    for (axis, &size) in wanted.iter().enumerate() {
        match size {
            0 if !allow_zero => shape.push(*dims.get(axis).ok_or_else(wrong)?),
            -1 if rest.is_none() => {
                rest = Some(axis);
                shape.push(1);
            }
            _ => shape.push(usize::try_from(size).map_err(|_| wrong())?),
        }
    }
    let count: usize = dims.iter().product();
    let known = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size)).ok_or_else(wrong)?;
    if let Some(axis) = rest {
        shape[axis] = match known {
            0 if count == 0 => 0,
            0 => return Err(wrong()),
            known => count / known,
        };
    }
    let found = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
    if found == Some(count) { Ok(shape) } else { Err(wrong()) }
}

fn reshape(c: &Context<'_>) -> Result<Vec<Value>> {
    let wanted = match c.ints("shape")? {
        Some(shape) if c.version() < 5 => shape,
        _ => c.integers(1)?.ok_or_else(|| c.error("the shape is missing"))?,
    };
    if let Value::Host(host) = c.value(0)? {
        let shape = resolve_shape(c, host.dims(), &wanted, c.flag("allowzero", false)?)?;
        return Ok(vec![HostTensor::new(host.data_type(), shape, host.data().clone())?.into()]);
    }
    let x = c.tensor(0)?;
    one(x.reshape(resolve_shape(c, x.dims(), &wanted, c.flag("allowzero", false)?)?)?)
}

fn transpose(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let order = match c.ints("perm")? {
        Some(order) => order.iter().map(|&axis| c.axis(axis, x.rank())).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).rev().collect(),
    };
    one(x.permute(order)?)
}

/// Two axes: all before one axis, and all from it on.
fn flatten(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let rank = x.rank() as i64;
    let axis = c.int_or("axis", 1)?;
    let from_start = if axis < 0 { axis + rank } else { axis };
    if !(0..=rank).contains(&from_start) {
        return Err(c.error(format!("axis {axis} of a tensor of {rank} axes")));
    }
    let (rows, rest) = x.dims().split_at(from_start as usize);
    one(x.reshape([rows.iter().product::<usize>(), rest.iter().product()])?)
}

fn squeeze(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axes = match super::reduce::axes(c, x.rank())? {
        Some(axes) => axes,
        None => (0..x.rank()).filter(|&axis| x.dims()[axis] == 1).collect(),
    };
    if let Some(&axis) = axes.iter().find(|&&axis| x.dims()[axis] != 1) {
        return Err(c.error(format!("axis {axis} of {} has another size than 1", x.shape())));
    }
    let kept = (0..x.rank()).filter(|axis| !axes.contains(axis)).map(|axis| x.dims()[axis]);
    one(x.reshape(kept.collect::<Vec<_>>())?)
}

fn unsqueeze(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let list = match c.ints("axes")? {
        Some(list) => list,
        None => c.integers(1)?.ok_or_else(|| c.error("the axes are missing"))?,
    };
    one(x.reshape(unsqueezed(c, x.dims(), &list)?)?)
}

/// The shape with axes of size 1 put in.
pub(crate) fn unsqueezed(c: &Context<'_>, dims: &[usize], list: &[i64]) -> Result<Vec<usize>> {
    let rank = dims.len() + list.len();
    let axes = list.iter().map(|&axis| c.axis(axis, rank)).collect::<Result<Vec<_>>>()?;
    let mut rest = dims.iter();
    let shape: Vec<usize> = (0..rank)
        .map_while(|axis| if axes.contains(&axis) { Some(1) } else { rest.next().copied() })
        .collect();
    if shape.len() == rank { Ok(shape) } else { Err(c.error(format!("the axes {list:?} name one twice"))) }
}

fn concat(c: &Context<'_>) -> Result<Vec<Value>> {
    let list = c.tensors()?;
    let first = list.first().ok_or_else(|| c.error("it has no inputs"))?;
    let axis = c.axis_or("axis", 1, first.rank())?;
    if let [alone] = list.as_slice() {
        return one(alone.clone());
    }
    one(Tensor::concat(&list, axis)?)
}

/// The sizes of the parts of an axis.
pub(crate) fn split_sizes(c: &Context<'_>, size: usize, given: Option<Vec<i64>>) -> Result<Vec<usize>> {
    if let Some(list) = given {
        let list = sizes(c, &list)?;
        if list.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(size) {
            return Err(c.error(format!("parts of {list:?} do not make an axis of {size}")));
        }
        return Ok(list);
    }
    let parts = c.output_count();
    if let Some(count) = c.int("num_outputs")?.filter(|&count| usize::try_from(count) != Ok(parts)) {
        return Err(c.error(format!("num_outputs is {count}, and the node has {parts}")));
    }
    if parts == 0 {
        return Err(c.error("it is split into no parts"));
    }
    let each = size.div_ceil(parts);
    Ok((0..parts).map(|part| size.saturating_sub(part * each).min(each)).collect())
}

fn split(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let axis = c.axis_or("axis", 0, x.rank())?;
    let given = match c.ints("split")? {
        Some(list) => Some(list),
        None => c.integers(1)?,
    };
    super::all(x.split_with_sizes(&split_sizes(c, x.dims()[axis], given)?, axis)?)
}

/// Where a slice of an axis begins, its step and how many elements it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) axis: usize,
    pub(crate) start: i64,
    pub(crate) step: i64,
    pub(crate) count: usize,
}

/// The slices of the node, as NumPy takes them.
pub(crate) fn cuts(c: &Context<'_>, dims: &[usize]) -> Result<Vec<Cut>> {
    let attributes = c.version() < 10;
    let list = |name: &str, input: usize| if attributes { c.ints(name) } else { c.integers(input) };
    let missing = || c.error("starts and ends are missing");
    let starts = list("starts", 1)?.ok_or_else(missing)?;
    let ends = list("ends", 2)?.ok_or_else(missing)?;
    let axes = list("axes", 3)?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = if attributes { None } else { c.integers(4)? }.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(c.error("starts, ends, axes and steps differ in number"));
    }
    let mut cuts = Vec::with_capacity(starts.len());
    for (((&start, &end), &axis), &step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = c.axis(axis, dims.len())?;
        let n = dims[axis] as i64;
        let from_start = |place: i64| if place < 0 { place.saturating_add(n) } else { place };
        // A backward slice that begins before the first element begins at it.
        let (least, low, high) = if step < 0 { (0.min(n - 1), -1, n - 1) } else { (0, 0, n) };
        let (start, end) = (from_start(start).clamp(least, high), from_start(end).clamp(low, high));
        let count = match step {
            0 => return Err(c.error("a step of 0")),
            1.. => end.saturating_sub(start).max(0).unsigned_abs().div_ceil(step.unsigned_abs()),
            _ => start.saturating_sub(end).max(0).unsigned_abs().div_ceil(step.unsigned_abs()),
        };
        cuts.push(Cut { axis, start, step, count: count as usize });
    }
    Ok(cuts)
}

fn slice(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut x = c.tensor(0)?;
    for Cut { axis, start, step, count } in cuts(c, x.dims())? {
        let n = x.dims()[axis];
        if count == 0 {
            x = x.narrow(axis, 0, 0)?;
            continue;
        }
        let (line, first) = if step < 0 { (x.flip(axis)?, n as i64 - 1 - start) } else { (x.clone(), start) };
        let step = step.unsigned_abs() as i64;
        let reach = if count == 1 { 1 } else { (count as i64 - 1) * step + 1 };
        let step = if count == 1 { 1 } else { step };
        x = line.slice_step(axis, first as isize..(first + reach) as isize, step as isize)?;
    }
    one(x)
}

fn expand(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let wanted = sizes(c, &c.integers(1)?.ok_or_else(|| c.error("the shape is missing"))?)?;
    one(broadcast_to(&x, &wanted)?)
}

/// The tensor with a shape that both broadcast to.
pub(super) fn broadcast_to(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    let common = x.shape().broadcast(&shape.into(), "Expand")?;
    x.expand(&common)
}

fn tile(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let counts = if c.version() < 6 {
        // One number for one axis.
        let (count, axis) = (c.integer(1)?, c.integer(2)?);
        let axis = c.axis(axis.unwrap_or(0), x.rank())?;
        let mut counts = vec![1; x.rank()];
        counts[axis] = count.unwrap_or(1);
        counts
    } else {
        c.integers(1)?.ok_or_else(|| c.error("the repeats are missing"))?
    };
    one(x.tile(sizes(c, &counts)?)?)
}

fn pad(c: &Context<'_>) -> Result<Vec<Value>> {
    use nn::functional::PadMode;
    let x = c.tensor(0)?;
    let given = match c.ints("pads")? {
        Some(pads) => pads,
        None => match c.ints("paddings")? {
            Some(pads) => pads,
            None => c.integers(1)?.ok_or_else(|| c.error("the pads are missing"))?,
        },
    };
    let axes = match c.integers(3)? {
        Some(axes) => axes.iter().map(|&axis| c.axis(axis, x.rank())).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    if given.len() != 2 * axes.len() {
        return Err(c.error(format!("{} pads for {} axes", given.len(), axes.len())));
    }
    let mut padding = vec![(0isize, 0isize); x.rank()];
    for (index, &axis) in axes.iter().enumerate() {
        padding[axis] = (given[index] as isize, given[index + axes.len()] as isize);
    }
    let value = match c.input(2) {
        Some(_) => c.host(2)?.scalars().first().copied().unwrap_or(Scalar::Int(0)),
        None => c.number_or("value", 0.0)?.into(),
    };
    let mode = match c.text_or("mode", "constant")? {
        "constant" => return one(x.pad(&padding, value)?),
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Replicate,
        "wrap" => PadMode::Circular,
        other => return Err(c.error(format!("mode \"{other}\"; constant, reflect, edge and wrap are known"))),
    };
    one(nn::functional::pad(&x, &padding, mode)?)
}

fn depth_to_space(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let block = block_size(c)?;
    let &[n, channels, h, w] = x.dims() else { return Err(c.error("the input is [N, C, H, W]")) };
    let deep = channels / (block * block);
    let (shape, order) = match c.text_or("mode", "DCR")? {
        "DCR" => ([n, block, block, deep, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, deep, block, block, h, w], [0, 1, 4, 2, 5, 3]),
        other => return Err(c.error(format!("mode \"{other}\"; DCR and CRD are known"))),
    };
    one(x.reshape(shape)?.permute(order)?.reshape([n, deep, h * block, w * block])?)
}

fn block_size(c: &Context<'_>) -> Result<usize> {
    let size = usize::try_from(c.int_or("blocksize", 0)?).ok().filter(|&size| size > 0 && size <= 1 << 15);
    size.ok_or_else(|| c.error("blocksize is not above 0, or too large"))
}

fn space_to_depth(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let block = block_size(c)?;
    let &[n, channels, h, w] = x.dims() else { return Err(c.error("the input is [N, C, H, W]")) };
    let blocks = x.reshape([n, channels, h / block, block, w / block, block])?;
    let shape = [n, channels * block * block, h / block, w / block];
    // Axes [N, C, H, row in block, W, column in block].
    let order = match c.text_or("mode", "DCR")? {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        other => return Err(c.error(format!("mode \"{other}\"; DCR and CRD are known"))),
    };
    one(blocks.permute(order)?.reshape(shape)?)
}

/// A part of a shape, on the host.
fn shape(c: &Context<'_>) -> Result<Vec<Value>> {
    let dims = c.value(0)?.dims().ok_or_else(|| c.error("a sequence has no shape"))?;
    let rank = dims.len() as i64;
    let place = |place: i64| (if place < 0 { place + rank } else { place }).clamp(0, rank) as usize;
    let (start, end) = (place(c.int_or("start", 0)?), place(c.int_or("end", rank)?));
    let part = dims.get(start..end).unwrap_or(&[]);
    Ok(vec![HostTensor::integers(part.iter().map(|&size| size as i64).collect()).into()])
}

fn size(c: &Context<'_>) -> Result<Vec<Value>> {
    let dims = c.value(0)?.dims().ok_or_else(|| c.error("a sequence has no size"))?;
    Ok(vec![HostTensor::integer(dims.iter().product::<usize>() as i64).into()])
}

/// A constant that is no tensor of the file's; those never get here.
fn constant(c: &Context<'_>) -> Result<Vec<Value>> {
    let host = |dtype, shape: Vec<usize>, data| HostTensor::new(DataType::Tensor(dtype), shape, data);
    Ok(vec![if let Some(tensor) = c.tensor_attribute("value")? {
        Value::Host(tensor)
    } else if let Some(tensor) = c.tensor_attribute("sparse_value")? {
        Value::Host(tensor)
    } else if let Some(number) = c.number("value_float")? {
        host(DType::F32, vec![], HostData::Float(vec![number]))?.into()
    } else if let Some(list) = c.numbers("value_floats")? {
        host(DType::F32, vec![list.len()], HostData::Float(list))?.into()
    } else if let Some(number) = c.int("value_int")? {
        HostTensor::integer(number).into()
    } else if let Some(list) = c.ints("value_ints")? {
        HostTensor::integers(list).into()
    } else if let Some(list) = c.texts("value_strings")? {
        HostTensor::new(DataType::Text, vec![list.len()], HostData::Text(list))?.into()
    } else if c.has("value_string") {
        let text = c.text_or("value_string", "")?.to_string();
        HostTensor::new(DataType::Text, vec![], HostData::Text(vec![text]))?.into()
    } else {
        return Err(c.error("it has no value"));
    }])
}

fn constant_of_shape(c: &Context<'_>) -> Result<Vec<Value>> {
    let shape = sizes(c, &c.integers(0)?.ok_or_else(|| c.error("the shape is missing"))?)?;
    let (scalar, dtype) = fill_value(c)?;
    let dtype = on_device(dtype, c.device());
    one(Tensor::full(shape, scalar, (dtype, c.device()))?)
}

/// The number that `ConstantOfShape` fills with.
pub(crate) fn fill_value(c: &Context<'_>) -> Result<(Scalar, DType)> {
    let Some(tensor) = c.tensor_attribute("value")? else { return Ok((Scalar::Float(0.0), DType::F32)) };
    match (tensor.scalars().first(), tensor.data_type().dtype()) {
        (Some(&scalar), Some(dtype)) => Ok((scalar, dtype)),
        _ => Err(c.error("its value is no number")),
    }
}

fn range(c: &Context<'_>) -> Result<Vec<Value>> {
    let numbers = [c.host(0)?, c.host(1)?, c.host(2)?];
    let dtype = numbers[0].data_type().dtype().ok_or_else(|| c.error("texts have no range"))?;
    let scalar = |host: &HostTensor| -> Result<Scalar, Error> {
        host.scalars().first().copied().ok_or_else(|| c.error("an input has no elements"))
    };
    let [start, limit, delta] = [scalar(&numbers[0])?, scalar(&numbers[1])?, scalar(&numbers[2])?];
    // A step that leads away from the limit gives no numbers.
    if (limit.as_f64() - start.as_f64()) * delta.as_f64().signum() < 0.0 {
        return one(Tensor::zeros([0], (on_device(dtype, c.device()), c.device()))?);
    }
    one(Tensor::arange(start, limit, delta, (on_device(dtype, c.device()), c.device()))?)
}

fn eye_like(c: &Context<'_>) -> Result<Vec<Value>> {
    let value = c.value(0)?;
    let &[rows, columns] = value.dims().unwrap_or(&[]) else { return Err(c.error("the input is a matrix")) };
    let data_type = match c.int("dtype")? {
        Some(number) => DataType::from_onnx(i32::try_from(number).unwrap_or(0)),
        None => value.data_type(),
    };
    let dtype = data_type.and_then(DataType::dtype).ok_or_else(|| c.error("no such element type"))?;
    let (k, device) = (c.int_or("k", 0)?, c.device());
    let line = |n: usize| Tensor::arange(0, n as i64, 1, (device.int_dtype(), device));
    let ones = line(columns)?.eq(&line(rows)?.add_scalar(k).unsqueeze(1)?)?;
    one(ones.to_dtype(on_device(dtype, device))?)
}

fn trilu(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let k = c.integer(1)?.unwrap_or(0).clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    one(if c.flag("upper", true)? { x.triu(k)? } else { x.tril(k)? })
}

/// The middle of each axis, with zeros around it where the axis is shorter than asked.
fn center_crop_pad(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut x = c.tensor(0)?;
    let wanted = sizes(c, &c.integers(1)?.ok_or_else(|| c.error("the shape is missing"))?)?;
    let axes = match c.ints("axes")? {
        Some(axes) => axes.iter().map(|&axis| c.axis(axis, x.rank())).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()).collect(),
    };
    if axes.len() != wanted.len() {
        return Err(c.error(format!("{} sizes for {} axes", wanted.len(), axes.len())));
    }
    for (&axis, &size) in axes.iter().zip(&wanted) {
        let n = x.dims()[axis];
        if n > size {
            x = x.narrow(axis, (n - size) / 2, size)?;
        } else if n < size {
            let before = (size - n) / 2;
            let mut padding = vec![(0, 0); x.rank()];
            padding[axis] = (before, size - n - before);
            x = x.pad(&padding, 0)?;
        }
    }
    one(x)
}
