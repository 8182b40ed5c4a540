// d s q - m t. Layout: d and m, six bits of s and of t for each 32 elements, four bits for each of 256
// elements.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 256u * 144u;
    let e = i % 256u;
    let g = e / 32u;
    let q = (word_x(block + 16u + g / 2u * 32u + e % 32u) >> (g % 2u * 4u)) & 0x0f0f0f0fu;
    let scales = scales_x(block + 4u, g);
    let head = word_x(block);
    return unpack_f16(head & 65535u) * scales.x * floats_of_u8(q) - unpack_f16(head >> 16u) * scales.y;
}

fn slice_x(i: u32) -> array<vec4<f32>, 8> {
    let block = i / 256u * 144u;
    let scales = eight_scales_x(block);
    let at = block + 16u + i % 256u;
    let q0 = word_x(at);
    let q1 = word_x(at + 32u);
    let q2 = word_x(at + 64u);
    let q3 = word_x(at + 96u);
    return array<vec4<f32>, 8>(
        scales[0].x * floats_of_u8(q0 & 0x0f0f0f0fu) - scales[2].x,
        scales[0].y * floats_of_u8((q0 >> 4u) & 0x0f0f0f0fu) - scales[2].y,
        scales[0].z * floats_of_u8(q1 & 0x0f0f0f0fu) - scales[2].z,
        scales[0].w * floats_of_u8((q1 >> 4u) & 0x0f0f0f0fu) - scales[2].w,
        scales[1].x * floats_of_u8(q2 & 0x0f0f0f0fu) - scales[3].x,
        scales[1].y * floats_of_u8((q2 >> 4u) & 0x0f0f0f0fu) - scales[3].y,
        scales[1].z * floats_of_u8(q3 & 0x0f0f0f0fu) - scales[3].z,
        scales[1].w * floats_of_u8((q3 >> 4u) & 0x0f0f0f0fu) - scales[3].w,
    );
}
