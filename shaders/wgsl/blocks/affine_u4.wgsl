fn integer_x(i: u32) -> i32 {
    return i32((byte_x(32u + i / 2u) >> (i % 2u * 4u)) & 15u);
}

fn integers_x(i: u32) -> vec4<f32> {
    let q = pair_x(32u + i / 2u);
    return vec4<f32>(vec4<u32>(q, q >> 4u, q >> 8u, q >> 12u) & vec4<u32>(15u));
}
