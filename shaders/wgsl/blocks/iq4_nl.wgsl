// d t[q]. Layout: the scale, then four bits for each of 32 elements, the first 16 in the low halves of the
// bytes.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 32u * 18u;
    let e = i % 32u;
    let q = word_x(block + 2u + e % 16u) >> (e / 16u * 4u);
    return unpack_f16(pair_x(block)) * numbers_x(q);
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    let block = i / 32u * 18u;
    let d = unpack_f16(pair_x(block));
    let q = word_x(block + 2u + i % 32u);
    return array<vec4<f32>, 2>(d * numbers_x(q), d * numbers_x(q >> 4u));
}
