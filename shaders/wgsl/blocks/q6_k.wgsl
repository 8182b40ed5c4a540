// d s (q - 32). Layout: the low four bits of 256 elements, their high two bits, a byte of s for each 16
// elements, d.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 256u * 210u;
    let e = i % 256u;
    let half = e / 128u;
    let r = e / 32u % 4u;
    let four = (word_x(block + half * 64u + r % 2u * 32u + e % 32u) >> (r / 2u * 4u)) & 0x0f0f0f0fu;
    let two = (word_x(block + 128u + half * 32u + e % 32u) >> (r * 2u)) & 0x03030303u;
    let scale = f32(unpack_i8(byte_x(block + 192u + e / 16u)));
    return unpack_f16(pair_x(block + 208u)) * scale * (floats_of_u8(four | (two << 4u)) - 32.0);
}

fn slice_x(i: u32) -> array<vec4<f32>, 8> {
    let block = i / 256u * 210u;
    let e = i % 256u;
    let d = unpack_f16(pair_x(block + 208u));
    let q0 = word_x(block + e);
    let q1 = word_x(block + 32u + e);
    let q2 = word_x(block + 64u + e);
    let q3 = word_x(block + 96u + e);
    let h0 = word_x(block + 128u + e);
    let h1 = word_x(block + 160u + e);
    // The bytes 0 and 2 of each word belong to this slice.
    let shift = e / 16u * 8u;
    let s0 = word_x(block + 192u) >> shift;
    let s1 = word_x(block + 196u) >> shift;
    let s2 = word_x(block + 200u) >> shift;
    let s3 = word_x(block + 204u) >> shift;
    return array<vec4<f32>, 8>(
        six_bits_x(q0, h0, s0, d),
        six_bits_x(q1, h0 >> 2u, s0 >> 16u, d),
        six_bits_x(q0 >> 4u, h0 >> 4u, s1, d),
        six_bits_x(q1 >> 4u, h0 >> 6u, s1 >> 16u, d),
        six_bits_x(q2, h1, s2, d),
        six_bits_x(q3, h1 >> 2u, s2 >> 16u, d),
        six_bits_x(q2 >> 4u, h1 >> 4u, s3, d),
        six_bits_x(q3 >> 4u, h1 >> 6u, s3 >> 16u, d),
    );
}

fn six_bits_x(four: u32, two: u32, scale: u32, d: f32) -> vec4<f32> {
    let q = (four & 0x0f0f0f0fu) | ((two & 0x03030303u) << 4u);
    return d * f32(unpack_i8(scale & 255u)) * (floats_of_u8(q) - 32.0);
}
