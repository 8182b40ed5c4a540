// Integers of 32 bits: arithmetic wraps, division by zero gives 0, conversions from floats saturate.

// Like opaque_f32, for integers: compilers may reason wrongly about the range of converted numbers.
fn opaque_i32(x: i32) -> i32 {
    return bitcast<i32>(bitcast<u32>(x) ^ (params.first_workgroup >> 31u));
}

fn opaque_u32(x: u32) -> u32 {
    return x ^ (params.first_workgroup >> 31u);
}

// The 64-bit product of two words: x is the low half, y the high half.
fn mul_wide(a: u32, b: u32) -> vec2<u32> {
    let a0 = a & 0xffffu;
    let a1 = a >> 16u;
    let b0 = b & 0xffffu;
    let b1 = b >> 16u;
    let low = a0 * b0;
    let mid = a1 * b0 + (low >> 16u);
    let cross = a0 * b1 + (mid & 0xffffu);
    return vec2<u32>((cross << 16u) | (low & 0xffffu), a1 * b1 + (mid >> 16u) + (cross >> 16u));
}

fn floordiv_i32(a: i32, b: i32) -> i32 {
    if (b == 0) {
        return 0;
    }
    if (b == -1) {
        return 0 - a;
    }
    let q = a / b;
    return select(q, q - 1, q * b != a && (a < 0) != (b < 0));
}

fn remainder_i32(a: i32, b: i32) -> i32 {
    return select(a - b * floordiv_i32(a, b), 0, b == 0);
}

fn floordiv_u32(a: u32, b: u32) -> u32 {
    if (b == 0u) {
        return 0u;
    }
    return a / b;
}

fn remainder_u32(a: u32, b: u32) -> u32 {
    return select(a - b * floordiv_u32(a, b), 0u, b == 0u);
}

fn pow_u32(a: u32, b: u32) -> u32 {
    var base = a;
    var left = b;
    var y = 1u;
    while (left > 0u) {
        if ((left & 1u) == 1u) {
            y *= base;
        }
        base *= base;
        left >>= 1u;
    }
    return y;
}

fn pow_i32(a: i32, b: i32) -> i32 {
    if (b < 0) {
        if (a == 1) {
            return 1;
        }
        if (a == -1) {
            return select(-1, 1, (b & 1) == 0);
        }
        return 0;
    }
    return bitcast<i32>(pow_u32(bitcast<u32>(a), bitcast<u32>(b)));
}

fn i32_from_f32(x: f32) -> i32 {
    if (is_nan_f32(x)) {
        return 0;
    }
    if (x >= 2147483648.0) {
        return 2147483647;
    }
    if (x <= -2147483648.0) {
        return bitcast<i32>(0x80000000u);
    }
    return i32(x);
}

fn u32_from_f32(x: f32) -> u32 {
    if (is_nan_f32(x) || x <= 0.0) {
        return 0u;
    }
    if (x >= 4294967296.0) {
        return 0xffffffffu;
    }
    return u32(x);
}

fn shl_u32(a: u32, b: u32) -> u32 {
    return select(0u, a << (b & 31u), b < 32u);
}

fn shl_i32(a: i32, b: i32) -> i32 {
    return bitcast<i32>(shl_u32(bitcast<u32>(a), bitcast<u32>(b)));
}

fn shr_u32(a: u32, b: u32) -> u32 {
    return select(0u, a >> (b & 31u), b < 32u);
}

// Shifts by 32 or more leave only the sign bit; a negative count, read as unsigned, is such a shift.
fn shr_i32(a: i32, b: i32) -> i32 {
    return a >> min(bitcast<u32>(b), 31u);
}

fn gcd_u32(a: u32, b: u32) -> u32 {
    var x = a;
    var y = b;
    while (y != 0u) {
        let r = x % y;
        x = y;
        y = r;
    }
    return x;
}

fn gcd_i32(a: i32, b: i32) -> i32 {
    return bitcast<i32>(gcd_u32(bitcast<u32>(abs(a)), bitcast<u32>(abs(b))));
}
