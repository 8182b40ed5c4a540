//! e^(−x²/2) and the normal distribution function, accurate in their tails: x² is computed in two parts,
//! because one rounding error in it would become a relative error of the result. See `math` for the
//! exponential function.

use super::{
    math::{Reduced, exp_reduced_parts, polynomial},
    vector::{Real, Vector},
};

/// Beyond it both functions of −|x| round to 0 in f32.
const UNDERFLOW_ARGUMENT: f32 = 14.43;
/// Beyond it both functions of −|x| round to 0 in f64.
const FAR_WIDE: f64 = 39.0;

/// The magnitude of x, at most `UNDERFLOW_ARGUMENT`; NaN stays.
#[inline(always)]
fn magnitude(x: f32) -> f32 {
    x.abs().at_most(UNDERFLOW_ARGUMENT)
}

/// e^(−a²/2) as y · 2^k with y in [0.7, 1.42]: (y, k, k and its magic number).
#[inline(always)]
fn parts<const FUSED: bool>(a: f32) -> (f32, f32, f32) {
    // Twelve bits, whose square is exact.
    let high = f32::from_bits(a.to_bits() & 0xffff_f000);
    let rest = (a - high) * (a + high);
    let Reduced { r, p, k, shifted } = exp_reduced_parts::<FUSED, f32>(-0.5 * (high * high), -0.5 * rest);
    let y = 1.0 + r;
    // The rounding error of the sum is part of r.
    let lost = r - (y - 1.0);
    (y + p.fma::<FUSED>(r * r, lost), k, shifted)
}

/// e^(−x²/2).
#[inline(always)]
pub(crate) fn gaussian<const FUSED: bool>(x: f32) -> f32 {
    let (y, k, shifted) = parts::<FUSED>(magnitude(x));
    y.times_two_to(k, shifted)
}

/// The standard normal distribution function. Below 0 it is e^(−x²/2) / (|x| + 0.797) times a polynomial in
/// (|x| − 2) / (|x| + 2) that varies little (interpolated with 40 digits, error below 8·10⁻⁹), so that only
/// its last addition has a relevant rounding error. Above 0 it is one minus that.
#[inline(always)]
pub(crate) fn ndtr<const FUSED: bool>(x: f32) -> f32 {
    let a = magnitude(x);
    let (y, k, shifted) = parts::<FUSED>(a);
    let t = (a - 2.0) / (a + 2.0);
    let p = polynomial::<FUSED, 12, f32>(
        t,
        [
            -6.149_054_4e-5,
            -8.999_755e-5,
            2.963_886_4e-4,
            8.429_157e-4,
            1.814_015_6e-5,
            -3.391_039_6e-3,
            -4.858_055e-3,
            1.071_583e-2,
            3.433_747_6e-2,
            -7.954_456e-2,
            -2.947_653e-2,
            4.701_602_8e-1,
        ],
    );
    let tail = (y * (p / (a + 0.796_875))).times_two_to(k, shifted);
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// The magnitude of x, at most `FAR_WIDE`; NaN stays.
fn magnitude_f64(x: f64) -> f64 {
    let a = x.abs();
    if a > FAR_WIDE { FAR_WIDE } else { a }
}

/// e^(−a²/2).
fn decay(a: f64) -> f64 {
    // 26 bits, whose square is exact.
    let high = f64::from_bits(a.to_bits() & 0xffff_ffff_f800_0000);
    let square = a * a;
    let lost = (high * high - square) + (a - high) * (a + high);
    (-0.5 * square).exp() * (1.0 - 0.5 * lost)
}

/// e^(−x²/2).
pub(crate) fn gaussian_f64(x: f64) -> f64 {
    decay(magnitude_f64(x))
}

/// Like [`ndtr`], with a polynomial in (|x| − 3) / (|x| + 3) (interpolated with 60 digits, error below
/// 4·10⁻¹⁹).
pub(crate) fn ndtr_f64(x: f64) -> f64 {
    const C: [f64; 28] = [
        3.774368430371549e-10,
        1.4858173355874671e-9,
        1.1492487404174587e-10,
        -8.280976050718527e-9,
        -1.3474089337377986e-8,
        1.0031497978331945e-8,
        6.122816873593555e-8,
        6.819055147953454e-8,
        -8.693935071396768e-8,
        -3.8827722640729466e-7,
        -3.615983502517177e-7,
        8.347766403137953e-7,
        2.7588337936413575e-6,
        1.0103028627800605e-6,
        -9.820787095346152e-6,
        -1.7955432122923226e-5,
        2.0556264920690085e-5,
        0.00010656518414219076,
        3.4915685991217803e-6,
        -0.000546379257035653,
        -0.0002844944006353379,
        0.003210532585926448,
        0.0005705278940377296,
        -0.023975425082776863,
        0.05455099845487757,
        -0.041462248688900846,
        -0.054601227336313334,
        0.4613732726625251,
    ];
    let a = magnitude_f64(x);
    let t = (a - 3.0) / (a + 3.0);
    let p = C.iter().fold(0.0, |p, c| p * t + c);
    let tail = decay(a) * (p / (a + 0.796_875));
    if x > 0.0 { 1.0 - tail } else { tail }
}
