// d q + m. Layout: the scale, the minimum, the fifth bits of 32 elements, their low four bits.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 32u * 24u;
    let e = i % 32u;
    let q = (word_x(block + 8u + e % 16u) >> (e / 16u * 4u)) & 0x0f0f0f0fu;
    let scales = word_x(block);
    let five = floats_of_u8(q | fifths_of_four(word_x(block + 4u) >> e));
    return unpack_f16(scales & 65535u) * five + unpack_f16(scales >> 16u);
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    let block = i / 32u * 24u;
    let e = i % 32u;
    let scales = word_x(block);
    let d = unpack_f16(scales & 65535u);
    let m = unpack_f16(scales >> 16u);
    let fifths = word_x(block + 4u) >> e;
    let q = word_x(block + 8u + e);
    return array<vec4<f32>, 2>(
        d * floats_of_u8((q & 0x0f0f0f0fu) | fifths_of_four(fifths)) + m,
        d * floats_of_u8(((q >> 4u) & 0x0f0f0f0fu) | fifths_of_four(fifths >> 16u)) + m,
    );
}
