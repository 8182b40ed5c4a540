//! Shape arithmetic on the host: operators whose inputs are all small and known there. It uses no device.
//!
//! A function here returns `None` if it does not support its inputs; the operator then runs on the device.

use std::sync::Arc;

use tensor_core::{DType, Kind, Result, Scalar, Shape};

use crate::{
    context::{Context, HostFn},
    ops::{elementwise::cast_to, reduce, shape, sizes},
    value::{DataType, HostData, HostTensor, Value, broadcast, within},
};

/// The number of elements up to which results are computed on the host.
const LIMIT: usize = 1 << 14;

/// The function of an operator of ONNX's own.
pub(crate) fn find(op_type: &str) -> Option<HostFn> {
    TABLE.iter().find(|(name, _)| *name == op_type).map(|(_, function)| *function)
}

const TABLE: &[(&str, HostFn)] = &[
    ("Abs", |c| unary(c, i64::wrapping_abs, f64::abs)),
    ("Add", |c| arithmetic(c, |a, b| Some(a.wrapping_add(b)), |a, b| a + b)),
    ("And", |c| logical(c, |a, b| a && b)),
    ("Cast", cast),
    ("Ceil", |c| unary(c, |x| x, f64::ceil)),
    ("Concat", concat),
    ("ConstantOfShape", constant_of_shape),
    ("Div", |c| arithmetic(c, i64::checked_div, |a, b| a / b)),
    ("Equal", |c| compare(c, |a, b| a == b, |a, b| a == b)),
    ("Expand", expand),
    ("Floor", |c| unary(c, |x| x, f64::floor)),
    ("Gather", gather),
    ("Greater", |c| compare(c, |a, b| a > b, |a, b| a > b)),
    ("GreaterOrEqual", |c| compare(c, |a, b| a >= b, |a, b| a >= b)),
    ("Less", |c| compare(c, |a, b| a < b, |a, b| a < b)),
    ("LessOrEqual", |c| compare(c, |a, b| a <= b, |a, b| a <= b)),
    ("Max", |c| arithmetic(c, |a, b| Some(a.max(b)), greater)),
    ("Min", |c| arithmetic(c, |a, b| Some(a.min(b)), |a, b| -greater(-a, -b))),
    ("Mod", modulo),
    ("Mul", |c| arithmetic(c, |a, b| Some(a.wrapping_mul(b)), |a, b| a * b)),
    ("Neg", |c| unary(c, i64::wrapping_neg, |x| -x)),
    ("Not", not),
    ("Or", |c| logical(c, |a, b| a || b)),
    ("Range", range),
    ("ReduceMax", |c| reduce_ints(c, |a, b| a.max(b))),
    ("ReduceMin", |c| reduce_ints(c, |a, b| a.min(b))),
    ("ReduceProd", |c| reduce_ints(c, i64::wrapping_mul)),
    ("ReduceSum", |c| reduce_ints(c, i64::wrapping_add)),
    ("Slice", slice),
    ("Split", split),
    ("Sqrt", |c| unary(c, |x| x, f64::sqrt)),
    ("Squeeze", squeeze),
    ("Sub", |c| arithmetic(c, |a, b| Some(a.wrapping_sub(b)), |a, b| a - b)),
    ("Transpose", transpose),
    ("Unsqueeze", unsqueeze),
    ("Where", select),
    ("Xor", |c| logical(c, |a, b| a != b)),
];

/// The inputs, if all given ones are small and known on the host.
fn inputs(c: &Context<'_>) -> Option<Vec<Arc<HostTensor>>> {
    let host = |value: &Value| match value {
        Value::Host(host) if host.data().len() <= LIMIT => Some(host.clone()),
        Value::Host(_) | Value::Tensor(_) | Value::Sequence(_) | Value::Nothing => None,
    };
    c.inputs.iter().flatten().map(host).collect::<Option<Vec<_>>>().filter(|list| !list.is_empty())
}

fn done(data_type: DataType, shape: impl Into<Vec<usize>>, data: HostData) -> Result<Option<Vec<Value>>> {
    Ok(Some(vec![HostTensor::new(data_type, shape, data)?.into()]))
}

/// Numbers wrapped or rounded to the width of a dtype.
fn fit(data: HostData, dtype: DType) -> HostData {
    match data {
        HostData::Int(list) if dtype != DType::I64 => {
            HostData::Int(list.into_iter().map(|x| Scalar::Int(x).cast(dtype).as_i64()).collect())
        }
        HostData::Float(list) if dtype != DType::F64 => {
            HostData::Float(list.into_iter().map(|x| Scalar::Float(x).cast(dtype).as_f64()).collect())
        }
        HostData::Int(_) | HostData::Float(_) | HostData::Bool(_) | HostData::Text(_) => data,
    }
}

/// The dtype of numbers that are computed here exactly as on a device.
fn number_type(host: &HostTensor) -> Option<DType> {
    match host.data_type() {
        DataType::Tensor(dtype) if dtype != DType::U64 && !dtype.is_bool() => Some(dtype),
        DataType::Tensor(_)
        | DataType::Int2
        | DataType::Uint2
        | DataType::Int4
        | DataType::Uint4
        | DataType::Float4E2M1
        | DataType::Float8E8M0
        | DataType::Text => None,
    }
}

fn greater(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn unary(c: &Context<'_>, int: fn(i64) -> i64, float: fn(f64) -> f64) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let x = &list[0];
    let Some(dtype) = number_type(x) else { return Ok(None) };
    let data = match x.data() {
        HostData::Int(list) => HostData::Int(list.iter().map(|&x| int(x)).collect()),
        HostData::Float(list) => HostData::Float(list.iter().map(|&x| float(x)).collect()),
        HostData::Bool(_) | HostData::Text(_) => return Ok(None),
    };
    done(x.data_type(), x.dims(), fit(data, dtype))
}

/// The shape that inputs broadcast to, if it is small.
fn common(list: &[&HostTensor]) -> Option<Vec<usize>> {
    let mut shape = Shape::scalar();
    for host in list {
        shape = shape.broadcast(&host.dims().into(), "onnx").ok()?;
    }
    shape.checked_numel().filter(|&count| count <= LIMIT)?;
    Some(shape.dims().to_vec())
}

fn pairs<T: Copy, U>(
    (a, b): (&[T], &[T]),
    (x, y): (&HostTensor, &HostTensor),
    shape: &[usize],
    f: impl FnMut((T, T)) -> U,
) -> Vec<U> {
    let (left, right) = (broadcast(x.dims(), shape), broadcast(y.dims(), shape));
    left.into_iter().zip(right).map(|(i, j)| (a[i], b[j])).map(f).collect()
}

/// Two inputs or more of one type of numbers, folded.
fn arithmetic(
    c: &Context<'_>,
    int: fn(i64, i64) -> Option<i64>,
    float: fn(f64, f64) -> f64,
) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    if c.has("axis") {
        return Ok(None);
    }
    let mut result = (*list[0]).clone();
    for next in &list[1..] {
        let same = result.data_type() == next.data_type();
        let (Some(dtype), Some(shape), true) = (number_type(next), common(&[&result, next]), same) else {
            return Ok(None);
        };
        let data = match (result.data(), next.data()) {
            (HostData::Int(a), HostData::Int(b)) => {
                let found = pairs((a, b), (&result, next), &shape, |(a, b)| int(a, b));
                let Some(found) = found.into_iter().collect::<Option<Vec<i64>>>() else { return Ok(None) };
                HostData::Int(found)
            }
            (HostData::Float(a), HostData::Float(b)) => {
                HostData::Float(pairs((a, b), (&result, next), &shape, |(a, b)| float(a, b)))
            }
            _ => return Ok(None),
        };
        result = HostTensor::new(next.data_type(), shape, fit(data, dtype))?;
    }
    Ok(Some(vec![result.into()]))
}

fn modulo(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    if c.flag("fmod", false)? {
        return arithmetic(c, i64::checked_rem, |a, b| a % b);
    }
    let int = |a: i64, b: i64| a.checked_rem(b)?.checked_add(b)?.checked_rem(b);
    arithmetic(c, int, |a, b| a - (a / b).floor() * b)
}

fn compare(
    c: &Context<'_>,
    int: fn(i64, i64) -> bool,
    float: fn(f64, f64) -> bool,
) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let [a, b] = list.as_slice() else { return Ok(None) };
    let (Some(shape), true) = (common(&[a, b]), a.data_type() == b.data_type()) else { return Ok(None) };
    let found = match (a.data(), b.data()) {
        _ if c.has("axis") => return Ok(None),
        (HostData::Int(_), _) if number_type(a).is_none() => return Ok(None),
        (HostData::Int(x), HostData::Int(y)) => pairs((x, y), (a, b), &shape, |(x, y)| int(x, y)),
        (HostData::Float(x), HostData::Float(y)) => pairs((x, y), (a, b), &shape, |(x, y)| float(x, y)),
        (HostData::Bool(x), HostData::Bool(y)) => {
            pairs((x, y), (a, b), &shape, |(x, y)| int(x.into(), y.into()))
        }
        (HostData::Text(x), HostData::Text(y)) => {
            let (left, right) = (broadcast(a.dims(), &shape), broadcast(b.dims(), &shape));
            left.into_iter().zip(right).map(|(i, j)| x[i] == y[j]).collect()
        }
        _ => return Ok(None),
    };
    done(DataType::Tensor(DType::Bool), shape, HostData::Bool(found))
}

fn logical(c: &Context<'_>, f: fn(bool, bool) -> bool) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let [a, b] = list.as_slice() else { return Ok(None) };
    let (HostData::Bool(x), HostData::Bool(y)) = (a.data(), b.data()) else { return Ok(None) };
    let Some(shape) = common(&[a, b]).filter(|_| !c.has("axis")) else { return Ok(None) };
    let found = pairs((x, y), (a, b), &shape, |(x, y)| f(x, y));
    done(DataType::Tensor(DType::Bool), shape, HostData::Bool(found))
}

fn not(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let HostData::Bool(x) = list[0].data() else { return Ok(None) };
    done(list[0].data_type(), list[0].dims(), HostData::Bool(x.iter().map(|x| !x).collect()))
}

fn select(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let [condition, a, b] = list.as_slice() else { return Ok(None) };
    let (HostData::Bool(chosen), Some(shape)) = (condition.data(), common(&[condition, a, b])) else {
        return Ok(None);
    };
    if a.data_type() != b.data_type() {
        return Ok(None);
    }
    let chosen: Vec<bool> = broadcast(condition.dims(), &shape).into_iter().map(|at| chosen[at]).collect();
    let (left, right) = (broadcast(a.dims(), &shape), broadcast(b.dims(), &shape));
    fn pick<T: Clone>(chosen: &[bool], (a, left): (&[T], &[usize]), (b, right): (&[T], &[usize])) -> Vec<T> {
        let each = chosen.iter().zip(left).zip(right);
        each.map(|((&chosen, &i), &j)| if chosen { a[i].clone() } else { b[j].clone() }).collect()
    }
    let data = match (a.data(), b.data()) {
        (HostData::Int(x), HostData::Int(y)) => HostData::Int(pick(&chosen, (x, &left), (y, &right))),
        (HostData::Float(x), HostData::Float(y)) => HostData::Float(pick(&chosen, (x, &left), (y, &right))),
        (HostData::Bool(x), HostData::Bool(y)) => HostData::Bool(pick(&chosen, (x, &left), (y, &right))),
        (HostData::Text(x), HostData::Text(y)) => {
            let each = chosen.iter().zip(left).zip(right);
            let texts = each.map(|((&chosen, i), j)| if chosen { &x[i] } else { &y[j] });
            HostData::Text(within(c.meter(), texts.map(|text| (text.len(), || text.clone())))?)
        }
        _ => return Ok(None),
    };
    done(a.data_type(), shape, data)
}

/// Casts between integers, truth values and floats of 32 and 64 bits; the rest is the operator's own.
fn cast(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let Ok(Some(number)) = c.int("to") else { return Ok(None) };
    let to = i32::try_from(number).ok().and_then(DataType::from_onnx);
    let (Some(to @ DataType::Tensor(dtype)), from) = (to, list[0].data_type()) else { return Ok(None) };
    if from == DataType::Text || dtype.size() == 1 && dtype.is_float() {
        return Ok(None);
    }
    if from == to {
        return Ok(Some(vec![cast_to(c, c.value(0)?, to)?]));
    }
    let numbers = list[0].scalars().into_iter().map(|number| number.cast(dtype));
    let data = match dtype.info().kind {
        Kind::Bool => HostData::Bool(numbers.map(|n| n.as_bool()).collect()),
        Kind::Signed | Kind::Unsigned => HostData::Int(numbers.map(|n| n.as_i64()).collect()),
        Kind::Float => HostData::Float(numbers.map(|n| n.as_f64()).collect()),
    };
    done(to, list[0].dims(), data)
}

fn concat(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let first = &list[0];
    let axis = c.axis_or("axis", 1, first.dims().len())?;
    let fits = |other: &Arc<HostTensor>| {
        other.data_type() == first.data_type()
            && other.dims().len() == first.dims().len()
            && other.dims().iter().zip(first.dims()).enumerate().all(|(at, (a, b))| at == axis || a == b)
    };
    if !list.iter().all(fits) {
        return Ok(None);
    }
    let outer: usize = first.dims()[..axis].iter().product();
    let mut shape = first.dims().to_vec();
    shape[axis] = list.iter().map(|host| host.dims()[axis]).sum();
    fn joined<'a, T: Clone + 'a>(outer: usize, lists: Vec<&'a [T]>) -> Vec<T> {
        let part = |index: usize| {
            lists.iter().flat_map(move |list| {
                let width = list.len() / outer.max(1);
                list[index * width..][..width].iter().cloned()
            })
        };
        (0..outer).flat_map(part).collect()
    }
    macro_rules! join {
        ($variant:ident) => {{
            let lists = list.iter().map(|host| match host.data() {
                HostData::$variant(list) => Some(list.as_slice()),
                _ => None,
            });
            let Some(lists) = lists.collect::<Option<Vec<_>>>() else { return Ok(None) };
            HostData::$variant(joined(outer, lists))
        }};
    }
    let data = match first.data() {
        HostData::Int(_) => join!(Int),
        HostData::Float(_) => join!(Float),
        HostData::Bool(_) => join!(Bool),
        HostData::Text(_) => join!(Text),
    };
    done(first.data_type(), shape, data)
}

fn constant_of_shape(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let shape = sizes(c, &list[0].to_i64s()?)?;
    let count = shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size));
    let Some(count) = count.filter(|&count| count <= LIMIT) else { return Ok(None) };
    let (scalar, dtype) = shape::fill_value(c)?;
    let data = match dtype.info().kind {
        Kind::Bool => HostData::Bool(vec![scalar.as_bool(); count]),
        Kind::Signed | Kind::Unsigned => HostData::Int(vec![scalar.as_i64(); count]),
        // Zeros of floats go into sums on the device, where one number everywhere takes no memory.
        Kind::Float => return Ok(None),
    };
    done(DataType::Tensor(dtype), shape, data)
}

fn expand(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let [x, wanted] = list.as_slice() else { return Ok(None) };
    let wanted = sizes(c, &wanted.to_i64s()?)?;
    let Ok(shape) = Shape::from(x.dims()).broadcast(&wanted.into(), "onnx") else { return Ok(None) };
    if shape.checked_numel().is_none_or(|count| count > LIMIT) {
        return Ok(None);
    }
    let positions = broadcast(x.dims(), shape.dims());
    done(x.data_type(), shape.dims(), x.data().pick(c.meter(), positions.into_iter())?)
}

fn gather(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let [x, index] = list.as_slice() else { return Ok(None) };
    let axis = c.axis_or("axis", 0, x.dims().len())?;
    let size = x.dims()[axis];
    let mut places = Vec::with_capacity(index.data().len());
    for number in index.to_i64s()? {
        let from_start = if number < 0 { number + size as i64 } else { number };
        match usize::try_from(from_start) {
            Ok(place) if place < size => places.push(place),
            _ => return Err(c.error(format!("index {number} is out of range for an axis of {size}"))),
        }
    }
    let outer: usize = x.dims()[..axis].iter().product();
    let inner: usize = x.dims()[axis + 1..].iter().product();
    if outer.saturating_mul(inner).saturating_mul(places.len()) > LIMIT {
        return Ok(None);
    }
    let places = &places;
    let positions = (0..outer).flat_map(|outer| {
        places.iter().flat_map(move |place| (0..inner).map(move |at| (outer * size + place) * inner + at))
    });
    let shape: Vec<usize> =
        x.dims()[..axis].iter().chain(index.dims()).chain(&x.dims()[axis + 1..]).copied().collect();
    done(x.data_type(), shape, x.data().pick(c.meter(), positions)?)
}

fn range(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let [start, limit, delta] = list.as_slice() else { return Ok(None) };
    let (HostData::Int(start_list), HostData::Int(limit), HostData::Int(delta)) =
        (start.data(), limit.data(), delta.data())
    else {
        return Ok(None);
    };
    let (&[first], &[limit], &[delta]) = (start_list.as_slice(), limit.as_slice(), delta.as_slice()) else {
        return Ok(None);
    };
    let distance = i128::from(limit) - i128::from(first);
    let (distance, step) = if delta < 0 { (-distance, -i128::from(delta)) } else { (distance, delta.into()) };
    if step == 0 {
        return Err(c.error("a step of 0"));
    }
    let count = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
    if count > LIMIT as u128 {
        return Ok(None);
    }
    let numbers: Vec<i64> = (0..count as i64).map(|k| first.wrapping_add(k.wrapping_mul(delta))).collect();
    done(start.data_type(), vec![numbers.len()], HostData::Int(numbers))
}

/// Integers reduced along axes.
fn reduce_ints(c: &Context<'_>, f: fn(i64, i64) -> i64) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let x = &list[0];
    let (HostData::Int(numbers), Some(dtype)) = (x.data(), number_type(x)) else { return Ok(None) };
    let rank = x.dims().len();
    let given = reduce::axes(c, rank)?.filter(|axes| !axes.is_empty());
    let axes = match given {
        Some(axes) => axes,
        None if c.flag("noop_with_empty_axes", false)? => return Ok(None),
        None => (0..rank).collect(),
    };
    if numbers.is_empty() {
        return Ok(None);
    }
    let kept: Vec<usize> =
        x.dims().iter().enumerate().map(|(at, &size)| if axes.contains(&at) { 1 } else { size }).collect();
    let mut sums: Vec<Option<i64>> = vec![None; kept.iter().product()];
    for (at, place) in broadcast(&kept, x.dims()).into_iter().enumerate() {
        sums[place] = Some(sums[place].map_or(numbers[at], |sum| f(sum, numbers[at])));
    }
    let shape: Vec<usize> = if c.flag("keepdims", true)? {
        kept
    } else {
        (0..rank).filter(|at| !axes.contains(at)).map(|at| x.dims()[at]).collect()
    };
    done(x.data_type(), shape, fit(HostData::Int(sums.into_iter().flatten().collect()), dtype))
}

fn slice(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let x = &list[0];
    let mut lines: Vec<(i64, i64, usize)> = x.dims().iter().map(|&size| (0, 1, size)).collect();
    for cut in shape::cuts(c, x.dims())? {
        lines[cut.axis] = (cut.start, cut.step, cut.count);
    }
    let shape: Vec<usize> = lines.iter().map(|line| line.2).collect();
    let strides = Shape::from(x.dims()).contiguous_strides();
    let count: usize = shape.iter().product();
    let position = |mut at: usize| {
        let mut position = 0i64;
        for (axis, &(start, step, count)) in lines.iter().enumerate().rev() {
            position += (start + (at % count) as i64 * step) * strides[axis] as i64;
            at /= count;
        }
        position as usize
    };
    done(x.data_type(), shape, x.data().pick(c.meter(), (0..count).map(position))?)
}

fn split(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let x = &list[0];
    let axis = c.axis_or("axis", 0, x.dims().len())?;
    let given = match c.ints("split")? {
        Some(list) => Some(list),
        None => c.integers(1)?,
    };
    let size = x.dims()[axis];
    let outer: usize = x.dims()[..axis].iter().product();
    let inner: usize = x.dims()[axis + 1..].iter().product();
    let mut first = 0;
    let mut parts = Vec::new();
    for part in shape::split_sizes(c, size, given)? {
        let positions = (0..outer)
            .flat_map(|outer| (first..first + part).map(move |at| outer * size + at))
            .flat_map(|at| (0..inner).map(move |inner_at| at * inner + inner_at));
        let mut shape = x.dims().to_vec();
        shape[axis] = part;
        parts.push(HostTensor::new(x.data_type(), shape, x.data().pick(c.meter(), positions)?)?.into());
        first += part;
    }
    Ok(Some(parts))
}

fn squeeze(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let x = &list[0];
    let dims = x.dims();
    let axes = match reduce::axes(c, dims.len())? {
        Some(axes) => axes,
        None => (0..dims.len()).filter(|&axis| dims[axis] == 1).collect(),
    };
    if axes.iter().any(|&axis| dims[axis] != 1) {
        return Ok(None);
    }
    let shape: Vec<usize> =
        (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis]).collect();
    done(x.data_type(), shape, x.data().clone())
}

fn unsqueeze(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let x = &list[0];
    let axes = match c.ints("axes")? {
        Some(axes) => axes,
        None => c.integers(1)?.ok_or_else(|| c.error("the axes are missing"))?,
    };
    done(x.data_type(), shape::unsqueezed(c, x.dims(), &axes)?, x.data().clone())
}

fn transpose(c: &Context<'_>) -> Result<Option<Vec<Value>>> {
    let Some(list) = inputs(c) else { return Ok(None) };
    let x = &list[0];
    let rank = x.dims().len();
    let order = match c.ints("perm")? {
        Some(order) => order.iter().map(|&axis| c.axis(axis, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).rev().collect(),
    };
    if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
        return Ok(None);
    }
    let shape: Vec<usize> = order.iter().map(|&axis| x.dims()[axis]).collect();
    let strides = Shape::from(x.dims()).contiguous_strides();
    let position = |mut at: usize| {
        let mut position = 0;
        for (&axis, &size) in order.iter().zip(&shape).rev() {
            position += at % size * strides[axis] as usize;
            at /= size;
        }
        position
    };
    let count = x.data().len();
    done(x.data_type(), shape.clone(), x.data().pick(c.meter(), (0..count).map(position))?)
}
