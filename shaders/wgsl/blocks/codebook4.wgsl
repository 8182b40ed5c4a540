// table[q] s, with the scale s of 64 neighbours: see `Codebook4` in tensor-core. A header of eight words
// comes first: the byte offsets of the scales, of the scales of 256 scales (0 for scales that are f32), of
// the 256 numbers of their codes, and of the table; then the offset of the scales.
fn decode_x(i: u32) -> f32 {
    let q = byte_x(32u + i / 2u) >> (4u - i % 2u * 4u);
    return number_x(q & 15u) * scale_x(i / 64u);
}

fn four_x(i: u32) -> vec4<f32> {
    let q = pair_x(32u + i / 2u);
    let numbers = vec4<f32>(
        number_x(q >> 4u & 15u),
        number_x(q & 15u),
        number_x(q >> 12u & 15u),
        number_x(q >> 8u & 15u),
    );
    return numbers * scale_x(i / 64u);
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(four_x(i), four_x(i + 4u));
}

// The number that four bits stand for.
fn number_x(q: u32) -> f32 {
    return bitcast<f32>(word_x(word_x(12u) + q * 4u));
}

// The scale of a block.
fn scale_x(block: u32) -> f32 {
    let nested = word_x(4u);
    if (nested == 0u) {
        return bitcast<f32>(word_x(word_x(0u) + block * 4u));
    }
    let code = bitcast<f32>(word_x(word_x(8u) + byte_x(word_x(0u) + block) * 4u));
    return code * bitcast<f32>(word_x(nested + block / 256u * 4u)) + bitcast<f32>(word_x(16u));
}
