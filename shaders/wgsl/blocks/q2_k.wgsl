// d s q - m t. Layout: s and t of 16 elements in one byte each, two bits for each of 256 elements, d and m.
fn decode_x(i: u32) -> f32 {
    let block = i / 256u * 84u;
    let e = i % 256u;
    let scale = byte_x(block + e / 16u);
    let q = (byte_x(block + 16u + e / 128u * 32u + e % 32u) >> (e / 32u % 4u * 2u)) & 3u;
    let d = unpack_f16(pair_x(block + 80u));
    let m = unpack_f16(pair_x(block + 82u));
    return d * f32(scale & 15u) * f32(q) - m * f32(scale >> 4u);
}
