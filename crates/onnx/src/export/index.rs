//! Operations by index, operations without inputs, and operations with several results.

use tensor_core::{DType, Op, RandomKind, Scalar, ScatterOp};

use super::{
    builder::{float, int, ints, text},
    exporter::{Emitted, Exporter, Failure, Step},
    reduce,
    sample::{Size, fixed},
};

/// The name of an index in a type that ONNX takes.
pub(super) fn index_of(exporter: &mut Exporter, name: &str, dtype: DType) -> String {
    if matches!(dtype, DType::I32 | DType::I64) {
        return name.into();
    }
    exporter.builder.cast(name, dtype, DType::I64)
}

/// The elements at an index of the result's shape.
pub(super) fn gather(exporter: &mut Exporter, step: &Step, axis: usize) -> String {
    let index = index_of(exporter, step.name(1), step.inputs[1].dtype());
    exporter.builder.node("GatherElements", &[step.name(0), &index], [int("axis", axis as i64)])
}

/// A copy with elements combined with others at an index.
pub(super) fn scatter(exporter: &mut Exporter, step: &Step, op: ScatterOp, axis: usize) -> Emitted {
    let reduction = match op {
        ScatterOp::Add => "add",
        ScatterOp::Max => "max",
        ScatterOp::Min => "min",
        ScatterOp::Replace => "none",
    };
    let dtype = step.out.dtype();
    let index = index_of(exporter, step.name(1), step.inputs[1].dtype());
    let builder = &mut exporter.builder;
    // The sum of bools is their "or".
    let wide = if dtype == DType::Bool && op != ScatterOp::Replace { DType::I32 } else { dtype };
    let (base, source) =
        (builder.cast(step.name(0), dtype, wide), builder.cast(step.name(2), step.inputs[2].dtype(), wide));
    let attributes = [int("axis", axis as i64), text("reduction", reduction)];
    let scattered = builder.node("ScatterElements", &[&base, &index, &source], attributes);
    Ok(builder.cast(&scattered, wide, dtype))
}

/// An operation without inputs.
pub(super) fn source(exporter: &mut Exporter, step: &Step) -> Emitted {
    let dtype = step.out.dtype();
    match step.op() {
        Op::Full(_) => {
            let values: Vec<Scalar> = step
                .ops()
                .filter_map(|op| if let Op::Full(value) = op { Some(*value) } else { None })
                .collect();
            let value = exporter.scalar(&values, dtype)?;
            let shape = step.out.shape();
            if shape.is_empty() {
                return Ok(value);
            }
            let shape = exporter.shape(&shape, &[])?;
            Ok(exporter.builder.node("Expand", &[&value, &shape], []))
        }
        Op::Arange(_) => arange(exporter, step),
        Op::Random { kind, .. } => random(exporter, step, *kind),
        _ => Err(Failure::NoForm(String::new())),
    }
}

/// start + step·i at flat index i.
fn arange(exporter: &mut Exporter, step: &Step) -> Emitted {
    let dtype = step.out.dtype();
    let (mut starts, mut strides) = (Vec::new(), Vec::new());
    for op in step.ops() {
        if let Op::Arange(progression) = op {
            starts.push(progression.start);
            strides.push(progression.step);
        }
    }
    let count: Size = step.out.all().map(|tensor| tensor.numel()).collect();
    let index = exporter.range(&count, &[])?;
    // Half types are rounded once.
    let wide = if dtype.is_reduced_float() { DType::F32 } else { dtype };
    let mut value = exporter.builder.cast(&index, DType::I64, wide);
    for (op, numbers, neutral) in [("Mul", strides, 1.0), ("Add", starts, 0.0)] {
        if numbers.iter().any(|number| number.as_f64() != neutral) {
            let number = exporter.scalar(&numbers, wide)?;
            value = exporter.builder.node(op, &[&value, &number], []);
        }
    }
    let value = exporter.builder.cast(&value, wide, dtype);
    let shape = step.out.shape();
    if shape.len() == 1 {
        return Ok(value);
    }
    let shape = exporter.shape(&shape, &[])?;
    Ok(exporter.builder.node("Reshape", &[&value, &shape], []))
}

/// Random numbers, other ones in each run and each program.
fn random(exporter: &mut Exporter, step: &Step, kind: RandomKind) -> Emitted {
    let (name, parameters) = match kind {
        RandomKind::Uniform => ("RandomUniform", [float("low", 0.0), float("high", 1.0)]),
        RandomKind::Normal => ("RandomNormal", [float("mean", 0.0), float("scale", 1.0)]),
        RandomKind::Bits => return Err(Failure::NoForm("ONNX has no random integers".into())),
    };
    let dtype = step.out.dtype();
    let wide = if dtype == DType::BF16 { DType::F32 } else { dtype };
    let of_type = int("dtype", i64::from(wide.info().onnx));
    let shape = step.out.shape();
    let fixed_shape: Option<Vec<i64>> = shape.iter().map(|size| fixed(size).map(|n| n as i64)).collect();
    let drawn = match fixed_shape {
        Some(shape) => {
            let attributes = parameters.into_iter().chain([of_type, ints("shape", shape)]);
            exporter.builder.node(name, &[], attributes)
        }
        None => {
            let shape = exporter.shape(&shape, &[])?;
            let zeros = exporter.builder.node("ConstantOfShape", &[&shape], []);
            exporter.builder.node(&format!("{name}Like"), &[&zeros], parameters.into_iter().chain([of_type]))
        }
    };
    Ok(exporter.builder.cast(&drawn, wide, dtype))
}

/// One result of an operation with several.
pub(super) fn element(exporter: &mut Exporter, step: &Step, of: &'static str, index: usize) -> Emitted {
    let Some(tuple) = exporter.tuple_of(&step.out) else {
        return Err(Failure::NoForm(format!("{of} was computed before")));
    };
    if let Some(names) = exporter.tuples.get(&tuple.id()) {
        return Ok(names[index].clone());
    }
    let names = match tuple.op() {
        Op::Sort { axis, descending } => reduce::sort(exporter, step, *axis, *descending)?,
        _ => return Err(Failure::NoForm(String::new())),
    };
    exporter.tuples.insert(tuple.id(), names.clone());
    Ok(names[index].clone())
}
