// Real functions of f64 (needs the adapter features SHADER_F64 and SHADER_INT64). Neither WGSL nor the
// drivers provide them; most follow fdlibm.

// Like opaque_f32.
fn opaque_f64(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) ^ u64(params.first_workgroup >> 31u));
}

// Like distinct_f32.
fn distinct_f64(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) | u64(params.first_workgroup >> 31u));
}

fn is_nan_f64(x: f64) -> bool {
    return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu;
}

fn is_inf_f64(x: f64) -> bool {
    return (bitcast<u64>(x) & 0x7ffffffffffffffflu) == 0x7ff0000000000000lu;
}

fn sign_bit_f64(x: f64) -> bool {
    return (bitcast<u64>(x) >> 63u) != 0lu;
}

fn inf_f64() -> f64 {
    var bits = 0x7ff0000000000000lu;
    return bitcast<f64>(bits);
}

fn nan_f64() -> f64 {
    var bits = 0x7ff8000000000000lu;
    return bitcast<f64>(bits);
}

fn f64_from_words(low: u32, high: u32) -> f64 {
    return bitcast<f64>((u64(high) << 32u) | u64(low));
}

// `&` instead of `&&` avoids branches, because some compilers evaluate every path.
fn eq_f64(a: f64, b: f64) -> bool {
    return (a == b) & !is_nan_f64(a) & !is_nan_f64(b);
}

fn lt_f64(a: f64, b: f64) -> bool {
    return (a < b) & !is_nan_f64(a) & !is_nan_f64(b);
}

fn le_f64(a: f64, b: f64) -> bool {
    return (a <= b) & !is_nan_f64(a) & !is_nan_f64(b);
}

fn max_f64(a: f64, b: f64) -> f64 {
    return select(select(select(b, a, a > b), b, is_nan_f64(b)), a, is_nan_f64(a));
}

fn min_f64(a: f64, b: f64) -> f64 {
    return select(select(select(b, a, a < b), b, is_nan_f64(b)), a, is_nan_f64(a));
}

fn relu_f64(x: f64) -> f64 {
    return select(x, 0.0lf, x < 0.0lf);
}

fn sign_f64(x: f64) -> f64 {
    return select(select(0.0lf, 1.0lf, x > 0.0lf), -1.0lf, x < 0.0lf);
}

fn sqrt_f64(x: f64) -> f64 {
    if (x < 0.0lf) {
        return nan_f64();
    }
    return select(sqrt(x), x, is_nan_f64(x) || is_inf_f64(x));
}

fn rsqrt_f64(x: f64) -> f64 {
    return 1.0lf / sqrt_f64(x);
}

// The built-in function loses the sign of a zero on llvmpipe if the processor has no 512-bit vectors:
// llvmpipe converts to integers there.
fn trunc_f64(x: f64) -> f64 {
    return select(ceil(x), floor(x), x > 0.0lf);
}

// Adding and subtracting 2^52 would round, but a compiler may cancel the two. So rounding uses truncation
// and comparison.
fn round_f64(x: f64) -> f64 {
    if (!(abs(x) < 4503599627370496.0lf) || is_nan_f64(x)) {
        return x;
    }
    let low = floor(x);
    let rest = x - low;
    let up = rest > 0.5lf || (rest == 0.5lf && low - 2.0lf * floor(low * 0.5lf) != 0.0lf);
    return select(low, low + 1.0lf, up);
}

fn scale2_f64(y: f64, k: i32) -> f64 {
    let half = k >> 1u;
    let rest = k - half;
    return (y * bitcast<f64>(u64(half + 1023) << 52u)) * bitcast<f64>(u64(rest + 1023) << 52u);
}

fn exp_f64(x: f64) -> f64 {
    if (is_nan_f64(x)) {
        return x;
    }
    if (x > 709.782712893384lf) {
        return inf_f64();
    }
    if (x < -745.1332191019412lf) {
        return 0.0lf;
    }
    let k = round_f64(x * 1.4426950408889634lf);
    // As in exp_within_f32.
    let hi = opaque_f64(x - k * 6.93147180369123816490e-01lf);
    let lo = k * 1.90821492927058770002e-10lf;
    let r = hi - lo;
    let t = r * r;
    let c = r - t * (1.66666666666666019037e-01lf + t * (-2.77777777770155933842e-03lf
        + t * (6.61375632143793436117e-05lf + t * (-1.65339022054652515390e-06lf
        + t * 4.13813679705723846039e-08lf))));
    return scale2_f64(1.0lf - ((lo - (r * c) / (2.0lf - c)) - hi), i32(k));
}

fn expm1_f64(x: f64) -> f64 {
    // The sums below would lose the sign of a zero.
    if (x == 0.0lf) {
        return x;
    }
    if (!(abs(x) < 1.0lf) || is_nan_f64(x)) {
        return exp_f64(x) - 1.0lf;
    }
    var p = 1.0lf;
    for (var n = 22; n >= 2; n -= 1) {
        p = 1.0lf + x * p / f64(n);
    }
    return x * p;
}

fn log1p_tail_f64(f: f64) -> f64 {
    let s = f / (2.0lf + f);
    let z = s * s;
    let r = z * (6.666666666666735130e-01lf + z * (3.999999999940941908e-01lf + z * (2.857142874366239149e-01lf
        + z * (2.222219843214978396e-01lf + z * (1.818357216161805012e-01lf + z * (1.531383769920937332e-01lf
        + z * 1.479819860511658591e-01lf))))));
    let h = 0.5lf * f * f;
    return s * (h + r) - h;
}

fn log_f64(x: f64) -> f64 {
    var bits = bitcast<u64>(x);
    if ((bits & 0x7ffffffffffffffflu) == 0lu) {
        return -inf_f64();
    }
    if (is_nan_f64(x)) {
        return x;
    }
    if ((bits >> 63u) != 0lu) {
        return nan_f64();
    }
    if (bits == 0x7ff0000000000000lu) {
        return x;
    }
    var k = -1023;
    while (bits != 0lu && bits < 0x0010000000000000lu) {
        bits = bits << 1u;
        k -= 1;
    }
    bits += 0x3ff0000000000000lu - 0x3fe6a09e00000000lu;
    k += i32(u32(bits >> 52u));
    let f = bitcast<f64>((bits & 0x000ffffffffffffflu) + 0x3fe6a09e00000000lu) - 1.0lf;
    let dk = f64(k);
    return opaque_f64(log1p_tail_f64(f) + dk * 1.90821492927058770002e-10lf) + f + dk * 6.93147180369123816490e-01lf;
}

fn log1p_f64(x: f64) -> f64 {
    // The sums below would lose the sign of a zero.
    if (x == 0.0lf) {
        return x;
    }
    if (x > -0.29lf && x < 0.41lf) {
        return x + log1p_tail_f64(x);
    }
    return log_f64(1.0lf + x);
}

// ln(eᵃ + eᵇ).
fn log_add_exp_f64(a: f64, b: f64) -> f64 {
    let greater = max_f64(a, b);
    if (is_nan_f64(greater) || is_inf_f64(greater)) {
        return greater;
    }
    return greater + log1p_f64(exp_f64(min(a, b) - greater));
}

fn tanh_f64(x: f64) -> f64 {
    // The sums below would lose the sign of a zero.
    if (is_nan_f64(x) || x == 0.0lf) {
        return x;
    }
    let t = expm1_f64(2.0lf * min_f64(abs(x), 30.0lf));
    let y = t / (t + 2.0lf);
    return select(y, -y, x < 0.0lf);
}

fn sigmoid_f64(x: f64) -> f64 {
    if (is_nan_f64(x)) {
        return x;
    }
    let e = exp_f64(-abs(x));
    return select(1.0lf / (1.0lf + e), e / (1.0lf + e), x < 0.0lf);
}

// A series of positive terms below 3; above, a continued fraction of the complement.
fn erf_f64(x: f64) -> f64 {
    // The sums below would lose the sign of a zero.
    if (is_nan_f64(x) || x == 0.0lf) {
        return x;
    }
    let a = abs(x);
    var y = 1.0lf;
    if (a < 3.0lf) {
        var sum = 1.0lf;
        for (var n = 60; n >= 1; n -= 1) {
            sum = 1.0lf + sum * (2.0lf * a * a / f64(2 * n + 1));
        }
        y = 1.1283791670955126lf * exp_f64(-a * a) * a * sum;
    } else if (a < 6.0lf) {
        var d = a;
        for (var n = 50; n >= 1; n -= 1) {
            d = a + 0.5lf * f64(n) / d;
        }
        y = 1.0lf - exp_f64(-a * a) * 0.56418958354775628lf / d;
    }
    return select(y, -y, x < 0.0lf);
}

// e^(-a²/2) for a in 0..39: the square of the leading bits is exact.
fn gaussian_within_f64(a: f64) -> f64 {
    let high = bitcast<f64>(bitcast<u64>(a) & 0xfffffffff8000000lu);
    return exp_f64(-0.5lf * (high * high)) * exp_f64(-0.5lf * ((a - high) * (a + high)));
}

fn gaussian_f64(x: f64) -> f64 {
    if (is_nan_f64(x)) {
        return x;
    }
    return gaussian_within_f64(min_f64(abs(x), 39.0lf));
}

// Like ndtr_f32, with a polynomial in (|x| - 3)/(|x| + 3).
fn ndtr_f64(x: f64) -> f64 {
    if (is_nan_f64(x)) {
        return x;
    }
    let a = min_f64(abs(x), 39.0lf);
    let t = (a - 3.0lf) / (a + 3.0lf);
    var p = 3.774368430371549e-10lf;
    p = p * t + 1.4858173355874671e-9lf;
    p = p * t + 1.1492487404174587e-10lf;
    p = p * t - 8.280976050718527e-9lf;
    p = p * t - 1.3474089337377986e-8lf;
    p = p * t + 1.0031497978331945e-8lf;
    p = p * t + 6.122816873593555e-8lf;
    p = p * t + 6.819055147953454e-8lf;
    p = p * t - 8.693935071396768e-8lf;
    p = p * t - 3.8827722640729466e-7lf;
    p = p * t - 3.615983502517177e-7lf;
    p = p * t + 8.347766403137953e-7lf;
    p = p * t + 2.7588337936413575e-6lf;
    p = p * t + 1.0103028627800605e-6lf;
    p = p * t - 9.820787095346152e-6lf;
    p = p * t - 1.7955432122923226e-5lf;
    p = p * t + 2.0556264920690085e-5lf;
    p = p * t + 0.00010656518414219076lf;
    p = p * t + 3.4915685991217803e-6lf;
    p = p * t - 0.000546379257035653lf;
    p = p * t - 0.0002844944006353379lf;
    p = p * t + 0.003210532585926448lf;
    p = p * t + 0.0005705278940377296lf;
    p = p * t - 0.023975425082776863lf;
    p = p * t + 0.05455099845487757lf;
    p = p * t - 0.041462248688900846lf;
    p = p * t - 0.054601227336313334lf;
    p = p * t + 0.4613732726625251lf;
    let tail = gaussian_within_f64(a) * (p / (a + 0.796875lf));
    return select(tail, 1.0lf - tail, x > 0.0lf);
}

// x = q·π/2 + r; returns q modulo 4. Exact multiples of π/2 up to |x| of about 10^6; beyond, digits are
// lost. NVIDIA's compiler would add the first two parts of π/2 without opaque_f64.
fn reduce_f64(x: f64, r: ptr<function, f64>) -> i32 {
    let k = round_f64(x * 0.63661977236758134308lf);
    let high = opaque_f64(x - k * 1.57079632673412561417e+00lf);
    *r = opaque_f64(high - k * 6.07710050630396597660e-11lf) - k * 2.02226624879595063154e-21lf;
    return i32(k - 4.0lf * floor(k * 0.25lf));
}

fn sin_kernel_f64(r: f64) -> f64 {
    let z = r * r;
    return r + r * z * (-1.66666666666666324348e-01lf + z * (8.33333333332248946124e-03lf
        + z * (-1.98412698298579493134e-04lf + z * (2.75573137070700676789e-06lf
        + z * (-2.50507602534068634195e-08lf + z * 1.58969099521155010221e-10lf)))));
}

fn cos_kernel_f64(r: f64) -> f64 {
    let z = r * r;
    return 1.0lf - (0.5lf * z - z * z * (4.16666666666666019037e-02lf + z * (-1.38888888888741095749e-03lf
        + z * (2.48015872894767294178e-05lf + z * (-2.75573143513906633035e-07lf
        + z * (2.08757232129817482790e-09lf + z * -1.13596475577881948265e-11lf))))));
}

fn sin_f64(x: f64) -> f64 {
    if (is_nan_f64(x) || is_inf_f64(x)) {
        return nan_f64();
    }
    // The sums below would lose the sign of a zero.
    if (x == 0.0lf) {
        return x;
    }
    var r: f64;
    let q = reduce_f64(x, &r);
    var y: f64;
    if ((q & 1) == 0) {
        y = sin_kernel_f64(r);
    } else {
        y = cos_kernel_f64(r);
    }
    return select(y, -y, (q & 2) != 0);
}

fn cos_f64(x: f64) -> f64 {
    if (is_nan_f64(x) || is_inf_f64(x)) {
        return nan_f64();
    }
    var r: f64;
    let q = reduce_f64(x, &r);
    var y: f64;
    if ((q & 1) == 0) {
        y = cos_kernel_f64(r);
    } else {
        y = sin_kernel_f64(r);
    }
    return select(y, -y, ((q + 1) & 2) != 0);
}

fn tan_f64(x: f64) -> f64 {
    return sin_f64(x) / cos_f64(x);
}

fn atan2_f64(y: f64, x: f64) -> f64 {
    if (is_nan_f64(x) || is_nan_f64(y)) {
        return nan_f64();
    }
    let ax = abs(x);
    let ay = abs(y);
    var t = 0.0lf;
    if (is_inf_f64(x) && is_inf_f64(y)) {
        t = 1.0lf;
    } else if (is_inf_f64(x) || is_inf_f64(y)) {
        t = 0.0lf;
    } else if (max_f64(ax, ay) > 0.0lf) {
        t = min_f64(ax, ay) / max_f64(ax, ay);
    }
    var base = 0.0lf;
    if (t > 0.41421356237309503lf) {
        base = 0.78539816339744828lf;
        t = (t - 1.0lf) / (t + 1.0lf);
    }
    let z = t * t;
    let p = z * (3.33333333333329318027e-01lf + z * (-1.99999999998764832476e-01lf + z * (1.42857142725034663711e-01lf
        + z * (-1.11111104054623557880e-01lf + z * (9.09088713343650656196e-02lf + z * (-7.69187620504482999495e-02lf
        + z * (6.66107313738753120669e-02lf + z * (-5.83357013379057348645e-02lf + z * (4.97687799461593236017e-02lf
        + z * (-3.65315727442169155270e-02lf + z * 1.62858201153657823623e-02lf))))))))));
    var a = base + (t - t * p);
    if (ay > ax) {
        a = 1.57079632679489662lf - a;
    }
    if (sign_bit_f64(x)) {
        a = 3.14159265358979324lf - a;
    }
    return bitcast<f64>(bitcast<u64>(a) | (bitcast<u64>(y) & 0x8000000000000000lu));
}

fn head_f64(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) & 0xffffffff00000000lu);
}

// Like pow_positive_f32, after fdlibm's e_pow.c.
fn pow_positive_f64(a: f64, b: f64) -> f64 {
    var n = -1023;
    var bits = bitcast<u64>(a);
    while (bits != 0lu && bits < 0x0010000000000000lu) {
        bits = bits << 1u;
        n -= 1;
    }
    n += i32(u32(bits >> 52u));
    let j = bits & 0x000ffffffffffffflu;
    bits = j | 0x3ff0000000000000lu;
    let top = u32(j >> 32u);
    var k = 0u;
    if (top > 0x3988eu) {
        if (top < 0xbb67au) {
            k = 1u;
        } else {
            n += 1;
            bits -= 0x0010000000000000lu;
        }
    }
    let bp = select(1.0lf, 1.5lf, k == 1u);
    let dp_h = select(0.0lf, 5.84962487220764160156e-01lf, k == 1u);
    let dp_l = select(0.0lf, 1.35003920212974897128e-08lf, k == 1u);
    let ax = bitcast<f64>(bits);
    var u = ax - bp;
    var v = 1.0lf / (ax + bp);
    let s = u * v;
    let s_h = head_f64(s);
    let high = u32(bits >> 32u);
    var t_h = bitcast<f64>(u64(((high >> 1u) | 0x20000000u) + 0x00080000u + (k << 18u)) << 32u);
    var t_l = ax - (t_h - bp);
    let s_l = v * ((u - s_h * t_h) - s_h * t_l);
    var s2 = s * s;
    var r = s2 * s2 * (5.99999999999994648725e-01lf + s2 * (4.28571428578550184252e-01lf
        + s2 * (3.33333329818377432918e-01lf + s2 * (2.72728123808534006489e-01lf
        + s2 * (2.30660745775561754067e-01lf + s2 * 2.06975017800338417784e-01lf)))));
    r += s_l * (s_h + s);
    s2 = s_h * s_h;
    t_h = head_f64(3.0lf + s2 + r);
    t_l = r - ((t_h - 3.0lf) - s2);
    u = s_h * t_h;
    v = s_l * t_h + t_l * s;
    var p_h = head_f64(u + v);
    var p_l = v - (p_h - u);
    let z_h = opaque_f64(9.61796700954437255859e-01lf * p_h);
    let z_l = -7.02846165095275826516e-09lf * p_h + p_l * 9.61796693925975554329e-01lf + dp_l;
    let t = f64(n);
    let t1 = head_f64(((z_h + z_l) + dp_h) + t);
    let t2 = z_l - (((t1 - t) - dp_h) - z_h);
    let b1 = head_f64(b);
    p_l = (b - b1) * t1 + b * t2;
    p_h = b1 * t1;
    let z = p_l + p_h;
    if (z >= 1024.0lf) {
        return inf_f64();
    }
    if (z < -1076.0lf) {
        return 0.0lf;
    }
    let e = round_f64(z);
    p_h -= e;
    let w_h = head_f64(p_l + p_h);
    let w_l = (p_l - (w_h - p_h)) * 6.93147180559945286227e-01lf + w_h * -1.90465429995776804525e-09lf;
    let x = w_h * 6.93147182464599609375e-01lf + opaque_f64(w_l);
    let xx = x * x;
    let c = x - xx * (1.66666666666666019037e-01lf + xx * (-2.77777777770155933842e-03lf
        + xx * (6.61375632143793436117e-05lf + xx * (-1.65339022054652515390e-06lf
        + xx * 4.13813679705723846039e-08lf))));
    return scale2_f64(1.0lf - (x * c / (c - 2.0lf) - x), i32(e));
}

fn pow_f64(a: f64, b: f64) -> f64 {
    if (b == 0.0lf && !is_nan_f64(b)) {
        return 1.0lf;
    }
    if (a == 1.0lf && !is_nan_f64(a)) {
        return 1.0lf;
    }
    if (is_nan_f64(a) || is_nan_f64(b)) {
        return nan_f64();
    }
    let aa = abs(a);
    let ab = abs(b);
    let integral = ab >= 9007199254740992.0lf || floor(b) == b;
    let odd = ab < 9007199254740992.0lf && integral && ab - 2.0lf * floor(ab * 0.5lf) != 0.0lf;
    var y: f64;
    if (aa == 1.0lf) {
        y = 1.0lf;
    } else if (ab > 1.0e20lf || aa == 0.0lf || is_inf_f64(a)) {
        y = select(0.0lf, inf_f64(), (aa > 1.0lf) == (b > 0.0lf));
    } else {
        y = pow_positive_f64(aa, b);
    }
    if (sign_bit_f64(a)) {
        if (!integral && aa != 0.0lf && !is_inf_f64(a)) {
            return nan_f64();
        }
        return select(y, -y, odd);
    }
    return y;
}

// The whole number m and the exponent e of a finite x = m·2^e > 0; the top bit of m is set.
fn take_apart_f64(x: f64, e: ptr<function, i32>) -> u64 {
    let bits = bitcast<u64>(x);
    var m = bits & 0xffffffffffffflu;
    *e = i32(u32(bits >> 52u)) - 1075;
    if (bits >= 0x10000000000000lu) {
        return m | 0x10000000000000lu;
    }
    *e += 1;
    while (m != 0lu && m < 0x10000000000000lu) {
        m = m << 1u;
        *e -= 1;
    }
    return m;
}

// The remainder of a by b with the sign of a, like fmod_f32.
fn fmod_f64(a: f64, b: f64) -> f64 {
    let size_a = bitcast<u64>(a) & 0x7ffffffffffffffflu;
    let size_b = bitcast<u64>(b) & 0x7ffffffffffffffflu;
    if (size_a >= 0x7ff0000000000000lu || size_b > 0x7ff0000000000000lu || b == 0.0lf) {
        return nan_f64();
    }
    if (size_a < size_b) {
        return a;
    }
    var ea: i32;
    var eb: i32;
    var m = take_apart_f64(abs(a), &ea);
    let n = take_apart_f64(abs(b), &eb);
    m = m % n;
    for (var left = ea - eb; left > 0; left -= 11) {
        m = (m << u32(min(left, 11))) % n;
    }
    let r = scale2_f64(f64(m), eb);
    return select(r, -r, sign_bit_f64(a));
}

// Whether a and b (neither is NaN) have different signs and a is not zero.
fn opposite_f64(a: f64, b: f64) -> bool {
    return (bitcast<u64>(a) & 0x7ffffffffffffffflu) != 0lu && sign_bit_f64(a) != sign_bit_f64(b);
}

fn remainder_f64(a: f64, b: f64) -> f64 {
    let m = fmod_f64(a, b);
    return select(m, m + b, opposite_f64(m, b) && !is_nan_f64(m));
}

fn floordiv_f64(a: f64, b: f64) -> f64 {
    if (b == 0.0lf) {
        return a / b;
    }
    let m = fmod_f64(a, b);
    if (is_nan_f64(m)) {
        return m;
    }
    var d = (a - m) / b;
    if (opposite_f64(m, b)) {
        d -= 1.0lf;
    }
    if (d == 0.0lf) {
        return select(0.0lf, -0.0lf, sign_bit_f64(a) != sign_bit_f64(b));
    }
    let low = floor(d);
    return select(low, low + 1.0lf, d - low > 0.5lf);
}

fn i32_from_f64(x: f64) -> i32 {
    if (is_nan_f64(x)) {
        return 0;
    }
    if (x >= 2147483647.0lf) {
        return 2147483647;
    }
    if (x <= -2147483648.0lf) {
        return bitcast<i32>(0x80000000u);
    }
    return i32(x);
}

fn u32_from_f64(x: f64) -> u32 {
    if (is_nan_f64(x) || x <= 0.0lf) {
        return 0u;
    }
    if (x >= 4294967295.0lf) {
        return 0xffffffffu;
    }
    return u32(x);
}

fn uniform_f64(w: vec4<u32>) -> f64 {
    return f64(((u64(w.x) << 32u) | u64(w.y)) >> 11u) * 1.1102230246251565e-16lf;
}

fn normal_f64(w: vec4<u32>) -> f64 {
    let u1 = f64((((u64(w.x) << 32u) | u64(w.y)) >> 11u) + 1lu) * 1.1102230246251565e-16lf;
    let u2 = f64(((u64(w.z) << 32u) | u64(w.w)) >> 11u) * 1.1102230246251565e-16lf;
    return sqrt(-2.0lf * log_f64(u1)) * cos_f64(6.283185307179586477lf * u2);
}
