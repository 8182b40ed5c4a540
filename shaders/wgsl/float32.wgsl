// Real functions of f32, accurate to a few units in the last place on every driver. WGSL lets a compiler
// assume that NaN and infinity do not occur, and lets it reorder sums. So NaN is tested on the bits,
// infinities are made from bits, and no formula here relies on the value of (a + b) - a.

// Returns x, but hides its value from the compiler: no sum, product or quotient is rearranged across the
// call, and nothing cancels. The top bit of first_workgroup is never set, which the compiler cannot know.
// Generated kernels wrap every float that one operation passes to another in this call.
fn opaque_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ (params.first_workgroup >> 31u));
}

// Like opaque_f32, for a value that is already opaque or was made from an opaque one by moving bits.
// Applying the same exclusive or twice is the identity, and NVIDIA's compiler notices that.
fn distinct_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | (params.first_workgroup >> 31u));
}

fn is_nan_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_inf_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

// Infinity and NaN go through a variable: a constant expression must not produce either, and Chromium's
// compiler refuses it.
fn inf_f32() -> f32 {
    var bits = 0x7f800000u;
    return bitcast<f32>(bits);
}

fn nan_f32() -> f32 {
    var bits = 0x7fc00000u;
    return bitcast<f32>(bits);
}

// `&` instead of `&&` avoids branches, because some compilers evaluate every path.
fn eq_f32(a: f32, b: f32) -> bool {
    return (a == b) & !is_nan_f32(a) & !is_nan_f32(b);
}

fn lt_f32(a: f32, b: f32) -> bool {
    return (a < b) & !is_nan_f32(a) & !is_nan_f32(b);
}

fn le_f32(a: f32, b: f32) -> bool {
    return (a <= b) & !is_nan_f32(a) & !is_nan_f32(b);
}

fn max_f32(a: f32, b: f32) -> f32 {
    return select(select(select(b, a, a > b), b, is_nan_f32(b)), a, is_nan_f32(a));
}

fn min_f32(a: f32, b: f32) -> f32 {
    return select(select(select(b, a, a < b), b, is_nan_f32(b)), a, is_nan_f32(a));
}

// Tests for negative numbers on the bits: NaN and -0 are returned unchanged.
fn relu_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    return select(x, 0.0, bits > 0x80000000u && bits <= 0xff800000u);
}

// Computed on the bits: returns 0 for both zeros and for NaN.
fn sign_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    return select(select(1.0, -1.0, bits != size), 0.0, size == 0u || size > 0x7f800000u);
}

// Negative, infinite and NaN arguments are selected by their bits.
fn sqrt_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let special = select(x, nan_f32(), bits > 0x80000000u);
    return select(sqrt(x), special, bits >= 0x7f800000u);
}

fn rsqrt_f32(x: f32) -> f32 {
    return 1.0 / sqrt_f32(x);
}

// a / b. GPUs multiply a by the reciprocal of b. For |b| of 2^126 or more the reciprocal is denormal, and
// WGSL allows it to be flushed to zero. So such a b is divided by 4 first, and the quotient as well.
fn div_f32(a: f32, b: f32) -> f32 {
    let bits = bitcast<u32>(b);
    let size = bits & 0x7fffffffu;
    let is_far = size >= 0x7e800000u && size < 0x7f800000u;
    return a / bitcast<f32>(select(bits, bits - 0x01000000u, is_far)) * select(1.0, 0.25, is_far);
}

// y·2^k for k in -300..300, in two steps so that each factor is finite.
fn scale2_f32(y: f32, k: i32) -> f32 {
    let half = k >> 1u;
    let rest = k - half;
    return (y * bitcast<f32>(u32(half + 127) << 23u)) * bitcast<f32>(u32(rest + 127) << 23u);
}

// e^r - 1 for |r| ≤ ½ ln 2: the polynomial that interpolates (e^r - 1 - r)/r² at Chebyshev nodes.
fn expm1_reduced_f32(r: f32) -> f32 {
    var p = 1.392621314e-3;
    p = p * r + 8.363203146e-3;
    p = p * r + 4.166655615e-2;
    p = p * r + 0.1666657627;
    p = p * r + 0.5;
    return r * r * p + r;
}

// A whole number k of at most nine bits, shifted to the exponent field. Adding 1.5·2^23 leaves k in the
// last bits of the float.
fn exponent_f32(k: f32) -> u32 {
    return bitcast<u32>(k + 12582912.0) << 23u;
}

// e^x for x in -104..89: x = k·ln 2 + r; a polynomial in r, times 2^k in two steps so that both factors are
// finite. A compiler that merged the two parts of ln 2 into one constant would lose the digits of r.
fn exp_within_f32(x: f32) -> f32 {
    let k = round(x * 1.44269504);
    let r = opaque_f32(x - k * 0.693359375) + k * 2.12194440e-4;
    return times_two_to_f32(expm1_reduced_f32(r) + 1.0, k);
}

// y·2^k for |y| in 2^-30..2^30 and a whole number k of at most nine bits.
fn times_two_to_f32(y: f32, k: f32) -> f32 {
    let whole = exponent_f32(k);
    let half = bitcast<u32>(bitcast<i32>(whole) >> 1u) & 0xff800000u;
    return bitcast<f32>(bitcast<u32>(y) + half) * bitcast<f32>(whole - half + 0x3f800000u);
}

fn exp_f32(x: f32) -> f32 {
    return select(exp_within_f32(clamp(x, -104.0, 89.0)), x, is_nan_f32(x));
}

// e^x - 1: a Taylor polynomial near 0, where the subtraction would cancel.
fn expm1_f32(x: f32) -> f32 {
    // The sums below would lose the sign of a zero.
    if (x == 0.0) {
        return x;
    }
    if (!(abs(x) < 0.5) || is_nan_f32(x)) {
        return exp_f32(x) - 1.0;
    }
    var p = 2.7557319e-6;
    p = p * x + 2.4801587e-5;
    p = p * x + 1.9841270e-4;
    p = p * x + 1.3888889e-3;
    p = p * x + 8.3333333e-3;
    p = p * x + 4.1666667e-2;
    p = p * x + 0.16666667;
    p = p * x + 0.5;
    return x + x * x * p;
}

// f - ln(1 + f), for 1 + f between √½ and √2 (fdlibm).
fn log1p_tail_f32(f: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * (0.66666662693 + z * (0.40000972152 + z * (0.28498786688 + z * 0.24279078841)));
    let h = 0.5 * f * f;
    return s * (h + r) - h;
}

// ln x: the exponent is split off, which leaves a mantissa between √½ and √2. Special cases are selected at
// the end, without branches.
fn log_f32(x: f32) -> f32 {
    let given = bitcast<u32>(x);
    // The bits of a denormal, read as an integer, are the number times 2^149.
    let denormal = given < 0x00800000u;
    let scaled = select(given, bitcast<u32>(f32(given)), denormal);
    let bits = scaled + (0x3f800000u - 0x3f3504f3u);
    let dk = f32(select(-127, -276, denormal) + i32(bits >> 23u));
    let f = bitcast<f32>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0;
    let y = opaque_f32(log1p_tail_f32(f) + dk * 9.0580006145e-06) + f + dk * 6.9313812256e-01;
    let positive = select(y, nan_f32(), given > 0x80000000u);
    let finite = select(positive, -inf_f32(), (given & 0x7fffffffu) == 0u);
    return select(finite, x, given == 0x7f800000u || is_nan_f32(x));
}

fn log1p_f32(x: f32) -> f32 {
    // The sums below would lose the sign of a zero.
    if (x == 0.0) {
        return x;
    }
    if (x > -0.29 && x < 0.41) {
        return x + log1p_tail_f32(x);
    }
    return log_f32(1.0 + x);
}

// ln(eᵃ + eᵇ).
fn log_add_exp_f32(a: f32, b: f32) -> f32 {
    let greater = max_f32(a, b);
    if (is_nan_f32(greater) || is_inf_f32(greater)) {
        return greater;
    }
    return greater + log1p_f32(exp_f32(min(a, b) - greater));
}

// tanh |x| = e/(e + 2) with e = e^2|x| - 1, which is accurate near 0. Beyond 10 the result is 1. The sign
// is applied at the end, because sums would lose the sign of a zero.
fn tanh_f32(x: f32) -> f32 {
    let a = min(abs(x), 10.0);
    let k = round(a * 2.88539008);
    // The product is exact wherever its error would matter.
    let r = (a + a) - k * 0.69314718;
    let s = bitcast<f32>(exponent_f32(k) + 0x3f800000u);
    let e = s * expm1_reduced_f32(r) + (s - 1.0);
    let y = bitcast<u32>(e / (e + 2.0)) | (bitcast<u32>(x) & 0x80000000u);
    return select(bitcast<f32>(y), x, is_nan_f32(x));
}

fn sigmoid_f32(x: f32) -> f32 {
    let e = exp_within_f32(max(-abs(x), -104.0));
    return select(select(1.0, e, x < 0.0) / (1.0 + e), x, is_nan_f32(x));
}

// Cephes: a polynomial below 1, one minus the complement above.
fn erf_f32(x: f32) -> f32 {
    // The sums below would lose the sign of a zero.
    if (is_nan_f32(x) || x == 0.0) {
        return x;
    }
    let a = abs(x);
    let z = x * x;
    if (a < 1.0) {
        var p = 7.853861353153693e-5;
        p = p * z - 8.010193625184903e-4;
        p = p * z + 5.188327685732524e-3;
        p = p * z - 2.685381193529856e-2;
        p = p * z + 1.128358514861418e-1;
        p = p * z - 3.761262582423300e-1;
        p = p * z + 1.128379165726710e+0;
        return x * p;
    }
    if (a > 4.0) {
        return select(1.0, -1.0, x < 0.0);
    }
    let q = 1.0 / a;
    let y = q * q;
    var p: f32;
    if (a < 2.0) {
        p = 2.326819970068386e-2;
        p = p * y - 1.387039388740657e-1;
        p = p * y + 3.687424674597105e-1;
        p = p * y - 5.824733027278666e-1;
        p = p * y + 6.210004621745983e-1;
        p = p * y - 4.944515323274145e-1;
        p = p * y + 3.404879937665872e-1;
        p = p * y - 2.741127028184656e-1;
        p = p * y + 5.638259427386472e-1;
    } else {
        p = -1.047766399936249e+1;
        p = p * y + 1.297719955372516e+1;
        p = p * y - 7.495518717768503e+0;
        p = p * y + 2.921019019210786e+0;
        p = p * y - 1.015265279202700e+0;
        p = p * y + 4.218463358204948e-1;
        p = p * y - 2.820767439740514e-1;
        p = p * y + 5.641895067754075e-1;
    }
    let r = 1.0 - exp_f32(-z) * q * p;
    return select(r, -r, x < 0.0);
}

// e^(-a²/2) / 2^k and k, for a in 0..14.43. The square of the leading bits is exact; the rest is a small
// exponent.
fn gaussian_parts_f32(a: f32) -> vec2<f32> {
    let high = head_f32(a);
    let square = -0.5 * (high * high);
    let rest = -0.5 * ((a - high) * (a + high));
    let k = round((square + rest) * 1.44269504);
    let r = (opaque_f32(square - k * 0.693359375) + k * 2.12194440e-4) + rest;
    return vec2<f32>(expm1_reduced_f32(r) + 1.0, k);
}

fn gaussian_f32(x: f32) -> f32 {
    let parts = gaussian_parts_f32(min(abs(x), 14.43));
    return select(times_two_to_f32(parts.x, parts.y), x, is_nan_f32(x));
}

// The normal distribution function. Below 0 it is e^(-x²/2) / (|x| + 0.797) times a polynomial that varies
// little; above, it is one minus that.
fn ndtr_f32(x: f32) -> f32 {
    let a = min(abs(x), 14.43);
    let parts = gaussian_parts_f32(a);
    let t = (a - 2.0) / (a + 2.0);
    var p = -6.14905447e-05;
    p = p * t - 8.99975481e-05;
    p = p * t + 0.000296388636;
    p = p * t + 0.000842915688;
    p = p * t + 1.81400546e-05;
    p = p * t - 0.00339103957;
    p = p * t - 0.00485805514;
    p = p * t + 0.0107158297;
    p = p * t + 0.0343374745;
    p = p * t - 0.0795445621;
    p = p * t - 0.0294765299;
    p = p * t + 0.470160284;
    let tail = times_two_to_f32(parts.x * (p / (a + 0.796875)), parts.y);
    return select(select(tail, 1.0 - tail, x > 0.0), x, is_nan_f32(x));
}

// Payne and Hanek's reduction: |x| / 2π with 96 bits of 1/2π, for arguments that are too large to subtract
// multiples of π/2 from.
fn reduce_large_f32(x: f32, r: ptr<function, f32>) -> i32 {
    let bits = bitcast<u32>(x);
    let m = (bits << 8u) | 0x80000000u;
    // The four words of 1/2π from bit 32·⌊e/32⌋ - 32 on. They are selected, because a table in memory is
    // slow on software adapters.
    let e = ((bits >> 23u) & 0xffu) - 126u;
    let by_four = e >= 128u;
    let a0 = select(0u, 0x7d4d3770u, by_four);
    let a1 = select(0x28be60dbu, 0x36d8a566u, by_four);
    let a2 = select(0x9391054au, 0x4f10e410u, by_four);
    let a3 = select(0x7f09d5f4u, 0x7f9458eau, by_four);
    let by_two = (e & 64u) != 0u;
    let b0 = select(a0, a2, by_two);
    let b1 = select(a1, a3, by_two);
    let b2 = select(a2, 0x7d4d3770u, by_two);
    let b3 = select(a3, 0x36d8a566u, by_two);
    let b4 = select(0x7d4d3770u, 0x4f10e410u, by_two);
    let by_one = (e & 32u) != 0u;
    let c0 = select(b0, b1, by_one);
    let c1 = select(b1, b2, by_one);
    let c2 = select(b2, b3, by_one);
    let c3 = select(b3, b4, by_one);
    let s = e & 31u;
    let t = 31u - s;
    let hi = (c0 << s) | ((c1 >> 1u) >> t);
    let mid = (c1 << s) | ((c2 >> 1u) >> t);
    let lo = (c2 << s) | ((c3 >> 1u) >> t);
    let low = mul_wide(m, lo).y;
    let middle = mul_wide(m, mid);
    var p_lo = middle.x + low;
    var p_hi = middle.y + select(0u, 1u, p_lo < low) + m * hi;
    var q = i32(p_hi >> 30u);
    p_hi &= 0x3fffffffu;
    var negative = false;
    if ((p_hi & 0x20000000u) != 0u) {
        q += 1;
        negative = true;
        p_hi = 0x40000000u - p_hi - select(0u, 1u, p_lo != 0u);
        p_lo = 0u - p_lo;
    }
    let size = (f32(p_hi) * 4294967296.0 + f32(p_lo)) * 3.4061215800304e-19;
    *r = select(size, -size, negative != (x < 0.0));
    return select(q, -q, x < 0.0);
}

fn sin_kernel_f32(r: f32) -> f32 {
    let z = r * r;
    return ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * r + r;
}

fn cos_kernel_f32(r: f32) -> f32 {
    let z = r * r;
    return ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
}

// |x| - q·π/2 for |x| < 2000. q has at most 11 bits, so the products with the first two parts of π/2 are
// exact.
fn reduce_near_f32(x: f32, q: ptr<function, u32>) -> f32 {
    let k = round(abs(x) * 0.636619772);
    *q = bitcast<u32>(k + 12582912.0);
    let high = opaque_f32(abs(x) - k * 1.5703125);
    return opaque_f32(high - k * 4.837512969970703125e-4) - k * 7.549789948768648e-8;
}

// y, negated if bit 1 of q is set, and negated again if x is negative: the sine is odd and keeps the sign
// of a zero.
fn with_sign_f32(y: f32, q: u32, x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(y) ^ ((q & 2u) << 30u) ^ (bitcast<u32>(x) & 0x80000000u));
}

// The sine, cosine and tangent for |x| < 2000, without branches.
fn sin_near_f32(x: f32) -> f32 {
    var q: u32;
    let r = reduce_near_f32(x, &q);
    return with_sign_f32(select(sin_kernel_f32(r), cos_kernel_f32(r), (q & 1u) != 0u), q, x);
}

fn cos_near_f32(x: f32) -> f32 {
    var q: u32;
    let r = reduce_near_f32(x, &q);
    return with_sign_f32(select(cos_kernel_f32(r), sin_kernel_f32(r), (q & 1u) != 0u), q + 1u, 0.0);
}

fn tan_near_f32(x: f32) -> f32 {
    var q: u32;
    let r = reduce_near_f32(x, &q);
    let s = sin_kernel_f32(r);
    let c = cos_kernel_f32(r);
    let odd = (q & 1u) != 0u;
    return with_sign_f32(select(s, c, odd) / select(c, s, odd), q << 1u, x);
}

fn is_near_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) < 0x44fa0000u;
}

fn sin_f32(x: f32) -> f32 {
    if (is_near_f32(x)) {
        return sin_near_f32(x);
    }
    if (is_nan_f32(x) || is_inf_f32(x)) {
        return nan_f32();
    }
    var r: f32;
    let q = reduce_large_f32(x, &r);
    return with_sign_f32(select(sin_kernel_f32(r), cos_kernel_f32(r), (q & 1) != 0), bitcast<u32>(q), 0.0);
}

fn cos_f32(x: f32) -> f32 {
    if (is_near_f32(x)) {
        return cos_near_f32(x);
    }
    if (is_nan_f32(x) || is_inf_f32(x)) {
        return nan_f32();
    }
    var r: f32;
    let q = reduce_large_f32(x, &r);
    return with_sign_f32(select(cos_kernel_f32(r), sin_kernel_f32(r), (q & 1) != 0), bitcast<u32>(q + 1), 0.0);
}

fn tan_f32(x: f32) -> f32 {
    if (is_near_f32(x)) {
        return tan_near_f32(x);
    }
    if (is_nan_f32(x) || is_inf_f32(x)) {
        return nan_f32();
    }
    var r: f32;
    let q = reduce_large_f32(x, &r);
    let s = sin_kernel_f32(r);
    let c = cos_kernel_f32(r);
    if ((q & 1) == 0) {
        return s / c;
    }
    return -c / s;
}

// The quotient of the smaller by the greater leg, an arctangent on [0, 1] (Cephes), then the octant.
fn atan2_f32(y: f32, x: f32) -> f32 {
    if (is_nan_f32(x) || is_nan_f32(y)) {
        return nan_f32();
    }
    let ax = abs(x);
    let ay = abs(y);
    var t = 0.0;
    if (is_inf_f32(x) && is_inf_f32(y)) {
        t = 1.0;
    } else if (is_inf_f32(x) || is_inf_f32(y)) {
        t = 0.0;
    } else if (max(ax, ay) > 0.0) {
        t = div_f32(min(ax, ay), max(ax, ay));
    }
    var base = 0.0;
    if (t > 0.41421356) {
        base = 0.78539816;
        t = (t - 1.0) / (t + 1.0);
    }
    let z = t * t;
    var p = 8.05374449538e-2;
    p = p * z - 1.38776856032e-1;
    p = p * z + 1.99777106478e-1;
    p = p * z - 3.33329491539e-1;
    var a = base + (p * z * t + t);
    if (ay > ax) {
        a = 1.57079633 - a;
    }
    if (bitcast<u32>(x) >= 0x80000000u) {
        a = 3.14159265 - a;
    }
    return bitcast<f32>(bitcast<u32>(a) | (bitcast<u32>(y) & 0x80000000u));
}

// The leading bits of x; the product of two such numbers is exact.
fn head_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// a^b for finite a > 0, a ≠ 1, in two-part arithmetic (fdlibm's e_powf.c): log2 a as head and tail, times b
// in the same way, then 2 to that power.
fn pow_positive_f32(a: f32, b: f32) -> f32 {
    var n = -127;
    var ix = bitcast<u32>(a);
    if (ix < 0x00800000u) {
        let shift = countLeadingZeros(ix) - 8u;
        ix = ix << shift;
        n -= i32(shift);
    }
    n += i32(ix >> 23u);
    let j = ix & 0x007fffffu;
    ix = j | 0x3f800000u;
    var k = 0u;
    if (j > 0x1cc471u) {
        if (j < 0x5db3d7u) {
            k = 1u;
        } else {
            n += 1;
            ix -= 0x00800000u;
        }
    }
    let bp = select(1.0, 1.5, k == 1u);
    let dp_h = select(0.0, bitcast<f32>(0x3f15c000u), k == 1u);
    let dp_l = select(0.0, bitcast<f32>(0x35d1cfdcu), k == 1u);
    let ax = bitcast<f32>(ix);
    var u = ax - bp;
    var v = 1.0 / (ax + bp);
    let s = u * v;
    let s_h = head_f32(s);
    var t_h = bitcast<f32>((((ix >> 1u) & 0xfffff000u) | 0x20000000u) + 0x00400000u + (k << 21u));
    var t_l = ax - (t_h - bp);
    let s_l = v * ((u - s_h * t_h) - s_h * t_l);
    var s2 = s * s;
    var r = s2 * s2 * (6.0000002384e-01 + s2 * (4.2857143283e-01 + s2 * (3.3333334327e-01
        + s2 * (2.7272811532e-01 + s2 * (2.3066075146e-01 + s2 * 2.0697501302e-01)))));
    r += s_l * (s_h + s);
    s2 = s_h * s_h;
    t_h = head_f32(3.0 + s2 + r);
    t_l = r - ((t_h - 3.0) - s2);
    u = s_h * t_h;
    v = s_l * t_h + t_l * s;
    var p_h = head_f32(u + v);
    var p_l = v - (p_h - u);
    let z_h = opaque_f32(bitcast<f32>(0x3f764000u) * p_h);
    let z_l = bitcast<f32>(0xb8f623c6u) * p_h + p_l * bitcast<f32>(0x3f76384fu) + dp_l;
    let t = f32(n);
    let t1 = head_f32(((z_h + z_l) + dp_h) + t);
    let t2 = z_l - (((t1 - t) - dp_h) - z_h);
    let b1 = head_f32(b);
    p_l = (b - b1) * t1 + b * t2;
    p_h = b1 * t1;
    let z = p_l + p_h;
    if (z >= 128.0) {
        return inf_f32();
    }
    if (z < -151.0) {
        return 0.0;
    }
    let e = round(z);
    p_h -= e;
    let w_h = bitcast<f32>(bitcast<u32>(p_l + p_h) & 0xffff8000u);
    let w_l = (p_l - (w_h - p_h)) * 6.9314718246e-01 + w_h * bitcast<f32>(0x35bfbe8cu);
    let x = w_h * bitcast<f32>(0x3f317200u) + opaque_f32(w_l);
    let xx = x * x;
    let c = x - xx * (1.6666667163e-01 + xx * (-2.7777778450e-03 + xx * (6.6137559770e-05
        + xx * (-1.6533901999e-06 + xx * 4.1381369442e-08))));
    let y = 1.0 - (x * c / (c - 2.0) - x);
    return scale2_f32(y, i32(e));
}

// a^b with the special cases of IEEE 754.
fn pow_f32(a: f32, b: f32) -> f32 {
    if (b == 0.0 && !is_nan_f32(b)) {
        return 1.0;
    }
    if (a == 1.0 && !is_nan_f32(a)) {
        return 1.0;
    }
    if (is_nan_f32(a) || is_nan_f32(b)) {
        return nan_f32();
    }
    let aa = abs(a);
    let ab = abs(b);
    let integral = ab >= 16777216.0 || trunc(b) == b;
    let odd = ab < 16777216.0 && integral && (u32(ab) & 1u) == 1u;
    let negative = bitcast<u32>(a) >= 0x80000000u;
    var y: f32;
    if (aa == 1.0) {
        y = 1.0;
    } else if (ab > 1.0e10 || aa == 0.0 || is_inf_f32(a)) {
        y = select(0.0, inf_f32(), (aa > 1.0) == (b > 0.0));
    } else {
        y = pow_positive_f32(aa, b);
    }
    if (negative) {
        if (!integral && aa != 0.0 && !is_inf_f32(a)) {
            return nan_f32();
        }
        return select(y, -y, odd);
    }
    return y;
}

// The whole number m and the exponent e of a finite x = m·2^e > 0; the top bit of m is set.
fn take_apart_f32(x: f32, e: ptr<function, i32>) -> u32 {
    let bits = bitcast<u32>(x);
    let m = bits & 0x7fffffu;
    let normal = bits >= 0x800000u;
    let shift = select(countLeadingZeros(m) - 8u, 0u, normal);
    *e = select(-149, i32(bits >> 23u) - 150, normal) - i32(shift);
    return select(m << shift, m | 0x800000u, normal);
}

// The remainder of a by b with the sign of a (C's fmod). Exact: a long division of the mantissas, eight
// bits per round, at most 35 rounds.
fn fmod_f32(a: f32, b: f32) -> f32 {
    let size_a = bitcast<u32>(a) & 0x7fffffffu;
    let size_b = bitcast<u32>(b) & 0x7fffffffu;
    if (size_a >= 0x7f800000u || size_b > 0x7f800000u || b == 0.0) {
        return nan_f32();
    }
    if (size_a < size_b) {
        return a;
    }
    var ea: i32;
    var eb: i32;
    var m = take_apart_f32(abs(a), &ea);
    let n = take_apart_f32(abs(b), &eb);
    m = m % n;
    for (var left = ea - eb; left > 0; left -= 8) {
        m = (m << u32(min(left, 8))) % n;
    }
    return bitcast<f32>(bitcast<u32>(scale2_f32(f32(m), eb)) | (bitcast<u32>(a) & 0x80000000u));
}

// Whether a and b (neither is NaN) have different signs and a is not zero.
fn opposite_f32(a: f32, b: f32) -> bool {
    let bits = bitcast<u32>(a);
    return (bits & 0x7fffffffu) != 0u && ((bits ^ bitcast<u32>(b)) & 0x80000000u) != 0u;
}

// The remainder with the sign of b (Python's %).
fn remainder_f32(a: f32, b: f32) -> f32 {
    let m = fmod_f32(a, b);
    return select(m, m + b, opposite_f32(m, b) && !is_nan_f32(m));
}

// ⌊a/b⌋ computed from the exact remainder, as PyTorch and Python define it: ⌊1/0.1⌋ is 9, because the float
// 0.1 is a little more than a tenth, although the rounded quotient is 10. A quotient that underflows keeps
// its sign.
fn floordiv_f32(a: f32, b: f32) -> f32 {
    if (b == 0.0) {
        return a / b;
    }
    let m = fmod_f32(a, b);
    if (is_nan_f32(m)) {
        return m;
    }
    var d = div_f32(a - m, b);
    if (opposite_f32(m, b)) {
        d -= 1.0;
    }
    if (d == 0.0) {
        return bitcast<f32>((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u);
    }
    let low = floor(d);
    return select(low, low + 1.0, d - low > 0.5);
}
