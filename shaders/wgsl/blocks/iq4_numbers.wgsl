
// The numbers at four positions of the table of IQ4_NL, one in the low four bits of each byte.
fn numbers_x(q: u32) -> vec4<f32> {
    return vec4<f32>(number_x(q & 15u), number_x(q >> 8u & 15u), number_x(q >> 16u & 15u), number_x(q >> 24u & 15u));
}

fn number_x(q: u32) -> f32 {
    let low = select(0xbfad9881u, 0xf6eaddcfu, (q & 4u) != 0u);
    let high = select(0x26190d01u, 0x71594535u, (q & 4u) != 0u);
    return f32(unpack_i8((select(low, high, q >= 8u) >> ((q & 3u) * 8u)) & 255u));
}
