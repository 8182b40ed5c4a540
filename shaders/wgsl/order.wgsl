// Sort keys: unsigned integers, made from the bits of elements, that have the elements' order. NaN is the
// greatest, and both zeros are equal. Eight-byte elements come as two words, the low one first; their keys
// have the high word first.

fn order_u32(x: u32) -> u32 {
    return x;
}

fn order_i32(x: u32) -> u32 {
    return x ^ 0x80000000u;
}

fn order_f32(x: u32) -> u32 {
    if ((x & 0x7fffffffu) > 0x7f800000u) {
        return 0xffffffffu;
    }
    if (x > 0x80000000u) {
        return ~x;
    }
    return x | 0x80000000u;
}

fn order_u64(x: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(x.y, x.x);
}

fn order_i64(x: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(x.y ^ 0x80000000u, x.x);
}

fn order_f64(x: vec2<u32>) -> vec2<u32> {
    let size = x.y & 0x7fffffffu;
    if (size > 0x7ff00000u || (size == 0x7ff00000u && x.x != 0u)) {
        return vec2<u32>(0xffffffffu, 0xffffffffu);
    }
    if (x.y > 0x80000000u || (x.y == 0x80000000u && x.x != 0u)) {
        return vec2<u32>(~x.y, ~x.x);
    }
    return vec2<u32>(x.y | 0x80000000u, x.x);
}

// Keys of floats of 8 or 16 bits, from their bits. `sign` is the sign bit, `most` the greatest magnitude that
// is a number.

fn order_narrow(x: u32, sign: u32, most: u32) -> u32 {
    if ((x & (sign - 1u)) > most) {
        return 2u * sign - 1u;
    }
    if (x > sign) {
        return 2u * sign - 1u - x;
    }
    return x | sign;
}

// Formats whose only NaN has the bits of a negative zero.
fn order_unsigned_zero(x: u32) -> u32 {
    if (x == 0x80u) {
        return 0xffu;
    }
    return select(x + 0x7fu, 0xffu - x, x > 0x80u);
}
