//! The operations of programs as text for both languages: the table says what a writer prints, and what can
//! be shipped at all. `number` has their values.

use tensor_core::{
    Arithmetic, BinaryOp, CompareOp, CumulativeOp, DType, Result, UnaryOp,
    kernel::{Body, Instr, Program, Reg},
};

use crate::description::{Description, Role, Step};

/// An expression in each language. `{a}` and `{b}` are its operands, `{t}` is their type, and `{u}` the
/// unsigned integer of the type's width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pub(crate) c: &'static str,
    pub(crate) rust: &'static str,
    pub(crate) wgsl: &'static str,
    /// The functions that it calls in C and Rust.
    pub(crate) calls: &'static [&'static str],
}

const fn same(text: &'static str) -> Option<Text> {
    Some(Text { c: text, rust: text, wgsl: text, calls: &[] })
}

const fn each(c: &'static str, rust: &'static str, wgsl: &'static str) -> Option<Text> {
    Some(Text { c, rust, wgsl, calls: &[] })
}

/// A call of a function that has the same name in C and Rust; WGSL has its own text, or the same one.
macro_rules! call {
    ($name:literal, $arguments:literal, $wgsl:expr) => {
        Some(Text {
            c: concat!($name, $arguments),
            rust: concat!($name, $arguments),
            wgsl: $wgsl,
            calls: &[$name],
        })
    };
    ($name:literal, $arguments:literal) => {
        call!($name, $arguments, concat!($name, $arguments))
    };
    ($name:literal) => {
        call!($name, "({a})")
    };
}

/// Registers of a function of f32 alone.
fn of_f32(arithmetic: Arithmetic, text: Option<Text>) -> Option<Text> {
    text.filter(|_| arithmetic == Arithmetic::F32)
}

/// The text of a function of one value; none if it cannot be shipped for the type.
pub(crate) fn unary(op: UnaryOp, of: Arithmetic) -> Option<Text> {
    use Arithmetic as A;
    let is_float = matches!(of, A::F32 | A::F64);
    let is_signed = matches!(of, A::I32 | A::I64);
    match op {
        UnaryOp::Neg if is_float => same("-{a}"),
        UnaryOp::Neg if of != A::Bool => {
            each("({t})(({u})0 - ({u}){a})", "{a}.wrapping_neg()", "{t}(0) - {a}")
        }
        UnaryOp::Abs if of == A::F32 => call!("abs_f32", "({a})", "abs({a})"),
        UnaryOp::Abs if of == A::F64 => Some(Text {
            c: "bits_f64(f64_bits({a}) & (UINT64_MAX >> 1))",
            rust: "f64::from_bits({a}.to_bits() & (u64::MAX >> 1))",
            wgsl: "",
            calls: &["bits_f64", "f64_bits"],
        }),
        UnaryOp::Abs if is_signed => {
            each("{a} < 0 ? ({t})(({u})0 - ({u}){a}) : {a}", "{a}.wrapping_abs()", "abs({a})")
        }
        UnaryOp::Abs if of != A::Bool => same("{a}"),
        UnaryOp::Sign if of == A::F32 => call!("sign_f32"),
        UnaryOp::Sign if is_signed => each("({a} > 0) - ({a} < 0)", "{a}.signum()", "sign({a})"),
        UnaryOp::Sign if matches!(of, A::U32 | A::U64) => {
            each("{a} != 0", "({a} != 0) as {t}", "min({a}, 1u)")
        }
        UnaryOp::Relu if is_float => {
            each("{a} < 0 ? 0 : {a}", "if {a} < 0.0 { 0.0 } else { {a} }", "relu_f32({a})")
        }
        UnaryOp::Relu if is_signed => each("{a} < 0 ? 0 : {a}", "{a}.max(0)", "max({a}, 0)"),
        UnaryOp::Relu if of != A::Bool => same("{a}"),
        UnaryOp::Not if of == A::Bool => same("!{a}"),
        UnaryOp::Not if !is_float => each("({t})~{a}", "!{a}", "~{a}"),
        UnaryOp::Reciprocal if is_float => each("1 / {a}", "1.0 / {a}", "1.0 / {a}"),
        UnaryOp::IsNan if is_float => each("{a} != {a}", "{a} != {a}", "is_nan_f32({a})"),
        UnaryOp::IsInf if of == A::F32 => Some(Text {
            c: "abs_f32({a}) == bits_f32(0x7f800000u)",
            rust: "abs_f32({a}) == f32::INFINITY",
            wgsl: "is_inf_f32({a})",
            calls: &["abs_f32", "bits_f32"],
        }),
        UnaryOp::Rsqrt => of_f32(
            of,
            Some(Text {
                c: "1.0f / sqrt_f32({a})",
                rust: "1.0 / sqrt_f32({a})",
                wgsl: "rsqrt_f32({a})",
                calls: &["sqrt_f32"],
            }),
        ),
        UnaryOp::Sqrt => of_f32(of, call!("sqrt_f32")),
        UnaryOp::Exp => of_f32(of, call!("exp_f32")),
        UnaryOp::Expm1 => of_f32(of, call!("expm1_f32")),
        UnaryOp::Log => of_f32(of, call!("log_f32")),
        UnaryOp::Log1p => of_f32(of, call!("log1p_f32")),
        UnaryOp::Sin => of_f32(of, call!("sin_f32")),
        UnaryOp::Cos => of_f32(of, call!("cos_f32")),
        UnaryOp::Tan => of_f32(of, call!("tan_f32")),
        UnaryOp::Tanh => of_f32(of, call!("tanh_f32")),
        UnaryOp::Sigmoid => of_f32(of, call!("sigmoid_f32")),
        UnaryOp::Erf => of_f32(of, call!("erf_f32")),
        UnaryOp::Ndtr => of_f32(of, call!("ndtr_f32")),
        UnaryOp::Gaussian => of_f32(of, call!("gaussian_f32")),
        UnaryOp::Floor => of_f32(of, call!("floor_f32", "({a})", "floor({a})")),
        UnaryOp::Ceil => of_f32(of, call!("ceil_f32", "({a})", "ceil({a})")),
        UnaryOp::Round => of_f32(of, call!("round_f32", "({a})", "round({a})")),
        UnaryOp::Trunc => of_f32(of, call!("trunc_f32", "({a})", "trunc({a})")),
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu | UnaryOp::Not => None,
        UnaryOp::Reciprocal | UnaryOp::IsNan | UnaryOp::IsInf => None,
    }
}

/// The text of a function of two values; none if it cannot be shipped for the type.
pub(crate) fn binary(op: BinaryOp, of: Arithmetic) -> Option<Text> {
    use Arithmetic as A;
    let is_float = matches!(of, A::F32 | A::F64);
    let is_signed = matches!(of, A::I32 | A::I64);
    let is_bool = of == A::Bool;
    match op {
        BinaryOp::Add if is_float => same("{a} + {b}"),
        BinaryOp::Sub if is_float => same("{a} - {b}"),
        BinaryOp::Mul if is_float => same("{a} * {b}"),
        BinaryOp::Div if is_float => same("{a} / {b}"),
        BinaryOp::Add | BinaryOp::Maximum | BinaryOp::Or if is_bool => same("{a} | {b}"),
        BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::And if is_bool => same("{a} & {b}"),
        BinaryOp::Add => each("({t})(({u}){a} + ({u}){b})", "{a}.wrapping_add({b})", "{a} + {b}"),
        BinaryOp::Sub if !is_bool => each("({t})(({u}){a} - ({u}){b})", "{a}.wrapping_sub({b})", "{a} - {b}"),
        BinaryOp::Mul => each("({t})(({u}){a} * ({u}){b})", "{a}.wrapping_mul({b})", "{a} * {b}"),
        BinaryOp::Maximum if is_float => each(
            "{a} > {b} || {a} != {a} ? {a} : {b}",
            "if {a} > {b} || {a} != {a} { {a} } else { {b} }",
            "max_f32({a}, {b})",
        ),
        BinaryOp::Minimum if is_float => each(
            "{a} < {b} || {a} != {a} ? {a} : {b}",
            "if {a} < {b} || {a} != {a} { {a} } else { {b} }",
            "min_f32({a}, {b})",
        ),
        BinaryOp::Maximum => each("{a} > {b} ? {a} : {b}", "{a}.max({b})", "max({a}, {b})"),
        BinaryOp::Minimum => each("{a} < {b} ? {a} : {b}", "{a}.min({b})", "min({a}, {b})"),
        BinaryOp::FloorDiv if of == A::F32 => {
            call!("floor_divide_f32", "({a}, {b})", "floordiv_f32({a}, {b})")
        }
        BinaryOp::Remainder if of == A::F32 => call!("remainder_f32", "({a}, {b})"),
        BinaryOp::FloorDiv if is_signed => Some(Text {
            c: "({t})floor_divide_i64({a}, {b})",
            rust: "floor_divide_i64({a} as i64, {b} as i64) as {t}",
            wgsl: "floordiv_i32({a}, {b})",
            calls: &["floor_divide_i64"],
        }),
        BinaryOp::Remainder if is_signed => Some(Text {
            c: "({t})remainder_i64({a}, {b})",
            rust: "remainder_i64({a} as i64, {b} as i64) as {t}",
            wgsl: "remainder_i32({a}, {b})",
            calls: &["remainder_i64"],
        }),
        BinaryOp::FloorDiv if matches!(of, A::U32 | A::U64) => {
            each("{b} == 0 ? 0 : {a} / {b}", "{a}.checked_div({b}).unwrap_or(0)", "floordiv_u32({a}, {b})")
        }
        BinaryOp::Remainder if matches!(of, A::U32 | A::U64) => {
            each("{b} == 0 ? 0 : {a} % {b}", "{a}.checked_rem({b}).unwrap_or(0)", "remainder_u32({a}, {b})")
        }
        BinaryOp::Pow => of_f32(of, call!("pow_f32", "({a}, {b})")),
        BinaryOp::Atan2 => of_f32(of, call!("atan2_f32", "({a}, {b})")),
        BinaryOp::And if !is_float => same("{a} & {b}"),
        BinaryOp::Or if !is_float => same("{a} | {b}"),
        BinaryOp::Xor if is_bool => each("{a} ^ {b}", "{a} ^ {b}", "{a} != {b}"),
        BinaryOp::Xor if !is_float => same("{a} ^ {b}"),
        BinaryOp::LeftShift if !is_float && !is_bool => each(
            "({u}){b} < sizeof({t}) * 8 ? ({t})(({u}){a} << {b}) : 0",
            "if ({b} as {u}) < {u}::BITS as {u} { {a} << {b} } else { 0 }",
            "shl_{t}({a}, {b})",
        ),
        BinaryOp::RightShift if is_signed => each(
            "{a} >> (({u}){b} < sizeof({t}) * 8 ? {b} : ({t})sizeof({t}) * 8 - 1)",
            "{a} >> ({b} as {u}).min({u}::BITS as {u} - 1)",
            "shr_{t}({a}, {b})",
        ),
        BinaryOp::RightShift if !is_float && !is_bool => each(
            "{b} < sizeof({t}) * 8 ? {a} >> {b} : 0",
            "if {b} < {t}::BITS as {t} { {a} >> {b} } else { 0 }",
            "shr_{t}({a}, {b})",
        ),
        BinaryOp::Sub | BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Remainder => None,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => None,
        BinaryOp::LeftShift | BinaryOp::RightShift | BinaryOp::Gcd => None,
    }
}

/// The sign of a comparison.
pub(crate) const fn compare(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "==",
        CompareOp::Ne => "!=",
        CompareOp::Lt => "<",
        CompareOp::Le => "<=",
        CompareOp::Gt => ">",
        CompareOp::Ge => ">=",
    }
}

/// Whether programs store elements of a dtype.
fn is_stored(dtype: DType) -> bool {
    dtype.is_bool() || dtype.is_int() || matches!(dtype, DType::F32 | DType::F64)
}

/// The reason for which an instruction cannot be shipped.
fn refusal(program: &Program, r: usize) -> Option<String> {
    let of = |reg: Reg| program.dtypes[usize::from(reg)];
    let lacks = |name: &str, dtype: DType| Some(format!("{name} of {} cannot be shipped", dtype.name()));
    match program.instrs[r] {
        Instr::Unary(op, a) if unary(op, of(a).arithmetic()).is_none() => lacks(op.name(), of(a)),
        Instr::Binary(op, a, _) if binary(op, of(a).arithmetic()).is_none() => lacks(op.name(), of(a)),
        Instr::Random { .. } => Some("random numbers cannot be shipped: pass them as an argument".into()),
        Instr::Powi(_, a) if of(a).is_bool() => lacks("a power", of(a)),
        Instr::Load(_) | Instr::LoadAt { .. } | Instr::Scalar(_) | Instr::Arange { .. } => None,
        Instr::Unary(..) | Instr::Powi(..) | Instr::Binary(..) | Instr::Compare(..) => None,
        Instr::Select(..) | Instr::Cast(_) | Instr::Fold(..) => None,
    }
}

/// Checks that a step can be shipped.
///
/// # Errors
/// The reason, with the line of the operation.
pub(crate) fn check(step: &Step, plan: &Description) -> Result<()> {
    let refuse = |message: String| Err(step.refuse(message));
    for (operand, window) in step.kernel.operands.iter().zip(&step.inputs) {
        if operand.format.is_some() && !matches!(plan.buffers[window.buffer].role, Role::Constant(_)) {
            return refuse("a tensor in blocks that is not a constant cannot be shipped".into());
        }
    }
    let dtypes = step.kernel.operands.iter().map(|operand| operand.dtype);
    let dtypes = dtypes.chain(step.kernel.outputs.iter().map(|output| output.dtype));
    let program = step.kernel.body.program();
    let registers = program.into_iter().flat_map(|program| program.dtypes.iter().copied());
    if let Some(dtype) = dtypes.chain(registers).find(|&dtype| !is_stored(dtype)) {
        return refuse(format!(
            "{} cannot be shipped: convert the model and its inputs with to_dtype(DType::F32)",
            dtype.name()
        ));
    }
    if let Some(program) = program
        && let Some(reason) = (0..program.instrs.len()).find_map(|r| refusal(program, r))
    {
        return refuse(reason);
    }
    match &step.kernel.body {
        Body::ArgSort { .. } => refuse("a sort cannot be shipped".into()),
        Body::Cumulative { op: CumulativeOp::LogSumExp, .. } => {
            refuse("a running log-sum-exp cannot be shipped".into())
        }
        Body::Map(_) | Body::Reduce { .. } | Body::Rows { .. } | Body::ArgReduce { .. } => Ok(()),
        Body::Cumulative { .. } | Body::Contract(_) | Body::Gather { .. } | Body::Scatter { .. } => Ok(()),
        Body::Copy { .. } | Body::Custom(_) => Ok(()),
    }
}
