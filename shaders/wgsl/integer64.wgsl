// Integers of 64 bits (needs the adapter feature SHADER_INT64), with the rules of integer.wgsl.

fn u64_from_words(low: u32, high: u32) -> u64 {
    return u64(low) | (u64(high) << 32u);
}

fn i64_from_words(low: u32, high: u32) -> i64 {
    return bitcast<i64>(u64_from_words(low, high));
}

// Like opaque_f32, for integers: compilers may reason wrongly about the range of converted numbers.
fn opaque_i64(x: i64) -> i64 {
    return bitcast<i64>(bitcast<u64>(x) ^ u64(params.first_workgroup >> 31u));
}

// Built from words: Mesa 22.3 evaluates `i64(x) < literal` as false for every x.
fn i64_from_i32(x: i32) -> i64 {
    return i64_from_words(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}

fn i64_from_u32(x: u32) -> i64 {
    return bitcast<i64>(u64(x));
}

fn u32_from_i64(x: i64) -> u32 {
    return u32(bitcast<u64>(x) & 0xfffffffflu);
}

fn floordiv_i64(a: i64, b: i64) -> i64 {
    if (b == 0li) {
        return 0li;
    }
    if (b == -1li) {
        return 0li - a;
    }
    let q = a / b;
    return select(q, q - 1li, q * b != a && (a < 0li) != (b < 0li));
}

fn remainder_i64(a: i64, b: i64) -> i64 {
    return select(a - b * floordiv_i64(a, b), 0li, b == 0li);
}

fn sign_i64(x: i64) -> i64 {
    return select(select(0li, 1li, x > 0li), -1li, x < 0li);
}

fn pow_i64(a: i64, b: i64) -> i64 {
    if (b < 0li) {
        if (a == 1li) {
            return 1li;
        }
        if (a == -1li) {
            return select(-1li, 1li, (b & 1li) == 0li);
        }
        return 0li;
    }
    var base = a;
    var left = b;
    var y = 1li;
    while (left > 0li) {
        if ((left & 1li) == 1li) {
            y *= base;
        }
        base *= base;
        left = left / 2li;
    }
    return y;
}

fn i64_from_f32(x: f32) -> i64 {
    if (is_nan_f32(x)) {
        return 0li;
    }
    if (x >= 9223372036854775808.0) {
        return 9223372036854775807li;
    }
    if (x <= -9223372036854775808.0) {
        return -9223372036854775807li - 1li;
    }
    return i64(x);
}

fn i64_from_f64(x: f64) -> i64 {
    if (is_nan_f64(x)) {
        return 0li;
    }
    if (x >= 9223372036854775808.0lf) {
        return 9223372036854775807li;
    }
    if (x <= -9223372036854775808.0lf) {
        return -9223372036854775807li - 1li;
    }
    return i64(x);
}

fn shl_i64(a: i64, b: i64) -> i64 {
    return select(0li, a << (u32_from_i64(b) & 63u), b >= 0li && b < 64li);
}

// Shifts by 64 or more leave only the sign bit, and so do negative counts.
fn shr_i64(a: i64, b: i64) -> i64 {
    let by = select(63u, u32_from_i64(b) & 63u, b >= 0li && b < 64li);
    return a >> by;
}

fn gcd_i64(a: i64, b: i64) -> i64 {
    var x = u64_magnitude(a);
    var y = u64_magnitude(b);
    while (y != 0lu) {
        let r = x % y;
        x = y;
        y = r;
    }
    return bitcast<i64>(x);
}

fn u64_magnitude(x: i64) -> u64 {
    return select(bitcast<u64>(x), bitcast<u64>(0li - x), x < 0li);
}
