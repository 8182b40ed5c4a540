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
    let scales = eight_scales_x(block);
    let fifths = word_x(block + 16u + i % 256u);
    let at = block + 48u + i % 256u;
    let q0 = word_x(at);
    let q1 = word_x(at + 32u);
    let q2 = word_x(at + 64u);
    let q3 = word_x(at + 96u);
    return array<vec4<f32>, 8>(
        scales[0].x * five_bits_x(q0, fifths) - scales[2].x,
        scales[0].y * five_bits_x(q0 >> 4u, fifths >> 1u) - scales[2].y,
        scales[0].z * five_bits_x(q1, fifths >> 2u) - scales[2].z,
        scales[0].w * five_bits_x(q1 >> 4u, fifths >> 3u) - scales[2].w,
        scales[1].x * five_bits_x(q2, fifths >> 4u) - scales[3].x,
        scales[1].y * five_bits_x(q2 >> 4u, fifths >> 5u) - scales[3].y,
        scales[1].z * five_bits_x(q3, fifths >> 6u) - scales[3].z,
        scales[1].w * five_bits_x(q3 >> 4u, fifths >> 7u) - scales[3].w,
    );
}

fn five_bits_x(four: u32, fifth: u32) -> vec4<f32> {
    return floats_of_u8((four & 0x0f0f0f0fu) | ((fifth & 0x01010101u) << 4u));
}
