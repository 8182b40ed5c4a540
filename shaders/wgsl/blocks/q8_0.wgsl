// d q. Layout: the scale, then a signed byte for each of 32 elements.
fn decode_x(i: u32) -> f32 {
    let block = i / 32u * 34u;
    return unpack_f16(pair_x(block)) * f32(unpack_i8(byte_x(block + 2u + i % 32u)));
}
