fn integer_x(i: u32) -> i32 {
    let four = byte_x(32u + i / 2u) >> (i % 2u * 4u);
    return bitcast<i32>(four << 28u) >> 28u;
}

fn integers_x(i: u32) -> vec4<f32> {
    let q = pair_x(32u + i / 2u);
    let high = vec4<u32>(q << 28u, q << 24u, q << 20u, q << 16u);
    return vec4<f32>(bitcast<vec4<i32>>(high) >> vec4<u32>(28u));
}
