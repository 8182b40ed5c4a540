/* The functions of functions.rs in C, with the same bits. */

// @ bits_f32
static inline float bits_f32(uint32_t bits) { union { uint32_t bits; float x; } u; u.bits = bits; return u.x; }

// @ f32_bits
static inline uint32_t f32_bits(float x) { union { uint32_t bits; float x; } u; u.x = x; return u.bits; }

// @ bits_f64
static inline double bits_f64(uint64_t bits) { union { uint64_t bits; double x; } u; u.bits = bits; return u.x; }

// @ f64_bits
static inline uint64_t f64_bits(double x) { union { uint64_t bits; double x; } u; u.x = x; return u.bits; }

// @ two_to bits_f32 f32_bits
static inline float two_to(float k_and_magic, int32_t n) {
    return bits_f32((f32_bits(k_and_magic) + (uint32_t)(127 + n)) << 23);
}

// @ times_two_to two_to
static inline float times_two_to(float y, float k, float shifted) {
    int32_t offset = k < 0.0f ? 64 : -64;
    return y * two_to(shifted, offset) * two_to(0.0f, -offset);
}

// @ polynomial
static inline float polynomial(float x, const float *c, size_t n) {
    float p = c[0];
    for (size_t i = 1; i < n; i++) p = p * x + c[i];
    return p;
}

// @ exp_reduced polynomial
typedef struct { float r, p, k, shifted; } reduced_t;
static inline reduced_t exp_reduced(float x, float rest) {
    static const float c[6] = {1.9875691e-4f, 1.3981999e-3f, 8.333452e-3f, 4.1665796e-2f, 1.6666665e-1f, 0.5f};
    reduced_t to;
    to.shifted = (x + rest) * 1.44269504088896340736f + 12582912.0f;
    to.k = to.shifted - 12582912.0f;
    to.r = to.k * 2.1219444e-4f + (to.k * -0.6933594f + x) + rest;
    to.p = polynomial(to.r, c, 6);
    return to;
}

// @ exp_parts exp_reduced
typedef struct { float y, k, shifted; } parts_t;
static inline parts_t exp_parts(float x, float rest) {
    reduced_t of = exp_reduced(x, rest);
    parts_t to;
    float y = 1.0f + of.r;
    to.y = y + (of.p * (of.r * of.r) + (of.r - (y - 1.0f)));
    to.k = of.k;
    to.shifted = of.shifted;
    return to;
}

// @ exp_f32 exp_reduced times_two_to
static inline float exp_f32(float x) {
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    reduced_t of = exp_reduced(x, 0.0f);
    return times_two_to(1.0f + (of.p * (of.r * of.r) + of.r), of.k, of.shifted);
}

// @ power_of_two bits_f64 f64_bits
static inline double power_of_two(double shifted) { return bits_f64((f64_bits(shifted) + 1023) << 52); }

// @ exp2_tail
static inline double exp2_tail(double r) {
#define L 0.693147180559945309417232121458
    static const double c[9] = {
        L, L * L / 2.0, L * L * L / 6.0, L * L * L * L / 24.0, L * L * L * L * L / 120.0,
        L * L * L * L * L * L / 720.0, L * L * L * L * L * L * L / 5040.0,
        L * L * L * L * L * L * L * L / 40320.0, L * L * L * L * L * L * L * L * L / 362880.0};
#undef L
    double p = c[8];
    for (int i = 7; i >= 0; i--) p = p * r + c[i];
    return p;
}

// @ within_200
static inline double within_200(double t) {
    t = t < -200.0 ? -200.0 : t;
    return t > 200.0 ? 200.0 : t;
}

// @ exp2_f64 within_200 exp2_tail power_of_two
static inline double exp2_f64(double t) {
    t = within_200(t);
    double shifted = t + 6755399441055744.0;
    double r = t - (shifted - 6755399441055744.0);
    return (1.0 + r * exp2_tail(r)) * power_of_two(shifted);
}

// @ expm1_f32 within_200 exp2_tail power_of_two
static inline float expm1_f32(float x) {
    double t = within_200((double)x * 1.44269504088896340735992468100);
    double shifted = t + 6755399441055744.0;
    double r = t - (shifted - 6755399441055744.0);
    double scale = power_of_two(shifted);
    return x == 0.0f ? x : (float)(scale * (r * exp2_tail(r)) + (scale - 1.0));
}

// @ ln_f64 bits_f64 f64_bits
static inline double ln_f64(double x) {
    uint64_t bits = f64_bits(x);
    int64_t e = (int64_t)(bits - UINT64_C(0x3fe6a09e667f3bcd)) >> 52;
    double m = bits_f64(bits - ((uint64_t)e << 52));
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double p = 2.0 / 15.0;
    p = p * z + 2.0 / 13.0;
    p = p * z + 2.0 / 11.0;
    p = p * z + 2.0 / 9.0;
    p = p * z + 2.0 / 7.0;
    p = p * z + 2.0 / 5.0;
    p = p * z + 2.0 / 3.0;
    p = p * z + 2.0;
    return (double)(int32_t)e * 0.693147180559945309417232121458 + s * p;
}

// @ log_f32 polynomial bits_f32 f32_bits
static inline float log_f32(float x) {
    static const float c[9] = {7.0376836e-2f, -1.151461e-1f, 1.1676998e-1f, -1.2420141e-1f, 1.4249323e-1f,
                               -1.6668058e-1f, 2.0000714e-1f, -2.4999994e-1f, 3.333333e-1f};
    int small = x < 1.17549435e-38f;
    float scaled = small ? x * 8388608.0f : x;
    float extra = small ? -23.0f : 0.0f;
    uint32_t bits = f32_bits(scaled);
    int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23;
    float f = bits_f32(bits - ((uint32_t)exponent << 23)) - 1.0f;
    float e = (float)exponent + extra;
    float z = f * f;
    float p = polynomial(f, c, 9);
    float y = e * -2.1219444e-4f + f * z * p;
    y = e * 0.6933594f + (-0.5f * z + y + f);
    y = x == 0.0f ? bits_f32(0xff800000u) : y;
    y = x < 0.0f ? bits_f32(0x7fc00000u) : y;
    return x < bits_f32(0x7f800000u) ? y : x;
}

// @ log1p_f32 ln_f64 bits_f32
static inline float log1p_f32(float x) {
    double wide = (double)x;
    double y = 1.0 + wide;
    double lost = wide - (y - 1.0);
    float r = x == -1.0f ? bits_f32(0xff800000u) : (float)(ln_f64(y) + lost / y);
    r = x < -1.0f ? bits_f32(0x7fc00000u) : r;
    r = x == 0.0f ? x : r;
    return x < bits_f32(0x7f800000u) ? r : x;
}

// @ abs_f32 bits_f32 f32_bits
static inline float abs_f32(float x) { return bits_f32(f32_bits(x) & 0x7fffffffu); }

// @ signed_f32 bits_f32 f32_bits
static inline float signed_f32(float x, float sign) {
    return bits_f32((f32_bits(x) & 0x7fffffffu) | (f32_bits(sign) & 0x80000000u));
}

// @ tanh_f32 abs_f32 exp_parts two_to polynomial
static inline float tanh_f32(float x) {
    static const float c[5] = {-5.7049887e-3f, 2.063909e-2f, -5.3739715e-2f, 1.3331442e-1f, -3.333328e-1f};
    float size = abs_f32(x);
    float bounded = size > 10.0f ? 10.0f : size;
    parts_t of = exp_parts(bounded + bounded, 0.0f);
    float e = of.y * two_to(of.shifted, 0);
    float large = 1.0f - 2.0f / (e + 1.0f);
    large = x < 0.0f ? -large : large;
    float z = x * x;
    float small = x * (z * polynomial(z, c, 5)) + x;
    small = x == 0.0f ? x : small;
    return size < 0.625f ? small : large;
}

// @ sigmoid_f32 abs_f32 exp_parts times_two_to
static inline float sigmoid_f32(float x) {
    float size = abs_f32(x);
    size = size > 104.0f ? 104.0f : size;
    parts_t of = exp_parts(-size, 0.0f);
    float e = times_two_to(of.y, of.k, of.shifted);
    float top = x < 0.0f ? e : 1.0f;
    float sum = 1.0f + e;
    float lost = e - (sum - 1.0f);
    float y = top / sum;
    return y - y * lost * (1.0f - 0.5f * e);
}

// @ erf_f32 abs_f32 polynomial exp_f32
static inline float erf_f32(float x) {
    static const float near[6] = {-5.967617e-4f, 4.991194e-3f, -2.6768135e-2f, 1.1281992e-1f, -3.7612534e-1f,
                                  1.2837917e-1f};
    static const float far[7] = {-1.7285347e-5f, 3.8319713e-4f, -3.8839644e-3f, 2.4254622e-2f, -1.0677788e-1f,
                                 -6.3484687e-1f, -1.2871751e-1f};
    float t = abs_f32(x), s = x * x;
    float small = polynomial(s, near, 6) * x + x;
    float large = 1.0f - exp_f32(polynomial(t, far, 7) * t + -t);
    large = x < 0.0f ? -large : large;
    return t > 0.9277344f ? large : small;
}

// @ decay_parts exp_parts bits_f32 f32_bits
static inline parts_t decay_parts(float a) {
    float high = bits_f32(f32_bits(a) & 0xfffff000u);
    float rest = (a - high) * (a + high);
    return exp_parts(-0.5f * (high * high), -0.5f * rest);
}

// @ gaussian_f32 abs_f32 decay_parts times_two_to
static inline float gaussian_f32(float x) {
    float a = abs_f32(x);
    parts_t of = decay_parts(a > 14.43f ? 14.43f : a);
    return times_two_to(of.y, of.k, of.shifted);
}

// @ ndtr_f32 abs_f32 decay_parts times_two_to polynomial
static inline float ndtr_f32(float x) {
    static const float c[12] = {-6.1490544e-5f, -8.999755e-5f, 2.9638864e-4f, 8.429157e-4f,
                                1.8140156e-5f, -3.3910396e-3f, -4.858055e-3f, 1.071583e-2f,
                                3.4337476e-2f, -7.954456e-2f, -2.947653e-2f, 4.7016028e-1f};
    float a = abs_f32(x);
    a = a > 14.43f ? 14.43f : a;
    parts_t of = decay_parts(a);
    float p = polynomial((a - 2.0f) / (a + 2.0f), c, 12);
    float tail = times_two_to(of.y * (p / (a + 0.796875f)), of.k, of.shifted);
    return x > 0.0f ? 1.0f - tail : tail;
}

// @ sin_cos_f64 bits_f64 f64_bits
typedef struct { double sin, cos; } wide_angle_t;
static inline wide_angle_t sin_cos_f64(double x) {
    double shifted = x * 0.636619772367581343075535053490 + 6755399441055744.0;
    double k = shifted - 6755399441055744.0;
    uint64_t quadrant = f64_bits(shifted);
    double r = (x - k * 1.5707963267341256) - k * 6.077100506506192e-11;
    double z = r * r;
    double s = -1.0 / 39916800.0;
    s = s * z + 1.0 / 362880.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    s = r + r * z * s;
    double c = 1.0 / 479001600.0;
    c = c * z - 1.0 / 3628800.0;
    c = c * z + 1.0 / 40320.0;
    c = c * z - 1.0 / 720.0;
    c = c * z + 1.0 / 24.0;
    c = c * z - 0.5;
    c = 1.0 + z * c;
    int swapped = (quadrant & 1) == 1;
    wide_angle_t to;
    to.sin = bits_f64(f64_bits(swapped ? c : s) ^ ((quadrant & 2) << 62));
    to.cos = bits_f64(f64_bits(swapped ? s : c) ^ (((quadrant + 1) & 2) << 62));
    return to;
}

// @ sin_cos_f32 bits_f32 f32_bits
typedef struct { float sin, cos; } angle_t;
static inline angle_t sin_cos_f32(float x) {
    float shifted = x * 0.636619772367581343075535053490f + 12582912.0f;
    uint32_t quadrant = f32_bits(shifted);
    double k = (double)(shifted - 12582912.0f);
    float r = (float)(((double)x - k * 1.5707963267341256) - k * 6.077100506506192e-11);
    float z = r * r;
    float s = (-1.9515296e-4f * z + 8.332161e-3f) * z + -1.6666655e-1f;
    s = r * (z * s) + r;
    float c = (2.4433157e-5f * z + -1.3887316e-3f) * z + 4.1666646e-2f;
    c = (c * z + -0.5f) * z + 1.0f;
    int swapped = (quadrant & 1) == 1;
    angle_t to;
    to.sin = bits_f32(f32_bits(swapped ? c : s) ^ ((quadrant & 2) << 30));
    to.cos = bits_f32(f32_bits(swapped ? s : c) ^ (((quadrant + 1) & 2) << 30));
    return to;
}

// @ sin_f32 sin_cos_f32
static inline float sin_f32(float x) { return x == 0.0f ? x : sin_cos_f32(x).sin; }

// @ cos_f32 sin_cos_f32
static inline float cos_f32(float x) { return sin_cos_f32(x).cos; }

// @ tan_f32 sin_cos_f64
static inline float tan_f32(float x) {
    wide_angle_t of = sin_cos_f64((double)x);
    return x == 0.0f ? x : (float)(of.sin / of.cos);
}

// @ atan2_f32 signed_f32 abs_f32 f32_bits bits_f32
static inline float atan2_f32(float y, float x) {
    double u = (double)abs_f32(x), v = (double)abs_f32(y);
    u = u > 1e300 ? 1e300 : u;
    v = v > 1e300 ? 1e300 : v;
    int steep = v > u;
    double low = steep ? u : v, high = steep ? v : u;
    high = high == 0.0 ? 1.0 : high;
    int far = low > 0.41421356237309503 * high;
    double r = (far ? low - high : low) / (far ? low + high : high);
    double z = r * r;
    double p = 1.0 / 25.0;
    for (int k = 11; k > 0; k--) p = 1.0 / (double)(2 * k + 1) - p * z;
    double angle = r - r * z * p;
    angle = far ? angle + 0.785398163397448309615660845820 : angle;
    angle = steep ? 1.57079632679489661923132169164 - angle : angle;
    angle = f32_bits(x) >> 31 ? 3.14159265358979323846264338328 - angle : angle;
    return x != x || y != y ? bits_f32(0x7fc00000u) : signed_f32((float)angle, y);
}

// @ trunc_f32 abs_f32 signed_f32
static inline float trunc_f32(float x) {
    return abs_f32(x) < 8388608.0f ? signed_f32((float)(int32_t)x, x) : x;
}

// @ pow_f32 ln_f64 exp2_f64 trunc_f32 abs_f32 f32_bits bits_f32
static inline float pow_f32(float x, float y) {
    if (y == 0.0f || x == 1.0f) return 1.0f;
    if (x != x || y != y) return bits_f32(0x7fc00000u);
    float infinite = bits_f32(0x7f800000u), size = abs_f32(x), power;
    int is_whole = trunc_f32(y) == y;
    int is_odd = is_whole && trunc_f32(y * 0.5f) * 2.0f != y;
    if (abs_f32(y) == infinite)
        power = size == 1.0f ? 1.0f : (size > 1.0f) == (y > 0.0f) ? infinite : 0.0f;
    else if (size == 0.0f || size == infinite)
        power = (size == 0.0f) == (y > 0.0f) ? 0.0f : infinite;
    else
        power = (float)exp2_f64((double)y * (ln_f64((double)size) * 1.44269504088896340735992468100));
    if (f32_bits(x) >> 31 == 0 || (size == 0.0f && !is_odd) || abs_f32(y) == infinite) return power;
    if (is_odd) return -power;
    return is_whole || size == infinite ? power : bits_f32(0x7fc00000u);
}

// @ floor_f32 trunc_f32
static inline float floor_f32(float x) {
    float t = trunc_f32(x);
    return t > x ? t - 1.0f : t;
}

// @ ceil_f32 trunc_f32
static inline float ceil_f32(float x) {
    float t = trunc_f32(x);
    return t < x ? t + 1.0f : t;
}

// @ round_f32 abs_f32 signed_f32
static inline float round_f32(float x) {
    float size = abs_f32(x);
    return size < 8388608.0f ? signed_f32((size + 8388608.0f) - 8388608.0f, x) : x;
}

// @ sqrt_f32 math.h
static inline float sqrt_f32(float x) { return sqrtf(x); }

// @ sign_f32
static inline float sign_f32(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }

// @ remainder_f32 math.h
static inline float remainder_f32(float a, float b) {
    float rest = fmodf(a, b);
    return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}

// @ floor_divide_f32 floor_f32 signed_f32 math.h
static inline float floor_divide_f32(float a, float b) {
    if (b == 0.0f) return a / b;
    float rest = fmodf(a, b);
    float quotient = (a - rest) / b;
    if (rest != 0.0f && (rest < 0.0f) != (b < 0.0f)) quotient -= 1.0f;
    if (quotient == 0.0f) return signed_f32(0.0f, a / b);
    float whole = floor_f32(quotient);
    return quotient - whole > 0.5f ? whole + 1.0f : whole;
}

// @ floor_divide_i64
static inline int64_t floor_divide_i64(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// @ remainder_i64
static inline int64_t remainder_i64(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// @ f32_to_i32
static inline int32_t f32_to_i32(float x) {
    if (!(x >= -2147483648.0f)) return x != x ? 0 : INT32_MIN;
    return x >= 2147483648.0f ? INT32_MAX : (int32_t)x;
}

// @ f32_to_u32
static inline uint32_t f32_to_u32(float x) {
    if (!(x > 0.0f)) return 0;
    return x >= 4294967296.0f ? UINT32_MAX : (uint32_t)x;
}

// @ f32_to_i64
static inline int64_t f32_to_i64(float x) {
    if (!(x >= -9223372036854775808.0f)) return x != x ? 0 : INT64_MIN;
    return x >= 9223372036854775808.0f ? INT64_MAX : (int64_t)x;
}

// @ f32_to_u64
static inline uint64_t f32_to_u64(float x) {
    if (!(x > 0.0f)) return 0;
    return x >= 18446744073709551616.0f ? UINT64_MAX : (uint64_t)x;
}

// @ f64_to_i32
static inline int32_t f64_to_i32(double x) {
    if (!(x > -2147483649.0)) return x != x ? 0 : INT32_MIN;
    return x >= 2147483648.0 ? INT32_MAX : (int32_t)x;
}

// @ f64_to_u32
static inline uint32_t f64_to_u32(double x) {
    if (!(x > 0.0)) return 0;
    return x >= 4294967296.0 ? UINT32_MAX : (uint32_t)x;
}

// @ f64_to_i64
static inline int64_t f64_to_i64(double x) {
    if (!(x >= -9223372036854775808.0)) return x != x ? 0 : INT64_MIN;
    return x >= 9223372036854775808.0 ? INT64_MAX : (int64_t)x;
}

// @ f64_to_u64
static inline uint64_t f64_to_u64(double x) {
    if (!(x > 0.0)) return 0;
    return x >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)x;
}
