// d (s - 32) (q - 4). Layout: the third bits of 256 elements, their low two bits, six bits of s for each 16
// elements, d.
fn decode_x(i: u32) -> f32 {
    let block = i / 256u * 110u;
    let e = i % 256u;
    let two = (byte_x(block + 32u + e / 128u * 32u + e % 32u) >> (e / 32u % 4u * 2u)) & 3u;
    let third = (byte_x(block + e % 32u) >> (e / 32u)) & 1u;
    let k = e / 16u;
    let low = (byte_x(block + 96u + k % 8u) >> (k / 8u * 4u)) & 15u;
    let high = (byte_x(block + 104u + k % 4u) >> (k / 4u * 2u)) & 3u;
    let d = unpack_f16(pair_x(block + 108u));
    return d * (f32(low | (high << 4u)) - 32.0) * (f32(two | (third << 2u)) - 4.0);
}
