// d (q - 1). Layout: two bits for each of 256 elements, d.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 256u * 66u;
    let e = i % 256u;
    let q = word_x(block + e / 128u * 32u + e % 32u) >> (e / 32u % 4u * 2u);
    return unpack_f16(pair_x(block + 64u)) * (floats_of_u8(q & 0x03030303u) - 1.0);
}

fn slice_x(i: u32) -> array<vec4<f32>, 8> {
    let block = i / 256u * 66u;
    let d = unpack_f16(pair_x(block + 64u));
    let q0 = word_x(block + i % 256u);
    let q1 = word_x(block + 32u + i % 256u);
    return array<vec4<f32>, 8>(
        d * (floats_of_u8(q0 & 0x03030303u) - 1.0),
        d * (floats_of_u8((q0 >> 2u) & 0x03030303u) - 1.0),
        d * (floats_of_u8((q0 >> 4u) & 0x03030303u) - 1.0),
        d * (floats_of_u8((q0 >> 6u) & 0x03030303u) - 1.0),
        d * (floats_of_u8(q1 & 0x03030303u) - 1.0),
        d * (floats_of_u8((q1 >> 2u) & 0x03030303u) - 1.0),
        d * (floats_of_u8((q1 >> 4u) & 0x03030303u) - 1.0),
        d * (floats_of_u8((q1 >> 6u) & 0x03030303u) - 1.0),
    );
}
