// d t[q]. Layout: the exponent of d, then four bits for each of 32 elements, the first 16 in the low halves
// of the bytes. Blocks have 17 bytes, so that words begin anywhere.
fn four_x(i: u32) -> vec4<f32> {
    let block = i / 32u * 17u;
    let e = i % 32u;
    let q = any_word_x(block + 1u + e % 16u) >> (e / 16u * 4u);
    return power_x(byte_x(block)) * numbers_x(q);
}

fn slice_x(i: u32) -> array<vec4<f32>, 2> {
    let block = i / 32u * 17u;
    let d = power_x(byte_x(block));
    let q = any_word_x(block + 1u + i % 32u);
    return array<vec4<f32>, 2>(d * numbers_x(q), d * numbers_x(q >> 4u));
}

// 2^(e - 128), half of the power of two that the exponent stands for, since the numbers below are doubled.
fn power_x(e: u32) -> f32 {
    return bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << e, e < 2u));
}

fn any_word_x(j: u32) -> u32 {
    let shift = (j & 3u) * 8u;
    let low = aligned_x(j >> 2u);
    if (shift == 0u) {
        return low;
    }
    return (low >> shift) | (aligned_x((j >> 2u) + 1u) << (32u - shift));
}

// The number at a position of the table of MXFP4, doubled.
fn number_x(q: u32) -> f32 {
    let low = select(0x03020100u, 0x0c080604u, (q & 4u) != 0u);
    let high = select(0xfdfeff00u, 0xf4f8fafcu, (q & 4u) != 0u);
    return f32(unpack_i8((select(low, high, q >= 8u) >> ((q & 3u) * 8u)) & 255u));
}
