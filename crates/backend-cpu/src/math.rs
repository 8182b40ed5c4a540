//! Real functions of f32, branch-free so that loops over them vectorise.
//!
//! Each is computed in f64, with polynomials good to some 10⁻¹⁰, and rounded once: at most a unit in the last place off,
//! without the care that f32 arithmetic would need. Special values fall out of the arithmetic or of a final selection.

/// Adding and subtracting it rounds an f64 of moderate size to an integer, which then stands in its low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52

/// 2^k for the integer in the low bits of `k + MAGIC`, |k| < 1022.
#[inline(always)]
fn power_of_two(shifted: f64) -> f64 {
    f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

#[inline(always)]
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    // Comparisons are false for NaN, which passes.
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

#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    exp2(f64::from(x) * std::f64::consts::LOG2_E) as f32
}

#[inline(always)]
pub(crate) fn expm1(x: f32) -> f32 {
    let y = expm1_wide(f64::from(x)) as f32;
    // The sum above would lose the sign of −0.
    if x == 0.0 { x } else { y }
}

#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    let y = ln_wide(f64::from(x)) as f32;
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    if x < f32::INFINITY { y } else { x }
}

#[inline(always)]
pub(crate) fn log1p(x: f32) -> f32 {
    let wide = f64::from(x);
    let y = 1.0 + wide;
    // What the sum rounded away counts when x is tiny.
    let lost = wide - (y - 1.0);
    let r = (ln_wide(y) + lost / y) as f32;
    let r = if x == -1.0 { f32::NEG_INFINITY } else { r };
    let r = if x < -1.0 { f32::NAN } else { r };
    let r = if x == 0.0 { x } else { r };
    if x < f32::INFINITY { r } else { x }
}

#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let e = expm1_wide(clamp(2.0 * f64::from(x), -60.0, 60.0));
    let y = (e / (e + 2.0)) as f32;
    if x == 0.0 { x } else { y }
}

#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + exp2(-f64::from(x) * std::f64::consts::LOG2_E))) as f32
}

/// Beyond this the reduction by multiples of π/2 below loses bits; [`is_wide_angle`] sends such arguments elsewhere.
const MAX_ANGLE: f32 = 1e5;

#[inline(always)]
pub(crate) fn is_wide_angle(x: f32) -> bool {
    x.is_nan() || x.abs() > MAX_ANGLE
}

/// (sin x, cos x) for |x| ≤ 10⁵.
#[inline(always)]
fn sin_cos_wide(x: f64) -> (f64, f64) {
    // π/2 in two parts: a product of the first with a quadrant number is exact.
    const HIGH: f64 = f64::from_bits(0x3ff9_21fb_5440_0000);
    const LOW: f64 = 6.077_100_506_506_192e-11;
    let shifted = x * std::f64::consts::FRAC_2_PI + MAGIC;
    let k = shifted - MAGIC;
    let quadrant = shifted.to_bits();
    let r = (x - k * HIGH) - k * LOW;
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

#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    let y = sin_cos_wide(f64::from(x)).0 as f32;
    if x == 0.0 { x } else { y }
}

#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    sin_cos_wide(f64::from(x)).1 as f32
}

#[inline(always)]
pub(crate) fn tan(x: f32) -> f32 {
    let (s, c) = sin_cos_wide(f64::from(x));
    let y = (s / c) as f32;
    if x == 0.0 { x } else { y }
}

/// Whether [`pow`] holds: a positive finite base and a finite exponent. All else goes to the standard library.
#[inline(always)]
pub(crate) fn is_plain_power(x: f32, y: f32) -> bool {
    x > 0.0 && x < f32::INFINITY && y.abs() < f32::INFINITY
}

#[inline(always)]
pub(crate) fn pow(x: f32, y: f32) -> f32 {
    exp2(f64::from(y) * (ln_wide(f64::from(x)) * std::f64::consts::LOG2_E)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance in units of the last place of the correctly rounded value.
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

    /// Floats over the whole range, both signs, denormals and special values among them.
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
        let (mut worst, mut at) = (0.0, 0.0);
        for x in sweep().filter(|&x| holds(x)) {
            let off = ulps(f(x), exact(f64::from(x)));
            if off > worst {
                (worst, at) = (off, x);
            }
        }
        assert!(worst <= 2.0, "{name} is {worst} ulp off at {at:e}");
    }

    #[test]
    fn functions_are_within_two_ulp_over_the_whole_range() {
        let all = |_: f32| true;
        check("exp", exp, f64::exp, all);
        check("expm1", expm1, f64::exp_m1, all);
        check("log", log, f64::ln, all);
        check("log1p", log1p, f64::ln_1p, all);
        check("tanh", tanh, f64::tanh, all);
        check("sigmoid", sigmoid, |x| if x < -700.0 { 0.0 } else { 1.0 / (1.0 + (-x).exp()) }, all);
        check("sin", sin, f64::sin, |x| !is_wide_angle(x));
        check("cos", cos, f64::cos, |x| !is_wide_angle(x));
        check("tan", tan, f64::tan, |x| !is_wide_angle(x));
        for y in [0.5f32, -0.5, 2.0, 3.7, -11.3, 0.001, 100.0, 1e10] {
            check("pow", |x| pow(x, y), |x| x.powf(f64::from(y)), |x| is_plain_power(x, y));
        }
    }

    #[test]
    fn zeros_keep_their_sign() {
        for f in [expm1, log1p, tanh, sin, tan] {
            assert_eq!(f(-0.0).to_bits(), (-0.0f32).to_bits());
        }
    }
}
