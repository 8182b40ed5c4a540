// d s q - m t. Layout: d and m, six bits of s and of t for each 32 elements, the fifth bits of 256
// elements, their low four bits.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 256u * 176u;
    let e = i % 256u;
    let g = e / 32u;
    let four = word_x(block + 48u + g / 2u * 32u + e % 32u) >> (g % 2u * 4u);
    let q = five_bits_x(four, word_x(block + 16u + e % 32u) >> g);
    let scales = scales_x(block + 4u, g);
    let head = word_x(block);
    return unpack_f16(head & 65535u) * scales.x * q - unpack_f16(head >> 16u) * scales.y;
}

fn slice_x(i: u32) -> array<vec4<f32>, 8> {
    let block = i / 256u * 176u;
    let head = word_x(block);
    let d = unpack_f16(head & 65535u);
    let m = unpack_f16(head >> 16u);
    // Six bits of eight scales and eight minimums.
    let a = word_x(block + 4u);
    let b = word_x(block + 8u);
    let c = word_x(block + 12u);
    let s0 = d * floats_of_u8(a & 0x3f3f3f3fu);
    let m0 = m * floats_of_u8(b & 0x3f3f3f3fu);
    let s1 = d * floats_of_u8((c & 0x0f0f0f0fu) | ((a >> 2u) & 0x30303030u));
    let m1 = m * floats_of_u8(((c >> 4u) & 0x0f0f0f0fu) | ((b >> 2u) & 0x30303030u));
    let fifths = word_x(block + 16u + i % 256u);
    let at = block + 48u + i % 256u;
    let q0 = word_x(at);
    let q1 = word_x(at + 32u);
    let q2 = word_x(at + 64u);
    let q3 = word_x(at + 96u);
    return array<vec4<f32>, 8>(
        s0.x * five_bits_x(q0, fifths) - m0.x,
        s0.y * five_bits_x(q0 >> 4u, fifths >> 1u) - m0.y,
        s0.z * five_bits_x(q1, fifths >> 2u) - m0.z,
        s0.w * five_bits_x(q1 >> 4u, fifths >> 3u) - m0.w,
        s1.x * five_bits_x(q2, fifths >> 4u) - m1.x,
        s1.y * five_bits_x(q2 >> 4u, fifths >> 5u) - m1.y,
        s1.z * five_bits_x(q3, fifths >> 6u) - m1.z,
        s1.w * five_bits_x(q3 >> 4u, fifths >> 7u) - m1.w,
    );
}

fn five_bits_x(four: u32, fifth: u32) -> vec4<f32> {
    return floats_of_u8((four & 0x0f0f0f0fu) | ((fifth & 0x01010101u) << 4u));
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
