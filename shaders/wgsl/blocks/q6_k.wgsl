// d s (q - 32). Layout: the low four bits of 256 elements, their high two bits, a byte of s for each 16
// elements, d.
fn decode_x(i: u32) -> f32 {
    let block = i / 256u * 210u;
    let e = i % 256u;
    let half = e / 128u;
    let r = e / 32u % 4u;
    let four = (byte_x(block + half * 64u + r % 2u * 32u + e % 32u) >> (r / 2u * 4u)) & 15u;
    let two = (byte_x(block + 128u + half * 32u + e % 32u) >> (r * 2u)) & 3u;
    let scale = f32(unpack_i8(byte_x(block + 192u + e / 16u)));
    return unpack_f16(pair_x(block + 208u)) * scale * (f32(four | (two << 4u)) - 32.0);
}
