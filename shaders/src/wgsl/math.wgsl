// Real functions of f32 with errors of a few units in the last place, whatever the driver's own are, and with IEEE's answers
// for NaN and infinities, which drivers may assume away: NaN is therefore told by its bits.

fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn nan() -> f32 { return bitcast<f32>(0x7fc00000u); }
fn inf() -> f32 { return bitcast<f32>(0x7f800000u); }
// The sign bit of `sign` on the magnitude of `x`.
fn with_sign(x: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}
// 2^k for k of -126..=127.
fn power_of_two(k: i32) -> f32 { return bitcast<f32>(u32(k + 127) << 23u); }

fn exp_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let c = clamp(x, -104.0, 89.0);
    let k = round(c * 1.44269504);
    let r = (c - k * 0.693359375) - k * -2.12194440e-4;
    var p = 1.9875691500e-4;
    p = p * r + 1.3981999507e-3;
    p = p * r + 8.3334519073e-3;
    p = p * r + 4.1665795894e-2;
    p = p * r + 1.6666665459e-1;
    p = p * r + 5.0000001201e-1;
    let y = p * r * r + r + 1.0;
    // In two steps: 2^k itself may lie outside f32 where the result does not.
    let n = i32(k);
    let half = n / 2;
    return y * power_of_two(half) * power_of_two(n - half);
}

fn expm1_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    if (abs(x) >= 0.35) { return exp_(x) - 1.0; }
    var p = 2.4801587e-5;
    p = p * x + 1.9841270e-4;
    p = p * x + 1.3888889e-3;
    p = p * x + 8.3333333e-3;
    p = p * x + 4.1666667e-2;
    p = p * x + 1.6666667e-1;
    p = p * x + 0.5;
    return x + x * x * p;
}

// ln(1 + f) + k ln 2 for f of √½ − 1 to √2 − 1.
fn log_core(f: f32, k: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let r = z * (0.66666662693 + w * 0.28498786688) + w * (0.40000972152 + w * 0.24279078841);
    let h = 0.5 * f * f;
    return (s * (h + r) + k * 9.0580006145e-6) - h + f + k * 6.9313812256e-1;
}

fn log_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    if (x == 0.0) { return -inf(); }
    if (x < 0.0) { return nan(); }
    if (is_inf(x)) { return x; }
    var bits = bitcast<u32>(x);
    var k = 0;
    if (bits < 0x00800000u) {
        bits = bitcast<u32>(x * 8388608.0);
        k = -23;
    }
    bits += 0x3f800000u - 0x3f3504f3u;
    k += i32(bits >> 23u) - 127;
    let m = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u);
    return log_core(m - 1.0, f32(k));
}

fn log1p_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    if (x > -0.29 && x < 0.41) { return select(log_core(x, 0.0), x, x == 0.0); }
    return log_(1.0 + x);
}

fn tanh_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let e = expm1_(2.0 * min(abs(x), 15.0));
    return with_sign(e / (e + 2.0), x);
}

fn sigmoid_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    // Of e^−|x|, which never overflows.
    let e = exp_(-abs(x));
    return select(1.0 / (1.0 + e), e / (1.0 + e), x < 0.0);
}

fn sqrt_(x: f32) -> f32 {
    if (is_nan(x) || x < 0.0) { return nan(); }
    if (is_inf(x) || x == 0.0) { return x; }
    return sqrt(x);
}

fn rsqrt_(x: f32) -> f32 {
    if (is_nan(x) || x < 0.0) { return nan(); }
    if (x == 0.0) { return with_sign(inf(), x); }
    if (is_inf(x)) { return 0.0; }
    return 1.0 / sqrt(x);
}

// x / y with IEEE's answers where an operand is not an ordinary number.
fn div_(x: f32, y: f32) -> f32 {
    if (is_nan(x) || is_nan(y)) { return nan(); }
    let sign = bitcast<f32>((bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u);
    if (is_inf(x)) { return select(with_sign(inf(), sign), nan(), is_inf(y)); }
    if (is_inf(y)) { return sign; }
    if (y == 0.0) { return select(with_sign(inf(), sign), nan(), x == 0.0); }
    return x / y;
}

fn sin_(x: f32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return nan(); }
    return select(sin(x), x, x == 0.0);
}

fn cos_(x: f32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return nan(); }
    return cos(x);
}

fn tan_(x: f32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return nan(); }
    return select(sin(x) / cos(x), x, x == 0.0);
}

fn erf_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let a = abs(x);
    if (a < 0.84375) {
        let z = x * x;
        let r = 1.28379166e-1 + z * (-3.25042099e-1 + z * (-2.84817494e-2 + z * (-5.77027029e-3 + z * -2.37630164e-5)));
        let s = 1.0 + z * (3.97917223e-1 + z * (6.50222510e-2 + z * (5.08130626e-3 + z * (1.32494737e-4 + z * -3.96022827e-6))));
        return x + x * (r / s);
    }
    // The complement, with a relative error of 1.2e-7.
    let t = 1.0 / (1.0 + 0.5 * min(a, 10.0));
    var p = 0.17087277;
    p = p * t - 0.82215223;
    p = p * t + 1.48851587;
    p = p * t - 1.13520398;
    p = p * t + 0.27886807;
    p = p * t - 0.18628806;
    p = p * t + 0.09678418;
    p = p * t + 0.37409196;
    p = p * t + 1.00002368;
    let c = min(a, 10.0);
    return with_sign(1.0 - t * exp_(-c * c - 1.26551223 + t * p), x);
}

fn sign_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    return select(select(0.0, -1.0, x < 0.0), 1.0, x > 0.0);
}

fn relu_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    return select(x, 0.0, x <= 0.0);
}

fn max_(a: f32, b: f32) -> f32 {
    if (is_nan(a)) { return a; }
    if (is_nan(b)) { return b; }
    return select(b, a, a > b);
}

fn min_(a: f32, b: f32) -> f32 {
    if (is_nan(a)) { return a; }
    if (is_nan(b)) { return b; }
    return select(b, a, a < b);
}

fn eq_(a: f32, b: f32) -> bool { return a == b && !is_nan(a) && !is_nan(b); }
fn ne_(a: f32, b: f32) -> bool { return a != b || is_nan(a) || is_nan(b); }
fn lt_(a: f32, b: f32) -> bool { return a < b && !is_nan(a) && !is_nan(b); }
fn le_(a: f32, b: f32) -> bool { return a <= b && !is_nan(a) && !is_nan(b); }

fn floor_div_(a: f32, b: f32) -> f32 { return floor(div_(a, b)); }

// The remainder with the sign of b; exact only while the quotient is below 2^24.
fn remainder_(a: f32, b: f32) -> f32 {
    if (is_nan(a) || is_nan(b) || is_inf(a) || b == 0.0) { return nan(); }
    if (is_inf(b)) { return select(b, a, a == 0.0 || (a < 0.0) == (b < 0.0)); }
    let r = a - b * trunc(a / b);
    return select(r, r + b, r != 0.0 && (r < 0.0) != (b < 0.0));
}

fn pow_(a: f32, b: f32) -> f32 {
    if (b == 0.0 || a == 1.0) { return 1.0; }
    if (is_nan(a) || is_nan(b)) { return nan(); }
    let m = abs(a);
    if (is_inf(b)) {
        if (m == 1.0) { return 1.0; }
        return select(0.0, inf(), (m > 1.0) == (b > 0.0));
    }
    let whole = b == trunc(b);
    let odd = whole && abs(b) < 16777216.0 && (i32(b) & 1) != 0;
    if (a == 0.0 || is_inf(a)) {
        let r = select(0.0, inf(), is_inf(a) == (b > 0.0));
        return select(r, with_sign(r, a), odd);
    }
    if (a < 0.0 && !whole) { return nan(); }
    let r = exp_(b * log_(m));
    return select(r, -r, a < 0.0 && odd);
}

// Arc tangent of t in 0..=1.
fn atan_core(t: f32) -> f32 {
    let high = t > 0.4142135624;
    let u = select(t, (t - 1.0) / (t + 1.0), high);
    let z = u * u;
    var p = 8.05374449538e-2;
    p = p * z - 1.38776856032e-1;
    p = p * z + 1.99777106478e-1;
    p = p * z - 3.33329491539e-1;
    return p * z * u + u + select(0.0, 0.7853981634, high);
}

fn atan2_(y: f32, x: f32) -> f32 {
    if (is_nan(x) || is_nan(y)) { return nan(); }
    let ax = abs(x);
    let ay = abs(y);
    var t = 0.0;
    if (is_inf(x) && is_inf(y)) { t = 1.0; }
    else if (is_inf(x) || is_inf(y) || max(ax, ay) == 0.0) { t = 0.0; }
    else { t = min(ax, ay) / max(ax, ay); }
    var r = atan_core(t);
    if (ay > ax) { r = 1.5707963268 - r; }
    if ((bitcast<u32>(x) & 0x80000000u) != 0u) { r = 3.1415926536 - r; }
    return with_sign(r, y);
}

fn round_bf16(x: f32) -> f32 {
    let u = bitcast<u32>(x);
    if (is_nan(x)) { return x; }
    return bitcast<f32>((u + 0x7fffu + ((u >> 16u) & 1u)) & 0xffff0000u);
}

fn round_f16(x: f32) -> f32 {
    if (is_nan(x) || is_inf(x)) { return x; }
    let a = abs(x);
    if (a >= 65520.0) { return with_sign(inf(), x); }
    if (a < 6.103515625e-5) { return with_sign(round(a * 16777216.0) * 5.9604644775390625e-8, x); }
    let u = bitcast<u32>(x);
    return bitcast<f32>((u + 0xfffu + ((u >> 13u) & 1u)) & 0xffffe000u);
}

fn to_i32(x: f32) -> i32 {
    if (is_nan(x)) { return 0; }
    if (x >= 2147483648.0) { return 2147483647; }
    if (x <= -2147483648.0) { return -2147483647 - 1; }
    return i32(x);
}

fn to_u32(x: f32) -> u32 {
    if (is_nan(x) || x <= 0.0) { return 0u; }
    if (x >= 4294967296.0) { return 0xffffffffu; }
    return u32(x);
}

fn to_u8(x: f32) -> u32 { return min(to_u32(x), 255u); }

// x to a whole power, by repeated multiplication.
fn powi_(x: f32, n: i32) -> f32 {
    var base = x;
    var power = 1.0;
    var left = abs(n);
    while (left > 0) {
        if ((left & 1) == 1) { power = power * base; }
        base = base * base;
        left = left >> 1u;
    }
    return select(power, 1.0 / power, n < 0);
}
