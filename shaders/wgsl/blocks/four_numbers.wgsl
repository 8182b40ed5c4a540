
// The numbers of a table at four positions, one in the low four bits of each byte.
fn numbers_x(q: u32) -> vec4<f32> {
    return vec4<f32>(number_x(q & 15u), number_x(q >> 8u & 15u), number_x(q >> 16u & 15u), number_x(q >> 24u & 15u));
}
