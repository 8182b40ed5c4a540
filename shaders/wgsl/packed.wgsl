// Conversions of elements smaller than a word of 32 bits from and to their bits, which are the low bits of
// a word whose other bits are 0. WGSL's own functions may flush small numbers to zero, round differently,
// and return any value on overflow; these are exact.

fn unpack_bool(bits: u32) -> u32 {
    return bits;
}

fn pack_bool(x: u32) -> u32 {
    return x & 255u;
}

fn unpack_u8(bits: u32) -> i32 {
    return bitcast<i32>(bits);
}

fn pack_u8(x: i32) -> u32 {
    return bitcast<u32>(x) & 255u;
}

fn unpack_i8(bits: u32) -> i32 {
    return bitcast<i32>(bits << 24u) >> 24u;
}

fn pack_i8(x: i32) -> u32 {
    return bitcast<u32>(x) & 255u;
}

fn unpack_u16(bits: u32) -> i32 {
    return bitcast<i32>(bits);
}

fn pack_u16(x: i32) -> u32 {
    return bitcast<u32>(x) & 65535u;
}

fn unpack_i16(bits: u32) -> i32 {
    return bitcast<i32>(bits << 16u) >> 16u;
}

fn pack_i16(x: i32) -> u32 {
    return bitcast<u32>(x) & 65535u;
}

fn unpack_bf16(bits: u32) -> f32 {
    return bitcast<f32>(bits << 16u);
}

// Rounds to nearest, ties to even; numbers that are too large become infinite. A single exit, as in
// half.wgsl.
fn pack_bf16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 64u, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn unpack_f16(bits: u32) -> f32 {
    let size = bits & 0x7fffu;
    // The exponent of an f32 is greater by 112; for infinity and NaN it is greater by twice that.
    var wide = (size << 13u) + select(0x38000000u, 0x70000000u, size >= 0x7c00u);
    if (size < 0x400u) {
        // A denormal half is a multiple of 2^-24; the least of them is a normal f32.
        wide = bitcast<u32>(f32(size) * 5.9604644775390625e-8);
    }
    return bitcast<f32>(((bits & 0x8000u) << 16u) | wide);
}

// Rounds like pack_bf16.
fn pack_f16(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    // Below the least normal half the spacing is 2^-24.
    let steps = u32(round(bitcast<f32>(min(size, 0x38800000u)) * 16777216.0));
    let normal = (size + 0xfffu + ((size >> 13u) & 1u) - 0x38000000u) >> 13u;
    let finite = select(normal, steps, size < 0x38800000u);
    let infinite = select(finite, 0x7c00u, size >= 0x477ff000u);
    return ((bits >> 16u) & 0x8000u) | select(infinite, 0x7e00u, size > 0x7f800000u);
}

// The four bytes of a word, the first in the lowest bits, as numbers.
fn floats_of_u8(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(255u));
}

fn floats_of_i8(word: u32) -> vec4<f32> {
    let high = vec4<u32>(word << 24u, word << 16u, word << 8u, word);
    return vec4<f32>(bitcast<vec4<i32>>(high) >> vec4<u32>(24u));
}

// The lowest four bits, each as bit 4 of a byte.
fn fifths_of_four(bits: u32) -> u32 {
    return ((bits & 1u) << 4u) | ((bits & 2u) << 11u) | ((bits & 4u) << 18u) | ((bits & 8u) << 25u);
}
