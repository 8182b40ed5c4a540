// Conversions between 8-bit floats and f32, which computes them. The formats are those of `float8.rs` in
// tensor-core: m mantissa bits and an exponent bias, rounded to nearest, ties to even.

// The number with these bits, which are not a special code.
fn f32_from_bits8(bits: u32, m: u32, bias: u32) -> f32 {
    let field = (bits & 0x7fu) >> m;
    let fraction = bits & ((1u << m) - 1u);
    let sign = (bits & 0x80u) << 24u;
    if (field == 0u) {
        let unit = bitcast<f32>((128u - bias - m) << 23u);
        return bitcast<f32>(sign | bitcast<u32>(f32(fraction) * unit));
    }
    return bitcast<f32>(sign | ((field + 127u - bias) << 23u) | (fraction << (23u - m)));
}

// The code of the magnitude of a number that is not NaN; it may exceed the greatest code.
fn code8_from_f32(x: f32, m: u32, bias: u32) -> u32 {
    let size = bitcast<u32>(x) & 0x7fffffffu;
    if ((size >> 23u) + bias < 128u) {
        // Below the least normal number the spacing is 2^(1 - bias - m).
        return u32(round(bitcast<f32>(size) * bitcast<f32>((126u + bias + m) << 23u)));
    }
    let shift = 23u - m;
    let rounded = size + ((1u << (shift - 1u)) - 1u) + ((size >> shift) & 1u);
    return (rounded >> shift) - ((127u - bias) << m);
}

fn sign8_of_f32(x: f32) -> u32 {
    return (bitcast<u32>(x) >> 24u) & 0x80u;
}

fn unpack_f8e4m3fn(bits: u32) -> f32 {
    if ((bits & 0x7fu) == 0x7fu) {
        return nan_f32();
    }
    return f32_from_bits8(bits, 3u, 7u);
}

fn pack_f8e4m3fn(x: f32) -> u32 {
    if (is_nan_f32(x)) {
        return 0x7fu;
    }
    return sign8_of_f32(x) | min(code8_from_f32(x, 3u, 7u), 0x7eu);
}

fn unpack_f8e5m2(bits: u32) -> f32 {
    let size = bits & 0x7fu;
    if (size > 0x7cu) {
        return nan_f32();
    }
    if (size == 0x7cu) {
        return select(inf_f32(), -inf_f32(), bits > 0x7fu);
    }
    return f32_from_bits8(bits, 2u, 15u);
}

fn pack_f8e5m2(x: f32) -> u32 {
    if (is_nan_f32(x)) {
        return 0x7fu;
    }
    return sign8_of_f32(x) | min(code8_from_f32(x, 2u, 15u), 0x7cu);
}

fn unpack_f8e4m3fnuz(bits: u32) -> f32 {
    if (bits == 0x80u) {
        return nan_f32();
    }
    return f32_from_bits8(bits, 3u, 8u);
}

fn pack_f8e4m3fnuz(x: f32) -> u32 {
    return pack_fnuz(x, 3u, 8u);
}

fn unpack_f8e5m2fnuz(bits: u32) -> f32 {
    if (bits == 0x80u) {
        return nan_f32();
    }
    return f32_from_bits8(bits, 2u, 16u);
}

fn pack_f8e5m2fnuz(x: f32) -> u32 {
    return pack_fnuz(x, 2u, 16u);
}

// The fnuz formats have one zero, and NaN for numbers beyond the greatest.
fn pack_fnuz(x: f32, m: u32, bias: u32) -> u32 {
    if (is_nan_f32(x)) {
        return 0x80u;
    }
    let code = code8_from_f32(x, m, bias);
    if (code > 0x7fu) {
        return 0x80u;
    }
    return select(sign8_of_f32(x) | code, 0u, code == 0u);
}

fn round_f8e4m3fn(x: f32) -> f32 {
    return unpack_f8e4m3fn(pack_f8e4m3fn(x));
}

fn round_f8e5m2(x: f32) -> f32 {
    return unpack_f8e5m2(pack_f8e5m2(x));
}

fn round_f8e4m3fnuz(x: f32) -> f32 {
    return unpack_f8e4m3fnuz(pack_f8e4m3fnuz(x));
}

fn round_f8e5m2fnuz(x: f32) -> f32 {
    return unpack_f8e5m2fnuz(pack_f8e5m2fnuz(x));
}
