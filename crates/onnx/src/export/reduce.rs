//! Reductions, cumulative operations and products.

use tensor_core::{ArgReduceOp, CumulativeOp, DType, ReduceOp, Subscripts};

use super::{
    builder::{int, text},
    elementwise::{is_narrow, wide_int},
    exporter::{Emitted, Exporter, Failure, Step},
    sample::fixed,
};

/// A reduction along axes.
pub(super) fn reduce(
    exporter: &mut Exporter,
    step: &Step,
    op: ReduceOp,
    axes: &[usize],
    keepdim: bool,
) -> String {
    let (from, to) = (step.inputs[0].dtype(), step.out.dtype());
    let builder = &mut exporter.builder;
    // Bools are reduced as integers, and so are integers that operators do not take.
    let (name, wide) = match op {
        ReduceOp::Sum => ("ReduceSum", to),
        ReduceOp::Mean => ("ReduceMean", to),
        ReduceOp::Prod => ("ReduceProd", to),
        ReduceOp::Max | ReduceOp::Any => ("ReduceMax", from),
        ReduceOp::Min | ReduceOp::All => ("ReduceMin", from),
    };
    let wide = if wide == DType::Bool || is_narrow(wide) { DType::I32 } else { wide };
    if axes.is_empty() {
        return builder.cast(step.name(0), from, to);
    }
    let x = builder.cast(step.name(0), from, wide);
    let axes = builder.ints(&axes.iter().map(|&axis| axis as i64).collect::<Vec<_>>());
    let reduced = builder.node(name, &[&x, &axes], [int("keepdims", i64::from(keepdim))]);
    builder.cast(&reduced, wide, to)
}

/// The index of an extreme along an axis.
pub(super) fn arg_reduce(
    exporter: &mut Exporter,
    step: &Step,
    op: ArgReduceOp,
    axis: usize,
    keepdim: bool,
) -> String {
    let name = match op {
        ArgReduceOp::ArgMax => "ArgMax",
        ArgReduceOp::ArgMin => "ArgMin",
    };
    let from = step.inputs[0].dtype();
    let wide = if from == DType::Bool || is_narrow(from) { DType::I32 } else { from };
    let builder = &mut exporter.builder;
    let x = builder.cast(step.name(0), from, wide);
    let found = builder.node(name, &[&x], [int("axis", axis as i64), int("keepdims", i64::from(keepdim))]);
    builder.cast(&found, DType::I64, step.out.dtype())
}

/// A cumulative operation along an axis. Except for sums it reduces rows of a triangle: for result i, the
/// elements up to i.
pub(super) fn cumulative(
    exporter: &mut Exporter,
    step: &Step,
    op: CumulativeOp,
    axis: usize,
    reverse: bool,
) -> Emitted {
    let (from, to) = (step.inputs[0].dtype(), step.out.dtype());
    if op == CumulativeOp::Sum {
        let wide = if is_narrow(to) { DType::I32 } else { to };
        let wide = if to.is_reduced_float() { DType::F32 } else { wide };
        let builder = &mut exporter.builder;
        let x = builder.cast(step.name(0), from, wide);
        let at = builder.scalar((axis as i64).into(), DType::I64);
        let sums = builder.node("CumSum", &[&x, &at], [int("reverse", i64::from(reverse))]);
        return Ok(builder.cast(&sums, wide, to));
    }
    let size = step.inputs[0].size(axis);
    let near = [&step.inputs[0]];
    let range = exporter.range(&size, &near)?;
    // Result i on the axis, its elements j on a new axis behind it.
    let mut column = vec![1i64; step.out.rank() - axis + 1];
    column[0] = -1;
    let rows = exporter.as_shape(&range, &column);
    column[0] = 1;
    column[1] = -1;
    let columns = exporter.as_shape(&range, &column);
    let compare = if reverse { "GreaterOrEqual" } else { "LessOrEqual" };
    let inside = exporter.builder.node(compare, &[&columns, &rows], []);
    let compute = match from {
        DType::Bool => DType::I32,
        from if from.is_reduced_float() => DType::F32,
        from if is_narrow(from) => DType::I32,
        from => from,
    };
    let lowest = if compute.is_float() { f64::NEG_INFINITY } else { i32::MIN.into() };
    let highest = if compute.is_float() { f64::INFINITY } else { i32::MAX.into() };
    let (name, neutral) = match op {
        CumulativeOp::Prod => ("ReduceProd", 1.0),
        CumulativeOp::LogSumExp => ("ReduceLogSumExp", f64::NEG_INFINITY),
        CumulativeOp::ArgMax => ("ArgMax", lowest),
        CumulativeOp::ArgMin => ("ArgMin", highest),
        CumulativeOp::Sum => return Err(Failure::NoForm(String::new())),
    };
    let builder = &mut exporter.builder;
    let x = builder.cast(step.name(0), from, compute);
    let at = builder.ints(&[axis as i64]);
    let line = builder.node("Unsqueeze", &[&x, &at], []);
    let neutral = builder.number(neutral, compute);
    let triangle = builder.node("Where", &[&inside, &line, &neutral], []);
    let inner = axis as i64 + 1;
    if op.is_arg() {
        // The last of equal elements, or the first one if the direction is reversed.
        let last = i64::from(!reverse);
        let attributes = [int("axis", inner), int("keepdims", 0), int("select_last_index", last)];
        let found = builder.node(name, &[&triangle], attributes);
        return Ok(builder.cast(&found, DType::I64, to));
    }
    let axes = builder.ints(&[inner]);
    let reduced = builder.node(name, &[&triangle, &axes], [int("keepdims", 0)]);
    Ok(builder.cast(&reduced, compute, to))
}

/// A product of two tensors: MatMul if the axes are those of matrices, else Einsum.
pub(super) fn contract(exporter: &mut Exporter, step: &Step, subscripts: &Subscripts) -> Emitted {
    let (of, to) = (step.inputs[0].dtype(), step.out.dtype());
    let wide = if to == DType::Bool || is_narrow(to) { wide_int(DType::I8) } else { to };
    let lhs = exporter.builder.cast(step.name(0), of, wide);
    let rhs = exporter.builder.cast(step.name(1), step.inputs[1].dtype(), wide);
    let product = if is_matrix_product(subscripts) {
        exporter.builder.node("MatMul", &[&lhs, &rhs], [])
    } else {
        let mut known: Vec<u8> = Vec::new();
        for &label in subscripts.lhs.iter().chain(&subscripts.rhs) {
            if !known.contains(&label) {
                known.push(label);
            }
        }
        if known.len() > 26 {
            return Err(Failure::NoForm("an Einsum has at most 26 axes".into()));
        }
        let letters = |labels: &[u8]| -> String {
            let places = labels.iter().filter_map(|label| known.iter().position(|own| own == label));
            places.map(|place| char::from(b'a' + place as u8)).collect()
        };
        let (l, r, o) = (letters(&subscripts.lhs), letters(&subscripts.rhs), letters(&subscripts.out));
        exporter.builder.node("Einsum", &[&lhs, &rhs], [text("equation", &format!("{l},{r}->{o}"))])
    };
    Ok(exporter.builder.cast(&product, wide, to))
}

/// Whether these are the axes of matrices, with batch axes that are aligned at the last one.
fn is_matrix_product(subscripts: &Subscripts) -> bool {
    let (lhs, rhs, out) = (&subscripts.lhs[..], &subscripts.rhs[..], &subscripts.out[..]);
    let ([l @ .., m, k], [r @ .., k2, n], [o @ .., i, j]) = (lhs, rhs, out) else { return false };
    m == i && n == j && k == k2 && o.ends_with(l) && o.ends_with(r)
}

/// The elements along an axis in sorted order, and their indices, as names.
pub(super) fn sort(
    exporter: &mut Exporter,
    step: &Step,
    axis: usize,
    descending: bool,
) -> Result<Vec<String>, Failure> {
    let from = step.inputs[0].dtype();
    let wide = match from {
        DType::Bool => DType::I32,
        from if is_narrow(from) => DType::I32,
        DType::U32 => DType::I64,
        from if from.is_reduced_float() => DType::F32,
        from => from,
    };
    let x = exporter.builder.cast(step.name(0), from, wide);
    let count = step.out.size(axis);
    let count = match fixed(&count) {
        Some(count) => exporter.builder.ints(&[count as i64]),
        None => exporter.size(&count, &[&step.inputs[0]])?,
    };
    let builder = &mut exporter.builder;
    let attributes = [int("axis", axis as i64), int("largest", i64::from(descending)), int("sorted", 1)];
    let found = builder.node_of("TopK", &[&x, &count], 2, attributes);
    Ok(vec![builder.cast(&found[0], wide, from), builder.cast(&found[1], DType::I64, DType::I32)])
}
