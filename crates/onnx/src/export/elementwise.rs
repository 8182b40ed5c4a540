//! Elementwise operations. Where ONNX has no operator, a function is composed of others; formulas are the
//! instructions that kernels expand them into.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_PI_2, PI};

use tensor_core::{BinaryOp, CompareOp, DType, Formula, Kind, UnaryOp, kernel::Instr};

use super::exporter::{Emitted, Exporter, Failure};

impl Exporter {
    fn one(&mut self, op: &str, x: &str) -> String {
        self.builder.node(op, &[x], [])
    }

    fn two(&mut self, op: &str, x: &str, y: &str) -> String {
        self.builder.node(op, &[x, y], [])
    }

    fn choose(&mut self, condition: &str, x: &str, y: &str) -> String {
        self.builder.node("Where", &[condition, x, y], [])
    }

    /// x op number.
    fn with(&mut self, op: &str, x: &str, number: f64, dtype: DType) -> String {
        let number = self.builder.number(number, dtype);
        self.two(op, x, &number)
    }

    /// `f` computed in `wide`, and cast back.
    fn through(
        &mut self,
        x: &str,
        dtype: DType,
        wide: DType,
        f: impl FnOnce(&mut Exporter, &str) -> Emitted,
    ) -> Emitted {
        let x = self.builder.cast(x, dtype, wide);
        let y = f(self, &x)?;
        Ok(self.builder.cast(&y, wide, dtype))
    }
}

/// Whether a type is an integer below 32 bits, which many operators do not take.
pub(super) fn is_narrow(dtype: DType) -> bool {
    dtype.is_int() && dtype.info().bits < 32
}

/// The type of ONNX's indices and of arithmetic for integers that an operator does not take.
pub(super) fn wide_int(dtype: DType) -> DType {
    if is_narrow(dtype) { DType::I32 } else { DType::I64 }
}

/// A function of one value.
pub(super) fn unary(exporter: &mut Exporter, op: UnaryOp, x: &str, dtype: DType) -> Emitted {
    let ex = exporter;
    let name = match op {
        UnaryOp::Neg if dtype.info().kind == Kind::Unsigned => {
            let zero = ex.builder.number(0.0, dtype);
            return Ok(ex.two("Sub", &zero, x));
        }
        UnaryOp::Neg => "Neg",
        UnaryOp::Abs => "Abs",
        UnaryOp::Sign => "Sign",
        UnaryOp::Exp => "Exp",
        UnaryOp::Log => "Log",
        UnaryOp::Sqrt => "Sqrt",
        UnaryOp::Reciprocal => "Reciprocal",
        UnaryOp::Sin => "Sin",
        UnaryOp::Cos => "Cos",
        UnaryOp::Tan => "Tan",
        UnaryOp::Tanh => "Tanh",
        UnaryOp::Sigmoid => "Sigmoid",
        UnaryOp::Relu => "Relu",
        UnaryOp::Erf => "Erf",
        UnaryOp::Floor => "Floor",
        UnaryOp::Ceil => "Ceil",
        UnaryOp::Round => "Round",
        UnaryOp::Not if dtype == DType::Bool => "Not",
        UnaryOp::Not => "BitwiseNot",
        UnaryOp::IsNan => "IsNaN",
        UnaryOp::IsInf if matches!(dtype, DType::F32 | DType::F64) => "IsInf",
        UnaryOp::IsInf => {
            let wide = ex.builder.cast(x, dtype, DType::F32);
            return Ok(ex.one("IsInf", &wide));
        }
        UnaryOp::Rsqrt => {
            let root = ex.one("Sqrt", x);
            return Ok(ex.one("Reciprocal", &root));
        }
        UnaryOp::Trunc => {
            let (sign, abs) = (ex.one("Sign", x), ex.one("Abs", x));
            let floor = ex.one("Floor", &abs);
            return Ok(ex.two("Mul", &sign, &floor));
        }
        UnaryOp::Gaussian => {
            let square = ex.two("Mul", x, x);
            let half = ex.with("Mul", &square, -0.5, dtype);
            return Ok(ex.one("Exp", &half));
        }
        UnaryOp::Ndtr => {
            let scaled = ex.with("Mul", x, FRAC_1_SQRT_2, dtype);
            let erf = ex.one("Erf", &scaled);
            let sum = ex.with("Add", &erf, 1.0, dtype);
            return Ok(ex.with("Mul", &sum, 0.5, dtype));
        }
        UnaryOp::Expm1 => return Ok(expm1(ex, x, dtype)),
        UnaryOp::Log1p => return Ok(log1p(ex, x, dtype)),
    };
    Ok(ex.one(name, x))
}

/// eˣ − 1 by Kahan's form, (u − 1)·x / ln u for u = eˣ, which is accurate near 0.
fn expm1(ex: &mut Exporter, x: &str, dtype: DType) -> String {
    let u = ex.one("Exp", x);
    let less = ex.with("Sub", &u, 1.0, dtype);
    // Beyond this distance from 0 the difference itself is accurate.
    let abs = ex.one("Abs", x);
    let near = ex.with("Less", &abs, 0.5, dtype);
    let one = ex.builder.number(1.0, dtype);
    let two = ex.builder.number(2.0, dtype);
    let is_one = ex.two("Equal", &u, &one);
    let safe = ex.choose(&is_one, &two, &u);
    let log = ex.one("Log", &safe);
    let product = ex.two("Mul", &less, x);
    let quotient = ex.two("Div", &product, &log);
    let close = ex.choose(&is_one, x, &quotient);
    ex.choose(&near, &close, &less)
}

/// ln(1 + x) by Kahan's form, ln(u)·x / (u − 1) for u = 1 + x.
fn log1p(ex: &mut Exporter, x: &str, dtype: DType) -> String {
    let u = ex.with("Add", x, 1.0, dtype);
    let log = ex.one("Log", &u);
    let abs = ex.one("Abs", x);
    let near = ex.with("Less", &abs, 0.5, dtype);
    let one = ex.builder.number(1.0, dtype);
    let is_one = ex.two("Equal", &u, &one);
    let less = ex.two("Sub", &u, &one);
    let safe = ex.choose(&is_one, &one, &less);
    let product = ex.two("Mul", &log, x);
    let quotient = ex.two("Div", &product, &safe);
    let close = ex.choose(&is_one, x, &quotient);
    ex.choose(&near, &close, &log)
}

/// xⁿ.
pub(super) fn powi(ex: &mut Exporter, x: &str, power: i32, dtype: DType) -> Emitted {
    match power {
        1 => Ok(x.into()),
        2 => Ok(ex.two("Mul", x, x)),
        -1 if dtype.is_float() => Ok(ex.one("Reciprocal", x)),
        _ if is_narrow(dtype) => ex.through(x, dtype, DType::I32, |ex, x| powi(ex, x, power, DType::I32)),
        _ => Ok(ex.with("Pow", x, f64::from(power), dtype)),
    }
}

/// A function of two values of one type.
pub(super) fn binary(ex: &mut Exporter, op: BinaryOp, [x, y]: [&str; 2], dtype: DType) -> Emitted {
    let is_bool = dtype == DType::Bool;
    let name = match op {
        BinaryOp::Add if is_bool => "Or",
        BinaryOp::Mul if is_bool => "And",
        BinaryOp::Maximum if is_bool => "Or",
        BinaryOp::Minimum if is_bool => "And",
        BinaryOp::And if is_bool => "And",
        BinaryOp::Or if is_bool => "Or",
        BinaryOp::Xor if is_bool => "Xor",
        BinaryOp::Add => "Add",
        BinaryOp::Sub => "Sub",
        BinaryOp::Mul => "Mul",
        BinaryOp::Div => "Div",
        BinaryOp::Maximum => "Max",
        BinaryOp::Minimum => "Min",
        BinaryOp::And => "BitwiseAnd",
        BinaryOp::Or => "BitwiseOr",
        BinaryOp::Xor => "BitwiseXor",
        BinaryOp::Pow if is_narrow(dtype) => {
            let (x, y) = (ex.builder.cast(x, dtype, DType::I64), ex.builder.cast(y, dtype, DType::I64));
            let power = int_power(ex, &x, &y, DType::I64);
            return Ok(ex.builder.cast(&power, DType::I64, dtype));
        }
        BinaryOp::Pow if dtype.is_int() => return Ok(int_power(ex, x, y, dtype)),
        BinaryOp::Pow => "Pow",
        BinaryOp::Remainder => return Ok(remainder(ex, x, y, dtype)),
        BinaryOp::FloorDiv => return Ok(floor_div(ex, x, y, dtype)),
        BinaryOp::Atan2 => return Ok(atan2(ex, x, y, dtype)),
        BinaryOp::LeftShift | BinaryOp::RightShift if dtype == DType::U64 => {
            return Err(Failure::NoForm("shifts of u64".into()));
        }
        BinaryOp::LeftShift => return Ok(shift(ex, x, y, dtype, true)),
        BinaryOp::RightShift => return Ok(shift(ex, x, y, dtype, false)),
        BinaryOp::Gcd => return Err(Failure::NoForm("it needs a loop for each element".into())),
    };
    Ok(ex.two(name, x, y))
}

/// xʸ of integers: a negative exponent gives 0 except for bases 1 and −1.
fn int_power(ex: &mut Exporter, x: &str, y: &str, dtype: DType) -> String {
    if dtype.info().kind == Kind::Unsigned {
        return ex.two("Pow", x, y);
    }
    let zero = ex.builder.number(0.0, dtype);
    let negative = ex.two("Less", y, &zero);
    // 1 / x truncates to x itself for 1 and −1; its power with the opposite exponent is the result.
    let distance = ex.one("Abs", x);
    let one = ex.builder.number(1.0, dtype);
    let is_unit = ex.two("Equal", &distance, &one);
    let inverse = ex.choose(&is_unit, x, &zero);
    let base = ex.choose(&negative, &inverse, x);
    let exponent = ex.one("Abs", y);
    ex.two("Pow", &base, &exponent)
}

/// a − b·⌊a / b⌋.
fn remainder(ex: &mut Exporter, x: &str, y: &str, dtype: DType) -> String {
    let zero = ex.builder.number(0.0, dtype);
    if !dtype.is_float() {
        let is_zero = ex.two("Equal", y, &zero);
        let one = ex.builder.number(1.0, dtype);
        let divisor = ex.choose(&is_zero, &one, y);
        let rest = ex.two("Mod", x, &divisor);
        return ex.choose(&is_zero, &zero, &rest);
    }
    let (rest, other) = truncated(ex, x, y, &zero);
    let sum = ex.two("Add", &rest, y);
    ex.choose(&other, &sum, &rest)
}

/// The remainder of truncating division, and whether it is nonzero with the other sign than the divisor.
fn truncated(ex: &mut Exporter, x: &str, y: &str, zero: &str) -> (String, String) {
    let rest = ex.builder.node("Mod", &[x, y], [super::builder::int("fmod", 1)]);
    let is_zero = ex.two("Equal", &rest, zero);
    let some = ex.one("Not", &is_zero);
    let (a, b) = (ex.two("Less", &rest, zero), ex.two("Less", y, zero));
    let differ = ex.two("Xor", &a, &b);
    (rest, ex.two("And", &some, &differ))
}

/// ⌊a / b⌋ of the exact quotient.
fn floor_div(ex: &mut Exporter, x: &str, y: &str, dtype: DType) -> String {
    let zero = ex.builder.number(0.0, dtype);
    let is_zero = ex.two("Equal", y, &zero);
    let one = ex.builder.number(1.0, dtype);
    if !dtype.is_float() {
        let divisor = ex.choose(&is_zero, &one, y);
        let rest = ex.two("Mod", x, &divisor);
        let multiple = ex.two("Sub", x, &rest);
        let quotient = ex.two("Div", &multiple, &divisor);
        return ex.choose(&is_zero, &zero, &quotient);
    }
    let (rest, other) = truncated(ex, x, y, &zero);
    let multiple = ex.two("Sub", x, &rest);
    let quotient = ex.two("Div", &multiple, y);
    let whole = ex.one("Round", &quotient);
    let less = ex.two("Sub", &whole, &one);
    let floor = ex.choose(&other, &less, &whole);
    let plain = ex.two("Div", x, y);
    ex.choose(&is_zero, &plain, &floor)
}

/// The angle of the point (x, y), for y first.
fn atan2(ex: &mut Exporter, y: &str, x: &str, dtype: DType) -> String {
    let zero = ex.builder.number(0.0, dtype);
    let quotient = ex.two("Div", y, x);
    let angle = ex.one("Atan", &quotient);
    let (left, below) = (ex.two("Less", x, &zero), ex.two("Less", y, &zero));
    let (plus, minus) = (ex.builder.number(PI, dtype), ex.builder.number(-PI, dtype));
    let turn = ex.choose(&below, &minus, &plus);
    let turn = ex.choose(&left, &turn, &zero);
    let turned = ex.two("Add", &angle, &turn);
    // On the vertical axis the quotient is infinite or NaN.
    let sign = ex.one("Sign", y);
    let vertical = ex.with("Mul", &sign, FRAC_PI_2, dtype);
    let is_zero = ex.two("Equal", x, &zero);
    ex.choose(&is_zero, &vertical, &turned)
}

/// a·2ᵇ or ⌊a / 2ᵇ⌋ of integers, in i64.
fn shift(ex: &mut Exporter, x: &str, y: &str, dtype: DType, left: bool) -> String {
    let (x, y) = (ex.builder.cast(x, dtype, DType::I64), ex.builder.cast(y, dtype, DType::I64));
    let zero = ex.builder.number(0.0, DType::I64);
    let bits = ex.builder.number(f64::from(dtype.info().bits), DType::I64);
    let negative = ex.two("Less", &y, &zero);
    let inside = ex.two("Less", &y, &bits);
    let some = ex.one("Not", &negative);
    let valid = ex.two("And", &some, &inside);
    let places = ex.choose(&valid, &y, &zero);
    let two = ex.builder.number(2.0, DType::I64);
    let power = ex.two("Pow", &two, &places);
    let (within, beyond) = if left {
        (ex.two("Mul", &x, &power), zero)
    } else {
        let rest = ex.two("Mod", &x, &power);
        let multiple = ex.two("Sub", &x, &rest);
        let minus = ex.builder.number(-1.0, DType::I64);
        let below = ex.two("Less", &x, &zero);
        (ex.two("Div", &multiple, &power), ex.choose(&below, &minus, &zero))
    };
    let shifted = ex.choose(&valid, &within, &beyond);
    ex.builder.cast(&shifted, DType::I64, dtype)
}

/// A comparison of two values of one type.
pub(super) fn compare(ex: &mut Exporter, op: CompareOp, [x, y]: [&str; 2], dtype: DType) -> Emitted {
    let (x, y) = match (op, dtype) {
        (CompareOp::Eq | CompareOp::Ne, _) => (x.to_string(), y.to_string()),
        (_, DType::Bool) => (ex.builder.cast(x, dtype, DType::I32), ex.builder.cast(y, dtype, DType::I32)),
        _ => (x.to_string(), y.to_string()),
    };
    Ok(match op {
        CompareOp::Eq => ex.two("Equal", &x, &y),
        CompareOp::Ne => {
            let equal = ex.two("Equal", &x, &y);
            ex.one("Not", &equal)
        }
        CompareOp::Lt => ex.two("Less", &x, &y),
        CompareOp::Le => ex.two("LessOrEqual", &x, &y),
        CompareOp::Gt => ex.two("Greater", &x, &y),
        CompareOp::Ge => ex.two("GreaterOrEqual", &x, &y),
    })
}

/// A formula: ONNX's operator, or its instructions.
pub(super) fn formula(ex: &mut Exporter, formula: Formula, x: &str, dtype: DType) -> Emitted {
    let name = match formula {
        Formula::Asin => "Asin",
        Formula::Acos => "Acos",
        Formula::Atan => "Atan",
        Formula::Sinh => "Sinh",
        Formula::Cosh => "Cosh",
        Formula::Asinh => "Asinh",
        Formula::Acosh => "Acosh",
        Formula::Atanh => "Atanh",
        Formula::Softsign => "Softsign",
        _ => return instructions(ex, formula, x, dtype),
    };
    if dtype != DType::BF16 {
        return Ok(ex.one(name, x));
    }
    ex.through(x, dtype, DType::F32, |ex, x| Ok(ex.one(name, x)))
}

/// The instructions that kernels compute a formula with.
fn instructions(ex: &mut Exporter, formula: Formula, x: &str, dtype: DType) -> Emitted {
    let (program, scalars) = formula.program(dtype);
    let mut registers: Vec<String> = Vec::with_capacity(program.instrs.len());
    for (instr, &of) in program.instrs.iter().zip(&program.dtypes) {
        let register = |reg: u16| registers[reg as usize].clone();
        let dtype_of = |reg: u16| program.dtypes[reg as usize];
        let value = match *instr {
            Instr::Load(_) => x.to_string(),
            Instr::Scalar(slot) => ex.builder.number(scalars[slot as usize], of),
            Instr::Unary(op, a) => unary(ex, op, &register(a), dtype_of(a))?,
            Instr::Powi(power, a) => powi(ex, &register(a), power, of)?,
            Instr::Binary(op, a, b) => binary(ex, op, [&register(a), &register(b)], dtype_of(a))?,
            Instr::Compare(op, a, b) => compare(ex, op, [&register(a), &register(b)], dtype_of(a))?,
            Instr::Select(c, a, b) => {
                let (c, a, b) = (register(c), register(a), register(b));
                ex.choose(&c, &a, &b)
            }
            Instr::Cast(a) => {
                let (value, from) = (register(a), dtype_of(a));
                ex.builder.cast(&value, from, of)
            }
            Instr::LoadAt { .. } | Instr::Arange { .. } | Instr::Random { .. } | Instr::Fold(..) => {
                return Err(Failure::NoForm("its formula reads more than its argument".into()));
            }
        };
        registers.push(value);
    }
    Ok(program.outputs.first().map(|&reg| registers[reg as usize].clone()).unwrap_or_default())
}
