// d (s - 32) t[q]. Layout: d, the high two bits of s of eight groups of 32 elements, their low four bits,
// then four bits for each element, the first 16 of a group in the low halves of its bytes.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 256u * 136u;
    let e = i % 32u;
    let g = i % 256u / 32u;
    let q = word_x(block + 8u + g * 16u + e % 16u) >> (e / 16u * 4u);
    let head = word_x(block);
    return unpack_f16(head & 65535u) * group_scale_x(head >> 16u, word_x(block + 4u), g) * numbers_x(q);
}

fn slice_x(i: u32) -> array<vec4<f32>, 8> {
    let block = i / 256u * 136u;
    let e = i % 256u;
    let at = block + 8u + e % 16u;
    let shift = e / 16u * 4u;
    let head = word_x(block);
    let low = word_x(block + 4u);
    let d = unpack_f16(head & 65535u);
    let high = head >> 16u;
    return array<vec4<f32>, 8>(
        d * group_scale_x(high, low, 0u) * numbers_x(word_x(at) >> shift),
        d * group_scale_x(high, low, 1u) * numbers_x(word_x(at + 16u) >> shift),
        d * group_scale_x(high, low, 2u) * numbers_x(word_x(at + 32u) >> shift),
        d * group_scale_x(high, low, 3u) * numbers_x(word_x(at + 48u) >> shift),
        d * group_scale_x(high, low, 4u) * numbers_x(word_x(at + 64u) >> shift),
        d * group_scale_x(high, low, 5u) * numbers_x(word_x(at + 80u) >> shift),
        d * group_scale_x(high, low, 6u) * numbers_x(word_x(at + 96u) >> shift),
        d * group_scale_x(high, low, 7u) * numbers_x(word_x(at + 112u) >> shift),
    );
}

// The scale of a group, of six bits.
fn group_scale_x(high: u32, low: u32, g: u32) -> f32 {
    return f32((low >> (4u * g) & 15u) | ((high >> (2u * g) & 3u) << 4u)) - 32.0;
}
