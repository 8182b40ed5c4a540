// d (q - 16). Layout: the scale, the fifth bits of 32 elements, their low four bits.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 32u * 22u;
    let e = i % 32u;
    let q = (word_x(block + 6u + e % 16u) >> (e / 16u * 4u)) & 0x0f0f0f0fu;
    return unpack_f16(pair_x(block)) * (floats_of_u8(q | fifths_of_four(word_x(block + 2u) >> e)) - 16.0);
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    let block = i / 32u * 22u;
    let e = i % 32u;
    let d = unpack_f16(pair_x(block));
    let fifths = word_x(block + 2u) >> e;
    let q = word_x(block + 6u + e);
    return array<vec4<f32>, 2>(
        d * (floats_of_u8((q & 0x0f0f0f0fu) | fifths_of_four(fifths)) - 16.0),
        d * (floats_of_u8(((q >> 4u) & 0x0f0f0f0fu) | fifths_of_four(fifths >> 16u)) - 16.0),
    );
}
