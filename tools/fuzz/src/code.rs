//! A program as Rust, to paste into a test.

use std::fmt::Write;

use taper::{DType, Kind, Scalar, tensor_core::BinaryOp};

use crate::{
    modes::Plan,
    program::{Action, Composite, DRAWS, Draw, Program},
    table,
};

/// The program as the body of a function of `device` that gives a `Result`.
pub fn rust(program: &Program, plan: &Plan) -> String {
    let mut out = String::new();
    if plan.compiled {
        out += "// As a compiled function of its leaves, which is called three times.\n";
    }
    if program.steps.iter().any(|s| matches!(s.action, Action::Draw { .. } | Action::Dropout)) {
        let _ = writeln!(out, "let rng = Generator::seed({DRAWS}, &device);");
    }
    let mut last: Vec<usize> = (0..program.steps.len()).collect();
    for (i, step) in program.steps.iter().enumerate() {
        step.inputs.iter().for_each(|&j| last[j] = i);
    }
    for (i, step) in program.steps.iter().enumerate() {
        let x: Vec<String> = step.inputs.iter().map(|j| format!("t{j}")).collect();
        let mut line = step.action.rust(&x);
        if let (true, Action::Leaf { dtype, .. }) = (plan.tracked, &step.action)
            && dtype.is_float()
        {
            line += ".requires_grad()";
        }
        let _ = writeln!(out, "let t{i} = {line};");
        if plan.eval.get(i) == Some(&true) && !matches!(step.action, Action::Leaf { .. }) {
            let _ = writeln!(out, "t{i}.eval()?;");
        }
        for (j, _) in last.iter().enumerate().filter(|(_, end)| **end == i) {
            if plan.drop.get(j) == Some(&true) && !plan.reads.is_empty() && !plan.reads.contains(&j) {
                let _ = writeln!(out, "drop(t{j});");
            }
        }
    }
    for read in &plan.reads {
        let _ = writeln!(out, "println!(\"{{t{read}}}\");");
    }
    out
}

impl Action {
    /// The call that [`Action::apply`] makes.
    pub fn rust(&self, x: &[String]) -> String {
        use Action as A;
        let me = x.first().cloned().unwrap_or_default();
        let arg = |i: usize| x.get(i).cloned().unwrap_or_default();
        let all = || x.iter().map(|t| format!("&{t}")).collect::<Vec<_>>().join(", ");
        let on = |dtype: &DType| format!("(DType::{dtype:?}, &device)");
        match self {
            A::Leaf { shape, dtype, values } => {
                let values: Vec<String> = values.iter().map(|v| element(*v, *dtype)).collect();
                format!("Tensor::from_vec(vec![{}], {shape:?}, &device)?", values.join(", "))
            }
            A::Full { shape, dtype, value } => {
                format!("Tensor::full({}, {}, {})?", sizes(shape), scalar(*value), on(dtype))
            }
            A::Arange { start, step, n, dtype } => {
                format!("Tensor::arange({start}, {}, {step}, {})?", start + step * *n as i64, on(dtype))
            }
            A::Eye { n, dtype } => format!("Tensor::eye({n}, {})?", on(dtype)),
            A::Draw { kind, shape, dtype } => match kind {
                Draw::Uniform => format!("Tensor::rand_dtype({}, DType::{dtype:?}, &rng)?", sizes(shape)),
                Draw::Normal => format!("Tensor::randn_dtype({}, DType::{dtype:?}, &rng)?", sizes(shape)),
                Draw::Integers(low, high) => {
                    format!(
                        "Tensor::randint({low}, {high}, {}, &rng)?.to_dtype(DType::{dtype:?})?",
                        sizes(shape)
                    )
                }
            },
            A::Dropout => format!(
                "{me}.mul(&Tensor::rand({me}.shape(), &rng)?.ge_scalar(0.5).to_dtype({me}.dtype())?)?.mul_scalar(2.0)"
            ),
            A::Unary(op) => match op {
                taper::tensor_core::UnaryOp::Not => format!("{me}.logical_not()"),
                _ => format!("{me}.{}()", op.name()),
            },
            A::Composite(f) => {
                let name = match f {
                    Composite::Log2 => "log2",
                    Composite::Log10 => "log10",
                    Composite::Silu => "silu",
                    Composite::Gelu => "gelu",
                };
                format!("{me}.{name}()")
            }
            A::Powi(n) => format!("{me}.powi({n})"),
            A::Powf(p) => format!("{me}.powf({p:?})"),
            A::Clamp(low, high) => format!("{me}.clamp({}, {})", scalar(*low), scalar(*high)),
            A::Binary(op) => format!("{me}.{}(&{})?", op.name(), arg(1)),
            A::BinaryScalar(op, s) => format!("{me}.{}_scalar({})", op.name(), scalar(*s)),
            A::ScalarBinary(op, s) => {
                let sign = match op {
                    BinaryOp::Add => '+',
                    BinaryOp::Sub => '-',
                    BinaryOp::Mul => '*',
                    _ => '/',
                };
                format!("{} {sign} &{me}", scalar(Scalar::Float(*s)))
            }
            A::Compare(op) => format!("{me}.{}(&{})?", op.name(), arg(1)),
            A::CompareScalar(op, s) => format!("{me}.{}_scalar({})", op.name(), scalar(*s)),
            A::Where => format!("{me}.where_cond(&{}, &{})?", arg(1), arg(2)),
            A::MaskedFill(s) => format!("{me}.masked_fill(&{}, {})?", arg(1), scalar(*s)),
            A::Cast(dtype) => format!("{me}.to_dtype(DType::{dtype:?})?"),
            A::Reshape(shape) => format!("{me}.reshape({})?", sizes(shape)),
            A::Flatten => format!("{me}.flatten_all()"),
            A::Permute(axes) => format!("{me}.permute({})?", sizes(axes)),
            A::Expand(shape) => format!("{me}.expand({})?", sizes(shape)),
            A::Slice { axis, start, end, step } => {
                format!("{me}.slice_step({axis}, {start}..{end}, {step})?")
            }
            A::Narrow { axis, start, len } => format!("{me}.narrow({axis}, {start}, {len})?"),
            A::Select { axis, index } => format!("{me}.select({axis}, {index})?"),
            A::Flip(axes) => format!("{me}.flip({})?", sizes(axes)),
            A::Squeeze => format!("{me}.squeeze(..)?"),
            A::Unsqueeze(axis) => format!("{me}.unsqueeze({axis})?"),
            A::Contiguous => format!("{me}.contiguous()?"),
            A::Detach => format!("{me}.detach()"),
            A::Concat(axis) => format!("Tensor::concat(&[{}], {axis})?", all()),
            A::Stack(axis) => format!("Tensor::stack(&[{}], {axis})?", all()),
            A::Split { size, axis, which } => format!("{me}.split({size}, {axis})?[{which}].clone()"),
            A::Pad { padding, value } => format!("{me}.pad(&{padding:?}, {})?", scalar(*value)),
            A::Tril(diagonal) => format!("{me}.tril({diagonal})?"),
            A::Triu(diagonal) => format!("{me}.triu({diagonal})?"),
            A::Reduce { op, axes, keepdim } => {
                format!("{me}.reduce(ReduceOp::{op:?}, {}, {keepdim})?", sizes(axes))
            }
            A::ArgReduce { op, axis, keepdim } => format!("{me}.{}_axis({axis}, {keepdim})?", op.name()),
            A::Var { axes, correction, keepdim } => {
                format!("{me}.var_axis({}, {correction:?}, {keepdim})?", sizes(axes))
            }
            A::Std { axes, correction, keepdim } => {
                format!("{me}.std_axis({}, {correction:?}, {keepdim})?", sizes(axes))
            }
            A::Softmax(axis) => format!("{me}.softmax({axis})?"),
            A::LogSoftmax(axis) => format!("{me}.log_softmax({axis})?"),
            A::LogSumExp { axes, keepdim } => format!("{me}.logsumexp({}, {keepdim})?", sizes(axes)),
            A::LayerNorm => format!(
                "{{ let c = {me}.sub(&{me}.mean_axis(-1, true)?)?; \
                 c.mul(&c.powi(2).mean_axis(-1, true)?.add_scalar(1e-3).rsqrt())? }}"
            ),
            A::CrossEntropy => format!("cross_entropy(&{me}, &{})?", arg(1)),
            A::Cumulative { op, axis, reverse } => {
                format!("{me}.cumulative(CumulativeOp::{op:?}, {axis}, {reverse})?")
            }
            A::CumExtreme { max, axis } => {
                format!("{me}.{}({axis})?.0", if *max { "cummax" } else { "cummin" })
            }
            A::Sort { axis, descending } => format!("{me}.sort({axis}, {descending})?.0"),
            A::ArgSort { axis, descending } => format!("{me}.argsort({axis}, {descending})?"),
            A::TopK { k, axis, largest, indices } => {
                format!("{me}.topk({k}, {axis}, {largest})?.{}", u8::from(*indices))
            }
            A::MatMul => format!("{me}.matmul(&{})?", arg(1)),
            A::Gather(axis) => format!("{me}.gather({axis}, &{})?", arg(1)),
            A::ScatterAdd(axis) => format!("{me}.scatter_add({axis}, &{}, &{})?", arg(1), arg(2)),
            A::IndexSelect(axis) => format!("{me}.index_select({axis}, &{})?", arg(1)),
            A::IndexAdd(axis) => format!("{me}.index_add({axis}, &{}, &{})?", arg(1), arg(2)),
            A::Row { row, which } => {
                let label = table::row(*row).map(taper_operations::Row::label).unwrap_or_default();
                format!("taper_operations::apply({label:?}, &[{}])?[{which}].clone()", all())
            }
        }
    }
}

/// Sizes or axes: a list that may be empty needs its type.
fn sizes(of: &[usize]) -> String {
    if of.is_empty() { "[0usize; 0]".into() } else { format!("{of:?}") }
}

fn scalar(s: Scalar) -> String {
    match s {
        Scalar::Float(v) => float(v, "f64"),
        Scalar::Int(v) => format!("{v}i64"),
        Scalar::Unsigned(v) => format!("{v}u64"),
        Scalar::Bool(v) => v.to_string(),
    }
}

fn float(v: f64, of: &str) -> String {
    if v.is_nan() {
        format!("{of}::NAN")
    } else if v == f64::INFINITY {
        format!("{of}::INFINITY")
    } else if v == f64::NEG_INFINITY {
        format!("{of}::NEG_INFINITY")
    } else {
        format!("{v:?}")
    }
}

/// An element as a literal of its type.
fn element(v: Scalar, dtype: DType) -> String {
    match (dtype.info().kind, v) {
        (Kind::Float, _) if dtype.info().bits == 8 => {
            format!("{}::from_f32({})", dtype.name().to_uppercase(), float(v.as_f64(), "f32"))
        }
        (Kind::Float, _) if dtype.is_narrow() => format!("{dtype}::from_f64({})", float(v.as_f64(), "f64")),
        (Kind::Float, _) => {
            let text = float(v.as_f64(), dtype.name());
            if text.contains("::") { text } else { format!("{text}{dtype}") }
        }
        (Kind::Bool, _) => v.as_bool().to_string(),
        (Kind::Signed | Kind::Unsigned, Scalar::Unsigned(v)) => format!("{v}{dtype}"),
        (Kind::Signed | Kind::Unsigned, v) => format!("{}{dtype}", v.as_i64()),
    }
}
