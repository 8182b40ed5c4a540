// table[q] s, with the scale s of 64 neighbours: see `Codebook4` in tensor-core. A header of eight words
// comes first: the byte offsets of the scales, of the scales of 256 scales (0 for scales that are f32), of
// the 256 numbers of their codes, and of the table; then the offset of the scales. All parts begin at words.
fn decode_x(i: u32) -> f32 {
    let q = byte_x(32u + i / 2u) >> (4u - i % 2u * 4u);
    return number_x(q & 15u) * scale_x(i / 64u);
}

fn four_x(i: u32) -> vec4<f32> {
    return numbers_x(pair_x(32u + i / 2u)) * scale_x(i / 64u);
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    // Eight codes are a word, and have one scale.
    let codes = aligned_x(8u + i / 8u);
    let scale = scale_x(i / 64u);
    return array<vec4<f32>, 2>(numbers_x(codes) * scale, numbers_x(codes >> 16u) * scale);
}

// The numbers of four codes, the first of a pair in the high bits of its byte.
fn numbers_x(q: u32) -> vec4<f32> {
    return vec4<f32>(
        number_x(q >> 4u & 15u),
        number_x(q & 15u),
        number_x(q >> 12u & 15u),
        number_x(q >> 8u & 15u),
    );
}

// The number that four bits stand for.
fn number_x(q: u32) -> f32 {
    return float_x(aligned_x(3u), q);
}

// Number k of those that begin at a byte.
fn float_x(start: u32, k: u32) -> f32 {
    return bitcast<f32>(aligned_x(start / 4u + k));
}

// The scale of a block.
fn scale_x(block: u32) -> f32 {
    let nested = aligned_x(1u);
    if (nested == 0u) {
        return float_x(aligned_x(0u), block);
    }
    let code = float_x(aligned_x(2u), byte_x(aligned_x(0u) + block));
    return code * float_x(nested, block / 256u) + float_x(16u, 0u);
}
