//! Element by element: arithmetic, functions, comparisons, bits, casts.

use tensor_core::{DType, Result, Scalar, Tensor};

use super::{Row, one};
use crate::{
    context::Context,
    narrow::{PowerRounding, to_float4, to_power, wrap},
    value::{DataType, HostData, HostTensor, Value, on_device},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "Abs", 1, |c| one(c.tensor(0)?.abs())),
    ("", "Acos", 7, |c| one(c.tensor(0)?.acos())),
    ("", "Acosh", 9, |c| one(c.tensor(0)?.acosh())),
    ("", "Add", 1, |c| binary(c, |a, b| a.add(b))),
    ("", "And", 1, |c| binary(c, |a, b| a.logical_and(b))),
    ("", "Asin", 7, |c| one(c.tensor(0)?.asin())),
    ("", "Asinh", 9, |c| one(c.tensor(0)?.asinh())),
    ("", "Atan", 7, |c| one(c.tensor(0)?.atan())),
    ("", "Atanh", 9, |c| one(c.tensor(0)?.atanh())),
    ("", "BitCast", 26, bit_cast),
    ("", "BitShift", 11, bit_shift),
    ("", "BitwiseAnd", 18, |c| binary(c, |a, b| a.bitwise_and(b))),
    ("", "BitwiseNot", 18, |c| one(c.tensor(0)?.bitwise_not()?)),
    ("", "BitwiseOr", 18, |c| binary(c, |a, b| a.bitwise_or(b))),
    ("", "BitwiseXor", 18, |c| binary(c, |a, b| a.bitwise_xor(b))),
    ("", "Cast", 1, cast),
    ("", "CastLike", 15, cast_like),
    ("", "Ceil", 1, |c| one(c.tensor(0)?.ceil())),
    ("", "Clip", 1, clip),
    ("", "Cos", 7, |c| one(c.tensor(0)?.cos())),
    ("", "Cosh", 9, |c| one(c.tensor(0)?.cosh())),
    ("", "Div", 1, |c| binary(c, divide)),
    ("", "Equal", 1, |c| binary(c, |a, b| a.eq(b))),
    ("", "Erf", 9, |c| one(c.tensor(0)?.erf())),
    ("", "Exp", 1, |c| one(c.tensor(0)?.exp())),
    ("", "Floor", 1, |c| one(c.tensor(0)?.floor())),
    ("", "Greater", 1, |c| binary(c, |a, b| a.gt(b))),
    ("", "GreaterOrEqual", 12, |c| binary(c, |a, b| a.ge(b))),
    ("", "Identity", 1, |c| Ok(vec![c.value(0)?.clone()])),
    ("", "IsInf", 10, is_inf),
    ("", "IsNaN", 9, |c| one(c.tensor(0)?.isnan())),
    ("", "Less", 1, |c| binary(c, |a, b| a.lt(b))),
    ("", "LessOrEqual", 12, |c| binary(c, |a, b| a.le(b))),
    ("", "Log", 1, |c| one(c.tensor(0)?.log())),
    ("", "Max", 1, |c| fold(c, |a, b| a.maximum(b))),
    ("", "Mean", 1, mean),
    ("", "Min", 1, |c| fold(c, |a, b| a.minimum(b))),
    ("", "Mod", 10, modulo),
    ("", "Mul", 1, |c| binary(c, |a, b| a.mul(b))),
    ("", "Neg", 1, |c| one(c.tensor(0)?.neg())),
    ("", "Not", 1, |c| one(c.tensor(0)?.logical_not())),
    ("", "Or", 1, |c| binary(c, |a, b| a.logical_or(b))),
    ("", "Pow", 1, |c| binary(c, power)),
    ("", "Reciprocal", 1, |c| one(c.tensor(0)?.reciprocal())),
    ("", "Round", 11, |c| one(c.tensor(0)?.round())),
    ("", "Sign", 9, |c| one(c.tensor(0)?.sign())),
    ("", "Sin", 7, |c| one(c.tensor(0)?.sin())),
    ("", "Sinh", 9, |c| one(c.tensor(0)?.sinh())),
    ("", "Sqrt", 1, |c| one(c.tensor(0)?.sqrt())),
    ("", "Sub", 1, |c| binary(c, |a, b| a.sub(b))),
    ("", "Sum", 1, |c| fold(c, |a, b| a.add(b))),
    ("", "Tan", 7, |c| one(c.tensor(0)?.tan())),
    ("", "Tanh", 1, |c| one(c.tensor(0)?.tanh())),
    ("", "Where", 9, |c| one(c.tensor(0)?.where_cond(&c.tensor(1)?, &c.tensor(2)?)?)),
    ("", "Xor", 1, |c| binary(c, |a, b| a.logical_xor(b))),
];

/// Both inputs, broadcast. Before version 7 an attribute says which axis of the first the second begins at.
fn binary(c: &Context<'_>, f: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
    let (lhs, mut rhs) = (c.tensor(0)?, c.tensor(1)?);
    if let Some(axis) = c.int("axis")? {
        let axis = c.axis(axis, lhs.rank())?;
        for _ in (axis + rhs.rank())..lhs.rank() {
            rhs = rhs.unsqueeze(-1)?;
        }
    }
    one(f(&lhs, &rhs)?)
}

/// All inputs, two by two.
fn fold(c: &Context<'_>, f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
    one(folded(c, f)?)
}

fn folded(c: &Context<'_>, f: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let mut rest = c.tensors()?.into_iter();
    let first = rest.next().ok_or_else(|| c.error("it has no inputs"))?;
    rest.try_fold(first, |sum, next| f(&sum, &next))
}

fn mean(c: &Context<'_>) -> Result<Vec<Value>> {
    let count = c.tensors()?.len();
    one(folded(c, |a, b| a.add(b))?.div_scalar(count as f64))
}

/// Integers are divided and cut toward zero.
pub(super) fn divide(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.dtype().is_int() { a.trunc_divide(b) } else { a.div(b) }
}

/// The dtype is that of the base.
fn power(base: &Tensor, exponent: &Tensor) -> Result<Tensor> {
    let common = base.dtype().promote(exponent.dtype());
    base.to_dtype(common)?.pow(&exponent.to_dtype(common)?)?.to_dtype(base.dtype())
}

fn modulo(c: &Context<'_>) -> Result<Vec<Value>> {
    if c.flag("fmod", false)? {
        return binary(c, |a, b| a.fmod(b));
    }
    binary(c, |a, b| a.remainder(b))
}

fn bit_shift(c: &Context<'_>) -> Result<Vec<Value>> {
    match c.text_or("direction", "")? {
        "LEFT" => binary(c, |a, b| a.bitwise_left_shift(b)),
        "RIGHT" => binary(c, |a, b| a.bitwise_right_shift(b)),
        other => Err(c.error(format!("direction \"{other}\"; LEFT or RIGHT are known"))),
    }
}

fn is_inf(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    one(match (c.flag("detect_positive", true)?, c.flag("detect_negative", true)?) {
        (true, true) => x.isinf(),
        (true, false) => x.isposinf(),
        (false, true) => x.isneginf(),
        (false, false) => x.isinf().logical_and(false)?,
    })
}

/// The bounds are attributes before version 11, and inputs from then on.
fn clip(c: &Context<'_>) -> Result<Vec<Value>> {
    let mut x = c.tensor(0)?;
    if c.version() < 11 {
        if let Some(low) = c.number("min")? {
            x = x.maximum_scalar(low);
        }
        if let Some(high) = c.number("max")? {
            x = x.minimum_scalar(high);
        }
        return one(x);
    }
    if let Some(low) = c.optional_tensor(1)? {
        x = x.maximum(&low)?;
    }
    if let Some(high) = c.optional_tensor(2)? {
        x = x.minimum(&high)?;
    }
    one(x)
}

/// The bytes of the elements as elements of another type of the same size, on the host.
fn bit_cast(c: &Context<'_>) -> Result<Vec<Value>> {
    let host = c.host_data(0)?;
    let to = c.int("to")?.and_then(|number| i32::try_from(number).ok()).and_then(DataType::from_onnx);
    let from = host.data_type();
    let (DataType::Tensor(old), Some(DataType::Tensor(new))) = (from, to) else {
        return Err(c.error(format!("the bits of {from} as those of an element type that is not known here")));
    };
    if old.size() != new.size() {
        return Err(c.error(format!("the {} bytes of {old} as {new}, which has {}", old.size(), new.size())));
    }
    let numbers = Scalar::from_bytes(new, &Scalar::to_bytes(old, &host.scalars()));
    let data = HostData::of(new, &numbers);
    Ok(vec![HostTensor::new(DataType::Tensor(new), host.dims(), data)?.into()])
}

fn cast(c: &Context<'_>) -> Result<Vec<Value>> {
    let number = match c.int("to") {
        Ok(Some(number)) => i32::try_from(number).unwrap_or(0),
        // Files of old write the name.
        _ => match c.text_or("to", "")? {
            "FLOAT" => 1,
            "INT32" => 6,
            "INT64" => 7,
            "BOOL" => 9,
            "DOUBLE" => 11,
            _ => 0,
        },
    };
    let Some(to) = DataType::from_onnx(number) else {
        return Err(
            c.error(format!("a cast to the element type of number {number}, which is not known here"))
        );
    };
    Ok(vec![cast_to(c, c.value(0)?, to)?])
}

fn cast_like(c: &Context<'_>) -> Result<Vec<Value>> {
    let to = c.value(1)?.data_type().ok_or_else(|| c.error("input 1 is no tensor"))?;
    Ok(vec![cast_to(c, c.value(0)?, to)?])
}

pub(crate) fn cast_to(c: &Context<'_>, value: &Value, to: DataType) -> Result<Value> {
    if value.data_type() == Some(to) {
        return Ok(value.clone());
    }
    if let (DataType::Tensor(dtype), false) = (to, value.data_type() == Some(DataType::Text)) {
        let tensor = value.to_tensor(c.device())?;
        let dtype = on_device(dtype, c.device());
        return Ok(to_narrow(&tensor, dtype, c.flag("saturate", true)?)?.into());
    }
    c.refuse_trace(value)?;
    let host = value.to_host()?;
    let data = match (to, host.data()) {
        (DataType::Text, HostData::Text(list)) => HostData::Text(list.clone()),
        (DataType::Text, HostData::Int(list)) => HostData::Text(list.iter().map(i64::to_string).collect()),
        (DataType::Text, HostData::Bool(list)) => {
            HostData::Text(list.iter().map(|&x| if x { "1" } else { "0" }.to_string()).collect())
        }
        (DataType::Text, HostData::Float(list)) => {
            let single = host.data_type() != DataType::Tensor(DType::F64);
            HostData::Text(list.iter().map(|&x| float_text(x, single)).collect())
        }
        (DataType::Tensor(dtype), HostData::Text(list)) => parse(c, list, dtype)?,
        (DataType::Tensor(_), _) | (_, HostData::Text(_)) => {
            return Err(c.error(format!("a cast from {} to {to}", host.data_type())));
        }
        (DataType::Float4E2M1, _) => HostData::Float(host.to_f64s()?.into_iter().map(to_float4).collect()),
        (DataType::Float8E8M0, _) => {
            let rounding = match c.text_or("round_mode", "up")? {
                "up" => PowerRounding::Up,
                "down" => PowerRounding::Down,
                "nearest" => PowerRounding::Nearest,
                other => {
                    return Err(c.error(format!("round_mode \"{other}\"; up, down and nearest are known")));
                }
            };
            let saturate = c.flag("saturate", true)?;
            let power = |x| to_power(x, rounding, saturate);
            HostData::Float(host.to_f64s()?.into_iter().map(power).collect())
        }
        // Floats out of range are not defined: suites before version 25 saturate them, later ones wrap them.
        (_, HostData::Float(list)) if c.version() < 25 => {
            let (low, high) = to.narrow_range().unwrap_or((i64::MIN, i64::MAX));
            HostData::Int(list.iter().map(|&x| (x as i64).clamp(low, high)).collect())
        }
        _ => HostData::Int(host.to_i64s()?.into_iter().map(|x| wrap(to, x)).collect()),
    };
    Ok(HostTensor::new(to, host.dims(), data)?.into())
}

fn float_text(x: f64, single: bool) -> String {
    match (x.is_nan(), x.is_infinite()) {
        (true, _) => "NaN".into(),
        (_, true) => if x > 0.0 { "INF" } else { "-INF" }.into(),
        _ if single => format!("{}", x as f32),
        _ => format!("{x}"),
    }
}

/// Numbers that are written out.
fn parse(c: &Context<'_>, list: &[String], dtype: DType) -> Result<HostData> {
    let float = |text: &String| {
        text.trim().parse::<f64>().map_err(|_| c.error(format!("the text \"{text}\" is no number")))
    };
    let floats = list.iter().map(float).collect::<Result<Vec<f64>>>()?;
    Ok(if dtype.is_float() {
        HostData::Float(floats.into_iter().map(|x| Scalar::Float(x).cast(dtype).as_f64()).collect())
    } else if dtype.is_bool() {
        HostData::Bool(floats.into_iter().map(|x| x != 0.0).collect())
    } else {
        let int = |(text, x): (&String, f64)| text.trim().parse::<i64>().unwrap_or(x as i64);
        HostData::Int(list.iter().zip(floats).map(int).collect())
    })
}

/// A cast; to an 8-bit float, numbers beyond its range become its greatest ones if `saturate`, and
/// otherwise infinite, or NaN where the type has no infinities.
pub(super) fn to_narrow(x: &Tensor, dtype: DType, saturate: bool) -> Result<Tensor> {
    let Some(format) = dtype.float_format().filter(|_| dtype.size() == 1) else { return x.to_dtype(dtype) };
    let wide = x.to_dtype(if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 })?;
    let greatest = format.greatest;
    if saturate {
        let held = wide.clamp(-greatest, greatest);
        return wide.isnan().where_cond(&wide, &held)?.to_dtype(dtype);
    }
    // A number that rounds to the greatest one is not beyond it.
    let half = 2f64.powi(greatest.log2().floor() as i32 - format.digits as i32);
    let beyond = wide.abs().gt_scalar(greatest + half);
    let special =
        if format.has_infinity { wide.sign().mul_scalar(f64::INFINITY) } else { wide.mul_scalar(f64::NAN) };
    beyond.where_cond(&special, &wide)?.to_dtype(dtype)
}
