//! The normal distribution function's logarithm and inverse, and the scaled complementary error function
//! that they are built on.
#![allow(clippy::excessive_precision)] // Coefficients are as published or fitted.

use std::f64::consts::FRAC_1_SQRT_2;

use super::{Value, normal_quantile};

/// e^(a²)·erfc a for a ≥ ½: a polynomial in (a − 3.75) / (a + 3.75), interpolated at Chebyshev points in
/// 60 digits, over 1 + 2a.
fn scaled_tail(a: Value<'_>) -> Value<'_> {
    const MIDDLE: f64 = 3.75;
    // Beyond this bound the quotient is 1 to the last bit, and at infinity it would be NaN.
    let held = a.lt(1e30).choose(a, a.number(1e30));
    let t = (held - MIDDLE) / (held + MIDDLE);
    t.polynomial(&ERFCX) / (a * 2.0 + 1.0)
}

/// e^(f·a²) for a ≥ 0 and a power of two f, with a² split into two parts, the first of them exact.
fn exp_of_square(a: Value<'_>, f: f64) -> Value<'_> {
    // Every dtype has 0 or ∞ well before 40; an infinity would give NaN.
    let a = a.lt(40.0).choose(a, a.number(40.0));
    let high = (a * 16.0).floor() * 0.0625;
    (high * high * f).exp() * ((a - high) * (a + high) * f).exp()
}

/// e^(x²)·erfc x.
pub(super) fn erfcx(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    let tail = scaled_tail(a);
    let rising = exp_of_square(a, 1.0);
    let far = x.lt(0.0).choose(rising * 2.0 - tail, tail);
    // NaN compares as false, so it takes the middle branch and stays NaN.
    a.ge(0.5).choose(far, (x * x).exp() * (1.0 - x.erf()))
}

/// ln Φ(x).
pub(super) fn log_ndtr(x: Value<'_>) -> Value<'_> {
    let y = -x * FRAC_1_SQRT_2;
    let below = (scaled_tail(y) * 0.5).log() - x * x * 0.5;
    x.lt(-1.0).choose(below, (-(-x).ndtr()).log1p())
}

/// The inverse of Φ: ∓∞ at 0 and 1, NaN outside [0, 1].
pub(super) fn ndtri(p: Value<'_>) -> Value<'_> {
    let q = p - 0.5;
    let lesser = p.lt(0.5).choose(p, 1.0 - p);
    let (middle, tail) = normal_quantile(q, (-lesser.log()).sqrt());
    let tail = lesser.eq(0.0).choose(p.number(f64::INFINITY), tail);
    let tail = q.lt(0.0).choose(-tail, tail);
    q.abs().gt(0.425).choose(tail, middle)
}

const ERFCX: [f64; 27] = [
    1.23751263083782758,
    -0.140240598585547018,
    3.58541548546365586e-3,
    0.0822767384901510336,
    -0.108803930141705552,
    0.0923043211601980454,
    -0.0586933985905892899,
    0.0283622774215196692,
    -9.7465795471454375e-3,
    1.7556258323895534e-3,
    2.93713591593492011e-4,
    -2.90153979132248588e-4,
    5.16494217452364654e-5,
    2.23839115319169754e-5,
    -1.14450898379494101e-5,
    -9.72848495265648329e-7,
    1.75352462986978244e-6,
    -5.8264397666956986e-8,
    -2.61258209889015274e-7,
    2.42913117718947125e-8,
    4.10739893733256512e-8,
    -4.3902519431408795e-9,
    -6.60682947791660511e-9,
    5.46065747363079182e-10,
    9.23486770752915513e-10,
    -3.75873080356232554e-11,
    -7.66620979599809755e-11,
];
