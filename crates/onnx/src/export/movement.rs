//! Operations that move elements: shapes, slices, windows, paddings. Sizes that follow from a dynamic axis
//! are written as 0 or −1, or as shape arithmetic.

use tensor_core::{DType, Op, Scalar};

use super::{
    builder::{int, ints},
    exporter::{Emitted, Exporter, Failure, Step},
    sample::{Size, Twin, fixed},
};

/// The end of a slice that takes everything up to the last element, or down to the first.
const LAST: i64 = i64::MAX;
const FIRST: i64 = i64::MIN;

/// The same elements under another shape.
pub(super) fn reshape(exporter: &mut Exporter, step: &Step) -> Emitted {
    let (from, to) = (step.inputs[0].shape(), step.out.shape());
    if from == to {
        return Ok(step.name(0).into());
    }
    reshaped(exporter, step.name(0), &from, &to, &[&step.inputs[0]])
}

/// A Reshape node. A dynamic size that stays on its axis is 0, another one is −1, and further ones are shape
/// arithmetic.
pub(super) fn reshaped(
    exporter: &mut Exporter,
    value: &str,
    from: &[Size],
    to: &[Size],
    near: &[&Twin],
) -> Emitted {
    let has_zero = to.iter().any(|size| size.contains(&0));
    let mut parts: Vec<String> = Vec::with_capacity(to.len());
    let mut constants: Vec<i64> = Vec::new();
    let mut inferred = false;
    for (axis, size) in to.iter().enumerate() {
        match fixed(size) {
            Some(size) => constants.push(size as i64),
            None if !has_zero && from.get(axis) == Some(size) => constants.push(0),
            None if !inferred && !has_zero => {
                inferred = true;
                constants.push(-1);
            }
            None => {
                if !constants.is_empty() {
                    parts.push(exporter.builder.ints(&std::mem::take(&mut constants)));
                }
                parts.push(exporter.size(size, near)?);
            }
        }
    }
    if !constants.is_empty() || parts.is_empty() {
        parts.push(exporter.builder.ints(&constants));
    }
    let shape = exporter.joined(&parts);
    let attributes = has_zero.then(|| int("allowzero", 1));
    Ok(exporter.builder.node("Reshape", &[value, &shape], attributes))
}

/// Axes in another order.
pub(super) fn permute(exporter: &mut Exporter, step: &Step, axes: &[usize]) -> String {
    exporter.transposed(step.name(0), axes)
}

impl Exporter {
    /// A Transpose node.
    pub(super) fn transposed(&mut self, value: &str, axes: &[usize]) -> String {
        self.builder.node("Transpose", &[value], [ints("perm", axes.iter().map(|&axis| axis as i64))])
    }
}

/// A broadcast to another shape: an axis that stays is 1 there.
pub(super) fn expand(exporter: &mut Exporter, step: &Step) -> Emitted {
    let (from, to) = (step.inputs[0].shape(), step.out.shape());
    if from == to {
        return Ok(step.name(0).into());
    }
    let added = to.len().saturating_sub(from.len());
    let one = vec![1; to.first().map_or(1, Vec::len)];
    let wanted: Vec<Size> = to
        .iter()
        .enumerate()
        .map(
            |(axis, size)| {
                if axis >= added && from[axis - added] == *size { one.clone() } else { size.clone() }
            },
        )
        .collect();
    let shape = exporter.shape(&wanted, &step.inputs.iter().collect::<Vec<_>>())?;
    Ok(exporter.builder.node("Expand", &[step.name(0), &shape], []))
}

/// Every step-th element of an axis.
pub(super) fn slice(exporter: &mut Exporter, step: &Step, axis: usize) -> Emitted {
    let mut starts: Size = Vec::new();
    let mut strides: Vec<isize> = Vec::new();
    for op in step.ops() {
        if let Op::Slice { axis: own, start, step: stride } = op
            && *own == axis
        {
            starts.push(*start);
            strides.push(*stride);
        }
    }
    let (from, count) = (step.inputs[0].size(axis), step.out.size(axis));
    let stride = strides.first().copied().unwrap_or(1);
    if starts.len() != count.len() || strides.iter().any(|&other| other != stride) {
        return Err(Failure::NotDynamic("the step of a slice depends on the size".into()));
    }
    let near = [&step.inputs[0], &step.out];
    // Counted from the end, the start may be fixed where the size is not.
    let from_end: Vec<i64> = from.iter().zip(&starts).map(|(&n, &start)| start as i64 - n as i64).collect();
    let is_last = from_end.iter().all(|&start| start == from_end[0]) && fixed(&starts).is_none();
    let start = match is_last || stride < 0 && from_end.iter().all(|&start| start == -1) {
        true => exporter.builder.ints(&[from_end[0]]),
        false => exporter.size(&starts, &near)?,
    };
    let end = if stride > 0 {
        let stride = stride as usize;
        let ends: Size = starts.iter().zip(&count).map(|(&start, &n)| start + n * stride).collect();
        // A last step may reach beyond the axis.
        if ends.iter().zip(&from).all(|(end, n)| end >= n) {
            exporter.builder.ints(&[LAST])
        } else {
            let left: Vec<i64> = ends.iter().zip(&from).map(|(&end, &n)| end as i64 - n as i64).collect();
            match left.iter().all(|&other| other == left[0] && other < 0) && fixed(&ends).is_none() {
                true => exporter.builder.ints(&[left[0]]),
                false => exporter.size(&ends, &near)?,
            }
        }
    } else {
        let stride = stride.unsigned_abs();
        let below = starts.iter().zip(&count).all(|(&start, &n)| start < n * stride);
        if below {
            exporter.builder.ints(&[FIRST])
        } else {
            let ends: Size =
                starts.iter().zip(&count).map(|(&start, &n)| start.saturating_sub(n * stride)).collect();
            exporter.size(&ends, &near)?
        }
    };
    let (axes, steps) = (exporter.builder.ints(&[axis as i64]), exporter.builder.ints(&[stride as i64]));
    Ok(exporter.builder.node("Slice", &[step.name(0), &start, &end, &axes, &steps], []))
}

/// Windows along an axis: a Gather at the positions of their elements, whose axis goes to the end.
pub(super) fn unfold(
    exporter: &mut Exporter,
    step: &Step,
    axis: usize,
    stride: usize,
    dilation: usize,
) -> Emitted {
    let (windows, elements) = (step.out.size(axis), step.out.size(step.out.rank() - 1));
    let positions = match (fixed(&windows), fixed(&elements)) {
        (Some(windows), Some(elements)) => {
            let at = |i: usize| (0..elements).map(move |j| (i * stride + j * dilation) as i64);
            let list: Vec<i64> = (0..windows).flat_map(at).collect();
            let bytes = list.iter().flat_map(|at| at.to_le_bytes()).collect();
            exporter.builder.constant(DType::I64, &[windows, elements], bytes)
        }
        _ => {
            let near = [&step.out, &step.inputs[0]];
            let (starts, offsets) = (
                exporter.multiples(&windows, stride, &near)?,
                exporter.multiples(&elements, dilation, &near)?,
            );
            let column = exporter.as_shape(&starts, &[-1, 1]);
            exporter.builder.node("Add", &[&column, &offsets], [])
        }
    };
    let found = exporter.builder.node("Gather", &[step.name(0), &positions], [int("axis", axis as i64)]);
    let rank = step.out.rank();
    if axis + 2 == rank {
        return Ok(found);
    }
    let axes: Vec<usize> = (0..rank).filter(|&own| own != axis + 1).chain([axis + 1]).collect();
    Ok(exporter.transposed(&found, &axes))
}

impl Exporter {
    /// 0, factor, 2·factor … as i64, as many as the size.
    fn multiples(&mut self, size: &Size, factor: usize, near: &[&Twin]) -> Emitted {
        let range = self.range(size, near)?;
        if factor == 1 {
            return Ok(range);
        }
        let factor = self.builder.scalar(Scalar::Int(factor as i64), DType::I64);
        Ok(self.builder.node("Mul", &[&range, &factor], []))
    }

    /// 0, 1, 2 … as i64.
    pub(super) fn range(&mut self, size: &Size, near: &[&Twin]) -> Emitted {
        let end = match fixed(size) {
            Some(size) => self.builder.scalar(Scalar::Int(size as i64), DType::I64),
            None => {
                let size = self.size(size, near)?;
                self.as_shape(&size, &[])
            }
        };
        let (start, step) = (
            self.builder.scalar(Scalar::Int(0), DType::I64),
            self.builder.scalar(Scalar::Int(1), DType::I64),
        );
        Ok(self.builder.node("Range", &[&start, &end, &step], []))
    }
}

/// The inputs one after the other.
pub(super) fn concat(exporter: &mut Exporter, step: &Step, axis: usize) -> String {
    let names: Vec<&str> = step.names.iter().map(String::as_str).collect();
    exporter.builder.node("Concat", &names, [int("axis", axis as i64)])
}

/// The input within a larger tensor of one value, possibly with elements between neighbours.
pub(super) fn pad(exporter: &mut Exporter, step: &Step) -> Emitted {
    let Op::Pad(padding) = step.op() else { return Err(Failure::NoForm(String::new())) };
    let rank = step.out.rank();
    let befores: Vec<Size> = (0..rank)
        .map(|axis| {
            let of = |op: &Op| if let Op::Pad(padding) = op { padding.before[axis] } else { 0 };
            step.ops().map(of).collect()
        })
        .collect();
    let dtype = step.out.dtype();
    let value = exporter.builder.scalar(padding.value.cast(dtype), dtype);
    let mut name = step.name(0).to_string();
    let mut from = step.inputs[0].shape();
    for (axis, &interior) in padding.interior.iter().enumerate().filter(|(_, interior)| **interior > 0) {
        name = exporter.spread(&name, &mut from, axis, interior, &value, &step.inputs[0])?;
    }
    let mut afters: Vec<Size> = Vec::with_capacity(rank);
    for axis in 0..rank {
        let rest = step.out.size(axis).into_iter().zip(&from[axis]).zip(&befores[axis]);
        afters.push(rest.map(|((whole, own), before)| whole.saturating_sub(own + before)).collect());
    }
    if befores.iter().chain(&afters).flatten().all(|&n| n == 0) {
        return Ok(name);
    }
    let all: Vec<Size> = befores.into_iter().chain(afters).collect();
    let pads = exporter.shape(&all, &[&step.inputs[0], &step.out])?;
    if dtype == DType::Bool {
        // Fewer programs pad bools than integers.
        let (narrow, zero) = (
            exporter.builder.cast(&name, dtype, DType::I32),
            exporter.builder.cast(&value, dtype, DType::I32),
        );
        let padded = exporter.builder.node("Pad", &[&narrow, &pads, &zero], []);
        return Ok(exporter.builder.cast(&padded, DType::I32, dtype));
    }
    Ok(exporter.builder.node("Pad", &[&name, &pads, &value], []))
}

impl Exporter {
    /// Elements of one value between the neighbours of an axis: behind each element, without those behind
    /// the last.
    fn spread(
        &mut self,
        name: &str,
        from: &mut [Size],
        axis: usize,
        interior: usize,
        value: &str,
        input: &Twin,
    ) -> Emitted {
        let inner = self.builder.ints(&[axis as i64 + 1]);
        let apart = self.builder.node("Unsqueeze", &[name, &inner], []);
        let mut pads = vec![0; 2 * (from.len() + 1)];
        pads[from.len() + 1 + axis + 1] = interior as i64;
        let pads = self.builder.ints(&pads);
        let padded = self.builder.node("Pad", &[&apart, &pads, value], []);
        let own = from[axis].clone();
        let mut split = from.to_vec();
        split.insert(axis + 1, vec![interior + 1; own.len()]);
        from[axis] = own.iter().map(|n| n * (interior + 1)).collect();
        let merged = reshaped(self, &padded, &split, from, &[input])?;
        let (start, end) = (self.builder.ints(&[0]), self.builder.ints(&[-(interior as i64)]));
        let along = self.builder.ints(&[axis as i64]);
        from[axis] = own.iter().map(|n| (n * (interior + 1)).saturating_sub(interior)).collect();
        Ok(self.builder.node("Slice", &[&merged, &start, &end, &along], []))
    }
}
