// Unsigned integers of 64 bits (needs the adapter feature SHADER_INT64), with the rules of integer.wgsl.

fn opaque_u64(x: u64) -> u64 {
    return x ^ u64(params.first_workgroup >> 31u);
}

fn u32_from_u64(x: u64) -> u32 {
    return u32(x & 0xfffffffflu);
}

fn floordiv_u64(a: u64, b: u64) -> u64 {
    if (b == 0lu) {
        return 0lu;
    }
    return a / b;
}

fn remainder_u64(a: u64, b: u64) -> u64 {
    return select(a - b * floordiv_u64(a, b), 0lu, b == 0lu);
}

fn pow_u64(a: u64, b: u64) -> u64 {
    var base = a;
    var left = b;
    var y = 1lu;
    while (left > 0lu) {
        if ((left & 1lu) == 1lu) {
            y *= base;
        }
        base *= base;
        left = left / 2lu;
    }
    return y;
}

fn u64_from_f32(x: f32) -> u64 {
    if (is_nan_f32(x) || x <= 0.0) {
        return 0lu;
    }
    if (x >= 18446744073709551616.0) {
        return 0xfffffffffffffffflu;
    }
    if (x >= 9223372036854775808.0) {
        return bitcast<u64>(i64(x - 9223372036854775808.0)) | 0x8000000000000000lu;
    }
    return bitcast<u64>(i64(x));
}

fn u64_from_f64(x: f64) -> u64 {
    if (is_nan_f64(x) || x <= 0.0lf) {
        return 0lu;
    }
    if (x >= 18446744073709551616.0lf) {
        return 0xfffffffffffffffflu;
    }
    if (x >= 9223372036854775808.0lf) {
        return bitcast<u64>(i64(x - 9223372036854775808.0lf)) | 0x8000000000000000lu;
    }
    return bitcast<u64>(i64(x));
}

fn shl_u64(a: u64, b: u64) -> u64 {
    return select(0lu, a << (u32_from_u64(b) & 63u), b < 64lu);
}

fn shr_u64(a: u64, b: u64) -> u64 {
    return select(0lu, a >> (u32_from_u64(b) & 63u), b < 64lu);
}

fn gcd_u64(a: u64, b: u64) -> u64 {
    var x = a;
    var y = b;
    while (y != 0lu) {
        let r = x % y;
        x = y;
        y = r;
    }
    return x;
}
