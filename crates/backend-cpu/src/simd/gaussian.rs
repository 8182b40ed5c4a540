//! e^(−x²/2) and the integral of the normal density, accurate in their tails: x² is taken in two parts, as
//! one rounding of it would be of the exponent. See `math` for the exponential function.

use super::{
    math::{Reduced, exp_reduced_parts, polynomial},
    vector::{Real, Vector},
};

/// Beyond it both functions of −|x| round to 0 in f32.
const FAR: f32 = 14.43;
/// Beyond it both functions of −|x| round to 0 in f64.
const FAR_WIDE: f64 = 39.0;

/// The magnitude of x, at most `FAR`; NaN stays.
#[inline(always)]
fn magnitude(x: f32) -> f32 {
    x.abs().at_most(FAR)
}

/// e^(−a²/2) as y · 2^k with y in [0.7, 1.42]: (y, k, k and its magic number).
#[inline(always)]
fn parts<const FUSED: bool>(a: f32) -> (f32, f32, f32) {
    // Twelve bits, whose square is exact.
    let high = f32::from_bits(a.to_bits() & 0xffff_f000);
    let rest = (a - high) * (a + high);
    let Reduced { r, p, k, shifted } = exp_reduced_parts::<FUSED, f32>(-0.5 * (high * high), -0.5 * rest);
    let y = 1.0 + r;
    // The sum rounds away a part of r.
    let lost = r - (y - 1.0);
    (y + p.fma::<FUSED>(r * r, lost), k, shifted)
}

/// e^(−x²/2).
#[inline(always)]
pub(crate) fn gaussian<const FUSED: bool>(x: f32) -> f32 {
    let (y, k, shifted) = parts::<FUSED>(magnitude(x));
    y.times_two_to(k, shifted)
}

/// The standard normal distribution function. Below 0 it is e^(−x²/2) / (|x| + 0.797) times a polynomial in (|x| − 2) / (|x| + 2) that
/// varies little (by interpolation in 40 digits, within 8·10⁻⁹), so that its last addition rounds all that
/// counts; above, one minus that.
#[inline(always)]
pub(crate) fn ndtr<const FUSED: bool>(x: f32) -> f32 {
    let a = magnitude(x);
    let (y, k, shifted) = parts::<FUSED>(a);
    let t = (a - 2.0) / (a + 2.0);
    let p = polynomial::<FUSED, 12, f32>(
        t,
        [
            -6.149_054_5e-5,
            -8.999_755e-5,
            2.963_886_4e-4,
            8.429_157e-4,
            1.814_015_5e-5,
            -3.391_039_6e-3,
            -4.858_055e-3,
            1.071_583e-2,
            3.433_747_5e-2,
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

/// The standard normal distribution function: below 0, e^(−x²/2) times a polynomial in (|x| − 3) / (|x| + 3) over |x| + 3 (by
/// interpolation in 60 digits, within 6·10⁻¹⁹), above one minus that.
pub(crate) fn ndtr_f64(x: f64) -> f64 {
    const C: [f64; 28] = [
        1.853823300627793e-10,
        1.079189068075999e-9,
        1.4252105093919409e-9,
        -3.999887750875946e-9,
        -1.440062696166265e-8,
        -7.735154015632275e-9,
        3.96866938921755e-8,
        9.292532292779045e-8,
        2.5687341103911424e-8,
        -2.7640507107728444e-7,
        -5.806605136912567e-7,
        1.3227045413449227e-8,
        2.2502257711536887e-6,
        3.636473976765501e-6,
        -3.5154488596552077e-6,
        -2.0687747756193363e-5,
        -1.3246608540527917e-5,
        7.881234238811091e-5,
        1.5439456126025726e-4,
        -2.565752991192948e-4,
        -1.0458286326754873e-3,
        1.0275922552408384e-3,
        6.972621241030709e-3,
        -1.0462867023151018e-2,
        -4.7263025142986345e-2,
        2.3001771997460116e-1,
        -5.093319819174894e-1,
        7.29083690133373e-1,
    ];
    let a = magnitude_f64(x);
    let t = (a - 3.0) / (a + 3.0);
    let p = C.iter().fold(0.0, |p, c| p * t + c);
    let tail = decay(a) * (p / (a + 3.0));
    if x > 0.0 { 1.0 - tail } else { tail }
}
