// d s q - m t. Layout: s and t of 16 elements in one byte each, two bits for each of 256 elements, d and m.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 256u * 84u;
    let e = i % 256u;
    let scale = byte_x(block + e / 16u);
    let q = (word_x(block + 16u + e / 128u * 32u + e % 32u) >> (e / 32u % 4u * 2u)) & 0x03030303u;
    let scales = word_x(block + 80u);
    let d = unpack_f16(scales & 65535u);
    let m = unpack_f16(scales >> 16u);
    return d * f32(scale & 15u) * floats_of_u8(q) - m * f32(scale >> 4u);
}

fn slice_x(i: u32) -> array<vec4<f32>, 8> {
    let block = i / 256u * 84u;
    let e = i % 256u;
    let scales = word_x(block + 80u);
    let d = unpack_f16(scales & 65535u);
    let m = unpack_f16(scales >> 16u);
    let q0 = word_x(block + 16u + e);
    let q1 = word_x(block + 48u + e);
    // The bytes 0 and 2 of each word belong to this slice.
    let shift = e / 16u * 8u;
    let s0 = word_x(block) >> shift;
    let s1 = word_x(block + 4u) >> shift;
    let s2 = word_x(block + 8u) >> shift;
    let s3 = word_x(block + 12u) >> shift;
    return array<vec4<f32>, 8>(
        two_bits_x(q0, s0, d, m),
        two_bits_x(q0 >> 2u, s0 >> 16u, d, m),
        two_bits_x(q0 >> 4u, s1, d, m),
        two_bits_x(q0 >> 6u, s1 >> 16u, d, m),
        two_bits_x(q1, s2, d, m),
        two_bits_x(q1 >> 2u, s2 >> 16u, d, m),
        two_bits_x(q1 >> 4u, s3, d, m),
        two_bits_x(q1 >> 6u, s3 >> 16u, d, m),
    );
}

fn two_bits_x(q: u32, scale: u32, d: f32, m: f32) -> vec4<f32> {
    return d * f32(scale & 15u) * floats_of_u8(q & 0x03030303u) - m * f32((scale >> 4u) & 15u);
}
