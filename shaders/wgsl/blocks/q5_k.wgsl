// d s q - m t. Layout: d and m, six bits of s and of t for each 32 elements, the fifth bits of 256
// elements, their low four bits.
fn decode_x(i: u32) -> f32 {
    let block = i / 256u * 176u;
    let e = i % 256u;
    let g = e / 32u;
    let four = (byte_x(block + 48u + g / 2u * 32u + e % 32u) >> (g % 2u * 4u)) & 15u;
    let fifth = (byte_x(block + 16u + e % 32u) >> g) & 1u;
    let scales = scales_x(block + 4u, g);
    let d = unpack_f16(pair_x(block));
    let m = unpack_f16(pair_x(block + 2u));
    return d * scales.x * f32(four | (fifth << 4u)) - m * scales.y;
}

// The scale and the minimum of group g, six bits each, from the 12 bytes at `at` that hold eight of both.
fn scales_x(at: u32, g: u32) -> vec2<f32> {
    if (g < 4u) {
        return vec2<f32>(f32(byte_x(at + g) & 63u), f32(byte_x(at + g + 4u) & 63u));
    }
    let low = byte_x(at + g + 4u);
    let scale = (low & 15u) | ((byte_x(at + g - 4u) >> 6u) << 4u);
    let minimum = (low >> 4u) | ((byte_x(at + g) >> 6u) << 4u);
    return vec2<f32>(f32(scale), f32(minimum));
}
