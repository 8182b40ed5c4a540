// Bytes of a buffer of words. Pairs and words begin at even byte offsets.
fn byte_x(j: u32) -> u32 {
    return (x[j >> 2u] >> ((j & 3u) * 8u)) & 255u;
}

fn pair_x(j: u32) -> u32 {
    return (x[j >> 2u] >> ((j & 2u) * 8u)) & 65535u;
}

// Word k.
fn aligned_x(k: u32) -> u32 {
    return x[k];
}

fn word_x(j: u32) -> u32 {
    let low = x[j >> 2u];
    if ((j & 2u) == 0u) {
        return low;
    }
    return (low >> 16u) | (x[(j >> 2u) + 1u] << 16u);
}
