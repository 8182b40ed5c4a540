//! Real functions of f32, branch-free so that loops over them vectorise.
//!
//! The common ones are computed in f32, which fits twice as many numbers into a register. The argument is
//! reduced to a short interval with constants in two or three parts, so that the reduction is exact or
//! nearly exact, and a polynomial computes the rest (most are from the Cephes library). The others are
//! computed in f64 and rounded once. All are within 2 units in the last place (the normal distribution
//! function within 3); the test at the end checks this. Special values result from the arithmetic or from a
//! final selection.
//!
//! `FUSED` functions use fused multiply-add, for instruction sets that have it: a third fewer operations,
//! and different last bits.

pub(crate) use crate::simd::gaussian::{gaussian, gaussian_f64, ndtr, ndtr_f64};
use crate::simd::vector::{Function, Real, Vector, two_to};

/// Adding and subtracting it rounds an f64 of moderate size to an integer, which then stands in its low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52

/// 2^k for the integer in the low bits of `k + MAGIC`, |k| < 1022.
#[inline(always)]
fn power_of_two(shifted: f64) -> f64 {
    f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

#[inline(always)]
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    // Comparisons with NaN are false, so NaN is returned unchanged.
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// (2^r − 1) / r for |r| ≤ ½: the series of 2^r.
#[inline(always)]
fn exp2_tail(r: f64) -> f64 {
    const L: f64 = std::f64::consts::LN_2;
    const C: [f64; 9] = [
        L,
        L * L / 2.0,
        L * L * L / 6.0,
        L * L * L * L / 24.0,
        L * L * L * L * L / 120.0,
        L * L * L * L * L * L / 720.0,
        L * L * L * L * L * L * L / 5040.0,
        L * L * L * L * L * L * L * L / 40320.0,
        L * L * L * L * L * L * L * L * L / 362_880.0,
    ];
    let mut p = C[8];
    let mut i = 8;
    while i > 0 {
        i -= 1;
        p = p * r + C[i];
    }
    p
}

/// 2^t, for t within ±200 (the range of f32 and more).
#[inline(always)]
fn exp2(t: f64) -> f64 {
    let t = clamp(t, -200.0, 200.0);
    let shifted = t + MAGIC;
    let r = t - (shifted - MAGIC);
    (1.0 + r * exp2_tail(r)) * power_of_two(shifted)
}

/// e^x − 1 in f64, accurate near 0.
#[inline(always)]
fn expm1_wide(x: f64) -> f64 {
    let t = clamp(x * std::f64::consts::LOG2_E, -200.0, 200.0);
    let shifted = t + MAGIC;
    let r = t - (shifted - MAGIC);
    let scale = power_of_two(shifted);
    scale * (r * exp2_tail(r)) + (scale - 1.0)
}

/// ln x for a finite, positive, normal f64.
#[inline(always)]
fn ln_wide(x: f64) -> f64 {
    // x = 2^e · m with m in [√½, √2); ln m = 2·atanh((m − 1) / (m + 1)).
    const ROOT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let bits = x.to_bits();
    let e = (bits.wrapping_sub(ROOT_HALF) as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((e as u64) << 52));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let p = 2.0 / 15.0;
    let p = p * z + 2.0 / 13.0;
    let p = p * z + 2.0 / 11.0;
    let p = p * z + 2.0 / 9.0;
    let p = p * z + 2.0 / 7.0;
    let p = p * z + 2.0 / 5.0;
    let p = p * z + 2.0 / 3.0;
    let p = p * z + 2.0;
    f64::from(e as i32) * std::f64::consts::LN_2 + s * p
}

/// The polynomial with these coefficients, the highest power's first.
#[inline(always)]
pub(super) fn polynomial<const FUSED: bool, const N: usize, V: Real>(x: V, coefficients: [f32; N]) -> V {
    let mut p = V::splat(coefficients[0]);
    let mut i = 1;
    while i < N {
        p = p.fma::<FUSED>(x, V::splat(coefficients[i]));
        i += 1;
    }
    p
}

/// As [`MAGIC`], for f32.
const MAGIC_F32: f32 = 12_582_912.0; // 1.5 · 2^23

/// x = k·ln 2 + r with e^r = 1 + r + r²·p.
pub(super) struct Reduced<V> {
    pub(super) r: V,
    pub(super) p: V,
    pub(super) k: V,
    /// k + [`MAGIC_F32`].
    pub(super) shifted: V,
}

/// The reduction for x within ±150.
#[inline(always)]
fn exp_reduced<const FUSED: bool, V: Real>(x: V) -> Reduced<V> {
    let (k, shifted) = whole_exponent::<FUSED, V>(x);
    reduced_by::<FUSED, V>(without_exponent::<FUSED, V>(x, k), k, shifted)
}

/// The reduction for the sum of a number within ±150 and a much smaller one.
#[inline(always)]
pub(super) fn exp_reduced_parts<const FUSED: bool, V: Real>(x: V, rest: V) -> Reduced<V> {
    let (k, shifted) = whole_exponent::<FUSED, V>(x + rest);
    reduced_by::<FUSED, V>(without_exponent::<FUSED, V>(x, k) + rest, k, shifted)
}

/// The whole number k nearest to x / ln 2, and k + [`MAGIC_F32`].
#[inline(always)]
fn whole_exponent<const FUSED: bool, V: Real>(x: V) -> (V, V) {
    let magic = V::splat(MAGIC_F32);
    let shifted = x.fma::<FUSED>(V::splat(std::f32::consts::LOG2_E), magic);
    (shifted - magic, shifted)
}

/// x − k·ln 2.
#[inline(always)]
fn without_exponent<const FUSED: bool, V: Real>(x: V, k: V) -> V {
    // ln 2 in two parts; the product of the first with an exponent is exact.
    const HIGH: f32 = 0.693_359_4;
    const LOW: f32 = -2.121_944_4e-4;
    k.fma::<FUSED>(V::splat(-LOW), k.fma::<FUSED>(V::splat(-HIGH), x))
}

#[inline(always)]
fn reduced_by<const FUSED: bool, V: Real>(r: V, k: V, shifted: V) -> Reduced<V> {
    let p = polynomial::<FUSED, 6, V>(
        r,
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5],
    );
    Reduced { r, p, k, shifted }
}

/// e^x as y · 2^k with y in [0.7, 1.42], for x within ±150: (y, k, k + [`MAGIC_F32`]). y is within 0.8 units
/// in the last place.
#[inline(always)]
fn exp_parts<const FUSED: bool>(x: f32) -> (f32, f32, f32) {
    let Reduced { r, p, k, shifted } = exp_reduced::<FUSED, f32>(x);
    // The rounding error of 1 + r is not negligible.
    let y = 1.0 + r;
    let rest = r - (y - 1.0);
    (y + p.fma::<FUSED>(r * r, rest), k, shifted)
}

/// e^x; infinity or 0 beyond the range of f32.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool, V: Real>(x: V) -> V {
    let x = x.at_least(-104.0).at_most(89.0);
    let Reduced { r, p, k, shifted } = exp_reduced::<FUSED, V>(x);
    (V::splat(1.0) + p.fma::<FUSED>(r * r, r)).times_two_to(k, shifted)
}

/// [`exp`] with fused multiply-add.
pub(crate) struct Exp;

impl Function for Exp {
    #[inline(always)]
    fn of<V: Real>(&self, x: V) -> V {
        exp::<true, V>(x)
    }
}

#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let y = expm1_wide(f64::from(x)) as f32;
    // The sum above would lose the sign of −0.
    if x == 0.0 { x } else { y }
}

/// ln x + extra · ln 2 for a finite, positive, normal x.
#[inline(always)]
fn log_finite<const FUSED: bool>(x: f32, extra: f32) -> f32 {
    const ROOT_HALF: u32 = 0x3f35_04f3;
    // x = 2^e · (1 + f) with 1 + f in [√½, √2).
    let bits = x.to_bits();
    let exponent = (bits.wrapping_sub(ROOT_HALF) as i32) >> 23;
    let f = f32::from_bits(bits.wrapping_sub((exponent as u32) << 23)) - 1.0;
    let e = exponent as f32 + extra;
    let z = f * f;
    let p = polynomial::<FUSED, 9, f32>(
        f,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_8e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_4e-1,
            -2.499_999_4e-1,
            3.333_333e-1,
        ],
    );
    // ln 2 in two parts; the smaller one is added first.
    let y = e.fma::<FUSED>(-2.121_944_4e-4, f * z * p);
    let y = (-0.5f32).fma::<FUSED>(z, y) + f;
    e.fma::<FUSED>(0.693_359_4, y)
}

/// ln x.
#[inline(always)]
pub(crate) fn log<const FUSED: bool>(x: f32) -> f32 {
    let small = x < f32::MIN_POSITIVE;
    let scaled = if small { x * 8_388_608.0 } else { x };
    let extra = if small { -23.0 } else { 0.0 };
    let y = log_finite::<FUSED>(scaled, extra);
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    if x < f32::INFINITY { y } else { x }
}

#[inline(always)]
pub(crate) fn log1p(x: f32) -> f32 {
    let wide = f64::from(x);
    let y = 1.0 + wide;
    // The rounding error of the sum matters for tiny x.
    let lost = wide - (y - 1.0);
    let r = (ln_wide(y) + lost / y) as f32;
    let r = if x == -1.0 { f32::NEG_INFINITY } else { r };
    let r = if x < -1.0 { f32::NAN } else { r };
    let r = if x == 0.0 { x } else { r };
    if x < f32::INFINITY { r } else { x }
}

#[inline(always)]
pub(crate) fn tanh<const FUSED: bool>(x: f32) -> f32 {
    let size = x.abs();
    // Beyond 10 the result is 1.
    let bounded = if size > 10.0 { 10.0 } else { size };
    let (y, _, shifted) = exp_parts::<FUSED>(bounded + bounded);
    let e = y * two_to(shifted, 0);
    let large = 1.0 - 2.0 / (e + 1.0);
    let large = if x < 0.0 { -large } else { large };
    let z = x * x;
    let p = polynomial::<FUSED, 5, f32>(
        z,
        [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1],
    );
    let small = x.fma::<FUSED>(z * p, x);
    let small = if x == 0.0 { x } else { small };
    if size < 0.625 { small } else { large }
}

#[inline(always)]
pub(crate) fn sigmoid<const FUSED: bool>(x: f32) -> f32 {
    // e^−|x| never overflows.
    let size = x.abs();
    let size = if size > 104.0 { 104.0 } else { size };
    let (y, k, shifted) = exp_parts::<FUSED>(-size);
    let e = y.times_two_to(k, shifted);
    let top = if x < 0.0 { e } else { 1.0 };
    let sum = 1.0 + e;
    // The rounding error of the sum matters. It is multiplied by 1 / sum; the approximation 1 − e/2 is
    // sufficient.
    let lost = e - (sum - 1.0);
    let y = top / sum;
    y - y * lost * (1.0 - 0.5 * e)
}

/// The error function: an odd polynomial near 0; from 0.93 on 1 − e^p(|x|), with a polynomial p for ln(1 −
/// erf). Both are minimax fits by N. Juffa.
#[inline(always)]
pub(crate) fn erf<const FUSED: bool>(x: f32) -> f32 {
    let (t, s) = (x.abs(), x * x);
    let p = polynomial::<FUSED, 6, f32>(
        s,
        [-5.967_617e-4, 4.991_194e-3, -2.676_813_5e-2, 1.128_199_2e-1, -3.761_253_4e-1, 1.283_791_7e-1],
    );
    let small = p.fma::<FUSED>(x, x);
    let p = polynomial::<FUSED, 7, f32>(
        t,
        [
            -1.728_534_7e-5,
            3.831_971_3e-4,
            -3.883_964_4e-3,
            2.425_462_2e-2,
            -1.067_778_8e-1,
            -6.348_468_7e-1,
            -1.287_175_1e-1,
        ],
    );
    let large = 1.0 - exp::<FUSED, f32>(p.fma::<FUSED>(t, -t));
    let large = if x < 0.0 { -large } else { large };
    if t > 0.927_734_4 { large } else { small }
}

/// Beyond this the reduction by multiples of π/2 below loses bits; [`is_wide_angle`] sends such arguments
/// elsewhere.
const MAX_ANGLE: f32 = 1e5;

#[inline(always)]
pub(crate) fn is_wide_angle(x: f32) -> bool {
    x.is_nan() || x.abs() > MAX_ANGLE
}

/// π/2 in two parts: a product of the first with a quadrant number is exact.
const HALF_PI_HIGH: f64 = f64::from_bits(0x3ff9_21fb_5440_0000);
const HALF_PI_LOW: f64 = 6.077_100_506_506_192e-11;

/// (sin x, cos x) for |x| ≤ 10⁵ in f64.
#[inline(always)]
fn sin_cos_wide(x: f64) -> (f64, f64) {
    let shifted = x * std::f64::consts::FRAC_2_PI + MAGIC;
    let k = shifted - MAGIC;
    let quadrant = shifted.to_bits();
    let r = (x - k * HALF_PI_HIGH) - k * HALF_PI_LOW;
    let z = r * r;
    let s = -1.0 / 39_916_800.0;
    let s = s * z + 1.0 / 362_880.0;
    let s = s * z - 1.0 / 5040.0;
    let s = s * z + 1.0 / 120.0;
    let s = s * z - 1.0 / 6.0;
    let s = r + r * z * s;
    let c = 1.0 / 479_001_600.0;
    let c = c * z - 1.0 / 3_628_800.0;
    let c = c * z + 1.0 / 40_320.0;
    let c = c * z - 1.0 / 720.0;
    let c = c * z + 1.0 / 24.0;
    let c = c * z - 0.5;
    let c = 1.0 + z * c;
    let swapped = quadrant & 1 == 1;
    let (sin, cos) = if swapped { (c, s) } else { (s, c) };
    let sin = f64::from_bits(sin.to_bits() ^ (quadrant & 2) << 62);
    let cos = f64::from_bits(cos.to_bits() ^ (quadrant.wrapping_add(1) & 2) << 62);
    (sin, cos)
}

/// (sin x, cos x) for |x| ≤ 10⁵: the reduction in f64, the rest in f32.
#[inline(always)]
fn sin_cos<const FUSED: bool>(x: f32) -> (f32, f32) {
    let shifted = x * std::f32::consts::FRAC_2_PI + MAGIC_F32;
    let quadrant = shifted.to_bits();
    let k = f64::from(shifted - MAGIC_F32);
    let r = ((f64::from(x) - k * HALF_PI_HIGH) - k * HALF_PI_LOW) as f32;
    sin_cos_quarter::<FUSED>(r, quadrant)
}

/// (sin, cos) of r + π/2 · quadrant, for |r| slightly above π/4 at most.
#[inline(always)]
fn sin_cos_quarter<const FUSED: bool>(r: f32, quadrant: u32) -> (f32, f32) {
    let z = r * r;
    let s = polynomial::<FUSED, 3, f32>(z, [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]);
    let s = r.fma::<FUSED>(z * s, r);
    let c = polynomial::<FUSED, 5, f32>(z, [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2, -0.5, 1.0]);
    let swapped = quadrant & 1 == 1;
    let (sin, cos) = if swapped { (c, s) } else { (s, c) };
    let sin = f32::from_bits(sin.to_bits() ^ (quadrant & 2) << 30);
    let cos = f32::from_bits(cos.to_bits() ^ (quadrant.wrapping_add(1) & 2) << 30);
    (sin, cos)
}

#[inline(always)]
pub(crate) fn sin<const FUSED: bool>(x: f32) -> f32 {
    let y = sin_cos::<FUSED>(x).0;
    if x == 0.0 { x } else { y }
}

#[inline(always)]
pub(crate) fn cos<const FUSED: bool>(x: f32) -> f32 {
    sin_cos::<FUSED>(x).1
}

/// 2⁻²⁴: uniform numbers of f32 on [0, 1) are its multiples.
pub(crate) const E24: f32 = 1.0 / 16_777_216.0;

/// A standard normal number from two words by the Box-Muller transform: √(−2 ln u₁)·cos(2π u₂), as
/// [`tensor_core::RandomKind::Normal`] specifies. The angle is reduced in turns, which is exact, so the
/// result has the relative accuracy of the logarithm and of the cosine.
#[inline(always)]
pub(crate) fn normal<const FUSED: bool>(w0: u32, w1: u32) -> f32 {
    // Converted as i32, which more instruction sets support: both are below 2^24.
    let u1 = ((w0 >> 8) + 1) as i32 as f32 * E24;
    let quarters = (w1 >> 8) as i32 as f32 * (4.0 * E24);
    let shifted = quarters + MAGIC_F32;
    let quadrant = shifted.to_bits();
    let r = (quarters - (shifted - MAGIC_F32)) * std::f32::consts::FRAC_PI_2;
    (-2.0 * log_finite::<FUSED>(u1, 0.0)).sqrt() * sin_cos_quarter::<FUSED>(r, quadrant).1
}

#[inline(always)]
pub(crate) fn tan(x: f32) -> f32 {
    let (s, c) = sin_cos_wide(f64::from(x));
    let y = (s / c) as f32;
    if x == 0.0 { x } else { y }
}

/// The angle of the point (x, y), computed in f64 and rounded once. A series of the smaller magnitude over
/// the greater one; from tan π/8 on the angle is taken relative to π/4.
#[inline(always)]
pub(crate) fn atan2(y: f32, x: f32) -> f32 {
    // Stands for infinity: far greater than every f32, so two infinities are equal, and a finite number
    // over an infinity rounds to 0.
    const INFINITE: f64 = 1e300;
    const TAN_8TH: f64 = 0.414_213_562_373_095_03;
    let (u, v) = (f64::from(x).abs(), f64::from(y).abs());
    let u = if u > INFINITE { INFINITE } else { u };
    let v = if v > INFINITE { INFINITE } else { v };
    let steep = v > u;
    let (low, high) = if steep { (u, v) } else { (v, u) };
    let high = if high == 0.0 { 1.0 } else { high };
    let far = low > TAN_8TH * high;
    let (numerator, denominator) = if far { (low - high, low + high) } else { (low, high) };
    let r = numerator / denominator;
    let z = r * r;
    let mut p = 1.0 / 25.0;
    let mut k = 11;
    while k > 0 {
        p = 1.0 / f64::from(2 * k + 1) - p * z;
        k -= 1;
    }
    let angle = r - r * z * p;
    let angle = if far { angle + std::f64::consts::FRAC_PI_4 } else { angle };
    let angle = if steep { std::f64::consts::FRAC_PI_2 - angle } else { angle };
    let angle = if x.is_sign_negative() { std::f64::consts::PI - angle } else { angle };
    // A comparison with NaN is false, so a NaN may have been lost.
    let angle = if x.is_nan() || y.is_nan() { f64::NAN } else { angle };
    (angle as f32).copysign(y)
}

/// Whether [`pow`] is correct: for a positive finite base and a finite exponent. Other pairs go to the
/// standard library.
#[inline(always)]
pub(crate) fn is_plain_power(x: f32, y: f32) -> bool {
    x > 0.0 && x < f32::INFINITY && y.abs() < f32::INFINITY
}

#[inline(always)]
pub(crate) fn pow(x: f32, y: f32) -> f32 {
    power_by_log(log2_wide(x), y)
}

/// log₂ x for a positive finite x.
#[inline(always)]
pub(crate) fn log2_wide(x: f32) -> f64 {
    ln_wide(f64::from(x)) * std::f64::consts::LOG2_E
}

/// 2^(y · log): [`pow`] for one base and many exponents. Any exponent is allowed if `log` is not 0.
#[inline(always)]
pub(crate) fn power_by_log(log: f64, y: f32) -> f32 {
    exp2(f64::from(y) * log) as f32
}

/// a / b rounded down; 0 for b = 0.
#[inline(always)]
pub(crate) fn quotient(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { (a / b).floor() }
}

/// Whether [`short_floor_divide`] and [`short_remainder`] are correct, as for most pairs. The others go to
/// [`FloorDivide`].
#[inline(always)]
pub(crate) fn is_short_quotient(a: f32, b: f32) -> bool {
    (f64::from(a) / f64::from(b)).abs() < EXACT_QUOTIENT && b.abs() < f32::INFINITY
}

#[inline(always)]
pub(crate) fn short_floor_divide(a: f32, b: f32) -> f32 {
    (f64::from(a) / f64::from(b)).floor() as f32
}

/// A truncated quotient has at most 22 bits, and its product with the divisor at most 46: nothing is
/// rounded.
#[inline(always)]
pub(crate) fn short_remainder(a: f32, b: f32) -> f32 {
    let (wide, divisor) = (f64::from(a), f64::from(b));
    let rest = (wide - (wide / divisor).trunc() * divisor) as f32;
    let rest = if rest == 0.0 { 0.0f32.copysign(a) } else { rest };
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

/// Floor division and its remainder, as Python and PyTorch define them. They are computed from the exact
/// remainder of a truncated division, so 1.0 contains 0.1 nine times with a rest.
pub(crate) trait FloorDivide {
    fn floor_divide(self, divisor: Self) -> Self;
    /// The remainder, with the divisor's sign.
    fn remainder(self, divisor: Self) -> Self;
}

macro_rules! floor_divide {
    ($t:ty, |$a:ident, $b:ident| $simple:expr) => {
        impl FloorDivide for $t {
            #[inline(always)]
            fn floor_divide(self, divisor: $t) -> $t {
                let ($a, $b) = (self, divisor);
                if let Some(quotient) = $simple { quotient } else { by_remainder::<$t>(self, divisor) }
            }

            #[inline(always)]
            fn remainder(self, divisor: $t) -> $t {
                let rest = self % divisor;
                if rest != 0.0 && (rest < 0.0) != (divisor < 0.0) { rest + divisor } else { rest }
            }
        }

        impl ByRemainder for $t {
            fn by_remainder(a: $t, b: $t) -> $t {
                if b == 0.0 {
                    return a / b;
                }
                let rest = a % b;
                let mut quotient = (a - rest) / b;
                if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
                    quotient -= 1.0;
                }
                if quotient == 0.0 {
                    return (0.0 as $t).copysign(a / b);
                }
                let floor = quotient.floor();
                if quotient - floor > 0.5 { floor + 1.0 } else { floor }
            }
        }
    };
}

trait ByRemainder {
    fn by_remainder(a: Self, b: Self) -> Self;
}

/// PyTorch's `div_floor_floating`.
#[inline(never)]
fn by_remainder<T: ByRemainder>(a: T, b: T) -> T {
    T::by_remainder(a, b)
}

/// Quotients of f32 below this are whole numbers of f32, and so far from the next one unless they are it that
/// f64 tells.
const EXACT_QUOTIENT: f64 = 4_194_304.0;

floor_divide!(f32, |a, b| {
    let quotient = f64::from(a) / f64::from(b);
    (quotient.abs() < EXACT_QUOTIENT && b.is_finite()).then(|| quotient.floor() as f32)
});
floor_divide!(f64, |_a, _b| None);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_within_two_ulp() {
        let special = [
            0.0f32,
            -0.0,
            1.0,
            -1.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MAX,
            f32::MIN_POSITIVE,
            1e-45,
        ];
        for y in sweep().step_by(97).chain(special) {
            let near = [y, -y, y * 0.414_213_57, y * 2.414_213_7, y * 1e-3, y.sqrt()];
            for x in special.into_iter().chain(near).chain([0.3, -7.0, 1e20, 3e-39]) {
                for (y, x) in [(y, x), (x, y)] {
                    let (found, exact) = (atan2(y, x), f64::from(y).atan2(f64::from(x)));
                    let off = ulps(found, exact);
                    let sign = found.is_nan() || found.is_sign_negative() == exact.is_sign_negative();
                    assert!(off <= 2.0 && sign, "atan2({y:e}, {x:e}) is {found:e}, {off} ulp off");
                }
            }
        }
    }

    #[test]
    fn short_quotients_are_those_by_remainder() {
        let special =
            [0.0f32, -0.0, 1.0, 0.1, 5.0, f32::MIN_POSITIVE, 1e-45, f32::MAX, f32::INFINITY, f32::NAN];
        let mut bits = 1u32;
        let spread = (0..2000).map(|_| {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(bits)
        });
        let whole =
            (1..60).flat_map(|i| [i as f32, i as f32 * 0.1, (i as f32 * 0.1).next_up(), i as f32 / 3.0]);
        let all: Vec<f32> = special.into_iter().chain(spread).chain(whole).flat_map(|x| [x, -x]).collect();
        for &a in &all {
            for &b in &all {
                let (found, expected) = (a.floor_divide(b), by_remainder(a, b));
                let same = |found: f32, expected: f32| {
                    found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan())
                };
                assert!(same(found, expected), "{a:e} by {b:e}: {found:e}, not {expected:e}");
                if is_short_quotient(a, b) {
                    assert!(same(short_floor_divide(a, b), expected), "{a:e} by {b:e}");
                    let (found, expected) = (short_remainder(a, b), a.remainder(b));
                    assert!(same(found, expected), "the rest of {a:e} by {b:e}: {found:e}, not {expected:e}");
                }
            }
        }
    }

    /// The distance from the exact value, in units of the last place.
    fn ulps(found: f32, exact: f64) -> f64 {
        let expected = exact as f32;
        if found == expected || (found.is_nan() && expected.is_nan()) {
            return 0.0;
        }
        if !expected.is_finite() || !found.is_finite() {
            return f64::INFINITY;
        }
        let spacing = f64::from(f32::from_bits(expected.abs().max(f32::MIN_POSITIVE).to_bits() + 1))
            - f64::from(expected.abs().max(f32::MIN_POSITIVE));
        (f64::from(found) - exact).abs() / spacing
    }

    /// Floats over the whole range and with both signs, including denormals and special values.
    fn sweep() -> impl Iterator<Item = f32> {
        let special = [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MIN_POSITIVE,
            1e-45,
            -1e-45,
            1.0,
            -1.0,
        ];
        (0..u32::MAX / 4099).map(|i| f32::from_bits(i * 4099)).chain(special)
    }

    fn check(name: &str, f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64, holds: impl Fn(f32) -> bool) {
        check_within(2.0, name, f, exact, holds);
    }

    fn check_within(
        most: f64,
        name: &str,
        f: impl Fn(f32) -> f32,
        exact: impl Fn(f64) -> f64,
        holds: impl Fn(f32) -> bool,
    ) {
        let (mut worst, mut at) = (0.0, 0.0);
        for x in sweep().filter(|&x| holds(x)) {
            let off = ulps(f(x), exact(f64::from(x)));
            if off > worst {
                (worst, at) = (off, x);
            }
        }
        assert!(worst <= most, "{name} is {worst} ulp off at {at:e}");
    }

    fn check_both<const FUSED: bool>() {
        let all = |_: f32| true;
        let logistic = |x: f64| if x < -700.0 { 0.0 } else { 1.0 / (1.0 + (-x).exp()) };
        check("exp", exp::<FUSED, f32>, f64::exp, all);
        check("log", log::<FUSED>, f64::ln, all);
        check("tanh", tanh::<FUSED>, f64::tanh, all);
        check("sigmoid", sigmoid::<FUSED>, logistic, all);
        check("erf", erf::<FUSED>, libm::erf, all);
        check("gaussian", gaussian::<FUSED>, gaussian_f64, all);
        check_within(3.0, "ndtr", ndtr::<FUSED>, ndtr_f64, all);
        check("sin", sin::<FUSED>, f64::sin, |x| !is_wide_angle(x));
        check("cos", cos::<FUSED>, f64::cos, |x| !is_wide_angle(x));
    }

    #[test]
    fn functions_are_within_two_ulp_over_the_whole_range() {
        check_both::<false>();
        check_both::<true>();
        let all = |_: f32| true;
        check("expm1", expm1, f64::exp_m1, all);
        check("log1p", log1p, f64::ln_1p, all);
        check("tan", tan, f64::tan, |x| !is_wide_angle(x));
        for y in [0.5f32, -0.5, 2.0, 3.7, -11.3, 0.001, 100.0, 1e10] {
            check("pow", |x| pow(x, y), |x| x.powf(f64::from(y)), |x| is_plain_power(x, y));
        }
    }

    fn check_normal<const FUSED: bool>() {
        let ends = [0u32, 255, 256, 1 << 30, (1 << 30) + 256, 1 << 31, 3 << 30, u32::MAX - 255, u32::MAX];
        let spread = (0..40_000u32).map(|i| i.wrapping_mul(2_654_435_761));
        for w0 in ends.into_iter().chain(spread.clone()) {
            for w1 in ends.into_iter().chain([w0.wrapping_mul(48_271), !w0]) {
                let u1 = f64::from((w0 >> 8) + 1) / 16_777_216.0;
                let quarters = f64::from(w1 >> 8) / 4_194_304.0;
                // Library cosines of quarter turns are not exactly 0.
                let cos =
                    if quarters % 2.0 == 1.0 { 0.0 } else { (quarters * std::f64::consts::FRAC_PI_2).cos() };
                let off = ulps(normal::<FUSED>(w0, w1), (-2.0 * u1.ln()).sqrt() * cos);
                assert!(off <= 4.0, "normal({w0:#x}, {w1:#x}) is {off} ulp off");
            }
        }
    }

    #[test]
    fn normal_numbers_are_within_four_ulp() {
        check_normal::<false>();
        check_normal::<true>();
    }

    #[test]
    fn zeros_keep_their_sign() {
        for f in [
            expm1,
            log1p,
            tanh::<false>,
            tanh::<true>,
            erf::<false>,
            erf::<true>,
            sin::<false>,
            sin::<true>,
            tan,
        ] {
            assert_eq!(f(-0.0).to_bits(), (-0.0f32).to_bits());
        }
    }
}
