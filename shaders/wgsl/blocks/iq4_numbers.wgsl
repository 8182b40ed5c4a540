
// The number at a position of the table of IQ4_NL.
fn number_x(q: u32) -> f32 {
    let low = select(0xbfad9881u, 0xf6eaddcfu, (q & 4u) != 0u);
    let high = select(0x26190d01u, 0x71594535u, (q & 4u) != 0u);
    return f32(unpack_i8((select(low, high, q >= 8u) >> ((q & 3u) * 8u)) & 255u));
}
