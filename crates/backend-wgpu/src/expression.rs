//! From a fused program to WGSL: one table of formulas for each kind of lane.

use std::fmt::Write;

use taper_shaders::{INTEGER, INTEGER64, MATH, PHILOX};
use tensor_core::{
    BinaryOp, CompareOp, DType, RandomKind, Result, UnaryOp,
    kernel::{Instr, Program},
};

use crate::lanes::{lane, unsupported};

/// The functions that a program may call.
pub(crate) fn library(program: &Program) -> String {
    let wide = program.dtypes.iter().chain(&program.inputs).chain(&program.scalars).any(|d| *d == DType::I64)
        && program.dtypes.contains(&DType::I64);
    let random = program.instrs.iter().any(|i| matches!(i, Instr::Random { .. }));
    [MATH, INTEGER, if wide { INTEGER64 } else { "" }, if random { PHILOX } else { "" }].concat()
}

/// The words that a program's scalars take, and where each begins.
pub(crate) fn scalar_places(program: &Program) -> (Vec<usize>, usize) {
    let mut next = 0;
    let places = program
        .scalars
        .iter()
        .map(|&dtype| {
            let at = next;
            next += if dtype == DType::I64 { 2 } else { 1 };
            at
        })
        .collect();
    (places, next)
}

/// Statements that compute the program at one position, and the expressions of its results as lanes.
///
/// `loads[k]` is the lane of input `k` there, `scalars` the word of `p` at which the scalars begin, `i` the flat position.
pub(crate) fn statements(
    device: &str,
    program: &Program,
    loads: &[String],
    scalars: usize,
) -> Result<(String, Vec<String>)> {
    let mut text = String::new();
    let (places, _) = scalar_places(program);
    for (at, (instr, &dtype)) in program.instrs.iter().zip(&program.dtypes).enumerate() {
        let r = |reg: u16| format!("r{reg}");
        let of = |reg: u16| program.dtypes[reg as usize];
        let scalar = |slot: u16| scalar(program.scalars[slot as usize], scalars + places[slot as usize]);
        let pair = |slot: u16| {
            let at = scalars + places[slot as usize];
            format!("vec2<u32>(p[{at}], p[{}])", at + 1)
        };
        let value = match *instr {
            Instr::Load(k) => register(dtype, &loads[k as usize]),
            Instr::Scalar(slot) => scalar(slot),
            Instr::Arange { start, step } => {
                wrapped(dtype, format!("{} + {} * {}(i)", scalar(start), scalar(step), lane(dtype)))
            }
            Instr::Random { kind, seed, offset } => {
                let block = format!("philox({}, {}, i)", pair(seed), pair(offset));
                match kind {
                    RandomKind::Uniform if dtype == DType::F32 => format!("uniform_({block})"),
                    RandomKind::Normal if dtype == DType::F32 => format!("normal_({block})"),
                    RandomKind::Bits if dtype == DType::U32 => format!("{block}.x"),
                    _ => return Err(unsupported(kind.name(), device, dtype)),
                }
            }
            Instr::Unary(op, a) => {
                unary(op, of(a), &r(a)).ok_or_else(|| unsupported(op.name(), device, of(a)))?
            }
            Instr::Powi(n, a) => powi(n, dtype, &r(a)),
            Instr::Binary(op, a, b) => {
                binary(op, dtype, &r(a), &r(b)).ok_or_else(|| unsupported(op.name(), device, dtype))?
            }
            Instr::Compare(op, a, b) => compare(op, of(a), &r(a), &r(b)),
            Instr::Select(c, a, b) => format!("select({}, {}, {})", r(b), r(a), r(c)),
            Instr::Cast(a) => cast(of(a), dtype, &r(a)),
            _ => return Err(unsupported("instruction", device, dtype)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    let r{at} = {value};");
    }
    let results =
        program.outputs.iter().map(|&o| stored(program.dtypes[o as usize], &format!("r{o}"))).collect();
    Ok((text, results))
}

/// A lane as a register: truth values are `bool` there.
fn register(dtype: DType, lane: &str) -> String {
    if dtype == DType::Bool { format!("({lane} != 0u)") } else { lane.into() }
}

/// A register as a lane: halves are rounded here.
pub(crate) fn stored(dtype: DType, register: &str) -> String {
    match dtype {
        DType::Bool => format!("select(0u, 1u, {register})"),
        DType::F16 => format!("round_f16({register})"),
        DType::BF16 => format!("round_bf16({register})"),
        _ => register.into(),
    }
}

/// The scalar of a dtype at word `at` of the parameters.
pub(crate) fn scalar(dtype: DType, at: usize) -> String {
    match dtype {
        DType::Bool => format!("(p[{at}] != 0u)"),
        DType::I64 => format!("(i64(p[{at}]) | (i64(p[{}]) << 32u))", at + 1),
        _ => match lane(dtype) {
            "f32" => format!("bitcast<f32>(p[{at}])"),
            "i32" => format!("bitcast<i32>(p[{at}])"),
            _ => format!("p[{at}]"),
        },
    }
}

/// An unsigned byte's arithmetic, done in 32 bits, cut back to eight.
fn wrapped(dtype: DType, expression: String) -> String {
    if dtype == DType::U8 { format!("({expression}) & 255u") } else { expression }
}

fn unary(op: UnaryOp, dtype: DType, x: &str) -> Option<String> {
    use UnaryOp as U;
    let text = match (lane(dtype), dtype) {
        (_, DType::Bool) => match op {
            U::Not => format!("!{x}"),
            _ => return None,
        },
        ("f32", _) => match op {
            U::Neg => format!("-{x}"),
            U::Abs => format!("abs({x})"),
            U::Sign => format!("sign_({x})"),
            U::Exp => format!("exp_({x})"),
            U::Expm1 => format!("expm1_({x})"),
            U::Log => format!("log_({x})"),
            U::Log1p => format!("log1p_({x})"),
            U::Sqrt => format!("sqrt_({x})"),
            U::Rsqrt => format!("rsqrt_({x})"),
            U::Reciprocal => format!("div_(1.0, {x})"),
            U::Sin => format!("sin_({x})"),
            U::Cos => format!("cos_({x})"),
            U::Tan => format!("tan_({x})"),
            U::Tanh => format!("tanh_({x})"),
            U::Sigmoid => format!("sigmoid_({x})"),
            U::Relu => format!("relu_({x})"),
            U::Erf => format!("erf_({x})"),
            U::Floor => format!("floor({x})"),
            U::Ceil => format!("ceil({x})"),
            U::Round => format!("round({x})"),
            U::Trunc => format!("trunc({x})"),
            U::IsNan => format!("is_nan({x})"),
            U::IsInf => format!("is_inf({x})"),
            U::Not => return None,
        },
        (signed @ ("i32" | "i64"), _) => match op {
            U::Neg => format!("{signed}(0) - {x}"),
            U::Abs => format!("select({x}, {signed}(0) - {x}, {x} < {signed}(0))"),
            U::Sign => format!(
                "select(select({signed}(0), {signed}(-1), {x} < {signed}(0)), {signed}(1), {x} > {signed}(0))"
            ),
            U::Relu => format!("max({x}, {signed}(0))"),
            U::Not => format!("{signed}(-1) - {x}"),
            _ => return None,
        },
        _ => match op {
            U::Neg => wrapped(dtype, format!("0u - {x}")),
            U::Abs | U::Relu => x.into(),
            U::Sign => format!("min({x}, 1u)"),
            U::Not => wrapped(dtype, format!("~{x}")),
            _ => return None,
        },
    };
    Some(text)
}

fn powi(n: i32, dtype: DType, x: &str) -> String {
    match (n, lane(dtype)) {
        (0, t) => format!("{t}(1)"),
        (1, _) => x.into(),
        (2, _) => wrapped(dtype, format!("{x} * {x}")),
        (3, _) => wrapped(dtype, format!("{x} * {x} * {x}")),
        (_, "f32") => format!("powi_({x}, {n})"),
        (_, t) => wrapped(dtype, format!("pow_{t}({x}, {t}({n}))")),
    }
}

fn binary(op: BinaryOp, dtype: DType, a: &str, b: &str) -> Option<String> {
    use BinaryOp as B;
    let text = match (lane(dtype), dtype) {
        (_, DType::Bool) => match op {
            B::Add | B::Or | B::Maximum => format!("{a} || {b}"),
            B::Mul | B::And | B::Minimum => format!("{a} && {b}"),
            B::Xor => format!("{a} != {b}"),
            _ => return None,
        },
        ("f32", _) => match op {
            B::Add => format!("{a} + {b}"),
            B::Sub => format!("{a} - {b}"),
            B::Mul => format!("{a} * {b}"),
            B::Div => format!("div_({a}, {b})"),
            B::FloorDiv => format!("floor_div_({a}, {b})"),
            B::Remainder => format!("remainder_({a}, {b})"),
            B::Pow => format!("pow_({a}, {b})"),
            B::Maximum => format!("max_({a}, {b})"),
            B::Minimum => format!("min_({a}, {b})"),
            B::Atan2 => format!("atan2_({a}, {b})"),
            B::And | B::Or | B::Xor => return None,
        },
        (t, _) => match op {
            B::Add => wrapped(dtype, format!("{a} + {b}")),
            B::Sub => wrapped(dtype, format!("{a} - {b}")),
            B::Mul => wrapped(dtype, format!("{a} * {b}")),
            B::FloorDiv => format!("floor_div_{t}({a}, {b})"),
            B::Remainder => format!("remainder_{t}({a}, {b})"),
            B::Pow => wrapped(dtype, format!("pow_{t}({a}, {b})")),
            B::Maximum => format!("max({a}, {b})"),
            B::Minimum => format!("min({a}, {b})"),
            B::And => format!("{a} & {b}"),
            B::Or => format!("{a} | {b}"),
            B::Xor => format!("{a} ^ {b}"),
            B::Div | B::Atan2 => return None,
        },
    };
    Some(text)
}

fn compare(op: CompareOp, dtype: DType, a: &str, b: &str) -> String {
    use CompareOp as C;
    if lane(dtype) == "f32" {
        return match op {
            C::Eq => format!("eq_({a}, {b})"),
            C::Ne => format!("ne_({a}, {b})"),
            C::Lt => format!("lt_({a}, {b})"),
            C::Le => format!("le_({a}, {b})"),
            C::Gt => format!("lt_({b}, {a})"),
            C::Ge => format!("le_({b}, {a})"),
        };
    }
    let sign = match op {
        C::Eq => "==",
        C::Ne => "!=",
        C::Lt => "<",
        C::Le => "<=",
        C::Gt => ">",
        C::Ge => ">=",
    };
    if dtype == DType::Bool { format!("u32({a}) {sign} u32({b})") } else { format!("{a} {sign} {b}") }
}

fn cast(from: DType, to: DType, x: &str) -> String {
    let rounded = |v: String| match to {
        DType::F16 => format!("round_f16({v})"),
        DType::BF16 => format!("round_bf16({v})"),
        _ => v,
    };
    match (lane(from), from, to) {
        (_, DType::Bool, DType::Bool) => x.into(),
        (_, DType::Bool, _) => format!("select({t}(0), {t}(1), {x})", t = lane(to)),
        ("f32", _, DType::Bool) => format!("({x} != 0.0 || is_nan({x}))"),
        (t, _, DType::Bool) => format!("({x} != {t}(0))"),
        ("f32", _, DType::U8) => format!("to_u8({x})"),
        ("f32", _, _) if lane(to) == "f32" => rounded(x.into()),
        ("f32", _, _) => format!("to_{}({x})", lane(to)),
        (_, _, DType::U8) => format!("u32({x}) & 255u"),
        _ if lane(to) == "f32" => rounded(format!("f32({x})")),
        _ => format!("{}({x})", lane(to)),
    }
}
