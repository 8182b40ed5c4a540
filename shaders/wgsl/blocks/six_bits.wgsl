
// The eight scales and then the eight minimums of a block, each times the block's own factor.
fn eight_scales_x(block: u32) -> array<vec4<f32>, 4> {
    let head = word_x(block);
    let d = unpack_f16(head & 65535u);
    let m = unpack_f16(head >> 16u);
    // Six bits of eight scales and eight minimums.
    let a = word_x(block + 4u);
    let b = word_x(block + 8u);
    let c = word_x(block + 12u);
    return array<vec4<f32>, 4>(
        d * floats_of_u8(a & 0x3f3f3f3fu),
        d * floats_of_u8((c & 0x0f0f0f0fu) | ((a >> 2u) & 0x30303030u)),
        m * floats_of_u8(b & 0x3f3f3f3fu),
        m * floats_of_u8(((c >> 4u) & 0x0f0f0f0fu) | ((b >> 2u) & 0x30303030u)),
    );
}

// The scale and the minimum of group g, six bits each, from the 12 bytes at `at` that hold eight of both.
fn scales_x(at: u32, g: u32) -> vec2<f32> {
    if (g < 4u) {
        return vec2<f32>(f32(byte_x(at + g) & 63u), f32(byte_x(at + g + 4u) & 63u));
    }
    let low = byte_x(at + g + 4u);
    let scale = (low & 15u) | ((byte_x(at + g - 4u) >> 6u) << 4u);
    let minimum = (low >> 4u) | ((byte_x(at + g) >> 6u) << 4u);
    return vec2<f32>(f32(scale), f32(minimum));
}
