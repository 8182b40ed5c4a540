//! Operations on each element, with broadcasting and promotion.

use pyo3::prelude::*;
use taper::{DType, Result, Scalar, Tensor};

use super::methods;
use crate::{
    args::{Operand, Plain, Value, optional},
    errors::{runtime, wrong_value},
    promote::{all, float, same, sums},
    tensor::{PyTensor, made, run},
};

/// Methods of no argument.
macro_rules! unary {
    ($($name:ident $grad:literal;)*) => { methods! { $($name(x) $grad => Ok(x.$name());)* } };
}

unary! {
    abs "AbsBackward0";
    sign "SignBackward0";
    exp "ExpBackward0";
    exp2 "Exp2Backward0";
    expm1 "Expm1Backward0";
    log "LogBackward0";
    log1p "Log1PBackward0";
    log2 "Log2Backward0";
    log10 "Log10Backward0";
    sqrt "SqrtBackward0";
    rsqrt "RsqrtBackward0";
    reciprocal "ReciprocalBackward0";
    sin "SinBackward0";
    cos "CosBackward0";
    tan "TanBackward0";
    asin "AsinBackward0";
    acos "AcosBackward0";
    atan "AtanBackward0";
    sinh "SinhBackward0";
    cosh "CoshBackward0";
    tanh "TanhBackward0";
    asinh "AsinhBackward0";
    acosh "AcoshBackward0";
    atanh "AtanhBackward0";
    sinc "SincBackward0";
    erf "ErfBackward0";
    erfc "ErfcBackward0";
    erfinv "ErfinvBackward0";
    lgamma "LgammaBackward0";
    digamma "DigammaBackward0";
    i0 "I0Backward0";
    floor "FloorBackward0";
    ceil "CeilBackward0";
    trunc "TruncBackward0";
    frac "FracBackward0";
    isnan "";
    isinf "";
    isfinite "";
    isposinf "";
    isneginf "";
    signbit "";
    logical_not "";
    square "PowBackward0";
    deg2rad "MulBackward0";
    rad2deg "MulBackward0";
}

/// Methods of another operand: the dtype in which both are computed, and the operation.
macro_rules! binary {
    ($($name:ident $kind:ident $grad:literal => $f:expr;)*) => { methods! {
        $($name(x, other: Operand) $grad => {
            let [a, b] = all([&Operand::Tensor(x), &other], $kind)?;
            let f: fn(&Tensor, &Tensor) -> Result<Tensor> = $f;
            f(&a, &b)
        };)*
    } };
}

/// Methods of another tensor, for which PyTorch takes no number.
macro_rules! of_tensors {
    ($($name:ident $kind:ident $grad:literal => $f:expr;)*) => { methods! {
        $($name(x, other: Value) $grad => {
            let [a, b] = all([&Operand::Tensor(x), &Operand::Tensor(other.0)], $kind)?;
            let f: fn(&Tensor, &Tensor) -> Result<Tensor> = $f;
            f(&a, &b)
        };)*
    } };
}

of_tensors! {
    ldexp float "MulBackward0" => |a, b| a.ldexp(b);
    maximum same "MaximumBackward0" => Tensor::maximum;
    minimum same "MinimumBackward0" => Tensor::minimum;
    fmax same "FmaxBackward0" => |a, b| a.fmax(b);
    fmin same "FminBackward0" => |a, b| a.fmin(b);
    atan2 float "Atan2Backward0" => Tensor::atan2;
    hypot same "HypotBackward0" => |a, b| a.hypot(b);
    logaddexp same "LogaddexpBackward0" => |a, b| a.logaddexp(b);
    logaddexp2 same "Logaddexp2Backward0" => |a, b| a.logaddexp2(b);
    heaviside same "" => |a, b| a.heaviside(b);
    nextafter same "NextafterBackward0" => |a, b| {
        if !a.is_tracked() {
            return a.nextafter(b);
        }
        // The gradient is that of the first operand.
        let nothing = a.isfinite().where_cond(&a.sub(&a.detach())?, &a.zeros_like())?;
        a.nextafter(b)?.add(&nothing)
    };
    gcd same "" => |a, b| a.gcd(b);
    lcm same "" => |a, b| a.lcm(b);
    logical_and same "" => |a, b| a.logical_and(b);
    logical_or same "" => |a, b| a.logical_or(b);
    logical_xor same "" => |a, b| a.logical_xor(b);
}

binary! {
    mul same "MulBackward0" => Tensor::mul;
    floor_divide same "FloorDivideBackward0" => Tensor::floor_divide;
    remainder same "RemainderBackward0" => Tensor::remainder;
    fmod same "FmodBackward0" => |a, b| a.fmod(b);
    copysign float "CopysignBackward0" => |a, b| a.copysign(b);
    xlogy float "XlogyBackward0" => |a, b| a.xlogy(b);
    bitwise_and same "" => Tensor::bitwise_and;
    bitwise_or same "" => Tensor::bitwise_or;
    bitwise_xor same "" => Tensor::bitwise_xor;
    bitwise_left_shift same "" => |a, b| a.bitwise_left_shift(b);
    bitwise_right_shift same "" => |a, b| a.bitwise_right_shift(b);
    eq same "" => Tensor::eq;
    ne same "" => Tensor::ne;
    lt same "" => Tensor::lt;
    le same "" => Tensor::le;
    gt same "" => Tensor::gt;
    ge same "" => Tensor::ge;
}

/// `a + alpha · b` and its relatives.
fn scaled(b: Tensor, alpha: Scalar) -> Tensor {
    if alpha.as_f64() == 1.0 { b } else { b.mul_scalar(alpha) }
}

/// The error of an operation that a dtype has not, for which PyTorch raises `NotImplementedError`.
pub(super) fn refused(op: &'static str, x: &Tensor, hint: &str) -> taper::Error {
    let device = x.device().name().to_string();
    taper::Error::new(taper::ErrorKind::Unsupported { op, device, dtype: x.dtype(), hint: hint.into() })
}

fn no_bools(a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dtype() == DType::Bool && b.dtype() == DType::Bool {
        let message = "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or \
                       `logical_xor()` operator instead.";
        return Err(refused("sub", a, message));
    }
    Ok(())
}

/// `x` to a power. A number as exponent has its own gradient, which needs no logarithm.
fn power(x: &Tensor, exponent: &Operand) -> Result<Tensor> {
    match exponent {
        Operand::Number(number) => {
            let [x, _] = all([&Operand::Tensor(x.clone()), exponent], same)?;
            let exact = number.as_f64();
            if exact.fract() == 0.0 && exact.abs() <= 64.0 {
                if exact < 0.0 && !x.dtype().is_float() {
                    let message = "Integers to negative integer powers are not allowed.";
                    return Err(taper::Error::invalid("pow", message));
                }
                return Ok(x.powi(exact as i32));
            }
            Ok(x.powf(exact))
        }
        Operand::Tensor(_) => {
            let [a, b] = all([&Operand::Tensor(x.clone()), exponent], same)?;
            a.pow(&b)
        }
    }
}

methods! {
    neg(x) "NegBackward0" => {
        if x.dtype() == DType::Bool {
            let message = "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to \
                           invert a mask, use the `~` or `logical_not()` operator instead.";
            return Err(refused("neg", &x, message));
        }
        Ok(x.neg())
    };
    add(x, other: Operand, alpha: Plain = Plain(Scalar::Int(1))) "AddBackward0" => {
        let [a, b] = all([&Operand::Tensor(x), &other], same)?;
        a.add(&scaled(b, alpha.0))
    };
    sub(x, other: Operand, alpha: Plain = Plain(Scalar::Int(1))) "SubBackward0" => {
        let [a, b] = all([&Operand::Tensor(x), &other], same)?;
        no_bools(&a, &b)?;
        a.sub(&scaled(b, alpha.0))
    };
    rsub(x, other: Operand, alpha: Plain = Plain(Scalar::Int(1))) "RsubBackward1" => {
        let [a, b] = all([&Operand::Tensor(x), &other], same)?;
        no_bools(&a, &b)?;
        b.sub(&scaled(a, alpha.0))
    };
    _rdiv(x, other: Operand) "MulBackward0" => {
        let [a, b] = all([&Operand::Tensor(x), &other], float)?;
        b.div(&a)
    };
    _rfloor_divide(x, other: Operand) "FloorDivideBackward0" => {
        let [a, b] = all([&Operand::Tensor(x), &other], same)?;
        b.floor_divide(&a)
    };
    _rremainder(x, other: Operand) "RemainderBackward0" => {
        let [a, b] = all([&Operand::Tensor(x), &other], same)?;
        b.remainder(&a)
    };
    _rpow(x, other: Operand) "PowBackward1" => {
        let [a, b] = all([&Operand::Tensor(x), &other], same)?;
        b.pow(&a)
    };
    pow(x, exponent: Operand) "PowBackward0" => power(&x, &exponent);
    float_power(x, exponent: Operand) "PowBackward0" => power(&x.to_dtype(DType::F64)?, &exponent);
    bitwise_not(x) "" => x.bitwise_not();
    clamp(x, min: Option<Operand> = None, max: Option<Operand> = None) "ClampBackward1" => {
        let own = Operand::Tensor(x);
        match (min, max) {
            (None, None) => {
                Err(taper::Error::invalid("clamp", "At least one of 'min' or 'max' must not be None"))
            }
            (Some(low), None) => {
                let [x, low] = all([&own, &low], same)?;
                x.clamp_tensor(Some(&low), None)
            }
            (None, Some(high)) => {
                let [x, high] = all([&own, &high], same)?;
                x.clamp_tensor(None, Some(&high))
            }
            (Some(low), Some(high)) => {
                let [x, low, high] = all([&own, &low, &high], same)?;
                x.clamp_tensor(Some(&low), Some(&high))
            }
        }
    };
    round(x, decimals: i32 = 0) "RoundBackward0" => {
        Ok(if decimals == 0 { x.round() } else { x.round_to(decimals) })
    };
    logit(x, eps: Option<f64> = None) "LogitBackward0" => match eps {
        // The bounds have changed places: PyTorch looks at the lower one first.
        Some(eps) if eps > 0.5 => {
            let x = x.to_dtype(float(x.dtype()))?;
            let held = x.lt_scalar(eps).where_cond(&x.full_like(eps), &x.full_like(1.0 - eps))?;
            Ok(x.isnan().where_cond(&x, &held)?.logit(None))
        }
        _ => Ok(x.logit(eps)),
    };
    polygamma(x, n: u8) "PolygammaBackward0" => Ok(x.polygamma(n));
    mvlgamma(x, p: u32) "MvlgammaBackward0" => x.mvlgamma(p);
    nan_to_num(x, nan: Option<f64> = None, posinf: Option<f64> = None, neginf: Option<f64> = None)
        "NanToNumBackward0" => Ok(x.nan_to_num(nan.unwrap_or(0.0), posinf, neginf));
    lerp(x, end: Value, weight: Operand) "LerpBackward0" => {
        let weight = match weight {
            Operand::Number(number) => taper::tensor_core::Operand::Scalar(number),
            Operand::Tensor(tensor) => taper::tensor_core::Operand::Tensor(tensor),
        };
        x.lerp(&end.0, weight)
    };
    addcmul(x, tensor1: Value, tensor2: Value, value: Plain = Plain(Scalar::Int(1))) "AddcmulBackward0" => {
        x.addcmul(&tensor1.0, &tensor2.0, value.0)
    };
    addcdiv(x, tensor1: Value, tensor2: Value, value: Plain = Plain(Scalar::Int(1))) "AddcdivBackward0" => {
        x.addcdiv(&tensor1.0, &tensor2.0, value.0)
    };
    isclose(x, other: Value, rtol: f64 = 1e-5, atol: f64 = 1e-8, equal_nan: bool = false) "" => {
        if rtol < 0.0 || atol < 0.0 {
            let name = if rtol < 0.0 { "rtol" } else { "atol" };
            let message = format!("{name} must be greater than or equal to zero");
            return Err(taper::Error::invalid("isclose", message));
        }
        if x.dtype() != other.0.dtype() {
            let message = format!("{} did not match {}", x.dtype(), other.0.dtype());
            return Err(taper::Error::invalid("isclose", message));
        }
        x.isclose(&other.0, rtol, atol, equal_nan)
    };
    masked_fill(x, mask: Value, value: Operand) "MaskedFillBackward0" => {
        if let Operand::Tensor(tensor) = &value
            && tensor.rank() > 0
        {
            let message = format!(
                "only supports a 0-dimensional value tensor, but got tensor with {} dimension",
                tensor.rank()
            );
            return Err(taper::Error::invalid("masked_fill", message));
        }
        let [value] = all([&value], |_| x.dtype())?;
        mask.0.where_cond(&value.to(&x.device())?, &x)
    };
}

#[pymethods]
impl PyTensor {
    /// Division; `rounding_mode` is `None`, `trunc` or `floor`.
    #[pyo3(signature = (other, rounding_mode = None))]
    fn div(&self, py: Python<'_>, other: Operand, rounding_mode: Option<&str>) -> PyResult<PyTensor> {
        let x = Operand::Tensor(self.read()?);
        match rounding_mode {
            None => made(py, "DivBackward0", move || {
                let [a, b] = all([&x, &other], float)?;
                a.div(&b)
            }),
            Some("floor") => made(py, "DivBackward1", move || {
                let [a, b] = all([&x, &other], same)?;
                a.floor_divide(&b)
            }),
            Some("trunc") => made(py, "DivBackward1", move || {
                let [a, b] = all([&x, &other], same)?;
                a.trunc_divide(&b)
            }),
            Some(other) => Err(runtime(format!(
                "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{other}'"
            ))),
        }
    }

    /// Whether all elements are near to another tensor's.
    #[pyo3(signature = (other, rtol = 1e-5, atol = 1e-8, equal_nan = false))]
    fn allclose(
        &self,
        py: Python<'_>,
        other: Value,
        rtol: f64,
        atol: f64,
        equal_nan: bool,
    ) -> PyResult<bool> {
        let x = self.read()?;
        run(py, move || x.isclose(&other.0, rtol, atol, equal_nan)?.all().item::<bool>())
    }

    /// Whether sizes and elements are the same.
    fn equal(&self, py: Python<'_>, other: Value) -> PyResult<bool> {
        let x = self.read()?;
        run(py, move || x.equal(&other.0))
    }

    /// Mantissas and exponents.
    fn frexp(&self, py: Python<'_>) -> PyResult<(PyTensor, PyTensor)> {
        let x = self.read()?;
        let (mantissa, exponent) = run(py, move || x.frexp())?;
        Ok((PyTensor::new(mantissa, "FrexpBackward0"), PyTensor::plain(exponent)))
    }

    /// The tensor in another dtype for a sum: `cumsum` and its relatives count integers in 64 bits.
    #[pyo3(signature = (dim, dtype = None))]
    fn cumsum(&self, py: Python<'_>, dim: isize, dtype: Option<crate::dtype::Kind>) -> PyResult<PyTensor> {
        let x = self.read()?;
        let dtype = dtype.map_or_else(|| sums(x.dtype()), |kind| kind.0);
        made(py, "CumsumBackward0", move || x.to_dtype(dtype)?.cumsum(dim)?.to_dtype(dtype))
    }

    /// Products of the elements up to each.
    #[pyo3(signature = (dim, dtype = None))]
    fn cumprod(&self, py: Python<'_>, dim: isize, dtype: Option<crate::dtype::Kind>) -> PyResult<PyTensor> {
        let x = self.read()?;
        let dtype = dtype.map_or_else(|| sums(x.dtype()), |kind| kind.0);
        made(py, "CumprodBackward0", move || x.to_dtype(dtype)?.cumprod(dim)?.to_dtype(dtype))
    }

    /// `a` where this condition holds, else `b`; by itself the indices where it holds.
    #[pyo3(name = "_where", signature = (a, b))]
    fn where_(&self, py: Python<'_>, a: Operand, b: Operand) -> PyResult<PyTensor> {
        let condition = self.read()?;
        if condition.dtype() != DType::Bool {
            return Err(runtime(format!(
                "where expected condition to be a boolean tensor, but got a tensor with dtype {}",
                crate::print::type_name(condition.dtype())
            )));
        }
        made(py, "WhereBackward0", move || {
            let [a, b] = all([&a, &b], same)?;
            let device = condition.device();
            condition.where_cond(&a.to(&device)?, &b.to(&device)?)
        })
    }

    /// Differences of neighbours, `n` times.
    #[pyo3(signature = (n = 1, dim = -1, prepend = None, append = None))]
    fn diff(
        &self,
        py: Python<'_>,
        n: usize,
        dim: isize,
        prepend: Option<Value>,
        append: Option<Value>,
    ) -> PyResult<PyTensor> {
        let (x, before, after) = (self.read()?, optional(prepend), optional(append));
        if x.rank() == 0 {
            return Err(wrong_value("diff expects input to be at least one-dimensional"));
        }
        if n == 0 {
            return made(py, "", move || Ok(x));
        }
        made(py, "DiffBackward0", move || {
            let parts: Vec<Tensor> = before.into_iter().chain([x]).chain(after).collect();
            Tensor::concat(&parts, dim)?.diff(n, dim)
        })
    }
}
