// d q + m. Layout: the scale, the minimum, the fifth bits of 32 elements, their low four bits.
fn decode_x(i: u32) -> f32 {
    let block = i / 32u * 24u;
    let e = i % 32u;
    let four = (byte_x(block + 8u + e % 16u) >> (e / 16u * 4u)) & 15u;
    let fifth = (word_x(block + 4u) >> e) & 1u;
    return unpack_f16(pair_x(block)) * f32(four | (fifth << 4u)) + unpack_f16(pair_x(block + 2u));
}
