// Bytes of a buffer of words. Pairs and words begin at even byte offsets.
fn byte_x(j: u32) -> u32 {
    return (x[j >> 2u] >> ((j & 3u) * 8u)) & 255u;
}

fn pair_x(j: u32) -> u32 {
    return (x[j >> 2u] >> ((j & 2u) * 8u)) & 65535u;
}

fn word_x(j: u32) -> u32 {
    return pair_x(j) | (pair_x(j + 2u) << 16u);
}
