//! [`Formula`]: elementwise functions that are expanded into other instructions when a kernel is
//! planned, so that no backend needs to know them. To add one, add a row to the table here, a method of
//! `Tensor`, a gradient rule in `autograd` and a row in the table of operations.
//!
//! Each is computed in f32 or f64 (half types in f32, rounded once at the end). NaN in gives NaN out.

#![allow(clippy::excessive_precision)] // Coefficients are as published or fitted.

use std::{
    cell::RefCell,
    f64::consts::{LN_2, LOG2_E, LOG10_E, PI, SQRT_2},
    mem, ops,
};

mod bessel;
mod normal;

use crate::{
    elements::dtype::DType,
    kernels::{
        kernel::{Instr, Program, Reg},
        operators::{BinaryOp, CompareOp, READS_BOTH, READS_INPUT, READS_RESULT, Reads, UnaryOp, number_of},
    },
};

/// Declares the formulas as a table. A row has the variant and the name of the tensor method; what the
/// gradient rule reads, and an upper bound of the number of instructions; and the formula.
macro_rules! formulas {
    ($($(#[$d:meta])* $variant:ident $name:literal ($reads:expr, $instrs:literal) |$x:ident| $value:expr;)*) => {
        /// An elementwise function composed of others.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Formula {
            $($(#[$d])* $variant,)*
            /// The n-th derivative of digamma, n ≥ 1; ±∞ at 0, −1, −2 …
            Polygamma(u8),
        }

        impl Formula {
            /// All of them, with only the first three derivatives of digamma.
            pub const ALL: &'static [Formula] = &[
                $(Formula::$variant,)*
                Formula::Polygamma(1),
                Formula::Polygamma(2),
                Formula::Polygamma(3),
            ];

            /// The name of the tensor method.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Formula::$variant => $name,)*
                    Formula::Polygamma(_) => "polygamma",
                }
            }

            /// The inputs and results that the gradient rule reads.
            pub(crate) const fn saved(self) -> Reads {
                match self {
                    $(Formula::$variant => $reads,)*
                    Formula::Polygamma(_) => READS_INPUT,
                }
            }

            /// An upper bound of the number of instructions that the formula takes.
            pub(crate) const fn instrs(self) -> usize {
                match self {
                    $(Formula::$variant => $instrs,)*
                    Formula::Polygamma(0 | 1) => 100,
                    Formula::Polygamma(_) => 250,
                }
            }

            fn apply(self, x: Value<'_>) -> Value<'_> {
                match self {
                    $(Formula::$variant => {
                        let $x = x;
                        $value
                    })*
                    Formula::Polygamma(n) => polygamma(x, i32::from(n.max(1))),
                }
            }
        }
    };
}

formulas! {
    /// The arc sine in [−π/2, π/2]; NaN beyond ±1.
    Asin "asin" (READS_INPUT, 20) |x| x.atan2(((1.0 - x) * (x + 1.0)).sqrt());
    /// The arc cosine in [0, π]; NaN beyond ±1.
    Acos "acos" (READS_INPUT, 20) |x| ((1.0 - x) * (x + 1.0)).sqrt().atan2(x);
    /// The arc tangent in (−π/2, π/2).
    Atan "atan" (READS_INPUT, 5) |x| x.atan2(x.number(1.0));
    /// (eˣ − e⁻ˣ) / 2.
    Sinh "sinh" (READS_INPUT, 32) |x| sinh(x);
    /// (eˣ + e⁻ˣ) / 2.
    Cosh "cosh" (READS_INPUT, 32) |x| cosh(x);
    /// The inverse of sinh.
    Asinh "asinh" (READS_INPUT, 32) |x| asinh(x);
    /// The inverse of cosh; NaN below 1.
    Acosh "acosh" (READS_INPUT, 32) |x| acosh(x);
    /// The inverse of tanh; ±∞ at ±1, NaN beyond.
    Atanh "atanh" (READS_INPUT, 32) |x| x.odd(|a| ((a * 2.0) / (1.0 - a)).log1p() * 0.5);
    /// 2ˣ.
    Exp2 "exp2" (READS_RESULT, 5) |x| x.number(2.0).pow(x);
    /// log₂ x, exact at powers of 2.
    Log2 "log2" (READS_INPUT, 20) |x| x.log_to_base(2.0, LOG2_E);
    /// log₁₀ x, exact at powers of 10 that the dtype holds.
    Log10 "log10" (READS_INPUT, 20) |x| x.log_to_base(10.0, LOG10_E);
    /// sin(πx) / (πx), and 1 at 0.
    Sinc "sinc" (READS_INPUT, 20) |x| x.eq(0.0).choose(x.number(1.0), x.sin_pi() / (x * PI));
    /// 1 − erf x, without cancellation for large x.
    Erfc "erfc" (READS_INPUT, 80) |x| erfc(x);
    /// The inverse of erf; ±∞ at ±1, NaN beyond.
    Erfinv "erfinv" (READS_RESULT, 150) |x| erfinv(x);
    /// ln |Γ(x)|; ∞ at 0, −1, −2 …
    Lgamma "lgamma" (READS_INPUT, 150) |x| lgamma(x);
    /// The derivative of ln Γ; ∓∞ at ±0, NaN at −1, −2 …
    Digamma "digamma" (READS_INPUT, 100) |x| digamma(x);
    /// The modified Bessel function of the first kind I₀.
    I0 "i0" (READS_INPUT, 130) |x| bessel(x, false, false);
    /// The modified Bessel function of the first kind I₁.
    I1 "i1" (READS_INPUT, 130) |x| bessel(x, true, false);
    /// e^(−|x|)·I₀(x).
    I0e "i0e" (READS_BOTH, 130) |x| bessel(x, false, true);
    /// e^(−|x|)·I₁(x).
    I1e "i1e" (READS_BOTH, 130) |x| bessel(x, true, true);
    /// e^(x²)·erfc x.
    Erfcx "erfcx" (READS_BOTH, 120) |x| normal::erfcx(x);
    /// ln Φ(x).
    LogNdtr "log_ndtr" (READS_INPUT, 230) |x| normal::log_ndtr(x);
    /// The inverse of Φ; ∓∞ at 0 and 1, NaN beyond.
    Ndtri "ndtri" (READS_RESULT, 120) |x| normal::ndtri(x);
    /// The Bessel function of the first kind J₀.
    J0 "bessel_j0" (READS_INPUT, 190) |x| bessel::j(x, false);
    /// The Bessel function of the first kind J₁.
    J1 "bessel_j1" (READS_INPUT, 190) |x| bessel::j(x, true);
    /// The Bessel function of the second kind Y₀; −∞ at 0, NaN below.
    Y0 "bessel_y0" (READS_INPUT, 260) |x| bessel::y(x, false);
    /// The Bessel function of the second kind Y₁; −∞ at 0, NaN below.
    Y1 "bessel_y1" (READS_INPUT, 260) |x| bessel::y(x, true);
    /// The modified Bessel function of the second kind K₀; ∞ at 0, NaN below.
    K0 "modified_bessel_k0" (READS_INPUT, 230) |x| bessel::k(x, false, false);
    /// The modified Bessel function of the second kind K₁; ∞ at 0, NaN below.
    K1 "modified_bessel_k1" (READS_INPUT, 230) |x| bessel::k(x, true, false);
    /// eˣ·K₀(x).
    K0e "scaled_modified_bessel_k0" (READS_BOTH, 230) |x| bessel::k(x, false, true);
    /// eˣ·K₁(x).
    K1e "scaled_modified_bessel_k1" (READS_BOTH, 230) |x| bessel::k(x, true, true);
    /// Airy's function Ai.
    AiryAi "airy_ai" (READS_INPUT, 260) |x| bessel::airy(x);
    /// x − tanh x, accurate near 0.
    Tanhshrink "tanhshrink" (READS_INPUT, 50) |x| tanhshrink(x);
    /// x / (1 + |x|).
    Softsign "softsign" (READS_INPUT, 5) |x| x / (x.abs() + 1.0);
    /// ln(x / (1 − x)), accurate near ½; ∓∞ at 0 and 1, NaN beyond.
    Logit "logit" (READS_INPUT, 20) |x| logit(x);
}

impl Formula {
    /// A number that no other function has, for keys of plans.
    pub(crate) fn number(self) -> u64 {
        let order = if let Formula::Polygamma(n) = self { u64::from(n) } else { 0 };
        number_of(&mem::discriminant(&self)) | order << 8
    }

    /// Writes the instructions for the argument `x` of dtype `dtype` through `emit`, which returns the
    /// register of each (the same one for equal instructions). Returns the result's register.
    pub(crate) fn write(self, emit: &mut dyn Emit, x: Reg, dtype: DType) -> Reg {
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let writer = Writer { emit: RefCell::new(emit), dtype: wide };
        let x = if dtype == wide { x } else { writer.emit(Instr::Cast(x), wide) };
        let result = self.apply(Value { writer: &writer, reg: x });
        if dtype == wide { result.reg } else { writer.emit(Instr::Cast(result.reg), dtype) }
    }
}

fn sinh(x: Value<'_>) -> Value<'_> {
    x.odd(|a| {
        let e = a.expm1();
        // e^(a/2) is multiplied in twice: eᵃ may overflow where half of it does not.
        let half = (a * 0.5).exp();
        a.gt(40.0).choose((half * 0.5) * half, (e + e / (e + 1.0)) * 0.5)
    })
}

fn cosh(x: Value<'_>) -> Value<'_> {
    let half = (x.abs() * 0.5).exp();
    (half * 0.5) * half + (x.number(0.5) / half) / half
}

fn asinh(x: Value<'_>) -> Value<'_> {
    x.odd(|a| {
        let square = a * a;
        let near = (a + square / ((square + 1.0).sqrt() + 1.0)).log1p();
        a.gt(x.large()).choose(a.log() + LN_2, near)
    })
}

fn acosh(x: Value<'_>) -> Value<'_> {
    // Two roots and not that of the product, which has no sign where it is large: below 1 there is no result.
    let t = x - 1.0;
    x.gt(x.large()).choose(x.log() + LN_2, (t + t.sqrt() * (t + 2.0).sqrt()).log1p())
}

/// Both differences are exact or nearly so: near ½ they cancel without a rounding error.
fn logit(x: Value<'_>) -> Value<'_> {
    let near = ((x * 2.0 - 1.0) / (1.0 - x)).log1p();
    let far = x.log() - (-x).log1p();
    (x - 0.5).abs().lt(0.2).choose(near, far)
}

/// Up to 2, x minus a convergent of Lambert's continued fraction tanh x = x / (1 + x²/(3 + x²/(5 + …))),
/// rearranged such that all terms are positive. The error is within 1.1·10⁻⁸, or 1.1·10⁻¹⁸ in f64.
fn tanhshrink(x: Value<'_>) -> Value<'_> {
    const P: [f64; 3] = [0.333333333333333333, 0.0205128205128205128, 0.0001998001998001998];
    const Q: [f64; 4] = [1.0, 0.461538461538461538, 0.02331002331002331, 0.0002072002072002072];
    const P_WIDE: [f64; 6] = [
        0.333333333333333333,
        0.0260869565217391304,
        0.000552104899930986888,
        4.03585453165926087e-6,
        9.24947562641541835e-9,
        3.1622138893727926e-12,
    ];
    const Q_WIDE: [f64; 7] = [
        1.0,
        0.478260869565217391,
        0.0310559006211180124,
        0.000610221205186880244,
        4.27325773940392328e-6,
        9.49612830978649617e-9,
        3.1622138893727926e-12,
    ];
    let (p, q): (&[f64], &[f64]) = if x.writer.dtype == DType::F64 { (&P_WIDE, &Q_WIDE) } else { (&P, &Q) };
    let square = x * x;
    let near = x * (square * (square.polynomial(p) / square.polynomial(q)));
    x.abs().lt(2.0).choose(near, x - x.tanh())
}

/// 1 − erf x in the middle; from 1/2 on, e^(−x²) · R(x) with a rational function R, fitted by least
/// squares in 50 digits, within 3·10⁻¹⁴ of the scaled complementary error function times 1 + 2x.
fn erfc(x: Value<'_>) -> Value<'_> {
    const P: [f64; 9] = [
        1.23751263083780168,
        3.24166644010587364,
        4.40760928536681425,
        3.96698705829794466,
        2.48142929351257977,
        1.10634872417987162,
        0.335280254856788362,
        0.0634832693968751368,
        0.00564187882372454823,
    ];
    const Q: [f64; 9] = [
        1.0,
        2.73282627943873064,
        3.86846723325360771,
        3.56960248525164309,
        2.30471855123854111,
        1.05333743191208162,
        0.330007510437527033,
        0.0644110335631515548,
        0.00597177988612068489,
    ];
    const MIDDLE: f64 = 3.75;
    // The result underflows to 0 well before 30 in every dtype; an infinity would give NaN below.
    let a = x.abs().lt(30.0).choose(x.abs(), x.number(30.0));
    let t = (a - MIDDLE) / (a + MIDDLE);
    let scaled = t.polynomial(&P) / t.polynomial(&Q) / (a * 2.0 + 1.0);
    // e^(−a²), with a² split into two parts, the first of them exact.
    let high = (a * 16.0).floor() * 0.0625;
    let tail = (-(high * high)).exp() * (-((a - high) * (a + high))).exp() * scaled;
    let far = x.lt(0.0).choose(2.0 - tail, tail);
    // NaN compares as false, so it takes the middle branch and stays NaN.
    x.abs().ge(0.5).choose(far, 1.0 - x.erf())
}

/// The normal quantile of (1 + x) / 2, divided by √2.
fn erfinv(x: Value<'_>) -> Value<'_> {
    let a = x.abs();
    let (middle, tail) = normal_quantile(x * 0.5, (-((1.0 - a) * 0.5).log()).sqrt());
    let tail = a.eq(1.0).choose(x.number(f64::INFINITY), tail);
    let tail = x.lt(0.0).choose(-tail, tail);
    a.gt(0.85).choose(tail, middle) * (1.0 / SQRT_2)
}

/// The normal quantile by M. J. Wichura's three rational functions (Applied Statistics algorithm 241,
/// 1988): the first in the probability minus ½, up to 0.425 in magnitude; the other two, unsigned, in
/// √(−ln p) for the smaller tail probability p.
fn normal_quantile<'w>(q: Value<'w>, depth: Value<'w>) -> (Value<'w>, Value<'w>) {
    const A: [f64; 8] = [
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ];
    const B: [f64; 8] = [
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ];
    const C: [f64; 8] = [
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ];
    const D: [f64; 8] = [
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ];
    const E: [f64; 8] = [
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ];
    const F: [f64; 8] = [
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ];
    let r = 0.180625 - q * q;
    let middle = q * (r.polynomial(&A) / r.polynomial(&B));
    let (near, far) = (depth - 1.6, depth - 5.0);
    let tail = depth
        .gt(5.0)
        .choose(far.polynomial(&E) / far.polynomial(&F), near.polynomial(&C) / near.polynomial(&D));
    (middle, tail)
}

/// Stirling's series from 8 on. Below, the argument is shifted to [3/2, 5/2), where ln Γ(2 + y) is y
/// times a rational function (fitted by least squares in 50 digits, within 10⁻¹⁸), which makes the zeros
/// at 1 and 2 exact. Below 1/2, the reflection ln (π / |sin πx|) − ln Γ(1 − x).
fn lgamma(x: Value<'_>) -> Value<'_> {
    const P: [f64; 7] = [
        0.422784335098467139,
        0.951272948491104926,
        0.765419448003280589,
        0.282495190292636643,
        0.0490325009940318267,
        0.0035376642363781251,
        0.0000695189425658359739,
    ];
    const Q: [f64; 7] = [
        1.0,
        1.48729709893471293,
        0.835337159926842213,
        0.219304643668323317,
        0.0268497113738890468,
        0.00130627846252797006,
        0.0000149998224295199147,
    ];
    let reflected = x.lt(0.5);
    let v = reflected.choose(1.0 - x, x);
    let (mut moved, mut product) = (v, v.number(1.0));
    for _ in 0..6 {
        let high = moved.ge(2.5);
        moved = high.choose(moved - 1.0, moved);
        product = high.choose(product * moved, product);
    }
    let low = v.lt(1.5);
    let y = low.choose(v - 1.0, moved - 2.0);
    let small = y * (y.polynomial(&P) / y.polynomial(&Q));
    let moves = low.choose(v, product).log();
    let small = small + low.choose(-moves, moves);
    // (v − ½)·(ln v − 1) does not overflow before the result does.
    let series = stirling(v.number(1.0) / v);
    let large = (v - 0.5) * (v.log() - 1.0) + (series + 0.418_938_533_204_672_74);
    // For larger v, ln Γ(v) = v·(ln v − 1) to the last bit, and ∞ − ∞ is avoided.
    let huge = v * (v.log() - 1.0);
    let of_v = v.lt(8.0).choose(small, v.gt(1e17).choose(huge, large));
    let sine = x.sin_pi().abs();
    // −∞ has no nearest integer, so the reflection does not apply.
    let mirrored = x.eq(f64::NEG_INFINITY).choose(x.abs(), PI.ln() - sine.log() - of_v);
    reflected.choose(mirrored, of_v)
}

/// The sum Σ B₂ₖ / (2k·(2k−1)·v^(2k−1)) of Stirling's series for v ≥ 8, from 1/v. The terms before it
/// are (v − ½)·(ln v − 1) and a constant.
fn stirling(inverse: Value<'_>) -> Value<'_> {
    const B: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
        1.0 / 156.0,
        -3617.0 / 122_400.0,
    ];
    inverse * (inverse * inverse).polynomial(&B)
}

/// ln w − 1/2w − Σ B₂ₖ / (2k·w²ᵏ) at w = v + 10, minus Σ 1/(v + j) for j < 10, where v < 10. Below 1/2,
/// the reflection ψ(1 − x) − π / tan πx.
fn digamma(x: Value<'_>) -> Value<'_> {
    const B: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32_760.0,
        1.0 / 12.0,
        -3617.0 / 8160.0,
    ];
    let reflected = x.lt(0.5);
    let v = reflected.choose(1.0 - x, x);
    let small = v.lt(10.0);
    let mut sum = v.number(0.0);
    for j in 0..10 {
        sum = sum + v.number(1.0) / (v + f64::from(j));
    }
    let w = small.choose(v + 10.0, v);
    let inverse = v.number(1.0) / w;
    let square = inverse * inverse;
    let of_v = w.log() - inverse * 0.5 - square * square.polynomial(&B) - small.choose(sum, v.number(0.0));
    let angle = (x - x.round()) * PI;
    let mirrored = of_v - x.number(PI) / angle.tan();
    // At negative integers there is no limit; at ±0 it is ∓∞.
    let whole = x.eq_value(x.round());
    let pole = x.eq(0.0).choose(-(x.number(1.0) / x), x.number(f64::NAN));
    reflected.choose(whole.choose(pole, mirrored), of_v)
}

/// (−1)ⁿ⁺¹·n!·ζ(n + 1, x). Below 0 the sum over 1/(x + k)ⁿ⁺¹ is the sum over all integers k minus that
/// over negative ones; the former depends only on the distance to the nearest integer.
fn polygamma(x: Value<'_>, n: i32) -> Value<'_> {
    let reflected = x.lt(0.0);
    let zeta = hurwitz(reflected.choose(1.0 - x, x), n);
    let factorial: f64 = (1..=n).map(f64::from).product();
    let sign = if n % 2 == 1 { 1.0 } else { -1.0 };
    if n == 1 {
        return reflected.choose((x.number(PI) / x.sin_pi()).powi(2) - zeta, zeta);
    }
    let nearest = x.round();
    let apart = x - nearest;
    // The sums over negative numbers, whose odd powers are negative.
    let (above, mirrored) = (hurwitz(apart + 1.0, n), hurwitz(1.0 - apart, n));
    let around = apart.powi(-n - 1) + if n % 2 == 1 { above + mirrored } else { above - mirrored };
    let below = if n % 2 == 1 { around - zeta } else { around + zeta };
    let of_x = reflected.choose(below, zeta);
    let poles = x.le(0.0).choose(nearest, x.number(f64::NAN));
    x.eq_value(poles).choose(x.number(f64::INFINITY), of_x) * (sign * factorial)
}

/// Hurwitz' zeta function ζ(n + 1, v) for v ≥ 0, by ten terms and the Euler–Maclaurin formula.
fn hurwitz(v: Value<'_>, n: i32) -> Value<'_> {
    // The coefficients B₂ₖ / (2k)!.
    const B: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30_240.0,
        -1.0 / 1_209_600.0,
        1.0 / 47_900_160.0,
        -691.0 / 1_307_674_368_000.0,
        1.0 / 74_724_249_600.0,
        -3617.0 / 10_670_622_842_880_000.0,
    ];
    const TERMS: i32 = 10;
    let mut zeta = v.powi(-n - 1);
    for j in 1..TERMS {
        zeta = zeta + (v + f64::from(j)).powi(-n - 1);
    }
    let w = v + f64::from(TERMS);
    // The factor s·(s + 1) … (s + 2k − 2)·B₂ₖ / (2k)! with s = n + 1.
    let mut rising = f64::from(n) + 1.0;
    let coefficients: Vec<f64> = (0u8..8)
        .map(|k| {
            let coefficient = B[usize::from(k)] * rising;
            let s = f64::from(n) + 2.0 + 2.0 * f64::from(k);
            rising *= s * (s + 1.0);
            coefficient
        })
        .collect();
    let inverse = v.number(1.0) / w;
    let series = (inverse * inverse).polynomial(&coefficients) * inverse;
    let last = w.powi(-n);
    zeta + last * (1.0 / f64::from(n)) + last * inverse * 0.5 + last * inverse * series
}

/// Iₙ for n of 0 and 1, times e^(−|x|) if `scaled`. Up to 8, the power series
/// (x/2)ⁿ·Σ (x²/4)ᵏ / (k!·(k+n)!), whose terms are all positive; beyond, e^|x| / √|x| times a polynomial
/// in 16/|x| − 1, interpolated in 50 digits, within 2·10⁻¹⁵.
fn bessel(x: Value<'_>, first: bool, scaled: bool) -> Value<'_> {
    const I0: [f64; 19] = [
        0.402176509445008076,
        0.00336055198365983796,
        0.000136216074374817041,
        0.0000111430342758904337,
        1.48384860963293825e-6,
        2.97351152570320724e-7,
        8.8703286537671919e-8,
        3.93979158641458027e-8,
        2.17069970467361776e-8,
        7.22536629030081654e-9,
        -7.48610467796094249e-9,
        -1.25002948610214943e-8,
        -3.3141892883099261e-9,
        5.96894079014067607e-9,
        3.65747145657366642e-9,
        -1.73196945751867439e-9,
        -1.52683506804242834e-9,
        2.47533957328143265e-10,
        2.69395234797382856e-10,
    ];
    const I1: [f64; 19] = [
        0.38939845902587233,
        -0.00974957719322804778,
        -0.000219235763816002272,
        -0.0000150385476651261916,
        -1.83491122360760947e-6,
        -3.48377242216506487e-7,
        -9.99931212369429691e-8,
        -4.31980818525615667e-8,
        -2.3539650421906564e-8,
        -8.11349786144779821e-9,
        7.50575354212064416e-9,
        1.31694708898208835e-8,
        3.79176046456442803e-9,
        -6.14092225227236098e-9,
        -3.95128670200793539e-9,
        1.75340287825501568e-9,
        1.62679679198056872e-9,
        -2.47877324847018769e-10,
        -2.85293631933664975e-10,
    ];
    let a = x.abs();
    let mut term = 1.0;
    let terms: Vec<f64> = (0..22u32)
        .map(|k| {
            let coefficient = term;
            term /= f64::from(k + 1) * f64::from(k + 1 + u32::from(first));
            coefficient
        })
        .collect();
    let near = a.gt(8.0).choose(a.number(0.0), a);
    let series = (near * near * 0.25).polynomial(&terms);
    let series = if first { near * 0.5 * series } else { series };
    let far = a.gt(8.0).choose(a, a.number(8.0));
    let tail = (a.number(16.0) / far - 1.0).polynomial(if first { &I1 } else { &I0 }) / far.sqrt();
    let even = if scaled {
        a.gt(8.0).choose(tail, series * (-near).exp())
    } else {
        // e^(a/2) is multiplied in twice: eᵃ may overflow where the result does not.
        let half = (far * 0.5).exp();
        a.gt(8.0).choose(half * tail * half, series)
    };
    // At ∞ the factors are 0 and ∞.
    let end = if scaled { 0.0 } else { f64::INFINITY };
    let even = a.eq(f64::INFINITY).choose(a.number(end), even);
    // NaN compares as false, so it takes the series and stays NaN.
    if first { x.lt(0.0).choose(-even, even) } else { even }
}

impl Formula {
    /// The formula as a program of one input of this dtype, for translators.
    #[doc(hidden)]
    pub fn program(self, dtype: DType) -> (Program, Vec<f64>) {
        let mut listing = Listing::default();
        listing.program.inputs.push(dtype);
        let x = listing.emit(Instr::Load(0), dtype);
        let result = self.write(&mut listing, x, dtype);
        listing.program.outputs.push(result);
        (listing.program, listing.scalars)
    }
}

/// The instructions of a formula, with its constants.
#[derive(Default)]
struct Listing {
    program: Program,
    scalars: Vec<f64>,
}

impl Emit for Listing {
    fn emit(&mut self, instr: Instr, dtype: DType) -> Reg {
        let known = self.program.instrs.iter().zip(&self.program.dtypes);
        if let Some(at) = known.into_iter().position(|(&own, &of)| own == instr && of == dtype) {
            return at as Reg;
        }
        self.program.instrs.push(instr);
        self.program.dtypes.push(dtype);
        (self.program.instrs.len() - 1) as Reg
    }

    fn constant(&mut self, value: f64, dtype: DType) -> Reg {
        self.scalars.push(value);
        self.program.scalars.push(dtype);
        self.emit(Instr::Scalar((self.scalars.len() - 1) as u16), dtype)
    }
}

/// The receiver of a formula's instructions.
pub(crate) trait Emit {
    /// The register of an instruction.
    fn emit(&mut self, instr: Instr, dtype: DType) -> Reg;
    /// The register of a constant.
    fn constant(&mut self, value: f64, dtype: DType) -> Reg;
}

struct Writer<'e> {
    emit: RefCell<&'e mut dyn Emit>,
    dtype: DType,
}

impl Writer<'_> {
    fn emit(&self, instr: Instr, dtype: DType) -> Reg {
        self.emit.borrow_mut().emit(instr, dtype)
    }
}

/// A register in a formula; arithmetic on it emits instructions.
#[derive(Clone, Copy)]
struct Value<'w> {
    writer: &'w Writer<'w>,
    reg: Reg,
}

/// A register that holds a bool.
#[derive(Clone, Copy)]
struct Condition<'w>(Value<'w>);

impl<'w> Condition<'w> {
    /// `a` if the condition holds, else `b`.
    fn choose(self, a: Value<'w>, b: Value<'w>) -> Value<'w> {
        a.with(Instr::Select(self.0.reg, a.reg, b.reg))
    }
}

impl<'w> Value<'w> {
    fn with(self, instr: Instr) -> Value<'w> {
        Value { writer: self.writer, reg: self.writer.emit(instr, self.writer.dtype) }
    }

    fn number(self, value: f64) -> Value<'w> {
        let writer = self.writer;
        Value { writer, reg: writer.emit.borrow_mut().constant(value, writer.dtype) }
    }

    fn unary(self, op: UnaryOp) -> Value<'w> {
        self.with(Instr::Unary(op, self.reg))
    }

    fn binary(self, op: BinaryOp, rhs: Value<'w>) -> Value<'w> {
        self.with(Instr::Binary(op, self.reg, rhs.reg))
    }

    fn compare(self, op: CompareOp, rhs: Value<'w>) -> Condition<'w> {
        let reg = self.writer.emit(Instr::Compare(op, self.reg, rhs.reg), DType::Bool);
        Condition(Value { writer: self.writer, reg })
    }

    fn lt(self, bound: f64) -> Condition<'w> {
        self.compare(CompareOp::Lt, self.number(bound))
    }

    fn gt(self, bound: f64) -> Condition<'w> {
        self.compare(CompareOp::Gt, self.number(bound))
    }

    fn le(self, bound: f64) -> Condition<'w> {
        self.compare(CompareOp::Le, self.number(bound))
    }

    fn ge(self, bound: f64) -> Condition<'w> {
        self.compare(CompareOp::Ge, self.number(bound))
    }

    fn eq(self, value: f64) -> Condition<'w> {
        self.eq_value(self.number(value))
    }

    fn eq_value(self, value: Value<'w>) -> Condition<'w> {
        self.compare(CompareOp::Eq, value)
    }

    fn abs(self) -> Value<'w> {
        self.unary(UnaryOp::Abs)
    }

    fn sqrt(self) -> Value<'w> {
        self.unary(UnaryOp::Sqrt)
    }

    fn exp(self) -> Value<'w> {
        self.unary(UnaryOp::Exp)
    }

    fn expm1(self) -> Value<'w> {
        self.unary(UnaryOp::Expm1)
    }

    fn log(self) -> Value<'w> {
        self.unary(UnaryOp::Log)
    }

    fn log1p(self) -> Value<'w> {
        self.unary(UnaryOp::Log1p)
    }

    fn sin(self) -> Value<'w> {
        self.unary(UnaryOp::Sin)
    }

    fn cos(self) -> Value<'w> {
        self.unary(UnaryOp::Cos)
    }

    fn tan(self) -> Value<'w> {
        self.unary(UnaryOp::Tan)
    }

    fn tanh(self) -> Value<'w> {
        self.unary(UnaryOp::Tanh)
    }

    fn erf(self) -> Value<'w> {
        self.unary(UnaryOp::Erf)
    }

    fn ndtr(self) -> Value<'w> {
        self.unary(UnaryOp::Ndtr)
    }

    fn floor(self) -> Value<'w> {
        self.unary(UnaryOp::Floor)
    }

    fn round(self) -> Value<'w> {
        self.unary(UnaryOp::Round)
    }

    fn powi(self, n: i32) -> Value<'w> {
        self.with(Instr::Powi(n, self.reg))
    }

    fn pow(self, exponent: Value<'w>) -> Value<'w> {
        self.binary(BinaryOp::Pow, exponent)
    }

    /// The angle of the point (x, self).
    fn atan2(self, x: Value<'w>) -> Value<'w> {
        self.binary(BinaryOp::Atan2, x)
    }

    /// The polynomial c₀ + c₁·x + c₂·x² …, by Horner's rule.
    fn polynomial(self, coefficients: &[f64]) -> Value<'w> {
        let mut terms = coefficients.iter().rev();
        let first = terms.next().map_or(0.0, |&c| c);
        terms.fold(self.number(first), |sum, &c| sum * self + c)
    }

    /// sin πx from the distance d to the nearest integer n, which is exact; the sign is (−1)ⁿ.
    fn sin_pi(self) -> Value<'w> {
        let n = self.round();
        let sine = ((self - n) * PI).sin();
        let odd = (n - (n * 0.5).floor() * 2.0).eq(1.0);
        odd.choose(-sine, sine)
    }

    /// An odd function from its values for positive arguments. Zeros keep their signs.
    fn odd(self, of: impl FnOnce(Value<'w>) -> Value<'w>) -> Value<'w> {
        let y = of(self.abs());
        self.eq(0.0).choose(self, self.lt(0.0).choose(-y, y))
    }

    /// The bound beyond which 1 + 1/x² is 1 in half the digits of the dtype.
    fn large(self) -> f64 {
        if self.writer.dtype == DType::F64 { 268_435_456.0 } else { 4096.0 }
    }

    /// ln x over ln base; an exact integer if x is that power of the base.
    fn log_to_base(self, base: f64, per_ln: f64) -> Value<'w> {
        let near = self.log() * per_ln;
        let whole = near.round();
        self.number(base).pow(whole).compare(CompareOp::Eq, self).choose(whole, near)
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        impl<'w> ops::$trait<Value<'w>> for Value<'w> {
            type Output = Value<'w>;
            fn $method(self, rhs: Value<'w>) -> Value<'w> { self.binary(BinaryOp::$op, rhs) }
        }
        impl<'w> ops::$trait<f64> for Value<'w> {
            type Output = Value<'w>;
            fn $method(self, rhs: f64) -> Value<'w> { self.binary(BinaryOp::$op, self.number(rhs)) }
        }
        impl<'w> ops::$trait<Value<'w>> for f64 {
            type Output = Value<'w>;
            fn $method(self, rhs: Value<'w>) -> Value<'w> { rhs.number(self).binary(BinaryOp::$op, rhs) }
        }
    )*};
}

arithmetic! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
}

impl<'w> ops::Neg for Value<'w> {
    type Output = Value<'w>;
    fn neg(self) -> Value<'w> {
        self.unary(UnaryOp::Neg)
    }
}
