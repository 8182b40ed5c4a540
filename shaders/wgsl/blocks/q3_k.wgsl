// d (s - 32) (q - 4). Layout: the third bits of 256 elements, their low two bits, six bits of s for each 16
// elements, d.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 256u * 110u;
    let e = i % 256u;
    let two = (word_x(block + 32u + e / 128u * 32u + e % 32u) >> (e / 32u % 4u * 2u)) & 0x03030303u;
    let third = (word_x(block + e % 32u) >> (e / 32u)) & 0x01010101u;
    let k = e / 16u;
    let low = (byte_x(block + 96u + k % 8u) >> (k / 8u * 4u)) & 15u;
    let high = (byte_x(block + 104u + k % 4u) >> (k / 4u * 2u)) & 3u;
    let d = unpack_f16(pair_x(block + 108u));
    return d * (f32(low | (high << 4u)) - 32.0) * (floats_of_u8(two | (third << 2u)) - 4.0);
}

fn slice_x(i: u32) -> array<vec4<f32>, 8> {
    let block = i / 256u * 110u;
    let e = i % 256u;
    let d = unpack_f16(pair_x(block + 108u));
    let third = word_x(block + e);
    let q0 = word_x(block + 32u + e);
    let q1 = word_x(block + 64u + e);
    // The bytes 0 and 2 of each word belong to this slice.
    let shift = e / 16u * 8u;
    let low0 = word_x(block + 96u) >> shift;
    let low1 = word_x(block + 100u) >> shift;
    let high = word_x(block + 104u) >> shift;
    return array<vec4<f32>, 8>(
        three_bits_x(q0, third, low0, high, d),
        three_bits_x(q0 >> 2u, third >> 1u, low0 >> 16u, high >> 16u, d),
        three_bits_x(q0 >> 4u, third >> 2u, low1, high >> 2u, d),
        three_bits_x(q0 >> 6u, third >> 3u, low1 >> 16u, high >> 18u, d),
        three_bits_x(q1, third >> 4u, low0 >> 4u, high >> 4u, d),
        three_bits_x(q1 >> 2u, third >> 5u, low0 >> 20u, high >> 20u, d),
        three_bits_x(q1 >> 4u, third >> 6u, low1 >> 4u, high >> 6u, d),
        three_bits_x(q1 >> 6u, third >> 7u, low1 >> 20u, high >> 22u, d),
    );
}

fn three_bits_x(q: u32, third: u32, low: u32, high: u32, d: f32) -> vec4<f32> {
    let scale = f32((low & 15u) | ((high & 3u) << 4u)) - 32.0;
    return d * scale * (floats_of_u8((q & 0x03030303u) | ((third & 0x01010101u) << 2u)) - 4.0);
}
