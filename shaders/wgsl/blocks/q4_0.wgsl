// d (q - 8). Layout: the scale, then four bits for each of 32 elements, the first 16 in the low halves of
// the bytes.
fn decode_x(i: u32) -> f32 {
    let block = i / 32u * 18u;
    let e = i % 32u;
    let q = (byte_x(block + 2u + e % 16u) >> (e / 16u * 4u)) & 15u;
    return unpack_f16(pair_x(block)) * (f32(q) - 8.0);
}
