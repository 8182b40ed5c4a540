// d q + m. Layout: the scale, the minimum, then four bits for each of 32 elements, the first 16 in the low
// halves of the bytes.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 32u * 20u;
    let e = i % 32u;
    let q = (word_x(block + 4u + e % 16u) >> (e / 16u * 4u)) & 0x0f0f0f0fu;
    let scales = word_x(block);
    return unpack_f16(scales & 65535u) * floats_of_u8(q) + unpack_f16(scales >> 16u);
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    let block = i / 32u * 20u;
    let scales = word_x(block);
    let d = unpack_f16(scales & 65535u);
    let m = unpack_f16(scales >> 16u);
    let q = word_x(block + 4u + i % 32u);
    return array<vec4<f32>, 2>(
        d * floats_of_u8(q & 0x0f0f0f0fu) + m,
        d * floats_of_u8((q >> 4u) & 0x0f0f0f0fu) + m,
    );
}
