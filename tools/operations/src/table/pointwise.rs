//! Operations that work element by element.

use taper::{DType, Tensor};

use crate::row::{DTypes, Row, Values, one, three, two};

/// Where a function of numbers can go wrong.
const ENDS: [f64; 9] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 2.5, -7.0];

/// Dividends and divisors whose remainders and quotients are zeros of either sign.
const SIGNED: [f64; 8] = [-1.0, 1.0, -1.0, 1.0, 0.0, -0.0, 0.0, -0.0];
const DIVISORS: [f64; 8] = [1.0, 1.0, -1.0, -1.0, 2.0, 2.0, -2.0, -2.0];

/// A row of one tensor.
fn unary<T: crate::row::Outputs + 'static>(
    name: &'static str,
    torch: &'static str,
    f: fn(&Tensor) -> T,
) -> Row {
    one(name, torch, f).pointwise()
}

/// A row of one tensor, with special values and the ends of the range.
fn at_ends<T: crate::row::Outputs + 'static>(
    name: &'static str,
    torch: &'static str,
    f: fn(&Tensor) -> T,
) -> Row {
    one(name, torch, f).shapes([&[9]]).exactly(0, &ENDS).order(0)
}

/// A row of two tensors, with every pair of special values.
fn pairs_at_ends<T: crate::row::Outputs + 'static>(
    name: &'static str,
    torch: &'static str,
    f: fn(&Tensor, &Tensor) -> T,
) -> Row {
    two(name, torch, f).shapes([&[9, 1], &[9]]).exactly(0, &ENDS).exactly(1, &ENDS).order(0)
}

/// A row of two tensors that broadcast.
fn binary<T: crate::row::Outputs + 'static>(
    name: &'static str,
    torch: &'static str,
    f: fn(&Tensor, &Tensor) -> T,
) -> Row {
    two(name, torch, f).pointwise()
}

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    use DTypes::{Floats, Ints, Numbers};
    vec![
        unary("neg", "torch.neg(x)", Tensor::neg).of(Numbers),
        unary("abs", "torch.abs(x)", Tensor::abs).of(Numbers),
        unary("sign", "torch.sign(x)", Tensor::sign).of(Numbers),
        unary("exp", "torch.exp(x)", Tensor::exp).of(Numbers),
        unary("expm1", "torch.expm1(x)", Tensor::expm1).of(Numbers),
        unary("log", "torch.log(x)", Tensor::log).of(Numbers).over(0.3, 4.0),
        unary("log1p", "torch.log1p(x)", Tensor::log1p).of(Numbers).over(-0.7, 4.0),
        unary("log2", "torch.log2(x)", Tensor::log2).of(Numbers).over(0.3, 4.0),
        unary("log10", "torch.log10(x)", Tensor::log10).of(Numbers).over(0.3, 4.0),
        unary("sqrt", "torch.sqrt(x)", Tensor::sqrt).of(Numbers).over(0.3, 4.0),
        unary("rsqrt", "torch.rsqrt(x)", Tensor::rsqrt).of(Numbers).over(0.3, 4.0),
        unary("reciprocal", "torch.reciprocal(x)", Tensor::reciprocal).of(Numbers).over(0.3, 4.0),
        unary("sin", "torch.sin(x)", Tensor::sin).of(Numbers),
        unary("cos", "torch.cos(x)", Tensor::cos).of(Numbers),
        unary("tan", "torch.tan(x)", Tensor::tan).over(-1.2, 1.2),
        unary("tanh", "torch.tanh(x)", Tensor::tanh).of(Numbers),
        unary("sigmoid", "torch.sigmoid(x)", Tensor::sigmoid).of(Numbers),
        unary("erf", "torch.erf(x)", Tensor::erf).of(Numbers),
        unary("asin", "torch.asin(x)", Tensor::asin).over(-0.9, 0.9),
        unary("acos", "torch.acos(x)", Tensor::acos).over(-0.9, 0.9),
        unary("atan", "torch.atan(x)", Tensor::atan).of(Numbers),
        unary("sinh", "torch.sinh(x)", Tensor::sinh).of(Numbers),
        unary("cosh", "torch.cosh(x)", Tensor::cosh).of(Numbers),
        unary("asinh", "torch.asinh(x)", Tensor::asinh).of(Numbers),
        unary("acosh", "torch.acosh(x)", Tensor::acosh).over(1.3, 4.0),
        one("acosh", "", Tensor::acosh).shapes([&[4]]).exactly(0, &[-1e20, -1e6, 0.5, 1.0]).order(0),
        unary("atanh", "torch.atanh(x)", Tensor::atanh).over(-0.9, 0.9),
        unary("exp2", "torch.exp2(x)", Tensor::exp2).of(Numbers),
        unary("sinc", "torch.sinc(x)", Tensor::sinc),
        unary("erfc", "torch.erfc(x)", Tensor::erfc),
        unary("erfinv", "torch.erfinv(x)", Tensor::erfinv).over(-0.9, 0.9),
        unary("lgamma", "torch.lgamma(x)", Tensor::lgamma).over(0.3, 4.0),
        unary("digamma", "torch.digamma(x)", Tensor::digamma).over(0.3, 4.0),
        unary("polygamma", "", |x| x.polygamma(1)).over(0.3, 4.0).note("torch.polygamma(1, x) is within 10⁻⁹ of it"),
        unary("polygamma", "torch.polygamma(2, x)", |x| x.polygamma(2)).over(0.3, 4.0),
        unary("polygamma", "", |x| x.polygamma(2)).over(-3.75, -3.3),
        unary("floor", "torch.floor(x)", Tensor::floor).of(Numbers),
        unary("ceil", "torch.ceil(x)", Tensor::ceil).of(Numbers),
        unary("round", "torch.round(x)", Tensor::round).of(Numbers),
        unary("trunc", "torch.trunc(x)", Tensor::trunc).of(Numbers),
        unary("powi", "torch.pow(x, 3)", |x| x.powi(3)).of(Numbers),
        unary("powi", "torch.pow(x, -2)", |x| x.powi(-2)).over(0.5, 2.0),
        unary("powf", "torch.pow(x, 2.5)", |x| x.powf(2.5)).over(0.3, 2.0),
        unary("powf", "torch.pow(x, -0.5)", |x| x.powf(-0.5)).over(0.3, 2.0),
        unary("clamp", "torch.clamp(x, -1, 1)", |x| x.clamp(-1, 1)).of(Numbers),
        binary("add", "torch.add(x, y)", |x, y| x.add(y)).of(Numbers).bad(|x| x[0].add(&x[1].narrow(0, 0, 3)?)),
        binary("sub", "torch.sub(x, y)", |x, y| x.sub(y)).of(Numbers).bad(|x| x[0].sub(&x[1].narrow(0, 0, 3)?)),
        binary("mul", "torch.mul(x, y)", |x, y| x.mul(y)).of(Numbers).bad(|x| x[0].mul(&x[1].narrow(0, 0, 3)?)),
        binary("div", "torch.div(x, y)", |x, y| x.div(y)).of(Numbers).over(0.3, 2.0)
            .bad(|x| x[0].div(&x[1].narrow(0, 0, 3)?)),
        binary("floor_divide", "torch.floor_divide(x, y)", |x, y| x.floor_divide(y)).of(Numbers).over(0.3, 2.0).order(0),
        binary("remainder", "torch.remainder(x, y)", |x, y| x.remainder(y)).of(Numbers).over(0.3, 2.0).stepwise(),
        two("remainder", "(lambda r: (r, 1 / r))(torch.remainder(x, y))", |x, y| x.remainder(y).map(|r| (r.clone(), r.reciprocal()))).shapes([&[8], &[8]])
            .exactly(0, &SIGNED).exactly(1, &DIVISORS).order(0).note("a zero has the sign of the dividend, as in PyTorch"),
        two("fmod", "(lambda r: (r, 1 / r))(torch.fmod(x, y))", |x, y| x.fmod(y).map(|r| (r.clone(), r.reciprocal()))).shapes([&[8], &[8]])
            .exactly(0, &SIGNED).exactly(1, &DIVISORS).order(0),
        two("floor_divide", "(lambda r: (r, 1 / r))(torch.floor_divide(x, y))", |x, y| x.floor_divide(y).map(|r| (r.clone(), r.reciprocal())))
            .shapes([&[8], &[8]]).exactly(0, &SIGNED).exactly(1, &DIVISORS).order(0),
        binary("pow", "torch.pow(x, y)", |x, y| x.pow(y)).over(0.3, 2.0),
        binary("pow", "torch.pow(x, y)", |x, y| x.pow(y)).of(Ints).over(0.0, 1.0),
        binary("maximum", "torch.maximum(x, y)", |x, y| x.maximum(y)).of(Numbers),
        binary("minimum", "torch.minimum(x, y)", |x, y| x.minimum(y)).of(Numbers),
        binary("atan2", "torch.atan2(x, y)", |x, y| x.atan2(y)),
        unary("add_scalar", "x + 2", |x| x.add_scalar(2)).of(Numbers),
        unary("sub_scalar", "x - 2", |x| x.sub_scalar(2)).of(Numbers),
        unary("mul_scalar", "x * 2", |x| x.mul_scalar(2)).of(Numbers),
        unary("div_scalar", "x / 3", |x| x.div_scalar(3)).of(Numbers),
        unary("floor_divide_scalar", "x // 2", |x| x.floor_divide_scalar(2)).of(Numbers).order(0),
        unary("remainder_scalar", "x % 2", |x| x.remainder_scalar(2)).of(Numbers).stepwise(),
        unary("pow_scalar", "x ** 2.5", |x| x.pow_scalar(2.5)).over(0.3, 2.0),
        unary("maximum_scalar", "torch.clamp(x, min=0.5)", |x| x.maximum_scalar(0.5)),
        unary("minimum_scalar", "torch.clamp(x, max=0.5)", |x| x.minimum_scalar(0.5)),
        unary("atan2_scalar", "torch.atan2(x, torch.tensor(2.0))", |x| x.atan2_scalar(2)).of(Floats),
        unary("to_dtype", "x.to(torch.float32)", |x| x.to_dtype(DType::F32)).of(DTypes::All).order(0)
            .note("differentiable; between dtypes of one precision the gradient is exact"),
        unary("to_dtype", "x.to(torch.int32)", |x| x.to_dtype(DType::I32)).of(Numbers).order(0),
        unary("contiguous", "x.contiguous()", Tensor::contiguous).of(DTypes::All),
        unary("detach", "x.detach()", Tensor::detach).of(DTypes::All).order(0),
    ]
}

#[rustfmt::skip]
pub(super) fn more() -> Vec<Row> {
    use DTypes::{All, Ints, Numbers};
    vec![
        unary("square", "torch.square(x)", Tensor::square).of(Numbers),
        unary("frac", "torch.frac(x)", Tensor::frac).over(-3.0, 4.0),
        binary("fmod", "torch.fmod(x, y)", |x, y| x.fmod(y)).input(1, Values::Between(0.3, 2.0)).stepwise()
            .bad(|x| x[0].fmod(&x[1].narrow(0, 0, 3)?)),
        binary("fmod", "torch.fmod(x, y)", |x, y| x.fmod(y)).of(Ints).exactly(1, &[3.0, -2.0, 5.0, -7.0]),
        unary("fmod", "torch.fmod(x, -3)", |x| x.fmod(-3)).of(Numbers).over(0.1, 2.9),
        pairs_at_ends("fmod", "(lambda r: (r, 1 / r))(torch.fmod(x, y))",
            |x, y| x.fmod(y).map(|r| (r.clone(), r.reciprocal()))).of(DTypes::F32F64),
        two("fmod", "torch.fmod(x, y)", |x, y| x.fmod(y)).shapes([&[4], &[4]]).exactly(0, &[4.0, -4.0, 0.0, -0.0]).exactly(1, &[2.0, 2.0, -3.0, 5.0]).kinks(),
        binary("trunc_divide", "torch.div(x, y, rounding_mode='trunc')", |x, y| x.trunc_divide(y)).over(0.3, 2.0).order(0)
            .bad(|x| x[0].trunc_divide(&x[1].narrow(0, 0, 3)?)),
        binary("trunc_divide", "torch.div(x, y, rounding_mode='trunc')", |x, y| x.trunc_divide(y)).of(Ints).exactly(1, &[3.0, -2.0, 5.0, -7.0]),
        unary("round_to", "torch.round(x, decimals=2)", |x| x.round_to(2)).of(DTypes::F32F64).order(0),
        unary("round_to", "torch.round(x, decimals=-1)", |x| x.round_to(-1)).over(-200.0, 200.0).order(0),
        unary("frexp", "(lambda r: (r[0], r[1]))(torch.frexp(x))", Tensor::frexp).bad(|x| x[0].to_dtype(DType::I32)?.frexp()),
        at_ends("frexp", "(lambda r: (r[0], torch.where(x.isfinite(), r[1], 0)))(torch.frexp(x))", Tensor::frexp),
        one("frexp", "(lambda r: (r[0], r[1]))(torch.frexp(x))", Tensor::frexp).of(DTypes::F32F64).order(0)
            .exactly(0, &[0.5, 1.0, -8.0, 1e30, 3e38, 2e-38, 0.9999999, 1.0000001, 7.9999995, 1024.0, 3.0, 0.125]),
        pairs_at_ends("nextafter", "torch.nextafter(x, y)", |x, y| x.nextafter(y)).exactly(0, &[1.0, 2.0, 0.5, -4.0, 100.0, -0.1, 3.0, 240.0, -1.5])
            .of(DTypes::F32F64).bad(|x| x[0].nextafter(&x[0].to_dtype(DType::I32)?.narrow(0, 0, 2)?)),
        pairs_at_ends("nextafter", "torch.where(torch.nextafter(x, y) > x, 1, 0)", |x, y| x.nextafter(y)?.gt(x)?.to_dtype(DType::I32))
            .exactly(0, &[1.0, 2.0, 0.5, -4.0, 100.0, -0.0009765625, 3.0, 240.0, -1.5]).exactly(1, &[1.0, 1.5, -3.0, f64::INFINITY, -0.0, 1e3, 3.0, 239.0, -7.0]),
        binary("copysign", "torch.copysign(x, y)", |x, y| x.copysign(y)).of(Numbers).bad(|x| x[0].copysign(&x[1].narrow(0, 0, 3)?)),
        pairs_at_ends("copysign", "1 / torch.copysign(x, torch.where(y.isnan(), 1.0, y))",
            |x, y| x.copysign(y).map(|r| r.reciprocal())),
        binary("hypot", "torch.hypot(x, y)", |x, y| x.hypot(y)).over(0.3, 2.0).bad(|x| x[0].hypot(&x[1].narrow(0, 0, 3)?)),
        pairs_at_ends("hypot", "torch.hypot(x, y)", |x, y| x.hypot(y)),
        two("copysign", "torch.copysign(x, y)", |x, y| x.copysign(y)).shapes([&[4], &[4]]).exactly(0, &[0.0, -0.0, 2.0, -1.0]).exactly(1, &[-1.0, 1.0, -0.0, 0.0]).kinks(),
        one("hypot", "torch.hypot(x, x)", |x| x.hypot(x)).exactly(0, &[1e30, 2e38, 0.0, -1e-20]).of(DTypes::F32F64).order(0),
        binary("heaviside", "torch.heaviside(x, y)", |x, y| x.heaviside(y)).of(Numbers).order(0)
            .bad(|x| x[0].heaviside(&x[1].narrow(0, 0, 3)?)),
        pairs_at_ends("heaviside", "torch.heaviside(x, y)", |x, y| x.heaviside(y)),
        three("lerp", "torch.lerp(x, y, z)", |x, y, z| x.lerp(y, z)).pointwise().bad(|x| x[0].lerp(&x[1].narrow(0, 0, 3)?, 0.5)),
        binary("lerp", "torch.lerp(x, y, 0.3)", |x, y| x.lerp(y, 0.3)),
        binary("lerp", "torch.lerp(x, y, 0.75)", |x, y| x.lerp(y, 0.75)),
        unary("nan_to_num", "torch.nan_to_num(x)", |x| x.nan_to_num(0.0, None, None)).of(Numbers),
        at_ends("nan_to_num", "torch.nan_to_num(x, 5, 6, -7)", |x| x.nan_to_num(5.0, 6.0, -7.0)),
        at_ends("nan_to_num", "torch.nan_to_num(x, 5, 6, -7)", |x| x.nan_to_num(5.0, 6.0, -7.0)).order(1).kinks(),
        at_ends("nan_to_num", "", |x| x.nan_to_num(0.0, None, None).isfinite()),
        binary("xlogy", "torch.xlogy(x, y)", |x, y| x.xlogy(y)).of(Numbers).over(0.3, 2.0).bad(|x| x[0].xlogy(&x[1].narrow(0, 0, 3)?)),
        pairs_at_ends("xlogy", "torch.xlogy(x, y)", |x, y| x.xlogy(y)),
        two("xlogy", "torch.xlogy(x, y)", |x, y| x.xlogy(y)).shapes([&[3], &[3]]).exactly(0, &[0.0, 0.0, 1.5]).exactly(1, &[2.0, 0.25, 1.0]),
        binary("logaddexp", "torch.logaddexp(x, y)", |x, y| x.logaddexp(y)).bad(|x| x[0].logaddexp(&x[1].narrow(0, 0, 3)?)),
        pairs_at_ends("logaddexp", "torch.logaddexp(x, y)", |x, y| x.logaddexp(y)),
        binary("logaddexp2", "torch.logaddexp2(x, y)", |x, y| x.logaddexp2(y)).bad(|x| x[0].logaddexp2(&x[1].narrow(0, 0, 3)?)),
        pairs_at_ends("logaddexp2", "torch.logaddexp2(x, y)", |x, y| x.logaddexp2(y)),
        one("logaddexp", "torch.logaddexp(x, x)", |x| x.logaddexp(x.mul_scalar(1)))
            .note("smooth where both inputs are equal, and does not overflow"),
        unary("logit", "torch.logit(x)", |x| x.logit(None)).over(0.1, 0.9),
        unary("logit", "torch.logit(x, 0.3)", |x| x.logit(0.3)).over(0.01, 0.98),
        unary("logit", "torch.logit(x, 0.25)", |x| x.logit(0.25)).over(-1.0, 2.0),
        at_ends("logit", "torch.logit(x)", |x| x.logit(None)),
        binary("fmax", "torch.fmax(x, y)", |x, y| x.fmax(y)).of(Numbers).bad(|x| x[0].fmax(&x[1].narrow(0, 0, 3)?)),
        pairs_at_ends("fmax", "torch.fmax(x, y)", |x, y| x.fmax(y)),
        binary("fmin", "torch.fmin(x, y)", |x, y| x.fmin(y)).of(Numbers).bad(|x| x[0].fmin(&x[1].narrow(0, 0, 3)?)),
        pairs_at_ends("fmin", "torch.fmin(x, y)", |x, y| x.fmin(y)),
        two("fmax", "torch.fmax(x, y)", |x, y| x.fmax(y)).shapes([&[4], &[4]]).exactly(0, &[1.0, f64::NAN, 2.0, -1.0]).exactly(1, &[1.0, 2.0, f64::NAN, 0.0]).kinks(),
        two("fmin", "torch.fmin(x, y)", |x, y| x.fmin(y)).shapes([&[4], &[4]]).exactly(0, &[1.0, f64::NAN, 2.0, -1.0]).exactly(1, &[1.0, 2.0, f64::NAN, 0.0]).kinks(),
        three("clamp_tensor", "torch.clamp(x, y, z)", |x, y, z| x.clamp_tensor(Some(y), Some(z))).shapes([&[4], &[4], &[4]])
            .exactly(0, &[1.0, 2.0, 0.0, 0.5]).exactly(1, &[1.0, -1.0, 3.0, 0.0]).exactly(2, &[4.0, 2.0, 1.0, 1.0]).kinks(),
        three("clamp_tensor", "torch.clamp(x, y, z)", |x, y, z| x.clamp_tensor(Some(y), Some(z))).of(Numbers).pointwise()
            .bad(|x| x[0].clamp_tensor(None, None)),
        two("clamp_tensor", "torch.clamp(x, max=y)", |x, y| x.clamp_tensor(None, Some(y))).of(Numbers).pointwise()
            .bad(|x| x[0].clamp_tensor(None, Some(&x[1].narrow(0, 0, 3)?))),
        pairs_at_ends("clamp_tensor", "torch.clamp(x, y, y + 1)", |x, y| x.clamp_tensor(Some(y), Some(&y.add_scalar(1)))),
        three("addcmul", "torch.addcmul(x, y, z, value=3)", |x, y, z| x.addcmul(y, z, 3)).of(Numbers).pointwise()
            .bad(|x| x[0].addcmul(&x[1].narrow(0, 0, 3)?, &x[2], 3)),
        three("addcdiv", "torch.addcdiv(x, y, z, value=3)", |x, y, z| x.addcdiv(y, z, 3)).over(0.3, 2.0).pointwise()
            .bad(|x| x[0].addcdiv(&x[1].narrow(0, 0, 3)?, &x[2], 3)),
        unary("deg2rad", "torch.deg2rad(x)", Tensor::deg2rad).of(Numbers),
        unary("rad2deg", "torch.rad2deg(x)", Tensor::rad2deg).of(Numbers),
        binary("float_power", "torch.float_power(x, y)", |x, y| x.float_power(y)).over(0.3, 2.0)
            .bad(|x| x[0].float_power(&x[1].narrow(0, 0, 3)?)),
        unary("float_power", "torch.float_power(x, 3)", |x| x.float_power(3)).of(Numbers),
        binary("ldexp", "torch.ldexp(x, y)", |x, y| x.ldexp(y)).bad(|x| x[0].ldexp(&x[1].narrow(0, 0, 3)?)),
        two("ldexp", "torch.ldexp(x, y)", |x, y| x.ldexp(y)).index(1, &[-3, 0, 4, 7]),
        unary("mvlgamma", "torch.mvlgamma(x, 3)", |x| x.mvlgamma(3)).over(1.3, 4.0).bad(|x| x[0].mvlgamma(0)),
        unary("i0", "torch.special.i0(x)", Tensor::i0),
        unary("i0", "torch.special.i0(x)", Tensor::i0).over(7.0, 12.0),
        unary("i1", "torch.special.i1(x)", Tensor::i1),
        unary("i1", "torch.special.i1(x)", Tensor::i1).over(-12.0, -7.0),
        unary("i0e", "torch.special.i0e(x)", Tensor::i0e).over(-12.0, 12.0),
        unary("i1e", "torch.special.i1e(x)", Tensor::i1e).over(-12.0, 12.0),
        unary("signbit", "torch.signbit(x)", Tensor::signbit).of(All).order(0),
        at_ends("signbit", "torch.signbit(torch.where(x.isnan(), 1.0, x))", Tensor::signbit),
        unary("isfinite", "torch.isfinite(x)", Tensor::isfinite).of(All).order(0),
        at_ends("isfinite", "torch.isfinite(x)", Tensor::isfinite),
        unary("isposinf", "torch.isposinf(x)", Tensor::isposinf).of(All).order(0),
        at_ends("isposinf", "torch.isposinf(x)", Tensor::isposinf),
        unary("isneginf", "torch.isneginf(x)", Tensor::isneginf).of(All).order(0),
        at_ends("isneginf", "torch.isneginf(x)", Tensor::isneginf),
        binary("isclose", "torch.isclose(x, y, rtol=0.25, atol=0.125)", |x, y| x.isclose(y, 0.25, 0.125, false)).of(Numbers).over(0.5, 2.0).order(0)
            .bad(|x| x[0].isclose(&x[1].narrow(0, 0, 3)?, 0.0, 0.0, false)),
        pairs_at_ends("isclose", "torch.isclose(x, y, equal_nan=True)", |x, y| x.isclose(y, 1e-5, 1e-8, true)),
        binary("logical_and", "torch.logical_and(x, y)", |x, y| x.logical_and(y)).of(All).over(-0.7, 0.7).order(0)
            .bad(|x| x[0].logical_and(&x[1].narrow(0, 0, 3)?)),
        binary("logical_or", "torch.logical_or(x, y)", |x, y| x.logical_or(y)).of(All).over(-0.7, 0.7).order(0)
            .bad(|x| x[0].logical_or(&x[1].narrow(0, 0, 3)?)),
        binary("logical_xor", "torch.logical_xor(x, y)", |x, y| x.logical_xor(y)).of(All).over(-0.7, 0.7).order(0)
            .bad(|x| x[0].logical_xor(&x[1].narrow(0, 0, 3)?)),
        binary("bitwise_left_shift", "torch.bitwise_left_shift(x, y)", |x, y| x.bitwise_left_shift(y)).of(Ints).exactly(1, &[1.0, 0.0, 5.0, 2.0])
            .bad(|x| x[0].bitwise_left_shift(1)),
        unary("bitwise_left_shift", "torch.bitwise_left_shift(x, 3)", |x| x.bitwise_left_shift(3)).of(Ints),
        two("bitwise_left_shift", "torch.bitwise_left_shift(x, y.long())", |x, y| x.bitwise_left_shift(&y.to_dtype(x.dtype())?))
            .shapes([&[3, 4], &[4]]).of(Ints).index(1, &[70, 64, 200, -1]),
        binary("bitwise_right_shift", "torch.bitwise_right_shift(x, y)", |x, y| x.bitwise_right_shift(y)).of(Ints).exactly(1, &[1.0, 0.0, 5.0, 2.0])
            .bad(|x| x[0].bitwise_right_shift(1)),
        two("bitwise_right_shift", "torch.bitwise_right_shift(x, y.long())", |x, y| x.bitwise_right_shift(&y.to_dtype(x.dtype())?))
            .shapes([&[3, 4], &[4]]).of(Ints).index(1, &[70, 64, 200, -1]),
        binary("gcd", "torch.gcd(x, y)", |x, y| x.gcd(y)).of(Ints).over(-12.0, 30.0).bad(|x| x[0].gcd(&x[1])),
        two("gcd", "torch.gcd(x, y)", |x, y| x.gcd(y)).of(Ints).shapes([&[4], &[4]]).exactly(0, &[0.0, 144.0, 233.0, 89.0])
            .exactly(1, &[0.0, 89.0, 144.0, 233.0]),
        binary("lcm", "torch.lcm(x, y)", |x, y| x.lcm(y)).of(Ints).over(-2.0, 3.0).bad(|x| x[0].lcm(&x[1])),
    ]
}

#[rustfmt::skip]
pub(super) fn choices() -> Vec<Row> {
    use DTypes::{All, Floats, IntsBool, Numbers};
    vec![
        unary("isnan", "torch.isnan(x)", Tensor::isnan).order(0),
        unary("isinf", "torch.isinf(x)", Tensor::isinf).order(0),
        unary("logical_not", "torch.logical_not(x)", Tensor::logical_not).of(All).order(0),
        unary("bitwise_not", "torch.bitwise_not(x)", Tensor::bitwise_not).of(IntsBool),
        binary("bitwise_and", "torch.bitwise_and(x, y)", |x, y| x.bitwise_and(y)).of(IntsBool).bad(|x| x[0].bitwise_and(&x[1])),
        binary("bitwise_or", "torch.bitwise_or(x, y)", |x, y| x.bitwise_or(y)).of(IntsBool).bad(|x| x[0].bitwise_or(&x[1])),
        binary("bitwise_xor", "torch.bitwise_xor(x, y)", |x, y| x.bitwise_xor(y)).of(IntsBool).bad(|x| x[0].bitwise_xor(&x[1])),
        binary("eq", "torch.eq(x, y)", |x, y| x.eq(y)).of(All).over(-0.7, 0.7).order(0),
        binary("ne", "torch.ne(x, y)", |x, y| x.ne(y)).of(All).over(-0.7, 0.7).order(0),
        binary("lt", "torch.lt(x, y)", |x, y| x.lt(y)).of(All).over(-0.7, 0.7).order(0),
        binary("le", "torch.le(x, y)", |x, y| x.le(y)).of(All).over(-0.7, 0.7).order(0),
        binary("gt", "torch.gt(x, y)", |x, y| x.gt(y)).of(All).over(-0.7, 0.7).order(0),
        binary("ge", "torch.ge(x, y)", |x, y| x.ge(y)).of(All).over(-0.7, 0.7).order(0),
        unary("eq_scalar", "torch.eq(x, 1)", |x| x.eq_scalar(1)).of(Numbers).order(0),
        unary("ne_scalar", "torch.ne(x, 1)", |x| x.ne_scalar(1)).of(Numbers).order(0),
        unary("lt_scalar", "torch.lt(x, 1)", |x| x.lt_scalar(1)).of(Numbers).order(0),
        unary("le_scalar", "torch.le(x, 1)", |x| x.le_scalar(1)).of(Numbers).order(0),
        unary("gt_scalar", "torch.gt(x, 1)", |x| x.gt_scalar(1)).of(Numbers).order(0),
        unary("ge_scalar", "torch.ge(x, 1)", |x| x.ge_scalar(1)).of(Numbers).order(0),
        three("where_cond", "torch.where(x, y, z)", |x, y, z| x.where_cond(y, z)).of(All).mask(0).pointwise(),
        two("masked_fill", "x.masked_fill(y, 5)", |x, y| x.masked_fill(y, 5)).of(Numbers).mask(1)
            .bad(|x| x[0].masked_fill(&x[0], 5)).of(Floats),
        two("masked_fill", "x.masked_fill(y, 5)", |x, y| x.masked_fill(y, 5)).of(DTypes::Ints).mask(1),
    ]
}

#[rustfmt::skip]
pub(super) fn activations() -> Vec<Row> {
    vec![
        unary("relu", "torch.relu(x)", Tensor::relu).of(DTypes::Numbers),
        unary("silu", "F.silu(x)", Tensor::silu),
        unary("gelu", "F.gelu(x)", Tensor::gelu),
        unary("gelu_tanh", "F.gelu(x, approximate='tanh')", Tensor::gelu_tanh),
        unary("softplus_with", "F.softplus(x, 2.0, 3.0)", |x| x.softplus_with(2.0, 3.0)),
        unary("logsigmoid", "F.logsigmoid(x)", Tensor::logsigmoid),
        unary("elu", "F.elu(x, 0.5)", |x| x.elu(0.5)),
        unary("tanhshrink", "F.tanhshrink(x)", Tensor::tanhshrink),
        unary("hardshrink", "F.hardshrink(x, 0.7)", |x| x.hardshrink(0.7)),
        unary("softshrink", "F.softshrink(x, 0.7)", |x| x.softshrink(0.7)),
        unary("threshold", "F.threshold(x, 0.3, 5)", |x| x.threshold(0.3, 5.0)),
        unary("celu", "F.celu(x, 0.5)", |x| x.celu(0.5)),
        unary("selu", "F.selu(x)", Tensor::selu),
        unary("leaky_relu", "F.leaky_relu(x, 0.1)", |x| x.leaky_relu(0.1)),
        unary("hardtanh", "F.hardtanh(x, -0.5, 0.75)", |x| x.hardtanh(-0.5, 0.75)),
        unary("relu6", "F.relu6(x)", Tensor::relu6).over(-3.0, 8.0),
        unary("hardsigmoid", "F.hardsigmoid(x)", Tensor::hardsigmoid).over(-4.0, 4.0),
        unary("hardswish", "F.hardswish(x)", Tensor::hardswish).over(-4.0, 4.0),
        unary("mish", "F.mish(x)", Tensor::mish),
        unary("softsign", "F.softsign(x)", Tensor::softsign),
        one("glu", "F.glu(x, 1)", |x| x.glu(1)).bad(|x| x[0].glu(0)),
        two("prelu", "F.prelu(x, y)", |x, y| x.prelu(y)).bad(|x| x[0].prelu(&x[1].narrow(0, 0, 3)?)),
        one("softmax", "torch.softmax(x, 1)", |x| x.softmax(1)).bad(|x| x[0].softmax(2)),
        one("softmax", "torch.softmax(x, 0)", |x| x.softmax(0)),
        one("softmin", "F.softmin(x, 1)", |x| x.softmin(1)).bad(|x| x[0].softmin(2)),
        one("log_softmax", "torch.log_softmax(x, -1)", |x| x.log_softmax(-1)).bad(|x| x[0].log_softmax(2)),
    ]
}
