// d q. Layout: the scale, then a signed byte for each of 32 elements.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 32u * 34u;
    return unpack_f16(pair_x(block)) * floats_of_i8(word_x(block + 2u + i % 32u));
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    let block = i / 32u * 34u;
    let d = unpack_f16(pair_x(block));
    let at = block + 2u + i % 32u;
    return array<vec4<f32>, 2>(d * floats_of_i8(word_x(at)), d * floats_of_i8(word_x(at + 16u)));
}
