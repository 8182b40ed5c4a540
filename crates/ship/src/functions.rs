//! The functions of numbers that programs call, in plain arithmetic without a library: backend-cpu's formulas
//! without fused multiply-add. The interpreter calls them, and a Rust program gets their text; `functions.c`
//! has the same for C. A line that begins with `// @` names a function and the functions that it calls.

// @ two_to
/// 2^(k + n) for the integer k in the low bits of `k_and_magic`, |k + n| ≤ 126.
fn two_to(k_and_magic: f32, n: i32) -> f32 {
    f32::from_bits(k_and_magic.to_bits().wrapping_add((127 + n) as u32) << 23)
}

// @ times_two_to two_to
/// y · 2^k, rounded once, for an integer k in −150..=128 and y in [½, 2); `shifted` is k + 1.5 · 2²³.
fn times_two_to(y: f32, k: f32, shifted: f32) -> f32 {
    let offset = if k < 0.0 { 64 } else { -64 };
    y * two_to(shifted, offset) * two_to(0.0, -offset)
}

// @ polynomial
/// The polynomial with these coefficients, the highest power's first.
fn polynomial(x: f32, coefficients: &[f32]) -> f32 {
    let mut p = coefficients[0];
    let mut i = 1;
    while i < coefficients.len() {
        p = p * x + coefficients[i];
        i += 1;
    }
    p
}

// @ exp_reduced polynomial
/// x + rest as k·ln 2 + r with e^r = 1 + r + r²·p: [r, p, k, k + 1.5 · 2²³].
fn exp_reduced(x: f32, rest: f32) -> [f32; 4] {
    let shifted = (x + rest) * core::f32::consts::LOG2_E + 12_582_912.0;
    let k = shifted - 12_582_912.0;
    let r = k * 2.121_944_4e-4 + (k * -0.693_359_4 + x) + rest;
    let p =
        polynomial(r, &[1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5]);
    [r, p, k, shifted]
}

// @ exp_parts exp_reduced
/// e^(x + rest) as y · 2^k: [y, k, k + 1.5 · 2²³].
fn exp_parts(x: f32, rest: f32) -> [f32; 3] {
    let [r, p, k, shifted] = exp_reduced(x, rest);
    let y = 1.0 + r;
    [y + (p * (r * r) + (r - (y - 1.0))), k, shifted]
}

// @ exp_f32 exp_reduced times_two_to
/// e^x.
pub(crate) fn exp_f32(x: f32) -> f32 {
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let [r, p, k, shifted] = exp_reduced(x, 0.0);
    times_two_to(1.0 + (p * (r * r) + r), k, shifted)
}

// @ power_of_two
/// 2^k for the integer k in the low bits of `shifted`.
fn power_of_two(shifted: f64) -> f64 {
    f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

// @ exp2_tail
/// (2^r − 1) / r for |r| ≤ ½.
fn exp2_tail(r: f64) -> f64 {
    const L: f64 = core::f64::consts::LN_2;
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

// @ within_200
/// t within ±200.
fn within_200(t: f64) -> f64 {
    let t = if t < -200.0 { -200.0 } else { t };
    if t > 200.0 { 200.0 } else { t }
}

// @ exp2_f64 within_200 exp2_tail power_of_two
/// 2^t.
fn exp2_f64(t: f64) -> f64 {
    let t = within_200(t);
    let shifted = t + 6_755_399_441_055_744.0;
    let r = t - (shifted - 6_755_399_441_055_744.0);
    (1.0 + r * exp2_tail(r)) * power_of_two(shifted)
}

// @ expm1_f32 within_200 exp2_tail power_of_two
/// e^x − 1, accurate near 0.
pub(crate) fn expm1_f32(x: f32) -> f32 {
    let t = within_200(f64::from(x) * core::f64::consts::LOG2_E);
    let shifted = t + 6_755_399_441_055_744.0;
    let r = t - (shifted - 6_755_399_441_055_744.0);
    let scale = power_of_two(shifted);
    if x == 0.0 { x } else { (scale * (r * exp2_tail(r)) + (scale - 1.0)) as f32 }
}

// @ ln_f64
/// ln x for a finite, positive, normal x.
fn ln_f64(x: f64) -> f64 {
    let bits = x.to_bits();
    let e = (bits.wrapping_sub(0x3fe6_a09e_667f_3bcd) as i64) >> 52;
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
    f64::from(e as i32) * core::f64::consts::LN_2 + s * p
}

// @ log_f32 polynomial
/// ln x.
pub(crate) fn log_f32(x: f32) -> f32 {
    let small = x < 1.175_494_4e-38;
    let scaled = if small { x * 8_388_608.0 } else { x };
    let extra = if small { -23.0 } else { 0.0 };
    let bits = scaled.to_bits();
    let exponent = (bits.wrapping_sub(0x3f35_04f3) as i32) >> 23;
    let f = f32::from_bits(bits.wrapping_sub((exponent as u32) << 23)) - 1.0;
    let e = exponent as f32 + extra;
    let z = f * f;
    let p = polynomial(
        f,
        &[
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
    let y = e * -2.121_944_4e-4 + f * z * p;
    let y = e * 0.693_359_4 + (-0.5 * z + y + f);
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x < 0.0 { f32::NAN } else { y };
    if x < f32::INFINITY { y } else { x }
}

// @ log1p_f32 ln_f64
/// ln(1 + x), accurate near 0.
pub(crate) fn log1p_f32(x: f32) -> f32 {
    let wide = f64::from(x);
    let y = 1.0 + wide;
    let lost = wide - (y - 1.0);
    let r = (ln_f64(y) + lost / y) as f32;
    let r = if x == -1.0 { f32::NEG_INFINITY } else { r };
    let r = if x < -1.0 { f32::NAN } else { r };
    let r = if x == 0.0 { x } else { r };
    if x < f32::INFINITY { r } else { x }
}

// @ abs_f32
/// |x|.
pub(crate) fn abs_f32(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & 0x7fff_ffff)
}

// @ signed_f32
/// The magnitude of the first with the sign of the second.
fn signed_f32(x: f32, sign: f32) -> f32 {
    f32::from_bits(x.to_bits() & 0x7fff_ffff | sign.to_bits() & 0x8000_0000)
}

// @ tanh_f32 abs_f32 exp_parts two_to polynomial
/// tanh x.
pub(crate) fn tanh_f32(x: f32) -> f32 {
    let size = abs_f32(x);
    let bounded = if size > 10.0 { 10.0 } else { size };
    let [y, _, shifted] = exp_parts(bounded + bounded, 0.0);
    let e = y * two_to(shifted, 0);
    let large = 1.0 - 2.0 / (e + 1.0);
    let large = if x < 0.0 { -large } else { large };
    let z = x * x;
    let p = polynomial(z, &[-5.704_988_7e-3, 2.063_909e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1]);
    let small = x * (z * p) + x;
    let small = if x == 0.0 { x } else { small };
    if size < 0.625 { small } else { large }
}

// @ sigmoid_f32 abs_f32 exp_parts times_two_to
/// 1 / (1 + e^−x).
pub(crate) fn sigmoid_f32(x: f32) -> f32 {
    let size = abs_f32(x);
    let size = if size > 104.0 { 104.0 } else { size };
    let [y, k, shifted] = exp_parts(-size, 0.0);
    let e = times_two_to(y, k, shifted);
    let top = if x < 0.0 { e } else { 1.0 };
    let sum = 1.0 + e;
    let lost = e - (sum - 1.0);
    let y = top / sum;
    y - y * lost * (1.0 - 0.5 * e)
}

// @ erf_f32 abs_f32 polynomial exp_f32
/// The error function.
pub(crate) fn erf_f32(x: f32) -> f32 {
    let (t, s) = (abs_f32(x), x * x);
    let p = polynomial(
        s,
        &[-5.967_617e-4, 4.991_194e-3, -2.676_813_5e-2, 1.128_199_2e-1, -3.761_253_4e-1, 1.283_791_7e-1],
    );
    let small = p * x + x;
    let p = polynomial(
        t,
        &[
            -1.728_534_7e-5,
            3.831_971_3e-4,
            -3.883_964_4e-3,
            2.425_462_2e-2,
            -1.067_778_8e-1,
            -6.348_468_7e-1,
            -1.287_175_1e-1,
        ],
    );
    let large = 1.0 - exp_f32(p * t + -t);
    let large = if x < 0.0 { -large } else { large };
    if t > 0.927_734_4 { large } else { small }
}

// @ decay_parts exp_parts
/// e^(−a²/2) as y · 2^k: [y, k, k + 1.5 · 2²³].
fn decay_parts(a: f32) -> [f32; 3] {
    let high = f32::from_bits(a.to_bits() & 0xffff_f000);
    let rest = (a - high) * (a + high);
    exp_parts(-0.5 * (high * high), -0.5 * rest)
}

// @ gaussian_f32 abs_f32 decay_parts times_two_to
/// e^(−x²/2).
pub(crate) fn gaussian_f32(x: f32) -> f32 {
    let a = abs_f32(x);
    let a = if a > 14.43 { 14.43 } else { a };
    let [y, k, shifted] = decay_parts(a);
    times_two_to(y, k, shifted)
}

// @ ndtr_f32 abs_f32 decay_parts times_two_to polynomial
/// The standard normal distribution function.
pub(crate) fn ndtr_f32(x: f32) -> f32 {
    let a = abs_f32(x);
    let a = if a > 14.43 { 14.43 } else { a };
    let [y, k, shifted] = decay_parts(a);
    let t = (a - 2.0) / (a + 2.0);
    let p = polynomial(
        t,
        &[
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
    let tail = times_two_to(y * (p / (a + 0.796_875)), k, shifted);
    if x > 0.0 { 1.0 - tail } else { tail }
}

// @ sin_cos_f64
/// (sin x, cos x) for |x| ≤ 10⁵.
fn sin_cos_f64(x: f64) -> [f64; 2] {
    let shifted = x * core::f64::consts::FRAC_2_PI + 6_755_399_441_055_744.0;
    let k = shifted - 6_755_399_441_055_744.0;
    let quadrant = shifted.to_bits();
    let r = (x - k * 1.570_796_326_734_125_6) - k * 6.077_100_506_506_192e-11;
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
    let [sin, cos] = if quadrant & 1 == 1 { [c, s] } else { [s, c] };
    [
        f64::from_bits(sin.to_bits() ^ (quadrant & 2) << 62),
        f64::from_bits(cos.to_bits() ^ (quadrant.wrapping_add(1) & 2) << 62),
    ]
}

// @ sin_cos_f32
/// (sin x, cos x) for |x| ≤ 10⁵: the reduction in f64, the rest in f32.
fn sin_cos_f32(x: f32) -> [f32; 2] {
    let shifted = x * core::f32::consts::FRAC_2_PI + 12_582_912.0;
    let quadrant = shifted.to_bits();
    let k = f64::from(shifted - 12_582_912.0);
    let r = ((f64::from(x) - k * 1.570_796_326_734_125_6) - k * 6.077_100_506_506_192e-11) as f32;
    let z = r * r;
    let s = (-1.951_529_6e-4 * z + 8.332_161e-3) * z + -1.666_665_5e-1;
    let s = r * (z * s) + r;
    let c = (2.443_315_7e-5 * z + -1.388_731_6e-3) * z + 4.166_664_6e-2;
    let c = (c * z + -0.5) * z + 1.0;
    let [sin, cos] = if quadrant & 1 == 1 { [c, s] } else { [s, c] };
    [
        f32::from_bits(sin.to_bits() ^ (quadrant & 2) << 30),
        f32::from_bits(cos.to_bits() ^ (quadrant.wrapping_add(1) & 2) << 30),
    ]
}

// @ sin_f32 sin_cos_f32
/// sin x, for |x| ≤ 10⁵.
pub(crate) fn sin_f32(x: f32) -> f32 {
    if x == 0.0 { x } else { sin_cos_f32(x)[0] }
}

// @ cos_f32 sin_cos_f32
/// cos x, for |x| ≤ 10⁵.
pub(crate) fn cos_f32(x: f32) -> f32 {
    sin_cos_f32(x)[1]
}

// @ tan_f32 sin_cos_f64
/// tan x, for |x| ≤ 10⁵.
pub(crate) fn tan_f32(x: f32) -> f32 {
    let [s, c] = sin_cos_f64(f64::from(x));
    if x == 0.0 { x } else { (s / c) as f32 }
}

// @ atan2_f32 signed_f32
/// The angle of the point (x, y).
pub(crate) fn atan2_f32(y: f32, x: f32) -> f32 {
    let (u, v) = (
        f64::from(f32::from_bits(x.to_bits() & 0x7fff_ffff)),
        f64::from(f32::from_bits(y.to_bits() & 0x7fff_ffff)),
    );
    let u = if u > 1e300 { 1e300 } else { u };
    let v = if v > 1e300 { 1e300 } else { v };
    let steep = v > u;
    let (low, high) = if steep { (u, v) } else { (v, u) };
    let high = if high == 0.0 { 1.0 } else { high };
    let far = low > 0.414_213_562_373_095_03 * high;
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
    let angle = if far { angle + core::f64::consts::FRAC_PI_4 } else { angle };
    let angle = if steep { core::f64::consts::FRAC_PI_2 - angle } else { angle };
    let angle = if x.to_bits() >> 31 == 1 { core::f64::consts::PI - angle } else { angle };
    if x != x || y != y { f32::NAN } else { signed_f32(angle as f32, y) }
}

// @ trunc_f32 abs_f32 signed_f32
/// x truncated toward zero.
pub(crate) fn trunc_f32(x: f32) -> f32 {
    if abs_f32(x) < 8_388_608.0 { signed_f32((x as i32) as f32, x) } else { x }
}

// @ pow_f32 ln_f64 exp2_f64 trunc_f32 abs_f32
/// x^y as IEEE `pow`.
pub(crate) fn pow_f32(x: f32, y: f32) -> f32 {
    if y == 0.0 || x == 1.0 {
        return 1.0;
    }
    if x != x || y != y {
        return f32::NAN;
    }
    let (size, is_whole) = (abs_f32(x), trunc_f32(y) == y);
    let is_odd = is_whole && trunc_f32(y * 0.5) * 2.0 != y;
    let power = if abs_f32(y) == f32::INFINITY {
        if size == 1.0 {
            1.0
        } else if (size > 1.0) == (y > 0.0) {
            f32::INFINITY
        } else {
            0.0
        }
    } else if size == 0.0 || size == f32::INFINITY {
        if (size == 0.0) == (y > 0.0) { 0.0 } else { f32::INFINITY }
    } else {
        exp2_f64(f64::from(y) * (ln_f64(f64::from(size)) * core::f64::consts::LOG2_E)) as f32
    };
    if x.to_bits() >> 31 == 0 || size == 0.0 && !is_odd || abs_f32(y) == f32::INFINITY {
        power
    } else if is_odd {
        -power
    } else if is_whole || size == f32::INFINITY {
        power
    } else {
        f32::NAN
    }
}

// @ floor_f32 trunc_f32
/// The greatest whole number ≤ x.
pub(crate) fn floor_f32(x: f32) -> f32 {
    let t = trunc_f32(x);
    if t > x { t - 1.0 } else { t }
}

// @ ceil_f32 trunc_f32
/// The least whole number ≥ x.
pub(crate) fn ceil_f32(x: f32) -> f32 {
    let t = trunc_f32(x);
    if t < x { t + 1.0 } else { t }
}

// @ round_f32 abs_f32 signed_f32
/// The nearest whole number, halves to even.
pub(crate) fn round_f32(x: f32) -> f32 {
    let size = abs_f32(x);
    if size < 8_388_608.0 { signed_f32((size + 8_388_608.0) - 8_388_608.0, x) } else { x }
}

// @ sqrt_f32
/// √x, rounded correctly: the bits of the root of the mantissa, one after the other.
pub(crate) fn sqrt_f32(x: f32) -> f32 {
    let bits = x.to_bits();
    if x != x || x == 0.0 || bits == 0x7f80_0000 {
        return x;
    }
    if x < 0.0 {
        return f32::NAN;
    }
    let (mut exponent, mut mantissa) = ((bits >> 23) as i32, bits & 0x7f_ffff);
    if exponent == 0 {
        exponent = 1;
        while mantissa < 0x80_0000 {
            mantissa <<= 1;
            exponent -= 1;
        }
    }
    mantissa |= 0x80_0000;
    exponent -= 127;
    let odd = exponent & 1;
    let square = u64::from(mantissa) << (25 + odd);
    let (mut root, mut bit) = (0u64, 1u64 << 24);
    while bit != 0 {
        let next = root | bit;
        if next * next <= square {
            root = next;
        }
        bit >>= 1;
    }
    let rounded = ((root + 1) >> 1) as u32;
    f32::from_bits(((((exponent - odd) / 2 + 127) as u32) << 23) + (rounded - 0x80_0000))
}

// @ sign_f32
/// −1, 0 or 1 by the sign of x.
pub(crate) fn sign_f32(x: f32) -> f32 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        0.0
    }
}

// @ remainder_f32
/// The remainder of a / b with the sign of b.
pub(crate) fn remainder_f32(a: f32, b: f32) -> f32 {
    let rest = a % b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
}

// @ floor_divide_f32 floor_f32 signed_f32
/// a / b rounded down.
pub(crate) fn floor_divide_f32(a: f32, b: f32) -> f32 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return signed_f32(0.0, a / b);
    }
    let floor = floor_f32(quotient);
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

// @ floor_divide_i64
/// a / b rounded down; 0 for b = 0.
pub(crate) fn floor_divide_i64(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    if b == -1 {
        return a.wrapping_neg();
    }
    let quotient = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

// @ remainder_i64
/// The remainder of that; 0 for b = 0.
pub(crate) fn remainder_i64(a: i64, b: i64) -> i64 {
    if b == 0 || b == -1 {
        return 0;
    }
    let rest = a % b;
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}
