// d (q - 16). Layout: the scale, the fifth bits of 32 elements, their low four bits.
fn decode_x(i: u32) -> f32 {
    let block = i / 32u * 22u;
    let e = i % 32u;
    let four = (byte_x(block + 6u + e % 16u) >> (e / 16u * 4u)) & 15u;
    let fifth = (word_x(block + 2u) >> e) & 1u;
    return unpack_f16(pair_x(block)) * (f32(four | (fifth << 4u)) - 16.0);
}
